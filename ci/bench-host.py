#!/usr/bin/env python3
"""Measure `vervain perf all_reduce` against its peers on this host, interleaved, and say which figures are reached.

usage: ci/bench-host.py --peers DIR [--experiment NAME]... [--ranks N]... [--pairs 5] [--vervain FILE] [--raw FILE]

Experiments: shm (against the better of Open MPI and MPICH at each size), crowded (the same with more ranks than cores),
gloo (against gloo through PyTorch, small sizes), tcp (our sockets against gloo's), start (seconds from the command to the end
of one operation of 8 processes, above starting 8 empty ones). Default: shm and start, and crowded on a machine of few cores. DIR is what `ci/bench-mpi.sh fetch DIR` and `ci/bench-mpi.sh build DIR` made; to measure on a machine without network,
copy DIR/wheels and the binary there, and run `ci/bench-mpi.sh build DIR` there. Python's own library is enough.

Method: a round measures every size once with ours and with each peer, one right after the other, in an order that turns with
each round. A ratio is our median over the better peer's of the same round; what counts is the median of the ratios. Before
and after each round `vervain perf --limits` measures a cache line's way from core to core. A virtual machine may have phases in
which its cores share a cache or do not; a round counts for the phase that it began and ended in, and every phase must pass.
A figure is reached at its ratio, or at 1.25 times the bound of the same run, whichever is looser. The bound is
S / (one core's copy rate at that size while all ranks copy) + 2 one-way times of a cache line.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.common import KIB, MIB, human, limits, number, one_way_us, output, phase_of, processor

HERE = Path(__file__).resolve().parent
LARGE = [8, 1 * KIB, 4 * KIB, 64 * KIB, 1 * MIB, 16 * MIB, 256 * MIB]

# What must be reached: (largest size in bytes, ratio), in ascending order.
PLAIN = [(4 * KIB, 0.65), (64 * KIB, 0.75), (1 * MIB, 0.9), (16 * MIB, 0.85), (256 * MIB, 0.55)]
REGISTERED = [(4 * KIB, 0.5), (64 * KIB, 0.2), (1 * MIB, 0.35), (16 * MIB, 0.5), (256 * MIB, 0.35)]

# Most that the start of 8 ranks may take above that of 8 empty processes.
START_SECONDS = 0.5
# Looser than the ratio where the machine itself is the limit.
OF_THE_BOUND = 1.25


@dataclass
class Experiment:
    """One comparison: who, over what, at which sizes, and what must come out."""

    name: str
    fabric: str
    ranks: list[int]
    sizes: list[int]
    peers: list[str]
    musts: dict[str, list[tuple[int, float]]]
    bounded: bool = True


@dataclass
class Round:
    """Medians in microseconds of one round, by (contender, size), and the limits around it."""

    before: dict
    after: dict = field(default_factory=dict)
    times: dict = field(default_factory=dict)

    def phase(self) -> str | None:
        """The phase that the round began and ended in; None if it changed."""
        begin, end = (phase_of(limits) for limits in (self.before, self.after))
        return begin if begin == end else None


def experiments(cores: int) -> dict[str, Experiment]:
    mpi = ["openmpi", "mpich"]
    return {
        "shm": Experiment("shm", "shm", [n for n in (2, 4, 8) if n <= cores], LARGE, mpi, {"plain": PLAIN, "registered": REGISTERED}),
        "crowded": Experiment("crowded", "shm", [8], [64 * KIB], mpi, {"plain": [(64 * KIB, 1.5)]}, bounded=False),
        "gloo": Experiment("gloo", "shm", [8], [8, 1 * KIB, 4 * KIB, 64 * KIB], ["gloo"], {"plain": [(64 * KIB, 0.03)]}),
        "tcp": Experiment("tcp", "tcp", [2], LARGE, ["gloo"], {"plain": [(256 * MIB, 0.5)]}, bounded=False),
    }


def main() -> None:
    options = parse()
    cores = len(os.sched_getaffinity(0))
    known = experiments(cores)
    names = options.experiment or ["shm", "start"] + (["crowded"] if cores < 8 else [])
    raw, missed = [], 0
    print(f"{platform.node()}, {processor()}, {cores} cores, {time.strftime('%Y-%m-%d')}; vervain {options.vervain}\n")
    for name in names:
        if name == "start":
            missed += not start_is_quick(options)
            continue
        for ranks in options.ranks or known[name].ranks:
            rounds = run_rounds(known[name], ranks, options)
            missed += report(known[name], ranks, rounds)
            raw += [{"experiment": name, "ranks": ranks, **as_json(each)} for each in rounds]
    if options.raw:
        Path(options.raw).write_text(json.dumps(raw, indent=1))
    sys.exit(1 if missed else 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True, type=Path, help="folder made by ci/bench-mpi.sh")
    parser.add_argument("--vervain", default=HERE.parent / "target/release/vervain", type=Path)
    parser.add_argument("--experiment", action="append", choices=[*experiments(2), "start"])
    parser.add_argument("--ranks", action="append", type=int, help="instead of the experiment's own")
    parser.add_argument("--sizes", action="append", type=int, help="in bytes, instead of the experiment's own")
    parser.add_argument("--pairs", default=5, type=int, help="rounds, at least, in the phase that has most")
    parser.add_argument("--seconds", default=1500, type=int, help="begin no round after this time")
    parser.add_argument("--raw", help="write all medians to this JSON file")
    return parser.parse_args()


# Measuring


def run_rounds(experiment: Experiment, ranks: int, options: argparse.Namespace) -> list[Round]:
    """Rounds until one phase has enough of them."""
    rounds: list[Round] = []
    begin = time.monotonic()
    while time.monotonic() - begin < options.seconds:
        phases = [each.phase() for each in rounds]
        if max((phases.count(phase) for phase in set(phases) - {None}), default=0) >= options.pairs:
            break
        each = Round(limits(options.vervain, ranks))
        for size in options.sizes or experiment.sizes:
            for contender in in_turn(experiment, len(rounds)):
                each.times[contender, size] = measure(contender, experiment, ranks, size, options)
        each.after = limits(options.vervain, ranks)
        rounds.append(each)
        print(f"# {experiment.name}, {ranks} ranks, round {len(rounds)}: {each.phase() or 'the phase changed'}", file=sys.stderr)
    return rounds


def in_turn(experiment: Experiment, turn: int) -> list[str]:
    """All contenders, ours and theirs alternating, begun by another one in each round."""
    ours, theirs = list(experiment.musts), list(experiment.peers)
    mixed = [name for pair in zip(ours, theirs) for name in pair] + ours[len(theirs):] + theirs[len(ours):]
    turn %= len(mixed)
    return mixed[turn:] + mixed[:turn]


def measure(contender: str, experiment: Experiment, ranks: int, size: int, options: argparse.Namespace) -> float | None:
    """The median in microseconds; None if the contender is not there or failed."""
    if contender in experiment.musts:
        return ours(contender, experiment.fabric, ranks, size, options.vervain)
    if contender == "gloo":
        command = [sys.executable, HERE / "bench/gloo.py", ranks, size]
    else:
        command = [HERE / "bench-mpi.sh", "run", options.peers, contender, ranks, size]
    return number(output(command), 1)


def ours(buffers: str, fabric: str, ranks: int, size: int, vervain: Path) -> float | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        command = [vervain, "perf", "all_reduce", "--ranks", ranks, "--fabric", fabric, "-b", size, "-e", size, "--out-of-place"]
        command += ["--per-iteration", "-n", iterations(size, ranks), "-w", 5, "-J", file]
        output(command + (["--registered"] if buffers == "registered" else []))
        try:
            return float(json.loads(file.read_text())["results"][0]["out_of_place"]["time"])
        except (OSError, ValueError, LookupError, TypeError):
            return None


def iterations(size: int, ranks: int) -> int:
    """About as many as the peers' benchmarks take within their second."""
    if ranks > len(os.sched_getaffinity(0)):
        return 200
    for largest, count in ((64 * KIB, 1000), (1 * MIB, 200), (16 * MIB, 30)):
        if size <= largest:
            return count
    return 7


# Judging


def bound_us(limits: dict, size: int) -> float:
    """S over the copy rate at the next larger measured size with all cores busy, and two ways of a cache line."""
    rates = limits["copy_rate"]
    busiest = max(rate["cores"] for rate in rates)
    usable = sorted((rate["bytes"], rate["gigabytes_per_second"]) for rate in rates if rate["cores"] == busiest)
    rate = next((rate for bytes_, rate in usable if bytes_ >= size), usable[-1][1])
    return size / (rate * 1e3) + 2 * one_way_us(limits)


def must_at(musts: list[tuple[int, float]], size: int) -> float:
    return next((ratio for largest, ratio in musts if size <= largest), musts[-1][1])


def report(experiment: Experiment, ranks: int, rounds: list[Round]) -> int:
    """Print the table of one experiment; how many figures are not reached, for whatever reason."""
    missed = 0
    print(f"### {experiment.name}: all_reduce f32, {ranks} ranks, {experiment.fabric}, against {' and '.join(experiment.peers)}\n")
    print("| buffers | size | phase | pairs | ours us | peer us | ratio (least .. most) | must | bound us | ours / bound | |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    phases = sorted({phase for phase in (each.phase() for each in rounds) if phase})
    sizes = sorted({size for each in rounds for _, size in each.times})
    for buffers, musts in experiment.musts.items():
        for size in sizes:
            for phase in phases:
                counted = [each for each in rounds if each.phase() == phase]
                missed += not row(experiment, buffers, must_at(musts, size), size, phase, counted)
    print()
    return missed + (not phases)


def row(experiment: Experiment, buffers: str, must: float, size: int, phase: str, rounds: list[Round]) -> bool:
    """Print one line; whether its figure is reached."""
    pairs = []
    for each in rounds:
        theirs = [(each.times.get((peer, size)), peer) for peer in experiment.peers]
        theirs = [known for known in theirs if known[0] is not None]
        mine = each.times.get((buffers, size))
        if mine is not None and theirs:
            bound = statistics.mean([bound_us(each.before, size), bound_us(each.after, size)])
            pairs.append((mine, *min(theirs), bound))
    if not pairs:
        print(f"| {buffers} | {human(size)} | {phase} | 0 | | | | {must} | | | not measured |")
        return False
    mine, theirs, bound = (statistics.median(column) for column in ([pair[i] for pair in pairs] for i in (0, 1, 3)))
    ratios = [pair[0] / pair[1] for pair in pairs]
    ratio = statistics.median(ratios)
    of_bound = statistics.median(pair[0] / pair[3] for pair in pairs)
    reached = ratio <= must or (experiment.bounded and of_bound <= OF_THE_BOUND)
    best = statistics.mode(pair[2] for pair in pairs)
    limit = f"{bound:.2f} | {of_bound:.2f}" if experiment.bounded else "- | -"
    print(
        f"| {buffers} | {human(size)} | {phase} | {len(pairs)} | {mine:.2f} | {theirs:.2f} {best} "
        f"| {ratio:.2f} ({min(ratios):.2f} .. {max(ratios):.2f}) | {must} | {limit} | {'reached' if reached else 'MISSED'} |"
    )
    return reached


def start_is_quick(options: argparse.Namespace) -> bool:
    """Print what 8 ranks take from the command to the end of one operation, in turn with 8 empty processes."""
    command = [options.vervain, "perf", "all_reduce", "--ranks", 8, "-b", 8, "-e", 8, "-n", 1, "-w", 0]
    ours, empty = [], []
    for _ in range(options.pairs):
        begin = time.perf_counter()
        if not output(command):
            print("### start: not measured\n")
            return False
        middle = time.perf_counter()
        for child in [subprocess.Popen([str(options.vervain), "--version"], stdout=subprocess.DEVNULL) for _ in range(8)]:
            child.wait()
        ours.append(middle - begin)
        empty.append(time.perf_counter() - middle)
    above = statistics.median(mine - theirs for mine, theirs in zip(ours, empty))
    print("### start: 8 ranks on this host, from the command to the end of one operation\n")
    print("| pairs | ours s | 8 empty processes s | above s | must | |\n|---|---|---|---|---|---|")
    verdict = "reached" if above <= START_SECONDS else "MISSED"
    mine, theirs = statistics.median(ours), statistics.median(empty)
    print(f"| {len(ours)} | {mine:.3f} | {theirs:.3f} | {above:.3f} | {START_SECONDS} | {verdict} |\n")
    return above <= START_SECONDS


def as_json(each: Round) -> dict:
    times = [{"contender": contender, "bytes": size, "median_us": value} for (contender, size), value in each.times.items()]
    return {"phase": each.phase(), "one_way_us": [one_way_us(each.before), one_way_us(each.after)], "times": times}


if __name__ == "__main__":
    main()
