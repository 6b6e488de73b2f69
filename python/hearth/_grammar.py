"""Grammars: which texts an answer may be, and which tokens may come next in one."""

import ctypes
import json
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_void_p

from . import _library as lib
from ._structs import (
    HT_ENDING_MAY,
    HT_ENDING_MUST,
    HT_ENDING_NOT,
    HT_SCHEMA_SPACE_ANY,
    HT_SCHEMA_SPACE_LINES,
    HT_SCHEMA_SPACE_NONE,
    ht_schema_options,
)

__all__ = ["Grammar", "Matcher"]

_from_regex = lib.declare("ht_grammar_from_regex", c_int, c_void_p, c_char_p, c_size_t, POINTER(c_void_p), lib._ERROR)
_from_gbnf = lib.declare("ht_grammar_from_gbnf", c_int, c_void_p, c_char_p, c_size_t, POINTER(c_void_p), lib._ERROR)
_from_json_schema = lib.declare("ht_grammar_from_json_schema", c_int, c_void_p, c_char_p, c_size_t,
                                POINTER(ht_schema_options), POINTER(c_void_p), lib._ERROR)  # fmt: skip
_free = lib.declare("ht_grammar_free", None, c_void_p)
_matcher_new = lib.declare("ht_matcher_new", c_int, c_void_p, POINTER(c_void_p), lib._ERROR)
_matcher_free = lib.declare("ht_matcher_free", None, c_void_p)
_mask = lib.declare("ht_matcher_mask", c_int, c_void_p, POINTER(POINTER(c_uint32)), lib._ERROR)
_accept = lib.declare("ht_matcher_accept", c_int, c_void_p, c_int32, POINTER(c_bool), lib._ERROR)
_ending = lib.declare("ht_matcher_ending", c_int, c_void_p, POINTER(c_int), lib._ERROR)
_truncate = lib.declare("ht_matcher_truncate", c_int, c_void_p, c_size_t, lib._ERROR)
_length = lib.declare("ht_matcher_length", c_size_t, c_void_p)
_tokenizer = lib.declare("ht_model_tokenizer", c_void_p, c_void_p)
_n_tokens = lib.declare("ht_tokenizer_vocab_size", c_int32, c_void_p)

_SPACES = {"lines": HT_SCHEMA_SPACE_LINES, "none": HT_SCHEMA_SPACE_NONE, "any": HT_SCHEMA_SPACE_ANY}
_ENDINGS = {HT_ENDING_NOT: "not", HT_ENDING_MAY: "may", HT_ENDING_MUST: "must"}
_EIGHT = [bytes(byte >> bit & 1 for bit in range(8)) for byte in range(256)]  # the bits of a byte as bytes


def _compile(function, model, text, what, *options):
    from ._model import Model  # which imports this module

    if not isinstance(model, Model):
        raise TypeError(f"a grammar for a {type(model).__name__}, expected a model")
    if not isinstance(text, str):
        raise TypeError(f"the {what} is a {type(text).__name__}, expected a str")
    data, made = text.encode(), Grammar.__new__(Grammar)
    made._model, made._handle = model, c_void_p()
    lib.check(function, model._handle, data, len(data), *options, byref(made._handle))
    return made


class Grammar:
    """The texts that an answer may be: `grammar=` of generate, chat, submit and batch. It is compiled for the vocabulary of a model,
    and is exact: a token is allowed where some text of the grammar goes on with it, and nowhere else. May be used by many answers and
    threads at once. Grammar.from_json_schema, from_regex and from_gbnf make one."""

    def __init__(self):
        raise TypeError("a Grammar is made by Grammar.from_json_schema, Grammar.from_regex or Grammar.from_gbnf")

    def __del__(self, free=_free):
        free(getattr(self, "_handle", None))

    @classmethod
    def from_json_schema(cls, model, schema, *, space="lines", ordered=True, closed=True, every_spelling=False, ignore_formats=False):
        """JSON texts that are valid by a JSON Schema: a dict, True or False, or its text. `space` between the parts of a text: "lines",
        none, one space or an indented new line; "none"; or "any". `ordered`: members come in the order of `properties`. `closed`: objects
        whose members are described have no others, unless `additionalProperties` is there and not False.
        `every_spelling`: whole numbers may be written as 1.0, too. `ignore_formats`: `format` says nothing. What cannot be
        checked while a text is written is an Error that names it."""
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False, allow_nan=False)
        how = lib.options(ht_schema_options, space=lib.choice(space, "space", _SPACES), ordered=ordered, closed=closed,
                          every_spelling=every_spelling, ignore_formats=ignore_formats)  # fmt: skip
        return _compile(_from_json_schema, model, text, "schema", byref(how))

    @classmethod
    def from_regex(cls, model, pattern):
        """Texts that a regular expression matches as a whole, in the syntax of ECMAScript with the flag u."""
        return _compile(_from_regex, model, pattern, "pattern")

    @classmethod
    def from_gbnf(cls, model, text):
        """Texts of a context-free grammar in GBNF, llama.cpp's notation, whose rule `root` is the start."""
        return _compile(_from_gbnf, model, text, "grammar")

    def matcher(self):
        """A Matcher before its first token."""
        return Matcher(self)


class Matcher:
    """A text of a grammar as far as it goes, for loops of one's own. Used by one thread at a time; len() is its number of tokens."""

    def __init__(self, grammar):
        if not isinstance(grammar, Grammar):
            raise TypeError(f"a matcher of a {type(grammar).__name__}, expected a Grammar")
        self._grammar, self._handle = grammar, c_void_p()
        lib.check(_matcher_new, grammar._handle, byref(self._handle))

    def __del__(self, free=_matcher_free):
        free(getattr(self, "_handle", None))

    def __len__(self):
        return _length(self._handle)

    def mask(self):
        """Which tokens may come next: a memoryview of a bool for each of the model's logits, for NumPy, torch and hearth.array. Stop ids
        are allowed where the text may end. There is always one that is allowed."""
        words, model = POINTER(c_uint32)(), self._grammar._model
        lib.check(_mask, self._handle, byref(words))
        n, size = _n_tokens(_tokenizer(model._handle)), model.vocab_size
        packed = ctypes.string_at(words, (n + 31) // 32 * 4)
        bools = b"".join(map(_EIGHT.__getitem__, packed))[: min(n, size)]
        return memoryview(bools.ljust(size, b"\0")).cast("?")

    def accept(self, token):
        """Appends a token; False, and nothing is changed, when it may not come next. A stop id where the text may end changes nothing."""
        allowed = c_bool()
        lib.check(_accept, self._handle, lib.integer(token, "a token id", *lib.INT32), byref(allowed))
        return allowed.value

    @property
    def ending(self):
        """"not" when the text is not whole, "may" when it may end or go on, "must" when no token goes on with it."""
        ending = c_int()
        lib.check(_ending, self._handle, byref(ending))
        return _ENDINGS[ending.value]

    def truncate(self, n):
        """Takes back all tokens but the first n."""
        lib.check(_truncate, self._handle, lib.integer(n, "the number of tokens", *lib.UINT64))
