#!/usr/bin/env bash
# Run every collective with real processes and check its data: 1, 2, 3, 4, 7 and 8 ranks, every type and operation, over shared
# memory and over sockets, both in place and not. Then plant a wrong element and expect the exit status to say so.
#
# usage: ci/perf-smoke.sh [SECONDS]     default: 330; what does not fit into that time is a failure
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh

vervain=${VERVAIN:-${CARGO_TARGET_DIR:-target}/release/vervain}
deadline=$((SECONDS + ${1:-330}))
collectives="all_reduce all_gather reduce_scatter broadcast reduce all_to_all sendrecv barrier"
lines=0

# sweep NAME ARGUMENTS...: the run ends with status 0, and no line of its table has a wrong element.
sweep() {
    local name=$1 log status wrong
    shift
    log=$log_dir/perf.log
    if [ $SECONDS -ge $deadline ]; then
        fail "$name (no time left)"
        return
    fi
    timeout --kill-after=5 60 "$vervain" perf "$@" </dev/null >"$log" 2>&1
    status=$?
    # columns 9 and 13 are the wrong elements, out of place and in place; N/A where there is no such run
    read -r count wrong < <(awk '$1 ~ /^[0-9]+$/ && NF >= 13 { n++; if ($9 !~ /^(0|N\/A)$/ || $13 !~ /^(0|N\/A)$/) bad++ } END { print n + 0, bad + 0 }' "$log")
    lines=$((lines + count))
    if [ "$status" = 0 ] && [ "$wrong" = 0 ] && [ "$count" -gt 0 ]; then
        passed=$((passed + 1))
    else
        tail -n 30 "$log"
        fail "$name (status $status, $count lines, $wrong with wrong elements): vervain perf $*"
    fi
}

# Few sizes, because types and operations multiply them: one element, one past a cache line, several lines and a tail.
sweep_collective() {
    local collective=$1 ranks=$2 fabric=$3 common=(-n 2 -w 0)
    local what="$collective, $ranks ranks, $fabric"
    case $collective in
        barrier) sweep "$what" barrier --ranks "$ranks" --fabric "$fabric" "${common[@]}" ;;
        all_reduce | reduce_scatter | reduce)
            sweep "$what" "$collective" --ranks "$ranks" --fabric "$fabric" -b 8 -e 2K -f 16 -d all -o all "${common[@]}" ;;
        *)
            sweep "$what" "$collective" --ranks "$ranks" --fabric "$fabric" -b 8 -e 2K -f 16 -d all "${common[@]}" ;;
    esac
    [ "$collective" = barrier ] || sweep "$what, large" "$collective" --ranks "$ranks" --fabric "$fabric" -b 1000004 -e 1000004 "${common[@]}"
}

for fabric in shm tcp; do
    for ranks in 1 2 3 4 7 8; do
        for collective in $collectives; do sweep_collective "$collective" "$ranks" "$fabric"; done
    done
done

for ranks in 2 3 8; do
    sweep "registered, $ranks ranks" all_reduce --ranks "$ranks" --registered -b 4 -e 1M -f 32 -n 2 -w 0
    sweep "misaligned, $ranks ranks" all_reduce --ranks "$ranks" -u 4 -b 4 -e 1M -f 32 -n 2 -w 0
    for proto in ll ll128 simple; do
        sweep "$proto, $ranks ranks" all_reduce --ranks "$ranks" --proto "$proto" -b 4 -e 64K -f 16 -n 2 -w 0
    done
done

# The check itself: status 1 means wrong data, and nothing else does.
for fabric in shm tcp; do
    for collective in $collectives; do
        [ "$collective" = barrier ] && continue
        timeout --kill-after=5 60 "$vervain" perf "$collective" --ranks 2 --fabric "$fabric" -b 4K -e 4K -n 1 -w 0 --inject-error \
            </dev/null >"$log_dir/perf.log" 2>&1
        status=$?
        if [ $status = 1 ]; then
            passed=$((passed + 1))
        else
            tail -n 30 "$log_dir/perf.log"
            fail "a planted error in $collective over $fabric is found (status $status instead of 1)"
        fi
    done
done

say "# $lines lines of tables checked"
total perf
