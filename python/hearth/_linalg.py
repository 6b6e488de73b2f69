"""Products of arrays."""

from ctypes import POINTER, c_char_p, c_float, c_int, c_void_p

from . import _library as lib
from ._array import array, operand

__all__ = ["matmul", "addmm", "inner", "outer", "tensordot", "einsum"]

_addmm = lib.operation("ht_addmm", c_void_p, c_void_p, c_void_p, c_float, c_float)
_inner = lib.operation("ht_inner", c_void_p, c_void_p)
_outer = lib.operation("ht_outer", c_void_p, c_void_p)
_tensordot = lib.operation("ht_tensordot", c_void_p, c_void_p, POINTER(c_int), POINTER(c_int), c_int)
_einsum = lib.operation("ht_einsum", c_char_p, POINTER(c_void_p), c_int)


matmul = lib.core.operation("matmul", 2, "a @ b")


def addmm(c, a, b, alpha=1.0, beta=1.0):
    """alpha * (a @ b) + beta * c"""
    a, b = operand(a), operand(b)
    return lib.call(_addmm, operand(c, a), a, b, alpha, beta)


def inner(a, b):
    return lib.call(_inner, operand(a), operand(b))


def outer(a, b):
    return lib.call(_outer, operand(a), operand(b))


def tensordot(a, b, axes=2):
    """Over the last `axes` axes of a and the first of b, or over two lists of axes."""
    if isinstance(axes, int):
        axes = list(range(-axes, 0)), list(range(axes))
    left, right = axes
    if len(left) != len(right):
        raise ValueError(f"tensordot: {len(left)} axes of one array and {len(right)} of the other are named")
    lists = ((c_int * len(left))(*left), (c_int * len(right))(*right))
    return lib.call(_tensordot, operand(a), operand(b), *lists, len(left))


def einsum(subscripts, *operands):
    operands = [operand(a) for a in operands]
    handles = (c_void_p * len(operands))(*(a._handle for a in operands))
    return lib.call(_einsum, subscripts.encode(), handles, len(operands))
