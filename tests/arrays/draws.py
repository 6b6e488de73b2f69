"""Random numbers against MLX, for the same keys.

  draws.py [--cases N] [--seed N]     needs numpy and mlx; HEARTH_LIBRARY and PYTHONPATH=python

Shapes are empty, odd, large, and all numbers are equal to the bit: both libraries take logarithms from the C library.
"""

import sys

import mlx.core as mx
import numpy as np

import _generated
import hearth as hx

mx.set_default_device(mx.cpu)

FLOATS = ["float16", "bfloat16", "float32"]


def _shape(rng):
    if rng.random() < 0.1:
        return (int(rng.integers(1, 200000)),)
    return tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 9, int(rng.integers(0, 5))))


def _stretching(rng, shape):
    return tuple(1 if rng.random() < 0.3 else d for d in shape)[int(rng.integers(0, len(shape) + 1)) :]


def _bounds(rng, shape):
    """Two numbers, or arrays that stretch to the shape; the first below the second."""
    if rng.random() < 0.5:
        low = float(np.round(rng.uniform(-5, 5), 2))
        return low, low + float(np.round(rng.uniform(0.1, 9), 2))
    low = rng.uniform(-5, 5, _stretching(rng, shape)).astype(np.float32)
    high = (low.max(initial=-5) + rng.uniform(0.1, 9, _stretching(rng, shape))).astype(np.float32)
    return low, high


def _both(values):
    """An argument for either library."""
    return (hx.array(values), mx.array(values)) if isinstance(values, np.ndarray) else (values, values)


def _float(rng):
    return str(rng.choice(FLOATS))


def split(rng, xp, key, shape):
    return xp.random.split(key, shape[0]) if shape else xp.random.split(key)


def uniform(rng, xp, key, shape):
    (low, high), dtype = _bounds(rng, shape), getattr(xp, _float(rng))
    if rng.random() < 0.3:
        return xp.random.uniform(shape=shape, dtype=dtype, key=key)
    at = 0 if xp is hx else 1
    return xp.random.uniform(_both(low)[at], _both(high)[at], shape, dtype, key)


def normal(rng, xp, key, shape):
    dtype = getattr(xp, _float(rng))
    if rng.random() < 0.4:
        return xp.random.normal(shape, dtype, key=key)
    return xp.random.normal(shape, dtype, float(rng.integers(-3, 3)), float(rng.uniform(0.1, 3)), key)


def truncated_normal(rng, xp, key, shape):
    low, high = float(rng.uniform(-2, 1)), float(rng.uniform(1.1, 3))
    if rng.random() < 0.5:
        low, high = xp.array([low, low / 2, -9.0]), xp.array(high)
        return xp.random.truncated_normal(low, high, None if rng.random() < 0.5 else (*shape, 3), getattr(xp, _float(rng)), key)
    return xp.random.truncated_normal(low, high, shape, getattr(xp, _float(rng)), key)


def laplace(rng, xp, key, shape):
    loc, scale = float(rng.integers(-3, 3)), float(rng.uniform(0.1, 3))
    return xp.random.laplace(shape, getattr(xp, _float(rng)), loc, scale, key)


def gumbel(rng, xp, key, shape):
    return xp.random.gumbel(shape, getattr(xp, _float(rng)), key)


def randint(rng, xp, key, shape):
    """Where MLX draws all of the integers; it may round up to the bound above."""
    if rng.random() < 0.5:
        low, n = int(rng.integers(-100, 100)), int(rng.integers(1, 28))
        dtype = str(rng.choice(["int8", "int16", "int32", "int64"]))
    else:
        n = int(rng.integers(1024, 100000))
        low, dtype = int(rng.integers(-(2**17), 2**17 - n)), str(rng.choice(["int32", "int64"]))
    return xp.minimum(xp.random.randint(low, low + n, shape, getattr(xp, dtype), key), low + n - 1)


def bernoulli(rng, xp, key, shape):
    p = rng.random(_stretching(rng, shape)).astype(np.float32)
    if rng.random() < 0.5:
        return xp.random.bernoulli(float(rng.random()), shape, key)
    return xp.random.bernoulli(xp.array(p), shape if rng.random() < 0.7 else None, key)


def categorical(rng, xp, key, shape):
    shape = tuple(max(d, 1) for d in shape[:3]) + (int(rng.integers(1, 9)),)
    axis = int(rng.integers(-len(shape), len(shape)))
    logits, how = xp.array(rng.normal(size=shape).astype(np.float32)).astype(getattr(xp, _float(rng))), rng.random()
    if how < 0.3:
        return xp.random.categorical(logits, axis, num_samples=int(rng.integers(1, 9)), key=key)
    if how < 0.6:
        rest = [d for k, d in enumerate(shape) if k != axis % len(shape)]
        return xp.random.categorical(logits, axis, shape=[int(rng.integers(1, 5)), *rest], key=key)
    return xp.random.categorical(logits, axis, key=key)


def permutation(rng, xp, key, shape):
    if not shape or rng.random() < 0.4:
        return xp.random.permutation(int(rng.integers(1, 500)), key=key)
    x = xp.array(np.arange(int(np.prod(shape))).reshape(shape).astype(np.int32))
    return xp.random.permutation(x, int(rng.integers(-len(shape), len(shape))), key)


def from_state(rng, xp, key, shape):
    xp.random.seed(int(rng.integers(0, 2**40)))
    first = xp.random.uniform(shape=shape)
    return xp.concatenate([first.flatten(), xp.random.normal((7,)), xp.random.uniform(shape=(3,))])


CALLS = [
    split, uniform, uniform, normal, truncated_normal, laplace, gumbel, randint, bernoulli, categorical, permutation,
    from_state,
]  # fmt: skip


def check(rng, call):
    seed, results = int(rng.integers(1 << 62)), []
    for xp in (hx, mx):
        rng = np.random.default_rng(seed)  # the same arguments
        key = xp.random.key(int(rng.integers(0, 2**63)))
        results.append(call(rng, xp, key, _shape(rng)))
    ours, theirs = results
    dtype = ours.dtype.name
    if dtype.rstrip("_") != str(theirs.dtype).split(".")[-1].rstrip("_") or tuple(ours.shape) != tuple(theirs.shape):
        return call.__name__, f"is {dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}"
    if dtype == "bfloat16":
        theirs = theirs.astype(mx.float32)
    got, expected = np.array(ours), np.array(theirs)
    same = (got == expected) | ((got != got) & (expected != expected))
    if np.all(same):
        return None
    return call.__name__, f"{dtype}{list(got.shape)} is {got.flat[:8]}, expected {expected.flat[:8]}", got.size


if __name__ == "__main__":
    sys.exit(_generated.run(CALLS, check, cases=3000, against="MLX"))
