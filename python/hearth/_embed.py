"""Embeddings: texts as vectors, pooled from the hidden states of a model."""

from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p, cast

from . import _adapter
from . import _library as lib
from ._adapter import Adapter
from ._array import array
from ._dtype import float32
from ._functions import public
from ._structs import HT_POOLING_MODEL, HT_POOLING_NONE, ht_embed_options, ht_embeddings

_TEXTS, _MANY_IDS = POINTER(c_char_p), POINTER(POINTER(c_int32))
_OUT = (POINTER(ht_embed_options), POINTER(POINTER(ht_embeddings)), lib._ERROR)
_embed_ids = lib.declare("ht_embed_ids", c_int, c_void_p, _MANY_IDS, POINTER(c_size_t), c_size_t, *_OUT)
_embed_text = lib.declare("ht_embed_text", c_int, c_void_p, _TEXTS, c_size_t, *_OUT)
_free = lib.declare("ht_embeddings_free", None, POINTER(ht_embeddings))
_array_from = lib.operation("ht_array_from", c_void_p, c_int, POINTER(c_int64), c_int)
_pooling_name = lib.declare("ht_pooling_name", c_char_p, c_int)
_model_pooling = lib.declare("ht_model_pooling", c_int, c_void_p)
_model_prompt = lib.declare("ht_model_prompt", c_char_p, c_void_p, c_size_t, POINTER(c_char_p))


def _names():
    number = 0
    while name := _pooling_name(number):
        if number != HT_POOLING_MODEL:
            yield name.decode(), number
        number += 1


_POOLINGS = dict(_names())


def with_adapters(adapters):
    """The fields of options for adapters, which last as long as the result."""
    given = [_adapter.scaled(a) for a in ([adapters] if isinstance(adapters, Adapter) else adapters)]
    handles = (c_void_p * len(given))(*(a._handle for a, _ in given))
    scales = (c_float * len(given))(*(scale for _, scale in given))
    return {"adapters": cast(handles, c_void_p), "adapter_scales": cast(scales, c_void_p), "n_adapters": len(given)}


def _vectors(call, model, given, numbers, how, every_token):
    """Of texts or lists of ids, as `given` for a call: an array [texts, hidden], or a list of arrays [tokens, hidden]. `numbers`: of
    the texts, for errors."""
    found = POINTER(ht_embeddings)()
    lib.check(call, model._handle, *given, len(numbers), byref(how), byref(found))
    try:
        result = found.contents
        for i in range(result.n if result.n_failed else 0):
            one = result.embeddings[i]
            if one.status:
                lib._raise(one.status, f"text {numbers[i]}: {one.message.decode('utf-8', 'replace')}")
        if not every_token:
            return lib.call(_array_from, result.values, float32.code, (c_int64 * 2)(result.n, result.hidden), 2)
        ones = (result.embeddings[i] for i in range(result.n))
        return [lib.call(_array_from, one.values, float32.code, (c_int64 * 2)(one.n_tokens, result.hidden), 2) for one in ones]
    finally:
        _free(found)


def _of_texts(model, texts, numbers, how, every_token):
    given = (c_char_p * len(texts))(*texts)
    return _vectors(_embed_text, model, (given,), numbers, how, every_token)


def _of_ids(model, ids, numbers, how, every_token):
    pointers = (POINTER(c_int32) * len(ids))(*(cast(one, POINTER(c_int32)) for one, _ in ids))
    return _vectors(_embed_ids, model, (pointers, (c_size_t * len(ids))(*(n for _, n in ids))), numbers, how, every_token)


def prompts(model):
    """The checkpoint's prompts for embeddings by name."""
    found, text = {}, c_char_p()
    while name := _model_prompt(model._handle, len(found), byref(text)):
        found[name.decode()] = text.value.decode()
    return found


def embed(model, texts, pooling, normalize, dimensions, prompt, truncate, adapters):
    """Vectors of texts, as bytes, and of ids, as pairs of a ctypes array and its length: an array [texts, hidden], or for the pooling
    "none" a list of arrays [tokens, hidden]."""
    how_pooled = _model_pooling(model._handle) if pooling is None else lib.choice(pooling, "pooling", _POOLINGS)
    how = lib.options(ht_embed_options, pooling=how_pooled, normalize=bool(normalize), prompt=prompt, truncate=bool(truncate),
                      dimensions=lib.integer(dimensions, "dimensions", *lib.INT64), **with_adapters(adapters))  # fmt: skip
    every_token = how_pooled == HT_POOLING_NONE
    places = [[i for i, text in enumerate(texts) if isinstance(text, bytes) == kind] for kind in (True, False)]
    parts = []
    for find, numbers in zip((_of_texts, _of_ids), places):
        if numbers or (find is _of_texts and not texts):
            parts.append(find(model, [texts[i] for i in numbers], numbers, how, every_token))
        how.prompt = None  # of texts alone
    if len(parts) == 1:
        return parts[0]
    order = sorted(range(len(texts)), key=(places[0] + places[1]).__getitem__)
    if every_token:
        return [(parts[0] + parts[1])[i] for i in order]
    return public["take"](public["concatenate"](parts), array(order), 0)
