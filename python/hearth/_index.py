"""What `array[...]` and `array.at[...]` mean where the compiled part leaves it to this one."""

from . import _library as lib
from ._array import array, operand
from ._dtype import bool_
from ._functions import hidden, public

_plus, _multiply, _divide, _maximum, _minimum = (public[n] for n in "add multiply divide maximum minimum".split())
_where, _take, _expand_dims, _squeeze = (public[n] for n in "where take expand_dims squeeze".split())
_window, _window_range, _window_update, _window_update_range, _gather, _scatter, _broadcast_like, _put = (
    hidden[n] for n in "window window_range window_update window_update_range gather scatter broadcast_like put".split()
)
_SET, _ADD, _PROD, _MIN, _MAX = range(5)
_OPEN = -(2**63)  # HT_OPEN: the end of an axis, whatever its size


# ---- an index of [...] taken apart ----


def _is_whole(i):
    return hasattr(i, "__index__") and not isinstance(i, (bool, array)) and not getattr(i, "ndim", 0)


def _entry(i):
    """What may stand in an index: None, ..., an integer, a slice, or an array of integers."""
    if i is None or i is Ellipsis or isinstance(i, slice):
        return i
    if isinstance(i, (array, list)) or hasattr(i, "__array_interface__") and not _is_whole(i):
        places = i if isinstance(i, array) else array(i)
        if places.dtype is bool_:
            raise ValueError("an array of bools is no index; use where(), or assign to it")
        return places
    if _is_whole(i):
        return i.__index__()
    raise ValueError(f"{i!r} is no index: that is an integer, a slice, None, ... or an array of integers")


def _broadcast_shape(shapes):
    shape = [1] * max(map(len, shapes))
    for s in shapes:
        for k, d in enumerate(s, len(shape) - len(s)):
            shape[k] = d if shape[k] == 1 else shape[k]
    return tuple(shape)


class _Index:
    """An index that names every axis of `a`.

    It is a window of `a` with all its axes, of which those of integers have one element; `places`, arrays of indices for
    some of the axes; and how the axes of the result follow from these."""

    def __init__(self, a, index):
        index = [_entry(i) for i in (index if isinstance(index, tuple) else (index,))]
        named = sum(i is not None and i is not Ellipsis for i in index)
        dots = [k for k, i in enumerate(index) if i is Ellipsis]
        if named > a.ndim or len(dots) > 1:
            raise ValueError(f"an index of {named} axes does not fit an array of {a.ndim}")
        at = dots[0] if dots else len(index)
        index[at : at + len(dots)] = [slice(None)] * (a.ndim - named)
        self.a, self.index, self.places = a, index, {}
        self.start, self.stop, self.step = [], [], []
        self._bounds = []  # as they were written, for a window on an array of any size
        for i in index:
            if i is not None:
                self._cut(i, len(self.start), a.shape[len(self.start)])
        self.shape = [len(range(*cut)) for cut in zip(self.start, self.stop, self.step)]
        self.common = _broadcast_shape([p.shape for p in self.places.values()]) if self.places else ()

    def _cut(self, i, axis, n):
        begin, end, by = 0, n, 1
        if isinstance(i, slice):
            self._bounds.append([_OPEN if b is None else b for b in (i.start, i.stop)] + [1 if i.step is None else i.step])
            begin, end, by = i.indices(n)
            end = begin if (end - begin) * by <= 0 else end
        elif isinstance(i, array):
            self.places[axis] = i
            self._bounds.append((_OPEN, _OPEN, 1))
        elif -n <= i < n:
            begin = i % n
            end = begin + 1
            self._bounds.append((i, i + 1 if i != -1 else _OPEN, 1))
        else:
            raise IndexError(f"index {i} is outside axis {axis} of size {n}")
        self.start.append(begin)
        self.stop.append(end)
        self.step.append(by)

    def window(self):
        if lib.thread.shapeless:
            whole = all(tuple(b) == (_OPEN, _OPEN, 1) for b in self._bounds)
            return self.a if whole else _window_range(self.a, *zip(*self._bounds))
        if self.shape == list(self.a.shape) and all(step == 1 for step in self.step):
            return self.a
        return _window(self.a, self.start, self.stop, self.step)

    # The axes of the places stand together: where the first of them is named when all that is no slice (integers count)
    # stands together too, else in front.

    def _layout(self):
        """The entries of the index that give axes of the result, in order: None, an axis of a, or "places"."""
        layout, axis, chosen = [], 0, []
        for i in self.index:
            if i is not None and not isinstance(i, slice):
                chosen.append(len(layout))
                layout.append("gone")
            else:
                layout.append(None if i is None else axis)
            axis += i is not None
        if self.places:
            together = chosen[-1] - chosen[0] == len(chosen) - 1
            layout.insert(chosen[0] if together else 0, "places")
        return [i for i in layout if i != "gone"]

    def result_shape(self):
        shape = []
        for i in self._layout():
            shape += self.common if i == "places" else [1 if i is None else self.shape[i]]
        return shape

    def _without_none(self):
        return [i for i in self._layout() if i is not None]

    def get(self):
        y = self.window()
        if not self.places and not lib.thread.shapeless:
            return y.reshape(self.result_shape())
        if len(self.places) == 1:
            ((axis, places),) = self.places.items()
            y = _take(y, places, axis)
            order = [i for i in range(self.a.ndim) if i < axis] + ["places"] + [i for i in range(self.a.ndim) if i > axis]
        elif self.places:
            y = self._gathered(y)
            order = ["places", *range(self.a.ndim)]
        else:
            order = list(range(self.a.ndim))
        spread, wanted = self._spread(order), self._spread(self._without_none())
        rest = [k for k in spread if k not in wanted]  # of one element
        y = y.transpose(*(spread.index(k) for k in wanted + rest)) if spread != wanted + rest else y
        if not lib.thread.shapeless:
            return y.reshape(self.result_shape())
        for _ in rest:
            y = _squeeze(y, -1)
        for axis, k in enumerate(self._spread(self._layout())):
            if k is None:
                y = _expand_dims(y, axis)
        return y

    def _spread(self, axes):
        """With an axis for each of those of the places."""
        n = len(self.common)
        return [k for i in axes for k in ([("places", j) for j in range(n)] if i == "places" else [i])]

    def _gathered(self, y):
        whole = [_OPEN] * len(self.shape) if lib.thread.shapeless else self.shape
        size = [1 if axis in self.places else n for axis, n in enumerate(whole)]
        return _gather(y, list(self.places.values()), list(self.places), size)

    def _as_result(self, values):
        """Values to be put, stretched to the shape of what get() would give."""
        values, shape = operand(values, self.a).astype(self.a.dtype), self.result_shape()
        while values.ndim > len(shape) and values.shape[0] == 1:
            values = values.reshape(values.shape[1:])
        return values.broadcast_to(shape)

    def _put_following(self, values, join, mode):
        """put() for arrays of any size: what it needs to know of sizes it takes from get()."""
        there = self.get()
        values = _broadcast_like(operand(values, self.a).astype(self.a.dtype), there)
        layout = self._spread(self._layout())
        for axis in reversed([k for k, i in enumerate(layout) if i is None]):
            values = _squeeze(values, axis)
        kept = [i for i in layout if i is not None]
        places = [i for i in kept if isinstance(i, tuple)]
        axes = [i for i in kept if not isinstance(i, tuple)]
        if kept != places + axes:
            values = values.transpose(*(kept.index(i) for i in places + axes))
        for axis in range(self.a.ndim):
            if axis not in axes:
                values = _expand_dims(values, len(places) + axis)
        window = self.window()
        if self.places:
            values = _scatter(window, list(self.places.values()), list(self.places), values, mode)
            if window is self.a:
                return values
        elif join:
            values = join(window, values)
        return _window_update_range(self.a, values, *zip(*self._bounds))

    def put(self, values, join=None, mode=_SET):
        """The array with values in these places, or with join(what is there, values); scatters know this as `mode`."""
        if lib.thread.shapeless and self.a.ndim:
            return self._put_following(values, join, mode)
        values = self._as_result(values)
        if not self.places:
            window = self.window()
            values = values.reshape(self.shape)
            values = join(window, values) if join else values
            return _window_update(self.a, values, self.start, self.stop, self.step)
        n, kept = len(self.common), self._without_none()
        sizes = [k for i in kept for k in (self.common if i == "places" else [self.shape[i]])]
        at = sum(1 for i in kept[: kept.index("places")])
        values = values.reshape(sizes).transpose(*range(at, at + n), *range(at), *range(at + n, len(sizes)))
        values = values.reshape(list(self.common) + [1 if k in self.places else d for k, d in enumerate(self.shape)])
        window = self.window()
        updated = _scatter(window, list(self.places.values()), list(self.places), values, mode)
        if window is self.a:
            return updated
        return _window_update(self.a, updated, self.start, self.stop, self.step)


# ---- masks ----


def _is_mask(index):
    """An array of bools, or what makes one."""
    if isinstance(index, list) or (hasattr(index, "__array_interface__") and not isinstance(index, array)):
        index = array(index)
    return isinstance(index, bool) or (isinstance(index, array) and index.dtype is bool_)


def _put_masked(a, mask, values):
    """a with values where the mask, of its leading axes, is true: one for all, or one after another, of which there have to
    be enough, as is seen when it is computed."""
    mask = operand(mask)
    if mask.shape != a.shape[: mask.ndim]:
        raise ValueError(f"a mask {mask.shape} does not fit an array {a.shape}")
    values, rest = operand(values, a).astype(a.dtype), a.shape[mask.ndim :]
    wide = mask
    for _ in rest:
        wide = _expand_dims(wide, -1)
    if values.ndim > len(rest) and values.shape[0] != 1:
        rank = _maximum(mask.flatten().cumsum() - 1, 0)
        lib.core.fixed_sizes("assigning several values to a mask")
        values = values.broadcast_to((values.shape[0], *rest))
        values = _take(values, rank, 0).reshape(a.shape)
    elif values.ndim > len(rest):
        values = values.reshape(values.shape[1:])
    return _where(wide, values, a)


# ---- as methods of arrays ----


def _get_item(self, index):
    if _is_mask(index):
        raise ValueError("how many elements a mask selects is known when it is computed; use where()")
    return _Index(self, index).get()


_JOIN = [None, _plus, _multiply, _minimum, _maximum]


def _put_item(a, index, values, mode):
    """What the compiled part leaves: masks, lists, arrays beside slices, and arrays of any size."""
    if _is_mask(index) and mode == _SET:
        return _put_masked(a, index, values)
    return _Index(a, index).put(values, _JOIN[mode], mode)


class _At:
    """array.at[index].add(values) and the like: all of several values for one place count."""

    __slots__ = ("_a",)

    def __init__(self, a):
        self._a = a

    def __getitem__(self, index):
        return _Places(self._a, index)


class _Places:
    __slots__ = ("_a", "_index")

    def __init__(self, a, index):
        self._a, self._index = a, index

    def add(self, value):
        return _put(self._a, self._index, value, _ADD)

    def subtract(self, value):
        return _put(self._a, self._index, -operand(value, self._a), _ADD)

    def multiply(self, value):
        return _put(self._a, self._index, value, _PROD)

    def divide(self, value):
        return _put(self._a, self._index, _divide(array(1, self._a.dtype), operand(value, self._a)), _PROD)

    def maximum(self, value):
        return _put(self._a, self._index, value, _MAX)

    def minimum(self, value):
        return _put(self._a, self._index, value, _MIN)


lib.core.hook(subscript=_get_item, put=_put_item)
array.at = property(_At)
