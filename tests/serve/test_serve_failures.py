"""hearth serve from outside: what is told of answers that fail when they have begun, in the form of each interface."""

import json
import re
import signal
import socket
import threading
import unittest

from support import SCRATCH, Server, ServeTest, speaking_model, tiny_model

MODEL = SCRATCH / "speaking.gguf"
SPEAKING = speaking_model(MODEL, "hello ")  # without an end
ENDLESS = 10**6
HELLO = [{"role": "user", "content": "hello"}]
SAYS = "server is shutting down; response incomplete"

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
# A model that cannot go on behind a "~", and what makes an answer come to one.
BROKEN = SCRATCH / "broken.gguf"
PATTERN = "hello~[a-z]{4}"
NO_NUMBER = re.compile(r"^the logit of token \d+ is nan")
OPENAI_ERROR = {"error": {"message": SAYS, "type": "unavailable_error", "param": None, "code": None}}


def broken_model():
    plain = tiny_model.tensors
    token = tiny_model.vocabulary().index("~")

    def tensors():
        for name, shape, numbers in plain():
            if name == "token_embd.weight":
                yield "output.weight", shape, list(numbers)  # the head has numbers alone
                numbers[token * shape[0] : (token + 1) * shape[0]] = [float("nan")] * shape[0]
            yield name, shape, numbers

    tiny_model.tensors = tensors
    try:
        tiny_model.write(BROKEN)
    finally:
        tiny_model.tensors = plain


broken_model()


class Computing(ServeTest):
    """The engine fails when an answer has begun: its text has come, and then why there is no more."""

    model = BROKEN

    def body(self, path):
        body = {**(EVENTS.get(path) or LINES[path]), "seed": 1}
        return {**body, "format": {"type": "string", "pattern": f"^{PATTERN}$"}} if path in LINES else {**body, "regex": PATTERN}

    def events(self, path):
        got = list(self.server.events(path, self.body(path)))
        return got, json.dumps(got[:-1])

    def test_openai(self):
        for path in "/v1/chat/completions", "/v1/completions", "/completion":
            with self.subTest(path):
                got, before = self.events(path)
                self.assertIn('"~"', before)
                (name, event) = got[-1]
                self.assertEqual((name, set(event)), (None, {"error"}))
                self.assertRegex(event["error"].pop("message"), NO_NUMBER)
                self.assertEqual(event["error"], {"type": "server_error", "param": None, "code": None})
                error = self.refused(500, path, {**self.body(path), "stream": False}, says="is nan")
                self.assertEqual(error["type"], "server_error")

    def test_anthropic(self):
        got, before = self.events("/v1/messages")
        self.assertIn('"text": "~"', before)
        name, event = got[-1]
        self.assertEqual((name, event["type"], event["error"]["type"]), ("error", "error", "api_error"))
        self.assertRegex(event["error"]["message"], NO_NUMBER)
        status, fields, answer = self.server.post("/v1/messages", {**self.body("/v1/messages"), "stream": False})
        self.assertEqual((status, answer["error"]["type"], answer["request_id"]), (500, "api_error", fields["request-id"]))

    def test_responses(self):
        got, before = self.events("/v1/responses")
        self.assertIn('"delta": "~"', before)
        name, event = got[-1]
        self.assertEqual((name, event["response"]["status"]), ("response.failed", "failed"))
        self.assertEqual(event["response"]["error"]["code"], "server_error")
        self.assertRegex(event["response"]["error"]["message"], NO_NUMBER)
        self.refused(500, "/v1/responses", {**self.body("/v1/responses"), "stream": False}, says="is nan")

    def test_ollama(self):
        for path in LINES:
            with self.subTest(path):
                got = list(self.server.lines(path, self.body(path)))
                self.assertIn('"~"', json.dumps(got[:-1]))
                self.assertEqual(set(got[-1]), {"error"})
                self.assertRegex(got[-1]["error"], NO_NUMBER)
                self.assertEqual(self.server.post(path, {**self.body(path), "stream": False})[0], 500)

    def test_one_of_several_answers(self):
        """The others come to their end, and the error is behind them."""
        body = {**self.body("/v1/completions"), "regex": "[a-c~][a-z]{4}", "temperature": 5, "n": 16}
        *events, (_, last) = self.server.events("/v1/completions", body)
        self.assertEqual(set(last), {"error"})
        ended = [event["choices"][0]["index"] for _, event in events if event["choices"][0]["finish_reason"]]
        self.assertTrue(0 < len(set(ended)) == len(ended) < 16, ended)


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
