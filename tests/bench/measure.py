"""Time, memory and tables: what every benchmark here needs. Import it before indexd."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# A checkout need not be installed to be measured.
CHECKOUT = str(Path(__file__).resolve().parents[2])
if CHECKOUT not in sys.path:
    sys.path.insert(0, CHECKOUT)

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    """Return the middle of `values`."""
    return quantile(values, 0.5)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive `values`."""
    return math.exp(sum(map(math.log, values)) / len(values))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table that can be pasted into a Markdown page."""
    cells = [list(map(str, header)), *(list(map(_shown, row)) for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _shown(value: object) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


@contextmanager
def workplace(directory: str | None) -> Iterator[str]:
    """Yield the given directory, or one that is gone afterwards; its path is short."""
    if directory is not None:
        os.makedirs(directory, exist_ok=True)
        os.chmod(directory, 0o700)
        yield os.path.abspath(directory)
        return
    with tempfile.TemporaryDirectory(prefix="ix", ignore_cleanup_errors=True) as temporary:
        yield temporary


def rss_mb(pid: int | str = "self") -> float:
    """Return the resident memory of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


def cpu_seconds(pid: int | str = "self") -> float:
    """Return the user and system time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        children = [
            int(child)
            for task in tasks
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        ]
    except OSError:
        return []
    return [*children, *(below for child in children for below in descendants(child))]


def tree_cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and everything below it, ended or not."""
    total = 0.0
    for one in (pid, *descendants(pid)):
        try:
            total += cpu_seconds(one)
        except OSError:
            continue
    return total


def tree_rss_mb(pid: int) -> float:
    """Return the resident memory of a process and everything below it, in MB."""
    total = 0.0
    for one in (pid, *descendants(pid)):
        try:
            total += rss_mb(one)
        except OSError:
            continue
    return total


def directory_mb(path: str) -> float:
    """Return what the files below a directory take on disk, in MB."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            total += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return total / 1e6


def load() -> str:
    """Return how many processes wanted to run in the last minute; figures are for a quiet one."""
    return f"{os.getloadavg()[0]:.1f}"
