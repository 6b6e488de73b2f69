"""Every public function and method, called with junk: nothing crashes, hangs, or raises what says nothing. Some of it runs code
while it is read, which changes the arrays beside it.

  junk.py [--cases N] [--seed N]     needs numpy; HEARTH_LIBRARY and PYTHONPATH=python

The calls are made in processes of their own, which say what they are about to do; of one that dies or takes too long the case is
printed, and the next goes on behind it. A memory limit stands, so that huge sizes are errors, and memory that is given back is
overwritten, so that whoever still reads it is seen."""

import argparse
import gc
import inspect
import operator
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import types

import numpy as np

import hearth as hx

EXPECTED = (TypeError, ValueError, IndexError, OverflowError, MemoryError, BufferError, OSError, KeyError, ZeroDivisionError, hx.Error)
SECONDS = 30  # for a call that waits for nothing
# They change what all others see, wait for a model, or are not about arrays.
LEFT_OUT = """set_memory_limit set_cache_limit set_wired_limit set_default_device set_default_stream disable_compile enable_compile
 Model Session Generation Adapter Lora Error Dtype Device DeviceType Stream StreamContext cpu gpu""".split()


class Raised(Exception):
    """What a callback raises."""


def raises(*args, **kwargs):
    raise Raised("on purpose")


FUNCTIONS = [raises, lambda *a: a[0], lambda *a: (a[0] * a[0]).sum() if a else None, lambda *a: None, lambda *a: list(a), max, 3]
DTYPES = [hx.bool_, hx.uint8, hx.int8, hx.uint32, hx.int32, hx.int64, hx.uint64, hx.float16, hx.bfloat16, hx.float32, hx.float64]
SHAPES = [(), (0,), (1,), (3,), (4,), (64,), (2, 3), (3, 2), (4, 4), (0, 3), (3, 0), (2, 64), (2, 3, 4), (1, 2, 3, 4), (2, 2, 64, 64),
          (1,) * 8, (2,) * 8, (1, 0, 1, 0, 1), (5, 1, 2, 1, 2)]  # fmt: skip
NUMBERS = [0, 1, 2, 3, -1, -2, 7, 8, 9, 64, 2**31 - 1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30,
           0.0, 0.5, -1.5, 1e10, 1e300, float("nan"), float("inf"), float("-inf"), True, False]  # fmt: skip


def an_array(rng):
    """Of any dtype, with strides and values as they come."""
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    n = int(np.prod(shape))
    values = [rng.choice([0, 1, 2, -1, 3, 1.5, 100, 1e30, float("nan"), float("inf")]) for _ in range(min(n, 8))] or [0]
    a = hx.array(np.resize(np.array(values, np.float32), shape)).astype(dtype)
    how = rng.random()
    if how < 0.15 and shape:
        a = a[::-1]
    elif how < 0.3:
        a = a.T
    elif how < 0.4:
        a = hx.broadcast_to(a, (2, *shape)[:8]) if len(shape) < 8 else a
    return a


def a_value(rng, depth=0):
    kind = rng.randrange(22 if depth < 3 else 14)
    if kind < 7:
        return an_array(rng)
    if kind < 10:
        return rng.choice(NUMBERS)
    if kind == 10:
        return None
    if kind == 11:
        return rng.choice(["", "a", "ij,jk->ik", "ij->ji", "->", "...", "i..j", "causal", "mxfp4", "nvfp4", "edge", "xy", "fro", "\0", "é" * 300])
    if kind == 12:
        return rng.choice(DTYPES)
    if kind == 13:
        return rng.choice([object(), b"bytes", 1j, np.float32(2), np.arange(6).reshape(2, 3)[:, ::-1], np.array("x"), hx.cpu, int, ...])
    if kind < 16:
        return rng.choice(FUNCTIONS)
    if kind == 16:
        return {rng.choice(["a", "b", 1]): a_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    if kind == 17:
        return slice(*(rng.choice([None, 0, 1, -1, 2**62, -(2**63), 2**70]) for _ in range(3)))
    if kind < 20:
        return [rng.choice(NUMBERS) for _ in range(rng.randrange(10))]
    values = [a_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return values if kind == 20 else tuple(values)


# ---- arguments that change others ----


def arrays_in(value):
    if isinstance(value, hx.array):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [a for v in inner for a in arrays_in(v)]


class Spiteful:
    """Stands for a value. Whatever is asked of it, it first makes the arrays beside it stand for others, and lets go of what they
    stood for."""

    def __init__(self, value, beside):
        self.value, self.beside = value, beside

    def spite(self):
        for i, a in enumerate(self.beside):
            a._become(hx.zeros((i % 3,) * (i % 4), DTYPES[i % len(DTYPES)]))
        return self.value

    def __bool__(self):
        return bool(self.spite())

    def __iter__(self):
        return iter(self.spite())

    def __len__(self):
        return len(self.spite())

    def __getitem__(self, i):
        return self.spite()[i]

    def __int__(self):
        return int(self.spite())

    def __index__(self):
        return operator.index(self.spite())

    def __float__(self):
        return float(self.spite())

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.spite(), dtype)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **how):
        return hx.array(self.spite()).__dlpack__(**how)

    def __hash__(self):
        return hash(self.spite())

    def __eq__(self, other):
        return self.spite() == other

    def __call__(self, *args):
        return self.spite()(*args)


class SpitefulList(list):
    def __iter__(self):
        self.spite()
        return super().__iter__()

    def __getitem__(self, i):
        self.spite()
        return super().__getitem__(i)


def spiteful(rng, value, beside):
    """The value, or a part of it, in a form that changes the arrays beside it when it is read."""
    if isinstance(value, (list, tuple)) and value and rng.random() < 0.7:
        if rng.random() < 0.2:
            made = SpitefulList(value)
            made.spite = Spiteful(None, beside).spite
            return made
        parts = list(value)
        k = rng.randrange(len(parts))
        parts[k] = spiteful(rng, parts[k], beside)
        return type(value)(parts)
    if isinstance(value, slice):
        return slice(*(spiteful(rng, part, beside) for part in (value.start, value.stop, value.step)))
    return value if value is None or isinstance(value, (hx.Dtype, str)) else Spiteful(value, beside)


def with_spite(rng, args, named):
    """One argument changes the arrays in all of them."""
    beside, k = arrays_in([args, named]), rng.randrange(len(args) + len(named))
    if k < len(args):
        args[k] = spiteful(rng, args[k], beside)
    else:
        name = sorted(named)[k - len(args)]
        named[name] = spiteful(rng, named[name], beside)


def place_update(name):
    """An update of places as a function of the array, the index and the values, and of nothing else."""
    return lambda a, i, v: getattr(a.at[i], name)(v)


def targets():
    """(name, function), methods as functions of an array."""
    found = []
    for module, prefix in ((hx, ""), (hx.random, "random."), (hx.fast, "fast."), (hx.linalg, "linalg."), (hx.losses, "losses.")):
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if name not in LEFT_OUT and callable(value) and not isinstance(value, types.ModuleType):
                found.append((prefix + name, value))
    for name in sorted(dir(hx.array)):
        value = getattr(hx.array, name)
        if callable(value) and name not in ("__class__", "__init_subclass__", "__subclasshook__", "__new__", "__getattribute__"):
            if not (name.startswith("_") and not name.startswith("__")):
                found.append((f"array.{name}", value))
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
        found.append((f"array.at[].{name}", place_update(name)))
    return found


def show(value):
    if isinstance(value, hx.array):
        return f"<{value.dtype} {list(value.shape)}>"
    if isinstance(value, Spiteful):
        return f"spiteful {show(value.value)}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(show, list.__iter__(value) if isinstance(value, list) else value))})"
    return repr(value)[:80]


def likely(rng, name):
    """What a parameter of that name is given by whoever means it well."""
    small = lambda: rng.choice([-3, -2, -1, 0, 0, 1, 1, 2, 3, 4])  # noqa: E731
    sizes = lambda: [rng.choice([0, 1, 2, 3, 4, -1, 64]) for _ in range(rng.randrange(5))]  # noqa: E731
    if name in ("axis", "axis1", "axis2", "k", "kth", "offset", "n", "m", "num", "dims", "repeats", "start_axis", "end_axis", "ddof", "source", "destination", "decimals"):
        return rng.choice([small(), small(), small(), tuple(small() for _ in range(rng.randrange(3))), None])
    if name in ("shape", "axes", "strides", "reps", "shift", "pad_width", "indices_or_sections", "slice_size"):
        return rng.choice([sizes(), sizes(), small(), tuple(sizes())])
    if name == "dtype":
        return rng.choice(DTYPES)
    if name == "key":
        return hx.random.key(rng.randrange(5))
    if name in ("group_size", "bits"):
        return rng.choice([None, 2, 3, 4, 5, 6, 8, 16, 32, 64, 128])
    if name == "mode":
        return rng.choice(["affine", "mxfp4", "mxfp8", "nvfp4", "edge", "constant", "reflect", "symmetric"])
    if name in ("fun", "rule"):
        return rng.choice(FUNCTIONS)
    if name in ("primals", "cotangents", "tangents", "arrays"):
        return [an_array(rng) for _ in range(rng.randrange(4))]
    if name in ("indices", "lhs_indices", "rhs_indices", "start_indices"):
        return hx.array([rng.choice([0, 0, 1, 1, 2, -1, 5]) for _ in range(rng.randrange(4))], hx.int32)
    if name in ("scale", "eps", "rtol", "atol", "alpha", "beta", "base", "nan", "step", "start", "stop"):
        return rng.choice([0.0, 1.0, 1e-5, 0.5, -1.0, 10000.0, 3])
    if name in ("keepdims", "reverse", "inclusive", "transpose", "traditional", "precise", "sparse", "equal_nan", "sorted_indices"):
        return rng.random() < 0.5
    return an_array(rng)


def meant(rng, function):
    """Arguments for the parameters that a function has, most of them likely."""
    args, named = [], {}
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = []
    for p in parameters:
        if p.name == "stream" or (p.default is not p.empty and rng.random() < 0.5):
            continue
        value = a_value(rng) if rng.random() < 0.06 else likely(rng, p.name)
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and not named and len(args) == list(parameters).index(p):
            args.append(value)
        elif p.kind is p.VAR_POSITIONAL:
            args += [likely(rng, p.name) for _ in range(rng.randrange(3))]
        elif p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            named[p.name] = value
    return args, named


def arguments(rng, name, function):
    if rng.random() < 0.6:
        return meant(rng, function)
    args = [a_value(rng) for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4, 5]))]
    if name.startswith("array.") or rng.random() < 0.6:  # mostly what is about arrays is given one
        args[:1] = [an_array(rng)]
    if name in ("grad", "value_and_grad", "vjp", "jvp", "compile", "checkpoint", "custom_function"):
        args[:1] = [rng.choice(FUNCTIONS)]
    names = "axis shape dtype key keepdims stream mode bits group_size scale mask offset num k axes indices".split()
    return args, {rng.choice(names): a_value(rng) for _ in range(rng.choice([0, 0, 0, 1, 2]))}


def look_at(result):
    """Computes it, and reads some of it."""
    hx.eval(result) if isinstance(result, (hx.array, list, tuple, dict)) else None
    if isinstance(result, hx.array):
        repr(result), result.shape
    elif callable(result) and not isinstance(result, type):
        look_at(result(hx.array([1.0, 2.0])))


def call(seed, i):
    """What one case makes; None or what is wrong with what it raised."""
    rng = random.Random(seed * 1000003 + i)
    found = targets()
    name, function = found[i % len(found)]
    args, named = arguments(rng, name, function)
    if args and rng.random() < 0.3:
        with_spite(rng, args, named)
    text = f"case {i}: {name}({', '.join(map(show, args))}, {', '.join(f'{k}={show(v)}' for k, v in named.items())})"
    print(text, file=sys.stderr, flush=True)
    try:
        look_at(function(*args, **named))
    except Raised:
        pass
    except EXPECTED as error:
        if not str(error) and not isinstance(error, (MemoryError, KeyError)):
            return f"{text}\n    raises {error!r}, which says nothing"
    except BaseException as error:
        if isinstance(error, AttributeError) and name in ("array.__setattr__", "array.__delattr__"):
            return None
        if not name.startswith("array.") or (args and isinstance(args[0], hx.array)):  # else a method of what is no array
            return f"{text}\n    raises {error!r}"
    return None


def child(seed, start, end):
    hx.set_memory_limit(256 << 20)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    problems = 0
    for i in range(start, end):
        problem = call(seed, i)
        if problem:
            problems += 1
            print(problem, flush=True)
        if i % 500 == 0:
            gc.collect()
    a = hx.arange(10) + 1  # all is as before
    assert a.sum().item() == 55 and mean_of_grad() == 2.0
    sys.exit(1 if problems else 0)


def mean_of_grad():
    return hx.grad(lambda x: (x * x).mean())(hx.ones(4)).sum().item()


def parent(seed, cases):
    print(f"seed {seed}")
    library = os.path.abspath(os.environ["HEARTH_LIBRARY"])
    path = os.pathsep.join(map(os.path.abspath, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    start, wrong, step = 0, 0, 2000
    script = pathlib.Path(__file__).resolve()
    with tempfile.TemporaryDirectory() as folder:
        while start < cases:
            end = min(cases, start + step)
            command = [sys.executable, str(script), "--child", str(seed), str(start), str(end)]
            environment = {**os.environ, "HEARTH_LIBRARY": library, "PYTHONPATH": path, "MALLOC_PERTURB_": "90"}
            with tempfile.TemporaryFile("w+") as said:
                try:
                    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=said, stdin=subprocess.DEVNULL,
                                          text=True, errors="replace", timeout=SECONDS * 10)  # fmt: skip
                    status, out = done.returncode, done.stdout
                except subprocess.TimeoutExpired as late:
                    status, out = "takes too long", late.stdout.decode(errors="replace") if late.stdout else ""
                said.seek(0)
                lines = said.read().splitlines()
            print(out, end="")
            last = next((line for line in reversed(lines) if line.startswith("case ")), "case 0: nothing")
            reached = int(last.split()[1].rstrip(":"))
            if status not in (0, 1) or (status == 1 and not out):
                wrong += 1
                print(f"{last}\n    ends with {status}: {' | '.join(lines[-3:])[-300:]}")
                start = reached + 1
            else:
                wrong += out.count("\n    raises")
                start = end
    print(f"{cases} calls, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*map(int, sys.argv[2:]))
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(parent(options.seed, options.cases))
