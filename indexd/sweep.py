"""Which files changed by what stat says: the truth that the watcher's hints only hurry along.

A sweep costs an lstat per file and opens none. `Schedule` says when the next is due; its clock
is an argument, in seconds, and should go on while the machine sleeps (CLOCK_BOOTTIME), so that
waking up is a reason to sweep.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from indexd.tail import Stamp

# A file whose events were lost is noticed within a minute; with 10,000 files a sweep each
# minute is 0.1 % of a core, hence the longer steps while nothing is found.
FULL_SECONDS = 60.0
FULL_SECONDS_AT_MOST = 300.0
RECENT_SECONDS = 5.0
RECENT_NS = 3600 * 1_000_000_000


def stamp_of(path: str) -> Stamp | None:
    """Return the stamp of what is at `path`, links not followed; None if nothing can be seen."""
    try:
        return Stamp.of(os.lstat(path))
    except OSError:
        return None


def sweep(previous: Mapping[str, Stamp], candidates: Iterable[str]) -> set[str]:
    """Return the candidates that are new, gone, or not as their previous stamp says.

    A full sweep's candidates are all known paths and all discovered ones.
    """
    return {path for path in candidates if stamp_of(path) != previous.get(path)}


def recent(stamps: Mapping[str, Stamp], now_ns: int) -> list[str]:
    """Return the paths modified in the hour before `now_ns`, or after it (clocks are set)."""
    return [path for path, stamp in stamps.items() if now_ns - stamp.mtime_ns < RECENT_NS]


class Schedule(NamedTuple):
    """When to sweep: all files, and where only polling helps the recently modified ones.

    full_at, recent_at: when each is due. interval: seconds between full sweeps at present.
    """

    full_at: float
    recent_at: float
    interval: float

    @classmethod
    def starting(cls, now: float) -> Self:
        """Return the schedule of a start: a full sweep is due at once."""
        return cls(now, now + RECENT_SECONDS, FULL_SECONDS / 2)

    def wait(self, now: float, *, polling: bool) -> float:
        """Return the seconds until something is due; `polling`: some root has no events."""
        return max(0.0, (min(self.full_at, self.recent_at) if polling else self.full_at) - now)

    def after_full(self, now: float, *, found: bool) -> Schedule:
        """Return the schedule after a full sweep, which `found` what no event had told, or not."""
        interval = FULL_SECONDS if found else min(2 * self.interval, FULL_SECONDS_AT_MOST)
        return Schedule(now + interval, now + RECENT_SECONDS, interval)

    def after_recent(self, now: float) -> Schedule:
        """Return the schedule after a sweep of the recently modified files."""
        return self._replace(recent_at=now + RECENT_SECONDS)
