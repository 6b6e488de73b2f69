"""Makes the tiny random checkpoints under tests/golden/families and what float32
`transformers` answers to them.

    python tests/golden/make_families.py --llama-cpp SOURCE [NAME...]   # all, or those named

It needs torch, transformers, safetensors and the source of llama.cpp. One row of FAMILIES is one
checkpoint, with every switch that released models of the family use. NAME/ is written by `transformers`, under the
tensor names of the releases; NAME.gguf is made from it by convert_hf_to_gguf.py. Every weight is exact in bf16, f16 and
Q8_0, so that NAME/reference.json answers for both; the script checks that. float64 logits show that the float32 ones
are exact enough. Released config.json files have the spelling of older versions of `transformers`, and so have most of
these; `transformers` reads them back to show that they mean the same.
"""

import argparse
import contextlib
import functools
import io
import json
import math
import pathlib
import re
import shutil
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers

from safetensors.torch import load_file, save_file
from transformers.models.phimoe import modeling_phimoe

import reference

HERE = pathlib.Path(__file__).parent / "families"
PROVENANCE = (f"tests/golden/make_families.py with transformers {transformers.__version__}, torch {torch.__version__}: "
              "float32 logits of the weights as stored")
LIMIT = 80_000  # bytes of a directory and of a GGUF file


# ---- the table ----

DROP = object()  # as a field's value: the old spelling leaves it out


def rope(kind="default", theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def yarn(theta=10000.0, factor=4.0, original=16, **more):
    return rope("yarn", theta, factor=factor, original_max_position_embeddings=original, beta_fast=32.0, beta_slow=1.0,
                **more)


def small(**more):
    base = dict(vocab_size=72, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                tie_word_embeddings=False, rope_parameters=rope())
    if not more.keys() & {"layer_norm_eps", "norm_epsilon", "norm_eps"}:
        base["rms_norm_eps"] = 1e-6
    return {key: value for key, value in {**base, **more}.items() if value is not DROP}


def deep(**more):
    """Four layers: enough for patterns of them."""
    return small(**{**dict(num_hidden_layers=4, intermediate_size=32, vocab_size=64), **more})


def family(model_type, args, lengths=(40, 56), offset=0, seed="", routed=False, spare="", mxfp4=False,
           stacked=False, transposed=False, prefix="", moved=("", ""), old=True, flat=False, spelled=None, renamed=None,
           gguf=True, told=None, options=()):
    """A checkpoint.
    lengths: ids of the two prompts. With more than 64 in the second, steps are compared with passes.
    offset: what norms add to their weights.
    seed: added to the name.
    routed: the model has experts.
    spare: what names of a layer for multi-token prediction begin with (SPARE), which no logits use.
    mxfp4: the experts are stored as gpt-oss is released.
    stacked: the experts' matrices are stored as one tensor, not one by one.
    transposed: the experts' matrices are stored so.
    prefix: of names, left out in the file.
    moved: a pattern of names that transformers writes otherwise than the releases, and what stands for it there.
    old: config.json has the fields of releases instead of rope_parameters and dtype.
    flat: the fields of the text model are among those of the wrapper.
    spelled: further fields of config.json, by path.
    renamed: the model_type of the release, where a class of another name computes it.
    gguf: the converter knows the model; told: further fields of the config.json it reads; options: of the converter."""
    return dict(model_type=model_type, args=args, lengths=lengths, offset=offset, seed=seed, routed=routed, spare=spare,
                mxfp4=mxfp4, stacked=stacked, transposed=transposed, prefix=prefix, moved=moved, old=old, flat=flat,
                spelled=spelled or {}, renamed=renamed, gguf=gguf, told=told or {}, options=options)


def layers(*kinds):
    return [{"s": "sliding_attention", "f": "full_attention"}[k] for k in kinds]


def wrapper(text, vision, **more):
    """A model with a vision tower, as small as may be: no token of the prompts is an image."""
    return dict(text_config=text, vision_config=vision, tie_word_embeddings=text.get("tie_word_embeddings", False),
                **more)


def tower(**more):
    return dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=8,
                patch_size=4, **more)


# Beyond the ids of the prompts.
IMAGE = dict(image_token_id=200, video_token_id=201, vision_start_token_id=202, vision_end_token_id=203)


def mrope(*section, theta=1000000.0, **more):
    return rope(theta=theta, mrope_section=list(section), **more)


def moe(**more):
    return small(**{**dict(intermediate_size=16, num_experts_per_tok=2, vocab_size=64), **more})


def llama4(**more):
    return small(**{**dict(
        num_hidden_layers=4, head_dim=8, num_key_value_heads=1, num_local_experts=3, intermediate_size=12,
        intermediate_size_mlp=24, interleave_moe_layer_step=2, use_qk_norm=True, floor_scale=8192, attn_scale=0.1,
        attention_chunk_size=8192, vocab_size=48, rope_parameters=rope(theta=500000.0)), **more})


def llama4_vision():
    return dict(hidden_size=8, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, image_size=8,
                patch_size=4, vision_output_dim=8, projector_input_dim=8, projector_output_dim=8)


def gpt2(**more):
    return dict(vocab_size=72, n_embd=32, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2, **more)


def gpt_oss(**more):
    return small(**{**dict(
        intermediate_size=32, num_local_experts=3, num_experts_per_tok=2, head_dim=8, sliding_window=8,
        rope_parameters=yarn(theta=150000.0, truncate=False), rms_norm_eps=1e-5), **more})


def mla(**more):
    """Latent attention. Its two latent norms have an eps of 1e-6, whatever rms_norm_eps is."""
    return small(**{**dict(num_key_value_heads=4, vocab_size=64, kv_lora_rank=20, qk_nope_head_dim=10,
                           qk_rope_head_dim=8, v_head_dim=12, moe_intermediate_size=12, num_experts_per_tok=2), **more})


def mistral4(rope_parameters):
    text = mla(model_type="mistral4", q_lora_rank=24, n_routed_experts=3, n_group=1, topk_group=1, n_shared_experts=1,
               norm_topk_prob=True, first_k_dense_replace=0, rope_parameters=rope_parameters)
    return wrapper(text, tower(model_type="pixtral", head_dim=8), image_token_index=200)


def recurrent(**more):
    return small(**{**dict(num_hidden_layers=3, num_key_value_heads=1, num_attention_heads=2, head_dim=16,
                           intermediate_size=32, vocab_size=48), **more})


def delta(**more):
    """Gated delta layers; attention where (i + 1) % full_attention_interval is 0."""
    return recurrent(**{**dict(
        full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
        linear_value_head_dim=8, linear_conv_kernel_dim=4, rope_parameters=rope(theta=10000000.0,
        partial_rotary_factor=0.25)), **more})


def delta_mrope():
    return mrope(1, 1, 0, theta=10000000.0, mrope_interleaved=True, partial_rotary_factor=0.25)


def granite_hybrid(**more):
    return recurrent(**{**dict(
        head_dim=DROP, layer_types=["mamba", "attention", "mamba"], shared_intermediate_size=24,
        position_embedding_type="nope", mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1,
        mamba_chunk_size=64, embedding_multiplier=6.0, residual_multiplier=0.4, attention_multiplier=0.2,
        logits_scaling=4.0, rms_norm_eps=1e-5), **more})


def nemotron_h(pattern, **more):
    """Heads that are not expand * hidden_size wide together, as in Nemotron Nano 2. In a prompt, transformers raises
    time steps to time_step_min, but it does not when it decodes; llama.cpp never does. No time step here is so small:
    steps from a cache give the same logits."""
    return recurrent(**{**dict(
        num_hidden_layers=DROP, rms_norm_eps=DROP, rope_parameters=DROP, layers_block_type=[BLOCKS[c] for c in pattern],
        layer_norm_epsilon=1e-5, head_dim=12, expand=3, mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=8,
        n_groups=2, chunk_size=64), **more})


def nemotron(pattern, **more):
    """The fields of releases up to Nemotron 3."""
    return dict(hybrid_override_pattern=pattern, layers_block_type=DROP, num_hidden_layers=len(pattern),
                time_step_limit=[0.0, math.inf], **more)


BLOCKS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}


def falcon_h1(**more):
    """Multipliers of powers of two: the converter multiplies weights by them."""
    return recurrent(**{**dict(
        num_hidden_layers=2, intermediate_size=32, mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head=8, mamba_d_state=8,
        mamba_n_groups=1, mamba_chunk_size=64, mamba_norm_before_gate=False, embedding_multiplier=4.0,
        lm_head_multiplier=0.25, key_multiplier=0.25, attention_in_multiplier=2.0, attention_out_multiplier=0.5,
        ssm_in_multiplier=2.0, ssm_out_multiplier=0.25, mlp_multipliers=[0.5, 0.25],
        ssm_multipliers=[0.25, 0.5, 0.125, 2.0, 0.25], rope_parameters=rope(theta=100000000000.0), rms_norm_eps=1e-5),
        **more})


FAMILIES = {
    # ---- known blocks under other names ----
    # Releases say "gelu" and mean the tanh approximation.
    "gemma": family(
        "gemma", small(head_dim=12, tie_word_embeddings=True), offset=1, seed="2", spelled={"hidden_act": "gelu"}),
    "seed_oss": family("seed_oss", small(head_dim=12, attention_bias=True, attention_out_bias=False)),
    # The converter does not know it.
    "ministral": family(
        "ministral", small(head_dim=12, sliding_window=8, num_hidden_layers=3, layer_types=layers(*"sfs")), old=False,
        gguf=False),
    "qwen2_vl": family(
        "qwen2_vl", wrapper(small(rope_parameters=mrope(1, 1, 2), num_hidden_layers=3), dict(depth=1, embed_dim=8,
        hidden_size=32, num_heads=1, patch_size=2, mlp_ratio=1), **IMAGE), flat=True),
    "qwen2_5_vl": family(
        "qwen2_5_vl", wrapper(small(rope_parameters=mrope(1, 1, 2), tie_word_embeddings=True), dict(depth=1,
        hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2, out_hidden_size=32, window_size=8,
        fullatt_block_indexes=[0]), **IMAGE), flat=True),
    "qwen3_vl": family(
        "qwen3_vl", wrapper(small(rope_parameters=mrope(2, 2, 2, theta=5000000.0, mrope_interleaved=True), head_dim=12,
        tie_word_embeddings=True), dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2,
        out_hidden_size=32, num_position_embeddings=16, deepstack_visual_indexes=[0]), **IMAGE)),
    # Released experts are [experts, inputs, outputs]; transformers reads that, but writes them as those of Qwen3-MoE.
    # Its routing weights are normalised whether or not config.json says norm_topk_prob.
    "qwen3_vl_moe": family(
        "qwen3_vl_moe", wrapper(small(rope_parameters=mrope(2, 2, 2, theta=5000000.0, mrope_interleaved=True),
        head_dim=12, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, vocab_size=64), dict(depth=1,
        hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2, out_hidden_size=32, num_position_embeddings=16,
        deepstack_visual_indexes=[0]), **IMAGE), routed=True, transposed=True),
    # The converter goes by this architecture.
    "smolvlm": family(
        "smolvlm", wrapper(small(model_type="llama"), tower(), scale_factor=2, image_token_id=200),
        spelled={"text_config/architectures": ["VLlama3ForCausalLM"]}),
    "llava": family(
        "llava", wrapper(small(model_type="llama"), {**tower(model_type="clip_vision_model", projection_dim=8),
        "num_hidden_layers": 2}, image_token_index=200), seed="2"),
    "mistral3": family(
        "mistral3", wrapper(small(model_type="mistral", head_dim=12, sliding_window=None), tower(model_type="pixtral",
        head_dim=8), image_token_index=200)),

    # ---- RoPE, fused projections ----
    # The window holds in every layer; GGUF files state it, but llama.cpp ignores it.
    "phi3": family("phi3", small(sliding_window=11, num_key_value_heads=4, rms_norm_eps=1e-5)),
    # One prompt below the original length, one above; the greedy tokens cross it.
    "phi3-longrope": family(
        "phi3", small(num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
        max_position_embeddings=128, original_max_position_embeddings=32, num_hidden_layers=3, rms_norm_eps=1e-5,
        rope_parameters=rope("longrope", short_factor=[1.0, 1.1, 1.25, 1.5, 1.75, 2.0], long_factor=[1.5, 2.0, 3.0, 4.5,
        6.0, 8.0], partial_rotary_factor=0.75)), lengths=(24, 60)),
    # GGUF files do not say which layers rotate: every fourth does not.
    "smollm3": family("smollm3", deep(tie_word_embeddings=True, rope_parameters=rope(theta=5000000.0))),
    "glm4": family(
        "glm4", small(head_dim=12, attention_bias=True, rms_norm_eps=1.5625e-07,
        rope_parameters=rope(partial_rotary_factor=0.5))),
    "ministral3": family(
        "ministral3", small(head_dim=12, rms_norm_eps=1e-5, rope_parameters=yarn(theta=1000000.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.3)), lengths=(40, 70), old=False),
    # As Ministral 3 is released.
    "mistral3-ministral3": family(
        "mistral3", wrapper(small(model_type="ministral3", head_dim=12, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=yarn(theta=1000000.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)),
        tower(model_type="pixtral", head_dim=8), image_token_index=200), lengths=(40, 70), old=False),
    "ernie4_5": family("ernie4_5", small(head_dim=12, tie_word_embeddings=True, rope_parameters=rope(theta=500000.0))),
    # The converter demands this length.
    "hunyuan_v1_dense": family(
        "hunyuan_v1_dense", small(head_dim=12, tie_word_embeddings=True, max_position_embeddings=32768,
        rope_parameters=rope("dynamic", alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0,
        mscale_all_dim=1.0))),

    # ---- norms and MLPs of other kinds ----
    "olmo2": family("olmo2", small(rope_parameters=rope(theta=500000.0))),
    "olmo3": family(
        "olmo3", deep(sliding_window=8, layer_types=layers(*"sssf"),
        rope_parameters={"full_attention": yarn(theta=500000.0, attention_factor=1.2),
        "sliding_attention": rope(theta=500000.0)})),
    "exaone4": family(
        "exaone4", deep(sliding_window=8, sliding_window_pattern=4, rope_parameters=rope(theta=1000000.0))),
    "exaone4-full": family(
        "exaone4", small(sliding_window=None, layer_types=layers(*"ff"), tie_word_embeddings=True, head_dim=12),
        old=False),
    "stablelm": family(
        "stablelm", small(num_attention_heads=2, num_key_value_heads=2, use_qkv_bias=True, layer_norm_eps=1e-5,
        rope_parameters=rope(partial_rotary_factor=0.25))),
    # The converter loses the norms of queries and keys (converter_of).
    "stablelm-parallel": family(
        "stablelm", small(num_attention_heads=2, num_key_value_heads=1, qk_layernorm=True, use_parallel_residual=True,
        layer_norm_eps=1e-5, rope_parameters=rope(partial_rotary_factor=0.25)), old=False),
    # The converter drops the window.
    "starcoder2": family(
        "starcoder2", small(sliding_window=8, tie_word_embeddings=True, norm_epsilon=1e-5,
        rope_parameters=rope(theta=100000.0)), gguf=False),
    "starcoder2-full": family(
        "starcoder2", small(tie_word_embeddings=True, norm_epsilon=1e-5, num_key_value_heads=1), old=False),
    # OpenAI's release has no prefix, other models have.
    "gpt2": family("gpt2", gpt2(n_layer=2), prefix="transformer.", spelled={"n_ctx": 128}),
    "gpt2-prefixed": family("gpt2", gpt2(n_layer=1, n_inner=48), gguf=False),
    "nemotron": family("nemotron", small(norm_eps=1e-5, rope_parameters=rope(partial_rotary_factor=0.5)), offset=1),
    "arcee": family("arcee", small(), old=False, seed="2"),
    # The converter writes 4 * hidden_size for the width of the MLP.
    "phi": family(
        "phi", small(intermediate_size=128, num_attention_heads=2, num_key_value_heads=2, layer_norm_eps=1e-5,
        rope_parameters=rope(partial_rotary_factor=0.4)), seed="2"),

    # ---- multipliers ----
    "granite": family(
        "granite", small(embedding_multiplier=6.0, residual_multiplier=0.4, attention_multiplier=0.2,
        logits_scaling=4.0, tie_word_embeddings=True)),
    "cohere": family(
        "cohere", small(use_qk_norm=True, logit_scale=0.5, layer_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=rope(theta=75000.0))),
    # GGUF files do not say which layers slide: all but every fourth.
    "cohere2": family(
        "cohere2", deep(sliding_window=8, logit_scale=0.5, layer_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=rope(theta=50000.0)), spelled={"rotary_pct": 1.0}),

    # ---- mixtures of experts ----
    "mixtral": family("mixtral", moe(num_local_experts=4, sliding_window=None), routed=True),
    # A router of its own (sparsemixer): each of the two weights is a softmax over the scores that are, relative to the
    # largest, within 2 * router_jitter_noise of it; llama.cpp normalises a softmax over the two instead.
    "phimoe": family(
        "phimoe", moe(num_local_experts=4, num_attention_heads=2, num_key_value_heads=1, attention_bias=True,
        lm_head_bias=True, max_position_embeddings=128, rope_parameters=rope("longrope", short_factor=[1.0, 1.1, 1.25,
        1.4, 1.5, 1.75, 1.9, 2.0], long_factor=[1.5, 2.0, 2.5, 3.0, 4.5, 6.0, 7.0, 8.0],
        short_mscale=1.1832159566199232, long_mscale=1.1832159566199232, original_max_position_embeddings=32)),
        lengths=(24, 60), routed=True, seed="3", spelled={"architectures": ["PhiMoEForCausalLM"]}),
    "qwen2_moe": family(
        "qwen2_moe", moe(num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=24,
        norm_topk_prob=False), routed=True),
    "glm4_moe": family(
        "glm4_moe", moe(num_hidden_layers=2, head_dim=12, n_routed_experts=4, moe_intermediate_size=16,
        n_shared_experts=1, routed_scaling_factor=1.5, first_k_dense_replace=1, use_qk_norm=True, attention_bias=True,
        intermediate_size=32, rope_parameters=rope(partial_rotary_factor=0.5)), routed=True, spare="model.layers."),
    "afmoe": family(
        "afmoe", moe(num_hidden_layers=4, num_experts=3, moe_intermediate_size=6, num_shared_experts=2, num_dense_layers=1,
        num_key_value_heads=1, vocab_size=48, route_scale=1.5, sliding_window=8, head_dim=8, mup_enabled=True), routed=True, spelled={"route_norm": True}),
    "granitemoe": family(
        "granitemoe", moe(num_local_experts=4, intermediate_size=12, embedding_multiplier=6.0, residual_multiplier=0.4,
        attention_multiplier=0.2, logits_scaling=4.0, tie_word_embeddings=True), routed=True),
    "olmoe": family("olmoe", moe(num_experts=4, norm_topk_prob=False, num_key_value_heads=4), routed=True),
    "minimax_m2": family(
        "minimax_m2", moe(num_local_experts=4, head_dim=12, rope_parameters=rope(theta=5000000.0,
        partial_rotary_factor=0.5)), routed=True, spelled={"rotary_dim": 6, "partial_rotary_factor": DROP,
        "scoring_func": "sigmoid", "use_routing_bias": True}),
    # The converter writes intermediate_size / num_key_value_heads for the width of the shared expert: the same here.
    "ernie4_5_moe": family(
        "ernie4_5_moe", moe(moe_k=2, moe_num_experts=4, moe_intermediate_size=12, moe_num_shared_experts=2,
        moe_layer_start_index=1, num_hidden_layers=3, intermediate_size=48, tie_word_embeddings=True,
        rope_parameters=rope(theta=500000.0)), routed=True, seed="2"),
    # The converter writes `dynamic` only for heads of 128: it is told the theta that means the same.
    "hunyuan_v1_moe": family(
        "hunyuan_v1_moe", small(num_experts=4, intermediate_size=16, vocab_size=64, moe_topk=[2, 2], head_dim=8,
        tie_word_embeddings=True, rope_parameters=rope("dynamic", alpha=1000.0, factor=1.0)), routed=True,
        spelled={"moe_intermediate_size": [16, 16], "num_shared_expert": [1, 1], "use_mixed_mlp_moe": True},
        told={"rope_scaling": None, "rope_theta": 10000.0 * 1000.0 ** (8 / 6)}),
    "hy_v3": family(
        "hy_v3", moe(num_experts=4, moe_intermediate_size=16, num_shared_experts=1, router_scaling_factor=1.5,
        intermediate_size=32, head_dim=12), routed=True, spare="model.layers.", spelled={"num_nextn_predict_layers": 1,
        "first_k_dense_replace": 1}),
    # GGUF files state neither chunks nor temperature: llama.cpp assumes the released 8,192 for both, and 0.1.
    "llama4": family("llama4", wrapper(llama4(), llama4_vision(), image_token_index=200), routed=True),
    "llama4-chunked": family(
        "llama4", wrapper(llama4(attention_chunk_size=16, floor_scale=8), llama4_vision(), image_token_index=200),
        routed=True, gguf=False, old=False),
    "cohere2_moe": family(
        "cohere2_moe", moe(num_hidden_layers=3, sliding_window_pattern=2, num_experts=4, num_shared_experts=1,
        head_dim=8, sliding_window=8, logit_scale=0.5, layer_norm_eps=1e-5, tie_word_embeddings=True,
        first_k_dense_replace=1, prefix_dense_intermediate_size=32, rope_parameters=rope(theta=50000.0)), routed=True),
    # Granite 4 without recurrent layers.
    "granite4_dense": family(
        "granitemoehybrid", small(layer_types=["attention", "attention"], num_local_experts=0,
        shared_intermediate_size=48, position_embedding_type="rope", mamba_n_heads=8, embedding_multiplier=6.0,
        residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=4.0, tie_word_embeddings=True),
        spelled={"layer_types": ["attention", "attention"], "num_experts_per_tok": 0, "time_step_limit": DROP}),
    # The converter drops the position_embedding_type.
    "granite4_dense-nope": family(
        "granitemoehybrid", small(layer_types=["attention", "attention"], num_local_experts=0,
        shared_intermediate_size=48, position_embedding_type="nope", mamba_n_heads=8, embedding_multiplier=6.0,
        residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=4.0), spelled={"layer_types": ["attention",
        "attention"], "num_experts_per_tok": 0, "time_step_limit": DROP}, gguf=False),

    # ---- gpt-oss ----
    "gpt_oss": family("gpt_oss", gpt_oss(), routed=True),
    # The released form of the experts.
    "gpt_oss-mxfp4": family("gpt_oss", gpt_oss(intermediate_size=64), routed=True, mxfp4=True),

    # ---- latent attention ----
    "deepseek_v2": family(
        "deepseek_v2", mla(q_lora_rank=24, n_routed_experts=6, n_group=3, topk_group=2,
        topk_method="group_limited_greedy", n_shared_experts=1, first_k_dense_replace=1, norm_topk_prob=False,
        routed_scaling_factor=2.0, rope_parameters=yarn(mscale=0.707, mscale_all_dim=0.707)), routed=True,
        spelled={"scoring_func": "softmax"}),
    "deepseek_v2-lite": family(
        "deepseek_v2", mla(q_lora_rank=None, n_routed_experts=4, topk_method="greedy", n_shared_experts=2,
        first_k_dense_replace=1, norm_topk_prob=False, routed_scaling_factor=1.0, rope_parameters=yarn(mscale=0.707,
        mscale_all_dim=0.707)), routed=True, spelled={"scoring_func": "softmax"}),
    "deepseek_v3": family(
        "deepseek_v3", mla(q_lora_rank=16, n_routed_experts=6, n_group=3, topk_group=2, n_shared_experts=1,
        first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5, rope_parameters=yarn(mscale=1.0,
        mscale_all_dim=1.0)), routed=True, spare="model.layers.", spelled={"scoring_func": "sigmoid",
        "topk_method": "noaux_tc"}),
    "kimi_k2": family(
        "deepseek_v3", mla(q_lora_rank=24, n_routed_experts=4, n_group=1, topk_group=1, n_shared_experts=1,
        first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.827, num_mtp_layers=0,
        rope_parameters={**yarn(theta=50000.0, mscale=1.0, mscale_all_dim=1.0), "beta_fast": 1.0}), routed=True,
        spelled={"scoring_func": "sigmoid", "topk_method": "noaux_tc"}, renamed="kimi_k2"),
    # The GGUF does not state that scores are sigmoids: exp_probs_b tells. llama.cpp goes by the number of layers.
    "glm4_moe_lite": family(
        "glm4_moe_lite", mla(q_lora_rank=24, n_routed_experts=4, n_group=1, topk_group=1, n_shared_experts=1,
        norm_topk_prob=True, rms_norm_eps=1e-5, routed_scaling_factor=1.8, rope_parameters=rope(theta=1000000.0)),
        routed=True, spelled={"mlp_layer_types": DROP, "first_k_dense_replace": 1, "topk_method": "noaux_tc",
        "num_nextn_predict_layers": 1}, spare="model.layers."),
    # As Mistral Small 4 is released. The converter drops the temperature, which is 1 up to the original length.
    "mistral4": family(
        "mistral3", mistral4(yarn(original=128, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)), routed=True,
        old=False),
    "mistral4-temperature": family(
        "mistral3", mistral4(yarn(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)), routed=True, old=False,
        gguf=False),

    # Layers with a state of fixed size per sequence. One prompt is shorter than a chunk of their scans (64), one longer.
    # ---- convolutions ----
    "lfm2": family(
        "lfm2", recurrent(num_attention_heads=4, num_key_value_heads=2, head_dim=DROP, intermediate_size=64,
        block_multiple_of=16, full_attn_idxs=[1], layer_types=None, norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=rope(theta=1000000.0)), lengths=(40, 150), spelled={"layer_types": DROP, "block_ff_dim": 64,
        "intermediate_size": DROP, "tie_word_embeddings": DROP}),
    "lfm2_moe": family(
        "lfm2_moe", recurrent(num_attention_heads=4, num_key_value_heads=2, head_dim=DROP, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=12, num_dense_layers=1, layer_types=["conv", "full_attention",
        "conv"], norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=rope(theta=1000000.0)), lengths=(40, 150),
        routed=True),

    # ---- gated delta ----
    "qwen3_next": family(
        "qwen3_next", delta(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8,
        shared_expert_intermediate_size=8), lengths=(40, 150), offset=1, routed=True, spare="mtp.",
        spelled={"layer_types": DROP, "full_attention_interval": 2}),
    # Six value heads to two key heads: the order of GGUF files is not its own inverse.
    "qwen3_5": family(
        "qwen3_5", wrapper(delta(full_attention_interval=3, intermediate_size=16,
        linear_num_value_heads=6, rope_parameters=delta_mrope(), tie_word_embeddings=True), dict(depth=1, hidden_size=8,
        intermediate_size=8, num_heads=1, patch_size=2, out_hidden_size=32, num_position_embeddings=16), **IMAGE),
        lengths=(40, 150), offset=1, seed="5", spare="mtp.", old=False, spelled={"text_config/mtp_num_hidden_layers": 1,
        "text_config/full_attention_interval": 3}),
    # Without the wrapper. Value heads as wide as a block of Q8_0, which GGUF files reorder as a whole.
    "qwen3_5_text": family(
        "qwen3_5_text", delta(num_hidden_layers=2, intermediate_size=16, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32, rope_parameters=delta_mrope()),
        lengths=(40, 150), offset=1, old=False, options=["--no-mtp"]),
    "qwen3_5_moe": family(
        "qwen3_5_moe", wrapper(delta(num_hidden_layers=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        shared_expert_intermediate_size=8, rope_parameters=delta_mrope()), dict(depth=1, hidden_size=8,
        intermediate_size=8, num_heads=1, patch_size=2, out_hidden_size=32, num_position_embeddings=16), **IMAGE),
        lengths=(40, 150), offset=1, seed="3", routed=True, spare="mtp.", stacked=True, old=False,
        spelled={"text_config/mtp_num_hidden_layers": 1}),
    "kimi_linear": family(
        "kimi_linear", recurrent(num_key_value_heads=2, head_dim=DROP, num_hidden_layers=3, intermediate_size=8,
        moe_intermediate_size=8, num_local_experts=4, num_experts_per_tok=2, kv_lora_rank=20, qk_nope_head_dim=10,
        qk_rope_head_dim=8, v_head_dim=12, linear_attn_config=dict(head_dim=16, num_heads=2, short_conv_kernel_size=4,
        full_attn_layers=[2], kda_layers=[1, 3]), rope_parameters=DROP, rms_norm_eps=1e-5), lengths=(40, 150),
        routed=True, spelled={"layer_types": DROP, "mlp_layer_types": DROP, "linear_head_dim": DROP,
        "linear_num_heads": DROP, "linear_conv_kernel_dim": DROP, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "moe_router_activation_func": "sigmoid", "mla_use_nope": True, "use_grouped_topk": True, "rope_theta": 10000.0,
        "rope_scaling": None, "num_nextn_predict_layers": 0},
        moved=(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj")),

    # ---- Mamba-2 ----
    "granite4": family(
        "granitemoehybrid", granite_hybrid(num_local_experts=0, intermediate_size=24, tie_word_embeddings=True),
        lengths=(40, 150),
        spelled={"layer_types": ["mamba", "attention", "mamba"], "num_experts_per_tok": 0, "time_step_limit": DROP}),
    "granite4_moe": family(
        "granitemoehybrid", granite_hybrid(num_local_experts=3, num_experts_per_tok=2, intermediate_size=8,
        shared_intermediate_size=8, mamba_n_heads=4, mamba_d_head=16), lengths=(40, 150), routed=True,
        spelled={"layer_types": ["mamba", "attention", "mamba"], "time_step_limit": DROP}),
    # The converter takes the defaults of transformers for a mixture of experts, unless it reads config.json by itself.
    "nemotron_h": family(
        "nemotron_h", nemotron_h("M-*-M"), lengths=(40, 150), spelled=nemotron("M-*-M", **dict.fromkeys((
        "num_experts_per_tok", "n_routed_experts", "n_shared_experts", "moe_intermediate_size", "moe_latent_size",
        "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "norm_topk_prob", "n_group", "topk_group",
        "routed_scaling_factor", "num_nextn_predict_layers", "mtp_layers_block_type"), DROP)),
        told={"model_type": "unknown to transformers"}),
    "nemotron_h_moe": family(
        "nemotron_h", nemotron_h("MEM*E", n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
        moe_shared_expert_intermediate_size=20, n_shared_experts=1, routed_scaling_factor=2.5), lengths=(40, 150),
        seed="2", routed=True, spelled=nemotron("MEM*E")),
    "nemotron_h_latent": family(
        "nemotron_h", nemotron_h("MEM*E", n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        moe_shared_expert_intermediate_size=12, n_shared_experts=1, routed_scaling_factor=5.0, moe_latent_size=16,
        num_nextn_predict_layers=1),
        lengths=(40, 150), routed=True, spare="mtp.layers."),
    "falcon_h1": family("falcon_h1", falcon_h1(), lengths=(40, 150), spelled={"time_step_limit": DROP}),
    "falcon_h1-norm": family(
        "falcon_h1", falcon_h1(mamba_rms_norm=True, mamba_n_groups=2), lengths=(40, 150), seed="2"),

    # ---- AltUp ----
    "gemma3n": family(
        "gemma3n_text", recurrent(num_hidden_layers=4, head_dim=8, intermediate_size=16, hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=48, num_kv_shared_layers=2, laurel_rank=8, sliding_window=8,
        layer_types=layers(*"sfsf"), activation_sparsity_pattern=[0.75, 0.0, 0.75, 0.0], tie_word_embeddings=True,
        rope_parameters={"full_attention": rope(theta=1000000.0), "sliding_attention": rope()}), lengths=(40, 150)),
}


# ---- weights ----


def seeded(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def exact(rng, shape, deviation):
    """Random values that bf16, f16 and Q8_0 hold exactly: multiples k of a power of two with |k| <= 127, one of which
    is +-127 in every 32 along each of the last two axes."""
    unit = 2.0 ** math.floor(math.log2(deviation / 30))
    k = np.clip(np.rint(rng.standard_normal(shape) * deviation / unit), -127, 127)
    if len(shape) > 1:
        i, j = np.indices(shape[-2:])
        k = np.where((i + j) % 32 == 0, np.where(k < 0, -127, 127), k)
    return (k * unit).astype(np.float32)


def filled(model):
    """The tensors with weights: routers' biases are no parameters to some classes."""
    return sorted([*model.named_parameters(), *((k, b) for k, b in model.named_buffers()
                                                   if "correction_bias" in k or "expert_bias" in k)])


def fill(model, name, offset):
    """Weights large enough that every part of the model moves the logits."""
    rng, config = seeded(name), model.config.get_text_config()
    multiplier = getattr(config, "embedding_multiplier", 1)
    if config.model_type in ("gemma", "gemma3n_text"):
        multiplier = config.hidden_size**0.5
    tied = model.config.tie_word_embeddings or config.tie_word_embeddings
    embedding = (0.3 if tied else 0.7) / multiplier  # larger ones, tied, would predict the last token again
    with torch.no_grad():
        for key, p in filled(model):
            shape, last = tuple(p.shape), ".".join(key.split(".")[-3:])
            if "norm" in last and last.endswith("weight") or ".ln_" in key and key.endswith("weight"):
                plain = "linear_attn.norm" in key
                values = np.rint((rng.standard_normal(shape) * 0.2 + 1 - (0 if plain else offset)) * 128) / 128
            elif "A_log" in last:  # some heads remember few tokens, others hundreds
                values = np.rint(rng.permutation(np.linspace(-5, -0.5, p.numel())).reshape(shape) * 32) / 32
            elif "conv1d" in last or "conv.conv" in last:
                values = np.rint(rng.standard_normal(shape) * 32) / 32
            elif "output_scale" in last:
                values = np.rint((rng.standard_normal(shape) * 0.2 + 1) * 128) / 128
            elif "bias" in last:
                values = np.rint(rng.standard_normal(shape) * 0.2 * 128) / 128
            elif "sinks" in last:
                values = np.rint(rng.standard_normal(shape) * 32) / 32
            elif "embed" in last or ".wte." in key or ".wpe." in key:
                values = exact(rng, shape, embedding)
            else:
                clamped = config.model_type == "gpt_oss" and "gate_up" in last  # some beyond swiglu_limit
                values = exact(rng, shape, (4.0 if clamped else 1.2) / math.sqrt(shape[-1]))
            p.copy_(torch.from_numpy(np.asarray(values, np.float32)))


def store_mxfp4(directory, name):
    """Puts experts of random MXFP4 blocks in the file, as gpt-oss is released: rows are outputs, and the first of two
    values is in the low half of a byte. transformers unpacks them."""
    rng, path = seeded(name + " mxfp4"), directory / "model.safetensors"
    tensors = load_file(path)
    for key in [k for k in tensors if k.endswith(("gate_up_proj", "down_proj"))]:
        n_experts, inputs, outputs = tensors.pop(key).shape
        shape = (n_experts, outputs, inputs // 32, 16)
        above = 127 - 4 + (2 if "gate_up" in key else 0)  # some beyond swiglu_limit
        tensors[f"{key}_blocks"] = torch.from_numpy(rng.integers(0, 256, shape, np.uint8))
        tensors[f"{key}_scales"] = torch.from_numpy(rng.integers(above - 1, above + 2, shape[:-1]).astype(np.uint8))
    save_file(tensors, path, {"format": "pt"})
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    path.write_text(json.dumps(config, indent=1))


def rename_and_transpose(path, prefix, moved, transposed):
    tensors = {re.sub(*moved, key.removeprefix(prefix)): x for key, x in load_file(path).items()}
    for key, x in tensors.items():
        if transposed and "experts." in key:
            tensors[key] = x.transpose(1, 2).contiguous()
    save_file(tensors, path, {"format": "pt"})


# The projection of a layer for multi-token prediction and its norms, by the prefix of its tensors.
SPARE = {
    "model.layers.": ("eh_proj", "enorm", "hnorm", "shared_head.norm", "input_layernorm", "post_attention_layernorm"),
    "mtp.": ("fc", "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "layers.0.input_layernorm",
             "layers.0.post_attention_layernorm"),
    "mtp.layers.": ("0.eh_proj", "0.enorm", "0.hnorm", "0.norm", "1.norm", "1.final_layernorm"),
}


def add_spare_layer(directory, config, prefix):
    """Some of the tensors of a layer after the last, for multi-token prediction, as models are released."""
    path, size = directory / "model.safetensors", config.hidden_size
    projection, *norms = SPARE[prefix]
    above = f"{prefix}{config.num_hidden_layers}." if prefix == "model.layers." else prefix
    tensors = load_file(path)
    for key in norms:
        tensors[f"{above}{key}.weight"] = torch.ones(size, dtype=torch.bfloat16)
    values = exact(seeded(directory.name), (size, 2 * size), 0.2)
    tensors[f"{above}{projection}.weight"] = torch.from_numpy(values).bfloat16()
    save_file(tensors, path, {"format": "pt"})


# ---- config.json ----


def old_spelling(config):
    """rope_parameters back into rope_theta, rope_scaling and partial_rotary_factor, dtype into torch_dtype."""
    for c in (config, config.get("text_config", {})):
        if "dtype" in c:
            c["torch_dtype"] = c.pop("dtype")
        stated = c.pop("rope_parameters", None)
        if stated is None:
            continue
        key = "rope_type" if "full_attention" in stated or c["model_type"] == "gpt_oss" else "type"
        stated = dict(stated.get("full_attention", stated))
        c["rope_theta"] = stated.pop("rope_theta")
        if "partial_rotary_factor" in stated:
            c["partial_rotary_factor"] = stated.pop("partial_rotary_factor")
        kind = stated.pop("rope_type")
        stated.pop("type", None)
        if "mrope_interleaved" in stated:  # Qwen3-VL
            key = "rope_type"
        elif "mrope_section" in stated:
            kind = "mrope"
        c["rope_scaling"] = {key: kind, **stated} if kind != "default" or stated else None
    return config


def respell(config, row):
    if row["old"]:
        config = old_spelling(config)
    if row["flat"]:
        text = config.pop("text_config")
        config = {**text, **config}
    for key, value in row["spelled"].items():
        where = config
        *above, key = key.split("/")
        for part in above:
            where = where[part]
        if value is DROP:
            where.pop(key, None)
        else:
            where[key] = value
    return config


# ---- transformers ----


def model_class(config):
    if type(config) in transformers.AutoModelForCausalLM._model_mapping and not hasattr(config, "vision_config"):
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForImageTextToText


def choose_by_length():
    """transformers 5 rotates by the factors of short sequences in Phi-3.5 MoE, however long they are. Its version 4, the
    code of the release and llama.cpp go by the length, and so does transformers 5 itself in all other models."""
    kind, init = modeling_phimoe.PhimoeRotaryEmbedding, modeling_phimoe.ROPE_INIT_FUNCTIONS["longrope"]
    forward = kind.forward

    def by_length(self, x, position_ids):
        self.rope_init_fn = functools.partial(init, seq_len=int(position_ids.max()) + 1)
        return forward(self, x, position_ids)

    kind.forward = by_length


def load(directory, config, dtype=torch.float32):
    model, told = model_class(config).from_pretrained(directory, dtype=dtype, attn_implementation="eager",
                                                      experts_implementation="eager", output_loading_info=True)
    spare = f"model.layers.{config.get_text_config().num_hidden_layers}."
    for what in "missing_keys", "mismatched_keys", "unexpected_keys":
        if wrong := [key for key in told[what] if not key.startswith((spare, "mtp."))]:
            raise SystemExit(f"{directory.name}: {what}: {wrong}")
    # Llama 4's wrapper fails without an image.
    return (model.language_model if config.model_type == "llama4" else model).eval()


@contextlib.contextmanager
def doubles():
    """Within it, classes compute in float64 also what they compute in float32 whatever their weights are, such as the
    states of recurrent layers."""
    single, to_single = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = single, to_single


def logits64(model, ids):
    with torch.no_grad(), doubles():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def steps64(model, ids, first):
    """The same from a cache: `first` ids at once, then one by one."""
    with torch.no_grad(), doubles():
        out = model(torch.tensor([ids[:first]]), use_cache=True)
        rows = [out.logits[0]]
        for i in ids[first:]:
            out = model(torch.tensor([[i]]), use_cache=True, past_key_values=out.past_key_values)
            rows.append(out.logits[0])
    return torch.cat(rows).numpy()


def margin(model, ids, continuation):
    """How much the greedy choice is ahead of the next, at least."""
    rows = np.sort(reference.logits_of(model, ids + continuation)[len(ids) - 1:-1], -1)
    return float((rows[:, -1] - rows[:, -2]).min())


def check_every_part(name, model, ids, logits):
    """Every tensor of the language model and every expert moves the logits when it is zeroed."""
    spread = logits.std()
    with torch.no_grad():
        for key, p in filled(model):
            if "vision" in key or "visual" in key or "projector" in key or "connector" in key:
                continue
            for part in p if "experts." in key and p.dim() == 3 else [p]:
                kept = part.clone()
                part.zero_()
                moved = np.abs(reference.logits_of(model, ids) - logits).max() / spread
                part.copy_(kept)
                assert moved > 1e-2, f"{name}: {key} moves the logits only by {moved} of the spread"


def make(name, row, converter):
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    (HERE / f"{name}.gguf").unlink(missing_ok=True)
    directory.mkdir(parents=True)
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(row["model_type"], **row["args"])
    model = model_class(config).from_config(config).float().eval()
    fill(model, name + row["seed"], row["offset"])
    model = model.to(torch.bfloat16)
    model.save_pretrained(directory, save_original_format=not row["stacked"])
    (directory / "generation_config.json").unlink(missing_ok=True)
    if row["mxfp4"]:
        store_mxfp4(directory, name)
    if row["prefix"] or row["moved"][0] or row["transposed"]:
        rename_and_transpose(directory / "model.safetensors", row["prefix"], row["moved"], row["transposed"])
    if row["spare"]:
        add_spare_layer(directory, config.get_text_config(), row["spare"])
    (directory / "model.safetensors").chmod(0o644)
    model = load(directory, config)
    vocab = config.get_text_config().vocab_size
    prompts = [[int(i) for i in seeded(f"{name} ids {n}").integers(3, vocab, n)] for n in row["lengths"]]
    logits = [reference.logits_of(model, ids) for ids in prompts]
    spread = logits[0].std()
    doubled = load(directory, config, torch.float64)
    whole = [logits64(doubled, ids) for ids in prompts]
    rounding = max(np.abs(w - l).max() for w, l in zip(whole, logits)) / spread
    assert rounding < 2e-5, f"{name}: float32 logits are {rounding} of the spread from the float64 ones"
    if row["lengths"][1] > 64:  # longer than a chunk of a scan
        for first in 1, 20:
            apart = np.abs(steps64(doubled, prompts[0], first) - whole[0]).max() / spread
            assert apart < 1e-9, f"{name}: steps after {first} ids are {apart} of the spread from one pass"
    check_every_part(name, model, prompts[1], logits[1])
    continuation = reference.greedy(model, prompts[0], 64)
    path = directory / "config.json"
    path.write_text(json.dumps(respell(json.loads(path.read_text()), row), indent=1) + "\n")
    again = load(directory, transformers.AutoConfig.from_pretrained(directory))
    for ids, expected in zip(prompts, logits):
        difference = np.abs(reference.logits_of(again, ids) - expected).max()
        assert difference < 1e-5 * spread, f"{name}: the respelled config means something else, by {difference}"
    if row["renamed"]:  # which transformers does not know
        path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": row["renamed"]}, indent=1) + "\n")
    write(directory, row, prompts, logits, continuation)
    ahead = margin(model, prompts[0], continuation) / spread
    note = convert(directory, row, converter) if row["gguf"] else "no GGUF"
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{name}: {size} bytes, {note}; float64 {rounding:.1e}, greedy margin {ahead:.1e} of the spread", flush=True)
    assert size <= LIMIT, f"{name}: {size} bytes"
    assert ahead > 5e-4, f"{name}: the greedy choice is too close; choose another seed"


def write(directory, row, prompts, logits, continuation):
    rows = [sorted(set(np.linspace(0, len(ids) - 1, n).astype(int).tolist())) for ids, n in zip(prompts, (3, 2))]
    more = {"second": reference.described(prompts[1], logits[1], 2, rows[1])}
    if row["routed"]:
        more["routed"] = True
    path = directory / "reference.json"
    reference.write(path, PROVENANCE, prompts[0], logits[0], 2, rows[0], 1, continuation, **more)


# ---- GGUF ----


def converter_of(source):
    """The module convert_hf_to_gguf.py with the gguf package beside it; it writes no tokenizer, as the checkpoints have
    none."""
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    import convert_hf_to_gguf
    from conversion.base import TextModel
    from conversion.stablelm import StableLMModel

    describe = TextModel.prepare_metadata

    def without_tokenizer(model, vocab_only):
        model.set_vocab = model._set_vocab_none
        describe(model, vocab_only)

    TextModel.prepare_metadata = without_tokenizer

    # A generator that returns the tensors it has stacked, instead of yielding them.
    stack = StableLMModel.modify_tensors

    def yield_stacked(*args):
        stacked = yield from stack(*args)
        yield from stacked or ()

    StableLMModel.modify_tensors = yield_stacked
    return convert_hf_to_gguf


def run_converter(converter, directory, out, kind, options):
    arguments = sys.argv
    sys.argv = ["", str(directory), "--outfile", str(out), "--outtype", kind, "--model-name", out.stem, *options]
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            converter.main()
    except BaseException:
        print(told.getvalue()[-3000:])
        raise
    finally:
        sys.argv = arguments


def values_of(path):
    import gguf

    return {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}


def convert(directory, row, converter):
    name, path = directory.name, directory.with_name(f"{directory.name}.gguf")
    with tempfile.TemporaryDirectory() as folder:
        source, whole = pathlib.Path(folder) / name, pathlib.Path(folder) / "whole.gguf"
        shutil.copytree(directory, source)
        config = json.loads((source / "config.json").read_text())
        (source / "config.json").write_text(json.dumps({**config, **row["told"]}))
        run_converter(converter, source, path, "q8_0", row["options"])
        run_converter(converter, source, whole, "f32", row["options"])
        stored, wanted = values_of(path), values_of(whole)
    for key, x in wanted.items():
        assert np.array_equal(stored[key].ravel(), x.ravel()), f"{name}.gguf: {key} is not exact"
    size = path.stat().st_size
    assert size <= LIMIT, f"{name}.gguf: {size} bytes"
    return f"GGUF {size}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True, help="its source")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    converter = converter_of(args.llama_cpp)
    choose_by_length()
    unknown = set(args.names).difference(FAMILIES)
    assert not unknown, f"not in the table: {sorted(unknown)}"
    for name, row in FAMILIES.items():
        if not args.names or name in args.names:
            make(name, row, converter)
    total = sum(f.stat().st_size for f in HERE.rglob("*") if f.is_file())
    print(f"{total} bytes in all")
    assert total <= 8_000_000


if __name__ == "__main__":
    main()
