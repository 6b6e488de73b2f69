"""Quantising beside llama.cpp, in turns, on this machine: sizes, divergence and time of the same types from the same floats.

    python3 bench/quantize.py [--types TYPE,...] [--text FILE] [--threads 2] [--json FILE] MODEL.gguf...

Run it with a Python that has llama-cpp-python. Each model is written as float32 first (`hearth quantize MODEL F32 --to f32 --pure`), from
which both quantise. The divergence is the mean KL of the next-token distribution, in nats, from the model's own, over the text in windows of
256 (`hearth eval --kl-vs`); the default text is that of tests/golden/kl.py, cut to 9,000 characters. Time is that of the processors, in the
program and the system, less what Python takes to load llama.cpp. The exit status is 1 when a file is larger or diverges more.
"""

import argparse
import ctypes
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEARTH = os.environ.get("HEARTH", ROOT / "build/release/bin/hearth")
sys.path.insert(0, str(ROOT / "tests/golden"))

# llama.h's llama_ftype
FILE_TYPES = {
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14,
    "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30,
}  # fmt: skip
USUAL = "Q4_0,Q4_K_M,Q5_K_M,Q3_K_M,IQ4_XS,Q6_K,Q2_K,Q8_0"
# A file of blocks of the very type, as floats: they are found again but for one in hundreds.
SLACK = 0.0001


def quantize_by_llama(source, target, kind, threads):
    """In a process of its own."""
    from llama_cpp import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, None)
    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype, how.nthread, how.allow_requantize = FILE_TYPES[kind], threads, True
    sys.exit(llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(how)) != 0)


def processor_seconds(*command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def divergence(model, original, text):
    words = "--text", text, "--ctx", "256", "--kl-vs", original, "--json", "-q", "--device", "cpu"
    done = subprocess.run([HEARTH, "eval", model, *words], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["kl_mean"]


def measure(model, types, text, threads, folder):
    floats, ours, theirs = folder / "f32.gguf", folder / "hearth.gguf", folder / "llama.gguf"
    processor_seconds(HEARTH, "quantize", model, floats, "--to", "f32", "--pure", "-q", "--force")
    loading = min(processor_seconds(sys.executable, "-c", "from llama_cpp import llama_cpp") for _ in range(2))
    for kind in types:
        row = {"model": model.stem, "type": kind}
        row["llama_seconds"] = (
            processor_seconds(sys.executable, __file__, "--by-llama", floats, theirs, kind, threads) - loading
        )
        row["hearth_seconds"] = processor_seconds(HEARTH, "quantize", floats, ours, "--to", kind, "-q", "--force", "-t", threads)
        row["llama_bytes"], row["hearth_bytes"] = theirs.stat().st_size, ours.stat().st_size
        row["llama_kl"], row["hearth_kl"] = (divergence(f, model, text) for f in (theirs, ours))
        print(
            f"| {row['model']} | {kind} | {row['llama_kl']:.5f} | {row['hearth_kl']:.5f} | {row['llama_seconds']:.2f} | "
            f"{row['hearth_seconds']:.2f} | {row['hearth_bytes'] - row['llama_bytes']:+d} |",
            flush=True,
        )
        yield row


def main():
    if sys.argv[1:2] == ["--by-llama"]:
        quantize_by_llama(*sys.argv[2:5], int(sys.argv[5]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path, metavar="MODEL.gguf")
    parser.add_argument("--types", default=USUAL)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = a.text
        if not text:
            import kl

            text = folder / "text"
            text.write_text(kl.prose()[:9000])
        print("| model | type | KL of llama.cpp | of Hearth | seconds of llama.cpp | of Hearth | bytes more |\n" + "|---" * 7 + "|")
        rows = [row for m in a.models for row in measure(m, a.types.split(","), text, a.threads, folder)]
    if a.json:
        a.json.write_text(json.dumps(rows, indent=1))
    bad = [r for r in rows if r["hearth_bytes"] > r["llama_bytes"] or r["hearth_kl"] > r["llama_kl"] + SLACK]
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
