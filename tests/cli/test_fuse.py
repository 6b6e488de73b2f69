"""`hearth fuse` writes a checkpoint that answers as its base does with the adapter, and says in one line what it cannot do."""

import json
import unittest

from files import safetensors, write_lora
from support import CommandTest
from test_adapter import MODEL, write_peft

GGUF = MODEL.parent / "llama-q4_1.gguf"
MLX = MODEL.parent / "llama-mlx4-bf16"


class Fuse(CommandTest):
    def setUp(self):
        super().setUp()
        self.adapter = write_peft(self.folder / "lora")

    def check_logits(self, fused, model, *adapters):
        got, want = self.logits(fused), self.logits(model, *adapters)
        most = max(map(abs, want))
        self.assertLess(max(abs(a - b) for a, b in zip(got, want)), 1e-5 * most)
        self.assertGreater(max(abs(a - b) for a, b in zip(got, self.logits(model))), 1e-3 * most)

    def test_directory(self):
        out = self.folder / "out"
        adapters = "--adapter", f"style={self.adapter}@0.01", "--adapter", f"{self.adapter}@-0.003"
        result = self.succeeds("fuse", MODEL, *adapters, out)
        for part in str(out), "changed        4 tensors", "kept           100 %":
            self.assertIn(part, result.text)
        self.assertEqual(result.err, "")
        self.assertEqual(sorted(p.name for p in out.iterdir()), sorted(p.name for p in MODEL.iterdir()))
        self.check_logits(out, MODEL, *adapters)
        value = self.succeeds("fuse", MODEL, *adapters, out, "--json", "--force").json
        self.assertEqual((value["out"], value["changed"], value["dense"]), (str(out), 4, 0))
        self.assertEqual(value["bytes"], sum(len(data) for _, _, data in safetensors(out / "model.safetensors").values()))

    def test_file(self):
        """GGUF keeps what does not change as it was."""
        out, dense, adapter = self.folder / "out.gguf", self.folder / "dense.gguf", self.shaped(GGUF)
        self.succeeds("fuse", GGUF, "--adapter", adapter, out, "--dtype=f32")
        self.check_logits(out, GGUF, "--adapter", adapter)
        self.assertIn("Q4_1", self.types(out))
        self.succeeds("fuse", GGUF, "--adapter", adapter, dense, "--dense")
        self.assertEqual(self.types(dense), {"F16", "F32"})

    def types(self, model):
        return {t["type"] for t in self.succeeds("info", model, "--json").json["tensor_types"]}

    def test_another_base(self):
        """An adapter that fits in shape alone is fused, and told of."""
        out = self.folder / "out.gguf"
        adapter = self.shaped(GGUF, {"hearth.base_fingerprint": "0123456789abcdef"})
        result = self.succeeds("fuse", GGUF, "--adapter", adapter, out)
        self.assertIn(f"hearth: {adapter}: the adapter was trained on another checkpoint (fingerprint 0123456789abcdef", result.err)
        self.assertEqual(self.succeeds("fuse", GGUF, "--adapter", adapter, out, "-q", "--force").err, "")

    def shaped(self, model, metadata=None):
        """An adapter of layer 0's v in the model's shape."""
        info = self.succeeds("info", model, "--json").json
        a = [i % 7 / 70 for i in range(info["hidden"])]
        b = [i % 5 / 50 for i in range(info["kv_heads"] * info["head_dim"])]
        return write_lora(self.folder / "shaped", {"model.layers.0.self_attn.v_proj": (a, b)}, metadata=metadata)

    def test_groups(self):
        """Rounding that loses the change is said."""
        out, adapter = self.folder / "out", self.shaped(MLX)
        result = self.succeeds("fuse", MLX, "--adapter", f"{adapter}@0.05", out, "--quantize", "2:32")
        self.assertIn("more bits", result.err)
        self.assertIn("rounding", result.text)
        self.assertEqual(self.succeeds("fuse", MLX, "--adapter", adapter, out, "--quantize", "8:32", "-q", "--force").err, "")
        self.assertTrue(json.loads((out / "config.json").read_text())["quantization"])

    def test_mistakes(self):
        out = self.folder / "out"
        self.fails(2, "fuse", MODEL, out, says="--adapter PATH is needed")
        self.fails(2, "fuse", MODEL, "--adapter", self.adapter, says="MODEL --adapter PATH OUT")
        self.fails(2, "fuse", MODEL, "--adapter", self.adapter, out, "--quantize", "four", says="BITS:GROUP")
        self.fails(2, "fuse", MODEL, "--adapter", self.adapter, out, "--dtype", "f64", says="bf16")
        self.fails(1, "fuse", MODEL, "--adapter", self.adapter, out, "--quantize", "4", says="MLX")
        self.fails(1, "fuse", MODEL, "--adapter", self.adapter, self.folder, "--force", says="neither a fused nor a quantised checkpoint")
        self.fails(1, "fuse", MODEL, "--adapter", self.adapter, MODEL, says="neither a fused nor a quantised checkpoint")
        self.fails(1, "fuse", MODEL, "--adapter", self.folder, out, says="no adapter")
        self.fails(1, "fuse", GGUF, "--adapter", self.adapter, self.folder / "out.gguf", says="another model")
        self.fails(1, "fuse", MODEL, "--adapter", f"{self.adapter}@3e38", out, says="values or factors are too large")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["lora"])


if __name__ == "__main__":
    unittest.main()
