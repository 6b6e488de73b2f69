"""Functions of elements, and the operators that stand for them."""

from ctypes import c_bool, c_double, c_int, c_void_p

from . import _library as lib
from ._array import array, operand

__all__ = []
_call, _own = lib.call, array._own


def _export(name, function):
    function.__name__ = function.__qualname__ = name
    globals()[name] = function
    __all__.append(name)


def _unary(name):
    function = lib.operation(f"ht_{name}", c_void_p)

    def apply(a):
        if a.__class__ is not array:
            a = operand(a)
        return _own(_call(function, a._handle))

    _export(name, apply)


def _binary(name):
    function = lib.operation(f"ht_{name}", c_void_p, c_void_p)

    def apply(a, b):
        if b.__class__ is not array:
            b = operand(b, a if isinstance(a, array) else None)
        if a.__class__ is not array:
            a = operand(a, b)
        return _own(_call(function, a._handle, b._handle))

    _export(name, apply)


for _name in (
    "negative abs sign square floor ceil bitwise_invert sqrt rsqrt reciprocal exp expm1 log log2 log10 log1p sin cos "
    "tan arcsin arccos arctan sinh cosh tanh erf erfinv sigmoid isnan isinf isfinite logical_not"
).split():
    _unary(_name)

for _name in (
    "add subtract multiply divide floor_divide remainder power logaddexp arctan2 minimum maximum equal not_equal less "
    "less_equal greater greater_equal logical_and logical_or bitwise_and bitwise_or bitwise_xor left_shift right_shift"
).split():
    _binary(_name)

_round = lib.operation("ht_round", c_void_p, c_int)
_nan_to_num = lib.operation("ht_nan_to_num", c_void_p, c_double, c_double, c_double)
_where = lib.operation("ht_where", c_void_p, c_void_p, c_void_p)
_isclose = lib.operation("ht_isclose", c_void_p, c_void_p, c_double, c_double, c_bool)
_allclose = lib.operation("ht_allclose", c_void_p, c_void_p, c_double, c_double, c_bool)
_array_equal = lib.operation("ht_array_equal", c_void_p, c_void_p, c_bool)
_clip = lib.operation("ht_clip", c_void_p, c_void_p, c_void_p)


def round(a, decimals=0):
    return array._own(lib.call(_round, operand(a)._handle, decimals))


def nan_to_num(a, nan=0.0, posinf=None, neginf=None):
    limits = [float("nan") if v is None else v for v in (posinf, neginf)]
    return array._own(lib.call(_nan_to_num, operand(a)._handle, nan, *limits))


def where(condition, a, b):
    a, b = operand(a, b if isinstance(b, array) else None), operand(b, a if isinstance(a, array) else None)
    return array._own(lib.call(_where, operand(condition)._handle, a._handle, b._handle))


def clip(a, a_min, a_max):
    a = operand(a)
    low, high = (None if bound is None else operand(bound, a) for bound in (a_min, a_max))
    handles = (lib.none if bound is None else bound._handle for bound in (low, high))
    return array._own(lib.call(_clip, a._handle, *handles))


def _compared(function, a, b, *arguments):
    a, b = operand(a, b if isinstance(b, array) else None), operand(b, a if isinstance(a, array) else None)
    return array._own(lib.call(function, a._handle, b._handle, *arguments))


def isclose(a, b, rtol=1e-5, atol=1e-8, *, equal_nan=False):
    return _compared(_isclose, a, b, rtol, atol, equal_nan)


def allclose(a, b, rtol=1e-5, atol=1e-8, *, equal_nan=False):
    return _compared(_allclose, a, b, rtol, atol, equal_nan)


def array_equal(a, b, equal_nan=False):
    return _compared(_array_equal, a, b, equal_nan)


__all__ += ["round", "nan_to_num", "where", "clip", "isclose", "allclose", "array_equal"]


def _operator(symbol, name):
    function = globals()[name]
    setattr(array, f"__{symbol}__", function)
    if symbol not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(array, f"__r{symbol}__", lambda self, other: function(other, self))


for _symbol, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}.items():  # fmt: skip
    _operator(_symbol, _name)
for _symbol, _name in {"neg": "negative", "abs": "abs", "invert": "bitwise_invert"}.items():
    setattr(array, f"__{_symbol}__", lambda self, function=globals()[_name]: function(self))
array.__hash__ = object.__hash__
for _name in "abs square sqrt rsqrt reciprocal exp log log2 log10 log1p sin cos round".split():
    setattr(array, _name, globals()[_name])
array.__pos__ = lambda self: self
