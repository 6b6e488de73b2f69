"""Arrays: lazy, immutable, with operators, and readable by NumPy."""

import ctypes
import itertools
import math
import struct

from . import _dlpack, _functions
from . import _library as lib
from ._dtype import BY_FORMAT, bfloat16, bool_, float32, float64, int32, int64

_from = lib.operation("ht_array_from", ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.c_int)
_astype = _functions.methods["astype"]


class array(lib.core.Array):
    """An n-dimensional array. From a number, (nested) lists of numbers, another array, or anything with the buffer
    protocol; `dtype` converts."""

    __slots__ = ()
    __array_priority__ = 1000  # of NumPy: our operators come first

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __reversed__(self):
        return (self[i] for i in range(len(self) - 1, -1, -1))

    # ---- its values ----

    def __bool__(self):
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    def __float__(self):
        return float(self.item())

    def __index__(self):
        if self.dtype.kind not in "iu" or self.ndim:  # NumPy takes axes from what has no index
            raise TypeError("only an array of one integer without axes can be an index")
        return self.item()

    def __repr__(self):
        return f"array({_text(self, self.shape, 7)}, dtype={self.dtype.name.rstrip('_')})"

    def __format__(self, spec):
        return format(self.item() if not self.ndim or (self.size == 1 and spec) else str(self), spec)

    def __copy__(self):
        same = _new(array)
        same._become(self)
        return same

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __reduce__(self):
        same = self.__copy__()
        return _from_pickle, (lib.read(same), same.dtype, same.shape)

    # ---- for others, without a copy ----

    def __array__(self, dtype=None, copy=None):
        """For NumPy, which has no bfloat16: that becomes float32."""
        import numpy

        source = self if self.dtype is not bfloat16 else self.astype(float32)
        values = numpy.asarray(_dlpack.Lent(source))
        if dtype is not None and values.dtype != dtype:
            return values.astype(dtype)
        return values.copy() if copy else values

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return _dlpack.to_capsule(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self):
        return _dlpack.CPU


_new = array.__new__


def _from_pickle(data, dtype, shape):
    return _make(data, dtype, shape)


# ---- as text ----


def _number(value, dtype):
    return f"{value:.6g}" if dtype.is_float else str(value)


def _text(a, shape, indent):
    """As MLX prints: of an axis of more than six, three from each end."""
    if not shape:
        return _number(a.item(), a.dtype)
    n = shape[0]
    cut = n > 6
    if len(shape) == 1:
        parts = [*a[:3].tolist(), *a[n - 3 :].tolist()] if cut else a.tolist()
        parts = [_number(v, a.dtype) for v in parts]
    else:
        at = [*range(3), *range(n - 3, n)] if cut else range(n)
        parts = [_text(a[i], shape[1:], indent + 1) for i in at]
    if cut:
        parts.insert(3, "...")
    between = ", " if len(shape) == 1 else ",\n" + " " * indent
    return f"[{between.join(parts)}]"


# ---- from values ----


def _make(data, dtype, shape):
    """A copy of bytes, or of as many from an address on."""
    if isinstance(data, bytes) and len(data) != math.prod(shape) * dtype.size:
        raise ValueError(f"{len(data)} bytes are no array of shape {tuple(shape)} and {dtype.name}")
    return lib.call(_from, data, dtype.code, (ctypes.c_int64 * len(shape))(*shape), len(shape))


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


def _dtype_of_kinds(numbers, kinds):
    if not kinds or not all(issubclass(kind, int) for kind in kinds):
        return float32
    if kinds == {bool}:
        return bool_
    return int32 if -(2**31) <= min(numbers) and max(numbers) < 2**31 else int64


def _from_numbers(numbers, dtype, shape):
    kinds = set(map(type, numbers))
    if any(not issubclass(kind, (int, float)) for kind in kinds):
        wrong = next(kind for kind in kinds if not issubclass(kind, (int, float)))
        raise ValueError(f"an array is made of numbers, not of {wrong.__name__}")
    natural = _dtype_of_kinds(numbers, kinds)
    if dtype is None or dtype is bfloat16 or (natural is float32 and not dtype.is_float):
        dtype = natural  # which array() then converts
    try:
        return _make(struct.pack(f"={len(numbers)}{dtype.format}", *numbers), dtype, shape)
    except OverflowError:  # of a floating point number, which is infinite then
        wide = _make(struct.pack(f"={len(numbers)}d", *numbers), float64, shape)
        return _astype(wide, dtype)
    except struct.error as error:
        raise ValueError(f"a number does not fit {dtype.name}: {error}") from None


def _copied(a):
    return _make(lib.data(a), a.dtype, a.shape)


def _from_buffer(view):
    code = view.format.lstrip("@=<>!")
    if code not in BY_FORMAT:
        return None
    if view.format[0] in ">!":
        return _make(_turned(view.tobytes(), view.itemsize), BY_FORMAT[code], view.shape)
    if view.c_contiguous:
        return _dlpack.with_address(view, lambda address: _make(address, BY_FORMAT[code], view.shape))
    return _make(view.tobytes(), BY_FORMAT[code], view.shape)


def _turned(data, size):
    """Elements of so many bytes in the other byte order."""
    turned = bytearray(len(data))
    for i in range(size):
        turned[i::size] = data[size - 1 - i :: size]
    return bytes(turned)


def _from_other(values):
    """A copy of what has the buffer protocol or DLPack."""
    made = None
    try:
        made = _from_buffer(memoryview(values))
    except (TypeError, ValueError, BufferError):  # none, or of a type that has no format there
        pass
    try:
        if made is None and hasattr(values, "__dlpack__"):
            made = _copied(_dlpack.from_capsule(values))
    except BufferError as error:
        raise ValueError(f"an array cannot be made of {type(values).__name__}: {error}") from None
    if made is None:
        kind = TypeError if values is None else ValueError  # as in MLX
        raise kind(f"an array cannot be made of {type(values).__name__}")
    return made


def _holds_arrays(values):
    return any(isinstance(v, array) or (isinstance(v, (list, tuple)) and _holds_arrays(v)) for v in values)


def _stacked(values):
    return _functions.public["stack"]([v if isinstance(v, array) else array(v) for v in values])


def _made_of(values, dtype):
    if isinstance(values, array):
        return values
    if isinstance(values, (bool, int, float)):
        return _from_numbers([values], dtype, ())
    if isinstance(values, (list, tuple)):
        if _holds_arrays(values):
            return _stacked(values)
        shape = _shape_of(values)
        if shape is None:
            raise ValueError("the lists have different lengths: they make no array")
        return _from_numbers(_flat(values, len(shape) - 1), dtype, shape)
    made = _from_other(values)
    if dtype is None and made.dtype is float64:  # as MLX takes NumPy's numbers
        return _astype(made, float32)
    return made


def from_dlpack(x, /, *, copy=None):
    """An array on the memory of `x`, anything that has `__dlpack__`, which must not be written to while the array lives;
    `copy=True` copies it."""
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise TypeError(f"a {type(x).__name__} does not share its memory by DLPack")
    shared = _dlpack.from_capsule(x)
    return _copied(shared) if copy else shared


# ---- operands ----


def _fits(weak, dtype):
    return weak is bool_ or dtype.is_float or (weak.kind in "iu" and dtype.kind in "iu")


def operand(value, beside=None):
    """What an operation takes. What is no array takes the dtype of the array beside it, where that can hold it: bare numbers,
    and what NumPy and others have, whatever it is there."""
    if isinstance(value, array):
        return value
    if beside is None:
        return array(value)
    if isinstance(value, (bool, int, float)):
        weak = bool_ if isinstance(value, bool) else int32 if isinstance(value, int) else float32
        return array(value, beside.dtype if _fits(weak, beside.dtype) else weak)
    made = array(value)
    return _astype(made, beside.dtype) if _fits(made.dtype, beside.dtype) else made


lib.core.hook(array=array, operand=operand, index=lambda value: array(value, int32), made_of=_made_of)

# ---- functions as methods ----

for _name, _function in _functions.methods.items():
    setattr(array, _name, _function)
for _name in (
    "abs square sqrt rsqrt reciprocal exp log log2 log10 log1p sin cos round sum prod mean max min all any logsumexp var std"
    " argmax argmin cumsum cumprod cummax cummin logcumsumexp flatten unflatten squeeze swapaxes moveaxis diagonal diag"
    " broadcast_to view split repeat"
).split():
    setattr(array, _name, _functions.public[_name])
array.__pos__ = array.__copy__
