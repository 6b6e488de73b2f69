# shellcheck shell=bash
# What the scripts share: saying what happens, running a step with progress, finding and installing packages, and where
# models are kept. Sourced from the repository root with `set -euo pipefail` on.

work=$(mktemp -d "${TMPDIR:-/tmp}/hearth.XXXXXX")
step_pid=

clean_up() {
    if [ -n "$step_pid" ]; then
        kill -TERM -- "-$step_pid" 2>/dev/null || true
        wait "$step_pid" 2>/dev/null || true
    fi
    rm -rf "$work" ${fetch_dir:+"$fetch_dir"} ${test_files:+"$test_files"}
}
trap clean_up EXIT
# Signals are only noted here and acted on where leave_if_asked is called.
stop=
trap 'stop=130' INT
trap 'stop=143' TERM HUP

leave_if_asked() {
    [ -n "$stop" ] || return 0
    say
    say "Interrupted; running it again goes on from here."
    exit "$stop"
}

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "$@"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# A step that downloads sets these: where its file grows, megabytes that came before it, and megabytes in all.
step_download=
step_megabytes_before=0
step_megabytes=0

megabytes_downloaded() {
    # The largest file alone: pip has the file twice while it moves it.
    local most
    most=$(find "$step_download" -type f -exec du -m {} + 2>/dev/null | sort -n | tail -n 1 | cut -f 1) || true # files come and go
    most=$((step_megabytes_before + ${most:-0}))
    echo $((most < step_megabytes ? most : step_megabytes))
}

# One line about a running step: seconds, then how much a download has, or the last line its command wrote.
show_progress() {
    local what=$1 seconds=$2 note line columns
    if [ -n "$step_download" ]; then
        note="$(megabytes_downloaded) of $step_megabytes MB"
    else
        # The name of the file is what matters in "[3/9] Building C object CMakeFiles/a/b/c.c.o".
        note=$(tail -n 1 "$step_log" 2>/dev/null | sed -E 's,Building C object .*/(.*)\.o$,\1,' | tr -d '\r' | cut -c 1-70)
    fi
    if [ -t 2 ]; then
        # A line that wraps could not be overwritten.
        columns=$(stty size <&2 2>/dev/null | cut -d ' ' -f 2) || columns=
        [ "${columns:-0}" -ge 20 ] || columns=80
        [ ${#what} -le 40 ] || what=${what:0:37}...
        line="$what $seconds s  $note"
        printf '\r\033[K%s' "${line:0:$((columns - 1))}" >&2
    else
        say "$what ... $seconds s  $note"
    fi
}

# step TEXT COMMAND...: runs the command quietly. Says what it is, shows progress once it takes two seconds, and on failure
# shows the end of what the command wrote. A function given as the command joins its parts with &&: bash does not end it
# at the first failure where the step's own status is asked for.
step() {
    local what=$1 begin=$SECONDS shown=0 seconds status=0
    shift
    step_log=$work/step.log
    say "$what"
    # In a process group of its own, so that Ctrl-C reaches this script and all of the step can be ended.
    set -m
    "$@" >"$step_log" 2>&1 </dev/null &
    step_pid=$!
    set +m
    while kill -0 "$step_pid" 2>/dev/null; do
        sleep 0.1
        leave_if_asked
        seconds=$((SECONDS - begin))
        if [ "$seconds" -ge 2 ] && [ "$seconds" -ge $((shown + ($([ -t 2 ] && echo 1 || echo 10)))) ]; then
            show_progress "$what" "$seconds"
            shown=$seconds
        fi
    done
    wait "$step_pid" || status=$?
    step_pid=
    if [ "$shown" -gt 0 ] && [ -t 2 ]; then printf '\r\033[K' >&2; fi
    if [ "$status" -ne 0 ]; then
        tail -n 40 "$step_log" >&2
        say "Failed: $what"
        return 1
    fi
    seconds=$((SECONDS - begin))
    [ "$seconds" -lt 2 ] || say "  done in $seconds s"
}

# ---- packages ----

on_debian() { have apt-get && have dpkg-query; }

has_c_compiler() {
    local cc
    for cc in ${CC:-} cc gcc clang; do
        if have "$cc" && printf '#include <stdlib.h>\n' | "$cc" -E - >/dev/null 2>&1; then return 0; fi
    done
    return 1
}

# The Debian packages that building Hearth still needs on this machine.
missing_for_build() {
    local pair
    has_c_compiler || echo gcc libc6-dev
    have cmake || echo cmake
    have ninja || echo ninja-build
    have pkg-config || echo pkg-config
    for pair in libpcre2-8:libpcre2-dev libutf8proc:libutf8proc-dev \
        zlib:zlib1g-dev libedit:libedit-dev libcurl:libcurl4-openssl-dev libcrypto:libssl-dev \
        libevent_openssl:libevent-dev; do
        pkg-config --exists "${pair%%:*}" 2>/dev/null || echo "${pair#*:}"
    done
}

missing_for_fetch() {
    have python3 || echo python3
    python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
}

apt_install() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    # A run that was interrupted while packages were being unpacked is finished first.
    "${as_root[@]}" dpkg --configure -a &&
        "${as_root[@]}" apt-get update &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
            -o DPkg::Lock::Timeout=300 "$@"
}

# install PACKAGE...: makes sure of Debian packages, or says which ones somebody has to install.
install() {
    [ $# -gt 0 ] || return 0
    if ! on_debian; then
        say "Hearth needs some packages that are not here. Their Debian names: $*"
        say "  Fedora:     sudo dnf install gcc cmake ninja-build pkgconf pcre2-devel utf8proc-devel zlib-devel libedit-devel libcurl-devel openssl-devel libevent-devel python3-pip"
        say "  Arch Linux: sudo pacman -S gcc cmake ninja pkgconf pcre2 libutf8proc zlib libedit curl openssl libevent python-pip"
        say "  macOS:      brew install cmake ninja pkgconf pcre2 utf8proc zlib libedit curl openssl libevent python3"
        fail "Install them and run this again."
    fi
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || fail "Packages are missing. As root: apt-get update && apt-get install -y $*"
        sudo -n true 2>/dev/null || { say "Installing $* needs your password."; sudo -v; } ||
            fail "Packages are missing. As root: apt-get update && apt-get install -y $*"
    fi
    step "Installing $*" apt_install "$@" ||
        fail "The packages could not be installed: is there a network, and room on the disk?"
}

# ---- models ----

# make_directory DIRECTORY: makes sure that it is there and can be written to.
make_directory() {
    if ! mkdir -p "$1" 2>/dev/null || [ ! -w "$1" ] || [ ! -x "$1" ]; then
        fail "$1 cannot be written to, and models are kept there; XDG_CACHE_HOME names another place."
    fi
}

# The directory of fetched models; the command looks in the same place (apps/hearth/model_path.c).
models_directory() {
    case ${XDG_CACHE_HOME:-} in
    /*) echo "$XDG_CACHE_HOME/hearth/models" ;;
    *)
        [ -n "${HOME:-}" ] || fail "Neither XDG_CACHE_HOME nor HOME is set: there is no place to keep models."
        echo "$HOME/.cache/hearth/models"
        ;;
    esac
}
