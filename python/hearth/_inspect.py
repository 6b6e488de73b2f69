"""Inspection of prompts: keys, values, queries and attention weights of a model as arrays."""

from collections.abc import Mapping
from ctypes import POINTER, byref, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p, cast, string_at

from . import _adapter
from . import _library as lib
from ._adapter import Adapter
from ._dtype import float32, int32
from ._structs import ht_inspect_options, ht_inspection

__all__ = ["Inspection"]

_inspect = lib.declare("ht_inspect", c_int, c_void_p, POINTER(c_int32), c_size_t, POINTER(ht_inspect_options),
                       POINTER(POINTER(ht_inspection)), lib._ERROR)  # fmt: skip
_save = lib.declare("ht_inspection_save", c_int, POINTER(ht_inspection), c_char_p, c_bool, lib._ERROR)
_draw = lib.declare("ht_inspection_draw", c_int, POINTER(ht_inspection), c_int32, c_int32, c_void_p, POINTER(c_void_p),
                    lib._ERROR)  # fmt: skip
_free = lib.declare("ht_inspection_free", None, POINTER(ht_inspection))
_tokenizer = lib.declare("ht_model_tokenizer", c_void_p, c_void_p)
_text_free = lib.declare("ht_text_free", None, c_void_p)
_array_from = lib.operation("ht_array_from", c_void_p, c_int, POINTER(c_int64), c_int)


class Inspection(Mapping):
    """What Model.inspect has found: a mapping of names to float32 arrays, as many as were asked for: "layer.3.k" and
    "layer.3.v" [key heads, tokens, head size], "layer.3.q" [heads, tokens, head size], "layer.3.attention" [heads, tokens,
    tokens], and "tokens". An array is made when it is looked up. Layers that share keys and values with an earlier one have none
    of their own: owners[i] is the layer whose keys layer i attends to."""

    def __init__(self, handle, model):
        if not isinstance(handle, POINTER(ht_inspection)):
            raise TypeError("an inspection is made by Model.inspect")
        self._handle, self._model, self._arrays = handle, model, {}
        found = handle.contents
        self._arrays["tokens"] = found.tokens, int32, (found.n_tokens,)
        for i in range(found.n_layers):
            layer = found.layers[i]
            sizes = {"k": (layer.n_kv_heads, layer.head_dim), "q": (layer.n_heads, layer.head_dim),
                     "attention": (layer.n_heads, found.n_tokens)}  # fmt: skip
            for what in ("k", "v", "q", "attention"):
                heads, columns = sizes["k" if what == "v" else what]
                if values := getattr(layer, what):
                    name = f"layer.{layer.kv_layer if what in 'kv' else i}.{what}"
                    self._arrays[name] = values, float32, (heads, found.n_tokens, columns)

    def __del__(self, free=_free):
        free(getattr(self, "_handle", None))

    def __getitem__(self, name):
        values, dtype, shape = self._arrays[name]
        return lib.call(_array_from, values, dtype.code, (c_int64 * len(shape))(*shape), len(shape))

    def __iter__(self):
        return iter(self._arrays)

    def __len__(self):
        return len(self._arrays)

    @property
    def tokens(self):
        """The token ids of the prompt."""
        found = self._handle.contents
        return cast(found.tokens, POINTER(c_int32))[: found.n_tokens]

    @property
    def owners(self):
        """For every layer the one whose keys and values it attends to: itself, or an earlier one."""
        found = self._handle.contents
        return [found.layers[i].kv_layer for i in range(found.n_layers)]

    def save(self, path):
        """Writes all arrays as an npz file, under their names."""
        lib.check(_save, self._handle, lib.path(path), False)

    def svg(self, layer, head):
        """The attention weights of a head as an SVG picture, a text, with the tokens as labels."""
        layer, head = (lib.integer(i, what, *lib.INT32) for i, what in ((layer, "layer"), (head, "head")))
        text = c_void_p()
        lib.check(_draw, self._handle, layer, head, _tokenizer(self._model._handle), byref(text))
        try:
            return string_at(text).decode()
        finally:
            _text_free(text)


def _layers(layers):
    layers = [lib.integer(i, "a layer", *lib.INT32) for i in layers]
    return (c_int32 * len(layers))(*layers), len(layers)


def inspect(model, ids, n, keys, values, queries, layers, attention, adapters):
    given = [_adapter.scaled(a) for a in ([adapters] if isinstance(adapters, Adapter) else adapters)]
    handles = (c_void_p * len(given))(*(a._handle for a, _ in given))
    scales = (c_float * len(given))(*(scale for _, scale in given))
    listed, n_listed = _layers(() if layers is None else layers)
    if layers is not None and not n_listed:
        keys = values = queries = False
    weighed, n_weighed = _layers(attention)
    how = lib.options(ht_inspect_options, keys=bool(keys), values=bool(values), queries=bool(queries),
                      layers=cast(listed, c_void_p), n_layers=n_listed,
                      attention=cast(weighed, c_void_p), n_attention=n_weighed,
                      adapters=cast(handles, c_void_p), adapter_scales=cast(scales, c_void_p),
                      n_adapters=len(given))  # fmt: skip
    found = POINTER(ht_inspection)()
    lib.check(_inspect, model._handle, ids, n, byref(how), byref(found))
    return Inspection(found, model)
