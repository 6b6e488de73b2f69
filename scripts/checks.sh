# shellcheck shell=bash
# What scripts/test and scripts/soak share: checks that are counted, the environments of Python that they need, and the
# last line. Sourced after common.sh.

export HEARTH_DEVICE=${HEARTH_DEVICE:-cpu} # of the command, whatever the machine has
HEARTH_TEST_DAY=$(date +%-j) # which cases run with sanitizers (tests/support/test.h)
export HEARTH_TEST_DAY
passed=0
failed=0
failures=
skipped=0
reasons=

count_pass() { passed=$((passed + 1)); }
count_failure() {
    failed=$((failed + 1))
    failures="$failures"$'\n'"  $1"
    say "FAILED: $1"
}
# skip NUMBER TEXT: so many checks that could not be made count as skipped.
skip() {
    skipped=$((skipped + $1))
    reasons="$reasons"$'\n'"  $2"
    say "Skipped: $2"
}

# took SECONDS NAME: for the list of the slowest tests.
took() { printf '%s %s\n' "$@" >>"$work/seconds"; }

# check NAME COMMAND...: one check, run quietly; it passes or fails.
check() {
    local name=$1 begin=$SECONDS
    shift
    if step "$name" "$@"; then count_pass; else count_failure "$name"; fi
    took $((SECONDS - begin)) "$name"
}

# queue NAME COMMAND...: a check that run_queued runs, as many side by side as there are cores. They may not depend on each
# other.
queued=()
queue() {
    local to=$work/queued.${#queued[@]}
    queued+=("$1")
    shift
    printf '%q ' "$@" >"$to"
}

# run_queued TEXT: runs what was queued, and counts.
run_queued() {
    local i of=$work/queued
    run_side_by_side() {
        seq 0 $((${#queued[@]} - 1)) | xargs -P "$(nproc)" -I{} \
            bash -c 'begin=$EPOCHSECONDS; bash "$0.{}" >"$0.{}.log" 2>&1 </dev/null && touch "$0.{}.passed"
                echo $((EPOCHSECONDS - begin)) >"$0.{}.seconds"' "$of"
    }
    step "$1" run_side_by_side || true
    for i in "${!queued[@]}"; do
        took "$(cat "$of.$i.seconds" 2>/dev/null || echo 0)" "${queued[i]}"
        if [ -e "$of.$i.passed" ]; then
            say "  passed: ${queued[i]}"
            count_pass
        else
            tail -n 40 "$of.$i.log" >&2 || true
            count_failure "${queued[i]}"
        fi
    done
    rm -f "$of".*
    queued=()
}

# ctest_in PRESET [OPTION...]: the tests of one build, counted one by one, with their files in $test_files if that is set;
# their output is shown as it comes. A test that ctest reports as skipped counts as skipped.
ctest_in() {
    local preset=$1 log=$work/ctest.log summary patience=1200
    shift
    [ -z "${HEARTH_SOAK:-}" ] || patience=36000 # a test that hangs fails at last
    say "Testing build/$preset"
    # Some tests wait most of the time, so one more runs than there are cores. Thread sanitizer needs the memory layout it knows; newer kernels shuffle more of it.
    "${without_aslr[@]}" env ${test_files:+TMPDIR="$test_files"} ctest --test-dir "build/$preset" -j "$(($(nproc) + 1))" --timeout "$patience" --output-on-failure "$@" 2>&1 | tee "$log" >&2 || true
    leave_if_asked
    summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" || true)
    if [ -z "$summary" ]; then
        count_failure "ctest in build/$preset"
        return
    fi
    local out_of=${summary##* } bad left_out
    bad=$(sed -E 's/.*, ([0-9]+) tests? failed.*/\1/' <<<"$summary")
    left_out=$(grep -cE 'Test +#[0-9]+: .*\*\*\*Skipped' "$log" || true)
    sed -nE "s,^ *[0-9]+/[0-9]+ Test +#[0-9]+: (\S+) .* ([0-9]+)[.0-9]+ sec.*,\2 build/$preset: \1,p" "$log" >>"$work/seconds"
    passed=$((passed + out_of - bad - left_out))
    failed=$((failed + bad))
    [ "$left_out" -eq 0 ] || skip "$left_out" "$left_out tests of build/$preset"
    failures="$failures$(sed -nE "s/^[[:space:]]+[0-9]+ - (.*) \((Failed|Timeout|SEGFAULT|.*Abort.*|.*Exception.*)\)\$/\n  build\/$preset: \1/p" "$log")"
}

# build PRESET [TARGET...]: configures and builds; counts as one check, and is the condition of what follows. Of the GPUs it compiles for one.
build() {
    local preset=$1
    shift
    configure_and_build() {
        cmake --preset "$preset" -DHEARTH_TESTS=ON -DHEARTH_WERROR=ON \
            "-DHEARTH_CUDA_ARCHITECTURES=-gencode=arch=compute_90a,code=sm_90a" && ninja -C "build/$preset" "$@"
    }
    if step "Building build/$preset" configure_and_build "$@"; then
        count_pass
    else
        count_failure "building build/$preset"
        return 1
    fi
}

# Leaves the directory of the real models in `models`.
fetch_test_models() {
    [ -n "${models:-}" ] || models=$(scripts/fetch-test-models)
}

# python_in NAME PACKAGE...: a virtual environment $environments/NAME that has packages from the Python Package Index. It outlives this clone.
environments=${XDG_CACHE_HOME:-${HOME:-$PWD/build}/.cache}/hearth/environments
python_in() {
    local python=$environments/$1/bin/python missing
    shift
    make_environment() {
        [ -x "$python" ] || python3 -m venv --clear "${python%/bin/python}" &&
            "$python" -m pip install --quiet --disable-pip-version-check "$@"
    }
    missing=$("$python" -m pip list --format=freeze 2>/dev/null | cut -d = -f 1 | tr '[:upper:]' '[:lower:]' || true)
    for package in "$@"; do
        grep -qx "${package%%[*}" <<<"$missing" || {
            step "Installing $* in ${python%/bin/python}" make_environment "$@"
            return
        }
    done
}

# queue_openapi OPTION...: hearth serve and the description of its interface: answers by jsonschema, requests by schemathesis with these options.
queue_openapi() {
    if python_in openapi schemathesis jsonschema openapi-spec-validator; then
        queue "Checking answers of hearth serve against the description of its interface" env HEARTH=build/release/bin/hearth \
            PYTHONDONTWRITEBYTECODE=1 "$environments/openapi/bin/python" tests/serve/check_answers.py
        queue "Checking hearth serve against the description of its interface" env HEARTH=build/release/bin/hearth PYTHONDONTWRITEBYTECODE=1 \
            "$environments/openapi/bin/python" tests/serve/check_openapi.py "$@"
    else
        skip 2 "hearth serve and the description of its interface: schemathesis and jsonschema could not be fetched"
    fi
}

# queue_tokens TEXTS: each vocabulary beside the newest Hugging Face `tokenizers`.
queue_tokens() {
    local vocabulary
    if ! fetch_test_models || ! python_in tokens tokenizers jinja2; then
        skip 7 "the comparison with Hugging Face tokenizers: it could not be fetched"
        return
    fi
    for vocabulary in smollm2-135m gemma3-270m qwen2.5-coder-0.5b vocab/ggml-vocab-llama-bpe vocab/ggml-vocab-gemma-4; do
        queue "Comparing $1 texts with Hugging Face tokenizers: $vocabulary" \
            "$environments/tokens/bin/python" tests/golden/check_tokenizer.py build/release/bin/hearth "$models/$vocabulary.gguf" \
            --texts "$1"
    done
    for vocabulary in bert-bge nomic-bert-moe; do
        queue "Comparing tokens of $1 texts and their offsets with Hugging Face tokenizers: $vocabulary" \
            "$environments/tokens/bin/python" tests/golden/check_tokenizer.py build/release/bin/hearth \
            "$models/vocab/ggml-vocab-$vocabulary.gguf" --offsets build/release/bin/token_offsets --texts "$1"
    done
}

# queue_templates N: each N-th of 20,160 conversations in chat templates of published models, beside jinja2.
queue_templates() {
    if ! python_in tokens tokenizers jinja2; then
        skip 1 "the comparison of chat templates with jinja2: it could not be fetched"
        return
    fi
    queue "Taking apart the answers that chat templates write" "$environments/tokens/bin/python" tests/golden/answers.py
    queue "Comparing chat templates with jinja2, each $1. of 20160 texts" \
        "$environments/tokens/bin/python" tests/golden/templates.py --chat --every "$1"
}

# queue_schemas N: the JSON-Schema-Test-Suite, which jsonschema's source package carries, and N random schemas beside jsonschema.
queue_schemas() {
    local suite=$environments/schemas/suite check=build/release/bin/schema_check
    fetch_suite() {
        "$environments/schemas/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --dest "$suite" \
            jsonschema==4.26.0 && tar -xzf "$suite/jsonschema-4.26.0.tar.gz" -C "$suite" --strip-components=1
    }
    if ! python_in schemas jsonschema || { [ ! -d "$suite/json/tests" ] && ! step "Fetching the JSON-Schema-Test-Suite" fetch_suite; }; then
        skip 2 "the JSON-Schema-Test-Suite and the comparison with jsonschema: they could not be fetched"
        return
    fi
    queue "Running the JSON-Schema-Test-Suite" "$environments/schemas/bin/python" tests/golden/json_schemas.py "$check" suite "$suite/json/tests" \
        --refused tests/golden/json_schemas_refused.txt
    queue "Comparing $1 random schemas with jsonschema" "$environments/schemas/bin/python" tests/golden/json_schemas.py "$check" random --schemas "$1"
}

# with_library COMMAND...: for `queue`, a program of the binding on the library of build/release.
of_arrays() {
    local name=$1
    shift
    queue "$name" env PYTHONPATH=python HEARTH_LIBRARY=build/release/lib/libhearth.so "$environments/arrays/bin/python" "$@"
}

# The same on the late device (tests/support/late_device.h).
of_late() {
    local name=$1
    shift
    queue "$name, on the late device" env PYTHONPATH=python HEARTH_TEST_DEVICE=late \
        HEARTH_LIBRARY=build/release/lib/libhearth_late.so "$environments/arrays/bin/python" "$@"
}

# queue_generated TIMES: generated operations on arrays beside NumPy and MLX, TIMES the usual number.
queue_generated() {
    of_arrays "Comparing $((2000 * $1)) operations on arrays with NumPy and MLX" tests/arrays/differential.py --cases $((2000 * $1))
    of_arrays "Comparing $((600 * $1)) uses of an index with NumPy" tests/arrays/places.py --cases $((600 * $1))
    of_arrays "Comparing $((150 * $1)) programs that update arrays in place with NumPy" tests/arrays/updates.py --cases $((150 * $1))
    of_arrays "Comparing $((600 * $1)) orders of elements with NumPy" tests/arrays/order.py --cases $((600 * $1))
    of_arrays "Comparing $((300 * $1)) sets of random numbers with MLX" tests/arrays/draws.py --cases $((300 * $1))
    of_arrays "Comparing $((300 * $1)) products of arrays with NumPy" tests/arrays/products.py --cases $((300 * $1))
    of_arrays "Comparing $((200 * $1)) norms, embeddings and attentions with NumPy and MLX" tests/arrays/fused.py --cases $((200 * $1))
    of_arrays "Comparing $((200 * $1)) quantised arrays and their products with NumPy and MLX" tests/arrays/quantized.py --cases $((200 * $1))
}

# fuzz EXECUTIONS: every fuzz target of build/fuzz, so many executions in all.
fuzz() {
    local name targets corpora each
    targets="fuzz_grammar $(basename -s .c tests/fuzz/fuzz_*.c | grep -vx fuzz_grammar)" # the one that takes longest first
    # shellcheck disable=SC2086
    build fuzz $targets || return 0
    each=$(($1 / $(wc -w <<<"$targets")))
    for name in $targets; do
        mkdir -p "$work/$name"
        corpora=("$work/$name")
        [ ! -d "tests/fuzz/corpus/$name" ] || corpora+=("tests/fuzz/corpus/$name")
        # There is no corpus of graphs to learn lengths from, and short ones are of one or two operations.
        [ "$name" != fuzz_graph ] || corpora=(-len_control=0 -max_len=120 "${corpora[@]}")
        queue "Fuzzing: $name, $each executions" "build/fuzz/bin/$name" -runs="$each" -timeout=20 \
            -artifact_prefix="$work/$name-" "${corpora[@]}"
    done
    run_queued "Fuzzing"
}

has_clang_fuzzer() {
    have clang && printf 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }\n' |
        clang -fsanitize=fuzzer,address -x c - -o "$work/fuzzer" 2>/dev/null
}

missing_for_tests() {
    missing_for_build
    have gcc || echo gcc
    has_clang_fuzzer || echo clang libclang-rt-14-dev
    have clang-format || echo clang-format
    have clang-19 || echo clang-19
    have ccache || echo ccache
    local tool
    for tool in zsh fish mandoc; do have $tool || echo $tool; done
    have chromium || [ -n "${HEARTH_CHROMIUM:-}" ] || echo chromium # for the page of hearth serve
    have dpkg-shlibdeps || echo dpkg-dev
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3 python3-venv
    [ -f "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/Python.h" ] || echo python3-dev
    pkg-config --exists cmocka 2>/dev/null || echo libcmocka-dev
    have qemu-aarch64 || have qemu-aarch64-static || echo qemu-user
    have aarch64-linux-gnu-gcc || echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross
}

# run_parts PART...: installs what tests need, runs test_PART of each, and ends with the count.
run_parts() {
    # shellcheck disable=SC2046
    install $(missing_for_tests | tr ' ' '\n' | sort -u)
    # The compilers' cache (~/.cache/ccache) outlives this clone, as its keys have paths relative to it.
    if have ccache; then
        export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
        export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
    fi
    without_aslr=()
    if have setarch && setarch "$(uname -m)" -R true 2>/dev/null; then without_aslr=(setarch "$(uname -m)" -R); fi
    local part begin
    for part in "$@"; do
        say
        say "== $part"
        begin=$SECONDS
        "test_$part"
        say "-- $part took $((SECONDS - begin)) s"
    done
    say
    say "The slowest tests, in seconds:"
    sort -rn "$work/seconds" 2>/dev/null | head -n 20 >&2 || true
    say "All parts took $((SECONDS / 60)) min $((SECONDS % 60)) s."
    [ -z "$reasons" ] || say "Skipped:$reasons"
    [ -z "$failures" ] || say "Failed:$failures"
    if [ "$skipped" -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
    else
        echo "$passed passed, $failed failed"
    fi
    [ "$failed" -eq 0 ]
}
