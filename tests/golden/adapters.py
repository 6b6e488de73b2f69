"""Whether other programs read the adapters that Hearth converts: their logits with a converted adapter beside the reference.

    python tests/golden/adapters.py HEARTH peft|mlx|llama.cpp

peft and mlx load what came from their own golden adapters (make_adapters.py) through the other format, by names alone and with
the model, and answer as before. llama.cpp (the package llama-cpp-python, and gguf) loads random adapters of tiny checkpoints,
beside the same matrices with the adapter's product added to them.
"""

import json
import struct

import numpy as np

import engines
from engines import TINY, compare, read_gguf, write_gguf


def converted(hearth, source, target, to, model=None):
    engines.run(hearth, "adapter", "convert", source, target, "--to", to, *(["--model", model] if model else []))
    return target


def through(hearth, work, home, other):
    """The golden adapters of a library, each converted to the other format and back: (name, base, adapter, reference)."""
    for name_of, base, source in engines.golden_adapters(home):
        reference = json.loads((source / "reference.json").read_text())
        for how, model in ("by names alone", None), ("with the model", base):
            if model is None and name_of == "peft-qwen3-moe":  # gate and up in one tensor, whose order is the model's
                continue
            name = f"{name_of} {how}"
            there = converted(hearth, source, work / f"{name} there", other, model)
            yield name, base, converted(hearth, there, work / name, home, model), reference


def rows_of(reference):
    rows = reference["rows"]
    return [int(r) for r in rows], np.array(list(rows.values()))


def check_peft(hearth, work):
    import peft

    good = True
    for name, base, adapter, reference in through(hearth, work, "peft", "mlx"):
        model = peft.PeftModel.from_pretrained(engines.transformers_model(base), adapter).eval()
        at, expected = rows_of(reference)
        good &= compare(name, engines.torch_logits(model, reference["ids"])[at], expected, reference["std"])
    return good


def check_mlx(hearth, work):
    from mlx_lm.tuner.utils import load_adapters

    good = True
    for name, base, adapter, reference in through(hearth, work, "mlx", "peft"):
        model = load_adapters(engines.mlx_model(base), str(adapter))
        at, expected = rows_of(reference)
        good &= compare(name, engines.mlx_logits(model, reference["ids"])[at], expected, reference["std"])
    return good


# ---- llama.cpp ----

DENSE = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
RANK, ALPHA = 3, 6
LLAMA_IDS = [7 * i % 40 for i in range(24)]
# Where a checkpoint has its experts. Gemma 4's down is left out: llama.cpp adds an adapter's product behind the factors of the
# experts, which are the router's in its source.
LLAMA = {"llama-f32": None, "qwen3-q8_0": None, "qwen3-moe-q4_1": ("mlp.experts", ("gate", "up", "down")),
         "gemma4-experts-q8_0": ("experts", ("gate", "up"))}


def write_peft(folder, tensors):
    folder.mkdir()
    header, data = {}, b""
    for name, x in tensors.items():
        raw = np.ascontiguousarray(x, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": x.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "use_rslora": True}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def permuted(rows, head_dim):
    """Rows as GGUF files of llama store those of q and k."""
    return rows.reshape(-1, 2, head_dim // 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def random_adapter(weights, architecture, head_dim, experts):
    """An adapter of every projection, in PEFT's names, and the weights with its products added."""
    rng = np.random.default_rng(0)
    tensors, merged = {}, {name: w.copy() for name, w in weights.items()}

    def pair(module, n_out, n_in):
        a, b = 0.3 * rng.normal(size=(RANK, n_in)), 0.1 * rng.normal(size=(n_out, RANK))
        tensors[f"base_model.model.model.{module}.lora_A.weight"] = a
        tensors[f"base_model.model.model.{module}.lora_B.weight"] = b
        return ALPHA / RANK**0.5 * b @ a

    for layer in range(sum(name.endswith(".attn_q.weight") for name in weights)):
        for projection, short in DENSE.items():
            name = f"blk.{layer}.{short}.weight"
            if name in weights:
                delta = pair(f"layers.{layer}.{projection}", *weights[name].shape)
                turned = architecture == "llama" and short in ("attn_q", "attn_k")
                merged[name] += permuted(delta, head_dim) if turned else delta
        for part in experts[1] if experts else ():
            name, joined = f"blk.{layer}.ffn_{part}_exps.weight", f"blk.{layer}.ffn_gate_up_exps.weight"
            into = merged[name] if name in weights else np.split(merged[joined], 2, axis=1)[part == "up"]
            for e, matrix in enumerate(into):
                matrix += pair(f"layers.{layer}.{experts[0]}.{e}.{part}_proj", *matrix.shape)
    return tensors, merged


def head_dim_of(reader, weights):
    architecture = reader.fields["general.architecture"].contents()
    return weights["blk.0.attn_q.weight"].shape[0] // reader.fields[f"{architecture}.attention.head_count"].contents()


def llama_logits(path, adapter=None):
    return engines.llama_logits(path, LLAMA_IDS, lora_path=adapter and str(adapter))


def check_llama(hearth, work):
    good = True
    for name, experts in LLAMA.items():
        source = TINY / f"{name}.gguf"
        reader, architecture, weights = read_gguf(source)
        tensors, merged = random_adapter(weights, architecture, head_dim_of(reader, weights), experts)
        write_peft(work / name, tensors)
        adapter = converted(hearth, work / name, work / f"{name}.lora.gguf", "gguf", source)
        base = write_gguf(work / f"{name}.gguf", reader, weights, bare=True)
        expected = llama_logits(write_gguf(work / f"{name}.merged.gguf", reader, merged, bare=True))
        moved = np.abs(llama_logits(base) - expected).max() / expected.std()
        good &= moved > 0.5 and compare(f"{name} in llama.cpp", llama_logits(base, adapter), expected, expected.std())
    return good


if __name__ == "__main__":
    engines.main({"peft": check_peft, "mlx": check_mlx, "llama.cpp": check_llama})
