#!/usr/bin/env python3
"""Compares `hearth tokenize` with Hugging Face `tokenizers` over generated texts.

    check_tokenizer.py HEARTH MODEL.gguf [--texts 5000] [--seed 1] [--json DIRECTORY]

HEARTH tokenizes MODEL.gguf, and with --json also DIRECTORY (written by tokenizer_reference.py from the same file). The
reference is that of tokenizer_reference.py. Exits 1 on any mismatch. Installs nothing."""
import argparse
import subprocess
import sys

import tokenizer_reference
from tokenizer_texts import make_texts


def hearth_ids(command, model, texts):
    done = subprocess.run([command, "tokenize", model, "--null"], input=b"\0".join(texts) + b"\0", capture_output=True)
    if done.returncode:
        sys.exit(f"{command} tokenize {model}: {done.stderr.decode()}")
    lines = done.stdout.decode().split("\n")[:-1]
    if len(lines) != len(texts):
        sys.exit(f"{command} tokenize {model}: {len(lines)} lines for {len(texts)} texts")
    return [[int(x) for x in line.split()] for line in lines]


def texts_for(tokenizer, fields, n, seed):
    names = sorted(t.content for t in tokenizer.get_added_tokens_decoder().values())
    size = len(fields["tokenizer.ggml.tokens"])
    readable = [tokenizer.decode([i]) for i in range(0, size, max(1, size // 4000))]
    readable = [t for t in readable if t and "\ufffd" not in t]
    rare = [t for t in names if len(t) > 2]
    return make_texts(n, rare[:40] + names[:: max(1, len(names) // 40)], readable, seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("hearth")
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    tokenizer, fields, _ = tokenizer_reference.make(args.model)
    texts = texts_for(tokenizer, fields, args.texts, args.seed)
    expected = [e.ids for e in tokenizer.encode_batch([t.decode("utf-8", "replace") for t in texts],
                                                      add_special_tokens=False)]  # fmt: skip
    failures = 0
    for model in [args.model] + ([args.json] if args.json else []):
        found = hearth_ids(args.hearth, model, texts)
        wrong = [i for i in range(len(texts)) if found[i] != expected[i]]
        print(f"{model}: {len(texts)} texts, {sum(map(len, expected))} ids, {len(wrong)} mismatches")
        for i in wrong[:5]:
            print(f"  {texts[i][:200]!r}\n    expected {expected[i][:40]}\n    found    {found[i][:40]}")
        failures += len(wrong)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
