"""`hearth run --tool-choice`: calls that are held to the schemas of --tools, and what is said where they cannot be."""

import json
import unittest

from support import TINY, CommandTest

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{# <tool_call> #}"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 5}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    },
    {"name": "stop"},
]


class ToolChoice(CommandTest):
    def setUp(self):
        super().setUp()
        self.model, self.tools = self.tiny(template=TEMPLATE), self.written("tools.json", TOOLS)

    def written(self, name, value):
        return self.write(name, json.dumps(value))

    def run_with(self, choice, seed, *more):
        words = "--temperature", "3", "--max-tokens", "800", "--json", "--seed", seed, *more
        return self.succeeds("run", self.model, "hello", "--tools", self.tools, "--tool-choice", choice, *words).json

    def check(self, call):
        if call["name"] == "stop":
            self.assertEqual(call["arguments"], {})
            return
        self.assertEqual(call["name"], "weather")
        self.assertEqual(set(call["arguments"]), {"city", "days"})
        self.assertIn(call["arguments"]["city"], ["Paris", "Rome"])
        self.assertIn(call["arguments"]["days"], range(1, 6))

    def test_required(self):
        n_ended = 0
        for seed in range(4):
            result = self.run_with("required", seed)
            n_ended += result["finish"] == "stop"
            if result["finish"] == "stop":
                self.assertEqual(result["text"], "")
                self.assertGreater(len(result["tool_calls"]), 0)
            for call in result.get("tool_calls", []):
                self.check(call)
        self.assertGreater(n_ended, 0)

    def test_named_and_one(self):
        for seed in range(3):
            result = self.run_with("stop", seed, "--one-call")
            self.assertEqual(result["tool_calls"], [{"name": "stop", "arguments": {}}])
            self.assertEqual(result["finish"], "stop")
            self.assertEqual(len(self.run_with("required", seed, "--one-call")["tool_calls"]), 1)

    def test_none_and_auto(self):
        for choice in "none", "auto":
            for seed in range(3):
                result = self.run_with(choice, seed)
                self.assertNotIn("tool_calls" if choice == "none" else "error", result)
                for call in result.get("tool_calls", []):
                    self.check(call)

    def answer(self, seed, *more):
        words = "--temperature", "2", "--max-tokens", "800", "--json", "--seed", seed
        result = self.succeeds("run", self.model, *words, *more).json
        return result["finish"], result["text"], result.get("tool_calls", [])

    def beside(self, words, check):
        """Answers with a grammar, whose texts `check` is given, until there was one of text and one of calls."""
        whole = self.written("whole.json", {"messages": [{"role": "user", "content": "hello"}], "tools": TOOLS})
        tools, seen = ("hello", "--tools", self.tools), set()
        for seed in range(100):
            finish, text, calls = given = self.answer(seed, *words, *tools, "--tool-choice", "auto")
            # The choice is `auto` where nothing else is said, whoever has named the tools.
            self.assertEqual(self.answer(seed, *words, *tools), given)
            self.assertEqual(self.answer(seed, *words, "--messages", whole), given)
            for call in calls:
                self.check(call)
            if finish == "stop":
                seen.add(bool(calls))
                self.assertEqual(text, "") if calls else check(text)
            if len(seen) == 2:
                return
        self.fail(f"{words}: calls {seen}")

    def test_beside_a_grammar(self):
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
        two = lambda text: self.assertRegex(text, "^[xyz]{2}$")
        self.beside(("--regex", "[xyz]{2}"), two)
        self.beside(("--schema", self.written("schema.json", schema)), lambda text: self.assertIn(json.loads(text)["n"], (1, 2)))
        words = "--regex", "[xyz]{2}", "hello", "--tools", self.tools, "--tool-choice"
        talk = {"messages": [{"role": "user", "content": "hello"}], "tools": TOOLS, "tool_choice": "none"}
        for seed in range(6):
            self.assertEqual(self.answer(seed, *words, "stop", "--one-call")[1:], ("", [{"name": "stop", "arguments": {}}]))
            for none in (*words, "none"), ("--regex", "[xyz]{2}", "--messages", self.written("talk.json", talk)):
                finish, text, calls = self.answer(seed, *none)
                self.assertEqual(calls, [])
                two(text)

    def test_refused(self):
        words = "run", self.model, "a", "--tools", self.tools, "--tool-choice"
        self.fails(1, *words, "other", says="`other`")
        self.fails(1, "run", TINY, "a", "--tools", self.tools, "--tool-choice", "required", says="no known tool-call format")
        self.fails(2, *words[:3], "--tool-choice", "auto", says="--tool-choice is of --tools")
        self.fails(2, *words[:3], "--tools", self.tools, "--one-call", says="--one-call is of --tool-choice")
        self.fails(2, *words, "auto", "--raw", says="exclude each other")


if __name__ == "__main__":
    unittest.main()
