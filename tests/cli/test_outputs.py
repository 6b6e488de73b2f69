"""What commands write replaces nothing unless --force says so, and has a name that a model can be loaded by."""

import os
import resource
import signal
import unittest

from support import SCRATCH, TINY, CommandTest
from test_adapter import MODEL, write_peft

GGUF = MODEL.parent / "llama-q8_0.gguf"


class Outputs(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.adapter = write_peft(SCRATCH / "lora")

    def commands(self):
        """A command's words, and the name of what it writes, which is appended."""
        return [
            (["logits", TINY, "--ids", "1,2", "--out"], "x.npy"),
            (["embed", TINY, "hello", "--out"], "x.npy"),
            (["inspect", TINY, "hello", "--out"], "x.npz"),
            (["inspect", TINY, "hello", "--head", "0.0", "--svg"], "x.svg"),
            (["imatrix", TINY, "--ids", "1,2,3,4", "--out"], "x.gguf"),
            (["adapter", "convert", self.adapter, "--to", "mlx"], "x"),
            (["adapter", "convert", self.adapter, "--to", "gguf", "--model", MODEL], "y.gguf"),
            (["fuse", MODEL, "--adapter", self.adapter], "z"),
            (["convert", GGUF, "--to", "mlx"], "converted"),
            (["quantize", TINY, "--to", "Q8_0"], "q.gguf"),
            (["split", GGUF, "--max-size", "1M"], "s.gguf"),
            (["split", GGUF, "--max-size", "9K"], "p.gguf"),
            (["merge", GGUF], "m.gguf"),
        ]

    def state(self):
        return {p: (p.stat().st_ino, p.stat().st_mtime_ns, p.stat().st_size) for p in self.folder.rglob("*") if p.is_file()}

    def test_nothing_is_replaced_unasked(self):
        for words, name in self.commands():
            with self.subTest(words[0], name=name):
                out = self.folder / words[0] / name
                out.parent.mkdir(exist_ok=True)
                self.succeeds(*words, out, "-q")
                before = self.state()
                self.assertTrue(before)
                self.fails(1, *words, out, "-q", says=[str(out.with_suffix("")), "already exists; use --force"])
                self.assertEqual(self.state(), before)
                self.succeeds(*words, out, "-q", "--force")
                self.assertNotEqual(self.state(), before)
                self.assertEqual(self.state().keys(), before.keys())

    def test_full_disk(self):
        """What was there stays, and nothing is left of what was to replace it."""
        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        for words, name in self.commands():
            with self.subTest(words[0], name=name):
                place = self.folder / f"{words[0]}-{name}"
                place.mkdir()
                self.fails(1, *words, place / name, "-q", says="cannot be written", preexec_fn=no_room)
                self.assertEqual(list(place.iterdir()), [])
                self.succeeds(*words, place / name, "-q")
                before = self.state()
                self.fails(1, *words, place / name, "-q", "--force", says="cannot be written", preexec_fn=no_room)
                self.assertEqual(self.state(), before)

    def test_what_may_be_written_to(self):
        (self.folder / "empty").mkdir()
        self.succeeds("convert", GGUF, self.folder / "empty", "--to", "mlx", "-q")
        weights = self.folder / "weights.gguf"
        self.succeeds("imatrix", TINY, "--ids", "1,2,3,4", "--out", weights, "-q")
        self.succeeds("imatrix", TINY, "--ids", "1,2,3,4", "--from", weights, "--out", weights, "-q")  # it is added to

    def test_names_of_models(self):
        cache = self.folder / "hearth" / "models"
        cache.mkdir(parents=True)
        (cache / "mine.gguf").symlink_to(TINY)
        env = {"XDG_CACHE_HOME": str(self.folder)}
        for name in "default", "mine", "mine.gguf":
            for words in ["quantize", TINY, name, "--to", "Q8_0"], ["convert", GGUF, name, "--to", "mlx"], ["merge", GGUF, name]:
                self.fails(1, *words, "-q", env=env, cwd=self.folder, says=f"{name} is the name of a model")
        self.succeeds("merge", GGUF, "./mine.gguf", "-q", env=env, cwd=self.folder)
        for words in ["quantize", TINY, "out", "--to", "Q8_0"], ["merge", GGUF, "out"], ["convert", MODEL, "out", "--to", "gguf"]:
            self.fails(1, *words, "-q", cwd=self.folder, says="out: the name of a GGUF file must end with .gguf; use out.gguf")
        self.assertEqual(sorted(os.listdir(self.folder)), ["hearth", "mine.gguf"])


if __name__ == "__main__":
    unittest.main()
