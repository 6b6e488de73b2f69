"""`mlx.core.linalg`: norms of vectors and matrices."""

import math
from ctypes import POINTER, c_bool, c_double, c_int, c_void_p

from . import _library as lib
from ._array import array, operand

__all__ = ["norm"]

_norm = lib.operation("ht_norm", c_void_p, c_double, POINTER(c_int), c_int, c_bool)


def _vector(a, order, axes, keepdims):
    list_of_axes = None if axes is None else (c_int * len(axes))(*axes)
    return lib.call(_norm, a, order, list_of_axes, 0 if axes is None else len(axes), keepdims)


def norm(a, ord=None, axis=None, keepdims=False):
    """Of all elements, or with `ord` or `axis` of vectors (one axis) or matrices (two): "fro", or 1, -1, inf and -inf, the
    largest or smallest sum of columns or rows."""
    a = operand(a)
    axes = None if axis is None else [axis] if isinstance(axis, int) else list(axis)
    if ord is None:
        return _vector(a, 2.0, axes, keepdims)
    axes = list(range(a.ndim)) if axes is None else [i % a.ndim for i in axes]
    if len(axes) == 1 and not isinstance(ord, str):
        return _vector(a, float(ord), axes, keepdims)
    if len(axes) != 2:
        raise ValueError(f"norm: of order {ord!r} over {len(axes)} axes; one is a vector, two are a matrix")
    if ord in ("fro", "f"):
        return _vector(a, 2.0, axes, keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(f"norm: a matrix has no norm of order {ord!r} here; 'fro', 1, -1, inf and -inf are there")
    rows, columns = axes if abs(ord) == 1 else reversed(axes)
    sums = _vector(a, 1.0, [rows], True)
    of_sums = (sums.max if ord > 0 else sums.min)(columns, True)
    return of_sums if keepdims else of_sums.squeeze(axes)
