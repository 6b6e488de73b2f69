"""Makes a dense checkpoint in Hugging Face layout from a GGUF file.

    python bench/make_dense.py MODEL.gguf DIRECTORY [--dtype bf16|f16|f32]

The weights are dequantised and rounded to the type that was asked for; the directory gets config.json, model.safetensors,
tokenizer.json and what else `transformers` writes, so that both it and Hearth load the same checkpoint. Names and shapes
are put back by tests/golden/make_real.py, which knows what a GGUF file changes. Needs torch, transformers and gguf.
"""

import argparse
import pathlib
import sys

import torch
from transformers import AutoTokenizer

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "golden"))
import make_real  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def make(gguf_path, directory, dtype):
    gguf_path, directory = pathlib.Path(gguf_path), pathlib.Path(directory)
    model, file = make_real.load(gguf_path)
    for key, of in [("eos_token_id", "eos_token_id"), ("bos_token_id", "bos_token_id")]:
        token = file.get(f"tokenizer.ggml.{of}")
        setattr(model.config, key, token)
        setattr(model.generation_config, key, token)
    model.to(DTYPES[dtype]).save_pretrained(directory)
    AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name).save_pretrained(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf")
    parser.add_argument("directory")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    arguments = parser.parse_args()
    make(arguments.gguf, arguments.directory, arguments.dtype)


if __name__ == "__main__":
    main()
