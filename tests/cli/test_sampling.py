"""Penalties, biases of logits and stops of the command: `run`, `chat` and `batch`."""

import json
import unittest

from support import TINY, CommandTest, hearth, tiny_model

RUN = ("run", TINY, "hello the world", "--raw", "--quiet", "--json", "-n", "24")


DEFAULTS = ("--temperature", "0.7", "--top-p", "0.95", "--min-p", "0.05", "--top-k", "0", "--repeat-penalty", "1", "--seed", "11")


class Defaults(CommandTest):
    """Values that a request leaves out are the checkpoint's, else the library's."""

    def model(self, sampling, beside=None):
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        tiny_model.write(folder / "m.gguf", sampling=sampling)
        if beside is not None:
            (folder / "generation_config.json").write_text(json.dumps(beside))
        return folder / "m.gguf"

    def text(self, model, *words):
        return self.succeeds("run", model, "hello the world", "--raw", "-q", "-n", "24", *words).text

    def values(self, model):
        """What differs from the defaults, and the sources of that."""
        found = self.succeeds("info", model, "--json").json["sampling"]
        plain = {"temperature": 0.7, "top_k": 0, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1, "repeat_window": 64,
                 "presence_penalty": 0, "frequency_penalty": 0}  # fmt: skip
        self.assertEqual(found.keys(), plain.keys())
        own = {name: one for name, one in found.items() if one["source"] != "default"}
        for name in found.keys() - own.keys():
            self.assertEqual(found[name]["value"], plain[name])
        return {name: one["value"] for name, one in own.items()}, {one["source"] for one in own.values()}

    def test_without_a_checkpoints_values(self):
        model = self.model({})
        self.assertEqual(self.values(model), ({}, set()))
        drawn = self.text(model)
        self.assertEqual(drawn, self.text(model, *DEFAULTS))
        self.assertNotEqual(drawn, self.text(model, "--seed", "0"))
        greedy = self.text(model, "--temperature", "0")
        self.assertNotEqual(drawn, greedy)
        self.assertEqual(greedy, self.text(TINY))
        self.assertIn("temperature 0.7, top_k 0, top_p 0.95, min_p 0.05 (default)", self.succeeds("info", model).text)
        prompts = self.write("p.jsonl", '{"prompt": "hello the world"}\n{"prompt": "hello the world", "temperature": 0}\n')
        found = self.succeeds("batch", model, "--prompts", prompts, "--raw", "-q", "-n", "24").lines
        self.assertEqual([line["text"] + "\n" for line in found], [drawn, greedy])

    def test_values_of_a_file(self):
        own = {"temp": 1.5, "top_k": 7, "min_p": 0.0, "penalty_repeat": 1.3, "penalty_last_n": 9}
        model, plain = self.model(own), self.model({})
        self.assertEqual(self.values(model), ({"temperature": 1.5, "top_k": 7, "min_p": 0, "repeat_penalty": 1.3,
                                               "repeat_window": 9}, {"GGUF metadata"}))  # fmt: skip
        words = ["--temperature", 1.5, "--top-k", 7, "--min-p", 0, "--repeat-penalty", 1.3, "--repeat-window", 9]
        drawn = self.text(model)
        self.assertEqual(drawn, self.text(plain, *words))
        # An explicit 0 is 0, and no "not given".
        for word in "--temperature", "--top-k", "--top-p", "--repeat-penalty", "--repeat-window":
            words_with = [*words, word, 0]
            self.assertEqual(self.text(model, word, 0), self.text(plain, *words_with), word)
        self.assertNotEqual(drawn, self.text(model, "--top-k", 0))

    def test_values_beside_a_file(self):
        config = {"do_sample": True, "temperature": 1.25, "top_p": None, "repetition_penalty": 1.2, "max_new_tokens": 5}
        sampled, greedy = self.model({}, config), self.model({}, {**config, "do_sample": False})
        expected = {"temperature": 1.25, "repeat_penalty": 1.2, "repeat_window": -1}
        self.assertEqual(self.values(sampled), (expected, {"generation_config.json"}))
        self.assertEqual(self.values(greedy)[0], {**expected, "temperature": 0})
        self.assertEqual(self.values(self.model({}, {"temperature": 0.3}))[0], {"temperature": 0.3})
        self.assertEqual(self.values(self.model({}, {"eos_token_id": 2})), ({}, set()))
        self.assertEqual(self.values(self.model({"top_k": 3}, config))[0], {"top_k": 3})  # the file's own go first, all of them
        words = "--repeat-penalty", 1.2, "--repeat-window", -1
        self.assertEqual(self.text(greedy), self.text(TINY, "--temperature", 0, *words))
        self.assertNotEqual(self.text(greedy), self.text(TINY))
        self.assertEqual(self.text(sampled), self.text(self.model({}), "--temperature", 1.25, *words))

    def test_wrong_values(self):
        for own, says in ({"top_p": 1.5}, "is 1.5, expected"), ({"temp": float("nan")}, "number"), ({"top_k": -2}, "is -2"):
            self.fails(1, "run", self.model(own), "a", says=(f"m.gguf: `general.sampling.{next(iter(own))}`", says))
        for own, says in ({"temperature": "abc"}, '"abc", expected a number'), ({"top_k": 1.5}, "1.5"), ({"min_p": -1}, "is -1"), (
            {"do_sample": 1}, "do_sample"), ({"temperature": float("nan")}, "temperature"):  # fmt: skip
            for command in ("run", "a"), ("info",):
                self.fails(1, command[0], self.model({}, own), *command[1:], says=("generation_config.json: `", says))

    def test_conversions_keep_them(self):
        model = self.model({"temp": 0.6, "top_k": 20, "top_p": 0.8, "penalty_repeat": 1.05, "penalty_last_n": -1})
        self.succeeds("convert", model, self.folder / "dir", "--to", "safetensors", "-q")
        config = json.loads((self.folder / "dir/generation_config.json").read_text())
        self.assertEqual((config["do_sample"], config["temperature"], config["top_k"], config["repetition_penalty"]), (True, 0.6, 20, 1.05))
        self.succeeds("convert", self.folder / "dir", self.folder / "again.gguf", "--to", "gguf", "-q")
        self.assertEqual(self.values(self.folder / "again.gguf")[0], self.values(model)[0])
        self.succeeds("convert", TINY, self.folder / "greedy", "--to", "safetensors", "-q")
        config = json.loads((self.folder / "greedy/generation_config.json").read_text())
        self.assertEqual((config["do_sample"], config.get("temperature")), (False, None))
        self.assertEqual(self.text(self.folder / "greedy"), self.text(TINY))

    def test_chat(self):
        model = self.model({"temp": 1.5, "top_k": 7})
        path = self.folder / "c.json"
        lines = "/set\n/set top_k 0\n/set\nhello\n" + "".join(f"/save {path}{i}\n/regen\n" for i in range(3)) + f"/save {path}3\n"
        said = self.succeeds("chat", model, "-q", "-n", "9", stdin=lines.encode()).text
        self.assertRegex(said, r"temperature +1.5\ntop_k +7\ntop_p +0.95\n(.*\n)*top_k +0\n")
        answers = [json.loads((self.folder / f"c.json{i}").read_text())["messages"][1]["content"] for i in range(4)]
        self.assertEqual(len(set(answers)), 4)
        for i, answer in enumerate(answers):  # the seed and so many
            alone = self.succeeds("run", model, "hello", "-n", "9", "-q", "--json", "--top-k", "0", "--seed", 11 + i)
            self.assertEqual(alone.json["text"], answer)
        same = hearth("chat", model, "-q", "-n", "3", "--temperature", "0", stdin=b"hello\n/regen\n")
        self.assertIn("temperature 0 gives the same answer", same.err)

    def test_measurements_are_greedy(self):
        model = self.model({"temp": 1.5, "penalty_repeat": 1.5})
        reports = [self.succeeds("bench", m, "--report", "-n", "8", "--json").json for m in (model, TINY)]
        details = [[check["detail"] for check in report["checks"]] for report in reports]
        self.assertEqual(*details)


class Sampling(CommandTest):
    def ids(self, *words):
        """The tokens that are drawn."""
        path = self.folder / "probes"
        self.succeeds(*RUN, *words, "--probe", "token", "--probe-out", path)
        return [json.loads(line)["token"] for line in path.read_text().splitlines()]

    def answer(self, *words):
        return self.succeeds(*RUN, *words).json

    def piece(self, token):
        return self.succeeds("detokenize", TINY, str(token)).text.removesuffix("\n")

    def test_biases(self):
        plain = self.ids()
        forbidden = plain[0]
        biased = self.ids("--logit-bias", f"{forbidden}=-100")
        self.assertNotIn(forbidden, biased)
        self.assertEqual(set(self.ids("--logit-bias=10=1e3")), {10})
        self.assertEqual(self.ids("--logit-bias", "10=1000", "--logit-bias", "10=0"), plain)  # the last one of a token
        self.assertEqual(set(self.ids("--logit-bias", "10=1000", "--logit-bias", "11=1100")), {11})

    def test_penalties(self):
        plain, once = self.ids(), self.ids("--presence-penalty", "1000", "-n", "16")
        self.assertLess(len(set(plain)), len(plain))
        self.assertEqual(len(set(once)), len(once))  # no token twice
        favoured = self.ids("--presence-penalty", "-1000")
        self.assertEqual(set(favoured), {plain[0]})  # nothing but what is there
        counted = self.ids("--frequency-penalty", "1000", "--logit-bias", "10=1500", "--logit-bias", "11=1500", "-n", "4")
        self.assertEqual(sorted(counted), [10, 10, 11, 11])

    def test_stops(self):
        plain = self.answer()
        self.assertNotIn("stop", plain)
        for stop in [["never", plain["text"][3:6]], [plain["text"][2:4]]]:
            words = [word for text in stop for word in ("--stop", text)]
            ended = self.answer(*words)
            self.assertEqual((ended["finish"], ended["stop"]), ("stop", stop[-1]))
            self.assertEqual(ended["text"], plain["text"][: plain["text"].index(stop[-1])])
            self.assertNotIn("stop_id", ended)
        end = self.succeeds("tokenize", TINY, "<|im_end|>", "--json").json["ids"][-1]
        ended = self.answer("--logit-bias", f"{end}=1000", "--stop", "x")
        self.assertEqual((ended["finish"], ended["stop_id"], ended["text"]), ("stop", end, ""))
        self.assertNotIn("stop", ended)

    def test_batch(self):
        lines = [
            {"logit_bias": {"10": 1000}},
            {},
            {"logit_bias": {"10": 1000, "11": 1100}},
            {"logit_bias": {"10": 1000, "11": 1000}, "presence_penalty": 400, "frequency_penalty": 100},
            {"logit_bias": {"10": 1000, "99999": 1}},
            {"logit_bias": {"x": 1}},
            {"logit_bias": [10]},
            {"presence_penalty": "1"},
        ]
        path = self.write("prompts.jsonl", "".join(json.dumps({"prompt": "hello", "max_tokens": 4, **line}) + "\n" for line in lines))
        command = ("batch", TINY, "--prompts", path, "--quiet", "--raw", "--logit-bias", "12=1000")
        done = hearth(*command)
        self.assertEqual(done.status, 1, done.err)
        found = done.lines
        self.assertEqual(found[0]["text"], 4 * self.piece(10))
        self.assertEqual(found[1]["text"], 4 * self.piece(12))
        self.assertEqual(found[2]["text"], 4 * self.piece(11))
        self.assertEqual(sorted(found[3]["text"]), sorted(2 * (self.piece(10) + self.piece(11))))
        for line, says in zip(
            found[4:],
            ["logit_bias of token 99999", '"logit_bias" must be an object', '"logit_bias" must be', "a number from -1000"],
            strict=True,
        ):
            self.assertIn(says, line["error"])

    def test_chat(self):
        said = self.succeeds(
            "chat", TINY, "-n", "3", "--quiet",
            stdin=b"/set logit_bias 10=1000  11=1020\n/set presence_penalty 50\n/set\nhello\n/set logit_bias none\n/set\n",
        ).text  # fmt: skip
        shown, rest = said.split("seed", 1)
        self.assertIn("10=1000", shown)
        self.assertIn("11=1020", shown)
        self.assertRegex(shown, r"presence_penalty +50\n")
        self.assertIn(self.piece(11) + self.piece(10) + self.piece(11), rest)
        self.assertNotIn("10=1000", rest)
        for line in "10", "", "10=x", "x=1", "10=1 11", "-1=2", "10=inf", "5000000000=1":
            refused = hearth("chat", TINY, "--quiet", stdin=f"/set logit_bias {line}\n".encode())
            self.assertIn("expected", refused.err, line)

    def test_usage(self):
        for word in "10", "=1", "10=", "10=x", "-1=1", "10=nan", "10=1e39", "5000000000=1", "1 0=1", "10=1 ":
            self.fails(2, *RUN, "--logit-bias", word, says="expected ID=BIAS")
        self.fails(1, *RUN, "--logit-bias", "99999=1", says="vocabulary has ids 0 to")
        self.fails(2, *RUN, "--presence-penalty", "nan", says="a number from -1000 to 1000")


if __name__ == "__main__":
    unittest.main()
