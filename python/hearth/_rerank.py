"""Reranking: documents by their relevance to a query."""

from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p, cast
from typing import NamedTuple

from . import _library as lib
from ._embed import with_adapters
from ._structs import ht_ranking, ht_rerank_options

__all__ = ["Relevance"]

_rerank = lib.declare("ht_rerank", c_int, c_void_p, c_char_p, POINTER(c_char_p), c_size_t, POINTER(ht_rerank_options),
                      POINTER(POINTER(ht_ranking)), lib._ERROR)  # fmt: skip
_free = lib.declare("ht_ranking_free", None, POINTER(ht_ranking))


class Relevance(NamedTuple):
    """The place of a document in the list, its score from 0 to 1, the logit that the score is the sigmoid of, and the tokens of its prompt."""

    document: int
    score: float
    logit: float
    tokens: int


def rerank(model, query, documents, instruction, truncate, document_tokens, adapters):
    """The Relevance of each document, the best first."""
    how = lib.options(ht_rerank_options, instruction=instruction, truncate=bool(truncate),
                      document_tokens=lib.integer(document_tokens, "document_tokens", *lib.INT64), **with_adapters(adapters))  # fmt: skip
    found = POINTER(ht_ranking)()
    lib.check(_rerank, model._handle, query, (c_char_p * len(documents))(*documents), len(documents), byref(how), byref(found))
    try:
        result = found.contents
        for i in range(result.n if result.n_failed else 0):
            one = result.documents[i]
            if one.status:
                lib._raise(one.status, f"document {i}: {one.message.decode('utf-8', 'replace')}")
        order = cast(result.order, POINTER(c_size_t))
        ranked = ((order[i], result.documents[order[i]]) for i in range(result.n))
        return [Relevance(index, one.score, one.logit, one.n_tokens) for index, one in ranked]
    finally:
        _free(found)
