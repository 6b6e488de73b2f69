"""Makes a random Q4_K_M checkpoint, to measure speed on: what it says is noise.

    python3 bench/make_large.py [--bf16] [--layers N] SHAPE FILE.gguf

with a shape of smollm2-135m, gemma3-270m, gemma3-1b, gemma3-4b, qwen3-4b, llama3.1-8b, phi4-mini, and of mixtures of experts:
qwen3-30b-a3b, of which 12 layers are 4.9 GB, gpt-oss-20b, of which 8 are 4.9 GB, and glm-4.7-flash, of which 8 are 3.2 GB; and with recurrent layers: qwen3.5-4b, and
qwen3.5-35b-a3b, of which 8 layers are 4.8 GB. Every fourth layer of these has attention.

The shapes and the weight types of every tensor are those of the published models, as llama.cpp quantises them: Q4_K, with
Q6_K where Q4_K_M has it, and Q5_0 and Q8_0 in their place where a row is no multiple of 256 (gpt-oss: experts in MXFP4, all else in
Q8_0); or all of them in BF16. 0.1 to 4.9 GB, or 16, in some seconds. The vocabulary has as many tokens, which are words of no language. Needs numpy.
"""

import argparse
import math
import struct

import numpy as np

SHAPES = {
    "smollm2-135m": dict(arch="llama", layers=30, hidden=576, inner=1536, heads=9, kv=3, head_dim=64, vocab=49152,
                         context=8192, theta=1e5),
    "gemma3-270m": dict(arch="gemma3", layers=18, hidden=640, inner=2048, heads=4, kv=1, head_dim=256, vocab=262144,
                        context=32768, window=512, theta=1e6),
    "gemma3-1b": dict(arch="gemma3", layers=26, hidden=1152, inner=6912, heads=4, kv=1, head_dim=256, vocab=262144,
                      context=32768, window=512, theta=1e6),
    "gemma3-4b": dict(arch="gemma3", layers=34, hidden=2560, inner=10240, heads=8, kv=4, head_dim=256, vocab=262208,
                      context=131072, window=1024, theta=1e6),
    "qwen3-4b": dict(arch="qwen3", layers=36, hidden=2560, inner=9728, heads=32, kv=8, head_dim=128, vocab=151936,
                     context=40960, theta=1e6),
    "llama3.1-8b": dict(arch="llama", layers=32, hidden=4096, inner=14336, heads=32, kv=8, head_dim=128, vocab=128256,
                        context=131072, theta=5e5),
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, hidden=2048, inner=6144, heads=32, kv=4, head_dim=128, vocab=151936,
                          context=40960, theta=1e6, experts=128, used=8, expert_inner=768),
    "phi4-mini": dict(arch="phi3", layers=32, hidden=3072, inner=8192, heads=24, kv=8, head_dim=128, vocab=200064,
                      context=4096, theta=1e4, rotated=96),
    "gpt-oss-20b": dict(arch="gpt-oss", layers=24, hidden=2880, inner=2880, heads=64, kv=8, head_dim=64, vocab=201088,
                        context=131072, window=128, theta=1.5e5, experts=32, used=4, expert_inner=2880, trained=4096),
    "glm-4.7-flash": dict(arch="deepseek2", layers=47, hidden=2048, inner=10240, heads=20, kv=1, head_dim=576, vocab=154880,
                          context=202752, theta=1e6, experts=64, used=4, expert_inner=1536, dense=1, q_rank=768, rank=512,
                          key=192, rope=64, value=256),
    "qwen3.5-4b": dict(arch="qwen35", layers=32, hidden=2560, inner=9216, heads=16, kv=4, head_dim=256, vocab=248320,
                       context=262144, theta=1e7, rotated=64, taps=4, key_heads=16, value_heads=32, state=128),
    "qwen3.5-35b-a3b": dict(arch="qwen35moe", layers=40, hidden=2048, inner=512, heads=16, kv=2, head_dim=256, vocab=248320,
                            context=262144, theta=1e7, rotated=64, experts=256, used=8, expert_inner=512, shared_inner=512,
                            taps=4, key_heads=16, value_heads=32, state=128),
}
ALIGNMENT, PIECE = 32, 1 << 16  # of tensors in the file, in bytes; blocks drawn at a time
U32, F32, STRING, ARRAY = 4, 6, 8, 9  # GGUF's types of metadata

# Name: number in the file, weights and bytes of a block, where its scales are (f16; MXFP4: an exponent) with what they are of
# 1 / sqrt(columns).
TYPES = {
    "F32": (0, 1, 4, {}),
    "Q5_0": (6, 32, 22, {0: 1 / 9.2}),
    "Q8_0": (8, 32, 34, {0: 1 / 74}),
    "Q4_K": (12, 256, 144, {0: 1 / 165, 2: 7.5 / 165}),
    "Q5_K": (13, 256, 176, {0: 1 / 330, 2: 15.5 / 330}),
    "Q6_K": (14, 256, 210, {208: 1 / 1370}),
    "BF16": (30, 1, 2, {}),
    "MXFP4": (39, 32, 17, {0: 1 / 2.9}),
}


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", STRING) + text(v)
    if isinstance(v, list):
        kind = STRING if isinstance(v[0], str) else F32 if isinstance(v[0], float) else U32 + 1  # U32 + 1: i32
        items = b"".join(map(text, v)) if kind == STRING else np.array(v, "<f4" if kind == F32 else "<i4").tobytes()
        return struct.pack("<IIQ", ARRAY, kind, len(v)) + items
    return struct.pack("<II", U32, v) if isinstance(v, int) else struct.pack("<If", F32, v)


class Blocks:
    """Random blocks of a type: a pool of them, which every tensor reads from another place on."""

    def __init__(self, name, rng):
        self.bytes, self.scales, self.rng = TYPES[name][2], TYPES[name][3], rng
        self.pool = rng.integers(0, 256, (PIECE, self.bytes), np.uint8)

    def write(self, f, n, columns):
        pool = self.pool
        for at, share in self.scales.items():
            if self.bytes == 17:  # a power of two, by its exponent
                pool[:, at] = 127 + round(math.log2(share / math.sqrt(columns)))
                continue
            pool[:, at:at + 2] = np.frombuffer(np.float16(share / math.sqrt(columns)).tobytes(), np.uint8)
        while n:
            first = int(self.rng.integers(PIECE))
            piece = pool[first:first + n]
            f.write(piece)
            n -= len(piece)


class Numbers:
    """Random numbers in BF16, the same way."""

    def __init__(self, rng):
        self.pool, self.rng, self.scaled = rng.standard_normal((PIECE, 256), np.float32), rng, {}

    def write(self, f, n, columns):
        if columns not in self.scaled:
            self.scaled[columns] = ((self.pool / math.sqrt(columns)).view(np.uint32) >> 16).astype("<u2").reshape(-1)
        pool = self.scaled[columns]
        while n:
            piece = pool[int(self.rng.integers(PIECE)) * 256:][:n]
            f.write(piece)
            n -= len(piece)


class Checkpoint:
    def __init__(self, only=None):
        self.tensors, self.at, self.only = [], 0, only  # (name, type, dimensions, offset); the type of all matrices

    def put(self, name, kind, *shape):
        kind = self.only if self.only and kind != "F32" else kind
        block, size = TYPES[kind][1:3]
        if shape[-1] % block:
            return self.put(name, {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}[kind], *shape)
        self.tensors.append((name, kind, shape, self.at))
        self.at += -(-math.prod(shape) // block * size // ALIGNMENT) * ALIGNMENT

    def write(self, path, metadata):
        rng = np.random.default_rng(0)
        blocks = {}
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(metadata)))
            f.write(b"".join(text(k) + value(v) for k, v in metadata.items()))
            for name, kind, shape, at in self.tensors:
                f.write(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), TYPES[kind][0], at))
            f.write(b"\0" * (-f.tell() % ALIGNMENT))
            start = f.tell()
            for name, kind, shape, at in self.tensors:
                f.write(b"\0" * (start + at - f.tell()))
                if kind == "F32":
                    around = -1 if name.endswith("ssm_a") else 1
                    f.write((around + 0.1 * rng.standard_normal(shape)).astype("<f4").tobytes())
                    continue
                if kind not in blocks:
                    blocks[kind] = Numbers(rng) if kind == "BF16" else Blocks(kind, rng)
                blocks[kind].write(f, math.prod(shape) // TYPES[kind][1], shape[-1])


def has_more_bits(i, n):
    """The layers whose values and feed-forward outputs Q4_K_M has in Q6_K."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def put_layer(w, c, i):
    p, hidden, q, kv, arch = f"blk.{i}.", c["hidden"], c["heads"] * c["head_dim"], c["kv"] * c["head_dim"], c["arch"]
    is_oss = arch == "gpt-oss"
    usual = "Q8_0" if is_oss else "Q4_K"
    better = usual if is_oss else "Q6_K" if has_more_bits(i, c["layers"]) else "Q4_K"
    norms = ["attn_norm", "post_attention_norm" if is_oss else "ffn_norm"]
    is_delta = "taps" in c
    is_recurrent = is_delta and (i + 1) % 4 != 0
    if is_delta:
        norms = ["attn_norm", "post_attention_norm"]
    for norm in norms + (["post_attention_norm", "post_ffw_norm"] if arch == "gemma3" else []):
        w.put(f"{p}{norm}.weight", "F32", hidden)
    if arch in ("gemma3", "qwen3", "qwen3moe") or is_delta and not is_recurrent:
        w.put(f"{p}attn_q_norm.weight", "F32", c["head_dim"])
        w.put(f"{p}attn_k_norm.weight", "F32", c["head_dim"])
    matrices = [("attn_q", usual, q, hidden), ("attn_k", usual, kv, hidden), ("attn_v", better, kv, hidden)]
    if arch == "phi3":
        matrices = [("attn_qkv", "Q5_K", q + 2 * kv, hidden)]
    if "rank" in c:
        heads, rank, key, q = c["heads"], c["rank"], c["key"], c["heads"] * c["value"]
        w.put(f"{p}attn_q_a_norm.weight", "F32", c["q_rank"])
        w.put(f"{p}attn_kv_a_norm.weight", "F32", rank)
        matrices = [("attn_q_a", usual, c["q_rank"], hidden), ("attn_q_b", usual, heads * (key + c["rope"]), c["q_rank"]),
                    ("attn_kv_a_mqa", usual, rank + c["rope"], hidden), ("attn_k_b", usual, heads, rank, key),
                    ("attn_v_b", usual, heads, c["value"], rank)]
    if is_delta:
        matrices[0] = ("attn_q", usual, 2 * q, hidden)
    matrices.append(("attn_output", usual, hidden, q))
    if is_recurrent:
        n, values = c["value_heads"], c["value_heads"] * c["state"]
        channels = 2 * c["key_heads"] * c["state"] + values
        w.put(f"{p}ssm_a", "F32", n)
        w.put(f"{p}ssm_dt.bias", "F32", n)
        w.put(f"{p}ssm_conv1d.weight", "F32", channels, c["taps"])
        w.put(f"{p}ssm_norm.weight", "F32", c["state"])
        matrices = [("attn_qkv", "Q5_K", channels, hidden), ("attn_gate", usual, values, hidden),
                    ("ssm_alpha", usual, n, hidden), ("ssm_beta", usual, n, hidden), ("ssm_out", usual, hidden, values)]
    for name, kind, *shape in matrices:
        w.put(f"{p}{name}.weight", kind, *shape)
        if is_oss:
            w.put(f"{p}{name}.bias", "F32", shape[0])
    if is_oss:
        w.put(f"{p}attn_sinks.weight", "F32", c["heads"])
    if "experts" in c and i >= c.get("dense", 0):
        n, inner = c["experts"], c["expert_inner"]
        if "dense" in c:
            w.put(f"{p}exp_probs_b.bias", "F32", n)
            w.put(f"{p}ffn_gate_shexp.weight", "Q4_K", inner, hidden)
            w.put(f"{p}ffn_up_shexp.weight", "Q4_K", inner, hidden)
            w.put(f"{p}ffn_down_shexp.weight", better, hidden, inner)
        if "shared_inner" in c:
            w.put(f"{p}ffn_gate_inp_shexp.weight", "F32", 1, hidden)
            for name in "gate", "up":
                w.put(f"{p}ffn_{name}_shexp.weight", "Q4_K", c["shared_inner"], hidden)
            w.put(f"{p}ffn_down_shexp.weight", better, hidden, c["shared_inner"])
        w.put(f"{p}ffn_gate_inp.weight", "F32", n, hidden)
        if is_oss:
            w.put(f"{p}ffn_gate_inp.bias", "F32", n)
        for name, kind, *shape in ("gate", "Q4_K", inner, hidden), ("up", "Q4_K", inner, hidden), ("down", better, hidden, inner):
            w.put(f"{p}ffn_{name}_exps.weight", "MXFP4" if is_oss else kind, n, *shape)
            if is_oss:
                w.put(f"{p}ffn_{name}_exps.bias", "F32", n, shape[0])
        return
    if arch == "phi3":
        w.put(f"{p}ffn_up.weight", "Q4_K", 2 * c["inner"], hidden)
    else:
        w.put(f"{p}ffn_gate.weight", "Q4_K", c["inner"], hidden)
        w.put(f"{p}ffn_up.weight", "Q4_K", c["inner"], hidden)
    w.put(f"{p}ffn_down.weight", better, hidden, c["inner"])


def tokenizer(c):
    """Every byte is a token, and so are as many words as it takes."""
    if c["arch"] == "gemma3":
        special = ["<pad>", "<eos>", "<bos>", "<unk>"]
        tokens = special + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581"]
        tokens += [f"word{i}" for i in range(c["vocab"] - len(tokens))]
        kinds = [3, 3, 3, 2] + [6] * 256 + [1] * (c["vocab"] - 260)  # control, unknown, byte, normal
        return {"model": "llama", "tokens": tokens, "scores": [-float(i) for i in range(c["vocab"])], "token_type": kinds,
                "bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3}
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # GPT-2's alphabet of bytes
    letters = [chr(b) for b in shown] + [chr(0x100 + i) for i in range(256 - len(shown))]
    tokens = letters + ["wo"] + [f"word{i}" for i in range(c["vocab"] - 259)] + ["<|begin|>", "<|end|>"]
    return {"model": "gpt2", "pre": {"llama": "llama-bpe", "phi3": "gpt-4o", "gpt-oss": "gpt-4o", "qwen35": "qwen35", "qwen35moe": "qwen35"}.get(c["arch"], "qwen2"), "tokens": tokens,
            "token_type": [1] * (c["vocab"] - 2) + [3, 3], "merges": ["w o"], "bos_token_id": c["vocab"] - 2,
            "eos_token_id": c["vocab"] - 1}


def make(name, path, only=None, layers=None):
    c = SHAPES[name] | ({"layers": layers} if layers else {})
    arch, w = c["arch"], Checkpoint(only)
    metadata = {"general.architecture": arch, "general.name": f"random {name}", "general.file_type": 32 if only else 15,
                **{f"{arch}.{key}": v for key, v in {
                    "context_length": c["context"], "embedding_length": c["hidden"], "block_count": c["layers"],
                    "feed_forward_length": c["inner"], "attention.head_count": c["heads"],
                    "attention.head_count_kv": c["kv"], "attention.key_length": c["head_dim"],
                    "attention.value_length": c["head_dim"], "attention.layer_norm_rms_epsilon": 1e-6,
                    "rope.freq_base": c["theta"]}.items()},
                **{f"tokenizer.ggml.{key}": v for key, v in tokenizer(c).items()}}
    if "experts" in c:
        metadata |= {f"{arch}.expert_count": c["experts"], f"{arch}.expert_used_count": c["used"],
                     f"{arch}.expert_feed_forward_length": c["expert_inner"]}
    if "rank" in c:
        metadata |= {f"{arch}.{key}": v for key, v in {
            "attention.q_lora_rank": c["q_rank"], "attention.kv_lora_rank": c["rank"], "attention.value_length": c["rank"],
            "attention.key_length_mla": c["key"] + c["rope"], "attention.value_length_mla": c["value"],
            "rope.dimension_count": c["rope"], "leading_dense_block_count": c["dense"], "expert_shared_count": 1,
            "expert_gating_func": 2, "expert_weights_scale": 1.8}.items()}
    if "taps" in c:
        metadata |= {f"{arch}.{key}": v for key, v in {
            "ssm.conv_kernel": c["taps"], "ssm.state_size": c["state"], "ssm.group_count": c["key_heads"],
            "ssm.time_step_rank": c["value_heads"], "ssm.inner_size": c["value_heads"] * c["state"],
            "full_attention_interval": 4, "rope.dimension_sections": [11, 11, 10, 0]}.items()}
    if "shared_inner" in c:
        metadata[f"{arch}.expert_shared_feed_forward_length"] = c["shared_inner"]
    if "window" in c:
        metadata[f"{arch}.attention.sliding_window"] = c["window"]
    if "trained" in c:
        metadata |= {f"{arch}.rope.scaling.type": "yarn", f"{arch}.rope.scaling.factor": c["context"] / c["trained"],
                     f"{arch}.rope.scaling.original_context_length": c["trained"]}
    tied, is_oss = arch not in ("llama", "gpt-oss", "deepseek2", "qwen35moe"), arch == "gpt-oss"
    w.put("token_embd.weight", "Q8_0" if is_oss else "Q6_K" if tied else "Q4_K", c["vocab"], c["hidden"])
    w.put("output_norm.weight", "F32", c["hidden"])
    if arch in ("llama", "phi3") or "taps" in c:
        metadata[f"{arch}.rope.dimension_count"] = c.get("rotated", c["head_dim"])
    if not tied:
        w.put("output.weight", "Q8_0" if is_oss else "Q6_K", c["vocab"], c["hidden"])
    if arch == "llama":
        w.put("rope_freqs.weight", "F32", c["head_dim"] // 2)
    for i in range(c["layers"]):
        put_layer(w, c, i)
    w.write(path, metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path", metavar="FILE.gguf")
    parser.add_argument("--bf16", action="store_true", help="all matrices in BF16")
    parser.add_argument("--layers", type=int, metavar="N", help="only so many layers")
    o = parser.parse_args()
    make(o.shape, o.path, "BF16" if o.bf16 else None, o.layers)


if __name__ == "__main__":
    main()
