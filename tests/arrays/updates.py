"""Updates of arrays in place, `a[i] = v` and `a[i] += v`, large enough that they are written over the array's own memory where
nobody else holds it, in random programs that keep views, copies, buffers and lazy arrays of it: all of them against NumPy.

  updates.py [--cases N] [--seed N]     needs numpy; HEARTH_LIBRARY and PYTHONPATH=python"""

import copy
import random
import sys

import numpy as np

import _generated
import hearth as hx

SHAPES = [(1024,), (1500,), (64, 32), (33, 47), (8, 16, 17), (1, 2000), (2, 3, 4, 5, 20)]
SMALL = [(5,), (3, 4)]  # which are copied
DTYPES = [hx.float32, hx.int32, hx.float16, hx.uint8, hx.float64]


def an_index(rng, shape):
    """(what Hearth is given, what NumPy is given)"""
    kind = rng.randrange(6)
    if kind == 0:
        i = rng.randrange(-shape[0], shape[0])
        return i, i
    if kind == 1:
        places = [rng.randrange(-shape[0], shape[0]) for _ in range(rng.randrange(1, 4))]
        return hx.array(sorted({p % shape[0] for p in places})), np.array(sorted({p % shape[0] for p in places}))
    cuts = []
    for n in shape[: rng.randrange(1, len(shape) + 1)]:
        a, b = sorted((rng.randrange(n + 1), rng.randrange(n + 1)))
        cuts.append(rng.choice([slice(a, b), slice(None), slice(None, None, 2), slice(None, None, -1), slice(a, None, 3)]))
    return tuple(cuts), tuple(cuts)


class Program:
    def __init__(self, rng):
        self.rng, shape, dtype = rng, rng.choice(SHAPES if rng.random() < 0.9 else SMALL), rng.choice(DTYPES)
        self.plain = np.array([rng.randrange(50) for _ in range(int(np.prod(shape)))]).reshape(shape)
        self.plain = self.plain.astype(getattr(np, dtype.name))
        self.array = hx.array(self.plain) + hx.zeros(shape, dtype)
        self.kept, self.said = [], [f"{dtype} {list(shape)}"]  # (what was made, what it has to be), beside the array

    def keep(self):
        """Something of the array that others hold from now on."""
        kind, a, p = self.rng.randrange(7), self.array, self.plain.copy()
        self.said.append(f"keep {kind}")
        index, plain_index = an_index(self.rng, p.shape)
        if kind == 0:
            self.kept.append((a[index], p[plain_index]))
        elif kind == 1:
            self.kept.append((copy.copy(a), p))
        elif kind == 2:
            hx.eval(a)
            self.kept.append((np.asarray(a), p))
        elif kind == 3:
            self.kept.append((memoryview(a), p))
        elif kind == 4:
            self.kept.append((a + a, p + p))
        elif kind == 5:
            self.kept.append((a[index] + a[index], p[plain_index] + p[plain_index]))
        else:
            self.kept.append((a.T, p.T))

    def update(self):
        index, plain_index = an_index(self.rng, self.plain.shape)
        kind, some = self.rng.randrange(5), self.rng.randrange(1, 4)
        self.said.append(f"update {kind} at {plain_index}")
        if kind == 0:
            self.array[index] = some
            self.plain[plain_index] = some
        elif kind == 1:
            self.array[index] += some
            self.plain[plain_index] += self.plain.dtype.type(some)
        elif kind == 2:  # by the array itself; what was made on the way may stay
            part, plain_part = self.array[index], np.array(self.plain[plain_index])
            twice, plain_twice = part + part, plain_part + plain_part
            self.array[index] = twice
            self.plain[plain_index] = plain_twice
            keeps = self.rng.randrange(4)
            self.kept += [[], [(part, plain_part)], [(twice, plain_twice)], [(part, plain_part), (twice, plain_twice)]][keeps]
            self.said.append(f"keep {keeps} on the way")
        elif kind == 3:
            self.array[index] = self.array.max()
            self.plain[plain_index] = self.plain.max()
        else:
            self.array += some
            self.plain += self.plain.dtype.type(some)

    def step(self):
        what = self.rng.random()
        if what < 0.5:
            self.update()
        elif what < 0.65:
            self.keep()
        elif what < 0.75 and self.kept:
            self.said.append("drop")
            self.kept.pop(self.rng.randrange(len(self.kept)))
        elif what < 0.95:
            some = [a for a, _ in self.kept if isinstance(a, hx.array) and self.rng.random() < 0.5]
            self.said.append(f"eval {len(some)} others")
            hx.eval(*([self.array] if self.rng.random() < 0.8 else []), *some)
        else:
            self.said.append("async_eval")
            hx.async_eval(self.array)

    def wrong(self):
        for i, (made, expected) in enumerate([*self.kept, (self.array, self.plain)]):
            found = np.array(made)
            if found.shape != expected.shape or not np.array_equal(found, expected):
                return f"{'what was kept' if i < len(self.kept) else 'the array'} is not what it has to be"
        return None


def check(rng, program):
    made = program(random.Random(int(rng.integers(2**62))))
    for _ in range(made.rng.randrange(2, 14)):
        made.step()
    problem = made.wrong()
    return ("; ".join(made.said), problem) if problem else None


if __name__ == "__main__":
    sys.exit(_generated.run([Program], check, cases=1500, against="NumPy"))
