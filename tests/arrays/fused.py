"""Norms, rotary embeddings and attention of generated arrays, against NumPy in double, and against MLX where it is installed.

  fused.py [--cases N] [--seed N]     needs numpy; mlx if there is one; HEARTH_LIBRARY and PYTHONPATH=python

Operands have random shapes, dtypes and strides. NumPy computes from the operands as they are rounded to their dtype.
"""

import sys

import numpy as np
from differential import FLOATS, Operands, mx, promote

import _generated
import hearth as hx

SMALL = Operands("fused", (-2, 2))


def _dtype(rng):
    return str(rng.choice(list(FLOATS)))


def _shape(rng, last):
    return (*(int(d) for d in rng.integers(1, 5, int(rng.integers(0, 4)))), last)


def _row(rng, n, dtype, chance=0.7):
    return SMALL.operand(rng, (n,), dtype) if rng.random() < chance else (None, None)


def rms_norm(rng):
    n, dtype = int(rng.integers(1, 200)), _dtype(rng)
    other = dtype if rng.random() < 0.7 else _dtype(rng)
    x, w = SMALL.operand(rng, _shape(rng, n), dtype), _row(rng, n, other)
    y = x[1].astype(np.float64)
    y = y / np.sqrt(np.mean(y * y, -1, keepdims=True) + 1e-3)
    return [x, w], other if w[0] is not None else dtype, y if w[1] is None else y * w[1], dict(eps=1e-3)


def layer_norm(rng):
    n, dtype = int(rng.integers(1, 200)), _dtype(rng)
    x, w, b = SMALL.operand(rng, _shape(rng, n), dtype), _row(rng, n, dtype), _row(rng, n, dtype)
    y = x[1].astype(np.float64)
    y = (y - np.mean(y, -1, keepdims=True)) / np.sqrt(np.var(y, -1, keepdims=True) + 1e-3)
    y = y if w[1] is None else y * w[1]
    return [x, w, b], dtype, y if b[1] is None else y + b[1], dict(eps=1e-3)


def rope(rng):
    dtype, pairs = _dtype(rng), int(rng.integers(1, 40))
    shape = (*(int(d) for d in rng.integers(1, 4, int(rng.integers(1, 4)))), int(rng.integers(1, 9)), 2 * pairs + int(rng.integers(0, 5)))
    x = SMALL.operand(rng, shape, dtype)
    traditional, scale = bool(rng.random() < 0.5), float(rng.choice([1.0, 0.25]))
    offset = int(rng.integers(0, 100)) if rng.random() < 0.5 else rng.integers(0, 100, shape[0]).astype(np.int32)
    freqs = rng.uniform(1, 50, pairs).astype(np.float32) if rng.random() < 0.3 else None
    turns = 10000.0 ** (-np.arange(pairs) / pairs) if freqs is None else 1 / freqs.astype(np.float64)
    rows = np.reshape(offset, (-1, 1)) + np.arange(shape[-2])
    angle = (rows * scale)[..., None] * turns
    angle = angle.reshape(len(rows), *[1] * (len(shape) - 3), *angle.shape[1:])
    y = x[1].astype(np.float64).copy()
    first = slice(0, 2 * pairs, 2) if traditional else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if traditional else slice(pairs, 2 * pairs)
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first] = a * np.cos(angle) - b * np.sin(angle)
    y[..., second] = b * np.cos(angle) + a * np.sin(angle)
    options = dict(dims=2 * pairs, traditional=traditional, base=10000.0 if freqs is None else None, scale=scale)
    options |= dict(offset=offset, freqs=freqs)
    return [x], dtype, y, options


def scaled_dot_product_attention(rng):
    dtype, group, kv = _dtype(rng), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    batch, n_q, n_k = int(rng.integers(1, 3)), int(rng.integers(1, 40)), int(rng.integers(1, 150))
    if rng.random() < 0.2:  # few queries, whose keys are cut into spans
        n_q, n_k = int(rng.integers(1, 5)), int(rng.integers(500, 1400))
    d, dv, heads = int(rng.integers(1, 80)), int(rng.integers(1, 80)), group * kv
    q = SMALL.operand(rng, (batch, heads, n_q, d), dtype)
    k, v = SMALL.operand(rng, (batch, kv, n_k, d), dtype), SMALL.operand(rng, (batch, kv, n_k, dv), dtype)
    options, add = dict(scale=float(d**-0.5)), np.zeros((n_q, n_k))
    wide = [x.astype(np.float64) for _, x in (q, k, v)]
    kind = int(rng.integers(0, 5))
    if kind in (1, 2):
        options["mask"] = "causal"
        i, j = np.arange(n_q)[:, None] + n_k - n_q, np.arange(n_k)
        if kind == 2:
            options["window"] = int(rng.integers(1, 80))
        add = np.where((j <= i) & (i - j < options.get("window", n_k + 1)), 0.0, -1e300)
    elif kind > 2:
        shape = tuple(1 if rng.random() < 0.3 else s for s in (batch, heads, n_q, n_k))[int(rng.integers(0, 4)) :]
        mask = SMALL.operand(rng, shape, "bool_" if kind == 3 else dtype)
        options["mask"] = mask[0]
        add = np.where(mask[1], 0.0, -1e300) if kind == 3 else mask[1].astype(np.float64)
    scores = np.einsum("bhqd,bhkd->bhqk", wide[0], np.repeat(wide[1], group, 1)) * options["scale"] + add
    top = np.max(scores, -1, keepdims=True)
    total = 0.0
    if rng.random() < 0.3:
        sinks = SMALL.operand(rng, (heads,), dtype)
        options["sinks"] = sinks[0]
        sinks = sinks[1].astype(np.float64).reshape(heads, 1, 1)
        top = np.maximum(top, sinks)
        total = np.exp(sinks - top)
    weights = np.exp(scores - top)
    weights /= np.sum(weights, -1, keepdims=True) + total
    return [q, k, v], dtype, weights @ np.repeat(wide[2], group, 1), options


CASES = [rms_norm, layer_norm, rope, scaled_dot_product_attention]


def to_mlx(x):
    if isinstance(x, hx.array):
        name = x.dtype.name
        return mx.array(np.array(x)).astype(getattr(mx, name))
    return mx.array(x) if isinstance(x, np.ndarray) else x


def to_ours(x):
    return hx.array(x) if isinstance(x, np.ndarray) else x


def difference(got, expected, dtype, ulps):
    scale = np.maximum(np.abs(expected), 1.0)
    wrong = ~(np.abs(got.astype(np.float64) - expected) <= (ulps * FLOATS[dtype] + 64 * FLOATS["float32"]) * scale)
    if not np.any(wrong):
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"gives {got[at]} at {at}, expected {expected[at]}"


def check(rng, make):
    operands, dtype, expected, options = make(rng)
    joined = operands[0][0].dtype.name
    for a, _ in operands:
        joined = joined if a is None else promote(joined, a.dtype.name)
    what = f"{make.__name__}{[None if a is None else f'{a.dtype.name}{list(a.shape)}' for a, _ in operands]} {options}"
    got = getattr(hx.fast, make.__name__)(*(a for a, _ in operands), **{k: to_ours(o) for k, o in options.items()})
    if got.dtype.name != joined:
        return what, f"is {got.dtype.name}, expected {joined}"
    if tuple(got.shape) != expected.shape:
        return what, f"has shape {got.shape}, expected {expected.shape}"
    problem = difference(np.array(got), expected, joined, 2)
    if problem or not mx or "window" in options:
        return (what, problem) if problem else None
    theirs = getattr(mx.fast, make.__name__)(
        *(None if a is None else to_mlx(a) for a, _ in operands), **{k: to_mlx(o) for k, o in options.items()}
    )
    # MLX takes angles in f32, scores in the dtype of x.
    theirs, coarse = np.array(theirs.astype(mx.float32)), "float32" if joined == "float64" else joined
    problem = difference(np.array(got), theirs.astype(np.float64), coarse, 256)
    return (what, f"{problem} by MLX") if problem else None


if __name__ == "__main__":
    sys.exit(_generated.run(CASES, check, cases=2000, against="NumPy and MLX" if mx else "NumPy"))
