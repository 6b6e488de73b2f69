"""Makes a large random Gemma 4 checkpoint in MLX's 4 bits, to measure speed on: what it says is noise.

    python3 bench/make_gemma4.py dense|experts DIRECTORY

`dense` has the layers of the small published models: per-layer inputs, keys and values shared by the last layers, whose
feed-forward is twice as wide (1.0 GB in memory). `experts` has those of the mixture of experts, eight of which a token
meets, but 12 layers of 32 instead of 30 of 128 (1.7 GB). The vocabulary is small. Needs numpy.
"""

import argparse
import json
import math
import pathlib

import numpy as np

GROUP, VOCAB = 64, 32768
COMMON = dict(architectures=["Gemma4ForCausalLM"], model_type="gemma4_text", vocab_size=VOCAB, head_dim=256,
              global_head_dim=512, max_position_embeddings=131072, rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh",
              final_logit_softcapping=30.0, tie_word_embeddings=True, bos_token_id=None, eos_token_id=1,
              quantization={"bits": 4, "group_size": GROUP})
SHAPES = {
    "dense": dict(num_hidden_layers=35, hidden_size=1536, intermediate_size=6144, num_attention_heads=8,
                  num_key_value_heads=1, sliding_window=512, num_kv_shared_layers=20, use_double_wide_mlp=True,
                  hidden_size_per_layer_input=256, vocab_size_per_layer_input=VOCAB, pattern=5),
    "experts": dict(num_hidden_layers=12, hidden_size=2816, intermediate_size=2112, num_attention_heads=16,
                    num_key_value_heads=8, num_global_key_value_heads=2, attention_k_eq_v=True, sliding_window=1024,
                    hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=32, top_k_experts=8,
                    moe_intermediate_size=704, pattern=6),
}


def bf16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Writer:
    """Tensors are made late: their sizes go into the header first, their bytes are drawn as they are written."""

    def __init__(self):
        self.header, self.makers, self.at = {}, [], 0

    def put(self, name, dtype, shape, make):
        n = math.prod(shape) * {"U32": 4, "BF16": 2}[dtype]
        self.header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [self.at, self.at + n]}
        self.makers.append(make)
        self.at += n

    def vector(self, name, n, mean=1.0):
        self.put(name, "BF16", (n,), lambda rng: bf16(mean + 0.1 * rng.standard_normal(n)))

    def matrix(self, name, *shape):
        """Codes of equal probability whose values have about the variance 1 / columns."""
        k = shape[-1]
        groups = (*shape[:-1], k // GROUP)
        scale = 1 / (4.6 * math.sqrt(k))
        self.put(f"{name}.weight", "U32", (*shape[:-1], k // 8), lambda rng: np.frombuffer(rng.bytes(math.prod(shape) // 2), np.uint8))
        self.put(f"{name}.scales", "BF16", groups, lambda rng: np.full(groups, bf16(scale)))
        self.put(f"{name}.biases", "BF16", groups, lambda rng: np.full(groups, bf16(-7.5 * scale)))

    def write(self, path):
        rng = np.random.default_rng(0)
        text = json.dumps(self.header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            for make in self.makers:
                f.write(make(rng).tobytes())


def put_layer(w, c, i, slides):
    p, hidden = f"model.layers.{i}.", c["hidden_size"]
    head_dim = c["head_dim"] if slides else c["global_head_dim"]
    kv = head_dim * (c["num_key_value_heads"] if slides else c.get("num_global_key_value_heads", c["num_key_value_heads"]))
    q = head_dim * c["num_attention_heads"]
    shared = i >= c["num_hidden_layers"] - c.get("num_kv_shared_layers", 0)
    wide = c["intermediate_size"] * (2 if shared and c.get("use_double_wide_mlp") else 1)
    for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        w.vector(f"{p}{norm}_layernorm.weight", hidden)
    w.matrix(f"{p}self_attn.q_proj", q, hidden)
    w.matrix(f"{p}self_attn.o_proj", hidden, q)
    w.vector(f"{p}self_attn.q_norm.weight", head_dim)
    if not shared:
        w.matrix(f"{p}self_attn.k_proj", kv, hidden)
        if slides or not c.get("attention_k_eq_v"):
            w.matrix(f"{p}self_attn.v_proj", kv, hidden)
        w.vector(f"{p}self_attn.k_norm.weight", head_dim)
    w.matrix(f"{p}mlp.gate_proj", wide, hidden)
    w.matrix(f"{p}mlp.up_proj", wide, hidden)
    w.matrix(f"{p}mlp.down_proj", hidden, wide)
    w.vector(f"{p}layer_scalar", 1)
    if c["hidden_size_per_layer_input"]:
        w.matrix(f"{p}per_layer_input_gate", c["hidden_size_per_layer_input"], hidden)
        w.matrix(f"{p}per_layer_projection", hidden, c["hidden_size_per_layer_input"])
        w.vector(f"{p}post_per_layer_input_norm.weight", hidden)
    if c.get("enable_moe_block"):
        n, inner = c["num_experts"], c["moe_intermediate_size"]
        w.matrix(f"{p}router.proj", n, hidden)
        w.vector(f"{p}router.scale", hidden)
        w.vector(f"{p}router.per_expert_scale", n)
        for norm in ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"):
            w.vector(f"{p}{norm}.weight", hidden)
        w.matrix(f"{p}experts.switch_glu.gate_proj", n, inner, hidden)
        w.matrix(f"{p}experts.switch_glu.up_proj", n, inner, hidden)
        w.matrix(f"{p}experts.switch_glu.down_proj", n, hidden, inner)


def write_tokenizer(path):
    """Every byte is a token, and so are as many words without merges as it takes."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # GPT-2's alphabet of bytes
    letters = [chr(b) for b in shown] + [chr(0x100 + i) for i in range(256 - len(shown))]
    vocab = {token: i for i, token in enumerate(letters + [f"word{i}" for i in range(VOCAB - 256)])}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps({"version": "1.0", "model": model, "pre_tokenizer": level, "decoder": level}) + "\n")


def make(kind, directory):
    c = {**COMMON, **SHAPES[kind]}
    pattern, n = c.pop("pattern"), c["num_hidden_layers"]
    c["layer_types"] = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(n)]
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    w = Writer()
    w.matrix("model.embed_tokens", VOCAB, c["hidden_size"])
    w.vector("model.norm.weight", c["hidden_size"])
    inputs = n * c["hidden_size_per_layer_input"]
    if inputs:
        w.matrix("model.embed_tokens_per_layer", VOCAB, inputs)
        w.matrix("model.per_layer_model_projection", inputs, c["hidden_size"])
        w.vector("model.per_layer_projection_norm.weight", c["hidden_size_per_layer_input"])
    for i in range(n):
        put_layer(w, c, i, c["layer_types"][i] == "sliding_attention")
    write_tokenizer(directory / "tokenizer.json")
    (directory / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    w.write(directory / "model.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=SHAPES)
    parser.add_argument("directory")
    o = parser.parse_args()
    make(o.kind, o.directory)


if __name__ == "__main__":
    main()
