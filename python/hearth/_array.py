"""Arrays: lazy, immutable, with operators, and readable by NumPy."""

import ctypes
import itertools
import struct

from . import _library as lib
from ._dtype import ALL, BY_FORMAT, bfloat16, bool_, float32, int32, unpack

_from = lib.operation("ht_array_from", ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.c_int)
_astype = lib.operation("ht_astype", ctypes.c_void_p, ctypes.c_int)


def shape_argument(shape):
    return (ctypes.c_int64 * len(shape))(*shape), len(shape)


class array:
    """An n-dimensional array. From a number, (nested) lists of numbers, another array, or anything with the buffer
    protocol; `dtype` converts."""

    __slots__ = ("_handle", "__weakref__")
    __array_priority__ = 1000  # of NumPy: our operators come first

    def __init__(self, values, dtype=None):
        handle = _handle_of(values, dtype)
        if dtype is not None and ALL[lib.dtype_of(handle)] is not dtype:
            converted = lib.call(_astype, handle, dtype.code)
            lib.release(handle)
            handle = converted
        self._handle = handle

    @classmethod
    def _own(cls, handle):
        self = cls.__new__(cls)
        self._handle = handle
        return self

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle:
            lib.release(handle)

    # ---- what it is ----

    @property
    def dtype(self):
        return ALL[lib.dtype_of(self._handle)]

    @property
    def ndim(self):
        return lib.n_dims_of(self._handle)

    @property
    def shape(self):
        return tuple(lib.dim_of(self._handle, i) for i in range(self.ndim))

    @property
    def size(self):
        return _product(self.shape)

    @property
    def itemsize(self):
        return self.dtype.size

    @property
    def nbytes(self):
        return self.size * self.itemsize

    def __len__(self):
        if not self.ndim:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    # ---- its values ----

    def _bytes(self):
        return lib.read(self._handle, self.nbytes)

    def tolist(self):
        values = iter(unpack(self.dtype, self._bytes()))
        shape = self.shape

        def nested(axis):
            if axis == len(shape):
                return next(values)
            return [nested(axis + 1) for _ in range(shape[axis])]

        return nested(0)

    def item(self):
        if self.size != 1:
            raise ValueError(f"item() needs an array of one element, this one has {self.size}")
        return unpack(self.dtype, self._bytes())[0]

    def __array__(self, dtype=None, copy=None):
        import numpy

        source = self if self.dtype is not bfloat16 else self.astype(float32)
        values = numpy.frombuffer(source._bytes(), "?" if source.dtype is bool_ else source.dtype.name)
        values = values.reshape(self.shape)
        return values if dtype is None else values.astype(dtype)

    def __bool__(self):
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    def __float__(self):
        return float(self.item())

    def __repr__(self):
        name = self.dtype.name.rstrip("_")
        return f"array({self.tolist()}, dtype={name})"

    def astype(self, dtype):
        return array._own(lib.call(_astype, self._handle, dtype.code))

    __hash__ = object.__hash__


def _product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


# ---- from values ----


def _make(data, dtype, shape):
    return lib.call(_from, data, dtype.code, *shape_argument(shape))


def _shape_of(values):
    """The shape of nested sequences; None when they are ragged."""
    if not isinstance(values, (list, tuple)):
        return ()
    inner = {_shape_of(v) for v in values} or {()}
    shape = inner.pop()
    return None if inner or shape is None else (len(values), *shape)


def _flat(values, depth):
    for _ in range(depth):
        values = itertools.chain.from_iterable(values)
    return list(values)


def _dtype_of_numbers(numbers):
    if all(isinstance(v, bool) for v in numbers) and numbers:
        return bool_
    return int32 if all(isinstance(v, int) for v in numbers) and numbers else float32


def _from_numbers(numbers, dtype, shape):
    if dtype is bfloat16 or (dtype and not dtype.is_float and not all(isinstance(v, int) for v in numbers)):
        dtype = float32
    dtype = dtype or _dtype_of_numbers(numbers)
    numbers = [float(v) for v in numbers] if dtype.is_float else numbers
    return _make(struct.pack(f"={len(numbers)}{dtype.format}", *numbers), dtype, shape)


def _from_buffer(view):
    code = view.format.lstrip("@=<") if view.format[-1] != ">" else view.format
    if code not in BY_FORMAT:
        raise TypeError(f"a buffer of elements {view.format!r} has no dtype here")
    return _make(view.tobytes(), BY_FORMAT[code], view.shape)


def _handle_of(values, dtype):
    if isinstance(values, array):
        return lib._retain(values._handle)
    if isinstance(values, (bool, int, float)):
        return _from_numbers([values], dtype, ())
    if isinstance(values, (list, tuple)):
        shape = _shape_of(values)
        if shape is None:
            raise ValueError("the lists have different lengths: they make no array")
        return _from_numbers(_flat(values, len(shape) - 1), dtype, shape)
    return _from_buffer(memoryview(values))


def operand(value, beside=None):
    """What an operation takes. A bare number takes the dtype of the array beside it, where that can hold it."""
    if isinstance(value, array):
        return value
    if isinstance(value, (bool, int, float)) and beside is not None:
        weak = bool_ if isinstance(value, bool) else int32 if isinstance(value, int) else float32
        fits = weak is bool_ or beside.dtype.is_float or (weak is int32 and beside.dtype.kind in "iu")
        return array(value, beside.dtype if fits else weak)
    return array(value)
