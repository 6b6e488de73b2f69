#!/usr/bin/env python3
"""Builds the documents as HTML with MkDocs: the pages of docs/, the command's options and the C API. The target `docs` runs it.

    python3 tools/docs.py HEARTH OUT      HEARTH is the command; OUT/html/index.html is the result

MkDocs is taken from PATH, else installed from PyPI in a virtual environment of ~/.cache/hearth."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import api_docs

ROOT = Path(__file__).resolve().parent.parent
MKDOCS = "mkdocs==1.6.1"
GUIDES = ["models", "server", "python", "finetune", "quantize", "gpu", "arrays", "performance"]
PROJECT = ["architecture", "contributing", "releasing"]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def mkdocs():
    """The command of MkDocs."""
    if shutil.which("mkdocs"):
        return ["mkdocs"]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    python = Path(cache) / "hearth/environments/docs/bin/python"
    if subprocess.run([python, "-c", "import mkdocs"], capture_output=True).returncode if python.exists() else True:
        print(f"Installing {MKDOCS} in {python.parent.parent}", flush=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", MKDOCS]
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", python.parent.parent]).returncode
        if made or subprocess.run(install).returncode:
            sys.exit(f"MkDocs is not on PATH and could not be installed. Run: pip install {MKDOCS}")
    return [str(python), "-m", "mkdocs"]


def relinked(text, source, page):
    """Links of a document, for the page that it becomes: headers link to the API, other files of the sources to nothing."""

    def link(match):
        image, label, target, anchor = match[1], match[2], match[3], match[4] or ""
        if "://" in target:
            return match[0]
        path = Path(os.path.normpath(source.parent / target)).relative_to(ROOT)
        if path == Path("README.md"):
            to = Path("index.md")
        elif path.parts[0] == "docs" and (ROOT / path).is_file():
            to = path.relative_to("docs")
        elif path.parts[:2] == ("include", "hearth"):
            to = Path("api") / (path.stem + ".md" if path.suffix else "headers.md")
        else:
            return label if label == path.name or path.as_posix() in label else f"{label} (`{path.as_posix()}`)"
        return f"{image}[{label}]({os.path.relpath(to, page.parent)}{anchor})"

    return LINK.sub(link, text)


def options_page(hearth):
    """cli.md: what --help prints, for every command."""

    def help_of(*words):
        return subprocess.run([hearth, *words], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"}).stdout

    overview = help_of("--help")
    out = ["# Commands and options", f"```text\n{overview}```"]
    for name in re.findall(r"^  ([a-z]+) ", overview, re.M):
        out.append(f"## hearth {name}\n\n```text\n{help_of(name, '--help')}```")
    return "\n\n".join(out) + "\n"


def decision_title(path):
    return path.read_text().split("\n", 1)[0].removeprefix("# ")


def write_pages(hearth, pages):
    shutil.rmtree(pages, ignore_errors=True)
    documents = {ROOT / "README.md": Path("index.md"), ROOT / "CHANGELOG.md": Path("changelog.md")}
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file():
            documents[path] = path.relative_to(ROOT / "docs")
    for source, page in documents.items():
        (pages / page).parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            (pages / page).write_text(relinked(source.read_text(), source, page))
        else:
            shutil.copyfile(source, pages / page)
    decisions = sorted((ROOT / "docs/decisions").glob("*.md"))
    (pages / "decisions/index.md").write_text(
        "# Decisions\n\n" + "".join(f"- [{decision_title(path)}]({path.name})\n" for path in decisions)
    )
    (pages / "cli.md").write_text(options_page(hearth))
    subprocess.run([sys.executable, ROOT / "tools/api_docs.py", pages / "api"], check=True)
    return decisions


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tools/docs.py HEARTH OUT")
    out = Path(sys.argv[2]).resolve()
    decisions = write_pages(sys.argv[1], out / "pages")
    configuration = {
        "site_name": "Hearth",
        "docs_dir": str(out / "pages"),
        "site_dir": str(out / "html"),
        "theme": "readthedocs",
        "use_directory_urls": False,
        "markdown_extensions": ["tables", "fenced_code", "toc"],
        "validation": {"links": {"anchors": "warn"}},
        "nav": [
            {"Hearth": "index.md"},
            {"Guides": [*(f"{name}.md" for name in GUIDES), "cli.md"]},
            {"C API": ["api/headers.md", *(f"api/{path.stem}.md" for path in sorted(api_docs.HEADERS.glob("*.h")))]},
            {"Project": [*(f"{name}.md" for name in PROJECT), "changelog.md"]},
            {"Decisions": ["decisions/index.md", *(f"decisions/{path.name}" for path in decisions)]},
        ],
    }
    (out / "mkdocs.yml").write_text(json.dumps(configuration, indent=1))  # JSON is YAML
    command = [*mkdocs(), "build", "--quiet", "--strict", "--clean", "--config-file", str(out / "mkdocs.yml")]
    if subprocess.run(command).returncode:
        sys.exit(1)
    print(f"Built {out / 'html/index.html'}")


if __name__ == "__main__":
    main()
