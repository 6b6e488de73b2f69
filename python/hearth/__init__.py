"""Arrays of Hearth, under the names of `mlx.core`."""

from . import (
    _elementwise,
    _index,
    _join,
    _library,
    _linalg,
    _make,
    _reduce,
    _shape,
)
from ._array import array
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
from ._index import *  # noqa: F403
from ._join import *  # noqa: F403
from ._library import Error
from ._linalg import *  # noqa: F403
from ._make import *  # noqa: F403
from ._reduce import *  # noqa: F403
from ._shape import *  # noqa: F403

__all__ = [
    "Dtype", "Error", "array", "eval", "bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32",
    "int64", "float16", "bfloat16", "float32", "float64",
    *_elementwise.__all__,
    *_index.__all__,
    *_join.__all__,
    *_linalg.__all__,
    *_make.__all__,
    *_reduce.__all__,
    *_shape.__all__,
]  # fmt: skip


def _leaves(tree):
    if isinstance(tree, array):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _leaves(value)


def eval(*trees):
    """Computes every array in the arguments, which may be nested in lists, tuples and dicts."""
    _library.evaluate([a._handle for a in _leaves(trees)])
