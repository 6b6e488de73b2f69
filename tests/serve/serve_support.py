"""What the tests of `hearth serve` share: a server on a port of its own, and requests to it."""

import http.client
import json
import os
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
import support  # noqa: E402

TINY = support.TINY


def variant(name, special=(), words=(), **how):
    """A tiny checkpoint with more special tokens, whole words as the last tokens, or as tiny_model.write has it otherwise."""
    path = support.SCRATCH / name
    tiny = support.tiny_model
    kept, vocabulary = list(tiny.SPECIAL), tiny.vocabulary
    tiny.SPECIAL.extend(special)
    tiny.vocabulary = lambda: vocabulary() + list(words)
    try:
        tiny.write(path, **how)
    finally:
        tiny.SPECIAL[:] = kept
        tiny.vocabulary = vocabulary
    return path


class Reply:
    def __init__(self, status, fields, data):
        self.status = status
        self.fields = fields
        self.data = data

    @property
    def json(self):
        return json.loads(self.data)

    @property
    def lines(self):
        """The values of an answer of JSON lines."""
        return [json.loads(line) for line in self.data.decode().splitlines() if line]

    @property
    def events(self):
        """The values of an answer of server-sent events."""
        return [json.loads(line[6:]) for line in self.data.decode().splitlines() if line.startswith("data: {")]


class Server:
    """`hearth serve` of a model, ready when it is made."""

    def __init__(self, model, *options):
        words = [support.HEARTH, "serve", str(model), "--port", "0", "--threads", "1", *map(str, options)]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.said = []
        self.url = None
        for line in self.process.stderr:
            self.said.append(line)
            if " at http://" in line:
                self.url = line.split(" at ")[1].strip()
                break
        if not self.url:
            self.close()
            raise AssertionError(f"the server did not begin: {''.join(self.said)}")
        self.address = self.url.split("//")[1]
        # What it says later is read, so that the pipe never fills.
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def ask(self, method, path, body=None, raw=None):
        connection = http.client.HTTPConnection(self.address, timeout=300)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        reply = Reply(response.status, response.headers, response.read())
        connection.close()
        return reply

    def post(self, path, **body):
        return self.ask("POST", path, body)

    def get(self, path):
        return self.ask("GET", path)

    def close(self):
        """Ends the server, and returns its status."""
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait()
        if self.url:
            self.reader.join()
        self.process.stderr.close()
        return status
