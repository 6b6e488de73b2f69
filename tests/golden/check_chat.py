#!/usr/bin/env python3
"""Compares the ids of conversations with transformers and with Mistral's own mistral-common.

    PYTHONPATH=python HEARTH_LIBRARY=build/release/lib/libhearth.so python3 tests/golden/check_chat.py TEMPLATES MODELS LLAMA2 WRITE_CHAT

The arguments are those of chat.py. mistral-common carries the vocabularies of Mistral's models; transformers makes a
tokenizer.json of each, which Hearth reads with a published template beside it. Needs mistral-common with sentencepiece,
transformers, torch, safetensors. Exits with 1 when a conversation differs from transformers, which means the checkpoint's own
template and tokenizer.json; how many equal mistral-common's is only told, as the published templates themselves differ from
it in blanks and in where the system text goes.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
import mistral_common  # noqa: E402
import torch  # noqa: E402
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, UserMessage  # noqa: E402
from mistral_common.protocol.instruct.request import ChatCompletionRequest  # noqa: E402
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import LlamaTokenizerFast  # noqa: E402

import hearth  # noqa: E402

VOCABULARIES = pathlib.Path(mistral_common.__file__).parent / "data"
SYSTEM = {"role": "system", "content": "Answer in \"verse\", 100 % of it."}
TEXTS = ["What is the capital of France?", " 1 + 1? ", "Привет 👋", "Go\n\non", "[INST] not a turn", "x", "日本 été — naïve"]
ANSWERS = ["Paris.", " 2\n", "Здравствуйте", "One\ntwo", "</s> is a mark", "y", "\ttab"]


def conversations():
    for i, (text, answer) in enumerate(zip(TEXTS, ANSWERS)):
        user, more = {"role": "user", "content": text}, {"role": "user", "content": TEXTS[i - 1]}
        turns = [user, {"role": "assistant", "content": answer}, more]
        yield from ([user], [SYSTEM, user], turns, [SYSTEM, *turns])


def checkpoint(directory, vocabulary, template, legacy):
    """A model of next to nothing around the vocabulary, and transformers' tokenizer."""
    shutil.copy(VOCABULARIES / vocabulary, directory / "tokenizer.model")
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>",
              "eos_token": "</s>", "unk_token": "<unk>", "legacy": legacy}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "config.json").write_text(json.dumps({"model_type": "mistral"}))
    tokenizer = LlamaTokenizerFast.from_pretrained(directory)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(directory)
    n, size = len(tokenizer), 8
    (directory / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": size, "num_attention_heads": 1, "intermediate_size": size,
        "vocab_size": n, "tie_word_embeddings": True, "max_position_embeddings": 512}))
    shapes = {"embed_tokens": (n, size), "norm": (size,), **{f"layers.0.{x}": (size,) for x in ("input_layernorm", "post_attention_layernorm")},
              **{f"layers.0.self_attn.{x}_proj": (size, size) for x in "qkvo"}, **{f"layers.0.mlp.{x}_proj": (size, size) for x in ("gate", "up", "down")}}
    save_file({f"model.{k}.weight": torch.zeros(s, dtype=torch.float16) for k, s in shapes.items()}, directory / "model.safetensors")
    return tokenizer


def by_mistral(tokenizer, messages):
    kinds = {"system": SystemMessage, "user": UserMessage, "assistant": AssistantMessage}
    try:
        return tokenizer.encode_chat_completion(
            ChatCompletionRequest(messages=[kinds[m["role"]](content=m["content"]) for m in messages])).tokens
    except Exception:  # what it refuses
        return None


def compare(name, vocabulary, template, own, legacy):
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = checkpoint(pathlib.Path(directory), vocabulary, template, legacy)
        model = hearth.load(directory, threads=1)
        same = total = equal = asked = 0
        for messages in conversations():
            try:
                wanted = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
            except Exception:  # refused by the template
                continue
            found = list(model.tokenize(model.format_chat(messages), add_special=False))
            total += 1
            same += found == list(wanted)
            if found != list(wanted):
                print(f"{name}: {messages}\n  expected {list(wanted)}\n  found    {found}")
            theirs = by_mistral(own, messages) if own else None
            asked += theirs is not None
            equal += theirs is not None and list(theirs) == found
        text = f", {equal} of {asked} equal mistral-common's" if own else ""
        print(f"{name}: {same} of {total} conversations equal transformers'{text}")
        return same == total and total > 0


def main():
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import chat
    templates = {name: template for name, _, _, template in chat.CASES}
    v1, v3, v7 = "tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3", "mistral_instruct_tokenizer_241114.model.v7"
    results = [compare("Mistral 7B v0.1", v1, templates["Mistral 7B v0.1"], MistralTokenizer.v1(), True),
               compare("Mistral 7B v0.2", v1, templates["Mistral 7B v0.2"], MistralTokenizer.v1(), True),
               compare("Mistral 7B v0.2, v1", v1, templates["Mistral 7B v0.2, v1"], MistralTokenizer.v1(), True),
               compare("Mistral Large 2407, v3", v3, templates["Mistral Large 2407, v3"], MistralTokenizer.v3(), False),
               compare("Mistral Large 2411, v7", v7, templates["Mistral Large 2411, v7"], MistralTokenizer.v7(), False),
               compare("Llama 2", v1, templates["Llama 2"], None, True)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
