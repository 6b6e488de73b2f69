"""The programs in docs/arrays.md do what the page says: built and run as they stand there.

    docs.py LIBRARY_DIRECTORY [PYTHON]      PYTHON: one that has what the binding needs"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def listings(language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs/arrays.md").read_text(), re.M | re.S)


def run(name, command, environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode or len(done.stdout.splitlines()) != 6:
        sys.exit(f"{name} of docs/arrays.md ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    library = Path(sys.argv[1]).resolve()
    (c,), (python, *others) = listings("c"), listings("python")
    with tempfile.TemporaryDirectory() as work:
        source, program = Path(work) / "fit.c", Path(work) / "fit"
        source.write_text(c)
        flags = ["-std=c17", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{ROOT}/include"]
        subprocess.run(["cc", *flags, source, f"-L{library}", "-lhearth", "-o", program], check=True)
        in_c = run("The C program", [program], {"LD_LIBRARY_PATH": str(library)})
        if len(sys.argv) > 2:
            environment = {"HEARTH_LIBRARY": str(library / "libhearth.so"), "PYTHONPATH": str(ROOT / "python")}
            in_python = run("The Python program", [sys.argv[2], "-c", python], environment)
            if in_c.splitlines()[0] != in_python.splitlines()[0]:
                sys.exit(f"the programs of docs/arrays.md begin differently:\n{in_c}{in_python}")
            for other in others:
                print(run("A Python program", [sys.argv[2], "-c", other], environment), end="")
    print(in_c, end="")


main()
