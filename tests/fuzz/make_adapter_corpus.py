"""Makes the seed files of fuzz_adapter (pip install gguf numpy): adapters of every format with what they may hold.

    python3 tests/fuzz/make_adapter_corpus.py tests/fuzz/corpus"""
import json
import pathlib
import sys

import gguf
import numpy as np

out = pathlib.Path(sys.argv[1]) / "fuzz_adapter"
out.mkdir(parents=True, exist_ok=True)
PEFT, MLX, GGUF = b"\0", b"\1", b"\2"


def header(tensors, metadata=None):
    entries, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, shape in tensors.items():
        end = at + 4 * int(np.prod(shape))
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    return json.dumps(entries).encode()


def write(name, kind, config, tensors, metadata=None):
    (out / name).write_bytes(kind + json.dumps(config).encode() + b"\0" + header(tensors, metadata))


def pair(module, a, b, names=(".lora_A.weight", ".lora_B.weight")):
    return {module + names[0]: a, module + names[1]: b}


LAYER = "base_model.model.model.layers.0."
plain = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none"}
write("peft", PEFT, {**plain, "base_model_name_or_path": "base"}, pair(LAYER + "self_attn.q_proj", [2, 3], [4, 2]),
      {"format": "pt", "hearth.base_fingerprint": "0123456789abcdef", "hearth.template_hash": "fedcba9876543210"})
write("peft-patterns", PEFT,
      {**plain, "use_rslora": True, "rank_pattern": {"v_proj": 3}, "alpha_pattern": {r".*\.v_proj": 1.5}},
      pair(LAYER + "self_attn.q_proj", [2, 3], [4, 2]) | pair(LAYER + "self_attn.v_proj", [3, 3], [4, 3]))
write("peft-experts", PEFT, plain,
      pair(LAYER + "mlp.experts.0.up_proj", [2, 3], [4, 2]) | pair(LAYER + "mlp.experts.1.up_proj", [2, 3], [4, 2]))
write("peft-parameters", PEFT,
      {**plain, "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]},
      pair(LAYER + "experts.base_layer", [4, 3], [6, 4]) | pair(LAYER + "experts", [4, 3], [3, 4]))
write("peft-one-parameter", PEFT, {**plain, "target_parameters": ["mlp.experts.gate_up_proj"]},
      pair(LAYER.replace("model.layers", "language_model.model.layers") + "mlp.experts", [4, 3], [6, 4]))
write("peft-dora", PEFT, {**plain, "use_dora": True},
      pair(LAYER + "self_attn.q_proj", [2, 3], [4, 2]) | {LAYER + "self_attn.q_proj.lora_magnitude_vector": [4]})
mlx = {"num_layers": 1, "fine_tune_type": "lora", "model": "base",
       "lora_parameters": {"rank": 2, "scale": 20.0, "dropout": 0.0}}
names = (".lora_a", ".lora_b")
write("mlx", MLX, mlx, pair("model.layers.0.self_attn.q_proj", [3, 2], [2, 4], names))
write("mlx-experts", MLX, mlx,
      pair("language_model.model.layers.0.experts.switch_glu.gate_proj", [2, 2, 3], [2, 4, 2], names)
      | pair("model.layers.1.mlp.switch_mlp.up_proj", [2, 2, 3], [2, 4, 2], names))


def write_gguf(name, architecture, alpha, tensors):
    w = gguf.GGUFWriter(out / name, architecture)
    w.add_string("general.type", "adapter")
    w.add_string("adapter.type", "lora")
    if alpha is not None:
        w.add_float32("adapter.lora.alpha", alpha)
    for tensor, shape in tensors.items():
        w.add_tensor(tensor, np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    (out / name).write_bytes(GGUF + (out / name).read_bytes())


weights = (".weight.lora_a", ".weight.lora_b")
write_gguf("gguf", "qwen3", 4, pair("blk.0.attn_q", [2, 3], [4, 2], weights))
write_gguf("gguf-permuted", "llama", None, pair("blk.1.attn_k", [2, 3], [4, 2], weights))
write_gguf("gguf-experts", "gemma4", 0, pair("blk.0.ffn_gate_up_exps", [2, 2, 3], [2, 6, 2], weights))
