"""Makes tests/golden/real/*.json: what float32 `transformers` answers with the weights of a real GGUF file.

    python tests/golden/make_real.py DIRECTORY      # where smollm2-135m.gguf, gemma3-270m.gguf, qwen2.5-coder-0.5b.gguf are

The weights are dequantised with the `gguf` package and put into a `transformers` model by hand, so that nothing of Hearth
is involved. What a GGUF file changes on the way from Hugging Face is undone: llama's q and k rows are interleaved for
RoPE, Gemma's norms have 1 added. The ids come from llama.cpp's tokenizer and are stored, so that the test of the logits
does not depend on Hearth's. Needs torch, transformers, gguf, llama_cpp.
"""

import hashlib
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen2Config

import reference

HERE = pathlib.Path(__file__).parent / "real"
MODELS = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b")

TEXT = """The old lighthouse keeper kept two books. In the first he wrote, every evening, the state of the wind and the sea,
the number of ships that had passed, and the hour at which he lit the lamp. It was a dull book, and he was proud of how
dull it was: for thirty-one years nothing had happened on his rock that he would have had to explain to anybody. In the
second book he wrote down questions. Why does the fog come from the north in spring but from the west in autumn? How far
does a gull fly between two meals? If a ship's bell is heard before the ship is seen, how long until it may be greeted?
He never wrote an answer, although he knew a few of them, because he had noticed that a question which has been answered
is seldom opened again, while one that is left alone keeps a person company through the whole of a long winter night. When
the new keeper arrived, a young woman with 3 trunks, 12 jars of plum jam and a degree in physics, he gave her the keys, the
oil, and the first book. The second he put into his coat."""

NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}
LLAMA_NORMS = {"ffn_norm": "post_attention_layernorm"}
GEMMA_NORMS = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
               "post_ffw_norm": "post_feedforward_layernorm"}


class File:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.arch = self.get("general.architecture")
        self.types = sorted({t.tensor_type.name for t in self.reader.tensors})

    def get(self, key, default=None):
        field = self.reader.fields.get(key)
        return field.contents() if field else default

    def of_arch(self, key, default=None):
        return self.get(f"{self.arch}.{key}", default)

    def tensors(self):
        for t in self.reader.tensors:
            shape = [int(d) for d in reversed(t.shape)]
            yield t.name, gguf.quants.dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float32)


def config_of(f):
    heads, hidden = f.of_arch("attention.head_count"), f.of_arch("embedding_length")
    names = {t.name: t for t in f.reader.tensors}
    common = dict(
        vocab_size=int(names["token_embd.weight"].shape[1]), hidden_size=hidden, num_attention_heads=heads,
        intermediate_size=f.of_arch("feed_forward_length"), num_hidden_layers=f.of_arch("block_count"),
        num_key_value_heads=f.of_arch("attention.head_count_kv"), max_position_embeddings=f.of_arch("context_length"),
        rms_norm_eps=f.of_arch("attention.layer_norm_rms_epsilon"), tie_word_embeddings="output.weight" not in names)
    theta = f.of_arch("rope.freq_base")
    if f.arch == "gemma3":
        head_dim = f.of_arch("attention.key_length")
        return Gemma3TextConfig(
            **common, head_dim=head_dim, query_pre_attn_scalar=head_dim, sliding_window=f.of_arch("attention.sliding_window"),
            rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": theta},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    cls = {"llama": LlamaConfig, "qwen2": Qwen2Config}[f.arch]
    return cls(**common, rope_parameters={"rope_type": "default", "rope_theta": theta})


def canonical_name(arch, name):
    around = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    stem, part = name.rsplit(".", 1)
    if stem in around:
        return f"{around[stem]}.{part}"
    _, layer, what = stem.split(".")
    table = {**NAMES, **(GEMMA_NORMS if arch == "gemma3" else LLAMA_NORMS)}
    return f"model.layers.{layer}.{table[what]}.{part}"


def canonical(f, name, x):
    if f.arch == "gemma3" and x.ndim == 1:
        return x - 1
    heads = {"attn_q": f.of_arch("attention.head_count"), "attn_k": f.of_arch("attention.head_count_kv")}
    n = heads.get(name.split(".")[2]) if f.arch == "llama" and name.startswith("blk.") else None
    return x.reshape(n, x.shape[0] // n // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape) if n else x


def load(path):
    """The float32 `transformers` model of a GGUF file."""
    f = File(path)
    config = config_of(f)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    model = model.to_empty(device="cpu")
    state = {canonical_name(f.arch, n): torch.from_numpy(np.ascontiguousarray(canonical(f, n, x))) for n, x in f.tensors()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    assert set(missing) <= tied and not unexpected, (missing, unexpected)
    model.tie_weights()
    # Buffers were made on the meta device: the RoPE frequencies and Gemma's sqrt(hidden) are made again.
    fresh = AutoModelForCausalLM.from_config(tiny(config), dtype=torch.float32, attn_implementation="eager")
    source = dict(fresh.named_buffers())
    for key, buffer in model.named_buffers():
        buffer.copy_(torch.tensor(config.hidden_size ** 0.5) if key.endswith("embed_scale") else source[key])
    return model.eval(), f


def tiny(config):
    """A small model with the same RoPE: its buffers do not depend on the other sizes."""
    small = {**config.to_dict(), "num_hidden_layers": 1, "vocab_size": 8, "intermediate_size": 8, "layer_types": None}
    if config.model_type.startswith("gemma3"):
        small.update(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"])
    small.pop("pad_token_id", None)
    return type(config)(**{**small, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None})


def tokenize(path, text):
    from llama_cpp import Llama

    model = Llama(str(path), vocab_only=True, verbose=False)
    return model.tokenize(text.encode(), add_bos=True, special=False)


def main(directory):
    HERE.mkdir(exist_ok=True)
    for name in MODELS:
        path = pathlib.Path(directory) / f"{name}.gguf"
        model, f = load(path)
        ids = tokenize(path, TEXT)
        logits = reference.logits_of(model, ids)
        sha = hashlib.sha256(path.read_bytes()).hexdigest()
        provenance = (f"tests/golden/make_real.py with transformers {transformers.__version__}, torch {torch.__version__}: "
                      f"float32 logits of {path.name} ({', '.join(f.types)}; sha256 {sha}) dequantised with gguf")
        rows = [0, len(ids) // 2, len(ids) - 1]
        reference.write(HERE / f"{name}.json", provenance, ids, logits, 20, rows, max(1, logits.shape[1] // 2048),
                        reference.greedy(model, ids, 8))
        print(name, len(ids), "ids", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
