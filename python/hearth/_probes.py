"""Probes: what a model thinks and holds while it generates, token by token, as dicts."""

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_float, c_int, c_int32, c_void_p, cast

from . import _library as lib
from ._structs import (
    HT_PROBE_ALL,
    HT_PROBE_CACHE,
    HT_PROBE_ENTROPY,
    HT_PROBE_LOGPROB,
    HT_PROBE_MEMORY,
    HT_PROBE_RESIDUAL,
    HT_PROBE_ROUTER,
    HT_PROBE_TOKEN,
    HT_PROBE_TOP,
    ht_probe,
    ht_probe_options,
)

_name = lib.declare("ht_probe_name", c_char_p, c_int)
NAMES = {_name(kind).decode(): kind for kind in (1 << i for i in range(HT_PROBE_ALL.bit_length()))}
FUNCTION = CFUNCTYPE(None, POINTER(ht_probe), c_void_p)


def _floats(address, n):
    return list(cast(address, POINTER(c_float))[:n]) if n else []


def _routes(p):
    return [
        {"layer": r.layer, "experts": list(cast(r.expert, POINTER(c_int32))[: r.n]), "weights": _floats(r.weight, r.n)}
        for r in (p.routes[i] for i in range(p.n_routes))
    ]


_MEMBERS = {
    HT_PROBE_TOKEN: lambda p: {"token": p.token},
    HT_PROBE_TOP: lambda p: {"top": list(zip(p.top_token[: p.n_top], p.top_logit[: p.n_top], strict=True))},
    HT_PROBE_ENTROPY: lambda p: {"entropy": p.entropy},
    HT_PROBE_CACHE: lambda p: {"pressure": p.pressure, "positions": p.positions, "context": p.context, "bytes": p.cache_bytes,
                               "budget": p.cache_budget},
    HT_PROBE_MEMORY: lambda p: {"pressure": p.pressure, "bytes": p.memory_bytes, "peak": p.memory_peak, "limit": p.memory_limit},
    HT_PROBE_ROUTER: lambda p: {"layers": _routes(p)},
    HT_PROBE_RESIDUAL: lambda p: {"norms": _floats(p.norms, p.n_layers)},
    HT_PROBE_LOGPROB: lambda p: {"token": p.token, "logprob": p.log_probability,
                                 "top": [(t.id, t.log_probability) for t in p.likeliest[: p.n_likeliest]]},
}  # fmt: skip


def seen(p):
    """An ht_probe as a dict."""
    return {"probe": _name(p.kind).decode(), "index": p.index, "position": p.position, **_MEMBERS[p.kind](p)}


def ask(how, on_probe, probes, top_logprobs, function, user=None):
    """Sets the probes of ht_generate_options, which `function` takes and hands to on_probe."""
    top_logprobs = lib.integer(top_logprobs, "top_logprobs", *lib.INT32)
    if on_probe is None:
        if probes or top_logprobs:
            raise ValueError("probes are asked for, but there is no on_probe to take them")
        return
    if not callable(on_probe):
        raise TypeError(f"on_probe is a {type(on_probe).__name__}, expected a function of a dict")
    names = [probes] if isinstance(probes, str) else list(probes) or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no probe; {', '.join(NAMES)} are")
    options = lib.options(ht_probe_options, kinds=sum({NAMES[name] for name in names}), fn=cast(function, c_void_p), user=user,
                          top_logprobs=top_logprobs)  # fmt: skip
    how.probes = ctypes.pointer(options)
    how.probing = options, function, on_probe  # for as long as the options live
