"""Makes tests/golden/train: what torch and PEFT make of adapters of tiny checkpoints, in float32.

    python tests/golden/make_train.py [NAME...]     # needs torch, transformers, peft, safetensors, gguf; mlx for llama-mlx4

`adapter` is where training begins, in PEFT's files, with a B that is not 0; `gradients`, in the same files, has the gradient of
the mean loss by every A and B in their places; `train.json` has the batch, the settings, and before each step of AdamW and after
the last the gradients' norm and the loss, with A and B in float32 and in bfloat16 (in which norms are too sensitive to compare).

PEFT gives the gate and up of an expert one A, Hearth gives each its own. So that both train the same, PEFT's has the ranks of
both there: A is one above the other, B has its block of each, and what is outside of the blocks stays 0.
"""

import json
import pathlib
import shutil
import sys
import zlib

import numpy as np
import peft
import torch
import transformers
from peft.tuners.lora.layer import LoraLayer, ParamWrapper
from safetensors.torch import load_file, save_file

import reference

HERE = pathlib.Path(__file__).parent
OUT, TINY = HERE / "train", HERE / "tiny"
SETTINGS = {"steps": 20, "learning_rate": 1e-3, "weight_decay": 0.01, "clip": 1.0}
RANK, ALPHA = 2, 4
LENGTHS = 24, 37  # longer than the windows

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
QWEN_EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
GEMMA_EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
# Names seed the values: with these, rounding does not make a row choose another expert within the steps.
CASES = {
    "llama": ("llama-f32", {"target_modules": "all-linear"}),
    "llama-rslora": ("llama-f32", {"target_modules": ["q_proj", "v_proj"], "use_rslora": True}),
    "llama-q4_1": ("llama-q4_1.gguf", {"target_modules": ["q_proj", "k_proj", "down_proj"]}),
    "llama-mlx4": ("llama-mlx4-bf16", {"target_modules": ["v_proj", "o_proj", "up_proj"]}),
    "mistral-sliding": ("mistral-sliding-f32", {"target_modules": ATTENTION}),
    "qwen2": ("qwen2-f32", {"target_modules": ["q_proj", "k_proj", "gate_proj"]}),
    "qwen3": ("qwen3-f32", {"target_modules": ATTENTION}),
    "qwen3-moe": ("qwen3-moe-f32", {"target_modules": ["q_proj", "o_proj"], "target_parameters": QWEN_EXPERTS}),
    "gemma2": ("gemma2-f32", {"target_modules": "all-linear"}),
    "gemma3": ("gemma3-f32", {"target_modules": ["q_proj", "k_proj", "v_proj", "down_proj"]}),
    "gemma4": ("gemma4-f32", {"target_modules": ["v_proj", "per_layer_input_gate", "per_layer_projection"]}),
    "gemma4-shared": ("gemma4-shared-bf16", {"target_modules": ATTENTION}),
    "gemma4-k-is-v": ("gemma4-k-is-v-f16-shards", {"target_modules": ["q_proj", "k_proj", "v_proj"]}),
    "gemma4-experts-router": ("gemma4-experts-bf16", {"target_modules": ["q_proj", "router.proj"],
                                                      "target_parameters": GEMMA_EXPERTS}),
    "deepseek": ("../families/deepseek_v3", {"target_modules": "all-linear"}),
}


# ---- models ----


def dequantized_mlx(path):
    """The float32 model of a checkpoint in MLX's groups."""
    import mlx.core as mx

    described = json.loads((path / "config.json").read_text())
    groups = described.pop("quantization")
    described.pop("quantization_config")
    config = transformers.AutoConfig.for_model(**described)
    stored = mx.load(str(path / "model.safetensors"))
    state = {}
    for name, x in stored.items():
        module, leaf = name.rsplit(".", 1)
        if leaf in ("scales", "biases"):
            continue
        if module + ".scales" in stored:
            how = groups.get(module, groups)
            x = mx.dequantize(x, stored[module + ".scales"].astype(mx.float32), stored[module + ".biases"].astype(mx.float32),
                              group_size=how["group_size"], bits=how["bits"])
        state[name] = torch.from_numpy(np.array(x.astype(mx.float32)))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.load_state_dict(state)
    return model


def load(path):
    if path.suffix == ".gguf":
        import make_real

        return make_real.load(path)[0]
    if "mlx" in path.name:
        return dequantized_mlx(path).eval()
    return transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()


# ---- adapters ----


def is_gate_up(layer):
    return isinstance(layer, ParamWrapper) and layer.parameter_name == "gate_up_proj"


def lora_layers(model):
    return [(path, m) for path, m in model.named_modules() if isinstance(m, LoraLayer)]


def attach(model, seed, rank=RANK, alpha=ALPHA, dtype=torch.float32, **how):
    """The model with an adapter whose B is not 0. Gate and up of experts have twice the rank and no less weight."""
    both = {"gate_up_proj": 2 * rank}
    if "target_parameters" in how:
        how |= {"rank_pattern": both, "alpha_pattern": {"gate_up_proj": 2 * alpha}}
    model = peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, **how)).eval()
    generator = torch.Generator().manual_seed(seed)
    for _, layer in lora_layers(model):
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        with torch.no_grad():
            a.copy_((2 * torch.rand(a.shape, generator=generator) - 1) / a.shape[1] ** 0.5)
            b.copy_(0.1 * torch.randn(b.shape, generator=generator))
        a.data, b.data = a.data.to(dtype), b.data.to(dtype)
        if is_gate_up(layer):
            half = b.shape[0] // 2
            blocks = torch.zeros(b.shape).reshape(2 * half, 2 * rank, -1)
            blocks[:half, :rank] = blocks[half:, rank:] = 1
            blocks = blocks.reshape(b.shape)
            b.data *= blocks.to(dtype)
            b.register_hook(lambda gradient, blocks=blocks: gradient * blocks.to(gradient.dtype))
    return model


def pieces(path, layer, a, b):
    """The pairs that PEFT would store of a layer, each expert by itself: A and B are parameters or gradients."""
    path = path.replace(".base_layer", "")
    if not isinstance(layer, ParamWrapper) or layer.num_experts == 1:  # a router is a parameter too
        yield path, a, b
        return
    n, r = layer.num_experts, layer.r["default"]
    a, b = a.reshape(n, r, -1), b.reshape(b.shape[0], r, n)
    for e in range(n):
        if not is_gate_up(layer):
            yield f"{path}.{e}.down_proj", a[e], b[:, :, e]
            continue
        rank, half = r // 2, b.shape[0] // 2
        yield f"{path}.{e}.gate_proj", a[e, :rank], b[:half, :rank, e]
        yield f"{path}.{e}.up_proj", a[e, rank:], b[half:, rank:, e]


def tensors(model, gradients=False):
    out = {}
    for path, layer in lora_layers(model):
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        for name, piece_a, piece_b in pieces(path, layer, *((a.grad, b.grad) if gradients else (a.detach(), b.detach()))):
            out[name + ".lora_A.weight"] = piece_a.contiguous().clone()
            out[name + ".lora_B.weight"] = piece_b.contiguous().clone()
    return dict(sorted(out.items()))


def write_adapter(folder, values, base, rank=RANK, alpha=ALPHA, rslora=False):
    folder.mkdir(parents=True)
    save_file(values, folder / "adapter_model.safetensors", {"format": "pt"})
    targets = sorted({name.rsplit(".", 3)[1] for name in values})
    config = {"base_model_name_or_path": base, "lora_alpha": alpha, "peft_type": "LORA", "r": rank,
              "target_modules": targets, "task_type": "CAUSAL_LM", "use_rslora": rslora}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")


# ---- training ----


def batch_of(seed, vocab, lengths):
    """Sequences of random ids, as {"ids", "labels"}; every third label, and the first few, are not learned."""
    rng = np.random.default_rng(seed)
    sequences = []
    for n in lengths:
        ids = rng.integers(0, vocab, n).tolist()
        sequences.append({"ids": ids, "labels": [-100 if i < 4 or i % 3 == 1 else x for i, x in enumerate(ids)]})
    return sequences


def padded(sequences):
    """What a collator of transformers makes of them."""
    longest = max(len(s["ids"]) for s in sequences)
    fill = lambda key, value: torch.tensor([s[key] + [value] * (longest - len(s["ids"])) for s in sequences])
    mask = torch.tensor([[1] * len(s["ids"]) + [0] * (longest - len(s["ids"])) for s in sequences])
    return {"input_ids": fill("ids", 0), "labels": fill("labels", -100), "attention_mask": mask}


def loss_of(model, inputs):
    """The mean loss of what is learned. Of float32 logits torch's log_softmax makes too large a sum, by 1e-5 of 49,152 words, and
    its gradient is off by 3e-4 behind a few layers: this one is in float64."""
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].double().flatten(0, 1), inputs["labels"][:, 1:].flatten())


def train(model, sequences, settings, on_gradients=None):
    """The loss and the norm of its gradients before every step and after the last."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=settings["learning_rate"], weight_decay=settings["weight_decay"])
    losses, norms, inputs = [], [], padded(sequences)
    for step in range(settings["steps"] + 1):
        optimizer.zero_grad()
        loss = loss_of(model, inputs)
        loss.backward()
        if step == 0 and on_gradients:
            on_gradients()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, settings["clip"]).item())
        if step < settings["steps"]:
            optimizer.step()
    return losses, norms


def make(name):
    base, how = CASES[name]
    seed = zlib.crc32(name.encode())
    model = attach(load(TINY / base), seed, **how)
    vocab = model.config.get_text_config().vocab_size
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    rslora = how.get("use_rslora", False)
    write_adapter(folder / "adapter", tensors(model), base, rslora=rslora)
    sequences = batch_of(seed, vocab, LENGTHS)
    losses, norms = train(model, sequences, SETTINGS, lambda: write_adapter(
        folder / "gradients", tensors(model, gradients=True), base, rslora=rslora))
    losses_bf16, _ = train(attach(load(TINY / base), seed, dtype=torch.bfloat16, **how), sequences, SETTINGS)
    provenance = (f"tests/golden/make_train.py with peft {peft.__version__}, transformers {transformers.__version__}, "
                  f"torch {torch.__version__}, float32")
    answer = {"provenance": provenance, "base": base, **SETTINGS, "sequences": sequences,
              "f32": reference.short(losses), "bf16": reference.short(losses_bf16), "norms": reference.short(norms)}
    (folder / "train.json").write_text(json.dumps(answer, separators=(",", ":")) + "\n")
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, norm {norms[0]:.3f} to {norms[-1]:.3f}", file=sys.stderr)


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case)
