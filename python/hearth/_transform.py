"""Transformations of functions: derivatives, checkpoints, derivatives of one's own.

The library calls back for the values of a function. What the function raises is kept, ends the call of the library, and
is raised again by it."""

import ctypes
import functools
import itertools
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_void_p

from . import _library as lib
from ._array import array, operand
from ._functions import public
from ._structs import HT_ERR_ARGUMENT, ht_custom_vjp, ht_function, ht_wrt
from ._tree import flatten

__all__ = [
    "grad", "value_and_grad", "vjp", "jvp", "checkpoint", "custom_function",
]  # fmt: skip

LIST = POINTER(c_void_p)
_CALL, _CUSTOM, _RELEASE = dict(ht_function._fields_)["call"], *map(dict(ht_custom_vjp._fields_).get, ("call", "release"))
MOST = 4096  # arrays that a function may give


FUNCTION = POINTER(ht_function)
_vjp = lib.declare("ht_vjp", c_bool, c_void_p, FUNCTION, lib.HELD, c_int, lib.HELD, c_int, LIST, LIST)
_jvp = lib.declare("ht_jvp", c_int, c_void_p, FUNCTION, lib.HELD, lib.HELD, c_int, LIST, LIST, c_int)
_value_and_grad = lib.declare(
    "ht_value_and_grad", c_int, c_void_p, FUNCTION, lib.HELD, c_int, ht_wrt, LIST, c_int, LIST
)
_checkpoint = lib.declare("ht_checkpoint", c_int, c_void_p, FUNCTION, lib.HELD, c_int, LIST, c_int)
_custom = lib.declare("ht_custom_function", c_int, c_void_p, FUNCTION, POINTER(ht_custom_vjp), lib.HELD, c_int, LIST, c_int)
_report = lib.declare("ht_scope_report", None, c_void_p, c_int, c_char_p)
_retain = lib.declare("ht_array_retain", c_void_p, c_void_p)

# ---- callbacks ----

_users = lib.keep({})  # what a `user` pointer stands for
_numbers = itertools.count(1)


def arrays_of(handles, n):
    return [array._own(_retain(handles[i])) for i in range(n)]


def _give(arrays, out):
    """Their handles; the arrays live until the outermost transformation is done."""
    held = lib.hold(arrays)
    lib.thread.kept.append(held)
    ctypes.memmove(out, held, len(held) * ctypes.sizeof(c_void_p))
    return len(held)


def _raised(scope, error):
    lib.thread.raised = lib.thread.raised or error
    _report(scope, HT_ERR_ARGUMENT, f"{type(error).__name__} in a user's function".encode())


@_CALL
def _on_call(scope, inputs, n, out, most, user):
    try:
        results = _users[user](arrays_of(inputs, n))
        if len(results) > most:
            raise ValueError(f"a function gave {len(results)} arrays, at most {most} are possible here")
        return _give(results, out)
    except BaseException as error:
        _raised(scope, error)
        return -1


@_CUSTOM
def _on_custom(scope, inputs, n_in, outputs, cotangents, n_out, gradients, user):
    try:
        found = _users[user](arrays_of(inputs, n_in), arrays_of(outputs, n_out), arrays_of(cotangents, n_out))
        if len(found) != n_in:
            raise ValueError(f"a derivative gave {len(found)} arrays for {n_in} arguments")
        _give(found, gradients)
        return True
    except BaseException as error:
        _raised(scope, error)
        return False


@lib.keep
@_RELEASE
def _on_release(user, pop=_users.pop):
    pop(user, None)


def run(call, results):
    """What `results` makes of call(scope)'s return value, which is False or negative after a failure."""
    return calling_back(_run, call, results)


def calling_back(function, *arguments):
    """Calls what may call users' functions: what they gave lives until the outermost one returns."""
    thread = lib.thread
    thread.depth += 1
    try:
        return function(*arguments)
    finally:
        thread.depth -= 1
        if not thread.depth:
            thread.kept.clear()


def _run(call, results):
    scope = lib.core.take()
    try:
        returned = call(scope)
        if returned is False or (returned is not True and returned < 0):
            failed, scope = scope, None
            lib.fail(failed)
        made = results(returned)
        lib.core.give(scope)
        return made
    except BaseException:
        if scope:
            lib.scope_free(scope)
        raise


def function_of(fun):
    """ht_function of a function of a list of arrays that gives a list of arrays, and the number to forget it by."""
    number = next(_numbers)
    _users[number] = fun
    return ht_function(_on_call, number), number


def forget(number):
    _users.pop(number, None)


def _transform(function, fun, *arguments, results):
    """Calls a transformation of `fun`, which takes and gives lists of arrays. `results` takes what the transformation
    returns and makes arrays of its outputs."""
    as_function, number = function_of(fun)
    try:
        return run(lambda scope: function(scope, byref(as_function), *arguments), results)
    finally:
        forget(number)


# ---- gradients ----


def _indices(argnums, argnames):
    if argnums is None:
        argnums = () if argnames else 0
    argnames = (argnames,) if isinstance(argnames, str) else tuple(argnames or ())
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for kind, given in (("index", numbers), ("name", argnames)):
        if len(set(given)) < len(given):
            raise ValueError(f"an argument {kind} is named twice: {given}")
    if not numbers and not argnames:
        raise ValueError("there is no argument to take the gradient with respect to")
    return argnums, numbers, argnames


def _chosen(numbers, names, args, kwargs):
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise ValueError(f"the gradient of argument {number} was asked for, there are {len(args)} positional ones")
    for name in names:
        if name not in kwargs:
            raise ValueError(f"the gradient of argument {name!r} was asked for, the named ones are {sorted(kwargs)}")
    return [args[n] for n in numbers], {name: kwargs[name] for name in names}


def _only_arrays(tree):
    if isinstance(tree, dict):
        return all(map(_only_arrays, tree.values()))
    if isinstance(tree, (list, tuple)):
        return all(map(_only_arrays, tree))
    return isinstance(tree, array)


def _loss_of(value):
    loss = value[0] if isinstance(value, (list, tuple)) and value else value
    if not isinstance(loss, array) or loss.shape != ():
        found = f"an array of shape {loss.shape}" if isinstance(loss, array) else type(loss).__name__
        raise ValueError(f"a gradient is taken of a function that gives a scalar array, or a tuple that begins with one; this one gives {found}")


def value_and_grad(fun, argnums=None, argnames=None):
    """A function that gives (value, gradients): of the arguments at `argnums` (0 unless told otherwise), which may be trees,
    and of those named in `argnames`. Of integers in a tree they are 0."""
    if not callable(fun):
        raise TypeError(f"a gradient is that of a function, not of a {type(fun).__name__}")
    argnums, numbers, names = _indices(argnums, argnames)

    @functools.wraps(fun, updated=())
    def transformed(*args, **kwargs):
        tree = _chosen(numbers, names, args, kwargs)
        if not _only_arrays(tree):
            raise ValueError("an argument whose gradient is asked for may only hold arrays")
        leaves, rebuild = flatten(tree)
        rebuild_value = None
        held = [*tree[0], *tree[1].values()]
        fixed = [] if any(isinstance(a, array) and not a.dtype.is_float for a in held) else leaves
        kept = {i: a for i, a in enumerate(fixed) if not a.dtype.is_float}  # in a tree; one that is an argument is refused
        leaves = [a for i, a in enumerate(leaves) if i not in kept]

        def with_kept(arrays, make):
            others = iter(arrays)
            return rebuild([make(kept[i]) if i in kept else next(others) for i in range(len(arrays) + len(kept))])

        def call(stand_ins):
            nonlocal rebuild_value
            positional, named = with_kept(stand_ins, lambda a: a)
            replaced = list(args)
            for number, value in zip(numbers, positional):
                replaced[number] = value
            value = fun(*replaced, **{**kwargs, **named})
            _loss_of(value)
            results, rebuild_value = flatten(value)
            return results

        n = len(leaves)
        out, gradients = (c_void_p * MOST)(), (c_void_p * max(1, n))()
        index = (c_int * max(1, n))(*range(n))
        wrt = ht_wrt(ctypes.cast(index, c_void_p), n)
        value, grads = _transform(
            _value_and_grad, call, lib.hold(leaves), n, wrt, out, MOST, gradients,
            results=lambda count: (arrays_of(out, count), arrays_of(gradients, n)),
        )  # fmt: skip
        positional, named = with_kept(grads, public["zeros_like"])
        positional = positional[0] if isinstance(argnums, int) else tuple(positional) if numbers else None
        if numbers and not isinstance(argnums, int) and len(numbers) == 1:
            positional = positional[0]
        return rebuild_value(value), (positional, named) if names else positional

    return transformed


def grad(fun, argnums=None, argnames=None):
    """A function that gives the gradients of `fun`, as value_and_grad does, without the value."""
    both = value_and_grad(fun, argnums, argnames)

    @functools.wraps(fun, updated=())
    def gradient(*args, **kwargs):
        return both(*args, **kwargs)[1]

    return gradient


def _results_of(fun):
    def call(arrays):
        results = fun(*arrays)
        return [results] if isinstance(results, array) else [operand(r) for r in results]

    return call


def vjp(fun, primals, cotangents):
    """(outputs, the gradients of the primals) of a function of arrays, when the gradient of its outputs is `cotangents`."""
    primals, cotangents = [operand(p) for p in primals], [operand(c) for c in cotangents]
    n, m = len(primals), len(cotangents)
    out, gradients = (c_void_p * max(1, m))(), (c_void_p * max(1, n))()
    return _transform(
        _vjp, _results_of(fun), lib.hold(primals), n, lib.hold(cotangents), m, out, gradients,
        results=lambda _: (arrays_of(out, m), arrays_of(gradients, n)),
    )  # fmt: skip


def jvp(fun, primals, tangents):
    """(outputs, how they move) of a function of arrays, when the primals move along `tangents`."""
    primals, tangents = [operand(p) for p in primals], [operand(t) for t in tangents]
    if len(primals) != len(tangents):
        raise ValueError(f"jvp: {len(primals)} primals and {len(tangents)} tangents")
    out, moved = (c_void_p * MOST)(), (c_void_p * MOST)()
    return _transform(
        _jvp, _results_of(fun), lib.hold(primals), lib.hold(tangents), len(primals), out, moved, MOST,
        results=lambda count: (arrays_of(out, count), arrays_of(moved, count)),
    )  # fmt: skip


# ---- functions with a derivative of their own ----


def _as_operation(fun, function, more, args, kwargs):
    """fun's result, from a transformation that takes its arrays and gives its outputs."""
    leaves, rebuild = flatten((args, kwargs))
    rebuild_value = None

    def call(stand_ins):
        nonlocal rebuild_value
        positional, named = rebuild(stand_ins)
        results, rebuild_value = flatten(fun(*positional, **named))
        return results

    out = (c_void_p * MOST)()
    made = _transform(
        function, call, *more, lib.hold(leaves), len(leaves), out, MOST, results=lambda count: arrays_of(out, count)
    )
    return rebuild_value(made)


def checkpoint(fun):
    """`fun`, of which reverse mode keeps the arguments alone and computes again what it made on the way."""

    @functools.wraps(fun, updated=())
    def checkpointed(*args, **kwargs):
        return _as_operation(fun, _checkpoint, (), args, kwargs)

    return checkpointed


def _reverse(fun, arrays, cotangents):
    """The gradients of a function of a list of arrays, 0 for arrays of integers."""
    places = [i for i, a in enumerate(arrays) if a.dtype.is_float]

    def of_floats(*floats):
        given = list(arrays)
        for i, a in zip(places, floats):
            given[i] = a
        return fun(*given)

    found = iter(vjp(of_floats, [arrays[i] for i in places], cotangents)[1])
    return [next(found) if a.dtype.is_float else public["zeros_like"](a) for a in arrays]


def _also_forward(reverse, forward, n_in, n_out):
    """`reverse`, whose derivative with respect to the gradients it is given is `forward`. For forward mode is found by
    transposing the reverse rule."""
    linear = custom_function(reverse)

    @linear.vjp
    def transposed(arrays, tangents, _):
        inputs, between, outputs = arrays[:n_in], arrays[n_in : n_in + n_out], arrays[n_in + n_out :]
        others = _reverse(lambda *rest: reverse(*rest[:n_in], *between, *rest[n_in:]), [*inputs, *outputs], tangents)
        return [*others[:n_in], *forward(inputs, tangents), *others[n_in:]]

    return linear


class custom_function:
    """A decorator: a function whose derivatives may be given, with `@f.vjp` as `rule(primals, cotangents, outputs)`, and for
    forward mode with `@f.jvp` as `rule(primals, tangents)`. They are those of the arguments; what the function captures counts
    as constant."""

    def __init__(self, fun):
        self._fun, self._rule, self._forward = fun, None, None
        functools.update_wrapper(self, fun)

    def vjp(self, rule):
        self._rule = rule
        return rule

    def jvp(self, rule):
        self._forward = rule
        return rule

    def __call__(self, *args, **kwargs):
        if self._rule is None and self._forward is None:
            return self._fun(*args, **kwargs)
        leaves, rebuild_in = flatten((args, kwargs))
        n_in, as_output = len(leaves), None

        def fun(*positional, **named):
            nonlocal as_output
            value = self._fun(*positional, **named)
            as_output = flatten(value)[1]
            return value

        def arguments(arrays):
            positional, named = rebuild_in(arrays)
            return (positional[0] if len(args) == 1 else tuple(positional)), named

        def given(results, n, what):
            found = flatten(results)[0]
            if len(found) != n:
                raise ValueError(f"the derivative of a function of {n_in} arrays gave {len(found)}, expected {n} {what}")
            return found

        def on_arrays(*arrays):
            positional, named = rebuild_in(arrays)
            return flatten(self._fun(*positional, **named))[0]

        def reverse(n_out, *arrays):
            inputs, between, outputs = arrays[:n_in], arrays[n_in : n_in + n_out], arrays[n_in + n_out :]
            if self._rule is None:
                return _reverse(on_arrays, inputs, between)
            primals, named = arguments(inputs)
            return given(self._rule(primals, as_output(between), as_output(outputs), **named), n_in, "gradients")

        def forward(n_out, inputs, tangents):
            return given(self._forward(arguments(inputs)[0], arguments(tangents)[0]), n_out, "tangents")

        def rule(inputs, outputs, cotangents):
            n = len(outputs)
            of_all = functools.partial(reverse, n)
            if self._forward is not None:
                of_all = _also_forward(of_all, functools.partial(forward, n), n_in, n)
            return of_all(*inputs, *cotangents, *outputs)

        number = next(_numbers)
        _users[number] = rule
        custom = ht_custom_vjp(_on_custom, number, _on_release)
        return _as_operation(fun, _custom, (byref(custom),), args, kwargs)
