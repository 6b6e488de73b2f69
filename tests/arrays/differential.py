"""Operations of the array library on generated operands, against NumPy, and against MLX where it is installed.

  differential.py [--cases N] [--seed N]     needs numpy; mlx if there is one; HEARTH_LIBRARY and PYTHONPATH=python

Every operation meets every dtype, in random shapes (scalars, empty ones, up to five axes) and as views: transposed, cut with
steps, turned around, broadcast. NumPy computes floating point in double; a result may be off by some units in the last
place of its dtype. Integers, and dtypes, are equal. Of disagreements the smallest is printed.
"""

import sys

import numpy as np

import _generated
import hearth as hx

try:
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
except ImportError:
    mx = None

FLOATS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
INTS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
DTYPES = ["bool_", *INTS, *FLOATS]

_erf = np.vectorize(__import__("math").erf, otypes=[np.float64])


def _erfinv(x):
    """By bisection."""
    low, high = np.full(x.shape, -6.0), np.full(x.shape, 6.0)
    for _ in range(80):
        middle = (low + high) / 2
        below = _erf(middle) < x
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(np.abs(x) < 1, (low + high) / 2, np.where(np.abs(x) == 1, x * np.inf, np.nan))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _sign(x):
    return np.sign(np.where(np.isnan(x), 0, x)).astype(x.dtype) if x.dtype.kind == "f" else np.sign(x)


def _shift(function):
    def shifted(a, b):
        bits = a.dtype.itemsize * 8
        far = (b < 0) | (b >= bits)
        result = function(a, np.where(far, 0, b).astype(b.dtype))
        return np.where(far, np.where((a < 0) & (function is np.right_shift), -1, 0), result).astype(a.dtype)

    return shifted


def _power(a, b):
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    whole = np.power(a, np.where(b < 0, 0, b).astype(b.dtype))
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 1, -1, 1), 0)) if a.dtype.kind == "i" else 0
    return np.where(b < 0, inverse, whole).astype(a.dtype)


# name: (NumPy's function, the values it takes, the ulps it may be off, what it takes beside floating point)
#   takes: "n" all dtypes to the same, "f" to at least f32, "i" integers and bool, "c" all, to bool
SMALL, POSITIVE, UNIT, ABOVE_ONE, ANY = (-4, 4), (0.01, 50), (-1, 1), (1, 50), (-50, 50)
UNARY = {
    "negative": (np.negative, ANY, 0, "n"),
    "abs": (np.abs, ANY, 0, "n"),
    "sign": (_sign, ANY, 0, "n"),
    "square": (np.square, ANY, 1, "n"),
    "floor": (np.floor, ANY, 0, "n"),
    "ceil": (np.ceil, ANY, 0, "n"),
    "round": (np.round, ANY, 0, "n"),
    "bitwise_invert": (np.invert, ANY, 0, "i"),
    "sqrt": (np.sqrt, POSITIVE, 1, "f"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), POSITIVE, 2, "f"),
    "reciprocal": (lambda x: 1 / x, POSITIVE, 1, "f"),
    "exp": (np.exp, SMALL, 2, "f"),
    "expm1": (np.expm1, SMALL, 2, "f"),
    "log": (np.log, POSITIVE, 2, "f"),
    "log2": (np.log2, POSITIVE, 2, "f"),
    "log10": (np.log10, POSITIVE, 2, "f"),
    "log1p": (np.log1p, POSITIVE, 2, "f"),
    "sin": (np.sin, ANY, 2, "f"),
    "cos": (np.cos, ANY, 2, "f"),
    "tan": (np.tan, UNIT, 2, "f"),
    "arcsin": (np.arcsin, UNIT, 2, "f"),
    "arccos": (np.arccos, UNIT, 2, "f"),
    "arctan": (np.arctan, ANY, 2, "f"),
    "sinh": (np.sinh, SMALL, 3, "f"),
    "cosh": (np.cosh, SMALL, 3, "f"),
    "tanh": (np.tanh, SMALL, 3, "f"),
    "erf": (_erf, SMALL, 2, "f"),
    "erfinv": (_erfinv, (-0.95, 0.95), 8, "f"),
    "sigmoid": (_sigmoid, SMALL, 3, "f"),
    "isnan": (np.isnan, ANY, 0, "c"),
    "isinf": (np.isinf, ANY, 0, "c"),
    "isfinite": (np.isfinite, ANY, 0, "c"),
    "logical_not": (np.logical_not, ANY, 0, "c"),
}
BINARY = {
    "add": (np.add, ANY, 1, "n"),
    "subtract": (np.subtract, ANY, 1, "n"),
    "multiply": (np.multiply, ANY, 1, "n"),
    "floor_divide": (np.floor_divide, ANY, 0, "n"),
    "remainder": (np.remainder, ANY, 1, "n"),
    "power": (_power, POSITIVE, 4, "n"),
    "minimum": (np.minimum, ANY, 0, "n"),
    "maximum": (np.maximum, ANY, 0, "n"),
    "divide": (np.divide, ANY, 1, "f"),
    "logaddexp": (np.logaddexp, ANY, 3, "f"),
    "arctan2": (np.arctan2, ANY, 2, "f"),
    "equal": (np.equal, ANY, 0, "c"),
    "not_equal": (np.not_equal, ANY, 0, "c"),
    "less": (np.less, ANY, 0, "c"),
    "less_equal": (np.less_equal, ANY, 0, "c"),
    "greater": (np.greater, ANY, 0, "c"),
    "greater_equal": (np.greater_equal, ANY, 0, "c"),
    "logical_and": (np.logical_and, ANY, 0, "c"),
    "logical_or": (np.logical_or, ANY, 0, "c"),
    "bitwise_and": (np.bitwise_and, ANY, 0, "i"),
    "bitwise_or": (np.bitwise_or, ANY, 0, "i"),
    "bitwise_xor": (np.bitwise_xor, ANY, 0, "i"),
    "left_shift": (_shift(np.left_shift), (0, 20), 0, "i"),
    "right_shift": (_shift(np.right_shift), (0, 20), 0, "i"),
}

def _along(function):
    """A reference for scans: by steps along one axis."""

    def scan(x, axis, reverse, inclusive, start):
        x = np.flip(x, axis) if reverse else x
        y = function.accumulate(x, axis=axis, dtype=x.dtype)
        if not inclusive:
            first = np.full_like(np.take(y, [0], axis), start) if y.shape[axis] else y
            y = np.concatenate([first, np.delete(y, -1, axis)], axis) if y.shape[axis] else y
        return np.flip(y, axis) if reverse else y

    return scan


def _logsumexp(x, axis, keepdims):
    return np.logaddexp.reduce(x, axis=axis, keepdims=keepdims) if axis is None or isinstance(axis, int) else np.log(
        np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def _softmax(x, axis):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


#   takes: "t" totals (small integers in 32 bits), else as above; "p" a place, "s" a scan
REDUCTIONS = {
    "sum": (np.sum, ANY, 4, "t"),
    "prod": (np.prod, (0.5, 1.5), 4, "t"),
    "mean": (np.mean, ANY, 4, "f"),
    "max": (np.max, ANY, 0, "n"),
    "min": (np.min, ANY, 0, "n"),
    "var": (np.var, SMALL, 8, "f"),
    "std": (np.std, SMALL, 8, "f"),
    "all": (np.all, UNIT, 0, "c"),
    "any": (np.any, UNIT, 0, "c"),
    "logsumexp": (_logsumexp, SMALL, 4, "f"),
    "argmax": (np.argmax, SMALL, 0, "p"),
    "argmin": (np.argmin, SMALL, 0, "p"),
    "softmax": (_softmax, SMALL, 4, "f"),
    "cumsum": (_along(np.add), ANY, 4, "s"),
    "cumprod": (_along(np.multiply), (0.5, 1.5), 8, "s"),
    "cummax": (_along(np.maximum), ANY, 0, "s"),
    "cummin": (_along(np.minimum), ANY, 0, "s"),
    "logcumsumexp": (_along(np.logaddexp), SMALL, 4, "s"),
}

# Where the two sides rightly differ: bools are truth values to MLX, and no numbers to NumPy.
NOT_FOR_BOOL = {"negative", "subtract", "sign", "floor_divide", "remainder", "power", "left_shift", "right_shift"}


def numpy_dtype(name):
    return np.float32 if name == "bfloat16" else np.bool_ if name == "bool_" else np.dtype(name)


def rounded(x, name):
    """x in that dtype; bfloat16, which NumPy lacks, in float32."""
    x = x.astype(numpy_dtype(name))
    if name != "bfloat16":
        return x
    bits = x.view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    return np.where(np.isnan(x), x, ((bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)).view(np.float32))


class Case:
    """One operation on operands of one dtype each."""

    def __init__(self, rng, name, table):
        self.name, (self.reference, self.range, self.ulps, self.takes) = name, table[name]
        self.n_in = 2 if table is BINARY else 1
        self.dtypes = [self.pick_dtype(rng) for _ in range(self.n_in)]
        if rng.random() < 0.7 or (self.takes == "i" and self.joined() in FLOATS):
            self.dtypes = self.dtypes[:1] * self.n_in
        self.operands = self.make_operands(rng)

    def pick_dtype(self, rng):
        pool = [d for d in DTYPES if self.takes != "i" or d not in FLOATS]
        if self.name in NOT_FOR_BOOL:
            pool.remove("bool_")
        return str(rng.choice(pool))

    def make_operands(self, rng):
        shape = tuple(int(d) for d in rng.integers(0, 6, rng.integers(0, 6))) if rng.random() < 0.2 else tuple(
            int(d) for d in rng.integers(1, 7, rng.integers(0, 6)))
        if rng.random() < 0.1:
            shape = (int(rng.integers(1, 5000)),)
        operands = []
        for i, dtype in enumerate(self.dtypes):
            own = shape
            if i and rng.random() < 0.4:  # to be broadcast
                own = tuple(1 if rng.random() < 0.4 else d for d in shape)[int(rng.integers(0, len(shape) + 1)) :]
            operands.append(self.operand(rng, own, dtype))
        return operands

    def values(self, rng, shape, dtype):
        low, high = self.range
        if dtype == "bool_":
            return rng.random(shape) < 0.5
        if dtype in FLOATS:
            x = rng.uniform(low, high, shape)
            x = np.where(rng.random(shape) < 0.2, np.round(x), x)
            return x.astype(numpy_dtype(dtype))
        info = np.iinfo(dtype)
        if low == 0 or self.range in (POSITIVE, UNIT) or self.name in ("var", "std") or rng.random() < 0.7:
            return rng.integers(max(info.min, int(np.ceil(low))), int(high) + 1, shape).astype(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)

    def operand(self, rng, shape, dtype):
        """(ours, NumPy's) as views that are made alike."""
        axes = [int(a) for a in rng.permutation(len(shape))]
        steps = [int(s) for s in rng.choice([1, 1, 1, 2, -1, -2], len(shape))]
        stored = tuple(shape[a] * abs(steps[a]) for a in axes)
        back = [axes.index(a) for a in range(len(shape))]
        x = self.values(rng, stored, dtype)
        ours = hx.array(x, getattr(hx, dtype)) if dtype != "bool_" else hx.array(x)
        theirs = np.array(ours)  # as rounded to the dtype
        cut = tuple(slice(None, None, s) for s in steps)
        return ours.transpose(*back)[cut] if shape else ours, theirs.transpose(back)[cut] if shape else theirs

    def result_dtype(self):
        if self.takes == "c":
            return "bool_"
        joined = self.joined()
        return "float32" if self.takes == "f" and joined not in FLOATS else joined

    def joined(self):
        joined = self.dtypes[0]
        for other in self.dtypes[1:]:
            joined = promote(joined, other)
        return joined

    def check(self):
        ours = getattr(hx, self.name)(*(a for a, _ in self.operands))
        dtype = self.result_dtype()
        if ours.dtype.name != dtype:
            return f"is {ours.dtype.name}, expected {dtype}"
        common = dtype if self.takes in "ni" else self.common()
        wide = np.float64 if common in FLOATS else numpy_dtype(common)
        inputs = [rounded(x, common).astype(wide) for _, x in self.operands]
        expected = self.reference(*inputs)
        if tuple(ours.shape) != np.shape(expected):
            return f"has shape {ours.shape}, expected {np.shape(expected)}"
        return self.compare(np.array(ours), np.asarray(expected), dtype)

    def common(self):
        joined = self.joined()
        return joined if self.takes == "c" or joined in FLOATS else "float32"

    def compare(self, got, expected, dtype):
        if dtype not in FLOATS:
            wrong = got != expected.astype(got.dtype)
        else:
            ulp = FLOATS[dtype]
            error = np.abs(got.astype(np.float64) - expected)
            near = error <= (self.ulps + 1) * ulp * np.maximum(np.abs(expected), self.floor(dtype))
            same = (np.isnan(got) & np.isnan(expected)) | (got == expected) | near
            same |= np.isinf(got) & overflows(expected, dtype) & (np.sign(got) == np.sign(expected))
            if self.name in ("floor_divide", "remainder"):  # a quotient at a whole number may fall to either side
                same |= self.at_a_step(got, expected)
                same |= np.isinf(got) & np.isnan(expected)  # NumPy has no whole part of infinity
            wrong = ~same
        if not np.any(wrong):
            return None
        at = tuple(np.argwhere(wrong)[0])
        return f"gives {got[at]!r}{self.inputs(at, expected.shape)}, expected {expected[at]!r}"

    def inputs(self, at, shape):
        return f" for {[np.broadcast_to(x, shape)[at] for _, x in self.operands]}"

    def floor(self, dtype):
        """Below which errors are measured against this."""
        if self.name == "logaddexp":  # may cancel
            return 1.0
        return 2.0**-14 if dtype == "float16" else 2.0**-20

    def at_a_step(self, got, expected):
        a, b = (np.broadcast_to(x, expected.shape).astype(np.float64) for _, x in self.operands)
        quotient = a / b
        near_whole = np.abs(quotient - np.round(quotient)) < 0.02 * np.maximum(1, np.abs(quotient))
        off = np.abs(got - expected)
        return near_whole & ((off <= 1.01 + 1e-15 * np.abs(expected)) if self.name == "floor_divide" else off <= np.abs(b) * 1.01)

    def size(self):
        return sum(x.size for _, x in self.operands)

    def __str__(self):
        views = ", ".join(f"{d}{list(x.shape)}" for d, (_, x) in zip(self.dtypes, self.operands))
        return f"{self.name}({views})"


class Operands(Case):
    """Only what makes operands."""

    def __init__(self, name, bounds=ANY):
        self.name, self.range = name, bounds


class Reduction(Case):
    """One reduction or scan, with its options."""

    def __init__(self, rng, name, table):
        super().__init__(rng, name, table)
        self.options = self.pick_options(rng, self.operands[0][1].ndim)

    def pick_dtype(self, rng):
        return str(rng.choice([d for d in DTYPES if d != "bool_" or self.takes != "s"]))

    def pick_options(self, rng, n):
        one = int(rng.integers(-n, n))
        if self.takes == "s":
            return {"axis": one, "reverse": bool(rng.random() < 0.4), "inclusive": bool(rng.random() < 0.7)}
        if self.name == "softmax":
            return {"axis": one}
        options = {"axis": one if rng.random() < 0.7 else None, "keepdims": bool(rng.random() < 0.5)}
        if self.takes != "p" and rng.random() < 0.3:
            options["axis"] = tuple(int(a) for a in rng.permutation(n)[: int(rng.integers(1, n + 1))])
        return options

    def make_operands(self, rng):
        empty = self.name in ("sum", "prod", "all", "any") and rng.random() < 0.1
        shape = tuple(int(d) for d in rng.integers(0 if empty else 1, 8, rng.integers(1, 6)))
        if rng.random() < 0.1:
            shape = (int(rng.integers(1, 4)), int(rng.integers(1, 5000)))
        return [self.operand(rng, shape, self.dtypes[0])]

    def result_dtype(self):
        dtype = self.dtypes[0]
        if self.takes == "c":
            return "bool_"
        if self.takes == "p":
            return "uint32"
        if self.takes == "f" or self.name == "logcumsumexp":
            return dtype if dtype in FLOATS else "float32"
        if self.takes == "t" and dtype not in FLOATS and dtype[-2:] != "64":
            return "uint32" if dtype[0] == "u" else "int32"
        return dtype

    def check(self):
        ours = getattr(hx, self.name)(self.operands[0][0], **self.options)
        dtype = self.result_dtype()
        if ours.dtype.name != dtype:
            return f"is {ours.dtype.name}, expected {dtype}"
        x, options = self.operands[0][1], dict(self.options)
        if self.takes == "s":
            options["start"] = self.start(dtype)
        wide = np.float64 if dtype in FLOATS else dtype if self.takes == "t" else x.dtype
        expected = self.reference(x.astype(wide), **options)
        if tuple(ours.shape) != np.shape(expected):
            return f"has shape {ours.shape}, expected {np.shape(expected)}"
        return self.compare(np.array(ours), np.asarray(expected), dtype)

    def start(self, dtype):
        """What a scan gives of no elements."""
        low, high = (-np.inf, np.inf) if dtype in FLOATS else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return {"cumsum": 0, "cumprod": 1, "cummax": low, "cummin": high, "logcumsumexp": low}[self.name]

    def inputs(self, at, shape):
        x = self.operands[0][1]
        return f" for {x.tolist()}" if x.size < 20 else f" at {at}"

    def floor(self, dtype):
        """Sums may cancel, and errors walk at random."""
        x = np.abs(self.operands[0][1].astype(np.float64))
        return max(1.0, float(np.max(x, initial=0.0))) * np.sqrt(x.size) if self.takes in "tfs" else 0.0

    def __str__(self):
        return f"{super().__str__()} with {self.options}"


def _some_shape(rng, x):
    """Another shape for as many elements."""
    sizes, left = [], x.size
    while left > 1 and len(sizes) < 4:
        d = int(rng.choice([k for k in range(1, left + 1) if left % k == 0]))
        sizes.append(d)
        left //= d
    return (*sizes, left)


def _axis(rng, x):
    return int(rng.integers(-x.ndim, x.ndim))


def _two_axes(rng, x):
    return tuple(int(a) for a in rng.permutation(x.ndim)[:2]) if x.ndim > 1 else (0, 0)


def _places(rng, x, axis):
    return sorted(int(i) for i in rng.integers(0, x.shape[axis] + 1, int(rng.integers(1, 4))))


def _widths(rng, x):
    return [(int(a), int(b)) for a, b in rng.integers(0, 3, (x.ndim, 2))]


def _pad(xp, x, widths, mode):
    return xp.pad(x, widths, constant_values=1) if mode == "constant" else xp.pad(x, widths, mode=mode)


def _flat(results):
    """A list of results as one array."""
    return [r.reshape(-1) for r in results]


# name: what it is called with, and the call in a library `xp` that has NumPy's names
SHAPES = {
    "reshape": lambda rng, x: (lambda xp, a, to=_some_shape(rng, x): a.reshape(to)),
    "transpose": lambda rng, x: (lambda xp, a, to=tuple(map(int, rng.permutation(x.ndim))): a.transpose(*to)),
    "expand_dims": lambda rng, x: (lambda xp, a, to=int(rng.integers(-x.ndim - 1, x.ndim + 1)): xp.expand_dims(a, to)),
    "swapaxes": lambda rng, x: (lambda xp, a, two=_two_axes(rng, x): xp.swapaxes(a, *two)),
    "moveaxis": lambda rng, x: (lambda xp, a, f=_axis(rng, x), t=_axis(rng, x): xp.moveaxis(a, f, t)),
    "diagonal": lambda rng, x: (
        lambda xp, a, two=_two_axes(rng, x), k=int(rng.integers(-3, 4)): xp.diagonal(a, k, *two) if two[0] != two[1] else a
    ),
    "concatenate": lambda rng, x: (lambda xp, a, to=_axis(rng, x): xp.concatenate([a, a[::-1], a], to)),
    "stack": lambda rng, x: (lambda xp, a, to=int(rng.integers(-x.ndim - 1, x.ndim + 1)): xp.stack([a, a[::-1]], to)),
    "split": lambda rng, x: (
        lambda xp, a, to=_axis(rng, x), seed=int(rng.integers(1 << 30)): xp.concatenate(
            _flat(xp.split(a, _places(np.random.default_rng(seed), x, to), to)), 0
        )
    ),
    "tile": lambda rng, x: (lambda xp, a, to=tuple(int(i) for i in rng.integers(0, 4, rng.integers(1, 6))): xp.tile(a, to)),
    "repeat": lambda rng, x: (lambda xp, a, n=int(rng.integers(0, 4)), to=_axis(rng, x): xp.repeat(a, n, to)),
    "pad": lambda rng, x: (lambda xp, a, w=_widths(rng, x), m=str(rng.choice(["constant", "edge", "reflect", "symmetric"])): _pad(xp, a, w, m)),
    "roll": lambda rng, x: (lambda xp, a, n=int(rng.integers(-9, 9)), to=_axis(rng, x): xp.roll(a, n, to)),
    "roll_all": lambda rng, x: (lambda xp, a, n=int(rng.integers(-9, 9)): xp.roll(a, n)),
    "tril": lambda rng, x: (lambda xp, a, k=int(rng.integers(-3, 4)): xp.tril(a, k) if a.ndim > 1 else a),
    "triu": lambda rng, x: (lambda xp, a, k=int(rng.integers(-3, 4)): xp.triu(a, k) if a.ndim > 1 else a),
    "broadcast_to": lambda rng, x: (lambda xp, a, n=int(rng.integers(0, 4)): xp.broadcast_to(a, (n, *a.shape))),
    "slice": lambda rng, x: (
        lambda xp, a, cut=tuple(
            slice(*(None if v == 9 else int(v) for v in rng.choice([9, 0, 1, 3, -1, -3], 2)), int(rng.choice([1, 2, -1, -2])))
            for _ in range(int(rng.integers(1, x.ndim + 1)))
        ): a[cut]
    ),
    "index": lambda rng, x: (lambda xp, a, i=int(rng.integers(0, x.shape[0])): a[i, ..., None] if a.ndim > 1 else a[None, i]),
}


class Shape(Case):
    """A change of shape: the same elements, exactly."""

    def __init__(self, rng, name, table):
        self.name, self.range = name, ANY
        self.dtypes = [str(rng.choice(DTYPES))]
        shape = tuple(int(d) for d in rng.integers(1, 6, rng.integers(1, 5)))
        self.operands = [self.operand(rng, shape, self.dtypes[0])]
        self.call = table[name](rng, self.operands[0][1])

    def check(self):
        ours, theirs = self.operands[0]
        got, expected = self.call(hx, ours), np.asarray(self.call(np, theirs))
        if got.dtype.name != self.dtypes[0]:
            return f"is {got.dtype.name}, expected {self.dtypes[0]}"
        if tuple(got.shape) != expected.shape:
            return f"has shape {got.shape}, expected {expected.shape}"
        return None if np.array_equal(np.array(got), expected) else f"gives {got}, expected {expected.tolist()}"


LARGEST = {"float16": 65500.0, "bfloat16": 3.38e38, "float32": 3.4e38, "float64": 1.79e308}


def overflows(expected, dtype):
    return np.abs(expected) > LARGEST[dtype]


_promoted = {}


def promote(a, b):
    """MLX's answer where it is installed, else ours (the rule has a test of its own in C)."""
    if (a, b) not in _promoted:
        if mx:
            joined = mx.zeros((1,), getattr(mx, a)) + mx.zeros((1,), getattr(mx, b))
            name = str(joined.dtype).split(".")[-1]
        else:
            name = (hx.array([0]).astype(getattr(hx, a)) + hx.array([0]).astype(getattr(hx, b))).dtype.name
        _promoted[a, b] = "bool_" if name == "bool" else name
    return _promoted[a, b]


TABLES = [(name, table) for table in (UNARY, BINARY, REDUCTIONS, SHAPES) for name in table]


def check(rng, call):
    name, table = TABLES[call]
    kind = Reduction if table is REDUCTIONS else Shape if table is SHAPES else Case
    case = kind(rng, name, table)
    problem = case.check()
    return (str(case), problem, case.size()) if problem else None


if __name__ == "__main__":
    sys.exit(_generated.run(range(len(TABLES)), check, cases=20000, against="NumPy and MLX" if mx else "NumPy"))
