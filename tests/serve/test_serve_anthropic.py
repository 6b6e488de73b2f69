"""hearth serve from outside: Anthropic's interface, its members, its streams and its errors."""

import json
import unittest

from support import ServeTest
from tool_model import CONTEXT, MODEL, call, exactly

HELLO = [{"role": "user", "content": "hello the world"}]
OFF = {"type": "disabled"}  # thoughts: an expression then binds all of the answer, what it spells of thoughts and calls included
WEATHER = {"name": "weather", "description": "of a city", "input_schema": {"type": "object", "properties": {"x": {"multipleOf": 0.1}}}}
OPENAI_WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": WEATHER["input_schema"]},
}


class AnthropicTest(ServeTest):
    def answered(self, path="/v1/messages", headers=None, **body):
        body = {"model": "tools", "max_tokens": 100, "messages": HELLO, **body}
        return self.ok(path, {name: value for name, value in body.items() if value is not None}, headers)

    def wrong(self, status, kind, path="/v1/messages", says=(), server=None, headers=None, **body):
        """The answer is an error in Anthropic's form, of that type."""
        body = {"max_tokens": 100, "messages": HELLO, **body}
        body = {name: value for name, value in body.items() if value is not None}
        got, fields, answer = (server or self.server).post(path, body, headers)
        self.assertEqual(got, status, answer)
        self.assertEqual(set(answer), {"type", "error", "request_id"})
        self.assertEqual(answer["type"], "error")
        self.assertEqual(set(answer["error"]), {"type", "message"})
        self.assertEqual(answer["error"]["type"], kind)
        self.assertEqual(answer["request_id"], fields["x-request-id"])
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, answer["error"]["message"])

    def streamed(self, **body):
        """The message that the events of a stream build up, whose order and shape is checked on the way."""
        events = self.server.events("/v1/messages", {"max_tokens": 100, "messages": HELLO, **body, "stream": True})
        name, event = next(events)
        self.assertEqual((name, set(event), event["type"]), ("message_start", {"type", "message"}, "message_start"))
        message, is_open, delta = event["message"], False, None
        self.assertEqual((message["content"], message["stop_reason"], message["stop_sequence"]), ([], None, None))
        self.assertEqual(message["usage"]["output_tokens"], 0)
        whole_prompt = message["usage"]["input_tokens"]
        for name, event in events:
            self.assertEqual(name, event["type"])
            if name == "content_block_start":
                self.assertFalse(is_open)
                self.assertEqual((set(event), event["index"]), ({"type", "index", "content_block"}, len(message["content"])))
                block, is_open, signed = event["content_block"], True, False
                message["content"].append(block)
                empty = {
                    "text": {"type": "text", "text": ""},
                    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
                    "tool_use": {"type": "tool_use", "id": block.get("id"), "name": block.get("name"), "input": {}},
                }
                self.assertEqual(block, empty[block["type"]])
                arguments = ""
            elif name == "content_block_delta":
                self.assertTrue(is_open and not signed)
                self.assertEqual((set(event), event["index"]), ({"type", "index", "delta"}, len(message["content"]) - 1))
                member = {
                    ("text", "text_delta"): "text",
                    ("thinking", "thinking_delta"): "thinking",
                    ("thinking", "signature_delta"): "signature",
                    ("tool_use", "input_json_delta"): "partial_json",
                }[block["type"], event["delta"]["type"]]
                self.assertEqual(set(event["delta"]), {"type", member})
                signed = member == "signature"
                if member == "partial_json":
                    arguments += event["delta"][member]
                else:
                    block[member] += event["delta"][member]
            elif name == "content_block_stop":
                self.assertTrue(is_open)
                self.assertEqual(event, {"type": name, "index": len(message["content"]) - 1})
                self.assertEqual(signed, block["type"] == "thinking")
                if block["type"] == "tool_use":
                    block["input"] = json.loads(arguments)
                is_open = False
            elif name == "message_delta":
                self.assertFalse(is_open)
                self.assertIsNone(delta)
                self.assertEqual(set(event), {"type", "delta", "usage"})
                delta = event["delta"]
                self.assertEqual(set(delta), {"stop_reason", "stop_sequence"})
                message.update(delta, usage=event["usage"])
            else:
                self.assertEqual((event, name), ({"type": "message_stop"}, "message_stop"))
                break
        self.assertIsNotNone(delta)
        self.assertIsNone(next(events, None))
        self.assertEqual(message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"], whole_prompt)
        return message

    def alike(self, **body):
        """The message, which is the same whole and as a stream, but for its identifiers."""
        body = {"seed": 1, **body}
        whole, streamed = self.answered(**body), self.streamed(**body)
        for message in whole, streamed:
            self.assertEqual(set(message), {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
            self.assertRegex(message["id"], r"^msg_\w{24}$")
            self.assertEqual((message["type"], message["role"], message["model"]), ("message", "assistant", "tools"))
            usage = message["usage"]
            self.assertLessEqual(
                {"input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"}, set(usage)
            )
            for block in message["content"]:
                if block["type"] == "tool_use":
                    self.assertRegex(block.pop("id"), r"^toolu_\w{24}$")
                if block["type"] == "thinking":
                    self.assertTrue(block.pop("signature"))
        ends = [(m["content"], m["stop_reason"], m["stop_sequence"], m["usage"]["output_tokens"]) for m in (whole, streamed)]
        self.assertEqual(*ends)
        return whole


class Answers(AnthropicTest):
    model, options = MODEL, ("-t", "2")

    def test_text(self):
        message = self.alike(regex="hello", thinking=OFF, temperature=0)
        self.assertEqual(message["content"], [{"type": "text", "text": "hello"}])
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("end_turn", None))

    def test_thoughts(self):
        message = self.alike(regex=exactly("<think>so so</think>hello"), thinking=OFF)
        self.assertEqual(message["content"], [{"type": "thinking", "thinking": "so so"}, {"type": "text", "text": "hello"}])

    def test_thoughts_that_are_not_shown_come_back_in_the_signature(self):
        body = {"regex": exactly("<think>so so</think>hello"), "thinking": {**OFF, "display": "omitted"}}
        for message in self.answered(**body), self.streamed(**body):
            hidden = message["content"][0]
            self.assertEqual((hidden["type"], hidden["thinking"]), ("thinking", ""))
            shown = {"type": "thinking", "thinking": "so so", "signature": "x"}
            counts = [self.count([*HELLO, {"role": "assistant", "content": [block]}, *HELLO]) for block in (hidden, shown)]
            self.assertEqual(*counts)

    def test_calls(self):
        text = "see" + call("weather", {"x": 1}) + call("weather", {})
        message = self.alike(regex=exactly(text), thinking=OFF, max_tokens=200)
        calls = [{"type": "tool_use", "name": "weather", "input": given} for given in ({"x": 1}, {})]
        self.assertEqual(message["content"], [{"type": "text", "text": "see"}, *calls])
        self.assertEqual(message["stop_reason"], "tool_use")

    def test_blocks_of_a_stream_are_in_their_order(self):
        text = "<think>a</think>b" + call("weather", {}) + "c"
        message = self.streamed(regex=exactly(text), thinking=OFF, max_tokens=200)
        self.assertEqual([block["type"] for block in message["content"]], ["thinking", "text", "tool_use", "text"])

    def test_a_call_goes_back_and_forth(self):
        first = self.answered(regex=exactly(call("weather", {"x": 0.1})), thinking=OFF)
        result = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "mild"}
        history = [*HELLO, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
        self.assertEqual(self.answered(messages=history, thinking=OFF, regex="mild")["content"][0]["text"], "mild")
        # As the model wrote it: nothing before the result is computed anew.
        usage = self.answered(messages=history, thinking=OFF, regex="mild")["usage"]
        self.assertEqual(usage["input_tokens"], 1)

    def test_stop_sequences(self):
        for texts, sequence, text in [(["world"], "world", "hello the "), (["x", "the", "hello t"], "hello t", "")]:
            message = self.alike(regex="hello the world", thinking=OFF, stop_sequences=texts)
            self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("stop_sequence", sequence))
            self.assertEqual("".join(block["text"] for block in message["content"]), text)
        message = self.alike(regex="hello", thinking=OFF, stop_sequences=["world"])
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("end_turn", None))

    def test_the_most_tokens(self):
        self.wrong(400, "invalid_request_error", max_tokens=None, says='"max_tokens"')
        self.wrong(400, "invalid_request_error", max_tokens=-1, says='"max_tokens"')
        message = self.answered(max_tokens=10**12, ignore_eos=True)
        self.assertEqual(message["stop_reason"], "max_tokens")
        self.assertEqual(message["usage"]["output_tokens"] + self.count(HELLO), CONTEXT)

    def test_no_tokens_at_all_computes_the_prompt(self):
        messages = [{"role": "user", "content": "compute this beforehand"}]
        for message in self.answered(messages=messages, max_tokens=0), self.streamed(messages=messages, max_tokens=0):
            self.assertEqual((message["content"], message["stop_reason"]), ([], "max_tokens"))
            usage = message["usage"]
            self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], self.count(messages))
        self.assertEqual(usage["input_tokens"], 1)  # of the second
        self.assertEqual(self.answered(messages=messages, max_tokens=1)["usage"]["input_tokens"], 1)

    def test_schemas(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
        form = {"type": "json_schema", "schema": schema}
        for body in {"output_config": {"format": form}}, {"output_format": form}:
            self.assertIn(json.loads(self.answered(**body, thinking=OFF)["content"][0]["text"]), [{"a": 1}, {"a": 2}])

    def count(self, messages, **more):
        return self.ok("/v1/messages/count_tokens", {"messages": messages, **more})["input_tokens"]

    def test_counts(self):
        for more in {}, {"tools": [WEATHER]}, {"system": "be brief"}, {"thinking": {"type": "disabled"}}, {"output_config": {"effort": "max"}}:
            counted = self.count(HELLO, **more)
            usage = self.answered(max_tokens=1, **more)["usage"]
            self.assertEqual(counted, usage["input_tokens"] + usage["cache_read_input_tokens"])
        self.wrong(400, "invalid_request_error", "/v1/messages/count_tokens", messages=None, max_tokens=None, says='"messages"')

    def test_the_query_is_no_part_of_the_route(self):
        self.answered("/v1/messages?beta=true", max_tokens=1)
        self.ok("/v1/messages/count_tokens?beta=true", {"messages": HELLO})


class Histories(AnthropicTest):
    model, options = MODEL, ("-t", "2")

    def same_prompt(self, anthropic, messages, **openai):
        """What a request of this form computes is the whole prompt of such a one of OpenAI's: all but the token that has to be computed is kept."""
        self.answered(**anthropic, max_tokens=0)
        usage = self.ok("/v1/chat/completions", {"messages": messages, "max_tokens": 1, **openai})["usage"]
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"] - 1)
        self.assertEqual(self.count(**anthropic), usage["prompt_tokens"])

    def count(self, **body):
        return self.ok("/v1/messages/count_tokens", {"messages": HELLO, **body})["input_tokens"]

    def test_system(self):
        system = {"role": "system", "content": "be brief and true"}
        self.same_prompt({"system": system["content"]}, [system, *HELLO])
        blocks = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in ("be brief", " and true")]
        self.same_prompt({"system": blocks}, [system, *HELLO])
        self.same_prompt({"messages": [system, *HELLO]}, [system, *HELLO])

    def test_a_block_that_changes_always_is_dropped(self):
        changing = [[{"type": "text", "text": f"x-anthropic-billing-header: cc_version={i}; cch={i};"}, {"type": "text", "text": "be so"}] for i in range(2)]
        self.same_prompt({"system": changing[0]}, [{"role": "system", "content": "be so"}, *HELLO])
        self.assertEqual(self.answered(system=changing[1], max_tokens=1)["usage"]["input_tokens"], 1)

    def test_turns(self):
        history = [
            {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
            {"role": "user", "content": "three"},
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "four"}]},
            {"role": "user", "content": "five"},
        ]
        turns = [("user", "one two\n\nthree"), ("assistant", "four"), ("user", "five")]
        self.same_prompt({"messages": history}, [{"role": role, "content": content} for role, content in turns])

    def test_calls_and_results(self):
        history = [
            *HELLO,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "so so", "signature": "anything"},
                    {"type": "text", "text": "see"},
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"x": 0.1, "y": [1.5, 0.30000000000000004]}},
                    {"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}},
                    {"type": "tool_use", "id": "toolu_3", "name": "weather", "input": "{not JSON"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "and now?"},
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "mild"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
                    {"type": "tool_result", "tool_use_id": "toolu_3", "is_error": True, "content": "no such place"},
                ],
            },
        ]
        calls = [("toolu_1", "weather", '{"x":0.1,"y":[1.5,0.30000000000000004]}'), ("toolu_2", "clock", "{}"), ("toolu_3", "weather", "{not JSON")]
        results = [("toolu_1", "weather", "mild"), ("toolu_2", "clock", "1\n2"), ("toolu_3", "weather", "Error: no such place")]
        openai = [
            *HELLO,
            {
                "role": "assistant",
                "content": "see",
                "reasoning_content": "so so",
                "tool_calls": [{"id": i, "type": "function", "function": {"name": name, "arguments": text}} for i, name, text in calls],
            },
            *({"role": "tool", "tool_call_id": i, "name": name, "content": text} for i, name, text in results),
            {"role": "user", "content": "and now?"},
        ]
        self.same_prompt({"messages": history, "tools": [WEATHER]}, openai, tools=[OPENAI_WEATHER])
        empty = [*HELLO, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_9"}]}]
        self.same_prompt({"messages": empty}, [*HELLO, {"role": "tool", "tool_call_id": "toolu_9", "content": ""}])

    def test_tools(self):
        tools = [WEATHER, {"type": "custom", **WEATHER, "name": "other"}, {"type": "web_search_20250305", "name": "web_search"}]
        other = {"type": "function", "function": {**OPENAI_WEATHER["function"], "name": "other"}}
        self.same_prompt({"tools": tools}, HELLO, tools=[OPENAI_WEATHER, other])
        self.same_prompt({"tools": tools, "tool_choice": {"type": "none"}}, HELLO, tools=[OPENAI_WEATHER, other])
        fields = self.server.post("/v1/messages/count_tokens", {"messages": HELLO, "tools": tools})[1]
        self.assertEqual(fields["x-ignored"], "tools of type web_search_20250305")

    def result(self, *blocks):
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": list(blocks)}]}

    def test_results_that_are_no_text_are_told_in_words(self):
        """An agent that has read a picture goes on."""
        source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        image, file = {"type": "image", "source": source}, {"type": "document", "source": source}
        text = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "all of it"}}
        lines = ["see", *(f"[Here is an {what}, which you cannot see: you read text alone.]" for what in ("image", "attached file")), "all of it"]
        history = {"messages": [*HELLO, self.result({"type": "text", "text": "see"}, image, file, text)]}
        self.same_prompt(history, [*HELLO, {"role": "tool", "tool_call_id": "toolu_1", "content": "\n".join(lines)}])
        ignored = self.server.post("/v1/messages/count_tokens", history)[1]["x-ignored"]
        self.assertEqual(ignored, "images of results, attached files of results")

    def test_tools_that_wait_until_a_result_refers_to_them(self):
        """As agents with many tools have it: a search of their own, whose result names what is to be there from then on."""
        first, second, third = ({**WEATHER, "name": name, "defer_loading": True} for name in ("first", "second", "third"))
        tools = [first, WEATHER, second, third]
        openai = lambda name: {"type": "function", "function": {**OPENAI_WEATHER["function"], "name": name}}  # noqa: E731
        self.same_prompt({"tools": tools}, HELLO, tools=[OPENAI_WEATHER])
        self.same_prompt({"tools": [first]}, HELLO)
        references = [{"type": "tool_reference", "tool_name": name} for name in ("third", "first", "third", "weather", "gone")]
        words = [f"The tool {name} is available and can be called now." for name in ("third", "first", "third", "weather")]
        said = "\n".join([*words, "The tool gone is no longer available."])
        history = {"tools": tools, "messages": [*HELLO, self.result(*references)]}
        chat = [*HELLO, {"role": "tool", "tool_call_id": "toolu_1", "content": said}]
        self.same_prompt(history, chat, tools=[OPENAI_WEATHER, openai("third"), openai("first")])
        # What is found can be called; the prompt is the one before as far as the tools that were there.
        schema = {"type": "object", "properties": {"x": {"enum": [1]}}, "required": ["x"], "additionalProperties": False}
        found = {"tools": [{**third, "input_schema": schema}], "tool_choice": {"type": "tool", "name": "third"}}
        (block,) = self.alike(**{**history, **found}, thinking=OFF)["content"]
        self.assertEqual((block["name"], block["input"]), ("third", {"x": 1}))
        self.wrong(400, "invalid_request_error", **found, says="has no tools")
        # A search of the service's own is not there, and no tool may wait for it.
        searched = [*tools, {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}]
        self.same_prompt({"tools": searched}, HELLO, tools=[openai("first"), OPENAI_WEATHER, openai("second"), openai("third")])

    def test_other_methods(self):
        status, _, answer = self.server.request("GET", "/v1/messages")
        self.assertEqual((status, answer["type"], answer["error"]["type"]), (405, "error", "invalid_request_error"))

    def test_tool_choices(self):
        self.wrong(400, "invalid_request_error", tool_choice={"type": "any"}, says="has no tools")
        self.wrong(400, "invalid_request_error", tool_choice={"type": "tool"}, tools=[WEATHER], says="tool_choice.name")
        self.wrong(400, "invalid_request_error", tool_choice={"type": "tool", "name": "absent"}, tools=[WEATHER], says='"absent"')
        self.wrong(400, "invalid_request_error", tool_choice={"type": "some"}, tools=[WEATHER], says='"auto", "any", "tool" or "none"')
        for choice in {"type": "auto", "disable_parallel_tool_use": True}, {"type": "none"}:
            self.answered(tools=[WEATHER], tool_choice=choice, max_tokens=1)

    def test_thinking(self):
        self.same_prompt({"thinking": {"type": "disabled"}}, HELLO, chat_template_kwargs={"enable_thinking": False})
        for thinking in {"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}, None:
            self.same_prompt({"thinking": thinking}, HELLO)
        self.same_prompt({"output_config": {"effort": "max"}}, HELLO, reasoning_effort="high")
        fields = self.server.post("/v1/messages/count_tokens", {"messages": HELLO, "thinking": {"type": "enabled", "budget_tokens": 1}})[1]
        self.assertNotIn("x-ignored", fields)
        self.wrong(400, "invalid_request_error", thinking={"type": "much"}, says='"adaptive"')
        # Claude Code asks for "updates" where a person looks on; thoughts come as they are.
        for display, ignored in ("updates", "thinking.display"), ("summarized", None), ("omitted", None), (None, None):
            body = {"messages": HELLO, "thinking": {"type": "adaptive", "display": display}}
            status, fields, _ = self.server.post("/v1/messages/count_tokens", body)
            self.assertEqual((status, fields.get("x-ignored")), (200, ignored))
        self.wrong(400, "invalid_request_error", thinking={"type": "adaptive", "display": 1}, says='"thinking.display"')

    def test_what_is_no_history(self):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
        for content, says in [
            ([image], ['"image"', "messages[0].content[0].type"]),
            ([{"type": "text", "text": "a"}, {"type": "document"}], ['"document"', "messages[0].content[1].type"]),
            ([{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "video"}]}], ['"video"', "content[0].content[0].type"]),
            ([{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "tool_reference"}]}], "content[0].tool_name"),
            ([{"type": "tool_result", "content": "a"}], 'content[0].tool_use_id"'),
            ([{"type": "tool_use", "id": "1", "name": "a", "input": {}}], '"tool_use"'),
            ([{"type": "thoughts"}], '"thoughts"'),
            ([{"text": "a"}], 'content[0].type"'),
            ([{"type": "text"}], 'content[0].text"'),
            ([], "no text"),
            (None, 'messages[0].content"'),
            (1, 'messages[0].content"'),
        ]:
            with self.subTest(content):
                self.wrong(400, "invalid_request_error", messages=[{"role": "user", "content": content}], says=says)
        for messages in None, [], "a", [1], [{"content": "a"}], [{"role": "tool", "content": "a"}]:
            with self.subTest(messages):
                self.wrong(400, "invalid_request_error", messages=messages)
        for content in [{"type": "tool_use", "name": "a", "input": {}}], [{"type": "tool_result", "tool_use_id": "1"}]:
            self.wrong(400, "invalid_request_error", messages=[*HELLO, {"role": "assistant", "content": content}])
        self.wrong(400, "invalid_request_error", system=[image], says='"image"')
        self.wrong(400, "invalid_request_error", system=1)


class Errors(AnthropicTest):
    model, options = MODEL, ("-t", "2")

    def test_members(self):
        known = {"metadata": {"user_id": "x"}, "service_tier": "auto", "cache_control": {"type": "ephemeral"}, "mcp_servers": []}
        status, fields, _ = self.server.post("/v1/messages", {"max_tokens": 1, "messages": HELLO, **known})
        self.assertEqual((status, "x-ignored" in fields), (200, False))
        status, fields, _ = self.server.post("/v1/messages", {"max_tokens": 1, "messages": HELLO, "something": 1})
        self.assertEqual((status, fields["x-ignored"]), (200, "something"))
        self.wrong(400, "invalid_request_error", container="x", says='"container"')
        self.wrong(400, "invalid_request_error", temperature="hot", says='"temperature"')
        self.wrong(400, "invalid_request_error", stop_sequences=[5], says='"stop_sequences[0]"')
        self.wrong(400, "invalid_request_error", output_config={"format": {"type": "json_schema"}}, says="output_config.format")
        self.wrong(400, "invalid_request_error", stream="yes", says='"stream"')

    def test_threads(self):
        """The official client goes on without a thread when the error has these details."""
        for thread in {"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}:
            for stream in False, True:
                body = {"max_tokens": 1, "messages": HELLO, "thread": thread, "stream": stream}
                status, fields, answer = self.server.post("/v1/messages", body)
                message = answer["error"].pop("message")
                details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
                error = {"type": "invalid_request_error", "details": details}
                self.assertEqual((status, answer), (400, {"type": "error", "error": error, "request_id": fields["x-request-id"]}))
                self.assertIn('"thread"', message)
        self.assertEqual(self.server.post("/v1/messages", {"max_tokens": 1, "messages": HELLO, "thread": None})[0], 200)

    def test_prompts_that_do_not_fit(self):
        long = [{"role": "user", "content": "x" * (CONTEXT + 1)}]
        self.wrong(400, "invalid_request_error", messages=long, says=f"{CONTEXT}")
        self.wrong(400, "invalid_request_error", messages=long, stream=True, says=f"{CONTEXT}")

    def test_models(self):
        self.wrong(404, "not_found_error", model="absent", says='"absent"')

    def test_requests_have_names(self):
        status, fields, _ = self.server.post("/v1/messages", {"max_tokens": 1, "messages": HELLO}, {"X-Request-Id": "abc"})
        self.assertEqual((status, fields["request-id"]), (200, "abc"))

    def test_keys(self):
        server = self.serve(MODEL, keys=("secret",))
        self.wrong(401, "authentication_error", server=server, headers={"Authorization": "Bearer wrong"})
        for headers in {"Authorization": "", "x-api-key": "secret"}, None:
            self.assertEqual(server.post("/v1/messages", {"max_tokens": 1, "messages": HELLO}, headers)[0], 200)


if __name__ == "__main__":
    unittest.main()
