#!/usr/bin/env python3
"""Writes the corpus of tests/fuzz/fuzz_cache_file.c: prefix caches that its two models take, and some that they do not."""

import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent / "corpus/fuzz_cache_file"
LAYERS, VECTORS = (1, 6), (4 * 8 * 2, 4 * 16 * 2)  # of llama and gemma3: keys and values of 2 heads in f16
STATE = 2 * 32  # of lfm2: f32 values of the first and the last of three layers, the other is as in llama


def node(model, tokens, parent=0, salt=b"", layers=None, n=None):
    """One node: the number of its parent plus one, its tokens, the layers whose pages are there."""
    n, has = len(tokens) if n is None else n, layers or [1] * LAYERS[model]
    data = struct.pack("<QII", parent, n, len(salt)) + salt + struct.pack(f"<{len(tokens)}i", *tokens) + bytes(has)
    data += b"\x00\x3c" * (sum(has) * len(tokens) * VECTORS[model] // 2)
    return struct.pack("<H", min(len(data), 65535)) + data


def recurrent(tokens, states, parent=0):
    """A node of the recurrent model, with states after some of its tokens."""
    data = struct.pack("<QII", parent, len(tokens), 0) + struct.pack(f"<{len(tokens)}i", *tokens) + b"\0\1\0"
    data += b"\x00\x3c" * (len(tokens) * VECTORS[0] // 2)
    for n in states:
        data += struct.pack("<H", n) + b"\0\0\x80\x3f" * (2 * STATE)
    return struct.pack("<H", min(len(data), 65535)) + data


page, other = [i % 60 for i in range(256)], [1 + i % 60 for i in range(256)]
FOLDER.mkdir(parents=True, exist_ok=True)
for name, data in {
    "empty": b"\0", "short": b"\0" + node(0, [8, 6, 7]), "salted": b"\0" + node(0, [5, 6, 7], salt=b"mine") + node(0, [5, 6]),
    "tree": b"\0" + node(0, page) + node(0, [5, 6, 7], 1) + node(0, [5, 8, 9, 10], 1) + node(0, other),
    "sliding": b"\1" + node(1, [5, 6, 7] * 9), "gone": b"\1" + node(1, [8, 6, 7], layers=[0, 0, 1, 0, 0, 1]),
    "missing": b"\0" + node(0, [5, 6], layers=[0]), "orphan": b"\0" + node(0, [5, 6], 3), "partial": b"\0" + node(0, [5, 6]) + node(0, [7], 1),
    "states": b"\4" + recurrent([5, 6, 7], [3, 1]) + recurrent([6, 7], []), "unordered": b"\4" + recurrent([5, 6, 7], [1, 3]),
    "deep": b"\4" + recurrent([i % 40 for i in page], [256, 20]) + recurrent([5, 6], [2], 1), "beyond": b"\4" + recurrent([5, 6], [3]),
    "more": b"\0" + node(0, [5, 6], n=200), "raw": b"\x02HEARTHST\x01\0\0\0\0\0\0\0" + bytes(16),
}.items():  # fmt: skip
    (FOLDER / name).write_bytes(data)
