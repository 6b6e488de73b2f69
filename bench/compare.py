"""Compares Hearth with its peers on the same files, in turns, on this machine, and says whether each gate holds.

    python3 bench/compare.py [--only SECTION,...] [--precision high|fast] [--quick] [--threads 2] [--rounds 5] [--json FILE] [MODEL.gguf...]

Without models those that `scripts/fetch-test-models` fetches are compared. The sections:

    speed        prefill of 512 tokens, decoding of 128, peak memory beside llama.cpp, and the part of the machine's
                 int8 peak and read bandwidth that they are, measured in the same process around each of them
    one-thread   the same with one thread
    depth        prefill of 4,096 tokens and decoding after as many (SmolLM2)
    batch        eight conversations in one step beside one (SmolLM2)
    precision    high precision beside fast
    avx2         the other instruction sets that this machine has, beside its best one
    start        from process start to the first token beside a minimal C program on llama.cpp, and peak memory
    tokenizer    vocabulary ready and 1 MB of English encoded beside Hugging Face `tokenizers`
    dense        bf16 checkpoints made of the same files beside `transformers`
    four-bits    the same matrices in groups of MLX and in blocks of GGUF
    experts      large random Gemma 4 checkpoints in 4 bits, dense and with experts, that bench/make_gemma4.py writes
    billions     large random Q4_K_M checkpoints of known models' shapes, that bench/make_large.py writes
    overhead     what a token costs beside matrix products and attention, and an operation run eagerly
    sampling     greedy and the full chain over 262,144 logits
    fidelity     mean KL divergence from exact arithmetic beside llama.cpp's own (tests/golden/kl.py)

Every measurement is a process of its own that loads and warms up. Engines take turns round by round, so that what else the
machine does meets all of them; printed are medians and their ratios. Peers that this Python lacks (llama-cpp-python, built
from source; tokenizers, transformers, torch, mlx-lm) are installed into build/compare; --python names one that has them. The exit
status is 1 when a gate does not hold.
"""

import argparse
import json
import os
import pathlib
import sys

import engines
import gates
from sections import DECODE, SECTIONS

ROOT = engines.HERE.parent


def find_models():
    """What HEARTH_TEST_MODELS or the cache has of the models that the gates are about."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(os.environ.get("HEARTH_TEST_MODELS") or pathlib.Path(cache) / "hearth" / "models")
    models = [folder / f"{name}.gguf" for name in gates.MODELS]
    missing = [m for m in models if not m.exists()]
    if missing:
        sys.exit(f"{missing[0]} is missing: run scripts/fetch-test-models, or name the models to compare")
    return models


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf")
    parser.add_argument("--only", default=",".join(SECTIONS), metavar="SECTION,...", help=", ".join(SECTIONS))
    parser.add_argument("--precision", default="high", choices=("high", "fast"), help="high; each has its own gates")
    parser.add_argument("--quick", action="store_true", help="32 tokens decoded, two rounds unless --rounds says otherwise: a look, no result")
    parser.add_argument("--hearth", default=ROOT / "build" / "release" / "bin" / "hearth")
    parser.add_argument("--python", help="one that has the peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="5, or 2 with --quick")
    parser.add_argument("--shapes", default=",".join(gates.BILLIONS), metavar="NAME,...", help="of `billions`: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write every round, the rows and the gates there")
    o = parser.parse_args()
    o.only, o.shapes = o.only.split(","), o.shapes.split(",")
    for name in o.only:
        if name not in SECTIONS:
            parser.error(f"--only names {name!r}; the sections are {', '.join(SECTIONS)}")
    if not pathlib.Path(o.hearth).exists():
        parser.error(f"{o.hearth} is missing: cmake --preset release && ninja -C build/release")
    rounds, o.decode, o.tokens = (2, 32, 512) if o.quick else (5, DECODE, 3072)
    if o.rounds is None:
        o.rounds = rounds
    o.models = o.models or find_models()
    return o


def main():
    o = read_arguments()
    machine = engines.run_json([o.hearth, "doctor", "--json", "--quiet"])
    print(f"{machine['processor']}, {machine['cores']} cores, {machine['instruction_set']}; {o.precision} precision, medians of {o.rounds} rounds")
    sections = {}
    for name in o.only:
        sections[name] = SECTIONS[name](o)
        gates.show(sections[name])
        sys.stdout.flush()
        if o.json:  # after each one: a later one may fail
            pathlib.Path(o.json).write_text(json.dumps({"machine": machine, "sections": sections}, indent=1) + "\n")
    checks = [c for s in sections.values() for r in s["rows"] for c in r["checks"]]
    failed = sum(not c["holds"] for c in checks)
    print(f"\n{len(checks)} gates, {failed} of which do not hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
