"""Whether other programs answer with the checkpoints that Hearth has quantised as Hearth does.

    python tests/golden/quantize.py HEARTH llama.cpp|mlx [MODEL.gguf]

llama.cpp (llama-cpp-python, and gguf) loads a file of every type and mix, of a random model whose rows are whole blocks of all of
them, and of MODEL.gguf. A mix must have the types that llama.cpp itself gives its tensors; where it gives Q4_0 to rows that are no
whole blocks, IQ4_NL of the same size is taken. Its products round activations to 8
bits, or floats to the weights' type: the bound is 2.5 times its distance from Hearth's reference on a file that it has quantised
to the same type, as the distances on real models differ by that much between types; where it quantises to none, 0.12. Of the
random model, it also computes with the same values as f32, as gguf reads them: that is within 1e-4.
mlx-lm loads directories of every number of bits and group, made of floats, of floats with the experts of transformers, and of other
groups; both compute in f32, and differ by less than 2e-5. All are parts of the logits' spread.
"""

import json
import logging
import pathlib
import sys

import numpy as np

import engines
import fuse
from engines import REFERENCE, TINY, compare, read_gguf, write_gguf

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S",
         "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "BF16", "F16", "F32"]
IDS = [7 * i % 200 for i in range(32)]
GROUPS = [f"{bits}:{group}" for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)] + ["mxfp4"]
DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}


def quantized(hearth, base, out, to, *options):
    engines.run(hearth, "quantize", base, out, "--to", to, *options)
    return out


def reference_logits(hearth, path, work):
    return engines.hearth_logits(hearth, path, IDS, work, *REFERENCE)


# ---- llama.cpp ----


def llama_logits(path):
    return engines.llama_logits(path, IDS, n_threads=1)


def file_types():
    import llama_cpp

    names = {name.removeprefix("LLAMA_FTYPE_MOSTLY_"): value for name, value in vars(llama_cpp).items()
             if name.startswith("LLAMA_FTYPE_MOSTLY_")}
    return {**names, "F32": llama_cpp.LLAMA_FTYPE_ALL_F32, "MXFP4": names.get("MXFP4_MOE")}


def llama_quantized(base, out, to):
    """None where llama.cpp does not quantise to the type."""
    import ctypes
    import llama_cpp

    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype, how.nthread = file_types()[to], 2
    done = llama_cpp.llama_model_quantize(str(base).encode(), str(out).encode(), ctypes.byref(how))
    return out if done == 0 else None


def types_of(path):
    import gguf

    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


def difference(a, b):
    return float(np.sqrt(np.mean((a - b) ** 2)) / b.std())


def random_model(path):
    """Two layers in which every row is a whole block of every type, with the tiny vocabulary of the command's tests."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
    import tiny_model

    tiny_model.HIDDEN, tiny_model.FEED_FORWARD = 256, 512
    tiny_model.write(path)
    return path


def as_f32(path, out):
    """The file with the values of its weights by the gguf package."""
    reader, _, weights = read_gguf(path)
    return write_gguf(out, reader, weights, bare=True)


def check_type(hearth, base, work, to, values_too):
    ours = quantized(hearth, base, work / "ours.gguf", to)
    logits, expected = reference_logits(hearth, ours, work), reference_logits(hearth, base, work)
    got, loss = difference(llama_logits(ours), logits), difference(logits, expected)
    good, text = True, f"{base.name} {to}: {got:.1e} from Hearth's logits"
    theirs = llama_quantized(base, work / "theirs.gguf", to) if to != "MXFP4" else None  # which it has for experts alone
    if theirs:
        own_logits = reference_logits(hearth, theirs, work)
        own = difference(llama_logits(theirs), own_logits)
        text += f", {own:.1e} with its own file; these are {loss:.3g} from the base's, and {difference(own_logits, expected):.3g}"
        own_types = types_of(theirs)
        others = {name for name, kind in types_of(ours).items() if own_types[name] != kind and (kind, own_types[name]) != ("IQ4_NL", "Q4_0")}
        good = not others
        text += f"; other types: {sorted(others)[:3]}" if others else ""
    good &= bool(got < (max(2.5 * own, 1e-5) if theirs else 0.12))
    if values_too:
        values = difference(llama_logits(as_f32(ours, work / "values.gguf")), logits)
        text += f"; {values:.1e} with the values as f32"
        good &= values < 1e-4
    print(text + ("" if good else "  FAILED"), flush=True)
    return good


def check_llama(hearth, work, model):
    logging.disable()  # of gguf, which tells of the vocabulary that is left out
    random = random_model(work / "random.gguf")
    good = all([check_type(hearth, random, work, to, True) for to in TYPES])
    if model:
        base = quantized(hearth, model, work / f"{model.stem}.gguf", "f32")
        good &= all([check_type(hearth, base, work, to, False) for to in TYPES])
    return good


# ---- mlx-lm ----


def check_mlx(hearth, work, model):
    good = True
    for name in "llama-mlx8-f16", "qwen3-mlx5-f32", "gemma3-mlx6-bf16", "qwen3-moe-mlx4-bf16":
        floats = quantized(hearth, TINY / name, work / f"{name} floats", "f32")
        bases = {"of floats": floats, "of groups": TINY / name}
        if "moe" in name:
            apart = bases["of experts apart"] = work / f"{name} apart"
            engines.run(hearth, "convert", TINY / name, apart, "--to", "safetensors", "--dtype", "f32")
        for how, base in bases.items():
            for to in GROUPS + list(DTYPES):
                out = quantized(hearth, base, work / "out", to)
                logits = fuse.hearth_logits(hearth, out, work)
                found = engines.mlx_logits(engines.mlx_model(out), fuse.IDS)
                good &= compare(f"{name}, {to} {how}", found, logits, logits.std(), 2e-5)
                dtype = json.loads((out / "config.json").read_text())["dtype"]
                good &= to not in DTYPES or dtype == DTYPES[to]
    return good


if __name__ == "__main__":
    engines.main({"llama.cpp": check_llama, "mlx": check_mlx}, after=["model"])
