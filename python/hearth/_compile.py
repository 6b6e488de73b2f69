"""Compiled functions: traced once for each combination of arguments, then laid out again without running Python."""

import functools
import weakref
from ctypes import POINTER, byref, c_int, c_void_p

from . import _library as lib
from ._array import array
from ._structs import ht_compile_options
from ._transform import FUNCTION, calling_back, forget, function_of
from ._tree import flatten, leaves, structure

__all__ = ["compile", "disable_compile", "enable_compile"]


_new = lib.declare("ht_compile", c_int, FUNCTION, POINTER(ht_compile_options), POINTER(c_void_p), c_void_p)
_kind, _replay = lib.core.kind, lib.core.replay
_free = lib.declare("ht_compiled_free", None, c_void_p)
_enabled = True
_MOST_TRACES = 64  # of one function; the one used longest ago goes


def _snapshot(tree):
    """A tree of the same arrays in containers of its own."""
    arrays, rebuild = flatten(tree)
    return rebuild(arrays)


def _assign(container, tree):
    """Puts the arrays of `tree` into the lists and dicts of `container`."""
    if isinstance(container, tuple):
        for old, new in zip(container, tree):
            if isinstance(old, array):
                raise TypeError("compile: state that changes lies in lists and dicts, not directly in a tuple")
            _assign(old, new)
    elif isinstance(container, (dict, list)):
        if isinstance(container, list) and len(container) < len(tree):
            container.extend(tree[len(container) :])
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            old = container.get(key) if isinstance(container, dict) else container[key]
            if isinstance(old, (dict, list, tuple)) and structure(old) != array:
                _assign(old, tree[key])
            else:
                container[key] = tree[key]


class _Trace:
    """What the library has laid out for arguments of one kind: of some dtypes, and of some shapes or numbers of axes."""

    def __init__(self, owner, args, kwargs, state):
        rebuild = flatten((args, kwargs, state))[1]
        results = self._results = [None, False]  # what makes a value of arrays; whether it is just the first of them
        owner_of = weakref.ref(owner)  # the library's callback lives as long as the trace, and must not keep it alive

        def call(stand_ins):
            compiled = owner_of()
            positional, named, at_first = rebuild(stand_ins)
            before = _snapshot(compiled.inputs), _snapshot(compiled.outputs)
            around, lib.thread.shapeless = lib.thread.shapeless, lib.thread.shapeless or compiled.shapeless
            try:
                _assign(compiled.inputs, at_first)
                value = compiled.fun(*positional, **named)
                made, results[0] = flatten((value, compiled.outputs))
                results[1] = isinstance(value, array) and not compiled.keeps
                return made
            finally:
                lib.thread.shapeless = around
                _assign(compiled.inputs, before[0])
                _assign(compiled.outputs, before[1])

        as_function, self._number = function_of(call)
        self._pointer = c_void_p()
        how = lib.options(ht_compile_options, shapeless=owner.shapeless)
        lib.check(_new, byref(as_function), byref(how), byref(self._pointer))

    def __del__(self):
        _free(self._pointer)
        forget(self._number)

    def __call__(self, arguments):
        """(value, state)"""
        made = calling_back(_replay, self._pointer.value, arguments)
        rebuild, one = self._results
        return (made[0], None) if one else rebuild(made)


class _Compiled:
    def __init__(self, fun, inputs, outputs, shapeless):
        self.fun, self.shapeless = fun, shapeless
        self.inputs = [] if inputs is None else inputs
        self.outputs = [] if outputs is None else outputs
        self._reads_one = isinstance(inputs, array)  # whose truth is another matter than whether there is one
        self._keeps_one = isinstance(outputs, array)
        self._traces = {}

    @property
    def keeps(self):
        return self._keeps_one or bool(self.outputs)

    def __call__(self, *args, **kwargs):
        if not _enabled:
            return self.fun(*args, **kwargs)
        arguments, kind = args, None if kwargs or self._reads_one or self.inputs else _kind(args, self.shapeless)
        if kind is None:
            tree = args, kwargs, self.inputs
            arguments = list(leaves(tree))
            kind = structure(tree), tuple((a.dtype, a.ndim if self.shapeless else a.shape) for a in arguments)
        trace = self._traces.pop(kind, None) or _Trace(self, args, kwargs, self.inputs)
        value, state = trace(arguments)  # one that fails is not put back
        self._traces[kind] = trace
        if len(self._traces) > _MOST_TRACES:
            del self._traces[next(iter(self._traces))]
        if state is not None:
            _assign(self.outputs, state)
        return value


def compile(fun, inputs=None, outputs=None, shapeless=False):
    """`fun`, called once for every combination of shapes, dtypes and other values among its arguments; later calls lay out
    the operations of that one for the new arrays. `inputs` and `outputs` are lists or dicts of arrays that it reads and
    changes beside its arguments.

    With `shapeless` it is called once for every combination of dtypes and numbers of axes, and its operations are made again
    for other sizes. Numbers that it takes from `shape`, `size` or `len()` stay those of that call: sizes follow the arguments
    through -1 in reshape, flatten, slices, zeros_like and the like."""
    if not callable(fun):
        raise TypeError(f"what is compiled is a function, not a {type(fun).__name__}")
    compiled = _Compiled(fun, inputs, outputs, shapeless)

    @functools.wraps(fun, updated=())
    def call(*args, **kwargs):
        return compiled(*args, **kwargs)

    return call


def disable_compile():
    """Compiled functions run as they are."""
    global _enabled
    _enabled = False


def enable_compile():
    global _enabled
    _enabled = True
