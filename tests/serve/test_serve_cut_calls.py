"""hearth serve from outside: calls of tools that max_tokens cuts, in every dialect: whole answers say what their streams do, at every length."""

import json
import unittest

from serve_support import variant
from support import SCRATCH, ServeTest, cases, tiny_model
from test_serve_calls_or_text import HELLO, STEERED, biases
from tool_model import CONTEXT, MODEL, TEMPLATE, call, exactly

GIVEN = {"city": "Paris", "at": {"days": [1, 2], "sure": True}}
PARAMETERS = {"type": "object", "properties": {name: {"const": value} for name, value in GIVEN.items()}, "required": list(GIVEN), "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
# Parameters one by one, as Qwen 3 Coder writes them.
TAGGED_TEMPLATE = TEMPLATE.replace("{%- if", "{#- <tool_call><function=a><parameter=b> #}{%- if", 1)
TAGGED = SCRATCH / "tagged.gguf"
tiny_model.write(TAGGED, context=CONTEXT, template=TAGGED_TEMPLATE)
OPEN = "<tool_call>"  # a token of these, which a bias has the model begin with
OPENING = variant("opening.gguf", words=[OPEN], context=CONTEXT, template=TEMPLATE)
OPENING_TAGGED = variant("opening_tagged.gguf", words=[OPEN], context=CONTEXT, template=TAGGED_TEMPLATE)

ENDING = biases("")  # no white space, and an end where there may be one
CALLING = {token: bias for token, bias in ENDING.items() if bias < 0} | {str(len(tiny_model.vocabulary())): 100}


class OpenAI:
    """Each dialect: an answer whole and as a stream, as (text, [(name, arguments as far as they came, whether they are told to be whole)], whether it
    was cut), how many tokens it has, and the rest that both have."""

    path, choices = "/v1/chat/completions", {"required": "required", "auto": "auto", "named": {"type": "function", "function": {"name": "weather"}}}

    def body(self, choice, most, bias=None):
        return {"messages": [HELLO], "tools": [TOOL], "tool_choice": self.choices[choice], "parallel_tool_calls": False, "reasoning_effort": "none",
                "max_tokens": most, "logit_bias": bias or {}, **STEERED}

    def ended(self, reason, calls):
        cut = reason == "length"
        assert cut or reason == ("tool_calls" if calls else "stop"), reason
        return cut

    def whole(self, server, body):
        answer = server.answer(self.path, body)
        (choice,) = answer["choices"]
        message = choice["message"]
        calls = [(one["function"]["name"], one["function"]["arguments"], None) for one in message.get("tool_calls", [])]
        assert all(one["id"].startswith("call_") and one["type"] == "function" for one in message.get("tool_calls", []))
        assert (message["content"] is None) == (bool(calls) and not message["content"])
        return message["content"] or "", calls, self.ended(choice["finish_reason"], calls), answer["usage"]["completion_tokens"]

    def streamed(self, server, body):
        text, calls, end, tokens = "", [], None, None
        for _, data in server.events(self.path, {**body, "stream": True, "stream_options": {"include_usage": True}}):
            if data == "[DONE]":
                continue
            tokens = data["usage"]["completion_tokens"] if data["usage"] else tokens
            for choice in data["choices"]:
                end = choice["finish_reason"] or end
                text += choice["delta"].get("content") or ""
                for one in choice["delta"].get("tool_calls", []):
                    if "name" in one["function"]:
                        calls.append((one["function"]["name"], "", None))
                    name, arguments, _ = calls[one["index"]]
                    calls[one["index"]] = name, arguments + one["function"].get("arguments", ""), None
        return text, calls, self.ended(end, calls), tokens


class Responses(OpenAI):
    path, choices = "/v1/responses", {"required": "required", "auto": "auto", "named": {"type": "function", "name": "weather"}}

    def body(self, choice, most, bias=None):
        return {"input": [HELLO], "tools": [{"type": "function", **TOOL["function"]}], "tool_choice": self.choices[choice], "parallel_tool_calls": False,
                "reasoning": {"effort": "none"}, "max_output_tokens": most, "logit_bias": bias or {}, **STEERED}

    def read(self, response):
        cut = response["status"] == "incomplete"
        assert response["incomplete_details"] == ({"reason": "max_output_tokens"} if cut else None)
        calls = [(item["name"], item["arguments"], item["status"] == "completed") for item in response["output"] if item["type"] == "function_call"]
        texts = [(part["text"], item["status"]) for item in response["output"] if item["type"] == "message" for part in item["content"]]
        assert all(status == ("incomplete" if cut else "completed") for _, status in texts)
        return "".join(text for text, _ in texts), calls, cut, response["usage"]["output_tokens"]

    def whole(self, server, body):
        return self.read(server.answer(self.path, body))

    def streamed(self, server, body):
        """What the events of items say is what the last one holds."""
        arguments, done, last = {}, [], None
        for name, event in server.events(self.path, {**body, "stream": True}):
            if name == "response.function_call_arguments.delta":
                arguments[event["item_id"]] = arguments.get(event["item_id"], "") + event["delta"]
            if name == "response.output_item.done":
                done.append(event["item"])
            last = name, event
        name, response = last[0], last[1]["response"]
        assert name == f"response.{response['status']}", name
        assert done == response["output"]
        for item in done:
            assert item["type"] != "function_call" or item["arguments"] == arguments.get(item["id"], "")
        return self.read(response)


class Anthropic(OpenAI):
    path, choices = "/v1/messages", {"required": {"type": "any"}, "auto": {"type": "auto"}, "named": {"type": "tool", "name": "weather"}}

    def body(self, choice, most, bias=None):
        tool = {"name": "weather", "input_schema": PARAMETERS}
        return {"messages": [HELLO], "tools": [tool], "tool_choice": {**self.choices[choice], "disable_parallel_tool_use": True}, "thinking": {"type": "disabled"},
                "max_tokens": most, "logit_bias": bias or {}, **STEERED}

    def ended(self, reason, calls):
        cut = reason == "max_tokens"
        assert cut or reason == ("tool_use" if calls else "end_turn"), reason
        return cut

    def whole(self, server, body):
        message = server.answer(self.path, body)
        calls = [(block["name"], block["input"], None) for block in message["content"] if block["type"] == "tool_use"]
        text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        return text, calls, self.ended(message["stop_reason"], calls), message["usage"]["output_tokens"]

    def streamed(self, server, body):
        text, calls, end, tokens, is_open = "", [], None, None, False
        for name, event in server.events(self.path, {**body, "stream": True}):
            if name == "content_block_start":
                is_open = True
                if event["content_block"]["type"] == "tool_use":
                    calls.append((event["content_block"]["name"], "", None))
            if name == "content_block_stop":
                is_open = False
            if name == "content_block_delta":
                text += event["delta"].get("text", "")
                if "partial_json" in event["delta"]:
                    calls[-1] = calls[-1][0], calls[-1][1] + event["delta"]["partial_json"], None
            if name == "message_delta":
                end, tokens = event["delta"]["stop_reason"], event["usage"]["output_tokens"]
        assert not is_open
        return text, [(name, whole_members(arguments), None) for name, arguments, _ in calls], self.ended(end, calls), tokens


class Ollama(OpenAI):
    path, choices = "/api/chat", {"auto": "auto"}

    def body(self, choice, most, bias=None):
        options = {"num_predict": most, "logit_bias": bias or {}, **STEERED}
        return {"messages": [HELLO], "tools": [TOOL], "think": False, "options": options}

    def read(self, lines):
        calls = [one["function"] for line in lines for one in line["message"].get("tool_calls", [])]
        assert [one["index"] for one in calls] == list(range(len(calls)))
        assert lines[-1]["done"] and lines[-1]["done_reason"] in ("length", "stop")
        told = [(one["name"], one["arguments"], True) for one in calls]
        return "".join(line["message"]["content"] for line in lines), told, lines[-1]["done_reason"] == "length", lines[-1]["eval_count"]

    def whole(self, server, body):
        return self.read([server.answer(self.path, {**body, "stream": False})])

    def streamed(self, server, body):
        return self.read(list(server.lines(self.path, body)))


def whole_members(text):
    """The longest beginning of a JSON text that is an object once its brackets are closed, and does not end in a number."""
    for end in range(len(text), 0, -1):
        if text[end - 1].isdigit() and text[end : end + 1] not in (",", "]", "}"):
            continue
        for closing in "", "}", "]}", "}}", "]}}":
            try:
                return json.loads(text[:end] + closing)
            except ValueError:
                pass
    return {}


class CutCalls(ServeTest):
    model = MODEL

    def lengths(self, dialect, choice, bias=ENDING, server=None):
        """The answers of every length, or of some, up to the whole one, or to a second call, each the same whole and as a stream."""
        server = server or self.server
        answers = []
        for most in range(1, 400, cases(7, 1)):
            body = dialect.body(choice, most, bias)
            whole = dialect.whole(server, body)
            self.assertEqual(dialect.streamed(server, body), whole, f"at {most} tokens")
            if len(whole[1]) > 1:
                while len(whole[1]) > 1:
                    most -= 1
                    whole = dialect.whole(server, dialect.body(choice, most, bias))
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
        for path, limit, more in (
            (OpenAI.path, "max_tokens", {"messages": [HELLO], "reasoning_effort": "none"}),
            (Responses.path, "max_output_tokens", {"input": [HELLO], "reasoning": {"effort": "none"}}),
            (Anthropic.path, "max_tokens", {"messages": [HELLO], "thinking": {"type": "disabled"}}),
        ):
            dialect = next(one for one in (OpenAI(), Responses(), Anthropic()) if one.path == path)
            for most in range(len(text) - 45, len(text) + 2, cases(11, 4)):
                with self.subTest(path, most=most):
                    body = {"regex": exactly(text), limit: most, **more, **STEERED}
                    whole = dialect.whole(self.server, body)
                    self.assertEqual(whole, dialect.streamed(self.server, body))
                    self.assertEqual(whole[1][0][0], "weather")

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
