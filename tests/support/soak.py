"""How many cases the tests in Python run: a share of them, or all where scripts/soak sets HEARTH_SOAK (see support/test.h)."""

import os

SOAK = "HEARTH_SOAK" in os.environ


def cases(usual, soak):
    """A number of cases."""
    return soak if SOAK else usual


def takes(i, n):
    """Whether case `i` of similar ones is run: every n-th. Of nested loops, `i` is a sum of the indices."""
    return SOAK or i % n == 0
