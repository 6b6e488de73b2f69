"""hearth serve for long: many small requests by several clients at once, a tenth of them left in their middle, a twentieth malformed. Every answer
is right, and memory stays. 864 requests; scripts/soak makes up to a hundred times as many."""

import os
import pathlib
import random
import re
import unittest

from support import TINY, ServeTest, cases, together, until

N = cases(864, 86400)
CLIENTS = 8
PROMPTS = ["hello", "the world", "hell", "o world the", "a", "zz top", "the the the hello world", "worlds apart, hello"]
MALFORMED = [
    b"{", b"", b"null", b"[]", b"\xff\xfe", b'{"prompt": 5}', b'{"prompt": "a", "max_tokens": "b"}', b'{"prompt": "a", "temperature": -1}',
    b'{"prompt": [[]]}', b'{"prompt": [1e99]}', b'{"prompt": "a", "logit_bias": {"x": 1}}', b'{"prompt": "a", "n": 1000000000}',
    b'{"prompt": "a", "stop": [5]}', b"[" * 100000, b'{"prompt": "\\ud8"}', b'{"prompt": "a", "grammar": "root ::= ("}',
    b'{"prompt": "a", "regex": "("}', b'{"prompt": "a", "model": "absent"}', b'{"prompt": "a", "prompt": "b"}',
]  # fmt: skip


def question(i):
    """Some twenty different ones, each with one right answer."""
    i %= 24
    r = random.Random(i)
    return {
        "prompt": r.choice(PROMPTS), "max_tokens": r.randint(1, 8), "temperature": r.choice([0, 1]), "seed": i,
        **({"logprobs": 1} if i % 5 == 0 else {}), **({"regex": "[a-z]{1,4}"} if i % 7 == 0 else {}),
    }  # fmt: skip


class Endurance(ServeTest):
    def setUp(self):
        super().setUp()
        # Each of some forty threads would keep up to 240 KB of what it has freed, which fills over millions of requests.
        self.server = self.serve(TINY, env={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"})

    def memory(self):
        """KB, but for what is kept of prompts and answers: as much as the client who waits longest before he leaves has computed."""
        text = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) - self.server.metric("prefix_bytes") / 1024

    def leave(self, r, i):
        """Asks for a long stream, and goes before it has ended; sometimes before it has begun."""
        with self.server.begin("/v1/completions", {**question(i), "max_tokens": 4000, "stream": True, "ignore_eos": True}) as s:
            if r.random() < 0.7:
                s.recv(256)

    def one(self, r, i):
        kind = i % 20
        if kind == 0:
            status, _, answer = self.server.request("POST", "/v1/completions", r.choice(MALFORMED))
            self.assertIn(status, (400, 404), answer)
            self.assertIn("error", answer)
        elif kind in (1, 11):
            self.leave(r, i)
        elif kind % 2:
            choices = [e["choices"][0] for _, e in self.server.events("/v1/completions", {**question(i), "stream": True}) if e != "[DONE]"]
            text, finish = "".join(c["text"] for c in choices), choices[-1]["finish_reason"]
            self.assertEqual((text, finish), self.right[i % 24][:2])
        else:
            got = self.server.answer("/v1/completions", question(i))
            self.assertEqual(self.short(got), self.right[i % 24])

    @staticmethod
    def short(answer):
        choice = answer["choices"][0]
        return choice["text"], choice["finish_reason"], answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]

    def run_clients(self, first, n):
        failures = []

        def client(k):
            r = random.Random(k)
            try:
                for i in range(first + k, first + n, CLIENTS):
                    self.one(r, i)
            except BaseException as e:
                failures.append(e)

        together(client, range(CLIENTS))
        if failures:
            raise failures[0]

    def wait_quiet(self):
        """Those who have gone are noticed within a step."""
        until(lambda: self.server.metric("answers_running") + self.server.metric("answers_waiting") == 0)

    def test_answers_and_memory(self):
        self.right = {}
        for i in range(24):
            self.right[i] = self.short(self.server.answer("/v1/completions", {k: v for k, v in question(i).items() if k != "logprobs"}))
        self.run_clients(0, max(N // 4, 400))  # until caches are full
        self.wait_quiet()
        before = self.memory()
        self.run_clients(0, N)
        self.wait_quiet()
        after = self.memory()
        self.assertGreater(self.server.metric("cancelled_total"), N / 50)
        if N > 20000:  # a sanitizer keeps what is freed for a while
            self.assertLess(after, before * 1.01 + 1024)


if __name__ == "__main__":
    unittest.main()
