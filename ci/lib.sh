# Shared by the scripts of this folder: sections with totals, skips by name, time limits.
#
# A runner is a command whose output holds lines of cargo's tests ("test result: ..."), or that ends with a line
# "NAME: N passed, N failed, N skipped". What a runner skips it names in lines "skipped: NAME (reason)".

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
log_dir=${CARGO_TARGET_DIR:-target}/ci
passed=0 failed=0 skipped=0
failures=()

say() {
    printf '%s\n' "$*"
}

heading() {
    printf '\n=== %s\n' "$*"
}

pass() {
    passed=$((passed + 1))
    say "passed: $*"
}

fail() {
    failed=$((failed + 1))
    failures+=("$*")
    say "failed: $*"
}

skip() {
    skipped=$((skipped + 1))
    say "skipped: $1 ($2)"
}

# total NAME: the closing line of a runner; fails when something failed, or when nothing ran.
total() {
    printf '%s: %d passed, %d failed, %d skipped\n' "$1" "$passed" "$failed" "$skipped"
    [ "$failed" = 0 ] && [ $((passed + skipped)) != 0 ]
}

# section NAME SECONDS COMMAND...: run a runner and add what it counted. One that counts nothing is one check.
section() {
    local name=$1 limit=$2 status begin=$SECONDS log
    shift 2
    log=$log_dir/${name// /-}.log
    heading "$name"
    timeout --kill-after=20 "$limit" "$@" </dev/null >"$log" 2>&1
    status=$?
    show "$log" "$status"
    add_counts "$name" "$log" "$status"
    say "$name: $((SECONDS - begin)) s, $counted$([ "$status" = 124 ] && echo ", stopped at its limit of $limit s")"
}

# What a reader wants of a log: what failed and the end when it failed, the results otherwise.
show() {
    if [ "$2" != 0 ]; then
        tail -n 200 "$1"
        failed_tests "$1" | while read -r name; do
            say "--- failed: $name"
            output_of "$1" "$name" | head -n 60
        done
    else
        grep -E '^(test result|skipped:|passed:|failed:|#|[a-z-]+: [0-9]+ passed)|Running |Doc-tests' "$1" | head -n 200 || true
    fi
}

# The names of cargo's tests that failed.
failed_tests() {
    sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$1" | head -n 20
}

# What one of cargo's tests printed.
output_of() {
    awk -v begin="---- $2 stdout ----" '/^---- .* stdout ----$|^(successes|failures):$/ { shown = 0 } $0 == begin { shown = 1 } shown' "$1"
}

add_counts() {
    local name=$1 log=$2 status=$3 p=0 f=0 s=0
    if grep -qE '^[a-z-]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log"; then
        read -r p f s < <(grep -E '^[a-z-]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1 | tr -cd '0-9 ')
    elif grep -q '^test result:' "$log"; then
        read -r p f s < <(awk '/^test result:/ { p += $4; f += $6; s += $8 } END { print p, f, s }' "$log")
        s=$((s + $(grep -c '^skipped: ' "$log")))
    elif [ "$status" = 0 ]; then
        p=1
    fi
    # a runner that failed without counting it, or that ran nothing
    [ "$status" = 0 ] && [ $((p + f + s)) != 0 ] || [ "$f" != 0 ] || f=1
    [ "$f" = 0 ] || failures+=("$name$(failed_tests "$log" | sed 's/^/: /' | paste -sd '' -)")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    counted="$p passed, $f failed, $s skipped"
}

# Debian's compiler with std's source, and the newest clang that has a sanitizer runtime: sets tsan_clang.
tsan_toolchain() {
    tsan_clang=""
    [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] || return 1
    [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/std" ] || return 1
    local clang
    for clang in $(ls /usr/bin | sed -n 's/^clang-\([0-9]*\)$/\1/p' | sort -rn); do
        if [ -e "$("clang-$clang" -print-file-name=libclang_rt.tsan-x86_64.a 2>/dev/null)" ] \
            || ls "$("clang-$clang" -print-resource-dir)"/lib/*/libclang_rt.tsan* >/dev/null 2>&1; then
            tsan_clang=$clang
            return 0
        fi
    done
    return 1
}
