"""The C library: where it is, what its functions take, and how its errors become exceptions.

Arrays and the functions that make arrays are compiled (python/core); this module hands the library over to them, and is what
devices, memory, files, models and transformations call the library by, which programs do rarely."""

import atexit
import ctypes
import ctypes.util
import importlib.machinery
import importlib.util
import operator
import os
import pathlib
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p, string_at

from . import _structs


class Error(RuntimeError):
    """What the library reports: the message says what was wrong, where, and what to do."""


class Busy(Error):
    """An engine's queue is full: later there may be room again."""


_EXCEPTIONS = {
    _structs.HT_ERR_ARGUMENT: ValueError, _structs.HT_ERR_MEMORY: MemoryError, _structs.HT_ERR_IO: OSError,
    _structs.HT_ERR_INDEX: IndexError, _structs.HT_ERR_BUSY: Busy,
}  # fmt: skip


def _find():
    """The library named in HEARTH_LIBRARY, the one that came with this package, or the one that is installed."""
    named, beside = os.environ.get("HEARTH_LIBRARY"), pathlib.Path(__file__).with_name("libhearth.so")
    path = named or (str(beside) if beside.exists() else ctypes.util.find_library("hearth"))
    if not path:
        raise ImportError("libhearth was not found: install it, or name its file in HEARTH_LIBRARY")
    return ctypes.CDLL(path), pathlib.Path(path)


def _find_core(library):
    """The compiled part: it lies in this package, or beside the library in a folder where both were built."""
    name = "_core.abi3.so"
    places = [pathlib.Path(__file__).with_name(name), library.with_name(name)]
    path = next((p for p in places if p.exists()), None)
    if path is None:
        raise ImportError(f"{name} was not found in {places[0].parent} or beside {library}: it is built where Python's headers are")
    loader = importlib.machinery.ExtensionFileLoader("hearth._core", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("hearth._core", path, loader=loader))
    loader.exec_module(module)
    return module


def _check_version(library, path):
    """Structs are those of one version of the interface (HT_ABI_VERSION); a library that does not say its own is an old one."""
    has = library.ht_abi_version() if hasattr(library, "ht_abi_version") else 0
    if has != _structs.HT_ABI_VERSION:
        raise ImportError(f"{path} has version {has} of the interface, and this package needs {_structs.HT_ABI_VERSION}")


_library, _path = _find()
_check_version(_library, _path)
core = _find_core(_path)
core.bind(_library._handle)
_ARRAY = _SCOPE = c_void_p
_ERROR = POINTER(_structs.ht_error)


INT32, INT64, UINT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1), (0, 2**64 - 1)


def integer(value, what, least, most):
    """An integer of [least, most], for ctypes, which cuts others to the bits that fit."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a {type(value).__name__}, expected an integer") from None
    if not least <= number <= most:
        raise ValueError(f"{what} is {number}, expected {least} to {most}")
    return number


def path(value):
    """A path for the library, whose strings end at a NUL character."""
    data = os.fsencode(value)
    if b"\0" in data:
        raise ValueError(f"a path holds a NUL character: {value!r}")
    return data


def choice(value, what, table):
    """What a name stands for."""
    if value not in table:
        raise ValueError(f"{what} is {value!r}, expected one of {', '.join(table)}")
    return table[value]


def declare(name, result, *arguments):
    function = getattr(_library, name)
    function.restype, function.argtypes = result, arguments
    return function


def options(kind, /, **fields):
    """Options of the library: those of their _init function, changed by `fields`."""
    made = kind()
    declare(f"{kind.__name__}_init", None, c_void_p, c_size_t)(byref(made), ctypes.sizeof(made))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def operation(name, *arguments):
    """A function that takes a scope and gives an array."""
    return declare(name, _ARRAY, _SCOPE, *arguments)


_device_open = declare("ht_device_open", c_int, c_char_p, c_void_p, POINTER(c_void_p), _ERROR)
scope_free = core.free
_scope_error = declare("ht_scope_error", _ERROR, _SCOPE)
stride_of = declare("ht_array_stride", c_int64, _ARRAY, c_int)
HELD = c_void_p  # an argument that hold() makes
_eval = declare("ht_array_eval", c_int, _SCOPE, HELD, c_int, _ERROR)
_eval_async = declare("ht_array_eval_async", c_int, _SCOPE, HELD, c_int, _ERROR)
_data = declare("ht_array_data", c_int, _SCOPE, _ARRAY, POINTER(c_void_p), _ERROR)
_lend = declare("ht_array_lend", c_int, _SCOPE, _ARRAY, POINTER(c_void_p), _ERROR)


# ---- the end of the program ----

_ends, _is_exiting = [], False


def at_exit(end):
    """Registers a function that ends what computes. No more may begin: Python's threads cannot be called back any longer."""
    _ends.append(end)
    return end


@atexit.register
def _exit():
    global _is_exiting
    _is_exiting = True
    for end in _ends:
        end()


def check_exit():
    """Ends this thread, silently, when the program ends. All that are left then are daemons, and what they wait for was cancelled."""
    if _is_exiting and threading.current_thread() is not threading.main_thread():
        raise SystemExit


def exception_for(status, message):
    return _EXCEPTIONS.get(status, Error)(message)


def exception_of(error):
    return exception_for(error.status, error.message.decode("utf-8", "replace"))


def check(function, *arguments):
    """Calls a function that returns a status and takes an error last."""
    error = _structs.ht_error()
    if function(*arguments, byref(error)):
        raise exception_of(error)


def _open_device():
    device = c_void_p()
    check(_device_open, b"cpu", None, byref(device))
    return device


device = _open_device()


class _Leave:
    """Lets go of a thread's stream when the thread ends."""

    def __del__(self, use=core.use):
        use(None, False)


class _Thread(threading.local):
    """What a user's function raised inside a call of the library waits in `raised` until that call returns, and what it gave
    lives in `kept` until the outermost one (`depth` 1) does."""

    def __init__(self):
        self.raised, self.kept, self.depth, self.leave = None, [], 0, _Leave()
        self.shapeless = False

    @property
    def shapeless(self):
        """Whether a function is traced that is to be used for other sizes."""
        return self._shapeless

    @shapeless.setter
    def shapeless(self, on):
        self._shapeless = on
        core.follow(on)


thread = _Thread()


def fail(scope):
    """Raises what went wrong in a scope, which ends with it."""
    error, raised = _scope_error(scope), thread.raised
    thread.raised = None
    raised = raised or (exception_of(error.contents) if error else Error("an operation failed without saying why"))
    scope_free(scope)
    raise raised


def _raise(status, message):
    raised, thread.raised = thread.raised, None
    raise raised or exception_for(status, message)


core.hook(failed=fail, raised=_raise)

# call(function, ...): the array that an operation gives, as an object. What the operation made on the way is held by the result
# alone.
call = core.call

# hold(arrays): handles of arrays for a function of ctypes. An object may stand for another array at any time (`a += 1`), and lets
# go of the one before: a callback may do that, and another thread while this one is in the library.
hold = core.hold


def keep(value):
    """What may be called back until the very end of the program, after modules have lost what is in them."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value


def within(function, *arguments):
    """Calls a function that takes a scope first and an error last, and returns a status."""
    error, scope = _structs.ht_error(), core.take()
    try:
        status = function(scope, *arguments, byref(error))
    except BaseException:
        scope_free(scope)
        raise
    core.give(scope)
    if status:
        raised, thread.raised = thread.raised, None
        raise raised or exception_of(error)


def evaluate(arrays, wait=True):
    """Every array on its own stream, if it has one."""
    queues = {}
    for a in arrays:
        queues.setdefault(a._queue, []).append(a)
    function, here = _eval if wait else _eval_async, core.current()
    for queue, some in queues.items() or {None: []}.items():
        if queue is not None:
            core.use(queue, True)
        try:
            within(function, hold(some), len(some))
        finally:
            core.use(*here)


def data(a):
    """Where the elements are, row-major, while the array lives: `a` is an object that nobody else has."""
    place = c_void_p()
    within(_data, a._handle, byref(place))
    return place.value


def lend(a):
    """Where the first element is; the others lie by strides. Of such an object, too."""
    place = c_void_p()
    within(_lend, a._handle, byref(place))
    return place.value


def read(a):
    """The elements of such an object as bytes, row-major."""
    return string_at(data(a), a.nbytes) if a.nbytes else b""

