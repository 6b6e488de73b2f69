#!/usr/bin/env python3
"""Writes the corpus of tests/fuzz/fuzz_npz.c: small archives of every form that is read, as Python's zipfile writes them."""

import io
import pathlib
import zipfile

FOLDER = pathlib.Path(__file__).parent / "corpus/fuzz_npz"


def npy(values):
    text = f"{{'descr': '<i2', 'fortran_order': False, 'shape': ({len(values)},), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    elements = b"".join(v.to_bytes(2, "little") for v in values)
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + elements


def write(name, entries, how, comment=b"", wide=False):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", how) as archive:
        archive.comment = comment
        for entry, values in entries.items():
            with archive.open(zipfile.ZipInfo(entry), "w", force_zip64=wide) as f:
                f.write(npy(values))
            archive.getinfo(entry).compress_type = how
    (FOLDER / name).write_bytes(data.getvalue())


FOLDER.mkdir(parents=True, exist_ok=True)
write("empty", {}, zipfile.ZIP_STORED)
write("stored", {"a.npy": range(9), "b.npy": [1]}, zipfile.ZIP_STORED)
write("wide", {"a.npy": range(9)}, zipfile.ZIP_STORED, wide=True)
write("comment", {"a": range(3)}, zipfile.ZIP_STORED, b"a comment")
for name, many in (("deflated", range(5)), ("repeated", [7] * 20000)):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("a.npy"), npy(many), zipfile.ZIP_DEFLATED)
    (FOLDER / name).write_bytes(data.getvalue())
