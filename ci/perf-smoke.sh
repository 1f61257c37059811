#!/usr/bin/env bash
# Run every collective with real processes and check its data: 1, 2, 3, 4, 7 and 8 ranks, every type and operation, over shared
# memory and over sockets, both in place and not; before that every kind of transfer between two processes, in a few seconds.
# Also plant a wrong element and expect the exit status to say so.
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

# transfers STATUS ARGUMENTS...: the run of p2p ends with this status.
transfers() {
    local expected=$1 status
    shift
    timeout --kill-after=5 60 "$vervain" p2p "$@" -n 50 -w 5 </dev/null >"$log_dir/perf.log" 2>&1
    status=$?
    lines=$((lines + $(grep -c '^ [0-9]' "$log_dir/perf.log")))
    if [ "$status" = "$expected" ]; then
        passed=$((passed + 1))
    else
        tail -n 30 "$log_dir/perf.log"
        fail "status $status instead of $expected: vervain p2p $*"
    fi
}

for fabric in shm tcp; do
    transfers 0 write --fabric "$fabric" --sizes 0,1,8,63,64,65,4K,64K,1000001
    transfers 0 read --fabric "$fabric" --sizes 0,1,8,63,64,65,4K,64K,1000001
    transfers 0 send --fabric "$fabric" --sizes 0,1,8,4087,4088
    transfers 0 atomic --fabric "$fabric"
    transfers 0 write --fabric "$fabric" --sizes 1,64,4K --bidirectional --batch 16
    transfers 0 write --fabric "$fabric" --sizes 0,8,4K --notify
    transfers 0 write --fabric "$fabric" --sizes 1,64,65 --inline
    transfers 0 write --fabric "$fabric" --sizes 4K,64K --paged 512:1K
    for test in write read send atomic; do transfers 1 "$test" --fabric "$fabric" -b 8 --inject-error; done
done

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
