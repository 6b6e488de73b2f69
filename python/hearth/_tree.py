"""Trees: arrays in nested lists, tuples and dicts, as the arguments and results of a user's function."""

import itertools

from ._array import array

_PLACE = object()  # of an array, in a tree that is kept without its arrays


def leaves(tree):
    """The arrays of a tree, in order; dicts in the order of their keys. Other leaves are passed over."""
    if isinstance(tree, array):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from leaves(value)


def flatten(tree):
    """(arrays, rebuild): the arrays of a tree, and a function that makes the same tree of as many others. Its other leaves
    stay as they are. The function keeps none of the arrays, nor the tree's own containers."""
    places = _built(tree, itertools.repeat(_PLACE))
    return list(leaves(tree)), lambda others: _built(places, iter(others))


def _built(tree, others):
    if tree is _PLACE or isinstance(tree, array):
        return next(others)
    if isinstance(tree, dict):
        return {key: _built(value, others) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        parts = [_built(value, others) for value in tree]
        if isinstance(tree, list):
            return parts
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree


def structure(tree):
    """What two trees have in common whose arrays correspond: containers, keys, and the leaves that are no arrays."""
    if isinstance(tree, array):
        return array
    if isinstance(tree, dict):
        return "dict", tuple((key, structure(value)) for key, value in tree.items())
    if isinstance(tree, (list, tuple)):
        return type(tree).__name__, tuple(structure(value) for value in tree)
    return tree
