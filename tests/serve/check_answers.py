"""Responses of `hearth serve` beside src/serve/responses.json, which /openapi.json takes their schemas from: each response of each endpoint, whole
or as a stream, has the listed fields and types and no others, and all of them occur.

    HEARTH=build/release/bin/hearth build/openapi/bin/python tests/serve/check_answers.py            compares
    HEARTH=build/release/bin/hearth build/openapi/bin/python tests/serve/check_answers.py --write    writes the list
"""

import json
import re
import sys
import unittest

from openapi_spec_validator import validate

from support import ROOT, PlainServer, variant
from test_serve_failures import BROKEN, PATTERN
from test_serve_rerank import RERANKER
from test_serve_run import write_adapter
from tool_model import TEMPLATE, call, exactly

MARKS = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
# A call and thoughts that are one token each, which a bias has the model draw.
CALL = '<tool_call>{"name":"weather","arguments":{"x":1}}</tool_call>'
THOUGHTS = "<think>so</think>well"
HELLO = [{"role": "user", "content": "hello the world"}]
PARAMETERS = {"type": "object", "properties": {"x": {"type": "number"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
# Its calls are cut.
LONG = {"type": "function", "name": "write", "parameters": {
    "type": "object", "properties": {"x": {"type": "string", "minLength": 1000}}, "required": ["x"], "additionalProperties": False}}
SAYS_ALL = exactly("<think>so</think>well" + call("weather", {"x": 1}))
USAGE = {"stream_options": {"include_usage": True}}
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}  # an expression then binds all of the answer
RESPONSE_PLAIN = {"reasoning": {"effort": "none"}, "max_output_tokens": 200}
ANTHROPIC_PLAIN = {"thinking": {"type": "disabled"}, "max_tokens": 200}

LIST = ROOT / "src/serve/responses.json"
# Objects whose names are a client's or a model's.
OPAQUE = {"arguments", "components", "format", "input", "metadata", "model_info", "parameters", "paths", "schema", "tool_choice", "tools"}
# Other names of endpoints.
ALIASES = {"/v1/health": "/health", "/chat/completions": "/v1/chat/completions", "/models": "/v1/models", "/models/{model}": "/v1/models/{model}",
           "/completions": "/completion", "/embeddings": "/embedding",
           **dict.fromkeys(("/v2/rerank", "/rerank", "/v1/reranking", "/reranking"), "/v1/rerank")}  # fmt: skip
DONE = "[DONE]"  # the last event of OpenAI's streams, which is no JSON
KINDS = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", dict: "any object"}


def shape_of(value, name=""):
    """The types of a value; "object" has its fields with how often each was there, "array" the shape of the items."""
    if isinstance(value, dict) and name not in OPAQUE:
        return {"object": (1, {key: (1, shape_of(inner, key)) for key, inner in value.items()})}
    if isinstance(value, list):
        shape = {}
        for inner in value:
            inner = {"any object": True} if name == "top_logprobs" and isinstance(inner, dict) and "token" not in inner else shape_of(inner, name)
            shape = merged(shape, inner)
        return {"array": shape}
    return {KINDS[type(value)]: True}


def merged(a, b):
    """The shape of values of both."""
    both = {**a, **b}
    if "object" in a and "object" in b:
        (n, x), (m, y) = a["object"], b["object"]
        none = (0, {})
        pairs = {key: (x.get(key, none), y.get(key, none)) for key in {**x, **y}}
        both["object"] = (n + m, {key: (p[0] + q[0], merged(p[1], q[1])) for key, (p, q) in pairs.items()})
    if "array" in a and "array" in b:
        both["array"] = merged(a["array"], b["array"])
    return both


def schema_of(shape):
    kinds = sorted(set(shape) - {"object", "array", "any object", "integer" if "number" in shape else ""})
    schemas = [{"type": kinds[0] if len(kinds) == 1 else kinds}] if kinds else []
    if "array" in shape:
        schemas.append({"type": "array", "items": schema_of(shape["array"])})
    if "any object" in shape:
        schemas.append({"type": "object"})
    if "object" in shape:
        n, fields = shape["object"]
        properties = {name: schema_of(inner) for name, (_, inner) in sorted(fields.items())}
        schemas.append({"type": "object", "properties": properties, "required": sorted(name for name, (m, _) in fields.items() if m == n)})
    return {} if not schemas else schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def event_schema(kinds):
    """Of an event as OpenAPI 3.2 has it for an `itemSchema`, which 3.1 lacks: an object of its fields, whose data is a text that is JSON."""
    datas = {kind: schema_of(shape) for kind, shape in sorted(kinds.items()) if kind != DONE}
    for kind, data in datas.items():
        if kind:
            data["properties"]["type"] = {"const": kind}
    content = {"anyOf": list(datas.values())} if len(datas) > 1 else datas[""]
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    if DONE in kinds:
        data = {"anyOf": [data, {"type": "string", "const": DONE}]}
    properties = {"data": data, **({"event": {"type": "string"}} if len(datas) > 1 else {})}
    return {"type": "object", "properties": properties, "required": ["data"]}


class Answers(unittest.TestCase):
    """One test for all, since what is described has to have occurred in one of them."""

    maxDiff = None

    def setUp(self):
        path = variant("tiny.gguf", special=MARKS, words=[CALL, THOUGHTS], template=TEMPLATE)
        write_adapter(path.parent / "tuned", 1)
        (path.parent / "slots").mkdir()
        self.server = PlainServer(path, "--context", "4096", "--slots-directory", path.parent / "slots", "--adapter", f"tuned={path.parent / 'tuned'}", "--lookup")
        self.addCleanup(self.server.stop)
        self.document = self.server.get("/openapi.json").json
        self.answered, self.shapes = set(), {}
        show = self.server.post("/api/show", model="tiny", verbose=True).json
        self.token = {word: show["model_info"]["tokenizer.ggml.tokens"].index(word) for word in (CALL, THOUGHTS)}

    # ---- requests ----

    def operation(self, method, path):
        """The operation that describes a request, with its path there."""
        for described, methods in self.document["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", described), path.partition("?")[0]) and method.lower() in methods:
                return described, methods[method.lower()]
        raise AssertionError(f"{method} {path} is not described")

    def events(self, data):
        """The events of a stream as objects of their fields, whose data is what it is as JSON."""
        for block in data.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if fields:
                fields["data"] = fields["data"] if fields["data"] == DONE else json.loads(fields["data"])
                if "event" in fields:
                    self.assertEqual(fields["event"], fields["data"]["type"])
                yield fields

    def values(self, kind, data):
        """The values of an answer that a schema is for."""
        if kind == "application/json":
            return [json.loads(data)]
        if kind == "application/x-ndjson":
            return [json.loads(line) for line in data.splitlines()]
        if kind == "text/event-stream":
            return list(self.events(data))
        return [data]

    def ask(self, method, path, body=None, server=None, status=200, **fields):
        described, operation = self.operation(method, path)
        reply = (server or self.server).request(method, path, body, {name.replace("_", "-"): value for name, value in fields.items()})
        values = []
        with self.subTest(method=method, path=path, body=body):
            self.assertEqual(reply.status, status, reply.text[:1000])
            kind = reply.fields["content-type"].partition(";")[0]
            content = operation["responses"]["200" if status == 200 else f"{status // 100}XX"]["content"]
            self.assertIn(kind, content)
            values = self.values(kind, reply.text)
            self.assertTrue(values)
            dialect = "Ollama" if path.startswith("/api/") else "Anthropic" if path.startswith("/v1/messages") else "OpenAI"
            for value in values:
                self.take(f"{method} {ALIASES.get(described, described)} {kind}" if status == 200 else f"failure {dialect} application/json", value)
            if status == 200:
                self.answered.add((method, described, kind))
        return values

    def take(self, name, value):
        """A value of a response, of events by their type."""
        kind = ""
        if name.endswith("text/event-stream"):
            value = value["data"]
            kind = value if value == DONE else value.get("type", "")
        shapes = self.shapes.setdefault(name, {})
        shapes[kind] = merged(shapes.get(kind, {}), shape_of(value))

    def post(self, path, **body):
        return self.ask("POST", path, body)

    def both(self, path, **body):
        """The answer of a dialect, whole and as a stream."""
        return self.post(path, **body, stream=False), self.post(path, **body, stream=True)

    # ---- endpoints ----

    def ask_chats(self):
        path = "/v1/chat/completions"
        for body in (
            {"max_tokens": 4, "ignore_eos": True, "n": 2, "logprobs": True, "top_logprobs": 2, **USAGE},
            {"max_tokens": 200, "regex": SAYS_ALL, **PLAIN},
            {"max_tokens": 200, "regex": exactly(call("weather", {})), **PLAIN},
            {"max_tokens": 200, "tools": TOOLS, "tool_choice": "required"},
            {"regex": "hello", "logprobs": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}, **PLAIN},
            {"regex": "", **PLAIN},
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [1]}}}, **PLAIN},
        ):
            self.both(path, messages=HELLO, seed=1, **body)
        self.both("/chat/completions", messages=HELLO, max_tokens=2)
        self.post("/apply-template", messages=HELLO)
        for body in {"messages": HELLO, "temperature": -1}, {"messages": []}, {"messages": HELLO, "model": "none"}:
            self.ask("POST", path, body, status=404 if "model" in body else 400)

    def ask_completions(self):
        for body in (
            {"prompt": "hello", "max_tokens": 4, "ignore_eos": True},
            {"prompt": ["hello", [5, 6]], "max_tokens": 4, "ignore_eos": True, "n": 2, "logprobs": 2, "echo": True, **USAGE},
            {"prompt": "hello", "regex": "well"},
            {"prompt": "hello", "max_tokens": 0, "logprobs": 0, "echo": True},
        ):
            self.both("/v1/completions", seed=1, **body)
        self.ask("POST", "/v1/completions", {"prompt": []}, status=400)

    def ask_anthropic(self):
        tools = [{"name": "weather", "input_schema": PARAMETERS}]
        for body in (
            {"max_tokens": 4, "ignore_eos": True},
            {**ANTHROPIC_PLAIN, "regex": SAYS_ALL},
            {**ANTHROPIC_PLAIN, "regex": SAYS_ALL, "thinking": {"type": "disabled", "display": "omitted"}},
            {**ANTHROPIC_PLAIN, "regex": "hello the world", "stop_sequences": ["world"]},
            {**ANTHROPIC_PLAIN, "regex": "hello"},
            {"max_tokens": 200, "tools": tools, "tool_choice": {"type": "any"}},
            {"max_tokens": 0},
        ):
            self.both("/v1/messages", messages=HELLO, seed=1, **body)
        self.post("/v1/messages/count_tokens", messages=HELLO)
        self.ask("POST", "/v1/messages", {"messages": HELLO}, status=400)
        self.ask("POST", "/v1/messages", {"messages": HELLO, "max_tokens": 1, "model": "none"}, status=404)
        self.ask("POST", "/v1/messages", {"messages": HELLO, "max_tokens": 1, "thread": {"type": "create"}}, status=400)

    def ask_responses(self):
        path, function = "/v1/responses", {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": None}
        space = {"type": "namespace", "name": "sky", "tools": [{"type": "function", "name": "weather", "parameters": PARAMETERS}]}
        noted = {"max_tool_calls": 3, "safety_identifier": "me", "user": "me", "prompt_cache_key": "key"}
        texts = {"format": {"type": "json_schema", "name": "one", "schema": {"enum": [1]}}, "verbosity": "low"}
        for body in (
            {"max_output_tokens": 4, "ignore_eos": True, "top_logprobs": 2, "instructions": "be brief", "metadata": {"a": "b"}},
            {**RESPONSE_PLAIN, "regex": SAYS_ALL, "include": ["reasoning.encrypted_content"], **noted},
            {**RESPONSE_PLAIN, "regex": exactly("<think>so and so and so</think>"), "max_output_tokens": 10},
            {**RESPONSE_PLAIN, "tools": [LONG], "tool_choice": "required", "max_output_tokens": 400},
            {**RESPONSE_PLAIN, "tools": [function, space], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}},
            {**RESPONSE_PLAIN, "tools": [space], "tool_choice": "required"},
            {**RESPONSE_PLAIN, "text": texts, "reasoning": {"effort": "none", "summary": "auto"}},
            {**RESPONSE_PLAIN, "regex": "hello", "top_logprobs": 0, "text": {"format": {"type": "text"}}},
            {**RESPONSE_PLAIN, "regex": "", "max_tool_calls": ["many"], "user": 5, "text": {"verbosity": {}}},
        ):
            self.both(path, input="hello the world", seed=1, **body)
        self.post("/v1/responses/input_tokens", input="hello")
        self.ask("POST", path, {"input": []}, status=400)

    def ask_ollama(self):
        options = {"num_predict": 3, "seed": 1}
        for word in CALL, THOUGHTS:
            drawn = {**options, "logit_bias": {str(self.token[word]): 100}}
            self.both("/api/chat", model="tiny", messages=HELLO, tools=TOOLS, options=drawn)
            self.both("/api/generate", model="tiny", prompt="hello", options=drawn)
        for path, what in ("/api/chat", {"messages": HELLO}), ("/api/generate", {"prompt": "hello"}):
            self.both(path, model="tiny", **what, options=options, logprobs=True, top_logprobs=2)
            self.both(path, model="tiny", **what, options=options, format={"enum": [1]}, think=False)
            self.ask("POST", path, {**what, "model": "none"}, status=404)
        self.both("/api/generate", model="tiny", prompt="a", suffix="b", options=options)
        self.both("/api/generate", model="tiny", prompt="a", raw=True, options=options)
        for text in "hello", ["hello", "world"], []:
            self.post("/api/embed", model="tiny", input=text)
        for text in "hello", "":
            self.post("/api/embeddings", model="tiny", prompt=text)
        for verbose in False, True:
            self.post("/api/show", model="tiny", verbose=verbose)
        self.post("/api/show", model="tuned")
        self.ask("POST", "/api/show", {"model": "none"}, status=404)
        self.post("/api/pull", model="tiny")
        for path in "/api/tags", "/api/ps", "/api/version":
            self.ask("GET", path)
        for path, what in ("/api/chat", {"messages": []}), ("/api/generate", {}):
            self.post(path, model="tiny", **what)
            self.post(path, model="tiny", **what, keep_alive=0)
        self.ask("GET", "/api/ps")

    def ask_llama(self):
        for path in "/completion", "/completions":
            for body in (
                {"n_predict": 3, "n_probs": 2, "return_tokens": True, "ignore_eos": True, "temperature": 0},
                {"regex": "hello the world", "stop": ["world"]},
                {"regex": r"one\ntwo", "top_k": -1, "samplers": ["top_k", "temperature"]},
                {"n_predict": 64, "logit_bias": [[self.token[THOUGHTS], 100]]},
                {"n_predict": 2, "n": 2},
                {"n_predict": 0},
            ):
                self.both(path, prompt="hello", seed=1, **body)
        for n in 1, 2:
            self.both("/infill", input_prefix="a", input_suffix="b", n_predict=2, n=n, seed=1)
        for path in "/embedding", "/embeddings":
            self.post(path, content=["hello", "world"], embd_normalize=-1)
        self.post("/tokenize", content="h\u00e9llo", with_pieces=True)
        tokens = self.post("/tokenize", content="hello")[0]["tokens"]
        self.post("/detokenize", tokens=tokens)
        for path in "/props", "/slots", "/lora-adapters":
            self.ask("GET", path)
        for action in "save", "restore", "erase":
            self.post(f"/slots/0?action={action}", filename="kept")
        self.ask("POST", "/slots/0?action=restore", {"filename": "none"}, status=404)
        self.ask("POST", "/completion", {}, status=400)

    def ask_others(self):
        for path in "/health", "/v1/health", "/metrics", "/openapi.json", "/", "/v1/models", "/v1/models/tuned", "/models", "/models/tuned":
            self.ask("GET", path)
        self.ask("GET", "/", Accept="text/html")
        for path in "/v1/models", "/v1/models/tiny", "/models", "/models/tiny":
            self.ask("GET", path, anthropic_version="2023-06-01")
        self.ask("GET", "/v1/models/none", status=404)
        for form in "float", "base64":
            self.post("/v1/embeddings", input=["hello", "world"], encoding_format=form)
        self.ask("POST", "/v1/embeddings", {"input": []}, status=400)
        with PlainServer(RERANKER) as server:
            for path in "/v1/rerank", *(path for path, of in ALIASES.items() if of == "/v1/rerank"):
                self.ask("POST", path, {"query": "hello", "documents": ["a", {"text": "b"}]}, server=server)
                self.ask("POST", path, {"query": "hello", "documents": ["a"], "return_documents": True}, server=server)
                self.ask("POST", path, {"query": "hello", "texts": ["a", "b"]}, server=server)
                self.ask("POST", path, {"query": "hello", "texts": ["a"], "return_text": True}, server=server)
            self.ask("POST", "/v1/rerank", {"query": "hello"}, server=server, status=400)
        with PlainServer(BROKEN, keys=["key"]) as server:
            self.ask("GET", "/openapi.json", server=server)
            self.ask("GET", "/v1/models", server=server, status=401, Authorization="")

    def ask_for_failures(self):
        """Answers that fail when they have begun."""
        how = {"regex": PATTERN, "seed": 1, "stream": True}
        lines = {"format": {"type": "string", "pattern": f"^{PATTERN}$"}, "options": {"seed": 1}}
        with PlainServer(BROKEN) as server:
            for path, body in (
                ("/v1/chat/completions", {"messages": HELLO, **how}),
                ("/v1/completions", {"prompt": "hello", "max_tokens": 100, **how}),
                ("/v1/messages", {"messages": HELLO, "max_tokens": 100, **how}),
                ("/v1/responses", {"input": "hello", **how}),
                ("/completion", {"prompt": "hello", **how}),
                ("/api/chat", {"messages": HELLO, **lines}),
                ("/api/generate", {"prompt": "hello", **lines}),
            ):
                self.ask("POST", path, body, server=server)
                self.ask("POST", path, {**body, "stream": False}, server=server, status=500)

    # ---- what has to have occurred ----

    def test_answers_are_what_is_described(self):
        validate(self.document)
        for ask in (
            self.ask_chats, self.ask_completions, self.ask_anthropic, self.ask_responses, self.ask_ollama, self.ask_llama, self.ask_others,
            self.ask_for_failures,
        ):  # fmt: skip
            ask()
        described = {
            (method.upper(), path, kind)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            for kind in operation["responses"]["200"]["content"]
        }
        self.assertEqual(described - self.answered, set(), "no request has been answered so")
        found = {
            name: event_schema(kinds) if name.endswith("event-stream") else schema_of(kinds[""]) for name, kinds in sorted(self.shapes.items())
        }
        if WRITE:
            lines = (f"{json.dumps(name)}: {json.dumps(schema, separators=(',', ':'))}" for name, schema in found.items())
            LIST.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        self.assertEqual(found, json.loads(LIST.read_text()))


WRITE = "--write" in sys.argv
if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--write"])
