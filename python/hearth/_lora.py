"""LoRA adapters that are trained, as arrays, and the loss of a batch with its gradients: for training loops of one's own."""

import operator
import threading
from ctypes import POINTER, addressof, byref, c_bool, c_char_p, c_int, c_int32, c_int64, c_void_p, memmove, sizeof

from . import _library as lib
from . import random
from ._adapter import Adapter
from ._adapter import load as load_adapter
from ._array import array
from ._dtype import bfloat16, float32
from ._structs import ht_lora_options, ht_train_batch
from ._transform import arrays_of

__all__ = ["Lora"]

NOT_LEARNED = -100  # as a label

_LIST = POINTER(c_void_p)
_new = lib.declare("ht_trainable_new", c_int, c_void_p, POINTER(ht_lora_options), _LIST, lib._ERROR)
_free = lib.declare("ht_trainable_free", None, c_void_p)
_count = lib.declare("ht_trainable_count", c_int, c_void_p)
_numbers = lib.declare("ht_trainable_parameters", c_int64, c_void_p)
_name = lib.declare("ht_trainable_name", c_char_p, c_void_p, c_int)
_get = lib.declare("ht_trainable_get", c_void_p, c_void_p, c_int)
_set = lib.declare("ht_trainable_set", c_int, c_void_p, lib.HELD, lib._ERROR)
_adapter = lib.declare("ht_trainable_adapter", c_int, c_void_p, _LIST, lib._ERROR)
_gradients = lib.declare("ht_trainable_gradients", c_int, c_void_p, c_void_p, POINTER(ht_train_batch), c_void_p, c_bool, _LIST,
                         _LIST, lib._ERROR)  # fmt: skip
_stream_new = lib.declare("ht_stream_new", c_int, c_void_p, _LIST, lib._ERROR)
_stream_free = lib.declare("ht_stream_free", None, c_void_p)
_scope_new = lib.declare("ht_scope_new", c_void_p, c_void_p)
_scope_free = lib.declare("ht_scope_free", None, c_void_p)
_detach = lib.declare("ht_array_detach", c_int, c_void_p, c_void_p, lib._ERROR)

_none = c_void_p.in_dll(lib._library, "HT_NONE")
_REDUCTIONS = {"mean": True, "sum": False}

# ---- what is trained ----


def lora_options(model, *, rank, alpha, scale, rslora, dropout, targets, layers, dtype, init_adapter, seed, normal_init=False):
    """(ht_lora_options, what they lend)"""
    if dtype not in (float32, bfloat16):
        raise ValueError(f"dtype is {dtype!r}, expected hearth.float32 or hearth.bfloat16")
    if scale is not None and not scale:
        raise ValueError("scale is 0: the adapter would change nothing")
    init = init_adapter
    if init is not None and not isinstance(init, Adapter):
        init = load_adapter(init, model)
    made = lib.options(
        ht_lora_options, rank=lib.integer(rank, "rank", *lib.INT64), alpha=alpha, scale=0 if scale is None else scale, rslora=rslora,
        dropout=dropout, targets=(targets if isinstance(targets, str) else ",".join(targets)).encode(),
        layers=0 if layers == "all" else lib.integer(layers, "layers", 1, lib.INT64[1]), dtype=dtype.code,
        normal_init=normal_init, seed=lib.integer(seed, "seed", *lib.UINT64), base=lib.path(model._path),
        init=init and init._handle,
    )  # fmt: skip
    return made, init


class Lora:
    """A LoRA adapter of a model that is trained (Model.lora). Its parameters are arrays: for each chosen projection A, [rank,
    n_in], and B, [n_out, rank], of experts with an axis more in front. They change by `update` alone."""

    def __init__(self, model, **options):
        self._model, self._handle, self._stream, self._lock = model, c_void_p(), c_void_p(), threading.RLock()
        how, _lent = lora_options(model, **options)
        self._dropout = how.dropout
        lib.check(_stream_new, model._device, byref(self._stream))
        lib.check(_new, model._handle, byref(how), byref(self._handle))
        self._names = [_name(self._handle, i).decode() for i in range(_count(self._handle))]

    def __del__(self, free=_free, free_stream=_stream_free):
        free(getattr(self, "_handle", None))
        free_stream(getattr(self, "_stream", None))

    @property
    def size(self):
        """Numbers in all parameters."""
        return _numbers(self._handle)

    @property
    def parameters(self):
        """{"model.layers.0.self_attn.q_proj.lora_A": array, ...}"""
        with self._lock:
            handles = [_get(self._handle, i) for i in range(len(self._names))]
            return dict(zip(self._names, arrays_of(handles, len(handles))))

    def update(self, parameters):
        """Puts other arrays of the same names, shapes and dtype in the place of all parameters."""
        if parameters.keys() != set(self._names):
            wrong = sorted(parameters.keys() ^ set(self._names))
            raise ValueError(f"the parameters of this adapter are others: {', '.join(wrong[:3])} {'...' if wrong[3:] else ''}".strip())
        arrays = [parameters[name] for name in self._names]
        if not all(isinstance(a, array) for a in arrays):
            raise TypeError("the parameters of an adapter are arrays")
        lib.evaluate(arrays)
        with self._lock:
            lib.check(_set, self._handle, lib.hold(arrays))

    def adapter(self):
        """Its values as they are now, as an Adapter: to be saved, or for sessions and `adapters=`."""
        handle = c_void_p()
        with self._lock:
            lib.check(_adapter, self._handle, byref(handle))
        return Adapter(handle, self._model)

    def save(self, path, format="peft"):
        """Writes its values as they are now: Adapter.save."""
        self.adapter().save(path, format)


# ---- batches ----


def _labelled(sample):
    """(ids, whether each is learned) of {"input_ids": ..., "labels": ...}"""
    unknown = sorted(sample.keys() - {"input_ids", "labels"})
    if unknown or "input_ids" not in sample:
        raise ValueError(f"a sample has the members {', '.join(map(repr, sample))}, expected 'input_ids', and 'labels' or none")
    ids = list(sample["input_ids"])
    labels = ids if sample.get("labels") is None else list(sample["labels"])
    if len(labels) != len(ids):
        raise ValueError(f"a sample has {len(labels)} labels for {len(ids)} ids")
    for i, (label, token) in enumerate(zip(labels, ids)):
        if label not in (NOT_LEARNED, token):
            raise ValueError(f"label {i} of a sample is {label}, expected {NOT_LEARNED} or the id in its place, {token}; "
                             "labels are not shifted")  # fmt: skip
    return ids, [label != NOT_LEARNED for label in labels]


def _is_id(part):
    """Arrays have __index__, too, whatever their shape."""
    try:
        operator.index(part)
    except TypeError:
        return False
    return True


def _sample(sample):
    """(ids, whether each is learned)"""
    if isinstance(sample, dict):
        return _labelled(sample)
    parts = list(sample)
    if len(parts) == 2 and not any(map(_is_id, parts)):
        prompt, completion = map(list, parts)
        return prompt + completion, [False] * len(prompt) + [True] * len(completion)
    return parts, [True] * len(parts)


def _rows(batch, context):
    """ht_train_batch: id i of a sequence is a row, whose target is id i + 1."""
    ids, positions, targets, starts = [], [], [], [0]
    for sample in batch:
        tokens, learned = _sample(sample)
        tokens = [lib.integer(token, "a token id", 0, lib.INT32[1]) for token in tokens]
        if not 2 <= len(tokens) <= context:
            raise ValueError(f"a sample has {len(tokens)} ids, expected 2 to {context}, the model's context")
        ids += tokens[:-1]
        positions += range(len(tokens) - 1)
        targets += [token if wanted else -1 for token, wanted in zip(tokens[1:], learned[1:])]
        starts.append(len(ids))
    made = ht_train_batch(n_tok=lib.integer(len(ids), "the number of rows", *lib.INT32), n_seq=len(starts) - 1,
                          n_learned=sum(target >= 0 for target in targets))  # fmt: skip
    made.lent = []
    for name, values in (("id", ids), ("pos", positions), ("seq_start", starts), ("target", targets)):
        numbers = (c_int32 * len(values))(*values)
        setattr(made, name, addressof(numbers))
        made.lent.append(numbers)
    return made


# ---- the loss ----


def _dropout_key(lora, key):
    """An evaluated key; None without dropout."""
    if not lora._dropout:
        return None
    if key is None:
        random.state[0], key = random.split(random.state[0])
    lib.evaluate([key])
    return key


def _summed(lora, rows, key, checkpointing):
    """The evaluated arrays of the summed loss and its gradients, computed with the model's threads."""
    n = len(lora._names)
    made, scope = (c_void_p * (n + 1))(), _scope_new(lora._stream)
    if not scope:
        raise MemoryError("out of memory for the gradients")
    try:
        loss = c_void_p()
        held, key_handle = lib.hold([] if key is None else [key]), c_void_p(_none.value)
        memmove(byref(key_handle), held, len(held) * sizeof(c_void_p))
        lib.check(_gradients, lora._handle, scope, byref(rows), key_handle, checkpointing, byref(loss), made)
        made[n] = loss
        lib.check(lib._eval, scope, made, n + 1)
        for handle in made:
            lib.check(_detach, scope, handle)
        return arrays_of(made, n + 1)
    finally:
        _scope_free(scope)


def loss_and_grad(lora, batch, key, checkpointing, reduction):
    mean = lib.choice(reduction, "reduction", _REDUCTIONS)
    rows = _rows(batch, lora._model.context)
    with lora._lock:
        arrays = _summed(lora, rows, _dropout_key(lora, key), checkpointing)
    if mean:
        arrays = [a * (1 / rows.n_learned) for a in arrays]
    return arrays[-1], dict(zip(lora._names, arrays))
