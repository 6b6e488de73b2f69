"""Bad input: one clear sentence, the right exit status, nothing half-written."""

import ctypes
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import unittest

from support import HEARTH, TINY, CommandTest, hearth, tiny_model

COMMANDS = ["run", "info", "tokenize", "detokenize", "logits", "eval", "bench"]  # with a MODEL


class Usage(CommandTest):
    def test_no_command(self):
        result = hearth()
        self.assertEqual((result.status, result.out), (2, b""))
        self.assertIn("hearth run", result.err)

    def test_unknown_command(self):
        self.fails(2, "walk", TINY, says=['"walk"', "tokenize"])
        self.fails(2, "wal\nk\x1b[31m", TINY, says='"wal?k?[31m"')
        self.fails(2, "--bogus", says="--bogus")
        self.fails(2, "", says='""')

    def test_the_nearest_name(self):
        for typed, meant in [("tokenise", "tokenize"), ("ifno", "info"), ("rnu", "run"), ("disc", "discover"), ("evel", "eval")]:
            self.fails(2, typed, TINY, says=f'"{typed}" is no command, the nearest is {meant} (')
        for typed, meant in [("--max-token", "--max-tokens"), ("--temprature=0.5", "--temperature"), ("--sed", "--seed"),
                             ("--repeat", "--repeat-penalty"), ("--top_k", "--top-k")]:  # fmt: skip
            self.fails(2, "run", TINY, typed, says=f"there is no option {typed}, the nearest is {meant} (")
        self.assertNotIn("nearest", self.fails(2, "run", TINY, "--bogus").err)
        self.assertNotIn("nearest", self.fails(2, "run", TINY, "--markdwn").err)  # an option of another command

    def test_words_after_what_takes_none(self):
        self.fails(2, "--version", "extra", says='"extra"')
        self.fails(2, "help", "run", "extra", says='"extra"')
        self.fails(2, "help", "walk", says='"walk"')

    def test_unknown_options(self):
        for command in COMMANDS:
            self.fails(2, command, TINY, "--bogus", says=["--bogus", f"hearth {command}"])
            self.fails(2, command, TINY, "--bogus=3", says="--bogus")
            self.fails(2, command, TINY, "-Z", says="-Z")
            self.fails(2, command, TINY, "--thread", "2", says="--thread")

    def test_instruction_set_that_cannot_run(self):
        self.fails(1, "run", TINY, "x", "--cpu", "abacus", says=["`abacus`", "reference"])

    def test_options_of_other_commands(self):
        """A command accepts the options of its help, and says of every other that it is none of its options."""
        values = {"N": "2", "X": "0.5", "SECONDS": "5", "SIZE": "4G", "ID=X": "1=1", "A,B,...": "temperature", "NAME=JSON": "a=1"}
        own = {}
        names = self.commands()
        for name in names:
            listed = self.options_of(name)
            words = [f"--{option}={values.get(value, value.split('|')[0])}" if value else f"--{option}" for option, value in listed]
            self.assertIn(f"hearth {name}", self.succeeds(name, *words).text)  # the help, as --help is among them
            own[name] = {option for option, _ in listed}
        options = sorted(set().union(*own.values()))
        for i, option in enumerate(options):  # each with some of the commands
            for name in names[i % 20 :: 20]:
                if option not in own[name]:
                    self.fails(2, name, f"--{option}", says=f"hearth {name}: --{option} is not an option of this command")
        for words in [("tokenize", "--temperature", "1"), ("list", "--device", "nonsense"), ("eval", "--temperature", "1"),
                      ("formats", "--seed", "1"), ("pull", "--lookup"), ("info", "-t", "1"), ("embed", "--raw")]:  # fmt: skip
            self.fails(2, *words, says="is not an option of this command")

    def test_no_model(self):
        for command in COMMANDS:
            self.fails(2, command, says="model")
            self.fails(2, command, "", says="model")

    def test_values(self):
        for option, values in {
            "--threads": ["0", "two", "2x", "", "1025", "99999999999999999999", "-1"],
            "--context": ["0", "2147483648", "-1"],
            "--max-tokens": ["-1", "9223372036854775808", "1.5", "0"],
            "--chunk": ["0", "0x10"],
            "--repeat-window": ["-2"],
            "--repeat-penalty": ["inf"],
            "--temperature": ["1e400", "", "-1", "nan"],
            "--top-p": ["-inf", "1.5"],
            "--top-k": ["1e5", "-3"],
            "--seed": ["٣", "-1", "18446744073709551616"],
            "--sampler-order": ["", "top_p,bottom_p", "top_p,top_p"],
            "--min-p": ["2"],
            "--precision": ["best"],
            "--kv": ["f64"],
            "--stop": [""],
        }.items():
            for value in values:
                self.fails(2, "run", TINY, "x", option, value, says=option)

    def test_stop_that_is_not_utf8(self):
        """No text the model writes could hold it."""
        for value in [b"\xff", b"a\xc3", b"\xed\xa0\x80"]:
            result = subprocess.run([HEARTH, "run", TINY, "x", "--stop", value], stdout=-1, stderr=-1)
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertIn(b"--stop", result.stderr)
            self.assertIn(b"UTF-8", result.stderr)

    def test_missing_value(self):
        self.fails(2, "run", TINY, "x", "--threads", says=["--threads", "value"])
        self.fails(2, "run", TINY, "x", "--raw=yes", says="--raw")

    def test_too_many_words(self):
        self.fails(2, "run", TINY, "two", "words", says=['"words"', "quote text"])
        self.fails(2, "info", TINY, TINY)

    def test_empty_prompt(self):
        self.fails(2, "run", TINY, "", says="empty")
        self.fails(2, "run", TINY, stdin=b"\n", says="empty")

    def test_exclusive_options(self):
        self.fails(2, "run", TINY, "x", "--raw", "--system", "y", says="--system")
        self.fails(2, "tokenize", TINY, "--null", "text", says="--null")
        self.fails(2, "bench", TINY, "-p", "0", "-n", "0")
        self.fails(2, "bench", TINY, "-n", "0", "--parallel", "2", says="--parallel")
        self.fails(2, "bench", TINY, "--parallel", "0", says="--parallel")

    def test_numbers_too_small_for_a_float_are_not_zero(self):
        """0 switches top-p off; next to 0 it leaves the most likely token."""
        greedy = self.succeeds("run", TINY, "x", "-n", "8", "--raw").out
        for option in [("--temperature", "1e-40"), ("--temperature", "5", "--top-p", "1e-50")]:
            self.assertEqual(self.succeeds("run", TINY, "x", "-n", "8", "--raw", *option).out, greedy)

    def test_control_characters_do_not_reach_the_terminal(self):
        self.fails(1, "info", "no\nsuch\x1b[31m\x7f\u009b.gguf", says="no?such?[31m???.gguf: ")
        self.fails(2, "run", TINY, "--a\nb\x1b", says="--a?b?")

    def test_logits_needs(self):
        self.fails(2, "logits", TINY, "--out", self.folder / "x.npy", says="--ids")
        self.fails(2, "logits", TINY, "--ids", "1", says="--out")
        self.fails(2, "logits", TINY, "--ids", "1", "--out", "", says="--out")
        for ids in ["", ",", "1,,2", ",1", "1,2,", "1,x", "1.5", "-1", "99999999999"]:
            self.fails(2, "logits", TINY, "--ids", ids, "--out", self.folder / "x.npy", says="--ids")
        self.assertEqual(os.listdir(self.folder), [])


class Models(CommandTest):
    """Paths that hold no model, or not one that works."""

    def refuses(self, path, *says):
        """Every command that loads the model names its file, or the directory, and says why not."""
        for command in [("info", path), ("run", path, "x"), ("bench", path, "-p", "1", "-n", "1", "-r", "1")]:
            self.fails(1, *command, says=[path.name, *says])
        self.fails(1, "logits", path, "--ids", "1", "--out", self.folder / "x.npy", says=[path.name, *says])
        self.assertFalse((self.folder / "x.npy").exists())

    def test_missing(self):
        path = self.folder / "missing.gguf"
        self.refuses(path, "No such file")
        self.fails(1, "info", path.parent.joinpath(*["x" * 200] * 10), says=[str(path.parent), "...", "No such file"])
        self.fails(1, "tokenize", path, "x", says=str(path))
        self.fails(1, "detokenize", path, "1", says=str(path))

    def test_directory_without_weights(self):
        path = self.folder / "empty"
        path.mkdir()
        self.refuses(path)
        self.fails(1, "tokenize", path, "x", says=str(path))

    def test_directory_with_config_alone(self):
        self.refuses(self.write("config/config.json", '{"model_type": "llama"}').parent)

    def test_directory_with_tokenizer_model_alone(self):
        """What computes on ids works; what needs text names the file that is missing."""
        path = self.folder / "model"
        shutil.copytree(pathlib.Path(__file__).parents[1] / "golden" / "tiny" / "llama-f32", path)
        (path / "tokenizer.model").write_bytes(b"\n\4")
        says = "holds no tokenizer.json, and its tokenizer.model is not read"
        self.fails(1, "run", path, "x", says=says)
        self.fails(1, "tokenize", path, "x", says=[str(path), says])
        self.fails(1, "eval", path, "--text", path / "config.json", says=says)
        self.succeeds("logits", path, "--ids", "1", "--out", self.folder / "x.npy")
        (path / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n")
        self.fails(1, "run", path, "x", says="tokenizer.json: is a Git LFS pointer")

    def test_wrong_type(self):
        self.refuses(self.write("text.txt", "this is no model\n" * 100))
        self.refuses(self.write("text.gguf", "this is no model\n" * 100), "GGUF")
        self.refuses(self.write("empty.gguf", ""))
        for device in ["/dev/null", "/dev/zero"]:
            self.refuses(pathlib.Path(device), "a device, expected a regular file")

    def test_pipes(self):
        """Nobody writes to them, so opening one must not wait."""
        pipe = self.folder / "pipe.gguf"
        os.mkfifo(pipe)
        self.refuses(pipe, "a pipe, expected a regular file")

    def test_links_to_nowhere(self):
        link = self.folder / "link.gguf"
        link.symlink_to(link)
        self.refuses(link, "symbolic links")

    def test_name_that_is_not_utf8(self):
        path = os.fsencode(self.folder) + b"/odd\xff.gguf"
        with open(path, "wb") as odd:
            odd.write(TINY.read_bytes())
        for command in [("info",), ("run", "x", "-n", "1"), ("bench", "-p", "1", "-n", "1", "-r", "1")]:
            words = [command[0], os.fsdecode(path), *command[1:], "--json"]
            self.assertTrue(self.succeeds(*words).json["model"].endswith("/odd\ufffd.gguf"))

    def test_unknown_architecture(self):
        path = self.tiny("odd.gguf", architecture="qwen3nexd")
        known = "architecture `qwen3nexd` is not supported; the nearest that is: `qwen3next` (`hearth formats` lists all)"
        self.fails(1, "run", path, "x", says=known)
        self.fails(1, "bench", path, says=known)
        self.fails(1, "logits", path, "--ids", "1", "--out", self.folder / "x.npy", says=known)
        self.assertIn("cannot run", self.succeeds("info", path).text)
        self.assertEqual(os.listdir(self.folder), ["odd.gguf"])
        far = "architecture `mamba` is not supported; `hearth formats` lists those that are"
        self.fails(1, "run", self.tiny("far.gguf", architecture="mamba"), "x", says=far)

    def test_unknown_model_type(self):
        for name, says in [("qwen3nexd", "the nearest that is: `qwen3next` (`hearth"), ("mamba", "`hearth formats` lists those")]:
            config = self.write(f"{name}/config.json", json.dumps({"model_type": name}))
            header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
            self.write(f"{name}/model.safetensors", struct.pack("<Q", len(header)) + header + bytes(4))
            self.fails(1, "run", config.parent, "x", says=[f"architecture `{name}` is not supported; ", says])

    def test_vocabulary_only(self):
        path = self.tiny("vocab.gguf", with_weights=False)
        self.fails(1, "run", path, "x", says=[path.name, "vocabulary"])
        self.assertIn("byte-level BPE", self.succeeds("info", path).text)
        self.assertEqual(self.succeeds("tokenize", path, "hello").text, "262\n")

    def test_default_not_fetched(self):
        env = {"XDG_CACHE_HOME": str(self.folder)}
        for command in ["info", "run", "tokenize"]:
            self.fails(1, command, "default", stdin=b"x", env=env, says=[str(self.folder), "scripts/"])
        self.fails(1, "info", "default", env={"XDG_CACHE_HOME": "", "HOME": ""}, says="HOME")


class Limits(CommandTest):
    def test_context_beyond_the_models_own(self):
        path = self.tiny("short.gguf", context=512)
        for command in [("run", path, "x"), ("info", path), ("bench", path)]:
            self.fails(1, *command, "--context", "513", says=["512", "513"])

    def test_prompt_longer_than_the_context(self):
        path = self.tiny("short.gguf", context=32)
        prompt = "a b c d " * 10
        self.fails(1, "run", path, "--raw", prompt, says=["80", "32"])
        ids = ",".join(["1"] * 33)
        self.fails(1, "logits", path, "--ids", ids, "--out", self.folder / "x.npy", says=["33", "32"])
        self.assertEqual(os.listdir(self.folder), ["short.gguf"])

    def test_ids_out_of_range(self):
        size = len(tiny_model.vocabulary())
        self.fails(1, "detokenize", TINY, size, says=[str(size)])
        self.fails(1, "detokenize", TINY, "5", "2147483647", says="2147483647")
        self.fails(2, "detokenize", TINY, "five", says="five")
        self.fails(1, "logits", TINY, "--ids", f"1,{size}", "--out", self.folder / "x.npy", says=[str(size)])
        self.assertEqual(os.listdir(self.folder), [])


    def test_bench_beyond_the_context(self):
        """Refused before anything is measured, or a long prompt is made up."""
        path = self.tiny("short.gguf", context=512)
        most = "2147483647"
        for words in [("-p", most), ("-p", "0", "-n", most), ("-p", "0", "--depth", most), ("-p", most, "--depth", most)]:
            self.fails(1, "bench", path, *words, says=["512", "choose less"])
        self.fails(1, "bench", path, "-p", "512", "-n", "0", says=["513", "512", "-p"])
        self.fails(1, "bench", path, "-p", "1", "-n", "500", "--depth", "12", says=["514", "512", "--depth"])
        self.succeeds("bench", path, "-p", "511", "-n", "510", "-r", "1")


LIBC = ctypes.CDLL(None, use_errno=True)


def give_up_root():
    """Permissions bind root, too, once the program that is started cannot have CAP_DAC_OVERRIDE."""
    drop_from_bounding_set, dac_override = 24, 1
    if os.geteuid() == 0 and LIBC.prctl(drop_from_bounding_set, dac_override, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Outputs(CommandTest):
    def test_unwritable_file(self):
        missing = self.folder / "no" / "such" / "x.npy"
        self.fails(1, "logits", TINY, "--ids", "1,2", "--out", missing, says=[str(missing)])
        self.fails(1, "logits", TINY, "--ids", "1,2", "--out", self.folder, says=[str(self.folder), "directory"])
        self.fails(1, "logits", TINY, "--ids", "1,2", "--out", "/dev/full", says="/dev/full")
        self.assertEqual(os.listdir(self.folder), [])

    def test_failure_keeps_what_was_there(self):
        path = self.write("x.npy", "kept")
        self.fails(1, "logits", TINY, "--ids", "1,99999", "--out", path)
        self.assertEqual(path.read_text(), "kept")
        self.assertEqual(os.listdir(self.folder), ["x.npy"])

    def test_file_size_limit(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # noqa: E731
        path = self.folder / "x.npy"
        self.fails(1, "logits", TINY, "--ids", "1,2", "--out", path, says=[str(path), "too large"], preexec_fn=limit)
        self.assertEqual(os.listdir(self.folder), [])

    def test_no_permission(self):
        self.folder.chmod(0o500)
        self.fails(1, "logits", TINY, "--ids", "1", "--out", self.folder / "x.npy", says="Permission denied",
                   preexec_fn=give_up_root)
        self.assertEqual(os.listdir(self.folder), [])
        self.folder.chmod(0o700)

    def test_closed_stdin(self):
        closed = lambda: os.close(0)  # noqa: E731
        for command in [("run",), ("tokenize",), ("detokenize",)]:
            self.fails(1, command[0], TINY, says="standard input", preexec_fn=closed)

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full here")
    def test_full_stdout(self):
        for command in [
            ("run", TINY, "x", "-n", "4", "--quiet"),
            ("run", TINY, "x", "-n", "4", "--quiet", "--json"),
            ("info", TINY),
            ("tokenize", TINY, "x"),
            ("detokenize", TINY, "5"),
            ("--version",),
            ("--help",),
            ("run", "--help"),
        ]:
            with open("/dev/full", "wb") as full:
                self.fails(1, *command, stdout=full, says="standard output")


if __name__ == "__main__":
    unittest.main()
