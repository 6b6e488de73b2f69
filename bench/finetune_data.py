"""Writes a fine-tuning task of real text: what one wants of a command line, and the command.

    python3 bench/finetune_data.py DIRECTORY [--wheel awscli.whl]

The pairs are those of the examples that the package `awscli` (Apache-2.0) documents its operations with: the text before the
first `::` of an example, and the indented block behind it that begins with aws. They are split by operation, so that no held-out
one is seen in training: train.jsonl, valid.jsonl and test.jsonl, as prompt and completion.
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

VALID, TEST = 5, 5  # percent of the operations


def command_of(text):
    """The first indented block that begins with aws, joined where a backslash continues a line; None: there is none."""
    for block in re.findall(r"(?:^[ \t]+\S.*\n?)+", text, re.MULTILINE):
        lines = [line.strip() for line in block.splitlines()]
        if lines[0].startswith("aws "):
            words = " ".join(line.rstrip("\\").strip() for line in lines if not line.startswith("#"))
            return re.sub(r"\s+", " ", words)
    return None


def pairs_of(text):
    """Descriptions and commands of one file: an example begins with a bold title or a heading."""
    for example in re.split(r"\n(?=\*\*[^*\n]+\*\*\s*\n)|\n(?=Example \d)", text):
        head, mark, rest = example.partition("::")
        command = command_of(rest) if mark else None
        words = re.sub(r"[*`=~-]{2,}|`", " ", head)
        words = re.sub(r"\s+", " ", words).strip()
        if command and len(words) > 20:
            yield words.rstrip(".: ") + ".", command


def group_of(operation):
    return int(hashlib.sha256(operation.encode()).hexdigest(), 16) % 100


def read(wheel):
    rows, seen = {"train": [], "valid": [], "test": []}, set()
    with zipfile.ZipFile(wheel) as package:
        names = sorted(n for n in package.namelist() if re.fullmatch(r"awscli/examples/.*\.rst", n))
        for name in names:
            for prompt, completion in pairs_of(package.read(name).decode()):
                if (prompt, completion) in seen:
                    continue
                seen.add((prompt, completion))
                group = group_of(name.removeprefix("awscli/examples/").removesuffix(".rst"))
                part = "valid" if group < VALID else "test" if group < VALID + TEST else "train"
                rows[part].append({"prompt": prompt, "completion": completion})
    for part in rows.values():
        part.sort(key=lambda row: hashlib.sha256(json.dumps(row).encode()).hexdigest())
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--wheel", help="of awscli; it is downloaded otherwise")
    o = parser.parse_args()
    o.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheel = o.wheel
        if not wheel:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "awscli"], check=True)
            wheel = next(pathlib.Path(folder).glob("awscli*.whl"))
        for name, rows in read(wheel).items():
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (o.directory / f"{name}.jsonl").write_text(text)
            print(f"{name}.jsonl: {len(rows)} samples")


if __name__ == "__main__":
    main()
