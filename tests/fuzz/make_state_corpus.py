#!/usr/bin/env python3
"""Writes the corpus of tests/fuzz/fuzz_state.c: states that its two models take, and some that they do not."""

import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent / "corpus/fuzz_state"
LAYERS, VECTORS = (1, 6), (4 * 8 * 2, 4 * 16 * 2)  # of llama and gemma3: keys and values of 2 heads in f16
STATE = 2 * 32  # of lfm2: f32 values of the first and the last of three layers, the other is as in llama


def section(kind, index, data=b""):
    return struct.pack("<BBH", kind, index, len(data)) + data


def state(model, length, tokens, first=0, layers=None):
    pages = struct.pack("<Q", first) + b"\x00\x3c" * ((length - first) * VECTORS[model] // 2)
    body = section(1, 0) + section(2, 0, struct.pack(f"<QQ{tokens}i", length, tokens, *range(tokens)))
    return bytes([model]) + body + b"".join(section(3, i, pages) for i in range(LAYERS[model] if layers is None else layers))


def states(length, positions, layers=None):
    """A state of the recurrent model, with snapshots at some positions."""
    body = section(1, 0) + section(2, 0, struct.pack(f"<QQ{length}i", length, length, *range(length)))
    body += section(6, 0, struct.pack(f"<{len(positions)}Q", *positions))
    of_layer = b"\0\0\x80\x3f" * STATE * (len(positions) + (length > 0) if layers is None else layers)
    keys = struct.pack("<Q", 0) + b"\x00\x3c" * (length * VECTORS[0] // 2)
    return b"\x04" + body + section(3, 0, of_layer) + section(3, 1, keys) + section(3, 2, of_layer)


wrapped = bytes([0]) + section(1, 0) + section(2, 0, struct.pack("<QQ4i", 4, 1 << 63 | 4, *range(4)))  # 4 bytes each: 16
FOLDER.mkdir(parents=True, exist_ok=True)
for name, data in {
    "empty": state(0, 0, 0), "short": state(0, 3, 3), "pending": state(0, 3, 4), "sliding": state(1, 12, 12),
    "states": states(12, [3, 7]), "no_states": states(0, []), "few_states": states(12, [3], layers=1),
    "unordered": states(12, [7, 7]), "beyond": states(12, [12]), "late": state(1, 12, 12, first=4), "missing": state(1, 2, 2, layers=3), "wrapped": wrapped, "raw": b"\x02HEARTHST\x01\0\0\0\0\0\0\0" + bytes(16),
}.items():  # fmt: skip
    (FOLDER / name).write_bytes(data)
