"""From process start to the first token, files in the cache: Hearth and the least use of llama.cpp, in turns.

    python3 bench/start.py [--hearth PATH] [--threads 2] [--rounds 9] [--json] MODEL.gguf...

Each round runs `hearth run MODEL PROMPT --max-tokens 1` and bench/peers/llama_start.c, a C program on the library that
llama-cpp-python brings along, on the same prompt of five tokens. Each runs twice in a row and the second run counts: a
virtual machine may have given free memory back to its host, and getting it again costs whoever comes first, which is shown
beside it. Measured are the whole life of the process, release of its memory included, and its peak resident memory; printed are medians over
the rounds and the ratio Hearth / llama.cpp.

Needs a C compiler, and llama-cpp-python in the Python that runs this or that --python names.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import single

PROMPT = "The quick brown fox jumps"
HERE = pathlib.Path(__file__).resolve().parent


def build_llama_start(python, directory):
    """Compiles llama_start.c into `directory`; returns the program's path."""
    where = "import llama_cpp, pathlib, sysconfig; print(pathlib.Path(llama_cpp.__file__).parent); print(sysconfig.get_path('purelib'))"
    package, site = subprocess.run([python, "-c", where], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")[:2]
    library, program = os.path.join(package, "lib"), os.path.join(directory, "llama_start")
    subprocess.run(["cc", "-O2", HERE / "peers" / "llama_start.c", "-o", program, "-I", os.path.join(site, "include"),
                    "-L", library, "-lllama", "-Wl,-rpath," + library, "-Wl,-rpath-link," + library], check=True)
    return program


def run(command):
    """(seconds, peak resident bytes) of a process from its start to its end."""
    actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begin = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        sys.exit(f"{' '.join(command)}: failed")
    return seconds, usage.ru_maxrss * 1024


def measure(models, hearth="build/release/bin/hearth", threads=2, rounds=9, python=sys.executable, packed=False):
    """{model's path: {"hearth": {...}, "llama.cpp": {...}, "ratio": {...}}}, of "seconds", "first_seconds" (of the first of
    two runs) and "peak_bytes". With `packed`, also "packed": Hearth with --packed-cache, once the cache is there."""
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        llama = build_llama_start(python, directory)
        for path in map(str, models):
            commands = {
                "hearth": [str(hearth), "run", path, PROMPT, "--raw", "--max-tokens", "1", "--temperature", "0", "--quiet",
                           "--threads", str(threads)],
                "llama.cpp": [llama, path, PROMPT, str(threads)],
            }
            if packed:
                cache = ["env", f"XDG_CACHE_HOME={directory}", *commands["hearth"], "--packed-cache"]
                run(cache)
                commands["packed"] = cache
            runs = {engine: [] for engine in commands}
            for _ in range(rounds):
                for engine, command in commands.items():
                    first, _ = run(command)
                    runs[engine].append((*run(command), first))
            result = {engine: {"seconds": statistics.median(s for s, _, _ in r), "best_seconds": min(s for s, _, _ in r),
                               "peak_bytes": statistics.median(b for _, b, _ in r),
                               "first_seconds": statistics.median(f for _, _, f in r)} for engine, r in runs.items()}
            ours, theirs = result["hearth"], result["llama.cpp"]
            result["ratio"] = {key: ours[key] / theirs[key] for key in ours}
            results[path] = result
    return results


def show(results):
    for path, result in results.items():
        print(pathlib.Path(path).name)
        for title, key, scale, unit in [("to the first token", "seconds", 1e-3, "ms"), ("best", "best_seconds", 1e-3, "ms"),
                                        ("first of two runs", "first_seconds", 1e-3, "ms"), ("peak memory", "peak_bytes", 1e6, "MB")]:
            ours, theirs = result["hearth"][key] / scale, result["llama.cpp"][key] / scale
            print(f"  {title:18} hearth {ours:7.1f}  llama.cpp {theirs:7.1f} {unit}  ratio {result['ratio'][key]:.2f}")


def main():
    parser = single.parser(__doc__, "hearth", "build/release/bin/hearth", "llama-cpp-python", rounds=9)
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    single.print_results(measure(o.models, o.hearth, o.threads, o.rounds, o.python), o.json, show)


if __name__ == "__main__":
    main()
