"""Transformations from Python: trees, arguments by number and name, exceptions, nesting; compared with MLX. Run with
PYTHONPATH=python and HEARTH_LIBRARY naming the library."""

import gc
import unittest

import mlx.core as mx

import hearth as hx


def lists(tree):
    if isinstance(tree, (hx.array, mx.array)):
        return tree.tolist()
    if isinstance(tree, dict):
        return {key: lists(value) for key, value in tree.items()}
    return type(tree)(map(lists, tree)) if isinstance(tree, (list, tuple)) else tree


class Oops(Exception):
    pass


class Transforms(unittest.TestCase):
    def both(self, program):
        ours, theirs = lists(program(hx)), lists(program(mx))
        self.assertEqual(ours, theirs)

    def test_arguments(self):
        def program(m):
            def f(x, w, b=None):
                return (x * w).sum() + (0 if b is None else b.sum())

            x, w = m.array([1.0, 2.0]), m.array([3.0, 4.0])
            return [
                m.grad(f)(x, w), m.grad(f, argnums=[0, 1])(x, w), m.grad(f, argnums=(1,))(x, w), m.grad(f, 1)(x, w),
                m.grad(f, argnames="b")(x, w, b=x), m.grad(f, argnums=0, argnames=["b"])(x, w, b=x),
                m.grad(f, argnums=[0, 1], argnames=["b"])(x, w, b=x),
            ]  # fmt: skip

        self.both(program)

    def test_trees_and_other_results(self):
        def program(m):
            x, w = m.array([1.0, 2.0]), m.array([3.0, 4.0])

            def f(p, scale):
                return (p["w"] * p["b"][0]).sum() * scale, "text", {"twice": p["w"] * 2}

            return m.value_and_grad(f)({"w": x, "b": [w], "c": (x,)}, 2.0)

        self.both(program)

    def test_second_order_and_modes(self):
        def program(m):
            x, w = m.array([1.0, 2.0]), m.array([3.0, 4.0])
            cube = lambda v: (v * v * v).sum()
            return [
                m.grad(lambda v: m.grad(cube)(v).sum())(x), m.vjp(lambda a, b: (a * b, a + b), [x, w], [x, x]),
                m.jvp(lambda a, b: a * b, [x, w], [x, x]), m.grad(lambda v: (v * m.stop_gradient(v)).sum())(x),
            ]  # fmt: skip

        self.both(program)

    def test_checkpoints(self):
        def program(m):
            x = m.array([0.5, 2.0])
            calls = []

            def layer(p, y):
                calls.append(1)
                return {"out": y * p["w"] * y}

            f = m.checkpoint(layer)
            return m.value_and_grad(lambda p: f(p, x)["out"].sum())({"w": x}), len(calls) > 0

        self.both(program)

    def test_functions_with_their_own_derivative(self):
        def program(m):
            @m.custom_function
            def f(x, y):
                return x * y

            @f.vjp
            def _(primals, cotangent, output):
                x, y = primals
                return cotangent * y * 10, cotangent * x + output

            a, b = m.array([1.0, 2.0]), m.array([3.0, 4.0])
            return f(a, b), m.grad(lambda x, y: (f(x, y) * 2).sum(), argnums=[0, 1])(a, b)

        self.both(program)
        gc.collect()
        self.assertEqual(len(hx._transform._users), 0)

    def test_functions_with_their_own_forward_derivative(self):
        def program(m, with_reverse):
            @m.custom_function
            def f(x, y):
                return m.sin(x) * y, x + y

            if with_reverse:

                @f.vjp
                def _(primals, cotangents, outputs):
                    x, y = primals
                    a, b = cotangents
                    return 10 * a * m.cos(x) * y + b, a * m.sin(x) + b

            @f.jvp
            def _(primals, tangents):
                x, y = primals
                dx, dy = tangents
                return 3 * (dx * m.cos(x) * y + dy * m.sin(x)), dx + dy  # three times what it is, to be told apart

            a, b, da, db = m.array([1.0, 2.0]), m.array([3.0, 4.0]), m.array([0.5, -1.0]), m.array([2.0, 0.25])
            forward = m.jvp(lambda x, y: list(f(2 * x, y)), [a, b], [da, db])
            reverse = m.grad(lambda x, y: (f(x, y)[0] * 2).sum(), argnums=[0, 1])(a, b)
            return [m.round(v * 1000) for v in (*forward[0], *forward[1], *reverse)]

        for with_reverse in (True, False):
            self.both(lambda m, w=with_reverse: program(m, w))

        @hx.custom_function
        def g(x):
            return x * x * x

        g.jvp(lambda x, dx: 3 * x * x * dx)
        self.assertEqual(hx.jvp(g, [hx.array(2.0)], [hx.array(1.0)])[1][0].item(), 12)
        self.assertEqual(hx.grad(hx.grad(lambda x: g(x)))(hx.array(2.0)).item(), 12)
        gc.collect()
        self.assertEqual(len(hx._transform._users), 0)

    def test_values_may_be_read_inside(self):
        def program(m):
            def f(x):
                y = m.exp(x)
                m.eval(y)
                return (y * y.sum().item()).sum()

            return [round(v, 3) for v in m.grad(f)(m.array([0.0, 1.0])).tolist()]

        self.both(program)

    def test_exceptions_come_out_as_themselves(self):
        x = hx.array([1.0, 2.0])

        def bad(v):
            raise Oops("inside")

        @hx.custom_function
        def f(v):
            return v * 1

        f.vjp(lambda primals, cotangent, output: bad(primals))
        for call in (
            lambda: hx.grad(bad)(x), lambda: hx.vjp(bad, [x], [x]), lambda: hx.jvp(bad, [x], [x]),
            lambda: hx.checkpoint(bad)(x), lambda: hx.grad(lambda v: f(v).sum())(x),
            lambda: hx.grad(lambda v: hx.grad(bad)(v).sum())(x),
        ):  # fmt: skip
            self.assertRaisesRegex(Oops, "inside", call)
            self.assertEqual(hx.grad(lambda v: (v * v).sum())(x).tolist(), [2, 4])
        with self.assertRaisesRegex(ValueError, "broadcast"):
            hx.grad(lambda v: (v + hx.zeros((3,))).sum())(x)

        def catches(v):
            try:
                hx.grad(bad)(v)
            except Oops:
                return v.sum()

        self.assertEqual(hx.grad(catches)(x).tolist(), [1, 1])

    def test_wrong_uses_say_so(self):
        x = hx.array([1.0, 2.0])
        for wrong in (
            lambda: hx.grad(lambda v: v)(x), lambda: hx.grad(lambda v: 3.0)(x), lambda: hx.grad(lambda p: p["w"].sum())({"w": x, "b": 3}),
            lambda: hx.grad(lambda v: v.sum(), argnums=3)(x), lambda: hx.grad(lambda v: v.sum(), argnames="q")(x),
            lambda: hx.grad(lambda v: v.sum(), argnums=[0, 0]), lambda: hx.vjp(lambda v: v, [x], [x, x]),
        ):  # fmt: skip
            self.assertRaises(ValueError, wrong)

    def test_training_leaves_nothing(self):
        x, w, before = hx.ones((8, 4)), hx.ones((4,)), None
        step = hx.value_and_grad(lambda w: ((x * w).sum() - 1).square())
        for i in range(300):
            loss, g = step(w)
            w = w - 0.001 * g
            hx.eval(loss, w)
            if i == 10:
                before = hx.get_active_memory()
        self.assertEqual(hx.get_active_memory(), before)


if __name__ == "__main__":
    unittest.main()
