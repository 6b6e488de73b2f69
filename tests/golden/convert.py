"""Converted checkpoints in the engines they are written for: directories of transformers and mlx-lm, files of llama.cpp.

    python3 tests/golden/convert.py build/release/bin/hearth [CHECKPOINT ...]

Every tiny checkpoint and every family's is converted, and its logits in the other engine, in f32, are compared with Hearth's of the original. Needs
torch, transformers, mlx-lm and llama-cpp-python. Directories for llama.cpp need a tokenizer, which the tiny ones do not have:
name one of a real model. YaRN is another in mlx-lm, which fails. Directories with experts are converted for transformers, and those
of mlx-lm from there back again: the configurations of the others are newer than mlx-lm. Directories of the families go to
transformers through GGUF, with a configuration that Hearth has written.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import engines
from engines import HERE, TINY

FAMILIES = HERE / "families"

IDS = [1, 5, 9, 20, 7, 30, 2, 11]


def in_transformers(path):
    return engines.torch_logits(engines.transformers_model(path), IDS)


def in_mlx_lm(path):
    return engines.mlx_logits(engines.mlx_model(path), IDS)


def in_llama_cpp(path):
    return engines.llama_logits(path, IDS, type_k=None, type_v=None, n_threads=2)


ENGINES = {"safetensors": in_transformers, "mlx": in_mlx_lm, "gguf": in_llama_cpp}
# Of the largest logit. llama.cpp rounds activations of quantised weights to 8 bits, and keys and values to f16.
MOST = {"safetensors": 1e-4, "mlx": 1e-4, "gguf": 0.1}


def check(hearth, model, container, folder):
    """One line, and whether it is well."""
    if container == "gguf" and not (model / "tokenizer.json").exists():
        print(f"{model.name} to gguf: left out, as llama.cpp loads no file without a tokenizer")
        return True
    out, base = folder / ("out.gguf" if container == "gguf" else container), model
    if container == "mlx" and model.is_dir():
        base = folder / "base"
        engines.run(hearth, "convert", model, base, "--to", "safetensors")
    if container == "safetensors" and model.parent.name == FAMILIES.name and model.is_dir():
        base = folder / "base.gguf"
        done = subprocess.run([hearth, "convert", model, base, "--to", "gguf", "-q"], capture_output=True, text=True)
        if done.returncode:
            print(f"{model.name} to gguf: {done.stderr.strip()}")
            return "cannot express" in done.stderr
    done = subprocess.run([hearth, "convert", base, out, "--to", container, "-q", "--force"], capture_output=True, text=True)
    if done.returncode:
        print(f"{model.name} to {container}: {done.stderr.strip()}")
        return any(words in done.stderr for words in ("cannot express", "cannot be written", "no tokenizer"))
    try:
        found = ENGINES[container](out)
    except (Exception, SystemExit) as e:  # noqa: BLE001 - of whatever engine
        print(f"{model.name} to {container}: the engine says {type(e).__name__}: {str(e)[:200]}")
        return False
    want = engines.hearth_logits(hearth, model, IDS, folder, *engines.REFERENCE).reshape(len(IDS), -1)
    difference = abs(found - want).max() / abs(want).max()
    print(f"{model.name} to {container}: largest difference {difference:.1e} of the largest logit")
    return difference <= MOST[container]


def containers_of(model):
    if model.suffix == ".gguf":
        return ("safetensors",) if model.parent.name == FAMILIES.name else ("safetensors", "mlx")
    if model.parent.name == FAMILIES.name:
        return ("safetensors",)
    config = json.loads((model / "config.json").read_text())
    if not any(config.get(key) for key in ("num_experts", "num_local_experts")):
        return ("gguf",)
    return ("gguf", "safetensors", "mlx") if "quantization" in config else ("gguf", "safetensors")


def main():
    hearth, *models = sys.argv[1:]
    models = [pathlib.Path(m) for m in models]
    models = models or sorted(p for d in (TINY, FAMILIES) for p in d.iterdir() if p.suffix == ".gguf" or p.is_dir())
    bad = 0
    for model in models:
        for container in containers_of(model):
            with tempfile.TemporaryDirectory() as folder:
                bad += not check(hearth, model, container, pathlib.Path(folder))
    print(f"{bad} failed")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
