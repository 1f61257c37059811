#!/usr/bin/env bash
# Run the loom scenarios: every interleaving of the rings and protocols, as far as the bound on preemptions reaches.
#
# usage: ci/loom.sh [--long] [FILTER]     default filter: loom_
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh

preemptions=3
if [ "${1:-}" = --long ]; then
    preemptions=5
    shift
fi

export RUSTFLAGS="--cfg vervain_loom"
export CARGO_TARGET_DIR=target-loom
export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-$preemptions}
cargo test --release -p vervain-transport --test loom -- "${1:-loom_}"
