#!/usr/bin/env bash
# Checks and measures the CUDA device on a machine that has a GPU, in one call.
#   bench/gpu.sh [BUILD [MODEL...]]   BUILD: a release build (build/release), made here when it is not there
# The tests of tests/cuda/tests.txt run on the GPU, those of operations also with compute-sanitizer where it is installed; the GPU is
# measured by `hearth doctor`, each MODEL by `hearth bench`, and those of MODELS_OF_KL (or the first MODEL) compared with the
# CPU in reference precision; products in bf16 of torch, where that is installed, are what prefill is to be held against.
# What comes out is a table in the file TABLE (bench/results/gpu.md), which names the commit, COMMIT where the files are no
# repository, and the card; tests/gpu_results.py says whether one is whole. Ends with 1 when a test failed.
#   SANITIZED: programs for the sanitizer (all of operations, and those that compare with the CPU themselves); SANITIZER_SECONDS: the most that one may take (120)
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release}
shift || true
if [ ! -x "$build/bin/hearth" ]; then
    (cd "$root" && cmake --preset release -DHEARTH_WERROR=ON && cmake --build "$build") || exit 1
fi
cd "$root" || exit 1
table=${TABLE:-bench/results/gpu.md}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
commit=${COMMIT:-$(git rev-parse HEAD)}
: >"$work/rows"
write_table() { # after every row, so that what was measured is kept whatever follows
    # shellcheck disable=SC2016
    printf '# GPU measurements\n\n%s (driver %s), commit %s: `bench/gpu.sh`.\n\n| | |\n|---|---|\n' "${card%%,*}" "${card##*, }" "$commit" |
        cat - "$work/rows" >"$table"
}
row() {
    printf '| %s | %s |\n' "$1" "$2" | tee -a "$work/rows"
    write_table
}
rows() {
    python3 bench/gpu_rows.py "$@" | tee -a "$work/rows"
    write_table
}
export build work SANITIZER_SECONDS
at_once=${AT_ONCE:-$(nproc)} # of what is mostly the host's work

# ---- tests ----
mapfile -t operations < <(sed -n '/^test_/p' tests/cuda/tests.txt) # but for those of the host
mapfile -t longer < <(sed -n 's/^gpu //p' tests/cuda/tests.txt)
mapfile -t compared < <(cd "$build/bin" && ls -d test_cuda_*) # which compare with the CPU themselves
run_test() {
    local name=$1 begin=$EPOCHREALTIME device=cuda word=passed
    case $name in test_cuda_*) device= ;; esac
    if ! HEARTH_TEST_DEVICE=$device timeout 300 "$build/bin/$name" >"$work/$name.log" 2>&1; then
        word=FAILED
        grep -v -e '  OK ' -e ' RUN ' "$work/$name.log" | tail -15
    fi
    awk -v name="$name" -v word=$word -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%-28s %-6s %6.1f s\n", name, word, b - a }'
}
export -f run_test
{
    printf '%s\n' "${longer[@]}" "${compared[@]}" "${operations[@]}" | grep -vx -e test_cuda_measure -e test_cuda_rounds | xargs -P "$at_once" -I{} bash -c 'run_test {}'
    # What times the GPU or counts its memory has it for itself; 1,000 rounds of opening, answering and closing leave nothing.
    run_test test_cuda_measure
    HEARTH_SOAK=1 run_test test_cuda_rounds
} | tee "$work/tests"
passed=$(grep -c "^test_[^ ]* *passed " "$work/tests")
mapfile -t failed < <(awk '/^test_/ && $2 == "FAILED" { print $1 }' "$work/tests")
row "test programs on the GPU" "$passed passed, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"

# ---- those of operations under compute-sanitizer ----
# Prints a line: the tool, the program, and its errors: "late", "idle" where it did not call the GPU, or "odd".
sanitize() {
    local tool=$1 name=$2 out errors=odd device=cuda
    case $name in test_cuda_*) device= ;; esac
    out=$(HEARTH_TEST_DEVICE=$device timeout "${SANITIZER_SECONDS:-120}" compute-sanitizer --tool "$tool" "$build/bin/$name" 2>&1)
    if [ $? -eq 124 ]; then
        errors=late
    elif grep -q 'terminated before first instrumented API call' <<<"$out"; then
        errors=idle
    elif grep -qE '(ERROR|RACECHECK) SUMMARY' <<<"$out"; then
        errors=$(sed -nE 's/.*(ERROR|RACECHECK) SUMMARY: ([0-9]+) .*/\2/p' <<<"$out" | tail -1)
    fi
    echo "$tool $name $errors"
    case $errors in 0 | late | idle) ;; *) grep -A12 -m1 -E '========= [A-Z]' <<<"$out" ;; esac
}
export -f sanitize
tools="racecheck memcheck initcheck"
if command -v compute-sanitizer >/dev/null; then
    for tool in $tools; do
        for name in ${SANITIZED:-"${operations[@]}" "${compared[@]}"}; do
            case $name in test_cuda_measure | test_cuda_rounds) ;; *) echo "$tool $name" ;; esac
        done
    done | xargs -P "$at_once" -I{} bash -c 'sanitize {}' | tee "$work/sanitized"
    for tool in $tools; do
        row "$tool" "$(awk -v tool="$tool" '$1 != tool { next } $3 == "late" { late = late " " $2; next } $3 == "odd" { odd = odd " " $2; next }
            $3 == "idle" { next } { n++; errors += $3; if ($3) bad = bad " " $2 }
            END { printf "%d programs, %d errors%s%s%s", n, errors, bad ? ":" bad : "", late ? "; not to the end:" late : "", odd ? "; no result:" odd : "" }' "$work/sanitized")"
    done
fi

# ---- speed ----
"$build/bin/hearth" doctor --json -q | rows doctor
measure() { # MODEL NAME OPTION...
    local model=$1 name=$2
    shift 2
    timeout 200 "$build/bin/hearth" bench "$model" --device cuda --json -q "$@" | rows bench "$name"
}
for model in "$@"; do
    name=$(basename "$model" .gguf)
    measure "$model" "$name" -p 2048 -n 64 -r 2 --parallel 64
    measure "$model" "$name" -p 512 -n 32 -r 1 --depth 4096 --parallel 4
    begin=$EPOCHREALTIME
    "$build/bin/hearth" run "$model" hello --device cuda -n 1 -q >/dev/null
    row "$name: a process and its first token" "$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f s", b - a }')"
done
python3 bench/gpu_peer.py | rows peer

# ---- what it computes, beside the CPU ----
python3 -c 'print(",".join(str(7 + i * i * 37 % 30011) for i in range(256)))' >"$work/ids"
for model in ${MODELS_OF_KL:-${1:-}}; do
    "$build/bin/hearth" eval "$model" --ids - --ctx 256 --device cuda --kl-vs-reference --vs-device cpu --json -q <"$work/ids" |
        rows kl "$(basename "$model" .gguf)"
done

echo "$passed passed, ${#failed[@]} failed: ${failed[*]:-none}; $table"
[ ${#failed[@]} -eq 0 ]
