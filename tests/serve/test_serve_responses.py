"""hearth serve from outside: OpenAI's Responses interface, its items, its streams and its errors."""

import json
import unittest

from support import ServeTest
from tool_model import CONTEXT, MODEL, call, exactly

HELLO = [{"role": "user", "content": "hello the world"}]
PATH = "/v1/responses"
OFF = {"effort": "none"}  # thoughts: an expression then binds all of the answer, what it spells of thoughts and calls included
PARAMETERS = {"type": "object", "properties": {"x": {"type": "number"}}}
WEATHER = {"type": "function", "name": "weather", "description": "of a city", "parameters": PARAMETERS}
CHAT_WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": PARAMETERS},
}
MEMBERS = """id object created_at status background completed_at error incomplete_details instructions max_output_tokens max_tool_calls
metadata model output parallel_tool_calls previous_response_id reasoning safety_identifier store temperature text tool_choice tools
top_logprobs top_p truncation usage user""".split()


class ResponsesTest(ServeTest):
    def answered(self, **body):
        return self.ok(PATH, {"model": "tools", "input": "hello the world", "max_output_tokens": 100, **body})

    def wrong(self, param, says=(), code=None, status=400, path=PATH, **body):
        body = {"input": "hello", **body}
        self.refused(status, path, {name: value for name, value in body.items() if value is not None}, param, says, code)

    def check_event(self, event, *members):
        self.assertEqual(set(event), {"type", "sequence_number", *members})

    def item_events(self, events, index, logprobs):
        """Reads the events of an item, from the next one on, and returns it; None with what came in its place."""
        name, event = next(events)
        if name != "response.output_item.added":
            return None, (name, event)
        self.check_event(event, "output_index", "item")
        item, text = event["item"], ""
        self.assertEqual((event["output_index"], item["status"]), (index, "in_progress"))
        kind = item["type"]
        stem, part = {
            "message": ("response.output_text", {"type": "output_text", "text": "", "annotations": [], "logprobs": []}),
            "reasoning": ("response.reasoning_text", None),
            "function_call": ("response.function_call_arguments", None),
        }[kind]
        place = {"item_id": item["id"], "output_index": index, **({} if kind == "function_call" else {"content_index": 0})}
        more = {"logprobs"} if kind == "message" else set()
        self.assertEqual(item["arguments"] if kind == "function_call" else item["content"], "" if kind == "function_call" else [])
        if part:
            name, event = next(events)
            self.check_event(event, *place, "part")
            self.assertEqual((name, event["part"]), ("response.content_part.added", part))
        told = []
        while True:
            name, event = next(events)
            self.assertEqual({key: event[key] for key in place}, place)
            if name != f"{stem}.delta":
                break
            self.check_event(event, *place, "delta", *more)
            told += event.get("logprobs", [])
            text += event["delta"]
        self.assertEqual(name, f"{stem}.done")
        whole = "arguments" if kind == "function_call" else "text"
        self.check_event(event, *place, whole, *more, *(["name"] if kind == "function_call" else []))
        self.assertEqual((event[whole], event.get("logprobs", [])), (text, told))
        self.assertEqual(bool(told), logprobs and kind == "message")
        if part:
            name, event = next(events)
            self.check_event(event, *place, "part")
            self.assertEqual((name, event["part"]), ("response.content_part.done", {**part, "text": text, "logprobs": told}))
        name, event = next(events)
        self.assertEqual((name, event["output_index"]), ("response.output_item.done", index))
        self.check_event(event, "output_index", "item")
        done = event["item"]
        self.assertEqual((done["id"], done["type"]), (item["id"], kind))
        self.assertEqual(done["arguments"] if kind == "function_call" else done["content"][0]["text"], text)
        return done, None

    def streamed(self, **body):
        """The response at the end of a stream, whose order and shape is checked on the way."""
        body = {"model": "tools", "input": "hello the world", "max_output_tokens": 100, **body, "stream": True}
        numbers = []

        def numbered():
            for name, event in self.server.events(PATH, body):
                self.assertEqual(name, event["type"])
                numbers.append(event["sequence_number"])
                yield name, event

        events = numbered()
        for expected in "response.created", "response.in_progress":
            name, event = next(events)
            self.check_event(event, "response")
            first = event["response"]
            self.assertEqual((name, first["status"], first["output"], first["usage"]), (expected, "in_progress", [], None))
        items, last = [], None
        while not last:
            item, last = self.item_events(events, len(items), bool(body.get("top_logprobs")))
            items += [item] if item else []
        self.assertEqual(list(events), [])
        self.assertEqual(numbers, list(range(len(numbers))))
        response = last[1]["response"]
        self.assertEqual((last[0], response["id"]), (f"response.{response['status']}", first["id"]))
        self.assertEqual(response["output"], items)
        return response

    def alike(self, **body):
        """The response, which is the same whole and as a stream, but for identifiers and times."""
        body = {"seed": 1, **body}
        whole, streamed = self.answered(**body), self.streamed(**body)
        for response in whole, streamed:
            self.assertLessEqual(set(MEMBERS), set(response))
            self.assertRegex(response["id"], r"^resp_\w{24}$")
            self.assertEqual((response["object"], response["model"], response["store"]), ("response", "tools", False))
            for item in response["output"]:
                prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[item["type"]]
                self.assertRegex(item.pop("id"), rf"^{prefix}_\w{{24}}$")
                if item["type"] == "function_call":
                    self.assertRegex(item.pop("call_id"), r"^call_\w{24}$")
            usage = response["usage"]
            self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
            usage.pop("input_tokens_details")  # the second has more of it from the cache
            for name in "id", "created_at", "completed_at":
                response.pop(name)
        self.assertEqual(whole, streamed)
        return whole


class Answers(ResponsesTest):
    model, options = MODEL, ("-t", "2")

    def test_text(self):
        response = self.alike(regex="hello", reasoning=OFF, instructions="be brief", metadata={"a": "b"})
        content = [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}]
        self.assertEqual(response["output"], [{"type": "message", "role": "assistant", "status": "completed", "content": content}])
        self.assertEqual((response["status"], response["incomplete_details"], response["error"]), ("completed", None, None))
        self.assertEqual((response["instructions"], response["metadata"]), ("be brief", {"a": "b"}))

    def test_an_answer_that_is_cut(self):
        response = self.alike(max_output_tokens=40)
        self.assertEqual((response["status"], response["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
        self.assertEqual((response["usage"]["output_tokens"], response["output"][0]["status"]), (40, "incomplete"))
        self.assertEqual(self.answered(max_output_tokens=10**12, ignore_eos=True)["usage"]["total_tokens"], CONTEXT)

    def test_thoughts(self):
        text = exactly("<think>so so</think>hello")
        response = self.alike(regex=text, reasoning=OFF)
        thoughts = {"type": "reasoning", "status": "completed", "summary": [], "content": [{"type": "reasoning_text", "text": "so so"}]}
        self.assertEqual(response["output"][0], thoughts)
        self.assertEqual([item["type"] for item in response["output"]], ["reasoning", "message"])

    def test_calls(self):
        text = "see" + call("weather", {"x": 1}) + call("weather", {})
        response = self.alike(regex=exactly(text), reasoning=OFF, max_output_tokens=200)
        calls = [
            {"type": "function_call", "status": "completed", "name": "weather", "arguments": given} for given in ('{"x": 1}', "{}")
        ]
        self.assertEqual(response["output"][1:], calls)
        self.assertEqual((response["status"], response["tools"]), ("completed", []))

    def test_items_of_a_stream_are_in_their_order(self):
        text = "<think>a</think>b" + call("weather", {}) + "c"
        response = self.streamed(regex=exactly(text), reasoning=OFF, max_output_tokens=200)
        self.assertEqual([item["type"] for item in response["output"]], ["reasoning", "message", "function_call", "message"])

    def test_answers_go_back_and_forth(self):
        text = exactly("<think>so so</think>" + call("weather", {"x": 1}))
        first = self.answered(regex=text, reasoning=OFF)
        history = [*HELLO, *first["output"], {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "mild"}]
        response = self.answered(input=history, reasoning=OFF, regex="mild")
        self.assertEqual(response["output"][0]["content"][0]["text"], "mild")

    def test_log_probabilities(self):
        for body in {"top_logprobs": 2}, {"top_logprobs": 2, "include": ["message.output_text.logprobs"]}:
            response = self.alike(max_output_tokens=10, reasoning=OFF, **body)
            told = response["output"][0]["content"][0]["logprobs"]
            self.assertTrue(told)
            for token in told:
                self.assertEqual(set(token), {"token", "logprob", "bytes", "top_logprobs"})
                self.assertEqual(len(token["top_logprobs"]), 2)
        told = self.answered(regex="hello", reasoning=OFF, include=["message.output_text.logprobs"])["output"][0]["content"][0]["logprobs"]
        self.assertEqual(b"".join(bytes(token["bytes"]) for token in told), b"hello")

    def test_schemas(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
        form = {"type": "json_schema", "name": "form", "schema": schema, "strict": True}
        response = self.answered(text={"format": form}, reasoning=OFF)
        self.assertIn(json.loads(response["output"][0]["content"][0]["text"]), [{"a": 1}, {"a": 2}])
        self.assertEqual(response["text"], {"format": form})


class Inputs(ResponsesTest):
    model, options = MODEL, ("-t", "2")

    def count(self, **body):
        return self.ok(f"{PATH}/input_tokens", body)["input_tokens"]

    def same_prompt(self, body, messages, **chat):
        """What a request of this form computes is the whole prompt of such a chat: all but the token that has to be computed is kept."""
        self.answered(**body)
        usage = self.ok("/v1/chat/completions", {"messages": messages, "max_tokens": 1, **chat})["usage"]
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"] - 1)
        self.assertEqual(self.count(**{"input": "hello the world", **body}), usage["prompt_tokens"])

    def test_messages(self):
        self.same_prompt({}, HELLO)
        self.same_prompt({"input": HELLO}, HELLO)
        parts = [{"type": "input_text", "text": "hello "}, {"type": "input_text", "text": "the world"}]
        self.same_prompt({"input": [{"type": "message", "role": "user", "content": parts}]}, HELLO)
        answer = [{"type": "output_text", "text": "one ", "annotations": []}, {"type": "refusal", "refusal": "two"}]
        history = [*HELLO, {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": answer}, *HELLO]
        self.same_prompt({"input": history}, [*HELLO, {"role": "assistant", "content": "one two"}, *HELLO])

    def test_instructions(self):
        history = [{"role": "developer", "content": "one"}, {"role": "system", "content": "two"}, *HELLO]
        self.same_prompt({"input": history, "instructions": "zero"}, [{"role": "system", "content": "zero\n\none\n\ntwo"}, *HELLO])
        late = [*HELLO, {"role": "developer", "content": "one"}, *HELLO]
        self.same_prompt({"input": late}, late)

    def test_calls_and_results(self):
        history = [
            *HELLO,
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "so so"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": '{"x": 0.1}'},
            {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": "{not JSON"},
            {"type": "custom_tool_call", "call_id": "call_3", "name": "patch", "input": "any text"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "function_call_output", "call_id": "call_1", "output": "mild"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "1"}, {"type": "input_text", "text": "2"}]},
            {"type": "custom_tool_call_output", "call_id": "call_3", "output": "done"},
        ]
        calls = [("call_1", "weather", '{"x": 0.1}'), ("call_2", "weather", "{not JSON"), ("call_3", "patch", '{"input": "any text"}')]
        results = [("call_1", "weather", "mild"), ("call_2", "weather", "1\n2"), ("call_3", "patch", "done")]
        chat = [
            *HELLO,
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "so so",
                "tool_calls": [{"id": i, "type": "function", "function": {"name": name, "arguments": text}} for i, name, text in calls],
            },
            *({"role": "tool", "tool_call_id": i, "name": name, "content": text} for i, name, text in results),
        ]
        self.same_prompt({"input": history, "tools": [WEATHER]}, chat, tools=[CHAT_WEATHER])

    def test_thoughts_that_clients_do_not_send_back_come_back_sealed(self):
        text = exactly("<think>so so</think>hello")
        include = ["reasoning.encrypted_content"]
        for response in self.answered(regex=text, reasoning=OFF, include=include), self.streamed(regex=text, reasoning=OFF, include=include):
            thoughts = response["output"][0]
            self.assertTrue(thoughts["encrypted_content"])
            kept = {**thoughts, "content": None}
            shown = {**thoughts, "encrypted_content": None}
            none = {**kept, "encrypted_content": "of somebody else"}
            counts = [self.count(input=[*HELLO, item, *response["output"][1:], *HELLO]) for item in (kept, shown, none)]
            self.assertEqual(counts[0], counts[1])
            self.assertLess(counts[2], counts[0])

    def test_tools(self):
        tools = [WEATHER, {"type": "web_search"}, {"type": "custom", "name": "patch"}, {"type": "namespace", "name": "a", "tools": []}]
        self.same_prompt({"tools": tools}, HELLO, tools=[CHAT_WEATHER])
        self.same_prompt({"tools": tools, "tool_choice": "none"}, HELLO, tools=[CHAT_WEATHER])
        other = {**WEATHER, "name": "other"}
        allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}
        self.same_prompt({"tools": [other, *tools], "tool_choice": allowed}, HELLO, tools=[CHAT_WEATHER])
        self.wrong("tool_choice", "has no tools", tool_choice="required")
        self.wrong("tool_choice", '"absent"', tools=tools, tool_choice={"type": "function", "name": "absent"})
        self.wrong("tool_choice.type", '"allowed_tools"', tools=tools, tool_choice={"type": "web_search"})
        self.wrong("tool_choice", '"auto"', tools=tools, tool_choice="some")

    def test_results_that_are_no_text_are_told_in_words(self):
        """An agent that has looked at a picture goes on."""
        parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}, {"type": "input_file", "file_data": "AAAA"}]
        history = {"input": [*HELLO, {"type": "function_call_output", "call_id": "call_1", "output": parts}]}
        words = "\n".join(["see", *(f"[Here is an {what}, which you cannot see: you read text alone.]" for what in ("image", "attached file"))])
        self.same_prompt(history, [*HELLO, {"role": "tool", "tool_call_id": "call_1", "content": words}])
        ignored = self.server.post(PATH, {**history, "max_output_tokens": 1})[1]["x-ignored"]
        self.assertEqual(ignored, "images of results, attached files of results")

    def test_namespaces(self):
        """Functions in groups, as agents send those of other servers: one list in the prompt, and told apart in what is answered."""
        outer = {"type": "namespace", "name": "maps", "description": "of the world", "tools": [WEATHER, {"type": "custom", "name": "patch"}]}
        joined = {"type": "function", "function": {**CHAT_WEATHER["function"], "name": "maps__weather"}}
        tools = [outer, WEATHER]
        self.same_prompt({"tools": tools}, HELLO, tools=[joined, CHAT_WEATHER])
        one = {"type": "object", "properties": {"x": {"enum": [1]}}, "required": ["x"], "additionalProperties": False}
        how = {"reasoning": OFF, "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 1000}
        inner = [{**outer, "tools": [{**WEATHER, "parameters": one}]}]
        for response in self.answered(tools=inner, **how), self.streamed(tools=inner, **how):
            (item,) = response["output"]
            self.assertEqual((item["type"], item["name"], item["namespace"]), ("function_call", "weather", "maps"))
            self.assertEqual(json.loads(item["arguments"]), {"x": 1})
        (plain,) = self.answered(tools=[{**WEATHER, "parameters": one}], **how)["output"]
        self.assertEqual((plain["name"], "namespace" in plain), ("weather", False))
        history = [*HELLO, {**item, "call_id": "call_1"}, {"type": "function_call_output", "call_id": "call_1", "output": "mild"}]
        function = {"name": "maps__weather", "arguments": item["arguments"]}
        chat = [
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "call_1", "name": "maps__weather", "content": "mild"},
        ]
        self.same_prompt({"input": history, "tools": tools}, chat, tools=[joined, CHAT_WEATHER])
        for wrong in {"type": "namespace"}, {"type": "namespace", "name": "a", "tools": 1}, {"type": "namespace", "tools": [1]}:
            self.assertIn(self.server.post(PATH, {"input": "a", "max_output_tokens": 1, "tools": [wrong]})[0], (200, 400))

    def test_effort(self):
        self.same_prompt({"reasoning": {"effort": "none"}}, HELLO, reasoning_effort="none")
        self.same_prompt({"reasoning": {"effort": "high", "summary": "auto"}}, HELLO, reasoning_effort="high")
        self.wrong("reasoning.effort", '"medium"', reasoning={"effort": "some"})

    def test_nothing_is_kept(self):
        self.wrong("previous_response_id", "stores no conversations", previous_response_id="resp_1")
        self.wrong("conversation", "stores no conversations", conversation={"id": "conv_1"})
        self.wrong("background", "sent to the client", background=True)
        self.wrong("input[0].id", "stores no items", input=[{"type": "item_reference", "id": "msg_1"}])
        self.answered(previous_response_id=None, conversation=None, background=False, store=True, max_output_tokens=1)

    def test_what_is_no_input(self):
        for value, param, says in [
            (None, "input", "is missing"),
            ([], "input", "a list of 1 or more"),
            (1, "input", "a string or a list"),
            ([1], "input[0]", "an object"),
            ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0].content[0].type", '"input_image"'),
            ([{"type": "something"}], "input[0].type", '"something"'),
            ([{"role": "user"}], "input[0].content", "is missing"),
            ([{"type": "message", "content": "a"}], "input[0].role", "is missing"),
            ([*HELLO, {"type": "function_call", "name": "a", "arguments": "{}"}], "input[1].call_id", "is missing"),
            ([*HELLO, {"type": "function_call", "call_id": "1", "arguments": "{}"}], "input[1].name", "is missing"),
            ([*HELLO, {"type": "function_call", "call_id": "1", "name": "a", "arguments": {}}], "input[1].arguments", "a string"),
            ([*HELLO, {"type": "function_call_output", "call_id": "1"}], "input[1].output", "is missing"),
            ([*HELLO, {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_video"}]}], "input[1].output[0].type", '"input_video"'),
            ([{"type": "image_generation_call"}], "input", "has no text"),
        ]:
            with self.subTest(value):
                self.wrong(param, says, input=value)
        self.wrong("input[0].role", '"developer"', input=[{"role": "tool", "content": "a"}])

    def test_members(self):
        known = {"user": "x", "prompt_cache_key": "y", "service_tier": "auto", "stream_options": {"include_obfuscation": False}}
        status, fields, _ = self.server.post(PATH, {"input": "a", "max_output_tokens": 1, **known})
        self.assertEqual((status, "x-ignored" in fields), (200, False))
        for ignored in {"something": 1}, {"truncation": "auto"}:
            fields = self.server.post(PATH, {"input": "a", "max_output_tokens": 1, **ignored})[1]
            self.assertEqual(fields["x-ignored"], next(iter(ignored)))
        self.wrong("prompt", '"prompt"', prompt={"id": "x"})
        self.wrong("max_output_tokens", max_output_tokens=0)
        self.wrong("metadata", metadata=1)
        self.wrong("include[0]", include=[1])
        self.wrong("text.format", "schema", text={"format": {"type": "json_schema"}})
        self.wrong("model", '"absent"', "model_not_found", 404, model="absent")
        for stream in False, True:
            self.wrong(None, f"{CONTEXT}", "context_length_exceeded", input="x" * (CONTEXT + 1), stream=stream)


if __name__ == "__main__":
    unittest.main()
