"""Arrays in files, under the names and formats of `mlx.core`."""

import io
import json
import os
import pathlib
import zipfile
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

from . import _library as lib
from . import _model
from ._array import array, operand
from ._dtype import ALL

__all__ = ["load", "save", "savez", "savez_compressed", "save_safetensors"]

_NAMES = POINTER(c_char_p)
_npy_load = lib.operation("ht_npy_load", c_char_p)
_npy_parse = lib.operation("ht_npy_parse", c_char_p, c_size_t, c_char_p)
_npy_save = lib.declare("ht_npy_save", c_int, c_void_p, c_char_p, c_void_p, c_void_p)
_open = lib.declare("ht_array_file_open", c_int, c_char_p, POINTER(c_void_p), c_void_p)
_close = lib.declare("ht_array_file_close", None, c_void_p)
_count = lib.declare("ht_array_file_count", c_size_t, c_void_p)
_name = lib.declare("ht_array_file_name", c_char_p, c_void_p, c_size_t)
_read = lib.operation("ht_array_file_read", c_void_p, c_size_t)
_metadata = lib.declare("ht_array_file_metadata", c_char_p, c_void_p)
_safetensors_save = lib.declare(
    "ht_safetensors_save", c_int, c_void_p, c_char_p, _NAMES, POINTER(c_void_p), c_int, _NAMES, _NAMES, c_int, c_void_p
)

# ---- loading ----


def _load_npz(path):
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            arrays[name.removesuffix(".npy")] = lib.call(_npy_parse, data, len(data), f"{path}: {name}".encode())
    return arrays


def _value(value):
    """A piece of metadata: text, a list of texts, or numbers as an array."""
    if not isinstance(value, dict):
        return value
    dtype = {"bool": "bool_"}.get(value["dtype"], value["dtype"])
    names = {"u": "uint", "i": "int", "f": "float"}
    name = dtype if dtype == "bool_" else names[dtype[0]] + dtype[1:]
    return array(value["value"], next(d for d in ALL if d.name == name))


def _load_named(path, return_metadata):
    file = c_void_p()
    lib.check(_open, path.encode(), byref(file))
    try:
        arrays = {_name(file, i).decode(): lib.call(_read, file, i) for i in range(_count(file))}
        metadata = json.loads(_metadata(file).decode()) if return_metadata else {}
        return arrays, {key: _value(value) for key, value in metadata.items()}
    finally:
        _close(file)


def load_arrays(file, format=None, return_metadata=False):
    """What `load` gives for a file of arrays."""
    if hasattr(file, "read"):
        data = file.read()
        if data[:6] == b"\x93NUMPY":
            return lib.call(_npy_parse, data, len(data), b"the file")
        return _load_npz(io.BytesIO(data))
    path = os.fspath(file)
    format = format or pathlib.Path(path).suffix[1:]
    if format == "npy":
        return lib.call(_npy_load, path.encode())
    if format == "npz":
        return _load_npz(path)
    if format not in ("safetensors", "gguf"):
        raise ValueError(f"{path}: arrays are loaded from npy, npz, safetensors and gguf, not from {format or 'a file without a suffix'}")
    arrays, metadata = _load_named(path, return_metadata)
    return (arrays, metadata) if return_metadata else arrays


def load(file, /, format=None, return_metadata=False, *, stream=None, **options):
    """Arrays or a model, by what the file is.

    A .npy file gives its array; .npz and .safetensors files give arrays by name. With `return_metadata`, the metadata of a
    safetensors or GGUF file comes second. A directory, or a .gguf file, is a model (`options` as of the model's loader);
    `format="gguf"` or `return_metadata` give a GGUF's tensors as arrays instead."""
    if not hasattr(file, "read"):
        path = pathlib.Path(file)
        gguf_model = path.suffix == ".gguf" and format is None and not return_metadata
        if gguf_model or options or (path.is_dir() and format is None):
            return _model.load(file, **options)
    return load_arrays(file, format, return_metadata)


# ---- saving ----


def _with_suffix(file, suffix):
    path = os.fspath(file)
    return path if path.endswith(suffix) else path + suffix


def save(file, arr):
    """One array as .npy; the suffix is added where it is missing."""
    lib.within(_npy_save, _with_suffix(file, ".npy").encode(), operand(arr))


_HEADER_ROOM = 64


def _npy_bytes(a):
    """As ht_npy_save writes it."""
    code = {"b": "|b", "i": "<i", "u": "<u", "f": "<f"}[a.dtype.kind]
    descr = "<V2" if a.dtype.name == "bfloat16" else f"{code if a.itemsize > 1 else '|' + code[1]}{a.itemsize}"
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {a.shape}, }}"
    text += " " * (-(10 + len(text) + 1) % _HEADER_ROOM) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + a._bytes()


def _savez(file, compression, args, kwargs):
    arrays = {f"arr_{i}": a for i, a in enumerate(args)}
    if twice := arrays.keys() & kwargs.keys():
        raise ValueError(f"the name {min(twice)!r} is that of an array without a name")
    path = _with_suffix(file, ".npz")
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with zipfile.ZipFile(temporary, "w", compression) as archive:
            for name, a in {**arrays, **kwargs}.items():
                archive.writestr(f"{name}.npy", _npy_bytes(operand(a)))
        os.replace(temporary, path)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def savez(file, *args, **kwargs):
    """Several arrays as .npz: those without a name are called arr_0, arr_1, ..."""
    _savez(file, zipfile.ZIP_STORED, args, kwargs)


def savez_compressed(file, *args, **kwargs):
    """The same, compressed."""
    _savez(file, zipfile.ZIP_DEFLATED, args, kwargs)


def _texts(texts):
    return (c_char_p * max(1, len(texts)))(*(t.encode() for t in texts))


def save_safetensors(file, arrays, metadata=None):
    """Arrays by name, and texts by name beside them."""
    metadata = metadata or {}
    for name, a in arrays.items():
        if not isinstance(a, array):
            raise ValueError(f"{name!r} is a {type(a).__name__}, expected an array")
    handles = (c_void_p * max(1, len(arrays)))(*(a._handle for a in arrays.values()))
    lib.within(
        _safetensors_save, _with_suffix(file, ".safetensors").encode(), _texts(list(arrays)), handles, len(arrays),
        _texts(list(metadata)), _texts(list(metadata.values())), len(metadata),
    )  # fmt: skip
