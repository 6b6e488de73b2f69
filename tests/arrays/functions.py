"""Functions with few kinds of arguments, each against MLX's, where it is installed, on cases written down here."""

import math
import unittest

import numpy as np

import hearth as hx

try:
    import mlx.core as mx
except ImportError:
    mx = None

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
INFINITE = np.array([np.nan, np.inf, -np.inf, 1], np.float32)


def listed(results):
    return list(results) if isinstance(results, (list, tuple)) else [results]


@unittest.skipUnless(mx, "mlx is not installed")
class Functions(unittest.TestCase):
    def same(self, call, *arrays):
        mine, theirs = (listed(call(m, *(m.array(x) for x in arrays))) for m in (hx, mx))
        self.assertEqual(len(mine), len(theirs))
        for a, b in zip(mine, theirs):
            self.assertEqual(a.shape, b.shape)
            self.assertEqual(*(str(v.dtype).split(".")[-1].rstrip("_") for v in (a, b)))
            np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-5)

    def test_diagonals_and_turned_axes(self):
        for k in range(-2, 3):
            self.same(lambda m, a, k=k: m.diag(a, k), X)
            self.same(lambda m, a, k=k: m.diag(a, k), X[0])
        for axis in (None, 0, -1, (0, 1)):
            self.same(lambda m, a, axis=axis: m.flip(a, axis), X)
        self.same(lambda m, a: a.mT, X)
        self.same(lambda m, a: m.concat([a, m.full_like(a, 3)], 1), X)

    def test_windows(self):
        self.same(lambda m, a: m.as_strided(a, (2, 3), (4, 1), 1), X)
        self.same(lambda m, a: m.as_strided(a, (12,)), X)

    def test_bytes_as_another_dtype(self):
        for name in ("int8", "uint16", "int32", "int64"):
            self.same(lambda m, a, name=name: m.view(a, getattr(m, name)), X)
            self.same(lambda m, a, name=name: a[:2].T.view(getattr(m, name)), X)
            self.same(lambda m, a, name=name: a[1:, 2:].view(getattr(m, name)), X)
        self.same(lambda m, a: a.view(m.int8).view(m.float32), X)
        with self.assertRaisesRegex(ValueError, "cannot be looked at as i64"):
            hx.array(X[:, :3]).view(hx.int64)
        with self.assertRaisesRegex(ValueError, "cannot be looked at as i8"):
            hx.array(1.0).view(hx.int8)

    def test_what_is_close(self):
        self.same(lambda m, a: [m.isclose(a, a + 1e-6), m.allclose(a, a + 1e-3), m.allclose(a, a + 1e-9)], X)
        self.same(lambda m, a: [m.array_equal(a, a), m.array_equal(a, a[0]), m.array_equal(a, -a)], X)
        for nan in (False, True):
            self.same(lambda m, a, nan=nan: m.isclose(a, a, equal_nan=nan), INFINITE)
            self.same(lambda m, a, nan=nan: m.isclose(a, -a, equal_nan=nan), INFINITE)
            self.same(lambda m, a, nan=nan: m.array_equal(a, a, equal_nan=nan), INFINITE)

    def test_grids(self):
        for sparse in (False, True):
            for order in ("xy", "ij"):
                self.same(lambda m, *a, s=sparse, o=order: m.meshgrid(*a, sparse=s, indexing=o), X[0], X[1, :2], X[2, :3])
                self.same(lambda m, *a, s=sparse, o=order: m.meshgrid(*a, sparse=s, indexing=o), X[0])

    def test_norms(self):
        for how in (
            {}, {"ord": 1}, {"ord": "fro"}, {"ord": math.inf}, {"ord": -1}, {"ord": -math.inf, "keepdims": True},
            {"ord": 0, "axis": 1}, {"ord": 3, "axis": 0}, {"axis": (0, 1)}, {"axis": 1}, {"ord": 1, "axis": (1, 0)},
            {"ord": -math.inf, "axis": 1, "keepdims": True},
        ):  # fmt: skip
            self.same(lambda m, a, how=how: m.linalg.norm(a, **how), X)
        with self.assertRaisesRegex(ValueError, "no norm of order 2"):
            hx.linalg.norm(hx.array(X), 2)


if __name__ == "__main__":
    unittest.main()
