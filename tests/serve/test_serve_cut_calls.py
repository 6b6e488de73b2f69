"""hearth serve from outside: calls of tools that max_tokens cuts, in every dialect: whole answers say what their streams do, at every length."""

import json
import unittest

from dialects import HELLO, STEERED, Anthropic, Ollama, OpenAI, Responses
from support import SCRATCH, ServeTest, cases, tiny_model, variant
from test_serve_calls_or_text import biases
from tool_model import CONTEXT, MODEL, TEMPLATE, call, exactly

GIVEN = {"city": "Paris", "at": {"days": [1, 2], "sure": True}}
PARAMETERS = {"type": "object", "properties": {name: {"const": value} for name, value in GIVEN.items()}, "required": list(GIVEN), "additionalProperties": False}
# Parameters one by one, as Qwen 3 Coder writes them.
TAGGED_TEMPLATE = TEMPLATE.replace("{%- if", "{#- <tool_call><function=a><parameter=b> #}{%- if", 1)
TAGGED = SCRATCH / "tagged.gguf"
tiny_model.write(TAGGED, context=CONTEXT, template=TAGGED_TEMPLATE)
OPEN = "<tool_call>"  # a token of these, which a bias has the model begin with
OPENING = variant("opening.gguf", words=[OPEN], context=CONTEXT, template=TEMPLATE)
OPENING_TAGGED = variant("opening_tagged.gguf", words=[OPEN], context=CONTEXT, template=TAGGED_TEMPLATE)

ENDING = biases("")  # no white space, and an end where there may be one
CALLING = {token: bias for token, bias in ENDING.items() if bias < 0} | {str(len(tiny_model.vocabulary())): 100}


class CutCalls(ServeTest):
    model = MODEL

    def lengths(self, dialect, choice, bias=ENDING, server=None):
        """The answers of every length, or of some, up to the whole one, or to a second call, each the same whole and as a stream."""
        server = server or self.server
        answers = []
        for most in range(1, 400, cases(7, 1)):
            body = dialect.body(PARAMETERS, choice, most, bias)
            whole = dialect.whole(server, body)
            self.assertEqual(dialect.streamed(server, body), whole, f"at {most} tokens")
            if len(whole[1]) > 1:
                while len(whole[1]) > 1:
                    most -= 1
                    whole = dialect.whole(server, dialect.body(PARAMETERS, choice, most, bias))
                return [*answers, whole[:3]]
            answers.append(whole[:3])
            if not whole[2]:
                return answers
            self.assertEqual(whole[3], most)
        self.fail("it does not end")

    def check_arguments(self, dialect, answers):
        """The call begins, grows, and is whole, the same in all answers; how many have a part of it, and the first that has all."""
        seen, parts, complete = -1, 0, None
        ((_, final, _),) = answers[-1][1]
        names = list(json.loads(final) if isinstance(final, str) else final)
        self.assertEqual(json.loads(final) if isinstance(final, str) else final, GIVEN)
        for i, (_, calls, _) in enumerate(answers):
            for name, given, is_told_whole in calls:
                self.assertEqual(name, "weather")
                if isinstance(given, str):
                    size, is_whole = len(given), given == final
                    self.assertTrue(final.startswith(given))
                else:
                    size, is_whole = len(json.dumps(given)), given == GIVEN
                    self.assertEqual(list(given), names[: len(given)])
                self.assertGreaterEqual(size, seen)
                seen = size
                if is_told_whole is not None:
                    self.assertEqual(is_told_whole, is_whole)
                parts += not is_whole
                if is_whole and complete is None:
                    complete = i
            self.assertFalse(seen >= 0 and not calls)  # a call that has begun stays one
        self.assertIsNotNone(complete)
        return parts, complete

    def test_a_call_that_has_to_be(self):
        for dialect in OpenAI(), Responses(), Anthropic():
            for choice in "required", "named":
                with self.subTest(dialect.path, choice=choice):
                    answers = self.lengths(dialect, choice)
                    self.assertTrue(all(text == "" for text, _, _ in answers))
                    self.assertEqual(answers[0][1], [])
                    parts, complete = self.check_arguments(dialect, answers)
                    self.assertGreater(parts, cases(0, 5))
                    self.assertLess(complete, len(answers) - cases(0, 5))  # the closing mark may be missing

    def test_a_call_of_the_models_choice(self):
        server = self.serve(OPENING)
        for dialect in OpenAI(), Responses(), Anthropic(), Ollama():
            with self.subTest(dialect.path):
                answers = self.lengths(dialect, "auto", CALLING, server)
                parts, complete = self.check_arguments(dialect, answers)
                texts = [text for text, calls, _ in answers if not calls]
                self.assertGreater(len(texts), cases(1, 10))
                for text in texts if parts else texts[: cases(1, 3)]:
                    self.assertTrue(text and (OPEN + '{"name":"weather","arguments":').startswith(text.replace("\n", "").replace(" ", "")), text)
                if isinstance(dialect, Ollama):  # whose calls are whole, and of which another one begins
                    self.assertEqual(parts, 0)
                else:
                    self.assertGreater(parts, cases(0, 5))
                    self.assertTrue(all(not text for text, calls, _ in answers if calls))

    def test_parameters_one_by_one(self):
        server = self.serve(TAGGED)
        for dialect in OpenAI(), Responses(), Anthropic():
            with self.subTest(dialect.path):
                answers = self.lengths(dialect, "required", server=server)
                self.assertTrue(all(text == "" for text, _, _ in answers))
                self.assertGreater(self.check_arguments(dialect, answers)[0], cases(0, 5))
        with self.subTest(Ollama.path):
            self.check_arguments(Ollama(), self.lengths(Ollama(), "auto", CALLING, self.serve(OPENING_TAGGED)))

    def test_a_second_call(self):
        """Behind a call that is whole, one that is cut."""
        text = call("weather", GIVEN) + call("stop", {"now": True})
        for dialect, limit, more in (
            (OpenAI(), "max_tokens", {"messages": [HELLO], "reasoning_effort": "none"}),
            (Responses(), "max_output_tokens", {"input": [HELLO], "reasoning": {"effort": "none"}}),
            (Anthropic(), "max_tokens", {"messages": [HELLO], "thinking": {"type": "disabled"}}),
        ):
            for most in range(len(text) - 45, len(text) + 2, cases(11, 4)):
                with self.subTest(dialect.path, most=most):
                    body = {"regex": exactly(text), limit: most, **more, **STEERED}
                    whole = dialect.whole(self.server, body)
                    self.assertEqual(whole, dialect.streamed(self.server, body))
                    self.assertEqual(whole[1][0][0], "weather")
                    self.assertIn(whole[1][0][2], (None, True))

    def test_arguments_that_no_object_can_hold(self):
        """Halves of surrogate pairs, NUL, and numbers beyond 64 bits in the model's text."""
        text = r'{"a": "\ud83dx \ud83d\ude00\udc00", "b": 123456789012345678901234567890, "c": "\u0000"}'
        expected = {"a": "\ufffdx \U0001f600\ufffd", "b": 123456789012345678901234567890, "c": "\0"}
        markup = f'<tool_call>{{"name": "weather", "arguments": {text}}}</tool_call>'
        body = {"regex": exactly(markup), "max_tokens": 200, "messages": [HELLO], **STEERED}
        _, calls, cut, _ = Anthropic().whole(self.server, {**body, "thinking": {"type": "disabled"}})
        self.assertEqual((calls, cut), ([("weather", expected, None)], False))
        _, calls, cut, _ = OpenAI().whole(self.server, {**body, "reasoning_effort": "none"})
        self.assertEqual((calls, cut), ([("weather", text, None)], False))

    def test_log_probabilities_are_of_the_text(self):
        text = "see" + call("weather", {"x": 1})
        body = {"regex": exactly(text), "max_tokens": 200, "messages": [HELLO], "reasoning_effort": "none", "logprobs": True, **STEERED}
        (choice,) = self.ok(OpenAI.path, body)["choices"]
        told = b"".join(bytes(token["bytes"]) for token in choice["logprobs"]["content"])
        self.assertEqual((choice["message"]["content"], told), ("see", b"see"))

    def test_log_probabilities_end_before_a_stop(self):
        body = {"regex": "see\n +END of it", "stop": " END", "messages": [HELLO], "max_tokens": 200, "reasoning_effort": "none", "logprobs": True, **STEERED}
        (choice,) = self.ok(OpenAI.path, body)["choices"]
        shown = b"".join(bytes(token["bytes"]) for token in choice["logprobs"]["content"])
        self.assertEqual(choice["message"]["content"].encode(), shown)
        self.assertRegex(shown, rb"^see\n *$")


if __name__ == "__main__":
    unittest.main()
