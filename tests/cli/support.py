"""What the tests of the command share: the program, a tiny model, and running one with the other."""

import atexit
import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.append(str(pathlib.Path(__file__).parents[1] / "support"))
import tiny_model  # noqa: E402
from soak import cases, takes  # noqa: E402, F401

HEARTH = os.environ["HEARTH"]
os.environ.setdefault("HEARTH_DEVICE", "cpu")  # not what the machine happens to have
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="hearth-cli-"))
TINY = SCRATCH / "tiny.gguf"
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)
tiny_model.write(TINY)


class Result:
    def __init__(self, done):
        self.status = done.returncode
        self.out = done.stdout
        self.err = done.stderr.decode()
        self.text = done.stdout.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def lines(self):
        """The objects of JSON Lines."""
        return [json.loads(line) for line in self.text.splitlines()]


def hearth(*words, stdin=b"", env=None, **more):
    """Runs the command to its end; stdin is bytes, or a file that is passed on."""
    source = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    more.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run(
        [HEARTH, *map(str, words)], stderr=subprocess.PIPE, env={**os.environ, **(env or {})}, **source, **more
    )
    done.stdout = done.stdout or b""
    return Result(done)


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=SCRATCH))

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def tiny(self, name="model.gguf", **how):
        """A model that tiny_model.write makes."""
        tiny_model.write(self.folder / name, **how)
        return self.folder / name

    def commands(self):
        return re.findall(r"^  ([a-z]+) ", self.succeeds("--help").text, re.M)

    def options_of(self, command):
        """Names and values, "" for none, of the options that a command's help lists."""
        return re.findall(r"^  .{4}--([a-z0-9-]+)(?: (\S+))?(?:  .*)?$", self.succeeds(command, "--help").text, re.M)

    def succeeds(self, *words, **more):
        result = hearth(*words, **more)
        self.assertEqual(result.status, 0, f"{words}: {result.err}")
        return result

    def logits(self, model, *options):
        """Of a few ids, in the reference precision."""
        out = self.folder / "logits.npy"
        how = ["--ids", "1,5,9,2,7,3", "--precision", "reference", "--kv", "f32", "-q"]
        self.succeeds("logits", model, "--out", out, *how, *options)
        data = out.read_bytes()
        out.unlink()
        return memoryview(data[int.from_bytes(data[8:10], "little") + 10 :]).cast("f")

    def kills(self, *words, after, **more):
        """The command, unless it has ended after so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            hearth(*words, timeout=after, **more)

    def interrupts(self, *words, when, number=signal.SIGINT, **more):
        """What the command, which ends by a signal sent once `when` is true, has written to stdout and stderr."""
        process = subprocess.Popen([HEARTH, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        while process.poll() is None and not when():
            time.sleep(0.001)
        process.send_signal(number)
        out, err = process.communicate()
        self.assertEqual(process.returncode, -number, err)
        return out, err.decode()

    def on_terminal(self, *words, stderr=subprocess.PIPE, **more):
        """What a terminal shows of the command's stdout, and all that is on stderr if it is not the terminal, too."""
        master, slave = pty.openpty()
        stderr = slave if stderr is None else stderr
        done = subprocess.run([HEARTH, *map(str, words)], stdout=slave, stderr=stderr, check=True, **more)
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 1000):  # it comes in pieces
                shown += piece
        except OSError:  # the other end is closed
            pass
        os.close(master)
        return shown, done.stderr

    def fails(self, status, *words, says=(), **more):
        """The command ends with `status`, one line on stderr that holds every text of `says`, and nothing on stdout."""
        result = hearth(*words, **more)
        self.assertEqual(result.status, status, f"{words}: {result.out[:200]!r} {result.err}")
        self.assertEqual(result.out, b"")
        self.assertEqual(result.err.count("\n"), 1, result.err)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, result.err)
        return result
