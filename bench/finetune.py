"""Fine-tuning beside PEFT on the same file, in turns, on this machine: tokens per second and peak memory.

    python3 bench/finetune.py [--rounds 3] [--steps 6] [--threads 2] [--cases NAME,...] [--python PYTHON] [--json FILE] [MODEL.gguf]

Every measurement is a process of its own that trains rank 8 on 4 sequences of 256 random tokens a step, all of them learned,
AdamW with clipping; the first step does not count. PEFT trains on the weights that transformers dequantises from the file, with
adapters in float32. PYTHON is one that has torch, transformers, peft and gguf. Printed are medians over the rounds, and ratios
to PEFT in float32 of the same targets; the exit status is 1 when a gate does not hold.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH, LENGTH, FIRST, LAST = 4, 256, 100, 40000

# name: engine, targets, and what is particular
CASES = {
    "peft f32 qv": ("peft", "q_proj,v_proj", {"dtype": "float32"}),
    "peft bf16 qv": ("peft", "q_proj,v_proj", {"dtype": "bfloat16"}),
    "hearth qv": ("hearth", "q_proj,v_proj", {"checkpointing": "off"}),
    "hearth qv checkpointing": ("hearth", "q_proj,v_proj", {"checkpointing": "on"}),
    "peft f32 all": ("peft", "all-linear", {"dtype": "float32"}),
    "hearth all": ("hearth", "all-linear", {"checkpointing": "off"}),
}
# (case, what, against, least ratio): speed of a case by that of another; memory of another by that of a case
GATES = [
    ("hearth qv", "speed", "peft f32 qv", 1.8),
    ("hearth qv", "speed", "peft bf16 qv", 1.0),
    ("hearth all", "speed", "peft f32 all", 1.6),
    ("hearth qv", "memory", "peft f32 qv", 2.0),
    ("hearth qv checkpointing", "memory", "peft f32 qv", 4.0),
    ("hearth qv checkpointing", "speed", "hearth qv", 0.75),
]


def random_ids(n, seed):
    """Token ids from a generator of its own: the same for every engine."""
    out, state = [], seed * 2 + 1
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(FIRST + (state >> 33) % (LAST - FIRST))
    return out


def peak_bytes():
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024


def run_peft(model, targets, dtype, steps, threads):
    """In a process of its own: prints one JSON object."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    path = pathlib.Path(model)
    base = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=getattr(torch, dtype))
    wanted = targets if targets == "all-linear" else targets.split(",")
    lora = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, lora_dropout=0, target_modules=wanted, task_type="CAUSAL_LM"))
    lora.train()
    trained = [p for p in lora.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.01)
    took = []
    for step in range(steps):
        ids = torch.tensor([random_ids(LENGTH + 1, step * BATCH + i) for i in range(BATCH)])
        began = time.perf_counter()
        loss = lora(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        took.append(time.perf_counter() - began)
    speed = BATCH * LENGTH * (steps - 1) / sum(took[1:])
    print(json.dumps({"tokens_per_second": speed, "peak_bytes": peak_bytes(), "loss": loss.item()}))


def run_hearth(o, model, targets, checkpointing):
    with tempfile.TemporaryDirectory() as folder:
        data, log = pathlib.Path(folder, "data.jsonl"), pathlib.Path(folder, "log.jsonl")
        rows = [json.dumps({"input_ids": random_ids(LENGTH + 1, i)}) for i in range(o.steps * BATCH)]
        data.write_text("\n".join(rows) + "\n")
        command = [o.hearth, "finetune", model, "--data", data, "--out", f"{folder}/adapter", "--targets", targets, "--iters", o.steps,
                   "--batch", BATCH, "--no-pack", "--no-shuffle", "--checkpointing", checkpointing, "--threads", o.threads,
                   "--report-every", 1, "--log", log, "--json", "-q"]
        done = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        took = sum(line["tokens"] / line["tokens_per_second"] for line in lines[1:])
        return {"tokens_per_second": sum(line["tokens"] for line in lines[1:]) / took,
                "peak_bytes": json.loads(done.stdout)["peak_memory_bytes"], "loss": lines[-1]["loss"]}


def run_case(o, name):
    engine, targets, how = CASES[name]
    if engine == "hearth":
        return run_hearth(o, o.model, targets, how["checkpointing"])
    words = [o.python, __file__, "--peft", o.model, targets, how["dtype"], o.steps, o.threads]
    environment = dict(os.environ, OMP_NUM_THREADS=str(o.threads), TOKENIZERS_PARALLELISM="false")
    done = subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def report(o, rounds):
    median = {}
    print(f"\n{'':26}{'tok/s':>8}{'peak MB':>10}{'loss':>9}")
    for name, results in rounds.items():
        median[name] = {key: statistics.median(r[key] for r in results) for key in results[0]}
        print(f"{name:26}{median[name]['tokens_per_second']:8.0f}{median[name]['peak_bytes'] / 1e6:10.0f}{median[name]['loss']:9.4f}")
    print()
    failed = 0
    for case, what, against, least in GATES:
        if case not in rounds or against not in rounds:
            continue
        if what == "speed":  # of each round's own pair: both met the same machine
            ratio = statistics.median(a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(rounds[case], rounds[against]))
        else:
            ratio = median[against]["peak_bytes"] / median[case]["peak_bytes"]
        failed += ratio < least
        print(f"{'ok  ' if ratio >= least else 'FAIL'} {what} of {case} by {against}: {ratio:.2f}, at least {least}")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps({"rounds": rounds, "median": median}, indent=1))
    return failed


def main():
    if sys.argv[1:2] == ["--peft"]:
        model, targets, dtype, steps, threads = sys.argv[2:]
        run_peft(model, targets, dtype, int(steps), int(threads))
        return 0
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = pathlib.Path(os.environ.get("HEARTH_TEST_MODELS") or cache / "hearth" / "models")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default=folder / "smollm2-135m.gguf", metavar="MODEL.gguf")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", default=",".join(CASES), metavar="NAME,...", help="%(default)s")
    parser.add_argument("--hearth", default=ROOT / "build" / "release" / "bin" / "hearth")
    parser.add_argument("--python", default=sys.executable, help="one that has torch, transformers, peft and gguf")
    parser.add_argument("--json", metavar="FILE")
    o = parser.parse_args()
    names = o.cases.split(",")
    for name in names:
        if name not in CASES:
            parser.error(f"--cases names {name!r}; there are {', '.join(CASES)}")
    rounds = {name: [] for name in names}
    for number in range(o.rounds):
        for name in names:
            rounds[name].append(run_case(o, name))
            last = rounds[name][-1]
            print(f"round {number + 1}  {name:26}{last['tokens_per_second']:8.0f} tok/s{last['peak_bytes'] / 1e6:8.0f} MB", flush=True)
    return 1 if report(o, rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
