"""What the tests of the command share: the program, a tiny model, and running one with the other."""

import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
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


def hearth(*words, stdin=b"", env=None, **more):
    """Runs the command to its end; stdin is bytes, or a file that is passed on."""
    source = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    more.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run(
        [HEARTH, *map(str, words)], stderr=subprocess.PIPE, env={**os.environ, **(env or {})}, **source, **more
    )
    done.stdout = done.stdout or b""
    return Result(done)


def shown_on(master):
    """All that a terminal was given, which comes in pieces, once nobody writes to it any more; closes it."""
    shown = b""
    try:
        while piece := os.read(master, 1000):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(master)
    return shown


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=SCRATCH))

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

    def fails(self, status, *words, says=(), **more):
        """The command ends with `status`, one line on stderr that holds every text of `says`, and nothing on stdout."""
        result = hearth(*words, **more)
        self.assertEqual(result.status, status, f"{words}: {result.out[:200]!r} {result.err}")
        self.assertEqual(result.out, b"")
        self.assertEqual(result.err.count("\n"), 1, result.err)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, result.err)
        return result
