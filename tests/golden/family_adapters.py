"""Whether adapters of the model families travel: the logits of tiny checkpoints (make_families.py) with adapters.

    python tests/golden/family_adapters.py HEARTH peft|fuse [NAME...]
    python tests/golden/family_adapters.py HEARTH llama.cpp --llama-cpp SOURCE [NAME...]

peft: adapters of every projection that PEFT saves answer in Hearth as in PEFT, and those that Hearth writes in PEFT.
fuse: checkpoints fused by Hearth answer in transformers, and GGUF files in Hearth, as with the adapter.
llama.cpp: what its convert_lora_to_gguf.py makes of PEFT's files answers in Hearth as in PEFT, and Hearth writes the same
names. It knows experts only as modules, which PEFT wrote before transformers 5; Hearth reads them, too. It turns A and B
of GPT-2's transposed matrices round.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import peft
import torch
import transformers

import engines
import make_families
from adapters import converted
from engines import REFERENCE, compare
from make_train import write_adapter
from make_train_families import ALPHA, RANK, attach, halves, load

IDS = [3 + 5 * i % 40 for i in range(24)]


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
            make_families.HERE / name, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
        return engines.torch_logits(peft.PeftModel.from_pretrained(model, adapter).base_model.model.language_model, IDS)
    return engines.torch_logits(peft.PeftModel.from_pretrained(model, adapter).eval(), IDS)


def check_peft(hearth, name, adapter, expected, work):
    base = make_families.HERE / name
    good = compare(f"{name}, saved by PEFT, in Hearth", hearth_logits(hearth, base, work, adapter), expected,
                   expected.std())
    there = converted(hearth, adapter, work / "there", "peft", base)
    return good & compare(f"{name}, written by Hearth, in PEFT", logits_in_peft(name, there), expected, expected.std())


def check_fuse(hearth, name, adapter, expected, work):
    good = True
    for base in make_families.HERE / name, make_families.HERE / f"{name}.gguf":
        if base.exists():
            out = work / f"fused{base.suffix}"
            engines.run(hearth, "fuse", base, "--adapter", adapter, out, "--dtype", "f32")
            good &= compare(f"{base.name}, fused, in Hearth", hearth_logits(hearth, out, work), expected, expected.std())
    logits = engines.torch_logits(load(name, work / "fused"), IDS)
    return good & compare(f"{name}, fused, in transformers", logits, expected, expected.std())


# Names of an expert's gate, up and down in releases that have a module for each.
MODULES = {"mixtral": "block_sparse_moe.experts.{}.{}", "minimax_m2": "block_sparse_moe.experts.{}.{}"}
PARTS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
WITHOUT_MODULES = "gpt_oss", "llama4", "granitemoe"


def write_modules(name, model, folder):
    """The adapter in PEFT's files with a module for each expert."""
    tensors = {}
    for slot, (a, b) in halves(model).items():
        layer, projection = slot.rsplit(".experts.", 1) if ".experts." in slot else (slot, None)
        if not projection:
            names = [(slot.replace("model.layers", "transformer.h") if "gpt2" in name else slot, a, b)]
        elif name.startswith(WITHOUT_MODULES):
            continue
        else:
            form = MODULES.get(name, "mlp.experts.{}.{}")
            part = PARTS[projection] if name in MODULES else projection
            names = [(f"{layer}.{form.format(i, part)}", a[i], b[i]) for i in range(len(a))]
        for module, x, y in names:
            tensors[f"base_model.model.{module}.lora_A.weight"] = x.contiguous().clone()
            tensors[f"base_model.model.{module}.lora_B.weight"] = y.contiguous().clone()
    shutil.rmtree(folder)
    write_adapter(folder, tensors, name, RANK, ALPHA)
    return folder


def tensors_of(path):
    import gguf

    return {t.name: np.array(t.data, np.float32) for t in gguf.GGUFReader(path).tensors}


def check_llama(hearth, name, adapter, expected, work, source):
    base, file = make_families.HERE / f"{name}.gguf", work / "adapter.gguf"
    if not base.exists() or name == "gpt2":
        return True
    model = attach(load(name))
    adapter = write_modules(name, model, adapter)
    expected = hearth_logits(hearth, base.with_suffix(""), work, adapter) if name.startswith(WITHOUT_MODULES) else expected
    made = subprocess.run([sys.executable, source / "convert_lora_to_gguf.py", adapter, "--base", base.with_suffix(""),
                           "--outfile", file, "--outtype", "f32"], capture_output=True, text=True)
    if made.returncode:
        print(f"{name}: llama.cpp does not convert it: {made.stderr.strip().splitlines()[-1]}")
        return False
    good = compare(f"{name}, converted by llama.cpp, in Hearth", hearth_logits(hearth, base, work, file), expected,
                   expected.std())
    here, there = tensors_of(converted(hearth, adapter, work / "here.gguf", "gguf", base)), tensors_of(file)
    same = here.keys() == there.keys()
    print(f"{name}: Hearth and llama.cpp write {'the same' if same else 'other'} tensors"
          + ("" if same else f": {sorted(here.keys() ^ there.keys())}"))
    return good & same


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hearth", type=pathlib.Path)
    parser.add_argument("check", choices=("peft", "fuse", "llama.cpp"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--llama-cpp", type=pathlib.Path, help="its source")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    good = True
    for name in args.names or make_families.FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            adapter, expected, plain = saved_by_peft(name, work / "peft")
            assert np.abs(expected - plain).max() > 0.2 * plain.std()
            try:
                if args.check == "llama.cpp":
                    good &= check_llama(args.hearth, name, adapter, expected, work, args.llama_cpp)
                else:
                    check = check_peft if args.check == "peft" else check_fuse
                    good &= check(args.hearth, name, adapter, expected, work)
            except (subprocess.CalledProcessError, ValueError) as e:
                print(f"{name}: {e}")
                good = False
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
