"""Sections of the comparison that read what other programs print: parts of a token, sampling, fidelity."""

import pathlib
import re
import tempfile

import engines
import gates
from gates import check, row


def beside(hearth, name):
    """A benchmark program that is built beside the command."""
    return pathlib.Path(hearth).parent / name


def overhead(o):
    """What a token costs beside its products and its attention, with one thread."""
    section = {"title": "What a token costs beside matrix products and attention", "peer": "-", "rows": [], "rounds": {}}
    model = next((m for m in o.models if pathlib.Path(m).stem == gates.SMOLLM2), o.models[0])
    name = pathlib.Path(model).stem
    text = section["rounds"][name] = engines.run([beside(o.hearth, "bench_plan"), model, "-t", 1])
    percent = {part: float(share) for part, share in re.findall(r"^ *(\w+) +[\d.]+ us +([\d.]+) %", text, re.M)}
    eager = float(re.search(r"eager: ([\d.]+) us", text)[1])
    outside = percent["kernels"] + percent["around"]
    section["rows"] = [row(name, "outside", outside, None, "%", check("share", outside, at_most=gates.OUTSIDE_PERCENT)),
                       row(name, "eager operation", eager, None, "us", check("us", eager, at_most=gates.EAGER_US))]
    return section


def sampling(o):
    section = {"title": "Choosing a token among 262,144, one thread", "peer": "-", "rows": []}
    text = section["rounds"] = engines.run([beside(o.hearth, "bench_sampler")])
    for line in text.splitlines()[2:]:
        name, model = line[:16].strip(), float(line[16:].split()[0])
        if name in gates.SAMPLING_US:
            section["rows"].append(row("", f"sampling: {name}", model, None, "us",
                                       check("us", model, at_most=gates.SAMPLING_US[name])))
    return section


def fidelity(o):
    """The divergence from exact arithmetic, by tests/golden/kl.py."""
    section = {"title": "Mean KL divergence from exact arithmetic, in 0.00001 nats", "peer": "llama.cpp", "rows": [],
               "rounds": {}}
    python = engines.python_with(["numpy", "gguf", "llama_cpp"], o.python)
    for path in map(pathlib.Path, o.models):
        with tempfile.TemporaryDirectory() as work:
            text = engines.run([python, engines.HERE.parent / "tests" / "golden" / "kl.py", path.parent, "--hearth", o.hearth,
                                "--models", path.stem, "--tokens", o.tokens, "--settings", f"{o.precision}/f16", "--work", work])
        section["rounds"][path.stem] = text
        rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if path.stem in line]
        ours, theirs = (next(float(r[4]) for r in rows if r[2].startswith(engine)) * 1e5 for engine in ("Hearth", "llama.cpp"))
        section["rows"].append(row(path.stem, "divergence", ours, theirs, "",
                                   check("0.00001 nats", ours, at_most=gates.DIVERGENCE.get(o.precision)),
                                   check("ratio", ours / theirs, at_most=1)))
    return section
