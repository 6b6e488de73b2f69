"""Who writes where, and how the command ends when somebody stops it."""

import json
import os
import pty
import signal
import subprocess
import time
import unittest

from support import HEARTH, TINY, CommandTest

ENDLESS = ["run", str(TINY), "--raw", "x", "-n", "1000000"]


def listen():
    """Undoes nohup, under which the tests may run."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(*words, **more):
    return subprocess.Popen(
        [HEARTH, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, preexec_fn=listen, **more
    )


class Streams(CommandTest):
    def test_statistics_on_stderr(self):
        result = self.succeeds("run", TINY, "hello", "-n", "8")
        self.assertRegex(result.err, r"^prefill \d+ tok · ttft \d+ ms · \d+\.\d tok/s( · \d+ of \d+ draft tokens? accepted)? · peak \d+\.\d GB\nstopped after 8 tokens; --max-tokens raises the limit\n$")
        self.assertNotIn(b"ttft", result.out)
        self.assertTrue(result.out.endswith(b"\n"))

    def test_quiet(self):
        for command in [
            ("run", TINY, "hello", "-n", "8"),
            ("info", TINY),
            ("tokenize", TINY, "hello"),
            ("detokenize", TINY, "262"),
            ("logits", TINY, "--ids", "1,2", "--out", self.folder / "x.npy"),
            ("bench", TINY, "-p", "4", "-n", "4", "-r", "1"),
        ]:
            result = self.succeeds(*command, "--quiet")
            self.assertEqual((result.err, result.out == b""), ("", command[0] == "logits"))

    def test_no_progress_without_a_terminal(self):
        result = self.succeeds("bench", TINY, "-p", "64", "-n", "64", "-r", "2")
        self.assertNotIn("\r", result.err)
        self.assertNotIn("\033", result.err)

    def test_closed_pipe(self):
        process = start(*ENDLESS)
        self.assertTrue(process.stdout.read(1))
        process.stdout.close()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()

    def test_closed_stdout(self):
        result = subprocess.run(
            f'"{HEARTH}" logits "{TINY}" --ids 1,2 --out "{self.folder}/x.npy" --json >&-',
            shell=True,
            stderr=subprocess.PIPE,
        )
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"standard output", result.stderr)
        self.assertEqual((self.folder / "x.npy").read_bytes()[:6], b"\x93NUMPY")

    def test_ctrl_c(self):
        """The text so far and the statistics, then an end by the signal itself."""
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            process = start(*ENDLESS)
            first = process.stdout.read(1)
            process.send_signal(number)
            out, err = process.communicate()
            self.assertEqual(process.returncode, -number)
            self.assertTrue((first + out).endswith(b"\n"))
            (first + out).decode()  # no character is cut
            self.assertIn(b"tok/s", err)
            self.assertNotIn(b"hearth:", err)

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "there is no /proc here")
    def test_ctrl_c_with_json(self):
        process = start(*ENDLESS, "--json")
        self.wait_for_work(process)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertEqual(json.loads(out)["finish"], "interrupted")

    def test_ctrl_c_ends_a_shell_loop(self):
        """Which ends when its child died by the signal, whatever a status says."""
        loop = f'for i in 1 2; do "{HEARTH}" {" ".join(ENDLESS)}; echo; echo next; done'
        shell = subprocess.Popen(["bash", "-c", loop], stdout=-1, stderr=-1, bufsize=0, start_new_session=True)
        first = shell.stdout.read(1)
        os.killpg(shell.pid, signal.SIGINT)
        out, _ = shell.communicate()
        self.assertNotIn(b"next", first + out)
        self.assertEqual(shell.returncode, -signal.SIGINT)

    def wait_for_work(self, process):
        """Until the command has computed for a second: long past its first token."""
        ticks = 0
        while ticks < os.sysconf("SC_CLK_TCK") and process.poll() is None:
            time.sleep(0.01)
            with open(f"/proc/{process.pid}/stat") as stat:
                ticks = sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))

    def wait_for_handler(self, process):
        """Until the command has its own way with Ctrl-C."""
        caught = 0
        while not caught >> (signal.SIGINT - 1) & 1 and process.poll() is None:
            with open(f"/proc/{process.pid}/status") as status:
                fields = dict(line.split(":", 1) for line in status)
            caught = int(fields.get("SigCgt", "0"), 16)

    @unittest.skipUnless(os.path.exists("/proc/self/status"), "there is no /proc here")
    def test_ctrl_c_before_the_first_token(self):
        """Without a token there is no answer."""
        prompt = self.write("long.txt", "a b c d " * 100000)
        for more in [[], ["--json"]]:
            with open(prompt) as text:
                words = ["run", str(TINY), "--raw", *more]
                process = subprocess.Popen([HEARTH, *words], stdin=text, stdout=-1, stderr=-1)
            self.wait_for_handler(process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
            self.assertEqual((process.returncode, out), (-signal.SIGINT, b""))
            self.assertEqual(err, b"hearth: interrupted before the first token\n")

    def test_stopping_leaves_no_file(self):
        ids, out = self.write("ids", ",".join(["1"] * 20000)), self.folder / "out"
        out.mkdir()
        words = ["logits", TINY, "--ids", "-", "--out", out / "x.npy"]
        for number in signal.SIGINT, signal.SIGHUP:
            with open(ids) as text:
                _, err = self.interrupts(*words, when=lambda: os.listdir(out), number=number, stdin=text, preexec_fn=listen)
            self.assertIn("interrupted", err)
            self.assertEqual(os.listdir(out), [])

    def test_waiting_at_a_terminal(self):
        """Silence would look like a command that hangs."""
        for words, what in [(["run", TINY, "-n", "4"], "the prompt"), (["tokenize", TINY], "the text"),
                            (["detokenize", TINY], "token ids")]:  # fmt: skip
            master, slave = pty.openpty()
            os.write(master, b"7\n\x04")
            result = self.succeeds(*words, "--quiet", stdin=slave)
            os.close(slave)
            os.close(master)
            self.assertEqual(result.err, f"hearth: waiting for {what} on standard input; Ctrl-D ends it\n")

    def test_terminal_line_ends(self):
        """On a terminal the text of detokenize does not stick to the next prompt."""
        self.assertEqual(self.on_terminal("detokenize", TINY, "262")[0], b"hello\r\n")

    def test_thoughts_on_a_terminal(self):
        """Dimmed, and the colours end with them; without colours where nobody wants any."""
        path = self.tiny(template="{% for m in messages %}{{ m.content }}{% endfor %}<think>")
        for no_color, begin, end in [("", b"\x1b[2m", b"\x1b[0m\r\n"), ("1", b"", b"\r\n")]:
            shown, _ = self.on_terminal("run", path, "hello", "-n", "4", "--quiet", env={**os.environ, "NO_COLOR": no_color})
            self.assertTrue(shown.startswith(begin) and shown.endswith(end), shown)
            self.assertEqual(shown.count(b"\x1b"), 0 if no_color else 2)
            self.assertGreater(len(shown), len(begin) + len(end))


class Length(CommandTest):
    def test_the_context_limits_answers_on_a_terminal(self):
        words = ["run", TINY, "hello", "--raw", "--context", "300"]
        self.assertRegex(self.on_terminal(*words)[1], b"\nstopped after 29[0-9] tokens, as the context of 300 tokens is full")
        self.assertRegex(self.succeeds(*words).err, r"\nstopped after 256 tokens; --max-tokens raises the limit\n$")


class Help(CommandTest):
    def test_help(self):
        overview = self.succeeds("--help").text
        for command in ["run", "info", "discover", "tokenize", "detokenize", "logits", "eval", "bench", "doctor"]:
            self.assertIn(f"\n  {command} ", overview)
            result = self.succeeds(command, "--help")
            self.assertEqual(result.out, self.succeeds("help", command).out)
            self.assertIn("--threads" if command in ("run", "bench", "logits", "eval", "doctor") else "--json", result.text)
            self.assertEqual(result.err, "")

    def test_version(self):
        self.assertRegex(self.succeeds("--version").text, r"^hearth \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    unittest.main()
