"""Compares Hearth with `transformers` in bf16 on the same dense checkpoints, in turns, on this machine.

    python bench/compare_dense.py [--hearth PATH] [--threads 2] [--rounds 5] [--json FILE] DIRECTORY...

A directory holds a checkpoint in Hugging Face layout, such as bench/make_dense.py makes from a GGUF file. Each round runs
first one engine, then the other, each in a process of its own, so that what else the machine does meets both. Every
process loads the model, warms up, and measures prefill of 512 tokens and decoding of 128 from a cache of one token.
Printed are the medians over the rounds and the ratio Hearth / transformers; --json keeps every round. Needs torch and
transformers.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

PREFILL, DECODE = 512, 128
KEYS = {"prefill": "prefill_tokens_per_second", "decode": "decode_tokens_per_second"}


def in_this_process(path, threads):
    """What `measure_transformers` runs in a process of its own. Sampling is left out, in its favour."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
    ids = torch.tensor([[(i * 7919 + 13) % model.config.vocab_size for i in range(PREFILL)]])

    def step(part, cache):
        model(part, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def prefill():
        begin = time.perf_counter()
        step(ids, DynamicCache(config=model.config))
        return PREFILL / (time.perf_counter() - begin)

    def decode():
        cache = DynamicCache(config=model.config)
        step(ids[:, :1], cache)
        begin = time.perf_counter()
        for _ in range(DECODE):
            step(ids[:, :1], cache)
        return DECODE / (time.perf_counter() - begin)

    with torch.inference_mode():
        prefill(), decode()
        return {KEYS["prefill"]: prefill(), KEYS["decode"]: decode()}


def run(command):
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE).stdout)


def measure_transformers(path, threads, python=sys.executable):
    """Tokens per second in bf16, in the keys of `hearth bench --json`, measured in a new process."""
    return run([python, __file__, "--measure-transformers", "--threads", threads, path])


def measure_hearth(hearth, path, threads):
    return run([hearth, "bench", path, "-p", PREFILL, "-n", DECODE, "-t", threads, "-r", 1, "--json", "--quiet"])


def compare(path, arguments):
    """The rounds of both engines and the ratios of their medians."""
    engines = {
        "hearth": lambda: measure_hearth(arguments.hearth, path, arguments.threads),
        "transformers": lambda: measure_transformers(path, arguments.threads),
    }
    rounds = {name: [] for name in engines}
    for i in range(arguments.rounds):
        for name, measure in engines.items():
            result = measure()
            rounds[name].append({key: result[key] for key in KEYS.values()})
        last = {name: "{prefill_tokens_per_second:.0f} and {decode_tokens_per_second:.1f} tok/s".format(**r[-1])
                for name, r in rounds.items()}
        print(f"round {i + 1} of {arguments.rounds}: hearth {last['hearth']}, transformers {last['transformers']}",
              file=sys.stderr)
    medians = {name: {key: statistics.median(one[key] for one in r) for key in KEYS.values()}
               for name, r in rounds.items()}
    ratios = {what: medians["hearth"][key] / medians["transformers"][key] for what, key in KEYS.items()}
    return {"model": pathlib.Path(path).name, "threads": arguments.threads, "rounds": rounds, "medians": medians,
            "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="DIRECTORY")
    parser.add_argument("--hearth", default="build/release/bin/hearth")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write every round there")
    parser.add_argument("--measure-transformers", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_transformers:
        print(json.dumps(in_this_process(arguments.models[0], arguments.threads)))
        return
    results = []
    for path in arguments.models:
        result = compare(path, arguments)
        results.append(result)
        print(f"{result['model']} in bf16, {arguments.threads} threads, medians of {arguments.rounds} rounds")
        for what, key in KEYS.items():
            ours, theirs = (result["medians"][engine][key] for engine in ("hearth", "transformers"))
            print(f"  {what:8} hearth {ours:8.1f}  transformers {theirs:8.1f} tok/s  ratio {ours / theirs:.2f}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
