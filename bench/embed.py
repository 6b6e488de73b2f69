"""Embeddings beside sentence-transformers and llama.cpp, in turns, on this machine: cosines, order, speed and memory.

    python3 bench/embed.py [--only accuracy|speed] [--rounds 9] [--threads 2] [--texts 1000] [--words 20] [--dtype f32]
                           [--precision high] [--hearth BIN] [--python PYTHON] [--json FILE] MODEL

MODEL is a directory of sentence-transformers; PYTHON is one that has torch, sentence-transformers, numpy and llama-cpp-python, without
which llama.cpp is left out.

Accuracy: texts of every length and script, odd Unicode among them. Printed are the lowest cosine of a text's vector with that of
sentence-transformers, and how many of the pairs of 10,000 cosines have another order than in f64, and by how much they differ there; the
same of torch's f32, one text at a time and 64 at once. Then the cosines of files that `hearth quantize` writes to the model's own vectors.

Speed: sentences of English, 64 at once, in processes that have loaded their model and that take turns. Printed are medians of
ratios of neighbouring rounds, also of processor time, which with --threads 1 means something on a busy machine, too; and the peak of each
process's memory. --dtype f16 converts the model first, for Hearth and llama.cpp. The exit status is 1 when a gate does not hold.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import engines

ROOT = engines.HERE.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
BATCH, PAIRS, WORDS = 64, 10000, 20
QUANTIZED = "Q8_0", "Q4_K_M"
LEAST_COSINE, NEXT_TO_TORCH, NEXT_TO_LLAMA, MEMORY = 0.99999, 3.0, 2.0, 0.5
INVERTED_BY = 1e-6  # of cosines in f32, closer ones are ties
TIE = 1e-12  # of cosines in f64: of pairs that are drawn twice, and of texts with the same tokens


# ---- in processes of their own: a model that embeds what standard input says ----


def peak_bytes():
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024


def load_hearth(path, threads, how):
    sys.path.insert(0, str(ROOT / "python"))
    import hearth

    precision, context = how.split(",")
    model = hearth.load(path, threads=threads, precision=precision, context=int(context), slots=BATCH)
    return lambda texts, _: model.embed(texts, truncate=True)


def load_torch(path, threads, dtype):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(path, device="cpu", model_kwargs={"dtype": getattr(torch, dtype)})
    return lambda texts, batch: model.encode(texts, batch_size=batch, normalize_embeddings=True)


def load_llama(path, threads, tokens):
    """Steps of at most 64 texts and as many tokens; without a cache, as its own embedding program does it."""
    import llama_cpp
    import numpy as np

    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)  # lives as long as `embed`
    llama_cpp.llama_log_set(quiet, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    vocab, width = llama_cpp.llama_model_get_vocab(model), llama_cpp.llama_model_n_embd(model)
    how = llama_cpp.llama_context_default_params()
    how.n_ctx = how.n_batch = how.n_ubatch = int(tokens)
    how.n_seq_max, how.n_threads, how.n_threads_batch, how.embeddings = BATCH, threads, threads, True
    how.kv_unified = True
    context, ids = llama_cpp.llama_init_from_model(model, how), (llama_cpp.llama_token * int(tokens))()
    batch = llama_cpp.llama_batch_init(int(tokens), 0, 1)

    def encode(text):
        data = text.encode()
        return ids[: llama_cpp.llama_tokenize(vocab, data, len(data), ids, len(ids), True, False)]

    def embed(texts, _, quiet=quiet):
        out, rows = np.empty((len(texts), width), np.float32), [encode(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        while order:
            batch.n_tokens, taken = 0, []
            while order and len(taken) < BATCH and batch.n_tokens + len(rows[order[-1]]) <= how.n_batch:
                for position, token in enumerate(rows[order[-1]]):
                    i = batch.n_tokens
                    batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, True
                    batch.seq_id[i][0] = len(taken)
                    batch.n_tokens = i + 1
                taken.append(order.pop())
            if llama_cpp.llama_encode(context, batch):
                sys.exit("llama_encode failed")
            for slot, i in enumerate(taken):
                out[i] = np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_seq(context, slot), shape=(width,))
        return out / np.linalg.norm(out, axis=1, keepdims=True)

    return embed


def serve(engine, path, threads, how):
    """Answers each line of standard input, {"texts", "batch", "out"}, with the seconds that its vectors take."""
    import numpy as np

    embed = {"hearth": load_hearth, "torch": load_torch, "llama.cpp": load_llama}[engine](path, int(threads), how)
    for line in sys.stdin:
        asked = json.loads(line)
        begin, spent = time.perf_counter(), time.process_time()
        vectors = embed(asked["texts"], asked["batch"])
        seconds, spent = time.perf_counter() - begin, time.process_time() - spent
        if asked["out"]:
            np.save(asked["out"], np.asarray(vectors))
        print(json.dumps({"seconds": seconds, "processor_seconds": spent, "peak_bytes": peak_bytes()}), flush=True)


class Engine:
    def __init__(self, o, engine, path, how):
        environment = dict(os.environ, OMP_NUM_THREADS=str(o.threads), TOKENIZERS_PARALLELISM="true", HF_HUB_OFFLINE="1",
                           HEARTH_LIBRARY=str(pathlib.Path(o.hearth).parent.parent / "lib" / "libhearth.so"))  # fmt: skip
        command = [o.python, __file__, "--serve", engine, path, o.threads, how]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL if engine == "torch" else None, text=True, env=environment)  # fmt: skip

    def embed(self, texts, batch=BATCH, out=None):
        self.process.stdin.write(json.dumps({"texts": texts, "batch": batch, "out": out and str(out)}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline() or sys.exit("a process of the comparison has ended"))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


# ---- texts ----


def words_of_prose():
    import kl

    return kl.prose().split()


def sentences(n, length=WORDS):
    """English sentences of `words` words on average, from half to one and a half times as many."""
    words, rng = words_of_prose(), random.Random(1)
    return [" ".join(words[at : at + rng.randint(length // 2, length * 3 // 2)]) for at in
            (rng.randrange(len(words) - 2 * length) for _ in range(n))]  # fmt: skip


def varied(n):
    """Half odd texts, half English of 1 to 600 words; none twice."""
    import tokenizer_texts

    words, rng = words_of_prose(), random.Random(1)
    texts = [data.decode(errors="replace") for data in tokenizer_texts.make_texts(n // 2, [], words)]
    while len(texts := list(dict.fromkeys(texts))) < n:
        at = rng.randrange(len(words) - 600)
        texts.append(" ".join(words[at : at + int(600 ** rng.random())]))
    return texts


# ---- accuracy ----


def inversions(exact, other):
    """Pairs that `other` orders otherwise, and the most by which such a pair differs in `exact`."""
    import numpy as np

    order = np.argsort(exact, kind="stable")
    x, y, count, gap = exact[order], other[order], 0, 0.0
    for i in range(len(x)):
        lower = (y[i + 1 :] < y[i]) & (x[i + 1 :] > x[i] + TIE)
        count += int(lower.sum())
        if lower.any():
            gap = max(gap, float(x[i + 1 :][lower][-1] - x[i]))
    return count, gap


def accuracy(o, folder):
    import numpy as np

    texts, rng = varied(o.texts), np.random.default_rng(1)
    # GGUF files do not say at how many tokens sentence-transformers cuts texts.
    limit = json.loads((pathlib.Path(o.model) / "sentence_bert_config.json").read_text())["max_seq_length"]
    a, b = rng.integers(0, len(texts), (2, PAIRS))
    a, b = a[a != b], b[a != b]

    def vectors(engine, path, how, batch=BATCH):
        out, e = folder / "vectors.npy", Engine(o, engine, path, how)
        e.embed(texts, batch, out)
        e.end()
        v = np.load(out).astype(np.float64)
        return v / np.linalg.norm(v, axis=1, keepdims=True)

    def cosines(v):
        return (v[a] * v[b]).sum(1)

    exact = vectors("torch", o.model, "float64")
    torch = vectors("torch", o.model, "float32")
    own = vectors("hearth", o.model, f"{o.precision},{limit}")
    results = {}
    print(f"{len(texts)} texts, {len(a)} pairs of them\n\n{'':24}{'lowest cosine':>16}{'pairs inverted':>16}{'by at most':>12}")
    for name, v in [("torch f32, one by one", vectors("torch", o.model, "float32", 1)), ("torch f32, 64 at once", torch),
                    (f"hearth {o.precision}", own)]:  # fmt: skip
        count, gap = inversions(cosines(exact), cosines(v))
        results[name] = {"lowest_cosine": float((v * exact).sum(1).min()), "inverted": count, "inverted_by": gap}
        print(f"{name:24}{results[name]['lowest_cosine']:16.9f}{count:16}{gap:12.1e}")
    lowest = float((own * torch).sum(1).min())
    print(f"\n{lowest:.9f} is the lowest cosine of hearth with torch f32")
    for kind in QUANTIZED:
        path = folder / f"{kind}.gguf"
        engines.run([o.hearth, "quantize", o.model, path, "--to", kind, "-q"])
        cosine = (vectors("hearth", path, f"{o.precision},{limit}") * exact).sum(1)
        results[kind] = {"lowest_cosine": float(cosine.min()), "mean_cosine": float(cosine.mean()), "bytes": path.stat().st_size}
        print(f"{kind:8} {path.stat().st_size / 1e6:6.1f} MB, cosine {cosine.mean():.5f} in the mean, {cosine.min():.5f} at least")
    failed = lowest < LEAST_COSINE or results[f"hearth {o.precision}"]["inverted_by"] > INVERTED_BY
    return failed, results


# ---- speed ----


def speed(o, folder):
    texts, failed = sentences(o.texts, o.words), False
    gguf = folder / "model.gguf"
    engines.run([o.hearth, "convert", o.model, gguf, "--to", "gguf", "--dtype", o.dtype, "-q"])
    of = {"hearth": Engine(o, "hearth", gguf, f"{o.precision},0"), "torch": Engine(o, "torch", o.model, "float32")}
    if not engines.lacks(o.python, "llama_cpp"):
        of |= {f"llama.cpp {n}": Engine(o, "llama.cpp", gguf, n) for n in o.ubatch}
    for engine in of.values():
        engine.embed(texts)
    rounds = {name: [] for name in of}
    for i in range(o.rounds):
        for name in sorted(of, reverse=i % 2 == 1):
            rounds[name].append(of[name].embed(texts))
    for engine in of.values():
        engine.end()
    print(f"{len(texts)} texts of {o.words} words, {BATCH} at once, {o.threads} threads, medians of {o.rounds} rounds\n")
    peak = {name: r[-1]["peak_bytes"] for name, r in rounds.items()}
    for name, r in rounds.items():
        ratio, of_processors = (statistics.median(x[key] / h[key] for x, h in zip(r, rounds["hearth"]))
                                for key in ("seconds", "processor_seconds"))  # fmt: skip
        least = {"hearth": 0, "torch": NEXT_TO_TORCH}.get(name, NEXT_TO_LLAMA)
        failed = failed or ratio < least
        print(f"{name:16}{engines.median(r, 'seconds'):8.3f} s, {ratio:5.2f} times hearth's, asked {least}; "
              f"of processors {of_processors:5.2f}; peak {peak[name] / 1e6:5.0f} MB")  # fmt: skip
    print(f"\nmemory of hearth by torch's: {peak['hearth'] / peak['torch']:.2f}, at most {MEMORY}")
    return failed or peak["hearth"] > MEMORY * peak["torch"], rounds


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--only", choices=["accuracy", "speed"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--words", type=int, default=WORDS, help="of a text whose speed is measured")
    parser.add_argument("--dtype", default="f32", help="of the weights whose speed is measured")
    parser.add_argument("--ubatch", type=int, nargs="*", default=[512, 2048], help="tokens per step of llama.cpp")
    parser.add_argument("--precision", default="high")
    parser.add_argument("--hearth", default=ROOT / "build/release/bin/hearth")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", type=pathlib.Path)
    o = parser.parse_args()
    failed, results = False, {}
    with tempfile.TemporaryDirectory() as folder:
        for part in (accuracy, speed):
            if o.only in (None, part.__name__):
                bad, results[part.__name__] = part(o, pathlib.Path(folder))
                failed = failed or bad
    if o.json:
        o.json.write_text(json.dumps(results, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
