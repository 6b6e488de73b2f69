#!/usr/bin/env python3
"""Writes the typed stubs of the Python package, python/hearth/*.pyi: names and signatures as the package has them, types by the
tables below.

    tools/python_stubs.py            writes them       (PYTHONPATH=python, HEARTH_LIBRARY naming the library)
    tools/python_stubs.py --check    says which are not what the package is, and ends with 1 when any is not

A parameter without a type in the tables is an error, so that a new function gets one."""

import inspect
import re
import sys
from pathlib import Path

import hearth

FOLDER = Path(__file__).resolve().parent.parent / "python/hearth"
MODULES = {"__init__": hearth, **{name: getattr(hearth, name) for name in ("random", "fast", "linalg", "losses", "optimizers")}}

# ---- types ----

AXES, SHAPE, FILE = "int | Sequence[int] | None", "int | Sequence[int]", "str | os.PathLike[str] | IO[bytes]"
ARRAY, OPERAND, TREE, FUNCTION = "array", "ArrayLike", "Any", "Callable[..., Any]"
RATE = "float | Callable[[int], float]"
PATH = "str | os.PathLike[str]"
PROMPT = "str | Sequence[int] | Sequence[Mapping[str, Any]]"
SAMPLES = f"{PATH} | Sequence[Mapping[str, Any]]"

# By the parameter's name, wherever the tables after it say nothing else.
PARAMETERS = {
    **dict.fromkeys("a x w q v condition weight bias c mean cov".split(), OPERAND),
    **dict.fromkeys("b y low high lower upper loc scale p vals update values constant_values logits".split(), OPERAND),
    **dict.fromkeys("lhs_indices rhs_indices biases key mask sinks freqs".split(), "array | None"),
    **dict.fromkeys("indices start_indices".split(), "array | int | Sequence[Any]"),
    **dict.fromkeys("keepdims equal_nan reverse inclusive precise sparse traditional transpose sorted_indices force_fused".split(), "bool"),
    **dict.fromkeys("sliding last add_special parse_special skip_special return_metadata shapeless endpoint".split(), "bool"),
    **dict.fromkeys("n k kth num width decimals offset ddof axis1 axis2 start_axis end_axis repeats dims window".split(), "int"),
    **dict.fromkeys("seed limit bits_of index total_steps warmup_steps".split(), "int"),
    **dict.fromkeys("rtol atol alpha beta eps nan step start stop momentum weight_decay max_norm".split(), "float"),
    **dict.fromkeys("mode indexing subscripts name text".split(), "str"),
    **dict.fromkeys("group_size bits m posinf neginf num_samples format stop correction".split(), "int | None"),
    **dict.fromkeys("a_min a_max".split(), "ArrayLike | None"),
    **dict.fromkeys("fun rule".split(), FUNCTION),
    **dict.fromkeys("parameters gradients grads".split(), TREE),
    **dict.fromkeys("primals cotangents tangents".split(), "Sequence[array]"),
    "stream": "StreamOrDevice", "s": "Stream | Device | DeviceType", "device": "Device | DeviceType | None",
    "d": "Device | DeviceType | None", "device_type": "DeviceType", "dtype": "Dtype | None", "axis": "int",
    "shape": SHAPE, "strides": "Sequence[int] | None", "axes": "Sequence[int] | None", "reps": SHAPE,
    "pad_width": "int | tuple[int, ...] | Sequence[tuple[int, int]]", "shift": SHAPE, "source": "int", "destination": "int",
    "indices_or_sections": SHAPE, "slice_size": "Sequence[int]", "scales": "array", "base": "float | None",
    "adapters": "Adapter | Sequence[Adapter | tuple[Adapter, float]]",
    "learning_rate": "float", "betas": "Sequence[float]", "predictions": OPERAND, "targets": OPERAND, "ord": "int | float | str | None", "argnums": AXES, "argnames": "str | Sequence[str] | None",
    "inputs": TREE, "outputs": TREE, "file": FILE, "arr": OPERAND, "copy": "bool | None", "precision": "str",
    **dict.fromkeys("rslora normal_init skip_bad pack shuffle checkpointing resume".split(), "bool"),
    **dict.fromkeys("rank batch accumulate warmup report_every valid_every save_every keep i".split(), "int"),
    **dict.fromkeys("iters max_length valid_batches patience".split(), "int | None"),
    **dict.fromkeys("dropout lr epochs beta1 beta2 clip".split(), "float"),
    **dict.fromkeys("long schedule optimizer reduction".split(), "str"),
    "lora": "Lora", "layers": "int | str", "init_adapter": f"Adapter | {PATH} | None",
    "path": PATH, "out": PATH, "data": SAMPLES, "valid": f"{SAMPLES} | None", "samples": "str | Sequence[str]",
    "progress": "Callable[[Report], object] | None", "model": "Model",
    **dict.fromkeys("keys queries".split(), "bool"), **dict.fromkeys("layer head".split(), "int"), "attention": "Iterable[int]",
    **dict.fromkeys("sequences queue step_tokens kv_bytes priority".split(), "int"),
    "prefill_budget": "float", "prefix_bytes": "int | None", "deadline": "float | None", "timeout": "float | None", "salt": "str",
    "on_probe": "Callable[[dict[str, Any]], object] | None", "probes": "str | Sequence[str]",
    "top_logprobs": "int", "schema": "Mapping[str, Any] | bool | str", "pattern": "str", "space": "str", "token": "int", "grammar": "Grammar",
    **dict.fromkeys("ordered closed every_spelling ignore_formats".split(), "bool"),
    "tools": "Sequence[Mapping[str, Any]] | None", "tool_choice": "str | None", "parallel_tool_calls": "bool", "continue_final_message": "bool", "thinking": "bool | None", "variables": "Mapping[str, Any] | None",
}  # fmt: skip

# By function and parameter.
OF_FUNCTION = {
    ("concatenate", "axis"): "int | None", ("concat", "axis"): "int | None", ("take", "axis"): "int | None",
    ("repeat", "axis"): "int | None", ("roll", "axis"): AXES, ("flip", "axis"): AXES, ("squeeze", "axis"): AXES,
    ("expand_dims", "axis"): SHAPE, ("softmax", "axis"): AXES, ("norm", "axis"): AXES, ("argmax", "axis"): "int | None",
    ("argmin", "axis"): "int | None", ("put_along_axis", "axis"): "int | None", ("take_along_axis", "axis"): "int | None",
    ("put_along_axis", "indices"): "array", ("take_along_axis", "indices"): "array",
    ("tensordot", "axes"): "int | Sequence[Sequence[int]]", ("slice", "axes"): "Sequence[int]",
    ("slice_update", "axes"): "Sequence[int]", ("as_strided", "shape"): "Sequence[int] | None",
    ("arange", "stop"): "float | None", ("arange", "start"): "float | None", ("linspace", "start"): "float", ("linspace", "stop"): "float",
    ("nan_to_num", "posinf"): "float | None", ("nan_to_num", "neginf"): "float | None",
    ("nan_to_num", "nan"): "float", ("random.bits", "width"): "int", ("random.key", "seed"): "int",
    ("random.split", "key"): "array", ("rms_norm", "weight"): "ArrayLike | None", ("layer_norm", "weight"): "ArrayLike | None",
    ("layer_norm", "bias"): "ArrayLike | None", ("rope", "scale"): "float", ("rope", "offset"): "int | array",
    ("scaled_dot_product_attention", "scale"): "float", ("scaled_dot_product_attention", "k"): OPERAND,
    ("scaled_dot_product_attention", "mask"): "str | array | None", ("masked_cross_entropy", "mask"): "ArrayLike | None", ("random.permutation", "x"): "int | array",
    ("normal", "loc"): "ArrayLike | None", ("normal", "scale"): "ArrayLike | None", ("view", "dtype"): "Dtype",
    ("bernoulli", "shape"): f"{SHAPE} | None", ("truncated_normal", "shape"): f"{SHAPE} | None",
    ("categorical", "shape"): f"{SHAPE} | None", ("load", "format"): "str | None", ("load", "file"): "Any",
    ("save_safetensors", "arrays"): "Mapping[str, array]", ("save_safetensors", "metadata"): "Mapping[str, str] | None",
    ("save_gguf", "arrays"): "Mapping[str, array]", ("save_gguf", "metadata"): "Mapping[str, array | str | list[str]] | None",
    ("savez", "args"): OPERAND, ("savez", "kwargs"): OPERAND, ("savez_compressed", "args"): OPERAND,
    ("savez_compressed", "kwargs"): OPERAND, ("load", "options"): "Any", ("concatenate", "arrays"): "Sequence[ArrayLike]",
    ("concat", "arrays"): "Sequence[ArrayLike]", ("stack", "arrays"): "Sequence[ArrayLike]", ("meshgrid", "arrays"): OPERAND,
    ("einsum", "operands"): OPERAND, ("eval", "trees"): TREE, ("async_eval", "trees"): TREE, ("from_dlpack", "x"): "Any",
    ("stop_gradient", "x"): "array", ("set_default_device", "device"): "Device | DeviceType", ("is_available", "device"): "Any",
    ("set_default_stream", "stream"): "Stream", ("cumsum", "axis"): "int | None", ("cumprod", "axis"): "int | None",
    ("cummax", "axis"): "int | None", ("cummin", "axis"): "int | None", ("logcumsumexp", "axis"): "int | None",
    ("sort", "axis"): "int | None", ("argsort", "axis"): "int | None", ("partition", "axis"): "int | None",
    ("argpartition", "axis"): "int | None", ("topk", "axis"): "int | None",
    ("array.__init__", "values"): "Any", ("array.astype", "dtype"): "Dtype", ("array.reshape", "shape"): SHAPE,
    ("array.transpose", "axes"): SHAPE, ("Device.__init__", "type"): "DeviceType", ("Session.__init__", "model"): "Model",
    ("generate", "prompt"): "str | Sequence[int]", ("logits", "prompt"): "str | Sequence[int]", ("inspect", "prompt"): "str | Sequence[int]", ("inspect", "layers"): "Iterable[int] | None", ("inspect", "values"): "bool", ("embed", "texts"): "str | Sequence[str | Sequence[int]]", ("embed", "pooling"): "str | None", ("embed", "normalize"): "bool", ("embed", "prompt"): "str | None", ("embed", "dimensions"): "int", ("embed", "truncate"): "bool", ("rerank", "query"): "str", ("rerank", "documents"): "Sequence[str]", ("rerank", "instruction"): "str | None", ("rerank", "top_n"): "int | None", ("rerank", "truncate"): "bool", ("rerank", "document_tokens"): "int", ("detokenize", "ids"): "Iterable[int]",
    ("chat", "messages"): "str | Sequence[Mapping[str, Any]]", ("format_chat", "messages"): "str | Sequence[Mapping[str, Any]]",
    ("submit", "prompt"): "str | Sequence[int] | Sequence[Mapping[str, Any]]", ("warm", "prompt"): "str | Sequence[int] | Sequence[Mapping[str, Any]]",
    ("submit", "options"): "Any", ("generate", "options"): "Any", ("chat", "options"): "Any", ("finetune", "options"): "Any", ("load", "path"): "Any",
    ("loss_and_grad", "batch"): "Sequence[Any]", ("finetune", "format"): "str", ("Adapter.save", "format"): "str",
    ("Lora.save", "format"): "str", ("Lora.update", "parameters"): "Mapping[str, array]", ("Trainer.__init__", "scale"): "float | None",
    ("Trainer.__init__", "weight_decay"): "float | None", ("Trainer.__init__", "checkpointing"): "str", ("Trainer.__init__", "method"): "str", ("Trainer.__init__", "temperature"): "float", ("Trainer.__init__", "dtype"): "Dtype",
    ("lora", "targets"): "str | Sequence[str]", ("Trainer.__init__", "targets"): "str | Sequence[str]", ("lora", "scale"): "float | None", ("lora", "dtype"): "Dtype", ("Trainer.__init__", "mask"): "str",
    ("classify", "prompts"): f"Iterable[{PROMPT}]", ("classify", "labels"): "Sequence[str] | None", ("classify", "logits"): "bool",
    ("score", "requests"): f"Iterable[tuple[{PROMPT}, str | Sequence[str | Sequence[int]]]]", ("score", "top_k"): "int",
    ("batch", "requests"): f"Iterable[{PROMPT} | Mapping[str, Any]]", ("batch", "options"): "Any",
    ("classify", "on_result"): "Callable[[int, Classification], object] | None", ("score", "on_result"): "Callable[[int, Score], object] | None",
    ("batch", "on_result"): "Callable[[int, Answers], object] | None",
    ("custom_function.__call__", "args"): "Any",
    ("custom_function.__call__", "kwargs"): "Any", ("AdamW.__init__", "learning_rate"): RATE, ("SGD.__init__", "learning_rate"): RATE,
}  # fmt: skip
for _name in "sum prod mean max min all any logsumexp var std".split():
    OF_FUNCTION[_name, "axis"] = AXES

# Of functions that give no array.
RESULTS = {
    **dict.fromkeys("eval async_eval save savez savez_compressed save_safetensors save_gguf synchronize seed".split(), "None"),
    **dict.fromkeys("set_default_device set_default_stream clear_cache reset_peak_memory".split(), "None"),
    **dict.fromkeys("disable_compile enable_compile reset close".split(), "None"),
    **dict.fromkeys("get_active_memory get_peak_memory get_cache_memory get_memory_limit device_count".split(), "int"),
    **dict.fromkeys("set_memory_limit set_cache_limit set_wired_limit".split(), "int"),
    **dict.fromkeys("default_stream new_stream new_thread_local_stream".split(), "Stream"),
    **dict.fromkeys("grad value_and_grad checkpoint compile".split(), FUNCTION),
    **dict.fromkeys("split quantize".split(), "list[array]"), "meshgrid": "tuple[array, ...]",
    **dict.fromkeys("vjp jvp".split(), "tuple[list[array], list[array]]"),
    "random.split": "array", "load": "Any", "stream": "StreamContext", "default_device": "Device",
    "device_info": "dict[str, Any]", "is_available": "bool", "array.tolist": "Any", "array.item": "Any",
    "custom_function.vjp": FUNCTION, "custom_function.jvp": FUNCTION, "custom_function.__call__": "Any",
    **dict.fromkeys("constant_with_warmup linear_with_warmup cosine_with_warmup".split(), "Callable[[int], float]"),
    **dict.fromkeys("update apply_gradients".split(), TREE), "clip_grad_norm": "tuple[Any, array]",
    "lora": "Lora", "loss_and_grad": "tuple[array, dict[str, array]]", "finetune": "FineTuned", "adapter": "Adapter",
    "Lora.update": "None", "Trainer.step": "TrainStep", "evaluate": "float", "resume": "None", "sample": "list[tuple[str, bool]]",
    "session": "Session", "load_adapter": "Adapter", "tokenize": "list[int]", "detokenize": "str", "format_chat": "str", "generate": "Generation",
    "engine": "Engine", "submit": "Request", "warm": "dict[str, Any]", "save_cache": "None", "load_cache": "None", "Engine.clear_cache": "int",
    "statistics": "dict[str, Any]", "cancel": "None",
    "wait": "bool", "result": "str",
    "chat": "Generation", "classify": "list[Classification]", "score": "list[Score]", "batch": "list[Answers]", "rerank": "list[Relevance]", "embed": "Any",
    "inspect": "Inspection", "svg": "str", "matcher": "Matcher", "mask": "memoryview", "accept": "bool", "truncate": "None",
    **dict.fromkeys("from_json_schema from_regex from_gbnf".split(), "Grammar"),
}  # fmt: skip
PROPERTIES = {
    "dtype": "Dtype", "ndim": "int", "size": "int", "shape": "tuple[int, ...]", "itemsize": "int", "nbytes": "int", "T": ARRAY,
    "mT": ARRAY, "at": "Any", "is_float": "bool", "context": "int", "vocab_size": "int", "chat_format": "str | None", "sampling": "dict[str, tuple[float, str]]", "warning": "str | None",
    "parameters": "dict[str, array]", "plan": "dict[str, Any]", **dict.fromkeys(["losses", "valid_losses"], "list[tuple[int, float]]"),
    "retrieval": "Retrieval | None", "metrics": "dict[str, Any]", "info": "dict[str, Any]", "state": "dict[str, Any]", "thinking": "str", "tool_calls": "list[dict[str, Any]]",
    "tokens": "list[int]", "owners": "list[int]", "prompts": "dict[str, str]", "reuse": "dict[str, Any]", "answers": "list[AnswerStream]", "ending": "str",
    "metrics": "dict[str, Any]", "state": "dict[str, Any]", "thinking": "str", "tool_calls": "list[dict[str, Any]]", "text": "str",
    "tokens": "list[int]", "owners": "list[int]",
}  # fmt: skip
TUPLES = (hearth.Report, hearth.Retrieval, hearth.TrainStep, hearth.Answer, hearth.Answers, hearth.Classification, hearth.ContinuationScore, hearth.Score, hearth.Relevance,
          hearth.TokenScore)  # fmt: skip


def annotation_of(kind):
    """A type as stubs name it, in whose one module all classes are."""
    return re.sub(r"\b(?:hearth\._\w+|typing)\.", "", inspect.formatannotation(kind))


ATTRIBUTES = {
    "Dtype": ["code: int", "name: str", "size: int", "format: str | None", "kind: str"],
    "DeviceType": ["name: str"],
    "Device": ["type: DeviceType", "index: int"],
    "Stream": ["index: int", "device: Device"],
    **dict.fromkeys(["AdamW", "SGD"], [f"learning_rate: {RATE}"]),
    "FineTuned": ["adapter: str", "steps: int", "best_iter: int", "valid_loss_before: float | None", "valid_loss: float | None",
                  "reports: list[Report]"],
    **{c.__name__: [f"{name}: {annotation_of(kind)}" for name, kind in c.__annotations__.items()] for c in TUPLES},
}

# Special methods, as a checker of types has to know them.
BINARY = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
SPECIAL = {
    "array": [
        *(f"def __{r}{name}__(self, other: ArrayLike) -> array: ..." for name in BINARY for r in ("", "r", "i")),
        *(f"def __{name}__(self, other: ArrayLike) -> array: ...  # type: ignore[override]" for name in ("eq", "ne")),
        *(f"def __{name}__(self, other: ArrayLike) -> array: ..." for name in ("lt", "le", "gt", "ge")),
        *(f"def __{name}__(self) -> array: ..." for name in ("neg", "pos", "abs", "invert")),
        "def __len__(self) -> int: ...",
        "def __iter__(self) -> Iterator[array]: ...",
        "def __reversed__(self) -> Iterator[array]: ...",
        "def __bool__(self) -> bool: ...",
        "def __int__(self) -> int: ...",
        "def __float__(self) -> float: ...",
        "def __index__(self) -> int: ...",
        "def __hash__(self) -> int: ...",
        "def __getitem__(self, index: Any) -> array: ...",
        "def __setitem__(self, index: Any, values: ArrayLike) -> None: ...",
        "def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...",
        "def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any: ...",
        "def __dlpack_device__(self) -> tuple[int, int]: ...",
        "def __buffer__(self, flags: int, /) -> memoryview: ...",
    ],
    "Generation": [
        "def __iter__(self) -> Iterator[str]: ...",
        "def __next__(self) -> str: ...",
        "def __enter__(self) -> Generation: ...",
        "def __exit__(self, *_: object) -> None: ...",
    ],
    "AnswerStream": [
        "def __iter__(self) -> Iterator[str]: ...",
        "def __next__(self) -> str: ...",
        "def __aiter__(self) -> AsyncIterator[str]: ...",
        "def __anext__(self) -> Coroutine[Any, Any, str]: ...",
        "def __await__(self) -> Generator[Any, None, str]: ...",
        "def __enter__(self) -> Self: ...",
        "def __exit__(self, *_: object) -> None: ...",
    ],
    "Engine": [
        "def __enter__(self) -> Engine: ...",
        "def __exit__(self, *_: object) -> None: ...",
    ],
    "Session": [
        "def __len__(self) -> int: ...",
        "def __enter__(self) -> Session: ...",
        "def __exit__(self, *_: object) -> None: ...",
    ],
    "Matcher": ["def __len__(self) -> int: ..."],
    "BackendModel": ["def __enter__(self) -> BackendModel: ...", "def __exit__(self, *_: object) -> None: ..."],
    "Inspection": [
        "def __getitem__(self, name: str) -> array: ...",
        "def __iter__(self) -> Iterator[str]: ...",
        "def __len__(self) -> int: ...",
    ],
    "Trainer": ["def __iter__(self) -> Iterator[TrainStep]: ..."],
    "StreamContext": ["def __enter__(self) -> Stream: ...", "def __exit__(self, *_: object) -> None: ..."],
}
# Classes whose __init__ is left out.
NOT_MADE_BY_PROGRAMS = {
    "Generation", "Model", "BackendModel", "Adapter", "Lora", "FineTuned", "Dtype", "DeviceType", *(c.__name__ for c in TUPLES),
    "Inspection", "AnswerStream", "Request", "Grammar",
}  # fmt: skip

# ---- signatures ----


def type_of(owner, name, parameter):
    """By Class.method or module.function, then by the bare name, then by the parameter alone."""
    full = f"{owner}.{name}" if owner else name
    for table, key in ((OF_FUNCTION, (full, parameter)), (OF_FUNCTION, (name, parameter)), (PARAMETERS, parameter)):
        if key in table:
            return table[key]
    raise SystemExit(f"{full}: the tables of tools/python_stubs.py have no type for the parameter `{parameter}`")


def text_of(default):
    return repr(default) if isinstance(default, (bool, int, float, str, type(None))) else "..."


def definition(owner, name, function, method=False):
    parts, kind_before = [], None
    for i, p in enumerate(inspect.signature(function).parameters.values()):
        if method and i == 0:
            parts.append("self")
            continue
        if kind_before is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY and not (method and i == 1):
            parts.append("/")
        if p.kind is p.KEYWORD_ONLY and kind_before not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            parts.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f" = {text_of(p.default)}"
        parts.append(f"{star}{p.name}: {type_of(owner, name, p.name)}{default}")
        kind_before = p.kind
    if kind_before is inspect.Parameter.POSITIONAL_ONLY and not method:
        parts.append("/")
    result = "None" if name == "__init__" else RESULTS.get(f"{owner}.{name}" if owner else name, RESULTS.get(name, ARRAY))
    return f"def {name}({', '.join(parts)}) -> {result}: ..."


def members(cls):
    """Of a class and of those it derives from in this package, by name."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("hearth"):
            found.update(vars(base))
    return found


def class_of(name, cls):
    base = {"Error": "(RuntimeError)", "Busy": "(Error)", "Request": "(AnswerStream)",
            "Inspection": "(Mapping[str, array])"}.get(name, "(NamedTuple)" if cls in TUPLES else "")
    lines = list(ATTRIBUTES.get(name, []))
    for member, value in members(cls).items():
        if member == "__init__" and name not in NOT_MADE_BY_PROGRAMS and name != "Stream":
            lines.append(definition(name, member, value, method=True))
        elif member == "__call__":
            lines.append(definition(name, member, value, method=True))
        elif member.startswith("_"):
            continue
        elif isinstance(value, property) or inspect.isgetsetdescriptor(value):
            lines.append(f"@property\n    def {member}(self) -> {PROPERTIES[member]}: ...")
            if getattr(value, "fset", None):
                lines.append(f"@{member}.setter\n    def {member}(self, {member}: {PROPERTIES[member]}) -> None: ...")
        elif isinstance(value, classmethod):
            lines.append("@classmethod\n    " + definition(name, member, value.__func__, method=True).replace("(self", "(cls", 1))
        elif callable(value):
            lines.append(definition(name, member, value, method=True))
    lines += SPECIAL.get(name, [])
    return f"class {name}{base}:\n" + "\n".join(f"    {line}" for line in lines or ["..."])


HEADS = {
    "__init__": """import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, Self, TypeAlias, Union

from . import fast as fast
from . import linalg as linalg
from . import losses as losses
from . import optimizers as optimizers
from . import random as random

ArrayLike: TypeAlias = Union["array", bool, int, float, Sequence[Any]]
StreamOrDevice: TypeAlias = Union["Stream", "Device", "DeviceType", None]
""",
    "random": """from collections.abc import Sequence

from . import ArrayLike, Dtype, StreamOrDevice, array
""",
    "fast": """from . import ArrayLike, StreamOrDevice, array
""",
    "losses": """from . import ArrayLike, StreamOrDevice, array
""",
    "optimizers": """from collections.abc import Callable, Sequence
from typing import Any

from . import array
""",
    "linalg": """from collections.abc import Sequence

from . import ArrayLike, StreamOrDevice, array
""",
}


def stub_of(name, module):
    """The text of a module's stub: constants, classes, then functions."""
    owner = "" if name == "__init__" else name
    constants, classes, functions = [], [], []
    for public in sorted(module.__all__):
        value = getattr(module, public)
        if inspect.isclass(value):
            classes.append(class_of(public, value))
        elif callable(value):
            functions.append(definition(owner, public, value))
        elif isinstance(value, list):
            constants.append(f"{public}: list[array]")
        elif not inspect.ismodule(value):
            constants.append(f"{public}: {type(value).__name__}" if value is not None else f"{public}: None")
    note = "# Written by tools/python_stubs.py.\n"
    return note + HEADS[name] + "\n" + "\n".join(constants + [""] * bool(constants) + classes + functions) + "\n"


def main():
    stubs = {FOLDER / f"{name}.pyi": stub_of(name, module) for name, module in MODULES.items()}
    if "--check" not in sys.argv[1:]:
        for path, text in stubs.items():
            path.write_text(text)
        return
    wrong = [path.name for path, text in stubs.items() if not path.exists() or path.read_text() != text]
    if wrong:
        sys.exit(f"not what the package is: {', '.join(wrong)}; run tools/python_stubs.py")


main()
