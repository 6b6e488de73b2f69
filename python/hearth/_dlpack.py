"""Sharing memory with other libraries: DLPack both ways, and lent memory for NumPy.

Layouts: dlpack.h, version 1.0 (DLManagedTensor and DLManagedTensorVersioned)."""

import copy
import ctypes
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object, pythonapi  # fmt: skip

from . import _library as lib
from ._functions import public
from ._dtype import ALL, bfloat16

CPU = (1, 0)  # (kDLCPU, the first)
_READ_ONLY, _COPIED = 1, 2  # flags of a versioned tensor
_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLDataTypeCode; bfloat16 is one of its own
_BFLOAT = 4


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]  # fmt: skip


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _Versioned(Structure):
    _fields_ = [
        ("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
        ("tensor", _Tensor),
    ]  # fmt: skip


def _python(name, result, *arguments):
    return PYFUNCTYPE(result, *arguments)((name, pythonapi))


_capsule_new = _python("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
_capsule_pointer = _python("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_capsule_is = _python("PyCapsule_IsValid", c_int, py_object, c_char_p)
_capsule_rename = _python("PyCapsule_SetName", c_int, py_object, c_char_p)
# Of a capsule that is being deallocated, which must not become a Python object again.
_dying_pointer = _python("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)
_dying_is = _python("PyCapsule_IsValid", c_int, c_void_p, c_char_p)

# A capsule keeps the address of its name.
_NAMES = {_Managed: (b"dltensor", b"used_dltensor"), _Versioned: (b"dltensor_versioned", b"used_dltensor_versioned")}

# ---- lending ----


class Lent:
    """The elements of an array, lent for as long as this object lives: to NumPy through `__array_interface__`. What is
    done to the array object meanwhile (`a[0] = 1`) does not change them."""

    def __init__(self, a):
        self._array = copy.copy(a)  # which holds it
        self.dtype, self.shape = self._array.dtype, self._array.shape
        self.address = lib.lend(self._array)
        self.strides = tuple(lib.stride_of(self._array._handle, i) for i in range(len(self.shape)))

    @property
    def __array_interface__(self):
        size = self.dtype.size
        code = {"b": "|b", "i": "<i", "u": "<u", "f": "<f"}[self.dtype.kind]
        return {
            "version": 3, "shape": self.shape, "typestr": f"{code}{size}",
            "data": (self.address, True), "strides": tuple(s * size for s in self.strides),
        }  # fmt: skip


_lent = lib.keep({})  # address of a managed tensor: all that lives with it


def _forget(address, pop=_lent.pop):
    pop(address, None)


_deleter = lib.keep(CFUNCTYPE(None, c_void_p)(_forget))


def _drop_unused(capsule):
    """A capsule ends that nobody took the tensor out of."""
    for kind, (name, _) in _NAMES.items():
        if _dying_is(capsule, name):
            _forget(_dying_pointer(capsule, name))


_capsule_destructor = lib.keep(PYFUNCTYPE(None, c_void_p)(_drop_unused))


def _fill(tensor, lent):
    n = len(lent.shape)
    shape, strides = (c_int64 * n)(*lent.shape), (c_int64 * n)(*lent.strides)
    tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = lent.address, *CPU, n
    tensor.code = _BFLOAT if lent.dtype is bfloat16 else _KINDS[lent.dtype.kind]
    tensor.bits, tensor.lanes, tensor.byte_offset = 8 * lent.dtype.size, 1, 0
    tensor.shape, tensor.strides = ctypes.cast(shape, POINTER(c_int64)), ctypes.cast(strides, POINTER(c_int64))
    return shape, strides


def to_capsule(a, stream=None, max_version=None, dl_device=None, copy=None):
    """`array.__dlpack__`. Whoever knows no versions cannot be told that the memory is not to be written to."""
    if dl_device is not None and tuple(dl_device) != CPU:
        raise BufferError(f"an array on the CPU cannot be lent to device {tuple(dl_device)}")
    versioned = max_version is not None and max_version[0] >= 1
    lent = Lent(a)
    if any(s < 0 for s in lent.strides):
        if copy is False:
            raise BufferError("DLPack has no negative strides: this view has to be copied")
        lent = Lent(a.flatten().reshape(a.shape))
    managed = (_Versioned if versioned else _Managed)()
    if versioned:
        managed.major, managed.flags = 1, _READ_ONLY
    managed.deleter = ctypes.cast(_deleter, c_void_p)
    address = ctypes.addressof(managed)
    _lent[address] = (managed, lent, _fill(managed.tensor, lent))
    return _capsule_new(address, _NAMES[type(managed)][0], ctypes.cast(_capsule_destructor, c_void_p))


# ---- borrowing ----

_wrap = lib.operation("ht_array_wrap", c_void_p, c_int, POINTER(c_int64), c_int, c_void_p, c_void_p)
_strided = public["as_strided"]


def _dtype_of(tensor):
    if tensor.lanes == 1:
        for dtype in ALL:
            code = _BFLOAT if dtype is bfloat16 else _KINDS[dtype.kind]
            if (code, 8 * dtype.size) == (tensor.code, tensor.bits):
                return dtype
    raise BufferError(f"DLPack type {tensor.code} of {tensor.bits} bits x {tensor.lanes} has no dtype here")


def _row_major(shape):
    strides, step = [], 1
    for d in reversed(shape):
        strides.insert(0, step)
        step *= max(d, 1)
    return strides


def _capsule_of(x):
    if tuple(x.__dlpack_device__()) != CPU:
        raise BufferError(f"only memory of the CPU can be shared, this is of device {tuple(x.__dlpack_device__())}")
    try:
        return x.__dlpack__(max_version=(1, 0))
    except TypeError:  # from before there were versions
        return x.__dlpack__()


def from_capsule(x):
    """An array on the memory of anything that has `__dlpack__`, without a copy."""
    capsule = _capsule_of(x)
    kind = _Versioned if _capsule_is(capsule, _NAMES[_Versioned][0]) else _Managed
    name, used = _NAMES[kind]
    if not _capsule_is(capsule, name):
        raise BufferError("this is no DLPack capsule, or one that was used before")
    address = _capsule_pointer(capsule, name)
    managed = kind.from_address(address)
    if kind is _Versioned and managed.major != 1:
        raise BufferError(f"DLPack version {managed.major} is not known here")
    tensor = managed.tensor
    shape = tensor.shape[: tensor.ndim]
    strides = tensor.strides[: tensor.ndim] if tensor.strides else _row_major(shape)
    if any(s < 0 for s in strides):
        raise BufferError("memory with negative strides cannot be shared")
    data = (tensor.data or 0) + tensor.byte_offset
    span = 1 + sum((d - 1) * s for d, s in zip(shape, strides)) if all(shape) else 0
    flat = lib.call(_wrap, data, _dtype_of(tensor).code, (c_int64 * 1)(span), 1, managed.deleter, address)
    _capsule_rename(capsule, used)  # from now on the library calls its deleter, also where the next line fails
    return _strided(flat, shape, strides)


# ---- the buffers of others ----


class _Buffer(Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", c_void_p), ("obj", py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", c_int), ("ndim", c_int), ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p),
        ("suboffsets", c_void_p), ("internal", c_void_p),
    ]  # fmt: skip


_get_buffer = _python("PyObject_GetBuffer", c_int, py_object, POINTER(_Buffer), c_int)
_release_buffer = _python("PyBuffer_Release", None, POINTER(_Buffer))


def with_address(view, use):
    """use(address) while the contiguous buffer behind a memoryview is held."""
    buffer = _Buffer()
    _get_buffer(view, byref(buffer), 0)
    try:
        return use(buffer.buf or 0)
    finally:
        _release_buffer(byref(buffer))
