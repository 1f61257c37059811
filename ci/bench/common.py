"""What the comparisons of this folder have in common: commands and their figures, a machine's phases, words for a table."""
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20

# One-way times of a cache line below this mean that the cores share a cache.
SHARED_CACHE_US = 0.1


def limits(vervain: Path, ranks: int) -> dict:
    """What the machine allows at this moment."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "limits.json")
        cores = min(ranks, len(os.sched_getaffinity(0)))
        output([vervain, "perf", "--limits", "--ranks", cores, "-J", file])
        try:
            return json.loads(file.read_text())
        except (OSError, ValueError):
            sys.exit(f"{vervain} perf --limits -J does not work here")


def one_way_us(limits: dict) -> float:
    return float((limits.get("cache_line_one_way_us") or {}).get("median", 0.0))


def phase_of(limits: dict) -> str:
    return "fast" if one_way_us(limits) < SHARED_CACHE_US else "slow"


def output(command: list) -> str:
    """Standard output; what went wrong goes to standard error, and the run goes on without the figure."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"# {words[0]}: {error}", file=sys.stderr)
        return ""
    if done.returncode not in (0, 77):
        print(f"# {' '.join(words)}: status {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
        return ""
    return done.stdout


def number(text: str, word: int) -> float | None:
    """A word of the last line as a number."""
    try:
        return float(text.splitlines()[-1].split()[word])
    except (IndexError, ValueError):
        return None


def human(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
