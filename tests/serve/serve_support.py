"""What the tests of Ollama's and llama-server's interfaces share."""

import unittest

import support
from support import TINY, variant

__all__ = ["TINY", "PlainTest", "Server", "variant"]


class Server(support.Server):
    """One of a single thread, whose requests are written as members."""

    def __init__(self, model, *options, **more):
        super().__init__(model, "--threads", "1", *options, **more)

    def ask(self, method, path, body=None, fields=None):
        return self.request(method, path, body, fields)

    def post(self, path, **body):
        return self.ask("POST", path, body)


class PlainTest(unittest.TestCase):
    """One server for all tests of a class."""

    model, options = TINY, ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.model, *cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
