"""Snapshots that first pages were taken from, so that the pages after them fit."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from indexd.index import Snapshot

# A snapshot holds what would otherwise be let go, so few are kept, and not for long.
KEPT = 4
SECONDS = 120.0


class Page(NamedTuple):
    """What a page was taken from, and the time (unix ms) that ages were counted from."""

    snapshot: Snapshot
    now_ms: int


class _Kept(NamedTuple):
    page: Page
    until: float


class Pages:
    """Keeps the last few snapshots that somebody may want another page of."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def keep(self, page: Page) -> None:
        """Keep a page's snapshot from now on for SECONDS, unless KEPT others come after it."""
        generation = page.snapshot.generation
        self._kept.pop(generation, None)
        self._kept[generation] = _Kept(page, time.monotonic() + SECONDS)
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        asyncio.get_running_loop().call_later(SECONDS + 1, self._let_go)

    def get(self, generation: int) -> Page | None:
        """Return what pages of a generation are taken from, if it is kept."""
        kept = self._kept.get(generation)
        return None if kept is None else kept.page

    def _let_go(self) -> None:
        now = time.monotonic()
        self._kept = {g: kept for g, kept in self._kept.items() if kept.until > now}
