"""Whether other programs answer with fused checkpoints as with the adapter on its base: their logits beside the reference.

    python tests/golden/fuse.py HEARTH transformers|mlx|llama.cpp

transformers and mlx-lm load what the golden adapters and their bases (make_adapters.py) became; transformers also quantised
checkpoints that became floats, beside what Hearth computes with the adapter. llama.cpp (llama-cpp-python, and gguf) loads fused
GGUF files, beside the same matrices with the adapter's product added to them.
"""

import json

import numpy as np

import engines
from adapters import LLAMA, head_dim_of, llama_logits, random_adapter, rows_of, write_peft
from engines import (REFERENCE, TINY, compare, mlx_logits, mlx_model, read_gguf, torch_logits, transformers_model,
                     write_gguf)

IDS = [7 * i % 40 for i in range(24)]
# Quantised in ways that safetensors have, with projections of which adapters change q, v and down.
QUANTIZED = ["llama-fp8-blocks", "llama-fp8-whole", "llama-compressed-fp8-channel", "llama-modelopt-fp8", "llama-modelopt-nvfp4",
             "qwen2-compressed-fp8-naive", "mistral-compressed-mixed", "qwen3-compressed-fp8-block", "qwen3-moe-fp8-blocks",
             "qwen3-moe-compressed-nvfp4", "qwen3-moe-modelopt-nvfp4-stacked"]


def fused(hearth, base, adapter, out, *options):
    engines.run(hearth, "fuse", base, "--adapter", adapter, out, *options)
    return out


def golden(library):
    """The golden adapters of a library: (name, base, adapter, reference)."""
    for name, base, adapter in engines.golden_adapters(library):
        yield name, base, adapter, json.loads((adapter / "reference.json").read_text())


# ---- transformers ----


def adapter_of(base, folder):
    config = json.loads((base / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    rng, tensors = np.random.default_rng(0), {}
    for layer in range(config["num_hidden_layers"]):
        for module, n_out in ("self_attn.q_proj", heads * head_dim), ("self_attn.v_proj", config["num_key_value_heads"] * head_dim):
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = 0.3 * rng.normal(size=(3, hidden))
            tensors[f"{name}.lora_B.weight"] = 0.1 * rng.normal(size=(n_out, 3))
    write_peft(folder, tensors)
    return folder


def hearth_logits(hearth, base, work, *options):
    return engines.hearth_logits(hearth, base, IDS, work, *REFERENCE, *options)


def check_transformers(hearth, work):
    good = True
    for name, base, adapter, reference in golden("peft"):
        path = fused(hearth, base, adapter, work / name, "--dtype", "f32")
        at, expected = rows_of(reference)
        good &= compare(name, torch_logits(transformers_model(path), reference["ids"])[at], expected, reference["std"])
    for name in QUANTIZED:
        adapter = adapter_of(TINY / name, work / f"{name} adapter")
        expected = hearth_logits(hearth, TINY / name, work, "--adapter", adapter)
        moved = np.abs(hearth_logits(hearth, TINY / name, work) - expected).max() / expected.std()
        path = fused(hearth, TINY / name, adapter, work / name, "--dtype", "f32")
        good &= moved > 0.1 and compare(name, torch_logits(transformers_model(path), IDS), expected, expected.std())
    return good


# ---- mlx-lm ----


def check_mlx(hearth, work):
    good = True
    for name, base, adapter, reference in golden("mlx"):
        at, expected = rows_of(reference)
        for what, options in ("floats and groups", []), ("all floats", ["--dense"]):
            path = fused(hearth, base, adapter, work / f"{name} {what}", "--dtype", "f32", *options)
            logits = mlx_logits(mlx_model(path), reference["ids"])
            good &= compare(f"{name} as {what}", logits[at], expected, reference["std"])
        for how in ("8:32", "3:32") if "quantization" in json.loads((base / "config.json").read_text()) else ():
            path = fused(hearth, base, adapter, work / f"{name} {how}", "--quantize", how)  # which loses some of the change
            logits = hearth_logits(hearth, path, work)
            good &= compare(f"{name} in groups, {how}", mlx_logits(mlx_model(path), IDS), logits, logits.std())
    return good


# ---- llama.cpp ----


def check_llama(hearth, work):
    good = True
    for name, experts in LLAMA.items():
        reader, architecture, weights = read_gguf(TINY / f"{name}.gguf")
        tensors, merged = random_adapter(weights, architecture, head_dim_of(reader, weights), experts)
        write_peft(work / name, tensors)
        base = write_gguf(work / f"{name}.gguf", reader, weights, bare=True)
        expected = llama_logits(write_gguf(work / f"{name}.merged.gguf", reader, merged, bare=True))
        moved = np.abs(llama_logits(base) - expected).max() / expected.std()
        path = fused(hearth, base, work / name, work / f"{name}.fused.gguf", "--dtype", "f32")
        good &= moved > 0.5 and compare(f"{name} in llama.cpp", llama_logits(path), expected, expected.std())
        kept = fused(hearth, TINY / f"{name}.gguf", work / name, work / f"{name}.kept.gguf", "--dtype", "f32")
        good &= all(np.abs(x - merged[key]).max() < 1e-5 for key, x in read_gguf(kept)[2].items())
    return good


if __name__ == "__main__":
    engines.main({"transformers": check_transformers, "mlx": check_mlx, "llama.cpp": check_llama})
