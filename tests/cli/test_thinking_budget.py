"""Thinking budgets of the command: `run`, `chat` and `batch`."""

import json
import unittest

import tiny_model
from support import SCRATCH, TINY, CommandTest, hearth

TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}"
THINKS = SCRATCH / "thinks.gguf"
tiny_model.write(THINKS, template=TEMPLATE)
# No end, and no token twice: the model never ends a thought of its own.
HOW = ("--quiet", "-n", "40", "--logit-bias", "0=-100", "--logit-bias", "2=-100", "--presence-penalty", "1000")
END = "\n</think>\n\n"


class ThinkingBudget(CommandTest):
    def tokens(self, *words):
        path = self.folder / "probes"
        self.succeeds("run", THINKS, "hello", *HOW, *words, "--probe", "token", "--probe-out", path)
        return [json.loads(line)["token"] for line in path.read_text().splitlines()]

    def answer(self, *words):
        return self.succeeds("run", THINKS, "hello", "--json", *HOW, *words).json

    def test_run(self):
        free, end = self.tokens(), self.succeeds("tokenize", THINKS, END, "--json").json["ids"]
        whole = self.answer()
        self.assertNotIn("thought_ended", whole)
        self.assertEqual((whole["text"], whole["finish"]), ("", "length"))
        for budget in 0, 1, 7:
            tokens, answer = self.tokens("--thinking-budget", budget), self.answer("--thinking-budget", budget)
            self.assertEqual(tokens[:budget], free[:budget])
            self.assertEqual(tokens[budget : budget + len(end)], end)
            self.assertEqual((answer["thought_ended"], answer["metrics"]["generated_tokens"]), (True, 40))
            self.assertTrue(whole["thinking"].startswith(answer.get("thinking", "")))
            self.assertEqual("thinking" in answer, budget > 0)
            self.assertTrue(answer["text"])
            self.assertEqual(self.answer("--thinking-budget", budget, "--lookup")["text"], answer["text"])
        for words in ["--thinking-budget=-1"], ["--thinking-budget", "40"]:
            answer = self.answer(*words)
            self.assertEqual((answer["thinking"], answer["text"]), (whole["thinking"], whole["text"]))
        self.fails(2, "run", THINKS, "hello", "--thinking-budget", "-2", says="--thinking-budget")
        self.fails(2, "run", THINKS, "hello", "--thinking-budget", "some", says="--thinking-budget")

    def test_grammar_and_what_does_not_think(self):
        answer = self.answer("--thinking-budget", "5", "--regex", r"\d\d-[ab]")
        self.assertRegex(answer["text"], r"^\d\d-[ab]$")
        self.assertEqual((answer["thought_ended"], answer["finish"]), (True, "stop"))
        plain = ("run", TINY, "hello", *HOW)
        self.assertEqual(self.succeeds(*plain).out, self.succeeds(*plain, "--thinking-budget", "0").out)
        self.assertEqual(self.answer("--no-thinking", "--thinking-budget", "0")["text"], self.answer("--no-thinking")["text"])

    def test_raw_prompts_that_have_opened_a_thought(self):
        raw = ("run", THINKS, "--raw", "--json", *HOW, "hello\n<think>\n", "--thinking-budget", "2")
        answer = self.succeeds(*raw).json
        self.assertTrue(answer["thought_ended"])
        self.assertIn(END, answer["text"])

    def test_chat(self):
        chat = ("chat", THINKS, *HOW)
        expected = self.answer("--thinking-budget", "3")["text"]
        self.assertIn(expected, self.succeeds(*chat, "--thinking-budget", "3", stdin=b"hello\n").text)
        self.assertNotIn(expected, self.succeeds(*chat, stdin=b"hello\n").text)
        shown = self.succeeds(*chat, stdin=b"/set thinking_budget 3\n/set\nhello\n").text
        self.assertRegex(shown, r"thinking_budget +3\n")
        self.assertIn(expected, shown)
        refused = hearth(*chat, stdin=b"/set parameter thinking_budget -3\n")
        self.assertIn("thinking_budget", refused.err)

    def test_batch(self):
        lines = [{}, {"thinking_budget": 0}, {"thinking_budget": 7}, {"thinking_budget": -1}, {"thinking_budget": "1"}]
        messages = [{"role": "user", "content": "hello"}]
        path = self.write("prompts.jsonl", "".join(json.dumps({"messages": messages, **line}) + "\n" for line in lines))
        found = hearth("batch", THINKS, "--prompts", path, *HOW, "--thinking-budget", "3").lines
        for line, budget in zip(found, (3, 0, 7, -1), strict=False):
            answer = self.answer("--thinking-budget", str(budget))
            self.assertEqual([line.get(name) for name in ("text", "thinking", "thought_ended")],
                             [answer.get(name) for name in ("text", "thinking", "thought_ended")])  # fmt: skip
        self.assertIn('"thinking_budget" must be a whole number from -1', found[4]["error"])


if __name__ == "__main__":
    unittest.main()
