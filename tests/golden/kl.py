"""How far precisions and caches are from exact arithmetic: mean KL divergence over English text, beside llama.cpp's.

    python tests/golden/kl.py DIRECTORY [--hearth build/release/bin/hearth] [--tokens 3072] [--models NAME,...]
                              [--settings PRECISION/CACHE,...] [--skip-llama-cpp] [--work /tmp]

For each model of DIRECTORY (the names in make_real.py) the text is cut into windows of 512 tokens. `hearth logits` is asked
with `--precision reference --kv f32`, which is exact, and with each of SETTINGS; llama.cpp (llama_cpp from PyPI) with the
file as it is and with all its tensors dequantised to float32. Printed is the mean over all positions of
KL(exact || other) in nats. The text is the prose of the Python language reference that every Python carries
(pydoc_data.topics), so that nothing is committed or fetched. Needs numpy; for llama.cpp also gguf, llama_cpp.
"""

import argparse
import pathlib
import re
import subprocess
import sys

import numpy as np

import engines

WINDOW = 512
SETTINGS = (("high", "f16"), ("high", "f32"), ("high", "bf16"), ("high", "q8"), ("fast", "f16"))  # precision and cache
MODELS = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b")
TOPICS = ("objects", "naming", "exceptions", "imports", "types", "class", "function", "with", "try", "customization",
          "attribute-access", "context-managers", "dynamic-features", "execmodel", "import", "global", "truth")


def prose():
    """Paragraphs that read as English: no code, no grammar, no tables."""
    from pydoc_data.topics import topics

    paragraphs = []
    for name in TOPICS:
        for p in topics.get(name, "").split("\n\n"):
            p = " ".join(p.split())
            words = re.findall(r"[A-Za-z']+", p)
            if len(words) > 25 and "::=" not in p and ">>>" not in p and p not in paragraphs:
                paragraphs.append(p)
    return "\n\n".join(paragraphs)


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergences(exact, other):
    out = []
    for i in range(0, len(exact), 32):
        p, q = log_softmax(exact[i:i + 32]), log_softmax(other[i:i + 32])
        out.append((np.exp(p) * (p - q)).sum(-1))
    return np.concatenate(out)


class Hearth:
    def __init__(self, command, model, work):
        self.command, self.model, self.work = command, model, work

    def tokenize(self, text):
        run = subprocess.run([self.command, "tokenize", self.model, "--add-special"], input=text.encode(),
                             stdout=subprocess.PIPE, check=True)
        return [int(i) for i in run.stdout.split()]

    def logits(self, ids, *options):
        return engines.hearth_logits(self.command, self.model, ids, self.work, *options)

    def windows(self, windows, settings):
        """For each of the settings, the divergences of every window."""
        found = {setting: [] for setting in settings}
        for ids in windows:
            exact = self.logits(ids, *engines.REFERENCE)
            for precision, kv in settings:
                other = self.logits(ids, "--precision", precision, "--kv", kv)
                found[precision, kv].append(divergences(exact, other))
        return found


class LlamaCpp:
    def __init__(self, path, kv=None):
        from llama_cpp import Llama

        types = {"type_k": kv, "type_v": kv} if kv is not None else {}
        self.model = Llama(str(path), n_ctx=WINDOW, n_batch=WINDOW, logits_all=True, n_threads=2, verbose=False, **types)

    def logits(self, ids):
        self.model.reset()
        self.model.eval(ids)
        return np.array(self.model.scores[:len(ids)], np.float32)


def llama_cpp_windows(path, windows, work):
    whole = work / "dequantised.gguf"
    reader, _, weights = engines.read_gguf(path)
    engines.write_gguf(whole, reader, weights)
    try:
        exact, quantised = LlamaCpp(whole, kv=0), LlamaCpp(path)
        for ids in windows:
            yield divergences(exact.logits(ids), quantised.logits(ids))
    finally:
        whole.unlink()


def summary(parts):
    all_ = np.concatenate(list(parts))
    return len(all_), all_.mean(), np.median(all_), np.quantile(all_, 0.99)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("directory", type=pathlib.Path)
    p.add_argument("--hearth", default="build/release/bin/hearth")
    p.add_argument("--tokens", type=int, default=3072)
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--settings", default=",".join("/".join(s) for s in SETTINGS), help="PRECISION/CACHE,...")
    p.add_argument("--skip-llama-cpp", action="store_true")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp"))
    a = p.parse_args()
    text = prose()
    settings = [tuple(s.split("/")) for s in a.settings.split(",")]
    print("| model | engine | tokens | mean KL (nats) | median | 99% |")
    print("|---|---|---|---|---|---|")
    for name in a.models.split(","):
        path = a.directory / f"{name}.gguf"
        hearth = Hearth(a.hearth, str(path), a.work)
        ids = hearth.tokenize(text)
        if len(ids) < a.tokens:
            sys.exit(f"the text has {len(ids)} tokens, {a.tokens} were asked for")
        windows = [ids[i:i + WINDOW] for i in range(0, a.tokens, WINDOW)]
        found = hearth.windows(windows, settings)
        engines = {f"Hearth, {precision}, cache in {kv}": parts for (precision, kv), parts in found.items()}
        if not a.skip_llama_cpp:
            engines["llama.cpp"] = llama_cpp_windows(path, windows, a.work)
        for engine, parts in engines.items():
            n, mean, median, high = summary(parts)
            print(f"| {name} | {engine} | {n} | {mean:.7f} | {median:.7f} | {high:.6f} |", flush=True)


if __name__ == "__main__":
    main()
