"""`hearth convert` writes a checkpoint in the other container that answers as the first, and says what it did."""

import json
import shutil
import struct
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

    def test_modules(self):
        """Folders of sentence-transformers' modules follow a directory; of them a GGUF file has the pooling."""
        source, out = self.folder / "source", self.folder / "mlx"
        shutil.copytree(MODEL, source)
        kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
        modules = [{"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(kinds.items())]
        hidden = json.loads((source / "config.json").read_text())["hidden_size"]
        for name, content in {"modules.json": modules, "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
                              "2_Dense/config.json": {"in_features": hidden, "out_features": 2, "bias": False, "activation_function": "torch.nn.Tanh"}}.items():  # fmt: skip
            self.write(f"source/{name}", json.dumps(content))
        header = json.dumps({"linear.weight": {"dtype": "F32", "shape": [2, hidden], "data_offsets": [0, 8 * hidden]}}).encode()
        values = struct.pack(f"<{2 * hidden}f", *(i % 7 - 3 for i in range(2 * hidden)))
        self.write("source/2_Dense/model.safetensors", struct.pack("<Q", len(header)) + header + values)
        embed = lambda path: self.succeeds("embed", path, "--ids", "1,5,9", "--json", "--precision", "reference", "--kv", "f32").json  # noqa: E731
        want = embed(source)
        self.assertEqual((want["pooling"], want["hidden"]), ("mean", 2))
        for more in (), ("--force",):  # again, over the first
            self.succeeds("convert", source, out, "--to", "mlx", "-q", *more)
            self.assertEqual(embed(out)["texts"], want["texts"])
        self.fails(1, "convert", source, self.folder / "out.gguf", "--to", "gguf", says="modules after the transformer cannot be converted to GGUF, which has no `Dense`")
        self.write("source/modules.json", json.dumps(modules[:2]))
        self.succeeds("convert", source, self.folder / "out.gguf", "--to", "gguf", "-q")
        self.assertEqual(embed(self.folder / "out.gguf")["texts"], embed(source)["texts"])
        self.assertIn("mean", self.succeeds("info", self.folder / "out.gguf").text)
        back = self.folder / "back"
        for more in (), ("--force",):
            self.succeeds("convert", self.folder / "out.gguf", back, "--to", "safetensors", "-q", *more)
            self.assertEqual(embed(back)["texts"], embed(source)["texts"])
        said = [(m["path"], m["type"].rpartition(".")[2]) for m in json.loads((back / "modules.json").read_text())]
        self.assertEqual(said, [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])
        modes = json.loads((back / "1_Pooling/config.json").read_text())
        self.assertEqual([key for key, value in modes.items() if value is True], ["pooling_mode_mean_tokens"])
        self.write("source/1_Pooling/config.json", '{"pooling_mode": "max"}')
        self.fails(1, "convert", source, self.folder / "max.gguf", "--to", "gguf", says="GGUF has no pooling `max`")

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
