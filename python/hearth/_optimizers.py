"""What hearth.optimizers shows: optimisers, clipping, and schedules of the learning rate."""

import math
import threading
from ctypes import POINTER, byref, c_bool, c_double, c_int, c_int64, c_void_p

from . import _library as lib
from ._array import array
from ._structs import (
    HT_OPTIMIZER_ADAMW,
    HT_OPTIMIZER_SGD,
    HT_SCHEDULE_CONSTANT,
    HT_SCHEDULE_COSINE,
    HT_SCHEDULE_LINEAR,
    ht_optimizer_options,
    ht_schedule,
)
from ._transform import arrays_of, run
from ._tree import flatten, structure

__all__ = ["AdamW", "SGD", "clip_grad_norm", "constant_with_warmup", "cosine_with_warmup", "linear_with_warmup"]

_LIST = POINTER(c_void_p)
_new = lib.declare("ht_optimizer_new", c_int, POINTER(ht_optimizer_options), _LIST, lib._ERROR)
_free = lib.declare("ht_optimizer_free", None, c_void_p)
_step = lib.declare(
    "ht_optimizer_step", c_int, c_void_p, c_void_p, lib.HELD, lib.HELD, c_int, c_double, _LIST, lib._ERROR
)
_state = lib.declare("ht_optimizer_state", c_int, c_void_p, POINTER(c_int64), POINTER(_LIST))
_set_state = lib.declare("ht_optimizer_set_state", c_int, c_void_p, c_void_p, c_int64, lib.HELD, c_int, lib._ERROR)
_clip = lib.declare("ht_clip_grad_norm", c_bool, c_void_p, lib.HELD, c_int, c_double, _LIST, _LIST)
_lr = lib.declare("ht_schedule_lr", c_double, POINTER(ht_schedule), c_int64)

# ---- schedules ----


def _schedule(kind, learning_rate, warmup_steps, total_steps=0):
    made = lib.options(
        ht_schedule, kind=kind, learning_rate=learning_rate,
        warmup_steps=lib.integer(warmup_steps, "warmup_steps", 0, lib.INT64[1]),
        total_steps=lib.integer(total_steps, "total_steps", 0, lib.INT64[1]),
    )  # fmt: skip
    if math.isnan(_lr(byref(made), 0)):
        raise ValueError(f"the learning rate is {learning_rate}, expected 0 or more")
    return lambda step: _lr(byref(made), lib.integer(step, "a step", 0, lib.INT64[1]))


def constant_with_warmup(learning_rate, warmup_steps=0):
    """A function of the step, counted from 0: up to `learning_rate` in equal parts, which then stays."""
    return _schedule(HT_SCHEDULE_CONSTANT, learning_rate, warmup_steps)


def linear_with_warmup(learning_rate, total_steps, warmup_steps=0):
    """A function of the step, counted from 0: up to `learning_rate`, then down to 0 at `total_steps`, in equal parts."""
    return _schedule(HT_SCHEDULE_LINEAR, learning_rate, warmup_steps, total_steps)


def cosine_with_warmup(learning_rate, total_steps, warmup_steps=0):
    """A function of the step, counted from 0: up to `learning_rate` in equal parts, then down to 0 at `total_steps` along
    half a cosine."""
    return _schedule(HT_SCHEDULE_COSINE, learning_rate, warmup_steps, total_steps)


# ---- clipping ----


def clip_grad_norm(grads, max_norm):
    """(gradients, norm): a tree of gradients times min(1, max_norm / (norm + 1e-6)), where `norm` is that of all their elements
    together, before."""
    leaves, rebuild = flatten(grads)
    n = len(leaves)
    out, norm = (c_void_p * max(1, n))(), (c_void_p * 1)()
    clipped, norms = run(
        lambda scope: _clip(scope, lib.hold(leaves), n, max_norm, out, norm),
        lambda _: (arrays_of(out, n), arrays_of(norm, 1)),
    )
    return rebuild(clipped), norms[0]


# ---- optimisers ----


class _Optimizer:
    """`learning_rate` is a number, or a function of the number of steps taken before."""

    def __init__(self, learning_rate, weight_decay, **options):
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay is {weight_decay}, expected 0 or more")
        self._pointer = c_void_p()
        self._lock = threading.RLock()  # other threads may call while the library computes
        self.learning_rate = learning_rate
        how = lib.options(ht_optimizer_options, weight_decay=weight_decay, **options)
        lib.check(_new, byref(how), byref(self._pointer))

    def __del__(self, free=_free):
        free(getattr(self, "_pointer", None))

    def update(self, parameters, gradients):
        """The tree of parameters after a step with a tree of their gradients."""
        if structure(parameters) != structure(gradients):
            raise ValueError("gradients are in another tree than the parameters")
        leaves, rebuild = flatten(parameters)
        of, n = flatten(gradients)[0], len(leaves)
        out, made = (c_void_p * max(1, n))(), []

        def call(scope, error):
            rate = self.learning_rate(self._read()[0]) if callable(self.learning_rate) else self.learning_rate
            status = _step(self._pointer, scope, lib.hold(leaves), lib.hold(of), n, rate, out, error)
            if not status:
                made.extend(arrays_of(out, n))
            return status

        with self._lock:
            lib.within(call)
        return rebuild(made)

    def apply_gradients(self, gradients, parameters):
        """`update`, with its arguments the other way round."""
        return self.update(parameters, gradients)

    def _read(self):
        """(steps taken, handles of the moments, how many these are)"""
        steps, moments = c_int64(), _LIST()
        n = _state(self._pointer, byref(steps), byref(moments))
        return steps.value, moments, n

    @property
    def state(self):
        """{"step": steps taken, "moments": list of arrays}: of AdamW the first moments of all parameters, then the second; of SGD
        with momentum its averages. It may be set to what it was, also of another optimiser of the same kind."""
        with self._lock:
            steps, moments, n = self._read()
            return {"step": steps, "moments": arrays_of(moments, n)}

    @state.setter
    def state(self, state):
        steps, moments = lib.integer(state["step"], "the step", 0, lib.INT64[1]), list(state["moments"])
        if not all(isinstance(m, array) for m in moments):
            raise TypeError("the moments of an optimiser are arrays")
        with self._lock:
            lib.within(lambda scope, error: _set_state(self._pointer, scope, steps, lib.hold(moments), len(moments), error))


class AdamW(_Optimizer):
    """AdamW (Loshchilov and Hutter, 2019): torch.optim.AdamW, with bias correction."""

    def __init__(self, learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        first, second = betas
        super().__init__(learning_rate, weight_decay, kind=HT_OPTIMIZER_ADAMW, beta1=first, beta2=second, eps=eps)


class SGD(_Optimizer):
    """Stochastic gradient descent: torch.optim.SGD."""

    def __init__(self, learning_rate, momentum=0.0, weight_decay=0.0):
        super().__init__(learning_rate, weight_decay, kind=HT_OPTIMIZER_SGD, momentum=momentum)
