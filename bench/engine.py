"""Requests under way at once, beside llama.cpp on the same file and lengths, in turns.

    python3 bench/engine.py [--quick] [--threads 2] [--rounds 5] [--python PYTHON] [--json FILE] [MODEL.gguf]

Printed are medians, and ratios of each round's pair: tokens per second with 1, 4, 8 and 16 requests under way all the time and
their time to the first token; what a running request feels of a prompt of 4,096 tokens beside it, and what keeping its pace
costs the prompt; the memory of eight sessions. With 8 requests Hearth's rate is to be twice llama.cpp's at least, and more
everywhere. The exit status is 1 when that does not hold.
"""

import argparse
import json
import pathlib
import statistics
import sys

import engines

UNDER_WAY = {1: 1.0, 4: 1.0, 8: 2.0, 16: 1.0}  # requests, and the least ratio
PROMPT, GENERATED = 128, 64
ROOT = engines.HERE.parent


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default=pathlib.Path.home() / ".cache/hearth/models/smollm2-135m.gguf")
    parser.add_argument("--bench", default=ROOT / "build" / "release" / "bin" / "bench_engine")
    parser.add_argument("--python", help="one that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds of fewer requests: a look, no result")
    parser.add_argument("--json", metavar="FILE", help="write every round there")
    o = parser.parse_args()
    if o.quick:
        o.rounds = 2
    return o


def compare(o, python, under_way):
    requests = under_way * (2 if o.quick else 3) + 2
    counts = [o.threads, under_way, requests, PROMPT, GENERATED]
    flags = [x for pair in zip(["-t", "-c", "-n", "-p", "-g"], counts) for x in pair]
    return engines.in_turns(
        {"hearth": lambda: engines.run_json([o.bench, o.model, *flags]),
         "llama.cpp": lambda: engines.run_json([python, engines.HERE / "peers" / "llama_engine.py", o.model, *counts])},
        o.rounds, f"{under_way} under way")  # fmt: skip


def main():
    o = read_arguments()
    python = engines.python_with(["llama_cpp", "numpy"], o.python)
    results, failed = {}, 0
    print(f"{pathlib.Path(o.model).name}, {o.threads} threads; prompts of {PROMPT} tokens, {GENERATED} generated; medians of {o.rounds} rounds")
    print("under way   tokens/s: Hearth  llama.cpp   ratio       first token p50, p99 in ms: Hearth        llama.cpp")
    for under_way, least in UNDER_WAY.items():
        r = results[under_way] = compare(o, python, under_way)
        rate = {name: engines.median(r[name], "generated_tokens_per_second") for name in r}
        ratio = statistics.median(a["generated_tokens_per_second"] / b["generated_tokens_per_second"] for a, b in zip(r["hearth"], r["llama.cpp"]))
        first = {name: f"{engines.median(r[name], 'first_token_p50_ms'):7.0f} {engines.median(r[name], 'first_token_p99_ms'):7.0f}" for name in r}
        holds = ratio > least or (least > 1 and ratio >= least)
        failed += not holds
        print(f"{under_way:9}   {rate['hearth']:16.1f} {rate['llama.cpp']:10.1f} {ratio:7.2f} {'' if holds else '!'}   {first['hearth']:>42}   {first['llama.cpp']}")
        sys.stdout.flush()
    pace = results["pace"] = [engines.run_json([o.bench, o.model, "-t", o.threads, "-m", "pace", "-p", 4096 - 8]) for _ in range(o.rounds)]
    grows, cost = (statistics.median(p[k] for p in pace) for k in ("grows", "prompt_cost"))
    failed += grows > 2
    print(f"a prompt of 4,088 tokens beside a running request: its next token takes {grows:.2f} times as long, the prompt {cost:.2f} times as long as alone")
    memory = results["memory"] = engines.run_json([o.bench, o.model, "-t", o.threads, "-m", "memory", "-c", 8, "-p", 500])
    print(f"eight sessions of 500 tokens: {memory['bytes'] / 1e6:.1f} MB beside the weights, {memory['cache_bytes'] / 1e6:.1f} of them keys and values")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
