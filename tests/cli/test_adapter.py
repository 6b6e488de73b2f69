"""`hearth adapter` shows adapters and converts them, and says in one line what it cannot do."""

import json
import pathlib
import unittest

from files import write_lora
from support import TINY, CommandTest

MODEL = pathlib.Path(__file__).parent.parent / "golden/tiny/llama-f32"
RANK, HIDDEN, KEYS = 2, 48, 16


def write_peft(folder, **config):
    pairs = {}
    for layer in 0, 1:
        for name, rows in ("q_proj", HIDDEN), ("k_proj", KEYS):
            a, b = [i / 64 for i in range(RANK * HIDDEN)], [i / 32 for i in range(RANK * rows)]
            pairs[f"model.layers.{layer}.self_attn.{name}"] = a, b
    return write_lora(folder, pairs, RANK, lora_alpha=6, base_model_name_or_path="some/model", **config)


class Adapter(CommandTest):
    def test_info(self):
        adapter = write_peft(self.folder / "peft")
        text = self.succeeds("adapter", "info", adapter).text
        for part in "peft", "some/model", "self_attn.q_proj, 48 x 48, in layers 0-1", "self_attn.k_proj, 16 x 48":
            self.assertIn(part, text)
        value = self.succeeds("adapter", "info", adapter, "--model", MODEL, "--json", "-q").json
        self.assertEqual(
            (value["format"], value["rank"], value["scale"], value["pairs"], value["parameters"], value["warning"]),
            ("peft", 2, 3, 4, 2 * RANK * (HIDDEN + HIDDEN + KEYS + HIDDEN), None),
        )
        self.assertEqual([t["layers"] for t in value["targets"]], ["0-1", "0-1"])

    def test_info_of_many_layers_and_shapes(self):
        pairs = {f"model.layers.{layer}.self_attn.q_proj": ([1, 2], [1] * (3 if layer < 290 else 5)) for layer in range(0, 300, 2)}
        text = self.succeeds("adapter", "info", write_lora(self.folder / "many", pairs)).text
        self.assertIn("self_attn.q_proj, 3 x 2, in layers 0, 2, 4,", text)
        self.assertIn(" 286, 288\n", text)
        self.assertIn("self_attn.q_proj, 5 x 2, in layers 290, 292, 294, 296, 298\n", text)

    def test_round_trip(self):
        adapter = write_peft(self.folder / "peft", use_rslora=True)
        mlx, gguf, back = self.folder / "mlx", self.folder / "lora.gguf", self.folder / "back"
        self.succeeds("adapter", "convert", adapter, mlx, "--to", "mlx")
        self.succeeds("adapter", "convert", mlx, gguf, "--to", "gguf", "--model", MODEL, "-q")
        self.succeeds("adapter", "convert", gguf, back, "--to", "peft", "--model", MODEL, "-q")
        self.assertEqual(sorted(p.name for p in back.iterdir()), ["adapter_config.json", "adapter_model.safetensors"])
        config = json.loads((back / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["target_modules"]), (RANK, ["k_proj", "q_proj"]))
        self.assertAlmostEqual(config["lora_alpha"], 6 * 2**0.5, 5)
        again = self.folder / "again"
        self.succeeds("adapter", "convert", adapter, again, "--to", "peft", "--model", MODEL, "-q")
        self.assertEqual(*[(d / "adapter_model.safetensors").read_bytes() for d in (back, again)])

    def test_multimodal(self):
        """Towers have projections of the same names: PEFT is told the text model's by their whole names."""
        module = "model.language_model.layers.1.self_attn.q_proj"
        folder = write_lora(self.folder / "peft", {module: ([1, 2], [3, 4])})
        mlx, back = self.folder / "mlx", self.folder / "back"
        self.succeeds("adapter", "convert", folder, mlx, "--to", "mlx")
        self.assertIn(b"language_model.model.layers.1.self_attn", (mlx / "adapters.safetensors").read_bytes())
        self.succeeds("adapter", "convert", mlx, back, "--to", "peft")
        self.assertIn(f"base_model.model.{module}".encode(), (back / "adapter_model.safetensors").read_bytes())
        config = json.loads((back / "adapter_config.json").read_text())
        self.assertEqual(config["target_modules"], ["language_model.layers.1.self_attn.q_proj"])
        self.assertIsNone(config["layers_to_transform"])

    def test_mistakes(self):
        adapter = write_peft(self.folder / "peft")
        out = self.folder / "out"
        self.fails(2, "adapter", says="info ADAPTER, or convert")
        self.fails(2, "adapter", "convert", adapter, says="two names")
        self.fails(2, "adapter", "convert", adapter, out, says="--to")
        self.fails(2, "adapter", "convert", adapter, out, "--to", "onnx", says="--to")
        self.fails(1, "adapter", "info", self.folder, says="holds no adapter")
        self.fails(1, "adapter", "info", adapter, "--model", TINY, "-q", says="is for another model")
        self.fails(1, "adapter", "convert", adapter, out, "--to", "gguf", says="--model MODEL is needed")
        self.fails(1, "adapter", "convert", adapter, self.folder / "none/out", "--to", "mlx", says="cannot be written")
        self.fails(1, "adapter", "convert", adapter, self.folder, "--to", "mlx", "--force", says="is not replaced")
        self.assertFalse(out.exists())
        self.fails(1, "adapter", "info", write_peft(self.folder / "dora", use_dora=True), says="DoRA")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["dora", "peft"])

    def test_adapters_of_a_session(self):
        adapter = write_peft(self.folder / "peft")
        base, half = self.logits(MODEL), self.logits(MODEL, "--adapter", f"{adapter}@0.5")
        self.assertNotEqual(half, base)
        self.assertEqual(self.logits(MODEL, "--adapter", f"{adapter}@0"), base)
        self.assertEqual(self.logits(MODEL, "--adapter", f"mine={adapter}@5e-1"), half)
        twice = self.logits(MODEL, "--adapter", f"{adapter}@0.25", "--adapter", f"{adapter}@0.25")
        self.assertLess(max(abs(a - b) for a, b in zip(twice, half)), 1e-2)

    def test_evaluation_with_an_adapter(self):
        adapter = write_peft(self.folder / "peft")
        ids = ["--ids", ",".join(str(i % 60) for i in range(40)), "--json", "-q"]
        moved = self.succeeds("eval", MODEL, *ids, "--adapter", adapter, "--kl-vs", MODEL).json
        same = self.succeeds("eval", MODEL, *ids, "--adapter", adapter, "--kl-vs-reference").json
        self.assertGreater(moved["kl_mean"], 1e-3)
        self.assertLess(same["kl_mean"], 1e-3)
        self.assertEqual(same["perplexity"], moved["perplexity"])

    def test_bench_and_mistakes(self):
        adapter = write_peft(self.folder / "peft")
        self.succeeds("bench", MODEL, "-p", "8", "-n", "4", "-r", "1", "--parallel", "2", "--adapter", adapter, "-q")
        self.fails(1, "run", TINY, "hello", "-q", "--adapter", adapter, says="is for another model")
        self.fails(1, "run", TINY, "hello", "-q", "--adapter", self.folder / "none@2", says="none")


if __name__ == "__main__":
    unittest.main()
