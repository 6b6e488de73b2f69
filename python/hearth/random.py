"""Random numbers, those of `mlx.core.random` for the same key.

Functions without a key take one from `state`, a list of one key that `seed` sets."""

from ._random import *  # noqa: F403
from ._random import __all__  # noqa: F401
