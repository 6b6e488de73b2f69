"""Compares `hearth template` with jinja2 as transformers sets it up, over real chat templates and snippets.

    python tests/golden/templates.py [--hearth build/release/bin/hearth] [--templates DIR]... [--snippets] [--chat]
                                     [--every N] [--jobs N] [--list] [--show K] [--time]

Without --templates the templates are those of the llama-cpp-python source package (fetched once by pip, kept in
~/.cache/hearth/templates) and of the GGUF files in ~/.cache/hearth/models. Each is
rendered with every conversation and every set of options below, or with --every N, with each N-th of them. The snippets are
small pieces of the template language, some of which no chat template has; --chat leaves them out.

A case passes when both write the same bytes, or when both fail: jinja2 by any exception, Hearth with exit status 1, nothing
written and one line that begins with "hearth: " and holds what the template said to raise_exception.

The environment is transformers 5.24.0's (utils/chat_template_utils.py), but with the sandbox that lets lists and dicts be
changed and with the filter from_json. Messages are given to jinja2 as apply_chat_template gives them, with the keys that are
None left out and the reasoning under its other names, and otherwise as include/hearth/chat.h says: parts of text are joined,
arguments are objects or text and a content is None or "" as the template takes them, results are in the order of the calls.
Not compared: bytes, integers that arithmetic takes beyond 64 bits, texts that hold addresses, and what Hearth leaves out, as
blocks, autoescape, cycler, joiner, lipsum, random, urlize, truncate, wordwrap, wordcount, striptags, urlencode and xmlattr.
Needs jinja2 3.1.6.
"""

import argparse
import collections
import concurrent.futures
import datetime
import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time

import gguf_fields
import jinja2
import jinja2.ext
import jinja2.sandbox

PACKAGE = "llama-cpp-python==0.3.36"
IN_PACKAGE = "/vendor/llama.cpp/models/templates/"
CACHES = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hearth"
CACHE = CACHES / "templates"  # outlives this clone
MODELS = CACHES / "models"
TIMEOUT_S = 20
CONTEXT = 60  # characters shown on both sides of a difference
RUNS = 9  # of which the fastest is told


# ---- jinja2 as transformers sets it up ----


class Raised(jinja2.TemplateError):
    """What a template gave to raise_exception."""


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: a call block, so that its body has a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("same"), [], [], body).set_lineno(line)

    def same(self, caller):
        return caller()


class Dict:
    """The global `dict`, of which only the call and fromkeys are left."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace takes no {name!r}")


class Namespace(jinja2.utils.Namespace):
    """The global `namespace`, which takes no name that begins with an underscore."""

    def __init__(*args, **kwargs):  # no named self, which `namespace(self=1)` may give
        self, *args = args
        names = dict(*args, **kwargs)
        for name in names:
            check_name(name)
        jinja2.utils.Namespace.__init__(self, names)

    def __setitem__(self, name, value):
        check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise Raised(message)


def strftime_now(format):
    return datetime.datetime.now().strftime(format)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters |= {"tojson": tojson, "from_json": json.loads}
    env.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now, "dict": Dict(), "namespace": Namespace}
    return env


def probe(arguments, content):
    asked = [user("a"), answer(content, tool_calls=[call("f", arguments, id="call00001")]), result("b", "f"), answer("c"), user("d")]
    tools = [function("f", "e", {"probed": {"type": "string", "description": "e"}}, required=[])]
    return {"messages": asked, "tools": tools, **NO_TOKENS, "functions": "", "datetime": "", "add_generation_prompt": True}


def written(template, as_text, content):
    """The length of a call as the template writes it, 0 where it does not."""
    text = '{"probed": "00value00"}'
    try:
        found = template.render(probe(text if as_text else json.loads(text), content))
    except Exception:
        return 0
    good = text in found if as_text else "00value00" in found and "'probed'" not in found
    return len(found.encode()) * good


@functools.cache
def forms(template, source):
    """Whether the template takes arguments as text, and contents as None."""
    if "tool_calls" not in source:
        return False, False
    as_text = not written(template, False, "") and not written(template, False, None)
    empty, null = written(template, as_text, ""), written(template, as_text, None)
    return as_text and bool(empty or null), null > 0 and (not empty or null < empty)


def arguments_of(value, as_text):
    if isinstance(value, dict):
        return tojson(value) if as_text else value
    if not value.strip():
        return "{}" if as_text else {}
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return found if isinstance(found, dict) and not as_text else value


def prepared_call(call, as_text):
    function = call.get("function", call)
    if "arguments" in function:
        function = function | {"arguments": arguments_of(function["arguments"], as_text)}
    return call | {"function": function} if "function" in call else function


def in_order(messages):
    """With the results of a message's calls in the order of the calls."""
    messages, ids = list(messages), []
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            j = i
            while j and message.get("tool_call_id") in ids and messages[j - 1]["role"] == "tool" and (
                ids.index(messages[j - 1].get("tool_call_id")) > ids.index(message["tool_call_id"])
            ):
                messages[j - 1], messages[j], j = message, messages[j - 1], j - 1
        else:
            ids = [call.get("id") for call in message.get("tool_calls") or []]
    return messages


def prepared(messages, template, source):
    """The messages as apply_chat_template hands them on."""
    as_text, takes_none = forms(template, source)
    turns = []
    for message in in_order(messages):
        message = dict(message)
        if isinstance(message["content"], list):
            message["content"] = "".join(part["text"] for part in message["content"])
        if message["role"] == "developer" and "developer" not in source:
            message["role"] = "system"
        message["tool_calls"] = [prepared_call(call, as_text) for call in message.get("tool_calls") or []] or None
        null = message["content"] is None
        turn = {key: value for key, value in message.items() if value is not None or key == "content"}
        if null and not (takes_none and message["role"] == "assistant"):
            turn["content"] = ""
        thought = next((turn[key] for key in ("reasoning_content", "thinking", "reasoning") if key in turn), None)
        if thought and turn["content"] and "tool_calls" in turn and "<|channel|>analysis" in source:
            thought, turn["content"] = f"{thought}\n\n{turn['content']}", ""
            turn |= {"thinking": thought} if "thinking" in turn else {}
        turns.append(turn if thought is None else {"thinking": thought} | turn | {"reasoning_content": thought})
    if "tool_calls" in source:
        return turns
    if "<tool_call>" in source or "<|tool_call|>" in source:
        return [turn | {"content": text_with_calls(turn, source)} for turn in turns]
    with_metadata = "metadata" in source and "<|observation|>" in source
    return [part for turn in turns for part in as_metadata(turn)] if with_metadata else turns


def text_with_calls(turn, source):
    """The text of a message with its calls, for templates that write no calls: in the formats of Qwen and of Granite 3."""
    calls = [call.get("function", call) for call in turn.get("tool_calls") or []]
    written = []
    for call in calls:
        given = call.get("arguments", "{}")
        arguments = tojson(given) if isinstance(given, dict) else given if given.strip() else "{}"
        written.append(f'{{"name": "{call.get("name", "")}", "arguments": {arguments}}}')
    if not calls:
        return turn["content"]
    text = "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in written) if "<tool_call>" in source else (
        f"<|tool_call|>[{', '.join(written)}]"
    )
    return f"{turn['content']}\n{text}" if turn["content"] else text


def as_metadata(turn):
    """Messages of GLM 4 of April 2025, which writes a call as one with its name as metadata."""
    calls = [call.get("function", call) for call in turn.get("tool_calls") or []]
    if calls and turn["content"] or not calls and turn.get("tool_calls") is None:
        yield turn | {"role": {"tool": "observation"}.get(turn["role"], turn["role"])}
    for call in calls:
        arguments = call.get("arguments") or "{}"
        yield {"role": "assistant", "metadata": call.get("name", ""),
               "content": arguments if isinstance(arguments, str) else tojson(arguments)}  # fmt: skip


# ---- the matrix of conversations and options ----

ODD_TEXT = (
    "\u00a0\u3000 Größe 日本語 👋🏽 e\u0301 \u200b\u2028ﬁ İ \t tab\r\n\r\n"
    "  'single' \"double\" \\back \x7f end \n\u00a0 \u3000\n"
)
HTML = "<b class=\"x\">1 < 2 && 3 > 2</b> &amp; 'it''s' </tool_call> <|im_end|> </s>"
LIKE_A_TEMPLATE = "{{ messages }} {% if x %} {# note #} {%- raw -%} }} %} #} ${x} {0} %s %(a)s {"
ODD_JSON = {"one": 1.0, "big": 1e22, "bigger": 1e16, "tenth": 0.1, "sum": 0.30000000000000004, "tiny": 1e-7, "minus": -0.0,
            "long": 123456789012345678901234567890, "int64": 9223372036854775807, "yes": True, "no": False, "none": None,
            "nested": [[1, [2.5, []]], {}, [None, True], "a\"b\\c/d\n\t\u0001\u007f"], "empty": {},
            "é 👋\u00a0": "<&>'"}  # fmt: skip


def user(content, **more):
    return {"role": "user", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def answer(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def result(content, name="get_weather", id="call00001"):
    return {"role": "tool", "name": name, "tool_call_id": id, "content": content}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


PARIS = {"city": "Paris", "days": 3, "detailed": True}
ASKED = [user("How warm is it in Paris?"), answer("", tool_calls=[call("get_weather", PARIS, id="call00001")])]

CONVERSATIONS = {
    "question": [user("What is the capital of France?")],
    "system": [system("Answer in \"verse\", 100 % of it."), user("1 + 1?")],
    "only system": [system("Be brief.")],
    "three turns": [user("1 + 1?"), answer("2"), user("Why?")],
    "ends in an answer": [system("Count."), user("One"), answer("Two"), user("Three"), answer("Four, and then")],
    "many turns": [system("You count."), *[turn for i in range(6) for turn in (user(f"{i}?"), answer(f"{i + 1}."))],
                   user("On")],
    "no content": [user("Go"), answer(None), user("On")],
    "empty": [system(""), user(""), answer(""), user("")],
    "parts": [system(parts("Be ", "brief.")), user(parts("a", " b\n")), answer(parts("c")), user(parts("d", "", "e"))],
    "roles out of order": [user("a"), user("b"), answer("c"), answer("d"), system("e"), user("f")],
    "developer": [{"role": "developer", "content": "Obey."}, user("Hm"), answer("So"), user("So?")],
    "odd text": [system(ODD_TEXT), user(ODD_TEXT), answer(ODD_TEXT), user(ODD_TEXT)],
    "HTML": [system(HTML), user(HTML), answer(HTML, reasoning_content=HTML), user(HTML)],
    "like a template": [system(LIKE_A_TEMPLATE), user(LIKE_A_TEMPLATE), answer(LIKE_A_TEMPLATE), user(LIKE_A_TEMPLATE)],
    "a call": [*ASKED, result("21.5 degrees"), answer("It is 21.5 degrees."), user("And in Rome?")],
    "a call pending": [system("Use the tools."), *ASKED, result("{\"degrees\": 21.5, \"sky\": \"clear\"}")],
    "a call last": ASKED,
    "a call in text": [user("Weather?"), answer(None, tool_calls=[call("get_weather", json.dumps(PARIS), id="call00001")]),
                       result("warm"), answer("Warm."), user("Thanks")],
    "calls": [user("Paris and Rome?"),
              answer("Let me look.", tool_calls=[call("get_weather", {"city": "Paris"}, id="call00001"),
                                                 call("get_weather", {"city": "Rome"}, id="call00002"),
                                                 call("now", {}, id="call00003")]),
              result("21"), result("25", id="call00002"), result("noon", "now", "call00003"),
              answer("21 and 25."), user("So Rome is warmer?")],
    "calls without content": [user("Go"), answer(None, tool_calls=[call("now", "", id="call00001")]), result("noon", "now"),
                              answer("Noon."), user("And?"), answer("", tool_calls=[]), user("Well?")],
    "results out of order": [user("Go"), answer(None, tool_calls=[call("get_weather", PARIS, id="call00001"),
                                                                  call("now", "{}", id="call00002")]),
                             result("noon", "now", "call00002"), result("21")],
    "calls in a row": [system("Think."), user("Go"),
                       answer("", reasoning_content="First the time.", tool_calls=[call("now", {}, id="call00001")]),
                       result("noon", "now"),
                       answer(None, reasoning_content="Then the weather.",
                              tool_calls=[call("get_weather", {"city": "Oslo"}, id="call00002")]),
                       result("cold", id="call00002"), answer("Cold at noon.", reasoning_content="Done.")],
    "odd arguments": [user("Go"), answer("", tool_calls=[call("odd", ODD_JSON, id="call00001")]),
                      result(json.dumps(ODD_JSON, ensure_ascii=False), "odd")],
    "odd calls": [user("Go"),
                  answer("x", tool_calls=[{"name": "now", "arguments": {}}, {"function": {"name": "now"}, "id": 7}]),
                  {"role": "tool", "content": "noon"}],
    "results in parts": [*ASKED, {**result(parts("21", " degrees")), "name": None}, user("Hm")],
    "reasoning": [user("1 + 1?"), answer("2", reasoning_content="One and one\nmake two."), user("2 + 2?"),
                  answer("4", reasoning_content=" \n Twice that.\n\n")],
    "thinking": [user("1 + 1?"), answer("2", thinking="Easy."), user("2?"), answer("4", reasoning="Hm."), user("3?")],
    "thinking in text": [user("1 + 1?"), answer("<think>\nOne, two.\n</think>\n\n2"), user("<think>no</think>"),
                         answer("<think></think>x</think>y"), user("More /no_think")],
}  # fmt: skip


def function(name, description, properties, **more):
    parameters = {"type": "object", "properties": properties, **more}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = {
    "tools": [
        function("get_weather", "The weather of a city.",
                 {"city": {"type": "string", "description": "Its name"}, "days": {"type": "integer", "description": "Some"},
                  "unit": {"type": "string", "enum": ["C", "F"], "description": "Degrees", "default": "C"},
                  "detailed": {"type": "boolean", "description": "Is much to be told?"}},
                 required=["city"]),
        function("now", "What time it is", {}),
    ],
    "odd tools": [
        function("odd", "First line\n  second <line> & 'more' \"quoted\" // é 👋\u00a0\u2028",
                 {"number": {"type": "number", "minimum": 0.1, "maximum": 1e22, "default": 1.0, "multipleOf": 1e-7},
                  "either": {"type": ["string", "null"], "description": None, "default": None},
                  "any": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
                  "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}},
                           "default": [[1, [2.5]], {}], "minItems": 1},
                  "map": {"type": "object", "additionalProperties": {"type": "number"}, "examples": [ODD_JSON]},
                  "none": {}, "items": {"type": "string", "enum": ["a'b", "c\"d", ""]}},
                 required=["number", "items"], additionalProperties=False),
    ],
    "bare tools": [
        {"type": "function", "function": {"name": "bare", "description": "Without parameters", "strict": True}},
        {"type": "function", "function": {"name": "barer", "parameters": {}}},
    ],
}  # fmt: skip

NO_TOKENS = {"bos_token": "", "eos_token": ""}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
# What else templates ask for, in one set that turns much on and one that turns it off.
ON = {"enable_thinking": True, "thinking": True, "reasoning_effort": "high", "date_string": "26 Jul 2024", "xml_tools": True,
      "preserve_thinking": True, "keep_past_thinking": True, "clear_thinking": False, "tools_in_user_message": False,
      "builtin_tools": ["browser", "python"], "model_identity": "You are Hearth.", "thinking_budget": 512,
      "functions": "[{}]", "datetime": "2024-07-26", "response_format": None,
      "documents": [{"title": "Ä <1>", "text": "One"}, {"title": "Two", "text": "Zwei\n"}]}  # fmt: skip
OFF = {"enable_thinking": False, "thinking": False, "reasoning_effort": "low", "date_string": "", "preserve_thinking": False,
       "clear_thinking": True, "thinking_mode": "chat", "builtin_tools": [], "documents": [],
       "response_format": {"type": "json"}}  # fmt: skip

# name -> (tools, a generation prompt?, further variables)
OPTIONS = {
    "nothing": (None, True, {}),
    "tokens": (None, True, TOKENS),
    "closed": (None, False, TOKENS),
    "on": (None, True, TOKENS | ON),
    "off": (None, True, TOKENS | OFF),
    "tools": ("tools", True, TOKENS),
    "tools, on": ("tools", True, TOKENS | ON),
    "tools, off, closed": ("tools", False, TOKENS | OFF),
    "odd tools": ("odd tools", True, TOKENS | {"enable_thinking": True}),
    "bare tools": ("bare tools", True, TOKENS | {"tools_in_user_message": False}),
}

# ---- snippets ----

# A snippet is given those of these variables that it names.
VARIABLES = {
    "yes": True, "no": False, "nothing": None, "seven": 7, "real": 2.5, "huge": 123456789012345678901234567890,
    "word": "hearth", "title_text": "the quick-brown fOX (jumps) o'er",
    "lines": "one\n two\n\nthree\r\nfour\x0bfive\u2028six\n", "html": "<a href=\"x\">&'</a>",
    "blank": " \t\n\u00a0\u3000x y\u2003\x1c\x85", "accents": "Größe éÉ ß ŉ İ ı Σς ǆ ﬁ 日本 👋🏽",
    "numbers": [3, 1, 2], "floats": [1.0, 2.5, -0.0, 1e22, 1e-7], "words": ["pear", "Apple", "fig", "apple", "Fig"],
    "mixed": [1, 1.0, "1", True, None, [], {}], "nested": [[1, 2], [3, [4, 5]]], "pairs": [["a", 1], ["b", 2], ["c", 3]],
    "mapping": {"b": 1, "a": 2, "C": 3}, "keyed": {"items": 1, "keys": [2], "get": "g", "name": "n", "x y": 3, "0": 4},
    "people": [{"name": "Cy", "age": 30, "city": {"name": "Ulm"}}, {"name": "ann", "age": 25}, {"name": "Bo", "age": 30}],
    "tree": [{"n": 1, "kids": [{"n": 2, "kids": [{"n": 3}]}, {"n": 4, "kids": []}]}, {"n": 5}], "odd_json": ODD_JSON,
    "control": "\x01\x1f\x7f\x80\xa0\xad\u200b\u2028\u3000\ud7ff\ue000\ufeff\U000e0001\U0010ffff\t\n\r\\'\"é👋",
}  # fmt: skip

# fmt: off
SNIPPETS = {
    "white space": [
        "a\n{% if yes %}\n b\n{% endif %}\nc\n", "a\n  {% if yes %}  \n b\n\t {% endif %}\nc",
        "x {% if yes %}\ny{% endif %}\n", "  {{ word }}\n  {{ word }}  \n", "a \n\t {%- if yes %} b {%- endif %} c",
        "a {% if yes -%}  \n\n b{% endif -%}\n c", "a\n  {%+ if yes %}b{% endif +%}\nc",
        "a\n  {%+ if yes +%}\nb\n  {%+ endif %}\nc", "a {{- word -}} \n b", "a\n {{+ word }} \nb",
        "{{-1}}|{{+1}}|{{ -1 }}|{{- -1 }}", "{{ 1 +}}", "a\n  {# note #}\nb\n {# two\nlines #} \nc", "a {#- note -#} b",
        "a\n {#+ note +#}\nb", "{#-#}x{##}y{#--#}z", "{% raw %}{{ x }} {% if %} {# no #}{% endraw %}",
        "a\n  {% raw %}\n b {{\n  {% endraw %}\nc", "a {%- raw -%}  b  {%- endraw -%}  c",
        "{% raw %}\n\nx{% endraw %}\n", "{% raw -%} \n x \n{%+ endraw %}\ny", "{% raw %}{% raw %}{% endraw %}x", "a\n",
        "a\n\n", "\n", "", "a\r\n", "\r\n\r\n", "a\rb\r\nc\n\rd\r", "{{ word }}\n\n", "{% set a = 1 %}\n\n{{ a }}",
        "{% set a = 1 -%}\n\n{{ a }}", "a\u00a0{%- set a = 1 %}b", "a{% set a = 1 -%}\u3000\x1c\x85b",
        "\u00a0{% set a = 1 %}b", "\x0b\x0c {% set a = 1 %}b", "a\u2028  {% set a = 1 %}b",
        "\t \t{% set a = 1 %}b\n \t{# c #}d", "{% if yes %}\r\nx\r\n  {% endif %}\r\ny",
        "{{ '%}' }}{{ '}}' }}{{ \"{{\" }}{% set a = '%}' %}{{ a }}{# {{ %} }} #}", "{{ {'a': {'b': 1}}['a'] }}",
        "{{{'a': {'b': 1}}}}", "{{ {'a':{'b':1}}}}", "{%if yes%}x{%endif%}{%-if yes-%} y {%-endif-%}",
        "{{word}}{{word}}", "a {%- if yes -%} {%- endif -%} b", "{% if yes %}\n\n\nx{% endif %}",
        "  {%- if yes %}x{% endif %}  ", "x\n  {%- set a = 1 %}  \n  y",
        "  {% set a %}\n  body\n  {% endset %}|{{ a }}|", "a\n   {%+ set b = 1 -%}   \n c",
        "{{ 'a\nb' }}{{ 'a\r\nb'|length }}", "one\\\ntwo", "# for x in numbers\n## note\n% x", "{#- a -#} {#- b -#} x",
        "a \n {# c -#} \n b", "{{ word -}}\n\n{%- if yes %}\n x{% endif %}", "{ {x} } {% raw %}{{{% endraw %}{",
        "}} %} #} {", "{% if yes %}\n  {{ word }}\n{% else %}\n  no\n{% endif %}\n",
        "{%- for x in numbers -%}\n {{ x }} \n{%- endfor -%}\n.", "{{ word\n  |\n upper\n}}",
        "{%\nif\nyes\n%}\nx{%\nendif\n%}", "a\n\n   {%- if yes %}\n\n   b\n\n   {%- endif %}\n\nc",
        "a {%+ if yes %} b\n {%+ endif %}", "{% for x in numbers %}\n   {{ x }}\n {% endfor %}",
        "\n\n{% set a = 1 %}\n\nx\n\n", "x{# a #}\n\n{# b #}\ny", " {% set a = 1 %}{% set b = 2 %} \n x",
        " {% set a = 1 %} {% set b = 2 %}\nx", " {{ word }}{% set b = 2 %}\nx", "\n  {# c #}{{ word }}",
        "  {% generation %}\n x\n  {% endgeneration %}\ny", "{{ word }}\u00a0{%- if yes -%}\u00a0x{% endif %}",
        "{{ 1 }}}", "{{ '{{' ~ '}}' }}", "{{ 'a' }}\\n{{ 'b' }}",
    ],
    "loops": [
        "{% for x in numbers %}{{ x }},{% else %}none{% endfor %}",
        "{% for x in [] %}{{ x }}{% else %}none{% endfor %}", "{% for x in missing %}{{ x }}{% else %}none{% endfor %}",
        "{% for x in nothing %}{{ x }}{% else %}none{% endfor %}", "{% for x in 5 %}{{ x }}{% endfor %}",
        "{% for k in mapping %}{{ k }}{% endfor %}", "{% for c in 'hé👋' %}{{ c }}.{% endfor %}",
        "{% for k, v in mapping.items() %}{{ k }}={{ v }};{% endfor %}",
        "{% for k, v in mapping|items %}{{ k }}={{ v }};{% endfor %}",
        "{% for k in mapping.keys() %}{{ k }}{% endfor %}{% for v in mapping.values() %}{{ v }}{% endfor %}",
        "{% for a, b in pairs %}{{ a }}{{ b }}{% endfor %}", "{% for (a, b) in pairs %}{{ a }}{{ b }}{% endfor %}",
        "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
        "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}", "{% for a, b in [[1]] %}{{ a }}{% endfor %}",
        "{% for a, b in ['xy', 'zw'] %}{{ a }}-{{ b }} {% endfor %}", "{% for a, b in numbers %}{{ a }}{% endfor %}",
        "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
        "{% for x in numbers if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}",
        "{% for x in numbers if x > 5 %}{{ x }}{% else %}none{% endfor %}",
        "{% for x in numbers if loop.index > 1 %}{{ x }}{% endfor %}",
        "{% for x in (numbers if yes else []) %}{{ x }}{% endfor %}",
        "{% for x in numbers if yes else [] %}{{ x }}{% endfor %}", "{% for x in [1, 2] + [3] %}{{ x }}{% endfor %}",
        "{% for x in range(3) %}{{ x }}{% endfor %}",
        ("{% for x in numbers %}{{ loop.index }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} "
         "{{ loop.first }} "
         "{{ loop.last }} {{ loop.length }} {{ loop.depth }} {{ loop.depth0 }} {{ loop.nope }}\n{% endfor %}"),
        "{% for x in numbers %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
        "{% for x in numbers %}{{ loop.previtem is defined }} {{ loop.nextitem is defined }};{% endfor %}",
        "{% for x in people %}{{ loop.nextitem.name }}{% endfor %}",
        "{% for x in people %}{{ loop.nextitem.name if not loop.last }}{% endfor %}",
        "{% for x in numbers %}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "{% for x in numbers %}{{ loop.cycle() }}{% endfor %}",
        "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
        "{% for x in [1, 1, 2] %}{{ loop.changed(x, 0) }} {% endfor %}",
        "{% for x in people|groupby('age') %}{{ loop.index }}{{ x.grouper }}{{ x.list|length }}{{ x[0] }} {% endfor %}",
        "{% for x in numbers %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
        "{% for x in numbers %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %}",
        "{% for x in numbers %}{% break %}{% else %}none{% endfor %}",
        "{% for x in numbers %}{% continue %}{% else %}none{% endfor %}",
        ("{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}"
         "{% endfor %}"),
        ("{% for x in [1, 2] %}{% for y in 'ab' %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}"
         "{{ loop.depth }}{% endfor %}"),
        ("{% for x in [1, 2] %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}"
         "{% endfor %}"),
        "{% for x in tree recursive %}{{ x.n }}{% if x.kids %}({{ loop(x.kids) }}){% endif %}{% endfor %}",
        ("{% for x in tree recursive %}{{ loop.depth }}.{{ loop.depth0 }}.{{ loop.index }} {{ loop(x.kids or []) }}"
         "{% endfor %}"),
        "{% for x in tree recursive %}{{ x.n }}{% set inner = loop(x.kids or []) %}[{{ inner }}]{% endfor %}",
        "{% for x in tree recursive if x.n != 2 %}{{ x.n }}{{ loop(x.kids|default([])) }}{% else %}-{% endfor %}",
        "{% for x in tree %}{{ loop([]) }}{% endfor %}", "{{ loop }}|{{ loop is defined }}",
        "{% for x in [] %}{% else %}{{ loop is defined }}{{ x is defined }}{% endfor %}",
        "{% for loop in numbers %}{% endfor %}",
        "{% for x in numbers|map('string') %}{{ loop.length }}{{ loop.last }}{{ x }} {% endfor %}",
        "{% for x in numbers|select('odd') %}{{ loop.revindex }}{{ loop.nextitem }} {% endfor %}",
        "{% for x in [1] %}{% endfor %}{{ x }}",
        "{% for x in numbers|reverse %}{{ x }}{% endfor %}{% for c in 'abc'|reverse %}{{ c }}{% endfor %}",
        "{% for x in numbers[1:] %}{{ x }}{% endfor %}",
        "{% for x in numbers[::-1] %}{{ loop.index0 }}{{ x }} {% endfor %}",
        "{% for i in range(numbers|length - 1, -1, -1) %}{{ numbers[i] }}{% endfor %}",
        "{% for a.b in pairs %}{% endfor %}",
        "{% set n = namespace(a=0) %}{% for n.a in numbers %}{{ n.a }}{% endfor %}",
        "{% for x in numbers %}{{ x }}{% endfor x %}", "{% for x in word %}{{ loop.length }}{% break %}{% endfor %}",
        "{% for x in mapping.items() %}{{ x }}{{ loop.length }}{% endfor %}",
        ("{% for i in [0, 1] %}{{ loop.index is odd }}{{ loop is mapping }}{{ loop is iterable }}{{ loop|length }}"
         "{% endfor %}"),
    ],
    "scopes": [
        "{% set x = 1 %}{% for i in numbers %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
        "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}",
        "{% if no %}{% set x = 1 %}{% endif %}{{ x }}{{ x is defined }}",
        "{% for i in [1] %}{% set y = i %}{% endfor %}{{ y is defined }}",
        "{% for i in [1, 2] %}{{ y is defined }}{% set y = i %}{{ y }}{% endfor %}",
        "{% for word in [1, 2] %}{{ word }}{% endfor %}{{ word }}", "{% for word in word %}{{ word }}.{% endfor %}",
        "{% set word = word|upper %}{{ word }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}",
        "{% set a, b = b, a %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}",
        "{% set n = namespace(x=0) %}{% for i in numbers %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
        "{{ namespace(a=1, b='x') }}",
        "{% set n = namespace() %}{{ n.x }}{{ n.x is defined }}{% set n.x = 1 %}{{ n.x }}{{ n['x'] }}{{ n.x is defined }}",
        "{% set n = namespace({'a': 1}, b=2) %}{{ n.a }}{{ n.b }}{{ n is mapping }}{{ n is string }}",
        "{{ namespace(_a=1) }}", "{% set n = namespace() %}{% set n._a = 1 %}", "{% set n = namespace() %}{{ n._a }}",
        "{% set n = mapping %}{% set n.x = 1 %}",
        "{% set n = namespace(a=1) %}{% set m = n %}{% set m.a = 2 %}{{ n.a }}",
        "{% set n = namespace() %}{% set n.a %}x{{ 1 }}{% endset %}{{ n.a }}",
        "{% set n = namespace() %}{% set n.a, n.b = 1, 2 %}{{ n.b }}",
        "{% set n = namespace(items=1, a=2) %}{{ n.items }}", "{% set missing.x = 1 %}",
        "{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% set x = 3 %}{{ x }}{% endwith %}{{ x }}",
        "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}",
        "{% with a = 1 %}{% with a = a + 1 %}{{ a }}{% endwith %}{{ a }}{% endwith %}{{ a }}",
        "{% with a, b = [1, 2] %}{{ a }}{{ b }}{% endwith %}",
        "{% set x %}a{{ word }}{% endset %}{{ x }}{{ x|length }}{{ x is string }}{{ x is escaped }}",
        "{% set x | upper | trim %} a {% endset %}[{{ x }}]",
        "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
        "{% set x %}{% endset %}[{{ x }}]{{ x is defined }}",
        "{% set x = [] %}{% for i in numbers %}{% set x = x + [i] %}{% endfor %}{{ x }}",
        "{% set x = [] %}{% set y = x %}{% set _ = y.append(1) %}{{ x }}",
        "{% filter upper %}a{% set q = 'b' %}{{ q }}{% endfilter %}{{ q is defined }}",
        "{% filter trim | replace('a', 'b') %} aa {% endfilter %}", "{% filter indent(2, true) %}a\nb{% endfilter %}",
        "{% filter escape %}<{{ html }}{% endfilter %}", "{% filter nope %}{% endfilter %}",
        "{% filter default('x') %}{% endfilter %}", "{% set _x = 1 %}{{ _x }}{{ _y }}",
        "{% generation %}{% set g = 1 %}{{ g }}{{ word }}{% endgeneration %}{{ g is defined }}",
        "{% set x = x %}{{ x is defined }}[{{ x }}]",
        "{% for i in [1, 2] %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}",
        "{% set x = missing %}{{ x }}{{ x is defined }}",
        "{% for i in [1, 2] %}{% if loop.first %}{% set first = i %}{% endif %}{{ first }}{% endfor %}",
        "{% set loop = 1 %}{{ loop }}", "{% set range = 5 %}{{ range }}", "{% set true = 1 %}", "{% set x.y.z = 1 %}",
        "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% for i in [1] %}{% set x = 3 %}{% endfor %}{% endif %}{{ x }}",
        "{% set messages = messages[1:] %}{{ messages }}",
        "{{ messages|length }}{{ messages[0].role }}{{ messages[-1]['content'] }}",
        "{{ tools }}|{{ tools is defined }}|{{ tools is none }}|{{ documents }}|{{ documents is none }}",
        "{{ add_generation_prompt }}|{{ bos_token is defined }}",
        "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
        "{% if yes %}{% set x %}in{% endset %}{% endif %}{{ x }}",
    ],
    "macros": [
        ("{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(c=1, a=2) }} "
         "{{ m(1, 2, 3) }} {{ m() }}"),
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
        "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
        "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3) }}",
        "{% macro m(a) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, x=2, y=3) }}",
        "{% macro m() %}{{ varargs|join(',') }}{{ kwargs|dictsort }}{% endmacro %}{{ m(1, 2, b=1, a=2) }}",
        "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}",
        "{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m('x', 'y') }}",
        "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{{ a }}{% endmacro %}",
        "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}",
        "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}",
        "{% macro m(a=[]) %}{% set _ = a.append(1) %}{{ a }}{% endmacro %}{{ m() }}{{ m() }}",
        "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
        "{{ m() }}{% macro m() %}{% endmacro %}", "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}",
        "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
        "{% macro m() %}{{ i }}{% endmacro %}{% for i in [1, 2] %}[{{ m() }}]{% endfor %}",
        "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% for i in [1] %}{% set x = 5 %}{{ m() }}{% endfor %}",
        ("{% for i in [1, 2] %}{% macro m() %}{{ i }}{{ loop is defined }}{% endmacro %}{{ m() }}{% endfor %}"
         "{{ m is defined }}"),
        "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
        "{% macro a() %}{% macro b(x) %}<{{ x }}>{% endmacro %}{{ b(1) }}{% endmacro %}{{ a() }}{{ b is defined }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{{ word }}{% endcall %}",
        "{% macro m() %}{{ caller(1) }}{{ caller(2, 3) }}{% endmacro %}{% call(a, b=0) m() %}{{ a }}{{ b }} {% endcall %}",
        ("{% macro m(n) %}{% for i in range(n) %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) m(3) %}{{ i }}"
         "{{ word }},{% endcall %}"),
        ("{% macro m() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}"
         "{% call m() %}y{% endcall %}"),
        "{% call word.upper() %}x{% endcall %}", "{% call m %}x{% endcall %}",
        "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a) m() %}{{ a }}{% endcall %}",
        ("{% macro m() %}{{ caller() }}{% endmacro %}{% for i in [1, 2] %}{% call m() %}{{ i }}{{ loop.index }}"
         "{% endcall %}{% endfor %}"),
        "{% set x = 1 %}{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% set x = 2 %}{{ x }}{% endcall %}{{ x }}",
        ("{% macro m() %}a{% endmacro %}{{ m() ~ m()|upper }}{{ m()|length }}{{ m() is string }}{{ m() is escaped }}"
         "{{ m is callable }}"),
        "{% macro m() -%}\n  a  \n{%- endmacro %}[{{ m() }}]", "{% macro m() %}\n  a\n{% endmacro %}[{{ m() }}]",
        ("{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}"
         "{{ m(*[5], **{'b': 6}) }}"),
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ numbers|map('string')|map('upper')|join }}{{ m(x=m(1)) }}",
        ("{% macro m(a) %}{% if a %}{% set r = a %}{% else %}{% set r = 'none' %}{% endif %}{{ r }}{% endmacro %}"
         "{{ m(0) }}{{ m(1) }}"),
        "{% macro _m() %}p{% endmacro %}{{ _m() }}",
        "{% macro m() %}{{ a }}{% endmacro %}{% with a = 1 %}[{{ m() }}]{% endwith %}",
        "{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m(1) }}",
        "{% macro m(caller=none) %}{{ caller() if caller else 'n' }}{% endmacro %}{{ m() }}{% call m() %}y{% endcall %}",
        "{% macro m() %}{{ m.name }}{% endmacro %}{% set k = m %}{{ k() }}",
        "{% macro m(a, b=none) %}{{ a }}/{{ b }}{% endmacro %}{{ m(missing) }}{{ m(nothing, missing) }}",
        "{% macro word() %}shadow{% endmacro %}{{ word() }}",
        "{% if no %}{% macro m() %}x{% endmacro %}{% endif %}{{ m is defined }}", "{% macro m() %}x{% endmacro m %}",
        "{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}",
        "{% macro m(a) %}{{ [a, missing] }}{% endmacro %}{{ m() }}",
    ],
    "conditions": [
        "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
        "{% if missing %}a{% else %}b{% endif %}", "{% for v in mixed %}{{ 'y' if v else 'n' }}{% endfor %}",
        "{{ 'a' if yes }}{{ 'b' if no }}|{{ ('b' if no) is defined }}", "{{ ('a' if no) ~ 'x' }}",
        "{{ ('a' if no) + 'x' }}", "{{ 'a' if no else 'b' if no else 'c' }}", "{{ 'a' ~ 'b' if yes else 'c' }}",
        "{{ (1 if no else 2) + 3 }}", "{{ 1 if no else 2 + 3 }}", "{{ [1 if yes else 2, 3 if no] }}",
        "{{ 'x' if yes and not no or missing }}",
        "{{ true and 'x' }}{{ '' or 'y' }}{{ nothing or 0 }}{{ 0 and 1 }}{{ [] or {} }}",
        "{{ not yes }}{{ not '' }}{{ not not 1 }}{{ not missing }}",
        "{{ missing and missing.x }}|{{ nothing and nothing.x.y }}|{{ yes or missing.x.y }}",
        "{{ not 1 == 2 }}{{ not 'a' in 'b' }}{{ (not yes) == no }}", "{{ true == not false }}", "{{ not yes == no }}",
        "{{ True }}{{ true }}{{ False }}{{ none }}{{ None }}[{{ TRUE }}{{ NULL }}{{ null }}]",
        "{{ yes is none or no is boolean }}", "{% if no %}{{ x|nofilter }}{% endif %}a",
        "{% if no %}{{ x is notest }}{% endif %}a", "{{ 1|nofilter if no else 2 }}", "{{ (1|nofilter) and 2 if no }}",
        "{% if yes %}{{ 1|nofilter }}{% endif %}", "{% if no %}{{ 1/0 }}{% include 'x' %}{% endif %}a",
        "{% if mapping %}m{% endif %}{% if {} %}e{% endif %}{% if 0.0 %}z{% endif %}{% if '0' %}s{% endif %}",
        "{% if range(0) %}r{% endif %}{% if (0,) %}t{% endif %}{% if () %}u{% endif %}",
        "{% if numbers|select('gt', 9) %}generator{% endif %}",
        "{% if namespace() %}n{% endif %}{% if mapping.items() %}i{% endif %}{% if {}.keys() %}k{% endif %}",
        "{{ 'a' if 'b' if no else 'c' }}",
    ],
    "comparisons": [
        "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 < 2 == true }}{{ 1 == 1.0 == true }}{{ 3 > 2 >= 2 != 1 }}",
        "{{ 1 == 1.0 }}|{{ true == 1 }}|{{ '1' == 1 }}|{{ none == false }}|{{ none == none }}|{{ 0 == '' }}",
        "{{ 0 == false }}", "{{ [1] == [1.0] }}|{{ (1,) == [1] }}|{{ [] == () }}|{{ {'a': 1} == {'a': 1.0} }}",
        "{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}|{{ [1, [2]] == [1, [2]] }}",
        "{{ 'a' < 'b' }}{{ 'é' > 'z' }}{{ 'B' < 'a' }}{{ '' < 'a' }}{{ '10' < '9' }}{{ 'ab' < 'abc' }}",
        "{{ [1, 2] < [1, 3] }}{{ [1] < [1, 0] }}{{ (1, 2) >= (1,) }}{{ [2] > [1, 5] }}", "{{ 1 < 'a' }}",
        "{{ none < 1 }}", "{{ [1] < (2,) }}", "{{ {} < {} }}", "{{ [1, 'a'] < [1, 2] }}",
        "{{ true < 2 }}{{ 1 < 1.5 }}{{ huge > 1 }}{{ huge == huge }}{{ huge > 1e300 }}",
        "{{ missing == missing }}{{ missing == none }}{{ missing != 1 }}{{ missing == '' }}", "{{ missing < 1 }}",
        "{{ missing == other }}", "{{ 'nan'|float == 'nan'|float }}{{ 'inf'|float > 1e308 }}",
        "{{ 'a' in 'abc' }}{{ '' in 'a' }}{{ 'ac' in 'abc' }}{{ 'é' in accents }}{{ 'x' not in 'abc' }}",
        "{{ 1 in 'abc' }}", "{{ 'a' in mapping }}{{ 1 in mapping }}{{ 1 in {1.0: 2} }}{{ none in {none: 1} }}",
        "{{ [1] in mapping }}", "{{ 'x' in nothing }}", "{{ 'a' in missing }}",
        "{{ 1 in (1, 2) }}|{{ none in [none] }}|{{ [1] in [[1.0]] }}|{{ 1.0 in numbers }}|{{ '1' in numbers }}",
        "{{ true in numbers }}",
        "{{ 'a' in mapping.keys() }}{{ 2 in mapping.values() }}{{ ('a', 2) in mapping.items() }}",
        "{{ 2 in range(3) }}{{ 3 in range(3) }}{{ 1.0 in range(3) }}{{ 'a' in range(3) }}",
        "{{ 1 in [1] in [[1]] }}{{ not 1 in [2] }}{{ 1 not in [2] == true }}",
        "{{ 'a' in 'abc' and 'd' not in 'abc' }}", "{{ 1 <> 2 }}", "{{ 1 === 1 }}",
        "{{ 'a' in ['a', missing] }}{{ missing in [1, missing] }}", "{{ 1 is eq 1 == true }}",
        "{{ 'x' in numbers|map('string') }}{{ 'a' in 'abc'|list }}",
        "{{ (html|safe) == html }}{{ html in [html|safe] }}", "{{ namespace(a=1) == namespace(a=1) }}",
        "{{ range(3) == range(3) }}{{ range(0) == range(2, 2) }}{{ range(3) == [0, 1, 2] }}",
    ],
    "arithmetic": [
        "{{ 7 / 2 }} {{ 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}",
        "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 0 ** -1 }}",
        "{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ 2 ** 0.5 }}|{{ 2.0 ** 3 }}|{{ 0 ** 0 }}|{{ -2 ** 2 }}|{{ 2 ** 3 ** 2 }}",
        "{{ 2 ** -2 ** 2 }}",
        "{{ 1 + 2 * 3 - 4 / 2 }} {{ 1 - 2 - 3 }} {{ 8 / 2 / 2 }} {{ 10 // 3 * 3 }} {{ 2 * 3 % 4 }} {{ (1 + 2) * 3 }}",
        "{{ 1 - -1 }} {{ - - 1 }} {{ +1 }} {{ -seven }} {{ +real }} {{ -yes }} {{ +yes }}",
        "{{ true + 1 }} {{ true + true }} {{ true * 'a' }} {{ true / 2 }} {{ -false }}",
        "{{ 1 + 1.5 }} {{ 0.1 + 0.2 }} {{ 1e308 * 10 }} {{ 3 * 1.0 }} {{ 5 - 5.0 }} {{ 2 * -0.0 }}",
        "{{ 9223372036854775807 / 2 }}|{{ 9223372036854775807 + 0.5 }}",
        "{{ 'ab' * 3 }}{{ 2 * 'x' }}{{ 'ab' * 0 }}{{ 'ab' * -1 }}{{ [1] * 2 }}{{ 2 * (1, 2) }}{{ [] * 3 }}",
        "{{ 'a' * 1.5 }}", "{{ 'a' * 'b' }}", "{{ [1] + [2] }}{{ (1,) + (2,) }}{{ 'a' + 'b' }}", "{{ 'a' + 1 }}",
        "{{ 1 + 'a' }}", "{{ [1] + (2,) }}", "{{ none + 1 }}", "{{ 'a' + none }}", "{{ {} + {} }}", "{{ 'abc' - 'a' }}",
        "{{ -'a' }}", "{{ +'a' }}", "{{ -none }}", "{{ [1] - [1] }}", "{{ 'a' / 2 }}",
        "{{ '%d items' % 3 }}|{{ '%s-%s' % (1, 'x') }}|{{ '%(a)s' % {'a': 1} }}|{{ '%%' % () }}|{{ 'x' % [] }}",
        "{{ 'x' % {} }}", "{{ 'a' % 1 }}", "{{ '%s %s' % 1 }}",
        "{{ '%s' % [1, 2] }}|{{ '%s' % ((1, 2),) }}|{{ '%s' % none }}|{{ '%s' % 1.0 }}|{{ '%s' % true }}",
        "{{ '%r' % 'a\"b' }}", "{{ 1 ~ 2 + 3 }}",
        "{{ 1 ~ 2 * 3 }}|{{ 'a' ~ 'b' ~ 1 }}|{{ 1 ~ none ~ true ~ 1.0 ~ [1, 'a'] ~ {'a': none} ~ missing ~ (1,) }}",
        "{{ 1 + 2 ~ 3 }}",
        "{{ 'a' ~ 1 == 'a1' }}{{ 'a' ~ 'b'|upper }}{{ ('a' ~ 'b')|upper }}{{ -1 ~ -2 }}{{ 2 ** 2 ~ 1 }}",
        "{{ 'a' ~ 1 if yes else 2 }}{{ 'x' ~ ('y' if no) }}", "{{ 1 ~ 2 - 3 }}",
        "{{ -1|abs }}|{{ -1.5|abs }}|{{ (-1)|abs }}|{{ 1 - 1|abs }}", "{{ 2 ** 2|string }}",
        "{{ 1 + 2|string|length }} {{ '5'|int + 1 }} {{ 7 is odd + 1 }}",
        "{{ 1 + 1 is odd }} {{ 1 + 1 is number }} {{ (1 + 1) is odd }} {{ 2 * 3 is string }}",
        "{{ huge }}|{{ [huge] }}|{{ huge|string|length }}|{{ huge|tojson }}|{{ huge is integer }}",
        "{{ huge is number }}", "{{ 5 % 3 ~ 'a' }} {{ 5 // 2 ~ 'b' }}",
        "{{ 1.5 // 0.5 }}|{{ 1.0 // 0.1 }}|{{ 1 % 0.1 }}|{{ 1e16 + 1 }}|{{ 2 ** 62 }}",
        "{{ 2 ** 63 - 1 if no else 'big' }}",
        "{{ numbers[0] + numbers[-1] * 2 }}|{{ mapping.a / 4 }}|{{ numbers|length / 2 }}",
        "{{ (numbers|length + 1) // 2 }}", "{{ missing + 1 }}", "{{ 1 + missing }}", "{{ 'a' + missing }}",
        "{{ -missing }}", "{{ missing * 2 }}", "{{ [1] + missing }}",
    ],
    "numbers": [
        "{{ 1.0 }}|{{ 1.5 }}|{{ 100.0 }}|{{ 1e15 }}|{{ 1e16 }}|{{ 123456789012345678.0 }}|{{ 1e22 }}|{{ 1e23 }}",
        "{{ 1.5e300 }}",
        "{{ 0.1 }}|{{ 0.0001 }}|{{ 0.00001 }}|{{ 1e-5 }}|{{ 1.5e-7 }}|{{ 5e-324 }}|{{ 1.7976931348623157e308 }}",
        "{{ 2.2250738585072014e-308 }}",
        "{{ 'nan'|float }} {{ 'inf'|float }} {{ -('inf'|float) }} {{ -0.0 }} {{ 0.0 }} {{ 1e400 }}",
        "{{ 0.1 + 0.2 }}|{{ 1 / 3 }}|{{ 2 / 3 }}|{{ 1e21 + 1 }}|{{ 9007199254740993.0 }}|{{ 4.35 }}|{{ 1e100 }}",
        "{{ 123456.789 }}|{{ 5e-5 }}",
        "{{ 1_000 }}|{{ 0xff }}|{{ 0XFF }}|{{ 0x_f_f }}|{{ 0b101 }}|{{ 0B1 }}|{{ 0o17 }}|{{ 0 }}|{{ 000 }}",
        "{{ 1_0.2_5 }}|{{ 1e5 }}|{{ 1E+2 }}|{{ 1_0e1_0 }}", "{{ 007 }}", "{{ 1__0 }}", "{{ 1_ }}", "{{ 0x }}",
        "{{ .5 }}", "{{ 1. }}", "{{ 1.e5 }}", "{{ 1e }}", "{{ 0b2 }}", "{{ 1a }}",
        "{{ floats }} {{ floats|join(' ') }} {{ floats|sum }}", "{{ odd_json }}",
        "{{ odd_json.long }} {{ odd_json.minus }} {{ odd_json.int64 }} {{ odd_json.none }} {{ odd_json.yes }}",
        "{{ 1.0|int }} {{ 1|float }} {{ 3.0 == 3 }} {{ 3.0|string == '3.0' }}",
        "{{ [1.0, 1e22, 1e-5, 'nan'|float] }} {{ {1.0: 1e16} }}",
        "{{ 1.0 is integer }}{{ 1 is float }}{{ 1e3 is float }}",
    ],
    "texts": [
        "{{ nothing }} {{ yes }} {{ [none, true, 'a'] }} {{ {'a': none} }}",
        "{{ words }} {{ mapping }} {{ nested }} {{ pairs }}",
        "{{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 'a' }} {{ [(1, 2), ()] }}",
        "{{ ['it\\'s', 'a\"b', 'both\\'\"', '', ' '] }}", "{{ [control] }}", "{{ [blank, lines] }}",
        "{{ [accents] }} {{ [html] }}", "{{ {'k\\n': 'v\\t', 1: 2.0, none: (), 1.5: []} }}",
        "{{ [control]|string|length }}", "{{ [missing] }} {{ {'a': missing} }} {{ (missing,) }}",
        "{{ [html|safe] }} {{ ['a'|e, 'b'] }} {{ {'a': '<'|e} }}",
        "{{ mapping.items() }} {{ mapping.keys() }} {{ mapping.values() }}",
        "{{ range(3) }} {{ range(1, 5, 2) }} {{ range(3)|list }} {{ range(0, 3, 1) }}",
        "{{ {1: 2, none: 3, true: 4, 1.5: 5} }}|{{ {'a': 1, 'a': 2} }}|{{ {(1, 2): 3} }}|{{ {1: 'x'}[1.0] }}",
        "{{ {1: 'x'}[true] }}", "{{ {[1]: 2} }}", "{{ {{}: 2} }}", "{{ 'a' 'b' \"c\" }} {{ 'a' 'b'|upper }}",
        "{{ [1, 2,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ [[], {}, ()] }}", "{{ control }}", "{{ people }}",
        "{{ {}|string }}{{ []|string }}{{ ()|string }}", "{{ messages }}",
        r"{{ '\n\t\r\\\'\"\x41\xe9\u00e9\U0001F44B\101\a\b\f\v' }}",
        r"{{ ['\0', '\x7f', '\u3000'] }} {{ '\0'|length }}", r"a{{ '\0' }}b", r"{{ '\q\z\.\-\ ' }}",
        r"{{ '\400\777\8\18' }}", r"{{ '\x4' }}", r"{{ '\u12' }}", r"{{ '\U00110000' }}", r"{{ '\xg0' }}",
        "{{ 'a\\\nb' }}", r"{{ 'a\\' }}{{ 'b' }}", r"{{ '\\n' }} {{ '\\\\' }}", "{{ \"'\" }}{{ '\"' }}",
        r"{{ 'C:\new' ~ '\d+' }}", "{{ 'a\\\r\nb' }}", "{{ 'tab\there' }}", r"{{ '\u00' '41' if no else 1 }}",
        r"{{ '\\u0041' }}",
    ],
    "slices": [
        "{{ word[1:3] }}|{{ word[:2] }}|{{ word[-2:] }}|{{ word[::2] }}|{{ word[::-1] }}|{{ word[5:1:-2] }}",
        "{{ word[:] }}|{{ word[9:] }}|{{ word[-9:2] }}",
        "{{ accents[0] }} {{ accents[-1] }} {{ accents[-2:] }} {{ accents[::-1] }} {{ accents[1:4] }}",
        "{{ numbers[1:] }}|{{ numbers[:-1] }}|{{ numbers[::-1] }}|{{ numbers[5:] }}|{{ numbers[-1:0:-1] }}",
        "{{ numbers[::-2] }}",
        "{{ (1, 2, 3)[1:] }} {{ (1, 2, 3)[::-1] }} {{ range(5)[1:3] }} {{ range(5)[::-1] }} {{ range(5)[-1] }}",
        "{{ word[::0] }}", "{{ numbers['a':] }}", "{{ numbers[none:2] }} {{ numbers[:none] }} {{ numbers[true:] }}",
        "{{ mapping[1:] }}", "{{ missing[1:] }}", "{{ nothing[1:] }}", "{{ numbers[1.0:] }}", "{{ word[missing:] }}",
        "{{ word[9] }}| {{ word[-9] }}| {{ numbers[3] }}| {{ numbers[-4] }}| {{ numbers[-3] }}{{ (1,)[0] }}",
        "{{ numbers['a'] }}|{{ numbers['0'] }}|{{ word['a'] }}|{{ numbers[1.0] }}|{{ numbers[true] }}",
        "{{ numbers[none] }}|{{ numbers[[1]] }}", "{{ numbers[9].x }}",
        "{{ numbers.0 }}{{ numbers.2 }}{{ nested.1.1.0 }}|{{ numbers.7 }}|{{ word.1 }}|{{ keyed.0 }}|{{ keyed['0'] }}",
        "{{ mapping['a'] }}|{{ mapping['nope'] }}|{{ mapping[0] }}|{{ mapping[none] }}|{{ mapping[[1]] }}",
        "{{ mapping[missing] }}",
        "{{ nested[1][1][0] }}{{ people[0].city.name }}{{ people[0]['city']['name'] }}{{ people[1].city }}|",
        "{{ people[1].city.name }}", "{{ numbers[1,2] }}|",
        "{{ numbers[-1:][0] }}{{ word[1:][0] }}{{ numbers[1:]|first }}",
        "{{ numbers[seven - 6] }}{{ numbers[numbers|length - 1] }}{{ word[1:seven//2] }}",
        "{{ messages[1:] }}{{ messages[:1] }}{{ messages[::2] }}",
        "{{ word[1:2:] }}{{ word[::] }}{{ word[:3:2] }}{{ word[-3::] }}",
        "{{ mapping.keys()[0] }}|{{ (mapping.keys()|list)[0] }}|{{ mapping.items()|list|first }}", "{{ numbers[] }}",
        "{{ 'abc'[1] }}{{ [1, 2][0] }}{{ {'a': 1}['a'] }}{{ {'a': 1}.a }}{{ ('a', 'b')[1] }}",
        "{{ (html|safe)[:3] }} {{ (html|safe)[0] ~ '<' }} {{ (html|safe)[0] + '<' }}",
    ],
    "attributes": [
        "{{ keyed.name }}|{{ keyed['items'] }}|{{ keyed['keys'] }}|{{ keyed.items is callable }}",
        "{{ keyed.get is callable }}|{{ keyed['x y'] }}|{{ keyed.get('get') }}",
        "{% for k, v in keyed.items() %}{{ k }}={{ v }} {% endfor %}",
        "{{ keyed.items|string == '1' }}|{{ keyed|attr('name') }}|{{ keyed.nope }}|{{ keyed.get('nope') }}",
        "{{ keyed.get('nope', 1) }}",
        "{{ keyed.values is defined }}{{ keyed.values is callable }}{{ keyed['values'] is defined }}",
        "{{ word.nope }}|{{ word.nope is defined }}|{{ seven.nope }}|{{ nothing.nope }}|{{ numbers.nope }}",
        "{{ nothing['x'] }}", "{{ word.nope.x }}", "{{ nothing.x.y }}", "{{ missing.x }}", "{{ missing['x'] }}",
        "{{ missing() }}", "{{ missing.x() }}", "{{ word.nope() }}", "{{ word() }}", "{{ mapping.a() }}",
        "{{ keyed.get() }}", "{{ nothing() }}", "{{ mapping.nope.x|default('d') }}",
        "{{ (mapping.nope|default({})).x|default('d') }}", "{{ mapping.nope.x is defined }}", "{{ ''.__class__ }}",
        "{{ ''.__class__ is defined }}|{{ ''['__class__'] is defined }}", "{{ ''['__class__'] }}",
        "{{ word._x }}|{{ {'_x': 1}._x }}{{ {'__class__': 1}['__class__'] }}",
        "{{ mapping|attr('a') }}|{{ mapping|attr('keys') is callable }}|{{ word|attr('upper') is callable }}",
        "{{ word|attr('__class__') }}",
        "{{ word.upper() }}|{{ word.upper is callable }}|{{ (word.upper)() }}|{{ word['upper']() }}",
        "{{ numbers.append is callable }}", "{{ mapping['keys'] is callable }}{{ mapping['keys'] is defined }}",
        "{{ people|map(attribute='name')|join }}|{{ people.0.name }}|{{ people[0].name.upper() }}",
        "{{ people[0]['name'][0] }}", "{{ range.__name__ }}", "{{ word.upper.x }}|", "{{ word.upper.__self__ }}",
        "{{ namespace(a=1).a }}{{ namespace(a={'b': 2}).a.b }}",
        "{{ dict(a=1) }}|{{ dict([('a', 1), ('b', 2)]) }}|{{ dict(mapping, z=1) }}|{{ dict() }}", "{{ dict.nope }}|",
        "{{ range(3, 0)|list }}{{ range(5, 0, -2)|list }}{{ range(100000)|length }}", "{{ range(100001)|length }}",
        "{{ range(0, 10, 0) }}", "{{ range('a') }}", "{{ range() }}", "{{ range(1.5) }}",
        "{{ range(-5)|list }}{{ range(2, 2)|list }}{{ range(true)|list }}", "{{ cycler() }}",
        "{{ raise_exception('No! é {x} <a>') }}", "{{ raise_exception('two\nlines  of ' ~ word) }}",
        "{{ raise_exception(5) }}", "{{ raise_exception() }}", "{{ raise_exception('') }}",
        "{{ raise_exception(['a', none]) }}", "{% macro m() %}{{ raise_exception('inside') }}{% endmacro %}a{{ m() }}",
        "{% if no %}{{ raise_exception('never') }}{% endif %}ok", "{{ yes or raise_exception('never') }}",
        "{% for x in numbers %}{{ x }}{% if x == 1 %}{{ raise_exception('at ' ~ loop.index) }}{% endif %}{% endfor %}",
        "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%B %d, %Y') }}",
        "{{ strftime_now('%A %a %j %U %W %w %y %m %H %I %p %%') }}",
        "{{ strftime_now('%e|%D|%F|%u|%V|%G|%h|%C|%n|%t') }}", "{{ strftime_now('%H:%M:%S') }}",
        "{{ strftime_now('%c|%x') }}",
        "{{ strftime_now('') }}|{{ strftime_now('é 日 %Y!') }}|{{ strftime_now('%-d %-m %-H') }}",
        "{{ strftime_now(5) }}", "{{ strftime_now() }}", "{{ dict is callable }}|{{ namespace is callable }}",
        "{{ word.upper(1) }}", "{{ word.replace('h') }}",
    ],
    "str methods": [
        "{{ ' a  b c '.split() }}|{{ 'a,b,,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ''.split() }}",
        "{{ ''.split(',') }}|{{ 'abc'.split('') if no }}", "{{ 'abc'.split('') }}", "{{ blank.split() }}",
        "{{ ' a b  c '.split(none, 1) }}|{{ 'a b c'.split(maxsplit=1) }}|{{ 'a--b--c'.split(sep='--') }}",
        "{{ 'a b'.split(' ', -1) }}|{{ 'a b'.split(' ', 0) }}",
        "{{ 'a,b,c'.rsplit(',', 1) }}|{{ ' a b c '.rsplit() }}|{{ ' a b c '.rsplit(none, 1) }}",
        "{{ 'abc'.rsplit(',') }}",
        "{{ lines.splitlines() }}|{{ lines.splitlines(true) }}|{{ ''.splitlines() }}|{{ 'a\\n'.splitlines() }}",
        "{{ '\\n\\n'.splitlines(keepends=true) }}",
        "[{{ blank.strip() }}] [{{ blank.lstrip() }}] [{{ blank.rstrip() }}]",
        "{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('yx') }}|{{ 'abccba'.rstrip('ab') }}|{{ '👋a👋'.strip('👋') }}",
        "{{ ' a '.strip(none) }}|{{ ' a '.strip('') }}|",
        "{{ '\\u200b\\ufeffa\\u200b'.strip()|length }}|{{ '\\x1f\\x1ea'.strip()|length }}",
        "{{ '\\u1680a\\u180e'.strip()|length }}",
        "{{ word.replace('h', 'H') }}|{{ word.replace('h', 'H', 1) }}|{{ 'aaa'.replace('a', 'b', 2) }}",
        "{{ 'abc'.replace('', '-') }}|{{ 'aaa'.replace('aa', 'b') }}|{{ 'abc'.replace('', '-', 2) }}",
        "{{ 'a'.replace('a', 'b', 0) }}|{{ 'aa'.replace('a', '', -1) }}",
        "{{ word.find('a') }}|{{ word.find('z') }}|{{ 'é👋a'.find('a') }}|{{ 'abcabc'.find('b', 2) }}",
        "{{ 'abcabc'.rfind('b') }}|{{ 'abc'.find('') }}|{{ 'abc'.find('c', 0, 2) }}|{{ 'abc'.find('b', -2) }}",
        "{{ 'abc'.rfind('') }}", "{{ word.index('t') }} {{ 'abcb'.rindex('b') }}", "{{ word.index('z') }}",
        "{{ 'banana'.count('a') }}|{{ 'aaaa'.count('aa') }}|{{ 'abc'.count('') }}|{{ 'banana'.count('a', 2) }}",
        "{{ 'banana'.count('z') }}",
        "{{ word.startswith('he') }}|{{ word.startswith(('x', 'he')) }}|{{ word.startswith('') }}",
        "{{ word.startswith('a', 2) }}|{{ word.endswith('th') }}|{{ word.endswith(('x', 'h')) }}",
        "{{ word.endswith('he', 0, 2) }}|{{ word.startswith(()) }}", "{{ word.startswith(['he']) }}",
        "{{ word.startswith(none) }}",
        "{{ title_text.title() }}|{{ title_text.capitalize() }}|{{ title_text.upper() }}|{{ title_text.lower() }}",
        "{{ title_text.swapcase() }}",
        "{{ accents.title() }}|{{ accents.capitalize() }}|{{ accents.upper() }}|{{ accents.lower() }}",
        "{{ accents.swapcase() }}|{{ accents.casefold() }}{{ 'ẞß ŉ ﬀ İΣΑΣ ᾳ'.casefold() }}",
        "{{ 'ΑΣ ΑΣΑ Σ'.lower() }}|{{ 'ǆabc ǅ ß'.title() }}|{{ 'ß'.capitalize() }}|{{ 'ŉ'.upper() }}",
        "{{ 'İ'.lower()|length }}|{{ \"they're bill's\".title() }}|{{ 'a1b2'.title() }}",
        "{{ ','.join(['a', 'b']) }}|{{ ''.join('abc') }}|{{ '-'.join(mapping) }}|{{ ','.join([]) }}",
        "{{ ', '.join(numbers|map('string')) }}|{{ '.'.join(('x', 'y')) }}", "{{ ','.join(numbers) }}",
        "{{ ','.join(['a', none]) }}",
        "{{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ '+7'.zfill(4) }} {{ 'ab'.zfill(1) }} {{ ''.zfill(2) }}",
        "[{{ 'a'.center(4) }}][{{ 'ab'.center(5, '*') }}][{{ 'a'.ljust(3) }}][{{ 'a'.rjust(3, '.') }}]",
        "[{{ 'abc'.ljust(2) }}][{{ 'é👋'.center(5, '日') }}][{{ 'ab'.center(7) }}]", "{{ 'a'.center(5, 'xy') }}",
        "{{ '12'.isdigit() }}|{{ '1.2'.isdigit() }}|{{ ''.isdigit() }}|{{ '²'.isdigit() }}|{{ '²'.isdecimal() }}",
        "{{ 'ab'.isalpha() }}|{{ 'a b'.isalpha() }}|{{ 'é日'.isalpha() }}|{{ 'a1'.isalnum() }}|{{ ''.isalnum() }}",
        "{{ '_'.isalnum() }}|{{ 'ª'.isalpha() }}",
        "{{ ' \\t'.isspace() }}|{{ ''.isspace() }}|{{ blank[:5].isspace() }}|{{ '\\u200b'.isspace() }}",
        "{{ '\\x1c\\x85'.isspace() }}",
        "{{ 'a=b=c'.partition('=') }}|{{ 'a=b=c'.rpartition('=') }}|{{ 'abc'.partition('=') }}",
        "{{ 'abc'.rpartition('=') }}",
        "{{ 'prefix-x'.removeprefix('prefix-') }}|{{ 'x.txt'.removesuffix('.txt') }}|{{ 'x'.removeprefix('y') }}",
        "{{ 'x'.removesuffix('') }}",
        "{{ '{} {}'.format(1, 'x') }}|{{ '{0} {1} {0}'.format('a', 'b') }}|{{ '{a}-{b}'.format(a=1, b=2) }}",
        "{{ '{{}}'.format() }}|{{ '{0[0]} {0[1]}'.format(numbers) }}|{{ '{m[a]}'.format(m=mapping) }}",
        "{{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:5}|{:5}|'.format('a', 'b', 'c', 'd', 'e', 6) }}",
        "{{ '{:.2f} {:.0f} {:e} {:g} {:%}'.format(3.14159, 2.5, 12345.678, 1e10, 0.25) }}",
        "{{ '{:.1%} {:,} {:,.2f} {:+} {: }'.format(0.125, 1234567, 1234.5, 5, 5) }}",
        "{{ '{!r} {!s} {!r:>6} {:.2}'.format('a', 'b', 'c', 'defg') }}|{{ '{:{}}|'.format('a', 4) }}",
        "{{ '{}'.format(none) }}|{{ '{}'.format(1.0) }}|{{ '{}'.format([1, 'a']) }}|{{ '{:}'.format(true) }}",
        "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{} {1}'.format(1, 2) }}", "{{ '{} {}'.format(1) }}",
        "{{ '{x}'.format(y=1) }}", "{{ '{:d}'.format('a') }}", "{{ '{:d}'.format(1.5) }}", "{{ '{:>5}'.format(none) }}",
        "{{ '{:s}'.format(1) }}", "{{ '{:010.3f} {:+.1e} {:<8.3}|'.format(3.14159, 12345.0, 2.5) }}",
        "{{ 'abc'.upper().lower().title() }}|{{ 'a b'.split()[0].upper() }}|{{ ' x '.strip().center(3)|length }}",
        "{{ 'a' in 'abc'.upper().lower() }}", "{{ 'abc'.nope() }}", "{{ 'a'.join(['b'], 'c') }}", "{{ 'x'.count() }}",
        "{{ '\\u00e9' == 'é' }} {{ 'é'|length }} {{ 'e\\u0301'|length }} {{ '👋🏽'|length }} {{ accents|length }}",
    ],
    "list and dict methods": [
        *("{{ numbers.%s is defined }}{{ numbers.%s() }}" % (name, name)
          for name in ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")),
        *("{{ mapping['%s'] is defined }}{{ mapping.%s() }}" % (name, name)
          for name in ("clear", "pop", "popitem", "setdefault", "update")),
        "{{ {'pop': 1}['pop'] }}{{ {'pop': 1}.pop }}", "{{ numbers.append }}", "{{ numbers['append'] is defined }}",
        "{{ numbers.index(2) }} {{ [1, 2, 1].count(1) }} {{ numbers.copy() }} {{ [1, 1.0, true].count(1) }}",
        "{{ numbers.index(9) }}", "{{ mapping.copy() }}", "{{ (1, 2, 1).count(1) }}{{ (1, 2).index(2) }}",
        "{{ (1,).append(2) }}",
        ("{{ mapping.get('a') }} {{ mapping.get('z') }} {{ mapping.get('z', 'd') }} {{ mapping.get(1) }} "
         "{{ mapping.get('z', missing) }}|"),
        "{{ mapping.items()|list }} {{ mapping.keys()|list }} {{ mapping.values()|list }} {{ mapping.items()|length }}",
        ("{{ 'a' in mapping.keys()|list }}{{ mapping.values()|sum }}{{ mapping.keys()|join }}"
         "{{ mapping.values()|max }}{{ mapping.items()|first }}"),
        "{{ mapping.has_key('a') }}",
        "{{ mapping.keys() is sequence }}{{ mapping.keys() is iterable }}{{ mapping.items() is mapping }}",
        "{% set r = mapping.keys()|sort %}{{ r }}{{ mapping.items()|sort }}{{ mapping.values()|sort(reverse=true) }}",
        "{{ {'b': 1}.items()|map('first')|list }}{{ {'b': 1}.items()|map('last')|list }}{{ pairs|map('first')|join }}",
    ],
    "filters of text": [
        "{{ word|upper }}|{{ 'ABC'|lower }}|{{ 'aBC dEF'|capitalize }}|{{ title_text|title }}|{{ accents|title }}",
        "{{ 'a{b[c<d-e\tf_g\u00a0h.i'|title }}",
        "{{ nothing|upper }}|{{ nothing|trim }}|{{ 5|upper }}|{{ [1, 'a']|upper }}|{{ yes|lower }}",
        "{{ nothing|title }}|{{ nothing|capitalize }}|{{ 1.0|upper }}",
        "[{{ blank|trim }}] [{{ 'xxaxx'|trim('x') }}] [{{ 'xay'|trim(chars='xy') }}]",
        "[{{ ' a '|trim(none) }}] [{{ 5|trim }}] [{{ ''|trim }}]",
        "{{ missing|upper }}|{{ missing|trim }}|{{ missing|replace('a', 'b') }}|{{ missing|string }}",
        "{{ missing|title }}|{{ missing|length }}|{{ missing|list }}",
        "{{ 'aaa'|replace('a', 'b') }}|{{ 'aaa'|replace('a', 'b', 2) }}|{{ 505|replace('5', '6') }}",
        "{{ none|replace('N', 'n') }}|{{ 'a1'|replace(1, 2) }}|{{ 'ab'|replace('', '-') }}",
        "{{ 'aaa'|replace('a', 'b', count=1) }}", "{{ 'a'|replace('a') }}",
        "{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb\n\nc'|indent(2, true) }}",
        "{{ 'a\nb\n\nc'|indent(2, false, true) }}|{{ 'a\nb\n'|indent(first=true) }}|{{ 'a\nb'|indent('> ') }}",
        "{{ 'a\nb'|indent(width='--', first=true) }}",
        "{{ lines|indent(1) }}|{{ ''|indent }}|{{ '\n'|indent }}|{{ ''|indent(2, true) }}",
        "{{ '\n\n'|indent(2, true, true) }}|", "{{ 'a\nb'|indent(indentfirst=true) }}",
        "{{ 'a\nb'|indent(0) }}{{ 'a\nb'|indent(-1) }}",
        "[{{ 'ab'|center(6) }}][{{ 'abc'|center(2) }}][{{ 5|center(4) }}]{{ ('a'|center)|length }}",
        "{{ '%s-%04d'|format('a', 7) }}|{{ '%(x)s'|format(x=1) }}",
        "{{ '%.2f %5.1f| %-5s| %+d %05d %x %X %o'|format(3.14159, 2.55, 'ab', 5, 42, 255, 255, 8) }}",
        "{{ '%e %g %c %r %% %i'|format(12345.678, 0.00001, 'z', 'q', 7) }}",
        "{{ '%s'|format(missing) }}|{{ '%s %s'|format(none, true) }}|{{ '%d'|format(3.7) }}",
        "{{ '%5s|%.2s|%*d'|format('é', 'abc', 4, 7) }}|{{ '%#x %#o % d'|format(255, 8, 5) }}",
        "{{ '%.3g %G %E'|format(1234.5, 1e-10, 1.5) }}|{{ '%c'|format(233) }}", "{{ '%d'|format('a') }}",
        "{{ '%s'|format(1, 2) }}", "{{ '%s %s'|format(1) }}", "{{ '%s'|format(1, x=2) }}", "{{ '%y'|format(1) }}",
        "{{ '%(x)s'|format(y=1) }}", "{{ '%'|format() }}",
        "{{ word|length }}|{{ word|count }}|{{ word|first }}|{{ word|last }}|{{ word|list }}|{{ word|reverse }}",
        "{{ ''|first }}|{{ ''|last }}|{{ ''|reverse }}|{{ accents|reverse }}",
        "{{ word|join('-') }}|{{ word|sort|join }}|{{ word|unique|join }}|{{ word|batch(2)|list }}|{{ word|max }}",
        "{{ word|min }}|{{ word|select('in', 'aeiou')|list }}|{{ word|map('upper')|join }}",
        "{{ 5|string }}|{{ none|string }}|{{ [1, 'a']|string }}|{{ 1.0|string }}|{{ true|string }}",
        "{{ mapping|string }}|{{ (1,)|string }}", "{{ 5|length }}", "{{ nothing|length }}",
        "{{ html|e }}|{{ html|escape }}|{{ html|e|e }}|{{ html|forceescape }}|{{ (html|e)|forceescape }}|{{ 5|e }}",
        "{{ none|e }}|{{ [html]|e }}|{{ '`=/'|e }}|{{ missing|e }}|",
        "{{ html|safe }} {{ 5|safe }} {{ none|safe }} {{ [html]|safe }} {{ missing|safe }}|",
        "{{ word | upper | lower|title }}|{{ word|upper() }}|{{ word|replace('h','j')|upper }}",
        "{{ word|upper == 'HEARTH' }}",
    ],
    "filters of numbers": [
        "{{ 2.5|round }}|{{ 3.5|round }}|{{ -2.5|round }}|{{ 7|round }}|{{ 2.675|round(2) }}|{{ 1234|round(-2) }}",
        "{{ 1250|round(-2) }}|{{ 0.5|round }}|{{ 1e300|round(2) }}|{{ 1.005|round(2) }}",
        "{{ 42.55|round(1, 'floor') }}|{{ 42.55|round(1, 'ceil') }}|{{ 42|round(1, 'floor') }}",
        "{{ 42.1|round(method='ceil') }}|{{ -42.1|round(0, 'floor') }}|{{ 1234.5|round(-2, 'ceil') }}",
        "{{ 42.55|round(precision=1) }}", "{{ 2.5|round|int }} {{ true|round }} {{ 2.5|round|string }}",
        "{{ 'x'|round }}", "{{ 1|round(0, 'up') }}", "{{ missing|round }}", "{{ nothing|round }}",
        "{{ '42'|int }}|{{ ' 7 '|int }}|{{ '3.7'|int }}|{{ '1e3'|int }}|{{ '12abc'|int }}|{{ ''|int }}",
        "{{ 'x'|int(5) }}|{{ 'x'|int(default=none) }}|{{ 2.9|int }}|{{ -2.9|int }}|{{ true|int }}|{{ none|int }}",
        "{{ []|int(3) }}",
        "{{ '0x1f'|int(0, 16) }}|{{ '0b11'|int(0, 2) }}|{{ '77'|int(base=8) }}|{{ 'z'|int(base=36) }}",
        "{{ '--5'|int }}|{{ '\u00a07\u3000'|int }}|{{ 'ff'|int(base=16) }}|{{ '09'|int }}",
        "{{ 'inf'|int }} {{ 'nan'|int }}", "{{ missing|int }}", "{{ missing|int(5) }}", "{{ missing|float }}",
        "{{ '1.5'|float }}|{{ 'x'|float }}|{{ 'x'|float(9.5) }}|{{ '1e400'|float }}|{{ ' 2 '|float }}",
        "{{ 5|float }}|{{ 'x'|float('d') }}|{{ '1.'|float }}|{{ '.5'|float }}|{{ []|float }}|{{ '0x10'|float }}",
        "{{ -5|abs }} {{ (-5.5)|abs }} {{ true|abs }} {{ (0 - 7)|abs }} {{ (-0.0)|abs }}", "{{ 'a'|abs }}",
        "{{ missing|abs }}", "{{ nothing|abs }}",
        "{{ numbers|sum }}|{{ numbers|sum(start=10) }}|{{ people|sum(attribute='age') }}|{{ people|sum('age', 1) }}",
        "{{ []|sum }}|{{ floats|sum }}|{{ [true, true]|sum }}|{{ [[1], [2]]|sum(start=[]) }}|{{ missing|sum }}",
        "{{ 'ab'|sum(start='') }}",
        "{{ numbers|min }}|{{ numbers|max }}|{{ words|min }}|{{ words|max }}|{{ words|max(case_sensitive=true) }}",
        "{{ words|min(true) }}|{{ people|max(attribute='age') }}|{{ people|min(attribute='name') }}|{{ []|min }}",
        "{{ [1, 1.0]|max }}|{{ [1.0, 1]|min }}|{{ [[1, 2], [1, 3]]|max }}", "{{ [1, 'a']|max }}", "{{ [none, 1]|min }}",
        "{{ missing|max }}|",
        "{{ [seven, 10]|min }}|{{ [0, seven]|max }}|{{ (1, 2)|max }}|{{ mapping|max }}|{{ 'abc'|max }}",
        "{{ numbers|map('abs')|max }}",
    ],
    "filters of lists": [
        "{{ missing|default('d') }}|{{ nothing|default('d') }}|{{ nothing|default('d', true) }}|{{ ''|default('d') }}",
        "{{ ''|default('d', boolean=true) }}|{{ 0|default('d', true) }}|{{ missing|default }}|{{ missing|d(1) }}",
        "{{ no|default('d') }}|{{ mapping.nope|default('d') }}|{{ []|default('e', true) }}",
        "{{ missing|default(default_value=3) }}|{{ missing|default(missing) }}|",
        "{{ people|join(',', attribute='city.name') }}",
        "{{ numbers|join }}|{{ numbers|join(', ') }}|{{ people|join(', ', attribute='name') }}",
        "{{ people|join('-', 'age') }}|{{ mixed|join('|') }}|{{ []|join(',') }}|{{ [none, missing, 1.0]|join(',') }}",
        "{{ numbers|join(1) }}|{{ mapping|join(',') }}|{{ nested|join(';') }}|{{ words|join(d='/') }}",
        "{{ numbers|sort }}|{{ words|sort }}|{{ words|sort(case_sensitive=true) }}|{{ numbers|sort(reverse=true) }}",
        "{{ words|sort(true, true) }}|{{ words|sort(reverse=true) }}|{{ mapping|sort }}|{{ (2, 1)|sort }}",
        "{{ [true, 0, 2.5, 1]|sort }}|{{ nested|sort }}|{{ []|sort }}",
        "{{ people|sort(attribute='age')|map(attribute='name')|join }}",
        "{{ people|sort(attribute='name')|map(attribute='name')|join }}",
        "{{ people|sort(attribute='age,name')|map(attribute='name')|join }}",
        "{{ people|sort(reverse=true, attribute='age')|map(attribute='name')|join }}",
        "{{ people|sort(attribute='name', case_sensitive=true)|map(attribute='name')|join }}",
        "{{ pairs|sort(attribute='1', reverse=true) }}|{{ pairs|sort(attribute=1) }}", "{{ mixed|sort }}",
        "{{ people|sort }}", "{{ people|sort(attribute='city') }}",
        "{{ ['é', 'z', 'É', 'a', 'ß', 'ss']|sort }}|{{ ['b', 'B', 'a', 'A']|sort }}",
        "{{ ['B', 'b', 'A', 'a']|sort(reverse=true) }}", "{{ [none, 1]|sort }}", "{{ missing|sort }}",
        "{{ mapping|dictsort }}|{{ mapping|dictsort(true) }}|{{ mapping|dictsort(by='value') }}",
        "{{ mapping|dictsort(reverse=true) }}|{{ mapping|dictsort(false, 'value', true) }}|{{ {}|dictsort }}",
        "{{ {'b': 'X', 'a': 'y'}|dictsort(by='value') }}|{{ {2: 1, 10: 0}|dictsort }}",
        "{% for k, v in mapping|dictsort %}{{ k }}{{ v }}{% endfor %}", "{{ mapping|dictsort(false, 'bad') }}",
        "{{ numbers|dictsort }}", "{{ missing|dictsort }}", "{{ {1: 2, 'a': 3}|dictsort }}",
        "{{ people|unique(attribute='city')|list|length }}",
        "{{ words|unique|list }}|{{ words|unique(case_sensitive=true)|list }}|{{ [1, 1.0, true, 2]|unique|list }}",
        "{{ people|unique(attribute='age')|map(attribute='name')|list }}|{{ [none, none]|unique|list }}",
        "{{ words|unique(true)|list }}",
        "{% for g, items in people|groupby('age') %}{{ g }}:{{ items|map(attribute='name')|join(',') }};{% endfor %}",
        "{{ people|groupby('age')|list }}",
        "{% for g in people|groupby('name') %}{{ g.grouper }}{{ g.list|length }} {% endfor %}",
        "{% for g in people|groupby('name', case_sensitive=true) %}{{ g.grouper }} {% endfor %}",
        "{% for g in people|groupby('city', default='none') %}{{ g.grouper }}{% endfor %}",
        "{% for g in people|groupby('city.name', default='none') %}{{ g.grouper }}{% endfor %}",
        "{{ people|groupby('city')|list }}", "{% for g, l in pairs|groupby(1) %}{{ g }}{{ l }}{% endfor %}",
        "{% for g, l in ['a', 'B', 'b', 'A']|groupby('0') %}{{ g }}{{ l }}{% endfor %}",
        "{{ [1, 2, 3, 4, 5]|batch(2)|list }}|{{ [1, 2, 3]|batch(2, 'x')|list }}|{{ []|batch(2)|list }}",
        "{{ [1, 2, 3]|batch(5, 0)|list }}|{{ [1, 2]|batch(linecount=1)|list }}",
        "{{ [1, 2, 3, 4, 5]|slice(2)|list }}|{{ [1, 2, 3, 4, 5]|slice(3)|list }}",
        "{{ [1, 2, 3, 4, 5]|slice(3, 'x')|list }}|{{ [1]|slice(3)|list }}|{{ [1, 2, 3, 4]|slice(2, 'x')|list }}",
        "{{ [1]|slice(3, 'x')|list }}", "{{ numbers|slice(0)|list }}",
        "{{ numbers|first }}|{{ numbers|last }}|{{ []|first }}|{{ []|last }}|{{ mapping|first }}|{{ mapping|last }}",
        "{{ mapping.values()|last }}|{{ (1, 2)|last }}|{{ range(3)|last }}", "{{ numbers|map('string')|first }}",
        "{{ numbers|map('string')|last }}", "{{ numbers|map('string')|list }}{{ numbers|map('string')|join }}",
        "{{ (numbers|map('string'))[0] }}|", "{% set g = numbers|map('string') %}{{ g|list }}{{ g|list }}",
        "{% set g = numbers|select('odd') %}{{ g|first }}{{ g|list }}{{ g is iterable }}{{ g is sequence }}",
        "{{ numbers|map('upper')|tojson }}",
        "{{ numbers|reverse|list }}|{{ 'abc'|reverse }}|{{ (1, 2)|reverse|list }}|{{ mapping|reverse|list }}",
        "{{ range(3)|reverse|list }}|{{ numbers|map('string')|reverse|list }}|{{ numbers|reverse|join }}",
        "{{ numbers|reverse|first }}",
        "{{ people|map(attribute='name')|list }}|{{ people|map(attribute='city')|list }}",
        "{{ people|map(attribute='city', default='-')|list }}",
        "{{ people|map(attribute='city.name', default='-')|list }}|{{ pairs|map(attribute=0)|list }}",
        "{{ pairs|map(attribute='1')|list }}|{{ pairs|map(attribute='1.x')|list }}",
        "{{ people|map(attribute='city.name')|list }}", "{{ numbers|map()|list }}",
        "{{ numbers|map('nofilter')|list }}", "{{ []|map('nofilter')|list }}",
        "{{ missing|map('upper')|list }}{{ nothing|map('upper')|list }}",
        "{{ words|map('upper')|list }}|{{ words|map('replace', 'p', 'q')|list }}|{{ words|map('length')|sum }}",
        "{{ words|map('first')|join }}|{{ [missing, 1]|map('default', 'x')|list }}|{{ pairs|map('join', '=')|list }}",
        "{{ ['1', 'x']|map('int', default=9)|list }}|{{ pairs|map('last')|list }}",
        "{{ numbers|select|list }}|{{ [0, '', 1, none, 'a']|select|list }}|{{ numbers|select('odd')|list }}",
        "{{ numbers|select('gt', 1)|list }}|{{ numbers|select('in', [1, 2])|list }}|{{ mixed|select('string')|list }}",
        "{{ mixed|select('number')|list }}|{{ numbers|select('==', 1)|list }}",
        "{{ numbers|select('divisibleby', 3)|list }}|{{ mixed|select('none')|list }}",
        "{{ [0, 1, none]|reject|list }}|{{ numbers|reject('eq', 2)|list }}|{{ words|reject('lower')|list }}",
        "{{ numbers|reject('odd')|list }}|{{ mixed|reject('mapping')|list }}|{{ numbers|reject('>=', 2)|list }}",
        "{{ people|selectattr('city')|map(attribute='name')|list }}",
        "{{ people|selectattr('age', 'gt', 26)|map(attribute='name')|list }}",
        "{{ people|selectattr('name', 'in', ['Bo', 'Cy'])|list|length }}",
        "{{ people|selectattr('city', 'defined')|list|length }}",
        "{{ people|selectattr('name', 'equalto', 'Bo')|first }}",
        "{{ people|selectattr('city.name', 'defined')|list|length if no }}|{{ pairs|selectattr('1', 'odd')|list }}",
        "{{ pairs|selectattr(1, 'even')|list }}", "{{ people|rejectattr('city')|map(attribute='name')|list }}",
        "{{ people|rejectattr('age', 'eq', 30)|map(attribute='name')|list }}",
        "{{ people|rejectattr('city', 'defined')|map(attribute='name')|join(',') }}",
        "{{ people|rejectattr('city', 'undefined')|list|length }}", "{{ people|selectattr('city.name')|list }}",
        "{{ numbers|select('notest')|list }}", "{{ []|select('notest')|list }}", "{{ people|selectattr()|list }}",
        "{{ people|selectattr('age', 'gt')|list }}", "{{ nothing|select|list }}{{ missing|select|list }}",
        "{{ mapping|items|list }} {{ missing|items|list }} {{ {}|items|list }}", "{{ numbers|items|list }}",
        "{{ nothing|items|list }}",
        "{{ mapping|list }}|{{ mapping|length }}|{{ 'ab'|list }}|{{ (1, 2)|list }}|{{ mapping.items()|list }}",
        "{{ range(2)|list }}|{{ []|length }}|{{ ()|length }}|{{ {}|count }}",
        "{{ numbers|list is sameas numbers }}{{ numbers|list == numbers }}",
        "{{ (messages|selectattr('role', 'equalto', 'user')|list|last).content }}",
        "{{ messages|selectattr('role', 'eq', 'system')|list }}", "{{ messages|map(attribute='content')|join('/') }}",
        "{{ messages|rejectattr('role', 'in', ['user'])|list|length }}",
    ],
    "JSON": [
        "{{ odd_json|tojson }}", "{{ odd_json|tojson(indent=2) }}", "{{ odd_json|tojson(ensure_ascii=true) }}",
        "{{ control|tojson }} {{ html|tojson }} {{ accents|tojson }}",
        "{{ control|tojson(true) }} {{ accents|tojson(ensure_ascii=true) }}",
        "{{ mapping|tojson(sort_keys=true) }}|{{ mapping|tojson(separators=(',', ':')) }}",
        "{{ mapping|tojson(indent=1, separators=(',', '=')) }}|{{ mapping|tojson(separators=[', ', ' : ']) }}",
        "{{ nested|tojson(indent=0) }}|{{ [[], {}, [[]], {'a': []}]|tojson(indent=2) }}",
        "{{ nested|tojson(indent='\t') }}|{{ nested|tojson(indent=none) }}|{{ []|tojson(indent=4) }}",
        "{{ nested|tojson(2) }}|{{ 'é'|tojson(0) }}|{{ nested|tojson(false, 2) }}",
        "{{ nested|tojson(true, none, (',', ':')) }}",
        "{{ none|tojson }}|{{ true|tojson }}|{{ 1|tojson }}|{{ 1.0|tojson }}|{{ 1e22|tojson }}|{{ 1e16|tojson }}",
        "{{ 1e-5|tojson }}|{{ -0.0|tojson }}|{{ 'a'|tojson }}|{{ (1, 2)|tojson }}|{{ []|tojson }}|{{ {}|tojson }}",
        "{{ ('nan'|float)|tojson }}|{{ ('-inf'|float)|tojson }}",
        "{{ {1: 2, none: 3, 1.5: 4, true: 5, 'a': 6}|tojson }} {{ {2.0: 1, 1e22: 2}|tojson }}",
        "{{ {(1, 2): 3}|tojson }}", "{{ missing|tojson }}", "{{ [missing]|tojson }}", "{{ mapping.items()|tojson }}",
        "{{ mapping.items()|list|tojson }}", "{{ range(3)|tojson }}", "{{ range(3)|list|tojson }}",
        "{{ namespace(a=1)|tojson }}", "{{ numbers|map('string')|tojson }}",
        "{{ (html|safe)|tojson }} {{ [html|e]|tojson }}",
        "{{ {'b': {'d': 1, 'c': 2}, 'a': [{'z': 1, 'y': 2}]}|tojson(sort_keys=true, indent=2) }}",
        "{{ {2: 1, 10: 2, 1: 3}|tojson(sort_keys=true) }}",
        "{{ numbers|tojson ~ '<' }}|{{ '<'|tojson + '<' }}|{{ ('<'|tojson) is escaped }}|{{ numbers|tojson|length }}",
        "{{ numbers|tojson|upper }}|{{ mapping|tojson|replace('\"', \"'\") }}", "{{ mapping|tojson(nope=1) }}",
        "{{ '{\"a\": [1, 2.0, null, true, \"\\\\u00e9\"]}'|from_json }}|{{ ('[1, 1e2, -0.0]'|from_json)[1] }}",
        "{{ '\"x\"'|from_json }}|{{ ' 5 '|from_json }}", "{{ '{bad'|from_json }}", "{{ ''|from_json }}",
        "{{ none|from_json }}", "{{ '[1] x'|from_json }}",
        "{{ '{\"b\":1,\"a\":2,\"b\":3}'|from_json }}|{{ 'NaN'|from_json }}",
        "{{ '[1,]'|from_json if no else 'skipped' }}", "{{ '[1,]'|from_json }}", "{{ \"{'a': 1}\"|from_json }}",
        "{{ odd_json|tojson|from_json == odd_json }}", "{{ messages|tojson }} {{ messages[0]|tojson(indent=2) }}",
        "{{ tools|tojson }}|{{ true|tojson|upper }}|{{ 'a/b'|tojson }}|{{ '\\u2028\\x7f\\x1f'|tojson }}",
        "{{ '\\x7f'|tojson(ensure_ascii=true) }}", "{{ '\\x08\\x0c\\n\\r\\t\\x00\\x0b\\x1b'|tojson }}",
        "{{ people|tojson(indent=3) }}", "{{ people|tojson(indent=2, ensure_ascii=true, sort_keys=true) }}",
        "{{ 'line\nbreak \"q\" \\\\ é 👋 \U0001d11e'|tojson(ensure_ascii=true) }}",
        "{{ [1.0, [2]]|tojson(separators=(',', ':')) }}", "{{ {'a': {'b': {}}, 'c': [[], [1]]}|tojson(indent=4) }}",
        "{{ word.upper|tojson }}", "{{ raise_exception|tojson }}",
    ],
    "Markup": [
        "{{ (html|safe) + '<' }} {{ '<' + (html|safe) }} {{ (html|safe) ~ '<' }} {{ '<' ~ (html|safe) }}",
        "{{ ('<'|e) + '<' }} {{ '<' + ('<'|e) }} {{ ('<'|safe) + ('>'|safe) }} {{ ('<'|safe) + 'a' + '>' }}",
        "{{ ('<'|safe) + 1 }}", "{{ ('<'|safe) * 2 }} {{ (('<'|safe) * 2) + '<' }} {{ 2 * ('<'|safe) + '>' }}",
        "{{ ('<%s>'|safe) % '<b>' }}|{{ ('<%s %d>'|safe) % ('&', 5) }}|{{ ('%(a)s'|safe) % {'a': '<'} }}",
        "{{ '%s' % ('<'|safe) }}|{{ '%s' % ('<'|e) }}|{{ '<%s>' % ('&'|e) + '<' }}",
        "{{ ('<%s>'|safe)|format('<b>') }}|{{ '<%s>'|format('<b>'|safe) }}|{{ ('{} {a}'|safe).format('<', a='>') }}",
        "{{ '{}'.format('<'|e) }}",
        "{{ (html|safe).upper() }}|{{ (html|safe).upper() + '<' }}|{{ (html|safe)|upper + '<' }}",
        "{{ (html|safe)|trim + '<' }}|{{ (html|safe)|string + '<' }}|{{ (html|safe)|lower ~ '<' }}",
        "{{ (html|safe)|title + '<' }}|{{ (html|safe)|capitalize + '<' }}",
        "{{ (html|safe).replace('a', '<') }}|{{ (html|safe).replace('a', '<') + '<' }}",
        "{{ ['<'|safe, '<']|join(',') }}|{{ ['<', '>']|join('<'|safe) }}|{{ ('<'|safe).join(['<', '>'|safe]) }}",
        "{{ '<'.join(['>'|safe]) + '<' }}",
        "{{ (html|safe).split() }}|{{ (html|safe).split('=')[0] + '<' }}|{{ (html|safe).partition('=') }}",
        "{{ (html|safe).splitlines() }}|{{ (html|safe).strip('<') + '<' }}|{{ (html|safe).lstrip() + '<' }}",
        "{{ ('a<\nb'|safe)|indent + '<' }}|{{ 'a<\nb'|indent + '<' }}|{{ ('<'|safe)|center(3) + '<' }}",
        "{{ (html|safe) is string }}|{{ (html|safe) is escaped }}|{{ html is escaped }}|{{ (html|e) is escaped }}",
        "{{ (html|safe)|string is escaped }}|{{ ((html|safe) ~ '') is escaped }}|{{ ((html|safe) + '') is escaped }}",
        "{{ (html|safe)|upper is escaped }}",
        "{{ (html|safe)|e }}|{{ (html|e)|e }}|{{ (html|e)|safe }}|{{ (html|safe)|length }}|{{ (html|safe) == html }}",
        "{{ (html|safe) in [html] }}|{{ {html: 1}[html|safe] }}|{{ '<' in (html|safe) }}",
        "{% set x = html|safe %}{{ x }}{% set y = x + '<' %}{{ y }}{% set z %}{{ x }}<{% endset %}{{ z + '<' }}",
        "{% macro m() %}<{% endmacro %}{{ m() + '<' }}{% filter upper %}{{ html|safe }}{% endfilter %}",
        "{{ (html|safe)|default('x') + '<' }}|{{ missing|default('<'|safe) + '<' }}",
        "{{ ('<'|safe if yes else '') + '<' }}|{{ (yes and ('<'|safe)) + '<' }}",
        "{{ ('a'|safe) < 'b' }}|{{ ('a'|safe)|int }}|{{ ('5'|safe)|int + 1 }}|{{ ('1.5'|safe)|float }}",
        "{{ [('b'|safe), 'a']|sort }}|{{ [('b'|safe), 'b']|unique|list }}",
        "{{ (5|safe) + '<' }}|{{ (none|safe) ~ '<' }}", "{{ 'a' + ('b'|safe) + \"'\" + '\"' + '&' }}",
        "{{ ('<'|safe) + none }}", "{{ ('<'|safe) + missing }}",
        "{{ ['<'|safe] + ['<'] }} {{ ('<'|safe, '<') }} {{ [('<'|safe) + '<', ('<'|safe) ~ '<'] }}",
        "{{ ('<'|safe).format() }}|{{ ('<'|safe).center(3) + '<' }}|{{ ('<a>'|safe).removeprefix('<') + '<' }}",
        "{{ ('a<'|safe).capitalize() + '<' }}|{{ ('<'|safe).zfill(3) + '<' }}|{{ ('a,b'|safe).rsplit(',')[0] + '<' }}",
        "{{ ('<'|safe).startswith('<') }}",
        "{{ numbers|join(','|safe) + '<' }} {{ [html]|join(', ')|safe + '<' }} {{ (['a']|join('')|safe) ~ '<' }}",
    ],
    "tests": [
        "{{ missing is defined }}|{{ word is defined }}|{{ nothing is defined }}|{{ missing is undefined }}",
        "{{ mapping.nope is undefined }}|{{ word is not defined }}|{{ not word is defined }}",
        ("{% for v in mixed %}{{ v is none }}{{ v is boolean }}{{ v is true }}{{ v is false }}{{ v is integer }}"
         "{{ v is float }}{{ v is number }}{{ v is string }}{{ v is mapping }}{{ v is iterable }}{{ v is sequence }}"
         "{{ v is callable }} {% endfor %}"),
        "{{ missing is none }}|{{ missing is string }}|{{ missing is iterable }}|{{ missing is sequence }}",
        "{{ missing is mapping }}|{{ missing is callable }}|{{ missing is number }}|{{ missing is true }}",
        "{{ missing is false }}", "{{ missing is odd }}",
        "{{ 1.5 is odd }}{{ 3.0 is odd }}{{ 2.0 is even }}{{ true is odd }}{{ -1 is odd }}{{ 0 is even }}",
        "{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ 6 is not divisibleby 4 }}{{ 6.0 is divisibleby 3 }}",
        "{{ 6 is divisibleby }}",
        "{{ 1 is eq 1 }}|{{ 1 is equalto 2 }}|{{ 1 is ne 2 }}|{{ 1 is lt 2 }}|{{ 1 is lessthan 1 }}|{{ 1 is le 1 }}",
        "{{ 2 is gt 1 }}|{{ 2 is greaterthan 2 }}|{{ 2 is ge 2 }}|{{ 1 is eq 1.0 }}|{{ 'a' is eq 'a' }}",
        "{{ 1 is in [1, 2] }}|{{ 'a' is in 'abc' }}|{{ 3 is not in [1, 2] }}|{{ 'a' is in mapping }}",
        "{{ 1 is in(numbers) }}", "{{ none is sameas none }}|{{ 1 is sameas 1 }}|{{ numbers is sameas numbers }}",
        "{{ numbers is sameas [3, 1, 2] }}|{{ true is sameas true }}|{{ 1 is sameas true }}|{{ yes is sameas true }}",
        "{{ 0 is sameas false }}",
        "{{ 'abc' is lower }}|{{ 'ABC' is upper }}|{{ 'Abc' is lower }}|{{ '' is lower }}|{{ '1' is upper }}",
        "{{ 5 is lower }}|{{ none is lower }}|{{ ['a'] is lower }}",
        "{{ 'upper' is filter }}|{{ 'nope' is filter }}|{{ 'odd' is test }}|{{ 'nope' is test }}",
        "{{ 'tojson' is filter }}|{{ 'from_json' is filter }}|{{ 'in' is test }}|{{ 5 is filter }}",
        "{{ range is callable }}|{{ word.upper is callable }}|{{ raise_exception is callable }}",
        "{{ numbers is callable }}",
        "{{ (1, 2) is sequence }}|{{ (1, 2) is iterable }}|{{ (1,) is mapping }}|{{ range(3) is sequence }}",
        "{{ range(3) is iterable }}|{{ mapping is sequence }}|{{ mapping is iterable }}|{{ 'a' is sequence }}",
        "{{ numbers|map('abs') is sequence }}|{{ namespace() is iterable }}|{{ namespace() is sequence }}",
        "{{ 'a' is string is true }}",
        "{{ 'x' is string and word is not none }}|{{ 1 is not string }}|{{ not 1 is string }}",
        "{{ 1 is defined is true }}", "{{ 1 is nope }}", "{{ 1 is }}", "{{ 1 is not }}", "{{ 1 is eq -1 }}",
        "{{ 1 is eq (-1) }}{{ 1 is eq 1 and 2 is eq 2 }}{{ 4 is divisibleby 2 and yes }}",
        "{{ 4 is divisibleby 2 == true }}{{ 4 is eq 2 + 2 }}{{ 4 is eq 2|int }}", "{{ word is eq word|upper }}",
        "{{ 1 is eq seven }}|{{ 7 is eq seven }}|{{ 'Ulm' is eq people[0].city.name }}",
        "{{ people[0].city is mapping }}|{{ people[0].city.name is string }}", "{{ word is string if yes else 1 }}",
        "{{ 'a' is none or 'b' is string }}|{{ [1 is odd, 2 is odd] }}",
        "{{ 1 is eq(1) }}{{ 1 is eq (1) }}{{ 1 is sameas(1) }}{{ (1 is eq 1) is true }}",
        "{{ word|upper is upper }}{{ word is string|upper }}{{ 'A'|lower is eq 'a' }}",
        "{{ true is boolean }}|{{ 1 is boolean }}|{{ true is integer }}|{{ true is number }}|{{ 1.0 is number }}",
        "{{ 1.0 is integer }}|{{ 1.0 is float }}|{{ 'nan'|float is float }}|{{ '1' is number }}",
        "{{ messages is iterable }}|{{ messages[0] is mapping }}|{{ messages[0].content is string }}",
        "{{ messages[0].tool_calls is defined }}|{{ messages[0]['content'] is not string }}",
        "{{ none is mapping }}|{{ none is iterable }}|{{ 5 is iterable }}|{{ 5 is sequence }}|{{ true is iterable }}",
        "{{ {} is iterable }}|{{ '' is iterable }}", "{{ 1 is in [1] is true }}",
        "{{ yes is true and no is false and 1 is not true and 0 is not false }}",
    ],
    "undefined": [
        "{{ missing }}|{{ missing ~ 'a' }}|{{ missing or 'b' }}|{{ missing|length }}|{{ missing|join }}",
        "{{ missing|first }}|{{ missing|last }}|{{ missing|sum }}|{{ missing|list }}|{{ missing|string }}",
        "{{ missing.x.y }}", "{% if missing.x %}{% endif %}", "{% for x in missing.x %}{% endfor %}",
        "{% set x = missing.x %}", "{{ mapping.x }}{{ mapping.x or 'd' }}{{ mapping.x is none }}", "{{ mapping.x.y }}",
        "{% if mapping.x.y is defined %}{% endif %}", "{{ missing not in 'abc' }}",
        "{{ missing in numbers }}|{{ 1 in missing }}", "{{ missing == '' }}{{ missing == false }}{{ missing == none }}",
        "{{ missing > 1 }}", "{{ missing + missing }}", "{{ missing - 1 }}", "{{ missing / 1 }}", "{{ missing % 1 }}",
        "{{ '%s' % missing }}|", "{{ missing|int }}", "{{ missing|abs }}", "{{ missing|round }}",
        "{{ missing|dictsort }}", "{{ missing|items|list }}",
        "{{ missing|sort }}{{ missing|unique|list }}{{ missing|batch(2)|list }}", "{{ missing|attr('x') }}",
        "{{ missing|min }}|", "{{ missing|indent }}",
        "{{ missing|groupby('x')|list }}{{ missing|map('upper')|list }}{{ missing|select|list }}",
        "{{ numbers[missing] }}|{{ word[missing] }}|", "{{ 'abc'.replace(missing, 'x') }}", "{{ ','.join([missing]) }}",
        "{{ 'abc'.startswith(missing) }}", "{{ range(missing) }}",
        "{{ (missing) }}{{ [missing][0] is defined }}{{ {'a': missing}.a is defined }}{{ {'a': missing}['a'] }}",
        "{% set ns = namespace(x=missing) %}{{ ns.x is defined }}{{ ns.x }}",
        "{{ missing|default({}) }}|{{ (missing|default({'a': 1})).a }}",
        "{{ missing.x|default('d') if missing is defined else 'u' }}",
        "{% if missing is defined and missing.x %}a{% else %}b{% endif %}",
        "{% if missing and missing.x %}a{% else %}b{% endif %}", "{% if not missing or missing.x %}a{% endif %}",
        "{{ word.missing_method('x') }}", "{{ messages[5] }}|{{ messages[5] is defined }}", "{{ messages[5].content }}",
        "{{ messages[0].nope }}|{{ messages[0].nope is defined }}|{{ messages[0]['nope'] }}",
        "{{ messages[0].nope.x }}", "{{ messages[0]['nope']|length }}", "{{ messages[0].nope + 'x' }}",
        "{{ nothing + 'x' }}", "{{ nothing.x }}|{{ nothing.x is defined }}",
        "{{ nothing[0] }}|{{ 5[0] }}|{{ true[0] }}", "{{ missing ** 2 }}", "{{ missing // 2 }}",
        "{{ not missing }}{{ missing is sameas none }}", "{{ {missing: 1} }}", "{{ missing in {'a': 1} }}",
        "{{ missing|e }}|{{ missing|safe }}|{{ (missing|safe) is defined }}", "{{ (1, missing) }}{{ missing, 1 }}",
        "{{ [1, missing]|join('-') }}{{ [missing, 'a']|map('upper')|list }}",
    ],
    "errors": [
        "{{ }}", "{% %}", "{{ word", "{% if yes", "{# open", "{{ 'abc }}", "{{ word extra }}", "{{ (1 }}", "{{ [1 }}",
        "{{ |upper }}", "{{ word| }}", "{{ word. }}", "{{ {1} }}", "{{ {'a'} }}", "{{ {'a': } }}", "{{ a = 1 }}",
        "{{ 1 ! 2 }}", "{{ a $ b }}", "{{ a ? b }}", "{{ 1 && 2 }}", "{{ !word }}", "{{ a; b }}", "{{ a @ b }}",
        "{{ `a` }}", "{{ a: 1 }}", "{{ ) }}", "{{ a] }}", "{{ 1, }}", "{{ , }}", "{{ (1]) }}", "{{ [1, , 2] }}",
        "{% for x %}{% endfor %}", "{% for in numbers %}{% endfor %}", "{% for x in %}{% endfor %}",
        "{% for x in numbers %}", "{% for x in numbers %}{% endif %}", "{% for 1 in numbers %}{% endfor %}",
        "{% for x of numbers %}{% endfor %}", "{% if %}{% endif %}", "{% if yes %}",
        "{% if yes %}{% else %}{% else %}{% endif %}", "{% if a = 1 %}{% endif %}", "{% if yes then %}{% endif %}",
        "{% set %}", "{% set x %}", "{% set 1 = 2 %}", "{% set x = 1 2 %}", "{% set x += 1 %}", "{% set 'a' = 1 %}",
        "{% set x() = 1 %}", "{% set none = 1 %}", "{% set x[0] = 1 %}", "{% macro %}{% endmacro %}",
        "{% macro m %}{% endmacro %}", "{% macro m(1) %}{% endmacro %}", "{% macro m() %}",
        "{% macro m(*a) %}{% endmacro %}", "{% with a %}{% endwith %}", "{% filter %}{% endfilter %}",
        "{% filter upper %}", "{% raw %}x", "{% break %}", "{% continue %}", "{% include 'x' %}",
        "{% include 'x' ignore missing %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}",
        "{% if no %}{% extends 'x' %}{% endif %}ok", "{% if no %}{% import 'x' as y %}{% endif %}ok", "{{ super() }}",
        "{% generation %}x", "{% generation x %}{% endgeneration %}", "{{ 1|'x' }}", "{{ word|join(1, 2, 3, 4) }}",
        "{{ word|default(1, 2, 3) }}", "{{ word|replace }}", "{{ f(a=1, 2) }}", "{{ word.replace(*missing) }}",
        "{{ dict(a=1, a=2) }}", "{{ dict(**{'a': 1}, **{'b': 2}) }}", "{{ dict(**1) }}", "{{ dict(*[[['a', 1]]]) }}",
        "{{ range(*[1, 3])|list }}{{ range(*(1, 3))|list }}", "{{ dict(**mapping) }}",
        "{{ word.split(**{'sep': 'a'}) }}", "a{{ missing.x }}", "{% set x = 1 %}\n{{ x }}\n{{ x.y.z }}",
        "{{ missing.x }}", "{{ [].x.y }}", "{{ 1() }}", "{{ 'a'() }}", "{{ [1, 2](0) }}", "{{ lambda x: x }}",
        "{{ [x for x in numbers] }}", "{{ word as x }}", "{{ import }}|{{ class }}|{{ for }}|{{ if }}|{{ set }}",
        "{{ in }}", "{{ is }}", "{{ and }}", "{{ else }}", "{{ word.if }}|{{ {'for': 1}.for }}|{{ {'in': 2}.in }}",
        "{{ 名 }}|{% set 名 = 1 %}{{ 名 }}", "{{ é.x }}", "{{ a\u00a0b }}", "{{\u00a0word\u3000}}", "{{ \"a' }}",
        "{{ 1 not 2 }}", "{{ ** 2 }}", "{{ * }}", "{{ // }}", "{{ ~ }}", "{{ a..b }}", "{{ a.1b }}", "{{ a[1:2:3:4] }}",
        "{{ a[:, 1] }}", "{% set x = '{{ word }}' %}{{ x }}", "{%{% if yes %}%}",
        "{% for x in numbers recursive if x %}{% endfor %}", "{% for x in numbers if x recursive %}{{ x }}{% endfor %}",
        "{% for x in numbers loop %}{% endfor %}",
    ],
    "programs": [
        ("{%- macro render(v, depth=0) -%}{%- if v is mapping -%}{ {%- for k, w in v.items() %}"
         "{{ ', ' if not loop.first }}{{ k }}: {{ render(w, depth + 1) }}{% endfor -%} }{%- elif v is string -%}"
         "\"{{ v }}\"{%- elif v is iterable -%}[{% for w in v %}{{ render(w, depth + 1) }}{{ ',' if not loop.last }}"
         "{% endfor %}]{%- else -%}{{ v }}@{{ depth }}{%- endif -%}{%- endmacro -%}{{ render(odd_json) }}"),
        ("{% set ns = namespace(last=-1, found=false) %}{% for m in messages[::-1] %}"
         "{% set i = (messages|length - 1) - loop.index0 %}{% if not ns.found and m.role == 'user' %}"
         "{% set ns.last = i %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.last }}{{ ns.found }}"),
        ("{% set content = '<think>\\nhm\\n</think>\\n\\nso' %}"
         "{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}|"
         "{{ content.split('</think>')[-1].lstrip('\\n') }}"),
        ("{% for p in people %}{% if loop.previtem is defined and loop.previtem.age == p.age %}same {% endif %}"
         "{{ p.name }}{% if not loop.last and loop.nextitem.age != p.age %};{% endif %}{% endfor %}"),
        ("{% set sep = ', ' %}{% for k, v in mapping|dictsort(reverse=true) %}"
         "{{ k ~ '=' ~ v ~ (sep if not loop.last else '.') }}{% endfor %}"),
        ("{% for m in messages %}{{ '<|' + m['role'] + '|>' + '\\n' + m['content']|trim + '<|end|>' + '\\n' }}"
         "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"),
        "{% set text %}{% for x in numbers -%}\n  {{ x }}\n{% endfor %}{% endset %}{{ text|trim|replace('\\n', '/') }}",
        "{{ (messages|first)['content'] if messages and messages[0]['role'] == 'user' else raise_exception('no user') }}",
        "{% set x = {'a': [1, {'b': (2, none)}]} %}{{ x.a[1].b[0] }}{{ x['a'][1]['b'][1] is none }}{{ x.a.1.b.0 }}{{ x }}",
        ("{% macro outer() %}{% macro inner() %}{{ caller_name }}{% endmacro %}{% set caller_name = 'o' %}"
         "{{ inner() }}{% endmacro %}[{{ outer() }}]"),
        ("{% set n = namespace(s='') %}{% for c in word %}{% set n.s = c ~ n.s %}{% endfor %}{{ n.s }}"
         "{{ n.s == word[::-1] }}"),
        ("{% for row in [1, 2, 3, 4, 5]|batch(2, '-') %}{% for c in row %}{{ c }}{{ loop.cycle(' ', '\\n') }}"
         "{% endfor %}{% endfor %}"),
        "{{ 'many ' * 3 ~ (numbers|map('string')|join('+')) ~ '=' ~ numbers|sum }}",
        "{% if messages|selectattr('role', 'equalto', 'system')|list %}s{% else %}{{ 'n' }}{% endif %}",
        "{% set t = (1, 'a', [2]) %}{% set a, b, c = t %}{{ c[0] }}{{ b }}{{ a }}{{ t|length }}{{ t[1:] }}{{ t + (3,) }}",
        ("{% for x in numbers %}{% for y in numbers if y < x %}{{ x }}{{ y }}{% if loop.last %};{% endif %}"
         "{% else %}({{ x }}){% endfor %}{% endfor %}"),
        "{% with x = 5 %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endwith %}",
        "{% set x = 'a' if missing is defined else ('b' if nothing is none else 'c') %}{{ x }}",
        "{{ [numbers, words]|map('first')|join('/') }}{{ [[1, 2], [3]]|map('sum')|list }}{{ [1, 2]|zip if no }}",
    ],
}
# fmt: on


def long_talk(tools):
    """100 turns and a question; with tools, every fourth answer comes after a call and its result."""
    turns = []
    for i in range(50):
        turns.append(user(f"Question {i}: what is the weather like, and why? " * 3))
        if tools and i % 4 == 0:
            id = f"call{i:05}"
            turns += [answer("", tool_calls=[call("get_weather", PARIS, id=id)]), result("warm", id=id)]
        turns.append(answer(f"Answer {i}: it is warm, because it is summer.\n" * 5))
    return [*turns, user("And now?")]


# ---- templates ----


def fetched_templates():
    """Where the package's templates are, after fetching them when they are not there."""
    there = CACHE / PACKAGE.replace("==", "-")
    if there.exists():
        return there
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        scratch = pathlib.Path(scratch)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE.split("==")[0]]
        subprocess.run([*pip, "--dest", scratch, PACKAGE], check=True)
        out = scratch / "templates"
        out.mkdir()
        with tarfile.open(next(scratch.glob("*.tar.gz")), "r|gz") as tar:
            for member in tar:
                if IN_PACKAGE in member.name and member.name.endswith(".jinja"):
                    (out / pathlib.Path(member.name).name).write_bytes(tar.extractfile(member).read())
        try:
            out.rename(there)
        except OSError:  # another process was faster
            if not there.exists():
                raise
    return there


def model_templates():
    """The templates of the GGUF files, kept in a folder as reading them takes long; an empty one where a model has none."""
    there = CACHE / "models"
    there.mkdir(parents=True, exist_ok=True)
    for model in sorted(MODELS.glob("*.gguf")):
        kept = there / f"{model.stem}.jinja"
        if kept.exists() and kept.stat().st_mtime > model.stat().st_mtime:
            continue
        written = kept.with_suffix(f".{os.getpid()}")
        written.write_bytes(gguf_fields.read(model).get("tokenizer.chat_template", "").encode())
        written.rename(kept)
    return there


def templates_in(directories):
    files = [file for directory in directories for file in sorted(pathlib.Path(directory).rglob("*.jinja"))]
    sources = [(file.stem, file.read_bytes().decode()) for file in files]
    return [(name, source) for name, source in sources if source]


# ---- cases ----

MESSAGES = CONVERSATIONS | {
    "snippet": [user("Hi there"), answer("Oh."), user("Go\n")],
    "100 turns": long_talk(False),
    "100 turns, tools": long_talk(True),
}

# One rendering. `messages` and `tools` are names of MESSAGES and TOOLS, `prompt` asks for a generation prompt.
Case = collections.namedtuple("Case", "name source messages tools prompt variables")
# What a program answered: the text, or None and why not; `raised` holds the words of raise_exception.
Answer = collections.namedtuple("Answer", "text why raised", defaults=(None, None))


def matrix(source):
    for talk in CONVERSATIONS:
        for option, (tools, prompt, variables) in OPTIONS.items():
            yield Case(f"{talk} / {option}", source, talk, tools, prompt, variables)


def named_variables(source):
    return {name: value for name, value in VARIABLES.items() if re.search(rf"\b{name}\b", source)}


def snippets():
    for group, sources in SNIPPETS.items():
        for source in sources:
            yield Case(f"{group}: {source!r}", source, "snippet", None, True, named_variables(source))


class Reference:
    """jinja2, with the template of the case before kept."""

    def __init__(self):
        self.env, self.source, self.template = environment(), None, None

    def compiled(self, source):
        if self.source != source:
            self.source, self.template = source, None
        self.template = self.template or self.env.from_string(source)
        return self.template

    def render(self, case):
        values = {"tools": TOOLS.get(case.tools), "documents": None, "add_generation_prompt": case.prompt, **case.variables}
        if case.tools and "xml_tools" in case.source:
            values.setdefault("xml_tools", TOOLS[case.tools])
        if values.get("enable_thinking") is False:
            others = {"thinking_budget": ("thinking_budget", 0), "reasoning is not undefined": ("reasoning", False)}
            values = dict(other for mark, other in others.items() if mark in case.source) | values
        try:
            values["messages"] = prepared(MESSAGES[case.messages], self.compiled(case.source), case.source)
            values = json.loads(json.dumps(values))  # a copy, which the template may change
            return Answer(self.compiled(case.source).render(values))
        except Raised as error:
            return Answer(None, f"raise_exception: {error}", str(error.args[0]))
        except Exception as error:
            return Answer(None, f"{type(error).__name__}: {error}")


class Hearth:
    """The command, with a directory for its files."""

    def __init__(self, program, directory):
        self.program, self.directory = program, pathlib.Path(directory)
        self.file, self.source = self.directory / f"{os.getpid()}.jinja", None

    def path(self, name):
        return self.directory / (name.replace(" ", "_") + ".json")

    def write_inputs(self):
        for i, (name, messages) in enumerate(MESSAGES.items()):
            self.write(name, messages if i % 2 else {"messages": messages})
        for name, tools in TOOLS.items():
            self.write(name, tools)

    def write(self, name, value):
        self.path(name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")

    def command(self, case):
        if self.source != case.source:
            self.file.write_bytes(case.source.encode())
            self.source = case.source
        command = [self.program, "template", "--template", self.file, "--messages", self.path(case.messages)]
        command += ["--tools", self.path(case.tools)] if case.tools else []
        command += [] if case.prompt else ["--no-generation-prompt"]
        for name, value in case.variables.items():
            command += ["--set", f"{name}={json.dumps(value)}"]
        return command

    def render(self, case):
        try:
            done = subprocess.run(self.command(case), capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return Answer(None, f"still running after {TIMEOUT_S} s")
        said = done.stderr.decode(errors="replace")
        refused = done.returncode == 1 and not done.stdout and re.fullmatch("hearth: [^\n]*\n?", said)
        if refused:
            return Answer(None, said)
        if done.returncode or said:
            return Answer(None, f"exit status {done.returncode}, stdout {done.stdout[:200]!r}, stderr {said!r}")
        try:
            return Answer(done.stdout.decode())
        except UnicodeDecodeError as error:
            return Answer(None, f"stdout is no UTF-8: {error}")


def words(text):
    return " ".join(text.split())


def agree(wanted, found):
    if wanted.text is not None:
        return wanted.text == found.text
    refused = found.text is None and found.why.startswith("hearth: ")
    return refused and words(wanted.raised or "") in words(found.why)


# ---- comparing ----

# Of one template: how many cases agree on a text or on a failure, and a list of (case, wanted, found) that do not.
Outcome = collections.namedtuple("Outcome", "name same refused different")


def compare(job):
    """The outcome of all cases of one template, in a process of its own."""
    name, source, program, directory, every = job
    reference, hearth = Reference(), Hearth(program, directory)
    same = refused = 0
    different = []
    cases = snippets() if source is None else matrix(source)
    for case in itertools.islice(cases, len(name) % every, None, every):
        for _ in range(3):  # the minute or the second may change between the two
            wanted, found = reference.render(case), hearth.render(case)
            alike = agree(wanted, found)
            if alike or "strftime_now" not in case.source:
                break
        same += alike and wanted.text is not None
        refused += alike and wanted.text is None
        if not alike:
            different.append((case.name, wanted, found))
    return Outcome(name, same, refused, different)


def excerpts(wanted, found):
    """What is shown of a difference: where the texts part and what is around, or who failed and why."""
    if wanted.text is None or found.text is None:
        return "", *(words(a.why) if a.text is None else repr(a.text[:CONTEXT]) for a in (wanted, found))
    i = len(os.path.commonprefix([wanted.text, found.text]))
    line = wanted.text.count("\n", 0, i) + 1
    return f"character {i}, line {line}", *(repr(a.text[max(0, i - CONTEXT) : i + CONTEXT]) for a in (wanted, found))


def report(outcome, show):
    """Prints the differences, those that look alike together; returns how many more may be printed in full."""
    total = outcome.same + outcome.refused + len(outcome.different)
    print(f"{outcome.name}: {len(outcome.different)} of {total} differ")
    alike = collections.defaultdict(list)
    for name, wanted, found in outcome.different:
        alike[excerpts(wanted, found)].append(name)
    for (place, wanted, found), names in alike.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"  {names[0]}{more}{': ' + place if place else ''}\n    jinja2 {wanted}\n    hearth {found}")
    for name, *answers in outcome.different[:show]:
        print(f"---- {outcome.name}, {name}")
        for who, answer in zip(("jinja2", "hearth"), answers):
            print(f"---- {who}\n{answer.why if answer.text is None else answer.text}")
    return max(0, show - len(outcome.different))


def compare_all(jobs, workers, show):
    same = refused = different = 0
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        for outcome in pool.map(compare, jobs):
            same += outcome.same
            refused += outcome.refused
            different += len(outcome.different)
            if outcome.different:
                show = report(outcome, show)
    templates = sum(source is not None for _, source, *_ in jobs)
    print(f"{templates} templates, {same + refused + different} cases: ", end="")
    print(f"{same} texts alike, {refused} refused by both, {different} different")
    print(f"{same + refused} passed, {different} failed")
    return different


# ---- time ----


def seconds(command):
    """The best of several runs; None when the command fails or does not end."""
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        try:
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return None
        taken.append(time.perf_counter() - begin)
    return min(taken)


def measure(templates, hearth):
    talks = [
        Case("", "x", "100 turns", None, True, TOKENS),
        Case("", "x", "100 turns, tools", "tools", True, TOKENS),
    ]
    starts = [seconds(hearth.command(case)) for case in talks]
    if None in starts:
        sys.exit('the command does not render the template "x"')
    slowest, refused = [], []
    for name, source in templates:
        best = [(seconds(hearth.command(case._replace(source=source))), start) for case, start in zip(talks, starts)]
        taken = [whole - start for whole, start in best if whole is not None]
        if taken:
            slowest.append((max(taken), name))
        else:
            refused.append(name)
    print(f"100 turns, without and with tools: the best of {RUNS} runs, less the {1e3 * starts[0]:.1f} ms of starting")
    for taken, name in sorted(slowest, reverse=True)[:5]:
        print(f"  {1e3 * taken:6.2f} ms  {name}")
    if refused:
        print(f"  refused by {len(refused)} templates: {', '.join(refused)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hearth", default="build/release/bin/hearth")
    parser.add_argument("--templates", action="append", metavar="DIR")
    parser.add_argument("--snippets", action="store_true", help="the snippets alone")
    parser.add_argument("--chat", action="store_true", help="the templates alone")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th case, from another one on in each template")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true", help="tells what would be compared")
    parser.add_argument("--show", type=int, default=0, metavar="K", help="the first K differences in full")
    parser.add_argument("--time", action="store_true", help="times long conversations instead")
    args = parser.parse_args()

    templates = [] if args.snippets else templates_in(args.templates or [fetched_templates(), model_templates()])
    if args.list:
        for name, source in templates:
            print(f"{name}: {len(source)} characters")
        print(f"conversations: {'; '.join(CONVERSATIONS)}\noptions: {'; '.join(OPTIONS)}")
        cases = len(templates) * len(CONVERSATIONS) * len(OPTIONS)
        print(f"{len(templates)} templates in {cases} cases, {sum(map(len, SNIPPETS.values()))} snippets")
        return 0
    if not os.access(args.hearth, os.X_OK):
        sys.exit(f"there is no program {args.hearth}")
    with tempfile.TemporaryDirectory() as directory:
        hearth = Hearth(args.hearth, directory)
        hearth.write_inputs()
        if args.time:
            measure(templates, hearth)
            return 0
        jobs = [] if args.templates or args.chat else [("snippets", None)]
        jobs = [(*job, args.hearth, directory, args.every) for job in jobs + templates]
        return 1 if compare_all(jobs, args.jobs, args.show) else 0


if __name__ == "__main__":
    sys.exit(main())
