"""Compares Hearth with mlx-lm on the real models as MLX quantises them.

    python tests/golden/mlx_real.py DIRECTORY [--hearth build/release/bin/hearth] [--work /tmp/mlx-real] [--bits 4,8]
                                    [--group 64] [--models NAME,...]

DIRECTORY holds the GGUF files of make_real.py. Each is dequantised, written by `transformers` in bfloat16, and quantised and
written by mlx-lm (kept in --work, and used again when it is there). Printed is, over the ids of real/NAME.json, how far
Hearth's logits are from mlx-lm's, which are computed on the CPU in float32 of the weights as stored (make_mlx.py says how):
with reference precision the largest difference in standard deviations, and with the default precision the mean divergence
and how often the most likely token is the same. Fails when reference precision is further away than rounding is.
Needs mlx-lm, torch, transformers, gguf.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import mlx.core as mx
import numpy as np
import torch

import engines
import kl
import make_mlx
import make_real

ROUNDING = 1e-3  # of the standard deviation of all logits


def convert(path, out, bits, group):
    model, _ = make_real.load(path)
    with tempfile.TemporaryDirectory() as dense:
        dense = pathlib.Path(dense)
        model.to(torch.bfloat16).save_pretrained(dense)
        config = json.loads((dense / "config.json").read_text())
        rope = config["rope_parameters"]
        config["rope_theta"] = rope.get("full_attention", rope)["rope_theta"]  # where mlx-lm looks for it
        (dense / "config.json").write_text(json.dumps(config))
        make_mlx.quantise(dense, out, "affine", bits, group)


def of_hearth(hearth, model, ids, *options):
    with tempfile.TemporaryDirectory() as scratch:
        return engines.hearth_logits(hearth, model, ids, scratch, *options)


def compare(hearth, model, ids):
    expected = make_mlx.logits_of(make_mlx.load_f32(model), ids)
    reference = of_hearth(hearth, model, ids, *engines.REFERENCE)
    fast = of_hearth(hearth, model, ids)
    largest = np.abs(reference - expected).max() / expected.std()
    return largest, kl.divergences(expected, fast).mean(), (fast.argmax(-1) == expected.argmax(-1)).mean()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("directory", type=pathlib.Path)
    p.add_argument("--hearth", default="build/release/bin/hearth")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "mlx-real")
    p.add_argument("--bits", default="4,8")
    p.add_argument("--group", type=int, default=64)
    p.add_argument("--models", default=",".join(make_real.MODELS))
    a = p.parse_args()
    mx.set_default_device(mx.cpu)
    print("| model | bits | positions | reference: largest difference | default: mean KL (nats) | same top token |")
    print("|---|---|---|---|---|---|")
    failed = False
    for name in a.models.split(","):
        ids = json.loads((make_real.HERE / f"{name}.json").read_text())["ids"]
        for bits in map(int, a.bits.split(",")):
            model = a.work / f"{name}-mlx{bits}-{a.group}"
            if not (model / "config.json").exists():
                convert(a.directory / f"{name}.gguf", model, bits, a.group)
            largest, divergence, same = compare(a.hearth, model, ids)
            failed |= bool(largest > ROUNDING)
            print(f"| {name} | {bits} | {len(ids)} | {largest:.1e} | {divergence:.5f} | {100 * same:.1f} % |", flush=True)
    sys.exit("further from mlx-lm than rounding is" if failed else 0)


if __name__ == "__main__":
    main()
