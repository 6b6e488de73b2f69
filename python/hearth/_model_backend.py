"""Models of other backends than this library: `mlx_lm`, which is mlx-lm in a Python process of its own."""

import ctypes
import threading
import weakref
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_void_p

from . import _library as lib
from ._model import _ANSWER, _TEXT, Generation, _Chat, _fallible, _ids, _options, _text
from ._structs import (
    ht_backend_info,
    ht_backend_options,
    ht_backend_prompt,
    ht_generate_options,
    ht_metrics,
    ht_model_options,
)

__all__ = ["BackendModel"]

_load = _fallible("ht_backend_load", c_char_p, c_char_p, POINTER(ht_backend_options), POINTER(c_void_p))
_close = lib.declare("ht_backend_close", None, c_void_p)
_generate = _fallible("ht_backend_generate", c_void_p, POINTER(ht_backend_prompt), POINTER(ht_generate_options), _TEXT, c_void_p,
                      POINTER(c_int32), POINTER(ht_metrics))  # fmt: skip
_chat = _fallible("ht_backend_chat", c_void_p, c_void_p, POINTER(ht_generate_options), _ANSWER, c_void_p, POINTER(ht_metrics))
_get_info = _fallible("ht_backend_get_info", c_void_p, POINTER(ht_backend_info))


class BackendModel:
    """A checkpoint that another backend has loaded. It may be used from several threads, whose calls take turns; leaving a `with`
    block closes it."""

    def __init__(self, path, backend, *, python=None, adapter=None, context=0):
        self._handle, self._lock, self._answers = c_void_p(), threading.Lock(), weakref.WeakSet()
        model = lib.options(ht_model_options, context=lib.integer(context, "context", *lib.INT64))
        how = lib.options(ht_backend_options, model=ctypes.pointer(model), python=lib.path(python) if python else None)
        if adapter is not None:
            given, scale = adapter if isinstance(adapter, tuple) else (adapter, 1.0)
            paths, scales = (c_char_p * 1)(lib.path(given)), (c_float * 1)(scale)
            how.adapters, how.adapter_scales, how.n_adapters = paths, ctypes.addressof(scales), 1
        _load(_text(backend, "backend's name"), lib.path(path), byref(how), byref(self._handle))

    def _take(self, generation):
        """For a Generation; `close` ends those that are under way."""
        with self._lock:
            if not self._handle:
                raise ValueError("the model is closed")
            self._answers.add(generation)
            return self._handle

    def _give_back(self):
        pass

    def close(self):
        """Ends all answers, and the process that computes them."""
        with self._lock:
            handle, self._handle = self._handle, c_void_p()
            answers = list(self._answers)
        for answer in answers:
            answer.close()
        _close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self, close=_close):
        close(getattr(self, "_handle", None))

    @property
    def info(self):
        """What the model is: architecture, engine, device, chat_format, context, vocab, n_layers, memory_bytes; "" and 0 for what
        is not known."""
        with self._lock:
            if not self._handle:
                raise ValueError("the model is closed")
            info = ht_backend_info()
            _get_info(self._handle, byref(info))
            values = {name: getattr(info, name) for name, _ in ht_backend_info._fields_}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}

    def generate(self, prompt, **options):
        """A Generation that goes on after `prompt`, a text or token ids. Options as of Session.generate."""
        how = _options(**options)
        if isinstance(prompt, str):
            ask = ht_backend_prompt(text=_text(prompt, "prompt"))
        else:
            ids, n = _ids(prompt)
            ask = ht_backend_prompt(ids=ctypes.addressof(ids), n_ids=n)
            ask.held = ids
        return Generation(self, how, lambda model, how, fn, user, metrics: _generate(model, ask, how, fn, user, None, metrics))

    def chat(self, messages, *, tools=None, thinking=None, variables=None, **options):
        """A Generation of the assistant's answer to a conversation, as of Session.chat. What the last conversation has in common
        with this one is not computed again, where the cache allows it."""
        how, given = _options(**options), _Chat(messages, tools, thinking, variables)
        return Generation(self, how, lambda model, *rest: _chat(model, given._handle, *rest), in_parts=True)
