"""The sections of the comparison: each measures, and gives rows for the table."""

import importlib
import pathlib
import sys
import tempfile

import engines
import gates
import inside
from engines import median
from gates import check, row

PREFILL, DECODE, DEPTH, TOGETHER = 512, 128, 4096, 8


def known(path):
    return pathlib.Path(path).stem


def only(wanted, models):
    """Those of the models that a gate is about, or all when it is about none of them."""
    return [m for m in models if known(m) in wanted] or models


def of_machine(what, results):
    """(part, text) of the machine that a figure of Hearth's is."""
    key, name = {"prefill": ("prefill_of_peak", f"of {results[0]['arithmetic']} peak"),
                 "decode": ("decode_of_read_bandwidth", "of reading")}[what]
    part = median(results, key)
    return part, f"{100 * part:3.0f} % {name}"


def speed_rows(model, results, o, peer="llama.cpp", ratios=None, parts=gates.OF_MACHINE):
    rows, ratios = [], gates.RATIO[o.precision] if ratios is None else ratios
    for what, n in [("prefill", PREFILL), ("decode", o.decode)]:
        key = f"{what}_tokens_per_second"
        ours, theirs = median(results["hearth"], key), median(results[peer], key)
        part, text = of_machine(what, results["hearth"])
        rows.append(row(model, f"{what} {n}", ours, theirs, "tok/s",
                        check("ratio", ours / theirs, ratios.get(what, {}).get(model)),
                        check("part", part, parts.get(what, {}).get(model)), of=text))
    return rows


def speed(o, threads):
    section = {"title": f"Prefill of {PREFILL} tokens, decoding of {DECODE}, {threads} thread{'s' * (threads > 1)}",
               "peer": "llama.cpp", "rows": [], "rounds": {}}
    python = engines.python_with(["llama_cpp"], o.python)
    for path in o.models:
        results = engines.in_turns({
            "hearth": lambda: engines.hearth(o, path, threads, PREFILL, o.decode),
            "llama.cpp": lambda: engines.llama(python, path, threads, PREFILL, o.decode),
        }, o.rounds, f"{known(path)}, {threads} threads")
        ours, theirs = (median(results[e], "peak_memory_bytes") / 1e6 for e in ("hearth", "llama.cpp"))
        section["rows"] += speed_rows(known(path), results, o)
        section["rows"].append(row(known(path), "peak memory", ours, theirs, "MB",
                                   check("ratio", ours / theirs, at_most=gates.PEAK_MEMORY)))
        section["rounds"][known(path)] = results
    return section


def depth(o):
    section = {"title": f"Prefill of {DEPTH} tokens, decoding after as many, {o.threads} threads", "peer": "llama.cpp",
               "rows": [], "rounds": {}}
    python = engines.python_with(["llama_cpp"], o.python)
    for path in only(gates.DEPTH[o.precision]["prefill"], o.models):
        kept = section["rounds"][known(path)] = {}
        for what, prefill, decode, at in [("prefill", DEPTH, 0, 0), ("decode", 0, o.decode, DEPTH)]:
            results = kept[what] = engines.in_turns({
                "hearth": lambda: engines.hearth(o, path, o.threads, prefill, decode, "-d", at),
                "llama.cpp": lambda: engines.llama(python, path, o.threads, prefill, decode, at),
            }, o.rounds, f"{known(path)}, {what}, depth {DEPTH}")
            ours, theirs = (median(results[e], f"{what}_tokens_per_second") for e in ("hearth", "llama.cpp"))
            name = f"prefill {DEPTH}" if what == "prefill" else f"decode after {DEPTH}"
            section["rows"].append(row(known(path), name, ours, theirs, "tok/s",
                                       check("ratio", ours / theirs, gates.DEPTH[o.precision][what].get(known(path)))))
    return section


def batch(o):
    section = {"title": f"{TOGETHER} conversations in one step, {o.threads} threads", "peer": "one alone", "rows": [],
               "rounds": {}}
    for path in only(gates.TOGETHER[o.precision], o.models):
        results = section["rounds"][known(path)] = engines.in_turns({
            "hearth": lambda: engines.hearth(o, path, o.threads, 0, o.decode, "--parallel", TOGETHER),
        }, o.rounds, f"{known(path)}, {TOGETHER} together")["hearth"]
        gain = median(results, "parallel_of_one")
        section["rows"].append(row(known(path), f"decode, {TOGETHER} together", median(results, "parallel_tokens_per_second"),
                                   median(results, "decode_tokens_per_second"), "tok/s",
                                   check("gain", gain, gates.TOGETHER[o.precision].get(known(path)))))
    return section


def lesser_sets(o):
    """The machine's best instruction set, and whichever it has below that one."""
    machine = engines.run_json([o.hearth, "doctor", "--json", "--quiet"])
    best = machine["instruction_set"]
    sets = [s["name"] for s in machine["instruction_sets"] if s["built_in"] and s["machine_has"] and s["name"] != "reference"]
    return best, sets[: sets.index(best)] if best in sets else []


def precision(o):
    """High precision beside fast, whichever is asked for: a later --precision wins."""
    section = {"title": f"High precision beside fast, {o.threads} threads", "peer": "fast", "rows": [], "rounds": {}}
    best, others = lesser_sets(o)
    for path in o.models:
        for isa in [best, *(["avx2"] if "avx2" in others else [])]:
            results = engines.in_turns({
                name: lambda name=name: engines.hearth(o, path, o.threads, PREFILL, o.decode, "--parallel", TOGETHER,
                                                       "--precision", name, "--cpu", isa)
                for name in ("high", "fast")
            }, o.rounds, f"{known(path)}, precisions, {isa}")
            section["rounds"][f"{known(path)} {isa}"] = results
            for what, wanted in (gates.HIGH_OF_FAST if isa == best else gates.HIGH_OF_FAST_AVX2).items():
                wanted = wanted.get(known(path)) if isinstance(wanted, dict) else wanted
                high, fast = (median(results[name], f"{what}_tokens_per_second") for name in ("high", "fast"))
                name = f"decode, {TOGETHER} together" if what == "parallel" else what
                section["rows"].append(row(known(path), name if isa == best else f"{name}, {isa}", high, fast, "tok/s",
                                           check("ratio", high / fast, wanted)))
    return section


def instruction_sets(o):
    """Whichever the machine has below its best one, of which AVX2 is asked for something."""
    best, others = lesser_sets(o)
    section = {"title": f"Other instruction sets, {o.threads} threads", "peer": best, "rows": [], "rounds": {}}
    for path in o.models if others else []:
        results = section["rounds"][known(path)] = engines.in_turns({
            name: lambda name=name: engines.hearth(o, path, o.threads, PREFILL, o.decode, "--cpu", name)
            for name in [*others, best]
        }, o.rounds, f"{known(path)}, instruction sets")
        for what in ("prefill", "decode"):
            for name in others:
                ours, full = (median(results[s], f"{what}_tokens_per_second") for s in (name, best))
                section["rows"].append(row(known(path), f"{what}, {name}", ours, full, "tok/s",
                                           check("ratio", ours / full, gates.OTHER_SET if name == "avx2" else None)))
    return section


def start(o):
    section = {"title": f"From process start to the first token, {o.threads} threads", "peer": "llama.cpp", "rows": []}
    measured = importlib.import_module("start").measure(o.models, o.hearth, o.threads, 2 * o.rounds - 1,
                                                        engines.python_with(["llama_cpp"], o.python))
    section["rounds"] = measured
    for path, result in measured.items():
        ours, theirs = result["hearth"], result["llama.cpp"]
        for what, key, scale, unit, wanted in [("to the first token", "seconds", 1e-3, "ms", gates.START),
                                               ("peak memory", "peak_bytes", 1e6, "MB", gates.PEAK_MEMORY)]:
            section["rows"].append(row(known(path), what, ours[key] / scale, theirs[key] / scale, unit,
                                       check("ratio", ours[key] / theirs[key], at_most=wanted)))
    return section


def tokenizer(o):
    section = {"title": "Vocabulary ready, 1 MB of English encoded, one thread", "peer": "tokenizers", "rows": []}
    measured = importlib.import_module("tokenizer").measure(
        o.models, inside.beside(o.hearth, "bench_tokenizer"), o.rounds, engines.python_with(["tokenizers", "gguf"], o.python))
    section["rounds"] = measured
    for path, result in measured.items():
        for what, key in [("vocabulary ready", "ready_seconds"), ("1 MB encoded", "encode_seconds")]:
            ours, theirs = result["hearth"][key] * 1e3, result["tokenizers"][key] * 1e3
            section["rows"].append(row(known(path), what, ours, theirs, "ms",
                                       check("gain", theirs / ours, gates.TOKENIZER)))
    return section


def dense(o):
    """Checkpoints in bf16, made of the same files."""
    section = {"title": f"Dense bf16 checkpoints, {o.threads} threads", "peer": "transformers", "rows": [], "rounds": {}}
    python = engines.python_with(["torch", "transformers", "gguf", "safetensors"], o.python)
    peer = importlib.import_module("compare_dense")
    for path in o.models:
        with tempfile.TemporaryDirectory() as directory:
            engines.run([python, engines.HERE / "make_dense.py", path, directory])
            results = section["rounds"][known(path)] = engines.in_turns({
                "hearth": lambda: engines.hearth(o, directory, o.threads, PREFILL, o.decode),
                "transformers": lambda: peer.measure_transformers(directory, o.threads, python),
            }, o.rounds, f"{known(path)} in bf16")
        wanted = {what: {known(path): ratio} for what, ratio in gates.DENSE.items()}
        parts = {what: {known(path): part} for what, part in gates.DENSE_OF_MACHINE.items()}
        section["rows"] += speed_rows(known(path), results, o, "transformers", wanted, parts)
    return section


def four_bits(o):
    """The same matrices as groups of MLX and as blocks of GGUF, Hearth beside itself."""
    section = {"title": f"4 bits as mlx-lm stores them, {o.threads} threads", "peer": "Q4_1", "rows": [], "rounds": {}}
    python = engines.python_with(["mlx_lm", "torch", "transformers", "gguf"], o.python)
    for path in o.models:
        with tempfile.TemporaryDirectory() as directory:
            engines.run([python, engines.HERE / "make_four_bits.py", path, directory])
            results = section["rounds"][known(path)] = engines.in_turns({
                name: lambda name=name: engines.hearth(o, pathlib.Path(directory) / name, o.threads, PREFILL, o.decode)
                for name in ("mlx-32", "mlx-64", "q4_1.gguf")
            }, o.rounds, f"{known(path)} in 4 bits")
        for what in ("prefill", "decode"):
            for group in ("mlx-32", "mlx-64"):
                ours, blocks = (median(results[e], f"{what}_tokens_per_second") for e in (group, "q4_1.gguf"))
                section["rows"].append(row(known(path), f"{what}, groups of {group[4:]}", ours, blocks, "tok/s",
                                           check("ratio", ours / blocks, gates.MLX_OF_BLOCKS)))
    return section


def experts(o):
    """Large random checkpoints of Gemma 4's shapes in 4 bits, with experts and without: what counts is the bandwidth."""
    section = {"title": f"Random Gemma 4 checkpoints in 4 bits, {o.threads} threads", "peer": "none", "rows": [], "rounds": {}}
    python = engines.python_with(["numpy"], o.python)
    for kind, part in gates.LARGE_OF_MACHINE.items():
        with tempfile.TemporaryDirectory() as directory:
            engines.run([python, engines.HERE / "make_gemma4.py", kind, directory])
            results = section["rounds"][kind] = engines.in_turns({
                "hearth": lambda: engines.hearth(o, directory, o.threads, PREFILL, o.decode),
            }, o.rounds, f"Gemma 4, {kind}")["hearth"]
        for what, n in [("prefill", PREFILL), ("decode", o.decode)]:
            reached, text = of_machine(what, results)
            section["rows"].append(row(f"gemma4, {kind}", f"{what} {n}", median(results, f"{what}_tokens_per_second"), None,
                                       "tok/s", check("part", reached, part if what == "decode" else None), of=text))
    return section


FRESH = """
import mmap, time
n = 2 << 30
memory = mmap.mmap(-1, n)
memory.madvise(mmap.MADV_HUGEPAGE)
begin = time.perf_counter()
for at in range(0, n, 4096):
    memory[at] = 1
print(n / (time.perf_counter() - begin))
"""


def billions(o):
    """Random Q4_K_M checkpoints of 1 to 8 billion weights."""
    section = {"title": f"Random Q4_K_M checkpoints of 1 to 8 billion weights, {o.threads} threads", "peer": "llama.cpp",
               "rows": [], "rounds": {}}
    python = engines.python_with(["llama_cpp", "numpy"], o.python)
    parts = {what: dict.fromkeys(gates.BILLIONS, part) for what, part in gates.BILLIONS_OF_MACHINE[o.precision].items()}
    other = {"high": "fast", "fast": "high"}[o.precision]
    for shape in o.shapes:
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / f"{shape}.gguf"
            engines.run([python, engines.HERE / "make_large.py", shape, path])
            fresh = float(engines.run([sys.executable, "-c", FRESH]))
            results = engines.in_turns({
                "hearth": lambda: engines.hearth(o, path, o.threads, PREFILL, o.decode),
                "other": lambda: engines.hearth(o, path, o.threads, PREFILL, 0, "--precision", other),
                "llama.cpp": lambda: engines.llama(python, path, o.threads, PREFILL, o.decode),
            }, o.rounds, shape)
            begun = importlib.import_module("start").measure([path], o.hearth, o.threads, o.rounds, python, True)[str(path)]
            size = path.stat().st_size / 1e6
        section["rounds"][shape] = {"speed": results, "start": begun, "fresh_bytes_per_second": fresh}
        section["rows"] += speed_rows(shape, results, o, ratios={}, parts=parts)
        prefill = {e: median(results[e], "prefill_tokens_per_second") for e in ("hearth", "other")}
        high, fast = (prefill[e] for e in (("hearth", "other") if o.precision == "high" else ("other", "hearth")))
        section["rows"].append(row(shape, f"prefill {PREFILL}, {other}", prefill["other"], None, "tok/s",
                                   check("high / fast", high / fast, gates.BILLIONS_HIGH_OF_FAST.get(shape))))
        ours, theirs = (median(results[e], "peak_memory_bytes") / 1e6 for e in ("hearth", "llama.cpp"))
        section["rows"].append(row(shape, "peak memory", ours, theirs, "MB",
                                   check("of the file", ours / size, at_most=gates.BILLIONS_MEMORY)))
        start, packed, theirs = (begun[e] for e in ("hearth", "packed", "llama.cpp"))
        section["rows"] += [
            row(shape, "to the first token", start["seconds"] * 1e3, theirs["seconds"] * 1e3, "ms",
                check("seconds", start["seconds"], at_most=gates.BILLIONS_START["seconds"].get(shape))),
            row(shape, "first of two runs", start["first_seconds"] * 1e3, theirs["first_seconds"] * 1e3, "ms",
                of=f"fresh memory comes at {fresh / 1e9:.1f} GB/s a thread"),
            row(shape, "with --packed-cache", packed["seconds"] * 1e3, None, "ms",
                check("seconds", packed["seconds"], at_most=gates.BILLIONS_START["packed"].get(shape))),
        ]
    return section


SECTIONS = {
    "speed": lambda o: speed(o, o.threads),
    "one-thread": lambda o: speed(o, 1),
    "depth": depth,
    "batch": batch,
    "precision": precision,
    "avx2": instruction_sets,
    "start": start,
    "tokenizer": tokenizer,
    "dense": dense,
    "four-bits": four_bits,
    "experts": experts,
    "billions": billions,
    "overhead": inside.overhead,
    "sampling": inside.sampling,
    "fidelity": inside.fidelity,
}
