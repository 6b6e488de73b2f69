"""Arrays from several, or from one several times."""

from ctypes import POINTER, c_bool, c_int, c_int64, c_void_p

from . import _library as lib
from ._array import array, operand

__all__ = ["concatenate", "concat", "stack", "split", "tile", "repeat", "pad", "roll", "meshgrid"]

_LIST = POINTER(c_void_p)
_concatenate = lib.operation("ht_concatenate", _LIST, c_int, c_int)
_stack = lib.operation("ht_stack", _LIST, c_int, c_int)
_meshgrid = lib.declare("ht_meshgrid", c_bool, c_void_p, _LIST, c_int, c_bool, c_bool, _LIST)
_split_equally = lib.declare("ht_split_equally", c_bool, c_void_p, c_void_p, c_int, c_int, _LIST)
_reshape_like = lib.operation("ht_reshape_like", c_void_p, c_void_p)
_tile = lib.operation("ht_tile", c_void_p, POINTER(c_int64), c_int)
_repeat = lib.operation("ht_repeat", c_void_p, c_int64, c_int)
_pad = lib.operation("ht_pad", c_void_p, POINTER(c_int64), c_void_p)
_pad_mirrored = lib.operation("ht_pad_mirrored", c_void_p, POINTER(c_int64), c_bool)
_roll = lib.operation("ht_roll", c_void_p, c_int64, c_int)


def _joined(function, arrays, axis):
    arrays = [operand(a) for a in arrays]
    return lib.call(function, (c_void_p * len(arrays))(*(a._handle for a in arrays)), len(arrays), axis)


def concatenate(arrays, axis=0):
    if axis is None:
        arrays, axis = [operand(a).flatten() for a in arrays], 0
    return _joined(_concatenate, arrays, axis)


concat = concatenate


def stack(arrays, axis=0):
    return _joined(_stack, arrays, axis)


def split(a, indices_or_sections, axis=0):
    """Into so many equal parts, or at the places given."""
    a, places = operand(a), indices_or_sections
    if isinstance(places, int):
        if places < 1:
            raise ValueError(f"split: there are no {places} equal parts")
        return [array._own(p) for p in lib.call_several(_split_equally, places, a, places, axis)]
    axis %= a.ndim
    bounds = [0, *places, None]
    return [a[(slice(None),) * axis + (slice(i, j),)] for i, j in zip(bounds, bounds[1:])]


def tile(a, reps):
    reps = (reps,) if isinstance(reps, int) else tuple(reps)
    return lib.call(_tile, operand(a), (c_int64 * len(reps))(*reps), len(reps))


def repeat(a, repeats, axis=None):
    a = operand(a)
    if axis is None:
        a, axis = a.flatten(), 0
    return lib.call(_repeat, a, repeats, axis)


def pad(a, pad_width, mode="constant", constant_values=0):
    a = operand(a)
    if mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError(f"pad: there is no mode {mode!r}, only 'constant', 'edge', 'reflect' and 'symmetric'")
    widths = pad_width if isinstance(pad_width, (list, tuple)) else [pad_width]
    widths = [(w, w) if isinstance(w, int) else tuple(w) for w in widths]
    if isinstance(pad_width, tuple) and len(pad_width) == 2 and all(isinstance(w, int) for w in pad_width):
        widths = [pad_width]
    widths = widths * a.ndim if len(widths) == 1 else widths
    if len(widths) != a.ndim:
        raise ValueError(f"pad: {len(widths)} widths for an array of {a.ndim} axes")
    flat = [width for pair in widths for width in pair]
    if mode in ("reflect", "symmetric"):
        return lib.call(_pad_mirrored, a, (c_int64 * len(flat))(*flat), mode == "symmetric")
    value = None if mode == "edge" else operand(constant_values, a)
    return lib.call(_pad, a, (c_int64 * len(flat))(*flat), lib.none if value is None else value)


def roll(a, shift, axis=None):
    a = operand(a)
    if axis is None:
        flat = roll(a.flatten(), shift if isinstance(shift, int) else sum(shift), 0)
        return lib.call(_reshape_like, flat, a)
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    shifts = shift if isinstance(shift, (list, tuple)) else [shift] * len(axes)
    for by, along in zip(shifts, axes):
        a = lib.call(_roll, a, by, along)
    return a


def meshgrid(*arrays, sparse=False, indexing="xy"):
    """Each array along an axis of its own, repeated along those of the others unless `sparse`."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: there is no indexing {indexing!r}, only 'xy' and 'ij'")
    arrays = [operand(a) for a in arrays]
    handles = (c_void_p * len(arrays))(*(a._handle for a in arrays))
    return [array._own(g) for g in lib.call_several(_meshgrid, len(arrays), handles, len(arrays), sparse, indexing == "xy")]


for _name in ("split", "repeat"):
    setattr(array, _name, globals()[_name])


array.split = split
