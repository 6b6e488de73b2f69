"""Makes the MLX-quantised checkpoints under tests/golden/tiny and what `mlx-lm` answers to them in float32.

    python tests/golden/make_mlx.py [NAME...]      # all, or those named; needs mlx-lm, torch, transformers

Random models as those of make_tiny.py, quantised and written by mlx-lm. The answers are those of mlx-lm on the CPU with
scales, biases and all else made float32, which changes no value: the numbers stay as they are. The one thing patched is its
Gemma 3, which rounds the scale of embeddings to bfloat16 whatever it computes in.
"""

import json
import pathlib
import shutil
import tempfile
import zlib

import mlx.core as mx
import mlx_lm
import numpy as np
import torch
from mlx.utils import tree_map
from mlx_lm import utils
from mlx_lm.models import gemma3_text

import make_tiny
import reference
from make_tiny import HERE, seeded, wanted

PROVENANCE = (f"tests/golden/make_mlx.py with mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}: logits in float32 of the "
              "weights as stored")


class Unrounded:
    """mlx.core, but mx.array(x, mx.bfloat16) gives float32."""

    def __getattr__(self, name):
        return getattr(mx, name)

    @staticmethod
    def array(x, dtype):
        return mx.array(x, mx.float32)


gemma3_text.mx = Unrounded()


def load_f32(directory):
    model, _ = utils.load_model(pathlib.Path(directory))
    model.update(tree_map(lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p,
                          model.parameters()))
    return model


def logits_of(model, ids):
    with mx.stream(mx.cpu):
        logits = model(mx.array([ids]))[0].astype(mx.float32)
        return np.array(logits)


def greedy(model, ids, n):
    out = []
    for _ in range(n):
        out.append(int(logits_of(model, ids + out)[-1].argmax()))
    return out


def quantise(dense, directory, mode, bits, group, predicate=None):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    model, config = utils.load_model(dense)
    model, config = utils.quantize_model(model, config, group, bits, mode, quant_predicate=predicate)
    utils.save_model(directory, model)
    utils.save_config(config, directory / "config.json")


def checkpoint(name, cls, config, dtype, mode, bits, group, predicate=None, n=40, offset=0):
    if not wanted(name):
        return
    mx.set_default_device(mx.cpu)
    torch.manual_seed(0)
    model = cls(config).eval()
    make_tiny.fill(model, name, offset)
    with tempfile.TemporaryDirectory() as dense:
        dense = pathlib.Path(dense)
        model.to(make_tiny.DTYPES[dtype]).save_pretrained(dense)
        if name.startswith("gemma4"):  # mlx-lm reads the older spelling
            path = dense / "config.json"
            path.write_text(json.dumps(make_tiny.old_spelling(json.loads(path.read_text()))))
        if "moe" in name:  # and asks for these by its own names
            path = dense / "config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "num_experts": config.num_experts,
                                        "rope_theta": config.rope_parameters["rope_theta"]}))
        quantise(dense, HERE / name, mode, bits, group, predicate)
    ids = [int(i) for i in seeded(name + " ids").integers(0, config.get_text_config().vocab_size, n)]
    model = load_f32(HERE / name)
    logits = logits_of(model, ids)
    rows = sorted(set(np.linspace(0, n - 1, 6).astype(int).tolist()))
    reference.write(HERE / name / "reference.json", PROVENANCE, ids, logits, 3, rows, 1, greedy(model, ids, 48))


def every_type(name):
    """One tensor per bits, group and type of scale, and per mode; `values` are the checksums of what mlx makes of them."""
    if not wanted(name):
        return
    mx.set_default_device(mx.cpu)
    directory = HERE.parent / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    rng = seeded(name)
    ways = [(f"b{bits}_{group}_{dtype}", bits, group, "affine", dtype) for bits in (2, 3, 4, 5, 6, 8)
            for group in (32, 64, 128) for dtype in ("float16", "bfloat16", "float32")]
    ways += [("mxfp4", 4, 32, "mxfp4", "bfloat16"), ("nvfp4", 4, 16, "nvfp4", "bfloat16"),
             ("mxfp8", 8, 32, "mxfp8", "bfloat16")]
    tensors, quantization, values = {}, {"bits": 4, "group_size": 64}, {}
    for path, bits, group, mode, dtype in ways:
        path = f"model.{path}"
        weight = mx.array(rng.standard_normal((2, 128)).astype(np.float32) * 3).astype(getattr(mx, dtype))
        parts = dict(zip(("weight", "scales", "biases"), mx.quantize(weight, group, bits, mode)))
        tensors.update({f"{path}.{part}": t for part, t in parts.items()})
        quantization[path] = {"bits": bits, "group_size": group, **({} if mode == "affine" else {"mode": mode})}
        beside = [parts[p].astype(mx.float32) if mode == "affine" else parts[p] for p in ("scales", "biases") if p in parts]
        exact = mx.dequantize(parts["weight"], *beside, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
        values[path] = zlib.crc32(np.array(exact).astype("<f4").tobytes())
    mx.save_safetensors(str(directory / "model.safetensors"), tensors, metadata={"format": "mlx"})
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "quantization": quantization}) + "\n")
    (directory / "values.json").write_text(json.dumps({"provenance": PROVENANCE, "values": values}) + "\n")


def others(*paths, **instead):
    """A predicate that gives modules whose path ends so something else, False among it."""
    def predicate(path, module):
        return (instead["by"] if path.endswith(paths) else True)
    return predicate


def main():
    every_type("mlx-types")
    t = make_tiny
    even = dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=2)
    wide = dict(hidden_size=128, intermediate_size=128, num_attention_heads=4, num_hidden_layers=1)
    checkpoint("llama-mlx4-bf16", t.LlamaForCausalLM, t.llama(**even), "bf16", "affine", 4, 64,
               others("0.mlp.down_proj", "v_proj", by={"bits": 8, "group_size": 32}))
    checkpoint("llama-mlx8-f16", t.LlamaForCausalLM, t.llama(**wide, tie_word_embeddings=True), "f16", "affine", 8, 128,
               others("o_proj", by=False))
    checkpoint("llama-mxfp4", t.LlamaForCausalLM, t.llama(**even), "bf16", "mxfp4", 4, 32)
    checkpoint("qwen2-mlx3-f16", t.Qwen2ForCausalLM, t.qwen2(**even), "f16", "affine", 3, 32)
    checkpoint("qwen2-nvfp4", t.Qwen2ForCausalLM, t.qwen2(**even, tie_word_embeddings=True), "bf16", "nvfp4", 4, 16,
               others("k_proj", by={"bits": 4, "group_size": 32, "mode": "mxfp4"}))
    checkpoint("qwen3-mlx5-f32", t.Qwen3ForCausalLM, t.qwen3(**even), "f32", "affine", 5, 64)
    checkpoint("qwen3-mxfp8", t.Qwen3ForCausalLM, t.qwen3(**even), "bf16", "mxfp8", 8, 32)
    checkpoint("gemma3-mlx6-bf16", t.Gemma3ForCausalLM, t.gemma3(**{**even, "num_hidden_layers": 6},
                                                                 num_key_value_heads=2), "bf16", "affine", 6, 64,
               n=100, offset=1)
    checkpoint("gemma4-mlx2-f16", t.Gemma4ForCausalLM,
               t.gemma4(hidden_size=64, intermediate_size=64, num_hidden_layers=6, num_kv_shared_layers=2,
                        use_double_wide_mlp=True, head_dim=8, global_head_dim=16, hidden_size_per_layer_input=32,
                        sliding_window=20, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2),
               "f16", "affine", 2, 32, n=64)
    routed = dict(hidden_size=64, intermediate_size=64, attention_k_eq_v=True, head_dim=8,
                  num_global_key_value_heads=1, global_head_dim=16, hidden_size_per_layer_input=0, sliding_window=20,
                  enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=32)
    for name, dtype, bits, router in (("mlx4-f16", "f16", 4, 4), ("mlx4-router8-bf16", "bf16", 4, 8), ("mlx8-bf16", "bf16", 8, 8)):
        checkpoint(f"gemma4-experts-{name}", t.Gemma4ForCausalLM, t.gemma4(**routed), dtype, "affine", bits, 32,
                   others("router.proj", by={"bits": router, "group_size": 32}), n=64)
    checkpoint("qwen3-moe-mlx4-bf16", t.Qwen3MoeForCausalLM,
               t.qwen3_moe(**even, head_dim=16, moe_intermediate_size=64), "bf16", "affine", 4, 64,
               others("mlp.gate", by={"bits": 8, "group_size": 64}))
    checkpoint("qwen3-moe-mxfp8", t.Qwen3MoeForCausalLM,
               t.qwen3_moe(**even, head_dim=16, moe_intermediate_size=32), "bf16", "mxfp8", 8, 32)


if __name__ == "__main__":
    main()
