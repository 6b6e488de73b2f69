"""What the tests of Ollama's and llama-server's interfaces share: replies as they came, and models with other tokens."""

import json
import unittest

import support
from support import SCRATCH, TINY, tiny_model

__all__ = ["TINY", "Server", "TinyTest", "variant"]


def variant(name, special=(), words=(), **how):
    """A tiny checkpoint with more special tokens, whole words as the last tokens, or as tiny_model.write has it otherwise."""
    path = SCRATCH / name
    kept, vocabulary = list(tiny_model.SPECIAL), tiny_model.vocabulary
    tiny_model.SPECIAL.extend(special)
    tiny_model.vocabulary = lambda: vocabulary() + list(words)
    try:
        tiny_model.write(path, **how)
    finally:
        tiny_model.SPECIAL[:] = kept
        tiny_model.vocabulary = vocabulary
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


class Server(support.Server):
    """One whose answers come as they were sent."""

    def __init__(self, model, *options, **more):
        super().__init__(model, "--threads", "1", *options, **more)

    def ask(self, method, path, body=None, raw=None, fields=None):
        connection = self.connect()
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json", **(fields or {})})
        response = connection.getresponse()
        reply = Reply(response.status, response.headers, response.read())
        connection.close()
        return reply

    def post(self, path, **body):
        return self.ask("POST", path, body)

    def get(self, path):
        return self.ask("GET", path)


class TinyTest(unittest.TestCase):
    """One server of the tiny model for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(TINY)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
