"""When to sweep: to compare all files with what is known, the truth that events only hurry along.

A sweep costs an lstat per file and opens none. The clock is an argument, in seconds, and should
go on while the machine sleeps (CLOCK_BOOTTIME), so that waking up is a reason to sweep.
"""

from __future__ import annotations

from typing import NamedTuple, Self

# A file whose events were lost is noticed within a minute; with 10,000 files a sweep each
# minute is 0.1 % of a core, hence the longer steps while nothing is found.
FULL_SECONDS = 60.0
FULL_SECONDS_AT_MOST = 300.0
# Where there are no events, this is how long an append may go unnoticed.
POLL_SECONDS = 5.0


class Schedule(NamedTuple):
    """When to sweep every root, and when those that have no events.

    full_at, poll_at: when each is due. interval: seconds between full sweeps at present.
    """

    full_at: float
    poll_at: float
    interval: float

    @classmethod
    def starting(cls, now: float) -> Self:
        """Return the schedule of a start: a full sweep is due at once."""
        return cls(now, now + POLL_SECONDS, FULL_SECONDS / 2)

    def wait(self, now: float, *, polling: bool) -> float:
        """Return the seconds until something is due; `polling`: some root has no events."""
        return max(0.0, (min(self.full_at, self.poll_at) if polling else self.full_at) - now)

    def after_full(self, now: float, *, found: bool) -> Schedule:
        """Return the schedule after a full sweep, which `found` what no event had told, or not."""
        interval = FULL_SECONDS if found else min(2 * self.interval, FULL_SECONDS_AT_MOST)
        return Schedule(now + interval, now + POLL_SECONDS, interval)

    def after_poll(self, now: float) -> Schedule:
        """Return the schedule after a sweep of the roots that have no events."""
        return self._replace(poll_at=now + POLL_SECONDS)
