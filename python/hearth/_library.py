"""The C library: where it is, what its functions take, and how its errors become exceptions."""

import ctypes
import ctypes.util
import os
import threading
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_void_p


class Error(RuntimeError):
    """What the library reports: the message says what was wrong, where, and what to do."""


class _CError(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", c_char * 768)]


# ht_status, by the exceptions that say the same.
_EXCEPTIONS = {1: ValueError, 2: MemoryError, 3: OSError}


def _find():
    path = os.environ.get("HEARTH_LIBRARY") or ctypes.util.find_library("hearth")
    if not path:
        raise ImportError("libhearth was not found: install it, or name its file in HEARTH_LIBRARY")
    return ctypes.CDLL(path)


_library = _find()
_ARRAY = _SCOPE = c_void_p


def declare(name, result, *arguments):
    function = getattr(_library, name)
    function.restype, function.argtypes = result, arguments
    return function


def operation(name, *arguments):
    """A function that takes a scope and gives an array."""
    return declare(name, _ARRAY, _SCOPE, *arguments)


_device_open = declare("ht_device_open", c_int, c_char_p, c_void_p, POINTER(c_void_p), POINTER(_CError))
_stream_new = declare("ht_stream_new", c_int, c_void_p, POINTER(c_void_p), POINTER(_CError))
_stream_free = declare("ht_stream_free", None, c_void_p)
_scope_new = declare("ht_scope_new", c_void_p, c_void_p)
_scope_free = declare("ht_scope_free", None, _SCOPE)
_scope_error = declare("ht_scope_error", POINTER(_CError), _SCOPE)
_retain = declare("ht_array_retain", _ARRAY, _ARRAY)
release = declare("ht_array_release", None, _ARRAY)
dtype_of = declare("ht_array_dtype", c_int, _ARRAY)
n_dims_of = declare("ht_array_n_dims", c_int, _ARRAY)
dim_of = declare("ht_array_dim", c_int64, _ARRAY, c_int)
_eval = declare("ht_eval", c_int, _SCOPE, POINTER(_ARRAY), c_int, POINTER(_CError))
_read = declare("ht_array_read", c_int, _SCOPE, _ARRAY, c_void_p, c_size_t, POINTER(_CError))
promote = declare("ht_dtype_promote", c_int, c_int, c_int)


def _raise(error):
    raise _EXCEPTIONS.get(error.status, Error)(error.message.decode("utf-8", "replace"))


def _check(status, error):
    if status:
        _raise(error)


def _open_device():
    device, error = c_void_p(), _CError()
    _check(_device_open(b"cpu", None, byref(device), byref(error)), error)
    return device


_device = _open_device()


class _Thread(threading.local):
    """A thread's own stream."""

    def __init__(self):
        self.stream, error = c_void_p(), _CError()
        _check(_stream_new(_device, byref(self.stream), byref(error)), error)

    def __del__(self):
        _stream_free(self.stream)


_thread = _Thread()


def _new_scope():
    scope = _scope_new(_thread.stream)
    if not scope:
        raise MemoryError("no memory for a scope")
    return scope


def call(function, *arguments):
    """The array that an operation gives, held by the caller. What it made on the way is held by the array alone."""
    scope = _new_scope()
    try:
        result = function(scope, *arguments)
        if not result:
            _raise(_scope_error(scope).contents)
        return _retain(result)
    finally:
        _scope_free(scope)


def evaluate(handles):
    scope, error = _new_scope(), _CError()
    try:
        _check(_eval(scope, (_ARRAY * len(handles))(*handles), len(handles), byref(error)), error)
    finally:
        _scope_free(scope)


def read(handle, n_bytes):
    scope, error, room = _new_scope(), _CError(), bytearray(n_bytes)
    try:
        to = (c_char * n_bytes).from_buffer(room) if n_bytes else None
        _check(_read(scope, handle, to, n_bytes, byref(error)), error)
    finally:
        _scope_free(scope)
    return room


none = c_void_p.in_dll(_library, "HT_NONE").value
