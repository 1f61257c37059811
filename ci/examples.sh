#!/usr/bin/env bash
# Run every example of the workspace as a user would: no arguments, and it ends by itself with status 0.
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh

target=${CARGO_TARGET_DIR:-target}/release/examples
for source in */examples/*.rs; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .rs)
    if timeout --kill-after=5 60 "$target/$name" </dev/null; then pass "$name"; else fail "$name (status $?)"; fi
done
total examples
