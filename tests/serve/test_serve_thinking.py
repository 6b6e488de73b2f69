"""hearth serve from outside: budgets of thoughts, by the names that the dialects have for them, and the server's own."""

import json
import unittest

from support import SCRATCH, PlainTest, ServeTest, tiny_model, variant

TEMPLATE = r"""{% for m in messages %}{{ m.content }}
{% endfor %}{% if enable_thinking is not defined or enable_thinking %}<think>
{% endif %}{# <tool_call>{"name": "a", "arguments": {}}</tool_call> #}"""
MODEL = SCRATCH / "thinks.gguf"
tiny_model.write(MODEL, template=TEMPLATE)
HELLO = [{"role": "user", "content": "hello"}]
# Greedy, without an end and without a token twice: the model never ends a thought of its own.
HOW = {"temperature": 0, "presence_penalty": 100, "logit_bias": {"0": -100, "2": -100}}
ANTHROPIC = {"temperature": 0, "presence_penalty": 100, "logit_bias": {"0": -100, "2": -100}, "max_tokens": 40}
NAMES = "thinking_budget_tokens", "reasoning_budget_tokens", "thinking_token_budget", "thinking_budget"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}


class Requests(ServeTest):
    model = MODEL

    def chat(self, server=None, **more):
        """(thoughts, text, tokens of thoughts) of an answer of 40 tokens."""
        got = self.ok("/v1/chat/completions", {"messages": HELLO, "max_tokens": 40, **HOW, **more}, server=server)
        message = got["choices"][0]["message"]
        return message.get("reasoning_content"), message["content"], got["usage"]["completion_tokens_details"]["reasoning_tokens"]

    def test_chat(self):
        free = self.chat()
        self.assertEqual((free[1] or "", self.chat(thinking_budget=-1)), ("", free))
        answers = {}
        for budget in 0, 3, 9:
            first = answers[budget] = self.chat(thinking_budget_tokens=budget)
            self.assertTrue(first[1])
            self.assertTrue(free[0].startswith((first[0] or "").rstrip("\ufffd")))  # half a character ends there
            for name in NAMES:
                self.assertEqual(self.chat(**{name: budget}), first)
            stream = self.server.events("/v1/chat/completions", {"messages": HELLO, "max_tokens": 40, "stream": True, "thinking_budget": budget, **HOW})
            deltas = [data["choices"][0]["delta"] for _, data in stream if data != "[DONE]" and data["choices"]]
            for i, name in enumerate(("reasoning_content", "content")):
                self.assertEqual("".join(delta.get(name) or "" for delta in deltas), first[i] or "")
        self.assertEqual(len({text for _, text, _ in answers.values()}), 3)
        self.assertFalse(answers[0][0])
        self.assertEqual(self.chat(thinking_budget=1 << 40), free)
        for wrong in -2, 1.5, "9":
            self.refused(400, "/v1/chat/completions", {"messages": HELLO, "thinking_budget_tokens": wrong}, "thinking_budget_tokens")
        fields = self.server.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1, "thinking_token_budget": 4})[1]
        self.assertNotIn("x-ignored", fields)

    def test_schemas_and_calls_behind_thoughts(self):
        body = {"messages": HELLO, "max_tokens": 400, **HOW, "presence_penalty": 0, "thinking_budget": 4}
        schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer", "minimum": 10, "maximum": 99}}}
        got = self.ok("/v1/chat/completions", {**body, "response_format": schema})["choices"][0]
        self.assertRegex(got["message"]["content"], r"^\d\d$")
        self.assertTrue(got["message"]["reasoning_content"])
        got = self.ok("/v1/chat/completions", {**body, "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False})
        self.assertEqual([call["function"]["name"] for call in got["choices"][0]["message"]["tool_calls"]], ["look"])

    def message(self, thinking, **more):
        got = self.ok("/v1/messages", {"messages": HELLO, **ANTHROPIC, "thinking": thinking, **more})
        parts = {"thinking": "", "text": ""}
        for block in got["content"]:
            parts[block["type"]] += block[block["type"]]
        return parts

    def test_messages(self):
        free = self.message({"type": "adaptive"})
        self.assertEqual(free["text"], "")
        for budget in 0, 3, 9:
            thoughts, text, _ = self.chat(thinking_budget=budget)
            self.assertEqual(self.message({"type": "enabled", "budget_tokens": budget}), {"thinking": thoughts or "", "text": text})
        self.assertEqual(self.message({"type": "enabled", "budget_tokens": 1024}), free)
        fields = self.server.post("/v1/messages", {"messages": HELLO, "max_tokens": 1, "thinking": {"type": "enabled", "budget_tokens": 1024}})[1]
        self.assertNotIn("x-ignored", fields)

    def test_other_dialects(self):
        thoughts, text, _ = self.chat(thinking_budget=3)
        got = self.ok("/v1/responses", {"input": "hello", "max_output_tokens": 40, "thinking_budget": 3, **HOW})
        said = [part["text"] for item in got["output"] if item["type"] == "message" for part in item["content"]]
        self.assertEqual(said, [text])
        raw = {"prompt": "hello\n<think>\n", "max_tokens": 40, **HOW, "reasoning_budget_tokens": 3}
        completed = self.ok("/v1/completions", raw)["choices"][0]["text"]
        self.assertTrue(completed.lstrip().startswith(f"{thoughts}\n</think>\n\n") and completed.endswith(text), completed)
        got = self.ok("/completion", {**raw, "n_predict": 40, "top_k": 0, "top_p": 1, "min_p": 0, "repeat_penalty": 1})
        self.assertEqual(got["content"], completed)
        self.assertEqual(got["generation_settings"]["reasoning_budget_tokens"], 3)


class Defaults(Requests):
    """The server's own budget, where requests have none."""

    model, options = MODEL, ("--thinking-budget", "6")

    def test_chat(self):
        six = self.chat()
        self.assertTrue(six[1])
        self.assertEqual(six, self.chat(thinking_budget=6))
        self.assertNotEqual(six, self.chat(thinking_budget=3))
        self.assertFalse(self.chat(thinking_budget=-1)[1])

    def test_messages(self):
        six = self.chat()
        self.assertEqual(self.message({"type": "adaptive"}), {"thinking": six[0], "text": six[1]})
        self.assertNotEqual(self.message({"type": "enabled", "budget_tokens": 9})["text"], six[1])

    def test_other_dialects(self):
        six = self.chat()
        options = {"temperature": 0, "top_k": 0, "top_p": 1, "presence_penalty": 100, "num_predict": 40, "repeat_penalty": 1,
                   "logit_bias": HOW["logit_bias"]}  # fmt: skip
        got = self.ok("/api/chat", {"model": "thinks", "messages": HELLO, "stream": False, "options": options})
        self.assertEqual((got["message"].get("thinking"), got["message"]["content"]), six[:2])

    def test_configuration(self):
        path = self.folder / "config.json"
        path.write_text(json.dumps({"thinking-budget": 6}))
        self.assertEqual(self.chat(self.serve(MODEL, "--config", path)), self.chat())


class Gaps(PlainTest):
    """What is around a gap is a text, whatever marks it has."""

    model, options = variant("gaps.gguf", special=["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"], template=TEMPLATE), ("--thinking-budget", "0")

    def test_gaps(self):
        body = {"input_prefix": "a<think>", "input_suffix": "b", "n_predict": 20, "temperature": 0}
        self.assertNotIn("</think>", self.server.post("/infill", **body).json["content"])


if __name__ == "__main__":
    unittest.main()
