"""Trainers: LoRA adapters that learn from a file of samples, step by step."""

import contextlib
import json
import math
import os
import tempfile
import threading
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p, pointer, string_at
from typing import NamedTuple

from . import _library as lib
from ._adapter import Adapter
from ._dtype import float32
from ._lora import lora_options
from ._model import Model
from ._structs import (
    HT_CHECKPOINTING_AUTO,
    HT_CHECKPOINTING_OFF,
    HT_CHECKPOINTING_ON,
    HT_LONG_DROP,
    HT_LONG_REFUSE,
    HT_LONG_TRUNCATE,
    HT_MASK_ANSWERS,
    HT_MASK_LAST,
    HT_MASK_NONE,
    HT_METHOD_EMBED,
    HT_METHOD_SFT,
    HT_OPTIMIZER_ADAMW,
    HT_OPTIMIZER_SGD,
    HT_SAMPLE_FORMS,
    HT_SCHEDULE_CONSTANT,
    HT_SCHEDULE_COSINE,
    HT_SCHEDULE_LINEAR,
    ht_cancel,
    ht_data_count,
    ht_data_report,
    ht_optimizer_options,
    ht_retrieval,
    ht_train_step,
    ht_trainer_options,
    ht_trainer_plan,
)

__all__ = ["Trainer", "TrainStep", "Retrieval"]

_PIECE = CFUNCTYPE(c_bool, c_void_p, c_size_t, c_bool, c_void_p)
_new = lib.declare("ht_trainer_new", c_int, c_void_p, POINTER(ht_trainer_options), POINTER(c_void_p), lib._ERROR)
_free = lib.declare("ht_trainer_free", None, c_void_p)
_describe = lib.declare("ht_trainer_describe", None, c_void_p, POINTER(ht_trainer_plan))
_step = lib.declare("ht_trainer_step", c_int, c_void_p, POINTER(ht_train_step), lib._ERROR)
_evaluate = lib.declare("ht_trainer_evaluate", c_int, c_void_p, POINTER(c_double), lib._ERROR)
_retrieval = lib.declare("ht_trainer_retrieval", None, c_void_p, POINTER(ht_retrieval))
_adapter = lib.declare("ht_trainer_adapter", c_int, c_void_p, POINTER(c_void_p), lib._ERROR)
_save = lib.declare("ht_trainer_save", c_int, c_void_p, c_char_p, lib._ERROR)
_resume = lib.declare("ht_trainer_resume", c_int, c_void_p, c_char_p, lib._ERROR)
_sample = lib.declare("ht_trainer_sample", c_int, c_void_p, c_int64, _PIECE, c_void_p, lib._ERROR)
_form_name = lib.declare("ht_sample_form_name", c_char_p, c_int)
_cancel_request = lib.declare("ht_cancel_request", None, POINTER(ht_cancel))
_cancel_reset = lib.declare("ht_cancel_reset", None, POINTER(ht_cancel))

_METHODS = {"sft": HT_METHOD_SFT, "embed": HT_METHOD_EMBED}
_MASKS = {"answers": HT_MASK_ANSWERS, "last": HT_MASK_LAST, "none": HT_MASK_NONE}
_LONG = {"drop": HT_LONG_DROP, "truncate": HT_LONG_TRUNCATE, "refuse": HT_LONG_REFUSE}
_SCHEDULES = {"constant": HT_SCHEDULE_CONSTANT, "linear": HT_SCHEDULE_LINEAR, "cosine": HT_SCHEDULE_COSINE}
_OPTIMIZERS = {"adamw": HT_OPTIMIZER_ADAMW, "sgd": HT_OPTIMIZER_SGD}
_CHECKPOINTING = {"auto": HT_CHECKPOINTING_AUTO, "on": HT_CHECKPOINTING_ON, "off": HT_CHECKPOINTING_OFF}

# ---- calls that an interruption cancels ----


class _Calls:
    """Calls of the library that take long, one at a time. They compute in a thread of their own, so that an interruption of
    the calling one (Ctrl-C) is noticed at once; it cancels the call, and is raised when that has ended."""

    def __init__(self):
        self.cancel, self._lock, self._done = ht_cancel(), threading.Lock(), threading.Event()
        self._done.set()

    @contextlib.contextmanager
    def taken(self):
        """For one call. That before may still be ending, when waiting for it was interrupted."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("the trainer is busy with another call")
        try:
            self._done.wait()
            _cancel_reset(self.cancel)
            yield
        finally:
            self._lock.release()

    def run(self, function, *arguments):
        """lib.check(function, *arguments)"""
        failure = []

        def work():
            try:
                lib.check(function, *arguments)
            except BaseException as e:
                failure.append(e)
            finally:
                self._done.set()

        with self.taken():
            self._done.clear()
            try:
                threading.Thread(target=work, daemon=True).start()
            except BaseException:  # there is no thread, and nothing to wait for
                self._done.set()
                raise
            try:
                self._done.wait()
            except BaseException:
                _cancel_request(self.cancel)
                self._done.wait()
                raise
        if failure:
            raise failure[0]

    def wait(self):
        self._done.wait()


# ---- what it is about to do ----


def _figures(struct):
    """A struct of the library as a dict of plain values."""
    values = {}
    for name, _ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, ht_data_count):
            value = {"n": value.n, "lines": list(value.line[: min(value.n, len(value.line))])}
        elif name in ("data", "valid"):
            value = _figures(value.contents) if value else None
        elif name == "n_form":
            value = {_form_name(form).decode(): value[form] for form in range(HT_SAMPLE_FORMS) if value[form]}
        elif name == "length":
            value = {2**i: n for i, n in enumerate(value) if n}
        elif name == "first_bad":
            value = value.message.decode("utf-8", "replace") or None
        values[name] = value
    return values


class TrainStep(NamedTuple):
    """What a step did: steps done, this one included; the mean loss of the learned tokens, or of the anchors; the learning rate;
    the norm of the gradients before clipping; rows computed, and how many of them are learned, or the anchors; whether nothing was changed, as loss or norm
    were not finite, and how often that was so until now."""

    iter: int
    loss: float
    lr: float
    grad_norm: float
    tokens: int
    learned: int
    skipped: bool
    total_skipped: int


class Retrieval(NamedTuple):
    """How anchors of held-out pairs rank the candidates of all of them by cosine: their numbers; the share of anchors whose
    positive is first; the means of 1 / rank and of 1 / log2(1 + rank) of the positive, 0 beyond rank 10."""

    anchors: int
    candidates: int
    accuracy_at_1: float
    mrr_at_10: float
    ndcg_at_10: float


# ---- trainers ----


def _file_of(data):
    """(path, what keeps it) of a file, or of samples that are written to one."""
    if isinstance(data, (str, bytes, os.PathLike)):
        return lib.path(data), None
    file = tempfile.NamedTemporaryFile("w", prefix="hearth-", suffix=".jsonl", encoding="utf-8")
    for sample in data:
        file.write(json.dumps(sample, ensure_ascii=False, allow_nan=False) + "\n")
    file.flush()
    return lib.path(file.name), file


class _Steps:
    """An iteration over a trainer. Any thread may close it at any time, which a generator refuses while it runs."""

    def __init__(self, trainer):
        self._trainer, self._ended = trainer, False

    def __iter__(self):
        return self

    def __next__(self):
        if not self._ended:
            plan = self._trainer._plan()
            if plan.done >= plan.iters:  # only ever set: another thread may have closed it meanwhile
                self._ended = True
        if self._ended:
            raise StopIteration
        return self._trainer.step()

    def close(self):
        """Ends the iteration; a step under way is made."""
        self._ended = True


class Trainer:
    """Trains a LoRA adapter on `data`: a JSONL file, or a list of its objects. Options are those of `hearth finetune`, with
    the same defaults, method="embed" for embeddings of pairs of texts; an iteration over a trainer takes its steps. Ctrl-C ends a call; the state is then that after the last
    whole step."""

    def __init__(self, model, data, *, valid=None, rank=8, alpha=16.0, scale=None, rslora=False, dropout=0.0,
                 targets="q_proj,v_proj", layers="all", dtype=float32, init_adapter=None, iters=None, epochs=1.0, batch=4,
                 accumulate=1, max_length=None, long="drop", mask="answers", skip_bad=False, pack=True, shuffle=True, lr=1e-4,
                 schedule="constant", warmup=0, optimizer="adamw", weight_decay=None, beta1=0.9, beta2=0.999, eps=1e-8,
                 momentum=0.0, clip=1.0, checkpointing="auto", valid_batches=None, seed=0, method="sft",
                 temperature=0.05):  # fmt: skip
        if not isinstance(model, Model):
            raise TypeError(f"a trainer is of a Model, not of a {type(model).__name__}")
        self._model, self._handle, self._calls = model, c_void_p(), _Calls()
        lora, _lent = lora_options(model, rank=rank, alpha=alpha, scale=scale, rslora=rslora, dropout=dropout, targets=targets,
                                   layers=layers, dtype=dtype, init_adapter=init_adapter, seed=seed)  # fmt: skip
        rule = lib.options(ht_optimizer_options, kind=lib.choice(optimizer, "optimizer", _OPTIMIZERS), beta1=beta1, beta2=beta2,
                           eps=eps, momentum=momentum)  # fmt: skip
        if weight_decay is not None:
            if not weight_decay >= 0:
                raise ValueError(f"weight_decay is {weight_decay}, expected 0 or more")
            rule.weight_decay = weight_decay

        def count(value, what, most=lib.INT64[1]):
            return 0 if value is None else lib.integer(value, what, 1, most)

        (data, self._data), (held_out, self._valid) = _file_of(data), (None, None) if valid is None else _file_of(valid)
        how = lib.options(
            ht_trainer_options, lora=pointer(lora), optimizer=pointer(rule), data=data, valid=held_out,
            mask=lib.choice(mask, "mask", _MASKS), long_samples=lib.choice(long, "long", _LONG),
            max_length=count(max_length, "max_length"), skip_bad=skip_bad, batch=count(batch, "batch", lib.INT32[1]),
            accumulate=count(accumulate, "accumulate", lib.INT32[1]), pack=pack, in_order=not shuffle,
            seed=lib.integer(seed, "seed", *lib.UINT64), iters=count(iters, "iters"), epochs=epochs, learning_rate=lr,
            schedule=lib.choice(schedule, "schedule", _SCHEDULES), warmup=lib.integer(warmup, "warmup", 0, lib.INT64[1]),
            clip=clip, checkpointing=lib.choice(checkpointing, "checkpointing", _CHECKPOINTING),
            valid_batches=count(valid_batches, "valid_batches"), cancel=pointer(self._calls.cancel),
            method=lib.choice(method, "method", _METHODS), temperature=temperature,
        )  # fmt: skip
        self._calls.run(_new, model._handle, byref(how), byref(self._handle))

    def __del__(self, free=_free):
        if getattr(self, "_calls", None):
            self._calls.wait()
            free(self._handle)

    @property
    def plan(self):
        """What it is about to do: steps in all (`iters`), in an epoch, and `done`; trained parameters and those of the model;
        whether layers are computed twice (`checkpointing`); the forecast of the process's memory at its peak (`peak_bytes`); and
        what was found in `data` and `valid`."""
        return _figures(self._plan())

    def _plan(self):
        plan = ht_trainer_plan()
        with self._calls.taken():
            _describe(self._handle, byref(plan))
        return plan

    def sample(self, i=0):
        """Sample i of the data as [(text, whether it is learned), ...], special tokens included."""
        pieces = []

        def put(text, n, learned, user):
            pieces.append((string_at(text, n).decode("utf-8", "replace"), learned))
            return True

        with self._calls.taken():
            lib.check(_sample, self._handle, lib.integer(i, "the sample", *lib.INT64), _PIECE(put), None)
        return pieces

    def step(self):
        """Takes one step: a TrainStep. The fifth in a row whose loss or gradients are not finite is an error."""
        did = ht_train_step()
        self._calls.run(_step, self._handle, byref(did))
        return TrainStep(*(getattr(did, name) for name, _ in ht_train_step._fields_))

    def __iter__(self):
        """The steps that are left."""
        return _Steps(self)

    def evaluate(self):
        """The mean loss of the learned tokens, or of the anchors, of the held-out samples."""
        loss = c_double(math.nan)
        self._calls.run(_evaluate, self._handle, byref(loss))
        return loss.value

    @property
    def retrieval(self):
        """The Retrieval of the last evaluation of method="embed"; None before one."""
        found = ht_retrieval()
        with self._calls.taken():
            _retrieval(self._handle, byref(found))
        return Retrieval(*(getattr(found, name) for name, _ in ht_retrieval._fields_)) if found.n_anchors else None

    def adapter(self):
        """The adapter as it is now."""
        handle = c_void_p()
        self._calls.run(_adapter, self._handle, byref(handle))
        return Adapter(handle, self._model)

    def save(self, path):
        """Writes a checkpoint: parameters, moments, and the position in the data."""
        self._calls.run(_save, self._handle, lib.path(path))

    def resume(self, path):
        """Goes on where a checkpoint was saved, to the bit. Data and options must be those of then."""
        self._calls.run(_resume, self._handle, lib.path(path))
