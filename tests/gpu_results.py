"""Whether the tables of bench/gpu.sh are whole: each names a commit of this repository and a card, and has all rows; what failed
is named, and the sanitizers found nothing.

    python3 tests/gpu_results.py [TABLE...]    (bench/results/gpu-*.md)
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS = ["test programs on the GPU", "memcheck", "racecheck", "initcheck", "compute capability", "memory", "read bandwidth", "f16 peak", "f32 peak",
        r".*: prefill of \d+", r".*: decode", r".*: decode, 64 together", r".*: prefill of \d+ after 4,096", r".*: decode after 4,096",
        r".*: decode, \d+ together after 4,096", r".*: a process and its first token", r".*: divergence from the CPU in reference precision",
        r"torch, products of a bf16 prefill of \d+"]  # fmt: skip


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)


def is_commit(name):
    """None: not to be told, as these files are no whole repository."""
    whole = git("rev-parse", "--is-shallow-repository")
    if whole.returncode or whole.stdout.strip() != "false":
        return None
    return git("cat-file", "-e", f"{name}^{{commit}}").returncode == 0


def mistakes(text):
    head = re.search(r"^(\S.*\S) \(driver [0-9.]+\), commit ([0-9a-f]{40}): `bench/gpu.sh`\.$", text, re.M)
    if not head:
        yield "no card, driver and commit are named"
    elif is_commit(head[2]) is False:
        yield f"{head[2]} is no commit of this repository"
    rows = dict(re.findall(r"^\| (.+?) \| (.*?) \|$", text, re.M))
    for wanted in ROWS:
        found = [value for name, value in rows.items() if re.fullmatch(wanted, name)]
        if not found:
            yield f"there is no row: {wanted}"
        elif not all(found):
            yield f"a row is empty: {wanted}"
    for name, value in rows.items():
        if name.endswith(": failed"):
            yield f"a row says {name}"
    if not re.fullmatch(r"[1-9]\d* passed, (0 failed|[1-9]\d* failed: test_.*)", rows.get("test programs on the GPU", "")):
        yield f"test programs: {rows.get('test programs on the GPU')}"
    for tool in ("memcheck", "racecheck", "initcheck"):
        if not re.match(r"[1-9]\d* programs, 0 errors", rows.get(tool, "")):
            yield f"{tool}: {rows.get(tool)}"


def main():
    tables = [pathlib.Path(path) for path in sys.argv[1:]] or sorted((ROOT / "bench/results").glob("gpu-*.md"))
    wrong = [f"{path.name}: {what}" for path in tables for what in mistakes(path.read_text())]
    if not tables:
        wrong.append("there is no table")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
