"""Whether other programs answer with fused checkpoints as with the adapter on its base: their logits beside the reference.

    python tests/golden/fuse.py HEARTH transformers|mlx|llama.cpp

transformers and mlx-lm load what the golden adapters and their bases (make_adapters.py) became; transformers also quantised
checkpoints that became floats, beside what Hearth computes with the adapter. llama.cpp (llama-cpp-python, and gguf) loads fused
GGUF files, beside the same matrices with the adapter's product added to them.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np

from adapters import GOLDEN, LLAMA, TINY, compare, llama_logits, random_adapter, rows_of, write_gguf, write_peft

IDS = [7 * i % 40 for i in range(24)]
# Quantised in ways that safetensors have, with projections of which adapters change q, v and down.
QUANTIZED = ["llama-fp8-blocks", "llama-fp8-whole", "llama-compressed-fp8-channel", "llama-modelopt-fp8", "llama-modelopt-nvfp4",
             "qwen2-compressed-fp8-naive", "mistral-compressed-mixed", "qwen3-compressed-fp8-block", "qwen3-moe-fp8-blocks",
             "qwen3-moe-compressed-nvfp4", "qwen3-moe-modelopt-nvfp4-stacked"]


def fused(hearth, base, adapter, out, *options):
    subprocess.run([hearth, "fuse", base, "--adapter", adapter, out, "-q", "--force", *options], check=True, stdout=subprocess.DEVNULL)
    return out


def golden(library):
    """The golden adapters of a library: (name, base, adapter, reference)."""
    for adapter in sorted(GOLDEN.glob(library + "-*")):
        base = TINY / json.loads((adapter / "deltas.json").read_text())["base"]
        yield adapter.name, base, adapter, json.loads((adapter / "reference.json").read_text())


# ---- transformers ----


def transformers_logits(path, ids):
    import torch
    import transformers

    model, told = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    for what in "missing_keys", "unexpected_keys", "mismatched_keys":
        if told[what]:
            raise SystemExit(f"{path.name}: {what}: {told[what]}")
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].numpy()


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
    out = work / "logits.npy"
    subprocess.run([hearth, "logits", base, "--ids", ",".join(map(str, IDS)), "--out", out, "--force", "--precision", "reference", "--kv",
                    "f32", "-q", *options], check=True, stdout=subprocess.DEVNULL)
    return np.load(out)


def check_transformers(hearth, work):
    good = True
    for name, base, adapter, reference in golden("peft"):
        path = fused(hearth, base, adapter, work / name, "--dtype", "f32")
        at, expected = rows_of(reference)
        good &= compare(name, transformers_logits(path, reference["ids"])[at], expected, reference["std"])
    for name in QUANTIZED:
        adapter = adapter_of(TINY / name, work / f"{name} adapter")
        expected = hearth_logits(hearth, TINY / name, work, "--adapter", adapter)
        moved = np.abs(hearth_logits(hearth, TINY / name, work) - expected).max() / expected.std()
        path = fused(hearth, TINY / name, adapter, work / name, "--dtype", "f32")
        good &= moved > 0.1 and compare(name, transformers_logits(path, IDS), expected, expected.std())
    return good


# ---- mlx-lm ----


def mlx_logits(path, ids):
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    model, _ = load_model(path)
    model.update(tree_map(lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p, model.parameters()))
    return np.array(model(mx.array([ids]))[0].astype(mx.float32))


def check_mlx(hearth, work):
    good = True
    for name, base, adapter, reference in golden("mlx"):
        at, expected = rows_of(reference)
        for what, options in ("floats and groups", []), ("all floats", ["--dense"]):
            path = fused(hearth, base, adapter, work / f"{name} {what}", "--dtype", "f32", *options)
            good &= compare(f"{name} as {what}", mlx_logits(path, reference["ids"])[at], expected, reference["std"])
        for how in ("8:32", "3:32") if "quantization" in json.loads((base / "config.json").read_text()) else ():
            path = fused(hearth, base, adapter, work / f"{name} {how}", "--quantize", how)  # which loses some of the change
            logits = hearth_logits(hearth, path, work)
            good &= compare(f"{name} in groups, {how}", mlx_logits(path, IDS), logits, logits.std())
    return good


# ---- llama.cpp ----


def check_llama(hearth, work):
    import gguf

    good = True
    for name, experts in LLAMA.items():
        reader = gguf.GGUFReader(TINY / f"{name}.gguf")
        architecture = reader.fields["general.architecture"].contents()
        weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(tuple(int(n) for n in reversed(t.shape)))
                   .astype(np.float32) for t in reader.tensors}
        head_dim = weights["blk.0.attn_q.weight"].shape[0] // reader.fields[f"{architecture}.attention.head_count"].contents()
        tensors, merged = random_adapter(weights, architecture, head_dim, experts)
        write_peft(work / name, tensors)
        base = write_gguf(work / f"{name}.gguf", reader, architecture, weights)
        expected = llama_logits(write_gguf(work / f"{name}.merged.gguf", reader, architecture, merged))
        moved = np.abs(llama_logits(base) - expected).max() / expected.std()
        path = fused(hearth, base, work / name, work / f"{name}.fused.gguf", "--dtype", "f32")
        good &= moved > 0.5 and compare(f"{name} in llama.cpp", llama_logits(path), expected, expected.std())
        kept = fused(hearth, TINY / f"{name}.gguf", work / name, work / f"{name}.kept.gguf", "--dtype", "f32")
        for t in gguf.GGUFReader(kept).tensors:
            x = gguf.quants.dequantize(t.data, t.tensor_type).reshape(merged[t.name].shape)
            good &= bool(np.abs(x - merged[t.name]).max() < 1e-5)
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("hearth", type=pathlib.Path)
    parser.add_argument("library", choices=["transformers", "mlx", "llama.cpp"])
    args = parser.parse_args()
    check = {"transformers": check_transformers, "mlx": check_mlx, "llama.cpp": check_llama}[args.library]
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(0 if check(args.hearth, pathlib.Path(folder)) else 1)
