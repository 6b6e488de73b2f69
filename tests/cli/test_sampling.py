"""Penalties, biases of logits and stops of the command: `run`, `chat` and `batch`."""

import json
import unittest

from support import TINY, CommandTest, hearth

RUN = ("run", TINY, "hello the world", "--raw", "--quiet", "--json", "-n", "24")


class Sampling(CommandTest):
    def ids(self, *words):
        """The tokens that are drawn."""
        path = self.folder / "probes"
        self.succeeds(*RUN, *words, "--probe", "token", "--probe-out", path)
        return [json.loads(line)["token"] for line in path.read_text().splitlines()]

    def answer(self, *words):
        return json.loads(self.succeeds(*RUN, *words).text)

    def piece(self, token):
        return self.succeeds("detokenize", TINY, str(token)).text.removesuffix("\n")

    def test_biases(self):
        plain = self.ids()
        forbidden = plain[0]
        biased = self.ids("--logit-bias", f"{forbidden}=-100")
        self.assertNotIn(forbidden, biased)
        self.assertEqual(set(self.ids("--logit-bias=10=1e3")), {10})
        self.assertEqual(self.ids("--logit-bias", "10=1000", "--logit-bias", "10=0"), plain)  # the last one of a token
        self.assertEqual(set(self.ids("--logit-bias", "10=1000", "--logit-bias", "11=1100")), {11})

    def test_penalties(self):
        plain, once = self.ids(), self.ids("--presence-penalty", "1000", "-n", "16")
        self.assertLess(len(set(plain)), len(plain))
        self.assertEqual(len(set(once)), len(once))  # no token twice
        favoured = self.ids("--presence-penalty", "-1000")
        self.assertEqual(set(favoured), {plain[0]})  # nothing but what is there
        counted = self.ids("--frequency-penalty", "1000", "--logit-bias", "10=1500", "--logit-bias", "11=1500", "-n", "4")
        self.assertEqual(sorted(counted), [10, 10, 11, 11])

    def test_stops(self):
        plain = self.answer()
        self.assertNotIn("stop", plain)
        for stop in [["never", plain["text"][3:6]], [plain["text"][2:4]]]:
            words = [word for text in stop for word in ("--stop", text)]
            ended = self.answer(*words)
            self.assertEqual((ended["finish"], ended["stop"]), ("stop", stop[-1]))
            self.assertNotIn("stop_id", ended)
        end = json.loads(self.succeeds("tokenize", TINY, "<|im_end|>", "--json").text)["ids"][-1]
        ended = self.answer("--logit-bias", f"{end}=1000", "--stop", "x")
        self.assertEqual((ended["finish"], ended["stop_id"], ended["text"]), ("stop", end, ""))
        self.assertNotIn("stop", ended)

    def test_batch(self):
        path = self.folder / "prompts.jsonl"
        lines = [
            {"logit_bias": {"10": 1000}},
            {},
            {"logit_bias": {"10": 1000, "11": 1100}},
            {"logit_bias": {"10": 1000, "11": 1000}, "presence_penalty": 400, "frequency_penalty": 100},
            {"logit_bias": {"10": 1000, "99999": 1}},
            {"logit_bias": {"x": 1}},
            {"logit_bias": [10]},
            {"presence_penalty": "1"},
        ]
        path.write_text("".join(json.dumps({"prompt": "hello", "max_tokens": 4, **line}) + "\n" for line in lines))
        command = ("batch", TINY, "--prompts", path, "--quiet", "--raw", "--logit-bias", "12=1000")
        found = [json.loads(line) for line in self.run_failing(*command).splitlines()]
        self.assertEqual(found[0]["text"], 4 * self.piece(10))
        self.assertEqual(found[1]["text"], 4 * self.piece(12))
        self.assertEqual(found[2]["text"], 4 * self.piece(11))
        self.assertEqual(sorted(found[3]["text"]), sorted(2 * (self.piece(10) + self.piece(11))))
        for line, says in zip(
            found[4:],
            ["logit_bias of token 99999", '"logit_bias" is to be an object', '"logit_bias" is to be', "a number from -1000"],
            strict=True,
        ):
            self.assertIn(says, line["error"])

    def run_failing(self, *words):
        result = hearth(*words)
        self.assertEqual(result.status, 1, result.err)
        return result.text

    def test_chat(self):
        said = self.succeeds(
            "chat", TINY, "-n", "3", "--quiet",
            stdin=b"/set logit_bias 10=1000  11=1020\n/set presence_penalty 50\n/set\nhello\n/set logit_bias none\n/set\n",
        ).text  # fmt: skip
        shown, rest = said.split("seed", 1)
        self.assertIn("10=1000", shown)
        self.assertIn("11=1020", shown)
        self.assertRegex(shown, r"presence_penalty +50\n")
        self.assertIn(self.piece(11) + self.piece(10) + self.piece(11), rest)
        self.assertNotIn("10=1000", rest)
        for line in "10", "", "10=x", "x=1", "10=1 11", "-1=2", "10=inf", "5000000000=1":
            self.fails_softly(f"/set logit_bias {line}\n")

    def fails_softly(self, line):
        result = hearth("chat", TINY, "--quiet", stdin=line.encode())
        self.assertIn("expected", result.err, line)

    def test_usage(self):
        for word in "10", "=1", "10=", "10=x", "-1=1", "10=nan", "10=1e39", "5000000000=1", "1 0=1", "10=1 ":
            self.fails(2, *RUN, "--logit-bias", word, says="expected ID=BIAS")
        self.fails(1, *RUN, "--logit-bias", "99999=1", says="vocabulary has ids 0 to")
        self.fails(2, *RUN, "--presence-penalty", "nan", says="a number from -1000 to 1000")


if __name__ == "__main__":
    unittest.main()
