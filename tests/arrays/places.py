"""Elements of generated arrays by their place, against NumPy.

  places.py [--cases N] [--seed N]     needs numpy; HEARTH_LIBRARY and PYTHONPATH=python

Arrays have random shapes, dtypes and strides; indices are integers, slices, None, ... and arrays of any integer dtype, with
negative ones among them. Results are equal, sums of floating point to rounding. The smallest failing case is printed.
"""

import sys

import numpy as np
from differential import DTYPES, FLOATS, INTS, Operands

import _generated
import hearth as hx

_operands = Operands("places")


def _shape(rng, least=1, empty=0.05):
    if rng.random() < 0.05:
        return (int(rng.integers(1, 3)), int(rng.integers(200, 3000)))
    return tuple(int(d) for d in rng.integers(0 if rng.random() < empty else 1, 6, int(rng.integers(least, 6))))


def _dtype(rng):
    return str(rng.choice(DTYPES))


def _array(rng, shape, dtype=None):
    """(ours, NumPy's)."""
    return _operands.operand(rng, shape, dtype or _dtype(rng))


def _places(rng, shape, n):
    """Indices of n elements, as (ours, NumPy's)."""
    dtype = str(rng.choice(INTS))
    low = 0 if dtype[0] == "u" else -n
    values = rng.integers(max(low, -100), min(n, 100), shape).astype(dtype)
    return hx.array(values), values.astype(np.int64)


def _index(rng, shape, arrays=True):
    """An index of [...], twice."""
    n, ours, theirs = int(rng.integers(0, len(shape) + 1)), [], []
    common = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.05 else 1, 5, int(rng.integers(0, 3))))
    for size in shape[:n]:
        kind = rng.random()
        if size and kind < 0.25:
            i = int(rng.integers(-size, size))
        elif size and arrays and kind < 0.6:
            own = tuple(1 if rng.random() < 0.3 else d for d in common)[int(rng.integers(0, len(common) + 1)) :]
            places = _places(rng, own, size)
            ours.append(places[0])
            theirs.append(places[1])
            continue
        else:
            ends = [None if rng.random() < 0.4 else int(rng.integers(-6, 7)) for _ in range(2)]
            i = slice(*ends, None if rng.random() < 0.4 else int(rng.choice([1, 2, -1, -3])))
        ours.append(i)
        theirs.append(i)
    for _ in range(int(rng.integers(0, 3)) if rng.random() < 0.4 else 0):
        at = int(rng.integers(0, len(ours) + 1))
        ours.insert(at, None)
        theirs.insert(at, None)
    if rng.random() < 0.3 and n < len(shape):
        ours.append(Ellipsis)
        theirs.append(Ellipsis)
        if rng.random() < 0.5 and shape[-1] and n + 1 < len(shape):  # NumPy minds an ... that stands for nothing, MLX does not
            i = int(rng.integers(0, shape[-1]))
            ours.append(i)
            theirs.append(i)
    return tuple(ours), tuple(theirs)


def _axis(rng, shape):
    return int(rng.integers(-len(shape), len(shape)))


def _nonempty(shape):
    return tuple(max(d, 1) for d in shape)


def take(rng):
    (a, x), axis = _array(rng, shape := _nonempty(_shape(rng))), None
    axis = None if rng.random() < 0.2 else _axis(rng, shape)
    i, j = _places(rng, _shape(rng, 0)[:2], x.size if axis is None else shape[axis])
    return hx.take(a, i, axis), np.take(x, j, axis), (a, i, axis)


def take_along_axis(rng):
    shape = _nonempty(_shape(rng))
    a, x = _array(rng, tuple(1 if rng.random() < 0.1 else d for d in shape))
    axis = _axis(rng, shape)
    like = [int(rng.integers(0, 5)) if k == axis % len(shape) else d if rng.random() < 0.9 else 1 for k, d in enumerate(shape)]
    i, j = _places(rng, like, x.shape[axis])
    return hx.take_along_axis(a, i, axis), np.take_along_axis(x, j, axis), (a, i, axis)


def put_along_axis(rng):
    a, x = _array(rng, shape := _nonempty(_shape(rng)))
    axis = _axis(rng, shape)
    like = [int(rng.integers(0, 5)) if k == axis % len(shape) else d if rng.random() < 0.9 else 1 for k, d in enumerate(shape)]
    i, j = _places(rng, like, shape[axis])
    v, w = _array(rng, tuple(like) if rng.random() < 0.7 else (), a.dtype.name)
    expected = x.copy()
    # NumPy's order is that of the index, too
    np.put_along_axis(expected, j, w, axis)
    return hx.put_along_axis(a, i, v, axis), expected, (a, i, v, axis)


def get(rng):
    a, x = _array(rng, shape := _shape(rng))
    i, j = _index(rng, shape)
    return a[i], x[j], (a, j)


def _values(rng, x, j, dtype):
    """What can be put to x[j]."""
    shape = x[j].shape
    shape = tuple(1 if rng.random() < 0.2 else d for d in shape)
    return _array(rng, shape[int(rng.integers(0, len(shape) + 1)) :] if rng.random() < 0.3 else shape, dtype)


def put(rng):
    a, x = _array(rng, shape := _shape(rng))
    i, j = _index(rng, shape)
    v, w = _values(rng, x, j, a.dtype.name)
    kept, expected = a + 0 if a.dtype is not hx.bool_ else a | False, x.copy()
    before = a[...]
    expected[j] = w
    a[i] = v
    same = bool(np.array_equal(np.array(before), np.array(kept), equal_nan=x.dtype.kind == "f"))
    return a if same else before, expected, (shape, j, v)


def put_masked(rng):
    a, x = _array(rng, shape := _shape(rng))
    mask = rng.random(shape[: int(rng.integers(1, len(shape) + 1))]) < 0.5
    n, rest = int(mask.sum()), shape[mask.ndim :]
    v, w = _array(rng, (n, *rest) if n and rng.random() < 0.5 else rest, a.dtype.name)
    expected = x.copy()
    expected[mask] = w
    a[hx.array(mask)] = v
    return a, expected, (shape, mask, v)


def at(rng):
    dtype = str(rng.choice([d for d in DTYPES if d != "bool_"]))
    a, x = _array(rng, shape := _shape(rng), dtype)
    i, j = _index(rng, shape)
    v, w = _values(rng, x, j, dtype)
    name = str(rng.choice(["add", "subtract", "multiply", "maximum", "minimum"]))
    wide = x.astype(np.float64) if dtype in FLOATS else x.copy()
    if name == "multiply":
        v, w = hx.maximum(hx.minimum(v, 2), 1), np.maximum(np.minimum(w, 2), 1)
    with np.errstate(all="ignore"):
        # NumPy 2.4 reads past the end of values that it stretches itself.
        getattr(np, name).at(wide, j, np.broadcast_to(w.astype(wide.dtype), wide[j].shape).copy())
    return getattr(a.at[i], name)(v), wide, (name, a, j, v)


def slice_update(rng):
    a, x = _array(rng, shape := _shape(rng))
    begin = [int(rng.integers(0, d + 1)) for d in shape]
    size = [int(rng.integers(0, d - b + 1)) for d, b in zip(shape, begin)]
    v, w = _array(rng, tuple(size), a.dtype.name)
    expected = x.copy()
    expected[tuple(slice(b, b + n) for b, n in zip(begin, size))] = w
    return hx.slice_update(a, v, hx.array(begin, hx.int32), list(range(len(shape)))), expected, (a, begin, size)


def rows(rng):
    a, x = _array(rng, shape := _shape(rng))
    return hx.stack(list(a)) if shape[0] else a, np.stack(list(x)) if shape[0] else x, (a,)


CALLS = [take, take_along_axis, put_along_axis, get, get, put, put, put_masked, at, at, slice_update, rows]


def check(rng, call):
    got, expected, given = call(rng)
    if tuple(got.shape) != expected.shape:
        return f"{call.__name__}{given}", f"has shape {got.shape}, expected {expected.shape}"
    ours = np.array(got)
    if expected.dtype == np.float64 and got.dtype.name in FLOATS:  # values that joined
        error = np.abs(ours.astype(np.float64) - expected)
        room = 60 * FLOATS[got.dtype.name] * (np.abs(expected) + 60)
        same = (error <= room) | (np.isinf(ours) & (np.abs(expected) > 60000))
    else:
        same = ours == expected
    return None if np.all(same) else (f"{call.__name__}{given}", f"is off at {tuple(np.argwhere(~np.asarray(same))[0])}")


if __name__ == "__main__":
    sys.exit(_generated.run(CALLS, check, cases=6000, against="NumPy"))
