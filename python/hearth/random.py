"""Random numbers, those of `mlx.core.random` for the same key.

Functions without a key take one from `state`, a list of one key that `seed` sets."""

import time
from ctypes import POINTER, c_int, c_int64, c_uint64, c_void_p

from . import _library as lib
from ._array import array, operand, shape_argument
from ._dtype import float32, int32, uint32
from ._make import arange

__all__ = [
    "bernoulli", "bits", "categorical", "gumbel", "key", "laplace", "normal", "permutation", "randint", "seed", "split",
    "state", "truncated_normal", "uniform",
]  # fmt: skip

_SHAPE = (POINTER(c_int64), c_int)
_key = lib.operation("ht_random_key", c_uint64)
_split = lib.operation("ht_random_split", c_void_p, c_int64)
_bits = lib.operation("ht_random_bits", c_int, *_SHAPE, c_void_p)
_uniform = lib.operation("ht_random_uniform", c_void_p, c_void_p, c_int, *_SHAPE, c_void_p)
_normal = lib.operation("ht_random_normal", c_void_p, c_void_p, c_int, *_SHAPE, c_void_p)
_truncated_normal = lib.operation("ht_random_truncated_normal", c_void_p, c_void_p, c_int, *_SHAPE, c_void_p)
_laplace = lib.operation("ht_random_laplace", c_void_p, c_void_p, c_int, *_SHAPE, c_void_p)
_gumbel = lib.operation("ht_random_gumbel", c_int, *_SHAPE, c_void_p)
_randint = lib.operation("ht_random_randint", c_void_p, c_void_p, c_int, *_SHAPE, c_void_p)
_bernoulli = lib.operation("ht_random_bernoulli", c_void_p, *_SHAPE, c_void_p)
_categorical = lib.operation("ht_random_categorical", c_void_p, c_int, *_SHAPE, c_void_p)
_permutation = lib.operation("ht_random_permutation", c_void_p, c_int, c_void_p)


def key(seed):
    return lib.call(_key, seed % 2**64)


state = [key(time.time_ns())]


def seed(seed):
    """Makes what follows repeatable."""
    state[0] = key(seed)


def _key_or_next(given):
    if given is not None:
        return given
    state[0], fresh = split(state[0])
    return fresh


def split(key, num=2):
    """So many keys from one, which must not be used any more."""
    return lib.call(_split, key, num)


def _sizes(shape):
    return shape_argument((shape,) if isinstance(shape, int) else tuple(shape))


def _bound(value, default):
    """An operand, or nothing for what the library assumes anyway."""
    if not isinstance(value, array) and (value is None or value == default):
        return None
    return operand(value)


def _shape_of(a, name):
    lib.fixed_sizes(f"random.{name} without a shape")
    return a.shape


def _drawn(function, low, high, dtype, shape, key):
    """One of the functions of two bounds, which live until it has been called."""
    handles = (lib.none if bound is None else bound for bound in (low, high))
    return lib.call(function, *handles, (dtype or float32).code, *_sizes(shape), _key_or_next(key))


def bits(shape=(), width=4, key=None):
    return lib.call(_bits, width, *_sizes(shape), _key_or_next(key))


def uniform(low=0, high=1, shape=(), dtype=float32, key=None):
    return _drawn(_uniform, _bound(low, 0), _bound(high, 1), dtype, shape, key)


def normal(shape=(), dtype=float32, loc=None, scale=None, key=None):
    return _drawn(_normal, _bound(loc, None), _bound(scale, None), dtype, shape, key)


def truncated_normal(lower, upper, shape=None, dtype=float32, key=None):
    lower, upper = operand(lower), operand(upper)
    return _drawn(_truncated_normal, lower, upper, dtype, _shape_of(lower + upper, "truncated_normal") if shape is None else shape, key)


def laplace(shape=(), dtype=float32, loc=0.0, scale=1.0, key=None):
    return _drawn(_laplace, _bound(loc, 0), _bound(scale, 1), dtype, shape, key)


def gumbel(shape=(), dtype=float32, key=None):
    return lib.call(_gumbel, (dtype or float32).code, *_sizes(shape), _key_or_next(key))


def randint(low, high, shape=(), dtype=int32, key=None):
    return _drawn(_randint, operand(low), operand(high), dtype or int32, shape, key)


def bernoulli(p=0.5, shape=None, key=None):
    p = operand(p)
    return lib.call(_bernoulli, p, *_sizes(_shape_of(p, "bernoulli") if shape is None else shape), _key_or_next(key))


def categorical(logits, axis=-1, shape=None, num_samples=None, key=None):
    """Places along an axis, by their logits: one for each row, `num_samples` of them, or in a shape to which they stretch."""
    if shape is not None and num_samples is not None:
        raise ValueError("categorical: one of shape and num_samples says how many are drawn, not both")
    if shape is None:
        lib.fixed_sizes("random.categorical without a shape")
    rest = list(logits.shape)
    del rest[axis]
    axis %= logits.ndim
    if num_samples is not None:
        logits, shape = logits.reshape((*logits.shape, 1)), [*rest, num_samples]
    return lib.call(_categorical, logits, axis, *_sizes(rest if shape is None else shape), _key_or_next(key))


def permutation(x, axis=0, key=None):
    """The numbers below x, or the slices of an array, in a random order."""
    x = arange(x, dtype=uint32) if isinstance(x, int) else x
    return lib.call(_permutation, x, axis, _key_or_next(key))
