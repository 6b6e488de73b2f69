"""What the programs that run a single section have in common: their arguments and what they print."""

import argparse
import json
import sys


def parser(description, program, path, needs, rounds):
    """`description` is the module's; --PROGRAM names what is measured, `needs` is what --python must have."""
    p = argparse.ArgumentParser(description=description.split("\n")[0])
    p.add_argument("models", nargs="+", metavar="MODEL.gguf")
    p.add_argument(f"--{program}", default=path)
    p.add_argument("--python", default=sys.executable, help=f"a Python that has {needs}")
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--json", action="store_true")
    return p


def print_results(results, as_json, show):
    print(json.dumps(results, indent=2)) if as_json else show(results)
