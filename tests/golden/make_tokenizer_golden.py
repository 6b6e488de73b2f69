#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/: what Hugging Face `tokenizers` makes of some texts.

    make_tokenizer_golden.py MODELS

real/NAME.tsv, for each vocabulary found in MODELS (the folder that HEARTH_TEST_MODELS names): text, ids, and the decoded
text where it is another one; backslash, tab, newline and bytes outside of printable ASCII are written \\xNN. Through
tokenizer_reference.py. synthetic.json: small trained vocabularies under pipelines that use every step Hearth knows; with
offsets in bytes, and pairs, for those of WordPiece and Unigram. Needs sentencepiece (PyPI), too."""
import base64
import io
import itertools
import json
import os
import random
import re
import sys

import sentencepiece
import tokenizer_reference
from check_tokenizer import texts_for
from tokenizer_texts import make_texts
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
REAL = {
    "smollm2-135m": "smollm2-135m.gguf",
    "qwen2.5-coder-0.5b": "qwen2.5-coder-0.5b.gguf",
    "gemma3-270m": "gemma3-270m.gguf",
    "llama3": "vocab/ggml-vocab-llama-bpe.gguf",
    "gemma4": "vocab/ggml-vocab-gemma-4.gguf",
    "bert-bge": "vocab/ggml-vocab-bert-bge.gguf",
    "nomic-bert-moe": "vocab/ggml-vocab-nomic-bert-moe.gguf",
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


# Code points and what becomes of them: graphemes of several characters, removals, and growing ones.
RULES = """
ff21>41 ff42>62 ff11>31 fb01>66_69 fb03>66_66_69 bd>31_2044_32 2167>56_49_49_49 ad> 1> 200b>20 9>20 a>20 d>20 a0>20 3000>20
65_301>e9 55_308>dc 61_323>1ea1 130>69_307 2460>31 33a5>6d_33 3a9>3c9 fdfa>635_644_649 1112_1161>d558 30ab_3099>30ac 1f44d>2b
"""


def train_pieces(kind):
    """A Unigram model of sentencepiece, with a small character map."""
    out, rules = io.BytesIO(), os.path.join(HERE, "rules.tsv")
    with open(rules, "w") as f:
        for rule in RULES.split():
            before, after = (part.replace("_", " ").upper() for part in rule.split(">"))
            f.write(f"{before}\t{after}\n")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS + SPLIT_TEXTS), model_writer=out, vocab_size=450, hard_vocab_limit=False,
        normalization_rule_tsv=rules, byte_fallback=kind == "unigram bytes", character_coverage=0.98, num_threads=1,
        minloglevel=2)  # fmt: skip
    os.remove(rules)
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    scores = [[model.id_to_piece(i), model.get_score(i)] for i in range(model.get_piece_size())]
    return {"type": "Unigram", "unk_id": 0, "vocab": scores, "byte_fallback": kind == "unigram bytes",
            "map": charsmap_of(out.getvalue())}  # fmt: skip


def charsmap_of(proto):
    from sentencepiece import sentencepiece_model_pb2 as pb

    model = pb.ModelProto()
    model.ParseFromString(proto)
    return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


def train_words():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS + [t.lower() for t in CORPUS] + SPLIT_TEXTS[:3],
                                  trainers.WordPieceTrainer(vocab_size=500, special_tokens=special))  # fmt: skip
    return json.loads(tokenizer.to_str())["model"]


def train(kind):
    if kind == "words":
        return train_words()
    if kind.startswith("unigram"):
        return train_pieces(kind)
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


def bert(clean=True, chinese=True, accents=None, lowercase=True):
    return {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents,
            "lowercase": lowercase}  # fmt: skip


def word_cases():
    """WordPiece and Unigram; `map` stands for the base's character map."""
    ends = [AddedToken(t, special=True, normalized=False) for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    two = {"cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
    words = {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}, "pre_tokenizer": {"type": "BertPreTokenizer"},
             "post_processor": {"type": "BertProcessing", **two}}  # fmt: skip
    yield "bert", "words", {**words, "normalizer": bert()}, ends
    yield "bert cased", "words", {**words, "normalizer": bert(lowercase=False), "decoder": {**words["decoder"], "cleanup": False}}, ends
    yield "bert accents", "words", {**words, "normalizer": bert(accents=False, chinese=False)}, ends
    yield "bert dirty", "words", {**words, "normalizer": bert(clean=False, accents=True, lowercase=False),
                                  "pre_tokenizer": pre({"type": "BertPreTokenizer"}, {"type": "Digits", "individual_digits": True})}, ends  # fmt: skip
    yield "bert plain", "words", {"pre_tokenizer": {"type": "WhitespaceSplit"}, "max_input_chars_per_word": 12}, []
    yield "bert forms", "words", {**words, "normalizer": sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"},
                                  {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}),
                                  "pre_tokenizer": {"type": "Whitespace"}, "post_processor": {
                                  "type": "RobertaProcessing", "trim_offsets": False, "add_prefix_space": False, **two}}, ends  # fmt: skip
    yield "bert added", "words", {**words, "normalizer": bert()}, ends + [
        AddedToken("Fox", normalized=True), AddedToken("Ünit", normalized=True), AddedToken("dog", normalized=True, single_word=True)]  # fmt: skip
    specials = [AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")]
    split = pre({"type": "WhitespaceSplit"}, metaspace("always"))
    mapped = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "map"}}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}}
    roberta = template([("<s>", 1)], [("</s>", 2)], "first A last last B last")
    t5 = template([], [("</s>", 2)], "A last B last")
    xlnet = template([("<s>", 1)], [("</s>", 2)], "first A last B:1 last:1")
    unigram = {"decoder": metaspace("always"), "post_processor": roberta}
    yield "unigram", "unigram", {**unigram, **mapped, "pre_tokenizer": split}, specials
    yield "unigram spm", "unigram", {**unigram, "normalizer": sequence("normalizers", mapped["normalizer"],
        {"type": "Strip", "strip_left": False, "strip_right": True}, {**spaces, "content": "▁"}),
        "pre_tokenizer": metaspace("first"), "post_processor": t5}, specials  # fmt: skip
    yield "unigram whole", "unigram", {**unigram, **mapped, "pre_tokenizer": metaspace("always", False)}, specials
    yield "unigram albert", "unigram", {**unigram, "normalizer": sequence("normalizers",
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "NFKD"}, {"type": "StripAccents"},
        {"type": "Lowercase"}, mapped["normalizer"], {**spaces, "content": " "}), "pre_tokenizer": split,
        "post_processor": xlnet}, specials  # fmt: skip
    for form in "NFC", "NFKC", "NFD":
        yield f"unigram {form}", "unigram", {**unigram, "normalizer": {"type": form}, "pre_tokenizer": metaspace("never"),
                                             "decoder": metaspace("never")}, specials  # fmt: skip
    yield "unigram f64", "unigram", {**unigram, **mapped, "pre_tokenizer": split, "scale": 1.1, "post_processor": t5}, specials
    yield "unigram fallback", "unigram bytes", {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, REPLACE),
        "decoder": sequence("decoders", UNREPLACE, FALLBACK, FUSE, STRIP), "post_processor": roberta}, specials  # fmt: skip


def template(before, after, pair=None):
    if pair:  # e.g. "first A last B:1 last:1"
        ids = dict(before + after)
        names = {"first": before[0][0] if before else None, "last": after[0][0]}
        items = []
        for item in pair.split():
            name, _, kind = item.partition(":")
            what = {"Sequence": {"id": name}} if name in "AB" else {"SpecialToken": {"id": names[name]}}
            next(iter(what.values()))["type_id"] = int(kind or 0)
            items.append(what)
        return {**template(before, after), "pair": items, "special_tokens": {
            t: {"id": t, "ids": [i], "tokens": [t]} for t, i in ids.items()}}  # fmt: skip

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


MODEL_FIELDS = "ignore_merges", "byte_fallback", "fuse_unk", "unk_token", "max_input_chars_per_word"


def build(model, stages):
    model = dict(model, **{k: stages[k] for k in MODEL_FIELDS if k in stages})
    stages = json.loads(json.dumps(stages).replace('"map"', json.dumps(model.pop("map", None))))
    if "scale" in stages:
        model["vocab"] = [[t, score * stages["scale"]] for t, score in model["vocab"]]
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "model": model}
    for stage in "normalizer", "pre_tokenizer", "post_processor", "decoder":
        whole[stage] = stages.get(stage)
    return whole


def byte_offsets(text, encoding):
    at = list(itertools.accumulate((len(c.encode()) for c in text), initial=0))
    return [[at[begin], at[end]] for begin, end in encoding.offsets]


def encode_pairs(tokenizer, rng, texts):
    """Two texts in the post-processor's template."""
    rows = []
    for _ in range(5):
        first, second = rng.choice(texts), rng.choice(texts)
        encoding = tokenizer.encode(first, second)
        rows.append({"first": first, "second": second, "ids": encoding.ids, "types": encoding.type_ids})
    return rows


def write_synthetic():
    bases = {kind: train(kind) for kind in ("bytes", "pieces", "unsplit", "words", "unigram", "unigram bytes")}
    common = ["The quick brown fox", " hello  world ", "Hello\n\nworld\t \n x", "don't we'll I'VE 123456", "<|im_start|>user\n"
              "Fox and foxes<|im_end|>  \n dog dogs dog  <|left|>", "<tool>call <tool> called", "éé e\u0301 Ünit ünit ÜNIT",
              "İstanbul ẞ ﬁ ½ Ⅷ", "<s>▁x</s> <unk> </s>", "", " ", "日本語 1２३ 👍🏽👨‍👩‍👧", "a\u0323\u0301\u0e3a\u0eba"]  # fmt: skip
    made = []
    for name, base, stages, added in [*cases(), *word_cases()]:
        rng = random.Random(name)
        with_offsets = base == "words" or base.startswith("unigram")
        whole = build(bases[base], stages)
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        for token in added:
            tokenizer.add_tokens([token]) if not token.special else tokenizer.add_special_tokens([token])
        names = [t.content for t in added]
        texts = common + [t.decode("utf-8", "replace") for t in make_texts(30, names, ["the", " fox", "hello"], rng.random())
                          if len(t) < 120][10:20]  # fmt: skip
        if base == "unsplit":
            texts = SPLIT_TEXTS
        if with_offsets:
            texts = texts + SPLIT_TEXTS
        rows = []
        for text in texts:
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            rows.append({"text": text, "ids": plain, "with_special": tokenizer.encode(text).ids,
                         "decoded": decode(tokenizer, plain)})  # fmt: skip
            if with_offsets:
                rows[-1]["offsets"] = byte_offsets(text, tokenizer.encode(text, add_special_tokens=False))
        size, decodes = tokenizer.get_vocab_size(), []
        for _ in range(0 if base == "unsplit" else 8):
            ids = [rng.randrange(size) if rng.random() < 0.6 or base == "bytes" or with_offsets else rng.randrange(3, 259)
                   for _ in range(rng.randint(1, 12))]  # fmt: skip
            decodes.append({"ids": ids, "all": decode(tokenizer, ids), "skipped": decode(tokenizer, ids, skip=True)})
        whole = json.loads(tokenizer.to_str())
        whole["model"] = {k: v for k, v in whole["model"].items() if k not in ("vocab", "merges")}
        made.append({"name": name, "base": base, "tokenizer": whole, "texts": rows, "decodes": decodes})
        if with_offsets:
            made[-1]["pairs"] = encode_pairs(tokenizer, rng, texts)
        if "scale" in stages:
            made[-1]["scale"] = stages["scale"]
    vocabularies = {k: {f: v[f] for f in ("vocab", "merges") if f in v} for k, v in bases.items()}
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


if __name__ == "__main__":
    main()
