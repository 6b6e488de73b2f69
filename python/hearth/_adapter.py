"""LoRA adapters that are ready to be used: loaded from files, or taken from what is trained."""

from ctypes import POINTER, byref, c_char_p, c_int, c_void_p

from . import _library as lib
from ._structs import HT_ADAPTER_GGUF, HT_ADAPTER_MLX, HT_ADAPTER_PEFT

__all__ = ["Adapter"]

_load = lib.declare("ht_adapter_load", c_int, c_char_p, c_void_p, c_void_p, POINTER(c_void_p), lib._ERROR)
_save = lib.declare("ht_adapter_save", c_int, c_void_p, c_void_p, c_char_p, c_int, lib._ERROR)
_free = lib.declare("ht_adapter_free", None, c_void_p)
_save_check = lib.declare("ht_adapter_save_check", c_int, c_char_p, lib._ERROR)
_format_check = lib.declare("ht_adapter_format_check", c_int, c_void_p, c_int, lib._ERROR)
_warning = lib.declare("ht_adapter_warning", c_char_p, c_void_p)

_FORMATS = {"peft": HT_ADAPTER_PEFT, "mlx": HT_ADAPTER_MLX, "gguf": HT_ADAPTER_GGUF}


class Adapter:
    """A LoRA adapter of a model (Model.load_adapter, Lora.adapter, Trainer.adapter), which any number of its sessions may use."""

    def __init__(self, handle, model):
        self._handle, self._model = handle, model

    def __del__(self, free=_free):
        free(getattr(self, "_handle", None))

    @property
    def warning(self):
        """What its files say against the model it was loaded for: another checkpoint, another chat template; or None."""
        text = _warning(self._handle)
        return text and text.decode()

    def save(self, path, format="peft"):
        """Writes it as a directory of PEFT ("peft") or mlx-lm ("mlx"), or as a file of llama.cpp ("gguf")."""
        how = lib.choice(format, "format", _FORMATS)
        lib.check(_save, self._handle, self._model._handle, lib.path(path), how)


def check_target(path):
    """Raises where an adapter could not be saved as a directory: nothing is written."""
    lib.check(_save_check, lib.path(path))


def check_format(model, format):
    """Raises if adapters of the model cannot be saved in the format."""
    lib.check(_format_check, model._handle, _FORMATS[format])


def load(path, model):
    handle = c_void_p()
    lib.check(_load, lib.path(path), model._handle, None, byref(handle))
    return Adapter(handle, model)


def scaled(adapter):
    """An adapter and its factor: of a pair of both, or of an adapter alone."""
    adapter, scale = adapter if isinstance(adapter, (tuple, list)) else (adapter, 1.0)
    if not isinstance(adapter, Adapter):
        raise TypeError(f"an adapter is a {type(adapter).__name__}, expected an Adapter, or a pair of one and a number")
    return adapter, float(scale)
