"""Makes tests/golden/chat.inc: conversations as the chat templates of real checkpoints write them.

    python3 tests/golden/chat.py TEMPLATES MODELS > tests/golden/chat.inc

TEMPLATES is the folder `vendor/llama.cpp/models` of the llama-cpp-python 0.3.36 source package, MODELS one with the files
smollm2-135m.gguf and qwen2.5-coder-0.5b.gguf. Rendered by transformers 5.23 (pip install transformers gguf). Of the
templates themselves only the fragments by which Hearth tells their dialects apart are written, after a check that they
are in there."""
import json
import sys

import gguf
from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATES, MODELS = sys.argv[1:]


def of_file(name):
    return open(f"{TEMPLATES}/templates/{name}.jinja", encoding="utf-8").read()


def of_gguf(path):
    return gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents()


QWEN25 = ["{{- '<|im_start|>system\\n' }}", "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}",
          "{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}"]
LLAMA31 = ["{{- bos_token }}", '{{- "Cutting Knowledge Date: December 2023\\n" }}']
THINK = "{{'<\uff5cAssistant\uff5c><think>\\n'}}"
NO_THOUGHT = "{{- '<|channel>thought\\n<channel|>' -}}"
CASES = [  # name, format, BOS, template, fragments
    ("SmolLM2", "chatml", "<|im_start|>", of_gguf(f"{MODELS}/smollm2-135m.gguf"),
     ["{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"]),
    ("Qwen2.5-Coder", "chatml", "<|endoftext|>", of_gguf(f"{MODELS}/qwen2.5-coder-0.5b.gguf"), QWEN25),
    ("Qwen2.5", "chatml", "<|endoftext|>", of_file("Qwen-Qwen2.5-7B-Instruct"), QWEN25),
    ("Qwen2", "chatml", "<|endoftext|>", of_gguf(f"{TEMPLATES}/ggml-vocab-qwen2.gguf"),
     ["{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}"]),
    ("Qwen3", "chatml", "<|endoftext|>", of_file("Qwen-Qwen3-0.6B"),
     ["{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"]),
    ("Llama 3.1", "llama3", "<|begin_of_text|>", of_file("meta-llama-Llama-3.1-8B-Instruct"), LLAMA31),
    ("Llama 3.2", "llama3", "<|begin_of_text|>", of_file("meta-llama-Llama-3.2-3B-Instruct"), LLAMA31),
    ("Llama 3.3", "llama3", "<|begin_of_text|>", of_file("meta-llama-Llama-3.3-70B-Instruct"), LLAMA31),
    ("R1 distill of Llama", "deepseek", "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
     of_file("deepseek-ai-DeepSeek-R1-Distill-Llama-8B"), ["{{bos_token}}", THINK]),
    ("R1 distill of Qwen", "deepseek", "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
     of_file("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
     ["{{bos_token}}", THINK, "{% if not enable_thinking %}{{- '</think>' -}}"]),
    ("Gemma 2", "gemma", "<bos>", of_file("google-gemma-2-2b-it"), ["{{ bos_token }}"]),
    ("Gemma 4", "gemma4", "<bos>", of_file("google-gemma-4-31B-it"),
     ["{{- bos_token -}}", "{%- set continue_same_model_turn = ", NO_THOUGHT]),
    ("Gemma 4, interleaved", "gemma4", "<bos>", of_file("google-gemma-4-31B-it-interleaved"),
     ["{{- bos_token -}}", NO_THOUGHT]),
    ("Gemma 4, in the GGUF", "gemma4", "<bos>", of_gguf(f"{TEMPLATES}/ggml-vocab-gemma-4.gguf"),
     ["{{ bos_token }}", NO_THOUGHT]),
]
SYSTEM = {"role": "system", "content": "  Answer in \"verse\", 100 % of it.\n"}
CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [SYSTEM, {"role": "user", "content": "\u00a0\u3000 Hi, 'you' \\n {there} \x1c\n\n"}],
    [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": " 2\n"}, {"role": "user", "content": "Why?\r\n"}],
    [SYSTEM, {"role": "user", "content": "Привет 👋"}, {"role": "assistant", "content": "\n\nЗдравствуйте\u2003"},
     {"role": "user", "content": ""}, {"role": "assistant", "content": "?"}, {"role": "user", "content": "\t"}],
]
ANSWERS_IN_A_ROW = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "One"},
                    {"role": "assistant", "content": "two "}, {"role": "user", "content": "Stop"}]
THOUGHT = [{"role": "user", "content": "Go"},
           {"role": "assistant", "content": "a <|channel>thought\nhm<channel|> b<channel|>c<|channel>open"},
           {"role": "user", "content": "On"}]

DEEP_THOUGHT = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "<think>\nhm</think>a</think>\n\nb "},
                {"role": "user", "content": "On"}]


def c_string(text):
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()) + '"'


def conversation(messages):
    return "{" + ", ".join("{%s, %s}" % (c_string(m["role"]), c_string(m["content"])) for m in messages) + "}"


print("/* Made by tests/golden/chat.py. */\n/* clang-format off */")
conversations = CONVERSATIONS + [ANSWERS_IN_A_ROW, THOUGHT, DEEP_THOUGHT]
print("static const ht_message golden_chats[][8] = {")
for messages in conversations:
    print(f"    {conversation(messages)},")
print("};")
print("static const struct {\n    const char *name, *format, *bos, *fragments;\n    int chat;\n    const char *expected;\n"
      "} golden_texts[] = {")
for name, kind, bos, template, fragments in CASES:
    for fragment in fragments:
        assert fragment in template, (name, fragment)
    for i, messages in enumerate(conversations):
        if name == "Gemma 2" and messages[0]["role"] == "system" or kind == "gemma" and messages is ANSWERS_IN_A_ROW:
            continue  # refused by the template
        if messages is THOUGHT and kind != "gemma4" or messages is DEEP_THOUGHT and kind != "deepseek":
            continue
        rendered, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True,
                                            bos_token=bos, date_string="26 Jul 2024")
        print(f"    {{{c_string(name)}, {c_string(kind)}, {c_string(bos)}, {c_string(' '.join(fragments))}, {i},\n"
              f"     {c_string(rendered[0])}}},")
print("};")
