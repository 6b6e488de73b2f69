"""What the subcommands answer."""

import json
import os
import pathlib
import unittest

from files import Npy
from support import TINY, CommandTest, hearth, tiny_model

MODELS = os.environ.get("HEARTH_TEST_MODELS")


class Tokens(CommandTest):
    def test_tokenize(self):
        self.assertEqual(self.succeeds("tokenize", TINY, "hello world the").text, "262 267 269\n")

    def test_special_tokens(self):
        self.assertEqual(self.succeeds("tokenize", TINY, "<|im_end|>").text, "2\n")
        self.assertEqual(self.succeeds("tokenize", TINY, "").text, "\n")

    def test_standard_input(self):
        self.assertEqual(self.succeeds("tokenize", TINY, stdin=b"hello").text, "262\n")
        newline = tiny_model.byte_alphabet()[10]
        last = tiny_model.vocabulary().index(newline)
        self.assertEqual(self.succeeds("tokenize", TINY, stdin=b"hello\n").text, f"262 {last}\n")

    def test_null(self):
        for stdin in [b"hello\0\0the", b"hello\0\0the\0"]:
            lines = self.succeeds("tokenize", TINY, "--null", stdin=stdin).text.split("\n")
            self.assertEqual(len(lines), 4)
            self.assertEqual((lines[0], lines[1]), ("262", ""))
        self.assertEqual(self.succeeds("tokenize", TINY, "--null", stdin=b"").text, "")

    def test_json(self):
        value = self.succeeds("tokenize", TINY, "hello\n", "--json").json
        self.assertEqual(value["pieces"], ["hello", "Ċ"])
        self.assertEqual(value["ids"][0], 262)
        self.assertEqual(self.succeeds("detokenize", TINY, "262", "--json").json, {"text": "hello"})

    def test_round_trip(self):
        for text in ["hello world", "  two  spaces ", "tab\tnewline\n", "größer 北京 🎉\u200d", "<|im_start|>user"]:
            ids = self.succeeds("tokenize", TINY, "--", text).text.split()
            self.assertEqual(self.succeeds("detokenize", TINY, *ids).out.decode(), text)
            self.assertEqual(self.succeeds("detokenize", TINY, stdin=" ".join(ids).encode()).out.decode(), text)


class Run(CommandTest):
    def run_json(self, *words, **more):
        return self.succeeds("run", TINY, "--json", "--quiet", *words, **more).json

    def test_json(self):
        value = self.run_json("hello", "-n", "8")
        self.assertEqual(value["finish"], "length")
        self.assertEqual(value["metrics"]["generated_tokens"], 8)
        text = self.succeeds("run", TINY, "hello", "-n", "8", "--quiet").out.decode()
        self.assertEqual(value["text"], text if value["text"].endswith("\n") else text[:-1])

    def test_prompt_from_standard_input(self):
        self.assertEqual(self.run_json("hello", "-n", "8")["text"], self.run_json("-n", "8", stdin=b"hello\n")["text"])

    def test_chat_format(self):
        plain = self.run_json("hello", "-n", "1", "--raw")["metrics"]["prompt_tokens"]
        chat = self.run_json("hello", "-n", "1")["metrics"]["prompt_tokens"]
        system = self.run_json("hello", "-n", "1", "--system", "hello")["metrics"]["prompt_tokens"]
        self.assertEqual(plain, 1)
        self.assertLess(plain, chat)
        self.assertLess(chat, system)

    def test_chat_templates(self):
        """Whatever a template writes is the prompt; one that is broken or refuses is an error, not the format of its marks."""
        bare = self.tiny(template="{% for message in messages %}{{ message['content'] }}{% endfor %}")
        raw = self.run_json("hello", "-n", "8", "--raw")
        self.assertEqual(self.succeeds("run", bare, "hello", "-n", "8", "--json").json["text"], raw["text"])
        self.assertEqual(self.succeeds("info", bare, "--json").json["chat_format"], "template")
        for template, says in [
            ("<|im_start|>{{ message", "the chat template, line 1, column"),
            ("<|im_start|>{{ raise_exception('no chat today') }}", "no chat today"),
        ]:
            path = self.tiny(template=template)
            for more in [[], ["--system", "Be brief."], ["--json"]]:
                self.fails(1, "run", path, "hello", *more, says=says)
            value = self.succeeds("run", path, "hello", "-n", "8", "--raw", "--json").json
            self.assertEqual(value["text"], raw["text"])
        plain = self.tiny("plain.gguf", template=None)  # the format by the vocabulary
        self.assertEqual(self.succeeds("run", plain, "hello", "-n", "8", "--json").json["text"],
                         self.run_json("hello", "-n", "8")["text"])  # fmt: skip
        self.assertEqual(self.succeeds("info", plain, "--json").json["chat_format"], "chatml")

    def test_what_a_conversation_is_made_of(self):
        path = self.tiny(template="{{ messages | tojson }}{{ tools | tojson }}{{ mood }}")
        tools, talk = self.write("tools.json", '[{"name": "f"}]'), self.write("talk.json", '[{"role": "user", "content": "a"}]')
        whole = self.write("whole.json", '{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f"}]}')

        def tokens(*words):
            return self.succeeds("run", path, *words, "-n", "1", "--json", "--quiet").json["metrics"]["prompt_tokens"]

        def encoded(text):
            return len(self.succeeds("tokenize", path, text).text.split())

        self.assertEqual(tokens("--messages", talk, "--tools", tools, "--set", 'mood="good"'),
                         encoded('[{"role": "user", "content": "a"}][{"name": "f"}]good'))  # fmt: skip
        self.assertEqual(tokens("--messages", whole), encoded('[{"role": "user", "content": "a"}][{"name": "f"}]'))
        self.assertEqual(tokens("--messages", talk, "b"),
                         encoded('[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]null'))  # fmt: skip
        self.assertEqual(tokens("<|im_end|>", "--parse-special"), encoded('[{"role": "user", "content": "<|im_end|>"}]null'))
        self.assertGreater(tokens("<|im_end|>"), tokens("<|im_end|>", "--parse-special"))
        self.fails(1, "run", path, "b", "--messages", tools, says="the role of message 0 is missing")
        self.fails(1, "run", path, "b", "--set", "mood", says="expected NAME=JSON")
        self.fails(1, "run", path, "b", "--tools", self.folder / "none.json", says="none.json")
        self.fails(2, "run", path, "b", "--raw", "--tools", tools, says="--tools and --raw exclude each other")
        self.fails(2, "run", path, "b", "--system", "x", "--messages", talk, says="--system and --messages exclude each other")

    def test_thinking(self):
        template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is not defined or enable_thinking %}"
        path = self.tiny(template=template + "<think>{% endif %}")
        value = self.succeeds("run", path, "hello", "-n", "8", "--json").json
        self.assertEqual(value["text"], "")
        self.assertTrue(value["thinking"])
        result = self.succeeds("run", path, "hello", "-n", "8", "--quiet")
        self.assertEqual(result.out, b"")
        self.assertIn("the answer ended within its thinking", result.err)
        value = self.succeeds("run", path, "hello", "-n", "8", "--no-thinking", "--json").json
        self.assertEqual(value["text"], self.run_json("hello", "-n", "8", "--raw")["text"])
        self.assertNotIn("thinking", value)
        result = self.succeeds("run", TINY, "hello", "-n", "1", "--no-thinking")
        self.assertIn("no switch for thinking", result.err)
        self.assertNotIn("no switch", self.succeeds("run", path, "hello", "-n", "1", "--no-thinking").err)

    def test_same_seed_same_text(self):
        sampled = ["hello", "-n", "16", "--temperature", "1.5", "--seed"]
        first = self.run_json(*sampled, "7")["text"]
        self.assertEqual(first, self.run_json(*sampled, "7", "--threads", "1")["text"])
        self.assertNotEqual(first, self.run_json(*sampled, "8")["text"])
        self.assertNotEqual(*(self.run_json(*sampled, seed)["text"] for seed in (2**64 - 1, 2**64 - 2)))

    def test_repeat_window(self):
        """Of no tokens: no penalty, though 0 is the default window in C."""
        plain = self.run_json("hello", "-n", "40")["text"]
        penalty = ["hello", "-n", "40", "--repeat-penalty", "50"]
        self.assertNotEqual(plain, self.run_json(*penalty)["text"])
        self.assertEqual(plain, self.run_json(*penalty, "--repeat-window", "0")["text"])
        self.assertEqual(self.run_json(*penalty)["text"], self.run_json(*penalty, "--repeat-window", "64")["text"])

    def test_context_fills_up(self):
        words = ["run", TINY, "--raw", "hello", "--context", "8", "-n", "20", "--quiet"]
        result = self.succeeds(*words)
        self.assertEqual(result.err, "stopped after 7 tokens, as the context of 8 tokens is full; --context raises the limit, "
                                     "--sliding discards the oldest tokens and goes on\n")  # fmt: skip
        value = self.succeeds(*words, "--json").json
        self.assertEqual((value["finish"], value["metrics"]["generated_tokens"]), ("length", 7))
        self.assertEqual(value["text"] + "\n", result.text)
        self.assertEqual(self.succeeds(*words, "-n", "7").err, "")
        last = self.succeeds(*words[:-1], "-n", "1").err.splitlines()[-1]
        self.assertEqual(last, "stopped after 1 token; --max-tokens raises the limit")

    def test_guesses(self):
        """Guessing does not change the answer, and says how often it was right."""
        how = ["--temperature", "0.7", "--seed", "4", "-n", "40", "--raw"]
        plain = self.run_json("a b c a b c a b c a b", *how, "--no-lookup")
        for more in ([], ["--lookup"], ["--draft", TINY], ["--lookup", "--draft", TINY, "--draft-tokens", "3"]):
            guessed = self.run_json("a b c a b c a b c a b", *how, *more)
            self.assertEqual(guessed["text"], plain["text"])
            if "--draft" in more:
                self.assertGreater(guessed["metrics"]["accepted_tokens"], 0)
        self.assertEqual(plain["metrics"]["guessed_tokens"], 0)
        looping = ["hello", "-n", "200", "--repeat-penalty", "0.5", "--raw"]  # repeats what it wrote
        self.assertGreater(self.run_json(*looping, "--draft-tokens", "3")["metrics"]["accepted_tokens"], 0)
        self.assertEqual(self.run_json(*looping, "--no-lookup")["metrics"]["guessed_tokens"], 0)
        self.fails(2, "run", TINY, "hello", "--draft-tokens", "2", "--no-lookup", says="--no-lookup")
        self.fails(2, "run", TINY, "hello", "--lookup", "--no-lookup", says="--lookup and --no-lookup exclude each other")
        self.fails(2, "run", TINY, "hello", "--lookup", "--draft-tokens", "16", says="--draft-tokens")

    def test_bench_report(self):
        report = self.succeeds("bench", TINY, "--report", "-n", "8", "--json", "--prompt", "hello " * 40).json
        self.assertGreater(report["prefix_cache"]["hit_rate"], 0.9)
        self.assertGreater(report["state"]["bytes"], 0)
        self.assertEqual(set(report["probes"]["counts"].values()), {8})
        self.assertGreater(report["probes"]["overhead"], -1)
        passed = {c["name"]: c["passed"] for c in report["checks"]}
        self.assertTrue(passed["the same twice"] and passed["a restored state goes on"])
        self.assertFalse(passed["known continuations"])  # of a random model
        text = self.succeeds("bench", TINY, "--report", "-n", "8").out
        self.assertIn(b"FAILED         known continuations", text)

    def test_sliding(self):
        value = self.run_json("--raw", "hello", "--context", "8", "-n", "300", "--sliding")
        self.assertEqual((value["finish"], value["metrics"]["generated_tokens"]), ("length", 300))
        again = self.run_json("--raw", "hello", "--context", "8", "-n", "300", "--sliding", "--chunk", "1")
        self.assertEqual(again["text"], value["text"])

    def test_load_options(self):
        value = self.run_json("hello", "-n", "4", "--device", "cpu")
        self.assertEqual(value["metrics"]["generated_tokens"], 4)
        self.fails(1, "run", TINY, "hello", "--device", "abacus", says="abacus")
        self.fails(1, "run", TINY, "hello", "--adapter", "lora", says="lora")
        self.fails(2, "bench", TINY, "--slots", "0", says="--slots")

    def test_states(self):
        """Half an answer, and the other half from a saved state, are the answer; a prompt that goes on is not read again."""
        path, sampled = str(self.folder / "half.state"), ["--temperature", "1.2", "--seed", "5", "--quiet"]
        whole = self.run_json("--raw", "hello world", "-n", "16", *sampled)["text"]
        first = self.run_json("--raw", "hello world", "-n", "8", *sampled, "--save-state", path)["text"]
        second = self.run_json("--raw", "", "-n", "8", *sampled, "--load-state", path)["text"]
        self.assertEqual(first + second, whole)
        prompt = "hello world hello hello world"
        fresh = self.run_json("--raw", prompt, "-n", "4")
        for state in path, str(self.folder / "other.state"):  # both go on from another text
            again = self.run_json("--raw", prompt, "-n", "4", "--load-state", path, "--save-state", state)
            self.assertEqual(again["text"], fresh["text"])
            self.assertLess(again["metrics"]["prompt_tokens"], fresh["metrics"]["prompt_tokens"])
        chat = self.write("chat.json", '\ufeff[{"role": "user", "content": "hello"}]')  # as editors on Windows write it
        self.run_json("--messages", str(chat), "-n", "4", "--save-state", path)
        fresh = self.run_json("--messages", str(chat), "-n", "4")
        again = self.run_json("--messages", str(chat), "-n", "4", "--load-state", path)
        self.assertEqual(again["text"], fresh["text"])
        self.assertLess(again["metrics"]["prompt_tokens"], fresh["metrics"]["prompt_tokens"])
        self.fails(1, "run", TINY, "hello", "--load-state", path, "--kv", "f32", says="keys and values f16")
        self.fails(1, "run", TINY, "hello", "--load-state", str(chat), says="no state file")
        late = hearth("run", TINY, "hello", "-n", "1", "--save-state", str(self.folder / "no" / "where"))
        self.assertEqual((late.status, bool(late.out)), (1, True))  # the answer is out by then
        self.assertIn("where", late.err)

    def test_packed_cache(self):
        env = {"XDG_CACHE_HOME": str(self.folder)}
        place = self.folder / "hearth" / "packed"
        words = ["run", TINY, "hello", "-n", "4", "--quiet"]
        expected = self.succeeds(*words, env=env).text
        self.assertFalse(place.exists())
        self.assertEqual(self.succeeds(*words, "--packed-cache", env=env).text, expected)
        (kept,) = place.iterdir()
        inode = kept.stat().st_ino
        self.assertEqual(place.stat().st_mode & 0o777, 0o700)
        self.assertEqual(self.succeeds(*words, "--packed-cache", env=env).text, expected)
        self.assertEqual([path.stat().st_ino for path in place.iterdir()], [inode])
        place.chmod(0o755)
        self.fails(1, *words, "--packed-cache", env=env, says=[str(place), "chmod 700"])
        self.fails(1, *words, "--packed-cache", env={"XDG_CACHE_HOME": "", "HOME": ""}, says=["packed", "HOME"])


class Logits(CommandTest):
    ids = ",".join(str(i * 37 % 271) for i in range(70))

    def logits(self, *options):
        path = self.folder / "x.npy"
        self.succeeds("logits", TINY, "--ids", self.ids, "--out", path, "--force", *options)
        return Npy(path.read_bytes())

    def test_shape(self):
        found = self.logits()
        self.assertEqual(found.shape, (70, len(tiny_model.vocabulary())))
        self.assertGreater(max(found.values) - min(found.values), 0.1)
        self.assertTrue(all(abs(x) < 1e4 for x in found.values))

    def test_kv_types_are_close_and_differ(self):
        exact = self.logits("--kv", "f32").values
        for kv in ["f16", "bf16", "q8"]:
            other = self.logits("--kv", kv).values
            self.assertNotEqual(exact, other)
            for a, b in zip(exact, other):
                self.assertAlmostEqual(a, b, delta=0.2)

    def test_ids_from_standard_input(self):
        path = self.folder / "y.npy"
        self.succeeds("logits", TINY, "--ids", "-", "--out", path, stdin=self.ids.replace(",", "\n").encode())
        self.assertEqual(self.logits().values, Npy(path.read_bytes()).values)

    def test_json(self):
        path = self.folder / "x.npy"
        result = self.succeeds("logits", TINY, "--ids", "1,2", "--out", path, "--json")
        self.assertEqual(result.json, {"out": str(path), "shape": [2, len(tiny_model.vocabulary())]})


class Conversation(CommandTest):
    """One file of messages through all commands that read one."""

    MESSAGES = (r'[{"role": "developer", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "b\u0000\ud800"}, '
                r'{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}, '
                r'{"role": "tool", "content": "c"}, {"role": "assistant", "content": "d"}]')  # fmt: skip
    TEMPLATE = ("{% for m in messages %}[{{ m.role }}]{% if m.content is none %}{% for c in m.tool_calls %}"
                "{{ c.function.name + c.function.arguments }}{% endfor %}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}")  # fmt: skip

    def setUp(self):
        super().setUp()
        self.model, self.path = self.tiny("m.gguf", template=self.TEMPLATE), self.folder / "talk.jsonl"

    def commands(self):
        yield ["run", self.model, "--messages", self.path, "-n", 1, "-q"]
        yield ["template", self.model, "--messages", self.path]
        yield ["chat", self.model, "--messages", self.path, "-q"]
        yield ["batch", self.model, "--prompts", self.path, "-n", 1, "-q"]
        yield ["finetune", self.model, "--data", self.path, "--out", self.folder / "lora", "--iters", 1, "-q"]

    def test_what_is_read(self):
        self.path.write_text("\ufeff" + f'{{"messages": {self.MESSAGES}}}', encoding="utf-8")
        for words in self.commands():
            result = self.succeeds(*words)
            if words[0] == "template":
                self.assertEqual(result.text, "[system]a<|im_end|>[user]b\ufffd\ufffd<|im_end|>[assistant]f{}<|im_end|>"
                                              "[tool]c<|im_end|>[assistant]d<|im_end|>")  # fmt: skip

    def test_byte_order_marks(self):
        """Editors on Windows begin files with one."""
        run = ["run", self.model, "hello", "-n", 1, "-q"]
        for words, text in (
            ([*run, "--tools"], '[{"type": "function", "function": {"name": "f"}}]'),
            ([*run, "--schema"], '{"type": "boolean"}'),
            ([*run, "--grammar"], 'root ::= "a"'),
            (["finetune", "--config"], json.dumps({"data": "none.jsonl", "out": "none"})),
        ):
            self.path.write_text("\ufeff" + text, encoding="utf-8")
            if words[0] == "run":
                self.succeeds(*words, self.path)
            else:
                self.fails(1, words[0], self.model, words[1], self.path, says="none.jsonl")

    def test_what_is_refused(self):
        for text, says in (
            ('{"messages": [{"role": "user", "role": "user", "content": "a"}]}', "column 32: expected each member once"),
            ('{"messages": [{"role": "user", "content": "a",}]}', "column 47: expected "),
            ('{"messages": [{"role": "user", "content": 7}]}', "column 43: the content of message 0 is a number"),
            ('{"messages": [{"role": "king", "content": "a"}]}', "column 24: message 0 has the role"),
        ):
            self.path.write_text(text)
            found = []
            for words in self.commands():
                result = hearth(*words)
                self.assertEqual(result.status, 1)
                found.append(result.err if words[0] != "batch" else "hearth: " + result.json["error"] + "\n")
            self.assertIn(f"{self.path}: line 1, {says}", found[0])
            self.assertEqual(set(found), {found[0]})
        self.path.write_text(self.MESSAGES + ', "tools": []')
        for words in list(self.commands())[:3]:
            self.fails(1, *words, says=f"{self.path}: line 1, column ")


class Template(CommandTest):
    def test_model_and_file(self):
        talk = self.write("talk.json", '[{"role": "user", "content": "Größe"}]')
        text = "<|im_start|>user\nGröße<|im_end|>\n"
        opened = text + "<|im_start|>assistant\n"
        self.assertEqual(self.succeeds("template", TINY, "--messages", talk).text, opened)
        self.assertEqual(self.succeeds("template", TINY, "--messages", talk, "--no-generation-prompt").text, text)
        self.assertEqual(self.succeeds("template", TINY, "--messages", "-", "--json", stdin=talk.read_bytes()).json,
                         {"text": opened})  # fmt: skip
        template = self.write("t.jinja", "{{ mood }}{{ tools | length }}{{ messages[0].content }}{{ bos_token }}|")
        whole = self.write("whole.json", '{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"mood": "bad"}}')
        tools = self.write("tools.json", "[{}]")
        words = ["template", "--template", template, "--messages", whole, "--tools", tools]
        self.assertEqual(self.succeeds(*words).text, "bad1a|")
        self.assertEqual(self.succeeds(*words, "--set", 'mood="good"', "--set", 'bos_token="<s>"').text, "good1a<s>|")

    def test_prompt_of_run(self):
        template = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ tools | length if tools else 0 }}"
                    "{{ mood }}{{ enable_thinking }}")  # fmt: skip
        model, bare = self.tiny("m.gguf", template=template), self.tiny("bare.gguf", template=None)
        talk = self.write("talk.json", '[{"role": "developer", "content": [{"type": "text", "text": "a"}]}]')
        tools = self.write("tools.json", "[{}]")
        for words in (["--messages", talk, "--tools", tools, "--no-thinking"], ["--system", "b", "--set", 'mood="c"']):
            text = self.succeeds("template", model, "hello", *words).text
            n = len(self.succeeds("tokenize", model, text).text.split())
            run = self.succeeds("run", model, "hello", *words, "-n", "1", "--json", "-q").json
            self.assertEqual(run["metrics"]["prompt_tokens"], n)
            self.assertTrue(text.startswith("[system]"))
        self.assertEqual(text, "[system]b[user]hello0c")
        self.assertEqual(self.succeeds("template", bare, "a").text, self.succeeds("template", TINY, "a").text)

    def test_failures(self):
        talk = self.write("talk.json", '[{"role": "user", "content": "a"}]')
        bad = self.write("bad.jinja", "a\n  {{ b | nosuch }}")
        self.fails(1, "template", "--template", bad, "--messages", talk, says="bad.jinja, line 2, column ")
        self.fails(1, "template", TINY, "--messages", self.write("x.json", "[1,"), says="x.json")
        self.fails(1, "template", TINY, "--messages", talk, "--set", "x", says="expected NAME=JSON")
        self.fails(1, "template", TINY, "--messages", self.folder / "none", says="none")
        self.fails(2, "template", TINY, says="--messages is needed")
        self.fails(2, "template", TINY, "--template", bad, "--messages", talk, says="give MODEL or --template")
        endless = self.write("endless.jinja", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
        self.fails(1, "template", "--template", endless, "--messages", talk, says="the template takes more than")

    def test_answer(self):
        template = self.write("t.jinja", "{# <tool_call> #}{{ messages[0].content }}")
        answer = self.write("a.txt", "hm</think>So:<tool_call><function=f><parameter=a>1</parameter></function></tool_call>")
        tools = self.write("tools.json", '[{"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}]')
        talk = self.write("talk.json", '[{"role": "user", "content": "<think>"}]')
        words = ["template", "--template", template, "--answer", answer]
        whole = "hm</think>So:"
        self.assertEqual(self.succeeds(*words).json,
                         {"thinking": "", "text": whole, "tool_calls": [{"name": "f", "arguments": '{"a": 1}'}]})  # fmt: skip
        self.assertEqual(self.succeeds(*words, "--messages", talk, "--tools", tools).json,
                         {"thinking": "hm", "text": "So:", "tool_calls": [{"name": "f", "arguments": '{"a": "1"}'}]})  # fmt: skip
        whole = self.write("whole.json", '{"messages": [{"role": "user", "content": "<think>"}], "tools": ' + tools.read_text() + "}")
        self.assertEqual(self.succeeds(*words, "--messages", whole).json["tool_calls"][0]["arguments"], '{"a": "1"}')
        self.fails(1, *words, "--tools", self.write("bad.json", "{"), says="bad.json: line 1, column 2: ")


GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "tiny"


class Info(CommandTest):
    def test_json(self):
        value = self.succeeds("info", TINY, "--json").json
        expected = {
            "architecture": "llama",
            "name": "tiny",
            "format": "gguf",
            "quantization": "F32",
            "layers": 2,
            "hidden": 64,
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 16,
            "feed_forward": 96,
            "vocab": len(tiny_model.vocabulary()),
            "context": 1 << 20,
            "tokenizer": "byte-level BPE",
            "chat_format": "template",
            "kv_bytes_per_position": 2 * 2 * 2 * 16 * 2,
            "bits_per_weight": 32,
            "quantization_bits": 32,
            "quantization_group": 0,
            "sliding_layers": 0,
            "pooling": "",
            "experts": 0,
            "bos": 1,
            "eos": 2,
            "special_tokens": len(tiny_model.SPECIAL),
        }
        layer = {"type": "full", "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "state": 0, "experts": False}
        self.assertEqual(value["layer_types"], [{**layer, "kv_layer": i} for i in range(2)])
        (kind,) = value["tensor_types"]
        self.assertEqual((kind["type"], kind["tensors"]), ("F32", 2 + 9 * 2))
        self.assertEqual((kind["bytes"], kind["parameters"]), (value["weight_bytes"], value["parameters"]))
        self.assertEqual({key: value[key] for key in expected}, expected)

    def test_file_type(self):
        """What a GGUF calls itself, beside the type of most of its bytes."""
        for number, name, line in [(15, "Q4_K_M", "gguf, Q4_K_M, mostly F32"), (1024 + 17, "Q5_K_M", "gguf, Q5_K_M, mostly F32"),
                                   (0, "F32", "gguf, F32"), (5, "", "gguf, F32"), (4000, "", "gguf, F32"), (None, "", "gguf, F32")]:  # fmt: skip
            path = self.tiny(file_type=number)
            self.assertIn(f"format         {line}\n", self.succeeds("info", path).text)
            self.assertEqual(self.succeeds("info", path, "--json").json["file_type"], name)

    def test_memory(self):
        value = self.succeeds("info", TINY, "--json", "--context", "1000", "--kv", "f32").json
        self.assertEqual(value["kv_bytes"], 1024 * 4 * 2 * 2 * 2 * 16)  # whole pages of 256 positions
        self.assertEqual(value["total_bytes"], value["kv_bytes"] + value["memory_bytes"])

    def test_layers(self):
        text = self.succeeds("info", GOLDEN / "gemma4-shared-bf16").text
        self.assertIn("6: 2 x (2 sliding, 1 full)", text)
        self.assertIn("1 of 20 in full layers, 1 of 12 in sliding ones", text)
        self.assertIn("in the last 3 layers, with earlier ones", text)
        value = self.succeeds("info", GOLDEN / "gemma4-shared-bf16", "--json").json
        self.assertEqual([i["kv_layer"] for i in value["layer_types"]], [0, 1, 2, 1, 1, 2])
        self.assertEqual([i["type"] for i in value["layer_types"]], ["sliding", "sliding", "full"] * 2)
        self.assertIn("3: 2 sliding, 1 full", self.succeeds("info", GOLDEN / "gemma3-f32").text)
        mixed = self.succeeds("info", GOLDEN / "qwen3-moe-mixed-bf16").text
        self.assertIn("5: 3 full, 1 full with experts, 1 full", mixed)
        recurrent = GOLDEN.parent / "families" / "lfm2"
        self.assertIn("3: 1 recurrent, 1 full, 1 recurrent", self.succeeds("info", recurrent).text)
        layers = self.succeeds("info", recurrent, "--json").json["layer_types"]
        self.assertEqual([(i["type"], i["kv_heads"], i["state"]) for i in layers], [("recurrent", 0, 64), ("full", 2, 0), ("recurrent", 0, 64)])

    def test_directory_with_one_gguf(self):
        folder = self.write("model/tiny.gguf", TINY.read_bytes()).parent
        value = self.succeeds("info", folder, "--json").json
        self.assertEqual(value["architecture"], "llama")
        self.assertEqual(self.succeeds("tokenize", folder, "hello").text, "262\n")


class Bench(CommandTest):
    def test_json(self):
        value = self.succeeds("bench", TINY, "-p", "32", "-n", "16", "-t", "2", "-r", "3", "--depth", "40", "--json").json
        for key in "prefill_tokens_per_second", "decode_tokens_per_second", "time_to_first_token_ms", "peak_memory_bytes":
            self.assertGreater(value[key], 0)
        self.assertEqual((value["threads"], value["depth"], value["repetitions"]), (2, 40, 3))
        self.assertNotIn("parallel", value)

    def test_part_of_the_machine(self):
        """The tiny model is of f32, with 2 layers of these products and a head of its own size."""
        value = self.succeeds("bench", TINY, "-p", "32", "-n", "16", "-r", "2", "--json").json
        layers, head = 2 * 64 * (2 * 64 + 2 * 32 + 3 * 96), 64 * len(tiny_model.vocabulary())
        self.assertEqual(value["layer_products_per_token"], layers)
        self.assertEqual(value["head_products_per_token"], head)
        self.assertGreaterEqual(value["bytes_per_token"], 4 * (layers + head))
        self.assertEqual(value["arithmetic"], "f32")
        for key in ["read_bytes_per_second", "f32_ops_per_second", "decode_of_read_bandwidth", "prefill_of_peak"]:
            self.assertGreater(value[key], 0, key)
        self.assertIsNone(value["int8_ops_per_second"])
        alone = self.succeeds("bench", TINY, "-p", "0", "-n", "4", "-r", "1", "--json").json
        self.assertIsNone(alone["prefill_of_peak"])

    def test_a_checkpoint_without_a_tokenizer(self):
        value = self.succeeds("bench", GOLDEN / "qwen3-f32", "-p", "8", "-n", "8", "-r", "1", "--json").json
        self.assertGreater(value["decode_tokens_per_second"], 0)

    def test_several_at_once(self):
        words = ["bench", TINY, "-p", "0", "-n", "16", "-r", "2", "--parallel", "3", "--depth", "5"]
        value = self.succeeds(*words, "--json").json
        self.assertEqual(value["parallel"], 3)
        self.assertGreater(value["parallel_tokens_per_second"], 0)
        self.assertGreater(value["parallel_of_one"], 0)
        self.assertIn("3 together", self.succeeds(*words).text)

    def test_text(self):
        text = self.succeeds("bench", TINY, "-p", "8", "-n", "8", "-r", "2").text
        for word in ["prefill", "decode", "time to first token", "peak memory", "±"]:
            self.assertIn(word, text)


@unittest.skipUnless(MODELS, "HEARTH_TEST_MODELS names no directory of real models")
class RealModels(CommandTest):
    """Questions far from a tie, so that the precision does not decide the answer."""

    def test_answering_a_question(self):
        for name in ["smollm2-135m.gguf", "qwen2.5-coder-0.5b.gguf"]:
            for words in (), ("--temperature", "0"):
                result = self.succeeds("run", f"{MODELS}/{name}", "What is the capital of Germany?", "-n", "24", *words)
                self.assertIn("Berlin", result.text)

    def test_answers_end(self):
        value = self.succeeds("run", f"{MODELS}/smollm2-135m.gguf", "Write a haiku about rain.", "--json").json
        self.assertEqual(value["finish"], "stop")

    def test_continuing_a_text(self):
        path = f"{MODELS}/gemma3-270m.gguf"
        result = self.succeeds("run", path, "--raw", "one, two, three, four,", "-n", "8", "--temperature", "0")
        self.assertIn(" five, six, seven", result.text)

    def test_characters_of_byte_tokens(self):
        """They come one by one: a stop string ends the answer, and a token limit cuts one of them alone."""
        words = ["run", f"{MODELS}/gemma3-270m.gguf", "--raw", "𓀀𓀁𓀂𓀃", "--json", "--temperature", "0"]
        stopped = self.succeeds(*words, "-n", "40", "--stop", "𓀁").json
        self.assertEqual((stopped["finish"], stopped["metrics"]["generated_tokens"]), ("stop", 8))
        cut = self.succeeds(*words, "-n", "15").json["text"]
        self.assertRegex(cut, "^[\U00013000-\U0001342f]{3}\ufffd$")


if __name__ == "__main__":
    unittest.main()
