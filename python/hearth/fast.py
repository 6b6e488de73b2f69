"""`mlx.core.fast`: operations of transformers in one pass."""

import ctypes
from ctypes import c_bool, c_float, c_int32, c_int64, c_void_p

from . import _library as lib
from ._array import array, operand
from ._dtype import float32, int32

__all__ = ["layer_norm", "rms_norm", "rope", "scaled_dot_product_attention"]


class _Rope(ctypes.Structure):
    _fields_ = [
        ("theta", c_float), ("scale", c_float), ("magnitude", c_float), ("dims", c_int32), ("interleaved", c_bool),
    ]  # fmt: skip


class _Attention(ctypes.Structure):
    _fields_ = [("scale", c_float), ("causal", c_bool), ("window", c_int64)]


_rms_norm = lib.operation("ht_rms_norm", c_void_p, c_void_p, c_float, c_float)
_layer_norm = lib.operation("ht_layer_norm", c_void_p, c_void_p, c_void_p, c_float)
_rope = lib.operation("ht_rope_rows", c_void_p, c_void_p, c_void_p, ctypes.POINTER(_Rope))
_attention = lib.operation(
    "ht_scaled_dot_product_attention", *[c_void_p] * 5, ctypes.POINTER(_Attention)
)


def _operand(value):
    return lib.none if value is None else operand(value)


def rms_norm(x, weight, eps):
    return lib.call(_rms_norm, _operand(x), _operand(weight), eps, 0.0)


def layer_norm(x, weight, bias, eps):
    return lib.call(_layer_norm, _operand(x), _operand(weight), _operand(bias), eps)


def rope(a, dims, *, traditional, base, scale, offset, freqs=None):
    """Of rows [..., T, D] from position `offset` on; `freqs` are divisors of the positions, one for each pair."""
    if (base is None) == (freqs is None):
        raise ValueError("rope: one of base and freqs has to be None")
    how = _Rope(1.0 if base is None else base, scale, 1.0, dims, traditional)
    offset = offset if isinstance(offset, array) else array(offset, int32)
    factors = lib.none if freqs is None else operand(freqs).astype(float32)
    return lib.call(_rope, operand(a), offset, factors, ctypes.byref(how))


def scaled_dot_product_attention(q, k, v, *, scale, mask=None, sinks=None, window=0):
    """softmax(scale * q k^T + mask) v; `mask` is "causal", or of bool, or added to the scores. With "causal", `window`
    limits each query to so many keys."""
    if isinstance(mask, str) and mask != "causal":
        raise ValueError(f"scaled_dot_product_attention: mask {mask!r}, expected 'causal', an array or None")
    causal = isinstance(mask, str)
    how = _Attention(scale, causal, window)
    operands = (_operand(x) for x in (q, k, v, None if causal else mask, sinks))
    return lib.call(_attention, *operands, ctypes.byref(how))
