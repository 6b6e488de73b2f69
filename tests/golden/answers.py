"""Takes answers apart that real chat templates write: `hearth template --answer` has to find what jinja2 was given, and the
grammars of tool calls have to accept the answers, and no others.

    python tests/golden/answers.py [--hearth build/release/bin/hearth] [--check build/release/bin/answer_check]
                                   [--templates DIR]... [--show K]

The templates are those of templates.py, and SKETCHES for families that have none there. Each writes conversations that end in an answer with thoughts, text and calls of tools,
in several combinations; what stands behind the prompt is the answer as its model would have generated it. An answer counts as
written only if the template has put all of the names and values into it: some write one call, no text beside calls, or no
thoughts. OTHERS are templates with unknown tool-call formats; their calls must stay text. WRONG are calls that the schemas do not
allow: the grammar must refuse them where a call is free, and where it is required. Needs jinja2."""

import argparse
import collections
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import templates

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from soak import cases, takes  # noqa: E402

# Prefixes of names of templates with formats that Hearth does not read.
OTHERS = ("Kimi-K3", "MiniMax-M3", "muse-glimmer", "meetkai-functionary-medium-v3.2", "GigaChat3-10B")


def sketch(calls, thought=r"<think>\n{}\n</think>\n\n", text="{}", call="", more="", beside=True):
    """A template that writes answers in the format of a family without a template in the package. A call is c, its arguments are a
    as JSON. beside: text comes before calls."""
    part = lambda words, value: words.replace("{}", "' + " + value + " + '")  # noqa: E731
    return (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        f"{{{{ '{part(thought, 'm.reasoning_content')}' if m.reasoning_content }}}}{{{{ '{part(text, 'm.content')}' if m.content and ({beside} or not m.tool_calls) }}}}"
        f"{{% if m.tool_calls %}}{calls.replace('CALLS', calls_of(call))}{{% endif %}}"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
        f"{{% if add_generation_prompt %}}<|im_start|>assistant\n{{% endif %}}{{# {more} #}}"
    )


def calls_of(call):
    return (
        "{% for t in m.tool_calls %}{% set c = t.function %}{% set a = c.arguments | tojson %}" + call + "{% endfor %}"
    )


OBJECT = '{"name": "{{ c.name }}", "arguments": {{ a }}}'
COMMA = "{{ ', ' if not loop.last }}"
LINE = "{{ '\n' if not loop.last }}"
PYTHON = "{{ c.name }}({% for k, v in c.arguments | items %}{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %})"
SKETCHES = {
    "Nemotron Mini": sketch("CALLS", call=f"<toolcall> {OBJECT} </toolcall>{LINE}", more="<extra_id_1>"),
    "Phi-4-mini": sketch("functools[CALLS]", call=OBJECT + COMMA),
    "EXAONE 4": sketch("CALLS", call=f"<tool_call>{OBJECT}</tool_call>{LINE}"),
    "ERNIE 4.5": sketch("CALLS", text=r"<response>\n{}\n</response>\n", call=f"<tool_call>\n{OBJECT}\n</tool_call>\n"),
    "OLMo 3": sketch("<function_calls>CALLS</function_calls>", call=PYTHON + LINE),
    "Hunyuan": sketch(
        "<tool_calls>\nCALLS</tool_calls>", thought=r"<think>\n{}\n</think>\n", text=r"<answer>\n{}\n</answer>\n",
        call="<tool_call>{{ c.name }}\n```json\n{{ a }}\n```</tool_call>\n"
    ),
    "Llama 4": sketch(
        "CALLS", text="<|python_start|>{}<|python_end|>", call='{"name": "{{ c.name }}", "parameters": {{ a }}}'
    ),
    "Llama 4, Python": sketch("[CALLS]", call=PYTHON + COMMA, more="[func_name1(params_name1=params_value1)]", beside=False),
    "Mistral Small 4": sketch("CALLS", thought="[THINK]{}[/THINK]", call="[TOOL_CALLS]{{ c.name }}[ARGS]{{ a }}"),
    "Command A": sketch(
        "<|START_ACTION|>[\nCALLS\n]<|END_ACTION|>", thought="<|START_THINKING|>{}<|END_THINKING|>",
        call='    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ c.name }}", "parameters": {{ a }}}{{ ",\n" if not loop.last }}'
    ),
    "GLM 4": sketch(
        "CALLS", call="{{ '<|assistant|>' if not loop.first or m.content }}{{ c.name }}\n{{ a }}", more="metadata <|observation|>"
    ),
}  # fmt: skip

# Around thoughts, and what may follow an answer.
MARKS = [("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>"), ("<|channel>", "<channel|>"),
         ("<think:opensource>", "</think:opensource>"),
         ("<|START_THINKING|>", "<|END_THINKING|>"), ("<|inner_prefix|>", "<|inner_suffix|>"),
         ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")]  # fmt: skip
ENDS = r"(<\|call\|>|<\|return\|>|<\|eo[mt]_id\|>|<\|tool_response>|<｜end▁of▁sentence｜>|<｜Assistant｜>|<SPECIAL_12>|<｜hy_eos:opensource｜>|<\|END_OF_TURN_TOKEN\|>|</s>)\s*$"

# Special tokens that mean nothing to a reader.
WRAPPERS = r"<\|(START_RESPONSE|END_RESPONSE|START_TEXT|END_TEXT|content)\|>"

PROPERTIES = {"city": "string", "days": "integer", "warm": "boolean", "at": "array", "where": "object", "share": "number"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "What it is for.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind, "description": "one of them"} for key, kind in PROPERTIES.items()},
                "required": ["city"],
            },
        },
    }
    for name in ("get_weather", "stop")
]
ARGUMENTS = [
    {"city": "Paris", "days": 3},
    {"city": "12", "warm": True},
    {"city": "São \"Paulo\" 日本", "share": -1.5},
    {"city": "Oslo", "at": [1, 2], "where": {"street": "a b", "no": 7}},
    {"city": "a\nb"},
    {"city": "{\"x\": [1"},
]
WRONG = [{"city": "Paris", "days": "x"}, {"days": 3}, {"city": "Paris", "town": "Rome"}]
THOUGHTS = ["", "First this,\n\nthen that: 1 < 2."]
TEXTS = ["", "Let me see."]


def calls(arguments, as_text):
    for i, values in enumerate(arguments):
        given = json.dumps(values, ensure_ascii=False) if as_text else values
        yield {"id": f"abc12340{i}", "type": "function", "function": {"name": "get_weather", "arguments": given}}


def answers():
    """(thought, text, the arguments of each call)"""
    some = [[], *([a] for a in ARGUMENTS), ARGUMENTS[:2]]
    yield from itertools.product(THOUGHTS, TEXTS, some)


def prompt_and_answer(template, source, before, answer):
    """What the template writes of the answer, its end left out, and what before it; None when it cannot."""

    def render(messages, opens):
        return template.render(messages=templates.prepared(messages, template, source), tools=TOOLS, documents=None, bos_token="<s>", eos_token="</s>",
                               add_generation_prompt=opens)  # fmt: skip

    try:
        prompt, whole = render(before, True), render([*before, answer], False)
        plain = render([*before, {"role": "assistant", "content": "A plain answer."}], False)
    except Exception:
        return None
    end = plain[plain.rfind("A plain answer.") + len("A plain answer.") :] if "A plain answer." in plain else ""
    shared = 0
    while shared < min(len(whole), len(prompt)) and whole[shared] == prompt[shared]:
        shared += 1
    # A mark belongs to the prompt or to the answer as a whole; so does what opens a thought that the prompt does not end.
    at = max(whole.rfind("<", 0, shared), whole.rfind("[", 0, shared))
    if shared < len(prompt) and at >= 0 and not re.search(r"[>\]]", whole[at:shared]):
        shared = at
    opened = next((o for o, _ in MARKS if shared < len(prompt) and whole[:shared].rstrip().endswith(o)), "")
    if opened:
        shared = whole.rindex(opened, 0, shared)
    while end and not (whole.endswith(end) and end[0] in "<[\n"):
        end = end[1:]
    before, generated = whole[:shared], whole[shared : len(whole) - len(end)]
    while re.search(ENDS, generated):
        generated = re.sub(ENDS, "", generated)
    generated = re.sub(WRAPPERS, "", generated)
    # Templates may leave out what their own prompts begin an answer with.
    before += next((o for o, c in MARKS if c in generated and o not in generated), "")
    if any(before.rstrip().endswith(o) and c not in generated for o, c in MARKS) or "<｜Assistant｜>" in generated:
        return None  # no answer to such a prompt
    return before, generated


def taken_apart(hearth, directory, source, prompt, answer):
    template, tools, file = directory / "t.jinja", directory / "tools.json", directory / "answer.txt"
    # The prompt, which may have opened a thought, is what a template writes of one message.
    template.write_text("{# " + source.replace("#}", "# }") + " #}{{ messages[0].content }}", encoding="utf-8")
    (directory / "messages.json").write_text(json.dumps([{"role": "user", "content": prompt}]), encoding="utf-8")
    tools.write_text(json.dumps(TOOLS), encoding="utf-8")
    file.write_text(answer, encoding="utf-8")
    done = subprocess.run([hearth, "template", "--template", template, "--messages", directory / "messages.json", "--tools", tools,
                           "--answer", file], capture_output=True, check=True)  # fmt: skip
    return json.loads(done.stdout)


class Grammars:
    """The test program answer_check, with a template and the tools."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.said = collections.Counter()
        self.send("J", json.dumps(TOOLS))

    def send(self, kind, text):
        data = text.encode()
        self.process.stdin.write(b"%s %d\n%s\n" % (kind.encode(), len(data), data))
        self.process.stdin.flush()

    def accepts(self, kind, prompt, answer):
        """"yes", or what was said instead; kind: A or R."""
        self.send("P", prompt)
        self.send(kind, answer)
        said = self.process.stdout.readline().decode().strip()
        self.said[said.split()[0]] += 1
        return said


def constrained(grammars, prompt, answer, text, arguments):
    """What is wrong with the grammars of an answer; None if nothing is. Values are constrained to JSON; some templates write
    Python's, which are only read."""
    values = [v for a in arguments for v in a.values()]
    if any(f"'{v}'" in answer if isinstance(v, str) else json.dumps(v) not in answer for v in values):
        return None
    answer = answer.rstrip()
    free, required = grammars.accepts("A", prompt, answer), grammars.accepts("R", prompt, answer)
    if "no known tool-call format" in free:
        return "no known tool-call format" if arguments else None
    if free != "yes":
        return f"free calls: {free}"
    if required != "yes" and arguments and not text:
        return f"required calls: {required}"
    if required == "yes" and not arguments:
        return "a text in place of required calls"
    return None


def accepted_wrongly(grammars, template, source):
    """Calls that the schemas do not allow, as the template writes them, and which a grammar accepts."""
    for arguments, as_text in itertools.product(WRONG, (False, True)):
        answer = {"role": "assistant", "content": "", "tool_calls": list(calls([arguments], as_text))}
        found = prompt_and_answer(template, source, [{"role": "user", "content": "Well?"}], answer)
        if found and found[1].count("get_weather") == 1 and all(str(v) in found[1] for v in arguments.values()):
            for kind in "AR":
                if grammars.accepts(kind, found[0], found[1].rstrip()) == "yes":
                    yield "", "", [arguments], found[1], f"accepted ({kind})"


def check(name, source, hearth, grammars, directory):
    """(answers written, answers read, examples of differences)"""
    try:
        template = templates.environment().from_string(source)
    except Exception:
        return 0, 0, []
    grammars.send("T", source)
    written, read, different = 0, 0, []
    for i, (thought, text, arguments) in enumerate(answers()):
        if not takes(i + len(name), 2):
            continue
        answer = {"role": "assistant", "content": text}
        if thought:
            answer["reasoning_content"] = thought
        for as_text in (False, True):
            found = prompt_and_answer(template, source, [{"role": "user", "content": "Well?"}],
                                      answer | ({"tool_calls": list(calls(arguments, as_text))} if arguments else {}))  # fmt: skip
            if found and found[1].count("get_weather") >= len(arguments):
                break
        if not found or not (arguments or text or thought):
            continue
        prompt, generated = found
        if "<|channel|>analysis" in source and arguments:  # which writes text before calls as a thought
            thought, text = "\n\n".join(part for part in (thought, text) if part), ""
        values = [v for a in arguments for v in a.values() if isinstance(v, str) and v.isascii() and "\n" not in v and '"' not in v]
        if generated.count("get_weather") < len(arguments) or any(v not in generated for v in values) or text not in generated:
            continue
        with_thought = thought and thought in generated
        written += 1
        parts = taken_apart(hearth, directory, source, prompt, generated)
        got = [json.loads(c["arguments"]) for c in parts["tool_calls"]]
        if name.startswith(OTHERS):
            good = not got and all(v in parts["text"] + parts["thinking"] for v in values)
        else:
            good = got == arguments and parts["text"].strip() == text and (not with_thought or parts["thinking"] == thought)
            wrong = good and constrained(grammars, prompt, generated, text, arguments)
            good, parts = good and not wrong, wrong or parts
        read += good
        if not good:
            different.append((thought, text, arguments, generated, parts))
    wrong = [] if name.startswith(OTHERS) else list(accepted_wrongly(grammars, template, source))
    written, different = written + len(wrong), different + wrong
    return written, read, different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hearth", default="build/release/bin/hearth")
    parser.add_argument("--check", default="build/release/bin/answer_check")
    parser.add_argument("--templates", action="append", metavar="DIR")
    parser.add_argument("--show", type=int, default=3, metavar="K", help="differences to print (%(default)s)")
    options = parser.parse_args()
    directories = options.templates or [templates.fetched_templates(), templates.model_templates()]
    total = good = 0
    grammars = Grammars(options.check)
    with tempfile.TemporaryDirectory() as directory:
        for name, source in [*templates.templates_in(directories), *SKETCHES.items()]:
            written, read, different = check(name, source, options.hearth, grammars, pathlib.Path(directory))
            total, good = total + written, good + read
            if different:
                print(f"{name}: {read} of {written}")
            for thought, text, arguments, generated, parts in different[: options.show]:
                print(f"  {thought!r} {text!r} {arguments}\n    written {generated!r}\n    read    {parts}")
    print(f"{good} of {total} answers are taken apart into what they were written from; {grammars.said}")
    enough = total > cases(500, 1000) and grammars.said["yes"] > cases(600, 1200) and grammars.said["no"] > 300
    return 0 if enough and good == total else 1


if __name__ == "__main__":
    sys.exit(main())
