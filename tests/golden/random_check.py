"""Draws random configurations of every family, writes them with `transformers`, and compares `hearth logits` with it.

    python tests/golden/random_check.py [--hearth build/release/bin/hearth] [--count 30] [--seed 0]

Finds what the committed checkpoints do not hold: sizes nobody thought of. Needs torch, transformers, numpy.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
import torch
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3Config, Gemma3ForCausalLM,
                          Gemma3ForConditionalGeneration, Gemma3TextConfig, Gemma4ForCausalLM, Gemma4TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)

import engines
import make_tiny
import reference


def rope(rng, scaled=("default", "linear", "llama3", "yarn")):
    kind, theta = str(rng.choice(scaled)), float(rng.choice([1e4, 5e5, 1e6]))
    more = {"default": {}, "linear": dict(factor=float(rng.choice([2.0, 8.0]))), "llama3": make_tiny.LLAMA3,
            "yarn": dict(factor=4.0, original_max_position_embeddings=int(rng.choice([16, 64])))}[kind]
    return make_tiny.rope(kind, theta, **more)


def sizes(rng):
    kv = int(rng.integers(1, 4))
    heads = kv * int(rng.integers(1, 5))
    return dict(vocab_size=int(rng.integers(5, 300)), hidden_size=heads * int(rng.integers(-(-16 // heads), 20)),
                intermediate_size=int(rng.integers(1, 150)), num_hidden_layers=int(rng.integers(1, 5)),
                num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=2048,
                rms_norm_eps=float(rng.choice([1e-5, 1e-6])), tie_word_embeddings=bool(rng.integers(2)),
                bos_token_id=None, eos_token_id=1, pad_token_id=None)


def draw(rng):
    family = rng.choice(["llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "gemma4", "multimodal"])
    common, head_dim = sizes(rng), 2 * int(rng.integers(1, 40))
    if family == "llama":
        return LlamaForCausalLM, LlamaConfig(**common, head_dim=head_dim, rope_parameters=rope(rng),
                                             attention_bias=bool(rng.integers(2)), mlp_bias=bool(rng.integers(2))), 0
    if family == "mistral":
        return MistralForCausalLM, MistralConfig(**common, head_dim=head_dim, rope_parameters=rope(rng),
                                                 sliding_window=[None, 3, 40, 300][rng.integers(4)]), 0
    if family.startswith("qwen"):
        window = dict(rope_parameters=rope(rng), use_sliding_window=bool(rng.integers(2)),
                      sliding_window=int(rng.integers(1, 40)), max_window_layers=int(rng.integers(0, 4)))
        if family == "qwen3_moe":
            experts = int(rng.integers(1, 12))
            return Qwen3MoeForCausalLM, Qwen3MoeConfig(
                **common, rope_parameters=window["rope_parameters"], head_dim=head_dim, num_experts=experts,
                num_experts_per_tok=int(rng.integers(1, experts + 1)), moe_intermediate_size=int(rng.integers(1, 60)),
                norm_topk_prob=bool(rng.integers(2)), decoder_sparse_step=int(rng.integers(1, 3))), 0
        if family == "qwen3":
            return Qwen3ForCausalLM, Qwen3Config(**common, **window, head_dim=head_dim,
                                                 attention_bias=bool(rng.integers(2))), 0
        common["hidden_size"] = common["num_attention_heads"] * head_dim
        return Qwen2ForCausalLM, Qwen2Config(**common, **window), 0
    common["tie_word_embeddings"] = True
    if family == "gemma2":
        caps = dict(attn_logit_softcapping=[None, 2.0, 50.0][rng.integers(3)],
                    final_logit_softcapping=[None, 3.0][rng.integers(2)])
        return Gemma2ForCausalLM, Gemma2Config(
            **common, **caps, head_dim=head_dim, query_pre_attn_scalar=int(rng.integers(4, 64)),
            sliding_window=int(rng.integers(1, 300)), rope_parameters=make_tiny.rope()), 1
    if family == "gemma4":
        n = common["num_hidden_layers"] = int(rng.integers(2, 8))
        types = [str(t) for t in rng.choice(["sliding_attention", "full_attention"], n - 1)] + ["full_attention"]
        shared = int(rng.integers(0, n))
        if set(types[:n - shared]) != set(types):
            shared = 0
        kv = common["num_key_value_heads"]
        return Gemma4ForCausalLM, Gemma4TextConfig(
            **common, layer_types=types, num_kv_shared_layers=shared, head_dim=head_dim,
            global_head_dim=2 * int(rng.integers(1, 40)), attention_k_eq_v=bool(rng.integers(2)),
            num_global_key_value_heads=[None, 1, kv][rng.integers(3)], use_double_wide_mlp=bool(rng.integers(2)),
            sliding_window=int(rng.integers(1, 300)), final_logit_softcapping=[None, 3.0][rng.integers(2)],
            # transformers fails on layers that share keys without inputs per layer.
            hidden_size_per_layer_input=int(rng.choice([3, 16] if shared else [0, 3, 16])),
            enable_moe_block=bool(rng.integers(2)), num_experts=5, top_k_experts=int(rng.integers(1, 6)),
            moe_intermediate_size=int(rng.integers(1, 60)),
            vocab_size_per_layer_input=common["vocab_size"] + int(rng.integers(0, 9))), 0
    # The multimodal class of transformers does not cap its logits, whatever the text config says; no checkpoint does.
    cap = 3.0 if family == "gemma3" and rng.integers(2) else None
    text = Gemma3TextConfig(
        **common, head_dim=head_dim, query_pre_attn_scalar=int(rng.integers(4, 64)), sliding_window=int(rng.integers(1, 300)),
        sliding_window_pattern=int(rng.integers(1, 5)), final_logit_softcapping=cap,
        rope_parameters={"full_attention": rope(rng, ("default", "linear")), "sliding_attention": make_tiny.rope(theta=1e4)})
    if family == "gemma3":
        return Gemma3ForCausalLM, text, 1
    vision = dict(model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                  num_attention_heads=1, image_size=8, patch_size=4)
    return Gemma3ForConditionalGeneration, Gemma3Config(text_config=text.to_dict(), vision_config=vision,
                                                        mm_tokens_per_image=1), 1


def check(hearth, rng, number, directory):
    cls, config, offset = draw(rng)
    dtype = str(rng.choice(["f32", "f16", "bf16"]))
    model = cls(config).eval()
    make_tiny.fill(model, f"random {number}", offset)
    model = model.to(make_tiny.DTYPES[dtype])
    model.save_pretrained(directory, max_shard_size=str(rng.choice(["20KB", "1GB"])))
    model = cls.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                experts_implementation="eager")
    text = config.get_text_config()
    ids = rng.integers(0, text.vocab_size, int(rng.integers(1, 600))).tolist()
    expected = reference.logits_of(model, ids)
    chunk = int(rng.choice([1, 7, 64, 512])) if len(ids) < 200 else 64
    logits = engines.hearth_logits(hearth, directory, ids, directory, *engines.REFERENCE, "--chunk", str(chunk))
    difference = np.abs(logits - expected).max() / expected.std()
    sizes = text.to_dict()
    print(f"{number:3} {config.model_type:12} {dtype:4} layers {text.num_hidden_layers} hidden {text.hidden_size:3} "
          f"heads {text.num_attention_heads}/{sizes['num_key_value_heads']} head_dim {sizes.get('head_dim', '-')} "
          f"tokens {len(ids):3} chunk {chunk:3}: {difference:.1e}", flush=True)
    return difference < 1e-3


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--hearth", default="build/release/bin/hearth")
    p.add_argument("--count", type=int, default=30)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    failed = []
    for number in range(a.seed, a.seed + a.count):
        with tempfile.TemporaryDirectory() as directory:
            if not check(a.hearth, np.random.default_rng(number), number, pathlib.Path(directory)):
                failed.append(number)
    sys.exit(f"differ: {failed}" if failed else 0)


if __name__ == "__main__":
    main()
