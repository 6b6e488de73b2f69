"""Split checkpoints, and what is merged of them, in the engines that read them: the same bits as of the original.

    python3 tests/golden/split.py build/release/bin/hearth CHECKPOINT ...

Files of GGUF are read by llama.cpp, and their keys by the `gguf` package; directories by mlx-lm where they are quantised as it does,
else by transformers. Needs these.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from convert import in_llama_cpp, in_mlx_lm, in_transformers


def engine_of(model):
    if model.suffix == ".gguf":
        return in_llama_cpp
    return in_mlx_lm if "quantization" in json.loads((model / "config.json").read_text()) else in_transformers


def run(hearth, *words):
    return json.loads(subprocess.run([hearth, *map(str, words), "--json", "-q"], check=True, stdout=subprocess.PIPE).stdout)


def check_keys(model, first, n_files, whole):
    """Every part says which it is; the merged file has the tensors and the metadata of the original, and the mark."""
    want, found = gguf.GGUFReader(model), gguf.GGUFReader(whole)
    n_tensors = len(want.tensors)
    for i in range(n_files):
        part = gguf.GGUFReader(str(first).replace("-00001-of-", f"-{i + 1:05}-of-"))
        keys = gguf.Keys.Split.LLM_KV_SPLIT_NO, gguf.Keys.Split.LLM_KV_SPLIT_COUNT, gguf.Keys.Split.LLM_KV_SPLIT_TENSORS_COUNT
        assert [part.fields[key].contents() for key in keys] == [i, n_files, n_tensors]
        types = [gguf.GGUFValueType.UINT16, gguf.GGUFValueType.UINT16, gguf.GGUFValueType.INT32]
        assert [part.fields[key].types[0] for key in keys] == types
    assert set(found.fields) - set(want.fields) == {"hearth.converted"}
    assert all(found.fields[k].contents() == f.contents() for k, f in want.fields.items() if k != "GGUF.kv_count")
    for a, b in zip(want.tensors, found.tensors, strict=True):
        assert (a.name, a.tensor_type, list(a.shape)) == (b.name, b.tensor_type, list(b.shape))
        assert (a.data == b.data).all()


def check(hearth, model, folder):
    suffix = model.suffix if model.suffix == ".gguf" else ""
    weights = [model] if suffix else model.glob("*.safetensors")
    size = sum(p.stat().st_size for p in weights) // 3
    parts = run(hearth, "split", model, folder / f"parts{suffix}", "--max-size", size)
    whole = run(hearth, "merge", parts["out"], folder / f"whole{suffix}")
    if suffix:
        check_keys(model, parts["out"], parts["files"], whole["out"])
    engine = engine_of(model)
    logits = [engine(pathlib.Path(path)) for path in (model, parts["out"], whole["out"])]
    same = all(np.array_equal(logits[0], other) for other in logits[1:])
    print(f"{model.name}: {parts['files']} files, {'the same logits' if same else 'other logits'} in {engine.__name__[3:]}")
    return same


def main():
    hearth, *models = sys.argv[1:]
    bad = 0
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            bad += not check(hearth, pathlib.Path(model), pathlib.Path(folder))
    print(f"{bad} failed")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
