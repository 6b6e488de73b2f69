"""hearth serve from outside: OpenAI's interface, its members, its streams and its errors."""

import base64
import json
import struct
import subprocess
import unittest

from support import HEARTH, TINY, ServeTest

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


def chat(text="hello", **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **more}


def completion(prompt="hello", **more):
    return {"prompt": prompt, "max_tokens": 8, "temperature": 0, **more}


class Models(ServeTest):
    model, options = TINY, ("--alias", "other")

    def test_models_and_their_other_names(self):
        status, fields, listed = self.server.get("/v1/models")
        self.assertEqual((status, fields["content-type"], listed["object"]), (200, "application/json", "list"))
        self.assertEqual([model["id"] for model in listed["data"]], ["tiny", "other"])
        for model in listed["data"]:
            self.assertEqual(set(model), {"id", "object", "created", "owned_by", "capabilities"})
            self.assertEqual((model["object"], model["owned_by"]), ("model", "hearth"))
            self.assertEqual(model["created"], int(TINY.stat().st_mtime))
            self.assertEqual(self.server.get(f"/v1/models/{model['id']}")[2], model)
        self.refused(404, "/v1/models/absent", None, "model", '"absent"', "model_not_found", "GET")

    def test_health_and_metrics(self):
        self.assertEqual(self.server.get("/health")[::2], (200, {"status": "ok"}))
        before = self.server.metric("generated_tokens_total")
        self.ok(COMPLETIONS, completion(ignore_eos=True))
        self.assertEqual(self.server.metric("generated_tokens_total") - before, 8)


class Chat(ServeTest):
    model = TINY

    def test_the_shape_of_an_answer(self):
        status, fields, got = self.server.post(CHAT, chat(model="tiny", ignore_eos=True))
        self.assertEqual((status, fields["content-type"]), (200, "application/json"))
        self.assertEqual(set(got), {"id", "object", "created", "model", "choices", "usage"})
        self.assertRegex(got["id"], r"^chatcmpl-\w{24}$")
        self.assertEqual((got["object"], got["model"]), ("chat.completion", "tiny"))
        (choice,) = got["choices"]
        self.assertEqual(set(choice), {"index", "message", "logprobs", "finish_reason"})
        self.assertEqual((choice["index"], choice["logprobs"], choice["finish_reason"]), (0, None, "length"))
        self.assertEqual((choice["message"]["role"], choice["message"]["refusal"]), ("assistant", None))
        usage = got["usage"]
        prompt = self.ok("/apply-template", chat())["prompt"]
        self.assertEqual(usage["prompt_tokens"], len(self.ok("/tokenize", {"content": prompt})["tokens"]))
        self.assertEqual((usage["completion_tokens"], usage["total_tokens"]), (8, usage["prompt_tokens"] + 8))

    def test_a_stream_adds_up_to_the_answer(self):
        whole = self.ok(CHAT, chat(ignore_eos=True))
        events = list(self.server.events(CHAT, chat(ignore_eos=True, stream=True, stream_options={"include_usage": True})))
        self.assertEqual({name for name, _ in events}, {None})
        *chunks, done = [data for _, data in events]
        self.assertEqual(done, "[DONE]")
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
        self.assertEqual({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        *deltas, last = chunks
        self.assertEqual((last["choices"], last["usage"]["completion_tokens"]), ([], whole["usage"]["completion_tokens"]))
        self.assertEqual([chunk["usage"] for chunk in deltas], [None] * len(deltas))
        self.assertEqual(deltas[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual(deltas[-1]["choices"][0]["delta"], {})
        self.assertEqual([chunk["choices"][0]["finish_reason"] for chunk in deltas], [None] * (len(deltas) - 1) + ["length"])
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in deltas)
        self.assertEqual(text, whole["choices"][0]["message"]["content"])

    def test_usage_of_streams_only_when_asked(self):
        self.assertTrue(all("usage" not in data for _, data in self.server.events(CHAT, chat(stream=True)) if data != "[DONE]"))
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = [data for _, data in self.server.events(CHAT, chat(stream=True, ignore_eos=True, stream_options=options))][:-1]
        counts = [data["usage"]["completion_tokens"] for data in events]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], 8)
        self.assertGreater(len(set(counts)), 2)  # it grows on the way

    def test_usage_of_streams_knows_the_prompt(self):
        """Prompt tokens from the first chunk on, and cached ones from the first piece on, of each answer."""
        options = {"include_usage": True, "continuous_usage_stats": True}
        text = "usage of streams " * 30
        for path, body in [(CHAT, chat(text, n=2)), (COMPLETIONS, {"prompt": text, "max_tokens": 8, "temperature": 0, "n": 2})]:
            for again in (False, True):
                events = [data for _, data in self.server.events(path, {**body, "stream": True, "ignore_eos": True, "stream_options": options})][:-1]
                *chunks, last = [data["usage"] for data in events]
                prompt, cached = last["prompt_tokens"], last["prompt_tokens_details"]["cached_tokens"]
                self.assertEqual({usage["prompt_tokens"] for usage in chunks}, {prompt})
                if again:
                    self.assertGreater(cached, prompt - 10)
                    known = [usage["prompt_tokens_details"]["cached_tokens"] for usage in chunks if usage["completion_tokens"]]
                    self.assertEqual((len(known) > 2, set(known)), (True, {cached}))

    def test_several_answers(self):
        body = chat(n=3, temperature=1, seed=5, ignore_eos=True)
        got = self.ok(CHAT, body)
        self.assertEqual([choice["index"] for choice in got["choices"]], [0, 1, 2])
        texts = [choice["message"]["content"] for choice in got["choices"]]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(got["usage"]["completion_tokens"], 24)
        streamed = ["", "", ""]
        for _, data in self.server.events(CHAT, {**body, "stream": True}):
            for choice in [] if data == "[DONE]" else data["choices"]:
                streamed[choice["index"]] += choice["delta"].get("content", "")
        self.assertEqual(streamed, texts)

    def test_a_seed_gives_the_answer_again(self):
        status, fields, first = self.server.post(CHAT, chat(temperature=1, ignore_eos=True))
        text = lambda got: got["choices"][0]["message"]["content"]
        again = self.ok(CHAT, chat(temperature=1, ignore_eos=True, seed=int(fields["x-seed"])))
        self.assertEqual(text(again), text(first))
        others = {text(self.ok(CHAT, chat(temperature=1, ignore_eos=True))) for _ in range(4)}
        self.assertGreater(len(others), 1)
        self.assertEqual(self.server.post(CHAT, chat(seed=17))[1]["x-seed"], "17")

    def test_log_probabilities(self):
        got = self.ok(CHAT, chat(logprobs=True, top_logprobs=3, ignore_eos=True))
        choice = got["choices"][0]
        content = choice["logprobs"]["content"]
        self.assertEqual(len(content), 8)
        self.assertEqual(bytes(sum((token["bytes"] for token in content), [])).decode(errors="replace"), choice["message"]["content"])
        for token in content:
            self.assertEqual(set(token), {"token", "logprob", "bytes", "top_logprobs"})
            self.assertEqual(len(token["top_logprobs"]), 3)
            # At temperature 0 the likeliest is taken.
            self.assertEqual(token["top_logprobs"][0]["logprob"], token["logprob"])
        streamed = []
        for _, data in self.server.events(CHAT, chat(logprobs=True, top_logprobs=3, ignore_eos=True, stream=True)):
            if data != "[DONE]" and data["choices"][0]["logprobs"]:
                streamed += data["choices"][0]["logprobs"]["content"]
        self.assertEqual(streamed, content)

    def test_biases(self):
        got = self.ok(CHAT, chat(logit_bias={"262": 100}, max_tokens=3))
        self.assertEqual(got["choices"][0]["message"]["content"], "hello" * 3)
        plain = self.ok(COMPLETIONS, completion(max_tokens=1, logprobs=0))["choices"][0]["text"]
        (token,) = self.ok("/tokenize", {"content": plain})["tokens"]
        self.assertNotEqual(self.ok(COMPLETIONS, completion(max_tokens=1, logit_bias={str(token): -100}))["choices"][0]["text"], plain)

    def test_roles_and_parts_of_contents(self):
        texts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
        prompt = lambda *messages: self.ok("/apply-template", {"messages": messages})["prompt"]
        self.assertIn("hello", prompt({"role": "user", "content": texts}).replace("\n", ""))
        self.assertIn("<|im_start|>system\nbrief", prompt({"role": "developer", "content": "brief"}, {"role": "user", "content": "x"}))

    def test_answers_that_are_held_to_something(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"enum": ["a", "b"]}}, "required": ["n", "s"], "additionalProperties": False}
        for wanted in [
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}},
            {"json_schema": schema},
            {"guided_json": schema},
            {"structured_outputs": {"json": schema}},
        ]:
            with self.subTest(wanted):
                # Numbers of a random model are long, and its white space is, too.
                got = self.ok(CHAT, chat(max_tokens=4000, temperature=1, seed=3, **wanted))["choices"][0]
                self.assertEqual(got["finish_reason"], "stop")
                value = json.loads(got["message"]["content"])
                self.assertIs(type(value["n"]), int)
                self.assertIn(value["s"], ["a", "b"])
        got = self.ok(CHAT, chat(max_tokens=4000, temperature=1, seed=3, response_format={"type": "json_object"}))["choices"][0]
        if got["finish_reason"] == "stop":
            self.assertIs(type(json.loads(got["message"]["content"])), dict)
        for wanted, pattern in [({"guided_regex": "[ab]{5}"}, "[ab]{5}"), ({"guided_choice": ["yes", "no"]}, "yes|no"), ({"grammar": 'root ::= "x" [0-9]'}, "x[0-9]")]:
            self.assertRegex(self.ok(CHAT, chat(**wanted))["choices"][0]["message"]["content"], f"^({pattern})$")
        self.assertEqual(self.ok(CHAT, chat(response_format={"type": "text"}))["choices"], self.ok(CHAT, chat())["choices"])

    def test_schemas_that_cannot_be_followed(self):
        for bad, says in [
            ({"type": "json_schema", "json_schema": {"schema": {"type": "strang"}}}, "strang"),
            ({"type": "json_schema"}, "schema"),
            ({"type": "yaml"}, '"json_schema"'),
        ]:
            got, _, answer = self.server.post(CHAT, chat(response_format=bad))
            self.assertEqual(got, 400, answer)
            self.assertIn(says, answer["error"]["message"] + (answer["error"]["param"] or ""))

    def test_stops(self):
        text = self.ok(CHAT, chat(logit_bias={"262": 100}, max_tokens=5))["choices"][0]["message"]["content"]
        self.assertEqual(text, "hello" * 5)
        for stop, expected in [("oh", "hell"), (["never", "lohe"], "hel"), ("x", text)]:
            got = self.ok(CHAT, chat(logit_bias={"262": 100}, max_tokens=5, stop=stop))["choices"][0]
            self.assertEqual((got["message"]["content"], got["finish_reason"]), (expected, "length" if expected == text else "stop"))
            streamed = "".join(d["choices"][0]["delta"].get("content", "") for _, d in
                               self.server.events(CHAT, chat(logit_bias={"262": 100}, max_tokens=5, stop=stop, stream=True)) if d != "[DONE]")
            self.assertEqual(streamed, expected)


class Completions(ServeTest):
    model = TINY

    def scores(self, prompt):
        """What `hearth score` says about the tokens after the first."""
        file = self.folder / "prompts.jsonl"
        file.write_text(json.dumps({"ids": prompt[:1], "continuations": [prompt[1:]]}) + "\n")
        done = subprocess.run([HEARTH, "score", self.model, "--prompts", file, "--top", "2"], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def test_the_shape_of_a_completion(self):
        got = self.ok(COMPLETIONS, completion([5, 9, 14], ignore_eos=True))
        self.assertEqual(set(got), {"id", "object", "created", "model", "choices", "usage"})
        self.assertRegex(got["id"], "^cmpl-")
        self.assertEqual((got["object"], got["model"]), ("text_completion", "tiny"))
        (choice,) = got["choices"]
        self.assertEqual(set(choice), {"text", "index", "logprobs", "finish_reason"})
        self.assertEqual((got["usage"]["prompt_tokens"], got["usage"]["completion_tokens"]), (3, 8))
        events = [data for _, data in self.server.events(COMPLETIONS, completion([5, 9, 14], ignore_eos=True, stream=True))]
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual("".join(data["choices"][0]["text"] for data in events[:-1]), choice["text"])
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")

    def test_several_prompts_with_several_answers(self):
        prompts = [[5, 9, 14], [7, 8]]
        got = self.ok(COMPLETIONS, completion(prompts, n=2, temperature=1, seed=4, ignore_eos=True))
        self.assertEqual([choice["index"] for choice in got["choices"]], [0, 1, 2, 3])
        self.assertEqual(got["usage"]["prompt_tokens"], 5)
        for i, prompt in enumerate(prompts):
            alone = self.ok(COMPLETIONS, completion(prompt, n=2, temperature=1, seed=4, ignore_eos=True))
            self.assertEqual([c["text"] for c in alone["choices"]], [c["text"] for c in got["choices"][2 * i : 2 * i + 2]])

    def test_an_echo_has_the_log_probabilities_of_hearth_score(self):
        prompt = [5, 9, 14, 7, 8, 21]
        expected = self.scores(prompt)["continuations"][0]
        for extra in [{"max_tokens": 0}, {"max_tokens": 1}, {"max_tokens": 1, "stream": True}]:
            with self.subTest(extra):
                body = completion(prompt, echo=True, logprobs=2, **{"seed": 1234, **extra})
                if extra.get("stream"):
                    got = next(self.server.events(COMPLETIONS, body))[1]["choices"][0]["logprobs"]
                else:
                    got = self.ok(COMPLETIONS, body)["choices"][0]["logprobs"]
                self.assertEqual((got["token_logprobs"][0], got["top_logprobs"][0]), (None, None))
                logprobs = [token["log_probability"] for token in expected["tokens"]]
                for given, scored in zip(got["token_logprobs"][1 : len(prompt)], logprobs, strict=True):
                    self.assertAlmostEqual(given, scored, places=5)
                for top in got["top_logprobs"][1 : len(prompt)]:
                    self.assertGreaterEqual(len(top), 1)
                self.assertEqual(got["text_offset"], sorted(got["text_offset"]))
                if not extra.get("stream"):
                    self.assertEqual(len(got["tokens"]), len(prompt) + extra["max_tokens"])

    def test_embeddings(self):
        one = self.ok(EMBEDDINGS, {"input": [5, 9, 14]})
        self.assertEqual((one["object"], one["model"], one["usage"]), ("list", "tiny", {"prompt_tokens": 3, "total_tokens": 3}))
        (data,) = one["data"]
        self.assertEqual((data["object"], data["index"]), ("embedding", 0))
        self.assertAlmostEqual(sum(x * x for x in data["embedding"]), 1, places=5)
        coded = self.ok(EMBEDDINGS, {"input": [5, 9, 14], "encoding_format": "base64"})["data"][0]["embedding"]
        self.assertEqual(list(struct.unpack(f"<{len(data['embedding'])}f", base64.b64decode(coded))), data["embedding"])
        many = self.ok(EMBEDDINGS, {"input": [[5, 9, 14], [7, 8]]})
        self.assertEqual([entry["index"] for entry in many["data"]], [0, 1])
        self.assertEqual(many["data"][0]["embedding"], data["embedding"])
        short = self.ok(EMBEDDINGS, {"input": [5, 9, 14], "dimensions": 4})["data"][0]["embedding"]
        self.assertEqual(len(short), 4)
        self.assertAlmostEqual(sum(x * x for x in short), 1, places=5)
        self.refused(400, EMBEDDINGS, {"input": [5], "dimensions": 100000}, "dimensions")
        self.refused(400, EMBEDDINGS, {"input": [10**9]}, "input")
        self.assertEqual(self.server.post(EMBEDDINGS, {})[0], 400)


class Tokens(ServeTest):
    model = TINY

    def test_tokens_of_texts_and_back(self):
        got = self.ok("/tokenize", {"content": "hello <|im_end|>", "with_pieces": True})["tokens"]
        self.assertEqual([token["piece"] for token in got], ["hello", " ", "<|im_end|>"])
        ids = self.ok("/tokenize", {"content": "hello <|im_end|>"})["tokens"]
        self.assertEqual(ids, [token["id"] for token in got])
        self.assertEqual(self.ok("/detokenize", {"tokens": ids}), {"content": "hello <|im_end|>"})
        self.assertGreater(len(self.ok("/tokenize", {"content": "<|im_end|>", "parse_special": False})["tokens"]), 1)
        self.refused(400, "/tokenize", {}, "content")
        self.refused(400, "/detokenize", {"tokens": [0, 1 << 40]}, "tokens[1]")
        self.refused(400, "/detokenize", {"tokens": [0, 1 << 30]}, "tokens", "number 1")

    def test_templates(self):
        self.assertEqual(self.ok("/apply-template", chat("x"))["prompt"], "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")


class Errors(ServeTest):
    model, options = TINY, ("--context", "64", "--body-size", "20000")

    def test_a_prompt_that_does_not_fit_says_the_numbers(self):
        for body in [chat("hello " * 60), chat("hello " * 60, stream=True)]:
            n = len(self.ok("/tokenize", {"content": self.ok("/apply-template", body)["prompt"]})["tokens"])
            error = self.server.post(CHAT, body)[2]["error"]
            self.assertEqual((error["type"], error["code"]), ("invalid_request_error", "context_length_exceeded"))
            self.assertRegex(error["message"], rf"\b{n}\b.*\b64\b")

    def test_more_tokens_than_fit_are_no_mistake(self):
        got = self.ok(COMPLETIONS, completion(max_tokens=64000, ignore_eos=True))
        self.assertEqual(got["choices"][0]["finish_reason"], "length")
        self.assertEqual(got["usage"]["total_tokens"], 64)

    def test_values_that_are_wrong(self):
        for path, body, param in [
            (CHAT, chat(temperature=-1), "temperature"),
            (CHAT, chat(temperature="hot"), "temperature"),
            (CHAT, chat(top_p=2), "top_p"),
            (CHAT, chat(n=0), "n"),
            (CHAT, chat(n=100000), "n"),
            (CHAT, chat(n=1.5), "n"),
            (CHAT, chat(stop=["a"] * 65), "stop"),
            (CHAT, chat(stream="yes"), "stream"),
            (CHAT, chat(top_logprobs=2), "top_logprobs"),
            (CHAT, chat(logprobs=True, top_logprobs=21), "top_logprobs"),
            (CHAT, chat(logit_bias={"0": 101}), "logit_bias.0"),
            (CHAT, chat(logit_bias={"99999999": 1}), "logit_bias"),
            (CHAT, chat(logit_bias={"x": 1}), "logit_bias"),
            (CHAT, chat(modalities=["audio"]), "modalities[0]"),
            (CHAT, {"messages": []}, "messages"),
            (CHAT, {"messages": "hello"}, "messages"),
            (CHAT, {}, "messages"),
            (CHAT, chat(model=5), "model"),
            (COMPLETIONS, completion(best_of=2), "best_of"),
            (COMPLETIONS, completion([99999999]), "prompt"),
            (COMPLETIONS, completion([-1]), "prompt[0]"),
            (COMPLETIONS, completion([]), "prompt"),
            (COMPLETIONS, completion({"a": 1}), "prompt"),
            (COMPLETIONS, completion(max_tokens=0), "max_tokens"),
            (COMPLETIONS, {}, "prompt"),
            (CHAT, chat(messages=[{"role": "user", "content": [{"type": "text", "text": 5}]}]), "messages[0].content[0].text"),
            (CHAT, chat(messages=[{"role": "user", "content": "a"}, {"role": "nobody", "content": "a"}]), "messages[1].role"),
            (CHAT, chat(stream_options={"include_usage": 1}), "stream_options.include_usage"),
            (CHAT, chat(messages=[{"role": "user"}]), None),
            (CHAT, chat(typical_p=0.5), "typical_p"),
            (CHAT, chat(**{"x" * 200: 1, "n": 0}), "n"),
        ]:
            with self.subTest(path=path, body=body):
                error = self.refused(400, path, body, param)
                self.assertEqual(error["type"], "invalid_request_error")

    def test_the_last_answer_is_continued(self):
        question, answer = {"role": "user", "content": "hello"}, {"role": "assistant", "content": "the "}
        asked, opened = "<|im_start|>user\nhello<|im_end|>\n", "<|im_start|>assistant\n"
        continued, closed = asked + opened + "the ", asked + opened + "the <|im_end|>\n"
        prompt = lambda *messages, **more: self.ok("/apply-template", {"messages": messages, **more})["prompt"]
        for more in {"continue_final_message": True}, {"add_generation_prompt": False}, {"add_generation_prompt": False, "continue_final_message": True}:
            self.assertEqual(prompt(question, answer, **more), continued)
        self.assertEqual(prompt(question, {**answer, "prefix": True}), continued)
        self.assertEqual(prompt(question, answer), closed + opened)
        self.assertEqual(prompt(question, answer, add_generation_prompt=False, continue_final_message=False), closed)
        self.assertEqual(prompt(question, add_generation_prompt=False), asked)
        body = {"messages": [question, answer], "max_tokens": 8, "temperature": 0}
        both = {"add_generation_prompt": True, "continue_final_message": True}
        self.refused(400, CHAT, {**body, **both}, "continue_final_message", "add_generation_prompt")
        text = self.ok(COMPLETIONS, completion(continued))["choices"][0]["text"]
        self.assertEqual(self.ok(CHAT, {**body, "continue_final_message": True})["choices"][0]["message"]["content"], text)
        ollama = self.ok("/api/chat", {"messages": body["messages"], "stream": False, "options": {"temperature": 0, "num_predict": 8}})
        self.assertEqual(ollama["message"]["content"], text)
        self.assertEqual(self.ok("/v1/messages", body)["content"], [{"type": "text", "text": text}])

    def test_empty_stops_large_seeds_and_deep_values(self):
        plain = self.ok(CHAT, chat(seed=5))["choices"]
        for stop in "", [""], []:
            self.assertEqual(self.ok(CHAT, chat(seed=5, stop=stop))["choices"], plain)
        for seed, used in (2**63, 2**63), (2**65, 0), (2**64 - 1, 2**64 - 1), (2**64 + 5, 5), (-(2**64) - 3, 2**64 - 3), (-2, 2**64 - 2), (5.0, 5):
            status, fields, answer = self.server.post(CHAT, chat(seed=seed, max_tokens=1))
            self.assertEqual((status, fields["x-seed"]), (200, str(used)), answer)
        deep = json.loads("[" * 126 + "]" * 126)  # in two objects
        self.ok(CHAT, chat(chat_template_kwargs={"x": deep}, max_tokens=1))

    def test_a_content_of_null_is_none(self):
        for messages in [{"role": "user", "content": None}], [{"role": "user", "content": "a"}, {"role": "tool", "content": None, "tool_call_id": None}]:
            got, empty = (self.ok(CHAT, chat(messages=[{**m, "content": m["content"] or with_} for m in messages])) for with_ in (None, ""))
            self.assertEqual(got["choices"], empty["choices"])

    def test_members_that_are_lacked_and_those_that_ask_for_nothing(self):
        for path, body, name in [(CHAT, chat(), "audio"), (CHAT, chat(), "web_search_options"), (CHAT, chat(), "functions"), (COMPLETIONS, completion(), "use_beam_search")]:
            self.refused(400, path, {**body, name: {"a": 1}}, name, f'"{name}"')
            self.assertEqual(self.ok(path, {**body, name: None})["choices"], self.ok(path, body)["choices"])
        self.ok(CHAT, chat(user="me", metadata={"a": "b"}, store=False, service_tier="auto"))

    def test_members_that_nobody_knows_are_named(self):
        status, fields, _ = self.server.post(CHAT, chat(madeup_one=1, madeup_two=[]))
        self.assertEqual(status, 200)
        self.assertEqual(set(fields["x-ignored"].split(", ")), {"madeup_one", "madeup_two"})
        self.server.wait_line(r'/v1/chat/completions: ignored "madeup_one"')
        self.assertNotIn("x-ignored", self.server.post(CHAT, chat(user="me"))[1])
        many = self.server.post(CHAT, chat(**{f"made_up_{i}": i for i in range(500)}))[1]["x-ignored"].split(", ")
        self.assertEqual(many, [f"made_up_{i}" for i in range(16)])  # an answer's head is bounded

    def test_bodies_and_paths(self):
        for body, says in [("{", "line 1"), ("[]", "object"), ('{"a":1,"a":2}', "line 1, column 8: expected each member once"), ('{"a":' + "[" * 200, "deeper than 192 levels"), ("\xff", "expected an object")]:
            self.refused(400, CHAT, body.encode("latin-1"), None, says)
        self.refused(404, "/v1/nothing", {}, None, "/v1/nothing")
        self.refused(405, CHAT, None, None, "GET", method="GET")
        error = self.refused(404, CHAT, chat(model="absent"), "model", ['"absent"', '"tiny"'], "model_not_found")
        self.assertEqual(error["type"], "not_found_error")
        self.refused(413, CHAT, chat("x" * 30000))

    def test_the_description_of_the_interface(self):
        document = self.server.get("/openapi.json")[2]
        self.assertEqual(document["openapi"], "3.1.0")
        self.assertNotIn("security", document)
        operation = document["paths"][CHAT]["post"]
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        self.assertEqual(body["required"], ["messages"])
        self.assertIn({"type": "number", "minimum": 0, "maximum": 100}, body["properties"]["temperature"]["anyOf"])
        self.assertEqual(set(operation["responses"]["200"]["content"]), {"application/json", "text/event-stream"})
        self.assertEqual(document["paths"]["/v1/models/{model}"]["get"]["parameters"][0]["in"], "path")
        for path, methods in document["paths"].items():
            for method in methods:
                with self.subTest(path=path, method=method):  # what is described is there, and answers are described
                    for content in methods[method]["responses"]["200"]["content"].values():
                        self.assertTrue(content["schema"])
                    self.assertNotIn(self.server.request(method.upper(), path.replace("{id_slot}", "0"), b"{" if method == "post" else None)[0], (405, 501))


class Strict(ServeTest):
    model, options = TINY, ("--strict-params",)

    def test_members_that_nobody_knows_are_refused(self):
        self.refused(400, CHAT, chat(madeup=1), "madeup", '"madeup"')
        self.ok(CHAT, chat(user="me"))


if __name__ == "__main__":
    unittest.main()
