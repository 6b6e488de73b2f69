"""Running Hearth and its peers: each measurement in a process of its own, peers installed where they are missing."""

import json
import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE.parent / "build" / "compare"
PACKAGES = {"llama_cpp": "llama-cpp-python"}  # where a package is not called like its module


def lacks(python, module):
    done = subprocess.run([python, "-c", f"import {module}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode != 0


def python_with(modules, python=None):
    """A Python that has the modules: the one given, else this one, else that of build/compare, into which pip installs
    what is missing."""
    if python or not any(lacks(sys.executable, m) for m in modules):
        return str(python or sys.executable)
    own = VENV / "bin" / "python"
    if not own.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    missing = [PACKAGES.get(m, m) for m in modules if lacks(own, m)]
    if missing:
        built = "; llama.cpp is built from source, which takes some minutes" if "llama-cpp-python" in missing else ""
        print(f"Installing {' '.join(missing)} in {VENV}{built}", file=sys.stderr)
        subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *missing], check=True)
    return str(own)


def run(command):
    """What a command prints; its failure ends the comparison."""
    command = list(map(str, command))
    if not shutil.which(command[0]):
        sys.exit(f"{command[0]} is missing: cmake --preset release && ninja -C build/release")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def run_json(command):
    return json.loads(run(command))


def hearth(o, path, threads, prefill=0, decode=0, *more):
    """One round of `hearth bench`, after one to warm up."""
    return run_json([o.hearth, "bench", path, "-t", threads, "-p", prefill, "-n", decode, "-r", 1, "--json", "--quiet",
                     "--precision", o.precision, *more])


def llama(python, path, threads, prefill=0, decode=0, depth=0):
    return run_json([python, HERE / "peers" / "llama.py", path, threads, prefill, decode, depth])


def in_turns(engines, rounds, title):
    """{name: [result of each round]} of functions that measure once. Who goes first changes from round to round."""
    results = {name: [] for name in engines}
    for i in range(rounds):
        for name in sorted(engines, reverse=i % 2 == 1):
            results[name].append(engines[name]())
        last = ", ".join(f"{name} {' and '.join(f'{v:.4g}' for k, v in r[-1].items() if k.endswith('tokens_per_second') and v)}"
                         for name, r in results.items())
        print(f"{title}, round {i + 1} of {rounds}: {last} tok/s", file=sys.stderr)
    return results


def median(results, key):
    return statistics.median(r[key] for r in results)
