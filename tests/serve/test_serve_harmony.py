"""hearth serve from outside: answers in messages, as gpt-oss writes them, in every dialect: reasoning, text and calls are separate, whole and as streams."""

import json
import subprocess
import unittest

from dialects import HELLO, Anthropic, Ollama, OpenAI, Responses
from support import HEARTH, SCRATCH, ServeTest, saying_model
from tool_model import CONTEXT, MESSAGES_TEMPLATE

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
MARKS = ("<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|call|>", "<|return|>")
# Some marks are special tokens, others are text. Each piece is a token.
THINKS = ["<|channel|>", "analysis", "<|message|>", "Hm: 1 < 2", ", so.", "<|end|>", "<|start|>"]
SAYS = [*THINKS, "assistant<|channel|>final<|message|>It is", " fine.", "<|return|>"]
CALLS = [*THINKS, "assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant",
         " to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Pa", "ris\"}", "<|call|>"]  # fmt: skip
REASONING, TEXT, BEFORE_CALL, CALL = "Hm: 1 < 2, so.", "It is fine.", "I look.", ("weather", {"city": "Paris"})
FOLDER = SCRATCH / "harmony"
FOLDER.mkdir()


def says(name, pieces):
    """A model, and options by which each answer of it is these pieces."""
    path = FOLDER / f"{name}.gguf"
    return path, saying_model(path, pieces, MARKS, context=CONTEXT, template=MESSAGES_TEMPLATE)


def plain(body):
    """A request without what turns reasoning off."""
    return {key: value for key, value in body.items() if key not in ("reasoning_effort", "reasoning", "thinking", "think")}


def whole_reasoning(answer):
    if "choices" in answer:
        return answer["choices"][0]["message"].get("reasoning_content", "")
    if "output" in answer:
        return "".join(part["text"] for item in answer["output"] if item["type"] == "reasoning" for part in item["content"])
    if isinstance(answer["message"] if "message" in answer else None, dict):
        return answer["message"].get("thinking", "")
    return "".join(block["thinking"] for block in answer["content"] if block["type"] == "thinking")


def streamed_reasoning(server, dialect, body):
    """The pieces of reasoning in a stream."""
    if isinstance(dialect, Ollama):
        return [line["message"]["thinking"] for line in server.lines(dialect.path, body) if line["message"].get("thinking")]
    pieces = []
    for name, event in server.events(dialect.path, {**body, "stream": True}):
        if isinstance(dialect, Responses):
            pieces += [event["delta"]] if name == "response.reasoning_text.delta" else []
        elif isinstance(dialect, Anthropic):
            pieces += [event["delta"]["thinking"]] if event.get("delta", {}).get("type") == "thinking_delta" else []
        elif event != "[DONE]":
            pieces += [choice["delta"]["reasoning_content"] for choice in event["choices"] if choice["delta"].get("reasoning_content")]
    return pieces


class Answers:
    """Of a model, its text and its calls."""

    def test_every_dialect(self):
        for dialect in OpenAI(), Responses(), Anthropic(), Ollama():
            with self.subTest(dialect.path):
                body = plain(dialect.body(PARAMETERS, "auto", 100))
                text, calls, cut, tokens = whole = dialect.whole(self.server, body)
                self.assertEqual((text, cut), (self.text, False))
                self.assertEqual([(name, json.loads(given) if isinstance(given, str) else given) for name, given, _ in calls], self.calls)
                self.assertEqual(dialect.streamed(self.server, body), whole)
                answer = self.ok(dialect.path, {**body, "stream": False})
                self.assertEqual(whole_reasoning(answer), REASONING)
                pieces = streamed_reasoning(self.server, dialect, body)
                self.assertEqual("".join(pieces), REASONING)
                self.assertGreater(len(pieces), 1)
                for mark in MARKS:
                    self.assertNotIn(mark, json.dumps(answer))


class Final(Answers, ServeTest):
    text, calls = TEXT, []

    @classmethod
    def setUpClass(cls):
        cls.model, cls.options = says("final", SAYS)
        super().setUpClass()

    def test_command(self):
        """`run` shows reasoning on terminals only; `chat` writes the answer."""
        run = subprocess.run([HEARTH, "run", self.model, "hello", *self.options], capture_output=True, text=True, check=True)
        self.assertEqual(run.stdout.strip(), TEXT)
        run = subprocess.run([HEARTH, "run", self.model, "hello", "--json", *self.options], capture_output=True, text=True, check=True)
        answer = json.loads(run.stdout)
        self.assertEqual((answer["text"], answer["thinking"]), (TEXT, REASONING))
        chat = subprocess.run([HEARTH, "chat", self.model, *self.options], input="hello\n", capture_output=True, text=True, check=True)
        self.assertIn(TEXT, chat.stdout)
        for mark in MARKS:
            self.assertNotIn(mark, run.stdout + chat.stdout)

    def test_reasoning_of_the_history(self):
        """Reasoning before a call is in the prompt until the answer that follows it, whatever the dialect."""
        made = {"id": "call0", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        talk = [HELLO, {"role": "assistant", "content": "", "reasoning_content": "Think 1.", "tool_calls": [made]},
                {"role": "tool", "tool_call_id": "call0", "content": "mild"}]  # fmt: skip
        later = [{"role": "assistant", "content": "Mild.", "reasoning_content": "Think 2."}, HELLO]
        self.assertIn("Think 1.", self.prompt(talk))
        self.assertNotIn("Think", self.prompt(talk + later))
        call = {"type": "function_call", "call_id": "call0", "name": "weather", "arguments": '{"city": "Rome"}'}
        thought = lambda text: {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}  # noqa: E731
        items = [HELLO, thought("Think 1."), call, {"type": "function_call_output", "call_id": "call0", "output": "mild"}]
        block = lambda text: {"type": "thinking", "thinking": text, "signature": "x"}  # noqa: E731
        blocks = [HELLO, {"role": "assistant", "content": [block("Think 1."), {"type": "tool_use", "id": "call0", "name": "weather", "input": {"city": "Rome"}}]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call0", "content": "mild"}]}]  # fmt: skip
        answered = [{"role": "assistant", "content": [block("Think 2."), {"type": "text", "text": "Mild."}]}, HELLO]
        asked = [HELLO, {"role": "assistant", "content": "", "thinking": "Think 1.", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]},
                 {"role": "tool", "tool_name": "weather", "content": "mild"}]  # fmt: skip
        told = [{"role": "assistant", "content": "Mild.", "thinking": "Think 2."}, HELLO]
        for chat, response, messages, ollama in (
            (talk, items, blocks, asked),
            (talk + later, [*items, thought("Think 2."), {"role": "assistant", "content": "Mild."}, HELLO], blocks + answered, asked + told),
        ):
            one = {"tools": [TOOL], "max_tokens": 1}
            n = self.ok(OpenAI.path, {"messages": chat, **one})["usage"]["prompt_tokens"]
            flat = {"type": "function", **TOOL["function"]}
            self.assertEqual(self.ok(Responses.path, {"input": response, "tools": [flat], "max_output_tokens": 16})["usage"]["input_tokens"], n)
            anthropic = {"messages": messages, "tools": [{"name": "weather", "input_schema": PARAMETERS}]}
            self.assertEqual(self.ok("/v1/messages/count_tokens", anthropic)["input_tokens"], n)
            body = {"messages": ollama, "tools": [TOOL], "stream": False, "options": {"num_predict": 1}}
            self.assertEqual(self.ok(Ollama.path, body)["prompt_eval_count"], n)

    def prompt(self, messages):
        return self.ok("/apply-template", {"messages": messages, "tools": [TOOL]})["prompt"]


class Calls(Answers, ServeTest):
    text, calls = BEFORE_CALL, [CALL]

    @classmethod
    def setUpClass(cls):
        cls.model, cls.options = says("calls", CALLS)
        super().setUpClass()

    def test_command(self):
        tools = self.folder / "tools.json"
        tools.write_text(json.dumps([TOOL]))
        for choice in [], ["--tool-choice", "auto"]:
            words = [HEARTH, "run", self.model, "hello", "--json", "--tools", tools, *choice, *self.options]
            answer = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
            (call,) = answer["tool_calls"]
            self.assertEqual((call["name"], call["arguments"]), CALL)
            self.assertEqual((answer["text"], answer["thinking"]), (BEFORE_CALL, REASONING))


if __name__ == "__main__":
    unittest.main()
