#!/usr/bin/env bash
# Fuzz every target for a few seconds, with AddressSanitizer, from the corpora under version control.
#
# usage: ci/fuzz-smoke.sh [SECONDS]     default: 10 for each target
#
# What the fuzzer finds on the way goes to target/ci/corpus, not into the corpora. A crash is left in fuzz/artifacts;
# `cargo +nightly fuzz run TARGET FILE` replays it.
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh
seconds=${1:-10}

if ! cargo +nightly --version >/dev/null 2>&1; then
    skip fuzz "no nightly toolchain"
elif ! cargo fuzz --version >/dev/null 2>&1; then
    skip fuzz "no cargo-fuzz; ci/setup.sh fuzz installs it"
elif [ ! -d fuzz ]; then
    skip fuzz "no fuzz targets"
elif ! cargo +nightly fuzz build --codegen-units 16; then
    fail "the fuzz targets build"
else
    triple=$(rustc -vV | sed -n 's/^host: //p')
    for target in $(cargo +nightly fuzz list); do
        found=$log_dir/corpus/$target
        mkdir -p "$found" "fuzz/corpus/$target" "fuzz/artifacts/$target"
        if timeout --kill-after=10 $((seconds * 2 + 60)) "fuzz/target/$triple/release/$target" \
            "$found" "fuzz/corpus/$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 \
            -artifact_prefix="fuzz/artifacts/$target/" -print_final_stats=1 >"$log_dir/fuzz-$target.log" 2>&1; then
            pass "$target, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log_dir/fuzz-$target.log") runs"
        else
            tail -n 60 "$log_dir/fuzz-$target.log"
            fail "$target"
        fi
    done
fi
total fuzz
