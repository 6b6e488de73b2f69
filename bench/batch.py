"""Batches beside the same work one by one and beside llama.cpp, and classification beside prefill, in turns.

    python3 bench/batch.py [--quick] [--threads 2] [--rounds 5] [--python PYTHON] [--json FILE] [MODEL.gguf]

Printed are medians, and the medians of ratios of each round: 64 prompts of 64 tokens with 64 new ones each, as a batch, one after
the other, and by llama.cpp, whose every step has all 64 sequences; and the rate at which the same prompts are classified, of a prefill of 512
rows right before and after it. A batch is to be 2.5 times as fast as one by one, and twice as fast as llama.cpp; classification
0.9 times as fast as prefill. The exit status is 1 when that does not hold.
"""

import argparse
import json
import pathlib
import statistics
import sys

import engines

PROMPTS, PROMPT, GENERATED = 64, 64, 64
ROOT = engines.HERE.parent


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default=pathlib.Path.home() / ".cache/hearth/models/smollm2-135m.gguf")
    parser.add_argument("--bench", default=ROOT / "build" / "release" / "bin" / "bench_batch")
    parser.add_argument("--python", help="one that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds of fewer new tokens: a look, no result")
    parser.add_argument("--json", metavar="FILE", help="write every round there")
    o = parser.parse_args()
    if o.quick:
        o.rounds = 2
    return o


def measure(o, python, generated):
    counts = [o.threads, PROMPTS, PROMPTS, PROMPT, generated]
    flags = ["-t", o.threads, "-r", 1, "-n", PROMPTS, "-p", PROMPT, "-g", generated]
    return engines.in_turns(
        {"hearth": lambda: engines.run_json([o.bench, *flags, o.model]),
         "llama.cpp": lambda: engines.run_json([python, engines.HERE / "peers" / "llama_engine.py", o.model, *counts])},
        o.rounds, f"{PROMPTS} prompts")  # fmt: skip


def main():
    o = read_arguments()
    python, generated = engines.python_with(["llama_cpp", "numpy"], o.python), 16 if o.quick else GENERATED
    results = measure(o, python, generated)
    own, peer = results["hearth"], results["llama.cpp"]

    def row(what, rate, beside, beside_rate, least):
        ratio = statistics.median(a / b for a, b in zip(rate, beside_rate))
        holds = ratio >= least
        print(f"{what:32} {statistics.median(rate):8.1f} tok/s   {beside:24} {statistics.median(beside_rate):8.1f} tok/s   "
              f"ratio {ratio:5.2f}, asked {least}{'' if holds else ' !'}")  # fmt: skip
        return holds

    print(f"{pathlib.Path(o.model).name}, {o.threads} threads; {PROMPTS} prompts of {PROMPT} tokens, {generated} new ones each; medians of "
          f"{o.rounds} rounds")  # fmt: skip
    batch, classify = ([r[f"{name}_tokens_per_second"] for r in own] for name in ("batch", "classify"))
    good = [
        row("batch", batch, "one by one", [r["alone_tokens_per_second"] for r in own], 2.5),
        row("batch", batch, "llama.cpp, 64 at once", [r["generated_tokens_per_second"] for r in peer], 2.0),
        row("classification", classify, "prefill of 512 rows", [r["prefill_tokens_per_second"] for r in own], 0.9),
    ]
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
