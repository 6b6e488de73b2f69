"""Arrays of Hearth, under the names of `mlx.core`."""

from . import (
    _compile,
    _elementwise,
    _files,
    _index,
    _join,
    _linalg,
    _make,
    _memory,
    _model,
    _order,
    _quantize,
    _reduce,
    _shape,
    _stream,
    _transform,
    fast,
    linalg,
    random,
)
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
from ._elementwise import *  # noqa: F403
from ._files import *  # noqa: F403
from ._index import *  # noqa: F403
from ._join import *  # noqa: F403
from ._library import Error
from ._linalg import *  # noqa: F403
from ._make import *  # noqa: F403
from ._memory import *  # noqa: F403
from ._model import *  # noqa: F403
from ._order import *  # noqa: F403
from ._quantize import *  # noqa: F403
from ._reduce import *  # noqa: F403
from ._shape import *  # noqa: F403
from ._stream import *  # noqa: F403
from ._transform import *  # noqa: F403

__all__ = [
    "Dtype", "Error", "array", "from_dlpack", "fast", "linalg", "random", "bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32",
    "int64", "float16", "bfloat16", "float32", "float64",
    *_compile.__all__,
    *_elementwise.__all__,
    *_files.__all__,
    *_index.__all__,
    *_join.__all__,
    *_linalg.__all__,
    *_make.__all__,
    *_memory.__all__,
    *_model.__all__,
    *_order.__all__,
    *_quantize.__all__,
    *_reduce.__all__,
    *_shape.__all__,
    *_stream.__all__,
    *_transform.__all__,
]  # fmt: skip

# What makes arrays takes `stream=`, as a function and as a method.
_stream.give_streams(
    globals(),
    *(n for m in (_elementwise, _index, _join, _linalg, _make, _order, _quantize, _reduce, _shape) for n in m.__all__),
    "stop_gradient",
)
_stream.give_streams(fast.__dict__, *fast.__all__)
_stream.give_streams(linalg.__dict__, *linalg.__all__)
_stream.give_streams(random.__dict__, *(set(random.__all__) - {"key", "seed", "state"}))
_stream.give_streams_to_methods(array, "item", "tolist")
