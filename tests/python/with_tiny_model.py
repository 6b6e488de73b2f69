"""What tests of the binding share: a tiny random model in a folder of their own."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "cli")]

import hearth  # noqa: E402
import tiny_model  # noqa: E402


def run_threads(threads, meanwhile=lambda: None):
    """Starts them, and waits for all."""
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join()


def write_adapter(folder, n, value):
    """Of PEFT, for q_proj of the first layer, with n columns and a B of one value."""
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    tensors = {name.format("A"): hearth.ones((2, n)), name.format("B"): hearth.full((n, 2), float(value))}
    hearth.save_safetensors(f"{folder}/adapter_model.safetensors", tensors)
    pathlib.Path(folder, "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 2}')


class WithTinyModel(unittest.TestCase):
    LOAD = {"threads": 2}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.folder.name)
        tiny_model.write(cls.work / "tiny.gguf")
        cls.model = hearth.load(cls.work / "tiny.gguf", **cls.LOAD)

    @classmethod
    def tearDownClass(cls):
        del cls.model
        cls.folder.cleanup()
