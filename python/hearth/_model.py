"""Language models: text and logits from a checkpoint, computed without holding Python's lock."""

import contextlib
import ctypes
import functools
import json
import os
import queue
import threading
import weakref
from collections.abc import Mapping
from ctypes import (
    CFUNCTYPE,
    POINTER,
    byref,
    c_bool,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint,
    c_void_p,
)

from . import _adapter, _embed, _engine, _inspect, _lora, _many, _probes, _rerank
from . import _library as lib
from ._adapter import Adapter
from ._array import array
from ._dtype import bfloat16, float16, float32, int8
from ._grammar import Grammar
from ._structs import (
    HT_ANSWER_CALL,
    HT_ANSWER_TEXT,
    HT_FINISH_CALLBACK,
    HT_FINISH_LENGTH,
    HT_FINISH_STOP,
    HT_PRECISION_FAST,
    HT_PRECISION_HIGH,
    HT_PRECISION_REFERENCE,
    ht_answer_piece,
    ht_cancel,
    ht_device_options,
    ht_forward_options,
    ht_generate_options,
    ht_logit_bias,
    ht_metrics,
    ht_model_options,
    ht_sampler_options,
    ht_sampling_value,
)

__all__ = ["Model", "Session", "Generation"]

_TEXT = CFUNCTYPE(c_bool, c_void_p, c_size_t, c_void_p)
_ANSWER = CFUNCTYPE(c_bool, POINTER(ht_answer_piece), c_void_p)
_LOGITS = CFUNCTYPE(c_bool, c_void_p, c_int64, c_int64, c_int32, c_void_p)


def _fallible(name, *arguments):
    """A function whose failure is an exception."""
    return functools.partial(lib.check, lib.declare(name, c_int, *arguments, lib._ERROR))


_device_retain = lib.declare("ht_device_retain", c_void_p, c_void_p)
_device_open = _fallible("ht_device_open", c_char_p, POINTER(ht_device_options), POINTER(c_void_p))
_device_free = lib.declare("ht_device_free", None, c_void_p)
_load = _fallible("ht_model_load", c_char_p, POINTER(ht_model_options), POINTER(c_void_p))
_model_free = lib.declare("ht_model_free", None, c_void_p)
_tokenizer = lib.declare("ht_model_tokenizer", c_void_p, c_void_p)
_context = lib.declare("ht_model_context", c_int64, c_void_p)
_sampling = lib.declare("ht_model_sampling", POINTER(ht_sampling_value), c_void_p, c_int)
_vocab_size = lib.declare("ht_model_vocab_size", c_int32, c_void_p)
_format_name = lib.declare("ht_chat_format_name", c_char_p, c_void_p)
_chat_from_json = _fallible("ht_chat_from_json", c_char_p, c_size_t, POINTER(c_void_p))
_set_thinking = _fallible("ht_chat_set_thinking", c_void_p, c_bool)
_chat_free = lib.declare("ht_chat_free", None, c_void_p)
_format = _fallible("ht_chat_format", c_void_p, c_void_p, POINTER(c_void_p))
_encode = _fallible("ht_tokenizer_encode", c_void_p, c_char_p, c_size_t, c_uint, POINTER(POINTER(c_int32)),
                    POINTER(c_size_t))  # fmt: skip
_decode = _fallible("ht_tokenizer_decode", c_void_p, POINTER(c_int32), c_size_t, c_bool, POINTER(c_void_p),
                    POINTER(c_size_t))  # fmt: skip
_session_new = _fallible("ht_session_new", c_void_p, c_void_p, POINTER(c_void_p))
_set_adapters = _fallible("ht_session_set_adapters", c_void_p, POINTER(c_void_p), POINTER(c_float), c_int)
_session_save = _fallible("ht_session_save", c_void_p, c_char_p)
_session_load = _fallible("ht_session_load", c_void_p, c_char_p)
_session_fork = _fallible("ht_session_fork", c_void_p, POINTER(c_void_p))
_session_free = lib.declare("ht_session_free", None, c_void_p)
_session_reset = lib.declare("ht_session_reset", None, c_void_p)
_session_length = lib.declare("ht_session_length", c_int64, c_void_p)
_cancel_request = lib.declare("ht_cancel_request", None, POINTER(ht_cancel))
_forward = _fallible("ht_session_forward", c_void_p, POINTER(c_int32), c_size_t, POINTER(ht_forward_options), _LOGITS,
                     c_void_p)  # fmt: skip
_generate = _fallible("ht_generate", c_void_p, POINTER(c_int32), c_size_t, POINTER(ht_generate_options), _TEXT, c_void_p,
                      POINTER(ht_metrics))  # fmt: skip
_generate_text = _fallible("ht_generate_text", c_void_p, c_char_p, POINTER(ht_generate_options), _TEXT, c_void_p,
                           POINTER(ht_metrics))  # fmt: skip
_generate_chat = _fallible("ht_generate_chat", c_void_p, c_void_p, POINTER(ht_generate_options), _ANSWER, c_void_p,
                           POINTER(ht_metrics))  # fmt: skip
_array_from = lib.operation("ht_array_from", c_void_p, c_int, POINTER(c_int64), c_int)
_ids_free = lib.declare("ht_ids_free", None, POINTER(c_int32))
_text_free = lib.declare("ht_text_free", None, c_void_p)

_PRECISIONS = {"high": HT_PRECISION_HIGH, "fast": HT_PRECISION_FAST, "reference": HT_PRECISION_REFERENCE}
_CACHES = (float16, bfloat16, float32, int8)
_FINISHES = {0: None, HT_FINISH_STOP: "stop", HT_FINISH_LENGTH: "length", HT_FINISH_CALLBACK: "closed"}


def _ids(ids):
    ids = [lib.integer(i, "a token id", *lib.INT32) for i in ids]
    return (c_int32 * len(ids))(*ids), len(ids)


def _text(text, what="text"):
    if not isinstance(text, str):
        raise TypeError(f"the {what} is a {type(text).__name__}, expected a str")
    data = text.encode()
    if b"\0" in data:
        raise ValueError(f"the {what} holds a NUL character")
    return data


def _content(content):
    """A message's text: of a list of parts, as clients of other engines write it, that of all of them."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        raise TypeError(f"the content of a message is a {type(content).__name__}, expected a text or a list of parts")
    return "".join(map(_part, content))


def _part(part):
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, dict) else type(part).__name__
    if kind != "text" or not isinstance(part.get("text"), str):
        raise ValueError(f'a part of a message is of the type {kind!r}, expected {{"type": "text", "text": ...}}')
    return part["text"]


def _tool_choice(choice, tools, grammar):
    """As the library reads it, of one of its words or the name of a tool. Beside a grammar the model may call the tools that there are."""
    if choice is None:
        return "auto" if tools and grammar else None
    if not isinstance(choice, str):
        raise TypeError(f"tool_choice is a {type(choice).__name__}, expected 'auto', 'none', 'required' or the name of a tool")
    return choice if choice in ("auto", "none", "required") else {"type": "function", "function": {"name": choice}}


class _Chat:
    """A conversation of the library."""

    def __init__(self, messages, tools=None, thinking=None, variables=None, tool_choice=None, parallel_tool_calls=True, grammar=None,
                 continue_final_message=False):  # fmt: skip
        self._handle = c_void_p()
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        messages = [{**m, "content": _content(m["content"] if "tool_calls" not in m else m.get("content"))} for m in messages]
        tools = tools and list(tools)
        given = {"messages": messages, "tools": tools, "tool_choice": _tool_choice(tool_choice, tools, grammar),
                 "parallel_tool_calls": bool(parallel_tool_calls), "chat_template_kwargs": variables,
                 "continue_final_message": bool(continue_final_message)}  # fmt: skip
        data = json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
        _chat_from_json(data, len(data), byref(self._handle))
        if thinking is not None:
            _set_thinking(self._handle, bool(thinking))

    def __del__(self):
        _chat_free(self._handle)


def _biases(biases):
    """Of a dict of ids, or of pairs."""
    pairs = biases.items() if isinstance(biases, Mapping) else biases or ()
    found = [ht_logit_bias(lib.integer(i, "a token id of logit_bias", *lib.INT32), bias) for i, bias in pairs]
    return (ht_logit_bias * len(found))(*found)


CLOSED = {"finish": "closed", "stop": None, "stop_id": None}


def ended(metrics):
    """ht_metrics as a dict: why the answer ended as a name, and what stopped it as None where that is not it."""
    values = {name: getattr(metrics, name) for name, _ in ht_metrics._fields_}
    stopped = values["finish"] == HT_FINISH_STOP
    for name in "stop", "stop_id":
        values[name] = values[name] if stopped and values[name] >= 0 else None
    return {**values, "finish": _FINISHES[values["finish"]]}


def _sampler(temperature, top_k, top_p, min_p, repeat_penalty, repeat_window, seed, presence_penalty, frequency_penalty):
    """None: the value of the model."""
    whole = {"top_k": (top_k, lib.INT32), "repeat_window": (repeat_window, lib.INT32), "seed": (seed, lib.UINT64)}
    numbers = {name: lib.integer(value, name, *limits) for name, (value, limits) in whole.items() if value is not None}
    numbers |= {"temperature": temperature, "top_p": top_p, "min_p": min_p, "repeat_penalty": repeat_penalty,
                "presence_penalty": presence_penalty, "frequency_penalty": frequency_penalty}  # fmt: skip
    return lib.options(ht_sampler_options, **{name: value for name, value in numbers.items() if value is not None})


def _options(max_tokens=256, temperature=None, top_k=None, top_p=None, min_p=None, repeat_penalty=None, repeat_window=None,
             seed=None, stop=(), ignore_eos=False, parse_special=False, lookup=False, draft=None, draft_tokens=0,
             presence_penalty=None, frequency_penalty=None, logit_bias=(), grammar=None, max_thinking_tokens=-1):  # fmt: skip
    if draft is not None and not isinstance(draft, Model):
        raise TypeError(f"the draft is a {type(draft).__name__}, expected a model")
    if grammar is not None and not isinstance(grammar, Grammar):
        raise TypeError(f"the grammar is a {type(grammar).__name__}, expected a Grammar: Grammar.from_regex and its kin make one")
    stop = [stop] if isinstance(stop, str) else list(stop)
    strings = (c_char_p * len(stop))(*(_text(s, "stop string") for s in stop))
    sampler = _sampler(temperature, top_k, top_p, min_p, repeat_penalty, repeat_window, seed, presence_penalty, frequency_penalty)
    sampler.logit_bias = biases = _biases(logit_bias)
    sampler.n_logit_bias = len(biases)
    how = lib.options(ht_generate_options, max_tokens=lib.integer(max_tokens, "max_tokens", 1, lib.INT32[1]),
        sampler=ctypes.pointer(sampler), stop=strings, n_stop=len(stop), ignore_eos=ignore_eos,
        parse_special=parse_special, lookup=lookup, draft=draft and draft._handle,
        draft_tokens=lib.integer(draft_tokens, "draft_tokens", *lib.INT32), grammar=grammar and grammar._handle,
        max_thinking_tokens=lib.integer(max_thinking_tokens, "max_thinking_tokens", *lib.INT32),
    )  # fmt: skip
    how.held = draft, grammar
    return how


_running = set()  # answers that are computed


@lib.at_exit
def _close_all():
    for answer in list(_running):
        answer.close()


def part_of(piece):
    """What an ht_answer_piece holds: ("text" or "thinking", a text), or ("call", a dict)."""
    if piece.part != HT_ANSWER_CALL:
        text = ctypes.string_at(piece.text, piece.n).decode("utf-8", "replace")
        return ("text" if piece.part == HT_ANSWER_TEXT else "thinking"), text
    call = piece.call.contents
    values = {"name": call.name, "arguments": call.arguments, "id": call.id}
    values = {name: value and value.decode("utf-8", "replace") for name, value in values.items()}
    return "call", {**values, "arguments": json.loads(values["arguments"])}


class _Answer:
    """What the thread that computes an answer shares with the iterator; it does not hold the latter, so that one which is
    dropped ends. It has the session from the start of the thread until it gives that back, once, whoever ends it. A thread that
    has the lock may take it again: finalizers and handlers of signals run anywhere."""

    def __init__(self, session, options, start, in_parts, on_probe, probes, top_logprobs):
        self.options, self.start, self.pieces, self.metrics = options, start, queue.SimpleQueue(), ht_metrics()
        self.session, self.thread, self.lock, self.closed, self.ended = session, None, threading.RLock(), False, False
        self.cancel, self.done, self.thoughts, self.calls, self.failure = ht_cancel(), threading.Event(), [], [], None
        options.cancel = ctypes.pointer(self.cancel)
        self.fn = _ANSWER(self.put_part) if in_parts else _TEXT(self.put)
        self.on_probe = on_probe
        _probes.ask(options, on_probe, probes, top_logprobs, _probes.FUNCTION(self.observe))

    def put(self, text, n, user):
        self.pieces.put(ctypes.string_at(text, n).decode("utf-8", "replace"))
        return not self.closed and self.failure is None

    def observe(self, probe, user):
        """An exception ends the answer here, too."""
        try:
            if self.failure is None:
                self.on_probe(_probes.seen(probe.contents))
        except BaseException as e:
            self.failure = e
            _cancel_request(self.cancel)

    def put_part(self, piece, user):
        """An exception ends the answer, and is raised where the pieces are read."""
        try:
            self.take(piece.contents)
        except BaseException as e:
            self.failure = e
        return not self.closed and self.failure is None

    def take(self, piece):
        kind, value = part_of(piece)
        {"call": self.calls.append, "thinking": self.thoughts.append, "text": self.pieces.put}[kind](value)

    def run(self, session):
        try:
            self.start(session, byref(self.options), self.fn, None, byref(self.metrics))
            self.pieces.put(self.failure)
        except BaseException as e:  # whatever it is, it is raised where the pieces are read
            self.pieces.put(self.failure or e)
        finally:
            self.done.set()
            if self.closed:
                self.end()

    def begin(self, generation):
        """Starts the thread unless it was started before; false for an answer that has ended."""
        lib.check_exit()
        with self.lock:
            if self.ended or self.thread:
                return not self.ended
            handle = self.session._take(generation)
            self.thread = threading.Thread(target=self.run, args=(handle,), daemon=True)
            _running.add(self)
            try:
                self.thread.start()
            except BaseException:  # there is no thread, and nothing to wait for
                self.done.set()
                raise
            return True

    def end(self):
        """Gives the session back. Nothing computes any more."""
        with self.lock:
            session, self.session, self.ended = self.session, None, True
            _running.discard(self)
            if session is not None and self.thread:
                session._give_back()

    def next(self, generation):
        """A piece of text; None when there is no more of it."""
        if not self.begin(generation):
            return None
        piece = self.pieces.get()
        if isinstance(piece, str):
            return piece
        self.pieces.put(None)  # for another thread that waits for a piece
        self.done.wait()
        self.end()
        lib.check_exit()
        if piece is not None and not self.closed:
            raise piece
        return None

    def close(self):
        """Cancels the answer, and waits for the end. The wait may be interrupted, and is then taken up by the next call. The thread
        that computes does not wait for itself."""
        with self.lock:
            if self.ended:
                return
            self.closed = True
            if not self.thread:
                self.end()
                return
        _cancel_request(self.cancel)
        if threading.current_thread() is not self.thread:
            self.done.wait()
        if self.done.is_set():
            self.end()


class Generation:
    """An answer as it comes: an iterator of pieces of text. It is computed by a thread of its own, which begins with the
    first piece asked for. close(), which leaving a `with` block and dropping the iterator do, too, ends it. Thoughts and calls
    of tools in the answer of a chat are no pieces: they are in `thinking` and `tool_calls`."""

    def __init__(self, session, options, start, in_parts=False, on_probe=None, probes=(), top_logprobs=0):
        self._answer = _Answer(session, options, start, in_parts, on_probe, probes, top_logprobs)

    def __iter__(self):
        return self

    def __next__(self):
        piece = self._answer.next(self)
        if piece is None:
            raise StopIteration
        return piece

    def close(self):
        """Ends the answer; what was generated until then stays in the session. Any thread may call it at any time: harmless when
        the answer has ended, and whoever iterates comes to the end."""
        self._answer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if hasattr(self, "_answer"):
            self.close()

    @property
    def thinking(self):
        """The thoughts in the answer of a chat, as far as they have come."""
        return "".join(self._answer.thoughts)

    @property
    def tool_calls(self):
        """The calls in the answer of a chat so far: {"name": ..., "arguments": a dict, "id": a text or None}."""
        return list(self._answer.calls)

    @property
    def metrics(self):
        """What was counted and measured, once the answer has ended: `finish` is "stop", "length", or "closed"; None after a
        failure. With "stop", `stop` is the place of a text in the option `stop`, or `stop_id` the token that ended it, and the
        other None; both where the grammar's text could only end. `thought_ended`: max_thinking_tokens has closed a thought."""
        return {**ended(self._answer.metrics), **(CLOSED if self._answer.closed else {})}


class Session:
    """One conversation: its tokens and its cache. Used by one call at a time. `adapters` is an Adapter or a list, in which a pair
    (adapter, scale) stands for one times a number; several add up."""

    def __init__(self, model, adapters=()):
        self._model, self._handle = model, c_void_p()
        self._free, self._answer, self._closed = threading.Lock(), None, False
        given = [_adapter.scaled(a) for a in ([adapters] if isinstance(adapters, Adapter) else adapters)]
        _session_new(model._handle, None, byref(self._handle))
        handles = (c_void_p * len(given))(*(a._handle for a, _ in given))
        _set_adapters(self._handle, handles, (c_float * len(given))(*(scale for _, scale in given)), len(given))

    def _take(self, generation=None):
        """For one call, until it is given back."""
        if not self._free.acquire(blocking=False):
            raise RuntimeError("the session is busy with another answer: finish or close that one first")
        if self._closed:
            self._free.release()
            self._end()
            raise ValueError("the session is closed")
        self._answer = generation and weakref.ref(generation)
        return self._handle

    def _give_back(self):
        """Ends a call, and the session when it was closed meanwhile."""
        self._answer = None
        self._free.release()
        self._end()

    def _end(self):
        """Frees a session that was closed, unless a call has it, at whose end it is freed."""
        if self._closed and self._free.acquire(blocking=False):
            handle, self._handle = self._handle, c_void_p()
            _session_free(handle)
            self._free.release()

    @contextlib.contextmanager
    def _taken(self):
        handle = self._take()
        try:
            yield handle
        finally:
            self._give_back()

    def __len__(self):
        with self._taken() as handle:
            return _session_length(handle)

    def reset(self):
        """Forgets all tokens."""
        with self._taken() as handle:
            _session_reset(handle)

    def save(self, path):
        """Writes tokens and cache to a file, from which a session of the same model goes on as this one would."""
        with self._taken() as handle:
            _session_save(handle, os.fsencode(path))

    def load(self, path):
        """What a file holds that `save` wrote, in the place of what the session holds. ValueError when it comes from another
        model, adapter or kind of cache, Error when it is damaged; the session is then as it was."""
        with self._taken() as handle:
            _session_load(handle, os.fsencode(path))

    def fork(self):
        """Another session with the same tokens, which shares the memory of the cache."""
        with self._taken() as handle:
            made = c_void_p()
            _session_fork(handle, byref(made))
            return Session._of(self._model, made)

    @classmethod
    def _of(cls, model, handle):
        session = cls.__new__(cls)
        session._model, session._handle = model, handle
        session._free, session._answer, session._closed = threading.Lock(), None, False
        return session

    def close(self):
        """Ends an answer under way, and frees the memory; a call of another thread goes on to its end before. Harmless once more."""
        self._closed = True
        answer = self._answer
        if answer := answer and answer():
            answer.close()
        self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    def generate(self, prompt, *, on_probe=None, probes=(), top_logprobs=0, **options):
        """A Generation that goes on after `prompt`, a text or token ids. Options with their defaults: max_tokens=256,
        seed=11, stop=() (a string or several), ignore_eos=False. `Model.sampling` has the defaults of temperature (0: the most
        likely token), top_k, top_p, min_p, repeat_penalty, repeat_window, and of presence_penalty and frequency_penalty,
        taken from the logits of tokens that the answer has already, once and for each time; None leaves a value to the
        model. Also logit_bias={}, numbers to add to logits by token id; grammar=None, a Grammar that the answer has to be a text of; max_thinking_tokens=-1, tokens after
        which an answer's thoughts are closed, and it goes on behind them (-1: no bound; `thought_ended` of the metrics).

        Some tokens ahead are guessed with lookup=True from the text so far, with draft= a smaller model of the same
        tokens, at most `draft_tokens` in a step (0: adaptive). The output is the same, and faster where drafts are right.

        on_probe is called on the thread that computes with a dict of each thing observed, for each token: all, or the
        `probes` "token", "top", "entropy", "cache", "memory", "router", "residual" and "logprob", the last with as many of the
        likeliest tokens as top_logprobs says, 20 at most; then nothing is guessed."""
        how = _options(**options)
        if isinstance(prompt, str):
            text = _text(prompt, "prompt")
            return Generation(self, how, lambda s, *rest: _generate_text(s, text, *rest), False, on_probe, probes, top_logprobs)
        ids, n = _ids(prompt)
        return Generation(self, how, lambda s, *rest: _generate(s, ids, n, *rest), False, on_probe, probes, top_logprobs)

    def chat(self, messages, *, tools=None, tool_choice=None, parallel_tool_calls=True, thinking=None, variables=None,
             continue_final_message=False, on_probe=None, probes=(), top_logprobs=0, **options):  # fmt: skip
        """A Generation of the assistant's answer to a conversation: a list of {"role": ..., "content": ...}, or a text that
        the user says. A content may be a list of parts, {"type": "text", "text": ...}, and None for an empty one; answers may
        have "tool_calls", and the role "tool" has results. `tools` describes what the model may call, and `tool_choice` holds
        calls to the tools' schemas: "auto" as the model decides, "none", "required", or the name of the one to call; at most
        one without `parallel_tool_calls`. With a `grammar` the choice is "auto" unless another is given: the answer is calls of
        tools or a text of the grammar. `thinking` turns the model's thoughts on or off where the chat template can, `variables`
        are the template's own. With `continue_final_message` the answer continues the last message's text, and is the continuation alone.
        What the session already holds of the conversation is not computed again. Options as in
        generate; with parse_special=True special tokens that messages spell are some."""
        how = _options(**options)
        given = _Chat(messages, tools, thinking, variables, tool_choice, parallel_tool_calls, options.get("grammar"),
                      continue_final_message)  # fmt: skip
        return Generation(self, how, lambda s, *rest: _generate_chat(s, given._handle, *rest), True, on_probe, probes, top_logprobs)

    def logits(self, prompt, last=False):
        """Appends a text or token ids; the logits after each token, float32 [n, vocab], or [vocab] after the last one."""
        ids, n = _ids(self._model.tokenize(prompt) if isinstance(prompt, str) else prompt)
        if not n:
            raise ValueError("logits of no tokens")
        vocab = self._model.vocab_size
        rows = (c_float * ((1 if last else n) * vocab))()
        at = ctypes.addressof(rows)

        def put(values, first, n_rows, n_columns, user):
            nonlocal at
            ctypes.memmove(at, values, 4 * n_rows * n_columns)
            at += 4 * n_rows * n_columns
            return True

        with self._taken() as handle:
            how = lib.options(ht_forward_options, all_rows=not last)
            _forward(handle, ids, n, byref(how), _LOGITS(put), None)
        shape = (vocab,) if last else (n, vocab)
        return lib.call(_array_from, rows, float32.code, (c_int64 * len(shape))(*shape), len(shape))


class Model:
    """A checkpoint in memory. It may be used from several threads; each call has a session of its own."""

    def __init__(self, handle, device, path):
        self._handle, self._device, self._path = handle, device, path

    def __del__(self, free=_model_free, free_device=_device_free):
        free(getattr(self, "_handle", None))
        free_device(getattr(self, "_device", None))

    @property
    def context(self):
        """Positions that a session may use."""
        return _context(self._handle)

    @property
    def vocab_size(self):
        return _vocab_size(self._handle)

    @property
    def sampling(self):
        """Sampling values of requests that give none: (value, source) by name. The source is "generation_config.json",
        "GGUF metadata" or "default"."""
        values = {}
        while found := _sampling(self._handle, len(values)):
            values[found[0].name.decode()] = found[0].value, found[0].source.decode()
        return values

    @property
    def chat_format(self):
        """How conversations are written: "template" when the checkpoint has its own, else the name of a format that its
        vocabulary tells, or None."""
        name = _format_name(self._handle)
        return name and name.decode()

    def session(self, adapters=()):
        return Session(self, adapters)

    def load_adapter(self, path):
        """Reads a LoRA adapter for this model: a directory of PEFT or mlx-lm, or a GGUF file."""
        return _adapter.load(path, self)

    def lora(self, *, rank=8, alpha=16.0, scale=None, rslora=False, dropout=0.0, targets="q_proj,v_proj", layers="all",
             dtype=float32, normal_init=False, init_adapter=None, seed=0):  # fmt: skip
        """A Lora: an adapter as arrays that are trained. `targets`: names of projections, with commas between or as a list,
        patterns with *, or "all-linear". `layers`: "all", or how many of the last. Its change is multiplied by `scale`, or by
        alpha / rank, or with `rslora` by alpha / sqrt(rank). A is uniform within 1 / sqrt(n_in), or with `normal_init` normal
        with deviation 1 / rank; B is 0. With `init_adapter`, an Adapter or a path, it has the values, ranks, scales and
        projections of that one. `dropout`: share of a projection's inputs that A does not see."""
        return _lora.Lora(self, rank=rank, alpha=alpha, scale=scale, rslora=rslora, dropout=dropout, targets=targets,
                          layers=layers, dtype=dtype, normal_init=normal_init, init_adapter=init_adapter, seed=seed)  # fmt: skip

    def loss_and_grad(self, lora, batch, *, key=None, checkpointing=False, reduction="mean"):
        """(loss, gradients by name) of the model with `lora`: the cross-entropy of the learned tokens of a batch, their mean, or
        with reduction="sum" their sum. A batch is a list of samples, of which each is a list of token ids; a
        pair of such lists, prompt and completion, of which the latter is learned; or {"input_ids": ..., "labels": ...} with
        -100 for labels that are not learned. Samples do not see one another, and need no padding. `key`: of the random numbers
        of dropout. `checkpointing` computes each layer again for its gradient: less memory, a third more time."""
        if not isinstance(lora, _lora.Lora) or lora._model is not self:
            raise ValueError("the adapter is not one that this model's lora() made")
        return _lora.loss_and_grad(lora, batch, key, checkpointing, reduction)

    def _need_tokenizer(self):
        tokenizer = _tokenizer(self._handle)
        if not tokenizer:
            raise lib.Error("no tokenizer (a directory without tokenizer.json, or a GGUF without a vocabulary): the model "
                            "takes and gives token ids alone")  # fmt: skip
        return tokenizer

    def tokenize(self, text, add_special=True, parse_special=True):
        """The token ids of a text, with BOS or EOS where the checkpoint asks for it."""
        data, ids, n = text.encode(), POINTER(c_int32)(), c_size_t()
        _encode(self._need_tokenizer(), data, len(data), bool(add_special) | bool(parse_special) << 1, byref(ids), byref(n))
        try:
            return ids[: n.value] if n.value else []
        finally:
            _ids_free(ids)

    def detokenize(self, ids, skip_special=False):
        given, n = _ids(ids)
        text, length = c_void_p(), c_size_t()
        _decode(self._need_tokenizer(), given, n, skip_special, byref(text), byref(length))
        try:
            return ctypes.string_at(text, length.value).decode("utf-8", "replace")
        finally:
            _text_free(text)

    def format_chat(self, messages, *, tools=None, thinking=None, variables=None, continue_final_message=False):
        """The conversation as the checkpoint's chat template writes it, with the assistant's turn opened, or up to the end of the last
        message's text with `continue_final_message`."""
        given, text = _Chat(messages, tools, thinking, variables, continue_final_message=continue_final_message), c_void_p()
        _format(self._handle, given._handle, byref(text))
        try:
            return ctypes.string_at(text).decode("utf-8", "replace")
        finally:
            _text_free(text)

    def generate(self, prompt, *, adapters=(), **options):
        """Session.generate in a new session."""
        return self.session(adapters).generate(prompt, **options)

    def chat(self, messages, *, adapters=(), **options):
        """Session.chat in a new session."""
        return self.session(adapters).chat(messages, **options)

    def engine(self, *, sequences=16, queue=256, step_tokens=0, prefill_budget=2.0, kv_bytes=0, prefix_bytes=None):
        """An Engine, which answers many requests side by side: at most `sequences` answers at once, while at most `queue` wait.
        A step computes at most `step_tokens` tokens, by default (0) as many as keep the device busy: 512 on a CPU, 2,048 on a GPU
        with memory for them. While a prompt is read, a running answer waits at most `prefill_budget` times as long for its
        next token.
        `kv_bytes`: of keys and values, by default half of the memory that is free, of which at most `prefix_bytes`, by default
        half, are kept for prompts that begin alike; 0 keeps none."""
        return _engine.Engine(self, sequences=sequences, queue=queue, step_tokens=step_tokens, prefill_budget=prefill_budget,
                              kv_bytes=kv_bytes, prefix_bytes=prefix_bytes)  # fmt: skip

    def logits(self, prompt, last=False, *, adapters=()):
        """Session.logits in a new session."""
        with self.session(adapters) as session:
            return session.logits(prompt, last)

    def classify(self, prompts, labels=None, *, logits=False, adapters=(), on_result=None):
        """A Classification of each prompt, in their order. A prompt is a text, a list of token ids, or a conversation as a list
        of messages. `labels` are texts that may follow it: their probabilities are those among them, and one of several tokens counts as a
        whole. `logits`: give all logits, too. What prompts have in common is computed once, and many go together. One that fails has an
        error; the others go on. `on_result` is called with the number of a prompt and its result as they come."""
        return _many.classify(self, prompts, labels, logits, adapters, on_result)

    def score(self, requests, *, top_k=0, adapters=(), on_result=None):
        """A Score of each request, in their order: a pair of a prompt, as in classify, and of what may follow it, a text or a list of
        texts and lists of token ids. `top_k`: so many of the likeliest tokens beside each token."""
        return _many.score(self, requests, top_k, adapters, on_result)

    def batch(self, requests, *, adapters=(), on_result=None, **options):
        """Answers to each request, in their order, which are generated side by side. A request is a prompt as in classify, or a
        dict with "prompt" and options that go before those of the call: those of Session.generate, "adapters", and "n" for so many
        answers, which are drawn with the seed, the seed plus 1 and so on. A conversation is answered as by Session.chat."""
        return _many.batch(self, requests, adapters, on_result, options)
    def inspect(self, prompt, *, keys=True, values=False, queries=False, layers=None, attention=(), adapters=()):
        """What the model computes for a text or token ids, as an Inspection: the keys of its layers after RoPE, with `values`
        and `queries` those, too, of all layers or of those in the list `layers`; and the attention weights of the layers in
        `attention`. The arrays are what the model computes before the cache rounds it. An Error with the numbers says when
        they do not fit in memory."""
        ids, n = _ids(self.tokenize(prompt) if isinstance(prompt, str) else prompt)
        return _inspect.inspect(self, ids, n, keys, values, queries, layers, attention, adapters)

    @property
    def prompts(self):
        """The checkpoint's prompts for embed, by name: those of config_sentence_transformers.json."""
        return _embed.prompts(self)

    def embed(self, texts, *, pooling=None, normalize=True, dimensions=0, prompt=None, truncate=False, adapters=()):
        """Texts, or lists of token ids, as vectors: an array [texts, hidden], or [hidden] of a single text. `pooling`: the
        hidden state of the "last" token after the final norm, the "mean" over all tokens, that of the first token, "cls", or "max",
        "mean_sqrt_len" or "weightedmean"; None: what the checkpoint says, else "last", of a text encoder "mean". "none" gives an array [tokens, hidden] for each
        text. `normalize`: to a length of 1, after taking the first `dimensions` values, if not 0. `prompt`: the name of one of `prompts`,
        which is put before texts; None: the checkpoint's default, "": none. `truncate`: drop the end of texts that are too long.
        They go through the model together, as many at once as there are slots, and each gets the bits that it gets alone."""
        single = isinstance(texts, str)
        given = [_text(text) if isinstance(text, str) else _ids(text) for text in ([texts] if single else texts)]
        prompt = None if prompt is None else _text(prompt, "prompt")
        found = _embed.embed(self, given, pooling, normalize, dimensions, prompt, truncate, adapters)
        return found[0] if single else found

    def rerank(self, query, documents, *, instruction=None, top_n=None, truncate=False, document_tokens=0, adapters=()):
        """The Relevance of documents to a query, the best first, at most `top_n`. The model has to be a reranker. `instruction`: the
        task, for decoders whose prompt states it. `truncate`: drop the end of documents that do not fit the context; `document_tokens`: and
        of those with more tokens, if not 0. The prompt up to the query is computed once, and many documents go together."""
        if isinstance(documents, str):
            raise TypeError("documents is a str, expected a list of them")
        given = [_text(document, "document") for document in documents]
        instruction = None if instruction is None else _text(instruction, "instruction")
        found = _rerank.rerank(self, _text(query, "query"), given, instruction, truncate, document_tokens, adapters)
        return found if top_n is None else found[: lib.integer(top_n, "top_n", 1, lib.INT32[1])]


def load(path, *, threads=0, precision="high", context=0, sliding=False, slots=0, kv_dtype=float16,
         packed_cache=None, device="cpu"):  # fmt: skip
    """Loads a checkpoint: a .gguf file or a directory. `device`: what computes, "cpu", or an NVIDIA GPU, "cuda", "cuda:1" and so
    on; arrays are always the CPU's. `threads`: 0 is one per core. `precision`: "high"; "fast" rounds
    activations to 8 bits, not 15; "reference" is float32 throughout. `context`: a limit on positions; `sliding`: forget
    beyond it instead of ending. `slots`: how many sequences a step computes at most. `kv_dtype`: how keys and values are kept: float16,
    bfloat16, float32 or int8. `packed_cache`: a directory of the user's alone that keeps the packed weights, so that later
    loads map them at once and share them between processes; True is the place of the command's --packed-cache."""
    how_precise = lib.choice(precision, "precision", _PRECISIONS)
    if kv_dtype not in _CACHES:
        raise ValueError(f"kv_dtype is {kv_dtype!r}, expected one of {', '.join(d.name for d in _CACHES)}")
    threads, slots = (lib.integer(n, what, *lib.INT32) for n, what in ((threads, "threads"), (slots, "slots")))
    context = lib.integer(context, "context", *lib.INT64)
    if packed_cache is True:
        cache = os.environ.get("XDG_CACHE_HOME", "")
        packed_cache = os.path.join(cache if cache.startswith("/") else os.path.expanduser("~/.cache"), "hearth", "packed")
    opened, handle = c_void_p(), c_void_p()
    if threads or device != "cpu":
        if not isinstance(device, str):
            raise TypeError(f"device is {device!r}, expected the name of one")
        _device_open(device.encode(), lib.options(ht_device_options, n_threads=threads), byref(opened))
    else:  # that of arrays, which then meet the model's
        opened = c_void_p(_device_retain(lib.device))
    try:
        how = lib.options(ht_model_options, device=opened, precision=how_precise,
                          context=context, sliding=sliding, slots=slots, kv_dtype=kv_dtype.code,
                          packed_cache=lib.path(packed_cache) if packed_cache else None)  # fmt: skip
        _load(lib.path(path), byref(how), byref(handle))
    except BaseException:
        _device_free(opened)
        raise
    return Model(handle, opened, path)
