"""Whether trained adapters travel: those that Hearth trains give its logits in PEFT, mlx-lm and llama.cpp, and those that PEFT
and mlx-lm train give theirs in Hearth.

    python tests/golden/trained_adapters.py HEARTH TRAIN_STEPS peft|mlx|llama.cpp

Training begins from the golden adapters (make_adapters.py), on tiny checkpoints; TRAIN_STEPS is the program that the tests build
from train_steps.c.
"""

import json
import subprocess

import numpy as np

import adapters
import engines
from adapters import converted
from engines import REFERENCE, TINY, compare, golden_adapters, mlx_model

STEPS, LEARNING_RATE, LEAST_MOVED = 10, 1e-2, 0.2
IDS = [5 * i % 53 for i in range(24)]


def trained_here(program, model, adapter, work):
    """Hearth's adapter after some steps on one sequence, in PEFT's files."""
    description = {"steps": STEPS, "learning_rate": LEARNING_RATE, "weight_decay": 0.01, "clip": 1.0,
                   "sequences": [{"ids": IDS, "labels": IDS}]}
    work.mkdir()
    (work / "train.json").write_text(json.dumps(description))
    run = subprocess.run([program, model, adapter, work / "train.json", work], check=True, capture_output=True, text=True)
    losses = json.loads(run.stdout)["losses"]
    assert losses[-1] < losses[0]
    return work / "trained"


def hearth_logits(hearth, model, ids, work, adapter=None):
    return engines.hearth_logits(hearth, model, ids, work, *REFERENCE, *(["--adapter", adapter] if adapter else []))


def agree(what, got, expected, base):
    """Whether two logits agree, and are not those without an adapter."""
    moved = np.abs(expected - base).max() / expected.std()
    assert moved > LEAST_MOVED, f"{what}: the adapter moves logits by {moved:.2g} of their spread alone"
    return compare(what, got, expected, expected.std())


# ---- PEFT ----


def peft_logits(model):
    return engines.torch_logits(model, IDS)


def trained_by_peft(model):
    import torch

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.tensor([IDS]), labels=torch.tensor([IDS]), use_cache=False).loss.backward()
        optimizer.step()
    return model


def check_peft(hearth, program, work):
    import make_train
    import peft
    from make_adapters import PEFT, RANK

    good = True
    for name, base, source in golden_adapters("peft"):
        plain = hearth_logits(hearth, base, IDS, work)
        here = trained_here(program, base, source, work / name)
        model = peft.PeftModel.from_pretrained(make_train.load(base), here).eval()
        good &= agree(f"{name}, trained by Hearth, in PEFT", peft_logits(model),
                      hearth_logits(hearth, base, IDS, work, here), plain)
        model = peft.get_peft_model(make_train.load(base), peft.LoraConfig(r=RANK, lora_alpha=6, **PEFT[name][1])).eval()
        trained_by_peft(model).save_pretrained(work / name / "peft")
        good &= agree(f"{name}, trained by PEFT, in Hearth", hearth_logits(hearth, base, IDS, work, work / name / "peft"),
                      peft_logits(model), plain)
    return good


# ---- mlx-lm ----


def mlx_logits(model):
    return engines.mlx_logits(model, IDS)


def trained_by_mlx(base, keys, folder):
    """Trains and saves as mlx_lm.lora does."""
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers

    model = mlx_model(base)
    model.freeze()
    how = {"rank": 3, "scale": 2.5, "dropout": 0.0} | ({"keys": keys} if keys else {})
    linear_to_lora_layers(model, -1, how)
    optimizer = mlx.optimizers.AdamW(LEARNING_RATE)
    ids = mx.array([IDS])
    step = nn.value_and_grad(model, lambda m: nn.losses.cross_entropy(m(ids[:, :-1]), ids[:, 1:], reduction="mean"))
    for _ in range(STEPS):
        _, gradients = step(model)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state)
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), dict(tree_flatten(model.trainable_parameters())))
    config = {"fine_tune_type": "lora", "lora_parameters": how, "model": base.name, "num_layers": -1}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return model


def check_mlx(hearth, program, work):
    from make_adapters import MLX
    from mlx_lm.tuner.utils import load_adapters

    good = True
    for name, base, source in golden_adapters("mlx"):
        plain = hearth_logits(hearth, base, IDS, work)
        here = trained_here(program, base, source, work / name)
        there = converted(hearth, here, work / name / "there", "mlx", base)
        good &= agree(f"{name}, trained by Hearth, in mlx-lm", mlx_logits(load_adapters(mlx_model(base), str(there))),
                      hearth_logits(hearth, base, IDS, work, here), plain)
        model = trained_by_mlx(base, MLX[name][1], work / name / "mlx")
        good &= agree(f"{name}, trained by mlx-lm, in Hearth", hearth_logits(hearth, base, IDS, work, work / name / "mlx"),
                      mlx_logits(model), plain)
    return good


# ---- llama.cpp ----


def check_llama(hearth, program, work):
    good = True
    for name, experts in adapters.LLAMA.items():
        if name.startswith("gemma4"):  # of which llama.cpp computes other logits than transformers without an adapter, too
            continue
        source = TINY / f"{name}.gguf"
        reader, architecture, weights = engines.read_gguf(source)
        tensors, _ = adapters.random_adapter(weights, architecture, adapters.head_dim_of(reader, weights), experts)
        adapters.write_peft(work / f"{name} first", tensors)
        here = trained_here(program, source, work / f"{name} first", work / name)
        there = converted(hearth, here, work / f"{name}.lora.gguf", "gguf", source)
        base = engines.write_gguf(work / f"{name}.gguf", reader, weights, bare=True)
        ids = adapters.LLAMA_IDS
        good &= agree(f"{name}, trained by Hearth, in llama.cpp", adapters.llama_logits(base, there),
                      hearth_logits(hearth, source, ids, work, here), hearth_logits(hearth, source, ids, work))
    return good


if __name__ == "__main__":
    engines.main({"peft": check_peft, "mlx": check_mlx, "llama.cpp": check_llama}, before=["program"])
