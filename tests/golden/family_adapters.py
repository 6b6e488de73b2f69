"""Whether adapters of the model families travel: the logits of tiny checkpoints (make_families.py) with adapters.

    python tests/golden/family_adapters.py HEARTH peft|fuse [NAME...]
    python tests/golden/family_adapters.py HEARTH mlx [NAME...]
    python tests/golden/family_adapters.py HEARTH llama.cpp [NAME...] --llama-cpp SOURCE

peft: adapters of every projection that PEFT saves answer in Hearth as in PEFT, and those that Hearth writes in PEFT.
fuse: checkpoints fused by Hearth answer in transformers, and GGUF files in Hearth, as with the adapter.
mlx: adapters that Hearth trains answer in mlx-lm as in Hearth, and those that mlx-lm trains in Hearth.
llama.cpp: what its convert_lora_to_gguf.py makes of PEFT's files answers in Hearth as in PEFT, and Hearth writes the same
names. It knows experts only as modules, which PEFT wrote before transformers 5; Hearth reads them, too. It cannot divide
kv_b_proj.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

import engines
from adapters import converted
from engines import REFERENCE, compare

if "mlx" not in sys.argv[2:3]:  # its environment has no torch
    import peft
    import torch
    import transformers

    import make_families
    from make_train import write_adapter
    from make_train_families import ALPHA, RANK, attach, halves, load

FAMILIES = pathlib.Path(__file__).parent / "families"
IDS = [3 + 5 * i % 40 for i in range(24)]
# Those of which mlx-lm computes transformers' logits, with modules to train there.
MLX = {"glm4": ["self_attn.q_proj", "mlp.gate_up_proj"], "granite": ["self_attn.v_proj", "mlp.down_proj"],
       "gpt2": ["attn.c_attn", "mlp.c_proj"], "phi": ["self_attn.dense", "mlp.fc1"],
       "nemotron": ["self_attn.q_proj", "mlp.up_proj"], "cohere2": ["self_attn.o_proj", "mlp.gate_proj"],
       "mixtral": ["self_attn.q_proj", "block_sparse_moe.switch_mlp.gate_proj"],
       "granitemoe": ["self_attn.v_proj", "block_sparse_moe.switch_mlp.down_proj"],
       "qwen2_moe": ["mlp.shared_expert.up_proj", "mlp.switch_mlp.up_proj"],
       "glm4_moe": ["mlp.shared_experts.gate_proj", "mlp.switch_mlp.down_proj"],
       "lfm2_moe": ["feed_forward.gate_proj", "feed_forward.switch_mlp.up_proj"],
       "llama4": ["self_attn.k_proj", "feed_forward.experts.up_proj"],
       "deepseek_v2-lite": ["self_attn.kv_b_proj", "mlp.switch_mlp.gate_proj"]}


def saved_by_peft(name, folder):
    """The adapter's folder, the logits with it and without it."""
    plain = engines.torch_logits(load(name), IDS)
    model = attach(load(name))
    model.save_pretrained(folder)
    return folder, engines.torch_logits(model, IDS), plain


def hearth_logits(hearth, model, work, adapter=None):
    return engines.hearth_logits(hearth, model, IDS, work, *REFERENCE, *(["--adapter", adapter] if adapter else []))


def logits_in_peft(name, adapter):
    """With an adapter on the whole model, of which the wrapper of Llama 4 fails without an image."""
    model = load(name)
    if model.config.model_type == "llama4_text":
        model = transformers.AutoModelForImageTextToText.from_pretrained(
            FAMILIES / name, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
        return engines.torch_logits(peft.PeftModel.from_pretrained(model, adapter).base_model.model.language_model, IDS)
    return engines.torch_logits(peft.PeftModel.from_pretrained(model, adapter).eval(), IDS)


def check_peft(hearth, name, adapter, expected, work):
    base = FAMILIES / name
    good = compare(f"{name}, saved by PEFT, in Hearth", hearth_logits(hearth, base, work, adapter), expected,
                   expected.std())
    there = converted(hearth, adapter, work / "there", "peft", base)
    return good & compare(f"{name}, written by Hearth, in PEFT", logits_in_peft(name, there), expected, expected.std())


# Quantised gates and ups of the first take turns; the second has them in two tensors, where the directory has one.
REFUSED = "gpt_oss-mxfp4", "granite4_dense.gguf"


def check_fuse(hearth, name, adapter, expected, work):
    good = True
    for base in FAMILIES / name, FAMILIES / f"{name}.gguf":
        if base.exists():
            out = work / f"fused{base.suffix}"
            if base.name in REFUSED:
                continue
            engines.run(hearth, "fuse", base, "--adapter", adapter, out, "--dtype", "f32")
            good &= compare(f"{base.name}, fused, in Hearth", hearth_logits(hearth, out, work), expected, expected.std())
    if name in REFUSED:
        return good
    logits = engines.torch_logits(load(name, work / "fused"), IDS)
    return good & compare(f"{name}, fused, in transformers", logits, expected, expected.std())


# Names of an expert's gate, up and down in releases that have a module for each.
MODULES = {**{name: "block_sparse_moe.experts.{}.{}" for name in ("mixtral", "minimax_m2", "phimoe")},
           "lfm2_moe": "feed_forward.experts.{}.{}", "kimi_linear": "block_sparse_moe.experts.{}.{}"}
PARTS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
WITHOUT_MODULES = "gpt_oss", "llama4", "granitemoe"
# The converter turns A and B round in the first, wants a tokenizer for three, and states another architecture than the
# model's converter for the last.
UNCONVERTED = "gpt2", "mistral3", "ministral3", "mistral4", "granite4_dense"


def write_modules(name, model, folder):
    """The adapter in PEFT's files with a module for each expert; whether it is all of it."""
    tensors, whole = {}, True
    for slot, (a, b) in halves(model).items():
        layer, projection = slot.rsplit(".experts.", 1) if ".experts." in slot else (slot, None)
        if slot.endswith("kv_b_proj") or projection and name.startswith(WITHOUT_MODULES):
            whole = False
            continue
        if not projection:
            names = [(slot.replace("model.layers", "transformer.h") if "gpt2" in name else slot, a, b)]
        else:
            form = MODULES.get(name, "mlp.experts.{}.{}")
            part = PARTS[projection] if name in MODULES else projection
            names = [(f"{layer}.{form.format(i, part)}", a[i], b[i]) for i in range(len(a))]
        for module, x, y in names:
            tensors[f"base_model.model.{module}.lora_A.weight"] = x.contiguous().clone()
            tensors[f"base_model.model.{module}.lora_B.weight"] = y.contiguous().clone()
    shutil.rmtree(folder)
    write_adapter(folder, tensors, name, RANK, ALPHA)
    return whole


def check_mlx(hearth, name, work):
    from mlx_lm.tuner.utils import load_adapters
    from trained_adapters import agree, trained_by_mlx

    base, data = FAMILIES / name, work / "data.jsonl"
    data.write_text(json.dumps({"input_ids": IDS}) + "\n")
    engines.run(hearth, "finetune", base, "--data", data, "--out", work / "here", "--targets", "all-linear", "--iters", "3",
                "--lr", "0.03", "--no-pack")
    there, plain = converted(hearth, work / "here", work / "there", "mlx", base), hearth_logits(hearth, base, work)
    good = agree(f"{name}, trained by Hearth, in mlx-lm",
                 engines.mlx_logits(load_adapters(engines.mlx_model(base), str(there)), IDS),
                 hearth_logits(hearth, base, work, work / "here"), plain)
    model = trained_by_mlx(base, MLX[name], work / "mlx")
    return good & agree(f"{name}, trained by mlx-lm, in Hearth", hearth_logits(hearth, base, work, work / "mlx"),
                        engines.mlx_logits(model, IDS), plain)


def tensors_of(path):
    import gguf

    reader = gguf.GGUFReader(path)
    return {t.name: t for t in reader.tensors} | {"architecture": reader.fields["general.architecture"].contents()}


def check_llama(hearth, name, adapter, expected, work, source):
    base, file = FAMILIES / f"{name}.gguf", work / "adapter.gguf"
    if not base.exists() or name.startswith(UNCONVERTED):
        return True
    if not write_modules(name, attach(load(name)), adapter):
        expected = hearth_logits(hearth, base.with_suffix(""), work, adapter)
    made = subprocess.run([sys.executable, source / "convert_lora_to_gguf.py", adapter, "--base", base.with_suffix(""),
                           "--outfile", file, "--outtype", "f32"], capture_output=True, text=True)
    if made.returncode:
        print(f"{name}: llama.cpp does not convert it: {made.stderr.strip().splitlines()[-1]}")
        return False
    good = compare(f"{name}, converted by llama.cpp, in Hearth", hearth_logits(hearth, base, work, file), expected,
                   expected.std())
    here, there = tensors_of(converted(hearth, adapter, work / "here.gguf", "gguf", base)), tensors_of(file)
    same = here.keys() == there.keys() and here["architecture"] == there["architecture"]
    print(f"{name}: Hearth and llama.cpp write {'the same' if same else 'other'} tensors"
          + ("" if same else f": {sorted(here.keys() ^ there.keys())}"))
    return good & same


def check_with_torch(args, name, work):
    adapter, expected, plain = saved_by_peft(name, work / "peft")
    assert np.abs(expected - plain).max() > 0.2 * plain.std()
    if args.check == "llama.cpp":
        return check_llama(args.hearth, name, adapter, expected, work, args.llama_cpp)
    return (check_peft if args.check == "peft" else check_fuse)(args.hearth, name, adapter, expected, work)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hearth", type=pathlib.Path)
    parser.add_argument("check", choices=("peft", "fuse", "mlx", "llama.cpp"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--llama-cpp", type=pathlib.Path, help="its source")
    args = parser.parse_args()
    if args.check != "mlx":
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        torch.set_num_threads(1)
    good = True
    for name in args.names or (MLX if args.check == "mlx" else make_families.FAMILIES):
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            try:
                good &= check_mlx(args.hearth, name, work) if args.check == "mlx" else check_with_torch(args, name, work)
            except (subprocess.CalledProcessError, ValueError) as e:
                print(f"{name}: {e}")
                good = False
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
