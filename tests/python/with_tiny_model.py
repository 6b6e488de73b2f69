"""What tests of the binding share: a tiny random model in a folder of their own."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "cli")]

import hearth  # noqa: E402
import tiny_model  # noqa: E402


class WithTinyModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name) / "tiny.gguf"
        tiny_model.write(path)
        cls.model = hearth.load(path, threads=2)

    @classmethod
    def tearDownClass(cls):
        del cls.model
        cls.folder.cleanup()
