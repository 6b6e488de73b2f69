"""Compiled functions of Python, and gradients of compositions, against MLX (where it is installed) and torch."""

import unittest

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
