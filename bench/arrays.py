#!/usr/bin/env python3
"""Array operations beside MLX, NumPy and torch on the same CPU, and what is asked of them.

  bench/arrays.py [--threads 1,2] [--only TEXT] [--part K/N] [--rounds N] [--json FILE]
  bench/arrays.py --table FILE      the results in FILE as a table for docs/

Needs numpy; mlx and torch where they are installed; HEARTH_LIBRARY and PYTHONPATH=python, and bench_arrays in the bin folder
beside that library. Every operation runs alternately with all libraries in one process, and what is printed are medians of
the rounds, and medians of the ratios of the time of a round to Hearth's in the same round: above 1, Hearth is faster. GB/s
counts what an operation has to read and to write; the column behind it is the part of the bandwidth that this is: of the
better of two loops that copy (with plain stores, and with streaming stores), or of one that reads, which a program in C runs in
every round with as many threads. The last column says whether the line meets what is asked: 80 % of the bandwidth for chains, reductions and
softmax; NumPy's speed for what NumPy has (0.95, what two runs differ by); 0.85 of torch's for products and its own speed for
attention. NumPy computes with one thread, other than products. Without --threads a child process is started for each
number. --json adds to what a file holds, so that parts and single lines can be run one by one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


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
    ("tan", {}), ("arctan", {}), ("arcsin", {}), ("log1p", {}), ("expm1", {}), ("log10", {}), ("sinh", {}),
    ("sigmoid", {"numpy": None}),
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
    yield "x ** 2 f32", 2 * n, [big], lambda k, m, x: x**2
    yield "x * 2 + 1 f32", 2 * n, [big], lambda k, m, x: x * 2.0 + 1.0
    yield "x * y + x f32", 3 * n, [big, other], lambda k, m, x, y: x * y + x
    yield "8 operations f32", 3 * n, [big, other], chain
    yield "where(x < y, x, y * 2) f32", 3 * n, [big, other], lambda k, m, x, y: m.where(x < y, x, y * 2.0)

    doubles = big[:1024].astype(np.float64)
    yield "add f64", 3 * n, ["float64", doubles, doubles + 1], lambda k, m, x, y: x + y
    yield "exp f64", 2 * n, ["float64", doubles], lambda k, m, x: m.exp(x)
    halves = big.astype(np.float16)
    yield "add f16", 3 * n // 2, [halves, halves + 1], lambda k, m, x, y: x + y
    whole = (big * 1000).astype(np.int32)
    yield "add i32", 3 * n, [whole, whole + 1], lambda k, m, x, y: x + y
    yield "multiply i32", 3 * n, [whole, whole + 1], lambda k, m, x, y: x * y
    small = whole.astype(np.uint8)
    yield "add u8", 3 * n // 4, [small, small + 1], lambda k, m, x, y: x + y

    words = whole.astype(np.int16)
    yield "right_shift i16", 3 * n // 2, [words, words % 16], lambda k, m, x, y: x >> y

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
    yield "f32 to i8", 5 * n // 4, [big], lambda k, m, x: cast(k, m, x, "int8")
    yield "concatenate", 4 * n, [big, other], lambda k, m, x, y: m.concatenate([x, y])

    line, rows = big.reshape(-1)[: 1 << 20], big[:256]
    table, chosen = big.reshape(-1, 256), r.integers(0, 1 << 15, 1 << 15)
    yield "take 32768 rows of 256", 2 * n, [table, chosen.astype(np.int32)], lambda k, m, x, i: (
        m.index_select(x, 0, i) if k == "torch" else m.take(x, i, axis=0)
    )
    yield "sort 1M", None, [line], lambda k, m, x: order(k, m, "sort", x)
    yield "argsort 1M", None, [line], lambda k, m, x: order(k, m, "argsort", x)
    yield "sort 256 x 4096", None, [rows], lambda k, m, x: order(k, m, "sort", x)
    yield "topk 100 of 256 x 4096", None, [rows], lambda k, m, x: top(k, m, x, 100)
    yield "argsort 256 x 4096", None, [rows], lambda k, m, x: order(k, m, "argsort", x)
    short = big[:, :64].copy()
    yield "sort 2048 x 64", None, [short], lambda k, m, x: order(k, m, "sort", x)
    yield "argsort 2048 x 64", None, [short], lambda k, m, x: order(k, m, "argsort", x)
    yield "topk 40 of 1M", None, [line[None]], lambda k, m, x: top(k, m, x, 40)
    yield "partition 1M", None, [line], lambda k, m, x: parted(k, m, "partition", x)
    yield "argpartition 1M", None, [line], lambda k, m, x: parted(k, m, "argpartition", x)
    for size in (256, 512, 1024, 2048, 4096):
        x = big.reshape(-1)[: size * size].reshape(size, size) if size < 4096 else r.random((size, size), dtype=np.float32)
        yield f"matmul {size} f32", None, [x, x + 1], lambda k, m, x, y, n=size: product(k, x, y, n)
    for size in (256, 1024, 2048):
        x = big.reshape(-1)[: size * size].reshape(size, size)
        yield f"matmul {size} bf16", None, ["bfloat16", x, x + 1], lambda k, m, x, y, n=size: (
            None if k == "numpy" else product(k, x, y, n)
        )
    for size in (512, 2048):
        q = [r.standard_normal((1, 8, size, 64)).astype(np.float32) for _ in range(3)]
        yield f"attention {size}", None, q, attention


def product(kind, x, y, n):
    if kind == "mlx" and n > 1024:
        raise Missing  # seconds each
    return x @ y


def attention(kind, m, q, k, v):
    if kind == "numpy":
        raise Missing
    if kind == "torch":
        return m.nn.functional.scaled_dot_product_attention(q, k, v)
    return m.fast.scaled_dot_product_attention(q, k, v, scale=0.125)


def parted(kind, m, name, x):
    if not hasattr(m, name):
        raise Missing
    return getattr(m, name)(x, x.shape[0] // 2)


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


def measure(libraries, name, moved, values, run, rounds, memory):
    """Medians of the libraries' times, and of their ratios to Hearth's."""
    dtype = values.pop(0) if isinstance(values[0], str) else None
    prepared, times, bandwidth = {}, {}, []
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
            time.sleep(0.02)  # the threads of the library before no longer wait in a loop for more,
            once(kind, libraries[kind], run, operands)  # and this one's have woken up
            times[kind].append(seconds(kind, libraries[kind], run, operands, 2))
        if moved:
            bandwidth.append(memory.rate(reads_only=name.split()[0] in REDUCTIONS))
    if "hearth" not in times:
        return None
    result = {"name": name, "seconds": {k: statistics.median(t) for k, t in times.items()}}
    result["ratios"] = {
        k: statistics.median(a / b for a, b in zip(t, times["hearth"])) for k, t in times.items() if k != "hearth"
    }
    if moved:
        result["bytes_per_second"] = moved / result["seconds"]["hearth"]
        result["of_bandwidth"] = statistics.median(moved / t / b for t, b in zip(times["hearth"], bandwidth))
        result["memory"] = statistics.median(bandwidth)
    return result


def program():
    """bench_arrays, which lies beside the library."""
    library = os.path.realpath(os.environ.get("HEARTH_LIBRARY", "build/release/lib/libhearth.so"))
    return os.path.join(os.path.dirname(library), "..", "bin", "bench_arrays")


def overhead_in_c(threads):
    command = [program(), "overhead", str(threads)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class Memory:
    """What memory gives now, by loops in C."""

    def __init__(self, threads):
        command = [program(), "memory", str(threads)]
        self.loops = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rate(self, reads_only):
        self.loops.stdin.write("\n")
        self.loops.stdin.flush()
        found = json.loads(self.loops.stdout.readline())
        return found["read"] if reads_only else max(found["copy"], found["copy_round_caches"])

    def close(self):
        self.loops.stdin.close()
        self.loops.wait()


# ---- what is asked ----

SAME = 0.95  # what two runs of the same differ by
CHAINS = ("x * 2 + 1", "x * y + x", "8 operations", "where(")


def asked(one):
    """Pairs of what is asked and whether it is so."""
    name, ratios, checks = one["name"], one["ratios"], []
    kind = name.split()[0]
    if name.startswith(CHAINS) or kind in (*REDUCTIONS, "softmax"):
        checks.append(("80 % of the bandwidth", one["of_bandwidth"] >= 0.8))
    if kind == "matmul":
        return [("0.85 of torch", ratios["torch"] >= 0.85)] if "torch" in ratios else []
    if kind == "attention":
        return [("torch", ratios["torch"] >= SAME)] if "torch" in ratios else []
    if "numpy" in ratios:
        checks.append(("NumPy", ratios["numpy"] >= SAME))
    return checks


def verdict(one):
    missed = [what for what, holds in asked(one) if not holds]
    return "under " + ", ".join(missed) if missed else "yes" if asked(one) else ""


def additions(x):
    y = x
    for _ in range(1000):
        y = y + x
    return y


def overhead(libraries, rounds, compiled=False):
    """Seconds per operation of a long chain on one element; of those that compile a function before it runs, if asked."""
    result = {}
    for kind, module in libraries.items():
        if compiled and kind == "numpy":
            continue
        x = as_operand(kind, module, libraries["numpy"].ones(1, "float32"), None)
        function = module.compile(additions) if compiled else additions

        def run(kind=kind, module=module, x=x, function=function):
            y = function(x)
            if kind in ("hearth", "mlx"):
                module.eval(y)

        try:
            run()
        except RuntimeError as e:  # torch compiles with the system's C++ compiler
            print(f"{kind} compiles nothing here: {str(e).splitlines()[0]}", file=sys.stderr)
            continue
        best = 1e9
        for _ in range(rounds):
            begin = time.perf_counter()
            run()
            best = min(best, (time.perf_counter() - begin) / 1000)
        result[kind] = best
    return result


# What programs call most, of arrays [2, 2]: by library and module, of x, y and a matrix of one element.
CALLS = {
    "x + y": lambda k, m, x, y, one: x + y,
    "exp": lambda k, m, x, y, one: m.exp(x),
    "sum": lambda k, m, x, y, one: m.sum(x),
    "sum axis -1": lambda k, m, x, y, one: m.sum(x, dim=-1) if k == "torch" else m.sum(x, axis=-1),
    "reshape": lambda k, m, x, y, one: m.reshape(x, (4,)),
    "transpose": lambda k, m, x, y, one: m.transpose(x, 0, 1) if k == "torch" else m.transpose(x),
    "x[0]": lambda k, m, x, y, one: x[0],
    "concatenate": lambda k, m, x, y, one: m.concatenate([x, y]),
    "zeros": lambda k, m, x, y, one: m.zeros((2, 2)),
    "where": lambda k, m, x, y, one: m.where(x, x, y) if k != "torch" else m.where(x > 0, x, y),
    "matmul 1 x 1": lambda k, m, x, y, one: m.matmul(one, one),
}


def call_seconds(kind, module, call, operands):
    begin = time.perf_counter()
    made = [call(kind, module, *operands) for _ in range(200)]
    back = time.perf_counter()
    if kind in ("hearth", "mlx"):
        module.eval(made)
    return (back - begin) / 200, (time.perf_counter() - begin) / 200


def calls(libraries, rounds):
    """By what is called, seconds until a call returns, and with its share of the evaluation of 200 such results."""
    np, result = libraries["numpy"], {}
    for name, call in CALLS.items():
        result[name] = {kind: [1e9, 1e9] for kind in libraries}
        operands = {
            kind: [as_operand(kind, m, np.full(n, 2, np.float32), None) for n in ((2, 2), (2, 2), (1, 1))]
            for kind, m in libraries.items()
        }
        for _ in range(rounds):
            for kind, module in libraries.items():
                for _ in range(5):  # of which the first find caches that another library filled
                    took = call_seconds(kind, module, call, operands[kind])
                    result[name][kind] = [min(pair) for pair in zip(result[name][kind], took)]
    return result


KINDS = ["numpy", "mlx", "torch"]


def print_line(f):
    ratios = "".join(f"{f['ratios'][k]:9.2f}" if k in f["ratios"] else f"{'':9}" for k in KINDS)
    speed = f.get("bytes_per_second")
    moved = f"{speed / 1e9:8.1f}{f['of_bandwidth']:8.0%} " if speed else f"{'':17}"
    print(f"{f['name']:28}{f['seconds']['hearth'] * 1e3:9.2f}{moved}{ratios}  {verdict(f)}", flush=True)


def run_here(threads, args):
    libraries, memory, found = load(threads), Memory(threads), []
    print(f"\n{threads} thread{'s' * (threads > 1)}")
    print(f"{'':28}{'ms':>9}{'GB/s':>8}{'of it':>9}" + "".join(f"{'/ ' + k:>9}" for k in KINDS) + "  as asked")
    part, parts = (int(n) for n in args.part.split("/"))
    for i, (name, moved, values, run) in enumerate(cases(libraries["numpy"])):
        if (args.only and args.only not in name) or i % parts != part % parts:
            continue
        one = measure(libraries, name, moved, values, run, args.rounds, memory)
        if one:
            found.append(one)
            print_line(one)
    memory.close()
    result = {"threads": threads, "operations": found}
    if not args.only or "overhead" in args.only:
        result["overhead_seconds"] = {**overhead(libraries, args.rounds), **overhead_in_c(threads)}
        result["compiled_overhead_seconds"] = overhead(libraries, args.rounds, compiled=True)
        result["call_seconds"] = calls(libraries, args.rounds)
        print(overhead_text(result))
        row = "{:52}{:>15}{:>9}{:>15}{:>9}  {}".format
        print("\n".join([row(*CALL_COLUMNS), *call_lines(result, lambda cells: row(*cells))]))
    return result


def overhead_text(result):
    cost, compiled = result["overhead_seconds"], result.get("compiled_overhead_seconds", {})
    least = {"eager": 1e-6, "compiled": 2e-7}
    inside = ", ".join(
        f"{k.replace('_', ' ')} {cost[k] * 1e6:.2f} us" + (" (too much)" if cost[k] > least.get(k, 1) else "")
        for k in ("eager", "compiled", "compiled_call")
    )
    outside, faster = (
        ", ".join(f"{k} {v * 1e6:.2f} us" for k, v in each.items() if k in ("hearth", *KINDS)) for each in (cost, compiled)
    )
    faster = f"; in a compiled function of 1,000 (torch makes one loop of them): {faster}" if faster else ""
    return f"An operation on one element, in C: {inside}. Eagerly from Python: {outside}{faster}."


def call_cells(kinds):
    """What a call takes in each library, in us, and in brackets with its evaluation, where that comes later."""
    return [
        f"{kinds[k][0] * 1e6:.2f}" + (f" ({kinds[k][1] * 1e6:.2f})" if k in ("hearth", "mlx") else "") if k in kinds else ""
        for k in ("hearth", *KINDS)
    ]


CALL_COLUMNS = "us a call from Python, arrays [2, 2] (and computed)", "Hearth", "NumPy", "MLX", "torch", "as asked"


def call_lines(result, line):
    """The calls of a result by `line`, which formats a list of cells."""
    found = result.get("call_seconds", {})
    verdicts = {name: "yes" if kinds["hearth"][0] < 1e-6 else "over 1 us" for name, kinds in found.items()}
    return [line([name, *call_cells(kinds), verdicts[name]]) for name, kinds in found.items()]


def merged(old, new):
    """Results by number of threads; operations of the new ones stand in for old ones of the same name."""
    for one in new:
        same = next((o for o in old if o["threads"] == one["threads"]), None)
        if not same:
            old.append(one)
            continue
        by_name = {f["name"]: f for f in same["operations"]}
        by_name.update({f["name"]: f for f in one["operations"]})
        same.update({k: v for k, v in one.items() if k != "operations"}, operations=list(by_name.values()))
    return old


def save(path, results):
    if os.path.exists(path):
        with open(path) as f:
            results = merged(json.load(f), results)
    with open(path, "w") as f:
        json.dump(results, f, indent=1)


def print_table(path):
    import numpy as np

    with open(path) as f:
        results = sorted(json.load(f), key=lambda r: r["threads"])
    place = {c[0]: i for i, c in enumerate(cases(np))}
    for r in results:
        print(f"\n| {r['threads']} thread{'s' * (r['threads'] > 1)} | ms | GB/s | of the bandwidth | / NumPy | / MLX | / torch | as asked |")
        print("|---|---|---|---|---|---|---|---|")
        for f in sorted(r["operations"], key=lambda f: place.get(f["name"], 999)):
            ratios = " | ".join(f"{f['ratios'][k]:.2f}" if k in f["ratios"] else "" for k in KINDS)
            speed = f.get("bytes_per_second")
            moved = f"{speed / 1e9:.1f} | {f['of_bandwidth']:.0%}" if speed else " | "
            print(f"| {f['name']} | {f['seconds']['hearth'] * 1e3:.2f} | {moved} | {ratios} | {verdict(f)} |")
        if "overhead_seconds" in r:
            print("\n" + overhead_text(r))
        if "call_seconds" in r:
            print("\n| " + " | ".join(CALL_COLUMNS) + " |\n|---|---|---|---|---|---|")
            print("\n".join(call_lines(r, lambda cells: "| " + " | ".join(cells) + " |")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, each in a process of its own")
    parser.add_argument("--only", help="operations whose name contains this; overhead: that of operations")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth operation, from the Kth on")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="file that results are added to")
    parser.add_argument("--table", metavar="FILE", help="print what such a file holds")
    args = parser.parse_args()
    if args.table:
        return print_table(args.table)
    counts = [int(t) for t in args.threads.split(",")]
    if len(counts) == 1:
        results = [run_here(counts[0], args)]
        if args.json:
            save(args.json, results)
        return
    for threads in counts:
        command = [sys.executable, __file__, "--threads", str(threads), "--rounds", str(args.rounds), "--part", args.part]
        command += ["--only", args.only] if args.only else []
        subprocess.run(command + (["--json", args.json] if args.json else []), check=True)


if __name__ == "__main__":
    main()
