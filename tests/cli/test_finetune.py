"""`hearth finetune`: a run from data to an adapter, its options and files, how it is interrupted and gone on with, and what it
refuses, in one sentence and before anything is computed where that can be."""

import contextlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import threading
import unittest
import xml.etree.ElementTree as xml
from unittest import mock

from support import HEARTH, TINY, CommandTest, cases, takes, tiny_model

GOLDEN = pathlib.Path(__file__).parent.parent / "golden/tiny/llama-f32"
LINE = re.compile(
    r"iter (\d+)/(\d+)  loss (\d+\.\d{4})(?:  valid (\d+\.\d{4}))?  lr \S+  \d+ tok/s  peak \S+ [MG]B  eta \d+:\d\d(?::\d\d)?"
    r"(?:  skipped (\d+))?"
)
KEYS = ["iter", "loss", "valid_loss", "lr", "tokens", "tokens_per_second", "grad_norm", "peak_memory_bytes", "skipped"]
VALUES = "adapter_model.safetensors"
MANY = 1000000  # steps: a run that is interrupted


def lines_of(samples):
    return "".join(json.dumps(sample) + "\n" for sample in samples)


def conversation(i):
    answer = {"role": "assistant", "content": "the world " * (1 + i % 4)}
    return {"messages": [{"role": "user", "content": f"hello {i}"}, answer]}


class FinetuneTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.data = self.write("train.jsonl", lines_of(map(conversation, range(12))))
        self.valid = self.write("valid.jsonl", lines_of(map(conversation, range(20, 24))))
        self.out = self.folder / "out"
        self.kept = self.folder / "out.training"

    def words(self, *more, out=None, data=None, model=TINY):
        return ["finetune", model, "--data", data or self.data, "--out", out or self.out, *more]

    def trains(self, *more, timeout=None, **files):
        return self.succeeds(*self.words(*more, **files), timeout=timeout)

    def values(self, *more, **files):
        """The final object of --json."""
        return self.trains(*more, "--json", **files).json

    def refuses(self, *more, says, status=1, leaves=None, **files):
        """One sentence, and no file that was not there; what of the data is printed before does not matter."""
        before = sorted(self.folder.rglob("*"))
        self.fails(status, *self.words(*more, "--json", **files), says=says)
        self.assertEqual(sorted(self.folder.rglob("*")), leaves or before)

    def starts(self, *more, until, out=None, times=1):
        """A run that has printed so many lines which begin with `until`."""
        words = [HEARTH, *map(str, self.words(*more, out=out))]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        drain = threading.Thread(target=process.stdout.read)
        self.addCleanup(lambda: drain.ident and drain.join())
        self.addCleanup(process.kill)  # first of all
        for line in process.stdout:
            times -= line.decode(errors="replace").startswith(until)
            if not times:
                drain.start()  # a pipe that fills up would stop the run
                return process
        self.fail(f"the run ended: {process.stderr.read().decode()}")

    def ends(self, process):
        """Status and message."""
        message = process.stderr.read().decode()
        return process.wait(), message

    def interrupted(self, *more, until="iter 5/", number=signal.SIGINT, out=None, times=1):
        """The steps that a run of many has made when the signal came."""
        process = self.starts("--iters", MANY, "--report-every", 1, *more, until=until, out=out, times=times)
        process.send_signal(number)
        status, message = self.ends(process)
        self.assertEqual(status, -number, message)
        self.assertEqual(message.count("\n"), 1, message)
        found = re.search(rf"interrupted and saved after (\d+) of {MANY} steps; the same command with --resume", message)
        self.assertTrue(found, message)
        return int(found[1])

    def points(self, plot):
        """How many each curve has."""
        lines = xml.parse(plot).getroot().findall("{http://www.w3.org/2000/svg}polyline")
        return [len(line.get("points").split()) for line in lines]

    def checkpoints(self):
        return sorted(path.name for path in self.kept.glob("checkpoint-*.safetensors"))

    def same_adapter(self, a, b):
        self.assertEqual((a / VALUES).read_bytes(), (b / VALUES).read_bytes())


class Run(FinetuneTest):
    def test_from_data_to_an_adapter(self):
        result = self.trains("--valid", self.valid, "--iters", 30, "--report-every", 10, "--valid-every", 15, "--lr", "1e-2")
        text = result.text
        self.assertEqual(result.err, "")
        for part in (
            r"data +12 samples of messages; \d+ tokens, \d+ of them learned\n",
            r"valid +4 samples of messages",
            r"tokens +16 to 31 +#+ +8\n +32 to 63 +#+ +4\n",
            r"<\|im_start\|>user\nhello 0<\|im_end\|>\n<\|im_start\|>assistant\n\[\[the world <\|im_end\|>\]\]",
            r"trained +3584 parameters of 4 projections, 4\.55 % of the model's 78720\n",
            r"steps +30, of 1 an epoch\n",
            r"memory +\d+ MB at its peak",
            r"\nheld-out loss \d\.\d{4} before the first step\n",
            r"\n30 steps in 0:\d\d\nheld-out loss (\d\.\d{4}) before, (\d\.\d{4}) after step 30, which is kept\n"
            rf"hearth run {TINY} --adapter {self.out} \"\.\.\.\"\n$",
        ):
            self.assertRegex(text, part)
        reports = [LINE.fullmatch(line) for line in text.splitlines() if line.startswith("iter ")]
        self.assertNotIn(None, reports)
        self.assertEqual([int(r[1]) for r in reports], [3, 10, 15, 20, 30])
        self.assertEqual([bool(r[4]) for r in reports], [False, False, True, False, True])
        before, after = re.search(r"held-out loss (\S+) before, (\S+) after", text).groups()
        self.assertLess(float(after), float(before) - 0.5)
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["adapter_config.json", VALUES])
        self.assertEqual(sorted(p.name for p in self.kept.iterdir()),
                         ["checkpoint-0000030.json", "checkpoint-0000030.safetensors", "last"])  # fmt: skip
        self.same_adapter(self.out, self.kept / "last")

    def test_the_adapter_is_used(self):
        self.trains("--iters", 60, "--lr", "2e-2", "--targets", "all-linear")
        answer = self.succeeds("run", TINY, "hello 3", "--adapter", self.out, "-q", "-n", 8).text
        self.assertTrue(answer.startswith("the world"), answer)
        ids, logits = ["--ids", "3,14,15,9,2,6"], []
        for adapter in [], ["--adapter", self.out]:
            self.succeeds("logits", TINY, *ids, "--out", self.folder / "l.npy", "-q", "--force", *adapter)
            logits.append((self.folder / "l.npy").read_bytes())
        self.assertNotEqual(*logits)
        info = self.succeeds("adapter", "info", self.out, "--model", TINY, "--json", "-q").json
        self.assertEqual((info["rank"], info["scale"], info["pairs"], info["warning"]), (8, 2, 14, None))

    def test_json(self):
        value = self.values("--valid", self.valid, "--iters", 4, "--valid-every", 2)
        self.assertEqual(
            [value[k] for k in ("model", "adapter", "iters", "best_iter", "parameters", "skipped")],
            [str(TINY), str(self.out), 4, 4, 3584, 0],
        )
        self.assertLess(value["valid_loss"], value["valid_loss_before"])
        self.assertGreater(value["peak_memory_bytes"], 0)
        alone = self.values("--iters", 4, out=self.folder / "alone")
        self.assertEqual([alone[k] for k in ("best_iter", "valid_loss_before", "valid_loss")], [4, None, None])

    def test_dry_run(self):
        words = ["finetune", TINY, "--data", self.data, "--dry-run", "--log", self.folder / "log", "--plot", self.folder / "plot"]
        before = sorted(self.folder.rglob("*"))
        self.assertRegex(self.succeeds(*words).text, r"time +told by the first steps\n\n$")
        self.succeeds(*words, "--out", self.out)
        plan = self.succeeds(*words, "--json", "--valid", self.valid, "--epochs", 3).json
        self.assertEqual([plan[k] for k in ("iters", "iters_per_epoch", "parameters", "projections", "checkpointing")],
                         [3, 1, 3584, 4, False])  # fmt: skip
        self.assertEqual((plan["data"]["samples"], plan["valid"]["samples"], plan["data"]["left_out"]),
                         (12, 4, {"bad": 0, "too_long": 0, "unlearned": 0}))  # fmt: skip
        self.assertEqual([plan["data"][k] for k in ("prompt_differs", "history_differs", "answer_lost")], [0, 0, 0])
        self.assertIsNone(self.succeeds(*words, "--json").json["valid"])
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_quiet(self):
        """The reports and the end alone."""
        text = self.trains("--iters", 2, "-q").text
        self.assertRegex(text, r"^iter 2/2  loss ")
        self.assertNotIn("One sample", text)

    def test_what_is_shown_of_a_sample(self):
        """Control characters of the data are not the terminal's."""
        data = self.write("odd.jsonl", lines_of([{"prompt": "a\x1b[2J\tb\n", "completion": "c\x7f \x85d\r"}]))
        self.assertIn("a?[2J\tb\n<|im_end|>\n<|im_start|>assistant\n[[c? ?d?<|im_end|>]]\n", self.succeeds(*self.words("--dry-run", data=data)).text)

    def test_a_model_without_a_tokenizer(self):
        data = self.write("ids.jsonl", lines_of([{"input_ids": [5, 6, 7, 8], "labels": [-100, -100, 7, 8]}] * 3))
        self.assertIn("\n5 6 [[7 8 ]]\n", self.trains("--iters", 2, data=data, model=GOLDEN).text)
        self.succeeds("logits", GOLDEN, "--ids", "1,2", "--out", self.folder / "l.npy", "-q", "--force", "--adapter", self.out)
        self.refuses("--iters", 2, model=GOLDEN, out=self.folder / "b", says=["line 1", "no tokenizer"])

    def test_samples(self):
        text = self.trains("--valid", self.valid, "--iters", 4, "--valid-every", 2, "--sample", "hello 1", "--sample", "you").text
        self.assertEqual(len(re.findall(r"^  > hello 1\n  ", text, re.M)), 3)
        self.assertEqual(len(re.findall(r"^  > you\n  ", text, re.M)), 3)
        self.assertNotIn("  > ", self.trains("--iters", 2, "--sample", "x", "--json", out=self.folder / "b").text)

    def test_log_and_plot(self):
        log, plot = self.write("log.jsonl", "from before\n"), self.folder / "plot.svg"
        self.trains("--valid", self.valid, "--iters", 6, "--report-every", 2, "--valid-every", 3, "--log", log, "--plot", plot)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual([list(row) for row in rows], [KEYS] * 4)
        self.assertEqual([row["iter"] for row in rows], [2, 3, 4, 6])
        self.assertEqual([row["valid_loss"] is None for row in rows], [True, False, True, False])
        for row in rows:
            self.assertTrue(row["loss"] > 0 and row["lr"] == 1e-4 and row["grad_norm"] > 0 and row["skipped"] == 0)
        self.assertEqual(self.points(plot), [4, 2])

    def test_keep(self):
        self.trains("--iters", 5, "--save-every", 1, "--keep", 2)
        self.assertEqual(self.checkpoints(), ["checkpoint-0000004.safetensors", "checkpoint-0000005.safetensors"])
        self.assertEqual(len(list(self.kept.glob("*.json"))), 2)
        self.trains("--iters", 7, "--save-every", 1, "--keep", 2147483647, "--resume")
        self.assertEqual(len(self.checkpoints()), 4)

    def test_patience(self):
        words = ["--valid", self.valid, "--iters", 50, "--valid-every", 2, "--lr", 0]
        self.assertEqual(self.values(*words, "--patience", 2)["iters"], 6)
        self.assertEqual(self.checkpoints(), ["checkpoint-0000006.safetensors"])
        text = self.trains(*words, "--patience", 2, "--resume").text
        self.assertIn("0 steps in 0:00, ended early", text)
        self.assertEqual(self.values(*words, "--patience", 4, "--resume")["iters"], 10)

    def test_best_adapter_is_kept(self):
        """Of samples that have little to do with what is learned: soon, that harms."""
        valid = self.write("valid.jsonl", lines_of([{"prompt": "hello", "completion": "zq kx zq kx"}]))
        self.trains("--valid", valid, "--iters", 12, "--valid-every", 1, "--lr", 0.5, "--log", self.folder / "log")
        losses = [json.loads(line)["valid_loss"] for line in (self.folder / "log").read_text().splitlines()]
        best = losses.index(min(losses)) + 1
        self.assertLess(best, 12)
        again = self.folder / "again"
        self.trains("--iters", best, "--lr", 0.5, out=again)
        self.same_adapter(self.out, again)

    def test_formats(self):
        self.trains("--iters", 2, "--format", "mlx")
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["adapter_config.json", "adapters.safetensors"])
        self.succeeds("adapter", "info", self.out, "--model", TINY, "-q")

    def test_init_adapter(self):
        self.trains("--iters", 4, "--rank", 3, "--targets", "k_proj", "--lr", "1e-2")
        self.trains("--iters", 1, "--lr", 0, "--init-adapter", self.out, out=self.folder / "b")
        self.same_adapter(self.out, self.folder / "b")
        for option, value in ("rank", 4), ("alpha", 1), ("scale", 1), ("targets", "q_proj"), ("layers", 1):
            self.refuses("--init-adapter", self.out, f"--{option}", value, out=self.folder / "c", status=2,
                         says=f"leave out --{option}")  # fmt: skip
        self.refuses("--init-adapter", self.out, out=self.folder / "c", model=GOLDEN,
                     data=self.write("ids.jsonl", lines_of([{"input_ids": [1, 2]}])), says="is for another model")  # fmt: skip
        self.refuses("--init-adapter", self.folder / "none", out=self.folder / "c", says=["none", "No such file"])

    def test_a_command_line_to_copy(self):
        strange = self.folder / "it's here"
        text = self.trains("--iters", 1, out=strange).text
        self.assertIn("--adapter '" + str(strange).replace("'", "'\\''") + "' \"...\"\n", text)


class Embed(FinetuneTest):
    """--method embed: pairs of texts, and retrieval of held-out ones."""

    FOUND = r"accuracy@1 (\d\.\d{4})  MRR@10 (\d\.\d{4})  nDCG@10 (\d\.\d{4})"

    def setUp(self):
        super().setUp()
        self.data = self.write("pairs.jsonl", lines_of(self.pair(i) for i in range(24)))
        self.valid = self.write("held-out.jsonl", lines_of(self.pair(i) for i in range(24, 30)))

    def pair(self, i):
        pair = {"query": f"hello {i}", "positive": f"the world {i}"}
        return {**pair, "negatives": [f"hello the world {i + 1}"]} if i % 3 == 0 else pair

    def embeds(self, *more, **files):
        return self.trains("--method", "embed", "--batch", 8, "--iters", 6, "--lr", 1e-2, *more, **files)

    def test_a_run(self):
        log = self.folder / "log.jsonl"
        shown = self.embeds("--valid", self.valid, "--valid-every", 3, "--log", log).out.decode()
        self.assertRegex(shown, r"data +24 samples of anchor and positive; \d+ tokens, \d+ of them in positives")
        self.assertIn("hello 0\n[[the world 0]]\nhello the world 1\n", shown)
        self.assertRegex(shown, r"held-out loss \d\.\d{4} before the first step; " + self.FOUND)
        self.assertRegex(shown, r"iter 6/6  loss \d\.\d{4}  valid \d\.\d{4}  " + self.FOUND + "  lr 0.01")
        self.assertIn(f"hearth embed {TINY} --adapter {self.out}", shown)
        last = json.loads(log.read_text().splitlines()[-1])["retrieval"]
        self.assertEqual([last["anchors"], last["candidates"]], [6, 8])
        self.assertTrue(0 <= last["accuracy_at_1"] <= last["mrr_at_10"] <= last["ndcg_at_10"] <= 1)
        config = json.loads((self.out / "adapter_config.json").read_text())
        self.assertEqual(config["task_type"], "FEATURE_EXTRACTION")
        plain, adapted = (self.succeeds("embed", TINY, "hello 3", *more).out for more in ([], ["--adapter", self.out]))
        self.assertNotEqual(plain, adapted)

    def test_goes_on_bit_exactly(self):
        self.embeds("--save-every", 3)
        other = self.folder / "other"
        self.trains("--method", "embed", "--batch", 8, "--iters", 3, "--lr", 1e-2, out=other)
        self.embeds("--resume", out=other)
        self.assertEqual((other / VALUES).read_bytes(), (self.out / VALUES).read_bytes())

    def test_what_is_refused(self):
        self.refuses("--temperature", "0.1", status=2, says="--temperature is for --method embed")
        for option in (["--mask", "last"], ["--pack"], ["--sample", "hello"]):
            self.refuses("--method", "embed", *option, status=2, says=f"{option[0]} is for --method sft")
        self.refuses("--method", "embed", data=self.write("chat.jsonl", lines_of([conversation(1)])),
                     says="`anchor` is missing, expected a text")  # fmt: skip
        self.refuses(says="it has no field of a sample")


class Config(FinetuneTest):
    def config(self, value):
        return "--config", self.write("config.json", value if isinstance(value, str) else json.dumps(value))

    def test_options_of_a_file(self):
        value = {"data": str(self.data), "out": str(self.out), "iters": 3, "lr": 1e-2, "rank": 2, "targets": "q_proj",
                 "schedule": "cosine", "pack": False, "sample": ["hello", "you"], "report-every": 1, "quiet": True}  # fmt: skip
        text = self.succeeds("finetune", TINY, *self.config(value)).text
        self.assertEqual((text.count("  > hello"), text.count("  > you")), (2, 2))
        self.assertNotIn("trained", text)
        self.assertEqual([m[1] for m in map(LINE.match, text.splitlines()) if m], ["1", "2", "3"])
        by_hand = self.folder / "by_hand"
        self.trains("--iters", 3, "--lr", "1e-2", "--rank", 2, "--targets", "q_proj", "--schedule", "cosine", "--no-pack",
                    out=by_hand)  # fmt: skip
        self.same_adapter(self.out, by_hand)

    def test_the_command_line_goes_first(self):
        value = {"iters": 9, "rank": 2, "sample": "x", "scale": 3, "no-pack": True}
        plan = self.values(*self.config(value), "--rank", 4, "--epochs", 2, "--alpha", 8, "--pack", "--dry-run")
        self.assertEqual((plan["parameters"], plan["iters"]), (1792, 2))
        self.assertEqual(self.values(*self.config(value), "--dry-run")["iters"], 9)

    def test_mistakes(self):
        for value, says in (
            ({"iter": 3}, "`iter` is not an option"),
            ({"top-k": 3}, "`top-k` is not an option"),
            ({"config": "x"}, "`config` is not an option"),
            ({"rank": True}, "`rank` must be a text or a number"),
            ({"rank": None}, "`rank` must be a text or a number"),
            ({"rank": [3]}, "`rank` must be one value"),
            ({"rank": 0}, '--rank is "0", expected a whole number from 1 to 4096'),
            ({"rank": "two"}, '--rank is "two"'),
            ({"resume": 1}, "`resume` must be true or false"),
            ({"sample": [["x"]]}, "`sample` must be a text or a number"),
            ({"sample": [""]}, "some text in UTF-8"),
            ({"alpha": 3, "scale": 2}, "--alpha and --scale exclude each other"),
            ('{"rank": 3, "rank": 4}', "line 1, column 13: expected each member once"),
            ("[1]", "line 1, column 1: expected an object"),
            ("{", "line 1, column 2: expected"),
            ("", "line 1, column 1: expected an object"),
        ):
            self.refuses(*self.config(value), status=2, says=says)
        self.refuses("--config", self.folder / "none.json", status=2, says="none.json")
        numbers = self.config({"sample": [1, 2.5, 3], "iters": 1})
        self.assertIn("  > 2.5", self.trains(*numbers).text)


class Interrupted(FinetuneTest):
    def test_goes_on_bit_exactly(self):
        words = ["--lr", "1e-2", "--dropout", 0.2, "--batch", 2, "--accumulate", 2, "--no-pack", "--valid", self.valid,
                 "--valid-every", 7]  # fmt: skip
        for number in signal.SIGINT, signal.SIGTERM:
            out, whole = self.folder / f"cut-{number}", self.folder / f"whole-{number}"
            done = self.interrupted(*words, number=number, out=out)
            self.assertGreaterEqual(done, 5)
            self.assertTrue((out / VALUES).exists())
            cut = self.values(*words, "--iters", done + 10, "--resume", out=out)
            once = self.values(*words, "--iters", done + 10, out=whole)
            for key in "seconds", "adapter", "peak_memory_bytes":
                del cut[key], once[key]
            self.assertEqual(cut, once)
            self.same_adapter(out, whole)
            self.same_adapter(pathlib.Path(f"{out}.training/last"), pathlib.Path(f"{whole}.training/last"))

    def test_killed(self):
        log, plot = self.folder / "log.jsonl", self.folder / "plot.svg"
        words = ["--lr", "1e-2", "--report-every", 1, "--save-every", 4, "--log", log, "--plot", plot]
        process = self.starts("--iters", MANY, *words, until="iter 9/")
        process.kill()
        process.wait()
        done = int(re.search(r"\d+", self.checkpoints()[-1])[0])
        with log.open("a") as file:
            file.write('{"iter": 99')  # as a write that was cut leaves it
        self.trains("--iters", done + 6, "--resume", *words)
        rows = [json.loads(line)["iter"] for line in log.read_text().splitlines()]
        self.assertEqual(rows, list(range(1, done + 7)))
        self.assertEqual(self.points(plot), [done + 6])
        self.trains("--iters", done + 6, "--lr", "1e-2", out=self.folder / "whole")
        self.same_adapter(self.out, self.folder / "whole")

    def test_killed_at_any_moment(self):
        """Killed, and gone on with, until it comes to its end: later and later, so that it does."""
        words = ["--iters", cases(12, 60), "--lr", "1e-2", "--save-every", 1, "--keep", 2, "--valid", self.valid, "--valid-every", 3,
                 "--dropout", 0.1]  # fmt: skip
        once = self.values(*words, out=self.folder / "once")
        moments = random.Random(5)
        for i in range(cases(1, 20)):
            out, done, attempt = self.folder / f"cut{i}", None, 0
            while not done:
                attempt += 1
                resume = ["--resume"] if list(self.folder.glob(f"cut{i}.training/checkpoint-*.safetensors")) else []
                moment = 0.02 * attempt * moments.uniform(0.5, 2)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    done = self.trains(*words, *resume, "--json", out=out, timeout=moment)
            value = done.json
            for key in "iters", "best_iter", "valid_loss_before", "valid_loss":
                self.assertEqual(value[key], once[key], key)
            self.same_adapter(out, self.folder / "once")

    def test_twice(self):
        process = self.starts("--iters", MANY, "--report-every", 1, until="iter 5/")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.ends(process)[0], -signal.SIGINT)
        if self.checkpoints():
            done = int(re.search(r"\d+", self.checkpoints()[-1])[0])
            self.trains("--iters", done + 1, "--resume")
            self.assertEqual(list(self.kept.glob("*.tmp*")), [])
        else:
            self.trains("--iters", 1)

    def test_before_the_first_step(self):
        many = self.write("many.jsonl", lines_of(map(conversation, range(4000))))
        process = self.starts("--iters", MANY, "--valid", many, until="time")
        process.send_signal(signal.SIGINT)
        status, message = self.ends(process)
        self.assertEqual(status, -signal.SIGINT)
        self.assertIn("cancelled", message)
        self.assertFalse(self.out.exists() or self.kept.exists())

    def test_during_an_evaluation(self):
        """It is made before the next step: the best adapter is that of a run that was not interrupted."""
        many = self.write("many.jsonl", lines_of(map(conversation, range(cases(200, 1000)))))
        words = ["--valid", many, "--valid-every", 1, "--lr", "1e-2"]
        done = self.interrupted(*words, "--sample", "x", until="  > x", times=2)
        cut = self.values(*words, "--resume", "--iters", done)
        once = self.values(*words, "--iters", done, out=self.folder / "b")
        for key in "iters", "best_iter", "valid_loss_before", "valid_loss":
            self.assertEqual(cut[key], once[key], key)
        self.same_adapter(self.out, self.folder / "b")

    def test_other_rules_and_types(self):
        for i, words in enumerate((
            ["--dtype", "bf16", "--schedule", "linear", "--warmup", 2, "--lr", "1e-2"],
            ["--optimizer", "sgd", "--momentum", 0.9, "--lr", 1, "--schedule", "cosine", "--no-shuffle", "--no-pack"],
            ["--optimizer", "sgd", "--lr", 1, "--rslora", "--checkpointing", "on", "--targets", "all-linear"],
        )):  # fmt: skip
            out, again = self.folder / f"a{i}", self.folder / f"b{i}"
            self.trains(*words, "--iters", 8, "--save-every", 3, "--keep", 9, "--log", "/dev/null", out=out)
            kept = pathlib.Path(f"{again}.training")
            kept.mkdir()
            for path in pathlib.Path(f"{out}.training").glob("checkpoint-0000003.*"):
                (kept / path.name).write_bytes(path.read_bytes())
            self.trains(*words, "--iters", 8, "--resume", "--log", "/dev/null", out=again)
            self.same_adapter(out, again)

    def test_long_curves(self):
        """Every other point is left out when there are 4096."""
        n = cases(4100, 5000)
        plot, words = self.folder / "plot.svg", ["--iters", n, "--report-every", 1, "--lr", 0, "--rank", 1, "--json"]
        data = self.write("short.jsonl", lines_of([{"text": "ab"}]))
        self.trains(*words, "--plot", plot, data=data)
        self.assertEqual(self.points(plot), [2048 + n - 4096])

    def test_resume_when_all_is_done(self):
        self.trains("--iters", 4, "--lr", "1e-2")
        before = (self.out / VALUES).read_bytes()
        self.assertIn("\n0 steps in 0:00\n", self.trains("--iters", 4, "--lr", "1e-2", "--resume").text)
        self.assertEqual((self.out / VALUES).read_bytes(), before)
        self.refuses("--iters", 3, "--lr", "1e-2", "--resume", says="was saved after 4 steps, this run has 3")

    def test_held_out_samples_that_come_late_or_go(self):
        self.trains("--iters", 2)
        late = self.values("--iters", 4, "--resume", "--valid", self.valid)
        self.assertEqual((late["valid_loss_before"], late["best_iter"]), (None, 4))
        text = self.trains("--iters", 5, "--resume", "--valid", self.valid).text
        self.assertRegex(text, r"held-out loss \d\.\d{4} after step 5, which is kept")
        other = self.succeeds(*self.words("--iters", 6, "--resume", "--valid", self.data))
        self.assertIn("the best adapter is chosen again", other.err)
        self.assertEqual(self.values("--iters", 7, "--resume")["valid_loss"], None)
        self.same_adapter(self.out, self.kept / "last")

    def test_other_options(self):
        self.trains("--iters", 2)
        for option, value, says in (
            ("lr", 1, "lr"),
            ("seed", 1, "seed 0, this run has 1"),
            ("mask", "none", "mask"),
            ("data", self.valid, "its lines have changed"),
            ("dropout", 0.1, "dropout"),
            ("dtype", "bf16", "dtype f32, this run has bf16"),
            ("precision", "reference", "precision"),
        ):
            self.refuses("--iters", 4, "--resume", f"--{option}", value, says=[says, "checkpoint-0000002"])

    def test_folders_of_runs(self):
        self.refuses("--resume", says="holds no checkpoint to resume from; without --resume the run begins")
        self.trains("--iters", 2)
        files = sorted(self.folder.rglob("*"))
        self.refuses("--iters", 2, says=["holds a run of 2 steps", "--resume goes on", "another --out"])
        self.assertEqual(sorted(self.folder.rglob("*")), files)
        left = ["checkpoint-0000003.safetensors.1-0.tmp", "checkpoint-0000003.json.tmp", "checkpoint-0000003.json"]
        for name in left:
            (self.kept / name).write_text("half")
        (self.kept / "last.1-0.tmp").mkdir()
        (self.kept / "last.1-0.tmp" / VALUES).write_text("half")
        (self.kept / "notes").write_text("mine")
        self.trains("--iters", 3, "--resume")
        self.assertEqual(sorted(p.name for p in self.kept.iterdir()),
                         ["checkpoint-0000003.json", "checkpoint-0000003.safetensors", "last", "notes"])  # fmt: skip
        shutil.rmtree(self.kept)
        self.refuses("--iters", 1, says=[f"{self.out} already exists", "--force"])
        self.trains("--iters", 1, "--force")

    def test_damaged_files(self):
        self.trains("--iters", 3, "--save-every", 1, "--keep", 2, "--valid", self.valid)
        state, values = self.kept / "checkpoint-0000003.json", self.kept / "checkpoint-0000003.safetensors"
        words = ["--iters", 4, "--keep", 2, "--valid", self.valid, "--resume"]
        for text in "", "{", "[]", '{"best_iter": 1}', state.read_text().replace('"best_iter": 3', '"best_iter": "3"'):
            kept = state.read_text()
            state.write_text(text)
            self.refuses(*words, says=["checkpoint-0000003.json is damaged", "without that file the run goes on"])
            state.write_text(kept)
        good = values.read_bytes()
        values.write_bytes(good[:-50] + bytes([good[-50] ^ 1]) + good[-49:])
        self.refuses(*words, says=["no whole checkpoint", "checksum", "without that file the run goes on from step 2"])
        values.write_bytes(good[:100])
        self.refuses(*words, says=["checkpoint-0000003.safetensors", "goes on from step 2"])
        values.write_bytes(good)
        state.unlink()
        self.assertEqual(self.values(*words)["best_iter"], 4)

    def test_two_runs_of_one_folder(self):
        process = self.starts("--iters", MANY, "--save-every", MANY, until="iter 3/")
        self.refuses("--iters", 3, says="which has not ended")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.ends(process)[0], -signal.SIGTERM)

    def test_a_file_that_changes(self):
        """A run has read all of it before its first step; one that resumes sees the change."""
        process = self.starts("--iters", MANY, "--report-every", 1, until="iter 4/")
        with self.data.open("a") as file:
            file.write(lines_of([conversation(12)]))
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.ends(process)[0], -signal.SIGINT)
        self.assertEqual(len(self.checkpoints()), 1)
        self.refuses("--iters", MANY, "--resume", says="its lines have changed")


class Refused(FinetuneTest):
    def test_usage(self):
        self.fails(2, "finetune", TINY, says="--data FILE.jsonl is needed")
        self.fails(2, "finetune", TINY, "--data", self.data, says="--out DIR is needed")
        for words, says in (
            (["--pack", "--no-pack"], "--pack and --no-pack exclude"),
            (["--iters", 2, "--epochs", 2], "--iters and --epochs exclude"),
            (["--patience", 2], "--patience needs --valid"),
            (["--scale", 0], "--scale is 0"),
            (["--alpha", 0], "--alpha is 0"),
            (["--layers", "few"], "--layers must be `all`"),
            (["--layers", 0], "--layers must be `all`"),
            (["--format", "gguf"], "peft or mlx"),
            (["--optimizer", "adam"], "adamw or sgd"),
            (["--dropout", 1], "from 0 to 0.99"),
            (["--epochs", 0], "from 1e-06 to 1e+06"),
            (["--batch", 0], "from 1 to 65536"),
            (["--rank", 4097], "from 1 to 4096"),
            (["--lr", "nan"], "from 0 to 1000"),
            (["--keep", 0], "from 1 to"),
            (["--max-length", 1], "from 2 to"),
        ):
            self.refuses(*words, status=2, says=says)

    def test_out(self):
        self.write("file", "mine")
        self.write("mine/notes", "mine")
        self.write("taken.training", "mine")
        (self.folder / "b.training/last").mkdir(parents=True)
        self.write("b.training/last/notes", "mine")
        (self.folder / "link").symlink_to("nowhere")
        for name, says in (
            ("link", "a link that leads nowhere"),
            ("link/", "a link that leads nowhere"),
            ("file", "it is a file"),
            ("mine", "holds `notes`"),
            ("none/out", "No such file"),
            ("taken", "Not a directory"),
            ("b", "holds `notes`"),
            ("/dev/null/a", "cannot be"),
        ):
            self.refuses(model=self.folder / "no-model", out=self.folder / name, says=says)
        if os.geteuid():  # root writes everywhere
            closed = self.folder / "closed"
            closed.mkdir(0o555)
            self.refuses(model=self.folder / "no-model", out=closed / "out", says="Permission denied")

    def test_files(self):
        nowhere = self.folder / "no-model"  # all this is found before the model is looked for
        for words, says in (
            (["--log", self.folder], "Is a directory"),
            (["--plot", self.folder / "none/plot.svg"], "plot.svg cannot be written: No such file"),
            (["--log", self.data], ["--log", "would overwrite the file of --data"]),
            (["--valid", self.valid, "--plot", self.valid], "would overwrite the file of --valid"),
            (["--log", self.folder / "a", "--plot", self.folder / "a"], "name the same file"),
            (["--valid", self.folder / "none"], "none cannot be read: No such file"),
        ):
            self.refuses(*words, model=nowhere, says=says)
        self.refuses(model=nowhere, data=self.folder / "none", says="none cannot be read: No such file")
        self.refuses(model=nowhere, says="no-model")
        self.refuses(data=self.folder, says="expected a regular file")
        os.mkfifo(self.folder / "pipe")
        self.refuses(data=self.folder / "pipe", says="is a pipe, expected a regular file")
        self.refuses(data="/dev/stdin", says="expected a regular file")

    def test_data(self):
        good = json.dumps(conversation(0)) + "\n"
        answer = {"role": "assistant", "content": "a"}
        for i, (text, says) in enumerate((
            ("", "is empty, expected a JSON object on each line"),
            ("\n \n", "is empty"),
            (good + "\n{\"messages\": [\n", "line 3"),
            (good + '{"question": "x"}\n', ["line 2", "messages"]),
            (lines_of([{"messages": [{"role": "boss", "content": "x"}, answer]}]), ["line 1", "role"]),
            (lines_of([{"messages": [{"role": "user", "content": "x"}]}]), "1 have no token to learn"),
            (lines_of([{"text": "x" * 3000}]), "1 have more than 2048 tokens"),
            ("version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        )):  # fmt: skip
            self.refuses(data=self.write("bad.jsonl", text), says=["bad.jsonl", *([says] if isinstance(says, str) else says)])
            if takes(i, 8):
                self.refuses("--valid", self.folder / "bad.jsonl", says="bad.jsonl")
        bad = self.write("bad.jsonl", good + "[1]\n" + good)
        self.assertRegex(self.trains("--iters", 1, "--skip-bad", data=bad).text, r"1 left out: no sample \(line 2\)\n.*line 2")

    def test_targets(self):
        self.refuses("--targets", "q_proj,w_proj", says=["named `w_proj`", "q_proj, k_proj, v_proj", "all-linear"])
        self.refuses("--targets", "", says="leave no projection to train")
        self.refuses("--layers", 3, says="3 layers, the model has 2")

    def without_a_q(self):
        """A model that has no finite embedding of the letter, and finite logits elsewhere."""
        model = self.folder / "nan.gguf"
        row = len(tiny_model.SPECIAL) + tiny_model.byte_alphabet().index("q")

        def tensors():
            for name, shape, numbers in TENSORS():
                if name == "token_embd.weight":
                    yield "output.weight", shape, list(numbers)
                    numbers[row * shape[0] : (row + 1) * shape[0]] = [float("nan")] * shape[0]
                yield name, shape, numbers

        with mock.patch.object(tiny_model, "tensors", tensors):
            tiny_model.write(model)
        return model

    def fails_after(self, *more, **files):
        """The message of a run that fails once its plan was printed."""
        process = subprocess.run([HEARTH, *map(str, self.words(*more, **files))], capture_output=True)
        message = process.stderr.decode()
        self.assertEqual((process.returncode, message.count("\n")), (1, 1), message)
        return message

    def test_what_diverges_keeps_the_checkpoint_before(self):
        """--save-every falls among the steps that are skipped."""
        data = self.write("data.jsonl", lines_of([{"text": "abcd"}] + 8 * [{"text": "qqqq"}]))
        message = self.fails_after("--no-shuffle", "--no-pack", "--batch", 1, "--iters", 9, "--save-every", 1,
                                   model=self.without_a_q(), data=data)  # fmt: skip
        self.assertIn("5 steps in a row", message)
        self.assertEqual([p.name for p in self.kept.glob("*.safetensors")], ["checkpoint-0000001.safetensors"])

    def test_a_log_that_cannot_be_written(self):
        message = self.fails_after("--iters", 9, "--report-every", 4, "--log", "/dev/full")
        self.assertRegex(message, r"^hearth: /dev/full cannot be written: .*; 3 steps saved, --resume continues\n$")
        self.assertEqual(self.checkpoints(), ["checkpoint-0000003.safetensors"])

    def test_full_disk(self):
        self.trains("--iters", 2, "--save-every", 1)
        old = (self.out / VALUES).read_bytes()

        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        for out in "out", "new":
            more = ["--resume"] if out == "out" else []
            before = sorted(self.folder.rglob("*"))
            words = self.words("--iters", 4, "--json", *more, out=self.folder / out)
            self.fails(1, *words, says="cannot be written: File too large", preexec_fn=no_room)
            self.assertEqual(sorted(self.folder.rglob("*")), before)
        self.assertEqual((self.out / VALUES).read_bytes(), old)
        self.trains("--iters", 4, "--resume")


TENSORS = tiny_model.tensors

if __name__ == "__main__":
    unittest.main()
