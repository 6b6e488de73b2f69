"""Makes the seed files of fuzz_pull: listings in the form of the Hugging Face hub's, names, indices and heads of answers.

    python3 tests/fuzz/make_pull_corpus.py tests/fuzz/corpus/fuzz_pull"""
import json
import pathlib
import sys

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)


def entry(path, lfs=True):
    listed = {"type": "file", "path": path, "size": 10, "oid": "a" * 40}
    return {**listed, "lfs": {"oid": "b" * 64, "size": 10}} if lfs else listed


def write(file, listing, name, index="", head=()):
    parts = [json.dumps(listing, separators=(",", ":")), name, index, "".join(line + "\r\n" for line in head)]
    (out / file).write_bytes("\0".join(parts).encode())


SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
FOLDER = {"type": "directory", "path": "onnx", "size": 0, "oid": "c" * 40}
CONFIG = entry("config.json", lfs=False)
LINK = 'Link: <http://hub/a?b=c>; rel="next", <x>; rel="first"'
write("shards", [CONFIG, entry("model.safetensors.index.json", lfs=False), *map(entry, SHARDS), entry("tokenizer.json"), FOLDER], "org/repo",
      json.dumps({"weight_map": dict(zip("ab", SHARDS))}),
      ["HTTP/1.1 206 Partial Content", 'ETag: "abc"', "Content-Range: bytes 5-9/10", "Retry-After: 7", LINK])  # fmt: skip
write("single", [CONFIG, entry("model.safetensors")], "hf.co/org/repo@main", "",
      ["HTTP/2 503", "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", "X-Error-Code: GatedRepo", "X-Error-Message: no"])  # fmt: skip
write("quants", [entry("m-Q4_K_M.gguf"), entry("m-Q8_0.gguf"), entry("m-UD-Q2_K_XL.gguf"), CONFIG], "org/repo:Q8_0@v1", "",
      ['ETag: W/"x"', "Content-Range: bytes */10"])  # fmt: skip
PARTS = [f"Q4_K_M/m-Q4_K_M-0000{i}-of-00002.gguf" for i in (1, 2)]
write("parts", [*map(entry, PARTS)], f"https://huggingface.co/org/repo/blob/main/{PARTS[1]}?download=true")
write("traversal", [entry("../x"), entry("a//b")], "org/repo")
