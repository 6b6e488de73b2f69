"""Vocabularies ready and English encoded on one thread: Hearth and Hugging Face `tokenizers`, in turns.

    python3 bench/tokenizer.py [--program PATH] [--rounds 5] [--json] MODEL.gguf...

Each round runs bench_tokenizer and a Python process with `tokenizers`, each of which loads the vocabulary (Hearth from
the GGUF, `tokenizers` from the tokenizer.json made of the same vocabulary by tests/golden/tokenizer_reference.py) and
encodes 1 MB of English once: the reference documentation and doc strings that come with Python. Both must find the same
number of ids. Printed are medians and the ratio `tokenizers` / Hearth; then Hearth's speed on 1 MB of texts made to be
hard: one letter, two letters, spaces, line breaks, one accent, random bytes.

Needs tokenizers and gguf, in the Python that runs this or that --python names.
"""

import argparse
import ast
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

import single

TEXT_BYTES = 1_000_000
REFERENCE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"


def english():
    """1 MB of prose in which no paragraph occurs twice."""
    import pydoc_data.topics

    texts = [text for _, text in sorted(pydoc_data.topics.topics.items())]
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        nodes = [n for n in ast.walk(module) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef))]
        texts += [ast.get_docstring(n) or "" for n in nodes]
    paragraphs = dict.fromkeys(p for text in texts for p in text.split("\n\n") if p.strip())
    whole = "\n\n".join(paragraphs).encode()
    if len(whole) < TEXT_BYTES:
        sys.exit(f"this Python's documentation has only {len(whole)} bytes")
    return whole[:TEXT_BYTES].decode(errors="ignore").encode()


def hard_texts():
    draw = random.Random(1)
    letters = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(TEXT_BYTES))
    return {
        "one letter": b"a" * TEXT_BYTES,
        "two letters": b"ab" * (TEXT_BYTES // 2),
        "random letters": letters.encode(),
        "spaces": b" " * TEXT_BYTES,
        "line breaks": b"\n" * TEXT_BYTES,
        "one accent": "e\u0301".encode() * (TEXT_BYTES // 3),
        "one mark": "\u0301".encode() * (TEXT_BYTES // 2),
        "Chinese": "".join(chr(draw.randrange(0x4E00, 0x9FA5)) for _ in range(TEXT_BYTES // 3)).encode(),
        "random bytes": draw.randbytes(TEXT_BYTES),
    }


def measure_peer(vocabulary, texts):
    """Run in a process of its own: prints one JSON object of the same shape as bench_tokenizer."""
    import tokenizers

    begin = time.perf_counter()
    tokenizer = tokenizers.Tokenizer.from_file(vocabulary)
    result = {"ready": time.perf_counter() - begin, "texts": []}
    for path in texts:
        text = pathlib.Path(path).read_text()
        begin = time.perf_counter()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        result["texts"].append({"bytes": len(text.encode()), "ids": len(ids), "seconds": time.perf_counter() - begin})
    print(json.dumps(result))


def run(command):
    environment = dict(os.environ, TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, env=environment).stdout)


def compare(path, program, rounds, python, directory, text):
    made = os.path.join(directory, pathlib.Path(path).stem)
    subprocess.run([python, REFERENCE / "tokenizer_reference.py", path, made], check=True)
    commands = {"hearth": [program, path, text],
                "tokenizers": [python, __file__, "--measure-peer", os.path.join(made, "tokenizer.json"), text]}
    runs = {engine: [] for engine in commands}
    for _ in range(rounds):
        for engine, command in commands.items():
            runs[engine].append(run(command))
    ids = {engine: r[0]["texts"][0]["ids"] for engine, r in runs.items()}
    if len(set(ids.values())) != 1:
        sys.exit(f"{path}: the numbers of ids differ: {ids}")
    result = {engine: {"ready_seconds": statistics.median(x["ready"] for x in r),
                       "encode_seconds": statistics.median(x["texts"][0]["seconds"] for x in r)}
              for engine, r in runs.items()}
    ours, theirs = result["hearth"], result["tokenizers"]
    result["ratio"] = {key: theirs[key] / ours[key] for key in ours}
    return result


def measure(models, program="build/release/bin/bench_tokenizer", rounds=5, python=sys.executable):
    """{model's path: {"hearth": {...}, "tokenizers": {...}, "ratio": {...}, "hard": {name: seconds}}}"""
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        text = os.path.join(directory, "english.txt")
        pathlib.Path(text).write_bytes(english())
        hard = hard_texts()
        files = [os.path.join(directory, name) for name in hard]
        for name, file in zip(hard, files):
            pathlib.Path(file).write_bytes(hard[name])
        for path in map(str, models):
            results[path] = compare(path, program, rounds, python, directory, text)
            results[path]["hard"] = {name: t["seconds"] for name, t in zip(hard, run([program, path, *files])["texts"])}
    return results


def show(results):
    for path, result in results.items():
        print(pathlib.Path(path).name)
        for title, key in [("vocabulary ready", "ready_seconds"), ("1 MB of English", "encode_seconds")]:
            ours, theirs = result["hearth"][key] * 1e3, result["tokenizers"][key] * 1e3
            print(f"  {title:16} hearth {ours:6.1f}  tokenizers {theirs:7.1f} ms  ratio {result['ratio'][key]:.1f}")
        for name, seconds in result["hard"].items():
            print(f"  {name:16} hearth {seconds * 1e3:6.1f} ms")


def main():
    parser = single.parser(__doc__, "program", "build/release/bin/bench_tokenizer", "tokenizers and gguf", rounds=5)
    parser.add_argument("--measure-peer", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.measure_peer:
        measure_peer(o.models[0], o.models[1:])
    else:
        single.print_results(measure(o.models, o.program, o.rounds, o.python), o.json, show)


if __name__ == "__main__":
    main()
