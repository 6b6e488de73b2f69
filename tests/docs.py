"""The programs in README.md, docs/arrays.md, docs/python.md and docs/finetune.md run as the pages say.

    docs.py LIBRARY_DIRECTORY [PYTHON]      PYTHON: one that has what the binding needs"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cli"))

import tiny_model  # noqa: E402


def listings(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def build(source, program, library):
    flags = ["-std=c17", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{ROOT}/include"]
    subprocess.run(["cc", *flags, "-x", "c", "-", f"-L{library}", "-lhearth", "-o", program], input=source, text=True, check=True)


def readme(library):
    """The C program of the README answers, with a tiny model."""
    with tempfile.TemporaryDirectory() as work:
        tiny_model.write(Path(work) / "model.gguf")
        (source,) = listings("README.md", "c")
        build(source, Path(work) / "hello", library)
        done = subprocess.run(["./hello"], cwd=work, capture_output=True, env={**os.environ, "LD_LIBRARY_PATH": str(library)})
        if done.returncode or not done.stdout:
            sys.exit(f"the C program of the README ended with {done.returncode}: {done.stderr}")


def run(name, command, environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode or len(done.stdout.splitlines()) != 6:
        sys.exit(f"{name} of docs/arrays.md ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def binding(python, environment):
    """The programs of docs/python.md, with a tiny model."""
    with tempfile.TemporaryDirectory() as work:
        tiny_model.write(Path(work) / "model.gguf")
        for program in listings("docs/python.md", "python"):
            done = subprocess.run([python, "-c", program], cwd=work, capture_output=True, text=True, errors="replace",
                                  env={**os.environ, "PYTHONUTF8": "1", **environment})  # fmt: skip
            if done.returncode or not done.stdout:
                sys.exit(f"a program of docs/python.md ended with {done.returncode}:\n{program}\n{done.stdout}{done.stderr}")


def finetune(python, environment):
    """The three programs of docs/finetune.md in one folder, with a tiny model: they write data, train, and train by a loop."""
    ends = [r"", r"iter 60/60  loss .*\n\[\(0, .*\n", r"step 59  loss .*\n"]
    with tempfile.TemporaryDirectory() as work:
        tiny_model.write(Path(work) / "model.gguf")
        for program, end in zip(listings("docs/finetune.md", "python"), ends, strict=True):
            done = subprocess.run([python, "-c", program], cwd=work, capture_output=True, text=True, errors="replace",
                                  env={**os.environ, "PYTHONUTF8": "1", **environment})  # fmt: skip
            if done.returncode or not re.search(end, done.stdout):
                sys.exit(f"a program of docs/finetune.md ended with {done.returncode}:\n{program}\n{done.stdout}{done.stderr}")
        names = {path.name for path in Path(work).iterdir()}
        if not names >= {"train.jsonl", "valid.jsonl", "orders-python", "orders-python.training", "orders-loop"}:
            sys.exit(f"the programs of docs/finetune.md wrote only {sorted(names)}")


def main():
    library, interpreter = Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    (c,), (python, *others) = listings("docs/arrays.md", "c"), listings("docs/arrays.md", "python")
    readme(library)
    with tempfile.TemporaryDirectory() as work:
        program = Path(work) / "fit"
        build(c, program, library)
        in_c = run("The C program", [program], {"LD_LIBRARY_PATH": str(library)})
        if interpreter:
            environment = {"HEARTH_LIBRARY": str(library / "libhearth.so"), "PYTHONPATH": str(ROOT / "python")}
            in_python = run("The Python program", [interpreter, "-c", python], environment)
            if in_c.splitlines()[0] != in_python.splitlines()[0]:
                sys.exit(f"the programs of docs/arrays.md begin differently:\n{in_c}{in_python}")
            for other in others:
                print(run("A Python program", [interpreter, "-c", other], environment), end="")
            binding(interpreter, environment)
            finetune(interpreter, environment)
    print(in_c, end="")


main()
