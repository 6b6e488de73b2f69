#!/usr/bin/env bash
# Checks and times the CUDA device on a machine that has a GPU, in one call, and prints a short table at the end.
#   bench/gpu.sh [BUILD [MODEL...]]   BUILD: a release build (build/release), made here when it is not there
# The tests of tests/cuda/tests.txt run on the GPU, the first of them also with compute-sanitizer where it is installed;
# each MODEL is timed by `hearth bench`. Ends with 1 when a test failed.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release}
shift || true
if [ ! -x "$build/bin/hearth" ]; then
    (cd "$root" && cmake --preset release && cmake --build "$build") || exit 1
fi
export HEARTH_TEST_DEVICE=cuda
cd "$root" || exit 1
passed=0 failed=()
mapfile -t tests < <(sed -n 's/^gpu //; /^test_/p' tests/cuda/tests.txt) # but for those of the host
for name in $(cd "$build/bin" && ls -d test_cuda_*) "${tests[@]}"; do
    [ -x "$build/bin/$name" ] || continue
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
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        for name in ${SANITIZED:-${tests[0]}}; do
            [ -x "$build/bin/$name" ] || continue
            result=$(timeout 300 compute-sanitizer --tool $tool "$build/bin/$name" 2>&1 | grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' | tail -1)
            printf '%-12s %-24s %s\n' $tool "$name" "${result:-no result}"
        done
    done
fi
unset HEARTH_TEST_DEVICE
for model in "$@"; do
    echo "-- $model"
    "$build/bin/hearth" bench "$model" --device cuda -r 3
done
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "$passed passed, ${#failed[@]} failed: ${failed[*]:-none}"
[ ${#failed[@]} -eq 0 ]
