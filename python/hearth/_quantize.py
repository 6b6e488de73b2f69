"""Quantised arrays, and products of matrices that indices choose."""

import ctypes
from ctypes import POINTER, c_bool, c_int, c_int32, c_void_p

from . import _library as lib
from ._array import array, operand
from ._dtype import bfloat16

__all__ = ["quantize", "dequantize", "quantized_matmul", "gather_qmm", "gather_mm"]

_MODES = ["affine", "mxfp4", "mxfp8", "nvfp4"]


class _How(ctypes.Structure):
    _fields_ = [("mode", c_int), ("group", c_int32), ("bits", c_int32)]


_quantize = lib.declare("ht_quantize", c_bool, c_void_p, c_void_p, POINTER(_How), POINTER(c_void_p))
_dequantize = lib.operation("ht_dequantize_groups", c_void_p, c_void_p, c_void_p, POINTER(_How), c_int)
_matmul = lib.operation("ht_quantized_matmul", *[c_void_p] * 4, c_bool, POINTER(_How))
_gather_qmm = lib.operation("ht_gather_qmm", *[c_void_p] * 6, c_bool, POINTER(_How))
_gather_mm = lib.operation("ht_gather_mm", *[c_void_p] * 4)


def _how(group_size, bits, mode):
    if mode not in _MODES:
        raise ValueError(f"quantization mode {mode!r} is none of {', '.join(_MODES)}")
    return _How(_MODES.index(mode), group_size or 0, bits or 0)


def _operand(value):
    return lib.none if value is None else operand(value)


def quantize(w, group_size=None, bits=None, mode="affine"):
    """The numbers in 32-bit words, the scales and, with "affine", the biases."""
    how = _how(group_size, bits, mode)
    parts = lib.call_several(_quantize, 3, operand(w), ctypes.byref(how))
    return tuple(array._own(part) for part in parts[: 3 if mode == "affine" else 2])


def dequantize(w, scales, biases=None, group_size=None, bits=None, mode="affine", dtype=None):
    dtype = dtype or (operand(scales).dtype if mode == "affine" else bfloat16)
    operands = (_operand(x) for x in (w, scales, biases))
    return lib.call(_dequantize, *operands, ctypes.byref(_how(group_size, bits, mode)), dtype.code)


def quantized_matmul(x, w, scales, biases=None, transpose=True, group_size=None, bits=None, mode="affine"):
    """x @ w.T, or x @ w without `transpose`, of the quantised w."""
    operands = (_operand(a) for a in (x, w, scales, biases))
    return lib.call(_matmul, *operands, transpose, ctypes.byref(_how(group_size, bits, mode)))


def gather_qmm(
    x, w, scales, biases=None, lhs_indices=None, rhs_indices=None, transpose=True, group_size=None, bits=None,
    mode="affine", *, sorted_indices=False
):  # fmt: skip
    """quantized_matmul of the matrices that the indices choose. Entries of one right matrix meet it together, sorted or not."""
    operands = (_operand(a) for a in (x, w, scales, biases, lhs_indices, rhs_indices))
    return lib.call(_gather_qmm, *operands, transpose, ctypes.byref(_how(group_size, bits, mode)))


def gather_mm(a, b, lhs_indices=None, rhs_indices=None, *, sorted_indices=False):
    """matmul of the matrices that the indices choose."""
    return lib.call(_gather_mm, *(_operand(x) for x in (a, b, lhs_indices, rhs_indices)))
