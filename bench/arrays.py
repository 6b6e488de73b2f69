#!/usr/bin/env python3
"""Array operations beside MLX, NumPy and torch on the same CPU.

  bench/arrays.py [--threads 1,2] [--only TEXT] [--rounds N] [--json FILE]

Needs numpy; mlx and torch where they are installed; HEARTH_LIBRARY and PYTHONPATH=python. Every operation runs alternately
with all libraries in one process, and what is printed are medians of the rounds, and medians of the ratios of the time of
a round to Hearth's in the same round: above 1, Hearth is faster. GB/s counts what an operation has to read and to write;
the column behind it is the part of the machine's bandwidth that this is, as NumPy's copies reach it, one in each thread.
NumPy computes with one thread, other than products. Without --threads a child process is started for each number.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MB = 1 << 20


def load(threads):
    """The libraries that there are, by name, each with a function that makes an array and one that computes."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # Hearth and MLX take what there is
    import numpy as np

    import hearth as hx

    libraries = {"hearth": hx, "numpy": np}
    try:
        import mlx.core as mx

        mx.set_default_device(mx.cpu)
        libraries["mlx"] = mx
    except ImportError:
        pass
    try:
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        libraries["torch"] = torch
    except ImportError:
        pass
    return libraries


# ---- operations: per library a function of prepared operands; NumPy's computes at once, MLX and Hearth are evaluated ----


UNARY = [
    ("exp", {}), ("log", {}), ("sin", {}), ("tanh", {}), ("sqrt", {}), ("erf", {"numpy": None}), ("abs", {}), ("floor", {}),
    ("tan", {}), ("arctan", {}), ("arcsin", {}), ("log1p", {}), ("expm1", {}), ("sigmoid", {"numpy": None}),
]  # fmt: skip
BINARY = ["add", "multiply", "divide", "maximum", "power", "arctan2", "less"]
REDUCTIONS = ["sum", "mean", "max", "argmax", "var", "logsumexp", "all"]


def cases(np):
    """(name, bytes moved, operands as NumPy arrays, function of library name, library and operands); bytes None: by time."""
    r = np.random.default_rng(3)
    big = r.random((2048, 4096), dtype=np.float32)
    other = r.random((2048, 4096), dtype=np.float32)
    n = big.nbytes

    for name, _ in UNARY:
        yield f"{name} f32", 2 * n, [big], lambda k, m, x, name=name: function(k, m, name)(x)
    for name in BINARY:
        moved = 2 * n + (n // 4 if name == "less" else n)
        yield f"{name} f32", moved, [big, other], lambda k, m, x, y, name=name: function(k, m, name)(x, y)
    yield "x + row f32", 2 * n, [big, other[0]], lambda k, m, x, y: x + y
    yield "x + column f32", 2 * n, [big, other[:, :1]], lambda k, m, x, y: x + y
    yield "x + y.T f32", 3 * n, [big, other], lambda k, m, x, y: x + y.reshape(4096, 2048).T
    yield "x * 2 + 1 f32", 2 * n, [big], lambda k, m, x: x * 2.0 + 1.0
    yield "x * y + x f32", 3 * n, [big, other], lambda k, m, x, y: x * y + x
    yield "8 operations f32", 3 * n, [big, other], chain
    yield "where(x < y, x, y * 2) f32", 3 * n, [big, other], lambda k, m, x, y: m.where(x < y, x, y * 2.0)

    doubles = big[:1024].astype(np.float64)
    yield "add f64", 3 * n, [doubles, doubles + 1], lambda k, m, x, y: x + y
    halves = big.astype(np.float16)
    yield "add f16", 3 * n // 2, [halves, halves], lambda k, m, x, y: x + y
    whole = (big * 1000).astype(np.int32)
    yield "add i32", 3 * n, [whole, whole + 1], lambda k, m, x, y: x + y
    yield "multiply i32", 3 * n, [whole, whole + 1], lambda k, m, x, y: x * y
    small = whole.astype(np.uint8)
    yield "add u8", 3 * n // 4, [small, small], lambda k, m, x, y: x + y

    for name in REDUCTIONS:
        for axis in (None, 1, 0):
            operand = big > 0 if name == "all" else big
            yield f"{name} axis {axis}", operand.nbytes, [operand], lambda k, m, x, name=name, axis=axis: reduced(
                k, m, name, x, axis
            )
    cube = big.reshape(32, 1024, 256)
    yield "sum axis 1 of 3", n, [cube], lambda k, m, x: reduced(k, m, "sum", x, 1)
    for axis in (1, 0):
        yield f"softmax axis {axis}", 2 * n, [big], lambda k, m, x, axis=axis: softmax(k, m, x, axis)
        yield f"cumsum axis {axis}", 2 * n, [big], lambda k, m, x, axis=axis: scan(k, m, x, axis)

    yield "copy of a transpose f32", 2 * n, [big], lambda k, m, x: copied(k, m, x.T)
    yield "copy of every second f32", n, [big], lambda k, m, x: copied(k, m, x[:, ::2])
    yield "f32 to bf16", 3 * n // 2, [big], lambda k, m, x: None if k == "numpy" else cast(k, m, x, "bfloat16")
    yield "f32 to f16", 3 * n // 2, [big], lambda k, m, x: cast(k, m, x, "float16")
    yield "i32 to f32", 2 * n, [whole], lambda k, m, x: cast(k, m, x, "float32")
    yield "f32 to i32", 2 * n, [big], lambda k, m, x: cast(k, m, x, "int32")
    yield "concatenate", 4 * n, [big, other], lambda k, m, x, y: m.concatenate([x, y])

    line, rows = big.reshape(-1)[: 1 << 20], big[:256]
    yield "sort 1M", None, [line], lambda k, m, x: order(k, m, "sort", x)
    yield "argsort 1M", None, [line], lambda k, m, x: order(k, m, "argsort", x)
    yield "sort 256 x 4096", None, [rows], lambda k, m, x: order(k, m, "sort", x)
    yield "topk 100 of 256 x 4096", None, [rows], lambda k, m, x: top(k, m, x, 100)
    for size in (256, 1024, 2048):
        yield f"matmul {size} f32", None, [big[:size, :size].copy(), other[:size, :size].copy()], lambda k, m, x, y: x @ y
    yield "matmul 1024 bf16", None, ["bfloat16", big[:1024, :1024].copy(), other[:1024, :1024].copy()], (
        lambda k, m, x, y: None if k == "numpy" else x @ y
    )


RENAMED = {
    "torch": {"arcsin": "asin", "arctan": "atan", "arctan2": "atan2", "power": "pow", "less": "lt"},
}


def function(kind, module, name):
    return getattr(module, RENAMED.get(kind, {}).get(name, name), None) or missing


class Missing(Exception):
    pass


def missing(*_):
    raise Missing


def chain(kind, m, x, y):
    z = x * y + x
    z = m.exp(z * -0.5) - y
    return m.maximum(z, x) * z + 1.0


def reduced(kind, m, name, x, axis):
    if kind == "numpy" and name == "logsumexp":
        raise Missing
    if kind == "torch":
        if name == "max":
            name = "amax"
        if name == "var":
            return m.var(x, dim=axis, correction=0)
        if name == "logsumexp" and axis is None:
            axis = (0, 1)
        return getattr(m, name)(x) if axis is None else getattr(m, name)(x, dim=axis)
    return getattr(m, name)(x, axis=axis)


def softmax(kind, m, x, axis):
    if kind == "numpy":
        e = m.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)
    return m.softmax(x, dim=axis) if kind == "torch" else m.softmax(x, axis=axis)


def scan(kind, m, x, axis):
    return m.cumsum(x, dim=axis) if kind == "torch" else m.cumsum(x, axis=axis)


def copied(kind, m, x):
    return x.contiguous() if kind == "torch" else m.ascontiguousarray(x) if kind == "numpy" else m.contiguous(x)


def cast(kind, m, x, dtype):
    return x.to(getattr(m, dtype)) if kind == "torch" else x.astype(getattr(m, dtype))


def order(kind, m, name, x):
    if not hasattr(m, name):
        raise Missing
    result = getattr(m, name)(x)
    return result[0] if kind == "torch" and name == "sort" else result


def top(kind, m, x, k):
    if kind == "numpy":
        return m.partition(x, x.shape[1] - k, axis=1)[:, -k:]
    if not hasattr(m, "topk"):
        raise Missing
    return m.topk(x, k)[0] if kind == "torch" else m.topk(x, k)


# ---- measuring ----


def as_operand(kind, module, value, dtype):
    if kind == "numpy":
        return value
    if kind == "torch":
        made = module.from_numpy(value.copy())
    else:
        made = module.array(value)
    if dtype:
        made = made.to(getattr(module, dtype)) if kind == "torch" else made.astype(getattr(module, dtype))
    if kind in ("hearth", "mlx"):
        module.eval(made)
    return made


def once(kind, module, run, operands):
    begin = time.perf_counter()
    result = run(kind, module, *operands)
    if kind in ("hearth", "mlx"):
        module.eval(result)
    return time.perf_counter() - begin


def seconds(kind, module, run, operands, repeat):
    return min(once(kind, module, run, operands) for _ in range(repeat))


def measure(libraries, name, moved, values, run, rounds):
    """Medians of the libraries' times, and of their ratios to Hearth's."""
    dtype = values.pop(0) if isinstance(values[0], str) else None
    prepared, times = {}, {}
    for kind, module in libraries.items():
        try:
            operands = [as_operand(kind, module, v, dtype) for v in values]
            if run(kind, module, *operands) is None:
                continue
            once(kind, module, run, operands)
        except (Missing, AttributeError, TypeError, NotImplementedError):
            continue
        prepared[kind], times[kind] = operands, []
    for _ in range(rounds):
        for kind, operands in prepared.items():
            times[kind].append(seconds(kind, libraries[kind], run, operands, 2))
    if "hearth" not in times:
        return None
    result = {"name": name, "seconds": {k: statistics.median(t) for k, t in times.items()}}
    result["ratios"] = {
        k: statistics.median(a / b for a, b in zip(t, times["hearth"])) for k, t in times.items() if k != "hearth"
    }
    if moved:
        result["bytes_per_second"] = moved / result["seconds"]["hearth"]
    return result


def bandwidth(libraries, threads):
    """Bytes per second, read and written, of the largest of a few copies: NumPy's by as many threads."""
    import concurrent.futures

    np = libraries["numpy"]
    n = 64 * MB
    from_, to = np.ones(n, np.uint8), np.zeros(n, np.uint8)
    parts = [slice(i * n // threads, (i + 1) * n // threads) for i in range(threads)]
    best = 0
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for _ in range(8):
            begin = time.perf_counter()
            list(pool.map(lambda p: np.copyto(to[p], from_[p]), parts))
            best = max(best, 2 * n / (time.perf_counter() - begin))
    return best


def chain(x):
    y = x
    for _ in range(1000):
        y = y + x
    return y


def overhead(libraries, rounds, compiled=False):
    """Seconds per operation of a long chain on one element; of those that compile a function before it runs, if asked."""
    result = {}
    for kind, module in libraries.items():
        if compiled and kind not in ("hearth", "mlx"):
            continue
        x = as_operand(kind, module, libraries["numpy"].ones(1, "float32"), None)
        function = module.compile(chain) if compiled else chain

        def run(kind=kind, module=module, x=x, function=function):
            y = function(x)
            if kind in ("hearth", "mlx"):
                module.eval(y)

        run()
        best = 1e9
        for _ in range(rounds):
            begin = time.perf_counter()
            run()
            best = min(best, (time.perf_counter() - begin) / 1000)
        result[kind] = best
    return result


KINDS = ["numpy", "mlx", "torch"]


def print_line(f, copy):
    ratios = "".join(f"{f['ratios'][k]:9.2f}" if k in f["ratios"] else f"{'':9}" for k in KINDS)
    speed = f.get("bytes_per_second")
    moved = f"{speed / 1e9:8.1f}{speed / copy:8.0%} " if speed else f"{'':17}"
    print(f"{f['name']:32}{f['seconds']['hearth'] * 1e3:9.2f}{moved}{ratios}", flush=True)


def run_here(threads, args):
    libraries = load(threads)
    copy, found = bandwidth(libraries, threads), []
    print(f"\n{threads} thread{'s' * (threads > 1)}: a copy reads and writes {copy / 1e9:.1f} GB/s")
    print(f"{'':32}{'ms':>9}{'GB/s':>8}{'of copy':>9}" + "".join(f"{'/ ' + k:>9}" for k in KINDS))
    for name, moved, values, run in cases(libraries["numpy"]):
        if args.only and args.only not in name:
            continue
        one = measure(libraries, name, moved, values, run, args.rounds)
        if one:
            found.append(one)
            print_line(one, copy)
    cost, compiled = overhead(libraries, args.rounds), overhead(libraries, args.rounds, compiled=True)
    for name, each in (("", cost), (" in a compiled function", compiled)):
        print(f"an operation on one element{name}: " + ", ".join(f"{k} {v * 1e6:.2f} us" for k, v in each.items()))
    return {
        "threads": threads, "copy_bytes_per_second": copy, "operations": found, "overhead_seconds": cost,
        "compiled_overhead_seconds": compiled,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, each in a process of its own")
    parser.add_argument("--only", help="operations whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="file for all results")
    args = parser.parse_args()
    counts = [int(t) for t in args.threads.split(",")]
    if len(counts) == 1:
        results = [run_here(counts[0], args)]
        if args.json:
            with open(args.json, "w") as f:
                json.dump(results, f, indent=1)
        return
    results = []
    for threads in counts:
        part = f"{args.json or 'arrays'}.{threads}.tmp"
        command = [sys.executable, __file__, "--threads", str(threads), "--rounds", str(args.rounds), "--json", part]
        subprocess.run(command + (["--only", args.only] if args.only else []), check=True)
        with open(part) as f:
            results += json.load(f)
        os.unlink(part)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
