"""Arrays in files, under the names and formats of `mlx.core`."""

import copy
import json
import os
import pathlib
import tempfile
from collections.abc import Mapping
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_void_p

from . import _library as lib
from . import _model, _model_backend
from ._array import array, operand
from ._dtype import ALL

__all__ = ["load", "save", "savez", "savez_compressed", "save_safetensors", "save_gguf"]

_NAMES = POINTER(c_char_p)
_npy_load = lib.operation("ht_npy_load", c_char_p)
_npy_parse = lib.operation("ht_npy_parse", c_char_p, c_size_t, c_char_p)
_npy_save = lib.declare("ht_npy_save", c_int, c_void_p, c_char_p, c_void_p, c_void_p)
_open = lib.declare("ht_array_file_open", c_int, c_char_p, POINTER(c_void_p), c_void_p)
_close = lib.declare("ht_array_file_free", None, c_void_p)
_count = lib.declare("ht_array_file_count", c_size_t, c_void_p)
_name = lib.declare("ht_array_file_name", c_char_p, c_void_p, c_size_t)
_read = lib.operation("ht_array_file_read", c_void_p, c_size_t)
_metadata = lib.declare("ht_array_file_metadata", c_char_p, c_void_p)
_npz_save = lib.declare("ht_npz_save", c_int, c_void_p, c_char_p, _NAMES, lib.HELD, c_int, c_bool, c_void_p)
_safetensors_save = lib.declare(
    "ht_safetensors_save", c_int, c_void_p, c_char_p, _NAMES, lib.HELD, c_int, _NAMES, c_int, c_void_p
)
_gguf_save = lib.declare("ht_gguf_save", c_int, c_void_p, c_char_p, _NAMES, lib.HELD, c_int, c_char_p, c_void_p)

# ---- loading ----


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


def _load_open(file, return_metadata):
    """From a file that is open, told by how it begins: npy, or others by way of a file of their own."""
    data = file.read()
    if data[:6] == b"\x93NUMPY":
        return lib.call(_npy_parse, data, len(data), b"the file")
    suffix = ".npz" if data[:2] == b"PK" else ".gguf" if data[:4] == b"GGUF" else ".safetensors"
    with tempfile.NamedTemporaryFile(suffix=suffix) as own:
        own.write(data)
        own.flush()
        arrays, metadata = _load_named(own.name, return_metadata)
    return (arrays, metadata) if return_metadata else arrays


def load_arrays(file, format=None, return_metadata=False):
    """What `load` gives for a file of arrays."""
    if hasattr(file, "read"):
        return _load_open(file, return_metadata)
    path = os.fspath(file)
    format = format or pathlib.Path(path).suffix[1:]
    if format == "npy":
        return lib.call(_npy_load, path.encode())
    if format not in ("npz", "safetensors", "gguf"):
        raise ValueError(f"{path}: arrays are loaded from npy, npz, safetensors and gguf, not from {format or 'a file without a suffix'}")
    arrays, metadata = _load_named(path, return_metadata)
    return (arrays, metadata) if return_metadata else arrays


def load(file, /, format=None, return_metadata=False, *, stream=None, **options):
    """Arrays or a model, by what the file is.

    A .npy file gives its array; .npz and .safetensors files give arrays by name. With `return_metadata`, the metadata of a
    safetensors or GGUF file comes second. A directory, or a .gguf file, is a model (`options` as of the model's loader; with
    `backend="mlx_lm"`, which is mlx-lm in a Python process, `python`, its interpreter, `adapter`, a directory or a pair of one and
    a factor, and `context`, and what comes is a BackendModel); `format="gguf"` or `return_metadata` give a GGUF's tensors as arrays instead."""
    if not hasattr(file, "read"):
        path = pathlib.Path(file)
        gguf_model = path.suffix == ".gguf" and format is None and not return_metadata
        if gguf_model or options or (path.is_dir() and format is None):
            backend = options.pop("backend", "native")
            return _model.load(file, **options) if backend == "native" else _model_backend.BackendModel(file, backend, **options)
    return load_arrays(file, format, return_metadata)


# ---- saving ----


def _with_suffix(file, suffix):
    path = os.fspath(file)
    return path if path.endswith(suffix) else path + suffix


def _save_to(file, suffix, write):
    """Calls write(path); what is open for writing gets what a file of its own was given."""
    if not hasattr(file, "write"):
        return write(_with_suffix(file, suffix).encode())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "arrays" + suffix)
        write(os.fsencode(path))
        file.write(path.read_bytes())


def save(file, arr):
    """One array as .npy; the suffix is added where it is missing. Here and below, `file` may be open for writing instead."""
    arr = copy.copy(operand(arr))  # which holds it
    _save_to(file, ".npy", lambda path: lib.within(_npy_save, path, arr._handle))


def _texts(texts):
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is a {type(text).__name__}, expected a text")
    return (c_char_p * max(1, len(texts)))(*(t.encode() for t in texts))


def _by_name(arrays):
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays and metadata are given by name, in a dict, not in a {type(arrays).__name__}")
    return dict(arrays)


def _handles(arrays):
    for name, a in arrays.items():
        if not isinstance(a, array):
            raise ValueError(f"{name!r} is a {type(a).__name__}, expected an array")
    return lib.hold(arrays.values())


def _savez(file, deflate, args, kwargs):
    arrays = {f"arr_{i}": a for i, a in enumerate(args)}
    if twice := arrays.keys() & kwargs.keys():
        raise ValueError(f"the name {min(twice)!r} is that of an array without a name")
    arrays = {name: operand(a) for name, a in {**arrays, **kwargs}.items()}
    names, handles, n = _texts(list(arrays)), _handles(arrays), len(arrays)
    _save_to(file, ".npz", lambda path: lib.within(_npz_save, path, names, handles, n, deflate))


def savez(file, *args, **kwargs):
    """Several arrays as .npz: those without a name are called arr_0, arr_1, ..."""
    _savez(file, False, args, kwargs)


def savez_compressed(file, *args, **kwargs):
    """The same, compressed."""
    _savez(file, True, args, kwargs)


def save_safetensors(file, arrays, metadata=None):
    """Arrays by name, and texts by name beside them."""
    arrays, metadata = _by_name(arrays), _by_name(metadata or {})
    names, handles, n = _texts(list(arrays)), _handles(arrays), len(arrays)
    about = _texts([text for pair in metadata.items() for text in pair]), len(metadata)  # key and value in turn
    _save_to(file, ".safetensors", lambda path: lib.within(_safetensors_save, path, names, handles, n, *about))


def _as_json(key, value):
    """A piece of metadata as the library takes it."""
    if isinstance(value, str) or (isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)):
        return value
    a = array(value)
    if a.ndim > 1 or a.dtype.name in ("float16", "bfloat16"):
        raise ValueError(f"metadata {key!r} is an array of {a.ndim} axes and {a.dtype.name}: expected one axis at most, of a type that GGUF has")
    name = "bool" if a.dtype.kind == "b" else f"{a.dtype.kind}{8 * a.itemsize}"
    if any(v - v != 0 for v in a.flatten().tolist()):
        raise ValueError(f"metadata {key!r} holds what is not finite")
    return {"dtype": name, "value": a.tolist()}


def save_gguf(file, arrays, metadata=None):
    """Arrays by name as GGUF, and beside them metadata: texts, lists of texts, numbers, or arrays of one axis."""
    values = json.dumps({key: _as_json(key, value) for key, value in _by_name(metadata or {}).items()}).encode()
    arrays = _by_name(arrays)
    names, handles, n = _texts(list(arrays)), _handles(arrays), len(arrays)
    _save_to(file, ".gguf", lambda path: lib.within(_gguf_save, path, names, handles, n, values))
