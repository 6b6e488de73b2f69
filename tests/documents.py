"""Documents hold together: links and named files exist, lengths stay within bounds, and every public function has a comment."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import api_docs  # noqa: E402

DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "python/README.md", ROOT / "bench/README.md"]
PATH = re.compile(r"`((?:apps|bench|cmake|docs|examples|include|python|scripts|src|tests|tools)/[\w./*-]+)`")
WORDS = {"README.md": 900, "docs/architecture.md": 1500}
ALL_WORDS, DECISION_WORDS, PARAGRAPH_WORDS = 15000, 80, 90


def without_code(text):
    return re.sub(r"^(```|~~~).*?^\1$|^    .*?$", "", text, flags=re.S | re.M)


def anchors(path):
    """The anchors of a document's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-") for heading in headings}


def broken_links(path, text):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", without_code(text)):
        other = path.parent / target if target else path
        if "://" in target:
            continue
        if not other.exists():
            yield f"link to {target}, which does not exist"
        elif anchor and other.suffix == ".md" and anchor not in anchors(other):
            yield f"link to {target}#{anchor}, a heading that does not exist"
    for name in sorted(set(PATH.findall(text))):
        # Words in capitals stand for any name, as in `src/ops/SUBJECT.c`.
        pattern = name if (ROOT / name).exists() else re.sub(r"[A-Z]{4,}", "*", name)
        if not any(ROOT.glob(pattern.rstrip("/"))):
            yield f"names {name}, which does not exist"


def too_long(path, text):
    limit = DECISION_WORDS if path.parent.name == "decisions" else WORDS.get(path.relative_to(ROOT).as_posix())
    if limit and len(text.split()) > limit:
        yield f"has {len(text.split())} words, expected at most {limit}"
    if path.name != "CHANGELOG.md":
        for paragraph in re.split(r"\n\s*\n", without_code(text)):
            for part in re.split(r"\n(?=[-*|] |[-*|]|\d+\. )", paragraph):
                if len(part.split()) > PARAGRAPH_WORDS and not part.startswith("|"):
                    yield f"has a paragraph of {len(part.split())} words, expected at most {PARAGRAPH_WORDS}: {part[:60]}"


def untrue_examples(text):
    """Examples of Hearth's own code that its sources do not have."""
    sources = [" ".join(path.read_text().split()) for path in ROOT.glob("src/**/*.c")]
    for example in re.findall(r"^```c\n(.*?)^```$", text, re.S | re.M):
        if not any(" ".join(example.split()) in source for source in sources):
            yield f"has an example that is in no file of src/: {example.splitlines()[0]}"


def main():
    wrong = [f"no comment: {declaration}" for declaration in api_docs.make_pages()[1]]
    for path in DOCUMENTS:
        text = path.read_text()
        wrong += [f"{path.relative_to(ROOT)} {what}" for check in (broken_links, too_long) for what in check(path, text)]
    contributing = ROOT / "docs/contributing.md"
    wrong += [f"docs/contributing.md {what}" for what in untrue_examples(contributing.read_text())]
    words = sum(len(path.read_text().split()) for path in ROOT.glob("docs/**/*.md"))
    if words > ALL_WORDS:
        wrong.append(f"docs/ has {words} words, expected at most {ALL_WORDS}")
    print("\n".join(wrong) or f"{len(DOCUMENTS)} documents; docs/ has {words} words")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
