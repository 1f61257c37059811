#!/usr/bin/env bash
# Install what the checks need beyond Rust, gcc and Python. Safe to repeat; what cannot be had is named and left out.
#
# usage: ci/setup.sh [fuzz|tsan]...      default: both
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh

# cargo-fuzz drives the fuzz targets; the compiler is the machine's nightly toolchain.
setup_fuzz() {
    if ! cargo +nightly --version >/dev/null 2>&1; then
        say "cargo-fuzz: left out, there is no nightly toolchain"
    elif cargo fuzz --version >/dev/null 2>&1; then
        say "cargo-fuzz: here ($(cargo fuzz --version))"
    elif timeout "$limit_install" cargo install --locked --quiet cargo-fuzz; then
        say "cargo-fuzz: installed ($(cargo fuzz --version))"
    else
        say "cargo-fuzz: could not be installed"
    fi
}

# ThreadSanitizer needs std built with it, and so a compiler whose std source is at hand: Debian's own.
setup_tsan() {
    if tsan_toolchain; then
        say "ThreadSanitizer: here ($(/usr/bin/rustc --version), clang-$tsan_clang)"
        return
    fi
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        say "ThreadSanitizer: left out, installing needs apt-get and root"
        return
    fi
    apt_get update
    local clang
    clang=$(newest_clang)
    if [ -z "$clang" ] || ! apt_get install --yes --no-install-recommends rustc-web cargo-web rust-web-src "clang-$clang" "libclang-rt-$clang-dev"; then
        say "ThreadSanitizer: packages could not be installed"
    elif tsan_toolchain; then
        say "ThreadSanitizer: installed ($(/usr/bin/rustc --version), clang-$tsan_clang)"
    else
        say "ThreadSanitizer: packages are installed, but do not work together"
    fi
}

# The newest clang of this distribution whose sanitizer runtime is packaged too.
newest_clang() {
    apt-cache pkgnames libclang-rt- | sed -n 's/^libclang-rt-\([0-9]*\)-dev$/\1/p' | sort -rn | while read -r version; do
        if apt-cache show "clang-$version" >/dev/null 2>&1; then
            echo "$version"
            break
        fi
    done
}

# Waits for another apt that runs; what it says goes to a log.
apt_get() {
    DEBIAN_FRONTEND=noninteractive timeout "$limit_install" \
        apt-get -qq -o DPkg::Lock::Timeout=120 "$@" </dev/null >"$log_dir/apt.log" 2>&1
}

limit_install=600
mkdir -p "$log_dir"
[ $# -gt 0 ] || set -- fuzz tsan
for part in "$@"; do
    case $part in
        fuzz) setup_fuzz ;;
        tsan) setup_tsan ;;
        *) echo "unknown part: $part; known are fuzz and tsan" >&2; exit 2 ;;
    esac
done
