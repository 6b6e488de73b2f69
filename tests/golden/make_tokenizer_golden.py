#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/: what Hugging Face `tokenizers` makes of some texts.

    make_tokenizer_golden.py MODELS

real/NAME.tsv, for each vocabulary found in MODELS (the folder that HEARTH_TEST_MODELS names): text, ids, and the decoded
text where it is another one; backslash, tab, newline and bytes outside of printable ASCII are written \\xNN. Through
tokenizer_reference.py. synthetic.json: small trained vocabularies under pipelines that use every step Hearth knows."""
import itertools
import json
import os
import random
import re
import sys

import tokenizer_reference
from check_tokenizer import texts_for
from tokenizer_texts import make_texts
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
REAL = {
    "smollm2-135m": "smollm2-135m.gguf",
    "qwen2.5-coder-0.5b": "qwen2.5-coder-0.5b.gguf",
    "gemma3-270m": "gemma3-270m.gguf",
    "llama3": "vocab/ggml-vocab-llama-bpe.gguf",
    "gemma4": "vocab/ggml-vocab-gemma-4.gguf",
}


BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


def decode(tokenizer, ids, skip=False):
    """The reference's text, but for runs of byte tokens that are not UTF-8 as a whole: the reference writes U+FFFD for each
    of their bytes, Hearth the characters that are complete and U+FFFD for each sequence that is none."""
    text = tokenizer.decode(ids, skip_special_tokens=skip)
    special = {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    tokens = [tokenizer.id_to_token(i) for i in ids if not (skip and i in special)]
    if "ByteFallback" not in tokenizer.to_str().rpartition('"decoder"')[2]:
        return text
    assert tokenizer.decoder.decode(tokens) == text
    joined = []
    for are_bytes, run in itertools.groupby(tokens, lambda t: bool(BYTE_TOKEN.fullmatch(t))):
        run = list(run)
        joined += [bytes(int(t[3:5], 16) for t in run).decode("utf-8", "replace")] if are_bytes else run
    return tokenizer.decoder.decode(joined)


def escape(data):
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in data)


def write_real(name, path):
    tokenizer, fields, _ = tokenizer_reference.make(path)
    texts = [t for t in texts_for(tokenizer, fields, 800, 11) if len(t) <= 160][:300]
    with open(os.path.join(HERE, "real", name + ".tsv"), "w") as f:
        for text in texts:
            repaired = text.decode("utf-8", "replace")
            ids = tokenizer.encode(repaired, add_special_tokens=False).ids
            decoded = decode(tokenizer, ids)
            line = [escape(text), " ".join(map(str, ids))]
            f.write("\t".join(line + ([escape(decoded.encode())] if decoded.encode() != text else [])) + "\n")


CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps; the fox doesn't care, it's 12345 miles away!",
    "for (int i = 0; i < 100; i++) { sum += values[i]; }  // the sum of the values",
    "Größe, naïve café, Москва и мир, 東京 日本語, 你好世界, नमस्ते, 😀👍🏽 1,234.56 and 2024-11-21",
    "We've seen that they'll say I'm here; don't they? YES THEY DO. hello hello hello world world   spaces\n\nlines\t",
] * 4
# Where the patterns of the pre-tokenizers differ: cases, digits, scripts, white space, line breaks, slashes, contractions.
SPLIT_TEXTS = [
    "HTMLParser camelCase ÀÉîÖ ǅungla ʰªº ABCdef's THEY'LL don'T I'M we'ſ o'clock l'été 'tis''",
    "1 12 123 1234 12345 1234567 1234567x 1,234.5678 0x1F ２０２４ ٣٤٥٦ ½12345 ⅫⅧ x²³ 2024-11-21T10:00",
    "a/b//c /usr/bin\n/ ./x !!\n\n?? --\r\n==  \n \t\n   end  \r\n\r\n  x   ",
    "日本語 々〇〡 漢字と仮名カナﾊﾝ 한국어 ㄱㅎ 조선말！，。、「中文」 ㄅㄆ 我在apple工作1314151天～ ไทยລາວខ្មែរမြန်မာ \uf900\u9fa6\u3400",
    "e\u0301a\u0323\u0301 नमस्ते क्षत्रिय שָׁלוֹם مرحبا x\u20ddy \u3099か 👍🏽👨‍👩‍👧 🇩🇪 ▁x a_b__c $9.99 €5 C++ <tag> \u00a0\u2003z\u2028",
    "one two three four, five. the dog, the dog the dog  the dog\nthe dog\n\n\nthe dog",
]


def train(kind):
    tokenizer = Tokenizer(models.BPE())
    alphabet = []
    if kind == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet, size, special = pre_tokenizers.ByteLevel.alphabet(), 420, []
        corpus = CORPUS
    elif kind == "unsplit":  # merges across every boundary, which ids then show
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        alphabet, size, special = pre_tokenizers.ByteLevel.alphabet(), 700, []
        corpus = SPLIT_TEXTS * 2
    else:
        size, special = 600, ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
        corpus = [t.replace(" ", "▁") for t in CORPUS]
        tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=sorted(alphabet))
    )
    model = json.loads(tokenizer.to_str())["model"]
    if kind == "pieces":
        model.update(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return model


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def pre(*steps):
    return sequence("pretokenizers", *steps)


def metaspace(scheme, cut=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


BYTES_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
UNREPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
PIECES_DECODER = sequence("decoders", UNREPLACE, FALLBACK, FUSE)


def template(before, after):
    items = [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in before]
    items += [{"Sequence": {"id": "A", "type_id": 0}}]
    items += [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in after]
    specials = {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in before + after}
    pair = items + [{"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": items, "pair": pair, "special_tokens": specials}


def cases():
    """(name, base, stages, added tokens)"""
    qwen, llama3 = tokenizer_reference.QWEN2, tokenizer_reference.LLAMA3
    b = {"decoder": BYTES_DECODER}
    yield "gpt2", "bytes", {**b, "pre_tokenizer": level(regex=True)}, []
    yield "gpt2 prefix", "bytes", {**b, "pre_tokenizer": level(True, True)}, []
    yield "bytes whole", "bytes", {**b, "pre_tokenizer": level()}, []
    yield "gpt2 as split", "bytes", {**b, "pre_tokenizer": pre(split(GPT2, "Isolated"), level())}, []
    yield "gpt2 by pcre2", "bytes", {**b, "pre_tokenizer": pre(split(f"(?:{GPT2})", "Isolated"), level())}, []
    yield "qwen2", "bytes", {**b, "normalizer": {"type": "NFC"}, "pre_tokenizer": pre(split(qwen, "Isolated"), level())}, []
    yield "qwen2 by pcre2", "bytes", {**b, "pre_tokenizer": pre(split(f"(?:{qwen})", "Isolated"), level())}, []
    yield "llama3", "bytes", {**b, "pre_tokenizer": pre(split(llama3, "Isolated"), level()), "ignore_merges": True}, []
    yield "llama3 by pcre2", "bytes", {**b, "pre_tokenizer": pre(split(f"(?:{llama3})", "Isolated"), level())}, []
    yield "smollm", "bytes", {**b, "pre_tokenizer": pre({"type": "Digits", "individual_digits": True}, level(regex=True))}, []
    yield "digit runs", "bytes", {**b, "pre_tokenizer": pre({"type": "Digits", "individual_digits": False}, level(True))}, []
    yield "falcon", "bytes", {**b, "pre_tokenizer": pre(
        {"type": "Punctuation", "behavior": "Contiguous"}, level(regex=True),
        {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]", "Isolated"))}, []  # fmt: skip
    yield "white space", "bytes", {**b, "pre_tokenizer": pre({"type": "Whitespace"}, level())}, []
    yield "white space split", "bytes", {**b, "pre_tokenizer": pre({"type": "WhitespaceSplit"}, level())}, []
    for behavior in "Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext":
        for invert in False, True:
            yield f"{behavior} {invert}", "bytes", {**b, "pre_tokenizer": pre(split("[aeiou ]", behavior, invert), level())}, []
        yield f"{behavior} text", "bytes", {**b, "pre_tokenizer": pre(split("l", behavior, kind="String"), level())}, []
        yield f"{behavior} punctuation", "bytes", {**b, "pre_tokenizer": pre({"type": "Punctuation", "behavior": behavior}, level())}, []
    yield "empty matches", "bytes", {**b, "pre_tokenizer": pre(split("(?=[A-Z])|o", "Isolated"), level())}, []
    yield "line ends", "bytes", {**b, "pre_tokenizer": pre(split("\\s+$|^t", "Isolated"), level())}, []
    for form in "NFC", "NFD", "NFKC", "NFKD", "Lowercase":
        yield form, "bytes", {**b, "normalizer": {"type": form}, "pre_tokenizer": level(regex=True)}, []
    yield "strip", "bytes", {**b, "normalizer": {"type": "Strip", "strip_left": True, "strip_right": True},
                             "pre_tokenizer": level(regex=True)}, []  # fmt: skip
    yield "replace by regex", "bytes", {**b, "normalizer": sequence("normalizers",
        {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "},
        {"type": "Replace", "pattern": {"String": "fox"}, "content": "cat"}), "pre_tokenizer": level(regex=True)}, []  # fmt: skip
    yield "no decoder", "bytes", {"pre_tokenizer": level(regex=True)}, []
    marked = [
        AddedToken("<|im_start|>", special=True, normalized=False),
        AddedToken("<|im_end|>", special=True, normalized=False, rstrip=True),
        AddedToken("<|left|>", special=True, normalized=False, lstrip=True),
        AddedToken("<tool>", normalized=False), AddedToken("<tool>call", normalized=False),
        AddedToken("Fox", normalized=True), AddedToken("dog", normalized=True, single_word=True),
        AddedToken("\n", normalized=False), AddedToken("  ", normalized=False),
        AddedToken("é", normalized=True), AddedToken("Ünit", normalized=True),
    ]  # fmt: skip
    yield "added", "bytes", {**b, "pre_tokenizer": level(regex=True),
                             "post_processor": template([("<|im_start|>", 420)], [("<|im_end|>", 421)])}, marked  # fmt: skip
    yield "added lower", "bytes", {**b, "normalizer": {"type": "Lowercase"}, "pre_tokenizer": level(regex=True)}, marked
    yield "added nfd", "bytes", {**b, "normalizer": {"type": "NFD"}, "pre_tokenizer": level(True, True)}, marked
    ends = [AddedToken("<unk>", special=True, normalized=False), AddedToken("<s>", special=True, normalized=False),
            AddedToken("</s>", special=True, normalized=True)]  # fmt: skip
    p = {"decoder": PIECES_DECODER, "post_processor": template([("<s>", 1)], [])}
    yield "gemma", "pieces", {**p, "normalizer": REPLACE, "pre_tokenizer": split(" ", "MergedWithPrevious", kind="String")}, ends
    yield "llama 2", "pieces", {**p, "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, REPLACE),
                                "decoder": sequence("decoders", UNREPLACE, FALLBACK, FUSE, STRIP)}, ends  # fmt: skip
    for scheme in "always", "first", "never":
        for cut in True, False:
            yield f"metaspace {scheme} {cut}", "pieces", {
                "pre_tokenizer": metaspace(scheme, cut), "decoder": metaspace(scheme, cut)}, ends  # fmt: skip
    yield "no fallback", "pieces", {**p, "normalizer": REPLACE, "byte_fallback": False}, ends
    yield "no fuse", "pieces", {**p, "normalizer": REPLACE, "byte_fallback": False, "fuse_unk": False}, ends
    yield "no unknown", "pieces", {**p, "normalizer": REPLACE, "byte_fallback": False, "unk_token": None}, ends
    yield "no spaces", "pieces", {**p}, ends
    for name, pipeline in tokenizer_reference.PIPELINES.items():
        scratch = Tokenizer(models.BPE())
        tokenizer_reference.set_pipeline(scratch, pipeline)
        stages = json.loads(scratch.to_str())
        yield f"pre {name}", "unsplit", {k: stages[k] for k in ("normalizer", "pre_tokenizer", "decoder")} | {
            "ignore_merges": pipeline.ignore_merges}, []  # fmt: skip


def build(model, stages):
    model = dict(model, **{k: stages[k] for k in ("ignore_merges", "byte_fallback", "fuse_unk", "unk_token") if k in stages})
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "model": model}
    for stage in "normalizer", "pre_tokenizer", "post_processor", "decoder":
        whole[stage] = stages.get(stage)
    return whole


def write_synthetic():
    bases = {kind: train(kind) for kind in ("bytes", "pieces", "unsplit")}
    common = ["The quick brown fox", " hello  world ", "Hello\n\nworld\t \n x", "don't we'll I'VE 123456", "<|im_start|>user\n"
              "Fox and foxes<|im_end|>  \n dog dogs dog  <|left|>", "<tool>call <tool> called", "éé e\u0301 Ünit ünit ÜNIT",
              "İstanbul ẞ ﬁ ½ Ⅷ", "<s>▁x</s> <unk> </s>", "", " ", "日本語 1２३ 👍🏽👨‍👩‍👧", "a\u0323\u0301\u0e3a\u0eba"]  # fmt: skip
    made = []
    for name, base, stages, added in cases():
        rng = random.Random(name)
        whole = build(bases[base], stages)
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        for token in added:
            tokenizer.add_tokens([token]) if not token.special else tokenizer.add_special_tokens([token])
        names = [t.content for t in added]
        texts = common + [t.decode("utf-8", "replace") for t in make_texts(30, names, ["the", " fox", "hello"], rng.random())
                          if len(t) < 120][10:20]  # fmt: skip
        if base == "unsplit":
            texts = SPLIT_TEXTS
        rows = []
        for text in texts:
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            rows.append({"text": text, "ids": plain, "with_special": tokenizer.encode(text).ids,
                         "decoded": decode(tokenizer, plain)})  # fmt: skip
        size, decodes = tokenizer.get_vocab_size(), []
        for _ in range(0 if base == "unsplit" else 8):
            ids = [rng.randrange(size) if rng.random() < 0.6 or base == "bytes" else rng.randrange(3, 259)
                   for _ in range(rng.randint(1, 12))]  # fmt: skip
            decodes.append({"ids": ids, "all": decode(tokenizer, ids), "skipped": decode(tokenizer, ids, skip=True)})
        whole = json.loads(tokenizer.to_str())
        whole["model"] = {k: v for k, v in whole["model"].items() if k not in ("vocab", "merges")}
        made.append({"name": name, "base": base, "tokenizer": whole, "texts": rows, "decodes": decodes})
    vocabularies = {k: {"vocab": v["vocab"], "merges": v["merges"]} for k, v in bases.items()}
    with open(os.path.join(HERE, "synthetic.json"), "w") as f:
        json.dump({"bases": vocabularies, "cases": made}, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def main():
    os.makedirs(os.path.join(HERE, "real"), exist_ok=True)
    write_synthetic()
    for name, path in REAL.items():
        path = os.path.join(sys.argv[1], path)
        if os.path.exists(path):
            write_real(name, path)


main()
