"""Fine-tuning from Python: gradients, trainers, whole runs. Needs HEARTH_LIBRARY and PYTHONPATH=python, nothing else."""

import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest
from unittest import mock

from with_tiny_model import ROOT, WithTinyModel  # which makes the package importable

import hearth as mx

COMMAND = pathlib.Path(os.environ["HEARTH_LIBRARY"]).resolve().parent.parent / "bin" / "hearth"
NAME = "model.layers.1.self_attn.v_proj.lora_A"
TEXTS = ["hello world", "the world", "hello the world", "world, the hello world", "the the hello"]
SAMPLES = [{"text": text} for text in TEXTS]


class Tuning(WithTinyModel):
    LOAD = {"threads": 2, "precision": "reference", "kv_dtype": mx.float32}

    def lora(self, **options):
        """With values other than 0 in B, so that all gradients differ from 0."""
        lora = self.model.lora(**{"seed": 5, "rank": 4, **options})
        keys = mx.random.split(mx.random.key(1), len(lora.parameters))
        lora.update({
            name: (p if name.endswith("A") else 0.1 * mx.random.normal(p.shape, key=keys[i])).astype(p.dtype)
            for i, (name, p) in enumerate(lora.parameters.items())
        })  # fmt: skip
        return lora

    def same(self, a, b):
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            self.assertEqual(a[name].tolist(), b[name].tolist())


class Gradients(Tuning):
    def test_the_loss_is_that_of_the_logits(self):
        lora, ids = self.lora(), self.model.tokenize("hello world, the world")
        loss, _ = self.model.loss_and_grad(lora, [ids])
        logits = self.model.logits(ids[:-1], adapters=lora.adapter())
        self.assertAlmostEqual(loss.item(), mx.losses.masked_cross_entropy(logits, ids[1:]).item(), places=4)
        total, _ = self.model.loss_and_grad(lora, [ids], reduction="sum")
        self.assertAlmostEqual(total.item(), (len(ids) - 1) * loss.item(), places=4)
        half, _ = self.model.loss_and_grad(lora, [(ids[:4], ids[4:])])
        self.assertAlmostEqual(half.item(), mx.losses.masked_cross_entropy(logits[3:], ids[4:]).item(), places=4)

    def test_forms_of_samples(self):
        lora, ids = self.lora(), self.model.tokenize("hello world, the world")
        all_learned, half = [ids], [(ids[:2], ids[2:])]
        for same in ([{"input_ids": ids}], [tuple(ids)], [([], ids)], [mx.array(ids)], [(mx.array([], mx.int32), mx.array(ids))],
                     [{"input_ids": ids, "labels": ids}], [{"input_ids": ids, "labels": None}]):
            self.same(self.model.loss_and_grad(lora, same)[1], self.model.loss_and_grad(lora, all_learned)[1])
        labels = [{"input_ids": ids, "labels": [-100, -100, *ids[2:]]}]
        self.same(self.model.loss_and_grad(lora, labels)[1], self.model.loss_and_grad(lora, half)[1])

    def test_dropout_follows_its_key(self):
        lora, batch = self.lora(dropout=0.5), [self.model.tokenize(text) for text in TEXTS]

        def loss(key):
            return self.model.loss_and_grad(lora, batch, key=key)[0].item()

        self.assertEqual(loss(mx.random.key(1)), loss(mx.random.key(1)))
        self.assertNotEqual(loss(mx.random.key(1)), loss(mx.random.key(2)))
        self.assertNotEqual(loss(None), loss(None))

    def test_what_is_no_batch(self):
        lora, ids = self.lora(), self.model.tokenize("hello world")
        for batch, error in [
            ([], "no learned token"),
            ([ids[:1]], "a sample has 1 ids, expected 2 to"),
            ([(ids, [])], "no learned token"),
            ([[1, 10**6]], "outside the vocabulary"),
            ([[1, 2, -1]], "a token id is -1, expected 0 to"),
            ([{"input_ids": ids, "labels": ids[1:]}], "labels for"),
            ([{"input_ids": ids, "labels": [*ids[1:], -100]}], "labels are not shifted"),
            ([{"ids": ids}], "expected 'input_ids'"),
        ]:
            with self.subTest(error), self.assertRaisesRegex(ValueError, error):
                self.model.loss_and_grad(lora, batch)
        with self.assertRaisesRegex(ValueError, "reduction is 'max', expected one of mean, sum"):
            self.model.loss_and_grad(lora, [ids], reduction="max")
        with self.assertRaisesRegex(ValueError, "not one that this model's lora"):
            mx.load(self.work / "tiny.gguf").loss_and_grad(lora, [ids])


class Loras(Tuning):
    def test_parameters(self):
        lora = self.model.lora(rank=2, layers=1, targets=["q_proj", "mlp.up_proj"], dtype=mx.bfloat16)
        shapes = {name.removeprefix("model.layers.1."): (p.shape, p.dtype) for name, p in lora.parameters.items()}
        self.assertEqual(shapes, {
            "mlp.up_proj.lora_A": ((2, 64), mx.bfloat16), "mlp.up_proj.lora_B": ((96, 2), mx.bfloat16),
            "self_attn.q_proj.lora_A": ((2, 64), mx.bfloat16), "self_attn.q_proj.lora_B": ((64, 2), mx.bfloat16),
        })  # fmt: skip
        self.assertEqual(lora.size, sum(p.size for p in lora.parameters.values()))
        self.same(self.model.lora(seed=3).parameters, self.model.lora(seed=3).parameters)

    def test_it_learns_and_travels(self):
        lora, optimizer = self.model.lora(), mx.optimizers.AdamW(2e-2)
        batch, losses = [self.model.tokenize(text) for text in TEXTS], []
        for _ in range(40):
            loss, grads = self.model.loss_and_grad(lora, batch)
            lora.update(optimizer.update(lora.parameters, grads))
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.5 * losses[0])
        ids = batch[3]
        learned = self.model.logits(ids, adapters=lora.adapter()).tolist()
        self.assertNotEqual(learned, self.model.logits(ids).tolist())
        for format in ("peft", "mlx", "gguf"):
            path = self.work / f"saved-{format}"
            lora.save(path, format)
            again = self.model.load_adapter(path)
            self.assertIsNone(again.warning)
            self.assertEqual(self.model.logits(ids, adapters=again).tolist(), learned)
        self.same(self.model.lora(init_adapter=self.work / "saved-peft").parameters, lora.parameters)
        self.same(self.model.lora(init_adapter=lora.adapter()).parameters, lora.parameters)

    def test_what_does_not_fit(self):
        lora = self.model.lora()
        with self.assertRaisesRegex(ValueError, "no projection of this llama model is named `c_attn`"):
            self.model.lora(targets="c_attn")
        self.assertRaisesRegex(ValueError, "dtype is", self.model.lora, dtype=mx.float16)
        self.assertRaisesRegex(ValueError, "a rank of 0", self.model.lora, rank=0)
        self.assertRaisesRegex(ValueError, "scale is 0", self.model.lora, scale=0.0)
        self.assertRaisesRegex(ValueError, "a path holds a NUL", lora.save, "a\0b")
        with self.assertRaisesRegex(ValueError, "parameters of this adapter are others: b, "):
            lora.update({"b": mx.zeros((1,))})
        with self.assertRaisesRegex(ValueError, "expected evaluated"):
            lora.update({name: p[:1] for name, p in lora.parameters.items()})
        with self.assertRaisesRegex(ValueError, "format is 'onnx', expected one of peft, mlx, gguf"):
            lora.save(self.work / "x", "onnx")


class Trainers(Tuning):
    OPTIONS = {"iters": 6, "lr": 1e-2, "batch": 2, "pack": False, "max_length": 64, "seed": 3}

    def trainer(self, **options):
        return mx.Trainer(self.model, SAMPLES, **{**self.OPTIONS, **options})

    def test_its_steps_are_those_of_a_loop(self):
        trainer = self.trainer(shuffle=False, lr=1e-2, clip=0.5, schedule="linear", warmup=2)
        lora = self.model.lora(seed=3)
        rate = mx.optimizers.linear_with_warmup(1e-2, 6, 2)
        optimizer = mx.optimizers.AdamW(rate)
        eos = self.model.tokenize("<|im_end|>")
        samples = [self.model.tokenize(text) + eos for text in TEXTS]
        for i, step in enumerate(trainer):
            loss, grads = self.model.loss_and_grad(lora, [samples[(2 * i + k) % len(samples)] for k in range(2)])
            grads, norm = mx.optimizers.clip_grad_norm(grads, 0.5)
            lora.update(optimizer.update(lora.parameters, grads))
            self.assertAlmostEqual(step.loss, loss.item(), places=4)
            self.assertAlmostEqual(step.grad_norm, norm.item(), places=4)
            self.assertEqual((step.iter, step.lr, step.skipped), (i + 1, rate(i), False))

    def test_what_it_is_about_to_do(self):
        trainer = self.trainer(valid=SAMPLES[:2])
        plan = trainer.plan
        self.assertEqual((plan["iters"], plan["done"], plan["iters_per_epoch"]), (6, 0, 3))
        self.assertEqual((plan["data"]["n_samples"], plan["valid"]["n_samples"]), (5, 2))
        self.assertEqual(plan["data"]["n_form"], {"text": 5})
        self.assertEqual(trainer.sample(1), [("the", False), (" world<|im_end|>", True)])
        self.assertRaisesRegex(ValueError, "sample 9 of 5", trainer.sample, 9)

    def test_closing_an_iteration_in_another_thread(self):
        steps, seen = iter(self.trainer(iters=1_000_000)), []
        reader = threading.Thread(target=lambda: [seen.append(step) for step in steps])
        reader.start()
        while not seen:
            time.sleep(0.001)
        steps.close()
        reader.join()
        self.assertEqual(list(steps), [])

    def test_an_interrupted_call_is_cancelled(self):
        trainer, plain = self.trainer(valid=SAMPLES * 20), self.trainer(valid=SAMPLES * 20)
        wait, waits = trainer._calls._done.wait, []

        def interrupted():
            waits.append(1)
            if len(waits) == 2:  # the first one is for the call before
                raise KeyboardInterrupt
            return wait()

        for call in (trainer.evaluate, trainer.step):
            waits.clear()
            trainer._calls._done.wait = interrupted
            self.assertRaises(KeyboardInterrupt, call)
            trainer._calls._done.wait = wait
        while trainer.plan["done"] < 3:
            trainer.step()
        for _ in range(3):
            plain.step()
        self.assertEqual(trainer.evaluate(), plain.evaluate())

    def test_what_cannot_be_trained(self):
        bad = self.work / "bad.jsonl"
        bad.write_text('{"text": "hello"}\n{"txt": "x"}\n')
        for options, error, text in [
            ({"mask": "all"}, ValueError, "mask is 'all', expected one of answers, last, none"),
            ({"batch": 0}, ValueError, "batch is 0"),
            ({"weight_decay": -1}, ValueError, "weight_decay is -1"),
            ({"valid": bad}, mx.Error, r"bad.jsonl.*line 2"),
            ({"valid": "/nowhere"}, OSError, "/nowhere"),
        ]:
            with self.subTest(text), self.assertRaisesRegex(error, text):
                self.trainer(**options)
        self.assertRaisesRegex(ValueError, "no held-out samples", self.trainer().evaluate)


class Runs(Tuning):
    OPTIONS = {"iters": 8, "lr": 1e-2, "max_length": 64, "valid_every": 2, "report_every": 4, "save_every": 3}

    def run_it(self, out, **options):
        return mx.finetune(self.model, SAMPLES, self.work / out, **{"valid": SAMPLES[:2], **self.OPTIONS, **options})

    def weights(self, out):
        return (self.work / out / "adapter_model.safetensors").read_bytes()

    def test_a_run(self):
        told = []
        done = self.run_it("whole", samples="hello", progress=told.append)
        self.assertEqual(done.reports, told)
        self.assertEqual([i for i, _ in done.losses], [2, 4, 6, 8])
        self.assertEqual([i for i, _ in done.valid_losses], [0, 2, 4, 6, 8])
        self.assertEqual((done.steps, done.best_iter, done.adapter), (8, 8, str(self.work / "whole")))
        self.assertEqual((done.valid_loss_before, done.valid_loss), (done.valid_losses[0][1], done.valid_losses[-1][1]))
        self.assertLess(done.valid_loss, done.valid_loss_before)
        self.assertRegex(str(told[-1]), r"^iter 8/8  loss \d\.\d{4}  valid \d\.\d{4}  lr 0\.01  \d+ tok/s  peak \d+ MB  eta 0:00$")
        adapter = self.model.load_adapter(done.adapter)
        expected = "".join(self.model.chat("hello", adapters=adapter, max_tokens=64))
        self.assertEqual(told[-1].samples, [expected])
        self.assertEqual([p.name for p in sorted((self.work / "whole.training").iterdir())],
                         ["checkpoint-0000008.json", "checkpoint-0000008.safetensors", "last"])  # fmt: skip

    def test_without_held_out_samples(self):
        done = self.run_it("plain", valid=None, format="mlx")
        self.assertEqual((done.valid_loss, done.valid_losses, done.best_iter), (None, [], 8))
        self.assertTrue((self.work / "plain" / "adapters.safetensors").exists())

    def test_an_interrupted_run_goes_on_to_the_bit(self):
        def interrupt(report):
            if report.iter == 4:
                raise KeyboardInterrupt

        whole = self.run_it("uninterrupted")
        self.assertRaises(KeyboardInterrupt, self.run_it, "cut", progress=interrupt)
        self.assertRaisesRegex(ValueError, "holds a run of 4 steps: resume=True", self.run_it, "cut")
        rest = self.run_it("cut", resume=True)
        self.assertEqual(rest.valid_losses, whole.valid_losses[3:])
        self.assertEqual((rest.valid_loss_before, rest.best_iter), (whole.valid_loss_before, whole.best_iter))
        self.assertEqual(self.weights("cut"), self.weights("uninterrupted"))
        self.assertRaisesRegex(ValueError, "no checkpoint to resume from", self.run_it, "nothing", resume=True)

    def interrupted_at(self, out, method, call, **options):
        """A run that Ctrl-C ends in the trainer's method, when it is called for the given time from 0."""
        calls, was = itertools.count(), getattr(mx.Trainer, method)

        def interrupt(trainer):
            if next(calls) == call:
                raise KeyboardInterrupt
            return was(trainer)

        with mock.patch.object(mx.Trainer, method, interrupt), self.assertRaises(KeyboardInterrupt):
            self.run_it(out, **options)

    def test_an_interrupted_evaluation_is_made_again(self):
        whole = self.run_it("all")
        for call, method in enumerate(["evaluate"] * 4 + ["adapter"] * 2, 1):
            out = f"cut-{call}"
            self.interrupted_at(out, method, call if method == "evaluate" else 2 * (call - 5))
            rest = self.run_it(out, resume=True)
            self.assertEqual((rest.best_iter, rest.valid_loss), (whole.best_iter, whole.valid_loss), out)
            self.assertEqual(self.weights(out), self.weights("all"), out)
            self.assertEqual(rest.reports[-1].iter, 8)

    def test_what_is_in_the_way(self):
        """Told before the first step."""
        (self.work / "file").write_text("mine")
        (self.work / "full").mkdir()
        (self.work / "full" / "mine").write_text("")
        for out, says in ("file", "file"), ("full", "not replaced"), ("a\0b", "NUL"):
            with mock.patch.object(mx.Trainer, "step", side_effect=AssertionError):
                self.assertRaisesRegex((ValueError, OSError), says, self.run_it, out)
        self.assertFalse((self.work / "file.training").exists())
        self.run_it("damaged", iters=2)
        (self.work / "damaged.training" / "checkpoint-0000002.json").write_text("{")
        self.assertRaisesRegex(ValueError, "0000002.json is damaged", self.run_it, "damaged", resume=True, iters=4)

    def test_patience(self):
        done = self.run_it("patient", iters=40, lr=0.0, patience=3)
        self.assertEqual((done.steps, done.best_iter), (8, 2))
        self.assertEqual(self.run_it("patient", iters=40, lr=0.0, patience=3, resume=True).steps, 8)
        self.assertRaisesRegex(ValueError, "patience needs", self.run_it, "impatient", valid=None, patience=1)

    def test_a_model_without_a_tokenizer(self):
        path, samples = ROOT / "tests" / "golden" / "tiny" / "qwen3-f32", [{"input_ids": [1, 2, 3 + i, 4]} for i in range(4)]
        model = mx.load(path)
        done = mx.finetune(model, samples, self.work / "ids", **{**self.OPTIONS, "lr": 1e-3})
        self.assertLess(done.losses[-1][1], done.losses[0][1])
        if COMMAND.exists():
            (self.work / "ids.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
            command = [COMMAND, "finetune", path, "--data", self.work / "ids.jsonl", "--iters", "1", "--dry-run"]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            self.assertIn("4 samples of input_ids; 16 tokens, 12 of them learned", told)

    @unittest.skipUnless(COMMAND.exists(), "there is no command beside the library")
    def test_the_command_goes_on(self):
        """Both write the same files; the command computes in another precision unless told otherwise."""
        (self.work / "data.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in SAMPLES))

        def stop(report):
            if report.iter == 4:
                raise KeyboardInterrupt

        options = {**self.OPTIONS, "valid": self.work / "data.jsonl"}
        with self.assertRaises(KeyboardInterrupt):
            mx.finetune(self.model, self.work / "data.jsonl", self.work / "both", progress=stop, **options)
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command = [COMMAND, "finetune", self.work / "tiny.gguf", "--data", self.work / "data.jsonl", "--out", self.work / "both",
                   "--precision", "reference", "--resume", "-t", "1", "--json", *words]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        end = json.loads(done.stdout)
        whole = mx.finetune(self.model, self.work / "data.jsonl", self.work / "python", **options)
        self.assertAlmostEqual(end["valid_loss"], whole.valid_loss, places=7)  # it has nine digits
        self.assertAlmostEqual(end["valid_loss_before"], whole.valid_loss_before, places=7)
        self.assertEqual(self.weights("both"), self.weights("python"))



class Embedding(unittest.TestCase):
    """Pairs of words of two alphabets, by ids: the tiny encoders have no tokenizer."""

    def pairs(self, n, seed):
        words = [[(7 * seed + 5 * i * (k + 1) + k * k) % 24 for k in range(4)] for i in range(n)]
        return [{"anchor": [3 + x for x in w], "positive": [27 + x for x in reversed(w)]} for w in words]

    def test_a_run(self):
        model, reports = mx.load(ROOT / "tests/golden/encoders/bert", threads=2, precision="reference"), []
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            done = mx.finetune(model, self.pairs(40, 1), out, valid=self.pairs(9, 2), method="embed", temperature=0.1, batch=8,
                               iters=12, lr=5e-3, targets="all-linear", valid_every=6, progress=reports.append)  # fmt: skip
            self.assertEqual([r.iter for r in reports], [0, 6, 10, 12])
            for report in reports:
                self.assertEqual(report.retrieval is None, report.iter == 10)
            found = reports[-1].retrieval
            self.assertEqual((found.anchors, found.candidates), (9, 9))
            self.assertIn(f"accuracy@1 {found.accuracy_at_1:.4f}  MRR@10 {found.mrr_at_10:.4f}", str(reports[-1]))
            self.assertLess(done.losses[-1][1], done.losses[0][1])
            config = json.loads((out / "adapter_config.json").read_text())
            self.assertEqual(config["task_type"], "FEATURE_EXTRACTION")
            self.assertIn("attention.self.query", config["target_modules"])
            names = mx.load(out / "adapter_model.safetensors")
            self.assertIn("base_model.model.encoder.layer.1.output.dense.lora_B.weight", names)
            adapter = model.load_adapter(out)
            changed = model.embed([[3, 4, 5]], adapters=adapter) - model.embed([[3, 4, 5]])
            self.assertGreater(abs(changed).max().item(), 1e-3)

    def test_what_is_refused(self):
        model = mx.load(ROOT / "tests/golden/encoders/bert", threads=1)
        with self.assertRaisesRegex(mx.Error, "text encoder"):
            mx.Trainer(model, self.pairs(4, 1))
        with self.assertRaisesRegex(ValueError, "embeddings answer nothing"):
            mx.finetune(model, self.pairs(4, 1), "unused", method="embed", samples="hello")
        with self.assertRaisesRegex(mx.Error, "mlx-lm has no bert models"):
            mx.finetune(model, self.pairs(4, 1), "unused", method="embed", format="mlx")
        with self.assertRaisesRegex(ValueError, "method"):
            mx.Trainer(model, self.pairs(4, 1), method="dpo")
        trainer = mx.Trainer(model, self.pairs(4, 1), method="embed")
        self.assertIsNone(trainer.retrieval)
        self.assertEqual(trainer.sample(), [("10 11 14 19 ", False), ("\n", False), ("43 38 35 34 ", True), ("\n", False)])


if __name__ == "__main__":
    unittest.main()
