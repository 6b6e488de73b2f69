"""Makes the seed files of fuzz_gguf and fuzz_safetensors from independent writers (pip install gguf safetensors numpy).

    python3 tests/fuzz/make_corpus.py tests/fuzz/corpus"""
import json
import pathlib
import struct
import sys

import gguf
import numpy as np
from safetensors.numpy import save

out = pathlib.Path(sys.argv[1])
ggufs, tensors = out / "fuzz_gguf", out / "fuzz_safetensors"
for folder in (ggufs, tensors):
    folder.mkdir(parents=True, exist_ok=True)
rng = np.random.default_rng(0)


def write_gguf(name, fill, alignment=None):
    w = gguf.GGUFWriter(ggufs / name, "llama")
    if alignment:
        w.add_custom_alignment(alignment)
    fill(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def every_value(w):
    w.add_uint8("u8", 1), w.add_int8("i8", -1), w.add_uint16("u16", 2), w.add_int16("i16", -2)
    w.add_uint32("u32", 3), w.add_int32("i32", -3), w.add_uint64("u64", 2**63), w.add_int64("i64", -4)
    w.add_float32("f32", 0.5), w.add_float64("f64", 0.25), w.add_bool("bool", True), w.add_string("string", "text")
    w.add_array("strings", ["", "a", "\u2581the"]), w.add_array("ints", [1, -2, 3]), w.add_array("floats", [0.5, 1.5])
    w.add_array("bools", [True, False])


def tensors_of_types(*names):
    def fill(w):
        for name in names:
            kind = gguf.GGMLQuantizationType[name]
            block, size = gguf.constants.GGML_QUANT_SIZES[kind]
            raw = rng.integers(0, 100, (2, size if block > 1 else size * 4), dtype=np.uint8)
            w.add_tensor(f"{name}.weight", raw, raw_dtype=kind)
    return fill


write_gguf("values.gguf", every_value)
def part(no, *names):
    def fill(w):
        w.add_uint16("split.no", no), w.add_uint16("split.count", 2), w.add_int32("split.tensors.count", 3)
        tensors_of_types(*names)(w)
    return fill


sets = out / "fuzz_gguf_set"
sets.mkdir(parents=True, exist_ok=True)
for folder, names in (("both", (("F32",), ("Q4_0", "MXFP4"))), ("twice", (("F32",), ("F32", "Q8_0")))):
    halves = []
    for no in range(2):
        write_gguf("part.gguf", part(no, *names[no]))
        halves.append((ggufs / "part.gguf").read_bytes())
    (ggufs / "part.gguf").unlink()
    (sets / folder).write_bytes(struct.pack("<I", len(halves[0])) + halves[0] + halves[1])
write_gguf("small_blocks.gguf", tensors_of_types("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"))
write_gguf("k_blocks.gguf", tensors_of_types("Q2_K", "Q6_K"), alignment=8)
write_gguf("codes.gguf", tensors_of_types("IQ4_NL", "MXFP4", "NVFP4", "I32"))
write_gguf("grids.gguf", tensors_of_types("TQ1_0", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ3_S"))
(ggufs / "empty.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 2, 0, 0))

(tensors / "two.safetensors").write_bytes(
    save({"a.weight": np.ones((2, 3), np.float32), "b": np.zeros((2, 0, 4), np.float16)}, {"format": "pt"}))
(tensors / "ids.safetensors").write_bytes(save({"ids": np.arange(3), "mask": np.array([True]), "byte": np.array(3, np.uint8)}))
header = json.dumps({"w": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]},
                     "e": {"dtype": "F8_E4M3", "shape": [1, 1, 1, 2], "data_offsets": [2, 4]}}).encode() + b"   "
(tensors / "odd.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\1\2\3\4")
(tensors / "empty.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
