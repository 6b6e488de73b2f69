"""Files that commands read and write, read and written without the library."""

import ast
import json
import math
import struct

# Bytes and elements of a block, and the largest error of random weights against their size, by type.
BLOCKS = {
    "F32": (4, 1, 0), "F16": (2, 1, 4e-4), "BF16": (2, 1, 3e-3), "Q4_0": (18, 32, 0.1), "Q4_1": (20, 32, 0.09), "Q5_0": (22, 32, 0.05),
    "Q5_1": (24, 32, 0.045), "Q8_0": (34, 32, 0.006), "Q2_K": (84, 256, 0.32), "Q3_K": (110, 256, 0.17), "Q4_K": (144, 256, 0.08),
    "Q5_K": (176, 256, 0.04), "Q6_K": (210, 256, 0.02), "IQ4_NL": (18, 32, 0.09), "IQ4_XS": (136, 256, 0.09), "MXFP4": (17, 32, 0.13),
}  # fmt: skip
GGML = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K",
        14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS", 30: "BF16", 39: "MXFP4"}  # fmt: skip


class Npy:
    """Shape and values of a NumPy array, version 1.0 of the format."""

    def __init__(self, data):
        (length,) = struct.unpack("<H", data[8:10])
        header = ast.literal_eval(data[10 : 10 + length].decode())
        assert data[:8] == b"\x93NUMPY\x01\x00" and not header["fortran_order"]
        self.shape, kind = header["shape"], {"<f4": "f", "<i4": "i"}[header["descr"]]
        self.values = struct.unpack(f"<{math.prod(self.shape)}{kind}", data[10 + length :])

    def rows(self):
        """Along the last axis."""
        n = self.shape[-1]
        return [list(self.values[at : at + n]) for at in range(0, len(self.values), n)]


def safetensors(path):
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    return {k: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]])
            for k, t in header.items() if k != "__metadata__"}  # fmt: skip


def write_safetensors(path, tensors, metadata=None):
    header, data = {"__metadata__": metadata or {}}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_lora(folder, pairs, rank=1, metadata=None, **config):
    """An adapter of PEFT, of the values of A and B by module."""
    tensors = {}
    for module, (a, b) in pairs.items():
        for part, shape, values in ("A", [rank, len(a) // rank], a), ("B", [len(b) // rank, rank], b):
            name, content = f"base_model.model.{module}.lora_{part}.weight", struct.pack(f"<{len(values)}f", *values)
            tensors[name] = "F32", shape, content
    folder.mkdir()
    write_safetensors(folder / "adapter_model.safetensors", tensors, metadata)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 1, **config}))
    return folder


class Gguf:
    """Metadata and tensors of a GGUF file: type, dimensions and bytes of each, and where these begin."""

    def __init__(self, path):
        data, at, self.values, self.tensors, self.begin = path.read_bytes(), 24, {}, {}, {}
        _, version, n_tensors, n_values = struct.unpack_from("<4sIQQ", data)
        assert data[:4] == b"GGUF" and version == 3

        def take(form):
            nonlocal at
            out = struct.unpack_from("<" + form, data, at)
            at += struct.calcsize("<" + form)
            return out[0] if len(out) == 1 else out

        def string():
            nonlocal at
            n = take("Q")
            at += n
            return data[at - n : at].decode()

        def value(kind):
            if kind == 9:
                item, n = take("IQ")
                return [value(item) for _ in range(n)]
            return string() if kind == 8 else take({0: "B", 4: "I", 5: "i", 6: "f", 7: "?"}[kind])

        for _ in range(n_values):
            key = string()
            self.values[key] = value(take("I"))
        entries = []
        for _ in range(n_tensors):
            name, n = string(), take("I")
            dims = struct.unpack_from(f"<{n}Q", data, at)
            at += 8 * n
            entries.append((name, dims, *take("IQ")))
        begin = -(-at // 32) * 32
        for name, dims, kind, offset in entries:
            size, elements, _ = BLOCKS[GGML[kind]]
            n = math.prod(dims) // elements * size
            assert begin + offset + n <= len(data)
            self.begin[name] = begin + offset
            self.tensors[name] = GGML[kind], dims, data[begin + offset : begin + offset + n]

    def types(self):
        return {name: kind for name, (kind, dims, _) in self.tensors.items() if len(dims) > 1}
