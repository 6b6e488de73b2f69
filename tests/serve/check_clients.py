"""Clients that people use, against hearth serve: OpenAI's, Anthropic's, Ollama's, Cohere's, LangChain's, LlamaIndex's, LiteLLM, lm-eval,
and agents.

    HEARTH=build/release/bin/hearth build/clients/bin/python tests/serve/check_clients.py

What is not installed is named and left out; the openai package has to be there.
"""

import asyncio
import base64
import importlib.util
import json
import os
import signal
import struct
import subprocess
import unittest
import unittest.mock
from typing import Literal

import openai
import pydantic

from support import HEARTH, SCRATCH, TINY, ServeTest, speaking_model, tiny_model, until
from test_serve_embed import ENCODER, INPUTS, MODELS
from test_serve_embed import by_command as embedded_by_command
from test_serve_rerank import QUERY, RERANKER, TEXTS, by_command

HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a place", "parameters": {
    "type": "object", "properties": {"place": {"enum": ["here", "there"]}}, "required": ["place"], "additionalProperties": False}}}]
IDS = [262, 35, 268, 40, 50, 60]
# A chat template that has tools, in the notation of Hermes and Qwen.
TEMPLATE = """{% if tools %}<|im_start|>system
# Tools

<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>
For each call write
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif %}{% if message.tool_calls %}{% for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SEED = ("--seed", "1")  # the same texts in every run
CLOSING = {str(3 + ord('"') - ord("!")): 3}  # texts of a random model come to their end
NO_BLANKS = {str(i): -100 for i, token in enumerate(tiny_model.vocabulary()) if token[0] in (tiny_model.byte_alphabet()[ord(c)] for c in " \t\r\n")}
CALLING = SCRATCH / "calling.gguf"
tiny_model.write(CALLING, template=TEMPLATE)


SPEAKING = SCRATCH / "speaking.gguf"
ENDLESS = speaking_model(SPEAKING, "hello ")


def missing(package):
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:  # of a package around it
        return True


class Weather(pydantic.BaseModel):
    place: str
    warm: bool


class Choice(pydantic.BaseModel, extra="forbid"):
    place: Literal["here", "there"]


class OpenAI(ServeTest):
    model, options, keys = CALLING, ("--alias", "tiny", "--context", "4096", *SEED), ("key-of-the-test",)

    @property
    def client(self):
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key=self.keys[0], max_retries=0)
        self.addCleanup(client.close)
        return client

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["calling", "tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").owned_by, "hearth")

    def test_chat(self):
        got = self.client.chat.completions.create(model="tiny", messages=HELLO, max_completion_tokens=5, temperature=0, n=2, logprobs=True, top_logprobs=2)
        self.assertEqual([choice.finish_reason for choice in got.choices], ["length"] * 2)
        self.assertEqual(got.usage.completion_tokens, 10)
        token = got.choices[0].logprobs.content[0]
        self.assertEqual(token.top_logprobs[0].logprob, token.logprob)
        self.assertIsInstance(got._request_id, str)

    def test_chat_stream(self):
        whole = self.client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=9, seed=4)
        chunks = list(self.client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=9, seed=4, stream=True, stream_options={"include_usage": True}))
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage, whole.usage.model_copy(update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}))
        with self.client.chat.completions.stream(model="tiny", messages=HELLO, stop="hello", logit_bias={"262": 5}, seed=4) as stream:
            kinds = {event.type for event in stream}
            self.assertEqual(stream.get_final_completion().choices[0].finish_reason, "stop")
        self.assertLessEqual({"chunk", "content.delta", "content.done"}, kinds)
        with self.assertRaises(openai.LengthFinishReasonError):  # the length is told as such
            with self.client.chat.completions.stream(model="tiny", messages=HELLO, max_tokens=9, seed=4) as stream:
                list(stream)
                stream.get_final_completion()

    def test_parse(self):
        for seed in range(3):
            got = self.client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Weather, seed=seed, max_tokens=3000, logit_bias=CLOSING)
            self.assertIsInstance(got.choices[0].message.parsed, Weather)
        with self.assertRaises(openai.LengthFinishReasonError):
            self.client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Weather, max_tokens=2)

    def test_completions(self):
        got = self.client.completions.create(model="tiny", prompt=[IDS, IDS[:2]], max_tokens=3, temperature=0, echo=True, logprobs=1)
        self.assertEqual([choice.index for choice in got.choices], [0, 1])
        logprobs = got.choices[0].logprobs
        self.assertEqual((logprobs.token_logprobs[0], len(logprobs.token_logprobs)), (None, len(IDS) + 3))
        stream = self.client.completions.create(model="tiny", prompt="hello", max_tokens=3, temperature=0, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in stream),
                         self.client.completions.create(model="tiny", prompt="hello", max_tokens=3, temperature=0).choices[0].text)

    def test_embeddings(self):
        # The client asks for base64 and makes numbers of it, unless it is told otherwise.
        by_default = self.client.embeddings.create(model="tiny", input=["hello", "world"])
        as_numbers = self.client.embeddings.create(model="tiny", input=["hello", "world"], encoding_format="float")
        coded = self.client.embeddings.create(model="tiny", input="hello", encoding_format="base64").data[0].embedding
        self.assertEqual(len(by_default.data), 2)
        for a, b in zip(by_default.data, as_numbers.data):
            self.assertEqual([struct.unpack("f", struct.pack("f", x))[0] for x in b.embedding], list(a.embedding))
        raw = base64.b64decode(coded)
        self.assertEqual(list(struct.unpack(f"<{len(raw) // 4}f", raw)), list(by_default.data[0].embedding))

    def test_errors(self):
        client = self.client
        with self.assertRaises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="absent", messages=HELLO)
        self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="tiny", messages=HELLO, temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello " * 5000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError):
            client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello " * 5000}], stream=True)
        with self.assertRaises(openai.AuthenticationError):
            client.with_options(api_key="wrong").models.list()
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("absent")

    def test_tools(self):
        got = self.client.chat.completions.create(model="tiny", messages=HELLO, tools=TOOLS, tool_choice="required", max_tokens=2000, seed=1, logit_bias=CLOSING)
        message = got.choices[0].message
        self.assertEqual(got.choices[0].finish_reason, "tool_calls")
        (call, *_) = message.tool_calls
        self.assertEqual(call.function.name, "weather")
        self.assertIn(json.loads(call.function.arguments)["place"], ["here", "there"])
        history = [*HELLO, message.model_dump(exclude_none=True), *({"role": "tool", "tool_call_id": c.id, "content": "rain"} for c in message.tool_calls)]
        again = self.client.chat.completions.create(model="tiny", messages=history, tools=TOOLS, tool_choice="none", max_tokens=4)
        self.assertFalse(again.choices[0].message.tool_calls)
        with self.client.chat.completions.stream(model="tiny", messages=HELLO, tools=TOOLS, tool_choice="required", max_tokens=2000, seed=1, logit_bias=CLOSING) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion().choices[0].message.tool_calls
        named = lambda calls: [(c.function.name, json.loads(c.function.arguments)) for c in calls]
        self.assertEqual(named(streamed), named(message.tool_calls))

    def test_tools_beside_a_schema(self):
        """As agents ask: the answer is calls, or text that the client makes an object of."""
        tools, seen = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}], set()
        for seed in range(100):
            try:
                got = self.client.chat.completions.parse(model="tiny", messages=HELLO, tools=tools, response_format=Weather, seed=seed, max_tokens=3000, logit_bias=CLOSING)
            except openai.LengthFinishReasonError:
                continue
            message = got.choices[0].message
            for call in message.tool_calls or []:
                self.assertIn(call.function.parsed_arguments["place"], ["here", "there"])
            if not message.tool_calls:
                self.assertIsInstance(message.parsed, Weather)
            seen.add(bool(message.tool_calls))
            if len(seen) == 2:
                return
        self.fail(f"calls: {seen}")

    def test_leaving_a_stream(self):
        stream = self.client.completions.create(model="tiny", prompt="hello", max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assertEqual(self.client.completions.create(model="tiny", prompt="hello", max_tokens=1).usage.completion_tokens, 1)


@unittest.skipIf(missing("anthropic"), "skipped: anthropic is not installed")
class Anthropic(ServeTest):
    model, options, keys = CALLING, ("--alias", "tiny", "--context", "4096", *SEED), ("key-of-the-test",)

    @property
    def client(self):
        import anthropic

        client = anthropic.Anthropic(base_url=self.server.url, api_key=self.keys[0], max_retries=0)
        self.addCleanup(client.close)
        return client

    def test_messages_streams_and_counts(self):
        said = {"model": "tiny", "messages": HELLO, "system": "Be brief.", "extra_body": {"temperature": 0}}
        whole = self.client.messages.create(max_tokens=6, **said)
        self.assertEqual((whole.type, whole.role, whole.stop_reason, whole.usage.output_tokens), ("message", "assistant", "max_tokens", 6))
        with self.client.messages.stream(max_tokens=6, **said) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual((final.content[0].text, final.stop_reason), (text, "max_tokens"))
        counted = self.client.messages.count_tokens(model="tiny", messages=HELLO, system="Be brief.").input_tokens
        usage = whole.usage
        self.assertEqual(counted, usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0))
        self.assertEqual([model.id for model in self.client.models.list()], ["calling", "tiny"])

    def test_tools(self):
        function = TOOLS[0]["function"]
        tools = [{"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}]
        got = self.client.messages.create(model="tiny", messages=HELLO, tools=tools, tool_choice={"type": "any"}, max_tokens=2000)
        self.assertEqual(got.stop_reason, "tool_use")
        call = next(block for block in got.content if block.type == "tool_use")
        self.assertIn(call.input["place"], ["here", "there"])
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": "rain"} for block in got.content if block.type == "tool_use"]
        history = [*HELLO, {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in got.content]}, {"role": "user", "content": results}]
        again = self.client.messages.create(model="tiny", messages=history, tools=tools, tool_choice={"type": "none"}, max_tokens=4)
        self.assertNotEqual(again.stop_reason, "tool_use")

    def test_calls_that_are_cut(self):
        """What the client makes of a stream is what the whole answer has."""
        function = TOOLS[0]["function"]
        said = {"model": "tiny", "messages": HELLO, "tools": [{"name": "weather", "input_schema": function["parameters"]}],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "extra_body": {"temperature": 0, "logit_bias": NO_BLANKS}}
        seen = lambda message: [(block.type, block.name, block.input) for block in message.content]  # noqa: E731
        inputs = []
        for most in range(1, 100):
            whole = self.client.messages.create(max_tokens=most, **said)
            with self.client.messages.stream(max_tokens=most, **said) as stream:
                final = stream.get_final_message()
            self.assertEqual((seen(final), final.stop_reason), (seen(whole), whole.stop_reason), f"at {most} tokens")
            inputs += [block.input for block in whole.content]
            if whole.stop_reason == "tool_use":
                break
            self.assertEqual(whole.stop_reason, "max_tokens")
        self.assertEqual((inputs[0], list(inputs[-1])), ({}, ["place"]))

    def test_tool_runner(self):
        import anthropic

        asked = []

        @anthropic.beta_tool
        def weather(place: Literal["here", "there"]) -> str:
            """Weather of a place."""
            asked.append(place)
            return "rain"

        said = {"model": "tiny", "max_tokens": 2000, "messages": HELLO, "tools": [weather], "tool_choice": {"type": "any"}}
        for streams in False, True:
            asked.clear()
            runner = self.client.beta.messages.tool_runner(max_iterations=2, stream=streams, extra_body={"logit_bias": CLOSING}, **said)
            messages = [turn.get_final_message() if streams else turn for turn in runner]
            self.assertEqual([message.stop_reason for message in messages], ["tool_use"] * 2)
            calls = [block for message in messages for block in message.content if block.type == "tool_use"]
            self.assertEqual(asked, [call.input["place"] for call in calls])

    def test_threads_are_refused_where_they_are_asked_for(self):
        import anthropic

        thread = self.client.beta.messages.thread(model="tiny", max_tokens=4, messages=HELLO)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            thread.send()
        self.assertEqual(caught.exception.body["error"]["details"], {"error_code": "thread_unsupported_request", "unsupported": ["thread"]})

    def test_parse(self):
        for messages in self.client.messages, self.client.beta.messages:
            said = {"model": "tiny", "max_tokens": 200, "messages": HELLO, "output_format": Choice, "extra_body": {"logit_bias": CLOSING, "thinking": {"type": "disabled"}}}
            self.assertIn(messages.parse(**said).parsed_output.place, ["here", "there"])
            with messages.stream(**said) as stream:
                self.assertIn(stream.get_final_message().parsed_output.place, ["here", "there"])

    def test_errors(self):
        import anthropic

        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.create(model="absent", messages=HELLO, max_tokens=4)
        with self.assertRaises(anthropic.BadRequestError):
            self.client.messages.create(model="tiny", messages=[{"role": "user", "content": "hello " * 5000}], max_tokens=4)
        with self.assertRaises(anthropic.AuthenticationError):
            self.client.with_options(api_key="wrong").messages.create(model="tiny", messages=HELLO, max_tokens=4)


@unittest.skipIf(missing("ollama"), "skipped: ollama is not installed")
class Ollama(ServeTest):
    model, options, keys = CALLING, ("--alias", "tiny", "--context", "4096", *SEED), ("key-of-the-test",)

    @property
    def client(self):
        import ollama

        client = ollama.Client(self.server.url, headers={"Authorization": f"Bearer {self.keys[0]}"})
        self.addCleanup(client._client.close)
        return client

    def test_chats_whole_and_as_streams(self):
        options = {"num_predict": 6, "temperature": 0, "seed": 1}
        whole = self.client.chat("tiny", HELLO, options=options)
        self.assertEqual((whole.done_reason, whole.eval_count, whole.message.role), ("length", 6, "assistant"))
        parts = list(self.client.chat("tiny", HELLO, options=options, stream=True))
        self.assertEqual("".join(part.message.content or "" for part in parts), whole.message.content)
        self.assertEqual((parts[-1].done, parts[-1].done_reason, parts[-1].eval_count), (True, "length", 6))

    def test_prompts(self):
        options = {"num_predict": 6, "temperature": 0}
        whole = self.client.generate("tiny", "hello", options=options)
        streamed = "".join(part.response for part in self.client.generate("tiny", "hello", options=options, stream=True))
        self.assertEqual(streamed, whole.response)
        again = self.client.generate("tiny", "hello", context=whole.context, options=options)
        self.assertGreater(len(again.context), len(whole.context))

    def test_schemas(self):
        for seed in range(3):
            got = self.client.chat("tiny", HELLO, format=Choice.model_json_schema(), options={"seed": seed, "num_predict": 3000})
            Choice.model_validate_json(got.message.content)

    def test_tools(self):
        call = {"function": {"name": "weather", "arguments": {"place": "here"}}}
        history = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_name": "weather", "content": "rain"}]
        options = {"num_predict": 4, "temperature": 0}
        with_tools, without = (self.client.chat("tiny", history, tools=tools, options=options) for tools in (TOOLS, None))
        self.assertGreater(with_tools.prompt_eval_count, without.prompt_eval_count)
        plain = self.client.chat("tiny", HELLO, options=options)
        self.assertGreater(without.prompt_eval_count, plain.prompt_eval_count + 20)  # the call and its result are in the prompt

    def test_models_and_embeddings(self):
        self.assertEqual({model.model for model in self.client.list().models}, {"calling:latest", "tiny:latest"})
        self.assertIn("tools", self.client.show("tiny").capabilities)
        self.assertEqual(len(self.client.ps().models), 1)
        two = self.client.embed("tiny", ["hello", "the world"]).embeddings
        self.assertEqual(len(two), 2)
        self.assertAlmostEqual(sum(x * x for x in two[0]), 1, places=4)

    def test_errors(self):
        import ollama

        with self.assertRaises(ollama.ResponseError) as caught:
            self.client.chat("absent", HELLO)
        self.assertEqual(caught.exception.status_code, 404)
        with self.assertRaises(ollama.ResponseError) as caught:
            self.client.chat("tiny", HELLO, options={"temperature": -1})
        self.assertEqual(caught.exception.status_code, 400)
        self.assertIn("options.temperature", caught.exception.error)


class Rerankers(ServeTest):
    model = RERANKER

    def test_llama_index(self):
        if missing("llama_index.postprocessor.jinaai_rerank") or missing("llama_index.postprocessor.tei_rerank"):
            self.skipTest("skipped: llama-index-postprocessor-jinaai-rerank and -tei-rerank are not installed")
        from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
        from llama_index.postprocessor.jinaai_rerank import JinaRerank
        from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

        for reranker in (JinaRerank(base_url=self.server.url + "/v1", api_key="none", model="reranker", top_n=3),
                         TextEmbeddingInference(base_url=self.server.url, top_n=3)):
            nodes = [NodeWithScore(node=TextNode(text=text)) for text in TEXTS]
            got = reranker.postprocess_nodes(nodes, QueryBundle(QUERY))
            self.assertEqual(len(got), 3)
            for one, (index, score, _) in zip(got, by_command()):
                self.assertEqual(one.node.text, TEXTS[index])
                self.assertAlmostEqual(one.score, score, places=6)

    @unittest.skipIf(missing("cohere"), "skipped: cohere is not installed")
    def test_cohere(self):
        import cohere

        for kind, more in (cohere.ClientV2, {}), (cohere.Client, {"return_documents": True}):
            client = kind(api_key="none", base_url=self.server.url)
            got = client.rerank(model="reranker", query=QUERY, documents=TEXTS, top_n=3, **more)
            scores = [one.relevance_score for one in got.results]
            self.assertEqual((len(scores), scores), (3, sorted(scores, reverse=True)))
            for one, (index, score, _) in zip(got.results, by_command()):
                self.assertEqual(one.index, index)
                self.assertAlmostEqual(one.relevance_score, score, places=6)
            if more:
                self.assertEqual([one.document.text for one in got.results], [TEXTS[one.index] for one in got.results])
            with self.assertRaises(cohere.BadRequestError):
                client.rerank(model="reranker", query="", documents=TEXTS)
            with self.assertRaises(cohere.NotFoundError):
                client.rerank(model="absent", query=QUERY, documents=TEXTS)


class Embedders(ServeTest):
    """A text encoder, beside a chat model and a reranker."""

    model, options = ENCODER, ("--models", MODELS)

    def clients(self):
        """Whose functions make vectors of a list of texts, and of their first values."""
        url, name = self.server.url, "encoder"
        where = {"base_url": url + "/v1", "api_key": "none"}
        raw = openai.OpenAI(**where, max_retries=0)
        self.addCleanup(raw.close)
        for form in openai.omit, "float":  # it asks for base64 by default
            yield "openai", lambda texts, **more: [one.embedding for one in raw.embeddings.create(model=name, input=texts, encoding_format=form, **more).data]  # noqa: B023
        if not missing("ollama"):
            import ollama

            client = ollama.Client(url)
            self.addCleanup(client._client.close)
            yield "ollama", lambda texts, **more: client.embed(name, texts, truncate=False, keep_alive="5m", **more).embeddings
        if not missing("langchain_openai"):
            import langchain_openai

            yield "langchain-openai", lambda texts, **more: langchain_openai.OpenAIEmbeddings(
                **where, model=name, check_embedding_ctx_length=False, **more).embed_documents(texts)
        if not missing("langchain_ollama"):
            import langchain_ollama

            yield "langchain-ollama", lambda texts, **more: langchain_ollama.OllamaEmbeddings(base_url=url, model=name, keep_alive=300, **more).embed_documents(texts)
        if not missing("llama_index.embeddings.openai_like"):
            from llama_index.embeddings.openai_like import OpenAILikeEmbedding

            yield "llama-index-embeddings-openai-like", lambda texts, **more: OpenAILikeEmbedding(
                name, api_base=url + "/v1", embed_batch_size=2, **more).get_text_embedding_batch(texts)
        if not missing("llama_index.embeddings.ollama"):
            from llama_index.embeddings.ollama import OllamaEmbedding

            yield "llama-index-embeddings-ollama", lambda texts: OllamaEmbedding(name, base_url=url, embed_batch_size=2).get_text_embedding_batch(texts)

    def assert_vectors(self, got, wanted):
        for one, other in zip(got, wanted, strict=True):
            for x, y in zip(one, other, strict=True):
                self.assertAlmostEqual(x, y, places=5)

    def test_vectors(self):
        whole, short = embedded_by_command(), embedded_by_command("--dimensions", "8")
        for name, embed in self.clients():
            with self.subTest(name):
                self.assert_vectors(embed(INPUTS), whole)
                if name != "llama-index-embeddings-ollama":  # which has no such option
                    self.assert_vectors(embed(INPUTS, dimensions=8), short)

    def test_token_ids(self):
        """OpenAI's client sends them as they are; LangChain's those of a tokenizer that OpenAI's models have, unless it is the model's."""
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        ids = [self.ok("/tokenize", {"content": text, "add_special": True})["tokens"] for text in INPUTS]
        wanted = embedded_by_command()
        self.assert_vectors([one.embedding for one in client.embeddings.create(model="encoder", input=ids).data], wanted)
        self.assert_vectors([client.embeddings.create(model="encoder", input=ids[0]).data[0].embedding], wanted[:1])
        if missing("langchain_openai"):
            return
        import langchain_openai

        vectors = langchain_openai.OpenAIEmbeddings(base_url=self.server.url + "/v1", api_key="none", model="encoder", max_retries=0)
        tokenizer = unittest.mock.Mock()
        with unittest.mock.patch("tiktoken.get_encoding", return_value=tokenizer):
            tokenizer.encode_ordinary.side_effect = lambda text: ids[INPUTS.index(text)]
            self.assert_vectors(vectors.embed_documents(INPUTS), wanted)
            tokenizer.encode_ordinary.side_effect = lambda text: [15339, 1917]
            with self.assertRaisesRegex(openai.BadRequestError, "token id 15339, expected 0 to 63; send texts"):
                vectors.embed_documents(INPUTS)

    @unittest.skipIf(missing("ollama"), "skipped: ollama is not installed")
    def test_ollama(self):
        import ollama

        client = ollama.Client(self.server.url)
        self.addCleanup(client._client.close)
        self.assertEqual(client.show("encoder").capabilities, ["embedding"])
        self.assert_vectors([client.embeddings("encoder", INPUTS[0]).embedding], embedded_by_command("--no-normalize")[:1])
        long = "hello " * 50
        self.assertEqual(client.embed("encoder", long).prompt_eval_count, 40)
        for ask in lambda: client.embed("encoder", long, truncate=False), lambda: client.chat("encoder", HELLO), lambda: client.generate("encoder", "hello"):
            with self.assertRaises(ollama.ResponseError) as caught:
                ask()
            self.assertEqual(caught.exception.status_code, 400)
        client.embed("encoder", "hello", keep_alive=0)
        until(lambda: "encoder:latest" not in {model.model for model in client.ps().models})

    def test_chat_models_do_not_stand_in(self):
        """Names that are none of these, and a chat with an encoder, fail as the client's errors."""
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        with self.assertRaises(openai.NotFoundError):
            client.embeddings.create(model="text-embedding-3-small", input="hello")
        with self.assertRaisesRegex(openai.BadRequestError, "text encoder") as caught:
            client.chat.completions.create(model="encoder", messages=HELLO)
        self.assertEqual(caught.exception.param, "model")
        self.assertEqual(len(client.embeddings.create(model="tiny", input="hello").data[0].embedding), 64)


@unittest.skipIf(missing("langchain_openai"), "skipped: langchain-openai is not installed")
class LangChain(ServeTest):
    model, options = CALLING, ("--alias", "tiny", *SEED)

    def test_chat_embeddings_and_structured_output(self):
        import langchain_openai

        chat = langchain_openai.ChatOpenAI(base_url=self.server.url + "/v1", api_key="none", model="tiny", max_tokens=2000, seed=1, temperature=1)
        self.assertIsInstance(chat.invoke("hello", max_tokens=5).content, str)
        chunks = list(chat.stream("hello", max_tokens=5))
        self.assertEqual("".join(chunk.content for chunk in chunks), chat.invoke("hello", max_tokens=5).content)
        self.assertIsInstance(chat.with_structured_output(Weather, method="json_schema").invoke("hello"), Weather)
        calls = chat.bind_tools(TOOLS, tool_choice="weather").invoke("hello").tool_calls
        self.assertEqual(calls[0]["name"], "weather")
        vectors = langchain_openai.OpenAIEmbeddings(base_url=self.server.url + "/v1", api_key="none", model="tiny", check_embedding_ctx_length=False)
        self.assertEqual(len(vectors.embed_query("hello")), 64)


@unittest.skipIf(missing("litellm"), "skipped: litellm is not installed")
class LiteLLM(ServeTest):
    model = TINY

    def test_chat_and_text(self):
        import litellm

        where = {"model": "openai/tiny", "api_base": self.server.url + "/v1", "api_key": "none", "max_tokens": 5, "seed": 1}
        whole = litellm.completion(messages=HELLO, **where)
        self.assertEqual(whole.usage.completion_tokens, 5)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(messages=HELLO, stream=True, **where))
        self.assertEqual(text, whole.choices[0].message.content)
        with self.assertRaises(litellm.exceptions.BadRequestError):
            litellm.completion(messages=HELLO, **{**where, "max_tokens": 5, "top_p": 7})


@unittest.skipIf(missing("lm_eval") or missing("transformers"), "skipped: lm-eval and transformers are not installed")
class LmEval(ServeTest):
    """local-completions asks for the likelihood of choices by echoed prompts, and `hearth score` is asked the same."""

    model = TINY
    ITEMS = [("hello the", ["world", "hello", "word"]), ("the world hello", ["he", "ll", "the"]), ("or", ["ld", "hello world the", "e"])]

    def test_log_likelihoods_of_a_task(self):
        os.environ.update(HF_HOME=str(SCRATCH / "hf"), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY="none")
        import lm_eval
        from lm_eval.models.openai_completions import LocalCompletionsAPI

        file = self.folder / "items.jsonl"
        file.write_text("".join(json.dumps({"question": q, "choices": c, "answer": 0}) + "\n" for q, c in self.ITEMS))
        # Its tokenizer comes from a directory as transformers reads it.
        subprocess.run([HEARTH, "convert", TINY, self.folder / "converted", "--to", "safetensors", "-q"], check=True)
        model = LocalCompletionsAPI(base_url=self.server.url + "/v1/completions", model="tiny", tokenizer=str(self.folder / "converted"), tokenized_requests=True, batch_size=2)
        task = {"task": "items", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}, "test_split": "test", "output_type": "multiple_choice",
                "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}", "doc_to_target": "answer", "target_delimiter": " ",
                "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}]}
        result = lm_eval.simple_evaluate(model=model, tasks=[task], log_samples=True, bootstrap_iters=0)
        encode = lambda text: self.ok("/tokenize", {"content": text})["tokens"]
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"ids": encode(q), "continuations": [encode(q + " " + c)[len(encode(q)) :] for c in choices]}) + "\n" for q, choices in self.ITEMS))
        done = subprocess.run([HEARTH, "score", TINY, "--prompts", prompts, "--top", "1", "-q"], stdout=subprocess.PIPE, check=True)
        samples = result["samples"]["items"]
        self.assertEqual(len(samples), len(self.ITEMS))
        right = 0
        for sample, line in zip(sorted(samples, key=lambda s: s["doc_id"]), done.stdout.splitlines()):
            scored = json.loads(line)["continuations"]
            for (response,), expected in zip(sample["resps"], scored, strict=True):
                self.assertAlmostEqual(float(response[0]), expected["log_probability"], places=4)
                self.assertEqual(str(response[1]) == "True", all(token["top"][0][0] == token["id"] for token in expected["tokens"]))
            right += max(range(3), key=lambda i: scored[i]["log_probability"]) == 0
        self.assertAlmostEqual(result["results"]["items"]["acc,none"], right / len(self.ITEMS))


class Failures(ServeTest):
    """A server that ends before its answer: the clients raise what they have for failures."""

    def ending(self):
        return self.serve(SPEAKING, "--drain", "0.2", *ENDLESS)

    def test_openai(self):
        for name, how in ("chat", {"messages": HELLO}), ("completions", {"prompt": "hello", "max_tokens": 10**6}), ("responses", {"input": "hello"}):
            server = self.ending()
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
            of = client.chat.completions if name == "chat" else getattr(client, name)
            stream = iter(of.create(model="speaking", stream=True, **how))
            next(stream)
            server.send_signal(signal.SIGTERM)
            if name == "responses":  # which has an event for it
                *_, last = stream
                self.assertEqual((last.type, last.response.status, last.response.error.code), ("response.failed", "failed", "server_error"))
            else:
                with self.assertRaisesRegex(openai.APIError, "server is shutting down"):
                    list(stream)
            client.close()

    @unittest.skipIf(missing("anthropic"), "skipped: anthropic is not installed")
    def test_anthropic(self):
        import anthropic

        server = self.ending()
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        with self.assertRaisesRegex(anthropic.APIStatusError, "server is shutting down"):
            with client.messages.stream(model="speaking", max_tokens=10**6, messages=HELLO) as stream:
                for i, _ in enumerate(stream.text_stream):
                    if not i:
                        server.send_signal(signal.SIGTERM)
        client.close()


ENDING = {**CLOSING, "2": 6}  # and so do its answers


@unittest.skipIf(missing("agents"), "skipped: openai-agents is not installed")
class OpenAIAgents(ServeTest):
    model, options = CALLING, ("--alias", "tiny", "--context", "8192", *SEED)

    def agent(self, kind, called):
        import agents

        agents.set_tracing_disabled(True)

        @agents.function_tool
        def weather(place: Literal["here", "there"]) -> str:
            """Weather of a place"""
            called.append(place)
            return "rain"

        client = openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        settings = agents.ModelSettings(tool_choice="required", parallel_tool_calls=False, max_tokens=1000, extra_body={"logit_bias": ENDING})
        model = getattr(agents, kind)(model="tiny", openai_client=client)
        return agents.Agent(name="tester", instructions="Be brief.", tools=[weather], model=model, model_settings=settings)

    def test_a_tool_is_called_and_its_result_read(self):
        import agents

        for kind in "OpenAIChatCompletionsModel", "OpenAIResponsesModel":
            with self.subTest(kind):
                called = []
                agent = self.agent(kind, called)
                first = agents.Runner.run_sync(agent, "hello " * 200, max_turns=6)
                self.assertTrue(called)
                self.assertLessEqual(set(called), {"here", "there"})
                self.assertIsInstance(first.final_output, str)
                self.assertGreater(first.context_wrapper.usage.input_tokens_details.cached_tokens, 200)  # of the second request
                history = [*first.to_input_list(), {"role": "user", "content": "and now?"}]
                second = agents.Runner.run_sync(agent, history, max_turns=6)
                self.assertGreater(second.raw_responses[0].usage.input_tokens_details.cached_tokens, 200)

    def test_streams(self):
        import agents

        async def run(agent):
            result = agents.Runner.run_streamed(agent, "hello", max_turns=6)
            return {event.type async for event in result.stream_events()}, result.final_output

        for kind in "OpenAIChatCompletionsModel", "OpenAIResponsesModel":
            called = []
            kinds, output = asyncio.run(run(self.agent(kind, called)))
            self.assertLessEqual({"raw_response_event", "run_item_stream_event"}, kinds)
            self.assertTrue(called)
            self.assertIsInstance(output, str)


@unittest.skipIf(missing("pydantic_ai"), "skipped: pydantic-ai is not installed")
class PydanticAI(ServeTest):
    model, options = CALLING, ("--alias", "tiny", "--context", "8192", *SEED)

    def models(self):
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=self.server.url + "/v1", api_key="none")
        yield OpenAIChatModel("tiny", provider=provider)
        yield OpenAIResponsesModel("tiny", provider=provider)
        if not missing("anthropic"):
            yield AnthropicModel("tiny", provider=AnthropicProvider(base_url=self.server.url, api_key="none"))

    def test_structured_output_and_history(self):
        """Its output is the call of a tool, which is asked for with every request."""
        import pydantic_ai

        how = {"max_tokens": 2000, "extra_body": {"logit_bias": CLOSING}}
        for model in self.models():
            with self.subTest(type(model).__name__):
                agent = pydantic_ai.Agent(model, output_type=Choice, instructions="Be brief.", model_settings=how, retries=5)
                first = agent.run_sync("hello " * 200)
                self.assertIsInstance(first.output, Choice)
                second = agent.run_sync("and now?", message_history=first.all_messages())
                self.assertIsInstance(second.output, Choice)
                self.assertGreater(second.usage.cache_read_tokens, 200)

    def test_text_streams(self):
        import pydantic_ai

        async def run(agent):
            async with agent.run_stream("hello") as result:
                return [text async for text in result.stream_text(delta=True, debounce_by=None)], await result.get_output()

        for model in self.models():
            with self.subTest(type(model).__name__):
                agent = pydantic_ai.Agent(model, model_settings={"max_tokens": 5, "extra_body": {"ignore_eos": True}})
                pieces, output = asyncio.run(run(agent))
                self.assertEqual("".join(pieces), output)


if __name__ == "__main__":
    unittest.main()
