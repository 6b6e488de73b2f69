#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/fuzz_tokenizer_json/: the pipelines of tests/golden/tokenizer/synthetic.json with tiny vocabularies."""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "corpus", "fuzz_tokenizer_json")
golden = json.load(open(os.path.join(HERE, "..", "golden", "tokenizer", "synthetic.json")))
VOCAB = {"bytes": {t: i for i, t in enumerate("aehoru.0123Ġċé") } | {"he": 20, "Ġt": 21, "aa": 22, "aaaa": 23},
         "pieces": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "▁a": 5, "aa": 6, "<0x20>": 7, "h": 8, "e": 9, "he": 10}}  # fmt: skip
UNIGRAM = [["<unk>", 0], ["<s>", 0], ["</s>", 0], ["▁", -2.5], ["a", -3], ["▁a", -2], ["aa", -4.5], ["<0x20>", 0], ["he", -3], ["fi", -4]]
VOCAB |= {"words": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "the": 5, "quick": 6, "##s": 7, "a": 8, "##a": 9, "he": 10},
          "unigram": UNIGRAM, "unigram bytes": UNIGRAM}  # fmt: skip
IDS = {base: vocab if isinstance(vocab, dict) else {t: i for i, (t, _) in enumerate(vocab)} for base, vocab in VOCAB.items()}
MERGES = {"bytes": [["h", "e"], ["a", "a"], ["aa", "aa"]], "pieces": ["▁ a", "a a", "h e"]}
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True, "chat_template": "x",
          "added_tokens_decoder": {"30": {"content": "<|x|>", "special": True}}}  # fmt: skip
os.makedirs(OUT, exist_ok=True)
for i, case in enumerate(golden["cases"]):
    whole = case["tokenizer"]
    if case["base"] == "unsplit":
        continue
    whole["model"]["vocab"] = VOCAB[case["base"]]
    if case["base"] in MERGES:
        whole["model"]["merges"] = MERGES[case["base"]]
    for k, token in enumerate(whole["added_tokens"]):
        token["id"] = IDS[case["base"]].get(token["content"], 40 + k)
    processor = whole["post_processor"]
    for special in (processor or {}).get("special_tokens", {}).values():
        special["ids"] = [0]
    data = b"\1" + json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
    if i % 5 == 0:
        data += b"\0" + json.dumps(CONFIG).encode()
    with open(os.path.join(OUT, f"{i:02d}"), "wb") as f:
        f.write(data)
WORDS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nquick\n##s\na\n##a\nh\u00e9llo\n\u65e5\n"
CASED = {"do_lower_case": False, "strip_accents": True, "unk_token": {"content": "a"}, "tokenizer_class": "BertTokenizer"}
for name, config in ("vocab", b""), ("vocab-cased", b"\0" + json.dumps(CASED).encode()):
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(b"\x81" + WORDS.replace("\n", "\r\n" if config else "\n").encode() + config)
