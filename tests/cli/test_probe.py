"""What `hearth run --probe` writes: a JSON line for each kind and token, and the same answer as without."""

import json
import math
import unittest

from support import TINY, CommandTest, hearth

KINDS = ["token", "top", "entropy", "cache", "memory", "residual", "logprob"]  # of a model without experts
RUN = ("run", TINY, "hello", "--raw", "--max-tokens", "6", "--temperature", "1", "--quiet")


class Probe(CommandTest):
    def lines(self, *words):
        path = self.folder / "probes"
        answer = self.succeeds(*RUN, *words, "--probe-out", path)
        self.assertEqual(answer.out, self.succeeds(*RUN).out)
        self.assertEqual(answer.err, "")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_all(self):
        lines = self.lines("--probe", "all")
        tokens = len(lines) // len(KINDS)
        self.assertGreater(tokens, 1)
        self.assertEqual([line["probe"] for line in lines], KINDS * tokens)
        self.assertEqual([line["index"] for line in lines], [i for i in range(tokens) for _ in KINDS])
        for i in range(tokens):
            token, top, entropy, cache, memory, residual, logprob = lines[i * len(KINDS) : (i + 1) * len(KINDS)]
            self.assertIsInstance(token["token"], int)
            logits = [x for _, x in top["top"]]
            self.assertEqual((len(logits), logits), (8, sorted(logits, reverse=True)))
            self.assertTrue(0 <= entropy["entropy"] <= math.log(10**6))
            self.assertEqual(cache["positions"], token["position"])
            self.assertAlmostEqual(cache["pressure"], cache["positions"] / cache["context"])
            self.assertTrue(0 < memory["bytes"] <= memory["peak"])
            self.assertTrue(all(x > 0 for x in residual["norms"]))
            self.assertEqual((logprob["token"], logprob["top"]), (token["token"], []))
            self.assertLess(logprob["logprob"], 0)

    def test_some(self):
        self.assertEqual({line["probe"] for line in self.lines("--probe", "entropy,token")}, {"entropy", "token"})
        self.assertEqual(self.lines("--probe", "router"), [])
        self.assertEqual({len(line["top"]) for line in self.lines("--probe", "logprob", "--top-logprobs", "3")}, {3})
        result = hearth(*RUN, "--probe", "entropy")
        self.assertEqual({json.loads(line)["probe"] for line in result.err.splitlines()}, {"entropy"})

    def test_usage(self):
        for words, says in [
            (("--probe", "tokens"), "--probe is a list as in token,entropy"),
            (("--probe", "token,"), "--probe is a list"),
            (("--probe-out", "x"), "--probe-out is of --probe"),
            (("--top-logprobs", "3"), "--top-logprobs is of --probe logprob"),
            (("--probe", "logprob", "--top-logprobs", "21"), "expected a whole number from 0 to 20"),
        ]:
            self.fails(2, *RUN, *words, says=says)
        self.fails(1, *RUN, "--probe", "all", "--probe-out", self.folder / "no" / "x", says="x cannot be written")


if __name__ == "__main__":
    unittest.main()
