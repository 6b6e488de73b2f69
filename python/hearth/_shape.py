"""Shapes and views: other windows on the same elements."""

from ctypes import POINTER, c_int, c_int64, c_void_p

from . import _library as lib
from ._array import array, operand, shape_argument
from ._dtype import bool_
from ._elementwise import where
from ._join import pad
from ._make import eye, zeros

__all__ = [
    "reshape", "transpose", "broadcast_to", "expand_dims", "squeeze", "swapaxes", "moveaxis", "flatten", "unflatten",
    "diagonal", "diag", "as_strided", "view", "flip", "permute_dims", "matrix_transpose",
]  # fmt: skip

_SHAPE = POINTER(c_int64)
_reshape = lib.operation("ht_reshape", c_void_p, _SHAPE, c_int)
_transpose = lib.operation("ht_transpose", c_void_p, POINTER(c_int))
_broadcast_to = lib.operation("ht_broadcast_to", c_void_p, _SHAPE, c_int)
_expand_dims = lib.operation("ht_expand_dims", c_void_p, c_int)
_squeeze = lib.operation("ht_squeeze", c_void_p, c_int)
_swapaxes = lib.operation("ht_swapaxes", c_void_p, c_int, c_int)
_moveaxis = lib.operation("ht_moveaxis", c_void_p, c_int, c_int)
_flatten = lib.operation("ht_flatten", c_void_p, c_int, c_int)
_unflatten = lib.operation("ht_unflatten", c_void_p, c_int, _SHAPE, c_int)
_as_strided = lib.operation("ht_as_strided", c_void_p, _SHAPE, _SHAPE, c_int, c_int64)
_view_as = lib.operation("ht_view_as", c_void_p, c_int)
_diagonal = lib.operation("ht_diagonal", c_void_p, c_int64, c_int, c_int)


def _call(function, a, *arguments):
    return lib.call(function, operand(a), *arguments)


def _axes(axes):
    return list(axes) if isinstance(axes, (list, tuple)) else [axes]


def reshape(a, shape):
    return _call(_reshape, a, *shape_argument(shape))


def transpose(a, axes=None):
    if axes is not None and len(axes) != operand(a).ndim:
        raise ValueError(f"transpose: {len(axes)} axes are named, the array has {operand(a).ndim}")
    return _call(_transpose, a, None if axes is None else (c_int * len(axes))(*axes))


def broadcast_to(a, shape):
    return _call(_broadcast_to, a, *shape_argument(shape))


def expand_dims(a, axis):
    axes = _axes(axis)
    n = operand(a).ndim + len(axes)
    for at in sorted(axis + n if axis < 0 else axis for axis in axes):
        a = _call(_expand_dims, a, at)
    return a


def squeeze(a, axis=None):
    a = operand(a)
    axes = [i for i, d in enumerate(a.shape) if d == 1] if axis is None else _axes(axis)
    for at in sorted((i + a.ndim if i < 0 else i for i in axes), reverse=True):
        a = _call(_squeeze, a, at)
    return a


def swapaxes(a, axis1, axis2):
    return _call(_swapaxes, a, axis1, axis2)


def moveaxis(a, source, destination):
    return _call(_moveaxis, a, source, destination)


def flatten(a, start_axis=0, end_axis=-1):
    return _call(_flatten, a, start_axis, end_axis)


def unflatten(a, axis, shape):
    sizes, n = shape_argument(shape)
    return _call(_unflatten, a, axis, sizes, n)


def diagonal(a, offset=0, axis1=0, axis2=1):
    return _call(_diagonal, a, offset, axis1, axis2)


def diag(a, k=0):
    """A diagonal of a matrix, or the matrix that has a vector on one."""
    a = operand(a)
    if a.ndim == 2:
        return diagonal(a, k)
    lib.fixed_sizes("diag")
    if a.ndim != 1:
        raise ValueError(f"diag: needs a vector or a matrix, got {a.ndim} axes")
    n = a.shape[0] + abs(k)
    rows = a.reshape((-1, 1)) if k >= 0 else a
    mask = eye(n, k=k, dtype=bool_)[: a.shape[0]] if k >= 0 else eye(n, k=k, dtype=bool_)[:, : a.shape[0]]
    block = where(mask, rows, zeros((), a.dtype))
    return pad(block, ((0, n - block.shape[0]), (0, n - block.shape[1])))


def as_strided(a, shape=None, strides=None, offset=0):
    """Elements at offset + sum(index * stride) of a's, in its row-major order."""
    a = operand(a)
    if shape is None or strides is None:
        lib.fixed_sizes("as_strided without shape and strides")
    shape = a.shape if shape is None else tuple(shape)
    if strides is None:
        strides = [1] * len(shape)
        for i in range(len(shape) - 1, 0, -1):
            strides[i - 1] = strides[i] * shape[i]
    if len(strides) != len(shape):
        raise ValueError(f"as_strided: {len(strides)} strides for {len(shape)} axes")
    return _call(_as_strided, a, shape_argument(shape)[0], shape_argument(strides)[0], len(shape), offset)


def view(a, dtype):
    """The same bytes as elements of another dtype."""
    return _call(_view_as, a, dtype.code)


def flip(a, axis=None):
    a = operand(a)
    axes = range(a.ndim) if axis is None else [i % a.ndim for i in _axes(axis)]
    return a[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(a.ndim))] if a.ndim else a


permute_dims = transpose


def matrix_transpose(a):
    return swapaxes(a, -1, -2)


array.T = property(transpose)
array.mT = property(matrix_transpose)
array.view = view
array.diag = diag


def _reshape_method(self, *shape):
    return reshape(self, shape[0] if isinstance(shape[0], (list, tuple)) else shape)


def _transpose_method(self, *axes):
    axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (list, tuple)) else axes
    return transpose(self, axes or None)


array.reshape, array.transpose = _reshape_method, _transpose_method
for _name in ("flatten", "unflatten", "squeeze", "swapaxes", "moveaxis", "diagonal", "broadcast_to"):
    setattr(array, _name, globals()[_name])
