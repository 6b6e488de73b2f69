"""What has brought other servers down, or made them answer wrongly, is refused here, or answered, and the server goes on."""

import json
import select
import time
import unittest

from support import TINY, ServeTest, cases, takes, together, until


def chat(text="hello", **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0, **more}


def with_tool(name, parameters):
    """Requests of all dialects with a tool, and its place in them."""
    messages = [{"role": "user", "content": "look"}]
    function = {"type": "function", "function": {"name": name, "parameters": parameters}}
    plain = {"type": "function", "name": name, "parameters": parameters}
    tool = {"name": name, "input_schema": parameters}
    yield "/v1/chat/completions", {"messages": messages, "max_tokens": 2, "tools": [TOOL, function]}, "tools[1].function"
    yield "/v1/responses", {"input": "look", "max_output_tokens": 2, "tools": [plain]}, "tools[0]"
    yield "/v1/responses", {"input": "look", "max_output_tokens": 2, "tools": [{"type": "namespace", "name": "a", "tools": [plain]}]}, "tools[0].tools[0]"
    yield "/v1/messages", {"messages": messages, "max_tokens": 2, "tools": [tool]}, "tools[0]"
    yield "/v1/messages/count_tokens", {"messages": messages, "tools": [tool]}, "tools[0]"
    yield "/apply-template", {"messages": messages, "tools": [function]}, "tools[0].function"
    yield "/api/chat", {"model": "tiny", "messages": messages, "tools": [function], "stream": False}, "tools[0].function"


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}


class Incidents(ServeTest):
    model, options = TINY, ("--parallel", "4")

    def tearDown(self):
        """Whatever was asked, the next one is answered."""
        self.assertEqual(self.server.get("/health")[0], 200)
        self.assertEqual(len(self.ok("/v1/completions", {"prompt": "hello", "max_tokens": 2, "temperature": 0, "ignore_eos": True})["choices"]), 1)

    # ---- grammars ----

    def test_grammars_that_nest_recur_or_have_no_text(self):
        for grammar in [
            "root ::= " + "(" * 20000 + '"a"' + ")" * 20000,
            "root ::= " + "[" * 20000,
            "root ::= root",
            "root ::= a\na ::= b\nb ::= a",
            'root ::= ("a"*)*' + "*" * 1000,
            'root ::= "a"{1000000}{1000000}',
            "root ::=",
            "x ::= 'a'",
            '"',
            "root ::= undefined",
        ]:
            status, _, answer = self.server.post("/v1/chat/completions", chat(grammar=grammar))
            self.assertIn(status, (200, 400), answer)

    def test_an_empty_grammar_asks_for_nothing(self):
        self.ok("/v1/chat/completions", chat(grammar=""))

    def test_patterns(self):
        for i, pattern in enumerate(["(", "[", "a{2,1}", "(?<=a)b", "\\", "(a|a)*b" * 50, "((a+)+)+$", "(a{0,1000}){0,1000}", "^" * 5000, "[^\\s\\S]", "\ud7ff", "(?:" * 5000]):
            for k, member in enumerate(({"regex": pattern}, {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": pattern}}}})):
                if not takes(i + k, 2):
                    continue
                status, _, answer = self.server.post("/v1/chat/completions", chat(**member))
                self.assertIn(status, (200, 400), answer)

    def test_many_different_grammars(self):
        for i in range(60):
            self.ok("/v1/chat/completions", chat(regex=f"a{{{i + 1}}}"))

    def test_schemas_of_tools(self):
        for parameters in [{"type": "nonsense"}, {"pattern": "("}, {"type": ["object", 5]}, {"properties": 5}, {"$ref": "#/nowhere"}, {"$ref": "#"}, 5, [], "x", True,
                           {"type": "object", "properties": {"a": {"pattern": "(?<=x)"}}}]:  # fmt: skip
            tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
            status, _, answer = self.server.post("/v1/chat/completions", chat(tools=[tool]))
            self.assertIn(status, (200, 400), answer)

    def test_names_of_tools(self):
        """A tool that no call could name is refused, as answers would be held to the others; names of MCP servers are fine."""
        for i, name in enumerate(("get weather", 'a"b', "a'b", "a<b>", "a(b)", "a,b", "a{b}", "a\nb", "a=b")):
            for k, (path, body, place) in enumerate(with_tool(name, {"type": "object", "properties": {}})):
                if not takes(i + k, 7):
                    continue
                status, _, answer = self.server.post(path, body)
                error = answer["error"]
                self.assertEqual(status, 400, (path, name, answer))
                message = error if path == "/api/chat" else error["message"]
                if path == "/api/chat" and "does not support tools" in message:
                    continue
                self.assertIn(f'"{place}.name" must be a valid tool name', message)
                self.assertEqual(error["param"] if "param" in error else f"{place}.name", f"{place}.name")
        for i, name in enumerate(("a.b", "server/tool", "a-b_c", "mcp__server__tool", "ø", "a@b", "9")):
            for k, (path, body, _) in enumerate(with_tool(name, {"type": "object", "properties": {}})):
                if not takes(i + k, 7):
                    continue
                status, _, answer = self.server.post(path, body)
                self.assertTrue(status == 200 or "does not support tools" in str(answer), (path, name, answer))

    def test_parameters_that_calls_cannot_be_held_to(self):
        for schema, noted in [({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)a"}}}, True), ({"$ref": "#/nowhere"}, True),
                              ({"type": "object", "properties": {"a": {"type": "string"}}}, False)]:  # fmt: skip
            for path, body, place in list(with_tool("f", schema))[:4]:
                place += ".input_schema" if path == "/v1/messages" else ".parameters"
                for _ in range(2):  # found out, and remembered
                    status, fields, answer = self.server.post(path, body)
                    self.assertEqual((status, fields.get("x-ignored")), (200, place if noted else None), answer)
        none = {"tool_choice": "none", **next(with_tool("f", {"$ref": "#/nowhere"}))[1]}
        self.assertNotIn("x-ignored", self.server.post("/v1/chat/completions", none)[1])

    # ---- requests ----

    def test_templates_and_tensors_of_a_request_are_not_read(self):
        """Others have run the former, and loaded the latter with what is in them."""
        template = "{{ raise_exception('read') }}{% for i in range(1000000000) %}x{% endfor %}"
        said = lambda answer: [{k: v for k, v in choice.items() if k != "id"} for choice in answer["choices"]]  # noqa: E731
        for path, body in ("/v1/chat/completions", chat(seed=1)), ("/v1/completions", {"prompt": "hello", "max_tokens": 2, "seed": 1}):
            expected = said(self.ok(path, body))
            for name, value in ("chat_template", template), ("prompt_embeds", "gAN9cQAu" * 100), ("prompt_embeds", [[1e300] * 64]):
                status, fields, answer = self.server.post(path, {**body, name: value})
                self.assertEqual((status, fields.get("x-ignored"), said(answer)), (200, name, expected))

    def test_errors_tell_no_addresses(self):
        paths = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages", "/v1/messages/count_tokens", "/tokenize", "/detokenize",
                 "/apply-template", "/completion", "/infill", "/embedding", "/slots/0?action=save", "/api/chat", "/api/generate", "/api/embed", "/api/show"]  # fmt: skip
        wrong = [b"{", b"[]", b"null", b"{}", b"\xff", b'{"model": "none"}', b'{"prompt": {"a": 1}, "messages": 5, "input": {}, "content": [], "tokens": "a"}',
                 b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}], "input": "a", "max_tokens": 1, "grammar": "root ::= (", "response_format": {"type": "x"}}',
                 b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}], "max_tokens": 1}']  # fmt: skip
        n_errors = 0
        for i, path in enumerate(paths):
            for k, body in enumerate(wrong):
                if not takes(i + k, 9):
                    continue
                status, _, answer = self.server.post(path, body)
                if status != 200:
                    n_errors += 1
                    answer.pop("request_id", None)  # is drawn
                    self.assertNotRegex(json.dumps(answer), r"0x[0-9a-fA-F]{6,}|7f[0-9a-f]{10}")
        self.assertGreater(n_errors, cases(10, 100))

    def test_no_tokens_at_all(self):
        for name in ("max_tokens", "max_completion_tokens"):
            status, _, answer = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], name: 0})
            self.assertEqual((status, answer["error"]["param"]), (400, name), answer)
            self.assertIn(f'"{name}" must be a whole number of 1 or more', answer["error"]["message"])
        self.assertEqual(self.server.post("/v1/responses", {"input": "a", "max_output_tokens": 0})[2]["error"]["param"], "max_output_tokens")
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "a", "max_tokens": 0})[2]["error"]["param"], "max_tokens")
        self.ok("/v1/chat/completions", chat(max_tokens=0, max_completion_tokens=2))

    def test_paths_that_are_not_there(self):
        for path, form in [("/v1/nothing", "openai"), ("/nothing", "openai"), ("/v1/messages/batches", "anthropic"), ("/v1/messages/x/y", "anthropic"),
                           ("/v1/messagesx", "openai"), ("/api/nothing", "ollama"), ("/api", "ollama"), ("/api/blobs/x", "ollama"), ("/apix", "openai")]:  # fmt: skip
            for method in ("GET", "POST"):
                status, _, answer = self.server.request(method, path, b"{}" if method == "POST" else None)
                self.assertEqual(status, 404, path)
                if form == "anthropic":
                    self.assertEqual((answer["type"], answer["error"]["type"]), ("error", "not_found_error"))
                elif form == "ollama":
                    self.assertEqual(answer, {"error": f"{path} is not an endpoint of this server"})
                else:
                    self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})

    def test_other_paths_to_the_same(self):
        models = self.server.get("/v1/models")[2]
        for path in ("/models", "/v1/models/", "/models/"):
            self.assertEqual(self.server.get(path)[2], models, path)
        self.assertEqual(self.server.get("/models/tiny")[2], self.server.get("/v1/models/tiny")[2])
        self.assertEqual(self.server.get("/models/none")[0], 404)
        said = lambda path: self.ok(path, chat())["choices"][0]["message"]  # noqa: E731
        for path in ("/chat/completions", "/chat/completions/", "/v1/chat/completions/"):
            self.assertEqual(said(path), said("/v1/chat/completions"))
        self.assertEqual(self.server.get("/health/")[0], 200)
        for path in ("/v1/models//", "/v1/chat/completions//", "//"):
            self.assertEqual(self.server.get(path)[0], 404, path)
        status, fields, _ = self.server.get("/v1/chat/completions/")
        self.assertEqual((status, fields["allow"]), (405, "POST"))

    def test_texts_with_nul(self):
        """As agents send what their tools have read: the history of an agent is never refused for it."""
        template = lambda text: self.server.post("/apply-template", '{"messages": [{"role": "user", "content": "' + text + '"}]}')  # noqa: E731
        status, fields, answer = template(r"a\u0000b\\u0000c\\\u0000\u0000")
        self.assertEqual((status, fields["x-ignored"]), (200, "NUL in texts"))
        self.assertIn("\na\ufffdb\\u0000c\\\ufffd\ufffd<|im_end|>", answer["prompt"])
        status, fields, answer = template(r"a\\u0000")
        self.assertEqual((status, "x-ignored" in fields), (200, False))
        self.assertIn("\na\\u0000<|im_end|>", answer["prompt"])

    def test_texts_with_halves_of_characters(self):
        """As JSON.stringify writes what was cut within a pair of UTF-16; whole pairs stay, and what is escaped is no escape."""
        template = lambda text: self.server.post("/apply-template", '{"messages": [{"role": "user", "content": "' + text + '"}]}')  # noqa: E731
        for text, read in [
            (r"cut \ud83d", "cut \ufffd"),
            (r"\uD83D\uDE00 \ud83d\uDe00 \ud83d", "\U0001f600 \U0001f600 \ufffd"),
            (r"\udE00\uD83d", "\ufffd\ufffd"),
            (r"\ud83d\ud83d\ude00\ude00", "\ufffd\U0001f600\ufffd"),
            (r"\ud83d\n\ud83d\\ude00", "\ufffd\n\ufffd\\ude00"),
            (r"\ud83d\u0041\ud83d\"", '\ufffdA\ufffd"'),
            (r"\\\\\ud83d", "\\\\\ufffd"),
        ]:
            status, fields, answer = template(text)
            self.assertEqual((status, fields["x-ignored"]), (200, "halves of characters in texts"), text)
            self.assertIn(f"\n{read}<|im_end|>", answer["prompt"])
        status, fields, answer = template(r"a\\ud83d \\\\udE00 \ud83d\ude00 \ud7ff\ue000")
        self.assertEqual((status, "x-ignored" in fields), (200, False))
        self.assertIn("\na\\ud83d \\\\udE00 \U0001f600 \ud7ff\ue000<|im_end|>", answer["prompt"])
        status, fields, answer = template(r"\u0000\ud83d")
        self.assertEqual((status, fields["x-ignored"]), (200, "NUL in texts, halves of characters in texts"))
        for text in (r"\ud83", r"\ud83d\ude0", r"\ud83d\u", "\\ud83d\\", r"\ug83d"):
            self.assertEqual(template(text)[0], 400, text)
        for end in (r'{"a": "\ud83d', '{"a": "\\', r'{"a": "\u'):
            self.assertEqual(self.server.post("/apply-template", end)[0], 400, end)

    def test_halves_of_characters_in_arguments(self):
        """Which are JSON in a text: read again by those who write them into a prompt."""
        calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": r'{"a": "cut \ud83d"}'}}]
        history = [{"role": "user", "content": "look"}, {"role": "assistant", "tool_calls": calls}, {"role": "tool", "tool_call_id": "a", "content": "x"}]
        for path in ("/apply-template", "/v1/chat/completions"):
            status, _, answer = self.server.post(path, chat(messages=history, tools=[TOOL]))
            self.assertEqual(status, 200, answer)

    def test_a_byte_order_mark_is_passed_over(self):
        body = b"\xef\xbb\xbf" + json.dumps(chat()).encode()
        status, fields, answer = self.server.request("POST", "/v1/chat/completions", body)
        self.assertEqual((status, "x-ignored" in fields), (200, False), answer)
        for body in (b"\xef\xbb", b"\xef\xbb\xbf\xef\xbb\xbf{}", b"\xef\xbb\xbf[]"):
            self.assertEqual(self.server.request("POST", "/v1/chat/completions", body)[0], 400, body)

    def test_a_long_message(self):
        self.ok("/v1/chat/completions", chat("word " * cases(1000, 10000), max_tokens=1))

    def test_template_variables_do_not_replace_the_conversation(self):
        self.assertEqual(self.server.post("/v1/chat/completions", chat(chat_template_kwargs={"messages": []}))[0], 400)
        for variables in ({"a" * 10000: 1}, {"tools": []}, {"bos_token": "x"}, {"x": {"y": [None, 1e300]}}, {"add_generation_prompt": False}):
            status, _, answer = self.server.post("/v1/chat/completions", chat(chat_template_kwargs=variables))
            self.assertIn(status, (200, 400), answer)

    def test_malformed_calls_in_a_history(self):
        for arguments in ("{", "", "null", '{"a": ', "5", '"x"', "not json at all", '{"a": 1}{"b": 2}'):
            call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
            messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "y"}]
            # The template of this model writes contents alone, and null is an empty one.
            self.ok("/v1/chat/completions", {"messages": messages, "tools": [TOOL], "max_tokens": 2, "temperature": 0})

    def test_tools_of_other_types(self):
        answer = self.server.post("/v1/chat/completions", chat(tools=[{"type": "web_search"}, TOOL, {"type": "namespace", "x": 1}]))
        self.assertEqual(answer[0], 200, answer)
        self.assertIn("web_search", answer[1]["x-ignored"])

    # ---- clients ----

    def test_health_while_all_threads_stream(self):
        streams = [self.server.events("/v1/completions", {"prompt": "a", "max_tokens": 3000, "stream": True, "ignore_eos": True}) for _ in range(12)]
        for s in streams[:4]:
            next(s)
        for _ in range(20):
            begin = time.monotonic()
            self.assertEqual(self.server.get("/health")[0], 200)
            self.assertLess(time.monotonic() - begin, 60)
        for s in streams:
            s.close()

    def test_answers_do_not_wait_for_what_is_computed_beside_them(self):
        """Once 32 embeddings or prompts without answers held all threads that read requests."""
        long = "hello " * 300
        for path, body in [
            ("/v1/embeddings", lambda i: {"input": [long] * 32}),
            ("/v1/messages", lambda i: {"max_tokens": 0, "messages": [{"role": "user", "content": f"{i} {long * 8}"}]}),
        ]:
            asked = [self.server.begin(path, {"model": "", **body(i)}) for i in range(100)]
            self.ok("/tokenize", {"content": "hello"})
            answered = select.select(asked, [], [], 0)[0]
            for s in asked:
                s.close()
            self.assertLess(len(answered), 60)

    def test_who_leaves_cancels_nobody_else(self):
        question = {"prompt": "hello", "max_tokens": 300, "temperature": 0, "ignore_eos": True}
        right = self.ok("/v1/completions", question)["choices"][0]["text"]
        got = [None] * 3

        def ask(i):
            got[i] = self.ok("/v1/completions", question)["choices"][0]["text"]

        def leave(_):
            with self.server.begin("/v1/completions", {**question, "max_tokens": 100000, "stream": True}) as s:
                s.recv(10)

        together(lambda i: ask(i) if i < 3 else leave(i), range(13))
        self.assertEqual(got, [right] * 3)

    def test_who_leaves_while_the_prompt_is_read_is_noticed(self):
        with self.server.begin("/v1/completions", {"prompt": "word " * 60000, "max_tokens": 100000, "ignore_eos": True}):
            until(lambda: self.server.metric("answers_running") == 1)
        until(lambda: self.server.metric("answers_running") == 0)


class Values(ServeTest):
    """A body of little text may be many values, each of which takes memory."""

    model, options = TINY, ("--context", "64")
    PATH = "/v1/completions"

    def ask(self, n, server=None):
        """The error of a body with so many values, most of them tokens of a prompt that is too long."""
        body = '{"max_tokens":1,"model":"tiny","prompt":[' + ",".join(["7"] * (n - 2)) + "]}"
        status, _, answer = (server or self.server).post(self.PATH, body)
        self.assertEqual(status, 400, answer)
        return answer["error"]

    def test_a_prompt_of_a_million_tokens_is_read(self):
        error = self.ask(1 << 20)
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn("1048574 tokens", error["message"])

    def test_more_values(self):
        for n in (1 << 20) + 1, *cases((), (4_000_000,)):
            error = self.ask(n)
            self.assertEqual((error["message"].split(": ")[-1], error["code"]), ("more than 1048576 values", None))
        values = ",".join(["{}"] * cases(1_100_000, 2_000_000))
        status, _, answer = self.server.post("/v1/chat/completions", f'{{"messages":[{values}]}}')
        self.assertEqual((status, "more than 1048576 values" in answer["error"]["message"]), (400, True))

    def test_a_server_that_takes_larger_bodies_takes_more(self):
        server = self.serve(TINY, "--context", "64", "--body-size", "12M")
        self.assertEqual(self.ask(1_200_000, server)["code"], "context_length_exceeded")
        self.assertIn("more than 1500000 values", self.ask(1_600_000, server)["message"])


if __name__ == "__main__":
    unittest.main()
