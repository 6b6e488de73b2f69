"""`hearth run --backend`: models of mlx_lm, whose child runs the library's bridge on mlx_stand_in.py."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

import mlx_stand_in
from support import HEARTH, SCRATCH, TINY, CommandTest, hearth

HAS_MLX_LM = any(b["name"] == "mlx_lm" for b in json.loads(hearth("doctor", "--json", "-t", "1").text)["backends"])
MODEL, STAND_IN = SCRATCH / "checkpoint", SCRATCH / "stand-in"

mlx_stand_in.write(STAND_IN)
mlx_stand_in.write_checkpoint(MODEL)
ON_MLX = ["run", MODEL, "hello", "--backend", "mlx_lm", "--python", sys.executable]


def stand_in(answer=None, **more):
    return {"PYTHONPATH": str(STAND_IN), **({"ANSWER": answer} if answer else {}), **more}


class Backends(CommandTest):
    def test_list(self):
        names = [b["name"] for b in self.succeeds("doctor", "--json", "-t", "1").json["backends"]]
        self.assertEqual(names, ["native", "mlx_lm"] if HAS_MLX_LM else ["native"])
        self.assertRegex(self.succeeds("doctor", "-t", "1", "-q").text, r"backends +native +this library")

    def test_native(self):
        words = ["run", TINY, "hello", "-n", "8", "-q"]
        self.assertEqual(self.succeeds(*words).out, self.succeeds(*words, "--backend", "native").out)

    def test_unknown(self):
        self.fails(1, "run", TINY, "hello", "--backend", "abacus", says=['no backend "abacus"', "native"])
        self.fails(2, "info", TINY, "--backend", "native", says="--backend")


@unittest.skipUnless(HAS_MLX_LM, "this build has no mlx_lm")
class MlxLm(CommandTest):
    def test_fields_that_are_missing(self):
        """As mlx-lm finds out: of an entry, and of arguments."""
        for fields, says in (
            (["model_type"], 'config.json: field "model_type" is missing, which mlx-lm needs: download'),
            (["hidden_size"], 'config.json: field "hidden_size" is missing'),
            (["hidden_size", "n_layers"], 'config.json: fields "hidden_size", "n_layers" are missing'),
        ):
            mlx_stand_in.write_checkpoint(self.folder / "model", **dict.fromkeys(fields))
            words = ["run", self.folder / "model", *ON_MLX[2:]]
            self.fails(1, *words, env=stand_in("Hello"), says=[f"mlx_lm: {self.folder}/model/{says}"])
        mlx_stand_in.write_checkpoint(self.folder / "model", model_type="odd")
        self.fails(1, *words, env=stand_in("Hello"), says=["mlx_lm: KeyError: 'model_type'; if", "-m mlx_lm generate --model"])

    def test_answer(self):
        result = self.succeeds(*ON_MLX, env=stand_in("Hällo! \U0001f600"))
        self.assertEqual(result.text, "Hällo! \U0001f600\n")
        self.assertRegex(result.err, r"prefill 20 tok · ttft \d+ ms .* peak 0.0 GB\n")

    def test_json(self):
        value = self.succeeds(*ON_MLX, "--json", env=stand_in("Hello")).json
        self.assertEqual((value["text"], value["finish"]), ("Hello", "stop"))
        self.assertEqual(value["metrics"]["generated_tokens"], 5)
        self.assertEqual(value["metrics"]["peak_memory_bytes"], 5000000)

    def test_limits_and_stops(self):
        value = self.succeeds(*ON_MLX, "--json", "-n", "3", env=stand_in("Hello")).json
        self.assertEqual((value["text"], value["finish"]), ("Hel", "length"))
        value = self.succeeds(*ON_MLX, "--json", "--stop", "lo", env=stand_in("Hello")).json
        self.assertEqual((value["text"], value["finish"]), ("Hel", "stop"))

    def test_context(self):
        self.assertIn("stopped after 4 tokens, as the context of 24 tokens is full; --context raises", self.succeeds(*ON_MLX, "-c", "24", env=stand_in("Hello!!")).err)
        self.fails(1, *ON_MLX, "-c", "8", env=stand_in("Hello"), says="does not fit the context of 8")
        self.fails(1, *ON_MLX, "-c", "513", env=stand_in("Hello"), says=["513", "512"])

    def test_interpreter_of_the_environment(self):
        words = ["run", MODEL, "hello", "--backend", "mlx_lm", "-q"]
        self.assertEqual(self.succeeds(*words, env=stand_in("Hi", HEARTH_PYTHON=sys.executable)).text, "Hi\n")
        self.fails(1, *words, env=stand_in("Hi", HEARTH_PYTHON="no-such-python"), says='cannot start "no-such-python"')
        self.assertEqual(self.succeeds(*words, "--python", sys.executable, env=stand_in("Hi", HEARTH_PYTHON="no-such-python")).text, "Hi\n")

    def test_mistakes(self):
        self.fails(1, *ON_MLX, env=stand_in("fail"), says=["mlx_lm: ValueError: the stand-in fails in two lines; if", "upgrade mlx-lm"])
        self.fails(1, "run", TINY, "x", "--backend", "mlx_lm", says=["tiny.gguf", "this is a file"])
        self.fails(1, "run", self.folder / "none", "x", "--backend", "mlx_lm", says="no such file")
        self.write("mlx/__init__.py", "raise ImportError('no mlx here')")
        self.fails(1, *ON_MLX, env={"PYTHONPATH": str(self.folder)}, says=["no mlx here", "pip install mlx-lm"])

    def test_options_of_the_native_backend(self):
        for words in [["-t", "1"], ["--cpu", "reference"], ["--save-state", "x"], ["--load-state", "x"], ["--chunk", "3"], ["--lookup"], ["--draft", "x"]]:
            option = {"-t": "--threads"}.get(words[0], words[0])
            self.fails(1, *ON_MLX, *words, env=stand_in("Hello"), says=f"{option} is not supported by mlx_lm")
        for words in [["--precision", "fast"], ["--kv", "q8"], ["--sliding"], ["--packed-cache"], ["--device", "cpu"]]:
            self.fails(1, *ON_MLX, *words, env=stand_in("Hello"), says="is not supported by mlx_lm")
        self.fails(1, *ON_MLX, "--adapter", "a", "--adapter", "b", env=stand_in("Hello"), says="more than one adapter")
        self.fails(1, *ON_MLX, "--adapter", "none@2", env=stand_in("Hello"), says="none: mlx_lm reads an adapter from a directory")

    def test_modules_of_the_working_directory_are_not_taken(self):
        (self.folder / "json.py").write_text("raise SystemExit('taken from the working directory')")
        self.assertEqual(self.succeeds(*ON_MLX, "-q", env=stand_in("Hi"), cwd=self.folder).text, "Hi\n")

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "there is no /proc here")
    def test_ctrl_c_ends_the_child_too(self):
        process = subprocess.Popen([HEARTH, *map(str, ON_MLX), "-n", "100000"], stdout=-1, stderr=-1, env={**os.environ, **stand_in()}, bufsize=0)
        first = process.stdout.read(1) + process.stdout.read(1)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (child,) = children.read_text().split() if children.exists() else [None]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertEqual(set(first + out), set(b"x\n"))
        self.assertIn(b"tok/s", err)
        self.assertFalse(child and os.path.exists(f"/proc/{child}"))


if __name__ == "__main__":
    unittest.main()
