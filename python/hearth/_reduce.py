"""Reductions and scans over axes."""

from ctypes import POINTER, c_bool, c_int, c_void_p

from . import _library as lib
from ._array import array, operand

__all__ = []


def _export(name, function):
    function.__name__ = function.__qualname__ = name
    globals()[name] = function
    setattr(array, name, function)
    __all__.append(name)


def _axes(axis):
    """As the library takes them: an array and its length, or nothing for all axes."""
    if axis is None:
        return None, 0
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    return (c_int * len(axes))(*axes), len(axes)


def _reduction(name):
    function = lib.operation(f"ht_{name}", c_void_p, POINTER(c_int), c_int, c_bool)

    def apply(a, axis=None, keepdims=False):
        return lib.call(function, operand(a), *_axes(axis), keepdims)

    _export(name, apply)


def _spread(name):
    function = lib.operation(f"ht_{name}", c_void_p, POINTER(c_int), c_int, c_bool, c_int)

    def apply(a, axis=None, keepdims=False, ddof=0):
        return lib.call(function, operand(a), *_axes(axis), keepdims, ddof)

    _export(name, apply)


def _place(name):
    function = lib.operation(f"ht_{name}", c_void_p, POINTER(c_int), c_bool)

    def apply(a, axis=None, keepdims=False):
        axes = None if axis is None else (c_int * 1)(axis)
        return lib.call(function, operand(a), axes, keepdims)

    _export(name, apply)


def _scan(name):
    function = lib.operation(f"ht_{name}", c_void_p, c_int, c_bool, c_bool)

    def apply(a, axis=None, *, reverse=False, inclusive=True):
        a = operand(a)
        if axis is None:
            a, axis = a.flatten(), 0
        return lib.call(function, a, axis, reverse, inclusive)

    def apply_in(a, axis=None, *, reverse=False, inclusive=True, dtype=None):
        a = operand(a)
        return apply(a if dtype is None else a.astype(dtype), axis, reverse=reverse, inclusive=inclusive)

    _export(name, apply_in if name in ("cumsum", "cumprod") else apply)


for _name in "sum prod mean max min all any logsumexp".split():
    _reduction(_name)
_spread("var")
_spread("std")
_place("argmax")
_place("argmin")
for _name in "cumsum cumprod cummax cummin logcumsumexp".split():
    _scan(_name)

_softmax = lib.operation("ht_softmax", c_void_p, c_int)
_reshape_like = lib.operation("ht_reshape_like", c_void_p, c_void_p)


def softmax(a, axis=None, *, precise=False):
    """Over one axis, several, or all. It is computed in f32 or wider, `precise` or not."""
    a = operand(a)
    if isinstance(axis, int):
        return lib.call(_softmax, a, axis)
    axes = [i % a.ndim for i in (range(a.ndim) if axis is None else axis)]
    order = [i for i in range(a.ndim) if i not in axes] + axes
    moved = a.transpose(*order)
    rows = moved.flatten(a.ndim - len(axes), -1) if axes else moved.reshape(*moved.shape, -1)
    y = lib.call(_softmax, rows, -1)
    y = lib.call(_reshape_like, y, moved)
    return y.transpose(*(order.index(i) for i in range(a.ndim)))


__all__.append("softmax")
