"""Embeddings: texts as vectors, pooled from the hidden states of a model."""

from ctypes import POINTER, byref, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p, cast

from . import _adapter
from . import _library as lib
from ._adapter import Adapter
from ._dtype import float32
from ._structs import HT_POOLING_CLS, HT_POOLING_LAST, HT_POOLING_MEAN, HT_POOLING_MODEL, ht_embed_options, ht_embeddings

_embed = lib.declare("ht_embed_ids", c_int, c_void_p, POINTER(POINTER(c_int32)), POINTER(c_size_t), c_size_t,
                     POINTER(ht_embed_options), POINTER(POINTER(ht_embeddings)), lib._ERROR)  # fmt: skip
_free = lib.declare("ht_embeddings_free", None, POINTER(ht_embeddings))
_array_from = lib.operation("ht_array_from", c_void_p, c_int, POINTER(c_int64), c_int)

_POOLINGS = {"last": HT_POOLING_LAST, "mean": HT_POOLING_MEAN, "cls": HT_POOLING_CLS}


def embed(model, ids, pooling, normalize, adapters):
    """Vectors of lists of ids as an array [texts, hidden]."""
    how_pooled = HT_POOLING_MODEL if pooling is None else lib.choice(pooling, "pooling", _POOLINGS)
    given = [_adapter.scaled(a) for a in ([adapters] if isinstance(adapters, Adapter) else adapters)]
    handles = (c_void_p * len(given))(*(a._handle for a, _ in given))
    scales = (c_float * len(given))(*(scale for _, scale in given))
    how = lib.options(ht_embed_options, pooling=how_pooled, normalize=bool(normalize), adapters=cast(handles, c_void_p),
                      adapter_scales=cast(scales, c_void_p), n_adapters=len(given))  # fmt: skip
    texts = (POINTER(c_int32) * len(ids))(*(cast(one, POINTER(c_int32)) for one, _ in ids))
    lengths = (c_size_t * len(ids))(*(n for _, n in ids))
    found = POINTER(ht_embeddings)()
    lib.check(_embed, model._handle, texts, lengths, len(ids), byref(how), byref(found))
    try:
        result = found.contents
        for i in range(result.n if result.n_failed else 0):
            one = result.embeddings[i]
            if one.status:
                lib._raise(one.status, f"text {i}: {one.message.decode('utf-8', 'replace')}")
        shape = (c_int64 * 2)(result.n, result.hidden)
        return lib.call(_array_from, result.values, float32.code, shape, 2)
    finally:
        _free(found)
