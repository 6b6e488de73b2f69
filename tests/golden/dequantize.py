"""Makes tests/golden/dequantize.inc: random blocks of every weight type with the CRC-32 of the values that the `gguf`
package gives them, as little-endian float32. Of 8-bit floats, all finite values, as PyTorch reads them.

    python3 tests/golden/dequantize.py > tests/golden/dequantize.inc      (needs: pip install gguf==0.19.0 torch)

Scales run over ordinary, tiny (denormal), huge, negative and zero halves; infinities and NaNs are left out of quantised
blocks, because what a NaN's bits are after arithmetic is the machine's choice."""
import zlib

import gguf
import numpy as np
import torch

HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [],
          "TQ2_0": [64], "TQ1_0": [52], "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
          "IQ3_XXS": [0], "IQ3_S": [0]}
SPECIAL = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00], dtype=np.uint16)
rng = np.random.default_rng(20)


def blocks(name, size):
    n = 256 // size + 16 if name not in HALVES else 24 if size < 64 else 16
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES.get(name, []):
        scale = rng.normal(0, 0.05, n).astype(np.float16).view(np.uint16)
        scale[: len(SPECIAL)] = rng.permutation(SPECIAL)
        raw[:, at : at + 2] = scale.view(np.uint8).reshape(n, 2)
    if name == "IQ1_M":  # the scale is spread over four words
        scale = rng.normal(0, 0.05, n).astype(np.float16).view(np.uint16)
        scale[: len(SPECIAL)] = rng.permutation(SPECIAL)
        for i in range(4):
            raw[:, 49 + 2 * i] = raw[:, 49 + 2 * i] & 15 | (scale >> 4 * i & 15) << 4
    if name == "MXFP4":
        raw[:, 0] = np.linspace(0, 251, n)
    return raw


def show(name, raw, values):
    print(f"static const unsigned char {name.lower()}_blocks[] = {{")
    flat = raw.ravel()
    for i in range(0, len(flat), 32):
        print("    " + ",".join(str(b) for b in flat[i : i + 32]) + ",")
    print("};")
    print(f"enum {{ {name}_COUNT = {len(values)} }};")
    print(f"#define {name}_CRC 0x{zlib.crc32(values.astype('<f4').tobytes()):08x}u")


print("/* Made by tests/golden/dequantize.py with gguf 0.19.0 and numpy; do not edit. */")
for name in ["F32", "F16", "BF16", *HALVES]:
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.constants.GGML_QUANT_SIZES[kind]
    raw = blocks(name, size)
    if name == "F16":  # NaNs are left to test_dequantize.c: making them quiet changes bits
        raw = raw[np.isfinite(raw.view(np.float16)).ravel()]
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(raw if block > 1 else raw.ravel(), kind).ravel()
    assert np.isfinite(values).all() or block == 1
    show(name, raw, values)

for name, kind in (("F8_E4M3", torch.float8_e4m3fn), ("F8_E5M2", torch.float8_e5m2)):
    values = torch.arange(256, dtype=torch.uint8).view(kind).float().numpy()
    finite = np.isfinite(values)
    show(name, np.arange(256, dtype=np.uint8)[finite], values[finite])
