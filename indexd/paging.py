"""Snapshots that first pages were taken from, so that the pages after them fit."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from indexd.index import Snapshot

# A snapshot holds what would otherwise be let go, so few are kept, and not for long.
KEPT = 4
SECONDS = 120.0


class _Kept(NamedTuple):
    snapshot: Snapshot
    until: float


class Pages:
    """Keeps the last few snapshots that somebody may want another page of."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot from now on for SECONDS, unless KEPT others come after it."""
        self._kept.pop(snapshot.generation, None)
        self._kept[snapshot.generation] = _Kept(snapshot, time.monotonic() + SECONDS)
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        asyncio.get_running_loop().call_later(SECONDS + 1, self._let_go)

    def get(self, generation: int) -> Snapshot | None:
        """Return the snapshot of a generation, if it is kept."""
        kept = self._kept.get(generation)
        return None if kept is None else kept.snapshot

    def _let_go(self) -> None:
        now = time.monotonic()
        self._kept = {g: kept for g, kept in self._kept.items() if kept.until > now}
