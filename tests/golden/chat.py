"""Makes tests/golden/chat.inc: conversations as the chat templates of real checkpoints write them.

    python3 tests/golden/chat.py TEMPLATES MODELS LLAMA2 WRITE_CHAT > tests/golden/chat.inc

TEMPLATES is the folder `vendor/llama.cpp/models` of the llama-cpp-python 0.3.36 source package, MODELS one with the files
smollm2-135m.gguf and qwen2.5-coder-0.5b.gguf, LLAMA2 a file with the chat_template of meta-llama/Llama-2-7b-chat-hf,
WRITE_CHAT the program build/release/bin/write_chat, which tells the dialect of each template. Rendered by transformers 5.24
(pip install transformers gguf). The templates themselves are not written."""
import json
import re
import subprocess
import sys

import gguf
from chat_texts import DEEP_THOUGHT, THOUGHT, conversations, render

TEMPLATES, MODELS, LLAMA2, WRITE_CHAT = sys.argv[1:]


def of_file(name):
    return open(f"{TEMPLATES}/templates/{name}.jinja", encoding="utf-8").read()


def of_gguf(path):
    return gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents()


def of_tests(name):
    """One of those that llama.cpp's own tests hold."""
    text = open(f"{TEMPLATES}/../tests/test-chat-template.cpp", encoding="utf-8").read()
    entry = text[text.index(f'.name= */ "{name}'):]
    return json.loads(re.search(r'\.template_str= \*/ ("(?:[^"\\]|\\.)*")', entry).group(1))


def of_python(name):
    text = open(f"{TEMPLATES}/../../../llama_cpp/llama_chat_format.py", encoding="utf-8").read()
    return json.loads(re.search(name + r' = ("(?:[^"\\]|\\.)*")', text).group(1))


NOT_THINKING = "{%- if not enable_thinking -%}{{- '</think>' -}}{%- endif -%}"  # which llama.cpp has added
CASES = [  # name, format, BOS, template
    ("SmolLM2", "chatml", "<|im_start|>", of_gguf(f"{MODELS}/smollm2-135m.gguf")),
    ("Qwen2.5-Coder", "chatml", "<|endoftext|>", of_gguf(f"{MODELS}/qwen2.5-coder-0.5b.gguf")),
    ("Qwen2.5", "chatml", "<|endoftext|>", of_file("Qwen-Qwen2.5-7B-Instruct")),
    ("Qwen2", "chatml", "<|endoftext|>", of_gguf(f"{TEMPLATES}/ggml-vocab-qwen2.gguf")),
    ("Qwen3", "chatml", "<|endoftext|>", of_file("Qwen-Qwen3-0.6B")),
    ("QwQ", "chatml", "<|endoftext|>", of_file("Qwen-QwQ-32B").replace(NOT_THINKING, "")),
    ("QwQ, not thinking", "chatml", "<|endoftext|>", of_file("Qwen-QwQ-32B")),
    ("Llama 3.1", "llama3", "<|begin_of_text|>", of_file("meta-llama-Llama-3.1-8B-Instruct")),
    ("Llama 3.2", "llama3", "<|begin_of_text|>", of_file("meta-llama-Llama-3.2-3B-Instruct")),
    ("Llama 3.3", "llama3", "<|begin_of_text|>", of_file("meta-llama-Llama-3.3-70B-Instruct")),
    ("R1 distill of Llama", "deepseek", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", of_file("deepseek-ai-DeepSeek-R1-Distill-Llama-8B")),
    ("R1 distill of Qwen", "deepseek", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", of_file("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B")),
    ("Gemma 2", "gemma", "<bos>", of_file("google-gemma-2-2b-it")),
    ("Gemma 4", "gemma4", "<bos>", of_file("google-gemma-4-31B-it")),
    ("Gemma 4, interleaved", "gemma4", "<bos>", of_file("google-gemma-4-31B-it-interleaved")),
    ("Gemma 4, in the GGUF", "gemma4", "<bos>", of_gguf(f"{TEMPLATES}/ggml-vocab-gemma-4.gguf")),
    ("Llama 2", "llama2", "<s>", open(LLAMA2, encoding="utf-8").read()),
    ("Mistral 7B v0.1", "mistral", "<s>", of_python("MISTRAL_INSTRUCT_CHAT_TEMPLATE")),
    ("Mistral 7B v0.2", "mistral", "<s>", of_tests("mistralai/Mistral-7B-Instruct-v0.2 (NOTE")),
    ("Mistral 7B v0.2, v1", "mistral", "<s>", of_tests("mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1'")),
    ("Mistral Large 2407, v3", "mistral", "<s>", of_tests("Mistral-Large-Instruct-2407")),
    ("Mistral Nemo 2407", "mistral", "<s>", of_file("mistralai-Mistral-Nemo-Instruct-2407")),
    ("Mistral Large 2411, v7", "mistral", "<s>", of_tests("mistralai/Mistral-Large-Instruct-2411")),
    ("Mistral Small 3.2", "mistral", "<s>", of_file("Mistral-Small-3.2-24B-Instruct-2506")),
    ("Ministral 3", "mistral", "<s>", of_file("mistralai-Ministral-3-14B-Reasoning-2512")),
]


def c_string(text):
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()) + '"'


def conversation(messages):
    return "{" + ", ".join("{%s, %s}" % (c_string(m["role"]), c_string(m["content"])) for m in messages) + "}"


def dialect_of(template, process):
    process.stdin.write(json.dumps({"template": template, "conversations": []}) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def main():
    process = subprocess.Popen([WRITE_CHAT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print("/* Made by tests/golden/chat.py. */\n/* clang-format off */")
    print("static const test_message golden_chats[][8] = {")
    for messages in conversations:
        print(f"    {conversation(messages)},")
    print("};")
    print("static const struct {\n    const char *name;\n    ht_template template;\n    const char *bos;\n    int chat;\n"
          "    const char *expected;\n} golden_texts[] = {")  # fmt: skip
    for name, kind, bos, template in CASES:
        found = dialect_of(template, process)
        assert found["format"] == kind, (name, found)
        system = c_string(found["system"]) if found["system"] is not None else "NULL"
        for i, messages in enumerate(conversations):
            thinks = kind == "deepseek" or name.startswith(("Qwen3", "QwQ"))
            if messages is THOUGHT and kind != "gemma4" or messages is DEEP_THOUGHT and not thinks:
                continue
            rendered = render(template, messages, bos)
            if rendered is None:
                continue  # refused by the template
            print(f"    {{{c_string(name)}, {{{c_string(kind)}, NULL, {found['dialect']}, (char *)(uintptr_t){system}, 0}}, {c_string(bos)}, {i},\n"
                  f"     {c_string(rendered)}}},")
    print("};")


if __name__ == "__main__":
    main()
