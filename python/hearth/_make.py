"""Arrays from nothing but sizes."""

import math
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p

from . import _library as lib
from ._array import array, operand, shape_argument
from ._dtype import bool_, float32, int32

__all__ = [
    "full", "zeros", "ones", "zeros_like", "ones_like", "full_like", "arange", "linspace", "eye", "identity", "tri", "tril", "triu",
]  # fmt: skip

_full = lib.operation("ht_full", c_double, c_int, POINTER(c_int64), c_int)
_full_like = lib.operation("ht_full_like", c_void_p, c_double, c_int)
_arange = lib.operation("ht_arange", c_double, c_double, c_double, c_int)
_linspace = lib.operation("ht_linspace", c_double, c_double, c_int64, c_int)
_broadcast_like = lib.operation("ht_broadcast_like", c_void_p, c_void_p)
_eye = lib.operation("ht_eye", c_int64, c_int64, c_int64, c_int)
_tri = lib.operation("ht_tri", c_int64, c_int64, c_int64, c_int)
_tril = lib.operation("ht_tril", c_void_p, c_int64)
_triu = lib.operation("ht_triu", c_void_p, c_int64)


def _shape(shape):
    return shape_argument((shape,) if isinstance(shape, int) else tuple(shape))


def full(shape, vals, dtype=None):
    """One value, or an array that broadcasts, everywhere."""
    if isinstance(vals, array):
        filled = vals.broadcast_to(shape)
        return filled if dtype is None else filled.astype(dtype)
    natural = bool_ if isinstance(vals, bool) else int32 if isinstance(vals, int) else float32
    return lib.call(_full, vals, (dtype or natural).code, *_shape(shape))


def zeros(shape, dtype=float32):
    return full(shape, 0, dtype)


def ones(shape, dtype=float32):
    return full(shape, 1, dtype)


def zeros_like(a, dtype=None):
    return full_like(a, 0, dtype)


def ones_like(a, dtype=None):
    return full_like(a, 1, dtype)


def full_like(a, vals, dtype=None):
    a, dtype = operand(a), dtype or operand(a).dtype
    if isinstance(vals, array):
        return lib.call(_broadcast_like, vals, a).astype(dtype)
    return lib.call(_full_like, a, vals, dtype.code)


def arange(start, stop=None, step=1, dtype=None):
    start, stop = (0, start) if stop is None else (start, stop)
    whole = all(isinstance(v, int) for v in (start, stop, step))
    return lib.call(_arange, start, stop, step, (dtype or (int32 if whole else float32)).code)


def linspace(start, stop, num=50, endpoint=True, dtype=float32):
    if not endpoint:
        return lib.call(_linspace, start, stop, num + 1, dtype.code)[:num]
    return lib.call(_linspace, start, stop, num, dtype.code)


def eye(n, m=None, k=0, dtype=float32):
    return lib.call(_eye, n, n if m is None else m, k, dtype.code)


def identity(n, dtype=float32):
    return eye(n, dtype=dtype)


def tri(n, m=None, k=0, dtype=float32):
    return lib.call(_tri, n, n if m is None else m, k, dtype.code)


def tril(x, k=0):
    return lib.call(_tril, operand(x), k)


def triu(x, k=0):
    return lib.call(_triu, operand(x), k)


pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
__all__ += ["pi", "e", "inf", "nan", "newaxis"]
