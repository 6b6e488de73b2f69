"""hearth chat, through a pipe and through a pseudo-terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from support import HEARTH, TINY, CommandTest, hearth

CTRL_C, CTRL_D, ENTER = b"\x03", b"\x04", b"\r"
PASTE = b"\033[200~%s\033[201~"
PATIENCE = 60  # seconds until a test that hangs is given up


class Terminal:
    """The command on a pseudo-terminal of 100 columns."""

    def __init__(self, *words, cache, command="chat"):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        env = {**os.environ, "TERM": "xterm", "XDG_CACHE_HOME": str(cache), "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            [HEARTH, command, *map(str, words)], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # fmt: skip
        os.close(slave)
        self.seen = b""

    def read_until(self, pattern):
        """What came up to and with the pattern."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.seen)):
            if not select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"{pattern} did not come: {self.seen[-500:]}")
            try:
                more = os.read(self.master, 65536)
            except OSError:  # the other end is closed
                more = b""
            if not more:
                raise AssertionError(f"{pattern} did not come before the end: {self.seen[-500:]}")
            self.seen += more
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def type(self, keys):
        os.write(self.master, keys)

    def ready(self):
        """The prompt, behind what turns marks of pastes on."""
        before = self.read_until(rb"\x1b\[\?2004h[^>]*> ")
        deadline = time.monotonic() + PATIENCE
        while termios.tcgetattr(self.master)[3] & termios.ICANON:  # or Ctrl-D would be the kernel's
            if time.monotonic() > deadline:
                raise AssertionError("it does not read keys")
            time.sleep(0.001)
        return before

    def say(self, text):
        """Types a line, and returns what came until the next prompt."""
        self.type(text.encode() + ENTER)
        return self.ready()

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def finish(self):
        try:
            self.read_until(rb"(?!)")
        except AssertionError as end:
            if "before the end" not in str(end):
                raise
        return self.process.wait(PATIENCE)


def figures(text):
    """(computed, reused) of /stats."""
    return tuple(map(int, re.search(rb"(\d+) tokens computed, (\d+) reused", text).groups()))


class Chat(CommandTest):
    def terminal(self, *words, **more):
        t = Terminal(more.pop("model", TINY), "-q", *words, cache=self.folder)
        self.addCleanup(t.end)
        t.ready()
        return t

    def leave(self, t):
        t.type(CTRL_D)
        self.assertEqual(t.finish(), 0)

    def messages(self, name="c.json"):
        return json.loads((self.folder / name).read_text())["messages"]

    def saved(self, t):
        t.say(f"\x15/save {self.folder / 'c.json'}")  # Ctrl-U: in the place of what the line may hold
        return self.messages()

    def said(self, messages):
        return [m["content"] for m in messages if m["role"] == "user"]

    def pipe(self, lines, *words, status=0, **more):
        result = hearth("chat", more.pop("model", TINY), "-q", *words, stdin=lines.encode(),
                        env={"XDG_CACHE_HOME": str(self.folder)})  # fmt: skip
        self.assertEqual(result.status, status, result.err)
        return result


class OnATerminal(Chat):
    def test_turns_reuse_what_was_computed(self):
        t = self.terminal("-n", "8")
        t.say("hello")
        computed, reused = figures(t.say("/stats"))
        self.assertEqual(reused, 0)
        held = computed + 8
        for _ in range(2):
            t.say("the world")
            computed, reused = figures(t.say("/stats"))
            self.assertGreaterEqual(reused, held - 8)  # an answer may be encoded otherwise than it was written
            self.assertGreater(computed, 0)
            held = computed + reused + 8
        self.leave(t)

    def test_an_interrupted_answer_stays(self):
        t = self.terminal()
        t.type(b"hello" + ENTER)
        t.read_until(rb"\x1b\[\?2004l\r?\n?.{20}")  # it writes
        t.type(CTRL_C)
        t.ready()
        messages = self.saved(t)
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
        self.assertTrue(messages[1]["content"])
        t.say("/set max_tokens 5")
        t.say("and on")
        self.assertEqual(len(self.saved(t)), 4)
        t.say("/undo")
        self.assertEqual(self.saved(t), messages)
        self.leave(t)

    def test_ctrl_c_twice_leaves(self):
        t = self.terminal()
        t.type(b"hello" + ENTER)
        t.read_until(rb"\x1b\[\?2004l\r?\n?.{20}")
        t.process.send_signal(signal.SIGSTOP)  # so that the answer has not ended when the second comes
        t.process.send_signal(signal.SIGINT)
        t.process.send_signal(signal.SIGCONT)
        t.ready()
        t.type(CTRL_C)
        t.read_until(b"once more")
        t.ready()
        t.type(CTRL_C)
        self.assertEqual(t.finish(), 0)

    def test_ctrl_c_ends_a_search(self):
        t = self.terminal("-n", "4")
        t.say("hello")
        t.type(b"\x12")
        t.read_until(rb"bck:")
        t.type(b"h")
        t.read_until(b"hello")  # found, so that the key has been read
        t.type(CTRL_C)
        t.ready()
        t.say("again")
        self.assertEqual(self.said(self.saved(t)), ["hello", "again"])
        self.leave(t)

    def test_mistakes_fail_nothing(self):
        t = self.terminal("-n", "4")
        for line, says in [("/sav x", b"nearest is /save"), ("/load /nowhere", b"/nowhere"), ("/set x 1", b"cannot be set")]:
            self.assertIn(says, t.say(line))
        self.leave(t)

    def test_other_signals_end_it(self):
        t = self.terminal()
        t.process.send_signal(signal.SIGTERM)
        self.assertEqual(t.finish(), -signal.SIGTERM)

    def test_pasted_lines_are_one_message(self):
        t = self.terminal("-n", "4")
        t.type(PASTE % b"one\rtwo\r\rthree\r" + "änd".encode())
        t.say("")
        t.type(PASTE % b"one\r\ntwo\r\n\r\nthree\nfour\n")
        t.say("")
        t.type(PASTE % b"cut\0here and \xff here")
        t.say("")
        t.type(b'"""first' + ENTER)
        t.read_until(rb"\.\.\. ")
        t.type(b"second" + ENTER)
        t.read_until(rb"\.\.\. ")
        t.say('third"""')
        texts = self.said(self.saved(t))
        pasted = ["one\ntwo\n\nthreeänd", "one\ntwo\n\nthree\nfour", "cut\ufffdhere and \ufffd here"]
        self.assertEqual(texts, [*pasted, "first\nsecond\nthird"])

    def test_a_message_is_edited(self):
        t = self.terminal("-n", "6")
        t.say("hello the world")
        before = self.saved(t)
        t.say("/edit")
        t.say("")  # it is in the line again
        self.assertEqual(self.saved(t), before)
        t.say("/edit")
        t.say(" hello")
        self.assertEqual(self.saved(t)[0]["content"], "hello the world hello")

    def test_lines_are_remembered(self):
        t = self.terminal("-n", "4")
        t.say("the first")
        self.leave(t)
        path = self.folder / "hearth" / "chat-history"
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        t = self.terminal("-n", "4")
        t.type(b"\033[A")
        t.say("!")
        self.assertEqual(self.saved(t)[0]["content"], "the first!")
        t.say("/set nohistory")
        t.say("secret")
        t.type(CTRL_D)
        t.finish()
        self.assertNotIn("secret", path.read_text())

    def test_what_no_longer_fits_is_asked_about(self):
        t = self.terminal("-n", "20", "--context", "180")
        for i in range(2):
            t.say("hello the world hello")
        t.type(b"hello the world hello hello hello hello hello hello hello hello hello hello" + ENTER)
        t.read_until(rb"Forget the oldest exchange")
        t.type(b"n" + ENTER)
        t.ready()
        self.assertEqual(len(self.saved(t)), 4)
        t.type(b"\x15hello the world hello hello hello hello hello hello hello hello hello hello" + ENTER)
        while b"Forget" in t.read_until(rb"(Forget the oldest exchange[^?]*\?)|(\x1b\[\?2004h[^>]*> )"):
            t.type(b"y" + ENTER)
        messages = self.saved(t)
        self.assertLess(len(messages), 6)
        self.assertEqual(messages[-1]["role"], "assistant")


class InAPipe(Chat):
    def test_saved_conversations_go_on_with_the_same_text(self):
        path = self.folder / "c.json"
        how = ("-n", "12", "--temperature", "1", "--seed", "5")
        whole = self.pipe(f"/system the world\nhello\n/save {path}\nworld\n/save {path}2\n", *how)
        self.pipe(f"/load {path}\nworld\n/save {path}3\n", *how)
        self.pipe(f"world\n/save {path}4\n", *how, "--messages", path)
        ends = [(self.folder / f"c.json{i}").read_text() for i in (2, 3, 4)]
        self.assertEqual(ends, [ends[0]] * 3)
        messages = self.messages("c.json2")
        self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant", "user", "assistant"])
        answer = messages[-1]["content"]
        self.assertTrue(whole.text.rstrip("\n").endswith(answer.rstrip("\n")))
        run = hearth("run", TINY, "-q", "--messages", path, "world", *how)
        self.assertEqual(run.text.rstrip("\n"), answer.rstrip("\n"))

    def test_the_prompt_takes_what_is_piped(self):
        path = self.folder / "c.json"
        self.pipe("one\ntwo\n", "-n", "4", "said")
        text = hearth("chat", TINY, "-q", "-n", "4", "said", stdin=b"one\ntwo\n").text
        self.assertEqual(text, hearth("run", TINY, "-q", "-n", "4", "said\n\none\ntwo").text)
        self.pipe(f'"""a\nb"""\n//c\n\n/save {path}\n', "-n", "4")
        self.assertEqual(self.said(self.messages()), ["a\nb", "/c"])

    def test_answers_again(self):
        path = self.folder / "c.json"
        self.pipe(f"hello\n/save {path}1\n/regen\n/save {path}2\n/undo\n/save {path}3\n", "-n", "9", "--temperature", "2")
        first, again, none = (self.messages(f"c.json{i}") for i in (1, 2, 3))
        self.assertEqual(first[0], again[0])
        self.assertNotEqual(first[1], again[1])
        self.assertEqual(none, [])

    def test_files_go_with_a_message(self):
        path, note = self.folder / "c.json", self.write("note.txt", "\ufeffsome lines\n")
        self.pipe(f"/attach {note}\nwhat is it\nand\n/save {path}\n", "-n", "3")
        self.assertEqual(self.said(self.messages()), ["note.txt\n```\nsome lines\n```\n\nwhat is it", "and"])

    def test_what_is_no_text_is_replaced(self):
        path = self.folder / "c.json"
        result = hearth("chat", TINY, "-q", "-n", "3", stdin=b"a\0b\xff\r\n/save " + bytes(path) + b"\n")
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(self.messages()[0]["content"], "a\ufffdb\ufffd")
        said = hearth("chat", TINY, "-q", "-n", "3", "x", stdin=b"a\0b\xff\n")
        self.assertEqual(said.out, hearth("chat", TINY, "-q", "-n", "3", stdin='"""x\n\na\ufffdb\ufffd"""\n'.encode()).out)

    def test_paths_begin_at_home(self):
        self.write("note.txt", "some lines")
        result = hearth("chat", TINY, "-q", "-n", "3", env={"HOME": str(self.folder)},
                        stdin=b"/attach ~/note.txt\nhello\n/save ~/c.json\n/load ~/c.json\n/adapter a=~/none@2\n")  # fmt: skip
        self.assertIn(f"{self.folder}/none", result.err)
        self.assertIn("some lines", self.messages()[0]["content"])
        self.assertIn("2 messages", result.text)

    def test_mistakes_are_said(self):
        typed = {
            "/sav x": "/save", "/save": "needs the name", "/set temperature x": "from 0 to 1000", "/show me": "info",
            "/set temperatur 1": "temperature", "/regen": "nothing to answer", "/undo": "nothing to take back",
        }  # fmt: skip
        failed = [f"/{name} /nowhere/x" for name in ("load", "adapter", "attach", "save")]
        for line, says in [*typed.items(), *((line, "/nowhere/x") for line in failed)]:
            result = self.pipe(line + "\n", status=int(line in failed))  # which nobody has seen
            self.assertIn(says, result.err, line)
            self.assertEqual(result.err.count("\n"), 1, result.err)
        broken = self.folder / "broken.json"
        for text in ("", "7", '{"messages": 7}', '[{"role": "nobody", "content": "x"}]', "[{]"):
            broken.write_text(text)
            self.pipe(f"/load {broken}\n", status=1)
        self.assertIn("--set", self.pipe("/help\n", "--set", "x", status=1).err)
        result = self.pipe("hello hello hello hello\n", "--context", "10", status=1)
        self.assertIn("--sliding", result.err)

    def test_settings(self):
        text = self.pipe("/set\n/set num_predict 3\n/set parameter top_k 7\n/set system the world\n/set\n/show\n/system\n").text
        self.assertRegex(text, r"(?s)top_k +0.*top_k +7.*max_tokens +3.*positions.*the world")
        result = self.pipe("/set verbose\nhello\n", "-n", "3")
        self.assertIn("ttft", result.err)
        self.assertIn("/stats", self.pipe("/?\n").text)

    def test_nothing_is_for_a_terminal_alone(self):
        out = self.pipe("/help\n/set\n/show\n/tokens\n/stats\n").out
        self.assertNotIn(b"\033", out)
        self.assertNotIn(b"> ", out)  # no prompts
        answer = self.pipe("hello\n", "-n", "6").out
        self.assertEqual(answer, hearth("run", TINY, "-q", "-n", "6", "hello").out)

    def test_a_vocabulary_can_tell_the_format(self):
        self.assertIn("chatml", self.pipe("/show\n", model=self.tiny(template="")).text)


if __name__ == "__main__":
    unittest.main()
