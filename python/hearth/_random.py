"""What hearth.random shows, and the key that its functions draw from."""

import time

from . import _functions, _stream  # noqa: F401  (the first key is computed on a stream)
from . import _library as lib

_key = _functions.random["key"]
globals().update(_functions.random)
__all__ = [*_functions.random, "seed", "state"]

state = [_key(time.time_ns())]
lib.core.hook(state=state)


def seed(seed):
    """Makes what follows repeatable."""
    state[0] = _key(seed)
