"""llama-server's endpoints of `hearth serve`: completions in its form, gaps, embeddings, slots and their files."""

import unittest

from support import TINY, PlainServer, PlainTest, tiny_model, variant
from test_serve_run import write_adapter

LONG = "hello the world or hell " * 40


class Completions(PlainTest):
    def complete(self, **body):
        return self.server.post("/completion", **{"prompt": "hello", "n_predict": 6, "seed": 4, **body})

    def refused(self, reply, status, *says):
        self.assertEqual(reply.status, status, reply.text)
        for text in says:
            self.assertIn(text, reply.json["error"]["message"])

    def test_whole(self):
        reply = self.complete(return_tokens=True, n_probs=2).json
        self.assertEqual((reply["stop"], reply["stop_type"], reply["stopping_word"]), (True, "limit", ""))
        self.assertEqual(reply["tokens_predicted"], 6)
        self.assertEqual(len(reply["tokens"]), 6)
        self.assertEqual(reply["prompt"], "hello")
        self.assertEqual(reply["timings"]["predicted_n"], 6)
        self.assertEqual(reply["timings"]["prompt_n"] + reply["timings"]["cache_n"], reply["tokens_evaluated"])
        self.assertEqual(reply["generation_settings"]["n_predict"], 6)
        self.assertEqual(len(reply["completion_probabilities"]), 6)
        self.assertEqual(len(reply["completion_probabilities"][0]["top_logprobs"]), 2)
        self.assertEqual(self.server.post("/completions", prompt="hello", n_predict=6, seed=4).json["content"], reply["content"])

    def test_stream(self):
        whole, stream = self.complete().json, self.complete(stream=True)
        *pieces, last = stream.events
        self.assertTrue(all(not piece["stop"] for piece in pieces))
        self.assertTrue(last["stop"])
        self.assertEqual("".join(piece["content"] for piece in stream.events), whole["content"])
        self.assertEqual(last["tokens_predicted"], whole["tokens_predicted"])

    def test_stop(self):
        text = self.complete(n_predict=20).json["content"]
        reply = self.complete(n_predict=20, stop=["never there", text[4:6]]).json
        self.assertEqual((reply["stop_type"], reply["stopping_word"]), ("word", text[4:6]))
        self.assertEqual(reply["content"], text[: text.index(text[4:6])])

    def test_prompts(self):
        ids = self.server.post("/tokenize", content="hello world").json["tokens"]
        self.assertEqual(self.complete(prompt=ids).json["prompt"], "hello world")
        self.assertEqual(self.complete(prompt=[ids[0], " world"]).json["content"], self.complete(prompt=ids).json["content"])
        several = self.complete(prompt=["hello", ids]).json
        self.assertEqual([one["index"] for one in several], [0, 1])
        self.assertEqual(several[1]["content"], self.complete(prompt=ids).json["content"])
        self.assertEqual(len(self.complete(n=3).json), 3)
        for prompt in ("", [], {}, [-1], [1 << 31], [[]], [1.5], None, 7, [1, {}], [["a", None]]):
            self.refused(self.complete(prompt=prompt), 400, "prompt")

    def test_samplers_and_biases(self):
        greedy = self.complete(temperature=0).json["content"]
        self.assertEqual(self.complete(samplers=["top_k"], top_k=1).json["content"], greedy)
        settings = self.complete(samplers=["min_p", "dry", "temperature"]).json["generation_settings"]
        self.assertEqual(settings["samplers"], ["min_p", "temperature"])
        self.assertEqual(settings["top_k"], 0)
        token = self.complete(temperature=0, return_tokens=True).json["tokens"][0]
        for bias in ([[token, False]], [[token, -1e9]], {str(token): -100}):
            reply = self.complete(temperature=0, logit_bias=bias, return_tokens=True).json
            self.assertNotEqual(reply["tokens"][0], token)
        for bias in ([[1 << 40, 1]], [[-1, 1]], [[1]], [5], [[1, "x"]], "x"):
            self.refused(self.complete(logit_bias=bias), 400, "logit_bias")
        for samplers in (["made_up"], "kpt", [3], ["top_k", "top_k"]):
            self.refused(self.complete(samplers=samplers), 400, "samplers")

    def test_numbers_that_are_wrong(self):
        for name, value in [
            ("n_predict", -2), ("n", 0), ("n", 1 << 40), ("n", -1), ("n_discard", -1), ("n_keep", -9), ("n_probs", -1),
            ("n_probs", 1 << 33), ("temperature", -1), ("top_k", -5), ("seed", 1.5), ("repeat_last_n", -4),
            ("t_max_predict_ms", 10), ("xtc_probability", 0.5), ("mirostat", 2),
        ]:  # fmt: skip
            self.refused(self.complete(**{name: value}), 400, name)
        for name in ("lora", "image_data", "response_fields"):
            self.refused(self.complete(**{name: [1]}), 400, name)
        everything = {"typical_p": 1, "mirostat": 0, "dry_multiplier": 0, "xtc_probability": 0, "top_n_sigma": -1, "lora": []}
        self.assertEqual(self.complete(**everything).status, 200)
        self.refused(self.server.request("POST", "/completion", {}), 400, "prompt")

    def test_no_tokens_at_all_computes_the_prompt(self):
        """As a client warms the cache: nothing is generated, and what comes behind finds the prompt computed."""
        prompt = LONG + "beforehand"
        first = self.complete(prompt=prompt, n_predict=0).json
        self.assertEqual((first["content"], first["tokens_predicted"], first["stop_type"]), ("", 0, "limit"))
        self.assertEqual((first["timings"]["cache_n"], first["timings"]["prompt_n"]), (0, first["tokens_evaluated"]))
        self.assertGreater(first["timings"]["prompt_ms"], 0)
        again = self.complete(prompt=prompt, n_predict=0, stream=True).events
        self.assertEqual([event["stop"] for event in again], [True])
        for timings in again[0]["timings"], self.complete(prompt=prompt).json["timings"]:
            self.assertEqual((timings["cache_n"], timings["prompt_n"]), (first["tokens_evaluated"] - 1, 1))
        several = self.complete(prompt=["one", "three words here"], n_predict=0, n=2).json
        self.assertEqual([one["index"] for one in several], [0, 1, 2, 3])
        self.assertEqual(several[0]["tokens_evaluated"], several[1]["tokens_evaluated"])
        self.assertLess(several[1]["tokens_evaluated"], several[2]["tokens_evaluated"])
        self.refused(self.complete(prompt="", n_predict=0), 400, "prompt")

    def test_structure(self):
        self.assertIn(self.complete(grammar='root ::= "yes" | "no"').json["content"], ("yes", "no"))
        self.refused(self.complete(grammar="root ::= ("), 400, "grammar")

    def test_properties(self):
        props = self.server.get("/props").json
        self.assertEqual(props["total_slots"], 16)
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 1 << 20)
        self.assertEqual(props["bos_token"], "<|im_start|>")
        refused = self.server.post("/props", chat_template="x")
        self.assertEqual((refused.status, refused.fields["allow"]), (405, "GET, HEAD"))
        slots = self.server.get("/slots").json
        self.assertEqual([slot["id"] for slot in slots], list(range(16)))
        self.assertFalse(any(slot["is_processing"] for slot in slots))
        self.assertEqual(self.server.get("/slots?fail_on_no_slot=1").status, 200)
        self.assertEqual(self.server.get("/lora-adapters").json, [])
        self.refused(self.server.request("POST", "/lora-adapters", [{"id": 0, "scale": 0}]), 405, "--adapter")

    def test_embeddings(self):
        (one,) = self.server.post("/embedding", content="hello").json
        self.assertAlmostEqual(sum(x * x for x in one["embedding"][0]), 1, places=4)
        two = self.server.post("/embeddings", input=["hello", [4, 5]], embd_normalize=-1)
        self.assertEqual(two.status, 400)
        two = self.server.post("/embeddings", input=["hello", "world"], embd_normalize=-1).json
        self.assertEqual([entry["index"] for entry in two], [0, 1])
        self.refused(self.server.post("/embedding"), 400, "content")
        plain = two[0]["embedding"][0]
        for p in 1, 3, 40:
            got = self.server.post("/embedding", content="hello", embd_normalize=p).json[0]["embedding"][0]
            norm = sum(abs(x) ** p for x in plain) ** (1 / p)
            for x, y in zip(plain, got, strict=True):
                self.assertAlmostEqual(x / norm, y, places=4)
        got = self.server.post("/embedding", content="hello", embd_normalize=0).json[0]["embedding"][0]
        self.assertAlmostEqual(max(map(abs, got)), 32760, places=1)

    def test_embeddings_of_tokens(self):
        """A list for each token, which is not scaled unless a request says so."""
        tokens = len(self.server.post("/tokenize", content="hello the world", add_special=True).json["tokens"])
        last = self.server.post("/embedding", content="hello the world", pooling="last", embd_normalize=-1).json[0]["embedding"][0]
        (one,) = self.server.post("/embedding", content="hello the world", pooling="none").json
        self.assertEqual(len(one["embedding"]), tokens)
        self.assertEqual(one["embedding"][-1], last)
        (one,) = self.server.post("/embedding", content="hello the world", pooling="none", embd_normalize=2).json
        for row in one["embedding"]:
            self.assertAlmostEqual(sum(x * x for x in row), 1, places=4)
        self.refused(self.server.post("/v1/embeddings", input="a", pooling="none"), 400, "pooling")
        self.refused(self.server.post("/v1/embeddings", input="a", prompt_name="query"), 400, "no prompt `query`")
        self.refused(self.server.post("/embedding", content=[list(range(4, 7)) * 1000] * 3, pooling="none"), 400, "more than 8192 tokens")
        with PlainServer(variant("unpooled.gguf", more=[("llama.pooling_type", tiny_model.U32, 0)])) as server:
            self.assertEqual(server.post("/embedding", content="hello the world").json, self.server.post("/embedding", content="hello the world", pooling="none").json)
            self.refused(server.post("/v1/embeddings", input="a"), 400, "no pooling")
            self.assertEqual(server.post("/v1/embeddings", input="a", pooling="mean").status, 200)

    def test_gaps_need_marks(self):
        self.refused(self.server.post("/infill", input_prefix="a", input_suffix="b"), 400, "insert")
        self.refused(self.server.post("/infill", input_prefix="a"), 400, "input_suffix")
        self.refused(self.server.post("/v1/completions", prompt="a", suffix="b"), 400, "insert")
        for none in (None, ""):
            self.assertEqual(self.server.post("/v1/completions", prompt="a", suffix=none, max_tokens=2).status, 200)

    def test_slots_need_a_directory(self):
        self.refused(self.server.post("/slots/0?action=save", filename="a"), 501, "--slots-directory")


class Gaps(PlainTest):
    model = variant("gaps.gguf", special=["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"])

    def test_marks(self):
        body = {"input_prefix": "ab", "input_suffix": "yz", "n_predict": 2, "seed": 1}
        self.assertEqual(
            self.server.post("/infill", **body).json["prompt"], "<|fim_prefix|>ab<|fim_suffix|>yz<|fim_middle|>"
        )
        extra = [{"filename": "f.c", "text": "int f;"}]
        self.assertEqual(
            self.server.post("/infill", prompt="c", input_extra=extra, **body).json["prompt"],
            "<|repo_name|>project\n<|file_sep|>f.c\nint f;<|file_sep|>filename\n"
            "<|fim_prefix|>abc<|fim_suffix|>yz<|fim_middle|>",
        )
        # A mark that the text spells is text.
        spelt = self.server.post("/infill", **{**body, "input_prefix": "<|fim_middle|>"}).json
        self.assertGreater(spelt["tokens_evaluated"], 7)
        self.assertEqual(self.server.post("/infill", input_extra=[{}], **body).status, 400)
        reply = self.server.post("/api/generate", model="gaps", prompt="ab", suffix="yz", stream=False, options={"num_predict": 2})
        self.assertEqual(reply.json["prompt_eval_count"], 7)
        self.assertIn("insert", self.server.post("/api/show", model="gaps").json["capabilities"])

    def test_completions_before_a_suffix(self):
        complete = lambda **body: self.server.post("/v1/completions", max_tokens=8, temperature=0, ignore_eos=True, **body)  # noqa: E731
        filled = self.server.post("/infill", input_prefix="ab", input_suffix="yz", n_predict=8, temperature=0, ignore_eos=True).json
        reply = complete(prompt="ab", suffix="yz").json
        self.assertEqual(reply["choices"][0]["text"], filled["content"])
        self.assertEqual((reply["usage"]["prompt_tokens"], filled["tokens_evaluated"]), (7, 7))
        self.assertNotEqual(complete(prompt="ab").json["choices"][0]["text"], filled["content"])
        events = complete(prompt="ab", suffix="yz", stream=True).events
        self.assertEqual("".join(choice["text"] for event in events for choice in event["choices"]), filled["content"])
        several = complete(prompt=["ab", "", "abc"], suffix="yz", n=2, logprobs=1).json
        self.assertEqual([choice["index"] for choice in several["choices"]], [0, 1, 2, 3, 4, 5])
        self.assertEqual([choice["text"] for choice in several["choices"][:2]], [filled["content"]] * 2)
        self.assertEqual(several["usage"]["prompt_tokens"], 7 + 5 + 8)
        spelt = complete(prompt="<|fim_middle|>", suffix="yz").json  # a mark that the text spells is text
        self.assertGreater(spelt["usage"]["prompt_tokens"], 7)

        def refused(**member):
            reply = complete(**{"prompt": "ab", "suffix": "yz", **member})
            self.assertEqual((reply.status, reply.json["error"]["param"]), (400, *member), reply.json)

        for prompt in ([1, 2], [[1, 2]], ["a", [1]], ["a", 1]):
            refused(prompt=prompt)
            self.assertEqual(complete(prompt=prompt, suffix="").status, 200)
        refused(echo=True)
        refused(suffix=["yz"])


class Slots(PlainTest):
    model = None

    def setUp(self):
        super().setUp()
        self.start()

    def start(self, *options):
        self.server = self.serve(TINY, "--slots-directory", self.folder, *options)

    def act(self, action, name, slot="0"):
        return self.server.post(f"/slots/{slot}?action={action}", filename=name)

    def cached(self, **more):
        return self.server.post("/completion", prompt=LONG, n_predict=4, seed=1, **more).json["timings"]["cache_n"]

    def restart(self, *options):
        self.server.stop()
        self.start(*options)

    def test_what_is_saved_comes_back(self):
        self.assertEqual(self.cached(), 0)
        saved = self.act("save", "state.bin").json
        self.assertGreater(saved["n_saved"], 256)
        self.assertEqual(saved["n_written"], (self.folder / "state.bin").stat().st_size)
        self.restart()
        self.assertEqual(self.act("restore", "state.bin").json["n_restored"], saved["n_saved"])
        self.assertGreater(self.cached(), 256)

    def test_adapters(self):
        """What was computed with an adapter comes back with it, under any name; without it, it is skipped, and counted."""
        write_adapter(self.folder / "one", 1)
        write_adapter(self.folder / "two", 2)
        self.restart("--adapter", f"tuned={self.folder / 'one'}", "--adapter", f"other={self.folder / 'two'}@0.5")
        for model in ("tuned", "other"):
            self.assertEqual(self.cached(model=model), 0)
        saved = self.act("save", "state").json["n_saved"]
        self.restart("--adapter", f"renamed={self.folder / 'two'}@0.5", "--adapter", f"tuned={self.folder / 'one'}")
        restored = self.act("restore", "state").json
        self.assertEqual((restored["n_restored"], restored["n_skipped"]), (saved, 0))
        self.assertEqual(self.cached(), 0)
        for model in ("tuned", "renamed"):
            self.assertGreater(self.cached(model=model), 256)
        self.restart("--adapter", f"tuned={self.folder / 'one'}")
        restored = self.act("restore", "state").json
        self.assertEqual((restored["n_restored"], restored["n_skipped"]), (saved // 2, saved // 2))

    def test_empty(self):
        self.assertEqual(self.act("save", "empty").json["n_saved"], 0)
        self.assertEqual(self.act("restore", "empty").json["n_restored"], 0)
        self.assertEqual(self.cached(), 0)

    def test_names(self):
        for name in ("", ".", "..", ".hidden", "a/b", "../a", "/etc/passwd", "a\nb", "x" * 256, None, 3):
            self.assertEqual(self.act("save", name).status, 400, name)
        self.assertEqual(list(self.folder.iterdir()), [])
        (self.folder / "link").symlink_to(self.folder / "target")
        for action in ("save", "restore"):
            self.assertEqual(self.act(action, "link").status, 400)
        self.assertEqual(self.act("restore", "missing").status, 404)
        for slot in ("-1", "16", "x", "0x1", "99999999999999999999"):
            self.assertIn(self.act("save", "a", slot).status, (400, 404), slot)
        self.assertEqual(self.act("save", "a", "").status, 405)  # the list of slots, with a slash behind it
        self.assertEqual(self.act("explode", "a").status, 400)

    def test_what_is_erased_is_computed_again(self):
        self.assertEqual((self.cached(), self.cached() > 256), (0, True))
        kept = self.act("save", "kept").json["n_saved"]
        erased = self.server.request("POST", "/slots/3?action=erase").json  # no body, as its clients send none
        self.assertEqual(erased, {"id_slot": 3, "n_erased": kept})
        self.assertEqual(self.act("erase", "kept").json["n_erased"], 0)
        self.assertEqual(self.cached(), 0)
        self.assertEqual(self.server.request("POST", "/slots/16?action=erase").status, 400)
        self.act("erase", None)
        self.assertEqual(self.act("restore", "kept").json["n_restored"], kept)

    def test_damage(self):
        self.cached()
        self.act("save", "good")
        data = (self.folder / "good").read_bytes()
        self.restart()
        cuts = [data[:n] for n in (0, 7, 31, len(data) // 2, len(data) - 1)]
        flips = [data[:n] + bytes([data[n] ^ 0x80]) + data[n + 1 :] for n in range(0, len(data), max(1, len(data) // 60))]
        for damaged in cuts + flips + [b"x" * 4096]:
            (self.folder / "bad").write_bytes(damaged)
            reply = self.act("restore", "bad")
            self.assertEqual(reply.status, 400, reply.text)
            self.assertNotIn(str(self.folder), reply.json["error"]["message"])
        self.assertEqual(self.cached(), 0)
        self.assertEqual(self.act("restore", "good").status, 200)


class Sampling(unittest.TestCase):
    """Values that a request leaves out are the server's options, else the checkpoint's, else the library's, in every dialect."""

    SEED, HELLO = 5, [{"role": "user", "content": "hello"}]
    LIBRARY = {"temperature": 0.7, "top_k": 0, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1, "repeat_last_n": 64,
               "presence_penalty": 0, "frequency_penalty": 0, "n_predict": -1}  # fmt: skip

    def answers(self, server, **given):
        """Answers to a conversation, and to a text, of all dialects."""
        how, ollama = {"max_tokens": 12, "seed": self.SEED, **given}, {"options": {"num_predict": 12, "seed": self.SEED, **given}}
        chat = server.post("/v1/chat/completions", messages=self.HELLO, **how).json["choices"][0]["message"]["content"]
        message = server.post("/v1/messages", model="x", messages=self.HELLO, **how).json["content"][-1]["text"]
        responses = {"input": self.HELLO, "max_output_tokens": how.pop("max_tokens"), **how}
        output = server.post("/v1/responses", **responses).json["output"][-1]["content"][0]["text"]
        talk = server.post("/api/chat", model="x", messages=self.HELLO, stream=False, **ollama).json["message"]["content"]
        text = server.post("/v1/completions", prompt="hello", max_tokens=12, **how).json["choices"][0]["text"]
        completion = server.post("/completion", prompt="hello", n_predict=12, **how).json["content"]
        raw = server.post("/api/generate", model="x", prompt="hello", raw=True, stream=False, **ollama).json["response"]
        self.assertEqual({message, output, talk}, {chat})
        self.assertEqual({completion, raw}, {text})
        return chat, text

    def settings(self, server):
        got = server.get("/props").json["default_generation_settings"]
        self.assertEqual(got["sources"].keys() | {"n_predict"}, got["params"].keys())
        return got["params"], {name: source for name, source in got["sources"].items() if source != "default"}

    def test_one_rule(self):
        own = {"temp": 1.5, "top_k": 7, "penalty_repeat": 1.25}
        given = {"temperature": 1.5, "top_k": 7, "repeat_penalty": 1.25}
        plain = variant("plain.gguf", sampling={})
        found = {}
        for name, model, options, params in (
            ("library", plain, (), {}),
            ("file", variant("own.gguf", sampling=own), (), given),
            ("server", variant("own.gguf", sampling=own), ("--temperature", 0.3, "--top-k", 0), {**given, "temperature": 0.3, "top_k": 0}),
        ):  # fmt: skip
            with PlainServer(model, "--any-model", *map(str, options)) as server:
                found[name] = self.answers(server)
                self.assertEqual(self.answers(server, **params), found[name])
                self.assertEqual(self.answers(server, temperature=0, repeat_penalty=1), self.greedy(server))
                shown, sources = self.settings(server)
                self.assertEqual(shown, {**self.LIBRARY, **params})
                self.assertEqual(sources, {**dict.fromkeys(given if params else (), "GGUF metadata"),
                                           **dict.fromkeys((o[2:].replace("-", "_") for o in options[::2]), "server option")})  # fmt: skip
                told = server.post("/api/show", model="x").json["parameters"].split("\n")
                self.assertIn(f"temperature {params.get('temperature', 0.7)}", told)
                self.assertEqual("top_k 7" in told, params.get("top_k") == 7)
        self.assertEqual(len(set(found.values())), 3)

    def greedy(self, server):
        return self.answers(server, temperature=0, top_k=1, seed=9, repeat_penalty=1)


if __name__ == "__main__":
    unittest.main()
