"""Lines as users of MLX write them, run with both libraries: results are alike in value, dtype and shape, exceptions in type.

  snippets.py            needs numpy and mlx; HEARTH_LIBRARY and PYTHONPATH=python

snippets/*.txt have a line each, the value of its last expression being compared; what stands between two lines of "---" is one
program that leaves its results in `r`. What is meant to differ is told in docs/arrays.md, not tried here. Indices are made of
all combinations of the lists below."""

import ast
import itertools
import math
import pathlib
import sys
from functools import partial

import mlx.core as mx
import numpy as np

import hearth as hx

mx.set_default_device(mx.cpu)
FOLDER = pathlib.Path(__file__).with_name("snippets")
CLOSE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 3e-5}

INDICES = """0 -1 1:3 ::2 ::-1 3:0:-1 -2: None ... ...,0 0,... None,0 0,None ...,None None,...,None 1:3,None 1:3,0 0,1:3 ::-1,::-1
 ::2,::-2 [0,2] [0,-1] I([0,2]) I([0,-1]) I(1) I([[0,1],[2,0]]) I([0,2]),0 0,I([0,2]) I([[0],[2]]),I([1,2]) I([0,2]),1:3
 1:3,I([0,2]) ::-1,I([0,2]) I([0,2]),::2 I([0,2]),None None,I([0,2]) None,I([0,2]),None,1:2 ...,I([0,2]) I([0,2]),...
 I([0,2],mx.uint8) I([0,2],mx.int64) 0,0 0,0,0,0 [0,1],[1,0] slice(10,20) 3:1 -100:100 100: 1:1 0:0,0 I(-1),1 2:None:-1 ...,::-1
 Ellipsis,Ellipsis I([],mx.int32) I([0.5]) 'a' 1.5 [] I([1,2]),...,I([0,1])""".replace("I(", "mx.array(").split()
MASKS = "mx.array([True,False,True,True]) [True,False,True,True] True False mx.ones((4,3),mx.bool_)".split()
VALUES = ["7", "mx.array([1,2,3])", "True", "np.array([5,6,7])"]
CHANGES = "add subtract multiply maximum minimum".split()


def alike(a, b, dtype):
    if a.dtype.kind in "biu":
        return np.array_equal(a, b)
    room = CLOSE.get(dtype, 1e-10)
    return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=room, atol=room, equal_nan=True)


def same(mine, theirs):
    if isinstance(mine, hx.array):
        names = [str(v.dtype).split(".")[-1] for v in (mine, theirs)]
        if names[0] != names[1] or tuple(mine.shape) != tuple(theirs.shape):
            return False
        if names[0] == "bfloat16":
            mine, theirs = mine.astype(hx.float32), theirs.astype(mx.float32)
        return alike(np.array(mine), np.array(theirs), names[0])
    if isinstance(mine, hx.Dtype):
        return str(mine).split(".")[-1] == str(theirs).split(".")[-1]
    if isinstance(mine, np.ndarray):
        return mine.dtype == theirs.dtype and mine.shape == theirs.shape and alike(mine, theirs, str(mine.dtype))
    if isinstance(mine, dict):
        return isinstance(theirs, dict) and mine.keys() == theirs.keys() and all(same(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, (list, tuple)):
        return type(mine) is type(theirs) and len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, float):
        return isinstance(theirs, float) and (math.isclose(mine, theirs, rel_tol=1e-4, abs_tol=1e-6) or mine != mine and theirs != theirs)
    if isinstance(mine, (int, str, bytes)) or mine is None:
        return type(mine) is type(theirs) and mine == theirs
    return type(mine).__name__ == type(theirs).__name__


def is_an_array(v):
    return isinstance(v, (hx.array, mx.array))


def run(code, library):
    """(its result, what it raised)"""
    names = {"mx": library, "np": np, "math": math, "partial": partial}
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, code, "exec"), names)
        value = eval(compile(ast.Expression(last.value), code, "eval"), names) if last else None
        value = names.get("r", value)  # a program's
        if is_an_array(value) or isinstance(value, (tuple, list, dict)):
            library.eval(value)  # what is wrong with its values, too
        return value, None
    except Exception as error:
        return None, error


def differs(code):
    """None, or how."""
    (mine, failed), (theirs, failed_there) = run(code, hx), run(code, mx)
    if failed or failed_there:
        kind = type(failed_there) if type(failed_there) is not RuntimeError else Exception
        if failed and failed_there and isinstance(failed, kind):
            return None
        return f"{failed!r}" if failed else f"{mine!r}", f"{failed_there!r}" if failed_there else f"{theirs!r}"
    if is_an_array(mine) != is_an_array(theirs) or not same(mine, theirs):
        return f"{mine!r}", f"{theirs!r}"
    return None


def snippets(text):
    for i, part in enumerate(("\n" + text).split("\n---")):
        yield from [part.strip()] if i % 2 else (line for line in part.splitlines() if line.strip() and line[0] != "#")


def of_indices():
    for shape, index in itertools.product(["4,", "4,3", "4,5,3"], INDICES):
        yield f"mx.arange({math.prod(ast.literal_eval(f'({shape})'))}).reshape({shape})[{index}]"
    for index, value in itertools.product(INDICES + MASKS, VALUES):
        yield f"a = mx.arange(12).reshape(4, 3); b = a; a[{index}] = {value}; (a, b)"
    for index, change, value in itertools.product(INDICES, CHANGES, ["2", "mx.array([2.0, 3, 4])"]):
        yield f"mx.ones((4, 3)).at[{index}].{change}({value})"


if __name__ == "__main__":
    n, wrong = 0, 0
    for code in itertools.chain(*(snippets(p.read_text()) for p in sorted(FOLDER.glob("*.txt"))), of_indices()):
        n += 1
        with np.errstate(all="ignore"):
            how = differs(code)
        if how:
            wrong += 1
            print(f"{code}\n    gives {how[0][:300]}\n    in MLX {how[1][:300]}")
    print(f"{n} snippets, {wrong} differ")
    sys.exit(1 if wrong else 0)
