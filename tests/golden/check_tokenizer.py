#!/usr/bin/env python3
"""Compares `hearth tokenize` with Hugging Face `tokenizers` over generated texts.

    check_tokenizer.py HEARTH MODEL.gguf [--texts 5000] [--seed 1] [--json DIRECTORY] [--offsets TOKEN_OFFSETS]

HEARTH tokenizes MODEL.gguf, and with --json also DIRECTORY (written by tokenizer_reference.py from the same file). With
--offsets the program of tests/golden/token_offsets.c does, and the bytes that tokens come from are compared, too. The
reference is that of tokenizer_reference.py. Exits 1 on any mismatch. Installs nothing."""
import argparse
import itertools
import subprocess
import sys

import tokenizer_reference
from tokenizer_texts import make_texts


def lines_of(command, texts):
    done = subprocess.run(command, input=b"\0".join(texts) + b"\0", capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode()}")
    lines = done.stdout.decode().split("\n")[:-1]
    if len(lines) != len(texts):
        sys.exit(f"{' '.join(command)}: {len(lines)} lines for {len(texts)} texts")
    return [line.split() for line in lines]


def with_offsets(text, encoding):
    at = list(itertools.accumulate((len(c.encode()) for c in text), initial=0))
    return [f"{i}:{at[begin]}-{at[end]}" for i, (begin, end) in zip(encoding.ids, encoding.offsets)]


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
    parser.add_argument("--offsets")
    args = parser.parse_args()
    tokenizer, fields, _ = tokenizer_reference.make(args.model)
    texts = texts_for(tokenizer, fields, args.texts, args.seed)
    repaired = [t.decode("utf-8", "replace") for t in texts]
    encodings = tokenizer.encode_batch(repaired, add_special_tokens=False)
    if args.offsets:
        texts = [t.encode() for t in repaired]
        expected = [with_offsets(t, e) for t, e in zip(repaired, encodings)]
    else:
        expected = [[str(i) for i in e.ids] for e in encodings]
    failures = 0
    for model in [args.model] + ([args.json] if args.json else []):
        command = [args.offsets, model] if args.offsets else [args.hearth, "tokenize", model, "--null"]
        found = lines_of(command, texts)
        wrong = [i for i in range(len(texts)) if found[i] != expected[i]]
        print(f"{model}: {len(texts)} texts, {sum(map(len, expected))} ids, {len(wrong)} mismatches")
        for i in wrong[:5]:
            print(f"  {texts[i][:200]!r}\n    expected {expected[i][:40]}\n    found    {found[i][:40]}")
        failures += len(wrong)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
