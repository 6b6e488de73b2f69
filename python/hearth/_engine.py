"""Engines: many requests on one model, answered side by side; for threads and for asyncio."""

import collections
import ctypes
import itertools
import os
import threading
import weakref
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p, cast

from . import _adapter, _model, _probes
from . import _library as lib
from ._adapter import Adapter
from ._structs import (
    HT_ERR_CANCELLED,
    HT_REUSE_DIFFERS,
    ht_answer_piece,
    ht_answer_report,
    ht_cancel,
    ht_engine_options,
    ht_engine_statistics,
    ht_request,
    ht_reuse,
)

__all__ = ["AnswerStream", "Engine", "Request"]

_open = lib.declare("ht_engine_open", c_int, c_void_p, POINTER(ht_engine_options), POINTER(c_void_p), lib._ERROR)
_close = lib.declare("ht_engine_close", None, c_void_p)
_submit = lib.declare("ht_engine_submit", c_int, c_void_p, POINTER(ht_request), POINTER(c_uint64), lib._ERROR)
_cancel = lib.declare("ht_engine_cancel", None, c_void_p, c_uint64)
_warm = lib.declare("ht_engine_warm", c_int, c_void_p, POINTER(ht_request), POINTER(ht_reuse), lib._ERROR)
_save_cache = lib.declare("ht_engine_save_cache", c_int, c_void_p, c_char_p, lib._ERROR)
_load_cache = lib.declare("ht_engine_load_cache", c_int, c_void_p, c_char_p, lib._ERROR)
_clear_cache = lib.declare("ht_engine_clear_cache", c_int64, c_void_p)
_statistics = lib.declare("ht_engine_get_statistics", ht_engine_statistics, c_void_p)
_reuse_end_name = lib.declare("ht_reuse_end_name", c_char_p, c_int)
_cancel_request = lib.declare("ht_cancel_request", None, POINTER(ht_cancel))

# Pieces of an answer that nobody has read yet, at most. Then the engine waits with this answer, and with no other.
MOST_PIECES = 1024


def _reuse_of(reuse):
    """A report of the prefix cache as a dict; what tells where a prompt differs is None where it does not."""
    values = {name: getattr(reuse, name) for name, _ in ht_reuse._fields_}
    if reuse.end != HT_REUSE_DIFFERS:
        values.update(place=None, token=None, kept_token=None)
    return {**values, "end": _reuse_end_name(reuse.end).decode()}


# ---- answers, between the engine's threads and their readers ----


class _Report:
    """What is known of an answer that has ended: ht_answer_report, copied."""

    def __init__(self, report):
        self.status, self.message = report.status, report.message.decode("utf-8", "replace")
        self.metrics = _model.ended(report.metrics)
        self.metrics.update(queue_seconds=report.queue_seconds, preempted=report.preempted)
        self.reuse = _reuse_of(report.reuse)
        n = report.metrics.generated_tokens
        self.tokens = cast(report.token, POINTER(c_int32))[:n] if report.token else []


_NOT_YET = object()


class _Answer:
    """What the engine's threads share with the reader of an answer; they do not hold the reader, so that one which is dropped
    ends its answer. The lock may be taken again by the thread that holds it: a finalizer may run anywhere."""

    def __init__(self):
        self.changed, self.pieces, self.waiting = threading.Condition(), collections.deque(), []
        self.thoughts, self.calls, self.failure, self.report = [], [], None, None
        self.cancelled = self.refused = self.stopped = self.unbounded = self.told = False
        self.rest = None

    # ---- the engine's threads ----

    def put(self, piece):
        """Takes a piece, and waits while the reader is behind; false when it shall be the last."""
        try:
            kind, value = _model.part_of(piece)
        except BaseException as e:  # whatever it is, it is raised where the pieces are read
            self.failure = e
            return False
        with self.changed:
            if kind == "call":
                self.calls.append(value)
            elif kind == "thinking":
                self.thoughts.append(value)
            elif not self.cancelled:
                self.pieces.append(value)
                self._wake(False)
            while len(self.pieces) >= MOST_PIECES and not (self.cancelled or self.stopped or self.unbounded):
                self.changed.wait()
            return not self.refused and self.failure is None

    def observe(self, on_probe, probe):
        try:
            if self.failure is None:
                on_probe({"answer": probe.answer, **_probes.seen(probe)})
        except BaseException as e:
            self.failure = e

    def end(self, report):
        with self.changed:
            self.report = report
            self._wake(True)

    def _wake(self, ended):
        """All readers, or those alone who do not wait for the end. With the lock."""
        self.changed.notify_all()
        for entry in list(self.waiting):
            loop, future, for_end = entry
            if ended or not for_end:
                self.waiting.remove(entry)
                try:
                    loop.call_soon_threadsafe(_release, future)
                except RuntimeError:  # the loop is closed, and nobody waits any more
                    pass

    # ---- readers ----

    def poll(self):
        """A piece, None behind the last one, or _NOT_YET. With the lock."""
        if self.pieces:
            self.changed.notify_all()
            return self.pieces.popleft()
        if not self.cancelled and self.report is None:
            return _NOT_YET
        if not self.cancelled and not self.told:
            self.told = True
            self.check()
        return None

    def check(self):
        """Raises why there is no whole answer."""
        if self.stopped:
            lib.check_exit()
        if self.failure is not None:
            raise self.failure
        if self.cancelled or (self.stopped and self.report.status):
            n = self.report.metrics["generated_tokens"]
            raise lib.Error(f"{'the answer was cancelled' if self.cancelled else 'the engine was closed'} after {n} tokens of it")
        if self.report.status:
            raise lib.exception_for(self.report.status, self.report.message)

    def next(self):
        with self.changed:
            while (piece := self.poll()) is _NOT_YET:
                self.changed.wait()
            return piece

    async def wait_in_loop(self, for_end):
        """Until there may be something new. Holds no lock while it waits."""
        from asyncio import get_running_loop  # where this runs, it has been imported

        loop = get_running_loop()
        entry = loop, loop.create_future(), for_end
        with self.changed:
            if self.report is not None or self.pieces and not for_end:
                return
            self.waiting.append(entry)
        try:
            await entry[1]
        finally:
            with self.changed:
                if entry in self.waiting:
                    self.waiting.remove(entry)

    async def next_in_loop(self):
        while True:
            with self.changed:
                piece = self.poll()
            if piece is not _NOT_YET:
                return piece
            await self.wait_in_loop(False)

    def let_run(self):
        """Takes all pieces, whether they are read or not."""
        with self.changed:
            self.unbounded = True
            self.changed.notify_all()

    def wait(self, timeout=None):
        self.let_run()
        with self.changed:
            return self.changed.wait_for(lambda: self.report is not None, timeout)

    def text(self):
        """Of an answer that has ended."""
        with self.changed:
            self.check()
            if self.rest is None:
                self.rest = "".join(self.pieces)
                self.pieces.clear()
            return self.rest

    def cancel(self, alone=False):
        """Nobody reads any more. The engine ends it with its request, or `alone` by refusing the next piece."""
        with self.changed:
            if self.report is None:
                self.cancelled, self.refused = True, alone
                self.pieces.clear()
                self._wake(False)

    def stop(self):
        """The engine goes."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


def _release(future):
    if not future.done():
        future.set_result(None)


class _Asked:
    """The answers of a request, from submitting it to its last callback."""

    def __init__(self, answers, of_engine, on_probe):
        self.answers, self.left, self.of_engine, self.on_probe = answers, len(answers), of_engine, on_probe


# Requests by the number that callbacks are given, and whether this thread is in one.
_asked, _numbers, _here = {}, itertools.count(1), threading.local()


def _on_piece(piece, answer, number):
    asked, _here.in_callback = _asked.get(number), True
    try:
        return asked is not None and asked.answers[answer].put(piece.contents)
    finally:
        _here.in_callback = False


def _on_probe(probe, number):
    asked, _here.in_callback = _asked.get(number), True
    try:
        if asked is not None:
            asked.answers[probe.contents.answer].observe(asked.on_probe, probe.contents)
    finally:
        _here.in_callback = False


def _on_end(report, number):
    asked, _here.in_callback = _asked.get(number), True
    try:
        if asked is None:
            return
        asked.answers[report.contents.answer].end(_Report(report.contents))
        with _lock:
            asked.left -= 1
            if not asked.left:
                del _asked[number]
                asked.of_engine.pop(number, None)
    finally:
        _here.in_callback = False


_lock = threading.RLock()
_PIECE = lib.keep(CFUNCTYPE(c_bool, POINTER(ht_answer_piece), c_int32, c_void_p)(_on_piece))
_PROBE = lib.keep(_probes.FUNCTION(_on_probe))
_END = lib.keep(CFUNCTYPE(None, POINTER(ht_answer_report), c_void_p)(_on_end))


# ---- what programs hold ----


class AnswerStream:
    """An answer as it comes: an iterator of pieces of text, and an asynchronous one. `await` gives the text, as result() does.
    Thoughts and calls of tools in the answer of a conversation are no pieces: they are in `thinking` and `tool_calls`. Dropping it
    ends the answer, as leaving a `with` block does, or an `async for` before the end. An answer whose pieces nobody reads stands
    still after 1024 of them, and keeps its place among those under way; result(), wait() and `await` let it run to its end."""

    def __init__(self, engine, answer, asked, ticket):
        self._engine, self._answer, self._asked, self._ticket = engine, answer, asked, ticket

    def cancel(self):
        """Ends the answer; iterating is then over. Harmless when it has ended. Returns at once."""
        alone = any(not a.cancelled and a.report is None for a in self._asked if a is not self._answer)
        self._answer.cancel(alone)
        if not alone:
            self._engine._cancel(self._ticket.value)

    def __del__(self):
        if self._answer.report is None:
            AnswerStream.cancel(self)  # other answers of its request may be read on

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cancel()

    def __iter__(self):
        return self

    def __next__(self):
        piece = self._answer.next()
        if piece is None:
            raise StopIteration
        return piece

    def __aiter__(self):
        return _Reader(self)

    async def __anext__(self):
        piece = await self._answer.next_in_loop()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def __await__(self):
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self):
        self._answer.let_run()
        try:
            while self._answer.report is None:
                await self._answer.wait_in_loop(True)
        except BaseException:  # the task was cancelled
            self.cancel()
            raise
        return self._answer.text()

    def wait(self, timeout=None):
        """Waits until the answer has ended, for at most so many seconds; whether it has."""
        return self._answer.wait(timeout)

    def result(self):
        """Waits for the end, and gives the text, without what was iterated over. Raises why there is no whole answer."""
        self._answer.wait()
        return self._answer.text()

    @property
    def thinking(self):
        """The thoughts in the answer to a conversation, as far as they have come."""
        return "".join(self._answer.thoughts)

    @property
    def tool_calls(self):
        """The calls in the answer to a conversation so far: {"name": ..., "arguments": a dict, "id": a text or None}."""
        return list(self._answer.calls)

    @property
    def tokens(self):
        """The ids of the answer's tokens, once it has ended."""
        return list(self._answer.report.tokens) if self._answer.report else []

    @property
    def metrics(self):
        """What was counted and measured, once the answer has ended: as Generation.metrics, with "queue_seconds" before anything of
        it was computed, and how often it was "preempted" to make room for others. Empty until then."""
        report = self._answer.report
        if report is None:
            return {}
        return {**report.metrics, **_model.CLOSED} if self._answer.cancelled else dict(report.metrics)

    @property
    def reuse(self):
        """What the prefix cache did for the answer, once it has ended: how many tokens of the prompt were "cached", "reused"
        and "computed", and why not more: "end" is "all", "new", "differs", "ends", "evicted", "adapter", "short", "window",
        "state" or "off". Where it differs, "place" is that of the first other "token", in whose stead "kept_token" is kept. Empty until then."""
        return dict(self._answer.report.reuse) if self._answer.report else {}


class Request(AnswerStream):
    """What was submitted to an engine: its answer, or of several the first; `answers` are all, this one included."""

    def __init__(self, engine, asked, ticket):
        super().__init__(engine, asked[0], asked, ticket)
        self._others = [AnswerStream(engine, a, asked, ticket) for a in asked[1:]]

    @property
    def answers(self):
        return [self, *self._others]

    def cancel(self):
        """Ends all answers; iterating is then over. Harmless when they have ended. Returns at once."""
        for answer in self._asked:
            answer.cancel()
        self._engine._cancel(self._ticket.value)


class _Reader:
    """What an `async for` holds: it goes when the loop is left, and with it the answer."""

    def __init__(self, stream):
        self._stream = stream

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self._stream.__anext__()
        except BaseException:
            del self  # the traceback, which may live on, shall not hold it
            raise

    def __del__(self):
        if self._stream._answer.report is None:
            self._stream.cancel()


# ---- engines ----

_engines = weakref.WeakSet()


@lib.at_exit
def _close_all():
    for engine in list(_engines):
        engine.close()


def _forget_all():
    """In the child of a fork, which has none of the engines' threads."""
    _asked.clear()
    for engine in list(_engines):
        engine._forget()


os.register_at_fork(after_in_child=_forget_all)


class Engine:
    """Many requests on one model, which join and leave between its steps. Each gets the answer that it gets alone. May be used from
    several threads. Leaving its `with` block, and dropping it with all its requests, closes it."""

    def __init__(self, model, *, sequences=16, queue=256, step_tokens=0, prefill_budget=2.0, kv_bytes=0,
                 prefix_bytes=None):
        from ._model import Model  # which imports this module

        if not isinstance(model, Model):
            raise TypeError(f"an engine of a {type(model).__name__}, expected a model: Model.engine makes one")
        self._handle, self._model, self._asked, self._warming = c_void_p(), model, {}, []
        self._changed, self._inside, self._closed, self._gone = threading.Condition(), 0, False, False
        sequences, queue, step_tokens = (
            lib.integer(n, what, *lib.INT32)
            for n, what in ((sequences, "sequences"), (queue, "queue"), (step_tokens, "step_tokens"))
        )
        how = lib.options(ht_engine_options, sequences=sequences, queue=queue, step_tokens=step_tokens,
                          prefill_budget=prefill_budget,
                          kv_bytes=lib.integer(kv_bytes, "kv_bytes", *lib.UINT64))  # fmt: skip
        if prefix_bytes is not None:
            how.prefix_bytes = lib.integer(prefix_bytes, "prefix_bytes", *lib.UINT64)
        lib.check(_open, model._handle, byref(how), byref(self._handle))
        _engines.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    def close(self):
        """Cancels all requests, and waits until nothing runs any more."""
        if getattr(_here, "in_callback", False):  # a finalizer: the engine would wait for this very thread
            threading.Thread(target=self.close, daemon=True).start()
            return
        with self._changed:
            self._closed = True
            for cancel in self._warming:
                _cancel_request(cancel)
            while self._inside:
                self._changed.wait()
            handle, self._handle = self._handle, c_void_p()
            if not handle:  # another thread closes it
                while not self._gone:
                    self._changed.wait()
                return
        try:
            for asked in list(self._asked.values()):
                for answer in asked:
                    answer.stop()
            _close(handle)
        finally:
            with self._changed:
                self._gone = True
                self._changed.notify_all()

    def _forget(self):
        self._handle, self._closed, self._gone, self._inside = c_void_p(), True, True, 0
        self._changed = threading.Condition()
        none = ht_answer_report(status=HT_ERR_CANCELLED, message=b"the engine is one of the process before the fork")
        for answer in itertools.chain(*self._asked.values()):
            answer.changed, answer.waiting, answer.report = threading.Condition(), [], _Report(none)
        self._asked.clear()

    def _enter(self, cancel=None):
        """For a call into the engine, which is not closed meanwhile. Closing requests `cancel` of one that takes its time."""
        lib.check_exit()
        with self._changed:
            if self._closed:
                raise ValueError("the engine is closed")
            if cancel:
                self._warming.append(cancel)
            self._inside += 1
            return self._handle

    def _leave(self, cancel=None):
        with self._changed:
            self._inside -= 1
            if cancel:
                self._warming = [c for c in self._warming if c is not cancel]
            self._changed.notify_all()
        lib.check_exit()

    def _cancel(self, ticket):
        with self._changed:
            if not self._closed:
                _cancel(self._handle, ticket)

    def _request(self, prompt, adapters, salt, tools, thinking, variables, options, tool_choice=None, parallel_tool_calls=True,
                 continue_final_message=False):  # fmt: skip
        """ht_request, with all that it points to."""
        how = _model._options(**options)
        given = [_adapter.scaled(a) for a in ([adapters] if isinstance(adapters, Adapter) else adapters)]
        handles = (c_void_p * len(given))(*(a._handle for a, _ in given))
        scales = (c_float * len(given))(*(scale for _, scale in given))
        request = lib.options(ht_request, options=ctypes.pointer(how), adapters=cast(handles, c_void_p),
            adapter_scales=cast(scales, c_void_p), n_adapters=len(given), salt=_model._text(salt, "salt"),
        )  # fmt: skip
        request.held, request.how = (handles, scales, given), how
        if not isinstance(prompt, str):
            prompt = list(prompt)
            if any(isinstance(message, dict) for message in prompt):
                request.conversation = _model._Chat(prompt, tools, thinking, variables, tool_choice, parallel_tool_calls, options.get("grammar"),
                                                     continue_final_message)  # fmt: skip
                request.chat = request.conversation._handle
                return request
        if tools or tool_choice is not None or thinking is not None or variables or continue_final_message:
            raise ValueError("tools, tool_choice, thinking, variables and continue_final_message are for conversations, and the prompt is none")
        if isinstance(prompt, str):
            request.text = _model._text(prompt, "prompt")
        else:
            request.prompt, request.n_ids = _model._ids(prompt)
            request.ids = cast(request.prompt, c_void_p)
        return request

    def submit(self, prompt, *, n=1, priority=0, deadline=None, salt="", adapters=(), tools=None, tool_choice=None,
               parallel_tool_calls=True, thinking=None, variables=None, continue_final_message=False, on_probe=None, probes=(),
               top_logprobs=0, **options):  # fmt: skip
        """Queues a Request; its answer may be iterated over at once. `prompt` is a text, token ids, or a conversation as a list of
        messages, which is answered as by Model.chat. `n` answers are drawn with the seed, the seed plus 1 and so on. Of requests
        that wait the highest `priority` goes first. After `deadline` seconds it is cancelled. Prefixes of prompts are shared
        among requests with the same `salt` alone. Busy when as many wait as may, with the numbers. Options as in
        Session.generate and Session.chat, but for a draft; `on_probe` is called on a thread of the engine, in order with the pieces."""
        n, priority = lib.integer(n, "n", 1, lib.INT32[1]), lib.integer(priority, "priority", *lib.INT32)
        request = self._request(prompt, adapters, salt, tools, thinking, variables, options, tool_choice, parallel_tool_calls,
                                continue_final_message)  # fmt: skip
        asked, number, ticket = [_Answer() for _ in range(n)], next(_numbers), c_uint64()
        _probes.ask(request.how, on_probe, probes, top_logprobs, _PROBE, number)
        request.n, request.priority, request.deadline = n, priority, 0.0 if deadline is None else deadline
        request.piece, request.end, request.user = cast(_PIECE, c_void_p), cast(_END, c_void_p), number
        made = Request(self, asked, ticket)  # before: an interrupt, too, leaves it to be dropped
        handle = self._enter()
        try:
            self._asked[number] = asked
            _asked[number] = _Asked(asked, self._asked, on_probe)
            lib.check(_submit, handle, byref(request), byref(ticket))
        except BaseException:
            _asked.pop(number, None)
            self._asked.pop(number, None)
            raise
        finally:
            self._leave()
        return made

    def warm(self, prompt, *, salt="", adapters=(), tools=None, thinking=None, variables=None, parse_special=False):
        """Computes a prompt for the prefix cache: a system prompt, tools. What the cache did for it, as AnswerStream.reuse."""
        request = self._request(prompt, adapters, salt, tools, thinking, variables, {"parse_special": parse_special})
        cancel, reuse = ht_cancel(), ht_reuse()
        request.how.cancel = ctypes.pointer(cancel)
        handle = self._enter(cancel)
        try:
            lib.check(_warm, handle, byref(request), byref(reuse))
        finally:
            self._leave(cancel)
        return _reuse_of(reuse)

    def clear_cache(self):
        """Forgets what the prefix cache holds, but for what answers under way stand on, and returns the number of tokens."""
        handle = self._enter()
        try:
            return _clear_cache(handle)
        finally:
            self._leave()

    def save_cache(self, path):
        """Saves what the prefix cache holds to a file; what was computed with adapters is kept for the same adapters."""
        handle = self._enter()
        try:
            lib.check(_save_cache, handle, lib.path(path))
        finally:
            self._leave()

    def load_cache(self, path):
        """Adds what such a file holds, as far as there is room. It has to be of the same model."""
        handle = self._enter()
        try:
            lib.check(_load_cache, handle, lib.path(path))
        finally:
            self._leave()

    def statistics(self):
        """Figures since the engine was opened: answers "running" and "waiting" now; those "submitted", "ended", "cancelled",
        "failed" and "refused" so far; steps, tokens, bytes and budgets."""
        handle = self._enter()
        try:
            found = _statistics(handle)
        finally:
            self._leave()
        return {name: getattr(found, name) for name, _ in ht_engine_statistics._fields_}
