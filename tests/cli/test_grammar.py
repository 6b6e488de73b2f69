"""`hearth run --regex` and `--grammar`: answers that are what was asked for, and what is said where they cannot be."""

import json
import unittest

from support import TINY, CommandTest

LIST = 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9]{1,3} | root\n'


class Grammar(CommandTest):
    def test_regex(self):
        for seed in range(4):
            words = "--temperature", "1", "--seed", seed, "-q"
            text = self.succeeds("run", TINY, "hello", "--regex", "(yes|no) [a-c]{3}\\.", *words).text
            self.assertRegex(text, r"\A(yes|no) [a-c]{3}\.\n?\Z")
        result = self.succeeds("run", TINY, "hello", "--raw", "--regex", "[α-ω]{4}", "--json").json
        self.assertRegex(result["text"], r"\A[α-ω]{4}\Z")
        self.assertEqual(result["finish"], "stop")

    def test_grammar(self):
        path = self.write("list.gbnf", LIST)
        words = "--temperature", "1.5", "--max-tokens", "60", "--json"
        result = self.succeeds("run", TINY, "hello", "--grammar", path, "--seed", 7, *words).json
        self.assertRegex(result["text"], r"\A\[[0-9\[][0-9,\[\]]*\Z")
        piped = self.succeeds("run", TINY, "hello", "--grammar", "-", "--seed", 7, *words, stdin=LIST.encode())
        self.assertEqual(piped.json["text"], result["text"])

    def test_schema(self):
        schema = {
            "type": "object",
            "properties": {"colour": {"enum": ["red", "green"]}, "list": {"type": "array", "items": {"type": "boolean"}}},
            "required": ["colour", "list"],
            "additionalProperties": False,
        }
        path = self.write("schema.json", json.dumps(schema))
        text = self.succeeds("run", TINY, "hello", "--schema", path, "--max-tokens", "300", "-q").text
        self.assertRegex(text, r'\A\s*{\s*"colour"\s*:\s*"(red|green)"')
        path = self.write("unique.json", '{"properties": {"a": {"uniqueItems": true, "type": "array"}}}')
        self.fails(1, "run", TINY, "a", "--schema", path, says="/properties/a/uniqueItems")

    def test_guesses_change_nothing(self):
        words = "run", TINY, "hello hello", "--regex", "(hello ){2,9}", "--temperature", "1", "-q"
        self.assertEqual(self.succeeds(*words).out, self.succeeds(*words, "--lookup").out)

    def test_refused(self):
        self.fails(2, "run", TINY, "a", "--regex", "a", "--grammar", "f", says="--schema, --regex and --grammar exclude each other")
        self.fails(1, "run", TINY, "a", "--regex", "(a", says="the regular expression `(a`: `(` without `)`")
        self.fails(1, "run", TINY, "a", "--regex", "\\bword", says="word boundaries")
        self.fails(1, "run", TINY, "a", "--grammar", self.folder / "none", says="none")
        path = self.write("bad.gbnf", 'root ::= "a"\n  | item\n')
        self.fails(1, "run", TINY, "a", "--grammar", path, says="line 2, column 5: there is no rule `item`")


if __name__ == "__main__":
    unittest.main()
