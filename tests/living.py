"""A real engine on real files, driven from ordinary test code."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from indexd.config import Analysis, Settings
from indexd.engine import Engine
from indexd.requests import convert
from indexd.roots import Root


def settings(
    home: str, cache: str, *, roots: tuple[Root, ...] = (), profile: str = "code"
) -> Settings:
    """Return settings with one root `home`/sessions, or the given ones."""
    return Settings(
        config_file=os.path.join(home, "config.toml"),
        socket=os.path.join(cache, "socket"),
        cache_dir=cache,
        state_dir=os.path.join(cache, "state"),
        roots=roots or (Root(os.path.join(home, "sessions")),),
        analysis=Analysis(profile),
    )


class Living:
    """A running engine; methods are called as the socket would call them."""

    def __init__(self, portal: BlockingPortal, engine: Engine) -> None:
        self._portal, self.engine = portal, engine
        self._methods = engine.methods()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return what a method answers; raises what it raises."""
        served = self._methods[method]
        return dict(self._portal.call(served.call, convert(params, served.request)))

    def settled(self) -> Living:
        """Wait until every file has been read."""
        self._portal.call(self._settle)
        return self

    def write_base(self) -> None:
        """Write the base as the daemon does once the index rests."""
        self.call("sync")
        self._portal.call(self.engine.indexer.upkeep.write_base)

    def follow(self, roots: Sequence[Root]) -> None:
        """Follow other roots, as after a change of the configuration."""
        self._portal.call(self.engine.indexer.changed_roots, roots)

    def give_up_after(self, seconds: float) -> None:
        """Ask for what was written, and do not wait longer than `seconds`."""
        self._portal.call(self._give_up_after, seconds)

    def sweep_later(self) -> None:
        """Sweep as the daemon does once the files have rested for long."""
        self._portal.call(self.engine.indexer.sweep, time.time_ns() + 10**10)

    def sweep_finds_news(self) -> bool:
        """Sweep, and say whether there was anything to look at."""
        return self._portal.call(self.engine.indexer.sweep, time.time_ns() + 10**10)

    async def _give_up_after(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.engine.indexer.catch_up()

    async def _settle(self) -> None:
        await self._methods["sync"].call(convert({}, self._methods["sync"].request))
        await self.engine.worked_off()


@contextmanager
def living(of: Settings) -> Iterator[Living]:
    """Run an engine until the block ends; then close it as the daemon does."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        engine = portal.call(_made, of)
        stack.callback(portal.call, engine.close)
        running = stack.enter_context(portal.wrap_async_context_manager(_Running(engine)))
        assert running is engine
        yield Living(portal, engine)


async def _made(of: Settings) -> Engine:
    return Engine(of, lambda: of)


class _Running:
    """An engine's `run` as a context."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def __aenter__(self) -> Engine:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        await self._tasks.start(self._engine.run)
        return self._engine

    async def __aexit__(self, *exc: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
