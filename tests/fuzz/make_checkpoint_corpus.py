"""Makes the seed files and dictionaries of fuzz_weights, fuzz_shards and fuzz_discover (Python's standard library only).

    python3 tests/fuzz/make_checkpoint_corpus.py"""
import json
import pathlib
import struct

corpus = pathlib.Path(__file__).parent / "corpus"
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8}
LLAMA = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 6, "max_position_embeddings": 64}
PROJECTIONS = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
               "self_attn.o_proj": (64, 64), "mlp.gate_proj": (64, 64), "mlp.up_proj": (64, 64), "mlp.down_proj": (64, 64)}
NORMS = ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm")


def header(tensors, metadata=True):
    """tensors: {name: (dtype, shape)}"""
    at, entries = 0, {"__metadata__": {"format": "pt"}} if metadata else {}
    for name, (dtype, shape) in tensors.items():
        n = SIZES[dtype]
        for d in shape:
            n *= d
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    return json.dumps(entries, separators=(",", ":")).encode()


def model(matrix, embedding=("F16", (6, 64))):
    """matrix(name, rows, columns) gives the tensors of one projection."""
    out = {"model.embed_tokens.weight": embedding, **{f"model.{n}.weight": ("F32", (64,)) for n in NORMS}}
    for name, (rows, columns) in PROJECTIONS.items():
        out.update(matrix(f"model.layers.0.{name}", rows, columns))
    return out


def affine(bits, group, scale):
    def matrix(path, rows, columns):
        parts = {part: (scale, (rows, columns // group)) for part in ("scales", "biases")}
        return {f"{path}.weight": ("U32", (rows, columns * bits // 32)), **{f"{path}.{p}": t for p, t in parts.items()}}
    return matrix


def coded(bits, group):
    return lambda path, rows, columns: {f"{path}.weight": ("U32", (rows, columns * bits // 32)),
                                        f"{path}.scales": ("U8", (rows, columns // group))}


def fp8(dtype, suffix, shape_of):
    return lambda path, rows, columns: {f"{path}.weight": (dtype, (rows, columns)),
                                        f"{path}.weight{suffix}": ("F32", shape_of(rows, columns))}


def put(target, name, data):
    (corpus / target).mkdir(parents=True, exist_ok=True)
    (corpus / target / name).write_bytes(data)


def weights(name, config, tensors):
    put("fuzz_weights", name, json.dumps({**LLAMA, **config}, separators=(",", ":")).encode() + b"\0" + header(tensors))


def way(**how):
    return {"quantization": how}


for bits, group, scale in ((2, 32, "F16"), (3, 64, "BF16"), (4, 64, "F32"), (5, 32, "BF16"), (6, 64, "F16"), (8, 32, "F32")):
    weights(f"affine{bits}", way(bits=bits, group_size=group), model(affine(bits, group, scale)))
for mode, bits, group in (("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)):
    weights(mode, way(bits=bits, group_size=group, mode=mode), model(coded(bits, group)))
mixed = model(affine(4, 64, "BF16"))
mixed.update(affine(8, 32, "BF16")("model.layers.0.mlp.down_proj", 64, 64))
mixed.update({k.replace("embed_tokens", "embed_tokens"): v for k, v in affine(6, 64, "BF16")("model.embed_tokens", 6, 64).items()})
weights("mixed", way(bits=4, group_size=64, **{"model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 32},
                                               "model.embed_tokens": {"bits": 6}, "lm_head": False}), mixed)
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 32]}}
weights("fp8-blocks", FP8, model(fp8("F8_E4M3", "_scale_inv", lambda r, c: (-(-r // 16), -(-c // 32)))))
weights("fp8-rows", {}, model(fp8("F8_E5M2", "_scale", lambda r, c: (r, 1))))
weights("fp8-whole", {"quantization_config": {"quant_method": "fbgemm_fp8"}}, model(fp8("F8_E4M3", "_scale", lambda r, c: ())))
BLOCK = {"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]}}
weights("fp8-compressed", {"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
                                                   "config_groups": {"group_0": BLOCK}}},
        model(fp8("F8_E4M3", "_scale", lambda r, c: (-(-r // 16), -(-c // 32)))))
plain = model(lambda path, rows, columns: {f"{path}.weight": ("BF16", (rows, columns))})
weights("plain", {"tie_word_embeddings": True}, plain)
moe = {k: v for k, v in model(affine(4, 64, "F16")).items() if ".mlp." not in k}
moe["model.layers.0.self_attn.q_norm.weight"] = moe["model.layers.0.self_attn.k_norm.weight"] = ("F32", (32,))
moe["model.layers.0.mlp.gate.weight"] = ("F32", (2, 64))
for part in ("gate", "up", "down"):
    path = f"model.layers.0.mlp.switch_mlp.{part}_proj"
    moe.update({f"{path}.weight": ("U32", (2, 64, 8)), f"{path}.scales": ("F16", (2, 64, 1)), f"{path}.biases": ("F16", (2, 64, 1))})
weights("experts", {"model_type": "qwen3_moe", "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 64,
                    "head_dim": 32, **way(bits=4, group_size=64)}, moe)
around = {k: v for k, v in moe.items() if "switch_mlp" not in k and ".scales" not in k and ".biases" not in k}
for path, (rows, columns) in PROJECTIONS.items():
    if "self_attn" in path:
        around[f"model.layers.0.{path}.weight"] = ("BF16", (rows, columns))
routed = {"model_type": "qwen3_moe", "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 64, "head_dim": 32}
stacked = dict(around)
for part, rows, shape in (("gate_up", 128, (2, 8, 2)), ("down", 64, (2, 64, 1))):
    path = f"model.layers.0.mlp.experts.{part}_proj"
    stacked.update({path: ("F8_E4M3", (2, rows, 64)), f"{path}_scale_inv": ("F32", shape)})
weights("experts-fp8", {**routed, **FP8}, stacked)

def nvfp4(numbers, scale, whole, shape):
    return lambda path, rows, columns: {f"{path}{numbers}": ("U8", (rows, columns // 2)),
                                        f"{path}{scale}": ("F8_E4M3", (rows, columns // 16)), f"{path}{whole}": ("F32", shape)}


MODELOPT = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
COMPRESSED = {"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}}
weights("nvfp4-modelopt", MODELOPT, model(nvfp4(".weight", ".weight_scale", ".weight_scale_2", ())))
weights("nvfp4-compressed", COMPRESSED, model(nvfp4(".weight_packed", ".weight_scale", ".weight_global_scale", (1,))))
for tool, config, (numbers, scale, whole), ends in (
        ("modelopt", MODELOPT, (".weight", ".weight_scale", ".weight_scale_2"), ("", "_weight_scale", "_weight_scale_2")),
        ("compressed", COMPRESSED, (".weight_packed", ".weight_scale", ".weight_global_scale"),
         (".weight_packed", ".weight_scale", ".weight_global_scale"))):
    each, stack = dict(around), dict(around)
    for part in ("gate", "up", "down"):
        for e in range(2):
            each.update(nvfp4(numbers, scale, whole, ())(f"model.layers.0.mlp.experts.{e}.{part}_proj", 64, 64))
    for part, rows, shape in (("gate_up", 128, (2, 2)), ("down", 64, (2,))):
        path = f"model.layers.0.mlp.experts.{part}_proj"
        stack.update({path + ends[0]: ("U8", (2, rows, 32)), path + ends[1]: ("F8_E4M3", (2, rows, 4)), path + ends[2]: ("F32", shape)})
    weights(f"experts-nvfp4-{tool}", {**routed, **config}, each)
    weights(f"experts-nvfp4-{tool}-stacked", {**routed, **config}, stack)

names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors"]
a, b = {"a": ("F32", (2, 3)), "b": ("U8", (0, 4))}, {"c": ("BF16", ()), "d": ("I64", (2,))}
index = json.dumps({"metadata": {"total_size": 42}, "weight_map": {"a": names[0], "b": names[0], "c": names[1], "d": names[1]}})
other = json.dumps({"weight_map": {"a": names[2], "b": names[2]}})
whole = [header(a), header(b, False)]
put("fuzz_shards", "index", b"\7" + b"\0".join([index.encode(), *whole]))
put("fuzz_shards", "no-index", b"\6" + b"\0".join([b"", *whole]))
put("fuzz_shards", "missing", b"\3" + b"\0".join([index.encode(), *whole]))
put("fuzz_shards", "twice", b"\7" + b"\0".join([index.encode(), whole[0], whole[0]]))
put("fuzz_shards", "single", b"\x09" + b"\0".join([other.encode(), b"", b"", whole[0]]))


def tree(name, files):
    put("fuzz_discover", name, b"".join(k.encode() + b"\0" + struct.pack("<H", len(v)) + v for k, v in files.items()))


config = json.dumps(LLAMA).encode()
tiny = corpus / "fuzz_gguf"
gguf = {p.stem: p.read_bytes() for p in sorted(tiny.glob("*.gguf"))}
metadata = (corpus / "fuzz_config" / "gemma4.gguf").read_bytes()[1:]
tree("nested", {"a/config.json": config, "a/model.safetensors": header(plain), "a/b/model.gguf": metadata, "c.gguf": gguf["values"]})
tree("shards", {"config.json": config, "model.safetensors.index.json": index.encode(), names[0]: whole[0], names[1]: whole[1]})
tree("gguf", {"m-00001-of-00002.gguf": gguf["codes"], "m-00002-of-00002.gguf": gguf["empty"], "mmproj-x.gguf": b"GGUF", ".h/x.gguf": b""})
tree("mlx", {"q/config.json": json.dumps({**LLAMA, **way(bits=4, group_size=64)}).encode(),
             "q/model.safetensors": header(model(affine(4, 64, "BF16"))), "q/adapter_model.safetensors": header({})})
