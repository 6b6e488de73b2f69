"""What the tests of `hearth serve` share: a running server, requests to it, and its end, which has to be clean."""

import atexit
import collections
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
sys.path.append(str(ROOT / "tests/support"))
import tiny_model  # noqa: E402
from files import write_lora  # noqa: E402, F401
from soak import cases, takes  # noqa: E402, F401

tiny_model.SAMPLING["temp"] = 1.0  # answers depend on the seed

HEARTH = os.environ["HEARTH"]
os.environ.setdefault("HEARTH_DEVICE", "cpu")  # not what the machine happens to have
HANG = 300  # seconds after which a server that says nothing is taken for hung; a sanitizer's build is slow
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="hearth-serve-"))
TINY = SCRATCH / "tiny.gguf"  # a model with a chat template, an ample context and random weights
CHECKPOINTS = ROOT / "tests/golden/tiny"  # tiny checkpoints of every family
ADAPTERS = ROOT / "tests/golden/adapters"
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)
tiny_model.write(TINY)


def variant(name, special=(), words=(), **how):
    """A tiny checkpoint with more special tokens, whole words as the last tokens, or as tiny_model.write has it otherwise."""
    path = SCRATCH / name  # a whole path stays
    kept, vocabulary = list(tiny_model.SPECIAL), tiny_model.vocabulary
    tiny_model.SPECIAL.extend(special)
    tiny_model.vocabulary = lambda: vocabulary() + list(words)
    try:
        tiny_model.write(path, **how)
    finally:
        tiny_model.SPECIAL[:] = kept
        tiny_model.vocabulary = vocabulary
    return path


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]


def text_encoder(path):
    """A BERT of tests/golden with a vocabulary, and so many positions that 38 words fit."""
    shutil.copytree(ROOT / "tests/golden/encoders/bert", path)
    more = ["hello", "the", "world"]
    (path / "vocab.txt").write_text("".join(f"{word}\n" for word in [*WORDS, *more, *(f"[unused{i}]" for i in range(64 - len(WORDS) - len(more)))]))
    return path


def speaking_model(path, text):
    """Writes a model like TINY with a token more, the text, and returns options by which all its answers are that token, again and again."""
    variant(path, words=["".join(tiny_model.byte_alphabet()[byte] for byte in text.encode())])
    return [f"--logit-bias={len(tiny_model.vocabulary())}=100"]


def saying_model(path, pieces, special, **how):
    """Writes a model with a token for each piece, and returns options by which all its answers are these pieces in order. A piece
    that is one of `special` is a special token."""
    words = [piece for piece in pieces if piece not in special]
    alphabet = tiny_model.byte_alphabet()
    variant(path, special=special, words=["".join(alphabet[byte] for byte in word.encode()) for word in words], **how)
    first_word = len(tiny_model.vocabulary()) + len(special)
    ids = [len(tiny_model.SPECIAL) + special.index(piece) if piece in special else first_word + words.index(piece) for piece in pieces]
    # A piece that was said is less likely than those after it, and each of them is likelier than all other tokens.
    biases = (f"--logit-bias={token}={100 - 80 * i / len(ids)}" for i, token in enumerate(ids))
    return ["--temperature=0", "--presence-penalty=100", *biases]


def until(true):
    """Asks until something is true."""
    end = time.monotonic() + HANG
    while not true():
        if time.monotonic() > end:
            raise AssertionError("it does not come true")
        time.sleep(0.02)


def together(run, items):
    """Runs a function for each item on a thread of its own, and waits for all."""
    threads = [threading.Thread(target=run, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class NotServing(Exception):
    """The server ended before it was ready; `status` and `err` are the process's."""

    def __init__(self, status, err):
        super().__init__(f"hearth serve ended with {status}: {err}")
        self.status, self.err = status, err


class Refused(Exception):
    """A stream was asked for, and another status than 200 came; `body` is the parsed answer."""

    def __init__(self, status, headers, body):
        super().__init__(f"{status}: {body}")
        self.status, self.headers, self.body = status, headers, body


class UnixConnection(http.client.HTTPConnection):
    """A connection to the socket of that path."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Lines:
    """The lines of a streamed answer as they come; closing it leaves the server alone with the rest."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response

    def __iter__(self):
        for line in self.response:
            yield line.decode().rstrip("\n")

    def close(self):
        self.response.close()
        self.connection.close()


def parsed(text):
    """The JSON value of a text; the text itself when it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


class Reply(collections.namedtuple("Reply", "status fields json")):
    """A response: its status, headers by their names in lower case, and the parsed JSON or else the text, which `text` is in any case."""

    @property
    def lines(self):
        """The values of an answer of JSON lines."""
        return [json.loads(line) for line in self.text.splitlines() if line]

    @property
    def events(self):
        """The values of an answer of server-sent events."""
        return [json.loads(line[6:]) for line in self.text.splitlines() if line.startswith("data: {")]


class Server:
    """`hearth serve MODEL OPTIONS...`, ready for requests; `with` stops it.

    A port that is free is taken unless the options say where to listen; model None is none (--models). `keys` become a file for
    --api-key-file, and the first is shown with every request. `tls` is an ssl.SSLContext that trusts the server. With ready=False
    the constructor does not wait. `env` adds to the environment; `more` goes to subprocess.Popen.
    """

    def __init__(self, model=TINY, *options, keys=(), tls=None, ready=True, env=None, **more):
        words = [HEARTH, "serve", *([] if model is None else [model]), *options]
        if "--port" not in options and "--host" not in options:
            words += ["--port", "0"]
        self.key = keys[0] if keys else None
        if keys:
            self.key_file = SCRATCH / f"keys-{os.getpid()}-{id(self)}"
            self.key_file.write_text("".join(f"{key}\n" for key in keys))
            words += ["--api-key-file", self.key_file]
        self.tls = tls
        self.err, self.changed, self.ended = [], threading.Condition(), False
        self.url = self.host = self.port = self.path = self.name = None
        self.process = subprocess.Popen(
            list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})}, **more
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if ready:
            self.wait_ready()

    # ---- what it says ----

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.err.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_line(self, pattern):
        """The match of the first line of standard error that has the pattern."""
        until = time.monotonic() + HANG
        with self.changed:
            while True:
                for line in self.err:
                    if match := re.search(pattern, line):
                        return match
                if self.ended:
                    raise NotServing(self.process.wait(HANG), "\n".join(self.err))
                if not self.changed.wait(until - time.monotonic()):
                    self.kill()
                    raise AssertionError(f"no line {pattern!r} in {self.err}")

    def wait_ready(self):
        """Waits for the line with the address, from which url, host and port, or path, are."""
        try:
            self.name, self.url = self.wait_line(r"^Serving (.+) at (\S+)$").groups()
        except BaseException:
            self.kill()
            raise
        if self.url.startswith("unix:"):
            self.path = self.url[5:]
        else:
            host, _, port = self.url.split("://")[1].rpartition(":")
            self.host, self.port = host.strip("[]"), int(port)

    # ---- requests ----

    def connect(self):
        if self.path:
            return UnixConnection(self.path, HANG)
        if self.url.startswith("https:"):
            return http.client.HTTPSConnection(self.host, self.port, timeout=HANG, context=self.tls or ssl.create_default_context())
        return http.client.HTTPConnection(self.host, self.port, timeout=HANG)

    def _ask(self, connection, method, path, body, headers):
        fields = {"Content-Type": "application/json"} if body is not None else {}
        if self.key:
            fields["Authorization"] = f"Bearer {self.key}"
        fields.update(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection.request(method, path, body.encode() if isinstance(body, str) else body, fields)
        response = connection.getresponse()
        all_fields = {}
        for name, value in response.getheaders():
            name = name.lower()
            all_fields[name] = f"{all_fields[name]}, {value}" if name in all_fields else value
        return response, all_fields

    def request(self, method, path, body=None, headers=None):
        """The Reply to a request. A body that is no text is sent as JSON."""
        connection = self.connect()
        try:
            response, fields = self._ask(connection, method, path, body, headers)
            text = response.read().decode()
            reply = Reply(response.status, fields, parsed(text))
            reply.text = text
            return reply
        finally:
            connection.close()

    def get(self, path, headers=None):
        return self.request("GET", path, None, headers)

    def metric(self, name):
        """A measurement of the server."""
        return float(re.search(rf"^hearth_{name} (\S+)$", self.get("/metrics")[2], re.M)[1])

    def begin(self, path, body):
        """A socket on which a request has been sent, and nothing is read."""
        payload = json.dumps(body).encode()
        client = socket.create_connection((self.host, self.port))
        client.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(payload)) + payload)
        return client

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def answer(self, path, body, headers=None):
        """The parsed answer, whose status has to be 200."""
        status, fields, got = self.post(path, body, headers)
        if status != 200:
            raise Refused(status, fields, got)
        return got

    def stream(self, path, body, headers=None, kind="text/event-stream"):
        """The Lines of a streamed answer, whose head has come."""
        connection = self.connect()
        try:
            response, fields = self._ask(connection, "POST", path, body, headers)
            if response.status != 200:
                raise Refused(response.status, fields, parsed(response.read().decode()))
            if not fields["content-type"].startswith(kind):
                raise AssertionError(f"{path} has sent {fields['content-type']}, {kind} was expected")
        except BaseException:
            connection.close()
            raise
        return Lines(connection, response)

    def events(self, path, body, headers=None):
        """(name, data) of each server-sent event as it comes; name None: it has none. Data that is JSON is parsed."""
        lines = self.stream(path, body, headers)
        try:
            name, data = None, []
            for line in lines:
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data.append(line[6:])
                elif line == "" and data:
                    yield name, parsed("\n".join(data))
                    name, data = None, []
                elif line and not line.startswith(":"):
                    raise AssertionError(f"no line of server-sent events: {line!r}")
            if data:
                raise AssertionError(f"the stream ended within an event: {data}")
        finally:
            lines.close()

    def lines(self, path, body, headers=None):
        """The parsed lines of an NDJSON stream as they come."""
        lines = self.stream(path, body, headers, "application/x-ndjson")
        try:
            for line in lines:
                yield json.loads(line)
        finally:
            lines.close()

    # ---- its end ----

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self._close()

    def _close(self):
        status = self.process.wait(HANG)
        self.reader.join(HANG)
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def send_signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        """Waits for its end, which has to be clean, and returns its exit status."""
        try:
            self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server does not end: {self.err}") from None
        status = self._close()
        for line in self.err:
            if "Sanitizer" in line or "runtime error:" in line:
                raise AssertionError("\n".join(self.err))
        return status

    def stop(self, number=signal.SIGTERM):
        """Ends it by a signal; its exit status has to be 0, and no sanitizer may have complained. Once more is fine."""
        if self.process.stderr.closed:
            return
        if self.process.poll() is None:
            self.send_signal(number)
        if status := self.wait():
            raise AssertionError(f"the server ended with {status}: " + "\n".join(self.err))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            self.kill()
        else:
            self.stop()


class PlainServer(Server):
    """One of a single thread, whose requests are written as fields."""

    def __init__(self, model, *options, **more):
        super().__init__(model, "--threads", "1", *options, **more)

    def post(self, path, **body):
        return self.request("POST", path, body)


class ServeTest(unittest.TestCase):
    """A class that names `model` has one server for all its tests, with `options` and `keys`."""

    model, options, keys, server, kind = None, (), (), None, Server

    @classmethod
    def setUpClass(cls):
        if cls.model:
            cls.server = cls.kind(cls.model, *cls.options, keys=cls.keys)

    @classmethod
    def tearDownClass(cls):
        if cls.server:
            cls.server.stop()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=SCRATCH))

    def serve(self, *words, **more):
        """A server of this test alone."""
        server = self.kind(*words, **more)
        self.addCleanup(server.stop)
        return server

    def ok(self, path, body, headers=None, server=None):
        """The parsed answer, whose status has to be 200."""
        status, _, got = (server or self.server).post(path, body, headers)
        self.assertEqual(status, 200, got)
        return got

    def refused(self, status, path, body, param=None, says=(), code=None, method="POST", headers=None, server=None):
        """The answer is an error in OpenAI's form; returns its members."""
        got, _, answer = (server or self.server).request(method, path, body, headers)
        self.assertEqual(got, status, answer)
        self.assertEqual(set(answer), {"error"})
        error = answer["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual((error["param"], error["code"]), (param, code), error)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, error["message"])
        return error


class PlainTest(ServeTest):
    model, kind = TINY, PlainServer
