"""The HTTP server from outside, over sockets: http_test_server.c with every kind of client. Python's standard library only."""

import contextlib
import json
import os
import pathlib
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "support"))
from soak import cases  # noqa: E402

SERVER = os.environ["HTTP_TEST_SERVER"]
HANG = 60  # seconds after which a client that gets nothing is taken for hung
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="hearth-http-"))
unittest.addModuleCleanup(shutil.rmtree, SCRATCH, ignore_errors=True)


class Server:
    """A running server; `log` has its lines so far."""

    def __init__(self, *options, listen=("127.0.0.1:0",), **more):
        words = [SERVER, *options, *(f"listen={address}" for address in listen)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **more)
        self.addresses, self.log, self.changed = [], [], threading.Condition()
        for line in self.process.stdout:
            line = line.rstrip("\n")
            if line == "ready":
                break
            if not line.startswith("listening "):
                self.process.wait()
                self.process.stdout.close()
                raise RuntimeError(line)
            self.addresses.append(line.removeprefix("listening "))
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.log.append(line.rstrip("\n"))
                self.changed.notify_all()

    def wait_log(self, pattern):
        """The first line that has the pattern."""
        until = time.monotonic() + HANG
        with self.changed:
            while True:
                for line in self.log:
                    if re.search(pattern, line):
                        return line
                if not self.changed.wait(until - time.monotonic()):
                    raise AssertionError(f"no line {pattern} in {self.log}")

    def endpoint(self, i=0):
        address = self.addresses[i]
        if address.startswith("unix:"):
            return address[5:]
        host, _, port = address.rpartition(":")
        return host.strip("[]"), int(port)

    def connect(self, i=0, receive_bytes=0):
        to = self.endpoint(i)
        family = socket.AF_UNIX if isinstance(to, str) else socket.AF_INET6 if ":" in to[0] else socket.AF_INET
        client = socket.socket(family)
        client.settimeout(HANG)
        if receive_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.connect(to)
        return client

    def send_signal(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(HANG)
        self.reader.join()
        self.process.stdout.close()
        return status


def request(path="/show", method="GET", body=b"", host="localhost", version="1.1", fields=()):
    lines = [f"{method} {path} HTTP/{version}", f"Host: {host}", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Reader:
    """Answers of a connection, one after the other."""

    def __init__(self, client):
        self.client, self.bytes = client, b""

    def more(self):
        got = self.client.recv(65536)
        self.bytes += got
        return bool(got)

    def until(self, mark):
        while mark not in self.bytes:
            if not self.more():
                raise EOFError(self.bytes)
        got, _, self.bytes = self.bytes.partition(mark)
        return got

    def exactly(self, n):
        while len(self.bytes) < n:
            if not self.more():
                raise EOFError(self.bytes)
        got, self.bytes = self.bytes[:n], self.bytes[n:]
        return got

    def head(self):
        first, *lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        return int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}

    def chunk(self):
        """The next piece of a chunked body; None at its end."""
        size = int(self.until(b"\r\n"), 16)
        piece = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return piece if size else None

    def answer(self, bodiless=False):
        status, fields = self.head()
        if bodiless or status == 204:
            return status, fields, b""
        if "content-length" in fields:
            return status, fields, self.exactly(int(fields["content-length"]))
        if fields.get("transfer-encoding") == "chunked":
            return status, fields, b"".join(iter(self.chunk, None))
        while self.more():
            pass
        return status, fields, self.bytes


class HttpTest(unittest.TestCase):
    def serve(self, *options, **more):
        server = Server(*options, **more)
        self.addCleanup(lambda: self.assertEqual(server.end(), 0))
        return server

    def ask(self, server, bytes, i=0):
        with server.connect(i) as client:
            client.sendall(bytes)
            return Reader(client).answer()

    def stats(self, server):
        return json.loads(self.ask(server, request("/stats"))[2])

    def becomes(self, value, wanted):
        """Asks until the value is the wanted one."""
        until = time.monotonic() + HANG
        while (got := value()) != wanted:
            self.assertLess(time.monotonic(), until, f"{got} stays, {wanted} is wanted")
            time.sleep(0.02)

    def closes(self, client):
        """The server ends the connection, after whatever it sends."""
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(65536):
                got += piece
        return got


class Requests(HttpTest):
    def setUp(self):
        self.server = self.serve()

    def test_one_connection_serves_many_requests(self):
        with self.server.connect() as client:
            reader = Reader(client)
            for i in range(50):
                body = bytes([i]) * (i * 1000)
                client.sendall(request("/echo", "POST", body))
                status, fields, got = reader.answer()
                self.assertEqual((status, got), (200, body))
                self.assertNotIn("connection", fields)
                self.assertRegex(fields["date"], r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")

    def test_pipelined_requests_are_answered_in_their_order(self):
        with self.server.connect() as client:
            many = [request(f"/slow?ms={30 if i % 3 == 0 else 0}") if i % 2 else request("/echo", "POST", b"%d" % i) for i in range(40)]
            client.sendall(b"".join(many))
            reader = Reader(client)
            for i in range(40):
                self.assertEqual(reader.answer()[2], b"slow" if i % 2 else b"%d" % i)

    def test_chunked_bodies(self):
        head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        for chunks, body in [
            (b"1;a=b\r\nx\r\n00A;c\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n", b"x0123456789"),
            (b"".join(b"%x\r\n%s\r\n" % (n, b"z" * n) for n in range(1, 300)) + b"0\r\n\r\n", b"z" * (299 * 150)),
        ]:
            with self.subTest(chunks[:20]), self.server.connect() as client:
                client.sendall(head + chunks + request("/show"))
                reader = Reader(client)
                self.assertEqual(reader.answer()[2], body)
                self.assertEqual(reader.answer()[0], 200)

    def test_head_has_no_body(self):
        with self.server.connect() as client:
            reader = Reader(client)
            for path in ["/show", "/lines", "/stream?n=5"]:
                client.sendall(request(path, "HEAD"))
                self.assertEqual(reader.answer(bodiless=True)[0], 200)
            client.sendall(request("/show"))
            self.assertEqual(reader.answer()[0], 200)
            self.assertEqual(reader.bytes, b"")

    def test_streams(self):
        status, fields, body = self.ask(self.server, request("/events"))
        self.assertEqual((status, fields["content-type"], fields["cache-control"]), (200, "text/event-stream", "no-cache"))
        self.assertEqual(body, b"event: first\ndata: one\ndata: two\ndata: three\n\ndata: \n\ndata: [DONE]\n\n")
        self.assertEqual(self.ask(self.server, request("/lines"))[2], b'{"a":1}\n{"a":2}\n')
        self.assertEqual(self.ask(self.server, request("/stream?n=3&size=2&ms=5"))[2], b"a\nb\nc\n")

    def test_silent_streams_give_signs_of_life(self):
        body = self.ask(self.server, request("/silent?ms=900"))[2]
        self.assertRegex(body, rb"^(:\n\n){2,}$")
        body = self.ask(self.server, request("/silent?ms=900&ping"))[2]
        self.assertRegex(body, rb"^(event: ping\ndata: \{\}\n\n){2,}$")

    def test_http_1_0_gets_a_stream_up_to_the_end_of_the_connection(self):
        with self.server.connect() as client:
            client.sendall(request("/stream?n=3&size=2", version="1.0"))
            status, fields, body = Reader(client).answer()
            self.assertEqual((status, fields["connection"], body), (200, "close", b"a\nb\nc\n"))
            self.assertNotIn("transfer-encoding", fields)

    def test_http_1_0_keeps_a_connection_when_asked(self):
        with self.server.connect() as client:
            reader = Reader(client)
            client.sendall(request(version="1.0", fields=["Connection: keep-alive"]))
            self.assertEqual(reader.answer()[1]["connection"], "keep-alive")
            client.sendall(request(version="1.0"))
            self.assertEqual(reader.answer()[1]["connection"], "close")
            self.assertEqual(client.recv(1), b"")

    def test_connection_close(self):
        with self.server.connect() as client:
            client.sendall(request(fields=["Connection: foo, Close"]))
            self.assertEqual(Reader(client).answer()[1]["connection"], "close")
            self.assertEqual(client.recv(1), b"")

    def test_expect_continue(self):
        with self.server.connect() as client:
            client.sendall(request("/echo", "POST", fields=["Expect: 100-continue", "Content-Length: 4"]))
            reader = Reader(client)
            self.assertEqual(reader.head()[0], 100)
            client.sendall(b"body")
            self.assertEqual(reader.answer()[2], b"body")

    def test_refusals_have_the_form_of_the_layer_above(self):
        for sent, status in [
            (b"GET / HTTP/1.1\r\n\r\n", 400),
            (request("/" + "a" * 9000), 414),
            (request(fields=["X: " + "a" * 33000]), 431),
            (request("/echo", "POST", fields=["Expect: tea", "Content-Length: 1"]), 417),
            (request("/echo", "POST", fields=["Content-Length: 8388609"]), 413),
            (request("/echo", "POST", fields=["Transfer-Encoding: chunked"]) + b"800001\r\n", 413),
        ]:
            with self.subTest(sent[:60]), self.server.connect() as client:
                client.sendall(sent)
                reader = Reader(client)
                got, fields, body = reader.answer()
                self.assertEqual((got, json.loads(body)["status"], fields["connection"]), (status, status, "close"))
                self.assertEqual(client.recv(1), b"")

    def test_a_refusal_is_read_by_who_goes_on_sending(self):
        with self.server.connect() as client:
            client.sendall(request("/echo", "POST", fields=["Content-Length: 100000000"]))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for _ in range(100):
                    client.sendall(b"x" * 65536)
            self.assertEqual(Reader(client).answer()[0], 413)

    def test_refused_before_its_body_and_with_none(self):
        with self.server.connect() as client:
            reader = Reader(client)
            client.sendall(request("/no-body"))
            status, fields, _ = reader.answer()
            self.assertEqual(status, 404)
            self.assertNotIn("connection", fields)
            client.sendall(request("/no-body", "POST", fields=["Content-Length: 5", "Expect: 100-continue"]))
            status, fields, _ = reader.answer()
            self.assertEqual((status, fields["connection"]), (404, "close"))

    def test_forgotten_requests_get_an_answer(self):
        self.assertEqual(self.ask(self.server, request("/forget"))[0], 500)
        with self.server.connect() as client:
            client.sendall(request("/half"))
            self.closes(client)
        with self.server.connect() as client:
            client.sendall(request("/stream?n=2&abort=1"))
            with self.assertRaises((EOFError, ConnectionResetError)):
                Reader(client).answer()

    def test_ids(self):
        for given, kept in [("abc-1.2:3_4", True), ("a b", False), ("x" * 129, False), ("<script>", False)]:
            id = self.ask(self.server, request(fields=[f"X-Request-Id: {given}"]))[1]["x-request-id"]
            self.assertEqual(id == given, kept)
            self.assertTrue(kept or re.fullmatch("[0-9a-f]{24}", id))
        self.ask(self.server, request("/echo", "POST", b"12345", fields=["X-Request-Id: logged"]))
        self.assertRegex(self.server.wait_log(" logged "), r"^log POST /echo 200 \d+ logged 127.0.0.1 1$")

    def test_clients_that_leave_at_every_moment(self):
        whole = request("/echo", "POST", b"0123456789") + request("/stream?n=50&size=100&ms=1")
        for end in range(1, len(whole) + 1):
            for reset in [False, True]:
                client = self.server.connect()
                if reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(whole[:end])
                if end % 7 == 0 and end >= len(whole) // 2:
                    client.recv(10)
                client.close()
        self.becomes(lambda: self.stats(self.server)["waiting"], 0)
        self.becomes(lambda: self.stats(self.server)["connections"], 1)

    def test_an_owner_is_told_once_and_soon_that_its_client_has_gone(self):
        for leave in ["fin", "rst", "half", "read ahead"]:
            with self.subTest(leave):
                before = self.stats(self.server)["gone"]
                client = self.server.connect()
                client.sendall(request("/slow?ms=60000"))
                if leave == "read ahead":  # more than the server reads meanwhile, and no more than its system takes
                    client.sendall(request("/slow?ms=60000") * (100000 // len(request("/slow?ms=60000"))))
                time.sleep(0.1)
                begin = time.monotonic()
                if leave == "half":
                    client.shutdown(socket.SHUT_WR)
                else:
                    if leave == "rst":
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
                self.becomes(lambda: self.stats(self.server)["gone"], before + 1)
                self.assertLess(time.monotonic() - begin, HANG)
                self.becomes(lambda: self.stats(self.server)["waiting"], 0)
                client.close()

    def test_half_closed_clients_get_answers_that_are_there(self):
        with self.server.connect() as client:
            client.sendall(request("/echo", "POST", b"a") + request("/echo", "POST", b"b"))
            client.shutdown(socket.SHUT_WR)
            reader = Reader(client)
            self.assertEqual([reader.answer()[2], reader.answer()[2]], [b"a", b"b"])
            self.assertEqual(client.recv(1), b"")


class Limits(HttpTest):
    def test_slow_heads_and_bodies(self):
        server = self.serve("head=0.3", "body=0.3", "idle=0.6")
        for sent, status in [(b"GET / HT", 408), (request("/echo", "POST", fields=["Content-Length: 10"]) + b"123", 408), (b"", None)]:
            with self.subTest(sent), server.connect() as client:
                client.sendall(sent)
                got = self.closes(client)
                self.assertTrue(got.startswith(b"HTTP/1.1 408 ") if status else got == b"", got)

    def test_a_client_that_sends_a_byte_now_and_then(self):
        server = self.serve("head=0.5", "body=0.5")
        for begin in [b"GET / HTTP/1.1\r\nX: ", request("/echo", "POST", fields=["Content-Length: 100000"])]:
            with self.subTest(begin[:20]), server.connect() as client:
                client.sendall(begin)
                while not select.select([client], [], [], 0.05)[0]:
                    client.sendall(b"x")
                self.assertEqual(Reader(client).answer()[0], 408)

    def test_a_body_that_makes_progress_may_take_its_time(self):
        server = self.serve("body=0.4")
        with server.connect() as client:
            client.sendall(request("/echo", "POST", fields=["Content-Length: 20000"]))
            for _ in range(20):
                time.sleep(0.05)
                client.sendall(b"x" * 1000)
            self.assertEqual(len(Reader(client).answer()[2]), 20000)

    def test_bodies_share_a_limit(self):
        server = self.serve("all_body_bytes=100000")
        with server.connect() as first:
            first.sendall(request("/echo", "POST", fields=["Content-Length: 90000"]) + b"x" * 80000)
            time.sleep(0.2)
            status, fields, _ = self.ask(server, request("/echo", "POST", b"y" * 30000))
            self.assertEqual((status, fields["retry-after"]), (503, "1"))
            first.sendall(b"x" * 10000)
            self.assertEqual(len(Reader(first).answer()[2]), 90000)
        self.assertEqual(self.ask(server, request("/echo", "POST", b"y" * 30000))[0], 200)

    def test_the_oldest_idle_connection_makes_room(self):
        server = self.serve("connections=4")
        idle = [server.connect() for _ in range(4)]
        self.becomes(lambda: len(select.select(idle[:1], [], [], 0)[0]), 0)
        self.assertEqual(self.ask(server, request())[0], 200)
        self.assertEqual(self.closes(idle[0]), b"")
        self.assertEqual(select.select(idle[1:], [], [], 0)[0], [])
        for client in idle:
            client.close()

    def test_without_an_idle_one_a_client_is_told(self):
        server = self.serve("connections=3")
        busy = [server.connect() for _ in range(3)]
        for client in busy:
            client.sendall(request("/slow?ms=1500"))
        time.sleep(0.3)
        status, fields, body = self.ask(server, request())
        self.assertEqual((status, fields["retry-after"], json.loads(body)["status"]), (503, "1", 503))
        for client in busy:
            self.assertEqual(Reader(client).answer()[2], b"slow")
            client.close()
        self.becomes(lambda: self.ask(server, request())[0], 200)

    def test_many_idle_connections(self):
        wanted = cases(1000, 10000)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        n = min(wanted, hard - 100)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, n + 100), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        server = self.serve()
        before = self.stats(server)
        clients = [server.connect() for _ in range(n)]
        self.becomes(lambda: self.stats(server)["connections"], n + 1)
        after = self.stats(server)
        if os.environ.get("HTTP_TEST_SANITIZED") != "1":
            self.assertLess(after["peak_kib"] - before["peak_kib"], 6 * n)
        for client in clients[:: n // 50]:
            client.sendall(request())
            self.assertEqual(Reader(client).answer()[0], 200)
        for client in clients:
            client.close()
        self.becomes(lambda: self.stats(server)["connections"], 1)

    def test_slow_readers_take_bounded_memory(self):
        for path, total in [("/stream?n=1250&size=16000", 20000000), ("/stream?n=100000&size=40", 4000000)]:
            with self.subTest(path):
                self.check_slow_readers(path, total)

    def check_slow_readers(self, path, total):
        n = cases(30, 1000)
        bound = 65536 if n == 30 else 262144
        server = self.serve(f"stream_bytes={bound}")
        before = self.stats(server)["peak_kib"]
        clients = [server.connect(receive_bytes=4096) for _ in range(n)]
        for client in clients:
            client.sendall(request(path))
        self.becomes(lambda: self.stats(server)["slow"] >= n, True)
        time.sleep(0.3)
        if os.environ.get("HTTP_TEST_SANITIZED") != "1":
            self.assertLess(self.stats(server)["peak_kib"] - before, n * (2 * bound / 1024 + 64))
        reader = Reader(clients[0])  # whoever reads on gets all of it
        self.assertEqual(len(reader.answer()[2]), total)
        for client in clients:
            client.close()
        self.becomes(lambda: self.stats(server)["gone"], n - 1)
        self.becomes(lambda: self.stats(server)["freed"], n)

    def test_a_stream_from_another_thread_waits_for_its_reader(self):
        server = self.serve("stream_bytes=10000")
        with server.connect(receive_bytes=4096) as client:
            client.sendall(request("/stream?n=400&size=50000"))
            self.becomes(lambda: self.stats(server)["slow"] > 0, True)
            self.assertEqual(len(Reader(client).answer()[2]), 400 * 50000)

    def test_a_reader_that_stops_is_cut(self):
        server = self.serve("write=0.5", "stream_bytes=65536")
        with server.connect(receive_bytes=4096) as client:
            client.sendall(request("/stream?n=3125&size=16000"))
            self.becomes(lambda: self.stats(server)["gone"], 1)

    def test_no_descriptors_left(self):
        server = self.serve(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
        busy = [server.connect() for _ in range(20)]
        for client in busy:
            client.sendall(request("/slow?ms=3000"))
        time.sleep(0.3)
        idle = [server.connect() for _ in range(60)]
        cpu = None
        for client in busy:
            self.assertEqual(Reader(client).answer()[2], b"slow")
            client.close()
        for client in idle:
            client.close()
        cpu = self.stats(server)["cpu"]
        self.assertLess(cpu, 2.5, "it spins")
        self.assertEqual(self.ask(server, request())[0], 200)


class Places(HttpTest):
    def test_addresses(self):
        path = SCRATCH / "socket"
        listen = ["127.0.0.1:0", f"unix:{path}", "localhost:0"]
        if socket.has_ipv6 and pathlib.Path("/proc/net/if_inet6").exists():
            listen.append("[::1]:0")
        server = Server(listen=listen)
        try:
            self.assertGreaterEqual(len(server.addresses), len(listen))
            for i in range(len(server.addresses)):
                self.assertEqual(self.ask(server, request(), i)[0], 200)
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)
            with self.assertRaisesRegex(RuntimeError, "in use"):
                Server(listen=[f"unix:{path}"])
            with self.assertRaisesRegex(RuntimeError, "in use"):
                Server(listen=[server.addresses[0]])
        finally:
            self.assertEqual(server.end(), 0)
        self.assertFalse(path.exists())

    def test_a_socket_that_a_killed_server_left(self):
        path = SCRATCH / "left"
        server = Server(listen=[f"unix:{path}"])
        server.end(signal.SIGKILL)
        self.assertTrue(path.exists())
        self.assertEqual(self.ask(self.serve(listen=[f"unix:{path}"]), request())[0], 200)

    def test_addresses_that_are_none(self):
        (SCRATCH / "file").write_text("kept")
        for address, says in [("8080", "no address"), ("::1:80", "no address"), ("a:b", "no address"), ("127.0.0.1:70000", "no address"),
                              ("no.such.host.invalid:1", "cannot be listened at"), ("unix:", "path"), ("unix:" + "a" * 200, "path"),
                              (f"unix:{SCRATCH / 'file'}", "in use"), ("[::1:80", "no address")]:  # fmt: skip
            with self.subTest(address), self.assertRaisesRegex(RuntimeError, says):
                Server(listen=[address])
        self.assertEqual((SCRATCH / "file").read_text(), "kept")


class Endings(HttpTest):
    def test_drain(self):
        server = Server("drain=30")
        idle, busy, stream, reading = (server.connect() for _ in range(4))
        busy.sendall(request("/slow?ms=800"))
        stream.sendall(request("/stream?n=20&ms=40&size=10"))
        reading.sendall(request("/echo", "POST", fields=["Content-Length: 4"]) + b"bo")
        reader = Reader(stream)
        reader.head()
        time.sleep(0.2)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(self.closes(idle), b"")
        with self.assertRaises(ConnectionRefusedError):
            server.connect()
        reading.sendall(b"dy")
        status, fields, body = Reader(reading).answer()
        self.assertEqual((status, fields["connection"], body), (200, "close", b"body"))
        status, fields, body = Reader(busy).answer()
        self.assertEqual((status, fields["connection"], body), (200, "close", b"slow"))
        self.assertEqual(len(b"".join(iter(reader.chunk, None))), 200)
        self.assertEqual(server.process.wait(HANG), 0)
        self.assertEqual(server.end(), 0)
        for client in (idle, busy, stream, reading):
            client.close()

    def test_a_drain_cuts_what_takes_too_long(self):
        server = Server("drain=0.3")
        with server.connect() as client, server.connect() as half:
            client.sendall(request("/slow?ms=60000"))
            half.sendall(request("/echo", "POST", fields=["Content-Length: 100"]) + b"{")
            time.sleep(0.2)
            server.send_signal(signal.SIGTERM)
            self.assertEqual((self.closes(client), self.closes(half)), (b"", b""))
        self.assertEqual(server.end(), 0)
        self.assertTrue(any(line.endswith(" 0") and "/slow" in line for line in server.log), server.log)

    def test_what_takes_too_long_may_say_so(self):
        """By an end of its own; what does not end even then is cut."""
        for seconds, number in [("0.3", signal.SIGTERM), ("600", signal.SIGINT)]:
            server = Server(f"drain={seconds}")
            readers = []
            for words in 1, 0:
                client = server.connect()
                self.addCleanup(client.close)
                client.sendall(request(f"/endless?words={words}"))
                readers.append(Reader(client))
                self.assertEqual(readers[-1].head()[0], 200)
            server.send_signal(number)
            self.assertEqual(b"".join(iter(readers[0].chunk, None)), b"the end\n")
            self.assertEqual(self.closes(client), b"")
            self.assertEqual(server.end(), 0)
            self.assertEqual(sorted(line.split()[-1] for line in server.log if "/endless" in line), ["0", "1"])


@unittest.skipUnless(shutil.which("openssl"), "skipped: there is no openssl to make a certificate with")
class Tls(HttpTest):
    def setUp(self):
        self.certificate, key = SCRATCH / "used.pem", SCRATCH / "used.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", "/CN=used", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", self.certificate],
            check=True, capture_output=True)  # fmt: skip
        self.server = self.serve(f"certificate={self.certificate}", f"key={key}", "head=1")

    def connect(self, **more):
        context = ssl.create_default_context(cafile=self.certificate)
        context.set_alpn_protocols(["h2", "http/1.1"])
        for name, value in more.items():
            setattr(context, name, value)
        return context.wrap_socket(self.server.connect(), server_hostname="localhost")

    def test_requests(self):
        with self.connect() as client:
            self.assertEqual(client.selected_alpn_protocol(), "http/1.1")
            reader = Reader(client)
            for body in [b"", b"x", b"y" * 300000]:
                client.sendall(request("/echo", "POST", body))
                self.assertEqual(reader.answer()[2], body)
            client.sendall(request("/stream?n=20&size=30000"))
            self.assertEqual(len(reader.answer()[2]), 600000)
            client.sendall(request("/stream?n=3&size=2", version="1.0"))
            self.assertEqual(reader.answer()[2], b"a\nb\nc\n")

    def test_versions(self):
        with self.assertRaises(ssl.SSLError):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.wrap_socket(self.server.connect())
        with self.connect(maximum_version=ssl.TLSVersion.TLSv1_2) as client:
            client.sendall(request())
            self.assertEqual(Reader(client).answer()[0], 200)

    def test_clients_that_speak_something_else_or_nothing(self):
        for sent in [request(), b"\x16\x03\x01\x00\x05hello", b""]:
            with self.subTest(sent[:10]), self.server.connect() as client:
                client.sendall(sent)
                self.assertNotIn(b"HTTP", self.closes(client))

    def test_leaving(self):
        client = self.connect()
        client.sendall(request("/slow?ms=60000"))
        time.sleep(0.1)
        client.close()
        self.assertRegex(self.server.wait_log("/slow"), " 0$")


if __name__ == "__main__":
    unittest.main()
