"""Many prompts at once: classification, scores of continuations, and batches of answers (Model.classify, score, batch)."""

import ctypes
import json
from collections.abc import Mapping
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, NamedTuple

from . import _adapter, _model
from . import _library as lib
from ._adapter import Adapter
from ._array import array
from ._dtype import float32
from ._structs import (
    HT_ERR_ARGUMENT,
    ht_batch_options,
    ht_batch_result,
    ht_classification,
    ht_classify_options,
    ht_continuation,
    ht_error,
    ht_prompt,
    ht_request,
    ht_score_options,
    ht_score_request,
    ht_score_result,
)

__all__ = ["Answer", "Answers", "Classification", "ContinuationScore", "Score", "TokenScore"]


class Classification(NamedTuple):
    """What came of a prompt: the likeliest token after it, its text and its log-probability; with labels, the likeliest label, and
    of each label its probability among them and its log-probability; and all logits, where they were asked for. `error`: why there is
    nothing of that."""

    error: Exception | None = None
    token: int = -1
    text: str | None = None
    log_probability: float = 0.0
    prompt_tokens: int = 0
    label: str | None = None
    probabilities: dict[str, float] | None = None
    log_probabilities: dict[str, float] | None = None
    logits: array | None = None


class TokenScore(NamedTuple):
    """A token, its log-probability given all before it, and the likeliest in its place as pairs of both."""

    id: int
    log_probability: float
    top: list[tuple[int, float]]


class ContinuationScore(NamedTuple):
    """The log-probability of a continuation, which is the sum over its tokens."""

    log_probability: float
    tokens: list[TokenScore]


class Score(NamedTuple):
    """What came of a prompt and its continuations, which are scored from its token `shared_tokens` on: where encodings begin to
    differ. `error`: why there is nothing of that."""

    error: Exception | None = None
    prompt_tokens: int = 0
    shared_tokens: int = 0
    continuations: list[ContinuationScore] = []


class Answer(NamedTuple):
    """An answer: its text and tokens, why it ended ("stop" or "length"), and the thoughts and calls of tools of a conversation's.
    `error`: why it is not whole. `stop`, `stop_id` and `thought_ended` as in Generation.metrics."""

    error: Exception | None
    text: str
    tokens: list[int]
    finish: str | None
    thinking: str
    tool_calls: list[dict[str, Any]]
    prompt_tokens: int
    reused_tokens: int
    stop: int | None
    stop_id: int | None
    thought_ended: bool


class Answers(NamedTuple):
    """What came of a request: its answers, as many as `n` of it says. `error`: why there are none."""

    error: Exception | None = None
    answers: list[Answer] = []

    @property
    def text(self):
        """Of the first answer; raises its error, or that of the request, when there is one."""
        error = self.error or self.answers[0].error
        if error:
            raise error
        return self.answers[0].text


_NEXT = CFUNCTYPE(c_int, c_size_t, c_void_p, c_void_p, POINTER(ht_error))
_PROGRESS = dict(ht_classify_options._fields_)["progress"]


def _declare(name, options, result):
    take = CFUNCTYPE(c_bool, POINTER(result), c_void_p)
    return lib.declare(name, c_int, c_void_p, c_void_p, c_size_t, POINTER(options), take, c_void_p, lib._ERROR), take


_classify, _TAKE_CLASSIFICATION = _declare("ht_classify", ht_classify_options, ht_classification)
_score, _TAKE_SCORE = _declare("ht_score", ht_score_options, ht_score_result)
_batch, _TAKE_ANSWERS = _declare("ht_batch_generate", ht_batch_options, ht_batch_result)


def _error_of(status, message):
    return lib.exception_of(ht_error(status, message)) if status else None


class _Prompt:
    """A prompt as the library takes it: of a text, of token ids, or of a conversation."""

    def __init__(self, prompt):
        self.ids = self.text = self.chat = None
        self.n_ids = 0
        if isinstance(prompt, str):
            self.text = _model._text(prompt, "prompt")
            return
        prompt = list(prompt)
        if prompt and isinstance(prompt[0], Mapping):
            self.chat = _model._Chat(prompt)
        else:
            self.ids, self.n_ids = _model._ids(prompt)

    def put(self, to):
        """Into an ht_prompt or an ht_request, which it has to outlive."""
        to.ids = None if self.ids is None else ctypes.addressof(self.ids)
        to.n_ids, to.text, to.chat = self.n_ids, self.text, self.chat and self.chat._handle


class _Adapters:
    """A list of adapters as the library takes it."""

    def __init__(self, adapters):
        given = [_adapter.scaled(a) for a in ([adapters] if isinstance(adapters, Adapter) else adapters)]
        self.keep, self.n = given, len(given)
        self.handles = (c_void_p * self.n)(*(a._handle for a, _ in given))
        self.scales = (c_float * self.n)(*(scale for _, scale in given))

    def put(self, to):
        to.adapters = ctypes.cast(self.handles, c_void_p) if self.n else None
        to.adapter_scales = ctypes.cast(self.scales, c_void_p) if self.n else None
        to.n_adapters = self.n


class _Call:
    """A call of the library with what it asks of Python: the next prompt, and what to do with a result. An exception ends the call and
    is raised after it; so is the one of Ctrl-C."""

    def __init__(self, items, kind, put, read, on_result):
        self.items, self.kind, self.put, self.read, self.on_result = list(items), kind, put, read, on_result
        self.results, self.failure, self.kept = [], None, None

    def guard(self, function, *arguments):
        try:
            function(*arguments)
        except BaseException as e:
            self.failure = self.failure or e
        return self.failure is None

    def next(self, i, to, user, error):
        def put():
            self.kept = self.put(self.items[i], ctypes.cast(to, POINTER(self.kind)).contents)

        if self.guard(put):
            return 0
        error.contents.status, error.contents.message = HT_ERR_ARGUMENT, b"an exception in Python"
        return HT_ERR_ARGUMENT

    def take(self, result, user):
        def take():
            self.results.append(self.read(result.contents))
            if self.on_result:
                self.on_result(len(self.results) - 1, self.results[-1])

        return self.failure is None and self.guard(take)

    def run(self, function, take, model, options):
        next_one = _NEXT(self.next)
        options.next = ctypes.cast(next_one, c_void_p)
        if hasattr(options, "progress"):
            options.progress = _PROGRESS(lambda done, user: None)  # where Python sees that Ctrl-C was pressed
        error = ht_error()
        status = function(model._handle, None, len(self.items), byref(options), take(self.take), None, byref(error))
        if self.failure is not None:
            raise self.failure
        if status:
            raise lib.exception_of(error)
        return self.results


# ---- classification ----


def classify(model, prompts, labels, logits, adapters, on_result):
    names = list(labels or ())
    texts = (c_char_p * len(names))(*(_model._text(name, "label") for name in names))
    given, vocab = _Adapters(adapters), model.vocab_size

    def put(prompt, to):
        kept = _Prompt(prompt)
        kept.put(to)
        return kept

    def read(r):
        if r.status:
            return Classification(error=_error_of(r.status, r.message))
        made = Classification(None, r.token, r.text and r.text.decode("utf-8", "replace"), r.log_probability, r.prompt_tokens)
        if names:
            made = made._replace(label=names[r.label],
                                 probabilities={n: r.labels[i].probability for i, n in enumerate(names)},
                                 log_probabilities={n: r.labels[i].log_probability for i, n in enumerate(names)})  # fmt: skip
        if r.logits:
            made = made._replace(logits=lib.call(_model._array_from, r.logits, float32.code, (c_int64 * 1)(vocab), 1))
        return made

    how = lib.options(ht_classify_options, labels=texts, n_labels=len(names), logits=bool(logits))
    given.put(how)
    return _Call(prompts, ht_prompt, put, read, on_result).run(_classify, _TAKE_CLASSIFICATION, model, how)


# ---- scores ----


def _continuations(given):
    """(ht_continuation [n], what it points to) of texts and lists of token ids."""
    given = [given] if isinstance(given, str) else list(given)
    made, kept = (ht_continuation * len(given))(), []
    for to, continuation in zip(made, given, strict=True):
        if isinstance(continuation, str):
            to.text = _model._text(continuation, "continuation")
        else:
            ids, to.n_ids = _model._ids(continuation)
            to.ids = ctypes.addressof(ids)
            kept.append(ids)
    return made, kept


def score(model, requests, top_k, adapters, on_result):
    given = _Adapters(adapters)

    def put(request, to):
        prompt, continuations = request
        kept, made = _Prompt(prompt), _continuations(continuations)
        kept.put(to.prompt)
        to.continuations, to.n_continuations = made[0], len(made[0])
        return kept, made

    def read_token(t):
        return TokenScore(t.id, t.log_probability, [(p.id, p.log_probability) for p in t.top[: t.n_top]] if t.n_top else [])

    def read(r):
        if r.status:
            return Score(error=_error_of(r.status, r.message))
        found = [ContinuationScore(c.log_probability, [read_token(t) for t in c.tokens[: c.n_tokens]])
                 for c in r.continuations[: r.n_continuations]]  # fmt: skip
        return Score(None, r.prompt_tokens, r.shared_tokens, found)

    how = lib.options(ht_score_options, top_k=lib.integer(top_k, "top_k", *lib.INT32))
    given.put(how)
    return _Call(requests, ht_score_request, put, read, on_result).run(_score, _TAKE_SCORE, model, how)


# ---- batches ----


def _read_call(call):
    values = {"name": call.name, "arguments": call.arguments, "id": call.id}
    values = {name: value and value.decode("utf-8", "replace") for name, value in values.items()}
    return {**values, "arguments": json.loads(values["arguments"])}


def _text_at(address, n):
    return ctypes.string_at(address, n).decode("utf-8", "replace")


def _read_answer(a):
    report = a.report.contents
    n = report.metrics.generated_tokens
    tokens = list((c_int32 * n).from_address(report.token)) if n else []
    metrics = _model.ended(report.metrics)
    return Answer(_error_of(report.status, report.message), _text_at(a.text, a.n_text), tokens, metrics["finish"],
                  _text_at(a.thinking, a.n_thinking),
                  [_read_call(a.calls[i]) for i in range(a.n_calls)], report.metrics.prompt_tokens + report.reuse.reused,
                  report.reuse.reused, metrics["stop"], metrics["stop_id"], metrics["thought_ended"])  # fmt: skip


def batch(model, requests, adapters, on_result, options):
    common, own = _Adapters(adapters), []

    def put(request, to):
        request = dict(request) if isinstance(request, Mapping) else {"prompt": request}
        prompt = _Prompt(request.pop("prompt"))
        prompt.put(to)
        to.n = lib.integer(request.pop("n", 1), "n", 1, 1024)
        used = common
        if "adapters" in request:
            used = _Adapters(request.pop("adapters"))
            own.append(used)  # adapters have to stay until the end
        used.put(to)
        how = _model._options(**{**options, **request})
        to.options = ctypes.pointer(how)
        return prompt, how

    def read(r):
        return Answers(_error_of(r.status, r.message), [_read_answer(r.answers[i]) for i in range(r.n_answers)])

    how = lib.options(ht_batch_options)
    return _Call(requests, ht_request, put, read, on_result).run(_batch, _TAKE_ANSWERS, model, how)
