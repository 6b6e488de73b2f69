#!/usr/bin/env python3
"""The reference tokenizer of a GGUF, made with Hugging Face `tokenizers`: the file's vocabulary and merges under the
pipeline that the model's own tokenizer.json has.

    tokenizer_reference.py MODEL.gguf DIRECTORY      writes tokenizer.json and tokenizer_config.json

Where the pipelines come from: SmolLM2, Qwen2 and Llama 3 from their published tokenizer.json; Gemma from the class in
`transformers` (models/gemma/tokenization_gemma.py). A GGUF of a SentencePiece vocabulary has no merges; they are every
way of cutting a token into two tokens, in the order of the tokens, which for Gemma is the order of training. Needs:
tokenizers, gguf (both from PyPI; written with 0.23.3 and 0.19)."""
import json
import os
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + END
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + END
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4


def read(path):
    fields = gguf.GGUFReader(path).fields
    return {k: v.contents() for k, v in fields.items() if k.startswith("tokenizer.")}


def byte_level(tokenizer, use_regex, *before):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, level])
    tokenizer.decoder = decoders.ByteLevel()


def token_order_merges(vocab):
    merges = []
    for token in sorted(vocab, key=vocab.get):
        cuts = [(token[:i], token[i:]) for i in range(len(token) - 1, 0, -1)]
        merges += [(a, b) for a, b in cuts if a in vocab and b in vocab]
    return merges


def make_sentencepiece(fields, tokens, types):
    tokens = [t.replace(" ", "▁") if kind == USER_DEFINED else t for t, kind in zip(tokens, types)]
    vocab = {t: i for i, t in enumerate(tokens)}
    listed = fields.get("tokenizer.ggml.merges")
    merges = [tuple(m.split(" ")) for m in listed] if listed else token_order_merges(vocab)
    unk = tokens[fields["tokenizer.ggml.unknown_token_id"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer, tokens


def make_byte_level(fields, tokens):
    pre = fields["tokenizer.ggml.pre"]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=pre == "llama-bpe"))
    if pre == "smollm":
        byte_level(tokenizer, True, pre_tokenizers.Digits(individual_digits=True))
    elif pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        byte_level(tokenizer, False, pre_tokenizers.Split(Regex(QWEN2), "isolated"))
    elif pre == "llama-bpe":
        byte_level(tokenizer, False, pre_tokenizers.Split(Regex(LLAMA3), "isolated"))
    elif pre == "gpt-2":
        byte_level(tokenizer, True)
    else:
        sys.exit(f"no reference pipeline for the pre-tokenizer {pre}")
    return tokenizer, tokens


def make(path):
    """(Tokenizer, fields, tokens)"""
    fields = read(path)
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    if fields["tokenizer.ggml.model"] == "gpt2":
        tokenizer, tokens = make_byte_level(fields, tokens)
    else:
        tokenizer, tokens = make_sentencepiece(fields, tokens, types)
    added = [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, types)
        if kind in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    add_bos = fields.get("tokenizer.ggml.add_bos_token", fields.get("tokenizer.ggml.pre") == "llama-bpe")
    if add_bos:
        bos = fields["tokenizer.ggml.bos_token_id"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer, fields, tokens


def main():
    path, directory = sys.argv[1:]
    tokenizer, fields, tokens = make(path)
    os.makedirs(directory, exist_ok=True)
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    config = {"chat_template": fields.get("tokenizer.chat_template")}
    for name in "bos", "eos":
        config[f"{name}_token"] = tokens[fields[f"tokenizer.ggml.{name}_token_id"]]
    with open(os.path.join(directory, "tokenizer_config.json"), "w") as f:
        json.dump({k: v for k, v in config.items() if v is not None}, f, ensure_ascii=False)


if __name__ == "__main__":
    main()
