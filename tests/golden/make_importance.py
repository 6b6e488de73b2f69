"""Makes tests/golden/importance.json: mean squares of the inputs of all projections of tiny checkpoints, by float32
`transformers`.

    python tests/golden/make_importance.py      # needs torch, transformers, safetensors, gguf

Hooks see the inputs of every linear module, of routers and of experts; names are those of GGUF files. Of every matrix some
columns are kept, and the sum over all of them."""

import json
import pathlib
import re

import numpy as np
import torch
import transformers

import make_inspect
import reference

HERE = pathlib.Path(__file__).parent
STRIDE = 7  # of the columns that are kept
# Name, tokens, window: a last window of less than half is left out, one of half or more counts; some are longer than the
# windows of attention, one than the 512 rows of a step.
CASES = [
    ("llama-f32", 70, 20), ("llama-head-dim-bf16", 65, 20), ("llama-llama3-f16-shards", 40, 40),
    ("llama-linear-bias-bf16", 24, 64), ("llama-f32.gguf", 70, 20), ("mistral-sliding-f32", 90, 45),
    ("qwen2-f32", 70, 20), ("qwen2-tied-bf16", 40, 20), ("qwen3-f32", 24, 12), ("qwen3-moe-f32", 96, 32),
    ("gemma2-f32", 580, 580), ("gemma3-f32", 24, 24), ("gemma3-multimodal-bf16-shards", 40, 20), ("gemma4-f32", 60, 30),
    ("gemma4-shared-bf16", 90, 45), ("gemma4-k-is-v-f16-shards", 40, 20), ("gemma4-experts-bf16", 96, 32),
]  # fmt: skip
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "router.proj": "ffn_gate_inp", "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
}  # fmt: skip


class Sums:
    """Squares by name: float64 [experts, columns], and the inputs of each expert."""

    def __init__(self):
        self.sum, self.count = {}, {}

    def add(self, name, x, expert=0, n_experts=1):
        x = x.detach().double().reshape(-1, x.shape[-1])
        if name not in self.sum:
            self.sum[name] = np.zeros((n_experts, x.shape[1]))
            self.count[name] = [0] * n_experts
        self.sum[name][expert] += (x * x).sum(0).numpy()
        self.count[name][expert] += len(x)


def name_of(module, tied):
    if module.endswith("lm_head"):
        return "token_embd.weight" if tied else "output.weight"
    if module.endswith("per_layer_model_projection"):
        return "per_layer_model_proj.weight"
    layer = re.search(r"layers\.(\d+)\.(.*)", module)
    return f"blk.{layer[1]}.{NAMES[layer[2]]}.weight" if layer and layer[2] in NAMES else None


def experts_hook(sums, layer):
    """The inputs of gate and up, and those of down, which are computed here from the weights."""

    def hook(module, args, kwargs):
        x, chosen = args[0], args[1]
        x = x.reshape(-1, x.shape[-1])
        n = module.num_experts
        for e in range(n):
            rows = x[(chosen.reshape(len(x), -1) == e).any(-1)]
            gate, up = torch.nn.functional.linear(rows, module.gate_up_proj[e]).chunk(2, dim=-1)
            first = ("gate_up",) if "Gemma4" in type(module).__name__ else ("gate", "up")  # as their GGUF files have them
            for name, inputs in *((f, rows) for f in first), ("down", module.act_fn(gate) * up):
                sums.add(f"blk.{layer}.ffn_{name}_exps.weight", inputs, e, n)

    return hook


def watch(model, sums):
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    for name, module in model.named_modules():
        if "vision" in name or "audio" in name or "multi_modal" in name or "embed_vision" in name:
            continue
        kind = type(module).__name__
        if kind.endswith("Experts"):
            module.register_forward_pre_hook(experts_hook(sums, re.search(r"layers\.(\d+)", name)[1]), with_kwargs=True)
        elif isinstance(module, torch.nn.Linear) or kind == "Qwen3MoeTopKRouter":
            gguf = name_of(name, tied)
            if not gguf:
                raise SystemExit(f"{name}: no name in GGUF files")
            module.register_forward_pre_hook(lambda m, args, gguf=gguf: sums.add(gguf, args[0]))


def windows(ids, size):
    for at in range(0, len(ids), size):
        part = ids[at : at + size]
        if 2 * len(part) >= size or not at:
            yield part


def main():
    cases = []
    for name, n, size in CASES:
        ids = (make_inspect.ids_of(name) * n)[:n]
        model, sums = make_inspect.load(name), Sums()
        watch(model, sums)
        parts = list(windows(ids, size))
        for part in parts:
            reference.logits_of(model, part)
        entries = {}
        for key, values in sums.sum.items():
            means = [v / max(c, 1) for v, c in zip(values, sums.count[key])]
            entries[key] = {"columns": values.shape[1], "count": sums.count[key],
                            "kept": [make_inspect.numbers(m[::STRIDE]) for m in means],
                            "total": [float(f"{m.sum():.9g}") for m in means]}
        print(name, len(entries), "entries")
        cases.append({"checkpoint": name, "sha256": make_inspect.sha256(name), "ids": ids, "window": size,
                      "windows": len(parts), "entries": entries})
    provenance = (f"tests/golden/make_importance.py with transformers {transformers.__version__}, torch "
                  f"{torch.__version__}: means of squared inputs, every {STRIDE}th column, in float64 of float32 inputs")
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (HERE / "importance.json").write_text(
        f'{{"provenance":{json.dumps(provenance)},"stride":{STRIDE},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
