"""Compiled functions of Python, and gradients of compositions, against MLX (where it is installed) and torch."""

import gc
import unittest
import weakref

import numpy as np

import hearth as hx

try:
    import mlx.core as mx
except ImportError:
    mx = None


def close(a, b, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


class Compiled(unittest.TestCase):
    def test_called_once_for_each_kind_of_argument(self):
        calls = []

        def f(x, scale=2.0, by=None):
            calls.append(x.shape)
            return {"y": hx.exp(x * scale), "by": by[0] + x.sum() if by else None}

        g = hx.compile(f)
        for _ in range(3):
            for n in (2, 5):
                x = hx.arange(n).astype(hx.float32) * 0.1
                close(g(x)["y"], np.exp(np.asarray(x) * 2.0))
        self.assertEqual(len(calls), 2)
        close(g(hx.ones((2,)), 3.0)["y"], np.exp([3.0, 3.0]))
        close(g(hx.ones((2,)), by=[hx.array(4.0)])["by"], 6.0)
        close(g(hx.ones((2,)), by=[hx.array(5.0)])["by"], 7.0)
        self.assertEqual(len(calls), 4)
        hx.disable_compile()
        g(hx.ones((2,)))
        hx.enable_compile()
        self.assertEqual(len(calls), 5)

    def test_arguments_that_are_all_arrays(self):
        calls = []

        def f(*xs):
            calls.append(len(xs))
            return sum(xs[1:], xs[0]) * 2

        g, shapeless = hx.compile(f), hx.compile(f, shapeless=True)
        for n in (1, 3, 100):  # few are told apart in another way than many
            for _ in range(2):
                for dtype in (hx.float32, hx.int32):
                    for shape in ((), (2,), (3, 2), (2, 3), (1, 1, 1, 1, 1, 2)):
                        for function in (g, shapeless):
                            got = function(*[hx.full(shape, i + 1, dtype=dtype) for i in range(n)])
                            self.assertEqual((got.dtype, got.shape), (dtype, shape))
                            close(got, np.full(shape, n * (n + 1)))
        self.assertEqual(len(calls), 3 * 2 * (5 + 4))
        with self.assertRaises(IndexError):
            g()
        both = hx.compile(lambda x, y: (x + y, [x - y]))
        for _ in range(2):
            total, (difference,) = both(hx.array(5.0), hx.array(3.0))
            self.assertEqual((total.item(), difference.item()), (8.0, 2.0))
        one = hx.compile(lambda x: [x])
        self.assertIsInstance(one(hx.array(1.0)), list)

    def test_state_is_read_and_changed(self):
        state, calls = {"w": hx.array(1.0), "momentum": [hx.array(0.0)]}, []

        def step(x):
            calls.append(1)
            loss, grad = hx.value_and_grad(lambda w: hx.square(w * x - 6.0))(state["w"])
            state["momentum"][0] = 0.5 * state["momentum"][0] + grad
            state["w"] = state["w"] - 0.05 * state["momentum"][0]
            return loss

        plain = {"w": 1.0, "m": 0.0}
        compiled = hx.compile(step, inputs=state, outputs=state)
        for _ in range(20):
            loss = compiled(hx.array(2.0))
            hx.eval(loss, state)
            grad = 2 * (plain["w"] * 2 - 6) * 2
            plain["m"] = 0.5 * plain["m"] + grad
            plain["w"] -= 0.05 * plain["m"]
            close(state["w"], plain["w"], 1e-4)
        self.assertEqual(len(calls), 1)

    def test_traces_hold_no_arguments_and_are_not_kept_for_ever(self):
        calls = []

        def f(x, state):
            calls.append(x.size)
            return {"y": x * 2 + state["w"]}

        g, state = hx.compile(f), {"w": hx.array(1.0)}
        hx.eval(state)
        before = hx.get_active_memory()
        for n in range(1, 101):
            hx.eval(g(hx.zeros((1000 * n,)), state))
        self.assertLess(hx.get_active_memory() - before, 4000)
        g(hx.zeros((100000,)), state)
        self.assertEqual(len(calls), 100)
        g(hx.zeros((1000,)), state)
        self.assertEqual(len(calls), 101)

    def test_compiled_functions_die_with_who_holds_them(self):
        class Model:
            def __init__(self):
                self.w = hx.ones(4)
                self.step = hx.compile(self.forward)

            def forward(self, x):
                return x * self.w

        gc.collect()
        before, models = len(hx._transform._users), []
        for _ in range(5):
            model = Model()
            model.step(hx.ones(4)), hx.compile(lambda x: x + 1, shapeless=True)(model.w)
            models.append(weakref.ref(model))
        del model
        gc.collect()
        self.assertEqual(len(hx._transform._users), before)
        self.assertEqual([m() for m in models], [None] * 5)

    def test_failures_come_out_and_leave_nothing(self):
        g = hx.compile(lambda x: x + hx.zeros((3,)))
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "broadcast"):
                g(hx.ones((2,)))
        close(g(hx.ones((3,))), np.ones(3))
        with self.assertRaisesRegex(ValueError, "has no value"):
            hx.compile(lambda x: x * x.item())(hx.array(2.0))

    def test_compiled_gradients(self):
        f = hx.compile(lambda x: (hx.sin(x) * x).sum())
        x = hx.array([0.3, 0.7])
        close(hx.grad(f)(x), np.cos([0.3, 0.7]) * [0.3, 0.7] + np.sin([0.3, 0.7]))
        close(hx.compile(hx.grad(f))(x), hx.grad(f)(x))


SIZES = [(3, 4, 5), (2, 6, 3), (7, 4, 8), (1, 5, 1), (2, 4, 2)]


def sample(*shape):
    return hx.array(np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32))


def assigned(x):
    y = x * 1
    y[:, -2:] = 0.5
    y[0] = y[0, :, :1]
    y[:, hx.array([0, 1]), 0] = 9
    y[y < -0.5] = 7
    return y


def centred(x):
    return hx.mean(hx.square(hx.tanh(x) - x.mean(axis=-1, keepdims=True)) / hx.std(x, ddof=0))


FOLLOWING = {
    "first": lambda x: x[0],
    "last of rows": lambda x: x[:, -1],
    "dots": lambda x: x[..., 0],
    "slices": lambda x: x[:, None, 1:-1, ::-1],
    "a list": lambda x: x[hx.array([0, 0])],
    "a list and a number": lambda x: x[:, hx.array([[0, 1], [1, 0]]), None, 0],
    "two lists apart": lambda x: x[hx.array([0, 0]), :, hx.array([0, 0])],
    "two lists": lambda x: x[hx.array([0, 0]), hx.array([0, 3]), 1:],
    "added": lambda x: x.at[:, 0].add(x[:, 1]),
    "multiplied in places": lambda x: x.at[hx.array([0, 0]), 1:].multiply(2.0),
    "added in places": lambda x: x.at[..., hx.array([0, 0])].add(1.0),
    "with a new axis": lambda x: x.at[1:, 0, None].maximum(0.7),
    "assigned": assigned,
    "softmax of two axes": lambda x: hx.softmax(x, (1, 2)),
    "softmax of all": lambda x: hx.softmax(x),
    "roll": lambda x: hx.roll(x, 3) + hx.roll(x, 2, 1),
    "flip": lambda x: hx.flip(x, 1),
    "split": lambda x: hx.split(hx.concatenate([x, x], 1), 2, 1)[1] * hx.zeros_like(x) + hx.full_like(x, 3.0),
    "split at": lambda x: hx.split(x, [1], 1)[1],
    "sorted": lambda x: hx.take_along_axis(x, hx.argsort(x, axis=1), axis=1),
    "put": lambda x: hx.put_along_axis(x, hx.argmax(x, axis=1, keepdims=True), hx.array(5.0), axis=1),
    "gradient": hx.grad(centred),
    "second": hx.grad(lambda x: hx.square(hx.grad(centred)(x)).sum()),
}


class Shapeless(unittest.TestCase):
    def test_called_once_for_all_sizes(self):
        for name, f in FOLLOWING.items():
            calls = []

            def counted(x):
                calls.append(x.shape)
                return f(x)

            compiled = hx.compile(counted, shapeless=True)
            for shape in SIZES:
                with self.subTest(name, shape=shape):
                    x = sample(*shape)
                    np.testing.assert_array_equal(np.asarray(compiled(x)), np.asarray(f(x)))
            self.assertEqual(len(calls), 1, name)
            compiled(sample(3, 4, 5).astype(hx.float16))
            self.assertEqual(len(calls), 2, name)

    def test_numbers_stay_and_are_not_wrong(self):
        f = hx.compile(lambda x: x.reshape(2, -1, x.shape[2]) + hx.ones((2, 6, x.shape[2])), shapeless=True)
        close(f(hx.ones((4, 3, 5))), 2 * np.ones((2, 6, 5)))
        with self.assertRaisesRegex(ValueError, r"add: shapes \[2, 8, 5\].*is \[4, 4, 5\], it was traced with \[4, 3, 5\]"):
            f(hx.ones((4, 4, 5)))
        close(f(hx.ones((4, 3, 5))), 2 * np.ones((2, 6, 5)))
        with self.assertRaisesRegex(ValueError, "diag takes sizes"):
            hx.compile(lambda x: hx.diag(x), shapeless=True)(hx.ones((4,)))

    def test_differentiated_from_outside(self):
        f = hx.compile(centred, shapeless=True)
        for shape in SIZES:
            x = sample(*shape)
            close(hx.grad(f)(x), hx.grad(centred)(x), 0)

    def test_training_with_batches_of_all_sizes(self):
        def train(m, step):
            p, losses = parameters(m), []
            for n in (5, 2, 9, 5, 1, 30):
                x = m.array(np.linspace(-1, 1, 6 * n, dtype=np.float32).reshape(n, 6))
                loss, p = step(p, x)
                losses.append(loss)
            return losses + [p[k] for k in sorted(p)]

        def step_of(m):
            def step(p, x):
                loss, g = m.value_and_grad(lambda p: mlp(m, p, x))(p)
                return loss, {k: p[k] - 0.1 * g[k] for k in p}

            return step

        wanted = train(hx, step_of(hx))
        for a, b in zip(wanted, train(hx, hx.compile(step_of(hx), shapeless=True))):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        for a, b in zip(wanted, train(mx, step_of(mx)) if mx else []):
            close(a, b)


def mlp(m, p, x):
    h = m.tanh(x @ p["w1"] + p["b1"])
    return m.mean(m.square((h * m.sigmoid(h)) @ p["w2"] - 0.5))


def parameters(m):
    rng = np.random.default_rng(3)
    p = {"w1": (6, 8), "b1": (8,), "w2": (8, 3)}
    return {k: m.array(rng.standard_normal(s).astype(np.float32)) for k, s in p.items()}


class Compositions(unittest.TestCase):
    def both(self, run):
        mine, theirs = run(hx), run(mx)
        self.assertEqual(len(mine), len(theirs))
        for a, b in zip(mine, theirs):
            close(a, b)

    @unittest.skipUnless(mx, "mlx is not installed")
    def test_network_first_and_second_order(self):
        def run(m):
            p, x = parameters(m), m.array(np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 6))
            loss, grads = m.value_and_grad(lambda p: mlp(m, p, x))(p)
            slope = lambda p: sum(m.sum(m.square(g)) for g in m.grad(lambda q: mlp(m, q, x))(p).values())  # noqa: E731
            second = m.grad(slope)(p)
            return [loss, *(grads[k] for k in sorted(p)), *(second[k] for k in sorted(p))]

        self.both(run)

    @unittest.skipUnless(mx, "mlx is not installed")
    def test_attention_written_out(self):
        def block(m, x, w):
            q, k, v = (m.reshape(x @ w[i], (4, 2, 5)).transpose(1, 0, 2) for i in range(3))
            score = q @ k.transpose(0, 2, 1) * 0.4 + m.triu(m.full((4, 4), -1e9), 1)
            y = (m.softmax(score, axis=-1) @ v).transpose(1, 0, 2).reshape(4, 10)
            x = x + y @ w[3]
            mean = m.mean(x, axis=-1, keepdims=True)
            return m.sum(m.square((x - mean) * m.rsqrt(m.var(x, axis=-1, keepdims=True) + 1e-5)) * m.exp(0.1 * x))

        def run(m):
            rng = np.random.default_rng(5)
            x = m.array(rng.standard_normal((4, 10)).astype(np.float32))
            w = m.array(0.3 * rng.standard_normal((4, 10, 10)).astype(np.float32))
            gx, gw = m.grad(lambda x, w: block(m, x, w), argnums=(0, 1))(x, w)
            return [gx, gw]

        self.both(run)


if __name__ == "__main__":
    unittest.main()
