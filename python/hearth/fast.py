"""`mlx.core.fast`: operations of transformers in one pass."""

from . import _functions

globals().update(_functions.fast)
__all__ = list(_functions.fast)
