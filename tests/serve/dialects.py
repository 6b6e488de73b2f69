"""Each dialect of `hearth serve`: a request with a tool, and its answer, whole and as a stream, in one form for all of them."""

import json

HELLO = {"role": "user", "content": "hello the world"}
STEERED = {"temperature": 0, "seed": 1}


class OpenAI:
    """An answer is (text, [(name, arguments as far as they came, whether they are told to be whole)], whether it was cut, how many tokens it has)."""

    path, choices = "/v1/chat/completions", {"none": "none", "required": "required", "auto": "auto", "named": {"type": "function", "function": {"name": "weather"}}}

    def body(self, parameters, choice, most, bias=None, messages=(HELLO,), schema=None):
        """A request with the tool "weather" of those parameters; with a schema of its text it may call it several times."""
        form = {"response_format": {"type": "json_schema", "json_schema": {"name": "sky", "schema": schema, "strict": True}}} if schema else {"parallel_tool_calls": False}
        return {"messages": messages, "tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters}}],
                "tool_choice": self.choices[choice], "reasoning_effort": "none", "max_tokens": most, "logit_bias": bias or {}, **form, **STEERED}

    def history(self, calls):
        made = [{"id": f"call{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}} for i, (name, given) in enumerate(calls)]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "mild"} for call in made]
        return [HELLO, {"role": "assistant", "content": None, "tool_calls": made}, *results]

    def ended(self, reason, calls):
        cut = reason == "length"
        assert cut or reason == ("tool_calls" if calls else "stop"), reason
        return cut

    def whole(self, server, body):
        answer = server.answer(self.path, body)
        (choice,) = answer["choices"]
        message = choice["message"]
        calls = [(one["function"]["name"], one["function"]["arguments"], None) for one in message.get("tool_calls", [])]
        assert all(one["id"].startswith("call_") and one["type"] == "function" for one in message.get("tool_calls", []))
        assert (message["content"] is None) == (bool(calls) and not message["content"])
        return message["content"] or "", calls, self.ended(choice["finish_reason"], calls), answer["usage"]["completion_tokens"]

    def streamed(self, server, body):
        text, calls, end, tokens = "", [], None, None
        for _, data in server.events(self.path, {**body, "stream": True, "stream_options": {"include_usage": True}}):
            if data == "[DONE]":
                continue
            tokens = data["usage"]["completion_tokens"] if data["usage"] else tokens
            for choice in data["choices"]:
                end = choice["finish_reason"] or end
                text += choice["delta"].get("content") or ""
                for one in choice["delta"].get("tool_calls", []):
                    if "name" in one["function"]:
                        calls.append((one["function"]["name"], "", None))
                    name, arguments, _ = calls[one["index"]]
                    calls[one["index"]] = name, arguments + one["function"].get("arguments", ""), None
        return text, calls, self.ended(end, calls), tokens


class Responses(OpenAI):
    path, choices = "/v1/responses", {**OpenAI.choices, "named": {"type": "function", "name": "weather"}}

    def body(self, parameters, choice, most, bias=None, messages=(HELLO,), schema=None):
        form = {"text": {"format": {"type": "json_schema", "name": "sky", "schema": schema}}} if schema else {"parallel_tool_calls": False}
        return {"input": messages, "tools": [{"type": "function", "name": "weather", "parameters": parameters}], "tool_choice": self.choices[choice],
                "reasoning": {"effort": "none"}, "max_output_tokens": most, "logit_bias": bias or {}, **form, **STEERED}

    def history(self, calls):
        made = [{"type": "function_call", "call_id": f"call{i}", "name": name, "arguments": json.dumps(given)} for i, (name, given) in enumerate(calls)]
        return [HELLO, *made, *({"type": "function_call_output", "call_id": call["call_id"], "output": "mild"} for call in made)]

    def read(self, response):
        cut = response["status"] == "incomplete"
        assert response["incomplete_details"] == ({"reason": "max_output_tokens"} if cut else None)
        calls = [(item["name"], item["arguments"], item["status"] == "completed") for item in response["output"] if item["type"] == "function_call"]
        texts = [(part["text"], item["status"]) for item in response["output"] if item["type"] == "message" for part in item["content"]]
        assert all(status == ("incomplete" if cut else "completed") for _, status in texts)
        return "".join(text for text, _ in texts), calls, cut, response["usage"]["output_tokens"]

    def whole(self, server, body):
        return self.read(server.answer(self.path, body))

    def streamed(self, server, body):
        """What the events of items say is what the last one holds."""
        arguments, done, last = {}, [], None
        for name, event in server.events(self.path, {**body, "stream": True}):
            if name == "response.function_call_arguments.delta":
                arguments[event["item_id"]] = arguments.get(event["item_id"], "") + event["delta"]
            if name == "response.output_item.done":
                done.append(event["item"])
            last = name, event
        name, response = last[0], last[1]["response"]
        assert name == f"response.{response['status']}", name
        assert done == response["output"]
        for item in done:
            assert item["type"] != "function_call" or item["arguments"] == arguments.get(item["id"], "")
        return self.read(response)


class Anthropic(OpenAI):
    path, choices = "/v1/messages", {"none": {"type": "none"}, "required": {"type": "any"}, "auto": {"type": "auto"}, "named": {"type": "tool", "name": "weather"}}

    def body(self, parameters, choice, most, bias=None, messages=(HELLO,), schema=None):
        form = {"output_config": {"format": {"type": "json_schema", "schema": schema}}} if schema else {}
        one = {} if schema or choice == "none" else {"disable_parallel_tool_use": True}
        return {"messages": messages, "tools": [{"name": "weather", "input_schema": parameters}], "tool_choice": {**self.choices[choice], **one},
                "thinking": {"type": "disabled"}, "max_tokens": most, "logit_bias": bias or {}, **form, **STEERED}

    def history(self, calls):
        made = [{"type": "tool_use", "id": f"call{i}", "name": name, "input": given} for i, (name, given) in enumerate(calls)]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "mild"} for call in made]
        return [HELLO, {"role": "assistant", "content": made}, {"role": "user", "content": results}]

    def ended(self, reason, calls):
        cut = reason == "max_tokens"
        assert cut or reason == ("tool_use" if calls else "end_turn"), reason
        return cut

    def whole(self, server, body):
        message = server.answer(self.path, body)
        calls = [(block["name"], block["input"], None) for block in message["content"] if block["type"] == "tool_use"]
        text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        return text, calls, self.ended(message["stop_reason"], calls), message["usage"]["output_tokens"]

    def streamed(self, server, body):
        text, calls, end, tokens, is_open = "", [], None, None, False
        for name, event in server.events(self.path, {**body, "stream": True}):
            if name == "content_block_start":
                is_open = True
                if event["content_block"]["type"] == "tool_use":
                    calls.append((event["content_block"]["name"], "", None))
            if name == "content_block_stop":
                is_open = False
            if name == "content_block_delta":
                text += event["delta"].get("text", "")
                if "partial_json" in event["delta"]:
                    calls[-1] = calls[-1][0], calls[-1][1] + event["delta"]["partial_json"], None
            if name == "message_delta":
                end, tokens = event["delta"]["stop_reason"], event["usage"]["output_tokens"]
        assert not is_open
        return text, [(name, whole_members(arguments), None) for name, arguments, _ in calls], self.ended(end, calls), tokens


class Ollama(OpenAI):
    path, choices = "/api/chat", {"auto": "auto"}

    def body(self, parameters, choice, most, bias=None, messages=(HELLO,), schema=None):
        options = {"num_predict": most, "logit_bias": bias or {}, **STEERED}
        return {"messages": messages, "tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters}}], "think": False,
                "options": options, **({"format": schema} if schema else {})}

    def history(self, calls):
        made = [{"function": {"name": name, "arguments": given}} for name, given in calls]
        return [HELLO, {"role": "assistant", "content": "", "tool_calls": made}, *({"role": "tool", "tool_name": "weather", "content": "mild"} for _ in made)]

    def read(self, lines):
        calls = [one["function"] for line in lines for one in line["message"].get("tool_calls", [])]
        assert [one["index"] for one in calls] == list(range(len(calls)))
        assert lines[-1]["done"] and lines[-1]["done_reason"] in ("length", "stop")
        told = [(one["name"], one["arguments"], True) for one in calls]
        return "".join(line["message"]["content"] for line in lines), told, lines[-1]["done_reason"] == "length", lines[-1]["eval_count"]

    def whole(self, server, body):
        return self.read([server.answer(self.path, {**body, "stream": False})])

    def streamed(self, server, body):
        return self.read(list(server.lines(self.path, body)))


def whole_members(text):
    """The longest beginning of a JSON text that is an object once its brackets are closed, and does not end in a number."""
    for end in range(len(text), 0, -1):
        if text[end - 1].isdigit() and text[end : end + 1] not in (",", "]", "}"):
            continue
        for closing in "", "}", "]}", "}}", "]}}":
            try:
                return json.loads(text[:end] + closing)
            except ValueError:
                pass
    return {}
