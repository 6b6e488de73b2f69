"""The functions that are compiled (python/core): their tables say names, parameters, defaults and texts. Here they are found,
by the module or class that they belong to."""

import ast
import inspect

from . import _dtype
from . import _library as lib

_WAYS = [inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY,
         inspect.Parameter.VAR_POSITIONAL]  # fmt: skip


def _value_of(text):
    """A default, as the tables write it."""
    return getattr(_dtype, text, None) or ast.literal_eval(text)


def _signature(parameters):
    return inspect.Signature(
        [inspect.Parameter(name, _WAYS[way], default=inspect.Parameter.empty if value is ... else value)
         for name, way, value in parameters]
    )  # fmt: skip


lib.core.hook(value_of=_value_of, signature=_signature, dtypes=_dtype.BY_CODE)
_found = lib.core.functions()
public, methods, hidden = (_found[place] for place in ("hearth", "hearth.array", "hearth._index"))
random, fast, linalg, losses = (_found[f"hearth.{name}"] for name in ("random", "fast", "linalg", "losses"))
public["concat"] = public["concatenate"]
