"""Makes tests/golden/adapters: adapters saved by PEFT and by mlx-lm for tiny checkpoints, and what they are and do there.

    python tests/golden/make_adapters.py peft|mlx [NAME...]   # needs peft, torch and transformers, or mlx-lm

`reference.json` has float32 logits of the checkpoint with the adapter (reference.py), `deltas.json` the checkpoint's name and
for each projection u'Dv, D being what its own library adds to the matrix, with u and v as `bilinear` has them; for each expert
where there are some.
"""

import argparse
import json
import pathlib
import re
import shutil

import numpy as np

import reference

HERE = pathlib.Path(__file__).parent
OUT, TINY = HERE / "adapters", HERE / "tiny"
RANK = 3
IDS = [5 * i % 53 for i in range(24)]

PEFT = {
    "peft-llama": ("llama-f32", {"target_modules": "all-linear", "use_rslora": True}),
    "peft-qwen2-patterns": ("qwen2-f32", {"target_modules": ["q_proj", "v_proj", "down_proj"], "rank_pattern":
                            {"down_proj": 5}, "alpha_pattern": {"layers.0.*q_proj": 11.5}, "layers_to_transform": [0, 1]}),
    "peft-qwen3-moe": ("qwen3-moe-f32", {"target_modules": ["q_proj", "v_proj"], "target_parameters":
                       ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    "peft-gemma4-experts": ("gemma4-experts-bf16", {"target_modules": ["q_proj"], "target_parameters":
                            ["experts.gate_up_proj", "experts.down_proj"]}),
    "peft-deepseek": ("../families/deepseek_v3", {"target_modules": "all-linear"}),
    # Experts stored transposed: gate and up take turns in the first; PEFT takes inputs for outputs in the second.
    "peft-gpt-oss": ("../families/gpt_oss", {"target_modules": ["q_proj"], "target_parameters":
                     ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.router.weight"]}),
    "peft-llama4": ("../families/llama4", {"target_modules": ["v_proj", "shared_expert.up_proj"], "target_parameters":
                    ["feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"]}),
    "peft-granite-moe": ("../families/granitemoe", {"target_modules": ["o_proj"], "target_parameters":
                         ["block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj"]}),
}
MLX = {
    "mlx-llama": ("llama-f32", None),
    "mlx-qwen3-moe": ("qwen3-moe-mlx4-bf16", ["self_attn.q_proj", "mlp.switch_mlp.gate_proj", "mlp.switch_mlp.down_proj"]),
    "mlx-gemma4-experts": ("gemma4-experts-mlx4-f16", ["self_attn.o_proj", "experts.switch_glu.up_proj"]),
}


def bilinear(delta):
    delta = np.asarray(delta, np.float64)
    u, v = np.cos(np.arange(delta.shape[-2])), np.sin(np.arange(delta.shape[-1]) + 1.0)
    return np.atleast_1d(u @ delta @ v).tolist()


def finish(folder, provenance, base, ids, logits, deltas):
    for extra in folder.glob("README.md"):
        extra.unlink()
    reference.write(folder / "reference.json", provenance, ids, logits, 5, range(0, len(ids), 6))
    answer = {"provenance": provenance, "base": base, "deltas": dict(sorted(deltas.items()))}
    (folder / "deltas.json").write_text(json.dumps(answer, indent=1) + "\n")


def make_peft(names):
    import peft
    import torch
    import transformers

    provenance = f"tests/golden/make_adapters.py with peft {peft.__version__}, transformers {transformers.__version__}, " \
                 f"torch {torch.__version__}: float32 logits"
    for name, (base, how) in PEFT.items():
        if names and name not in names:
            continue
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            TINY / base, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
        model = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=6, **how)).eval()
        model.peft_config["default"].base_model_name_or_path = base
        deltas = {}
        for _, parameter in model.named_parameters():
            if parameter.requires_grad and not parameter.any():
                parameter.data = 0.1 * torch.randn_like(parameter)
        for path, module in model.named_modules():
            if not isinstance(module, peft.tuners.lora.LoraLayer):
                continue
            slot = re.sub(r"\w+\.experts", "experts", path.removeprefix("base_model.model.").replace(".base_layer", ""))
            experts = module.get_base_layer()
            delta = module.get_delta_weight("default").detach().numpy()
            parameter = getattr(module, "parameter_name", "weight")
            if delta.ndim == 3 and (getattr(experts, "is_transposed", False) or "Llama4" in type(experts).__name__):
                delta = delta.swapaxes(1, 2)
            if parameter == "gate_up_proj":
                half = delta.shape[1] // 2
                in_turns = not getattr(experts, "is_concatenated", True)
                deltas[slot + ".gate_proj"] = bilinear(delta[:, ::2] if in_turns else delta[:, :half])
                deltas[slot + ".up_proj"] = bilinear(delta[:, 1::2] if in_turns else delta[:, half:])
            else:
                deltas[slot + (".down_proj" if parameter == "down_proj" else "")] = bilinear(delta)
        ids = [i % model.config.get_text_config().vocab_size for i in IDS]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].numpy()
        shutil.rmtree(OUT / name, ignore_errors=True)
        model.save_pretrained(OUT / name)
        finish(OUT / name, provenance, base, ids, logits, deltas)


def make_mlx(names):
    import mlx.core as mx
    import mlx_lm
    from mlx.utils import tree_flatten, tree_map
    from mlx_lm.tuner.utils import linear_to_lora_layers
    from mlx_lm.utils import load_model

    provenance = f"tests/golden/make_adapters.py with mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}: float32 logits"
    mx.set_default_device(mx.cpu)
    for name, (base, keys) in MLX.items():
        if names and name not in names:
            continue
        mx.random.seed(0)
        model, _ = load_model(TINY / base)
        model.update(tree_map(lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p,
                              model.parameters()))
        how = {"rank": RANK, "scale": 2.5, "dropout": 0.0} | ({"keys": keys} if keys else {})
        linear_to_lora_layers(model, -1, how)
        lora = {k: v for k, v in tree_flatten(model.parameters()) if k.rsplit(".", 1)[-1] in ("lora_a", "lora_b")}
        lora = {k: 0.1 * mx.random.normal(v.shape) if k.endswith("lora_b") else v for k, v in lora.items()}
        model.load_weights(list(lora.items()), strict=False)
        deltas = {}
        for key in lora:
            module, leaf = key.rsplit(".", 1)
            if leaf == "lora_b":
                continue
            a, b = np.array(lora[key]), np.array(lora[module + ".lora_b"])
            slot = module.removeprefix("language_model.").replace("mlp.switch_mlp", "experts")
            slot = slot.replace("experts.switch_glu", "experts")
            deltas[slot] = bilinear(2.5 * (b @ a if a.ndim == 3 else b.T @ a.T))
        logits = np.array(model(mx.array([IDS]))[0].astype(mx.float32))
        shutil.rmtree(OUT / name, ignore_errors=True)
        (OUT / name).mkdir(parents=True)
        mx.save_safetensors(str(OUT / name / "adapters.safetensors"), lora)
        config = {"fine_tune_type": "lora", "lora_parameters": how, "model": base, "num_layers": -1}
        (OUT / name / "adapter_config.json").write_text(json.dumps(config, indent=4) + "\n")
        finish(OUT / name, provenance, base, IDS, logits, deltas)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["peft", "mlx"])
    parser.add_argument("name", nargs="*", help="all, or those named")
    asked = parser.parse_args()
    {"peft": make_peft, "mlx": make_mlx}[asked.library](asked.name)
