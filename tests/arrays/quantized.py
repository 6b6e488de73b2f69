"""Quantised arrays and products by index, on generated operands: against NumPy, and bit for bit against MLX where it is
installed.

  quantized.py [--cases N] [--seed N]     needs numpy; mlx if there is one; HEARTH_LIBRARY and PYTHONPATH=python
"""

import sys

import numpy as np
from differential import FLOATS, Operands, mx

import _generated
import hearth as hx

MODES = [("affine", g, b) for g in (32, 64, 128) for b in (2, 3, 4, 5, 6, 8)]
MODES += [("mxfp4", 32, 4), ("mxfp8", 32, 8), ("nvfp4", 16, 4)] * 3

OPERANDS = Operands("quantized", (-2, 2))


def _quantised(rng, lead, rows, columns, mode):
    """(numbers, scales, biases or None), and the elements in double."""
    name, group, bits = mode
    w = rng.normal(size=(*lead, rows, columns)).astype(np.float32)
    dtype = str(rng.choice(["float32", "float16", "bfloat16"]))
    parts = hx.quantize(hx.array(w).astype(getattr(hx, dtype)), group, bits, name)
    elements = hx.dequantize(*parts, group_size=group, bits=bits, mode=name, dtype=hx.float64)
    return (*parts, *[None] * (3 - len(parts))), np.array(elements)


def _close(got, x, w, dtype):
    expected, scale = x @ w, np.abs(x) @ np.abs(w)
    if tuple(got.shape) != expected.shape:
        return f"has shape {got.shape}, expected {expected.shape}"
    if got.dtype.name != dtype:
        return f"is {got.dtype.name}, expected {dtype}"
    wrong = ~(np.abs(np.array(got).astype(np.float64) - expected) <= (FLOATS[dtype] + 64 * 2.0**-23) * scale + 2.0**-19)
    return f"is off at {tuple(int(i) for i in np.argwhere(wrong)[0])}" if np.any(wrong) else None


def _result_dtype(x, parts):
    if parts[1].dtype is hx.uint8 or x.dtype.name == parts[1].dtype.name:
        return x.dtype.name
    return (hx.zeros([1], x.dtype) + hx.zeros([1], parts[1].dtype)).dtype.name


def packing(rng):
    name, group, bits = mode = MODES[int(rng.integers(len(MODES)))]
    shape = (*(int(d) for d in rng.integers(1, 4, int(rng.integers(1, 3)))), 128 * int(rng.integers(1, 3)))
    w = (rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
    kind = int(rng.integers(0, 4))
    w = np.abs(w) if kind == 1 else np.round(w * 2) / 2 if kind == 2 else w * (rng.random(shape[-1]) < 0.1) if kind == 3 else w
    dtype = str(rng.choice(["float32", "float16", "bfloat16"]))
    ours = hx.array(w).astype(getattr(hx, dtype))
    rounded = np.array(ours).astype(np.float64)
    parts = hx.quantize(ours, group, bits, name)
    what = f"quantize{shape} of {dtype} to {mode}"
    # MLX divides in f16, where scales below the normal numbers have lost most of their bits: its elements leave the range.
    largest = np.abs(rounded).reshape(-1, group).max(axis=1) / (448 if name == "mxfp8" else 6)
    subnormal = dtype == "float16" and name[:2] == "mx" and np.any((largest > 0) & (largest < 2.0**-14))
    if mx and not subnormal:
        theirs = mx.quantize(mx.array(w).astype(getattr(mx, dtype)), group, bits, name)
        for part, (a, b) in enumerate(zip(parts, theirs)):
            a, b = np.array(a), np.array(b.astype(mx.float32) if b.dtype == mx.bfloat16 else b)
            if a.dtype.kind == "f" and not np.all(np.isfinite(b)):
                return None  # a scale beyond f16
            if not np.array_equal(a, b):
                return what, f"part {part} has {a[a != b][0]}, MLX {b[a != b][0]}"
    again = np.array(hx.dequantize(*parts, group_size=group, bits=bits, mode=name, dtype=hx.float32)).astype(np.float64)
    groups = np.abs(rounded).reshape(-1, group)
    step = 2 / (2**bits - 1) if name == "affine" else 1 / 4 if bits == 4 else 1 / 16
    allowed = (step + 4 * FLOATS[dtype] * (2**bits if name == "affine" else 1)) * np.max(groups, -1, keepdims=True) + (2e-2 if name == "nvfp4" else 2e-3)
    wrong = np.abs(again.reshape(groups.shape) - rounded.reshape(groups.shape)) > allowed
    wrong &= (np.max(groups, -1, keepdims=True) < 2688) | (name != "nvfp4")  # its scales end there
    return (what, "does not come back") if np.any(wrong) and np.all(np.isfinite(again)) else None


def matmul(rng):
    mode = MODES[int(rng.integers(len(MODES)))]
    transpose = bool(rng.random() < 0.6)
    lead = tuple(int(d) for d in rng.integers(1, 3, int(rng.integers(0, 3))))
    rows, columns, m = int(rng.integers(1, 140)), 128 * int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 4, 5, 30]))
    parts, w = _quantised(rng, lead if rng.random() < 0.5 else (), rows, columns, mode)
    dtype = str(rng.choice(list(FLOATS)))
    ours, theirs = OPERANDS.operand(rng, (*lead, m, columns if transpose else rows), dtype)
    got = hx.quantized_matmul(ours, *parts, transpose=transpose, group_size=mode[1], bits=mode[2], mode=mode[0])
    what = f"quantized_matmul({dtype}{list(ours.shape)}, {w.shape}, {mode}, transpose={transpose})"
    problem = _close(got, theirs.astype(np.float64), np.swapaxes(w, -1, -2) if transpose else w, _result_dtype(ours, parts))
    return (what, problem) if problem else None


def _indices(rng, n_left, n_right):
    shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(1, 3))))
    left = rng.integers(0, n_left, shape).astype(str(rng.choice(["uint32", "int32"])))
    right = rng.integers(0, n_right, shape[int(rng.integers(0, len(shape))) :]).astype("uint32")
    return left, np.sort(right.reshape(-1)).reshape(right.shape) if rng.random() < 0.3 else right


def _flat(x):
    return x.reshape(-1, *x.shape[-2:])


def gather_qmm(rng):
    mode = MODES[int(rng.integers(len(MODES)))]
    transpose = bool(rng.random() < 0.6)
    rows, columns, m = int(rng.integers(1, 140)), 128 * int(rng.integers(1, 3)), int(rng.choice([1, 2, 5]))
    parts, w = _quantised(rng, (int(rng.integers(1, 3)), int(rng.integers(1, 4))), rows, columns, mode)
    dtype = str(rng.choice(list(FLOATS)))
    ours, theirs = OPERANDS.operand(rng, (int(rng.integers(1, 5)), m, columns if transpose else rows), dtype)
    left, right = _indices(rng, len(theirs), len(_flat(w)))
    got = hx.gather_qmm(ours, *parts, hx.array(left), hx.array(right), transpose, mode[1], mode[2], mode[0])
    what = f"gather_qmm({dtype}{list(ours.shape)}, {w.shape}, {left.tolist()}, {right.tolist()}, {mode}, transpose={transpose})"
    chosen = _flat(w)[right]
    x = theirs.astype(np.float64)[np.broadcast_to(left, np.broadcast_shapes(left.shape, right.shape))]
    problem = _close(got, x, np.swapaxes(chosen, -1, -2) if transpose else chosen, _result_dtype(ours, parts))
    return (what, problem) if problem else None


def gather_mm(rng):
    m, k, n = (int(d) for d in rng.integers(1, 40, 3))
    k = k if rng.random() < 0.7 else int(rng.integers(250, 600))
    dtype = str(rng.choice(list(FLOATS)))
    a, wide_a = OPERANDS.operand(rng, (int(rng.integers(1, 5)), m, k), dtype)
    b, wide_b = OPERANDS.operand(rng, (int(rng.integers(1, 3)), int(rng.integers(1, 4)), k, n), dtype)
    left, right = _indices(rng, len(wide_a), len(_flat(wide_b)))
    if rng.random() < 0.2:
        left = None
        right = rng.integers(0, len(_flat(wide_b)), len(wide_a)).astype("int32")
    got = hx.gather_mm(a, b, None if left is None else hx.array(left), hx.array(right))
    chosen = _flat(wide_b.astype(np.float64))[right]
    x = wide_a.astype(np.float64)
    x = x if left is None else x[np.broadcast_to(left, np.broadcast_shapes(left.shape, right.shape))]
    problem = _close(got, x, chosen, dtype)
    return (f"gather_mm({dtype}{list(a.shape)}, {list(b.shape)}, {left}, {right})", problem) if problem else None


CASES = [packing, matmul, gather_qmm, gather_mm]


if __name__ == "__main__":
    sys.exit(_generated.run(CASES, lambda rng, case: case(rng), cases=2000, against="NumPy and MLX" if mx else "NumPy"))
