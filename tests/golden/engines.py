"""What the comparisons share: the same ids in Hearth and in other engines, in float32, and GGUF files with other values."""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
GOLDEN, TINY = HERE / "adapters", HERE / "tiny"
REFERENCE = "--precision", "reference", "--kv", "f32"


def run(hearth, *words):
    subprocess.run([hearth, *words, "-q", "--force"], check=True, stdout=subprocess.DEVNULL)


def hearth_logits(hearth, model, ids, folder, *options):
    out = pathlib.Path(folder) / "logits.npy"
    run(hearth, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, *options)
    return np.load(out)


def transformers_model(path):
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(path)
    known = type(config) in transformers.AutoModelForCausalLM._model_mapping  # else only its wrapper is
    kind = transformers.AutoModelForCausalLM if known else getattr(transformers, config.architectures[0])
    model, told = kind.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    for what in "missing_keys", "unexpected_keys", "mismatched_keys":
        if told[what]:
            raise SystemExit(f"{path.name}: {what}: {told[what]}")
    return model.eval()


def torch_logits(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def mlx_model(path):
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    model, _ = load_model(path)
    model.update(tree_map(lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p,
                          model.parameters()))
    return model


def mlx_logits(model, ids):
    import mlx.core as mx

    return np.array(model(mx.array([ids]))[0].astype(mx.float32))


def llama_logits(path, ids, **how):
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, verbose=False, **{"type_k": 0, "type_v": 0, **how})
    model.eval(ids)
    logits = np.array(model.scores[:len(ids)])
    model.close()
    return logits


def compare(what, logits, expected, spread, limit=1e-3):
    difference = np.abs(np.asarray(logits) - expected).max() / spread
    print(f"{what}: largest difference {difference:.1e} of the spread")
    return bool(difference < limit)


def golden_adapters(library):
    """Those of a library: (name, base, adapter)."""
    for adapter in sorted(GOLDEN.glob(library + "-*")):
        yield adapter.name, TINY / json.loads((adapter / "deltas.json").read_text())["base"], adapter


# ---- GGUF ----


def read_gguf(path):
    """The reader, the architecture, and the dequantised weights."""
    import gguf

    reader = gguf.GGUFReader(path)
    weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(tuple(int(n) for n in reversed(t.shape)))
               .astype(np.float32) for t in reader.tensors}
    return reader, reader.fields["general.architecture"].contents(), weights


def write_gguf(path, reader, weights, bare=False):
    """A file with the metadata of another. bare: it has no vocabulary, as tiny checkpoints."""
    import gguf

    w = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for f in reader.fields.values():
        if not f.name.startswith("GGUF.") and f.name != "general.architecture":
            items = f.types[-1] if f.types[0] == gguf.GGUFValueType.ARRAY else None
            w.add_key_value(f.name, f.contents(), f.types[0], sub_type=items)
    if bare:
        w.add_string("tokenizer.ggml.model", "none")
        if f"{w.arch}.vocab_size" not in reader.fields:
            w.add_uint32(f"{w.arch}.vocab_size", weights["token_embd.weight"].shape[0])
    for name, x in weights.items():
        w.add_tensor(name, x.astype(np.float32))
    return finish_gguf(w, path)


def finish_gguf(w, path):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


# ---- programs ----


def main(checks, before=(), after=()):
    """`HEARTH BEFORE... LIBRARY [AFTER...]`: the check of the library, with these by their names, and an empty folder."""
    parser = argparse.ArgumentParser()
    for name in ("hearth", *before):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("library", choices=checks)
    for name in after:
        parser.add_argument(name, type=pathlib.Path, nargs="?")
    args = vars(parser.parse_args())
    check = checks[args.pop("library")]
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(0 if check(work=pathlib.Path(folder), **args) else 1)
