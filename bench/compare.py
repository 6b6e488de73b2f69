"""Compares Hearth with llama.cpp (through llama-cpp-python) on the same files, in turns, on this machine.

    python3 bench/compare.py [--hearth PATH] [--threads 2] [--rounds 5] MODEL.gguf...

Each round runs first one engine, then the other, each in a process of its own, so that what else the machine does meets
both. Every process loads the model, warms up, and measures prefill of 512 tokens and decoding of 128 from an empty cache.
Printed are the medians over the rounds, the ratio Hearth / llama.cpp, and each one's peak resident memory (of
llama.cpp without what Python took before the model was loaded).

llama-cpp-python is installed into build/compare the first time (a compiler is needed), unless this Python has it.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

PREFILL, DECODE = 512, 128


def resident_bytes(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def measure_llama(path, threads):
    """Run in a process of its own: prints one JSON object of the same shape as `hearth bench --json`."""
    import llama_cpp

    python_bytes = resident_bytes("VmRSS")
    llm = llama_cpp.Llama(
        path, n_ctx=PREFILL + DECODE, n_batch=PREFILL, n_ubatch=PREFILL, n_threads=threads, n_threads_batch=threads,
        verbose=False,
    )
    ids = [(i * 7919 + 13) % llm.n_vocab() for i in range(PREFILL)]

    def prefill():
        llm.reset()
        begin = time.perf_counter()
        llm.eval(ids)
        return PREFILL / (time.perf_counter() - begin)

    def decode():
        llm.reset()
        llm.eval(ids[:1])
        begin = time.perf_counter()
        for _ in range(DECODE):
            llm.eval(ids[:1])  # choosing the token is left out, in its favour
        return DECODE / (time.perf_counter() - begin)

    prefill(), decode()
    print(json.dumps({
        "prefill_tokens_per_second": prefill(),
        "decode_tokens_per_second": decode(),
        "peak_memory_bytes": resident_bytes("VmHWM") - python_bytes,
    }))


def python_with_llama():
    """A Python that has llama-cpp-python: this one, or that of build/compare, made the first time."""
    has = [sys.executable, "-c", "import llama_cpp"]
    if subprocess.run(has, stderr=subprocess.DEVNULL).returncode == 0:
        return sys.executable
    venv = pathlib.Path(__file__).parent.parent / "build" / "compare"
    python = venv / "bin" / "python"
    if subprocess.run([python, "-c", "import llama_cpp"], stderr=subprocess.DEVNULL).returncode if python.exists() else 1:
        print("Building llama-cpp-python in build/compare; this takes some minutes.", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "llama-cpp-python"], check=True)
    return str(python)


def run(command):
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE).stdout)


def compare(path, arguments, python):
    rounds = {"hearth": [], "llama.cpp": []}
    t = arguments.threads
    for i in range(arguments.rounds):
        rounds["hearth"].append(run(
            [arguments.hearth, "bench", path, "-p", PREFILL, "-n", DECODE, "-t", t, "-r", 1, "--json", "--quiet"]
        ))
        rounds["llama.cpp"].append(run([python, __file__, "--measure-llama", "--threads", t, path]))
        last = {engine: "{prefill_tokens_per_second:.0f} and {decode_tokens_per_second:.0f} tok/s".format(**r[-1])
                for engine, r in rounds.items()}
        print(f"round {i + 1} of {arguments.rounds}: hearth {last['hearth']}, llama.cpp {last['llama.cpp']}",
              file=sys.stderr)

    def median(engine, key):
        return statistics.median(r[key] for r in rounds[engine])

    print(f"{pathlib.Path(path).name}, {t} threads, medians of {arguments.rounds} rounds")
    for title, key, scale, unit in [
        (f"prefill {PREFILL}", "prefill_tokens_per_second", 1, "tok/s"),
        (f"decode {DECODE}", "decode_tokens_per_second", 1, "tok/s"),
        ("peak memory", "peak_memory_bytes", 1e6, "MB"),
    ]:
        ours, theirs = median("hearth", key) / scale, median("llama.cpp", key) / scale
        print(f"  {title:12} hearth {ours:8.1f}  llama.cpp {theirs:8.1f} {unit:5}  ratio {ours / theirs:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--hearth", default="build/release/bin/hearth")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure-llama", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_llama:
        measure_llama(arguments.models[0], arguments.threads)
        return
    python = python_with_llama()
    for path in arguments.models:
        compare(path, arguments, python)


if __name__ == "__main__":
    main()
