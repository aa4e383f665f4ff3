"""Connects to the MCP servers of a configuration and tells what they offer, as events.

Runs in a process of its own, never in the daemon. A server that cannot be reached is told as
`disconnected`, so that what is known of it stays, marked offline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import anyio
import anyio.to_thread

from indexd.errors import IndexdError
from indexd.mcp_config import ServerSpec
from indexd.mcp_connection import Connection, Failed, connected

PARALLEL = 4
RETRY_FIRST_S = 1.0
RETRY_MOST_S = 60.0

Event = dict[str, Any]
Sink = Callable[[Event], object]
Talk = Callable[[str, "Outcome"], None]


class Outcome(NamedTuple):
    """What became of one server: `connected`, `skipped` or `failed`, and why."""

    server: str
    client: str
    path: str
    state: str
    tools: int = 0
    reason: str = ""
    seconds: float = 0.0


async def sync(
    specs: Sequence[ServerSpec], sink: Sink, talk: Talk, *, watch: bool = False
) -> list[Outcome]:
    """Connect to every server of `specs`, hand `sink` an event for each, and `talk` a line and
    its outcome.

    `sink` is called in a worker thread, one call at a time. With `watch` the connections stay
    open, changes are told as they come, lost servers are tried again, and nothing returns
    until cancelled. Returns an outcome per server, in the order of `specs`.
    """
    # The SDK logs whole lines that it cannot read; they are a stranger's, and may hold secrets.
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    run = _Run(sink, talk, len(specs), watch)
    outcomes: dict[int, Outcome] = {}

    async def settle(position: int, spec: ServerSpec) -> None:
        outcomes[position] = await run.serve(spec)

    async with anyio.create_task_group() as group:
        for position, spec in enumerate(specs):
            group.start_soon(settle, position, spec)
    return [outcomes[position] for position in range(len(specs))]


class _Run:
    """One call of `sync`: how many are done, and who may connect or send."""

    def __init__(self, sink: Sink, talk: Talk, total: int, watch: bool) -> None:
        self._sink = sink
        self._talk = talk
        self._total = total
        self._watch = watch
        self._done = 0
        self._connecting = anyio.Semaphore(PARALLEL)
        self._sending = anyio.CapacityLimiter(1)

    async def serve(self, spec: ServerSpec) -> Outcome:
        """Connect to one server, and with `watch` again and again."""
        if spec.skip:
            return self._report(_outcome(spec, "skipped", reason=spec.skip))
        outcome = await self._once(spec)
        delay = RETRY_FIRST_S
        while self._watch and outcome.state != "skipped":
            if outcome.state == "connected":
                delay = RETRY_FIRST_S
            await anyio.sleep(delay)
            delay = min(delay * 2, RETRY_MOST_S)
            outcome = await self._once(spec)
        return outcome

    async def _once(self, spec: ServerSpec) -> Outcome:
        visit = _Visit(self, spec)
        await self._connecting.acquire()
        try:
            await connected(spec, visit.use)
        except Failed as failure:
            return await self._lost(visit, failure)
        finally:
            visit.leave()
        if self._watch:
            return await self._lost(visit, Failed("the connection was lost"))
        return self._report(visit.outcome())

    async def _lost(self, visit: _Visit, failure: Failed) -> Outcome:
        spec = visit.spec
        state = "skipped" if failure.sign_in else "failed"
        outcome = _outcome(spec, state, reason=failure.reason, seconds=visit.seconds())
        try:
            await self.send({"event": "disconnected", "server": spec.name})
        except IndexdError as error:
            outcome = outcome._replace(reason=f"{failure.reason}; {error.message}")
        self._report(outcome)
        return visit.outcome() if visit.met else outcome

    async def send(self, event: Event) -> None:
        """Hand one event to the sink."""
        await anyio.to_thread.run_sync(self._sink, event, limiter=self._sending)

    def let_next_connect(self) -> None:
        """Make room for another server to connect."""
        self._connecting.release()

    def report_met(self, outcome: Outcome) -> None:
        """Say that a server to be watched is there, or has changed."""
        self._report(outcome)

    def watches(self) -> bool:
        """Say whether connections stay open."""
        return self._watch

    def _report(self, outcome: Outcome) -> Outcome:
        self._done = min(self._done + 1, self._total)
        if outcome.state == "connected":
            what = f"{outcome.tools} tools ({outcome.seconds:.1f} s)"
        else:
            what = f"{outcome.state}: {outcome.reason}"
        self._talk(f"[{self._done}/{self._total}] {outcome.server}: {what}", outcome)
        return outcome


class _Visit:
    """One connection to one server: holds its place among those connecting until it is met."""

    def __init__(self, run: _Run, spec: ServerSpec) -> None:
        self._run = run
        self.spec = spec
        self.met = False
        self._connecting = True
        self._tools = 0
        self._started = time.monotonic()
        self._seconds = 0.0

    async def use(self, connection: Connection) -> None:
        """Tell of the server, and with `watch` of every change."""
        await self._tell("connected", connection)
        self.met = True
        self.leave()
        if not self._run.watches():
            return
        self._run.report_met(self.outcome())

        async def tell() -> None:
            await self._tell("tools_changed", connection)
            self._run.report_met(self.outcome())

        await connection.follow(tell)

    def leave(self) -> None:
        """Give up the place among those connecting, once."""
        if self._connecting:
            self._connecting = False
            self._run.let_next_connect()

    def seconds(self) -> float:
        """Return how long it took to meet the server, or has taken so far."""
        return self._seconds or time.monotonic() - self._started

    def outcome(self) -> Outcome:
        """Return the outcome of a server that was met."""
        return _outcome(self.spec, "connected", self._tools, seconds=self.seconds())

    async def _tell(self, kind: str, connection: Connection) -> None:
        event: Event = {"event": kind, "server": self.spec.name, "tools": connection.tools}
        if connection.instructions:
            event["instructions"] = connection.instructions
        self._tools = len(connection.tools)
        self._seconds = self.seconds()
        await self._run.send(event)


def _outcome(
    spec: ServerSpec, state: str, tools: int = 0, reason: str = "", seconds: float = 0.0
) -> Outcome:
    return Outcome(spec.name, spec.client, spec.path, state, tools, reason, round(seconds, 3))
