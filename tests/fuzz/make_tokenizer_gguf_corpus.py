#!/usr/bin/env python3
"""Writes the seeds of fuzz_tokenizer_gguf (pip install gguf).

    python3 tests/fuzz/make_tokenizer_gguf_corpus.py"""
import json
import pathlib
import re

import gguf

here = pathlib.Path(__file__).parent
source = here.parents[1] / "src"


def put(target, name, data):
    folder = here / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# ---- tokenizers: described by parts, and as files of the gguf package ----

BYTES = [*"abcdehiloqru.T'st<>|/x0123456789", "Ġ", "Ċ", "Ã", "©", "he", "Ġt", "aa", "aaaa", "<s>", "</s>", "<|x|>"]
BYTE_MERGES = ["h e", "Ġ t", "a a", "aa aa"]
PIECES = ["<unk>", "<s>", "</s>", "<0x20>", "<0xE2>", "<0x96>", "<0x81>", "▁", "a", "▁a", "aa", "h", "e", "he", "▁the", "  ", "[PAD16]"]
PIECE_TYPES = "233666611111111" + "4" + "5"
PIECE_MERGES = ["▁ a", "a a", "h e"]


def listed(texts):
    return b"".join(t.encode() + b"\1" for t in texts)


def described(name, model, pre, settings, tokens, types="", scores=b"", merges=(), template="", stages="", charsmap=""):
    parts = [model.encode(), pre.encode(), settings.encode(), listed(tokens), types.encode(), scores, listed(merges), template.encode(),
             *([stages.encode(), charsmap.encode()] if stages or charsmap else [])]  # fmt: skip
    put("fuzz_tokenizer_gguf", name, b"\1" + b"\0".join(parts))


rows = re.findall(r'\.names = "([^"]*)"', (source / "tokenizer" / "gguf_stages.c").read_text())
byte_types = "1" * (len(BYTES) - 3) + "334"
for row in rows:
    name = row.split()[0]
    described(f"pre-{name}", "gpt2", name, "\x61\x62  110", BYTES, byte_types, merges=BYTE_MERGES)
described("no-pre", "gpt2", "", "~~~~", BYTES, merges=BYTE_MERGES)
described("no-types", "gpt2", "llama-bpe", "ab", BYTES, merges=BYTE_MERGES, template="{{ bos_token }}<|im_start|>")
scores = bytes(min(255, 1 + i) for i in range(len(PIECES)))
described("scores", "llama", "", "120 111", PIECES, PIECE_TYPES, scores)
described("scores-unsorted", "llama", "", "120 010", PIECES, PIECE_TYPES, scores[::-1])
described("pieces-merges", "gemma4", "", "120 100", PIECES, PIECE_TYPES, b"", PIECE_MERGES)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁the", "▁quick", "s", "▁a", "a", "▁he", "[PAD10]"]
described("bert", "bert", "default", "  10  123", WORDS, "33331111115")
described("bert-cased", "bert", "", "  1    23110", WORDS, "33331111115")
UNIGRAM = [*PIECES[:-1], "fi", "[PAD17]"]
golden = json.loads((here.parent / "golden" / "tokenizer" / "synthetic.json").read_text())
charsmap = next(c for c in golden["cases"] if c["name"] == "unigram")["tokenizer"]["normalizer"]["precompiled_charsmap"]
described("t5", "t5", "default", "120 11", UNIGRAM, PIECE_TYPES[:-1] + "15", scores + b"\1", charsmap=charsmap)
described("t5-plain", "t5", "", " 20  01      0", UNIGRAM, PIECE_TYPES[:-1] + "15", scores[::-1] + b"\1")
stages = {"normalizer": {"type": "Precompiled"}, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "Fuse"}}
described("t5-stages", "t5", "", "120 11", UNIGRAM, PIECE_TYPES[:-1] + "15", scores + b"\1", stages=json.dumps(stages), charsmap=charsmap)
described("unknown-model", "rwkv", "", "", PIECES, PIECE_TYPES, scores)


def whole(name, fill):
    path = here / "seed.gguf"
    w = gguf.GGUFWriter(path, "llama")
    fill(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    put("fuzz_tokenizer_gguf", name, b"\x83" + path.read_bytes())
    path.unlink()


def byte_level(w):
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("smollm"), w.add_token_list(BYTES)
    w.add_token_types([int(t) for t in byte_types]), w.add_token_merges(BYTE_MERGES)
    w.add_bos_token_id(len(BYTES) - 3), w.add_eos_token_id(len(BYTES) - 2), w.add_add_bos_token(True)
    w.add_chat_template("<|im_start|>system\nx<|im_end|>")


def pieces(w):
    w.add_tokenizer_model("llama"), w.add_token_list(PIECES), w.add_token_scores([-float(i) for i in range(len(PIECES))])
    w.add_token_types([int(t) for t in PIECE_TYPES]), w.add_add_space_prefix(True)
    w.add_bos_token_id(1), w.add_eos_token_id(2), w.add_unk_token_id(0), w.add_add_eos_token(True)


whole("file-bytes", byte_level)
whole("file-pieces", pieces)
