"""Phrases that help texts, errors, documents and comments avoid. A document may have none of them. String literals and comments
of apps/ and src/ and comments of the public headers may have as many as tests/english.txt allows, and the allowance only shrinks.

    python3 tests/english.py            ends with 1 when there are more
    python3 tests/english.py --list     shows each of them
    python3 tests/english.py --lower    writes lower allowances"""

import collections
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWANCE = ROOT / "tests/english.txt"
DOCUMENTS = ["*.md", "docs/**/*.md", "python/*.md", "bench/*.md"]
SOURCES = ["apps/**/*.[ch]", "src/**/*.[ch]"]
COMMENTED = [*SOURCES, "src/**/*.cu", "src/**/*.cuh"]
HEADERS = ["include/hearth/*.h"]
ALLOWED = {"strings": "strings in apps/ and src/", "comments": "comments in apps/ and src/", "headers": "comments in include/hearth/"}
PATTERNS = {
    "anew": r"\banew\b",
    "behind (after)": r"\bbehind\b(?! a (?:reverse )?proxy)",
    "beside": r"\bbeside\b",
    "company (batch)": r"\bin company\b",
    "figures (measurements)": r"\bfigures\b",
    "forgets (discards)": r"\bforg[eo]ts?\b|\bforgotten\b",
    "held to (constrained by)": r"\bheld to\b",
    "is none of": r"\bis none of\b",
    "is not taken (not allowed)": r"\b(?:is|are) not taken\b",
    "is there, is not there": r"\b(?:is|are|was|were|be) (?:not |already |no longer |still )?there\b",
    "is to be (must be)": r"\b(?:is|are) (?:not )?to be\b",
    "members (fields)": r"\bmembers?\b",
    "nobody, somebody": r"\b(?:nobody|somebody)\b",
    "notation (tool-call format)": r"\bnotations?\b",
    "of its own": r"\bof (?:its|their|one's|our) own\b",
    "places (positions)": r"\bplaces\b",
    "so many": r"\bso many\b",
    "so that ... so that": r"\bso that\b[^.;]*\bso that\b",
    "stands": r"\bstands\b(?! for)",
    "starts with Of, Given or What": r"(?:\A|(?<=[.:!] )|(?<=\n\n))(?:Of|Given|What)\b(?![^.!\n]*\?)",
    "that one, the one that": r"\bthe ones? (?:that|who|which)\b",
    "thoughts (reasoning)": r"\bthoughts?\b",
    "told (logged, reported)": r"\b(?:is|are|was|were|be|been) told\b|\btold of\b|\btells?\b",
    "what is ... is": r"\b[Ww]hat (?:is|are|was|were)\b[^.:;,?]*\b(?:is|are|has|have|stays?|comes?|goes)\b",
    "who does": r"\b(?:[Ww]hoever|who (?:is|are|has|does|do|wants|makes|holds|computes|reads|writes))\b",
}
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def literals(text):
    """String literals of C, adjacent ones joined, that are texts: with a space in them."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/|^\s*#\s*include[^\n]*|'(?:\\.|[^'\\\n])'", " ", text, flags=re.S | re.M) if "/*" in text else text
    for run in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:(?:\s|\\\n|PRI\w+)*"(?:[^"\\\n]|\\.)*")*', text):
        joined = "".join(STRING.findall(run[0])).replace("\\n", " ").replace('\\"', '"')
        if " " in joined:
            yield joined


def comments(text):
    """Comments of C, without the code between them."""
    for comment in re.findall(r"/\*(.*?)\*/", text, re.S):
        yield re.sub(r"^ *\*(?: |$)", "", comment, flags=re.M).strip()


def prose(text):
    """A document without code."""
    text = re.sub(r"^```.*?^```|^    .*?$", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", "", text, flags=re.S)


def found():
    """(kind, pattern, file, phrase), one by one; the kind is "documents" or one of ALLOWED."""
    kinds = (("documents", DOCUMENTS, lambda text: [prose(text)]), ("strings", SOURCES, literals), ("comments", COMMENTED, comments),
             ("headers", HEADERS, comments))  # fmt: skip
    for kind, globs, texts in kinds:
        for path in sorted({path for pattern in globs for path in ROOT.glob(pattern)}):
            for text in texts(path.read_text()):
                for name, pattern in PATTERNS.items():
                    for match in re.finditer(pattern, text):
                        around = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
                        yield kind, name, path.relative_to(ROOT), around


def main():
    phrases = list(found())
    count = collections.Counter((kind, name) for kind, name, _, _ in phrases if kind in ALLOWED)
    lines = re.findall(r"^(\w+) (\d+) (.*)$", ALLOWANCE.read_text() if ALLOWANCE.exists() else "", re.M)
    allowed = {(kind, name): int(n) for kind, n, name in lines}
    if "--list" in sys.argv[1:]:
        for kind, name, path, around in phrases:
            print(f"{path}: {name}: {around}")
    if "--lower" in sys.argv[1:]:
        keys = [(kind, name) for kind in ALLOWED for name in PATTERNS]
        lower = {key: min(count[key], allowed.get(key, count[key])) for key in keys}
        ALLOWANCE.write_text("".join(f"{kind} {n} {name}\n" for (kind, name), n in lower.items()))
        allowed = lower
    wrong = [f"{path}: {name}: {around}" for kind, name, path, around in phrases if kind == "documents"]
    for (kind, name), n in count.items():
        if n > allowed.get((kind, name), 0):
            wrong.append(f"{n} {ALLOWED[kind]} have the phrase: {name}; {allowed.get((kind, name), 0)} are allowed (--list shows them)")
    print("\n".join(wrong) or f"{sum(count.values())} phrases in strings and comments, {sum(allowed.values())} allowed; none in documents")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
