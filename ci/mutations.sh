#!/usr/bin/env bash
# Show that the loom scenarios notice the loss of every ordering: for each label, in one and the same build, the ordering
# with that label becomes Relaxed (a fence disappears) and the scenarios named after it must fail.
#
# usage: ci/mutations.sh [LABEL...]     default: every label of sync::LABELS
#
# A label `ll.publish` is tried on the scenarios `loom_ll_*`.
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh

export RUSTFLAGS="--cfg vervain_loom"
export CARGO_TARGET_DIR=target-loom
export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3}

# Labels that loom cannot catch on principle, "LABEL=reason" each. None so far.
excused=()

log=$(mktemp)
trap 'rm -f "$log"' EXIT

scenarios() {
    cargo test --quiet --release -p vervain-transport --test loom -- "$@"
}

# A failure counts when loom saw a race or a scenario saw wrong data; running out of steps or time does not.
is_noticed() {
    grep -qE 'Causality violation|Concurrent (read|write|load|store)|assertion .*failed|deadlock' "$log"
}

if ! scenarios --nocapture labels_are_listed >"$log"; then
    fail "the scenarios build"
    total mutations
    exit 1
fi
labels=("$@")
[ $# != 0 ] || mapfile -t labels < <(sed -n 's/^label //p' "$log")

if scenarios loom_ >"$log" 2>&1; then
    pass "without mutation all scenarios hold"
else
    tail -n 40 "$log"
    fail "without mutation all scenarios hold"
fi

caught=0 missed=0
for label in "${labels[@]}"; do
    reason=""
    for entry in ${excused[@]+"${excused[@]}"}; do
        [ "${entry%%=*}" != "$label" ] || reason=${entry#*=}
    done
    if [ -n "$reason" ]; then
        skip "$label" "$reason"
    elif VERVAIN_MUTATE=$label timeout 120 cargo test --quiet --release -p vervain-transport --test loom \
        "loom_${label%%.*}_" >"$log" 2>&1; then
        fail "$label: weakened, and no scenario notices"
        missed=$((missed + 1))
    elif is_noticed; then
        pass "$label"
        caught=$((caught + 1))
    else
        tail -n 20 "$log"
        fail "$label: the scenarios ended for another reason"
        missed=$((missed + 1))
    fi
done
say "$caught mutations caught, $missed missed"
total mutations
