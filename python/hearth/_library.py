"""The C library: where it is, what its functions take, and how its errors become exceptions."""

import ctypes
import ctypes.util
import os
import pathlib
import threading
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_void_p, string_at


class Error(RuntimeError):
    """What the library reports: the message says what was wrong, where, and what to do."""


class _CError(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", c_char * 768)]


# ht_status, by the exceptions that say the same.
_EXCEPTIONS = {1: ValueError, 2: MemoryError, 3: OSError}


def _find():
    """The library named in HEARTH_LIBRARY, the one that came with this package, or the one that is installed."""
    named, beside = os.environ.get("HEARTH_LIBRARY"), pathlib.Path(__file__).with_name("libhearth.so")
    path = named or (str(beside) if beside.exists() else ctypes.util.find_library("hearth"))
    if not path:
        raise ImportError("libhearth was not found: install it, or name its file in HEARTH_LIBRARY")
    return ctypes.CDLL(path)


_library = _find()
_ARRAY = _SCOPE = c_void_p
_ERROR = POINTER(_CError)


def declare(name, result, *arguments):
    function = getattr(_library, name)
    function.restype, function.argtypes = result, arguments
    return function


def operation(name, *arguments):
    """A function that takes a scope and gives an array."""
    return declare(name, _ARRAY, _SCOPE, *arguments)


_device_open = declare("ht_device_open", c_int, c_char_p, c_void_p, POINTER(c_void_p), _ERROR)
_stream_new = declare("ht_stream_new", c_int, c_void_p, POINTER(c_void_p), _ERROR)
_stream_free = declare("ht_stream_free", None, c_void_p)
_scope_new = declare("ht_scope_new", c_void_p, c_void_p)
scope_free = declare("ht_scope_free", None, _SCOPE)
_retain = declare("ht_array_retain", _ARRAY, _ARRAY)
_scope_error = declare("ht_scope_error", _ERROR, _SCOPE)
scope_finish = declare("ht_scope_finish", _ARRAY, _SCOPE, _ARRAY)
release = declare("ht_array_release", None, _ARRAY)
dtype_of = declare("ht_array_dtype", c_int, _ARRAY)
n_dims_of = declare("ht_array_n_dims", c_int, _ARRAY)
dim_of = declare("ht_array_dim", c_int64, _ARRAY, c_int)
stride_of = declare("ht_array_stride", c_int64, _ARRAY, c_int)
_eval = declare("ht_eval", c_int, _SCOPE, POINTER(_ARRAY), c_int, _ERROR)
_eval_async = declare("ht_eval_async", c_int, _SCOPE, POINTER(_ARRAY), c_int, _ERROR)
_data = declare("ht_array_data", c_int, _SCOPE, _ARRAY, POINTER(c_void_p), _ERROR)
_lend = declare("ht_array_lend", c_int, _SCOPE, _ARRAY, POINTER(c_void_p), _ERROR)
promote = declare("ht_dtype_promote", c_int, c_int, c_int)


def exception_of(error):
    return _EXCEPTIONS.get(error.status, Error)(error.message.decode("utf-8", "replace"))


def check(function, *arguments):
    """Calls a function that returns a status and takes an error last."""
    error = _CError()
    if function(*arguments, byref(error)):
        raise exception_of(error)


def _open_device():
    device = c_void_p()
    check(_device_open, b"cpu", None, byref(device))
    return device


device = _open_device()


class Queue:
    """A stream of the library, with scopes for it that are free. A scope serves one expression after another; whoever
    needs one while another is in use (a second thread, a finalizer between two calls) takes or makes another."""

    def __init__(self):
        self.handle = c_void_p()
        check(_stream_new, device, byref(self.handle))
        self.scopes = []

    def __del__(self, scope_free=scope_free, stream_free=_stream_free):
        for scope in getattr(self, "scopes", ()):
            scope_free(scope)
        if getattr(self, "handle", None):
            stream_free(self.handle)


class _Thread(threading.local):
    """What a thread computes on: a stream of its own, until it names another. What a user's function raised inside a
    call of the library waits in `raised` until that call returns, and what it gave lives in `kept` until the outermost one
    (`depth` 1) does."""

    def __init__(self):
        self.use(Queue())
        self.raised, self.kept, self.depth = None, [], 0

    def use(self, queue):
        self.queue, self.scopes = queue, queue.scopes


thread = _Thread()


def new_scope():
    scope = _scope_new(thread.queue.handle)
    if not scope:
        raise MemoryError("no memory for a scope")
    return scope


def fail(scope):
    """Raises what went wrong in a scope, which ends with it."""
    error, raised = _scope_error(scope), thread.raised
    thread.raised = None
    raised = raised or (exception_of(error.contents) if error else Error("an operation failed without saying why"))
    scope_free(scope)
    raise raised


def call(function, *arguments):
    """The array that an operation gives, held by the caller. What it made on the way is held by the array alone."""
    scopes = thread.scopes
    scope = scopes.pop() if scopes else new_scope()
    try:
        result = function(scope, *arguments)
    except BaseException:
        scope_free(scope)
        raise
    if not result:
        fail(scope)
    scope_finish(scope, result)
    scopes.append(scope)
    return result


def within(function, *arguments):
    """Calls a function that takes a scope first and an error last, and returns a status."""
    scopes, error = thread.scopes, _CError()
    scope = scopes.pop() if scopes else new_scope()
    try:
        status = function(scope, *arguments, byref(error))
    except BaseException:
        scope_free(scope)
        raise
    scope_finish(scope, None)
    scopes.append(scope)
    if status:
        raised, thread.raised = thread.raised, None
        raise raised or exception_of(error)


def call_several(function, n, *arguments):
    """The arrays that an operation fills a list with, telling whether it could."""
    scope, results = new_scope(), (_ARRAY * n)()
    if not function(scope, *arguments, results):
        fail(scope)
    held = [_retain(result) for result in results]
    scope_free(scope)
    return held


def evaluate(handles):
    within(_eval, (_ARRAY * len(handles))(*handles), len(handles))


def evaluate_async(handles):
    within(_eval_async, (_ARRAY * len(handles))(*handles), len(handles))


def data(handle):
    """Where the elements are, row-major, while the array lives."""
    place = c_void_p()
    within(_data, handle, byref(place))
    return place.value


def lend(handle):
    """Where the first element is; the others lie by strides."""
    place = c_void_p()
    within(_lend, handle, byref(place))
    return place.value


def read(handle, n_bytes):
    return string_at(data(handle), n_bytes) if n_bytes else b""


none = c_void_p.in_dll(_library, "HT_NONE").value
