"""Arrays of Hearth, under the names of `mlx.core`."""

from math import e, inf, nan, pi

from . import (
    _adapter,
    _compile,
    _engine,
    _files,
    _finetune,
    _functions,
    _grammar,
    _index,
    _inspect,
    _lora,
    _many,
    _memory,
    _model,
    _model_backend,
    _rerank,
    _stream,
    _trainer,
    _transform,
    fast,
    linalg,
    losses,
    optimizers,
    random,
)
from ._adapter import *  # noqa: F403
from ._array import array, from_dlpack
from ._compile import *  # noqa: F403
from ._dtype import (
    Dtype,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._engine import *  # noqa: F403
from ._files import *  # noqa: F403
from ._finetune import *  # noqa: F403
from ._grammar import *  # noqa: F403
from ._inspect import *  # noqa: F403
from ._library import Busy, Error
from ._lora import *  # noqa: F403
from ._many import *  # noqa: F403
from ._memory import *  # noqa: F403
from ._model import *  # noqa: F403
from ._model_backend import *  # noqa: F403
from ._rerank import *  # noqa: F403
from ._stream import *  # noqa: F403
from ._trainer import *  # noqa: F403
from ._transform import *  # noqa: F403

__all__ = [
    "Busy", "Dtype", "Error", "array", "from_dlpack", "fast", "linalg", "losses", "optimizers", "random", "bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32",
    "int64", "float16", "bfloat16", "float32", "float64", "pi", "e", "inf", "nan", "newaxis",
    *_functions.public,
    *_adapter.__all__,
    *_compile.__all__,
    *_engine.__all__,
    *_files.__all__,
    *_finetune.__all__,
    *_grammar.__all__,
    *_inspect.__all__,
    *_lora.__all__,
    *_many.__all__,
    *_memory.__all__,
    *_model.__all__,
    *_model_backend.__all__,
    *_rerank.__all__,
    *_stream.__all__,
    *_trainer.__all__,
    *_transform.__all__,
]  # fmt: skip

newaxis = None
globals().update(_functions.public)
