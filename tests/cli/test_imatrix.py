"""What `hearth imatrix` writes, read without the library."""

import json
import pathlib
import re
import signal
import struct
import subprocess
import unittest

import tiny_model
from files import Gguf
from support import TINY, CommandTest

TEXT = b"hello world, the hello of the world: hello the world or the hold of the wold" * 4
ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPERTS = ROOT / "tests/golden/tiny/qwen3-moe-f32"


class Matrix(Gguf):
    """Shapes and values of the tensors, which are F32."""

    def __init__(self, path):
        super().__init__(path)
        assert {kind for kind, _, _ in self.tensors.values()} == {"F32"}
        self.shape = {name: dims for name, (_, dims, _) in self.tensors.items()}
        self.tensor = {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (_, _, data) in self.tensors.items()}

    def entries(self):
        return {n.removesuffix(".in_sum2") for n in self.tensor if n.endswith(".in_sum2")}


class Imatrix(CommandTest):
    def imatrix(self, *words, name="out.gguf", **more):
        path = self.folder / name
        report = self.succeeds("imatrix", *words, "--out", path, "--json", "--force", **more).json
        self.assertEqual(report["out"], str(path))
        return report, Matrix(path)

    def tokens(self, text=TEXT):
        return self.succeeds("tokenize", TINY, stdin=text).text.split()

    def test_file(self):
        text = self.write("text", TEXT)
        n = len(self.tokens())
        report, file = self.imatrix(TINY, "--text", text, "--ctx", "32")
        windows = n // 32 + (n % 32 >= 16)
        tokens = windows * 32 if n % 32 < 16 else n
        self.assertEqual((report["windows"], report["tokens"], report["ctx"]), (windows, tokens, 32))
        self.assertEqual(file.values["general.type"], "imatrix")
        self.assertEqual(file.values["imatrix.datasets"], [str(text)])
        self.assertEqual((file.values["imatrix.chunk_count"], file.values["imatrix.chunk_size"]), (windows, 32))
        names = {f"blk.{i}.{w}.weight" for i in range(tiny_model.LAYERS) for w in (
            "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}  # fmt: skip
        self.assertEqual(file.entries(), names | {"token_embd.weight"})  # the head is tied
        self.assertEqual(report["entries"], len(file.entries()))
        for name in names:
            columns = tiny_model.FEED_FORWARD if "down" in name else tiny_model.HIDDEN
            self.assertEqual(file.shape[name + ".in_sum2"], (columns, 1))
            self.assertEqual(file.tensor[name + ".counts"], (float(tokens),))
            self.assertTrue(all(x > 0 for x in file.tensor[name + ".in_sum2"]))
        same = [file.tensor[f"blk.0.attn_{w}.weight.in_sum2"] for w in "qkv"]
        self.assertEqual(same[0], same[1])
        self.assertEqual(same[0], same[2])

    def test_sources(self):
        _, from_file = self.imatrix(TINY, "--text", "-", stdin=TEXT)
        _, from_ids = self.imatrix(TINY, "--ids", ",".join(self.tokens()), name="ids.gguf")
        self.assertEqual(from_file.tensor, from_ids.tensor)
        self.assertEqual(from_file.values["imatrix.datasets"], [])
        threads = [self.imatrix(TINY, "--text", "-", "-t", t, stdin=TEXT)[1].tensor for t in (1, 2, 3)]
        self.assertEqual(threads[0], threads[1])
        self.assertEqual(threads[0], threads[2])
        self.assertEqual(threads[0], from_file.tensor)

    def test_begin_of_text(self):
        """Every chunk begins with BOS where the checkpoint asks for it."""
        data = TINY.read_bytes()
        key = b"tokenizer.ggml.add_bos_token" + struct.pack("<I", tiny_model.BOOL)
        self.assertEqual(data.count(key + b"\0"), 1)
        asking = self.write("asking.gguf", data.replace(key + b"\0", key + b"\1"))
        ids = self.tokens()
        report, file = self.imatrix(asking, "--text", "-", "--ctx", "20", stdin=TEXT)
        parts = [ids[at : at + 19] for at in range(0, len(ids), 19)]
        parts = [["1", *p] for p in parts if 2 * len(p) >= 19]
        self.assertEqual(report["tokens"], sum(map(len, parts)))
        whole = [",".join(p) for p in parts]
        if len(parts[-1]) < 20:  # by itself it would be a chunk of its own, too
            self.assertEqual(report["windows"], len(parts))
        _, same = self.imatrix(TINY, "--ids", ",".join(whole), "--ctx", "20", name="same.gguf")
        self.assertEqual(file.tensor, same.tensor)

    def test_experts(self):
        report, file = self.imatrix(EXPERTS, "--ids", "1,2,3,4,5")
        gate, down = "blk.0.ffn_gate_exps.weight", "blk.0.ffn_down_exps.weight"
        self.assertEqual(file.shape[gate + ".in_sum2"], (44, 7))
        self.assertEqual(file.shape[down + ".in_sum2"], (20, 7))
        counts = file.tensor[down + ".counts"]
        self.assertEqual(counts, file.tensor[gate + ".counts"])
        used = json.loads((EXPERTS / "config.json").read_text())["num_experts_per_tok"]
        self.assertEqual(sum(counts), 5 * used)
        for expert, count in enumerate(counts):
            sums = file.tensor[down + ".in_sum2"][20 * expert : 20 * (expert + 1)]
            self.assertEqual(any(sums), count > 0)
        layers = [n for n in file.tensor if n.endswith("ffn_down_exps.weight.counts")]
        self.assertEqual(report["experts"], 7 * len(layers))
        self.assertEqual(report["unchosen_experts"], sum(file.tensor[n].count(0.0) for n in layers))
        text = self.succeeds("imatrix", EXPERTS, "--ids", "1,2", "--out", self.folder / "y").text
        self.assertIn("never chosen", text)

    def test_interruption(self):
        """What the first windows gave is in the file by then, and the rest can be added to it."""
        text, out = self.write("long", TEXT * 4000), self.folder / "part.gguf"  # seconds, of which the first saves take few
        words = ["imatrix", TINY, "--text", text, "--ctx", "32", "-t", "1"]
        shown, error = self.interrupts(*words, "--out", out, "--save-every", "3", when=out.exists)
        self.assertEqual(shown, b"")
        done = int(re.search(rf"{re.escape(str(out))} has (\d+) windows .* --skip-chunks \1 goes on", error)[1])
        part = Matrix(out)
        self.assertEqual(part.values["imatrix.chunk_count"], done)
        self.assertEqual(done % 3, 0)
        more = ("--text", text, "--ctx", "32", "--chunks", "3")
        _, added = self.imatrix(TINY, *more, "--skip-chunks", done, "--from", out)
        _, whole = self.imatrix(TINY, "--text", text, "--ctx", "32", "--chunks", done + 3, name="whole.gguf")
        self.assertEqual(added.values, whole.values)
        for name, values in whole.tensor.items():
            for x, y in zip(values, added.tensor[name]):
                self.assertAlmostEqual(x, y, delta=1e-5 * abs(x))

    def test_interruption_at_once(self):
        words = ["imatrix", TINY, "--text", "-", "--out", self.folder / "none.gguf"]  # of a text without end
        self.interrupts(*words, when=lambda: True, number=signal.SIGTERM, stdin=subprocess.PIPE)
        self.assertFalse((self.folder / "none.gguf").exists())

    def test_mistakes(self):
        out = ("--out", self.folder / "x.gguf")
        self.fails(2, "imatrix", TINY, "--text", "-", says="--out FILE.gguf is needed")
        self.fails(2, "imatrix", TINY, *out, says="--text FILE is needed")
        self.fails(2, "imatrix", TINY, "--text", "-", "--ids", "1", *out, says="exclude each other")
        self.fails(1, "imatrix", TINY, "--text", "-", *out, says="nothing to compute")
        self.fails(1, "imatrix", TINY, "--ids", "1,2", "--skip-chunks", "1", *out, says="nothing to compute")
        self.fails(1, "imatrix", TINY, "--ids", "1,2", "--from", TINY, *out, says=["tiny.gguf", "general.type"])
        self.imatrix(EXPERTS, "--ids", "1,2", name="experts.gguf")
        self.fails(1, "imatrix", TINY, "--ids", "1,2", "--from", self.folder / "experts.gguf", *out, says="another model")
        self.fails(1, "imatrix", TINY, "--ids", "1,2", "--out", self.folder / "no/x.gguf", says="no/x.gguf")
        self.assertFalse((self.folder / "x.gguf").exists())


if __name__ == "__main__":
    unittest.main()
