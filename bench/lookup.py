"""Decoding with guesses by lookup beside plain decoding, in turns: code that is repeated with changes, a text, and a text drawn
at random, which nothing tells ahead.

    python3 bench/lookup.py [--rounds 5] [--threads 2] [MODEL.gguf...]

Printed are medians of each round's ratio, and guesses of the last one. Where half of the tokens were guessed right at least it
is to be 1.5, and nowhere under 0.95; the exit status is 1 when that does not hold.
"""

import argparse
import pathlib
import statistics
import sys

import engines

ROOT = engines.HERE.parent
FUNCTION = """static int {0}Numbers(int first, int second) {{
    int result = first {1} second;
    printf("{0}ing %d and %d gives %d\\n", first, second, result);
    return result;
}}
"""
CODE = "Here is a C file. Repeat it with every function renamed from camelCase to snake_case.\n\n```c\n" + "\n".join(
    FUNCTION.format(*f) for f in [("add", "+"), ("subtract", "-"), ("multiply", "*")]) + "```\n"  # fmt: skip
STORY = "Write a story about a fox who learns to sail, with many unusual details."
TASKS = {"code": [CODE, "--temperature", "0"], "story": [STORY, "--temperature", "0"], "drawn story": [STORY, "--temperature", "1.2", "--seed", "3"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    models = pathlib.Path.home() / ".cache/hearth/models"
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf",
                        default=[models / f"{m}.gguf" for m in ("smollm2-135m", "qwen2.5-coder-0.5b", "gemma3-270m")])  # fmt: skip
    parser.add_argument("--hearth", default=ROOT / "build" / "release" / "bin" / "hearth")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    failed = 0
    for model in o.models:
        for task, words in TASKS.items():
            def run(*more, words=words, model=model):
                return engines.run_json([o.hearth, "run", model, *words, "-n", 300, "-t", o.threads, "--json", "-q", *more])["metrics"]

            r = engines.in_turns({"plain": lambda: run("--no-lookup"), "lookup": run}, o.rounds, f"{pathlib.Path(model).name}, {task}")
            ratio = statistics.median(b["decode_tokens_per_second"] / a["decode_tokens_per_second"] for a, b in zip(r["plain"], r["lookup"]))
            last = r["lookup"][-1]
            repeats = last["accepted_tokens"] >= 0.5 * last["generated_tokens"]
            holds = ratio >= (1.5 if repeats else 0.95)
            failed += not holds
            print(f"{pathlib.Path(model).name:26} {task:12} {ratio:5.2f} {'' if holds else '!'}  {last['accepted_tokens']} of "
                  f"{last['guessed_tokens']} guesses right, {last['generated_tokens']} tokens")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
