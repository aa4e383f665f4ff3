"""Parts that nothing goes on without: when one fails, that is known at once.

The tasks beside it are ended first, and one that waits for a thread cannot be: the failure itself
may come out late, or never.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Vital:
    """Knows whether one of the parts that it was given has `failed`."""

    def __init__(self) -> None:
        self.failed = False

    def part(self, run: Callable[[], Awaitable[None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return what runs a part, and raises what it raises."""

        async def watched() -> None:
            try:
                await run()
            except Exception:
                self.failed = True
                log.exception("a part failed that nothing goes on without")
                raise

        return watched
