"""`hearth classify`, `hearth batch` and `hearth score`: files of prompts, and results that an interrupted command goes on with."""

import json
import os
import unittest

from support import TINY, CommandTest, hearth

PROMPTS = ["the world", "hello hello", "the hello of the world", "a", "hello"]
LABELS = ["hello", " the", "x"]


class Prompts(CommandTest):
    def file(self, lines, name="prompts.txt"):
        return self.write(name, "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))

    def lines(self, *words, status=0, **more):
        """The objects that a command writes."""
        return self.ends(status, *words, **more).lines

    def ends(self, status, *words, **more):
        result = hearth(*words, **more)
        self.assertEqual(result.status, status, result.err)
        return result


class Classify(Prompts):
    def test_labels(self):
        path = self.file(PROMPTS)
        found = self.lines("classify", TINY, "--prompts", path, "--labels", ",".join(LABELS), "--json")
        self.assertEqual([r["index"] for r in found], list(range(len(PROMPTS))))
        for r in found:
            self.assertEqual([x["label"] for x in r["labels"]], LABELS)
            self.assertAlmostEqual(sum(x["probability"] for x in r["labels"]), 1, places=6)
            best = max(r["labels"], key=lambda x: x["probability"])
            self.assertEqual(r["label"], best["label"])
        text = self.succeeds("classify", TINY, "--prompts", path, "--labels", ",".join(LABELS)).text.splitlines()
        for line, r in zip(text, found, strict=True):
            label, probability = line.split("\t")
            self.assertEqual(label, r["label"])
            self.assertAlmostEqual(float(probability), max(x["probability"] for x in r["labels"]), delta=1e-4)

    def test_the_token_is_that_of_run(self):
        found = self.lines("classify", TINY, "--prompts", self.file(PROMPTS), "--json")
        for prompt, r in zip(PROMPTS, found, strict=True):
            run = self.succeeds("run", TINY, prompt, "-n", 1, "--json").json
            self.assertEqual(r["text"], run["text"])
            self.assertLess(r["log_probability"], 0)
        raw = self.lines("classify", TINY, "--prompts", self.file(PROMPTS), "--json", "--raw")
        self.assertLess(raw[0]["prompt_tokens"], found[0]["prompt_tokens"])

    def test_standard_input(self):
        found = self.lines("classify", TINY, "--prompts", "-", "--json", stdin=b"the world\n\nhello\n")
        self.assertEqual(len(found), 2)
        self.assertEqual(len(self.succeeds("classify", TINY, "--prompts", "-", stdin=b"the world\n").text.splitlines()), 1)

    def test_mistakes(self):
        path = self.file(PROMPTS)
        self.fails(2, "classify", TINY, says="--prompts FILE is needed")
        self.fails(2, "classify", TINY, "--prompts", path, "--raw", "--system", "x", says="exclude each other")
        self.fails(1, "classify", TINY, "--prompts", self.folder / "none", says="cannot be read")
        self.fails(1, "classify", TINY, "--prompts", self.file(["", " "], "blank"), says="holds no prompt")
        self.fails(1, "classify", TINY, "--prompts", path, "--labels", "a,,b", says="label 1 is empty")
        self.fails(1, "classify", TINY, "--prompts", path, "--labels", "a,a", says='labels 0 and 1 are both "a"')


class Batch(Prompts):
    def test_answers_are_those_of_run(self):
        words = ["-n", 9, "--temperature", 1, "--seed", 4]
        found = self.lines("batch", TINY, "--prompts", self.file(PROMPTS), *words)
        for i, (prompt, r) in enumerate(zip(PROMPTS, found, strict=True)):
            run = self.succeeds("run", TINY, prompt, *words, "--json").json
            self.assertEqual((r["index"], r["text"], r["finish"]), (i, run["text"], run["finish"]))
            self.assertEqual(r["prompt_tokens"], run["metrics"]["prompt_tokens"])
            self.assertEqual(r["generated_tokens"], run["metrics"]["generated_tokens"])

    def test_lines_have_options(self):
        lines = [
            {"prompt": "hello", "max_tokens": 3, "id": "a", "temperature": 1.5, "top_k": 40, "top_p": 0.9, "min_p": 0.01,
             "repeat_penalty": 1.1, "repeat_window": 8, "seed": 3},
            {"messages": [{"role": "user", "content": "hello"}], "id": [1]},
            {"ids": [5, 6, 7], "n": 3, "temperature": 2, "ignore_eos": True},
            {"prompt": "hello", "stop": ["zz", "", "yy"], "seed": 2**64 - 1, "adapter": None},
        ]  # fmt: skip
        found = self.lines("batch", TINY, "--prompts", self.file(lines), "-n", 6)
        first = self.succeeds("run", TINY, "hello", "-n", 3, "--temperature", 1.5, "--top-k", 40, "--top-p", 0.9, "--min-p",
                              0.01, "--repeat-penalty", 1.1, "--repeat-window", 8, "--seed", 3, "--json")  # fmt: skip
        self.assertEqual(found[0]["text"], first.json["text"])
        self.assertEqual([r.get("id") for r in found], ["a", [1], None, None])
        run = self.succeeds("run", TINY, "hello", "-n", 6, "--json").json
        self.assertEqual((found[1]["text"], found[3]["text"]), (run["text"], run["text"]))
        self.assertEqual(len(found[2]["answers"]), 3)
        self.assertEqual([a["generated_tokens"] for a in found[2]["answers"]], [6, 6, 6])
        self.assertNotIn("text", found[2])

    def test_bad_lines_are_their_own_affair(self):
        lines = [
            {"prompt": "hello"}, "[1]", "{torn", {"prompt": "hello", "colour": 1}, {"id": 3}, {"prompt": "a", "ids": [1]},
            {"prompt": 3}, {"ids": "x"}, {"ids": [1, -1]}, {"ids": [1000000]}, {"prompt": "a", "max_tokens": 0},
            {"prompt": "a", "max_tokens": 1.5}, {"prompt": "a", "temperature": "hot"}, {"prompt": "a", "stop": [1]},
            {"prompt": "a", "adapter": "x"}, {"messages": [{"role": "king", "content": ""}]},
            '{"prompt": "a", "prompt": "b"}', {"ids": []}, {"prompt": "a", "n": 0}, {"prompt": "a", "ignore_eos": 1},
            {"prompt": "hello"},
        ]  # fmt: skip
        says = [
            None, "line 2, column 1: expected an object", "line 3, column 2: expected", 'unknown field "colour"', "expected one", "expected one", "no string",
            "no list", "no token id", "outside the vocabulary", "1 to 2147483647", "a whole number", "a number from 0 to 1000",
            "a text or a list of texts", "--adapter NAME=PATH", "king", "expected each member once", "empty", "1 to 256",
            "true or false", None,
        ]  # fmt: skip
        path = self.file(lines)
        result = self.ends(1, "batch", TINY, "--prompts", path, "-n", 3, "-q")
        found = result.lines
        for i, (r, text) in enumerate(zip(found, says, strict=True)):
            self.assertEqual(r["index"], i)
            self.assertIn(text, r["error"]) if text else self.assertIn("text", r)
        self.assertEqual(result.err, f"hearth: {len(lines) - 2} of {len(lines)} prompts failed; their results say why\n")

    def test_jsonl_is_never_text(self):
        """By its name or first brace; what JSON's readers differ in is read or is an error, but no prompt."""
        large = ["9223372036854775808", "-1e400", "1.50", "[1, 20000000000000000000]"]
        good = [f'{{"prompt": "a", "id": {number}}}' for number in large] + [r'{"prompt": "\ud800", "id": "\udc00"}']
        bad = ['{"prompt": NaN}', '{"prompt": "a", "id": 01}', '{"prompt": "a", "prompt": "a"}', '{"prompt": "a",}']
        rest = '{"prompt": "hello", "id": 7}\n'
        for i, line in enumerate(good + bad):
            for mark in "", "\ufeff":
                data = f"{mark}{line}\n{rest}".encode()
                result = hearth("classify", TINY, "--prompts", "-", "--json", "-q", stdin=data)
                first, second = result.text.splitlines()
                self.assertEqual(json.loads(second)["id"], 7)
                if i < len(large):
                    self.assertIn(f'"id":{large[i].replace(" ", "")},', first)
                elif i < len(good):
                    self.assertEqual(json.loads(first)["id"], "\ufffd")
                else:
                    self.assertRegex(json.loads(first)["error"], "^standard input: line 1, column [0-9]+: expected ")
                self.assertEqual("error" in first, i >= len(good))
        words = ["classify", TINY, "--prompts", "-", "--json"]
        self.assertEqual(self.lines(*words, stdin=b"hello\n"), self.lines(*words, stdin="\ufeffhello\n".encode()))
        path = self.file(["hello"], "plain.jsonl")
        self.assertIn("expected an object", self.lines("batch", TINY, "--prompts", path, "-q", status=1)[0]["error"])
        path.write_text(good[0] + "\n" + rest)
        words = ["batch", TINY, "--prompts", path, "-n", 2, "--out", self.folder / "out.jsonl", "-q"]
        self.succeeds(*words)
        self.succeeds(*words)  # the large id of the result is read, too

    def test_goes_on_where_it_was(self):
        prompts, out = self.file(PROMPTS * 3), self.folder / "out.jsonl"
        words = ["batch", TINY, "--prompts", prompts, "-n", 4, "--out", out]
        self.assertEqual(self.succeeds(*words).out, b"")
        whole = out.read_bytes()
        lines = whole.splitlines(keepends=True)
        for kept in [b"", lines[0], b"".join(lines[:7]) + lines[7][:-1], b"".join(lines[:9]) + b"{", whole]:
            out.write_bytes(kept)
            self.succeeds(*words)
            self.assertEqual(out.read_bytes(), whole)
        for foreign in [b"hello\n", lines[1], b"".join(lines) + lines[0], lines[0] + b"[]\n", b"\n"]:
            out.write_bytes(foreign)
            self.fails(1, *words, "-q", says="is no result of the 15 prompts")
            self.assertEqual(out.read_bytes(), foreign)

    def test_cache_file(self):
        """A later batch begins with what an earlier one kept, and answers the same; a file of another kind of cache is refused."""
        path, prompts = self.folder / "kept.cache", self.file(["hello world " * 60 + end for end in ("a", "b", "c")])
        words = ["batch", TINY, "--prompts", prompts, "-n", 4, "--cache-file", path]
        first = self.succeeds(*words).out
        size = path.stat().st_size
        self.assertGreater(size, 1000)
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.succeeds(*words).out, first)
        self.assertGreaterEqual(path.stat().st_size, size)
        self.fails(1, *words, "--kv", "f32", says="keys and values f16")
        path.write_bytes(path.read_bytes()[:-1])
        self.fails(1, *words, says="damaged")

    def test_what_is_done_is_not_done_again(self):
        out = self.folder / "out.jsonl"
        words = ["batch", TINY, "--prompts", self.file(PROMPTS), "-n", 4, "--out", out]
        self.succeeds(*words)
        kept = json.dumps({**json.loads(out.read_text().splitlines()[0]), "text": "from before"}) + "\n"
        out.write_text(kept)
        self.succeeds(*words)
        self.assertTrue(out.read_text().startswith(kept))
        self.assertEqual(len(out.read_text().splitlines()), len(PROMPTS))

    def test_results_of_other_runs_stay(self):
        """What results are of is in the first one: a difference is named, and --force begins anew."""
        prompts, out, model = self.file(PROMPTS), self.folder / "out.jsonl", self.folder / "other.gguf"
        self.succeeds("quantize", TINY, model, "--to", "Q4_0", "-q")
        how = ["--temperature", 1 / 3, "--logit-bias", "5=0.1"]
        words = ["--prompts", prompts, "-n", 4, "--out", out, *how]
        self.succeeds("batch", TINY, *words)
        whole = out.read_bytes()
        others = [
            (["batch", TINY, *words, "--temperature", 0], "with temperature 0.333333333, this command has 0.0"),
            (["batch", TINY, *words, "--system", "x"], 'with system null, this command has "x"'),
            (["batch", TINY, *words, "--stop", "x"], 'with stop [], this command has ["x"]'),
            (["batch", model, *words], "of another model"),
            (["batch", TINY, *words, "--prompts", self.file(PROMPTS[1:] + ["hello"], "others")], "of other prompts"),
            (["classify", TINY, "--prompts", prompts, "--out", out], "of another command"),
        ]
        for complete in True, False:
            for other, says in others:
                self.fails(1, *other, says=[f"{out} has results {says}", "--force"])
            self.assertEqual(out.read_bytes(), whole if complete else begun)
            begun = whole.splitlines(keepends=True)[0]
            out.write_bytes(begun)
        self.succeeds("batch", TINY, *words, "--threads", 1)
        self.assertEqual(out.read_bytes(), whole)
        out.write_bytes(b"".join(whole.splitlines(keepends=True)[1:]).replace(b'"index":1', b'"index":0', 1)[:-1])
        self.fails(1, "batch", TINY, *words, says=f"{out}: line 2 is no result")
        out.write_text('{"index":0,"text":"from before"}\n')
        self.fails(1, "batch", TINY, *words, says="without a record of their prompts and options")
        self.succeeds("batch", TINY, *words, "--force")
        self.assertEqual(out.read_bytes(), whole)
        words = ["--prompts", prompts, "--out", self.folder / "classes.jsonl"]
        self.succeeds("classify", TINY, *words, "--labels", "a,b")
        self.fails(1, "classify", TINY, *words, "--labels", "a,c", says='with labels "a,b", this command has "a,c"')

    def test_interruption_leaves_whole_results(self):
        prompts, out = self.file([f"hello {i}" for i in range(3000)]), self.folder / "out.jsonl"
        words = ["batch", TINY, "--prompts", prompts, "-n", 50, "--out", out, "-q"]
        _, error = self.interrupts(*words, when=lambda: out.exists() and out.read_bytes().count(b"\n") >= 3)
        data = out.read_bytes()
        self.assertIn("the same command goes on from there", error)
        self.assertTrue(data.endswith(b"\n"))
        found = [json.loads(line) for line in data.splitlines()]
        self.assertTrue(3 <= len(found) < 3000)
        self.assertEqual([r["index"] for r in found], list(range(len(found))))
        self.assertTrue(all("text" in r for r in found))

    def test_a_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            result = self.ends(1, "batch", TINY, "--prompts", self.file(PROMPTS), "-n", 2, "-q", stdout=full)
        self.assertIn("standard output cannot be written", result.err)


class Score(Prompts):
    def test_scores(self):
        lines = [{"prompt": p, "continuations": [" hello world", [5, 6]], "id": i} for i, p in enumerate(PROMPTS)]
        found = self.lines("score", TINY, "--prompts", self.file(lines), "--top", 3, "--raw")
        for i, r in enumerate(found):
            self.assertEqual((r["index"], r["id"]), (i, i))
            self.assertEqual([t["id"] for t in r["continuations"][1]["tokens"]][-2:], [5, 6])
            for c in r["continuations"]:
                self.assertAlmostEqual(c["log_probability"], sum(t["log_probability"] for t in c["tokens"]), places=5)
                for t in c["tokens"]:
                    self.assertEqual(len(t["top"]), 3)
                    self.assertEqual(sorted((-x for _, x in t["top"])), [-x for _, x in t["top"]])
                    self.assertGreaterEqual(t["top"][0][1], t["log_probability"])

    def test_bad_lines(self):
        lines = [{"prompt": "a"}, {"prompt": "a", "continuations": []}, {"prompt": "a", "continuations": [3]},
                 {"prompt": "a", "continuations": [""]}, {"prompt": "a", "continuations": [["x"]]}]  # fmt: skip
        says = ["must be a list", "must be a list", "neither a text", "adds no tokens", "no token id"]
        found = self.lines("score", TINY, "--prompts", self.file(lines), "-q", status=1)
        for r, text in zip(found, says, strict=True):
            self.assertIn(text, r["error"])


if __name__ == "__main__":
    unittest.main()
