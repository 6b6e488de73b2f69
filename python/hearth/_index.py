"""Elements by their place: windows that are replaced."""

from ctypes import POINTER, c_int64, c_void_p

from . import _library as lib
from ._array import array, operand

__all__ = ["slice_update"]

_SIZES = POINTER(c_int64)
_slice_update = lib.operation("ht_slice_update", c_void_p, c_void_p, _SIZES, _SIZES, _SIZES)


def _window(a, starts, axes):
    """Where the axes begin, those that are not named at 0."""
    starts = [int(i) for i in (starts.tolist() if isinstance(starts, array) else starts)]
    begin = [0] * a.ndim
    for start, axis in zip(starts, axes):
        begin[axis] = start
    return begin


def slice_update(a, update, start_indices, axes):
    a, update = operand(a), operand(update, a)
    begin = _window(a, start_indices, axes)
    shape = (1,) * (a.ndim - update.ndim) + update.shape
    end = [i + n for i, n in zip(begin, shape)]
    sizes = ((c_int64 * a.ndim)(*values) for values in (begin, end))
    return array._own(lib.call(_slice_update, a._handle, update._handle, *sizes, None))
