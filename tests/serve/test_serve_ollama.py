"""Ollama's interface of `hearth serve`: its lines, its errors, its models."""

import re
import unittest

from support import TINY, PlainTest, variant

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$")
HELLO = [{"role": "user", "content": "Hello"}]


class Ollama(PlainTest):
    def chat(self, **body):
        return self.server.post("/api/chat", model="tiny", **{"messages": HELLO, **body})

    def generate(self, **body):
        return self.server.post("/api/generate", model="tiny", **{"prompt": "Hello", **body})

    def refused(self, reply, status, *says):
        self.assertEqual(reply.status, status, reply.text)
        self.assertEqual(list(reply.json), ["error"])
        for text in says:
            self.assertIn(text, reply.json["error"])

    # ---- streams and whole answers ----

    def test_stream_is_the_default(self):
        reply = self.chat(options={"num_predict": 5, "seed": 3})
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.fields["content-type"], "application/x-ndjson")
        *pieces, last = reply.lines
        for line in reply.lines:
            self.assertEqual(line["model"], "tiny")
            self.assertRegex(line["created_at"], TIME)
            self.assertEqual(line["message"]["role"], "assistant")
        self.assertTrue(pieces)
        self.assertTrue(all(not line["done"] for line in pieces))
        self.assertTrue(last["done"])
        self.assertEqual(last["done_reason"], "length")
        self.assertEqual(last["eval_count"], 5)
        self.assertGreater(last["prompt_eval_count"], 0)
        self.assertGreaterEqual(last["total_duration"], last["eval_duration"])
        for name in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"):
            self.assertIsInstance(last[name], int)

    def test_whole_answer_is_that_of_the_stream(self):
        options = {"num_predict": 12, "seed": 7}
        stream = self.chat(options=options)
        whole = self.chat(options=options, stream=False)
        self.assertEqual(whole.fields["content-type"], "application/json")
        self.assertEqual("".join(line["message"]["content"] for line in stream.lines), whole.json["message"]["content"])
        self.assertEqual(whole.json["done_reason"], "length")

    def test_generate(self):
        options = {"num_predict": 6, "seed": 1}
        stream, whole = self.generate(options=options), self.generate(options=options, stream=False)
        self.assertEqual("".join(line["response"] for line in stream.lines), whole.json["response"])
        self.assertEqual(stream.lines[-1]["context"], whole.json["context"])
        self.assertEqual(
            len(whole.json["context"]), whole.json["prompt_eval_count"] + whole.json["eval_count"]
        )

    def test_context_goes_on(self):
        first = self.generate(options={"num_predict": 4, "seed": 1}, stream=False).json
        second = self.generate(context=first["context"], options={"num_predict": 4, "seed": 1}, stream=False).json
        n = len(first["context"])
        self.assertEqual(second["context"][:n], first["context"])
        self.assertEqual(second["context"][n], first["context"][0])  # the turn's mark, which is this model's BOS
        self.assertEqual(second["prompt_eval_count"] + second["eval_count"], len(second["context"]))
        self.assertGreater(second["prompt_eval_count"], n)
        self.refused(self.generate(context=[-1]), 400, "context")
        self.refused(self.generate(context=[1 << 40]), 400, "context")
        self.refused(self.generate(context=["a", {}]), 400, "context")

    def test_raw_is_the_prompt_alone(self):
        raw = self.generate(raw=True, options={"num_predict": 2}, stream=False).json
        self.assertLess(raw["prompt_eval_count"], self.generate(options={"num_predict": 2}, stream=False).json["prompt_eval_count"])
        self.assertNotIn("context", raw)
        self.refused(self.generate(raw=True, system="x"), 400, "raw")

    def test_stop_ends_an_answer(self):
        text = self.chat(options={"num_predict": 20, "seed": 5}, stream=False).json["message"]["content"]
        end = text[3:5]
        reply = self.chat(options={"num_predict": 20, "seed": 5, "stop": [end]}, stream=False).json
        self.assertEqual(reply["done_reason"], "stop")
        self.assertEqual(reply["message"]["content"], text[: text.index(end)])

    def test_format(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
        reply = self.chat(format=schema, stream=False, options={"num_predict": 60, "seed": 2}).json
        self.assertIn(re.sub(r"\s", "", reply["message"]["content"]), ('{"ok":true}', '{"ok":false}'))
        self.assertEqual(reply["done_reason"], "stop")
        text = self.chat(format="json", stream=False, options={"num_predict": 40, "seed": 2, "temperature": 0}).json
        self.assertTrue(text["message"]["content"].lstrip().startswith("{"), text)
        self.refused(self.chat(format="xml"), 400, "format")
        self.refused(self.chat(format=3), 400, "format")

    def test_log_probabilities(self):
        reply = self.chat(logprobs=True, top_logprobs=2, options={"num_predict": 4, "seed": 2}, stream=False).json
        self.assertEqual(len(reply["logprobs"]), 4)
        self.assertEqual(len(reply["logprobs"][0]["top_logprobs"]), 2)
        lines = self.chat(logprobs=True, options={"num_predict": 4, "seed": 2}).lines
        self.assertEqual(sum(len(line.get("logprobs", [])) for line in lines), 4)
        self.refused(self.chat(top_logprobs=2), 400, "logprobs")

    # ---- what is refused ----

    def test_refusals(self):
        self.refused(self.server.post("/api/chat", model="none", messages=HELLO), 404, "none")
        self.refused(self.chat(messages=[{"role": "user", "content": "x", "images": ["AAAA"]}]), 400, "images")
        self.refused(self.chat(messages=[{"content": "x"}]), 400, "role")
        self.refused(self.chat(messages=["x"]), 400, "messages")
        self.refused(self.chat(messages={}), 400, "messages")
        self.refused(self.chat(messages=[{"role": "assistant", "tool_calls": [{}]}]), 400, "function")
        self.refused(self.chat(think=True), 400, "thinking")
        self.refused(self.chat(think="loud"), 400, "think")
        self.refused(self.chat(tools=[{"type": "function", "function": {"name": "f"}}]), 400, "tools")
        self.refused(self.chat(shift=True), 400, "shift")
        self.refused(self.generate(template="{{ .Prompt }}"), 400, "template")
        self.refused(self.generate(images=["AAAA"]), 400, "images")
        self.refused(self.generate(suffix="end"), 400, "insert")
        self.refused(self.server.request("POST", "/api/chat", b"{"), 400, "line 1, column 2")
        self.refused(self.server.request("POST", "/api/chat", []), 400, "object")

    def test_options(self):
        for name, value in [
            ("num_predict", -3), ("num_ctx", -1), ("num_ctx", 0), ("temperature", -1), ("top_k", -2), ("top_p", 2),
            ("repeat_last_n", -2), ("stop", 3), ("seed", "x"), ("mirostat", 1), ("typical_p", 0.5),
            ("penalize_newline", False),
        ]:  # fmt: skip
            self.refused(self.chat(options={name: value}), 400, name)
        self.refused(self.chat(options=[]), 400, "options")
        reply = self.chat(options={"num_predict": 1, "typical_p": 1, "mirostat": 0, "num_gpu": 5, "made_up": 1}, stream=False)
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.fields["x-ignored"], "options.made_up")
        reply = self.chat(options={"num_predict": 1, "num_ctx": 1 << 40}, stream=False)
        self.assertEqual(reply.fields["x-ignored"], "num_ctx")

    # ---- models ----

    def test_lists(self):
        (model,) = self.server.get("/api/tags").json["models"]
        self.assertEqual(model["name"], "tiny:latest")
        self.assertEqual(model["model"], "tiny:latest")
        self.assertEqual(model["size"], TINY.stat().st_size)
        self.assertRegex(model["digest"], "^[0-9a-f]{64}$")
        self.assertEqual(model["details"]["family"], "llama")
        self.assertEqual(self.server.request("HEAD", "/api/tags").status, 200)
        self.assertIn("version", self.server.get("/api/version").json)
        named = self.server.post("/api/chat", model="tiny:latest", messages=HELLO, stream=False, options={"num_predict": 1})
        self.assertEqual(named.json["model"], "tiny:latest")
        self.refused(self.server.post("/api/chat", model="tiny:other", messages=HELLO), 404)

    def test_show(self):
        shown = self.server.post("/api/show", model="tiny").json
        self.assertEqual(shown["model_info"]["general.architecture"], "llama")
        self.assertEqual(shown["model_info"]["llama.context_length"], 1 << 20)
        self.assertIsNone(shown["model_info"]["tokenizer.ggml.tokens"])
        self.assertEqual(shown["capabilities"], ["completion", "embedding"])
        self.assertIn("<|im_start|>", shown["template"])
        tokens = self.server.post("/api/show", name="tiny", verbose=True).json["model_info"]["tokenizer.ggml.tokens"]
        self.assertEqual(tokens[1], "<|im_start|>")
        self.refused(self.server.post("/api/show", model="none"), 404)
        self.refused(self.server.post("/api/show"), 400)

    def test_loading_and_unloading(self):
        for path, body in [("/api/chat", {"messages": []}), ("/api/generate", {})]:
            loaded = self.server.post(path, model="tiny", keep_alive="5m", **body).json
            self.assertEqual((loaded["done"], loaded["done_reason"]), (True, "load"))
            self.assertEqual(len(self.server.get("/api/ps").json["models"]), 1)
            unloaded = self.server.post(path, model="tiny", keep_alive=0, **body).json
            self.assertEqual((unloaded["done"], unloaded["done_reason"]), (True, "unload"))
            while self.server.get("/api/ps").json["models"]:
                pass
            self.server.post(path, model="tiny", keep_alive="0s", **body)
            self.assertEqual(self.server.get("/api/ps").json["models"], [], "a model was loaded to be unloaded")
        self.assertEqual(self.chat(keep_alive=-1, options={"num_predict": 1}).status, 200)
        self.assertEqual(self.chat(keep_alive=0, options={"num_predict": 1, "seed": 3}).lines[-1]["done_reason"], "length")
        while self.server.get("/api/ps").json["models"]:
            pass
        self.refused(self.chat(keep_alive="soon"), 400, "keep_alive")
        self.refused(self.server.post("/api/chat", model="none", messages=[], keep_alive=0), 404)

    def test_the_memory_of_a_model_is_what_it_uses(self):
        size = lambda: self.server.get("/api/ps").json["models"][0]["size"]  # noqa: E731
        self.chat(keep_alive=-1, options={"num_predict": 1})
        before = size()
        self.generate(prompt="a" * 3000, raw=True, stream=False, options={"num_predict": 1})
        after = size()
        self.assertLess(before, after)  # pages of its keys and values are kept
        self.assertLess(after, 64 << 20)  # the budget of keys and values alone is a part of the machine's memory

    def test_embeddings(self):
        reply = self.server.post("/api/embed", model="tiny", input=["Hello", "the world"]).json
        self.assertEqual(len(reply["embeddings"]), 2)
        for vector in reply["embeddings"]:
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=4)
        short = self.server.post("/api/embed", model="tiny", input="Hello", dimensions=4).json["embeddings"][0]
        self.assertEqual(len(short), 4)
        self.assertEqual(self.server.post("/api/embed", model="tiny", input="").json["embeddings"], [])
        self.assertEqual(len(self.server.post("/api/embeddings", model="tiny", prompt="Hello").json["embedding"]), 64)
        self.assertEqual(self.server.post("/api/embeddings", model="tiny").json["embedding"], [])
        self.refused(self.server.post("/api/embed", model="tiny", input=3), 400)
        self.refused(self.server.post("/api/embed", model="tiny", input=["Hello", ""]), 400, "input 1")
        self.refused(self.server.post("/api/embed", model="tiny", input="x", dimensions=-1), 400, "dimensions")

    def test_models_are_not_changed(self):
        self.refused(self.server.post("/api/pull", model="other"), 404, "hearth pull")
        self.assertEqual(self.server.post("/api/pull", model="tiny").json, {"status": "success"})
        for method, path in [("POST", "/api/create"), ("POST", "/api/copy"), ("POST", "/api/push"), ("DELETE", "/api/delete")]:
            self.refused(self.server.request(method, path, {"model": "tiny"}), 501)


# Writes tools, and thoughts when it is told to; refuses a result that is not of a call.
TOOLS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'tool' and (not m.tool_call_id or m.name != 'weather') %}{{ raise_exception('no call') }}{% endif %}"
    "{% for c in m.tool_calls or [] %}{% if c.function.arguments is not mapping %}{{ raise_exception('no object') }}{% endif %}"
    "<tool_call>{{ c.id }}</tool_call>{% endfor %}{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


class Tools(PlainTest):
    model = variant("tools.gguf", template=TOOLS)

    def test_history_of_calls(self):
        self.assertEqual(
            self.server.post("/api/show", model="tools").json["capabilities"],
            ["completion", "tools", "thinking", "embedding"],
        )
        call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"in": "x"}}}]}
        body = {"model": "tools", "stream": False, "options": {"num_predict": 2}, "tools": [TOOL]}
        for result in ({"tool_name": "weather"}, {}, {"tool_call_id": "call00000"}):
            messages = [*HELLO, call, {"role": "tool", "content": "sunny", **result}]
            reply = self.server.post("/api/chat", messages=messages, **body)
            self.assertEqual(reply.status, 200, reply.text)
        wrong = [*HELLO, call, {"role": "tool", "content": "sunny", "tool_name": "clock"}]
        self.assertIn("no call", self.server.post("/api/chat", messages=wrong, **body).json["error"])

    def test_marks_of_reasoning(self):
        for i, mark in enumerate(("<|channel|>analysis", "[THINK]", "</seed:think>", "<|START_THINKING|>", "")):
            server = self.serve(variant(f"marks{i}.gguf", template=f"{{{{ messages[0].content }}}}{{# {mark} #}}"))
            self.assertEqual("thinking" in server.post("/api/show", model=f"marks{i}").json["capabilities"], mark != "")

    def test_thinking_is_chosen(self):
        def tokens(**think):
            body = {"model": "tools", "messages": HELLO, "stream": False, "options": {"num_predict": 1}}
            return self.server.post("/api/chat", **body, **think).json["prompt_eval_count"]

        self.assertGreater(tokens(think=False), tokens())
        self.assertEqual(tokens(think=True), tokens())
        self.assertEqual(tokens(think="high"), tokens())


class SmallContext(PlainTest):
    options = ("--context", 96)

    def test_truncation_is_told(self):
        messages = [{"role": "user", "content": "hello the world " * 4}] * 6 + HELLO
        body = {"model": "tiny", "stream": False, "options": {"num_predict": 1}}
        self.assertEqual(self.server.post("/api/chat", messages=messages, **body).status, 400)
        reply = self.server.post("/api/chat", messages=messages, truncate=True, **body)
        self.assertEqual(reply.status, 200, reply.text)
        self.assertIn("oldest", reply.fields["x-ignored"])
        reply = self.server.post("/api/embed", model="tiny", input="a b c " * 100)
        self.assertEqual(reply.status, 200, reply.text)
        self.assertIn("input", reply.fields["x-ignored"])
        self.assertEqual(reply.json["prompt_eval_count"], 96)
        self.assertEqual(self.server.post("/api/embed", model="tiny", input="a b c " * 100, truncate=False).status, 400)

    def test_truncation_keeps_the_question_and_whole_exchanges(self):
        def ask(*messages, **more):
            return self.server.post("/api/chat", model="tiny", messages=messages, stream=False, options={"num_predict": 1}, **more)

        system, question = {"role": "system", "content": "be brief"}, {"role": "user", "content": "hello?"}
        earlier = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "that"}]
        exchange = [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]},
                    {"role": "tool", "content": "the world " * 4}, {"role": "tool", "content": "hello"}]  # fmt: skip
        reply = ask(system, *earlier, question, *exchange * 6, truncate=True)
        self.assertEqual(reply.status, 200, reply.text)
        left_out, rest = divmod(int(re.search(r"the (\d+) oldest", reply.fields["x-ignored"])[1]) - len(earlier), len(exchange))
        self.assertEqual((rest, left_out > 0), (0, True))
        kept = ask(system, question, *exchange * (6 - left_out))
        self.assertEqual(kept.json["prompt_eval_count"], reply.json["prompt_eval_count"])
        self.assertEqual(ask(system, question, *exchange * (7 - left_out)).status, 400)


if __name__ == "__main__":
    unittest.main()
