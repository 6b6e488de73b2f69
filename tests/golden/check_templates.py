#!/usr/bin/env python3
"""Compares what Hearth makes of chat templates with transformers, over many conversations.

    check_templates.py WRITE_CHAT TEMPLATES... [--find] [--rows]

WRITE_CHAT is the program build/release/bin/write_chat; TEMPLATES are .jinja files, .json files of {name: template}, or
directories of these. Exits with 1 when a template that Hearth knows writes a conversation otherwise than transformers;
where one of both refuses a conversation, nothing is compared. --find tries all formats and dialects on the templates that
Hearth does not know and prints rows for src/models/template_known.c of those that one fits; --rows prints them for all."""

import argparse
import json
import pathlib
import random
import subprocess
import sys

from chat_texts import conversations, render

BOS, EOS = "<BOS>", "<EOS>"
SNIPPETS = ["Hi", " 2\n", "", "\n\n", "a\n\nb ", "<think>\nhm\n</think>\n\nso", "x</think>", "<think>", "\n</think>\n\n y",
            "<tool_response>\nr\n</tool_response>", "<tool_response>", "</tool_response>", "None", "{% x %}", "'\\\"", "  é\u2003",
            "<|channel>t\nh<channel|>z", "<channel|>", "[INST]", "<<SYS>>\ns\n<</SYS>>\n\nq", "/no_think", "/think hm",
            "<|im_end|>", "Cutting Knowledge Date: now", "<start_of_turn>user", "{", "system", "<image>", "/system_override go",
            "<unused94>thought\n<unused95>", "<|im_start|>assistant\n<think>\n", "reasoning_content", "tool"]  # fmt: skip
DIALECTS = {"chatml": range(32), "gemma": range(2), "gemma4": range(16), "llama3": range(4), "deepseek": range(8),
            "llama2": range(4), "mistral": range(20)}  # fmt: skip


def many_conversations():
    """Turns in order, with and without a system message, then roles in any order."""
    rng = random.Random(1)
    cases = list(conversations)
    for i in range(240):
        turns = [{"role": "user" if k % 2 == 0 else "assistant", "content": rng.choice(SNIPPETS)} for k in range(rng.randint(1, 6))]
        if i % 3 == 0:
            turns.insert(0, {"role": "system", "content": rng.choice(SNIPPETS)})
        if i % 4 == 3:
            turns = [{"role": rng.choice(["system", "user", "assistant"]), "content": t["content"]} for t in turns]
        cases.append(turns)
    return cases


CASES = many_conversations()


class Hearth:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, template, cases, **more):
        pairs = [[[m["role"], m["content"]] for m in case] for case in cases]
        request = {"template": template, "bos": BOS, "eos": EOS, "conversations": pairs, **more}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def expected(template):
    texts = []
    for case in CASES:
        try:
            texts.append(render(template, case, BOS, EOS))
        except Exception:  # what another caller would have to give, or a fault of the template's own
            texts.append(None)
    return texts


def differences(found, wanted):
    """The cases that differ, and how many are alike."""
    pairs = [(i, f, w) for i, (f, w) in enumerate(zip(found, wanted)) if isinstance(f, str) and w is not None]
    return [i for i, f, w in pairs if f != w], sum(f == w for _, f, w in pairs)


def find(hearth, template, wanted):
    """The format and dialect that fit, of several the one that writes most conversations."""
    best, most = None, 30
    few = [i for i, w in enumerate(wanted) if w is not None][:6]
    for name, dialects in DIALECTS.items():
        for dialect in dialects:
            quick = hearth.ask(template, [CASES[i] for i in few], format=name, dialect=dialect)["texts"]
            wrong, good = differences(quick, [wanted[i] for i in few])
            if wrong or not good:
                continue
            wrong, good = differences(hearth.ask(template, CASES, format=name, dialect=dialect)["texts"], wanted)
            if not wrong and good > most:
                best, most = (name, dialect), good
    return best


def templates(paths):
    for path in map(pathlib.Path, paths):
        files = sorted(path.rglob("*.jinja")) if path.is_dir() else [path]
        for file in files:
            text = file.read_text(encoding="utf-8")
            yield from json.loads(text).items() if file.suffix == ".json" else [(file.stem, text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("templates", nargs="+")
    parser.add_argument("--find", action="store_true")
    parser.add_argument("--rows", action="store_true")
    args = parser.parse_args()
    hearth, failures, rows = Hearth(args.program), 0, {}
    for name, template in templates(args.templates):
        answer, wanted = hearth.ask(template, CASES), expected(template)
        if answer["format"]:
            wrong, good = differences(answer["texts"], wanted)
            failures += bool(wrong) or not good
            print(f"{name}: {answer['format']}, {good} conversations alike, {len(wrong)} differ" + "".join(
                f"\n  {CASES[i]}\n  expected {wanted[i]!r}\n  found    {answer['texts'][i]!r}" for i in wrong[:1]))  # fmt: skip
        else:
            print(f"{name}: refused")
        if args.rows or (args.find and not answer["format"]):
            fit = find(hearth, template, wanted)
            if fit:
                rows.setdefault(answer["fingerprint"], (fit, []))[1].append(name)
    for fingerprint, ((format_name, dialect), names) in rows.items():
        print(f"    {{{fingerprint}, \"{format_name}\", {dialect}}}, /* {'; '.join(names)} */")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
