"""hearth serve from outside: a schema of the answer beside tools, in every dialect: a round with a call, then one with text that is valid."""

import json
import unittest

from dialects import HELLO, Anthropic, Ollama, OpenAI, Responses
from support import ServeTest, tiny_model
from tool_model import MESSAGES_MODEL, MODEL

PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}
SCHEMA = {"type": "object", "properties": {"sky": {"enum": ["clear", "grey"]}}, "required": ["sky"], "additionalProperties": False}


def biases(dislikes):
    """Random weights begin with neither a call nor an object. Answers and objects end where they may; white space and some beginnings are disliked."""
    alphabet = tiny_model.byte_alphabet()
    first = {alphabet[ord(character)] for character in " \t\r\n" + dislikes}
    disliked = [i for i, token in enumerate(tiny_model.vocabulary()) if token[0] in first and i >= len(tiny_model.SPECIAL)]
    return {str(i): -100 for i in disliked} | {str(tiny_model.vocabulary().index(end)): 100 for end in ("}", "<|im_end|>")}


class Rounds:
    """Of a model, and biases with which it calls a tool, writes a text, writes one where calls are off, and calls where it has to."""

    def answer(self, dialect, messages, bias, choice="auto"):
        """(text, calls), the same whole and as a stream; the answer is not cut."""
        body = dialect.body(PARAMETERS, choice, 200, bias, messages, SCHEMA)
        whole = dialect.whole(self.server, body)
        self.assertEqual(dialect.streamed(self.server, body), whole)
        return self.parsed(whole)

    def parsed(self, answer):
        text, calls, cut, _ = answer
        self.assertFalse(cut)
        return text, [(name, json.loads(given) if isinstance(given, str) else given) for name, given, _ in calls]

    def check_text(self, answer):
        text, calls = answer
        self.assertEqual(calls, [])
        self.assertIn(json.loads(text), ({"sky": "clear"}, {"sky": "grey"}))

    def check_call(self, answer):
        text, calls = answer
        self.assertEqual(text, "")
        for name, given in calls:
            self.assertEqual((name, set(given)), ("weather", {"city"}))
            self.assertIn(given["city"], ("Paris", "Rome"))
        self.assertGreater(len(calls), 0)

    def test_a_call_and_then_text(self):
        for dialect in OpenAI(), Responses(), Anthropic(), Ollama():
            with self.subTest(dialect.path):
                first = self.answer(dialect, [HELLO], self.call)
                self.check_call(first)
                self.check_text(self.answer(dialect, dialect.history(first[1]), self.text))

    def test_choices(self):
        for dialect in OpenAI(), Responses(), Anthropic():
            with self.subTest(dialect.path):
                self.check_text(self.answer(dialect, [HELLO], self.no_call, "none"))
                self.check_call(self.answer(dialect, [HELLO], self.only_call, "required"))


class CallsOrText(Rounds, ServeTest):
    model, call, text = MODEL, biases("{"), biases("<")
    no_call, only_call = call, text

    def test_every_way_to_ask_for_a_text(self):
        body = OpenAI().body(PARAMETERS, "auto", 200)
        body.pop("parallel_tool_calls")
        for way, matches in [
            ({"response_format": {"type": "json_object"}}, r"\{.*\}"),
            ({"json_schema": SCHEMA}, r'\{"sky":"(clear|grey)"\}'),
            ({"regex": "[xyz]{3}"}, "[xyz]{3}"),
            ({"grammar": 'root ::= "(" root ")" | "x"'}, r"\(*x\)*"),
            ({"guided_choice": ["yes", "no"]}, "(yes|no)"),
            ({"structured_outputs": {"regex": "a{3}"}}, "aaa"),
        ]:
            with self.subTest(way):
                text, calls = self.parsed(OpenAI().whole(self.server, {**body, **way, "logit_bias": biases("<(")}))
                self.assertEqual(calls, [])
                self.assertRegex(text, f"^{matches}$")
                self.check_call(self.parsed(OpenAI().whole(self.server, {**body, **way, "logit_bias": biases("{xyzna(")})))

    def test_some_tools_are_allowed(self):
        chat = OpenAI.path
        tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("one", "two")]
        one = {"type": "function", "function": {"name": "one"}}
        choice = lambda mode, *names: {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*names]}}  # noqa: E731
        prompt = lambda **more: self.ok("/apply-template", {"messages": [HELLO], **more})["prompt"]  # noqa: E731
        alone = prompt(tools=tools[:1])
        self.assertNotEqual(alone, prompt(tools=tools))
        self.assertEqual(alone, prompt(tools=tools, tool_choice=choice("auto", one)))
        self.assertEqual(alone, prompt(tools=tools, tool_choice=choice("required", one)))
        self.assertEqual(prompt(), prompt(tools=tools, tool_choice=choice("auto")))
        self.refused(400, chat, dict(messages=[HELLO], tools=tools, tool_choice=choice("required")), "tool_choice", "has no tools")
        self.refused(400, chat, dict(messages=[HELLO], tools=tools, tool_choice=choice("none", one)), "tool_choice.allowed_tools.mode")
        self.refused(400, chat, dict(messages=[HELLO], tools=tools, tool_choice={"type": "allowed_tools"}), "tool_choice.allowed_tools")

    def test_numbers_are_as_sent(self):
        numbers = "[0.1, 9223372036854775808, 123456789012345678901234567890, -0.0]"
        tools = f'[{{"type": "function", "function": {{"name": "f", "parameters": {{"enum": {numbers}}}}}}}]'
        call = f'{{"id": "c1", "type": "function", "function": {{"name": "f", "arguments": {{"a": {numbers}}}}}}}'
        history = f'[{{"role": "user", "content": "x"}}, {{"role": "assistant", "content": "", "tool_calls": [{call}]}}]'
        prompt = self.ok("/apply-template", f'{{"messages": {history}, "tools": {tools}}}')["prompt"]
        self.assertEqual(prompt.count(numbers), 2, prompt)
        schema = f'{{"type": "json_schema", "json_schema": {{"schema": {{"const": {numbers[:-7]}]}}}}}}'
        body = f'{{"messages": [{json.dumps(HELLO)}], "response_format": {schema}, "reasoning_effort": "none", "max_tokens": 200}}'
        content = self.ok(OpenAI.path, body)["choices"][0]["message"]["content"]
        self.assertEqual("".join(content.split()), numbers[:-7].replace(" ", "") + "]")


class Messages(Rounds, ServeTest):
    """Reasoning, calls and text are messages with headers: no message of reasoning here, and the header's channel decides."""

    model, call, text = MESSAGES_MODEL, biases("{fa"), biases("ca")
    no_call, only_call = biases("{a"), call


if __name__ == "__main__":
    unittest.main()
