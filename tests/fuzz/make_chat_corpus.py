#!/usr/bin/env python3
"""Writes the seeds of fuzz_tokenizer_gguf and fuzz_chat, and chat.dict (pip install gguf).

    python3 tests/fuzz/make_chat_corpus.py"""
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


def described(name, model, pre, settings, tokens, types="", scores=b"", merges=(), template=""):
    parts = [model.encode(), pre.encode(), settings.encode(), listed(tokens), types.encode(), scores, listed(merges), template.encode()]
    put("fuzz_tokenizer_gguf", name, b"\1" + b"\0".join(parts))


rows = re.findall(r'\.names = "([^"]*)"', (source / "tokenizer" / "load_gguf.c").read_text())
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
described("unknown-model", "bert", "", "", PIECES, PIECE_TYPES, scores)


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


# ---- chats: the fragments of real templates that tests/golden/chat.inc holds ----

def text_of(c):
    return re.sub(rb"\\(\d{3})", lambda m: bytes([int(m[1], 8)]), c.encode())


inc = (here.parent / "golden" / "chat.inc").read_text()
string = r'"((?:[^"\\]|\\.)*)"'
chats = [[(role, text_of(content)) for role, content in re.findall(r"\{" + string + ", " + string + r"\}", line)]
         for line in re.findall(r"^    \{(\{.*\})\},$", inc, re.M)]
ROLES = ["system", "user", "assistant"]
seen = set()
for name, kind, bos, fragments, chat in re.findall(
        r"^    \{" + ", ".join([string] * 4) + r", (\d+),$", inc, re.M):
    if (name, int(chat) % 2) in seen:  # one with a system text, one without
        continue
    seen.add((name, int(chat) % 2))
    messages = b"".join(bytes([ROLES.index(role)]) + content + b"\0" for role, content in chats[int(chat)])
    # The mark by which a format is told may not be among the fragments.
    opening = {"chatml": "<|im_start|>", "gemma": "<start_of_turn>", "gemma4": "<|turn>", "llama3": "<|start_header_id|>",
               "deepseek": "<\uff5cUser\uff5c>", "mistral": "[INST]", "llama2": "<<SYS>>"}[kind]
    template = text_of(fragments) + b" '" + opening.encode() + b"'"
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    put("fuzz_chat", f"{plain}-{chat}", b"\xff" + b"\0".join([template, text_of(bos), b"</s>", messages]))
for i in range(8):
    put("fuzz_chat", f"format-{i}", bytes([64 + i]) + b"\0".join([b"{{ bos_token }}", b"<s>", b"</s>", b"\0be brief\0\1 Hi \0\2Yes\0\1Bye\0"]))

words = set()
for path in ("chat.c", "chat_mistral.c"):
    words |= set(re.findall(r'(?:has\(c, |strstr\([^"]*|literal_with\(c, |\[\] = |\{)' + string, (source / "generate" / path).read_text()))
words = {re.sub(r'(?<!\\)((?:\\\\)*)\\n', r'\1\\x0A', w) for w in words}  # dictionaries know \\xNN alone
words |= {"set default_system_message = 'a' + today + 'b' %}", "bos_token", "<|im_start|>system\\\\n"}
(here / "chat.dict").write_text("".join(f'"{w}"\n' for w in sorted(words) if len(w) > 3 and "\n" not in w and "\\x" not in w.replace("\\x0A", "")))
