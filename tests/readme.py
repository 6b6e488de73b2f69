"""The Python program of the README runs on a tiny model, and its last line prints what the comment says.

Needs the binding, installed or through HEARTH_LIBRARY and PYTHONPATH=python, and nothing else."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cli"))

import tiny_model  # noqa: E402


def program():
    return re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[1]


def main():
    source = program()
    expected = re.search(r"^print\(.*\)  # (.*)$", source, re.M)[1]
    with tempfile.TemporaryDirectory() as work:
        tiny_model.write(Path(work) / "model.gguf")
        path = os.pathsep.join(str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
        environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", source], cwd=work, env=environment, capture_output=True, text=True,
                              errors="replace")  # fmt: skip
    if done.returncode or done.stdout.splitlines()[-1:] != [expected]:
        sys.exit(f"the Python program of the README ended with {done.returncode}, expected {expected} as its last line:\n"
                 f"{done.stdout}{done.stderr}")  # fmt: skip
    print("The README's program works on Python", sys.version.split()[0])


main()
