"""Checkpoints that are used although something in them is wrong, which the command says."""

import json
import pathlib
import shutil
import unittest

from files import safetensors, write_safetensors
from support import CommandTest, tiny_model

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tiny"
SHARDS = "llama-llama3-f16-shards"
INDEX = "model.safetensors.index.json"


class Warnings(CommandTest):
    def logits(self, model):
        out = self.folder / "logits.npy"
        result = self.succeeds("logits", model, "--ids", "1,2,3", "--out", out, "--force")
        return out.read_bytes(), result.err

    def warned(self, model, same_as, *says):
        logits, err = self.logits(model)
        self.assertEqual(logits, same_as)
        for text in says:
            self.assertIn(text, err)
        self.assertEqual(len(err.splitlines()), len(says), err)

    def copy(self, name):
        shutil.copytree(GOLDEN / SHARDS, self.folder / name)
        return self.folder / name, json.loads((self.folder / name / INDEX).read_text())

    def joined(self, folder, files):
        """The shards of a folder as one file."""
        tensors = {}
        for file in files:
            tensors.update(safetensors(folder / file))
            (folder / file).unlink()
        write_safetensors(folder / "model.safetensors", tensors)

    def test_gguf_beside_safetensors(self):
        """The safetensors are used, and every command says so once."""
        right, _ = self.logits(GOLDEN / SHARDS)
        folder, _ = self.copy("both")
        tiny_model.write(folder / "other.gguf")
        says = "both: holds safetensors and GGUF files; the safetensors are used. Name `other.gguf` to use it instead"
        self.warned(folder, right, says)
        result = self.succeeds("info", folder)
        self.assertEqual(result.err, f"hearth: {says}\n")
        self.assertIn("format         safetensors", result.text)
        self.assertEqual(self.succeeds("info", folder / "other.gguf").err, "")

    def test_an_index_that_is_wrong(self):
        right, _ = self.logits(GOLDEN / SHARDS)
        left_over, index = self.copy("left-over")
        files = sorted(set(index["weight_map"].values()))
        self.joined(left_over, files)
        self.warned(left_over, right, f"{INDEX}: names model-0")

        elsewhere, index = self.copy("elsewhere")
        index["weight_map"] = dict.fromkeys([*index["weight_map"], "model.rotary.inv_freq"], files[0])
        (elsewhere / INDEX).write_text(json.dumps(index))
        self.warned(elsewhere, right, "1 tensor that no file has: `model.rotary.inv_freq`", "names another file than the right one for ")

        missing, index = self.copy("missing")
        (missing / files[1]).unlink()
        self.fails(1, "logits", missing, "--ids", "1", "--out", self.folder / "x.npy", says=[INDEX, files[1], "missing"])

    def test_configurations_that_python_wrote(self):
        right, _ = self.logits(GOLDEN / SHARDS)
        folder, _ = self.copy("config")
        config = json.loads((folder / "config.json").read_text())
        text = json.dumps({**config, "initializer_range": float("nan"), "eos_token_id": [-1, 2**32 - 1]})
        (folder / "config.json").write_text('{"hidden_size": 7, ' + text[1:])
        self.warned(folder, right, "`eos_token_id` is -1, outside", "`eos_token_id` is 4294967295, outside")

    def test_special_ids_outside_the_vocabulary(self):
        keys = [f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom", "unknown", "padding")]
        known = tiny_model.metadata

        def without_ids(*args):
            return [pair for pair in known(*args) if pair[0] not in keys]

        def answer(pairs):
            tiny_model.metadata = pairs
            try:
                tiny_model.write(self.folder / "tiny.gguf")
            finally:
                tiny_model.metadata = known
            return self.succeeds("run", self.folder / "tiny.gguf", "--raw", "-n", "8", "hello")

        expected = answer(without_ids).out
        for wrong in (len(tiny_model.vocabulary()), 2**31 - 1, 2**32 - 1):
            result = answer(lambda *args: without_ids(*args) + [(key, tiny_model.U32, wrong) for key in keys])
            self.assertEqual(result.out, expected)
            for key in keys:
                self.assertIn(f"tiny.gguf: `{key}` is {wrong}, outside the vocabulary", result.err)


if __name__ == "__main__":
    unittest.main()
