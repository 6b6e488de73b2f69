"""Makes the seed files of fuzz_importance (pip install gguf numpy): importance weights in both forms.

    python3 tests/fuzz/make_importance_corpus.py tests/fuzz/corpus"""
import pathlib
import struct
import sys

import gguf
import numpy as np

out = pathlib.Path(sys.argv[1]) / "fuzz_importance"
out.mkdir(parents=True, exist_ok=True)
DENSE, EXPERTS, FUSED = "blk.0.attn_q.weight", "blk.0.ffn_down_exps.weight", "blk.1.ffn_gate_up_exps.weight"


def write_gguf(name, entries, datasets=("a.txt",), metadata=True):
    w = gguf.GGUFWriter(out / name, "")
    w.kv_data[0].clear()
    w.add_string("general.type", "imatrix")
    if metadata:
        w.add_array("imatrix.datasets", list(datasets))
        w.add_uint32("imatrix.chunk_count", 2)
        w.add_uint32("imatrix.chunk_size", 8)
    for key, (sums, counts) in entries.items():
        w.add_tensor(key + ".in_sum2", np.array(sums, np.float32))
        w.add_tensor(key + ".counts", np.array(counts, np.float32).reshape(-1, 1))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_older(name, entries, tail=b""):
    data = struct.pack("<i", len(entries))
    for key, (calls, values) in entries.items():
        data += struct.pack("<i", len(key)) + key.encode() + struct.pack("<ii", calls, len(values))
        data += struct.pack(f"<{len(values)}f", *values)
    (out / name).write_bytes(data + tail)


write_gguf("dense", {DENSE: ([[1, 2, 3]], [16])})
write_gguf("experts", {DENSE: ([[1, 2, 3]], [16]), EXPERTS: ([[1, 2], [0, 0], [5, 6]], [4, 0, 8]),
                       FUSED: ([[1, 2, 3]] * 3, [4, 0, 8])})  # fmt: skip
write_gguf("one-count", {EXPERTS: ([[1, 2], [3, 4]], [4])})
write_gguf("bare", {"output.weight": ([[0, 0.5]], [1])}, metadata=False)
write_older("older.dat", {DENSE: (2, [2, 4, 6]), EXPERTS: (1, [1, 2, 3, 4])}, struct.pack("<ii", 2, 4) + b"wiki")
write_older("older-bare.dat", {DENSE: (0, [2, 4, 6])})
write_older("older-calls.dat", {DENSE: (3, [2, 4, 6])}, struct.pack("<i", 3))
