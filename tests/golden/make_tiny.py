"""Makes the tiny random checkpoints under tests/golden/tiny and what float32 `transformers` answers to them.

    python tests/golden/make_tiny.py [NAME...]      # all, or those named; needs torch, transformers, safetensors,
                                                    # compressed-tensors, gguf

Every checkpoint is a few dozen kilobytes and committed, so that the tests need no Python. The weights are seeded by the
checkpoint's name. Files are written by `transformers` and by the `gguf` package, not by Hearth; the older spellings of
config.json are put in by hand and read back by `transformers` to show that they mean the same.
"""

import json
import pathlib
import re
import shutil
import sys
import zlib

import gguf
import numpy as np
import torch
import transformers
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3Config, Gemma3ForCausalLM,
                          Gemma3ForConditionalGeneration, Gemma3TextConfig, Gemma4Config, Gemma4ForCausalLM,
                          Gemma4ForConditionalGeneration, Gemma4TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)

from compressed_tensors.compressors import NVFP4PackedCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

import reference

HERE = pathlib.Path(__file__).parent / "tiny"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
PROVENANCE = (f"tests/golden/make_tiny.py with transformers {transformers.__version__}, torch {torch.__version__}, "
              f"gguf {getattr(gguf, '__version__', '0.19')}: float32 logits of the weights as stored")


def seeded(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def fill(model, name, offset):
    """Weights large enough that every part of the model moves the logits. offset: what a norm adds to its weight."""
    rng = seeded(name)
    with torch.no_grad():
        for key, p in sorted(model.named_parameters()):
            values = rng.standard_normal(tuple(p.shape)).astype(np.float32)
            if p.dim() == 1:
                values = values * 0.2 + (0 if key.endswith("bias") else 1 - offset)
                if "q_norm" in key and model.config.model_type.startswith("gemma4"):
                    values *= 0.4  # nothing else scales its scores
            elif "embed_tokens" in key:
                values *= 0.7
            else:
                values *= 1.2 / np.sqrt(p.shape[-1])
            p.copy_(torch.from_numpy(values))
        for key, b in sorted(model.named_buffers()):
            if key.endswith("layer_scalar"):
                b.copy_(torch.from_numpy(rng.uniform(0.5, 1.0, tuple(b.shape)).astype(np.float32)))


def answer(directory, model, name, vocab, n, out):
    ids = [int(i) for i in seeded(name + " ids").integers(0, vocab, n)]
    model = model.float().eval()
    model.set_attn_implementation("eager")
    logits = reference.logits_of(model, ids)
    rows = sorted(set(np.linspace(0, n - 1, 6).astype(int).tolist()))
    reference.write(directory / out, PROVENANCE, ids, logits, 3, rows, 1, reference.greedy(model, ids, 64))
    return logits


def old_spelling(config):
    """rope_parameters back into rope_theta, rope_scaling and, for Gemma, rope_local_base_freq."""
    for c in (config, config.get("text_config", {})):
        if c.get("model_type") == "gemma4_text":
            full = next(iter(c.pop("per_layer_config").values()))
            c["global_head_dim"] = full["head_dim"]
            c["num_global_key_value_heads"] = full.get("num_key_value_heads")
            continue
        rope = c.pop("rope_parameters", None)
        if rope is None:
            continue
        if "full_attention" in rope:
            c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = rope["full_attention"]
        c["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        # Gemma's class reads only the newer key, the others take either.
        key = "rope_type" if c.get("model_type", "").startswith("gemma3") else "type"
        c["rope_scaling"] = None if kind == "default" else {key: kind, **rope}
        c["torch_dtype"] = c.pop("dtype", "float32")
        types = c.pop("layer_types", None)
        if types and "sliding_window" in c and c.get("model_type", "").startswith("gemma3"):
            c["sliding_window_pattern"] = types.index("full_attention") + 1
    return config


def check_same(directory, expected, ids, cls):
    again = cls.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    difference = np.abs(reference.logits_of(again, ids) - expected).max()
    assert difference < 1e-4, f"{directory}: the rewritten config means something else, by {difference}"


def wanted(name):
    return len(sys.argv) == 1 or name in sys.argv[1:]


def begin(name, cls, config, offset):
    """An empty directory, and a model with the weights that go with the name."""
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    torch.manual_seed(0)
    model = cls(config).float().eval()
    fill(model, name, offset)
    return directory, model


def checkpoint(name, cls, config, dtype, n=40, shard=None, old=False, offset=0):
    if not wanted(name):
        return
    directory, model = begin(name, cls, config, offset)
    model = model.to(DTYPES[dtype])
    model.save_pretrained(directory, max_shard_size=shard or "1GB")
    # Read back: a model that was converted to 16 bits keeps rounded RoPE frequencies, even when made float32 again.
    model = cls.from_pretrained(directory, dtype=torch.float32)
    logits = answer(directory, model, name, config.get_text_config().vocab_size, n, "reference.json")
    path = directory / "config.json"
    spelled = json.loads(path.read_text())
    if old:
        spelled = old_spelling(spelled)
    path.write_text(json.dumps(spelled, indent=1) + "\n")
    ids = json.loads((directory / "reference.json").read_text())["ids"]
    check_same(directory, logits, ids, cls)


# ---- 8-bit floats ----


def scaled(x, block, kind, scale_dtype):
    """A matrix in 8-bit floats, one scale per block, and what they mean."""
    rows, columns = -(-x.shape[0] // block[0]), -(-x.shape[1] // block[1])
    padded = torch.zeros(rows * block[0], columns * block[1])
    padded[: x.shape[0], : x.shape[1]] = x
    peaks = padded.reshape(rows, block[0], columns, block[1]).abs().amax(dim=(1, 3))
    scales = (peaks / torch.finfo(kind).max).to(scale_dtype)
    spread = scales.float().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[: x.shape[0], : x.shape[1]]
    codes = (x / spread).clamp(-torch.finfo(kind).max, torch.finfo(kind).max).to(kind)
    return codes, scales, codes.float() * spread


def fp8_checkpoint(name, cls, config, kind, block, key, scale_dtype, stated, n=40):
    """block: None for one scale, (1, None) for one per row. key: what the scales' names add to the weight's, or that for
    matrices and for experts. stated: what config.json says. """
    if not wanted(name):
        return
    directory, model = begin(name, cls, config, 0)
    tensors = {}
    with torch.no_grad():
        for name_of, p in model.state_dict().items():
            if "proj" not in name_of or p.dim() < 2:
                tensors[name_of] = p.clone()
                continue
            size = (block or (None, None))
            size = (size[0] or p.shape[-2], size[1] or p.shape[-1])
            each = [scaled(one, size, kind, scale_dtype) for one in (p if p.dim() == 3 else [p])]
            codes, scales, values = (torch.stack(parts) if p.dim() == 3 else parts[0] for parts in zip(*each))
            tensors[name_of] = codes
            end = key if not isinstance(key, tuple) else key[p.dim() == 3]
            tensors[name_of + end] = scales if block else scales.reshape(p.shape[:-2])
            p.copy_(values)
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    described = {**config.to_dict(), "architectures": [cls.__name__], **stated}
    (directory / "config.json").write_text(json.dumps(described, indent=1) + "\n")
    logits = answer(directory, model, name, config.vocab_size, n, "reference.json")
    if stated.get("quantization_config", {}).get("quant_method") == "fp8" and not any(t.dim() == 3 for t in tensors.values()):  # which it reads one by one
        again = cls.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                    quantization_config=transformers.FineGrainedFP8Config(dequantize=True))
        ids = json.loads((directory / "reference.json").read_text())["ids"]
        difference = np.abs(reference.logits_of(again, ids) - logits).max()
        assert difference < 1e-4, f"{directory}: transformers dequantises to something else, by {difference}"


# ---- NVFP4 in safetensors ----

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def packed_nvfp4(x, divides):
    """Numbers, scales and the scale of the whole, as ModelOpt stores them, or as compressed-tensors does, who divides by the
    last; and what they mean."""
    whole = (x.abs().max() / (448 * 6)).float()
    groups = (x / whole).reshape(x.shape[0], -1, 16)
    scales = (groups.abs().amax(-1) / 6).to(torch.float8_e4m3fn)
    scaled = groups / scales.float().clamp(min=2.0**-9)[..., None]
    codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
    values = E2M1[codes] * scaled.sign() * scales.float()[..., None]
    codes = (codes + 8 * (scaled < 0)).reshape(x.shape).to(torch.uint8)
    stated = 1 / whole if divides else whole
    means = (values / stated if divides else values * stated).reshape(x.shape)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    if divides:
        check_nvfp4(packed, scales, stated, means)
    return packed, scales, stated, means


def check_nvfp4(packed, scales, whole, means):
    """compressed-tensors finds the same values in the parts, in bf16."""
    weights = QuantizationArgs(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16)
    parts = {"weight_packed": packed, "weight_scale": scales, "weight_global_scale": whole.reshape(1)}
    values = NVFP4PackedCompressor.decompress(parts, QuantizationScheme(targets=["Linear"], weights=weights))["weight"]
    assert ((values.float() - means).abs() <= means.abs() / 128).all(), "compressed-tensors unpacks something else"


def nvfp4_checkpoint(name, cls, config, tool, stated, experts=None, n=40):
    """Layers in NVFP4. experts: "stacked" in one tensor, gate and up with scales of their own, or each with tensors of its own,
    called by this pattern."""
    if not wanted(name):
        return
    directory, model = begin(name, cls, config, 0)
    divides = tool == "compressed-tensors"
    tensors = {}

    def put(stem, x):
        codes, scales, whole, means = packed_nvfp4(x, divides)
        tensors[f"{stem}.weight_packed" if divides else f"{stem}.weight"] = codes
        tensors[f"{stem}.weight_scale"] = scales
        tensors[f"{stem}.weight_global_scale" if divides else f"{stem}.weight_scale_2"] = whole.reshape([1] if divides else [])
        tensors[f"{stem}.input_global_scale" if divides else f"{stem}.input_scale"] = torch.ones([1] if divides else [])
        return means

    def put_stacked(key, p, parts):
        """ModelOpt leaves `.weight` out of the names."""
        each = [[packed_nvfp4(half, divides) for half in one.chunk(len(parts))] for one in p]
        names = ([".weight_packed", ".weight_scale", ".weight_global_scale"] if divides else
                 ["", "_weight_scale", "_weight_scale_2"])
        for i, part in enumerate(names[:2]):
            tensors[key + part] = torch.stack([torch.cat([half[i] for half in one]) for one in each])
        whole = torch.stack([torch.stack([half[2] for half in one]) for one in each])
        tensors[key + names[2]] = whole if len(parts) > 1 else whole.reshape(-1)
        return torch.stack([torch.cat([half[3] for half in one]) for one in each])

    with torch.no_grad():
        for key, p in model.state_dict().items():
            if p.dim() == 3:  # all experts
                parts = ("gate_proj", "up_proj") if "gate_up" in key else ("down_proj",)
                if experts == "stacked":
                    p.copy_(put_stacked(key, p, parts))
                    continue
                above = key.rsplit(".", 2)[0] + "." + (experts or "experts.{}")
                for e in range(p.shape[0]):
                    halves = p[e].chunk(len(parts))
                    p[e].copy_(torch.cat([put(f"{above.format(e)}.{part}", half) for part, half in zip(parts, halves)]))
            elif "_proj" in key:
                p.copy_(put(key.removesuffix(".weight"), p))
            else:
                tensors[key] = p.clone()
    save_file({k: t.contiguous() for k, t in tensors.items()}, directory / "model.safetensors", {"format": "pt"})
    described = {**config.to_dict(), "architectures": [cls.__name__], "quantization_config": stated}
    (directory / "config.json").write_text(json.dumps(described, indent=1) + "\n")
    answer(directory, model, name, config.vocab_size, n, "reference.json")


# ---- compressed-tensors ----


def group_of(groups, module):
    return next((g for g in groups.values() for t in g["targets"] if t == "Linear" or re.match(t.removeprefix("re:"), module)), None)


def compressed_checkpoint(name, cls, config, form, groups, n=40):
    """Modules in groups, each with a scheme of its own; transformers and compressed-tensors read it back."""
    if not wanted(name):
        return
    directory, model = begin(name, cls, config, 0)
    tensors = {}
    with torch.no_grad():
        for key, p in model.state_dict().items():
            stem = key.removesuffix(".weight")
            group = group_of(groups, stem) if "_proj" in key and p.dim() == 2 else None
            if group is None:
                tensors[key] = p.clone()
                continue
            how = group["weights"]
            if how["num_bits"] == 4:
                codes, scales, whole, means = packed_nvfp4(p, True)
                tensors |= {f"{stem}.weight_packed": codes, f"{stem}.weight_scale": scales,
                            f"{stem}.weight_global_scale": whole.reshape(1)}
            else:
                rows, columns = p.shape
                block = {"tensor": (rows, columns), "channel": (1, columns), "group": (1, how.get("group_size")),
                         "block": how.get("block_structure")}[how["strategy"]]
                scale_dtype = torch.bfloat16 if how["strategy"] == "channel" else torch.float32
                codes, scales, means = scaled(p, block, torch.float8_e4m3fn, scale_dtype)
                tensors |= {f"{stem}.weight": codes, f"{stem}.weight_scale": scales.reshape(1) if scales.numel() == 1 else scales}
            p.copy_(means)
    save_file({k: t.contiguous() for k, t in tensors.items()}, directory / "model.safetensors", {"format": "pt"})
    stated = {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
              "kv_cache_scheme": None, "sparsity_config": {}, "transform_config": {}, "config_groups": groups}
    described = {**config.to_dict(), "architectures": [cls.__name__], "quantization_config": stated}
    (directory / "config.json").write_text(json.dumps(described, indent=1) + "\n")
    logits = answer(directory, model, name, config.vocab_size, n, "reference.json")
    if form == "mixed-precision":  # which transformers does not take apart
        return
    again = cls.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                quantization_config=transformers.CompressedTensorsConfig(run_compressed=False))
    ids = json.loads((directory / "reference.json").read_text())["ids"]
    difference = np.abs(reference.logits_of(again, ids) - logits).max()
    rounds = any(g["weights"]["strategy"] == "channel" for g in groups.values())  # to the type of the scales
    assert difference < (3e-2 if rounds else 1e-4), f"{directory}: compressed-tensors decompresses to something else, by {difference}"


# ---- GGUF ----

LLAMA_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
               "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
               "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GEMMA_NAMES = {**LLAMA_NAMES, "post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
FAMILY_NAMES = {
    "llama": {**LLAMA_NAMES, "post_attention_layernorm": "ffn_norm"},
    "qwen2": {**LLAMA_NAMES, "post_attention_layernorm": "ffn_norm"},
    "qwen3": {**LLAMA_NAMES, **HEAD_NORMS, "post_attention_layernorm": "ffn_norm"},
    "qwen3moe": {**LLAMA_NAMES, **HEAD_NORMS, "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp"},
    "gemma2": GEMMA_NAMES,
    "gemma3": {**GEMMA_NAMES, **HEAD_NORMS},
    "gemma4": {**GEMMA_NAMES, **HEAD_NORMS, "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
               "post_per_layer_input_norm": "post_norm", "router.proj": "ffn_gate_inp",
               "post_feedforward_layernorm_1": "post_ffw_norm_1", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
               "post_feedforward_layernorm_2": "post_ffw_norm_2"},
}
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_1": gguf.GGMLQuantizationType.Q4_1,
         "q4_0": gguf.GGMLQuantizationType.Q4_0, "q5_1": gguf.GGMLQuantizationType.Q5_1,
         "nvfp4": gguf.GGMLQuantizationType.NVFP4}


def gguf_name(arch, key):
    key = key.removeprefix("model.")
    for hf, g in (("embed_tokens", "token_embd"), ("norm", "output_norm"), ("lm_head", "output"),
                  ("embed_tokens_per_layer", "per_layer_token_embd"),
                  ("per_layer_model_projection", "per_layer_model_proj"),
                  ("per_layer_projection_norm", "per_layer_proj_norm")):
        if key.startswith(hf + "."):
            return g + key[len(hf):]
    _, layer, rest = key.split(".", 2)
    whole = {"layer_scalar": "layer_output_scale.weight", "router.scale": "ffn_gate_inp.scale",
             "router.per_expert_scale": "ffn_down_exps.scale", "experts.gate_up_proj": "ffn_gate_up_exps.weight",
             "experts.down_proj": "ffn_down_exps.weight", "mlp.experts.down_proj": "ffn_down_exps.weight"}
    if rest in whole:
        return f"blk.{layer}.{whole[rest]}"
    stem, part = rest.rsplit(".", 1)
    return f"blk.{layer}.{FAMILY_NAMES[arch][stem]}.{part}"


def heads_of(config, key):
    return {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(key.split(".")[-2])


def interleave(x, heads):
    """The row order GGUF uses for llama's q and k: RoPE turns neighbours instead of halves."""
    half = x.shape[0] // heads // 2
    return x.reshape(heads, 2, half, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def describe_experts(w, count, used, size):
    w.add_expert_count(count)
    w.add_expert_used_count(used)
    w.add_expert_feed_forward_length(size)


def describe_gemma4(w, config):
    """What sets Gemma 4's metadata apart: as llama.cpp's converter writes it."""
    text = config.to_dict()
    full, head_dim = next(iter(text["per_layer_config"].values())), text["head_dim"]
    kv_heads = text["num_key_value_heads"]
    slides = [t == "sliding_attention" for t in config.layer_types]
    first_shared = config.num_hidden_layers - config.num_kv_shared_layers
    w.add_head_count_kv([kv_heads if s else full.get("num_key_value_heads", kv_heads) for s in slides])
    w.add_feed_forward_length([config.intermediate_size * (2 if config.use_double_wide_mlp and i >= first_shared else 1)
                               for i in range(config.num_hidden_layers)])
    w.add_key_length(full["head_dim"])
    w.add_value_length(full["head_dim"])
    w.add_key_length_swa(head_dim)
    w.add_value_length_swa(head_dim)
    w.add_rope_dimension_count(full["head_dim"])
    w.add_rope_dimension_count_swa(head_dim)
    w.add_shared_kv_layers(config.num_kv_shared_layers)
    w.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    w.add_sliding_window(config.sliding_window)
    w.add_sliding_window_pattern(slides)
    if config.final_logit_softcapping:
        w.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.enable_moe_block:
        describe_experts(w, config.num_experts, config.top_k_experts, config.moe_intermediate_size)
    rope = config.rope_parameters
    w.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    w.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    turning = int(full["head_dim"] * rope["full_attention"]["partial_rotary_factor"] / 2)
    w.add_tensor("rope_freqs.weight", np.array([1.0] * turning + [1e30] * (full["head_dim"] // 2 - turning), np.float32))


def describe_others(w, arch, model, config):
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if head_dim * config.num_attention_heads != config.hidden_size or arch.startswith("gemma"):
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    if arch == "qwen3moe":
        describe_experts(w, config.num_experts, config.num_experts_per_tok, config.moe_intermediate_size)
    rope = config.rope_parameters
    if arch == "gemma2":
        w.add_attn_logit_softcapping(config.attn_logit_softcapping)
        w.add_final_logit_softcapping(config.final_logit_softcapping)
        w.add_sliding_window(config.sliding_window)
    if arch == "gemma3":
        w.add_sliding_window(config.sliding_window)
        w.add_rope_freq_base(rope["full_attention"]["rope_theta"])
        if rope["full_attention"]["rope_type"] == "linear":
            w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            w.add_rope_scaling_factor(rope["full_attention"]["factor"])
    else:
        w.add_rope_freq_base(rope["rope_theta"])
    if rope.get("rope_type") == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        w.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
    if rope.get("rope_type") == "llama3":
        inverse = model.model.rotary_emb.inv_freq.double().numpy()
        plain = rope["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
        w.add_tensor("rope_freqs.weight", (plain / inverse).astype(np.float32))


def nvfp4(x):
    """Blocks and one scale for the whole of x [n, k], as NVIDIA's tools choose it: the largest block scale is 448."""
    whole = np.float32(np.abs(x).max() / (448 * 6))
    groups = (x / whole).reshape(-1, 4, 16)
    scales = gguf.quants.NVFP4.fp32_to_ue4m3(np.abs(groups).max(-1) / 6)
    values = np.array(gguf.quants.NVFP4.kvalues) / 2.0
    spread = 2 * gguf.quants.NVFP4.ue4m3_to_fp32(scales)[..., None, None]
    codes = np.abs(groups[..., None] - spread * values).argmin(-1).astype(np.uint8)
    blocks = np.concatenate([scales.reshape(-1, 4), (codes[..., :8] | codes[..., 8:] << 4).reshape(-1, 32)], -1)
    return blocks.reshape(*x.shape[:-1], -1), whole


def quantised(x, kind):
    """The bytes, and the scales beside them or None."""
    if kind != TYPES["nvfp4"]:
        return gguf.quants.quantize(x, kind), None
    parts = [nvfp4(one) for one in (x if x.ndim == 3 else [x])]
    data = np.stack([p[0] for p in parts])
    return data if x.ndim == 3 else data[0], np.array([p[1] for p in parts], np.float32)


def write_gguf(name, arch, model, kind, n=40):
    config = model.config
    path = HERE / f"{name}.gguf"
    w = gguf.GGUFWriter(path, arch)
    w.add_name(name)
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_head_count(config.num_attention_heads)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_vocab_size(config.vocab_size)
    if arch == "gemma4":
        describe_gemma4(w, config)
    else:
        describe_others(w, arch, model, config)
    offset = 1 if arch in ("gemma2", "gemma3") else 0
    stored = {}
    for key, p in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        x = p.float().numpy()
        if key.endswith("norm.weight"):
            x = x + offset
        if arch == "llama" and (heads := heads_of(config, key)):
            x = interleave(x, heads)
        x = np.ascontiguousarray(x)
        router = key.endswith(("mlp.gate.weight", "router.proj.weight"))
        type_ = TYPES[kind] if x.ndim >= 2 and not router else TYPES["f32"]
        data, scales = quantised(x, type_)
        if key.endswith("mlp.experts.gate_up_proj"):  # Qwen's file has the halves as two tensors
            layer, half = key.split(".")[2], x.shape[1] // 2
            w.add_tensor(f"blk.{layer}.ffn_gate_exps.weight", np.ascontiguousarray(data[:, :half]), raw_dtype=type_)
            w.add_tensor(f"blk.{layer}.ffn_up_exps.weight", np.ascontiguousarray(data[:, half:]), raw_dtype=type_)
            if scales is not None:
                w.add_tensor(f"blk.{layer}.ffn_gate_exps.scale", scales)
                w.add_tensor(f"blk.{layer}.ffn_up_exps.scale", scales)
        else:
            w.add_tensor(gguf_name(arch, key), data, raw_dtype=type_)
            if scales is not None:
                w.add_tensor(gguf_name(arch, key).removesuffix("weight") + "scale", scales)
        stored[key] = gguf.quants.dequantize(data, type_).reshape(x.shape)
        if scales is not None:
            stored[key] *= scales.reshape(-1, *[1] * (x.ndim - 1))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    # The reference computes with what is in the file.
    with torch.no_grad():
        for key, p in model.state_dict().items():
            if key not in stored:
                continue
            x = stored[key]
            if key.endswith("norm.weight"):
                x = x - offset
            if arch == "llama" and (heads := heads_of(config, key)):  # the inverse of interleave
                x = x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
            p.copy_(torch.from_numpy(np.ascontiguousarray(x)))
    answer(HERE, model, name, config.vocab_size, n, f"{name}.reference.json")


def gguf_checkpoint(name, arch, cls, config, kind, n=40, offset=0):
    if not wanted(name):
        return
    HERE.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = cls(config).float().eval()
    fill(model, name, offset)
    write_gguf(name, arch, model, kind, n)


def rope(kind="default", theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)


def llama(**more):
    base = dict(vocab_size=61, hidden_size=48, intermediate_size=60, num_hidden_layers=2, num_attention_heads=6,
                num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
                rope_parameters=rope(), bos_token_id=1, eos_token_id=2)
    return LlamaConfig(**{**base, **more})


def qwen2(**more):
    base = dict(vocab_size=67, hidden_size=40, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                rope_parameters=rope(theta=1000000.0), eos_token_id=[3, 4])
    return Qwen2Config(**{**base, **more})


def gemma3(**more):
    base = dict(vocab_size=71, hidden_size=36, intermediate_size=44, num_hidden_layers=3, num_attention_heads=3,
                num_key_value_heads=1, head_dim=16, max_position_embeddings=1024, rms_norm_eps=1e-6,
                query_pre_attn_scalar=24, sliding_window=8, sliding_window_pattern=3,
                rope_parameters={"full_attention": rope(theta=1000000.0), "sliding_attention": rope(theta=10000.0)})
    return Gemma3TextConfig(**{**base, **more})


def mistral(**more):
    base = dict(vocab_size=59, hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-5, rope_parameters=rope(),
                bos_token_id=1, eos_token_id=2)
    return MistralConfig(**{**base, **more})


def qwen3(**more):
    base = dict(vocab_size=73, hidden_size=44, intermediate_size=36, num_hidden_layers=2, num_attention_heads=3,
                num_key_value_heads=1, head_dim=24, max_position_embeddings=512, rms_norm_eps=1e-6,
                tie_word_embeddings=True, rope_parameters=rope(theta=1000000.0), eos_token_id=[3, 4])
    return Qwen3Config(**{**base, **more})


def qwen3_moe(**more):
    base = dict(vocab_size=89, hidden_size=44, intermediate_size=36, num_hidden_layers=3, num_attention_heads=3,
                num_key_value_heads=1, head_dim=24, max_position_embeddings=512, rms_norm_eps=1e-6,
                tie_word_embeddings=True, rope_parameters=rope(theta=1000000.0), eos_token_id=[3, 4],
                moe_intermediate_size=20, num_experts=7, num_experts_per_tok=3)
    return Qwen3MoeConfig(**{**base, **more})


def gemma2(**more):
    base = dict(vocab_size=79, hidden_size=36, intermediate_size=44, num_hidden_layers=3, num_attention_heads=3,
                num_key_value_heads=1, head_dim=16, max_position_embeddings=1024, rms_norm_eps=1e-6,
                query_pre_attn_scalar=24, sliding_window=8, attn_logit_softcapping=2.0, final_logit_softcapping=4.0,
                rope_parameters=rope())
    return Gemma2Config(**{**base, **more})


def gemma4(**more):
    base = dict(vocab_size=83, hidden_size=36, intermediate_size=44, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, head_dim=12, global_head_dim=20, max_position_embeddings=1024,
                rms_norm_eps=1e-6, sliding_window=8, hidden_size_per_layer_input=10, vocab_size_per_layer_input=83,
                layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"])
    return Gemma4TextConfig(**{**base, **more})


def multimodal():
    text = gemma3(num_attention_heads=2, num_key_value_heads=2, head_dim=12, num_hidden_layers=3)
    vision = dict(model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                  num_attention_heads=1, image_size=8, patch_size=4)
    return Gemma3Config(text_config=text.to_dict(), vision_config=vision, mm_tokens_per_image=1, image_token_index=70,
                        boi_token_index=68, eoi_token_index=69)


def multimodal4():
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                  head_dim=8, patch_size=4, position_embedding_size=16, pooling_kernel_size=1)
    return Gemma4Config(text_config=gemma4().to_dict(), vision_config=vision, audio_config=None, image_token_id=200,
                        boi_token_id=201, eoi_token_id=202)  # beyond the ids of the texts: they are not read as text


def main():
    checkpoint("llama-f32", LlamaForCausalLM, llama(), "f32")
    checkpoint("llama-head-dim-bf16", LlamaForCausalLM,
               llama(hidden_size=36, num_attention_heads=3, num_key_value_heads=3, head_dim=20, tie_word_embeddings=True),
               "bf16", old=True)
    checkpoint("llama-llama3-f16-shards", LlamaForCausalLM,
               llama(num_key_value_heads=1, rope_parameters=rope("llama3", 500000.0, **LLAMA3)), "f16", n=120,
               shard="20KB", old=True)
    checkpoint("llama-llama3-bf16", LlamaForCausalLM,
               llama(num_key_value_heads=6, rope_parameters=rope("llama3", 500000.0, **LLAMA3)), "bf16", n=120)
    checkpoint("llama-linear-bias-bf16", LlamaForCausalLM,
               llama(attention_bias=True, mlp_bias=True, rope_parameters=rope("linear", factor=4.0)), "bf16")
    checkpoint("llama-yarn-f16", LlamaForCausalLM,
               llama(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=32)), "f16", n=100)
    checkpoint("qwen2-f32", Qwen2ForCausalLM, qwen2(), "f32")
    checkpoint("qwen2-tied-bf16", Qwen2ForCausalLM, qwen2(num_key_value_heads=1, tie_word_embeddings=True), "bf16",
               old=True)
    checkpoint("qwen2-sliding-f16", Qwen2ForCausalLM,
               qwen2(use_sliding_window=True, sliding_window=7, max_window_layers=1), "f16", n=64)
    checkpoint("mistral-sliding-f32", MistralForCausalLM, mistral(sliding_window=9), "f32", n=300, old=True)
    checkpoint("mistral-head-dim-bf16", MistralForCausalLM,
               mistral(sliding_window=None, num_key_value_heads=2, head_dim=14, tie_word_embeddings=True), "bf16")
    checkpoint("qwen3-f32", Qwen3ForCausalLM, qwen3(), "f32")
    checkpoint("qwen3-bias-sliding-bf16", Qwen3ForCausalLM,
               qwen3(attention_bias=True, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                     use_sliding_window=True, sliding_window=7, max_window_layers=1), "bf16", n=64, old=True)
    checkpoint("gemma2-f32", Gemma2ForCausalLM, gemma2(), "f32", n=300, offset=1)
    checkpoint("gemma2-f16-shards", Gemma2ForCausalLM,
               gemma2(num_attention_heads=4, num_key_value_heads=2, hidden_size=48, attn_logit_softcapping=None,
                      sliding_window=64), "f16", n=100, shard="24KB", old=True, offset=1)
    checkpoint("gemma3-f32", Gemma3ForCausalLM, gemma3(), "f32", n=700, offset=1)
    checkpoint("gemma3-scaled-bf16", Gemma3ForCausalLM,
               gemma3(num_attention_heads=4, num_key_value_heads=2, final_logit_softcapping=5.0,
                      rope_parameters={"full_attention": rope("linear", 1000000.0, factor=8.0),
                                       "sliding_attention": rope(theta=10000.0)}),
               "bf16", n=64, old=True, offset=1)
    checkpoint("gemma3-multimodal-bf16-shards", Gemma3ForConditionalGeneration, multimodal(), "bf16", shard="24KB",
               offset=1)
    checkpoint("gemma4-f32", Gemma4ForCausalLM, gemma4(), "f32", n=300)
    checkpoint("gemma4-shared-bf16", Gemma4ForCausalLM,
               gemma4(num_hidden_layers=6, num_kv_shared_layers=3, use_double_wide_mlp=True, final_logit_softcapping=5.0,
                      vocab_size_per_layer_input=90, num_key_value_heads=1, sliding_window=20,
                      layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
                                   "sliding_attention", "full_attention"]), "bf16", n=100)
    checkpoint("gemma4-k-is-v-f16-shards", Gemma4ForCausalLM,
               gemma4(attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=0,
                      num_key_value_heads=4, intermediate_size=60), "f16", n=64, shard="24KB", old=True)
    checkpoint("gemma4-experts-bf16", Gemma4ForCausalLM,
               gemma4(enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=20,
                      hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1), "bf16", n=64)
    checkpoint("qwen3-moe-f32", Qwen3MoeForCausalLM, qwen3_moe(), "f32", n=64)
    checkpoint("qwen3-moe-mixed-bf16", Qwen3MoeForCausalLM,
               qwen3_moe(norm_topk_prob=True, decoder_sparse_step=2, num_hidden_layers=5, mlp_only_layers=[1],
                         num_experts_per_tok=1, tie_word_embeddings=False), "bf16", n=64)
    checkpoint("gemma4-multimodal-bf16", Gemma4ForConditionalGeneration, multimodal4(), "bf16")
    blocks = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [4, 12]}}
    fp8_checkpoint("llama-fp8-blocks", LlamaForCausalLM, llama(), torch.float8_e4m3fn, (4, 12), "_scale_inv",
                   torch.float32, blocks)
    fp8_checkpoint("llama-fp8-rows", LlamaForCausalLM, llama(), torch.float8_e5m2, (1, None), "_scale", torch.bfloat16, {})
    fp8_checkpoint("llama-fp8-whole", LlamaForCausalLM, llama(), torch.float8_e4m3fn, None, "_scale", torch.float32, {})
    modelopt = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": None,
                                        "ignore": ["lm_head"], "producer": {"name": "modelopt", "version": "0.43.0"}}}
    fp8_checkpoint("llama-modelopt-fp8", LlamaForCausalLM, llama(), torch.float8_e4m3fn, None,
                   ("_scale", "_weight_scale"), torch.float32, modelopt)
    fp8_checkpoint("qwen3-moe-modelopt-fp8", Qwen3MoeForCausalLM, qwen3_moe(num_hidden_layers=1), torch.float8_e4m3fn, None,
                   ("_scale", "_weight_scale"), torch.float32, modelopt)

    def scheme(targets, strategy, form=None, bits=8, **more):
        return {"targets": targets, "input_activations": None, "output_activations": None, **({"format": form} if form else {}),
                "weights": {"num_bits": bits, "type": "float", "symmetric": True, "dynamic": False, "strategy": strategy, **more}}

    compressed_checkpoint("llama-compressed-fp8-channel", LlamaForCausalLM, llama(), "float-quantized",
                          {"group_0": scheme(["Linear"], "channel")})
    # 24 rows in blocks of 16: the size of the blocks is not to be told from the number of scales.
    compressed_checkpoint("qwen3-compressed-fp8-block", Qwen3ForCausalLM, qwen3(), "float-quantized",
                          {"group_0": scheme(["Linear"], "block", block_structure=[16, 20])})
    compressed_checkpoint("qwen2-compressed-fp8-naive", Qwen2ForCausalLM, qwen2(), "naive-quantized",
                          {"group_0": scheme(["Linear"], "tensor")})
    compressed_checkpoint("mistral-compressed-mixed", MistralForCausalLM,
                          mistral(hidden_size=64, intermediate_size=64, num_attention_heads=4), "mixed-precision",
                          {"group_0": scheme(["re:.*self_attn.*"], "channel", "float-quantized"),
                           "group_1": scheme(["re:.*mlp.*"], "tensor_group", "nvfp4-pack-quantized", 4, group_size=16)})
    # All experts in one tensor, of which `up` begins within a block.
    fp8_checkpoint("qwen3-moe-fp8-blocks", Qwen3MoeForCausalLM, qwen3_moe(), torch.float8_e4m3fn, (8, 12), "_scale_inv",
                   torch.float32, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 12]}})
    fp8_checkpoint("gemma4-experts-fp8-rows", Gemma4ForCausalLM,
                   gemma4(hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=6, top_k_experts=2,
                          moe_intermediate_size=20), torch.float8_e5m2, (1, None), "_scale", torch.bfloat16, {})
    wide = dict(hidden_size=64, intermediate_size=128, num_attention_heads=4)
    nvfp4_checkpoint("llama-modelopt-nvfp4", LlamaForCausalLM, llama(**wide), "modelopt",
                     {"quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"}, "ignore": ["lm_head"]})
    nvfp4_checkpoint("qwen3-moe-compressed-nvfp4", Qwen3MoeForCausalLM,
                     qwen3_moe(**wide, head_dim=16, moe_intermediate_size=64, num_hidden_layers=1), "compressed-tensors",
                     {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["lm_head", "re:.*gate$"]})
    nvfp4_checkpoint("qwen3-moe-modelopt-nvfp4-stacked", Qwen3MoeForCausalLM,
                     qwen3_moe(**wide, head_dim=16, moe_intermediate_size=64, num_hidden_layers=1, num_experts=4), "modelopt",
                     {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "stacked")
    wide4 = dict(hidden_size=64, intermediate_size=64, head_dim=16, global_head_dim=32, num_hidden_layers=2,
                 layer_types=["sliding_attention", "full_attention"], hidden_size_per_layer_input=0, enable_moe_block=True,
                 num_experts=4, top_k_experts=2, moe_intermediate_size=64)
    packed = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
    nvfp4_checkpoint("gemma4-experts-compressed-nvfp4-stacked", Gemma4ForCausalLM, gemma4(**wide4), "compressed-tensors",
                     packed, "stacked")
    nvfp4_checkpoint("gemma4-experts-compressed-nvfp4", Gemma4ForCausalLM, gemma4(**wide4), "compressed-tensors", packed,
                     "experts.{}")
    nvfp4_checkpoint("gemma4-experts-modelopt-nvfp4", Gemma4ForCausalLM, gemma4(**wide4), "modelopt",
                     {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "moe.experts.{}")
    fp8_checkpoint("qwen3-moe-fp8-whole", Qwen3MoeForCausalLM, qwen3_moe(), torch.float8_e4m3fn, None, "_scale",
                   torch.float32, {})
    even = dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, vocab_size=61, num_hidden_layers=1)
    for kind in ("f32", "f16", "q8_0", "q4_1"):
        gguf_checkpoint(f"llama-{kind}", "llama", LlamaForCausalLM, llama(**even), kind)
    gguf_checkpoint("llama-llama3-q8_0", "llama", LlamaForCausalLM,
                    llama(**even, tie_word_embeddings=True, rope_parameters=rope("llama3", 500000.0, **LLAMA3)), "q8_0",
                    n=120)
    gguf_checkpoint("llama-yarn-f16", "llama", LlamaForCausalLM,
                    llama(**even, rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=8,
                                                       attention_factor=1.3)), "f16", n=100)
    gguf_checkpoint("llama-nvfp4", "llama", LlamaForCausalLM, llama(**{**even, "hidden_size": 64}, attention_bias=True),
                    "nvfp4")
    gguf_checkpoint("qwen2-q4_0", "qwen2", Qwen2ForCausalLM, qwen2(**{**even, "vocab_size": 67}), "q4_0")
    gguf_checkpoint("qwen3-q8_0", "qwen3", Qwen3ForCausalLM, qwen3(**{**even, "vocab_size": 73}, head_dim=16), "q8_0")
    gguf_checkpoint("gemma2-q4_1", "gemma2", Gemma2ForCausalLM,
                    gemma2(**{**even, "vocab_size": 79, "num_hidden_layers": 4}, num_key_value_heads=2,
                           query_pre_attn_scalar=16), "q4_1", n=64, offset=1)
    gguf_checkpoint("gemma4-q8_0", "gemma4", Gemma4ForCausalLM,
                    gemma4(hidden_size=64, intermediate_size=64, num_hidden_layers=6, num_kv_shared_layers=2,
                           use_double_wide_mlp=True, final_logit_softcapping=5.0, head_dim=8, global_head_dim=16,
                           hidden_size_per_layer_input=32, sliding_window=20,
                           layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2), "q8_0", n=100)
    gguf_checkpoint("gemma4-k-is-v-q4_1", "gemma4", Gemma4ForCausalLM,
                    gemma4(hidden_size=32, intermediate_size=64, attention_k_eq_v=True, num_global_key_value_heads=1,
                           head_dim=8, global_head_dim=16, hidden_size_per_layer_input=0), "q4_1", n=64)
    gguf_checkpoint("qwen3-moe-q4_1", "qwen3moe", Qwen3MoeForCausalLM,
                    qwen3_moe(**{**even, "vocab_size": 89, "num_hidden_layers": 2}, head_dim=16, norm_topk_prob=True,
                              moe_intermediate_size=32), "q4_1", n=64)
    gguf_checkpoint("qwen3-moe-nvfp4", "qwen3moe", Qwen3MoeForCausalLM,
                    qwen3_moe(**{**even, "vocab_size": 89, "hidden_size": 64}, head_dim=16, norm_topk_prob=True,
                              moe_intermediate_size=64, tie_word_embeddings=True), "nvfp4", n=64)
    gguf_checkpoint("gemma4-experts-q8_0", "gemma4", Gemma4ForCausalLM,
                    gemma4(hidden_size=32, intermediate_size=64, attention_k_eq_v=True, num_global_key_value_heads=1,
                           head_dim=8, global_head_dim=16, hidden_size_per_layer_input=0, enable_moe_block=True,
                           num_experts=6, top_k_experts=2, moe_intermediate_size=32), "q8_0", n=64)
    gguf_checkpoint("gemma3-q5_1", "gemma3", Gemma3ForCausalLM,
                    gemma3(**{**even, "vocab_size": 71, "num_hidden_layers": 6}, num_key_value_heads=2, query_pre_attn_scalar=16,
                           sliding_window_pattern=6, rope_parameters={"full_attention": rope("linear", 1000000.0, factor=8.0),
                                                                 "sliding_attention": rope(theta=10000.0)}), "q5_1", n=64,
                    offset=1)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
