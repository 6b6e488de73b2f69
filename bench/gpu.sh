#!/usr/bin/env bash
# Checks and measures the CUDA device on a machine that has a GPU, in one call.
#   bench/gpu.sh [BUILD [MODEL...]]   BUILD: a release build (build/release), made here when it is not there
# The tests of tests/cuda/tests.txt run on the GPU, those of operations also with compute-sanitizer where it is installed; the GPU is
# measured by `hearth doctor`, each MODEL by `hearth bench`, and those of MODELS_OF_KL (or the first MODEL) compared with the
# CPU in reference precision; products in bf16 of torch, where that is installed, are what prefill is to be held against.
# What comes out is a table in the file TABLE (bench/results/gpu.md), which names the commit, COMMIT where the files are no
# repository, and the card; tests/gpu_results.py says whether one is whole. Ends with 1 when a test failed.
#   SANITIZED: programs for the sanitizer (all of operations); SANITIZER_SECONDS: the most that one may take (120)
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release}
shift || true
if [ ! -x "$build/bin/hearth" ]; then
    (cd "$root" && cmake --preset release && cmake --build "$build") || exit 1
fi
cd "$root" || exit 1
table=${TABLE:-bench/results/gpu.md}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/rows"
row() { printf '| %s | %s |\n' "$1" "$2" | tee -a "$work/rows"; }
rows() { python3 bench/gpu_rows.py "$@" | tee -a "$work/rows"; }

# ---- tests ----
passed=0 failed=()
mapfile -t operations < <(sed -n '/^test_/p' tests/cuda/tests.txt) # but for those of the host
mapfile -t longer < <(sed -n 's/^gpu //p' tests/cuda/tests.txt)
for name in $(cd "$build/bin" && ls -d test_cuda_*) "${operations[@]}" "${longer[@]}"; do
    if [ ! -x "$build/bin/$name" ]; then
        failed+=("$name, which is not there")
        continue
    fi
    begin=$EPOCHREALTIME
    case $name in test_cuda_*) device= ;; *) device=cuda ;; esac # those compare with the CPU
    if out=$(HEARTH_TEST_DEVICE=$device timeout 300 "$build/bin/$name" 2>&1); then
        passed=$((passed + 1))
    else
        failed+=("$name")
        printf '%s\n' "$out" | grep -v -e '  OK ' -e ' RUN ' | tail -15
    fi
    awk -v name="$name" -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%-28s %6.1f s\n", name, b - a }'
done
row "test programs on the GPU" "$passed passed, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"

# ---- the same under compute-sanitizer, several at once, as most of it is work of the host ----
# Prints a line: the program, and errors, or why there is no number.
sanitize() {
    local tool=$1 name=$2 out device=cuda
    case $name in test_cuda_*) device= ;; esac
    out=$(HEARTH_TEST_DEVICE=$device timeout "${SANITIZER_SECONDS:-120}" compute-sanitizer --tool "$tool" "$build/bin/$name" 2>&1)
    [ $? -ne 124 ] || { echo "$name late"; return; }
    if grep -q 'RACECHECK SUMMARY' <<<"$out"; then
        echo "$name $(sed -nE 's/.*RACECHECK SUMMARY: ([0-9]+) hazards.*/\1/p' <<<"$out" | tail -1)"
    else
        echo "$name $(sed -nE 's/.*ERROR SUMMARY: ([0-9]+) errors?.*/\1/p' <<<"$out" | tail -1)"
    fi
    grep -A12 -m1 -E '========= (Invalid|Uninit|Error|Warning|Race|Potential)' <<<"$out" >"$work/$tool.$name.first" || true
}
export -f sanitize
export build work SANITIZER_SECONDS
for tool in memcheck racecheck initcheck; do
    if ! command -v compute-sanitizer >/dev/null; then
        row "$tool" "not there"
        continue
    fi
    # shellcheck disable=SC2086
    printf '%s\n' ${SANITIZED:-"${operations[@]}"} | xargs -P "${AT_ONCE:-8}" -I{} bash -c "sanitize $tool {}" >"$work/$tool"
    cat "$work/$tool"
    head -n 12 "$work/$tool".*.first 2>/dev/null
    row "$tool" "$(awk '$2 == "late" { late = late " " $1; next } $2 == "" { odd = odd " " $1; next } { n++; errors += $2; if ($2) bad = bad " " $1 }
        END { printf "%d programs, %d errors%s%s%s", n, errors, bad ? ":" bad : "", late ? "; not to the end:" late : "", odd ? "; no result:" odd : "" }' "$work/$tool")"
done

# ---- speed ----
"$build/bin/hearth" doctor --json -q | rows doctor
measure() { # MODEL NAME OPTION...
    local model=$1 name=$2
    shift 2
    timeout 200 "$build/bin/hearth" bench "$model" --device cuda --json -q "$@" | rows bench "$name"
}
for model in "$@"; do
    name=$(basename "$model" .gguf)
    measure "$model" "$name" -p 512 -n 128 -r 3 --parallel 64
    measure "$model" "$name" -p 512 -n 32 -r 1 --depth 4096 --parallel 8
done
python3 bench/gpu_peer.py | rows peer

# ---- what it computes, beside the CPU ----
python3 -c 'print(",".join(str(7 + i * i * 37 % 30011) for i in range(256)))' >"$work/ids"
for model in ${MODELS_OF_KL:-${1:-}}; do
    "$build/bin/hearth" eval "$model" --ids - --ctx 256 --device cuda --kl-vs-reference --vs-device cpu --json -q <"$work/ids" |
        rows kl "$(basename "$model" .gguf)"
done

card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
commit=${COMMIT:-$(git rev-parse HEAD)}
{
    # shellcheck disable=SC2016
    printf '# GPU measurements\n\n%s (driver %s), commit %s: `bench/gpu.sh`.\n\n' "${card%%,*}" "${card##*, }" "$commit"
    printf '| | |\n|---|---|\n'
    cat "$work/rows"
} >"$table"
echo "$passed passed, ${#failed[@]} failed: ${failed[*]:-none}; $table"
[ ${#failed[@]} -eq 0 ]
