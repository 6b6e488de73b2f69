"""Completions and manual pages, as shells and man read them."""

import os
import re
import shutil
import subprocess
import unittest

from support import HEARTH, TINY, CommandTest


class Completion(CommandTest):
    def complete(self, *words):
        """What bash offers for the last word."""
        self.folder.joinpath("a b.gguf").touch()
        script = f"""
            PATH={os.path.dirname(HEARTH)}:$PATH; cd "{self.folder}"; eval "$(hearth completion bash)"
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hearth; for word in "${{COMPREPLY[@]}}"; do printf '%s\\n' "$word"; done """
        done = subprocess.run(["bash", "-c", script, "-", *words], capture_output=True, text=True, check=True,
                              env={**os.environ, "XDG_CACHE_HOME": str(self.folder)})  # fmt: skip
        self.assertEqual(done.stderr, "")
        return done.stdout.split("\n")[:-1]

    def test_bash(self):
        self.assertEqual(self.complete("hearth", "fine"), ["finetune"])
        self.assertEqual(set(self.complete("hearth", "")), {*self.commands(), "--help", "--version"})
        self.assertEqual(self.complete("hearth", "run", "m", "--max"), ["--max-tokens"])
        self.assertEqual(self.complete("hearth", "list", "--max"), [])
        self.assertEqual(self.complete("hearth", "run", "m", "--kv", "b"), ["bf16"])
        self.assertEqual(self.complete("hearth", "run", "m", "-n", ""), [])
        models = self.folder / "hearth" / "models"
        models.mkdir(parents=True)
        shutil.copy(TINY, models / "some-model.gguf")
        self.assertEqual(self.complete("hearth", "run", "some"), ["some-model"])
        self.assertIn("default", self.complete("hearth", "chat", "d"))
        self.assertIn("hearth", self.complete("hearth", "run", "m", "--messages", "h"))
        self.assertEqual(self.complete("hearth", "imatrix", "d", "--from", "d"), [])  # a file, not a model
        self.assertEqual(self.complete("hearth", "imatrix", "d", "--from", "h"), ["hearth"])

    def test_each_option_of_each_command(self):
        for name in self.commands():
            text = self.succeeds(name, "--help").text
            self.assertLessEqual(max(map(len, text.split("\n"))), 80)
            self.assertEqual(set(self.complete("hearth", name, "--")), {f"--{option}" for option, _ in self.options_of(name)})

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh(self):
        self.parse("zsh", "-n")
        script = "autoload -U compinit; compinit -u -D; source /dev/stdin; print $_comps[hearth]"
        done = subprocess.run(["zsh", "-f", "-c", script], input=self.succeeds("completion", "zsh").out, capture_output=True)
        self.assertEqual((done.stdout, done.stderr), (b"_hearth\n", b""))

    @unittest.skipUnless(shutil.which("fish"), "there is no fish")
    def test_fish(self):
        self.parse("fish", "-n")
        script = "source (hearth completion fish | psub); complete -C'hearth run m --kv '; complete -C'hearth fin'"
        env = {**os.environ, "PATH": f"{os.path.dirname(HEARTH)}:{os.environ['PATH']}", "HOME": str(self.folder)}
        done = subprocess.run(["fish", "-N", "-c", script], capture_output=True, text=True, env=env)
        self.assertEqual(done.stderr, "")
        self.assertEqual([line.split("\t")[0] for line in done.stdout.split("\n")], ["bf16", "f16", "f32", "q8", "finetune", ""])

    def parse(self, shell, *options):
        path = self.write(shell, self.succeeds("completion", shell).out)
        done = subprocess.run([shell, *options, path], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_another_shell(self):
        for words in (["csh"], []):
            self.fails(2, "completion", *words, says="bash, zsh or fish")


class Manual(CommandTest):
    def test_pages(self):
        whole = self.succeeds("man").text
        for name in self.commands():
            self.assertIn(f"hearth\\-{name}", whole)
            page = self.succeeds("man", name).text
            for option, _ in self.options_of(name):
                self.assertIn("\\-\\-" + option.replace("-", "\\-") + "\\fR", page)
        self.fails(2, "man", "nothing", says="no command")

    def shown(self, path):
        """What `hearth man list` shows with the programs of one directory."""
        shown, _ = self.on_terminal("man", "list", stderr=None, env={**os.environ, "PATH": str(path)})
        return shown.replace(b"\r\n", b"\n").decode()

    def test_terminal(self):
        self.assertEqual(self.shown("/nonexistent"), self.succeeds("list", "--help").text)
        for name, words in [("man", "-l -"), ("mandoc", "-a")]:
            folder = self.folder / name
            folder.mkdir()
            (folder / name).write_text('#!/bin/sh\necho "$@"\nread -r line\necho "$line"\n')
            (folder / name).chmod(0o755)
            self.assertRegex(self.shown(folder), f'^{words}\n.TH "HEARTH-LIST"')

    @unittest.skipUnless(shutil.which("mandoc"), "there is no mandoc")
    def test_mandoc_reads_them(self):
        for name in [None, *self.commands()]:
            page = self.write("page.1", self.succeeds("man", *([name] if name else [])).out)
            done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True)
            self.assertEqual([line for line in done.stdout.splitlines() if "missing date" not in line], [])
        text = subprocess.run(["mandoc", "-T", "ascii", page], capture_output=True, text=True).stdout
        self.assertRegex(re.sub(".\x08", "", text), "(?s)NAME.*SYNOPSIS.*OPTIONS")  # without what prints letters twice


if __name__ == "__main__":
    unittest.main()
