"""`mlx.core.linalg`: norms of vectors and matrices."""

from . import _functions

globals().update(_functions.linalg)
__all__ = list(_functions.linalg)
