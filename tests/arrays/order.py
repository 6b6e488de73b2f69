"""Elements of generated arrays in order, against NumPy.

  order.py [--cases N] [--seed N]     needs numpy; HEARTH_LIBRARY and PYTHONPATH=python

Rows are short, long and empty, of any dtype and strides, with equal elements, zeros of both signs, infinities and NaN.
"""

import sys

import numpy as np
from differential import DTYPES, FLOATS, Operands

import _generated
import hearth as hx


class Unordered(Operands):
    """Whole ranges of integers, and what is no number."""

    def values(self, rng, shape, dtype):
        x = super().values(rng, shape, dtype)
        if dtype in FLOATS:
            odd = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.5], shape)
            x = np.where(rng.random(shape) < rng.choice([0, 0.3]), odd, x).astype(x.dtype)
        return x


_operands = Unordered("order")


def _ordered(x, axis=-1):
    """NumPy's sort. Its unstable one loses the order of float16 where there is a NaN, on processors with AVX512_ICL (2.4.6)."""
    return np.sort(x, axis, kind="stable")


LENGTHS = [0, 1, 2, 5, 24, 60, 129, 300, 3000, 17000, 40000, 70001]


def _array(rng):
    n = int(rng.choice(LENGTHS[:8] if rng.random() < 0.9 else LENGTHS))
    shape = [n] if n > 500 else [*(int(d) for d in rng.integers(1, 5, int(rng.integers(0, 4)))), n]
    axis = int(rng.integers(0, len(shape)))
    shape[axis], shape[-1] = shape[-1], shape[axis]
    return *_operands.operand(rng, tuple(shape), str(rng.choice(DTYPES))), axis - (len(shape) if rng.random() < 0.5 else 0)


def _same(got, expected):
    return np.array_equal(got, expected, equal_nan=expected.dtype.kind == "f")


def _is_parted(parted, ordered, kth, axis):
    """Whether the element at kth is right, and what is on either side of it belongs there."""
    before, behind = np.split(parted, [kth], axis)
    right = np.concatenate([_ordered(before, axis), _ordered(behind, axis)], axis)
    return _same(right, ordered) and _same(np.take(parted, kth, axis), np.take(ordered, kth, axis))


def sort(rng, a, x, axis):
    return _same(np.array(hx.sort(a, axis)), _ordered(x, axis))


def argsort(rng, a, x, axis):
    places = hx.argsort(a, axis)
    return places.dtype is hx.uint32 and _same(np.array(places), np.argsort(x, axis, kind="stable"))


def flat(rng, a, x, axis):
    return _same(np.array(hx.sort(a, None)), _ordered(x, None))


def _kth(rng, x, axis):
    kth = int(rng.integers(0, x.shape[axis]))
    return kth, kth - (x.shape[axis] if rng.random() < 0.5 else 0)


def partition(rng, a, x, axis):
    if not x.size:
        return True
    kth, given = _kth(rng, x, axis)
    return _is_parted(np.array(hx.partition(a, given, axis)), _ordered(x, axis), kth, axis)


def argpartition(rng, a, x, axis):
    if not x.size:
        return True
    kth, given = _kth(rng, x, axis)
    places = np.array(hx.argpartition(a, given, axis)).astype(np.int64)
    counting = np.arange(x.shape[axis]).reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])
    all_there = np.array_equal(_ordered(places, axis), np.broadcast_to(counting, x.shape))
    return all_there and _is_parted(np.take_along_axis(x, places, axis), _ordered(x, axis), kth, axis)


def topk(rng, a, x, axis):
    n = x.shape[axis]
    k = int(rng.integers(0, n + 1))
    got = np.array(hx.topk(a, k, axis))
    return _same(_ordered(got, axis), np.split(_ordered(x, axis), [n - k], axis)[1])


def _near(rng):
    """Keys of 64 bits that differ in their lowest bits alone, with some far away."""
    n = int(rng.choice([2, 40, 300, 5000, 40000]))
    close = rng.integers(0, 1 << int(rng.integers(1, 24)), n)
    far = rng.integers(-(2**62), 2**62, n)
    keys = np.where(rng.random(n) < rng.choice([0.1, 0.001]), far, close + (1 << 52))
    dtype = str(rng.choice(["int64", "uint64", "float64"]))
    keys = keys.view(np.float64) if dtype == "float64" else keys.astype(dtype)
    return hx.array(keys, dtype=getattr(hx, dtype)), keys, 0


def near(rng, a, x, axis):
    return argsort(rng, a, x, axis)


def _few(rng):
    """Few different elements, with rare others, which a sample may miss."""
    n, dtype = int(rng.choice([300, 3000, 9000, 40000, 140000])), str(rng.choice(DTYPES))
    table = _operands.values(rng, (int(rng.integers(1, 15)),), dtype)
    x = rng.choice(table, n)
    rare = rng.random(n) < rng.choice([0, 2 / n])
    x = np.where(rare, _operands.values(rng, (n,), dtype), x).astype(x.dtype)
    a = hx.array(x, getattr(hx, dtype)) if dtype != "bool_" else hx.array(x)
    return a, np.array(a), 0


def few(rng, a, x, axis):
    return all(call(rng, a, x, axis) for call in (sort, argsort, partition, argpartition))


OPERANDS = {near: _near, few: _few}


def check(rng, call):
    a, x, axis = OPERANDS.get(call, _array)(rng)
    if call(rng, a, x, axis):
        return None
    return f"{call.__name__}({a.dtype.name}{list(x.shape)}, axis {axis})", str(x.tolist()) if x.size < 30 else "", x.size


CALLS = [sort, argsort, flat, partition, argpartition, topk, near, few]


if __name__ == "__main__":
    sys.exit(_generated.run(CALLS, check, cases=6000, against="NumPy"))
