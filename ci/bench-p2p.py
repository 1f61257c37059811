#!/usr/bin/env python3
"""Measure `vervain p2p` against UCX and iperf3 on this host, interleaved, and say which figures are reached.

usage: ci/bench-p2p.py [--fabric shm|tcp]... [--pairs 5] [--sizes BYTES]... [--vervain FILE] [--raw FILE]

Needs ucx_perftest (`apt-get install ucx-utils`) and, for tcp, iperf3; Python's own library is enough.

Method: a round measures every line once with ours and with each peer, one right after the other, ours first in every other
round; both sides give each process a core of its own, cores 0 and 1. Latency is the median half round trip. A ratio is our
time over the peer's of the same round, or the peer's rate over ours: less than one is better for us in both. What counts is
the median of the ratios; "not worse" means at most 1.05. A virtual machine may have phases in which its cores share a cache
or do not: a round counts for the phase that it began and ended in, and every phase must pass.
"""
import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.common import KIB, MIB, human, limits, number, output, phase_of, processor

HERE = Path(__file__).resolve().parent
NOT_WORSE = 1.05
# Our bandwidth is at least 0.9 of iperf3's with as many sockets.
OF_IPERF3 = 1 / 0.9


@dataclass(frozen=True)
class Line:
    """One line of the table: what both sides measure at one size."""

    what: str
    peer: str
    size: int
    ours: tuple[str, ...]
    is_rate: bool
    must: float = NOT_WORSE
    sockets: int = 1


@dataclass
class Round:
    """Figures of one round, (ours, the peer's) for each line; microseconds, or 10^6 bytes per second."""

    phases: tuple[str, str]
    figures: dict[Line, tuple[float | None, float | None]]

    def phase(self) -> str | None:
        """The phase that the round began and ended in; None if it changed."""
        return self.phases[0] if self.phases[0] == self.phases[1] else None


def lines(fabric: str, sizes: list[int] | None) -> list[Line]:
    """Everything that is compared over one fabric. Messages above 4088 bytes are writes with an immediate."""
    known = []
    for size in [8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 1 * MIB, 4 * MIB]:
        known.append(Line("write, latency", "ucp_put_lat", size, ("write", "--latency"), is_rate=False))
    for size in [8, 64, 512, 2 * KIB, 4088]:
        known.append(Line("send, latency", "tag_lat", size, ("send", "--latency"), is_rate=False))
    for size in [16 * KIB, 64 * KIB, 1 * MIB, 4 * MIB]:
        known.append(Line("write with immediate, latency", "tag_lat", size, ("write", "--notify", "--latency"), is_rate=False))
    for size in [4 * KIB, 16 * KIB, 64 * KIB, 1 * MIB, 16 * MIB]:
        known.append(Line("write, bandwidth", "ucp_put_bw", size, ("write", "--bandwidth"), is_rate=True))
    if fabric == "tcp":
        for sockets in (1, 4):
            ours = ("write", "--bandwidth", "--sockets", str(sockets))
            known.append(Line(f"write, bandwidth, sockets: {sockets}", "iperf3", 1 * MIB, ours, True, OF_IPERF3, sockets))
    return [line for line in known if not sizes or line.size in sizes]


def main() -> None:
    options = parse()
    raw, missed = [], 0
    print(f"{platform.node()}, {processor()}, {time.strftime('%Y-%m-%d')}; vervain {options.vervain}\n")
    for fabric in options.fabric or ["shm", "tcp"]:
        compared = lines(fabric, options.sizes)
        rounds = run_rounds(fabric, compared, options)
        missed += report(fabric, compared, rounds)
        raw += [{"fabric": fabric, **as_json(each)} for each in rounds]
    if options.raw:
        Path(options.raw).write_text(json.dumps(raw, indent=1))
    sys.exit(1 if missed else 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", action="append", choices=["shm", "tcp"], help="default: both")
    parser.add_argument("--vervain", default=HERE.parent / "target/release/vervain", type=Path)
    parser.add_argument("--sizes", action="append", type=int, help="in bytes, of those that are compared")
    parser.add_argument("--pairs", default=5, type=int, help="rounds, at least, in the phase that has most")
    parser.add_argument("--seconds", default=1500, type=int, help="begin no round after this time")
    parser.add_argument("--raw", help="write all figures to this JSON file")
    return parser.parse_args()


# Measuring


def run_rounds(fabric: str, compared: list[Line], options: argparse.Namespace) -> list[Round]:
    """Rounds until one phase has enough of them."""
    rounds: list[Round] = []
    begin = time.monotonic()
    before = phase_of(limits(options.vervain, 2))
    while time.monotonic() - begin < options.seconds:
        phases = [each.phase() for each in rounds]
        if max((phases.count(phase) for phase in set(phases) - {None}), default=0) >= options.pairs:
            break
        figures = {line: pair(fabric, line, len(rounds) % 2 == 0, options) for line in compared}
        after = phase_of(limits(options.vervain, 2))
        rounds.append(Round((before, after), figures))
        before = after
        print(f"# {fabric}, round {len(rounds)}: {rounds[-1].phase() or 'the phase changed'}", file=sys.stderr)
    return rounds


def pair(fabric: str, line: Line, ours_first: bool, options: argparse.Namespace) -> tuple[float | None, float | None]:
    """Our figure and the peer's, measured one right after the other."""
    peer = iperf3 if line.peer == "iperf3" else ucx
    if ours_first:
        mine = ours(fabric, line, options.vervain)
        return mine, peer(fabric, line)
    theirs = peer(fabric, line)
    return ours(fabric, line, options.vervain), theirs


def ours(fabric: str, line: Line, vervain: Path) -> float | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        output([vervain, "p2p", *line.ours, "--fabric", fabric, "-b", line.size, "-e", line.size, "-c", 0, "-J", file])
        try:
            table = json.loads(file.read_text())
            return table["bandwidth"][0]["average_mb_per_second"] if line.is_rate else table["latency"][0]["p50_us"]
        except (OSError, ValueError, LookupError, TypeError):
            return None


def ucx(fabric: str, line: Line) -> float | None:
    """UCX counts bandwidth in 2^20 bytes."""
    tls = {"shm": "posix,self", "tcp": "tcp"}[fabric]
    environment = {"UCX_TLS": tls, "UCX_WARN_UNUSED_ENV_VARS": "n"} | ({"UCX_NET_DEVICES": "lo"} if fabric == "tcp" else {})
    count = next(count for largest, count in ((4 * KIB, 50000), (64 * KIB, 5000), (1 * MIB, 1000), (16 * MIB, 100)) if line.size <= largest)
    port = free_port()
    test = ["127.0.0.1", "-t", line.peer, "-s", line.size, "-n", count, "-w", count // 10, "-f"]
    printed = with_server(["ucx_perftest", "-p", port], port, ["ucx_perftest", "-p", port, *test], environment)
    if line.is_rate:
        rate = number(printed, 4)
        return rate and rate * MIB / 1e6
    return number(printed, 1)


def iperf3(_fabric: str, line: Line) -> float | None:
    """What was received, by as many sockets as ours."""
    port = free_port()
    client = ["iperf3", "-c", "127.0.0.1", "-p", port, "-P", line.sockets, "-t", 2, "-J"]
    printed = with_server(["iperf3", "-s", "-1", "-p", port], port, client, {})
    try:
        return json.loads(printed)["end"]["sum_received"]["bits_per_second"] / 8e6
    except (ValueError, LookupError):
        return None


def with_server(server: list, port: int, client: list, environment: dict) -> str:
    """What the client prints; each process has a core of its own, and the server ends with the client."""
    pinned = ["env", *(f"{name}={value}" for name, value in environment.items()), "taskset", "-c"]
    with subprocess.Popen([str(word) for word in [*pinned, 1, *server]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            wait_until_listening(port, child)
            return output([*pinned, 0, *client])
        finally:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(port: int, child: subprocess.Popen) -> None:
    """By the kernel's table: a connection to see it would be taken for the client's."""
    patience = time.monotonic() + 5
    while time.monotonic() < patience and child.poll() is None:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            if os.path.exists(table) and any(is_listening(row, port) for row in Path(table).read_text().splitlines()[1:]):
                return
        time.sleep(0.01)


def is_listening(row: str, port: int) -> bool:
    words = row.split()
    return words[3] == "0A" and words[1].endswith(f":{port:04X}")


# Judging


def report(fabric: str, compared: list[Line], rounds: list[Round]) -> int:
    """Print the table of one fabric; how many figures are not reached, for whatever reason."""
    phases = sorted({phase for phase in (each.phase() for each in rounds) if phase})
    missed = 0
    print(f"### {fabric}\n")
    print("| test | size | phase | pairs | ours | peer | ratio (least .. most) | must | |\n|---|---|---|---|---|---|---|---|---|")
    for line in compared:
        for phase in phases:
            counted = [each.figures[line] for each in rounds if each.phase() == phase]
            missed += not row(line, phase, [both for both in counted if None not in both])
    print()
    return missed + (not phases)


def row(line: Line, phase: str, pairs: list[tuple[float, float]]) -> bool:
    """Print one line; whether its figure is reached."""
    start = f"| {line.what} | {human(line.size)} | {phase} | {len(pairs)} |"
    if not pairs:
        print(f"{start} | {line.peer} | | {line.must:.2f} | not measured |")
        return False
    mine, theirs = (statistics.median(column) for column in zip(*pairs))
    ratios = [theirs / mine if line.is_rate else mine / theirs for mine, theirs in pairs]
    reached = statistics.median(ratios) <= line.must
    unit = "MB/s" if line.is_rate else "us"
    digits = 0 if line.is_rate else 2
    print(
        f"{start} {mine:.{digits}f} {unit} | {theirs:.{digits}f} {line.peer} | {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} .. {max(ratios):.2f}) | {line.must:.2f} | {'reached' if reached else 'MISSED'} |"
    )
    return reached


def as_json(each: Round) -> dict:
    figures = [
        {"test": line.what, "peer": line.peer, "bytes": line.size, "is_rate": line.is_rate, "ours": mine, "theirs": theirs}
        for line, (mine, theirs) in each.figures.items()
    ]
    return {"phase": each.phase(), "figures": figures}


if __name__ == "__main__":
    main()
