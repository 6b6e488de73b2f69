"""Whether training on real models is what torch and PEFT make of it, in float32 on the dequantised weights of GGUF files.

    python tests/golden/train_real.py TRAIN_STEPS DIRECTORY [--model NAME] [--adapter q-v|all-linear|rslora]

DIRECTORY has the files of make_real.py; TRAIN_STEPS is the program that the tests build from train_steps.c. Needs torch,
transformers, peft, safetensors and gguf. For each model, adapters of q and v, of all projections, and with rsLoRA begin with a B
that is not 0; the gradients of a batch of two sequences by every A and B are compared, and the losses of 20 steps of AdamW; of q
and v also with A and B in bfloat16, and in the default precision.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import torch
from safetensors.torch import load_file

import make_real
import make_train

# At 2e-4 the largest model knows both sequences by heart after 20 steps: its last losses are too small to be compared by ratios.
SETTINGS = {"steps": 20, "learning_rate": 5e-5, "weight_decay": 0.01, "clip": 1.0}
RANK, ALPHA = 8, 16
ADAPTERS = {"q-v": {"target_modules": ["q_proj", "v_proj"]},
            "all-linear": {"target_modules": "all-linear"},
            "rslora": {"target_modules": ["q_proj", "v_proj"], "use_rslora": True}}
EXACT = ("reference", "f32"), 1e-4
ROUNDED = (("reference", "bf16"), 1e-2), (("high", "f32"), 1e-2)


def batch(name):
    """Two sequences of the text of the golden logits; the first 16 of each are a prompt."""
    ids = json.loads((pathlib.Path(__file__).parent / "real" / f"{name}.json").read_text())["ids"]
    sequences = []
    for begin, end in (0, 64), (64, 120):
        sequences.append({"ids": ids[begin:end], "labels": [-100] * 16 + ids[begin + 16:end]})
    return sequences


def by_torch(path, sequences, dtype, how, folder=None):
    """Losses and norms; the adapter and its gradients are written to the folder."""
    model = make_train.attach(make_real.load(path)[0], 1, RANK, ALPHA, dtype, **how)
    rslora = how.get("use_rslora", False)
    write = lambda name, gradients: make_train.write_adapter(
        folder / name, make_train.tensors(model, gradients), path.stem, RANK, ALPHA, rslora)
    if folder:
        write("adapter", False)
    return make_train.train(model, sequences, SETTINGS, folder and (lambda: write("gradients", True)))


def by_hearth(program, path, folder, precision, dtype):
    out = folder / f"{precision} {dtype}"
    out.mkdir()
    run = subprocess.run([program, path, folder / "adapter", folder / "train.json", out, precision, dtype], check=True,
                         capture_output=True, text=True)
    return json.loads(run.stdout), out


def apart(got, expected):
    return max(abs(a - b) / abs(b) for a, b in zip(got, expected, strict=True))


def gradients_apart(got, expected):
    """The largest difference of an array, as a share of its norm."""
    got, expected = (load_file(folder / "gradients" / "adapter_model.safetensors") for folder in (got, expected))
    assert got.keys() == expected.keys()
    return len(got), max(((got[k] - x).norm() / x.norm()).item() for k, x in expected.items())


def check(program, path, what, folder):
    sequences, how = batch(path.stem), ADAPTERS[what]
    (folder / "train.json").write_text(json.dumps({**SETTINGS, "sequences": sequences}))
    losses, norms = by_torch(path, sequences, torch.float32, how, folder)
    print(f"{path.stem}, {what}: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
    good = True
    for (precision, dtype), limit in (EXACT, *(ROUNDED if what == "q-v" else ())):
        got, out = by_hearth(program, path, folder, precision, dtype)
        wanted = losses if dtype == "f32" else by_torch(path, sequences, torch.bfloat16, how)[0]
        difference = apart(got["losses"], wanted)
        good &= difference < limit
        print(f"  {precision}, A and B in {dtype}: losses differ by {difference:.1e}", end="")
        if (precision, dtype) == EXACT[0]:
            n, gradients = gradients_apart(out, folder)
            good &= gradients < 1e-4
            print(f", {n} gradients by {gradients:.1e}, norms by {apart(got['norms'], norms):.1e}", end="")
        print(flush=True)
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--model", choices=make_real.MODELS)
    parser.add_argument("--adapter", choices=ADAPTERS)
    args = parser.parse_args()
    failed = False
    for name in [args.model] if args.model else make_real.MODELS:
        for what in [args.adapter] if args.adapter else ADAPTERS:
            with tempfile.TemporaryDirectory() as work:
                failed |= not check(args.program, args.directory / f"{name}.gguf", what, pathlib.Path(work))
    raise SystemExit(failed)
