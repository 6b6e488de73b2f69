"""Makes the tiny random text encoders under tests/golden/encoders and what float32 `transformers` answers to them.

    python tests/golden/make_encoders.py --llama-cpp SOURCE [NAME...]   # all, or those named

It needs what make_families.py needs, and has its weights: exact in bf16, f16 and Q8_0, so that NAME/reference.json
answers for NAME/ and for NAME.gguf. The reference has the hidden states of texts of several lengths, each computed alone,
and the scores of checkpoints with a head.
"""

import argparse
import json
import math
import pathlib
import re
import shutil

import numpy as np
import torch
import transformers

from safetensors.torch import load_file, save_file

import make_families
import reference

HERE = pathlib.Path(__file__).parent / "encoders"
PROVENANCE = (f"tests/golden/make_encoders.py with transformers {transformers.__version__}, torch {torch.__version__}: "
              "float32 hidden states of the weights as stored")
LIMIT = 95_000
LENGTHS = 1, 3, 17, 32


def bert(**more):
    return dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=40, type_vocab_size=2, pad_token_id=0, **more)


def encoder(model_type, args, cls="Model", moved=(), config=None, told=None, types=False):
    """cls: of transformers; moved: patterns of names in the file and what stands for them; config: further fields of
    config.json, or None for those that are left out; told: those for the converter alone; types: the second half of
    a text has token type 1."""
    return dict(model_type=model_type, args=args, cls=cls, moved=moved, config=config or {}, told=told or {},
                types=types)


def layers(kinds):
    return [{"s": "sliding_attention", "f": "full_attention"}[k] for k in kinds]


NOMIC = dict(n_embd=32, n_layer=2, n_head=4, n_inner=48, n_positions=8192, max_trained_positions=2048,
             activation_function="swiglu", layer_norm_epsilon=1e-12, rotary_emb_base=1000, rotary_emb_fraction=1.0,
             rotary_emb_interleaved=False, causal=False, prenorm=False,
             qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False,
             hidden_size=None, num_hidden_layers=None, num_attention_heads=None, intermediate_size=None,
             max_position_embeddings=None, layer_norm_eps=None, hidden_act=None, rope_parameters=None, head_dim=None)
MODERN = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
              max_position_embeddings=512, local_attention=8, global_attn_every_n_layers=3, pad_token_id=0,
              cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)
OLD_MODERN = dict(rope_parameters=None, layer_types=None, global_rope_theta=160000.0, local_rope_theta=10000.0,
                  local_attention=8, global_attn_every_n_layers=3)

ENCODERS = {
    # The names of the first releases.
    "bert": encoder("bert", bert(), moved=((r"^", "bert."), (r"LayerNorm\.weight", "LayerNorm.gamma"),
                                           (r"LayerNorm\.bias", "LayerNorm.beta")), types=True),
    "xlm_roberta": encoder("xlm-roberta", {**bert(), "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0,
                                           "eos_token_id": 2, "layer_norm_eps": 1e-5}),
    "nomic_bert": encoder("nomic_bert", bert(), config=NOMIC, told={**bert(), "rotary_emb_scale_base": None}),
    "modernbert": encoder("modernbert", MODERN, config=OLD_MODERN, moved=((r"^", "model."),)),
    "embeddinggemma": encoder("gemma3_text", dict(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=512, sliding_window=8, layer_types=layers("sssssf"),
        query_pre_attn_scalar=8, use_bidirectional_attention=True, tie_word_embeddings=True, pad_token_id=0,
        bos_token_id=2, eos_token_id=1), config=dict(sliding_window=8), told=dict(architectures=["Gemma3TextModel"])),
    "bert-labels": encoder("bert", {**bert(), "num_labels": 3}, "ModelForSequenceClassification", types=True),
    "xlm_roberta-score": encoder("xlm-roberta", {**bert(), "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0,
                                                 "eos_token_id": 2, "num_labels": 1}, "ModelForSequenceClassification"),
    "modernbert-score": encoder("modernbert", {**MODERN, "num_labels": 1, "classifier_pooling": "mean",
                                               "hidden_activation": "silu"},
                                "ModelForSequenceClassification"),
}


def model_class(row):
    return getattr(transformers, "Auto" + row["cls"])


def fill(model, name):
    rng, multiplier = make_families.seeded(name), 1
    if model.config.model_type == "gemma3_text":
        multiplier = model.config.hidden_size**0.5
    offset = 1 if multiplier > 1 else 0
    with torch.no_grad():
        for key, p in sorted(model.named_parameters()):
            shape = tuple(p.shape)
            if "norm" in key.lower() and key.endswith("weight"):
                values = np.rint((rng.standard_normal(shape) * 0.2 + 1 - offset) * 128) / 128
            elif key.endswith("bias"):
                values = np.rint(rng.standard_normal(shape) * 0.2 * 128) / 128
            elif "embed" in key:
                values = make_families.exact(rng, shape, 0.7 / multiplier)
            else:
                values = make_families.exact(rng, shape, 1.2 / math.sqrt(shape[-1]))
            p.copy_(torch.from_numpy(np.asarray(values, np.float32)))


def run(model, ids, types):
    """Hidden states [n, hidden], and the scores of a head."""
    more = {"token_type_ids": torch.tensor([types])} if types else {}
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]), output_hidden_states=True, **more)
    states = out.last_hidden_state if hasattr(out, "last_hidden_state") else out.hidden_states[-1]
    if hasattr(out, "logits") and model.config.model_type == "modernbert":  # hidden_states has it before the last norm
        with torch.no_grad():
            states = model.model(input_ids=torch.tensor([ids])).last_hidden_state
    return states[0].numpy(), out.logits[0].numpy() if hasattr(out, "logits") else None


def open_model(row, directory, config, dtype):
    model, told = model_class(row).from_pretrained(directory, config=config, dtype=dtype, attn_implementation="eager",
                                                   output_loading_info=True)
    for what in "missing_keys", "mismatched_keys", "unexpected_keys":
        assert not told[what], f"{directory.name}: {what}: {told[what]}"
    return model.eval()


def check_every_part(name, model, text, states, scores):
    """Every tensor moves the hidden states, or the scores, when it is zeroed."""
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "key.bias" in key or ("pooler" in key and scores is None):  # the softmax undoes a constant
                continue
            kept = p.clone()
            p.zero_()
            now, scored = run(model, *text)
            p.copy_(kept)
            moved = np.abs(now - states).max() / states.std()
            if scores is not None:
                moved = max(moved, np.abs(scored - scores).max())
            assert moved > 1e-2, f"{name}: {key} moves the result only by {moved}"


def rename(path, moved):
    tensors = load_file(path)
    for pattern, to in moved:
        tensors = {re.sub(pattern, to, key): x for key, x in tensors.items()}
    save_file(tensors, path, {"format": "pt"})


def make(name, row, converter):
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    (HERE / f"{name}.gguf").unlink(missing_ok=True)
    directory.mkdir(parents=True)
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(row["model_type"], **row["args"])
    model = model_class(row).from_config(config).float().eval()
    fill(model, name)
    model.to(torch.bfloat16).save_pretrained(directory)
    config = transformers.AutoConfig.from_pretrained(directory)
    model, doubled = (open_model(row, directory, config, t) for t in (torch.float32, torch.float64))
    texts = []
    for n in LENGTHS:
        ids = [int(i) for i in make_families.seeded(f"{name} ids {n}").integers(3, config.vocab_size, n)]
        types = [int(i >= n // 2) for i in range(n)] if row["types"] else None
        texts.append((ids, types, *run(model, ids, types)))
    spread = float(texts[-1][2].std())
    for ids, types, states, scores in texts:
        whole = run(doubled, ids, types)[0]
        rounding = np.abs(whole - states).max() / spread
        assert rounding < 2e-5, f"{name}: float32 states are {rounding} of the spread from the float64 ones"
    check_every_part(name, model, texts[-1][:2], *texts[-1][2:])
    if row["moved"]:
        rename(directory / "model.safetensors", row["moved"])
    (directory / "model.safetensors").chmod(0o644)
    path = directory / "config.json"
    said = {**json.loads(path.read_text()), **row["config"]}
    path.write_text(json.dumps({k: v for k, v in said.items() if k not in row["config"] or v is not None}, indent=1) + "\n")
    document = {"provenance": PROVENANCE, "hidden": config.hidden_size, "std": spread, "texts": []}
    for ids, types, states, scores in texts:
        text = {"ids": ids, "states": reference.short(states)}
        if types:
            text["types"] = types
        if scores is not None:
            text["scores"] = reference.short(scores)
            if row["model_type"] == "bert":  # whose pooler the converter leaves out
                with torch.no_grad():
                    text["gguf_scores"] = reference.short(model.classifier(torch.tensor(states[0])))
        document["texts"].append(text)
    (directory / "reference.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
    vocabulary = directory / "tokenizer.json"  # whose size Gemma's converter reads
    vocabulary.write_text(json.dumps({"model": {"vocab": list(range(config.vocab_size))}, "added_tokens": []}))
    note = make_families.convert(directory, {"told": row["told"], "options": ()}, converter)
    vocabulary.unlink()
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{name}: {size} bytes, {note}", flush=True)
    assert size <= LIMIT, f"{name}: {size} bytes"


def converter_of(source):
    converter = make_families.converter_of(source)
    from conversion.bert import BertModel, NomicBertModel, XLMRobertaModel

    NomicBertModel._is_tokenizer_xlmroberta = lambda self: False
    for cls in BertModel, XLMRobertaModel:
        cls.set_vocab = lambda self: self._set_vocab_none()
    return converter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True, help="its source")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    converter = converter_of(args.llama_cpp)
    unknown = set(args.names).difference(ENCODERS)
    assert not unknown, f"not in the table: {sorted(unknown)}"
    for name, row in ENCODERS.items():
        if not args.names or name in args.names:
            make(name, row, converter)


if __name__ == "__main__":
    main()
