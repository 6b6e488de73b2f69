"""Functions of elements. Operators are compiled (python/core)."""

import functools
from ctypes import c_bool, c_double, c_int, c_void_p

from . import _library as lib
from ._array import array, operand

_ONE = {
    "negative": "-a", "abs": "|a|", "sign": "-1, 0 or 1.", "square": "a * a", "floor": "Rounded down.", "ceil": "Rounded up.",
    "bitwise_invert": "~a", "sqrt": "The square root.", "rsqrt": "1 / sqrt(a)", "reciprocal": "1 / a", "exp": "e ** a",
    "expm1": "e ** a - 1, exact near 0.", "log": "The natural logarithm.", "log2": "The logarithm to base 2.",
    "log10": "The logarithm to base 10.", "log1p": "log(1 + a), exact near 0.", "sin": "The sine of an angle in radians.",
    "cos": "The cosine.", "tan": "The tangent.", "arcsin": "The angle with that sine.", "arccos": "The angle with that cosine.",
    "arctan": "The angle with that tangent.", "sinh": "The hyperbolic sine.", "cosh": "The hyperbolic cosine.",
    "tanh": "The hyperbolic tangent.", "erf": "The error function.", "erfinv": "What erf turns into a.",
    "sigmoid": "1 / (1 + e ** -a)", "isnan": "Whether it is NaN.", "isinf": "Whether it is infinite.",
    "isfinite": "Whether it is neither NaN nor infinite.", "logical_not": "Whether it is 0.",
}  # fmt: skip
_TWO = {
    "add": "a + b", "subtract": "a - b", "multiply": "a * b", "divide": "a / b", "floor_divide": "a // b",
    "remainder": "a % b, with the sign of b.", "power": "a ** b", "logaddexp": "log(e ** a + e ** b)",
    "arctan2": "The angle of the point (b, a).", "minimum": "The smaller one.", "maximum": "The larger one.", "equal": "a == b",
    "not_equal": "a != b", "less": "a < b", "less_equal": "a <= b", "greater": "a > b", "greater_equal": "a >= b",
    "logical_and": "Whether neither is 0.", "logical_or": "Whether one is not 0.", "bitwise_and": "a & b",
    "bitwise_or": "a | b", "bitwise_xor": "a ^ b", "left_shift": "a << b", "right_shift": "a >> b",
}  # fmt: skip
__all__ = [*_ONE, *_TWO, "round", "nan_to_num", "where", "clip", "isclose", "allclose", "array_equal"]
for _n, _names in enumerate((_ONE, _TWO), 1):
    for _name, _text in _names.items():
        globals()[_name] = lib.core.operation(_name, _n, _text)

_round = lib.operation("ht_round", c_void_p, c_int)
_nan_to_num = lib.operation("ht_nan_to_num", c_void_p, c_double, c_double, c_double)
_where = lib.operation("ht_where", c_void_p, c_void_p, c_void_p)
_isclose = lib.operation("ht_isclose", c_void_p, c_void_p, c_double, c_double, c_bool)
_allclose = lib.operation("ht_allclose", c_void_p, c_void_p, c_double, c_double, c_bool)
_array_equal = lib.operation("ht_array_equal", c_void_p, c_void_p, c_bool)
_clip = lib.operation("ht_clip", c_void_p, c_void_p, c_void_p)


def round(a, decimals=0):
    return lib.call(_round, operand(a), decimals)


def nan_to_num(a, nan=0.0, posinf=None, neginf=None):
    limits = [float("nan") if v is None else v for v in (posinf, neginf)]
    return lib.call(_nan_to_num, operand(a), nan, *limits)


def where(condition, x, y):
    """x where the condition is not 0, else y."""
    x, y = operand(x, y if isinstance(y, array) else None), operand(y, x if isinstance(x, array) else None)
    return lib.call(_where, operand(condition), x, y)


def clip(a, a_min, a_max):
    a = operand(a)
    low, high = (None if bound is None else operand(bound, a) for bound in (a_min, a_max))
    handles = (lib.none if bound is None else bound for bound in (low, high))
    return lib.call(_clip, a, *handles)


def _compared(function, a, b, *arguments):
    a, b = operand(a, b if isinstance(b, array) else None), operand(b, a if isinstance(a, array) else None)
    return lib.call(function, a, b, *arguments)


def isclose(a, b, rtol=1e-5, atol=1e-8, *, equal_nan=False):
    return _compared(_isclose, a, b, rtol, atol, equal_nan)


def allclose(a, b, rtol=1e-5, atol=1e-8, *, equal_nan=False):
    return _compared(_allclose, a, b, rtol, atol, equal_nan)


def array_equal(a, b, equal_nan=False):
    return _compared(_array_equal, a, b, equal_nan)


def _as_method(function):
    """Compiled functions are none by themselves."""

    @functools.wraps(function)
    def method(self, *, stream=None):
        return function(self, stream=stream)

    return method


for _name in "abs square sqrt rsqrt reciprocal exp log log2 log10 log1p sin cos".split():
    setattr(array, _name, _as_method(globals()[_name]))
array.round = round
array.__pos__ = lambda self: self
