#!/usr/bin/env bash
# Run the tests in which threads share memory under ThreadSanitizer, std included, with no suppression.
#
# Needs a compiler that has std's source, and clang's runtime of the same LLVM or newer: ci/setup.sh tsan.
# (A std that was built without the sanitizer gives false reports, and hiding those hides real races too.)
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh

if ! tsan_toolchain; then
    skip sanitizer "no compiler with std's source; ci/setup.sh tsan installs it"
    total sanitizer
    exit
fi

export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target-tsan TSAN_OPTIONS="halt_on_error=1 history_size=4"
# enough to name lines in a report, and much less to write and link
export CARGO_PROFILE_DEV_DEBUG=line-tables-only
export RUSTFLAGS="-Zsanitizer=thread -Zexternal-clangrt -Clinker=clang-$tsan_clang -Clink-arg=-fsanitize=thread"

tsan_test() {
    timeout --kill-after=10 1200 /usr/bin/cargo test -Zbuild-std --target x86_64-unknown-linux-gnu "$@"
}

# The scenarios written for loom run here natively, on real words.
tsan_test -p vervain-transport --lib --test loom -- loom_ ring:: fabric:: || fail "transport"
tsan_test -p vervain-collectives --lib --test messages -- --skip reduce:: --skip plan:: || fail "collectives"
[ "$failed" = 0 ]
