"""llama.cpp, through llama-cpp-python, measured like `hearth bench --json`; bench/engines.py runs it in a process of its own.

    python bench/peers/llama.py MODEL.gguf THREADS PREFILL DECODE DEPTH

Prefill is measured from an empty context, decoding after DEPTH tokens, each after a run to warm up; 0 leaves one out.
Choosing tokens and turning them into text is left out, in its favour. Peak memory is without what Python took before.
"""

import json
import sys
import time

import llama_cpp

CHUNK = 512


def resident_bytes(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def main():
    path, (threads, n_prefill, n_decode, depth) = sys.argv[1], map(int, sys.argv[2:])
    python_bytes = resident_bytes("VmRSS")
    llm = llama_cpp.Llama(
        path, n_ctx=max(n_prefill, depth + n_decode + 1), n_batch=CHUNK, n_ubatch=CHUNK, n_threads=threads,
        n_threads_batch=threads, verbose=False,
    )
    ids = [(i * 7919 + 13) % llm.n_vocab() for i in range(max(n_prefill, depth + 1))]

    def prefill():
        llm.reset()
        begin = time.perf_counter()
        llm.eval(ids[:n_prefill])
        return n_prefill / (time.perf_counter() - begin)

    def decode():
        llm.reset()
        llm.eval(ids[: depth + 1])
        begin = time.perf_counter()
        for _ in range(n_decode):
            llm.eval(ids[:1])
        return n_decode / (time.perf_counter() - begin)

    result = {}
    for name, n, measure in [("prefill", n_prefill, prefill), ("decode", n_decode, decode)]:
        if n:
            measure()
            result[f"{name}_tokens_per_second"] = measure()
    result["peak_memory_bytes"] = resident_bytes("VmHWM") - python_bytes
    print(json.dumps(result))


if __name__ == "__main__":
    main()
