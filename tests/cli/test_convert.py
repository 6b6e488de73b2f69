"""`hearth convert` writes a checkpoint in the other container that answers as the first, and says what it did."""

import json
import unittest

from files import safetensors
from support import CommandTest
from test_adapter import MODEL

TINY = MODEL.parent
GGUF = TINY / "llama-q8_0.gguf"


class Convert(CommandTest):
    def test_directory_to_file(self):
        out = self.folder / "out.gguf"
        result = self.succeeds("convert", MODEL, out, "--to", "gguf")
        self.assertIn(str(out), result.text)
        self.assertEqual(self.logits(out), self.logits(MODEL))
        value = self.succeeds("convert", MODEL, out, "--to=gguf", "--dtype=bf16", "--json", "-q", "--force").json
        self.assertEqual(set(value), {"out", "bytes", "tensors", "retyped", "floats", "rounded", "files"})
        self.assertEqual((value["out"], value["floats"]), (str(out), 0))
        self.assertGreater(value["rounded"], 0)

    def test_file_to_directories(self):
        want = self.logits(GGUF)
        for container, dtype, floats in ("safetensors", "F32", True), ("mlx", "U32", False):
            out = self.folder / container
            value = self.succeeds("convert", GGUF, out, "--to", container, "--json").json
            self.assertEqual(value["floats"] > 0, floats)
            self.assertEqual(value["rounded"], 0)
            self.assertEqual(safetensors(out / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"][0], dtype)
            config = json.loads((out / "config.json").read_text())
            self.assertEqual(config["model_type"], "llama")
            self.assertEqual("quantization" in config, not floats)
            self.assertEqual(self.logits(out), want)

    def test_dtype(self):
        """config.json states the type that the weights have, as readers cast them to it."""
        for name, options, dtype in (
            ("llama-mlx4-bf16", (), "float32"),
            ("llama-mlx4-bf16", ("--dtype", "f16"), "float16"),
            ("gemma4-experts-mlx8-bf16", (), "float32"),
            ("gemma4-experts-bf16", (), "bfloat16"),
        ):
            out = self.folder / f"{name}{len(options)}"
            self.succeeds("convert", TINY / name, out, "--to", "safetensors", "-q", *options)
            config = json.loads((out / "config.json").read_text())
            self.assertEqual((config["dtype"], "quantization" in config), (dtype, False))

    def test_mistakes(self):
        out = self.folder / "out"
        self.fails(2, "convert", GGUF, out, says="--to gguf, safetensors or mlx is needed")
        self.fails(2, "convert", GGUF, out, "--to", "onnx", says="--to expects gguf, safetensors or mlx")
        self.fails(2, "convert", GGUF, "--to", "mlx", says="the name of what to write is needed")
        self.fails(1, "convert", TINY / "qwen3-moe-mxfp8", self.folder / "out.gguf", "--to", "gguf", says="norm_topk_prob")
        self.fails(1, "convert", GGUF, GGUF, "--to", "gguf", says="is not replaced")
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
