"""Generated cases: the options, the loop and the report that the comparisons share."""

import argparse

import numpy as np


def run(calls, check, cases, against):
    """check(rng, call) gives None, or what was called, what is wrong with it, and, if it knows, the size of the case. Of each
    call the smallest case that fails is printed. Gives the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}, against {against}")
    rng = np.random.default_rng(options.seed)
    smallest = {}
    for i in range(options.cases):
        call = calls[i % len(calls)]
        with np.errstate(all="ignore"):
            problem = check(rng, call)
        if not problem:
            continue
        what, why, *size = problem
        size = size[0] if size else len(what)
        if call not in smallest or size < smallest[call][0]:
            smallest[call] = size, f"case {i}: {what} {why}"
    for _, text in smallest.values():
        print(text)
    print(f"{options.cases} cases, {len(smallest)} operations disagree")
    return 1 if smallest else 0
