"""The daemon with the smallest engine there can be, steered by files in its cache directory.

`hold`: starting waits until it is gone. `sick`: not healthy. `refuse`, `broken`: a reload that
is refused, or fails. `crash`: the engine fails after the next status. `hang`: closing hangs in a
thread. It leaves `closed` behind when it was closed.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskStatus

from indexd import config, sandbox
from indexd.config import Settings
from indexd.daemon import main
from indexd.errors import BadRequest
from indexd.requests import Request, Search, Status
from indexd.server import Method


class TinyEngine:
    """Counts, waits and fails as told."""

    def __init__(self, settings: Settings) -> None:
        self.socket = settings.socket
        self.steering = Path(settings.cache_dir)
        self.reloads = 0
        self.crash = anyio.Event()

    def methods(self) -> Mapping[str, Method]:
        return {
            "status": Method(self.status, Status),
            "search": Method(self.search, Search),
            "sync": Method(self.sync, Request),
        }

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        while self.told("hold"):  # noqa: ASYNC110 - a file, not an event
            await anyio.sleep(0.01)
        task_status.started()
        await self.crash.wait()
        raise RuntimeError("the engine broke down")

    async def status(self, request: Status) -> Mapping[str, Any]:
        if self.told("crash"):
            self.crash.set()
        return {
            "pid": os.getpid(),
            "socket": self.socket,
            "reloads": self.reloads,
            "sandbox": sandbox.probe(os.environ["HOME"]),
        }

    async def search(self, request: Search) -> Mapping[str, Any]:
        return {"hits": [], "total": 0}

    async def sync(self, request: Request) -> Mapping[str, Any]:
        (self.steering / "waiting").touch()
        await anyio.sleep(0.2)
        return {}

    def healthy(self) -> bool:
        return not self.told("sick")

    def status_text(self) -> str:
        return f"{self.reloads} reloads"

    async def reload(self) -> None:
        if self.told("refuse"):
            raise BadRequest("limit 0 is too low", "raise it")
        if self.told("broken"):
            raise RuntimeError("reading failed")
        self.reloads += 1

    async def close(self) -> None:
        if self.told("hang"):
            await anyio.to_thread.run_sync(time.sleep, 60)
        (self.steering / "closed").touch()

    def told(self, what: str) -> bool:
        return (self.steering / what).exists()


if __name__ == "__main__":
    sys.exit(main(load=functools.partial(config.load, formats=()), build=TinyEngine))
