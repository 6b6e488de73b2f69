"""Makes tests/golden/chat.inc: conversations as the chat templates of real checkpoints write them.

    python3 tests/golden/chat.py TEMPLATES MODELS LLAMA2 > tests/golden/chat.inc

TEMPLATES is the folder `vendor/llama.cpp/models` of the llama-cpp-python 0.3.36 source package, MODELS one with the files
smollm2-135m.gguf and qwen2.5-coder-0.5b.gguf, LLAMA2 a file with the chat_template of meta-llama/Llama-2-7b-chat-hf. Rendered by transformers 5.23 (pip install transformers gguf). Of the
templates themselves only the fragments by which Hearth tells their dialects apart are written, after a check that they
are in there."""
import datetime
import json
import re
import sys

import gguf
import jinja2
from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATES, MODELS, LLAMA2 = sys.argv[1:]


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


def default_system(template):
    return re.search(r"set default_system_message = .*?%}", template, re.DOTALL).group(0)


class FixedDate(datetime.datetime):
    """Today, for templates that ask: Hearth writes this date whatever the day."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


chat_template_utils.datetime = FixedDate


QWEN25 = ["{{- '<|im_start|>system\\n' }}", "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}",
          "{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}"]
LLAMA31 = ["{{- bos_token }}", '{{- "Cutting Knowledge Date: December 2023\\n" }}']
THINK = "{{'<\uff5cAssistant\uff5c><think>\\n'}}"
NO_THOUGHT = "{{- '<|channel>thought\\n<channel|>' -}}"
ALTERNATES = "must alternate"
AFTER_THOUGHT, BEGINS_THOUGHT = "split('</think>')[-1].lstrip('\\n')", "'<|im_start|>assistant\\n<think>\\n'"
QWQ, NOT_THINKING = of_file("Qwen-QwQ-32B"), "{%- if not enable_thinking -%}{{- '</think>' -}}{%- endif -%}"
SMALL32, MINISTRAL = (of_file(n) for n in ("Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Ministral-3-14B-Reasoning-2512"))
CASES = [  # name, format, BOS, template, fragments
    ("SmolLM2", "chatml", "<|im_start|>", of_gguf(f"{MODELS}/smollm2-135m.gguf"),
     ["{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"]),
    ("Qwen2.5-Coder", "chatml", "<|endoftext|>", of_gguf(f"{MODELS}/qwen2.5-coder-0.5b.gguf"), QWEN25),
    ("Qwen2.5", "chatml", "<|endoftext|>", of_file("Qwen-Qwen2.5-7B-Instruct"), QWEN25),
    ("Qwen2", "chatml", "<|endoftext|>", of_gguf(f"{TEMPLATES}/ggml-vocab-qwen2.gguf"),
     ["{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}"]),
    ("Qwen3", "chatml", "<|endoftext|>", of_file("Qwen-Qwen3-0.6B"),
     ["{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}", "if '</think>' in message.content", AFTER_THOUGHT]),
    ("QwQ", "chatml", "<|endoftext|>", QWQ.replace(NOT_THINKING, ""), [AFTER_THOUGHT, BEGINS_THOUGHT]),
    ("QwQ, not thinking", "chatml", "<|endoftext|>", QWQ, [AFTER_THOUGHT, BEGINS_THOUGHT, NOT_THINKING]),
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
    ("Llama 2", "llama2", "<s>", open(LLAMA2, encoding="utf-8").read(),
     ["<<SYS>>", "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"]),
    ("Mistral 7B v0.1", "mistral", "<s>", of_python("MISTRAL_INSTRUCT_CHAT_TEMPLATE"),
     ["{{ bos_token }}", ALTERNATES, "{{ '[INST] ' + message['content'] + ' [/INST]' }}",
      "{{ message['content'] + eos_token + ' ' }}"]),
    ("Mistral 7B v0.2", "mistral", "<s>", of_tests("mistralai/Mistral-7B-Instruct-v0.2 (NOTE"),
     ["{{ bos_token }}", ALTERNATES, "{{ '[INST] ' + message['content'] + ' [/INST]' }}",
      "{{ message['content'] + eos_token}}"]),
    ("Mistral 7B v0.2, v1", "mistral", "<s>", of_tests("mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1'"),
     ["{{- bos_token }}", ALTERNATES, "loop.first and system_message is defined", "' [INST] ' + message['content'] + ' [/INST]'",
      "{{- ' ' + message['content'] + eos_token}}"]),
    ("Mistral Large 2407, v3", "mistral", "<s>", of_tests("Mistral-Large-Instruct-2407"),
     ["{{- bos_token }}", ALTERNATES, "loop.last and system_message is defined",
      '{{- "[INST] " + message["content"] + "[/INST]" }}', '{{- " " + message["content"]|trim + eos_token}}']),
    ("Mistral Nemo 2407", "mistral", "<s>", of_file("mistralai-Mistral-Nemo-Instruct-2407"),
     ["{{- bos_token }}", ALTERNATES, "loop.last and system_message is defined",
      '{{- "[INST]" + message["content"] + "[/INST]" }}', '{{- message["content"] + eos_token}}']),
    ("Mistral Large 2411, v7", "mistral", "<s>", of_tests("mistralai/Mistral-Large-Instruct-2411"),
     ["{{ bos_token }}", "'[INST] ' + message['content'] + '[/INST]'", "'[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]'",
      "{{ ' ' + message['content'] + eos_token }}"]),
    ("Mistral Small 3.2", "mistral", "<s>", SMALL32,
     ["{{- bos_token }}", ALTERNATES, "{{- '[INST]' }}", "{{- '[/INST]' }}", "{{- message['content'] + eos_token }}",
      "{{- '[SYSTEM_PROMPT]' + system_prompt + '[/SYSTEM_PROMPT]' }}", default_system(SMALL32)]),
    ("Ministral 3", "mistral", "<s>", MINISTRAL,
     ["{{- bos_token }}", ALTERNATES, "{{- '[INST]' + message['content'] + '[/INST]' }}",
      "{{- '[SYSTEM_PROMPT]' + default_system_message + '[/SYSTEM_PROMPT]' }}", default_system(MINISTRAL)]),
]
EOS = "</s>"
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
        if messages is THOUGHT and kind != "gemma4" or messages is DEEP_THOUGHT and kind != "deepseek" and not name.startswith(("Qwen3", "QwQ")):
            continue
        try:
            rendered, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True,
                                                bos_token=bos, eos_token=EOS, date_string="26 Jul 2024")
        except jinja2.exceptions.TemplateError:
            continue  # refused by the template
        print(f"    {{{c_string(name)}, {c_string(kind)}, {c_string(bos)}, {c_string(' '.join(fragments))}, {i},\n"
              f"     {c_string(rendered[0])}}},")
print("};")
