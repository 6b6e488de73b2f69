"""Fine-tuning in one call: what `hearth finetune` does, with the same files, so that each goes on with a run of the other."""

import contextlib
import fcntl
import json
import math
import os
import pathlib
import resource
import time
from typing import NamedTuple

from . import _library as lib
from ._adapter import check_format, check_target
from ._trainer import Retrieval, Trainer

__all__ = ["finetune", "FineTuned", "Report"]

_SAMPLE_TOKENS = 64  # of an answer to one of `samples`

# ---- reports ----


def _bytes(n):
    return f"{n / 1e6:.0f} MB" if n < 1e9 else f"{n / 1e9:.1f} GB"


def _duration(seconds):
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _is_finite(loss):
    return loss is not None and math.isfinite(loss)


class Report(NamedTuple):
    """Where a run stands: steps done, and in all; the mean loss since the last report, None before the first step; the loss on
    held-out samples, None where there was no evaluation; the learning rate; rows computed since the last report, and in a
    second; the norm of the last gradients; the peak of the process's memory; steps skipped so far; seconds left, as an
    estimate; answers to `samples`; and the Retrieval of an evaluation of method="embed". As a text it is a line."""

    iter: int
    iters: int
    loss: float | None
    valid_loss: float | None
    lr: float | None
    tokens: int
    tokens_per_second: float
    grad_norm: float | None
    peak_memory_bytes: int
    skipped: int
    seconds_left: float
    samples: list[str]
    retrieval: Retrieval | None = None

    def __str__(self):
        parts = [f"iter {self.iter}/{self.iters}"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.valid_loss is not None:
            parts.append(f"valid {self.valid_loss:.4f}")
        if self.retrieval is not None:
            parts.append("accuracy@1 {2:.4f}  MRR@10 {3:.4f}  nDCG@10 {4:.4f}".format(*self.retrieval))
        if self.lr is not None:
            parts += [f"lr {self.lr:.3g}", f"{self.tokens_per_second:.0f} tok/s", f"peak {_bytes(self.peak_memory_bytes)}",
                      f"eta {_duration(self.seconds_left)}"]  # fmt: skip
        if self.skipped:
            parts.append(f"skipped {self.skipped}")
        return "  ".join(parts)


class _Window:
    """The figures of the steps since the last report."""

    def __init__(self, iters, done):
        self.iters, self.first, self.begin = iters, done, time.monotonic()
        self.clear()

    def clear(self):
        self.since, self.loss, self.learned, self.tokens = time.monotonic(), 0.0, 0, 0

    @contextlib.contextmanager
    def paused(self):
        """What is done is no part of the steps' time."""
        began = time.monotonic()
        yield
        self.since += time.monotonic() - began

    def add(self, step):
        self.tokens += step.tokens
        if not step.skipped:
            self.loss += step.loss * step.learned
            self.learned += step.learned

    def report(self, step, valid_loss, samples, retrieval):
        now = time.monotonic()
        iter = step.iter if step else self.first
        each = (now - self.begin) / (iter - self.first) if iter > self.first else 0.0
        made = Report(
            iter=iter, iters=self.iters, loss=self.loss / self.learned if self.learned else None, valid_loss=valid_loss,
            lr=step and step.lr, tokens=self.tokens, tokens_per_second=self.tokens / max(now - self.since, 1e-9),
            grad_norm=step and step.grad_norm, peak_memory_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            skipped=step.total_skipped if step else 0, seconds_left=each * (self.iters - iter), samples=samples,
            retrieval=retrieval,
        )  # fmt: skip
        self.clear()
        return made


class FineTuned:
    """A run that has ended: `adapter`, the path of the adapter; `steps` taken; `best_iter`, after which the adapter was saved;
    the held-out loss of that step, `valid_loss`, and before the first one, `valid_loss_before`, None without held-out samples;
    and `reports`."""

    def __init__(self, adapter, steps, best_iter, valid_loss_before, valid_loss, reports):
        self.adapter, self.steps, self.best_iter = adapter, steps, best_iter
        self.valid_loss_before, self.valid_loss, self.reports = valid_loss_before, valid_loss, reports

    @property
    def losses(self):
        """[(step, mean loss since the report before), ...]"""
        return [(r.iter, r.loss) for r in self.reports if r.loss is not None]

    @property
    def valid_losses(self):
        """[(step, loss on held-out samples), ...]"""
        return [(r.iter, r.valid_loss) for r in self.reports if r.valid_loss is not None]


# ---- files: OUT, and OUT.training ----


class _Keeper:
    """The adapter in OUT; checkpoints with how far the run came, and the last adapter, in OUT.training, which is locked as long as
    the run lasts."""

    def __init__(self, out, format, keep):
        self.out, self.format, self.keep = pathlib.Path(os.path.abspath(os.fsdecode(lib.path(out)))), format, keep
        self.folder, self.lock = self.out.with_name(self.out.name + ".training"), None
        check_target(self.out)
        check_target(self.folder / "last" if self.folder.is_dir() else self.folder)
        self.valid, self.evaluated_iter = "", -1
        self.best_iter, self.best_valid, self.since_best, self.first_valid = -1, None, 0, None
        self.curves = {"loss": [], "valid_loss": []}

    def open(self, trainer, valid_batches, resume):
        """Locks OUT.training; `valid` tells which held-out samples the best adapter is of."""
        valid = trainer.plan["valid"]
        if valid:
            self.valid = f"{valid['fingerprint']:016x}-{valid_batches}"
        self.folder.mkdir(exist_ok=True)
        self.lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{self.folder} is another run's, which has not ended") from None
        if self.checkpoints() and not resume:
            raise ValueError(f"{self.folder} holds a run of {self.checkpoints()[-1][0]} steps: resume=True goes on with it, "
                             "another `out` begins a new one")  # fmt: skip

    def close(self):
        if self.lock is not None:
            os.close(self.lock)

    def checkpoints(self):
        """(steps, path) of each, the latest last."""
        found = []
        for path in self.folder.glob("checkpoint-*.safetensors"):
            number = path.name.removeprefix("checkpoint-").removesuffix(".safetensors")
            if number.isdecimal():
                found.append((int(number), path))
        return sorted(found)

    def resume(self, trainer):
        if not self.checkpoints():
            raise ValueError(f"{self.folder} holds no checkpoint to resume from")
        path = self.checkpoints()[-1][1]
        trainer.resume(path)
        try:
            state = json.loads(path.with_suffix(".json").read_text())
        except FileNotFoundError:
            return  # the best adapter is chosen again
        except ValueError as why:
            raise ValueError(f"{path.with_suffix('.json')} is damaged: {why}; without that file the run goes on, and the best "
                             "adapter is chosen anew") from None  # fmt: skip
        self.curves = state["curves"]
        if state["valid"] == self.valid:  # what is said of the best adapter counts for the same held-out samples
            self.evaluated_iter = state["evaluated_iter"]
            self.best_iter, self.since_best = state["best_iter"], state["since_best"]
            self.best_valid, self.first_valid = state["best_valid_loss"], state["first_valid_loss"]

    def put_adapter(self, trainer):
        trainer.adapter().save(self.out, self.format)

    def save(self, trainer, iter):
        state = {"valid": self.valid, "evaluated_iter": self.evaluated_iter, "best_iter": self.best_iter,
                 "best_valid_loss": self.best_valid, "since_best": self.since_best, "first_valid_loss": self.first_valid,
                 "curves": self.curves}  # fmt: skip
        path = self.folder / f"checkpoint-{iter:07}.safetensors"
        fresh = path.with_suffix(".json.tmp")
        with fresh.open("w") as file:
            file.write(json.dumps(state, allow_nan=False))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path.with_suffix(".json"))
        trainer.save(path)
        trainer.adapter().save(self.folder / "last", self.format)
        for _, path in self.checkpoints()[: -self.keep]:
            path.unlink()
            path.with_suffix(".json").unlink(missing_ok=True)


# ---- a run ----


class _Run:
    def __init__(self, trainer, keeper, samples, progress, every, patience):
        self.trainer, self.keeper, self.progress = trainer, keeper, progress
        self.samples = [samples] if isinstance(samples, str) else list(samples)
        self.report_every, self.valid_every, self.save_every = every
        self.patience, self.reports, self.step = patience, [], None
        plan = trainer.plan
        self.iters, self.done, self.held_out = plan["iters"], plan["done"], plan["valid"] is not None
        self.window = _Window(self.iters, self.done)

    def report(self, valid_loss, answers):
        retrieval = None if valid_loss is None else self.trainer.retrieval
        self.reports.append(self.window.report(self.step, valid_loss, answers, retrieval))
        made = self.reports[-1]
        for name in ("loss", "valid_loss"):
            if _is_finite(getattr(made, name)) and self.done:
                self.keeper.curves[name].append([made.iter, getattr(made, name)])
        if self.progress:
            self.progress(self.reports[-1])

    def answers(self):
        """Of the model with the adapter as it is, to all samples."""
        if not self.samples:
            return []
        model, adapter = self.trainer._model, self.trainer.adapter()
        answer = model.chat if model.chat_format else model.generate
        with self.window.paused():
            return ["".join(answer(prompt, adapters=adapter, max_tokens=_SAMPLE_TOKENS)) for prompt in self.samples]

    def evaluate(self):
        """The held-out loss; the best adapter so far goes to OUT."""
        with self.window.paused():
            return self._evaluate()

    def _evaluate(self):
        loss, keeper = self.trainer.evaluate(), self.keeper
        finite = loss if math.isfinite(loss) else None
        if not self.done:
            keeper.first_valid = finite
        elif keeper.best_valid is not None and not loss < keeper.best_valid:
            keeper.since_best += 1
        else:
            keeper.put_adapter(self.trainer)  # which may be interrupted
            keeper.best_iter, keeper.best_valid, keeper.since_best = self.done, finite, 0
        keeper.evaluated_iter = self.done
        return loss

    def before(self):
        if self.samples or self.held_out:
            answers = self.answers()
            self.report(self.evaluate() if self.held_out else None, answers)

    def again(self):
        """The evaluation that was interrupted after the last step."""
        if self.held_out and self.done and self.due(self.valid_every) and self.keeper.evaluated_iter != self.done:
            self.report(self.evaluate(), [])

    def due(self, every):
        return self.done % every == 0 or self.done == self.iters

    def after(self, step):
        """What follows a step: an evaluation, a report, a checkpoint."""
        self.step, self.done = step, step.iter
        self.window.add(step)
        valid_loss, answers = None, []
        evaluated = self.due(self.valid_every) and (self.held_out or bool(self.samples))
        if evaluated:
            answers = self.answers()
            valid_loss = self.evaluate() if self.held_out else None
        if evaluated or self.due(self.report_every):
            self.report(valid_loss, answers)
        if self.due(self.save_every) and not step.skipped:  # a run that diverges keeps the checkpoint before it
            with self.window.paused():
                self.keeper.save(self.trainer, self.done)

    def is_patient(self):
        return not self.patience or self.keeper.since_best < self.patience

    def train(self):
        while self.done < self.iters and self.is_patient():
            self.after(self.trainer.step())
        if not self.is_patient():
            self.keeper.save(self.trainer, self.done)
        if not self.held_out:
            self.keeper.put_adapter(self.trainer)
            self.keeper.best_iter = self.done

    def interrupted(self):
        """What there is stays, and can be gone on with."""
        done = self.trainer.plan["done"]
        if done:
            self.keeper.save(self.trainer, done)
            if self.keeper.best_iter < 0:
                self.keeper.put_adapter(self.trainer)


def finetune(model, data, out, *, valid=None, samples=(), progress=None, report_every=10, valid_every=100, save_every=100,
             keep=1, patience=None, resume=False, format="peft", **options):  # fmt: skip
    """Trains a LoRA adapter on `data`, a JSONL file or a list of its objects, and writes it to the directory `out`: the best
    one on the held-out samples `valid`, or without these the last one. Gives a FineTuned.

    `progress` is called with a Report every `report_every` steps and after every evaluation: print gives lines. Every
    `valid_every` steps `valid` is evaluated and `samples`, prompts, are answered; `patience` ends the run after so many
    evaluations that were not the best. Every `save_every` steps a checkpoint is written to `out`.training, where `keep` stay;
    so it is when Ctrl-C interrupts the run, and resume=True goes on from the last one, to the bit. `format`: "peft" or "mlx".
    Other options are those of Trainer."""
    lib.choice(format, "format", {"peft": 0, "mlx": 0})
    if patience is not None and valid is None:
        raise ValueError("patience needs held-out samples, `valid`")
    if samples and options.get("method") == "embed":
        raise ValueError('samples are for method="sft": embeddings answer nothing')
    every = [lib.integer(n, what, 1, lib.INT64[1]) for n, what in
             ((report_every, "report_every"), (valid_every, "valid_every"), (save_every, "save_every"))]  # fmt: skip
    keep = lib.integer(keep, "keep", 1, lib.INT64[1])
    keeper = _Keeper(out, format, keep)
    trainer = Trainer(model, data, valid=valid, **options)
    try:
        check_format(model, format)
        keeper.open(trainer, options.get("valid_batches") or 0, resume)
        return _run(trainer, keeper, resume, samples, progress, every, patience)
    finally:
        keeper.close()


def _run(trainer, keeper, resume, samples, progress, every, patience):
    if resume:
        keeper.resume(trainer)
    run = _Run(trainer, keeper, samples, progress, every, patience)
    try:
        run.again() if resume else run.before()
        run.train()
    except KeyboardInterrupt:
        run.interrupted()
        raise
    return FineTuned(str(keeper.out), run.done, keeper.best_iter, keeper.first_valid, keeper.best_valid, run.reports)
