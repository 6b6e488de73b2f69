#!/usr/bin/env python3
"""Writes the API reference: a Markdown page per public header, and an index. The target `docs` builds it into HTML.

    python3 tools/api_docs.py DIRECTORY

A comment above a declaration describes it and the declarations that follow without an empty line or another comment. A
comment at the end of a line describes that line. A comment followed by another comment describes the whole paragraph.
`/* ---- name ---- */` begins a section, and the first comment of a header introduces the page."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include/hearth"
SECTION = re.compile(r"/\* -+ (.*?) -+ \*/$")
NAME = re.compile(r"\b(?:ht_|HT_)\w+")
SKIPPED = re.compile(r'\s*(#|extern "C" \{|\}\s*$)')
FIRST_SENTENCE = re.compile(r"(.*?\w\.)(?:\s|$)", re.S)


class Block:
    """Declarations that share a comment. `kind` is "section", "text" or "code"; `names` is what is declared."""

    def __init__(self, kind, comment="", code=None):
        self.kind, self.comment, self.code, self.names = kind, comment, code or [], []


# ---- reading a header ----


def plain(comment):
    """The text of a comment without its marks, line by line."""
    lines = comment.strip()[2:-2].strip().split("\n")
    return "\n".join(re.sub(r"^ \* ?|^ \*$", "", line) for line in lines).strip()


def pieces(text):
    """(kind, text) of a header, in order: "comment", "code" (one declaration with what is behind it) and "gap"."""
    lines = text.split("\n")
    while lines:
        line = lines.pop(0)
        if not line.strip():
            yield "gap", ""
        elif line.startswith("/*"):
            while not line.endswith("*/"):
                line += "\n" + lines.pop(0)
            yield "comment", line
        elif line.startswith("#define HT_") and "__attribute__" in line or SKIPPED.match(line):
            continue
        else:
            while not is_whole(line):
                line += "\n" + lines.pop(0)
            yield "code", line


def is_whole(declaration):
    """Whether a declaration ends here: no comment or brace is open, and a semicolon was last."""
    bare = re.sub(r"/\*.*?\*/", "", declaration, flags=re.S).strip()
    return "/*" not in bare and bare.count("{") == bare.count("}") and bare.endswith(";")


def declared(code):
    """The names that a declaration introduces: of a function, a type, or the constants of an enumeration."""
    bare = re.sub(r"/\*.*?\*/|\n", " ", code, flags=re.S)
    if "enum" in bare and "{" in bare:
        constants = re.findall(r"\bHT_\w+", bare[bare.index("{") : bare.rindex("}")])
        return re.findall(r"\}\s*(ht_\w+)", bare) + constants
    function = re.search(r"\b(ht_\w+)\(", re.sub(r"\{.*\}", "", bare))
    return [function[1]] if function else NAME.findall(bare.replace("HT_API", ""))[-1:]


def read_header(path):
    """(introduction, blocks) of a header."""
    introduction, blocks, waiting, block = None, [], [], None
    for kind, text in pieces(path.read_text()):
        if kind == "gap":
            blocks += [Block("text", c) for c in waiting if introduction is not None]
            waiting, block = [], None
        elif kind == "comment" and introduction is None:
            introduction = plain(text)
        elif kind == "comment" and SECTION.match(text):
            blocks.append(Block("section", SECTION.match(text)[1]))
            waiting, block = [], None
        elif kind == "comment":
            waiting, block = [*waiting, plain(text)], None
        else:
            if block is None:
                blocks += [Block("text", c) for c in waiting[:-1]]
                block = Block("code", waiting[-1] if waiting else "")
                blocks.append(block)
                waiting = []
            block.code.append(re.sub(r"\n {7}(?= )", "\n", text.replace("HT_API ", "")) if "HT_API" in text else text)
            block.names += declared(text)
    return introduction, blocks


# ---- writing a page ----


def linked(text, places, here):
    """Text of a comment as Markdown, with links to what it names."""

    def link(match):
        name, page = match[0], places.get(match[0])
        return f"`{name}`" if page is None else f"[`{name}`]({'' if page == here else page + '.md'}#{name.lower()})"

    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        parts[i] = NAME.sub(link, re.sub(r"([\\*<|_])(?!\w)|(?<!\w)([*_])|([<|])", r"\\\1\2\3", parts[i]))
    return "".join(parts)


def prose(text, places, here):
    """Paragraphs; indented lines are a table and stay as they are."""
    out = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.split("\n")
        if all(line.startswith("  ") for line in lines):
            out.append("```text\n" + "\n".join(line[2:] for line in lines) + "\n```")
        else:
            out.append(linked(paragraph, places, here))
    return "\n\n".join(out)


def page_of(name, introduction, blocks, places):
    out = [f"# {name}.h", f"`#include <hearth/{name}.h>`", prose(introduction, places, name)]
    for block in blocks:
        if block.kind == "section":
            out.append(f"## {block.comment[0].upper()}{block.comment[1:]}")
        elif block.kind == "text":
            out.append(prose(block.comment, places, name))
        else:
            anchors = "".join(f'<a id="{n.lower()}"></a>' for n in block.names)
            out.append(f"{anchors}\n\n```c\n" + "\n".join(block.code) + "\n```")
            if block.comment:
                out.append(prose(block.comment, places, name))
    return "\n\n".join(out) + "\n"


def first_sentence(introduction):
    first = FIRST_SENTENCE.match(introduction or "")
    return " ".join(first[1].split()) if first else ""


def index_of(headers, places):
    rows = [
        f"| [{name}.h]({name}.md) | {linked(first_sentence(introduction), {}, '')} |"
        for name, (introduction, blocks) in headers.items()
    ]
    names = [f"[`{name}`]({page}.md#{name.lower()})" for name, page in sorted(places.items()) if name.startswith("ht_")]
    return "\n".join(
        [
            "# C API",
            "",
            "Generated from `include/hearth/`. [Arrays](../arrays.md) and [fine-tuning](../finetune.md) have complete programs.",
            "",
            "| header | contents |",
            "|---|---|",
            *rows,
            "",
            "## All functions and types",
            "",
            " ·\n".join(names),
            "",
        ]
    )


def make_pages():
    """({file name: text}, names of functions without a comment)"""
    headers = {path.stem: read_header(path) for path in sorted(HEADERS.glob("*.h"))}
    places = {n: name for name, (_, blocks) in headers.items() for block in blocks for n in block.names}
    pages = {f"{name}.md": page_of(name, *parts, places) for name, parts in headers.items()}
    pages["headers.md"] = index_of(headers, places)
    return pages, [
        f"{name}.h: {' '.join(code.split())}"
        for name, (introduction, blocks) in headers.items()
        for block in blocks
        if block.kind == "code" and not block.comment
        for code in block.code
        if "(" in re.sub(r"/\*.*?\*/", "", code, flags=re.S) and "/*" not in code
    ] + [f"{name}.h: nothing introduces it" for name, (introduction, _) in headers.items() if not introduction]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tools/api_docs.py DIRECTORY")
    pages, silent = make_pages()
    if silent:
        sys.exit("\n".join(f"no comment: {declaration}" for declaration in silent))
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    main()
