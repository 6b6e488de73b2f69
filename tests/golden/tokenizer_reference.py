#!/usr/bin/env python3
"""The reference tokenizer of a GGUF, made with Hugging Face `tokenizers`: the file's vocabulary and merges under the
pipeline that the model's own tokenizer.json has.

    tokenizer_reference.py MODEL.gguf DIRECTORY      writes tokenizer.json and tokenizer_config.json

Where the pipelines come from: byte-level ones from the published tokenizer.json files, or the patterns quoted from them
where llama.cpp names the pre-tokenizer; Gemma from the class in
`transformers` (models/gemma/tokenization_gemma.py). A GGUF of a SentencePiece vocabulary has no merges; they are every
way of cutting a token into two tokens, in the order of the tokens, which for Gemma is the order of training. Needs
tokenizers (PyPI; written with 0.23.3)."""
import json
import os
import sys

import gguf_fields
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + END
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + END
MARKS = r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K_END = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(suffix, no=""):
    before = r"[^\r\n\p{L}\p{N}]?"
    return f"{before}[{UPPER}{no}]*[{LOWER}{no}]+{suffix}|{before}[{UPPER}{no}]+[{LOWER}{no}]*{suffix}"


O200K = cased(CONTRACTION + "?") + r"|\p{N}{1,3}|" + O200K_END
TEKKEN = cased("") + r"|\p{N}|" + O200K_END
KIMI = r"[\p{Han}]+|" + cased(CONTRACTION + "?", r"&&[^\p{Han}]") + r"|\p{N}{1,3}|" + END
SEED = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
EXAONE_MOE = CONTRACTION + (
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
DEEPSEEK_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
YOUTU_EAST = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    "[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
AFMOE_EAST = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
PORO = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
DIGIT_GROUPS = r"(?=(\d{3})+(?!\d))"


class Pipeline:
    """What a value of tokenizer.ggml.pre stands for. Steps: regular expressions, "digits" or "gpt2" (ByteLevel's own)."""

    def __init__(self, *steps, nfc=False, ignore_merges=False):
        self.steps, self.nfc, self.ignore_merges = steps, nfc, ignore_merges


PIPELINES = {
    "gpt-2": Pipeline("gpt2"),
    "olmo": Pipeline("gpt2", nfc=True),
    "smollm": Pipeline("digits", "gpt2"),
    "command-r": Pipeline("digits", "gpt2", nfc=True),
    "llama-bpe": Pipeline(LLAMA3, ignore_merges=True),
    "dbrx": Pipeline(LLAMA3),
    "glm4": Pipeline(LLAMA3, ignore_merges=True),
    "qwen2": Pipeline(QWEN2, nfc=True),
    "qwen35": Pipeline(CONTRACTION + MARKS, nfc=True),
    "tekken": Pipeline(TEKKEN, ignore_merges=True),
    "gpt-4o": Pipeline(O200K),
    "cohere2moe": Pipeline(r"\d{1,3}(?=(?:\d{3})*\b)", O200K, nfc=True),
    "kimi-k2": Pipeline(KIMI, ignore_merges=True),  # as tiktoken
    "youtu": Pipeline(YOUTU_EAST, cased(CONTRACTION + "?") + r"|\p{N}|" + O200K_END, ignore_merges=True),
    "seed-coder": Pipeline(SEED),
    "laguna": Pipeline(r"[^\n]+|[\n]+", QWEN2),
    "exaone-moe": Pipeline(EXAONE_MOE),
    "bailingmoe": Pipeline(BAILING),
    "superbpe": Pipeline(r"\p{N}+", DIGIT_GROUPS),
    "afmoe": Pipeline(r"\p{N}+", DIGIT_GROUPS, AFMOE_EAST, DEEPSEEK_WORDS),
    "deepseek-v3": Pipeline(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK_WORDS),
    "minicpm5": Pipeline(
        r"\p{N}{1,3}", CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|" + END, ignore_merges=True
    ),
    "poro-chat": Pipeline(PORO),
    "viking": Pipeline(PORO, "digits"),
}
SAME = {"starcoder": "smollm", "refact": "smollm", "mpt": "olmo"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4


def read(path):
    return {name: value for name, value in gguf_fields.read(path).items() if name.startswith("tokenizer.")}


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


def make_wordpiece(fields, tokens, types):
    """BERT: words without U+2581, tokens within words with "##"."""
    tokens = [t if kind == CONTROL or t[:1] + t[-1:] == "[]" else t[1:] if t[0] == "▁" else "##" + t
              for t, kind in zip(tokens, types)]  # fmt: skip
    tokenizer = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, tokens


def make_unigram(fields, tokens):
    """XLM-R: the class in `transformers` (models/xlm_roberta/tokenization_xlm_roberta.py)."""
    while tokens[-1] == f"[PAD{len(tokens) - 1}]" or tokens[-1] == f"[PAD{len(tokens) - 2}]":
        tokens = tokens[:-1]
    scores = fields["tokenizer.ggml.scores"]
    tokenizer = Tokenizer(models.Unigram(list(zip(tokens, scores)), unk_id=fields["tokenizer.ggml.unknown_token_id"]))
    charsmap = fields.get("tokenizer.ggml.precompiled_charsmap")
    if charsmap:
        tokenizer.normalizer = normalizers.Precompiled(bytes(charsmap))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, tokens


def set_pipeline(tokenizer, pipeline):
    steps = []
    for step in pipeline.steps:
        if step == "digits":
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        elif step != "gpt2":
            steps.append(pre_tokenizers.Split(Regex(step), "isolated"))
    if pipeline.nfc:
        tokenizer.normalizer = normalizers.NFC()
    byte_level(tokenizer, "gpt2" in pipeline.steps, *steps)


def make_byte_level(fields, tokens):
    pre = fields["tokenizer.ggml.pre"]
    pre = SAME.get(pre, pre)
    if pre not in PIPELINES:
        sys.exit(f"no reference pipeline for the pre-tokenizer {pre}")
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    vocab = {t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=PIPELINES[pre].ignore_merges))
    set_pipeline(tokenizer, PIPELINES[pre])
    return tokenizer, tokens


def make(path):
    """(Tokenizer, fields, tokens)"""
    fields = read(path)
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    model = fields["tokenizer.ggml.model"]
    if model == "gpt2":
        tokenizer, tokens = make_byte_level(fields, tokens)
    elif model == "bert":
        tokenizer, tokens = make_wordpiece(fields, tokens, types)
    elif model == "t5":
        tokenizer, tokens = make_unigram(fields, tokens)
        types = [CONTROL if kind == UNKNOWN else kind for kind in types]
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
