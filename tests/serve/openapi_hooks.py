"""What schemathesis cannot know of valid requests: values that go together, and those that have a meaning of their own (check_openapi.py)."""

import schemathesis

VOCABULARY = 64  # ids below it are tokens of every model of the tests
MOST_TOKENS = 4
STRUCTURES = ("grammar", "regex", "json_schema", "guided_json", "guided_regex", "guided_grammar", "guided_choice", "structured_outputs")


def short(value):
    """What has room in the context of a small model."""
    if isinstance(value, str):
        return value[:64]
    if isinstance(value, list):
        return [short(one) for one in value[:8]]
    return {name: short(one) for name, one in value.items()} if isinstance(value, dict) else value


def meaningful_ids(value):
    """Lists of token ids and texts, as prompts and inputs are, without what is no token and no text; of one kind each."""
    if isinstance(value, str):
        return value or "a"
    if not isinstance(value, list):
        return value
    if any(isinstance(one, (int, float)) for one in value):
        return [int(one) % VOCABULARY for one in value if isinstance(one, (int, float))]
    if any(isinstance(one, list) for one in value):
        return [[int(one) % VOCABULARY for one in inner if isinstance(one, (int, float))] or [1] for inner in value if isinstance(inner, list)]
    return [one or "a" for one in value]


def meaningful_messages(messages):
    for message in messages:
        message.setdefault("content", "")  # or calls
        for call in message.get("tool_calls") or []:
            call["function"] = call.get("function") or {"name": "a"}
            call["function"].setdefault("arguments", {})


def meaningful_tools(body):
    """Tools with names of their own and schemas that are some; a choice of one that is there."""
    for i, tool in enumerate(body.get("tools") or []):
        if tool.get("type") == "namespace":
            tool["name"] = f"namespace{i}"
    tools = [inner for tool in body.get("tools") or [] for inner in ([tool] if tool.get("type") != "namespace" else tool.get("tools") or [])]
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        if tool.get("type") in (None, "function", "custom") or "name" in function:
            function["name"] = f"tool{i}"
        for schema in ("parameters", "input_schema"):
            if schema in function:
                function[schema] = {"type": "object"}
    body.pop("tool_choice", None)  # without tools there is nothing to choose; test_serve.py has the choices


def meaningful_format(value):
    if isinstance(value, dict) and value.get("type") in ("json_object", "json_schema"):
        value.pop("json_schema", None)
        value["schema"] = {"type": "integer"}


def meaningful(body):
    for name in ("prompt", "input", "content", "context", "tokens"):
        if name in body and not (name == "input" and isinstance(body[name], list) and any(isinstance(one, dict) for one in body[name])):
            body[name] = meaningful_ids(body[name])
    for name in ("max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens"):
        body[name] = MOST_TOKENS
    body.pop("n", None), body.pop("n_cmpl", None), body.pop("best_of", None)
    if body.get("top_logprobs"):
        body["logprobs"] = True
    if body.get("dimensions"):
        body["dimensions"] = 1
    if isinstance(body.get("options"), dict):
        meaningful(body["options"])
        body["options"]["num_predict"] = MOST_TOKENS
    if isinstance(body.get("messages"), list):
        meaningful_messages(body["messages"])
        body["messages"].append({"role": "user", "content": "a"})  # there is something to answer
    if isinstance(body.get("input"), list) and any(isinstance(one, dict) for one in body["input"]):
        body["input"].append({"role": "user", "content": "a"})
    if body.get("add_generation_prompt"):
        body.pop("continue_final_message", None)  # one or the other
    body.pop("prompt_name", None)  # names one of the checkpoint, which has none: test_serve_extras.py
    meaningful_tools(body)
    for name in STRUCTURES:  # each is a language of its own, and an answer is held to one: test_serve.py
        body.pop(name, None)
    for value in (body.get("response_format"), body.get("output_format"), (body.get("text") or {}).get("format") if isinstance(body.get("text"), dict) else None,
                  (body.get("output_config") or {}).get("format")):
        meaningful_format(value)
    if isinstance(body.get("format"), dict):
        body["format"] = {"type": "integer"}
    body.pop("logit_bias", None), body.pop("samplers", None), body.pop("chat_template_kwargs", None)
    for name in ("suffix", "raw"):
        body.pop(name, None)
    if "name" in body or "model" in body:
        body["model"] = "tiny"


@schemathesis.hook
def before_call(context, case, kwargs):
    if not case.meta or not case.meta.generation.mode.is_positive or not isinstance(case.body, dict):
        return
    case.body = short(case.body)
    for name in ("tools", "messages"):  # so many as fit the context
        if isinstance(case.body.get(name), list):
            del case.body[name][4:]
    if case.path.endswith("/show") or case.path.endswith("/pull"):
        case.body["model"] = "tiny"
    if case.path in ("/embedding", "/embeddings"):
        if case.body.get("content") is None and case.body.get("input") is None:
            case.body["content"] = "a"
    meaningful(case.body)
    if case.path.endswith(("/rerank", "/reranking")):
        case.body["model"] = "reranker"
        if case.body.get("documents"):
            case.body.pop("texts", None)
        elif not case.body.get("texts"):
            case.body["documents"] = ["a"]
    if case.path_parameters and "id_slot" in case.path_parameters:
        case.path_parameters["id_slot"] = 0
        case.body["filename"] = "saved"
        case.query["action"] = "save"
