# Written by tools/python_stubs.py.
from collections.abc import Sequence

from . import ArrayLike, StreamOrDevice, array

def norm(a: ArrayLike, ord: int | float | str | None = None, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array: ...
