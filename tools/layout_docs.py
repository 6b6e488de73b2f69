#!/usr/bin/env python3
"""Writes the tables of every source file at the end of docs/layout.md, from the first sentence of each file's first comment.

    python3 tools/layout_docs.py            writes the tables
    python3 tools/layout_docs.py --check    says whether they are what the files say, which files have no sentence, which paths in the
                                            documents do not exist, and which folders have two rows; ends with 1 when there are any

A source file without a comment of its own shares the row of the header of the same name."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/layout.md"
FOLDERS = ["apps", "src", "include", "python/core"]
HEADING = "## Every file\n"
INTRODUCTION = (
    "From the first comment of each file, by `tools/layout_docs.py`. A source file that has none shares the row of its header.\n"
)
C_COMMENT = re.compile(r"(?:#define \w+(?: \w+)?\n)*/\*(.*?)\*/", re.S)
CMAKE_COMMENT = re.compile(r"((?:#.*\n)+)")
SENTENCE = re.compile(r"(.*?[\w)`\]>]\.)(?=\s|$)", re.S)
UNCLEAR = re.compile(r"(?:What|Who|Where|How|Which|Whether|See|For|The one|Made by)\b")
DOCUMENTS = ["README.md", "python/README.md", "bench/README.md", "docs/*.md"]
PATH = re.compile(r"`((?:apps|bench|cmake|docs|examples|include|python|scripts|src|tests|tools)/[\w./*-]+)`")


def first_sentence(path):
    """The first sentence of a file's first comment on one line; None without a comment before the first code."""
    text = path.read_text()
    comment = CMAKE_COMMENT.match(text) if path.name == "CMakeLists.txt" else C_COMMENT.match(text)
    if not comment:
        return None
    lines = [re.sub(r"^\s*[*#] ?", "", line).strip() for line in comment[1].split("\n")]
    whole = " ".join(lines).strip()
    sentence = SENTENCE.match(whole)
    return " ".join((sentence[1] if sentence else whole).split())


def rows():
    """({folder: [(names, sentence)]}, complaints)"""
    tables, wrong = {}, []
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh", ".txt")):
        name, sentence = path.relative_to(ROOT), first_sentence(path)
        header = path.with_suffix(".h")
        table = tables.setdefault(str(name.parent), {})
        if sentence is None and path.suffix in (".c", ".cu") and header.exists():
            table.setdefault(header.name, [[], ""])[0].append(path.name)
            continue
        if not sentence or not sentence.endswith("."):
            wrong.append(f"{name}: its first comment is no sentence")
        elif UNCLEAR.match(sentence):
            wrong.append(f"{name}: its first comment does not begin with what the file holds: {sentence}")
        row = table.setdefault(path.name, [[], ""])
        row[0].append(path.name)
        row[1] = sentence or ""
    return tables, wrong


def cell(sentence):
    """A sentence in Markdown: names with underscores as code, and nothing else that Markdown takes for its own."""
    parts = re.split(r"(`[^`]*`)", sentence)
    for i in range(0, len(parts), 2):
        marked = re.split(r"((?<![\w`])[\w./]*\w_[\w*./]*\w)", parts[i])
        marked[1::2] = [f"`{name}`" for name in marked[1::2]]
        marked[::2] = [re.sub(r"([*<_])", r"\\\1", text) for text in marked[::2]]
        parts[i] = "".join(marked)
    return "".join(parts).replace("|", "\\|")


def tables_of(tables):
    out = [HEADING, INTRODUCTION]
    for folder, table in tables.items():
        out += [f"### {folder}\n", "| file | contents |", "|---|---|"]
        for _, (names, sentence) in sorted(table.items()):
            listed = ", ".join(f"`{name}`" for name in sorted(names, key=lambda name: (not name.endswith(".h"), name)))
            out.append(f"| {listed} | {cell(sentence)} |")
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def missing_paths():
    """Words in capitals, as in `src/ops/SUBJECT.c`, stand for any name."""
    for pattern in DOCUMENTS:
        for document in sorted(ROOT.glob(pattern)):
            for path in sorted(set(PATH.findall(document.read_text()))):
                names = path if (ROOT / path).exists() else re.sub(r"[A-Z]{4,}", "*", path)
                if not any(ROOT.glob(names.rstrip("/"))):
                    yield f"{document.relative_to(ROOT)}: there is no {path}"


def folders_listed_twice(page):
    """Folders with two rows in the tables that are written by hand."""
    listed = [folder for row in re.findall(r"^\|.*", page[: page.index(HEADING)], re.M) for folder in re.findall(r"`([\w/]+/)`", row[: row.rindex("|", 0, -1)])]
    return [f"docs/layout.md: {folder} has two rows" for folder in sorted({f for f in listed if listed.count(f) > 1})]


def main():
    tables, wrong = rows()
    page = PAGE.read_text()
    wanted = page[: page.index(HEADING)] + tables_of(tables)
    if "--check" in sys.argv[1:]:
        wrong += missing_paths()
        wrong += folders_listed_twice(page)
        if page != wanted:
            wrong.append("docs/layout.md is not what the files say: run tools/layout_docs.py and commit it.")
    else:
        PAGE.write_text(wanted)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
