"""hearth serve from outside: what is told of answers that fail when they have begun, in the form of each interface."""

import json
import re
import signal
import socket
import threading
import unittest

from support import SCRATCH, Server, ServeTest, speaking_model, tiny_model, together

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


def error_json(path, message, openai, anthropic):
    """The error of an answer in the form of its interface, without the request's name."""
    if path in LINES:
        return {"error": message}
    if path == "/v1/messages":
        return {"type": "error", "error": {"type": anthropic, "message": message}}
    return {"error": {"message": message, "type": openai, "param": None, "code": None}}


class FailuresTest(ServeTest):
    def check_end(self, path, got, says, openai, anthropic):
        """A stream has text, and ends with an error and nothing else."""
        last = got[-1]
        if path == "/v1/responses":
            name, event = last
            self.assertEqual((name, event["type"], event["response"]["status"]), ("response.failed", "response.failed", "failed"))
            self.assertEqual(event["response"]["error"]["code"], "server_error")
            self.assertRegex(event["response"]["error"]["message"], says)
            self.assertEqual([event["sequence_number"] for _, event in got], list(range(len(got))))
            return
        if path in EVENTS:
            name, last = last
            self.assertEqual(name, "error" if path == "/v1/messages" else None)
            self.assertNotIn((None, "[DONE]"), got)
        else:
            self.assertFalse(any(line.get("done") for line in got))
        self.assertEqual("request_id" in last, path == "/v1/messages")
        last.pop("request_id", None)
        message = last["error"] if path in LINES else last["error"]["message"]
        self.assertRegex(message, says)
        self.assertEqual(last, error_json(path, message, openai, anthropic))


class Computing(FailuresTest):
    """The engine fails when an answer has begun: its text has come, and then why there is no more."""

    model = BROKEN

    def body(self, path):
        body = {**(EVENTS.get(path) or LINES[path]), "seed": 1}
        return {**body, "format": {"type": "string", "pattern": f"^{PATTERN}$"}} if path in LINES else {**body, "regex": PATTERN}

    def test_all_interfaces(self):
        for path in [*EVENTS, *LINES]:
            with self.subTest(path):
                got = list((self.server.events if path in EVENTS else self.server.lines)(path, self.body(path)))
                self.assertIn('"~"', json.dumps(got[:-1]))
                self.check_end(path, got, NO_NUMBER, "server_error", "api_error")
                status, fields, answer = self.server.post(path, {**self.body(path), "stream": False})
                self.assertEqual(answer.pop("request_id", None), fields["request-id"] if path == "/v1/messages" else None)
                message = answer["error"] if path in LINES else answer["error"]["message"]
                self.assertEqual((status, answer), (500, error_json(path, message, "server_error", "api_error")))
                self.assertIn("is nan", message)

    def test_one_of_several_answers(self):
        """The others come to their end, and the error is behind them."""
        body = {**self.body("/v1/completions"), "regex": "[a-c~][a-z]{4}", "temperature": 5, "n": 16}
        *events, (_, last) = self.server.events("/v1/completions", body)
        self.assertEqual(set(last), {"error"})
        ended = [event["choices"][0]["index"] for _, event in events if event["choices"][0]["finish_reason"]]
        self.assertTrue(0 < len(set(ended)) == len(ended) < 16, ended)


class Draining(FailuresTest):
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
        paths = [*EVENTS, *LINES]

        def end_when_begun(_):
            for _ in paths:
                begun.acquire()
            end()

        together(lambda path: self.read(server, path, begun) if path else end_when_begun(path), [*paths, None])
        self.assertEqual(server.wait(), 0)
        for path, got in self.ended.items():
            if isinstance(got, Exception):
                raise AssertionError(f"the stream of {path} has no end") from got
        return self.ended

    def check(self, ends):
        for path, got in ends.items():
            with self.subTest(path):
                self.check_end(path, got, f"^{SAYS}$", "unavailable_error", "overloaded_error")

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
        paths = ["/v1/embeddings", "/v1/chat/completions", "/v1/messages", "/api/chat"]  # the first computes, and is no answer of the engine's
        got = {}

        def ask(path):
            body = {"input": "hello " * 100000} if path == "/v1/embeddings" else {**(EVENTS.get(path) or LINES[path]), "stream": False}
            got[path] = server.post(path, body)

        def end(_):
            while server.metric("requests_under_way") != 3:
                pass
            server.send_signal(signal.SIGTERM)

        together(lambda path: ask(path) if path else end(path), [*paths, None])
        self.assertEqual(server.wait(), 0)
        for path in paths:
            with self.subTest(path):
                status, fields, answer = got[path]
                self.assertEqual((status, fields["retry-after"]), (529 if path == "/v1/messages" else 503, "1"), answer)
                answer.pop("request_id", None)
                self.assertEqual(answer, error_json(path, SAYS, "unavailable_error", "overloaded_error"))


if __name__ == "__main__":
    unittest.main()
