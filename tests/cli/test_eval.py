"""What `hearth eval` computes, from the logits that `hearth logits` writes."""

import math
import struct
import unittest

from files import Npy
from support import TINY, CommandTest

TEXT = b"hello world, the hello of the world: hello the world or the hold of the wold" * 2


class Eval(CommandTest):
    def eval(self, *words, **more):
        return self.succeeds("eval", *words, "--json", **more).json

    def tokenize(self, text):
        return [int(i) for i in self.succeeds("tokenize", TINY, stdin=text).text.split()]

    def logits(self, ids, *options):
        path = self.folder / "x.npy"
        self.succeeds("logits", TINY, "--ids", ",".join(map(str, ids)), "--out", path, "--force", *options)
        return Npy(path.read_bytes()).rows()

    def log_probabilities(self, ids, window, *options):
        """Before every token that counts."""
        out = []
        for at in range(0, len(ids), window):
            part = ids[at : at + window]
            for row in self.logits(part, *options)[:-1]:
                total = math.log(sum(math.exp(x) for x in row))
                out.append([x - total for x in row])
        return out

    def targets(self, ids, window):
        return [t for at in range(0, len(ids), window) for t in ids[at + 1 : at + window]]

    def test_perplexity(self):
        ids = self.tokenize(TEXT)
        rows, targets = self.log_probabilities(ids, 20), self.targets(ids, 20)
        nll = [-row[t] for row, t in zip(rows, targets)]
        mean = sum(nll) / len(nll)
        error = math.sqrt(sum((x - mean) ** 2 for x in nll) / (len(nll) - 1) / len(nll))
        value = self.eval(TINY, "--text", self.write("text", TEXT), "--ctx", "20")
        self.assertEqual((value["tokens"], value["scored_tokens"], value["ctx"]), (len(ids), len(nll), 20))
        self.assertEqual(value["windows"], -(-len(ids) // 20))
        self.assertAlmostEqual(value["mean_nll"], mean, delta=1e-5)
        self.assertAlmostEqual(value["perplexity"], math.exp(mean), delta=1e-4 * math.exp(mean))
        self.assertAlmostEqual(value["perplexity_error"], math.exp(mean) * error, delta=1e-3 * error * math.exp(mean))
        self.assertNotIn("kl_mean", value)
        same = self.eval(TINY, "--text", "-", "--ctx", "20", stdin=TEXT)
        same_ids = self.eval(TINY, "--ids", ",".join(map(str, ids)), "--ctx", "20")
        for other in [same, same_ids]:
            self.assertEqual(other["perplexity"], value["perplexity"])

    def test_divergence_from_another_checkpoint(self):
        other = self.folder / "other.gguf"
        data = bytearray(TINY.read_bytes())
        for at in range(len(data) - 4000, len(data), 4):
            (x,) = struct.unpack_from("<f", data, at)
            struct.pack_into("<f", data, at, -x)
        other.write_bytes(data)
        value = self.eval(TINY, "--text", "-", "--kl-vs", other, stdin=TEXT)
        self.assertEqual(value["compared_with"], str(other))
        self.assertGreater(value["kl_mean"], 1e-3)
        turned = self.eval(other, "--text", "-", "--kl-vs", TINY, stdin=TEXT)
        self.assertEqual(value["compared_perplexity"], turned["perplexity"])
        self.assertEqual(turned["compared_perplexity"], value["perplexity"])
        self.assertNotEqual(turned["kl_mean"], value["kl_mean"])

    def test_threads_change_nothing(self):
        words = [TINY, "--text", "-", "--ctx", "24", "--kl-vs-reference"]
        values = [self.eval(*words, "--threads", n, stdin=TEXT) for n in "123"]
        for value in values:
            del value["seconds"]
            self.assertEqual(value, values[0])

    def test_text(self):
        result = self.succeeds("eval", TINY, "--text", "-", "--kl-vs-reference", "--quiet", stdin=TEXT)
        self.assertEqual(result.err, "")
        for word in ["perplexity", "±", "KL 99.9 %", "same top", "reference precision"]:
            self.assertIn(word, result.text)
        self.assertNotIn("KL", self.succeeds("eval", TINY, "--text", "-", stdin=TEXT).text)

    def test_mistakes(self):
        self.fails(2, "eval", TINY, says="--text")
        self.fails(2, "eval", TINY, "--text", "-", "--ids", "1,2", says="exclude")
        self.fails(2, "eval", TINY, "--text", "-", "--kl-vs", TINY, "--kl-vs-reference", says="exclude")
        self.fails(2, "eval", TINY, "--text", "-", "--ctx", "1", says="--ctx")
        self.fails(1, "eval", TINY, "--text", self.folder / "none", says="none")
        self.fails(1, "eval", TINY, "--text", self.folder, says=str(self.folder))
        self.fails(1, "eval", TINY, "--text", "-", stdin=b"", says="nothing to predict")
        self.fails(1, "eval", TINY, "--ids", "1,x", says='"x"')
        self.fails(1, "eval", TINY, "--ids", "1,99999", says="99999")
        self.fails(1, "eval", TINY, "--text", "-", "--ctx", "100", "--context", "64", stdin=TEXT, says=["100", "64"])
        self.fails(1, "eval", TINY, "--text", "-", "--kl-vs", "none.gguf", stdin=TEXT, says="none.gguf")


if __name__ == "__main__":
    unittest.main()
