"""What is learned in 200 steps beside PEFT: held-out losses on the task of finetune_data.py, for several seeds.

    python3 bench/finetune_learning.py DATA [--seeds 3] [--steps 200] [--engines hearth,peft] [--dtype float32|bfloat16]
                                       [--python PYTHON] [--json FILE] [MODEL.gguf]

DATA is the folder that finetune_data.py wrote. Both train rank 8, alpha 16 on q and v with AdamW, 8 samples of at most 256 tokens
a step, rate 5e-4 after 5 steps of warm-up, norms clipped at 1. PEFT gets its text and tokens from transformers, chooses its
own order, and trains on the weights that transformers dequantises, of --dtype. The first 120 held-out samples are measured
before the first step and after the steps that are printed. PYTHON is one that has torch, transformers, peft and gguf.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH, LONGEST, HELD_OUT, RATE, WARMUP = 8, 256, 120, 5e-4, 5
AT = 0, 20, 60, 100, 200


def run_peft(model, data, dtype, steps, seed, threads):
    """In a process of its own: prints [step, loss] of every evaluation as one JSON array."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    path = pathlib.Path(model)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    base = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=getattr(torch, dtype))
    lora = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    trained = [p for p in lora.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.01)

    def sample(line):
        row = json.loads(line)
        talk = [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["completion"]}]
        prompt = tokenizer.apply_chat_template(talk[:1], add_generation_prompt=True, tokenize=False)
        whole = tokenizer.apply_chat_template(talk, tokenize=False)
        whole = whole[: whole.rindex(tokenizer.eos_token) + len(tokenizer.eos_token)]
        assert whole.startswith(prompt)
        first, rest = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, whole[len(prompt) :]))
        return first + rest, len(first)

    def read(name, most):
        samples = [sample(line) for line in pathlib.Path(data, name).read_text().splitlines()[:most]]
        return [s for s in samples if len(s[0]) <= LONGEST]

    def run(batch):
        longest = max(len(ids) for ids, _ in batch)
        ids, labels, seen = torch.zeros(3, len(batch), longest, dtype=torch.long)
        labels -= 100
        for i, (sample_ids, prompt) in enumerate(batch):
            ids[i, : len(sample_ids)] = torch.tensor(sample_ids)
            labels[i, prompt : len(sample_ids)] = torch.tensor(sample_ids[prompt:])
            seen[i, : len(sample_ids)] = 1
        return lora(input_ids=ids, attention_mask=seen, labels=labels).loss, int((labels >= 0).sum())

    def evaluate():
        lora.eval()
        with torch.no_grad():
            losses = [run(valid[at : at + BATCH]) for at in range(0, len(valid), BATCH)]
        lora.train()
        return sum(loss.item() * n for loss, n in losses) / sum(n for _, n in losses)

    train, valid = read("train.jsonl", None), sorted(read("valid.jsonl", HELD_OUT), key=lambda s: len(s[0]))
    chance = random.Random(seed)
    chance.shuffle(train)
    window = sorted(train[: BATCH * steps], key=lambda s: len(s[0]))
    batches = [window[at : at + BATCH] for at in range(0, len(window), BATCH)]
    chance.shuffle(batches)
    found = [(0, evaluate())]
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, step / WARMUP)
        run(batch)[0].backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step + 1 in AT or step + 1 == steps:
            found.append((step + 1, evaluate()))
            print(f"peft seed {seed}: {found[-1]}", file=sys.stderr, flush=True)
    print(json.dumps(found))


def run_hearth(o, seed):
    with tempfile.TemporaryDirectory() as folder:
        valid, log = pathlib.Path(folder, "valid.jsonl"), pathlib.Path(folder, "log.jsonl")
        valid.write_text("".join(line + "\n" for line in pathlib.Path(o.data, "valid.jsonl").read_text().splitlines()[:HELD_OUT]))
        command = [o.hearth, "finetune", o.model, "--data", pathlib.Path(o.data, "train.jsonl"), "--valid", valid, "--out", f"{folder}/out",
                   "--iters", o.steps, "--batch", BATCH, "--max-length", LONGEST, "--no-pack", "--lr", RATE, "--warmup", WARMUP,
                   "--seed", seed, "--valid-every", 20, "--precision", o.precision, "--log", log, "--json", "-q", *o.more.split()]
        done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
        found = [(0, json.loads(done.stdout)["valid_loss_before"])]
        rows = (json.loads(line) for line in log.read_text().splitlines())
        return found + [(row["iter"], row["valid_loss"]) for row in rows if row["valid_loss"] is not None]


def run_one(o, engine, seed):
    if engine == "hearth":
        return run_hearth(o, seed)
    words = [o.python, __file__, "--peft", o.model, o.data, o.dtype, o.steps, seed, o.threads]
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(o.threads), TOKENIZERS_PARALLELISM="false"))
    return json.loads(done.stdout.splitlines()[-1])


def main():
    if sys.argv[1:2] == ["--peft"]:
        model, data, dtype, *numbers = sys.argv[2:]
        return run_peft(model, data, dtype, *map(int, numbers))
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = pathlib.Path(os.environ.get("HEARTH_TEST_MODELS") or cache / "hearth" / "models")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", metavar="DATA")
    parser.add_argument("model", nargs="?", default=folder / "smollm2-135m.gguf", metavar="MODEL.gguf")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2, help="of PEFT")
    parser.add_argument("--engines", default="hearth,peft")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of PEFT's base")
    parser.add_argument("--precision", default="high", help="of Hearth")
    parser.add_argument("--more", default="", metavar="OPTIONS", help="of hearth finetune")
    parser.add_argument("--hearth", default=ROOT / "build" / "release" / "bin" / "hearth")
    parser.add_argument("--python", default=sys.executable, help="one that has torch, transformers, peft and gguf")
    parser.add_argument("--json", metavar="FILE")
    o = parser.parse_args()
    found = {engine: [] for engine in o.engines.split(",")}
    for seed in range(o.seeds):
        for engine, runs in found.items():
            runs.append(dict(run_one(o, engine, seed)))
            shown = "  ".join(f"{step}: {loss:.4f}" for step, loss in runs[-1].items() if step in AT or step == o.steps)
            print(f"{engine:8}seed {seed}  {shown}", flush=True)
    for engine, runs in found.items():
        for step in sorted(set.intersection(*map(set, runs))):
            losses = [run[step] for run in runs]
            print(f"{engine:8}step {step:4}  {min(losses):.4f} to {max(losses):.4f}, mean {statistics.mean(losses):.4f}")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
