"""hearth.losses and hearth.optimizers against the formulas. Needs HEARTH_LIBRARY and PYTHONPATH=python, nothing else."""

import gc
import math
import tempfile
import threading
import unittest

from with_tiny_model import run_threads  # which makes the package importable

import hearth as mx
from hearth import losses, optimizers

LOGITS = [[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 1.0, -4.0], [9.0, 0.0, 0.0]]
TARGETS = [0, 2, -100, 1]


def loss_of(row, target):
    return math.log(sum(map(math.exp, row))) - row[target]


EXPECTED = [0.0 if target < 0 else loss_of(row, target) for row, target in zip(LOGITS, TARGETS)]


class Losses(unittest.TestCase):
    def close(self, found, expected):
        self.assertEqual(found.dtype, mx.float32)
        for a, b in zip(mx.flatten(found).tolist(), expected, strict=True):
            self.assertAlmostEqual(a, b, places=6)

    def test_cross_entropy(self):
        self.close(losses.cross_entropy(mx.array(LOGITS), mx.array(TARGETS)), EXPECTED)
        self.close(losses.cross_entropy(LOGITS, TARGETS), EXPECTED)  # lists are operands
        with self.assertRaisesRegex(ValueError, r"logits are \[4, 3\] and targets \[3\]"):
            losses.cross_entropy(LOGITS, TARGETS[:3])
        with self.assertRaises(IndexError):
            mx.eval(losses.cross_entropy(LOGITS, [0, 1, 2, 3]))

    def test_masked_cross_entropy(self):
        self.close(losses.masked_cross_entropy(LOGITS, TARGETS), [sum(EXPECTED) / 3])
        mask = mx.array([True, False, True, True])
        self.close(losses.masked_cross_entropy(LOGITS, TARGETS, mask), [(EXPECTED[0] + EXPECTED[3]) / 2])
        self.close(losses.masked_cross_entropy(LOGITS, TARGETS, mask=[0, 0, 1, 0]), [0.0])
        nothing = mx.grad(lambda x: losses.masked_cross_entropy(x, [-1, -1, -1, -1]))(mx.array(LOGITS))
        self.assertEqual(nothing.tolist(), [[0.0] * 3] * 4)

    def test_mse(self):
        self.close(losses.mse([1.0, 2.0, 4.0], [0.0, 2.0, 1.0]), [10 / 3])
        self.assertRaisesRegex(ValueError, "expected one shape", losses.mse, [[1.0], [2.0]], [1.0, 2.0])


def tree(scale=1.0):
    return {"layers": [{"a": scale * mx.array([[1.0, -2.0], [0.5, 3.0]])}], "b": (scale * mx.array([0.25, -1.0]),)}


def numbers(t):
    return [*mx.flatten(t["layers"][0]["a"]).tolist(), *t["b"][0].tolist()]


class Optimizers(unittest.TestCase):
    def test_adamw_is_the_formula(self):
        optimizer, p = optimizers.AdamW(0.1, betas=[0.8, 0.9], eps=1e-3, weight_decay=0.2), tree()
        exact, m, v = numbers(p), [0.0] * 6, [0.0] * 6
        for t in range(1, 6):
            grads = tree(0.3 * t)
            p = optimizer.update(p, grads)
            for i, g in enumerate(numbers(grads)):
                m[i], v[i] = 0.8 * m[i] + 0.2 * g, 0.9 * v[i] + 0.1 * g * g
                size = math.sqrt(v[i] / (1 - 0.9**t)) + 1e-3
                exact[i] = exact[i] * (1 - 0.1 * 0.2) - 0.1 / (1 - 0.8**t) * m[i] / size
            for a, b in zip(numbers(p), exact, strict=True):
                self.assertAlmostEqual(a, b, places=5)
        self.assertIsInstance(p["b"], tuple)

    def test_sgd_is_the_formula(self):
        optimizer, p = optimizers.SGD(0.1, momentum=0.9, weight_decay=0.5), tree()
        exact, kept = numbers(p), [0.0] * 6
        for _ in range(4):
            p = optimizer.apply_gradients(tree(0.3), p)
            for i, g in enumerate(numbers(tree(0.3))):
                kept[i] = 0.9 * kept[i] + g + 0.5 * exact[i]
                exact[i] -= 0.1 * kept[i]
            for a, b in zip(numbers(p), exact, strict=True):
                self.assertAlmostEqual(a, b, places=5)

    def test_a_saved_state_goes_on_with_the_same_bits(self):
        for make in (lambda: optimizers.AdamW(0.1), lambda: optimizers.SGD(0.1, momentum=0.9), lambda: optimizers.SGD(0.1)):
            first, second, p = make(), make(), tree()
            self.assertEqual(first.state, {"step": 0, "moments": []})
            for t in range(3):
                p = first.update(p, tree(t))
            state = first.state
            self.assertEqual(state["step"], 3)
            with tempfile.TemporaryDirectory() as folder:
                arrays = {"none": mx.zeros((1,)), **{str(i): m for i, m in enumerate(state["moments"])}}
                mx.save_safetensors(f"{folder}/state.safetensors", arrays)
                loaded = mx.load(f"{folder}/state.safetensors")
                second.state = {"step": 3, "moments": [loaded[str(i)] for i in range(len(state["moments"]))]}
                again = second.update(p, tree(0.7))
            self.assertEqual(numbers(first.update(p, tree(0.7))), numbers(again))
            self.assertEqual(second.state["step"], 4)

    def test_what_does_not_fit(self):
        optimizer = optimizers.AdamW(0.1)
        self.assertRaisesRegex(ValueError, "another tree", optimizer.update, tree(), tree()["layers"])
        self.assertRaisesRegex(ValueError, "parameter 0 is i32", optimizer.update, [mx.array([1])], [mx.array([1.0])])
        with self.assertRaisesRegex(ValueError, r"parameter 0 is \[2\] and its gradient \[1\]"):
            optimizer.update([mx.array([1.0, 2.0])], [mx.array([1.0])])
        optimizer.update(tree(), tree())
        with self.assertRaisesRegex(ValueError, "1 parameter, but the moments are of 2"):
            optimizer.update([mx.array([1.0])], [mx.array([1.0])])
        with self.assertRaisesRegex(ValueError, "expected 2 for each parameter"):
            optimizer.state = {"step": 1, "moments": [mx.zeros((2,))]}
        with self.assertRaises(TypeError):
            optimizer.state = {"step": 1, "moments": [1.0, 2.0]}
        optimizer.learning_rate = float("nan")
        self.assertRaisesRegex(ValueError, "the learning rate is nan", optimizer.update, tree(), tree())
        self.assertEqual(optimizer.state["step"], 1)
        for wrong in (dict(weight_decay=-1), dict(betas=(1, 0.9)), dict(eps=-1e-8), dict(weight_decay=math.nan)):
            self.assertRaises(ValueError, optimizers.AdamW, 0.1, **wrong)
        self.assertRaisesRegex(ValueError, "momentum is -1", optimizers.SGD, 0.1, momentum=-1)

    def test_an_exception_of_a_schedule_is_raised_and_nothing_changes(self):
        optimizer = optimizers.SGD(lambda step: 1 / (step - 1))
        self.assertRaisesRegex(ValueError, "the learning rate is -1", optimizer.update, tree(), tree())
        optimizer.state = {"step": 1, "moments": []}
        self.assertRaises(ZeroDivisionError, optimizer.update, tree(), tree())
        self.assertEqual(optimizer.state["step"], 1)

    def test_a_step_is_no_part_of_a_compiled_function(self):
        optimizer = optimizers.SGD(0.1)
        self.assertRaises((ValueError, mx.Error), mx.compile(lambda p: optimizer.update(p, p)), tree())

    def test_clipping(self):
        norm_of = lambda t: math.sqrt(sum(g * g for g in numbers(t)))
        clipped, norm = optimizers.clip_grad_norm(tree(), 1.5)
        self.assertAlmostEqual(norm.item(), norm_of(tree()), places=5)
        self.assertAlmostEqual(norm_of(clipped), 1.5, places=5)
        same, norm = optimizers.clip_grad_norm(tree(), max_norm=100)
        self.assertEqual(numbers(same), numbers(tree()))
        self.assertEqual(optimizers.clip_grad_norm({}, 1)[1].item(), 0)
        clip = mx.compile(lambda t: optimizers.clip_grad_norm(t, 1.5)[0])
        self.assertEqual(numbers(clip(tree())), numbers(clipped))
        self.assertRaisesRegex(ValueError, "max_norm is -1", optimizers.clip_grad_norm, tree(), -1)

    def test_threads_take_turns(self):
        optimizer, p = optimizers.AdamW(0.1), tree()
        work = lambda: [optimizer.update(p, p) for _ in range(50)]
        run_threads([threading.Thread(target=work) for _ in range(4)])
        self.assertEqual(optimizer.state["step"], 200)

    def test_nothing_is_kept(self):
        optimizer, p = optimizers.AdamW(0.01), [mx.ones((64, 64)) for _ in range(8)]
        sizes = []
        for i in range(30):
            p = optimizer.update(p, [0.5 * x for x in p])
            gc.collect()
            sizes.append(mx.get_active_memory())
        self.assertEqual(len(set(sizes[5:])), 1)


class Schedules(unittest.TestCase):
    def test_they_are_those_of_transformers(self):
        linear, cosine = (f(2.0, total_steps=10, warmup_steps=4) for f in (optimizers.linear_with_warmup, optimizers.cosine_with_warmup))
        constant = optimizers.constant_with_warmup(2.0, 4)
        for step in range(14):
            r = min(1, (step - 4) / 6)
            for found, factor in ((linear, 1 - r), (cosine, (1 + math.cos(math.pi * r)) / 2), (constant, 1)):
                self.assertAlmostEqual(found(step), 2 * (step / 4 if step < 4 else factor), places=12)

    def test_an_optimiser_follows_one(self):
        optimizer = optimizers.SGD(learning_rate=optimizers.linear_with_warmup(1.0, 4, 2))
        p = [mx.array([10.0])]
        for expected in (10, 9.5, 8.5, 8.0, 8.0):
            p = optimizer.update(p, [mx.array([1.0])])
            self.assertEqual(p[0].tolist(), [expected])

    def test_what_makes_no_sense_is_refused(self):
        self.assertRaisesRegex(ValueError, "the learning rate is -1", optimizers.constant_with_warmup, -1)
        self.assertRaisesRegex(ValueError, "warmup_steps is -2", optimizers.linear_with_warmup, 1, 10, -2)
        self.assertRaisesRegex(ValueError, "a step is -1", optimizers.cosine_with_warmup(1, 10), -1)


class Names(unittest.TestCase):
    def test_public_modules(self):
        """They show what is theirs: no imports, no types of ctypes, no helpers."""
        for module in (mx, mx.fast, mx.linalg, losses, optimizers, mx.random):
            shown = [name for name in dir(module) if not name.startswith("_")]
            self.assertEqual(shown, sorted(set(module.__all__)), module.__name__)


if __name__ == "__main__":
    unittest.main()
