#!/usr/bin/env bash
# Every check of this repository, in the order in which a failure is cheapest to find.
#
# usage: ci/test.sh [--long]
#
# Needs Rust, gcc and Python; ci/setup.sh, called first, installs the rest or says what cannot be had. Logs of all
# sections lie in target/ci. The last line is the total over all runners. --long takes hours: whole loom scenarios, minutes
# of fuzzing per target, and the tests that need much memory.
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh

long=no
for word in "$@"; do
    case $word in
        --long) long=yes ;;
        *) echo "unknown option: $word; known is --long" >&2; exit 2 ;;
    esac
done

# Recorded outputs of other machines, for the parsers; tests that want them skip by name without.
if [ -z "${VERVAIN_CORPUS:-}" ] && [ -d ../shared/data ]; then
    VERVAIN_CORPUS=$(cd ../shared/data && pwd)
    export VERVAIN_CORPUS
fi

times() {
    if [ "$long" = yes ]; then echo $(($1 * 20)); else echo "$1"; fi
}

mkdir -p "$log_dir"
begin=$SECONDS

heading "set-up"
timeout --kill-after=20 1500 bash ci/setup.sh </dev/null || say "set-up stopped at its limit; what is missing is skipped below"
section "format" 120 cargo fmt --all --check
section "clippy" "$(times 900)" cargo clippy --quiet --workspace --all-targets -- -D warnings
section "documentation" "$(times 600)" env RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
section "tests" "$(times 1200)" env RUSTDOC="$PWD/ci/rustdoc" cargo test --workspace --no-fail-fast -- --show-output
section "release build" "$(times 900)" cargo build --quiet --release --workspace --bins --examples
section "examples" "$(times 300)" bash ci/examples.sh
section "perf" "$(times 400)" bash ci/perf-smoke.sh
section "loom" "$(times 600)" bash ci/loom.sh $([ "$long" = yes ] && echo --long)
section "mutations" "$(times 900)" bash ci/mutations.sh
section "fuzz" "$(times 1200)" bash ci/fuzz-smoke.sh "$(times 10)"
section "no-std" "$(times 600)" bash ci/no-std.sh
section "sanitizer" "$(times 1800)" bash ci/sanitize.sh
if [ "$long" = yes ]; then
    section "tests in release" 7200 cargo test --release --workspace --no-fail-fast -- --include-ignored --show-output
fi

heading "total, $(((SECONDS - begin) / 60)) min"
for name in ${failures[@]+"${failures[@]}"}; do
    say "failed: $name"
done
total ci
