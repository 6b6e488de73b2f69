"""hearth.load(..., backend="mlx_lm"), whose process has a stand-in for mlx and mlx-lm. Needs HEARTH_LIBRARY and PYTHONPATH=python,
nothing else."""

import os
import sys
import threading
import unittest
import unittest.mock

from with_tiny_model import WithTinyModel, run_threads  # which makes the package and tests/cli importable

import hearth
import mlx_stand_in


class Backends(WithTinyModel):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.stand_in, cls.checkpoint = cls.work / "stand-in", cls.work / "checkpoint"
        mlx_stand_in.write(cls.stand_in)
        mlx_stand_in.write_checkpoint(cls.checkpoint)

    def load(self, answer=None, **options):
        environment = {"PYTHONPATH": str(self.stand_in), **({"ANSWER": answer} if answer else {})}
        with unittest.mock.patch.dict(os.environ, environment):
            return hearth.load(self.checkpoint, backend="mlx_lm", python=sys.executable, **options)

    def test_answers(self):
        with self.load("Hi \U0001f600") as model:
            answer = model.chat("hello")
            self.assertEqual("".join(answer), "Hi \U0001f600")
            self.assertEqual(answer.metrics["finish"], "stop")
            self.assertEqual(answer.metrics["generated_tokens"], 7)
            self.assertEqual("".join(model.generate("hello", max_tokens=2)), "Hi")
            self.assertEqual("".join(model.generate([5, 6], stop="i")), "H")
            self.assertEqual(model.info["engine"], "mlx-lm 9.8, mlx 7.6")
            self.assertEqual(model.info["context"], 512)

    def test_an_answer_is_closed_in_the_middle(self):
        with self.load(context=400) as model:
            for _ in range(3):
                with model.generate("hello", max_tokens=300) as answer:
                    self.assertEqual(next(answer), "x")
                self.assertEqual(answer.metrics["finish"], "closed")

    def test_threads_take_turns(self):
        answers = []
        with self.load("Hello") as model:
            run_threads([threading.Thread(target=lambda: answers.append("".join(model.generate("a")))) for _ in range(4)])
        self.assertEqual(answers, ["Hello"] * 4)

    def test_closing_ends_answers(self):
        model = self.load()
        answer = model.generate("hello", max_tokens=400)
        next(answer)
        model.close()
        self.assertEqual(answer.metrics["finish"], "closed")
        model.close()
        with self.assertRaisesRegex(ValueError, "the model is closed"):
            next(model.generate("hello"))
        with self.assertRaisesRegex(ValueError, "the model is closed"):
            model.info

    def test_mistakes(self):
        with self.assertRaisesRegex(ValueError, 'no backend "abacus", expected one of: native, mlx_lm'):
            hearth.load(self.checkpoint, backend="abacus")
        with self.assertRaisesRegex(OSError, "cannot start"):
            hearth.load(self.checkpoint, backend="mlx_lm", python="no-such-python")
        self.assertRaisesRegex(TypeError, "threads", hearth.load, self.checkpoint, backend="mlx_lm", threads=2)
        self.assertRaisesRegex(OSError, "none-there", self.load, "Hi", adapter=("none-there", 0.5))
        with self.load("fail") as model, self.assertRaisesRegex(hearth.Error, "the stand-in fails in two lines"):
            list(model.generate("hello"))

    def test_native(self):
        self.assertIsInstance(hearth.load(self.work / "tiny.gguf", backend="native", threads=1), hearth.Model)


if __name__ == "__main__":
    unittest.main()
