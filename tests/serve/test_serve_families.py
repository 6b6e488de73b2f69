"""hearth serve from outside: answers of model families, whose marks are special tokens: reasoning, text and a call, whole and as streams."""

import json
import unittest

from dialects import HELLO, OpenAI
from support import SCRATCH, ServeTest, saying_model

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
FOLDER = SCRATCH / "families"
FOLDER.mkdir()
BAR, LOW = "\uff5c", "\u2581"
DEEPSEEK = lambda *words: f"<{BAR}tool{LOW}{LOW.join(words)}{BAR}>"  # noqa: E731
BEGUN, DONE = '{"city": "Pa', 'ris"}'

# name -> (what else the template has, the pieces of an answer; those in angle or square brackets are special tokens). All answers
# think "Hm." if they think, then say "I look." if they say something, and ask for the weather of Paris.
FAMILIES = {
    "GLM-4": ("metadata", ["\nI look.", "<|assistant|>", "weather\n", BEGUN, DONE, "<|observation|>"]),
    "GLM-4.5": ("", ["<think>", "Hm.", "</think>", "\nI look.\n", "<tool_call>", "weather\n", "<arg_key>", "city", "</arg_key>", "\n", "<arg_value>", "Paris",
                     "</arg_value>", "\n ", "</tool_call>", "<|observation|>"]),
    "Mistral Small 4": ("", ["[THINK]", "Hm.", "[/THINK]", "I look.", "[TOOL_CALLS]", "weather", "[ARGS]", BEGUN, DONE, "[EOS]"]),
    "DeepSeek V3.1": ("<think>", ["<think>", "Hm.", "</think>", "I look.", DEEPSEEK("calls", "begin"), DEEPSEEK("call", "begin"), "weather",
                                  DEEPSEEK("sep"), BEGUN, DONE, DEEPSEEK("call", "end"), DEEPSEEK("calls", "end"), f"<{BAR}end{LOW}of{LOW}sentence{BAR}>"]),
    "Kimi K2": ("", ["I look.", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.weather:0", "<|tool_call_argument_begin|>", BEGUN, DONE,
                     "<|tool_call_end|>", "<|tool_calls_section_end|>", "[EOS]"]),
    "MiniMax M2": ("", ["<think>", "\nHm.\n", "</think>", "\n\nI look.\n", "<minimax:tool_call>", "\n<invoke name=\"weather\">\n",
                        "<parameter name=\"city\">Paris</parameter>\n</invoke>\n", "</minimax:tool_call>", "[e~["]),
    "Seed-OSS": ("", ["<seed:think>", "Hm.", "</seed:think>", "I look.", "<seed:tool_call>", "\n<function=weather>\n", "<parameter=city>Paris</parameter>\n</function>\n",
                      "</seed:tool_call>", "<seed:eos>"]),
    "Command A": ("", ["<|START_THINKING|>", "Hm.", "<|END_THINKING|>", "<|START_ACTION|>", '[\n {"tool_call_id": "0", "tool_name": "weather", "parameters": ',
                       BEGUN, DONE, "}\n]", "<|END_ACTION|>", "<|END_OF_TURN_TOKEN|>"]),
    "Llama 4": ("", ["<|python_start|>", "I look.", "<|python_end|>", '{"name": "weather", "parameters": ', BEGUN, DONE, "}", "<|eot|>"]),
    "Phi-4-mini": ("", ["I look.", "<|tool_call|>", '[{"name": "weather", "arguments": ', BEGUN, DONE, "}]", "<|/tool_call|>", "<|end|>"]),
    "Nemotron Mini": ("", ["I look.\n", '<toolcall> {"name": "weather", "arguments": ', BEGUN, DONE, "} </toolcall>", "<extra_id_1>"]),
    "Hunyuan": ("```json <answer></answer>", ["<think>", "\nHm.\n", "</think>", "\n", "<answer>", "\nI look.\n", "</answer>", "\n ", "<tool_calls>", "\n  ", "<tool_call>",
                                              "weather\n```json\n", BEGUN, DONE, "\n```", "</tool_call>", " \n", "</tool_calls>", "<|eos|>"]),
    "OLMo 3": ("", ["I look.", "<function_calls>", 'weather(city="Pa', 'ris")', "</function_calls>", "<|endoftext|>"]),
    "SmolLM3": ("<tool_call></tool_call>", ["<think>", "\nHm.\n", "</think>", "\nI look.\n", '<tool_call>\n{"name": "weather", "arguments": ', BEGUN, DONE,
                                            "}\n</tool_call>", "<|im_end|>"]),
}  # fmt: skip


class Families(ServeTest):
    def test_families(self):
        for i, (name, (more, pieces)) in enumerate(FAMILIES.items()):
            with self.subTest(name):
                special = [piece for piece in pieces if piece[0] + piece[-1] in ("<>", "[]", "[[")]
                template = f"{{{{ messages[0].content }}}}{{# {more} {' '.join(special)} #}}"
                path = FOLDER / f"{i}.gguf"
                with self.serve(path, *saying_model(path, pieces, special, template=template)) as server:
                    self.check(server, *(any(word in piece for piece in pieces) for word in ("Hm.", "I look.")))

    def check(self, server, thinks, says):
        dialect = OpenAI()
        body = dialect.body(PARAMETERS, "auto", 100)
        body.pop("reasoning_effort")
        whole = text, calls, cut, _ = dialect.whole(server, body)
        self.assertEqual((text.strip(), cut), ("I look." if says else "", False))
        self.assertEqual([(name, json.loads(given)) for name, given, _ in calls], [("weather", {"city": "Paris"})])
        self.assertEqual(dialect.streamed(server, body), whole)
        message = self.ok(dialect.path, body, server=server)["choices"][0]["message"]
        self.assertEqual(message.get("reasoning_content"), "Hm." if thinks else None)


if __name__ == "__main__":
    unittest.main()
