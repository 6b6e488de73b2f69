"""`hearth split` and `hearth merge` write the same tensors in more files and in one, appear whole or not at all, and say in one
line what they cannot do."""

import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from support import HEARTH, CommandTest
from test_adapter import MODEL

TINY = MODEL.parent
GGUF = TINY / "llama-q8_0.gguf"
SHARDS = TINY / "gemma2-f16-shards"
REAL = pathlib.Path(os.environ.get("HEARTH_TEST_MODELS", "")) / "smollm2-135m.gguf"


class Split(CommandTest):
    def names(self, folder=None):
        return sorted(p.name for p in (folder or self.folder).iterdir())

    def test_file(self):
        out, whole = self.folder / "parts.gguf", self.folder / "whole.gguf"
        result = self.succeeds("split", GGUF, out, "--max-size", "9K")
        value = self.succeeds("split", GGUF, out, "--max-size", "9kb", "--json", "-q", "--force").json
        self.assertEqual(set(value), {"out", "bytes", "tensors", "files"})
        first = self.folder / f"parts-00001-of-{value['files']:05}.gguf"
        self.assertEqual(value["out"], str(first))
        self.assertIn(f"out            {first}\nfiles          {value['files']}\n", result.text)
        names = [f"parts-{i + 1:05}-of-{value['files']:05}.gguf" for i in range(value["files"])]
        self.assertEqual(self.names(), names)
        self.assertTrue(all((self.folder / name).stat().st_size <= 9000 for name in names))
        self.assertEqual(self.logits(first), self.logits(GGUF))
        self.assertEqual(self.succeeds("merge", first, whole, "-q").err, "")
        self.assertEqual(self.logits(whole), self.logits(GGUF))
        info = [self.succeeds("info", m, "--json").json for m in (first, whole, GGUF)]
        self.assertEqual(info[0]["tensor_types"], info[2]["tensor_types"])
        self.assertEqual(info[1]["tensor_types"], info[2]["tensor_types"])

    def test_directories(self):
        parts, whole = self.folder / "parts", self.folder / "whole"
        value = self.succeeds("split", SHARDS, parts, "--max-size", "0.03M", "--json").json
        self.assertEqual(value["out"], str(parts))
        index = json.loads((parts / "model.safetensors.index.json").read_text())
        self.assertEqual(index["metadata"]["total_size"], value["bytes"])
        self.assertEqual(len(set(index["weight_map"].values())), value["files"])
        self.succeeds("merge", parts, whole)
        kept = [p.name for p in SHARDS.iterdir() if ".safetensors" not in p.name]
        self.assertEqual(self.names(whole), sorted([*kept, "model.safetensors"]))
        self.assertEqual(self.logits(whole), self.logits(SHARDS))
        # GGUF parts in a directory, and one file of them
        folder = self.folder / "gguf"
        count = self.succeeds("split", GGUF, folder, "--max-size", "9K", "--json").json["files"]
        self.assertEqual(self.names(folder), [f"{GGUF.stem}-{i + 1:05}-of-{count:05}.gguf" for i in range(count)])
        self.succeeds("merge", folder, self.folder / "again")
        self.assertEqual(self.names(self.folder / "again"), [GGUF.name])
        self.assertEqual(self.logits(self.folder / "again"), self.logits(GGUF))

    def test_other_commands(self):
        """--max-size of quantize and convert."""
        out = self.folder / "q.gguf"
        value = self.succeeds("quantize", MODEL, out, "--to", "Q8_0", "--max-size", "9K", "--json").json
        self.assertGreater(value["files"], 1)
        self.succeeds("quantize", MODEL, self.folder / "whole.gguf", "--to", "Q8_0")
        self.assertEqual(self.logits(value["out"]), self.logits(self.folder / "whole.gguf"))
        out = self.folder / "mlx"
        text = self.succeeds("convert", GGUF, out, "--to", "mlx", "--max-size", "9K").text
        self.assertIn("\nfiles          ", text)
        self.assertEqual(self.logits(out), self.logits(GGUF))
        value = self.succeeds("convert", MODEL, self.folder / "g", "--to", "gguf", "--max-size=20K", "--json").json
        self.assertIn(f"model-{value['files']:05}-of-{value['files']:05}.gguf", self.names(self.folder / "g"))

    def test_sizes(self):
        out = self.folder / "out.gguf"
        bytes_of = {"1.5G": 1, "4GiB": 1, "20000": 1, "20000B": 1, "20kib": 1, "2T": 1, "1M": 1, "0.02M": 1, "8K": 3}
        for size, least in bytes_of.items():
            value = self.succeeds("split", GGUF, out, "--max-size", size, "--json", "--force").json
            self.assertTrue(value["files"] >= least and (least > 1 or value["files"] == 1), (size, value))
        bad = "0", "-1", "-4G", "0.0G", "", "G", "4X", "4GG", "4Gi", "1e9", "nan", "inf", " 4G", "4 G", "0x10", "1.2.3G", "9999999999G", "4iB"
        for size in bad:
            self.fails(2, "split", GGUF, out, f"--max-size={size}", says=[f'--max-size is "{size}"', "500M, 4G or 1.5G"])
        for size in "10", "9000", "1.5":  # which would be a file for each tensor
            self.fails(2, "split", GGUF, out, f"--max-size={size}", says=[f'--max-size is "{size}"', "expected a unit"])

    def test_mistakes(self):
        out = self.folder / "out.gguf"
        self.fails(2, "split", GGUF, out, says="--max-size SIZE is needed")
        self.fails(2, "split", GGUF, "--max-size", "4G", says="the name of what to write is needed")
        self.fails(2, "merge", GGUF, says="the name of what to write is needed")
        self.fails(2, "merge", GGUF, out, "--max-size", "4G", says="--max-size is not an option of this command")
        self.fails(1, "split", MODEL, out, "--max-size", "9K", says=["is the name of a GGUF file", "convert it to GGUF"])
        self.fails(1, "split", self.folder / "none", out, "--max-size", "9K", says="none")
        self.fails(1, "merge", GGUF, GGUF, says="is not replaced")
        self.fails(1, "split", GGUF, self.folder / "x-00002-of-00003.gguf", "--max-size", "9K", says="x.gguf, to which the numbers")
        self.assertEqual(self.names(), [])
        value = self.succeeds("split", GGUF, out, "--max-size", "9K", "--json").json
        second = self.folder / f"out-00002-of-{value['files']:05}.gguf"
        second.unlink()
        self.fails(1, "merge", value["out"], self.folder / "whole.gguf", says=[second.name, "is missing"])
        second.write_bytes(b"mine")
        self.fails(1, "split", GGUF, out, "--max-size", "9K", "--force", says=[second.name, "is not replaced"])
        pathlib.Path(value["out"]).unlink()
        self.fails(1, "split", GGUF, out, "--max-size", "1M", says=f"{second} already exists")  # though it would be one file
        self.assertEqual(second.read_bytes(), b"mine")

    @unittest.skipUnless(REAL.exists(), "HEARTH_TEST_MODELS names no directory with SmolLM2")
    def test_real_model(self):
        out, whole = self.folder / "smol.gguf", self.folder / "whole.gguf"
        value = self.succeeds("split", REAL, out, "--max-size", "20M", "--json").json
        self.assertEqual(value["files"], len(self.names()))
        self.assertEqual(self.logits(value["out"]), self.logits(REAL))
        self.succeeds("merge", value["out"], whole)
        self.assertEqual(self.logits(whole), self.logits(REAL))

    @unittest.skipUnless(REAL.exists(), "HEARTH_TEST_MODELS names no directory with SmolLM2")
    def test_interrupted(self):
        words = [HEARTH, "split", REAL, self.folder / "smol.gguf", "--max-size", "9M", "--force"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while process.poll() is None and not self.names():
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        err = process.communicate()[1].decode()
        if process.returncode == 0:  # it had ended
            return
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertIn("was not written", err)
        self.assertEqual(self.names(), [])


if __name__ == "__main__":
    unittest.main()
