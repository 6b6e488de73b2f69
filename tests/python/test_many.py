"""Many prompts at once from Python: classify, score and batch. Needs HEARTH_LIBRARY and PYTHONPATH=python, nothing else."""

import math
import unittest

from with_tiny_model import WithTinyModel  # which makes the package and tests/cli importable


CHAT = [{"role": "user", "content": "hello"}]


class WithScores(WithTinyModel):
    def log_probabilities(self, ids):
        """After the last of these ids."""
        row = self.model.logits(ids, last=True).tolist()
        total = math.log(math.fsum(math.exp(x) for x in row))
        return [x - total for x in row]


class Classify(WithScores):
    def test_all_forms_of_prompts(self):
        prompts = ["hello world", [5, 6, 7], CHAT]
        for prompt, found in zip(prompts, self.model.classify(prompts, logits=True), strict=True):
            if prompt is CHAT:
                prompt = self.model.tokenize(self.model.format_chat(CHAT), add_special=False)
            row = self.model.logits(prompt, last=True).tolist()
            self.assertEqual(found.logits.tolist(), row)
            self.assertEqual(found.token, row.index(max(row)))
            self.assertEqual(found.text, self.model.detokenize([found.token], skip_special=True))
            ids = self.model.tokenize(prompt) if isinstance(prompt, str) else prompt
            self.assertAlmostEqual(found.log_probability, self.log_probabilities(ids)[found.token], places=5)
            self.assertEqual((found.error, found.label, found.prompt_tokens), (None, None, len(ids)))

    def test_labels(self):
        labels = ["a", " world", "hello the"]
        (found,) = self.model.classify(["hello"], labels)
        self.assertEqual(list(found.probabilities), labels)
        self.assertAlmostEqual(sum(found.probabilities.values()), 1)
        self.assertEqual(found.probabilities[found.label], max(found.probabilities.values()))
        for label in labels:
            ids, expected = self.model.tokenize("hello" + label), 0
            start = len(self.model.tokenize("hello"))
            self.assertEqual(ids[:start], self.model.tokenize("hello"))
            for at in range(start, len(ids)):
                expected += self.log_probabilities(ids[:at])[ids[at]]
            self.assertAlmostEqual(found.log_probabilities[label], expected, places=4)

    def test_errors_are_of_one_prompt(self):
        found = self.model.classify(["hello", [], [10**6], "world"])
        self.assertEqual([f.error is None for f in found], [True, False, False, True])
        self.assertIsInstance(found[1].error, ValueError)
        self.assertIn("outside the vocabulary", str(found[2].error))

    def test_mistakes_end_the_call(self):
        for bad in (["hello", 3], ["a\0"], [["x"]]):
            self.assertRaises((TypeError, ValueError), self.model.classify, bad)
        self.assertRaisesRegex(ValueError, 'both "a"', self.model.classify, ["hello"], ["a", "a"])
        self.assertEqual(self.model.classify([]), [])

    def test_results_as_they_come(self):
        seen = []
        found = self.model.classify(["hello"] * 5, on_result=lambda i, r: seen.append((i, r)))
        self.assertEqual(seen, list(enumerate(found)))

        def stop(i, result):
            if i == 2:
                raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, self.model.classify, ["hello"] * 5, on_result=stop)


class Scores(WithScores):
    def test_scores(self):
        (found,) = self.model.score([("hello", [" world", [7, 8]])], top_k=4)
        self.assertEqual((found.error, len(found.continuations)), (None, 2))
        start = self.model.tokenize("hello")
        for c, ids in zip(found.continuations, [self.model.tokenize("hello world"), [*start, 7, 8]], strict=True):
            self.assertEqual([t.id for t in c.tokens], ids[found.shared_tokens :])
            self.assertAlmostEqual(c.log_probability, sum(t.log_probability for t in c.tokens))
            for at, t in enumerate(c.tokens, found.shared_tokens):
                expected = self.log_probabilities(ids[:at])
                self.assertAlmostEqual(t.log_probability, expected[t.id], places=5)
                best = sorted(range(len(expected)), key=lambda i: -expected[i])[:4]
                self.assertEqual([i for i, _ in t.top], best)

    def test_one_continuation(self):
        found = self.model.score([("hello", " world"), ("hello", ""), ([5], [[6]])])
        self.assertEqual([len(f.continuations) for f in found], [1, 0, 1])
        self.assertIn("adds no tokens", str(found[1].error))
        self.assertEqual(found[2].continuations[0].tokens[0].top, [])


class Batch(WithScores):
    def test_answers_of_single_calls(self):
        prompts = [f"hello {i} world" for i in range(20)]
        found = self.model.batch(prompts, max_tokens=8, temperature=1.0, seed=3)
        for prompt, answers in zip(prompts, found, strict=True):
            alone = self.model.generate(prompt, max_tokens=8, temperature=1.0, seed=3)
            self.assertEqual(answers.text, "".join(alone))
            answer = answers.answers[0]
            self.assertEqual((answer.finish, len(answer.tokens)), (alone.metrics["finish"], alone.metrics["generated_tokens"]))

    def test_requests_have_options(self):
        found = self.model.batch([{"prompt": CHAT, "n": 2, "temperature": 2.0, "seed": 0}, {"prompt": [5, 6], "max_tokens": 2}, "hello"],
                                 max_tokens=6, ignore_eos=True)  # fmt: skip
        self.assertEqual([len(f.answers) for f in found], [2, 1, 1])
        self.assertEqual([len(f.answers[0].tokens) for f in found], [6, 2, 6])
        for i in range(2):
            alone = "".join(self.model.chat(CHAT, temperature=2.0, seed=i, max_tokens=6, ignore_eos=True))
            self.assertEqual(found[0].answers[i].text, alone)

    def test_errors(self):
        found = self.model.batch(["hello", [10**6], {"prompt": "hello", "stop": "a"}], max_tokens=3)
        self.assertEqual([f.error is None for f in found], [True, False, True])
        with self.assertRaisesRegex(ValueError, "outside the vocabulary"):
            _ = found[1].text
        self.assertRaisesRegex(TypeError, "colour", self.model.batch, ["hello"], colour=1)
        self.assertRaises(KeyError, self.model.batch, [{"n": 1}])


if __name__ == "__main__":
    unittest.main()
