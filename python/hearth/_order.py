"""Elements in order."""

from ctypes import c_int, c_int64, c_void_p

from . import _library as lib
from ._array import array, operand

__all__ = ["sort", "argsort", "partition", "argpartition", "topk"]

_sort = lib.operation("ht_sort", c_void_p, c_int)
_argsort = lib.operation("ht_argsort", c_void_p, c_int)
_partition = lib.operation("ht_partition", c_void_p, c_int64, c_int)
_argpartition = lib.operation("ht_argpartition", c_void_p, c_int64, c_int)
_topk = lib.operation("ht_topk", c_void_p, c_int64, c_int)


def _along(function, a, axis, *arguments):
    a = operand(a)
    if axis is None:
        a, axis = a.flatten(), 0
    return lib.call(function, a, *arguments, axis)


def sort(a, axis=-1):
    return _along(_sort, a, axis)


def argsort(a, axis=-1):
    return _along(_argsort, a, axis)


def partition(a, kth, axis=-1):
    return _along(_partition, a, axis, kth)


def argpartition(a, kth, axis=-1):
    return _along(_argpartition, a, axis, kth)


def topk(a, k, axis=-1):
    """The k largest, in no order but that the smallest of them comes first."""
    return _along(_topk, a, axis, k)
