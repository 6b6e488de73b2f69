"""Makes tests/golden/random.inc: the random numbers of MLX on a CPU, as the CRC-32 of 100,001 of them and the first four.

    python3 tests/golden/make_random.py > tests/golden/random.inc      (needs: pip install mlx[cpu]==0.32.4, glibc 2.28 or newer)
"""
import platform
import zlib

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
N, SEEDS = 100001, [0, 7, 2**31, 2**40 + 3, 2**63 + 5, 2**64 - 1]
DTYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
LOGITS = mx.arange(1000).astype(mx.float32) * 37 % 101 / 13  # exact in f32 but for the last division


def drawn(kind, dtype, key):
    dtype = DTYPES.get(dtype)
    if kind == "UNIFORM":
        return mx.random.uniform(-1.25, 3.5, (N,), dtype, key)
    if kind == "NORMAL":
        return mx.random.normal((N,), dtype, key=key)
    if kind == "NORMAL_MOVED":
        return mx.random.normal((N,), dtype, 0.75, 1.5, key)
    if kind == "TRUNCATED_NORMAL":
        return mx.random.truncated_normal(-0.75, 2.5, (N,), dtype, key)
    if kind == "LAPLACE":
        return mx.random.laplace((N,), dtype, 0.75, 1.5, key)
    if kind == "GUMBEL":
        return mx.random.gumbel((N,), dtype, key)
    if kind == "RANDINT":
        return mx.random.randint(-1000, 100000, (N,), mx.int32, key)
    if kind == "BERNOULLI":
        return mx.random.bernoulli(0.375, (N,), key)
    if kind == "CATEGORICAL_ONE":
        return mx.random.categorical(LOGITS, num_samples=N, key=key)
    if kind == "CATEGORICAL":
        return mx.random.categorical(mx.broadcast_to(LOGITS, (101, 1000)), key=key)
    if kind == "PERMUTATION":
        return mx.random.permutation(N, key=key)
    return mx.random.split(key, N)


def words(x):
    if x.dtype in DTYPES.values():
        x = x.view(mx.uint32 if x.dtype == mx.float32 else mx.uint16)
    return np.ascontiguousarray(np.array(x)).reshape(-1)


if __name__ == "__main__":
    print(f"/* Made by tests/golden/make_random.py with mlx {mx.__version__} and {' '.join(platform.libc_ver())}; do not edit. */")
    print("/* kind, dtype, seed, CRC-32, first words */")
    real = ["UNIFORM", "NORMAL", "NORMAL_MOVED", "TRUNCATED_NORMAL", "LAPLACE", "GUMBEL"]
    other = {"RANDINT": "I32", "BERNOULLI": "BOOL", "CATEGORICAL_ONE": "U32", "CATEGORICAL": "U32", "PERMUTATION": "U32", "SPLIT": "U32"}
    for kind, dtype in [(k, d) for k in real for d in DTYPES] + list(other.items()):
        for seed in SEEDS[:: 1 if dtype == "F32" else 2]:
            x = words(drawn(kind, dtype, mx.random.key(seed)))
            first = ", ".join(f"0x{int(w) & 0xFFFFFFFF:x}" for w in x[:4])
            print(f"{{{kind}, HT_{dtype}, UINT64_C({seed}), 0x{zlib.crc32(x.tobytes()):08x}, {{{first}}}}},")
