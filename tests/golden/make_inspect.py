"""Makes tests/golden/inspect.json: queries, keys, values and attention weights of tiny checkpoints, by float32 `transformers`.

    python tests/golden/make_inspect.py      # needs torch, transformers, safetensors, gguf

What each layer of `transformers` hands to its attention, after norms and RoPE, and the weights that this gives back, are
recorded; of every array a few positions are kept."""

import hashlib
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, Gemma3ForConditionalGeneration, Gemma4ForConditionalGeneration

import reference

HERE = pathlib.Path(__file__).parent
# Name, tokens: more than the windows of 8 to 20; some more than the 256 rows of a step.
CASES = [
    ("llama-f32", 24), ("llama-head-dim-bf16", 24), ("llama-llama3-f16-shards", 40), ("llama-yarn-f16", 40),
    ("llama-linear-bias-bf16", 24), ("llama-f32.gguf", 24), ("mistral-sliding-f32", 24), ("mistral-head-dim-bf16", 24),
    ("qwen2-f32", 24), ("qwen2-sliding-f16", 24), ("qwen3-f32", 24), ("qwen3-bias-sliding-bf16", 24),
    ("qwen3-moe-f32", 24), ("gemma2-f32", 290), ("gemma2-f16-shards", 24), ("gemma3-f32", 24),
    ("gemma3-scaled-bf16", 24), ("gemma3-multimodal-bf16-shards", 24), ("gemma4-f32", 24), ("gemma4-shared-bf16", 290),
    ("gemma4-k-is-v-f16-shards", 24), ("gemma4-experts-bf16", 24), ("gemma4-multimodal-bf16", 24),
]  # fmt: skip


def load(name):
    path = HERE / "tiny" / name
    if name.endswith(".gguf"):
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=name, dtype=torch.float32)
    else:
        cls = {"gemma3-multimodal": Gemma3ForConditionalGeneration,
               "gemma4-multimodal": Gemma4ForConditionalGeneration}.get("-".join(name.split("-")[:2]), AutoModelForCausalLM)
        model = cls.from_pretrained(path, dtype=torch.float32)
    model.set_attn_implementation("eager")
    return model.eval()


def ids_of(name):
    path = HERE / "tiny" / name
    file = path.with_suffix("").with_suffix(".reference.json") if name.endswith(".gguf") else path / "reference.json"
    return json.loads(file.read_text())["ids"]


def record(model, ids):
    """Per layer q, k, v [heads, T, head_dim] and attention [heads, T, T]."""
    layers = {}
    modules = {sys.modules[type(m).__module__] for m in model.modules() if hasattr(m, "layer_idx")}
    modules = [m for m in modules if hasattr(m, "eager_attention_forward")]
    originals = [m.eager_attention_forward for m in modules]

    def wrap(original):
        def recording(module, query, key, value, *args, **more):
            out, weights = original(module, query, key, value, *args, **more)
            layers[module.layer_idx] = {"q": query[0].numpy(), "k": key[0].numpy(), "v": value[0].numpy(),
                                        "attention": weights[0].numpy()}
            return out, weights
        return recording

    for module, original in zip(modules, originals):
        module.eager_attention_forward = wrap(original)
    try:
        reference.logits_of(model, ids)
    finally:
        for module, original in zip(modules, originals):
            module.eager_attention_forward = original
    return [layers[i] for i in sorted(layers)]


def numbers(x):
    return [0 if v == 0 else float(f"{v:.6g}") for v in np.asarray(x, np.float64).ravel()]


def sha256(name):
    path = HERE / "tiny" / name
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


def main():
    cases = []
    for name, n in CASES:
        ids = (ids_of(name) * n)[:n]
        layers = record(load(name), ids)
        positions = [0, 3, 11, n - 1] if n < 256 else [255, 256, n - 1]
        kept = [{what: numbers(values[:, positions]) for what, values in layer.items()} for layer in layers]
        shapes = [{what: list(values.shape) for what, values in layer.items()} for layer in layers]
        largest = [{what: float(f"{np.abs(values).max():.7g}") for what, values in layer.items()} for layer in layers]
        print(name, shapes)
        cases.append({"checkpoint": name, "sha256": sha256(name), "ids": ids, "positions": positions, "layers": [
            {"shape": s, "largest": m, **k} for s, m, k in zip(shapes, largest, kept)]})
    provenance = (f"tests/golden/make_inspect.py with transformers {transformers.__version__}, torch {torch.__version__}: "
                  "operands and weights of float32 attention, at `positions` of every head")
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (HERE / "inspect.json").write_text(f'{{"provenance":{json.dumps(provenance)},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
