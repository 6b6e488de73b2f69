"""Makes the quantised checkpoints NAME-mlx4 under tests/golden/families and what `mlx-lm` answers to them in float32.

    python tests/golden/make_families_mlx.py [NAME...]      # all, or those named; needs mlx-lm and torch

mlx-lm reads the first layers of NAME, which make_families.py has made, renames, splits, stacks and transposes its
weights as it does those of releases, quantises them to 4 bits in groups of 32, and writes them. Where it gives routers
8 bits, it does so here. Prompts are no longer than the window of phi3, which mlx-lm ignores.
"""

import json
import pathlib
import shutil
import sys
import zlib

import mlx.core as mx
import mlx_lm
import numpy as np

from mlx_lm import utils

import reference

HERE = pathlib.Path(__file__).parent / "families"
PROVENANCE = f"tests/golden/make_families_mlx.py with mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}: float32 logits"
LIMIT = 60_000  # bytes of a directory

# Families that mlx-lm renames or stacks, and one with fused matrices; the layers that are kept, one of each kind.
FAMILIES = {"deepseek_v2-lite": 2, "ernie4_5_moe": 2, "gpt2": 1, "gpt_oss": 2, "granite4_dense": 1,
            "granite4_moe": 2, "kimi_linear": 2, "lfm2_moe": 2, "llama4": 4, "mixtral": 1, "nemotron_h_latent": 4, "phi3": 1,
            "qwen2_moe": 1}


def shorten(config, n):
    """The configuration of the first n layers."""
    for o in (config, config.get("text_config", {})):
        for key in ("num_hidden_layers", "n_layer"):
            if key in o:
                o[key] = n
        for key in ("layer_types", "layers_block_type", "mlp_layer_types", "no_rope_layers"):
            if o.get(key):
                o[key] = o[key][:n]
        if o.get("moe_layers"):
            o["moe_layers"] = [i for i in o["moe_layers"] if i < n]
    config.pop("vision_config", None)
    return config


def quantises(own):
    """Which modules, and to how many bits: as mlx-lm decides, with groups that the small widths have."""

    def decide(path, module):
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % 32:
            return False
        how = own(path, module) if own else True
        return {"group_size": 32, "bits": how["bits"]} if isinstance(how, dict) else how

    return decide


def logits_of(model, ids):
    return np.array(model(mx.array([ids]))[0].astype(mx.float32))


def greedy(model, ids, n):
    out = []
    for _ in range(n):
        out.append(int(np.argmax(logits_of(model, ids + out)[-1])))
    return out


def make(name, n_layers):
    work, out = HERE / f"{name}-mlx4.work", HERE / f"{name}-mlx4"
    for d in (work, out):
        shutil.rmtree(d, ignore_errors=True)
        d.mkdir()
    try:
        config = shorten(json.loads((HERE / name / "config.json").read_text()), n_layers)
        (work / "config.json").write_text(json.dumps(config))
        shutil.copy(HERE / name / "model.safetensors", work)
        model, config = utils.load_model(work, lazy=False, strict=False)
    finally:
        shutil.rmtree(work)
    model, config = utils.quantize_model(model, config, 32, 4, quant_predicate=quantises(getattr(model, "quant_predicate", None)))
    utils.save_model(out, model, donate_model=False)
    utils.save_config(dict(config), out / "config.json")
    (out / "model.safetensors.index.json").unlink()
    (out / "README.md").unlink(missing_ok=True)
    model, _ = utils.load_model(out, lazy=False)
    model.set_dtype(mx.float32)
    vocab = logits_of(model, [3]).shape[-1]
    random = np.random.default_rng(zlib.crc32(name.encode()))
    prompts = [random.integers(3, vocab, n).tolist() for n in (9, 11)]
    logits = [logits_of(model, ids) for ids in prompts]
    known = json.loads((HERE / name / "reference.json").read_text())
    more = {"second": reference.described(prompts[1], logits[1], 2, [10])}
    if known.get("routed"):
        more["routed"] = True
    reference.write(out / "reference.json", PROVENANCE, prompts[0], logits[0], 2, [0, 8], 1, greedy(model, prompts[0], 2), **more)
    size = sum(f.stat().st_size for f in out.iterdir())
    print(f"{out.name}: {size} bytes", flush=True)
    assert size <= LIMIT, f"{name}: {size} bytes"


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    for chosen in sys.argv[1:] or FAMILIES:
        make(chosen, FAMILIES[chosen])
