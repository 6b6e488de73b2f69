"""Reads the fields of a GGUF, with Python's standard library. The package gguf would take most of a minute for a large vocabulary,
as it makes an array of each text."""

import mmap
import struct

SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # types, as struct names them
STRING, ARRAY = 8, 9


def value_at(data, at, kind):
    """A value, and where it ends."""
    if kind == STRING:
        begin = at + 8
        end = begin + struct.unpack_from("<Q", data, at)[0]
        return data[begin:end].decode(), end
    n, is_list = 1, kind == ARRAY
    if is_list:
        (kind, n), at = struct.unpack_from("<IQ", data, at), at + 12
    if kind in SCALARS:
        form = f"<{n}{SCALARS[kind]}"
        values, at = struct.unpack_from(form, data, at), at + struct.calcsize(form)
        return list(values) if is_list else values[0], at
    values = []
    for _ in range(n):
        value, at = value_at(data, at, kind)
        values.append(value)
    return values, at


def read(path):
    """All fields, by name."""
    fields = {}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        magic, _, _, n_fields = struct.unpack_from("<4sIQQ", data)
        if magic != b"GGUF":
            raise ValueError(f"{path} is not a GGUF file")
        at = struct.calcsize("<4sIQQ")
        for _ in range(n_fields):
            name, at = value_at(data, at, STRING)
            fields[name], at = value_at(data, at + 4, *struct.unpack_from("<I", data, at))
    return fields
