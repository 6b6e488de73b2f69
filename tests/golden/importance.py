"""Whether the importance weights that Hearth gathers are those of llama.cpp: sums over the inputs of its matrix products.

    python tests/golden/importance.py DIRECTORY [--hearth build/release/bin/hearth] [--tokens 2048] [--models NAME,...]

For each model of DIRECTORY (the names in make_real.py) both compute the same ids in windows of 512. llama.cpp's products are
seen by the callback that its own tool for importance matrices uses. Printed is, over all matrices, the largest difference
of a mean square in units of the matrix's largest, and the mean of their relative differences. llama.cpp rounds activations to 8
bits, so that what follows the first layer differs a little. Needs numpy, gguf, llama_cpp.
"""

import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from kl import MODELS, prose

WINDOW = 512
MOST = 0.05  # that llama.cpp's rounding explains


class Tensor(ctypes.Structure):
    """ggml_tensor of ggml.h."""


Tensor._fields_ = [
    ("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * 4), ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int), ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(Tensor) * 10), ("view_src", ctypes.c_void_p), ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p), ("name", ctypes.c_char * 64), ("extra", ctypes.c_void_p), ("padding", ctypes.c_char * 8),
]  # fmt: skip


def matrix_product():
    """The number of MUL_MAT among ggml's operations."""
    import llama_cpp._ggml

    describe = llama_cpp._ggml.libggml.ggml_op_name
    describe.restype, describe.argtypes = ctypes.c_char_p, [ctypes.c_int]
    return next(i for i in range(100) if describe(i) == b"MUL_MAT")


def llama_sums(path, windows):
    import llama_cpp

    sums, product = {}, matrix_product()

    def see(pointer, ask, _):
        t = ctypes.cast(pointer, ctypes.POINTER(Tensor)).contents
        if t.op != product:
            return False if ask else True
        name, x = t.src[0].contents.name.decode(), t.src[1].contents
        if not name.endswith(".weight") or x.type != 0:
            return False if ask else True
        if not ask:
            assert x.ne[2] == x.ne[3] == 1 and x.nb[0] == 4
            rows = np.ctypeslib.as_array(ctypes.cast(x.data, ctypes.POINTER(ctypes.c_float)), (x.ne[1], x.nb[1] // 4))
            squares = (rows[:, : x.ne[0]].astype(np.float64) ** 2).sum(0)
            sums[name] = sums.get(name, 0) + squares
        return True

    silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = WINDOW
    callback = llama_cpp.ggml_backend_sched_eval_callback(see)
    params.cb_eval = callback
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(WINDOW, 0, 1)
    for ids in windows:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
            batch.seq_id[i][0] = 0
        if llama_cpp.llama_decode(context, batch):
            raise SystemExit(f"{path}: llama.cpp does not compute it")
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return sums


def hearth_sums(command, path, ids, folder):
    import gguf

    out = pathlib.Path(folder) / "imatrix.gguf"
    (pathlib.Path(folder) / "ids").write_text(",".join(map(str, ids)))
    with open(pathlib.Path(folder) / "ids") as source:
        subprocess.run([command, "imatrix", path, "--ids", "-", "--ctx", str(WINDOW), "--out", out, "--force", "-q"], check=True,
                       stdin=source, stdout=subprocess.DEVNULL)
    tensors = {t.name: np.array(t.data, np.float64).ravel() for t in gguf.GGUFReader(out).tensors}
    return {n.removesuffix(".in_sum2"): x for n, x in tensors.items() if n.endswith(".in_sum2")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--hearth", default="build/release/bin/hearth")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--models", default=",".join(MODELS))
    args = parser.parse_args()
    worst = 0
    for name in args.models.split(","):
        path = args.directory / f"{name}.gguf"
        text = subprocess.run([args.hearth, "tokenize", path], input=prose().encode(), capture_output=True, check=True)
        ids = [int(i) for i in text.stdout.split()][: args.tokens]
        theirs = llama_sums(path, [ids[at : at + WINDOW] for at in range(0, len(ids), WINDOW)])
        with tempfile.TemporaryDirectory() as folder:
            ours = hearth_sums(args.hearth, path, ids, folder)
        if set(ours) != set(theirs):
            raise SystemExit(f"{name}: other matrices: {sorted(set(ours) ^ set(theirs))[:9]}")
        most = {n: abs(ours[n] - x).max() / x.max() for n, x in theirs.items()}
        mean = np.mean([np.mean(abs(ours[n] - x) / x.clip(1e-9 * x.max())) for n, x in theirs.items()])
        where = max(most, key=most.get)
        first = max(m for n, m in most.items() if n.startswith("blk.0.attn_q"))
        print(f"{name}: {len(ids)} tokens, {len(ours)} matrices, at most {most[where]:.2g} ({where}), "
              f"{first:.2g} of the first, {mean:.2g} in the mean")
        worst = max(worst, most[where])
    sys.exit(1 if worst > MOST else 0)


if __name__ == "__main__":
    main()
