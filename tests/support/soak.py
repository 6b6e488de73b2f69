"""How many cases the tests in Python run: a share of them, or more where scripts/soak sets HEARTH_SOAK (see support/test.h)."""

import os

SHARE, FIRST = map(int, os.environ["HEARTH_SOAK"].split()) if "HEARTH_SOAK" in os.environ else (0, 0)


def cases(usual, soak):
    """A number of cases, or other values, of which `soak` are all."""
    if not SHARE or not isinstance(soak, int):
        return soak if SHARE else usual
    return max(usual, soak // SHARE) if soak > usual else min(usual, soak * SHARE)  # a step is less in a soak


def takes(i, n):
    """Whether case `i` of similar ones is run: every n-th. Of nested loops, `i` is a sum of the indices."""
    return i % n == 0 or (SHARE > 0 and (i + FIRST) % SHARE == 0)
