"""Embeddings: texts as vectors, pooled from the hidden states of a model."""

from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p, cast

from . import _adapter
from . import _library as lib
from ._adapter import Adapter
from ._array import array
from ._dtype import float32
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


def c_text(text, what):
    """The bytes of a text for C, where a NUL would end it."""
    if "\0" in text:
        raise ValueError(f"{what} has a NUL")
    return text.encode("utf-8", "surrogatepass")


def _vectors(find, numbers, every_token):
    """What a call finds: arrays [hidden] of its texts, or [tokens, hidden]. `numbers`: of the texts, for errors."""
    found = POINTER(ht_embeddings)()
    find(byref(found))
    try:
        result = found.contents
        rows = []
        for i in range(result.n):
            one = result.embeddings[i]
            if one.status:
                lib._raise(one.status, f"text {numbers[i]}: {one.message.decode('utf-8', 'replace')}")
            shape = (one.n_tokens, result.hidden) if every_token else (result.hidden,)
            rows.append(lib.call(_array_from, one.values, float32.code, (c_int64 * len(shape))(*shape), len(shape)))
        return rows, result.hidden
    finally:
        _free(found)


def prompts(model):
    """The checkpoint's prompts for embeddings by name."""
    found, text = {}, c_char_p()
    while name := _model_prompt(model._handle, len(found), byref(text)):
        found[name.decode()] = text.value.decode()
    return found


def embed(model, texts, ids_of, pooling, normalize, dimensions, prompt, truncate, adapters):
    """Arrays of texts and lists of ids, in their order, and the length of a vector. `ids_of`: what reads a list of ids."""
    how_pooled = _model_pooling(model._handle) if pooling is None else lib.choice(pooling, "pooling", _POOLINGS)
    how = lib.options(ht_embed_options, pooling=HT_POOLING_MODEL if pooling is None else how_pooled, normalize=bool(normalize),
                      dimensions=lib.integer(dimensions, "dimensions", *lib.INT64), truncate=bool(truncate), **with_adapters(adapters))  # fmt: skip
    every_token = how_pooled == HT_POOLING_NONE
    places = {kind: [i for i, text in enumerate(texts) if isinstance(text, str) == kind] for kind in (True, False)}
    ids = [ids_of(texts[i]) for i in places[False]]
    vectors, hidden = [None] * len(texts), 0
    if places[True] or not ids:
        given = [c_text(texts[i], f"text {i}") for i in places[True]]
        how.prompt = None if prompt is None else c_text(prompt, "the prompt's name")
        call = lambda out: lib.check(_embed_text, model._handle, (c_char_p * len(given))(*given), len(given), byref(how), out)  # noqa: E731
        found, hidden = _vectors(call, places[True], every_token)
        for i, vector in zip(places[True], found):
            vectors[i] = vector
    if ids:
        how.prompt = None
        pointers = (POINTER(c_int32) * len(ids))(*(cast(one, POINTER(c_int32)) for one, _ in ids))
        lengths = (c_size_t * len(ids))(*(n for _, n in ids))
        call = lambda out: lib.check(_embed_ids, model._handle, pointers, lengths, len(ids), byref(how), out)  # noqa: E731
        found, hidden = _vectors(call, places[False], every_token)
        for i, vector in zip(places[False], found):
            vectors[i] = vector
    return vectors, hidden, every_token


__all__ = ["array"]
