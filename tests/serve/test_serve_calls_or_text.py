"""hearth serve from outside: a schema of the answer beside tools, in every dialect: a round with a call, then one with text that is valid."""

import json
import unittest

from support import ServeTest, tiny_model
from tool_model import MODEL

PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}
SCHEMA = {"type": "object", "properties": {"sky": {"enum": ["clear", "grey"]}}, "required": ["sky"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
HELLO = {"role": "user", "content": "hello the world"}


def biases(dislikes):
    """Random weights begin with neither a call nor an object. Answers and objects end where they may; white space and some beginnings are disliked."""
    alphabet = tiny_model.byte_alphabet()
    first = {alphabet[ord(character)] for character in " \t\r\n" + dislikes}
    disliked = [i for i, token in enumerate(tiny_model.vocabulary()) if token[0] in first and i >= len(tiny_model.SPECIAL)]
    return {str(i): -100 for i in disliked} | {str(tiny_model.vocabulary().index(end)): 100 for end in ("}", "<|im_end|>")}


CALL, TEXT = biases("{"), biases("<")
STEERED = {"temperature": 0, "seed": 1}


class OpenAI:
    """Each dialect: a request with a schema and tools, whole and as a stream, as (calls, text, why it ended)."""

    path, ends = "/v1/chat/completions", ("tool_calls", "stop")

    def body(self, messages, bias, choice):
        schema = {"type": "json_schema", "json_schema": {"name": "sky", "schema": SCHEMA, "strict": True}}
        return {"messages": messages, "tools": [TOOL], "tool_choice": choice, "response_format": schema, "reasoning_effort": "none",
                "max_tokens": 200, "logit_bias": bias, **STEERED}

    def whole(self, server, body):
        (choice,) = server.answer(self.path, body)["choices"]
        calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in choice["message"].get("tool_calls", [])]
        return calls, choice["message"]["content"] or "", choice["finish_reason"]

    def streamed(self, server, body):
        calls, text, end = [], "", None
        for _, data in server.events(self.path, {**body, "stream": True}):
            for choice in [] if data == "[DONE]" else data["choices"]:
                end = choice["finish_reason"] or end
                text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", []):
                    if "name" in call["function"]:
                        calls.append([call["function"]["name"], ""])
                    calls[call["index"]][1] += call["function"].get("arguments", "")
        return [(name, json.loads(arguments)) for name, arguments in calls], text, end

    def history(self, calls):
        made = [{"id": f"call{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}} for i, (name, given) in enumerate(calls)]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "mild"} for call in made]
        return [HELLO, {"role": "assistant", "content": None, "tool_calls": made}, *results]


class Responses(OpenAI):
    path, ends = "/v1/responses", ("completed", "completed")

    def body(self, messages, bias, choice):
        tool = {"type": "function", "name": "weather", "parameters": PARAMETERS}
        return {"input": messages, "tools": [tool], "tool_choice": choice, "text": {"format": {"type": "json_schema", "name": "sky", "schema": SCHEMA}},
                "reasoning": {"effort": "none"}, "max_output_tokens": 200, "logit_bias": bias, **STEERED}

    def read(self, response):
        calls = [(item["name"], json.loads(item["arguments"])) for item in response["output"] if item["type"] == "function_call"]
        texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
        return calls, "".join(texts), response["status"]

    def whole(self, server, body):
        return self.read(server.answer(self.path, body))

    def streamed(self, server, body):
        *_, (_, last) = server.events(self.path, {**body, "stream": True})
        return self.read(last["response"])

    def history(self, calls):
        made = [{"type": "function_call", "call_id": f"call{i}", "name": name, "arguments": json.dumps(given)} for i, (name, given) in enumerate(calls)]
        return [HELLO, *made, *({"type": "function_call_output", "call_id": call["call_id"], "output": "mild"} for call in made)]


class Anthropic(OpenAI):
    path, ends = "/v1/messages", ("tool_use", "end_turn")

    def body(self, messages, bias, choice):
        tool = {"name": "weather", "input_schema": PARAMETERS}
        return {"messages": messages, "tools": [tool], "tool_choice": {"type": "any" if choice == "required" else choice}, "thinking": {"type": "disabled"},
                "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, "max_tokens": 200, "logit_bias": bias, **STEERED}

    def whole(self, server, body):
        message = server.answer(self.path, body)
        calls = [(block["name"], block["input"]) for block in message["content"] if block["type"] == "tool_use"]
        return calls, "".join(block["text"] for block in message["content"] if block["type"] == "text"), message["stop_reason"]

    def streamed(self, server, body):
        calls, text, end = [], "", None
        for name, event in server.events(self.path, {**body, "stream": True}):
            if name == "content_block_start" and event["content_block"]["type"] == "tool_use":
                calls.append([event["content_block"]["name"], ""])
            if name == "content_block_delta":
                text += event["delta"].get("text", "")
                if "partial_json" in event["delta"]:
                    calls[-1][1] += event["delta"]["partial_json"]
            if name == "message_delta":
                end = event["delta"]["stop_reason"]
        return [(name, json.loads(arguments)) for name, arguments in calls], text, end

    def history(self, calls):
        made = [{"type": "tool_use", "id": f"call{i}", "name": name, "input": given} for i, (name, given) in enumerate(calls)]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "mild"} for call in made]
        return [HELLO, {"role": "assistant", "content": made}, {"role": "user", "content": results}]


class Ollama(OpenAI):
    path, ends = "/api/chat", ("stop", "stop")

    def body(self, messages, bias, choice):
        how = {"tools": [TOOL], "format": SCHEMA, "think": False, "options": {"num_predict": 200, "logit_bias": bias, **STEERED}}
        return {"messages": messages, **how} if choice == "auto" else None

    def read(self, lines):
        calls = [(call["function"]["name"], call["function"]["arguments"]) for line in lines for call in line["message"].get("tool_calls", [])]
        return calls, "".join(line["message"]["content"] for line in lines), lines[-1]["done_reason"]

    def whole(self, server, body):
        return self.read([server.answer(self.path, {**body, "stream": False})])

    def streamed(self, server, body):
        return self.read(list(server.lines(self.path, body)))

    def history(self, calls):
        made = [{"function": {"name": name, "arguments": given}} for name, given in calls]
        return [HELLO, {"role": "assistant", "content": "", "tool_calls": made}, *({"role": "tool", "tool_name": "weather", "content": "mild"} for _ in made)]


class CallsOrText(ServeTest):
    model = MODEL

    def answer(self, dialect, messages, bias, choice="auto"):
        """The answer, which is the same as a stream; NULL where the dialect has no such choice."""
        body = dialect.body(messages, bias, choice)
        if not body:
            return None
        whole = dialect.whole(self.server, body)
        self.assertEqual(dialect.streamed(self.server, body), whole)
        return whole

    def check_text(self, answer, dialect):
        calls, text, end = answer
        self.assertEqual((calls, end), ([], dialect.ends[1]))
        self.assertIn(json.loads(text), ({"sky": "clear"}, {"sky": "grey"}))

    def check_call(self, answer, dialect):
        calls, text, end = answer
        self.assertEqual((text, end), ("", dialect.ends[0]))
        for name, given in calls:
            self.assertEqual((name, set(given)), ("weather", {"city"}))
            self.assertIn(given["city"], ("Paris", "Rome"))
        self.assertGreater(len(calls), 0)

    def test_a_call_and_then_text(self):
        for dialect in OpenAI(), Responses(), Anthropic(), Ollama():
            with self.subTest(dialect.path):
                first = self.answer(dialect, [HELLO], CALL)
                self.check_call(first, dialect)
                self.check_text(self.answer(dialect, dialect.history(first[0]), TEXT), dialect)

    def test_choices(self):
        for dialect in OpenAI(), Responses(), Anthropic():
            with self.subTest(dialect.path):
                self.check_text(self.answer(dialect, [HELLO], CALL, "none"), dialect)
                self.check_call(self.answer(dialect, [HELLO], TEXT, "required"), dialect)

    def test_every_way_to_ask_for_a_text(self):
        body = OpenAI().body([HELLO], TEXT, "auto")
        body.pop("response_format")
        for way, matches in [
            ({"response_format": {"type": "json_object"}}, r"\{.*\}"),
            ({"json_schema": SCHEMA}, r'\{"sky":"(clear|grey)"\}'),
            ({"regex": "[xyz]{3}"}, "[xyz]{3}"),
            ({"grammar": 'root ::= "(" root ")" | "x"'}, r"\(*x\)*"),
            ({"guided_choice": ["yes", "no"]}, "(yes|no)"),
            ({"structured_outputs": {"regex": "a{3}"}}, "aaa"),
        ]:
            with self.subTest(way):
                calls, text, _ = OpenAI().whole(self.server, {**body, **way, "logit_bias": biases("<(")})
                self.assertEqual(calls, [])
                self.assertRegex(text, f"^{matches}$")
                self.check_call(OpenAI().whole(self.server, {**body, **way, "logit_bias": biases("{xyzna(")}), OpenAI())

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


if __name__ == "__main__":
    unittest.main()
