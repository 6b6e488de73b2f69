"""hearth serve from outside: what is told of answers that fail when they have begun, in the form of each interface."""

import signal
import socket
import threading
import unittest

from support import SCRATCH, Server, ServeTest, speaking_model

MODEL = SCRATCH / "speaking.gguf"
SPEAKING = speaking_model(MODEL, "hello ")  # without an end
ENDLESS = 10**6
HELLO = [{"role": "user", "content": "hello"}]
SAYS = "the server ends, and the answer is not complete; ask again later"

# The request of each interface that streams an answer: as events, or as lines.
EVENTS = {
    "/v1/chat/completions": {"messages": HELLO, "max_tokens": ENDLESS, "stream": True},
    "/v1/completions": {"prompt": "hello", "max_tokens": ENDLESS, "stream": True},
    "/v1/messages": {"messages": HELLO, "max_tokens": ENDLESS, "stream": True},
    "/v1/responses": {"input": "hello", "stream": True},
    "/completion": {"prompt": "hello", "n_predict": -1, "stream": True},
}
LINES = {
    "/api/chat": {"messages": HELLO, "options": {"num_predict": -1}},
    "/api/generate": {"prompt": "hello", "options": {"num_predict": -1}},
}
OPENAI_ERROR = {"error": {"message": SAYS, "type": "unavailable_error", "param": None, "code": None}}


class Draining(ServeTest):
    def setUp(self):
        super().setUp()
        self.ended = {}

    def read(self, server, path, begun):
        """Reads a stream to its end, which has to be one, and keeps what came."""
        body = EVENTS.get(path) or LINES[path]
        stream = server.events(path, body) if path in EVENTS else server.lines(path, body)
        got = []
        try:
            for one in stream:
                got.append(one)
                if len(got) == 8:  # there is text among it
                    begun.release()
            self.ended[path] = got
        except Exception as error:  # noqa: BLE001
            self.ended[path] = error
            begun.release()

    def listens(self, server):
        try:
            socket.create_connection((server.host, server.port)).close()
            return True
        except ConnectionError:
            return False

    def ends_of_all(self, server, end):
        """The streams of all interfaces, which are under way when the server is told to end."""
        begun = threading.Semaphore(0)
        readers = [threading.Thread(target=self.read, args=(server, path, begun)) for path in [*EVENTS, *LINES]]
        for reader in readers:
            reader.start()
        for _ in readers:
            begun.acquire()
        end()
        for reader in readers:
            reader.join()
        self.assertEqual(server.wait(), 0)
        for path, got in self.ended.items():
            if isinstance(got, Exception):
                raise AssertionError(f"the stream of {path} has no end") from got
        return self.ended

    def check(self, ends):
        for path in "/v1/chat/completions", "/v1/completions", "/completion":
            with self.subTest(path):
                self.assertEqual(ends[path][-1], (None, OPENAI_ERROR))
                self.assertNotIn((None, "[DONE]"), ends[path])
        name, event = ends["/v1/messages"][-1]
        request = event.pop("request_id")
        self.assertEqual((name, event), ("error", {"type": "error", "error": {"type": "overloaded_error", "message": SAYS}}))
        self.assertRegex(request, r"^\w+$")
        name, event = ends["/v1/responses"][-1]
        self.assertEqual((name, event["type"], event["response"]["status"]), ("response.failed", "response.failed", "failed"))
        self.assertEqual(event["response"]["error"], {"code": "server_error", "message": SAYS})
        self.assertEqual([event["sequence_number"] for _, event in ends["/v1/responses"]], list(range(len(ends["/v1/responses"]))))
        for path in LINES:
            with self.subTest(path):
                self.assertEqual(ends[path][-1], {"error": SAYS})
                self.assertFalse(any(line.get("done") for line in ends[path]))

    def test_the_time_for_the_end_is_over(self):
        server = Server(MODEL, "--drain", "0.3", *SPEAKING)
        self.check(self.ends_of_all(server, lambda: server.send_signal(signal.SIGTERM)))

    def test_a_second_signal(self):
        server = Server(MODEL, "--drain", "600", *SPEAKING)

        def end():
            server.send_signal(signal.SIGTERM)
            while self.listens(server):  # so that both signals are seen
                pass
            server.send_signal(signal.SIGINT)

        self.check(self.ends_of_all(server, end))

    def test_no_time_at_all(self):
        server = Server(MODEL, "--drain", "0", *SPEAKING)
        self.check(self.ends_of_all(server, lambda: server.send_signal(signal.SIGTERM)))

    def test_answers_that_are_no_streams(self):
        """They have a status, by which clients ask again."""
        server = Server(MODEL, "--drain", "0.3", "--parallel", "2", *SPEAKING)
        bodies = {
            "/v1/embeddings": (503, OPENAI_ERROR),  # which compute, and are no answer of the engine's
            "/v1/chat/completions": (503, OPENAI_ERROR),
            "/v1/messages": (529, {"type": "error", "error": {"type": "overloaded_error", "message": SAYS}}),
            "/api/chat": (503, {"error": SAYS}),
        }
        got = {}

        def ask(path):
            body = {"input": "hello " * 100000} if path == "/v1/embeddings" else {**(EVENTS.get(path) or LINES[path]), "stream": False}
            got[path] = server.post(path, body)

        askers = [threading.Thread(target=ask, args=(path,)) for path in bodies]
        for asker in askers:
            asker.start()
        while "hearth_requests_under_way 3\n" not in server.get("/metrics")[2]:
            pass
        server.send_signal(signal.SIGTERM)
        for asker in askers:
            asker.join()
        self.assertEqual(server.wait(), 0)
        for path, (status, error) in bodies.items():
            with self.subTest(path):
                self.assertEqual(got[path][0], status, got[path])
                self.assertEqual(got[path][1]["retry-after"], "1")
                got[path][2].pop("request_id", None)
                self.assertEqual(got[path][2], error)


if __name__ == "__main__":
    unittest.main()
