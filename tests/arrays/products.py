"""Products of generated arrays, against NumPy in double.

  products.py [--cases N] [--seed N]     needs numpy; HEARTH_LIBRARY and PYTHONPATH=python

Operands have random shapes (vectors, empty ones, batches that broadcast), dtypes and strides. An error is measured against
the same product of magnitudes, in units of the last place of the result's dtype. The smallest failing case is printed.
"""

import sys

import numpy as np
from differential import FLOATS, Operands, promote

import _generated
import hearth as hx

_operands = Operands("products", (-2, 2))


def _size(rng, low=1):
    return int(rng.integers(low, 9)) if rng.random() < 0.9 else int(rng.integers(1, 150))


def _batch(rng):
    return tuple(int(d) for d in rng.integers(1, 4, int(rng.integers(0, 3))))


def _broadcastable(rng, shape):
    return tuple(1 if rng.random() < 0.3 else d for d in shape)[int(rng.integers(0, len(shape) + 1)) :]


def _matmul_shapes(rng):
    m, k, n, batch = _size(rng, 0), _size(rng, 0), _size(rng, 0), _batch(rng)
    a, b = (*_broadcastable(rng, batch), m, k), (*batch, k, n)
    return (k,) if rng.random() < 0.1 else a, (k,) if rng.random() < 0.1 else b


def matmul(rng):
    return _matmul_shapes(rng), lambda xp, a, b: xp.matmul(a, b)


def operator(rng):
    return _matmul_shapes(rng), lambda xp, a, b: a @ b


def addmm(rng):
    m, k, n = _size(rng), _size(rng), _size(rng)
    c = _broadcastable(rng, (m, n))
    return (c, (m, k), (k, n)), lambda xp, c, a, b: xp.addmm(c, a, b, 0.5, 2) if xp is hx else 0.5 * (a @ b) + 2 * c


def inner(rng):
    k = _size(rng)
    return ((*_batch(rng), k), (*_batch(rng), k)), lambda xp, a, b: xp.inner(a, b)


def outer(rng):
    return (_batch(rng), _batch(rng)), lambda xp, a, b: xp.outer(a, b)


def tensordot(rng):
    shared, own_a, own_b = _batch(rng), _batch(rng), _batch(rng)
    if rng.random() < 0.3:
        return ((*own_a, *shared), (*shared, *own_b)), lambda xp, a, b: xp.tensordot(a, b, len(shared))
    places_a = [int(p) for p in rng.permutation(len(shared) + len(own_a))[: len(shared)]]
    places_b = [int(p) for p in rng.permutation(len(shared) + len(own_b))[: len(shared)]]

    def shape(places, own):
        own = list(own)
        return tuple(shared[places.index(i)] if i in places else own.pop() for i in range(len(places) + len(own)))

    axes = [places_a, places_b]
    return (shape(places_a, own_a), shape(places_b, own_b)), lambda xp, a, b: xp.tensordot(a, b, axes)


def einsum(rng):
    letters, size = "abcdeXY", {}
    for letter in letters:
        size[letter] = int(rng.integers(1, 5))
    dots = rng.random() < 0.3
    terms = []
    for _ in range(int(rng.integers(1, 5))):
        terms.append("".join(rng.choice(list(letters), int(rng.integers(0, 4)))))
    hidden = _batch(rng) if dots else ()
    shapes = [(*_broadcastable(rng, hidden), *(size[c] for c in t)) for t in terms]
    written = ["..." * dots + t for t in terms]
    used = sorted({c for t in terms for c in t})
    text = ",".join(written)
    if rng.random() < 0.7:
        text += "->" + "..." * dots + "".join(rng.permutation(used)[: int(rng.integers(0, len(used) + 1))])
    return shapes, lambda xp, *x: xp.einsum(text, *x)


PRODUCTS = [matmul, operator, addmm, inner, outer, tensordot, einsum]


def check(rng, product):
    shapes, call = product(rng)
    dtypes = [str(rng.choice(list(FLOATS)))] * len(shapes)
    if rng.random() < 0.2:
        dtypes = [str(d) for d in rng.choice(list(FLOATS), len(shapes))]
    operands = [_operands.operand(rng, s, d) for s, d in zip(shapes, dtypes)]
    joined = dtypes[0]
    for other in dtypes[1:]:
        joined = promote(joined, other)
    wide = [x.astype(np.float64) for _, x in operands]
    got, expected = call(hx, *(a for a, _ in operands)), np.asarray(call(np, *wide))
    scale = np.asarray(call(np, *(np.abs(x) for x in wide)))
    what = f"{product.__name__}{[f'{d}{list(s)}' for d, s in zip(dtypes, shapes)]}"
    if got.dtype.name != joined:
        return what, f"is {got.dtype.name}, expected {joined}"
    if tuple(got.shape) != expected.shape:
        return what, f"has shape {got.shape}, expected {expected.shape}"
    # What two of several operands give may be rounded to fewer digits; f32 sums are as exact as f32 is.
    ulps = 4 * len(shapes) * max(FLOATS[d] for d in dtypes) + 64 * FLOATS["float32" if joined != "float64" else "float64"]
    wrong = ~(np.abs(np.array(got).astype(np.float64) - expected) <= ulps * scale + 2.0**-24)
    return (what, f"is off at {tuple(np.argwhere(wrong)[0])}") if np.any(wrong) else None


if __name__ == "__main__":
    sys.exit(_generated.run(PRODUCTS, check, cases=3000, against="NumPy"))
