"""The daemon with the smallest engine there can be, steered by files in its cache directory.

`hold`: starting waits until it is gone. `sick`: not healthy. `refuse`, `broken`: a reload that
is refused, or fails. `crash`: the engine fails after the next status. `hang`: closing hangs in a
thread. `stuck`: a part of the engine waits for a thread that hangs. It leaves `closed` behind when
it was closed.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskStatus

from indexd import config, sandbox
from indexd.config import Settings
from indexd.confine import resolve, resolve_by_openat2, resolve_by_walk
from indexd.daemon import main
from indexd.errors import BadRequest
from indexd.requests import Reindex, Request, Search, Status
from indexd.server import Method
from indexd.vital import Vital
from tests import path_table

CLONE_NEWUSER = 0x10000000


def unshare(flags: int) -> None:
    """Leave namespaces behind, as os.unshare does from Python 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")


def attempt(action: Callable[[], object]) -> str:
    """Return the name of the errno that `action` fails with, or `done`."""
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


class TinyEngine:
    """Counts, waits and fails as told."""

    def __init__(self, settings: Settings) -> None:
        self.socket = settings.socket
        self.steering = Path(settings.cache_dir)
        self.reloads = 0
        self.crash = anyio.Event()
        self.vital = Vital()

    def methods(self) -> Mapping[str, Method]:
        return {
            "status": Method(self.status, Status),
            "search": Method(self.search, Search),
            "sync": Method(self.sync, Request),
            "paths": Method(self.paths, Reindex),
            "attempts": Method(self.attempts, Request),
        }

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        while self.told("hold"):  # noqa: ASYNC110 - a file, not an event
            await anyio.sleep(0.01)
        async with anyio.create_task_group() as tasks:
            if self.told("stuck"):
                tasks.start_soon(anyio.to_thread.run_sync, time.sleep, 60)
            tasks.start_soon(self.vital.part(self._until_crash))
            task_status.started()

    async def _until_crash(self) -> None:
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

    async def paths(self, request: Reindex) -> Mapping[str, Any]:
        """Check the table of hostile paths from in here, each way of resolving them."""
        base = Path(str(request.path))
        ways = (resolve, resolve_by_openat2, resolve_by_walk)
        return {"wrong": [line for way in ways for line in path_table.verdicts(base, way)]}

    async def attempts(self, request: Request) -> Mapping[str, Any]:
        """Try what a daemon that was taken over would try; each answers an errno's name."""
        home = Path(os.environ["HOME"])
        return {
            "write_home": attempt(lambda: (home / "mark").touch()),
            "write_config": attempt(lambda: (home / ".config" / "mark").touch()),
            "write_cache": attempt(lambda: (self.steering / "mark").touch()),
            "inet": attempt(lambda: socket.socket(socket.AF_INET).close()),
            "write_execute": attempt(
                lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC).close()
            ),
            "user_namespace": attempt(lambda: unshare(CLONE_NEWUSER)),
            "device": attempt(lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY))),
        }

    def healthy(self) -> bool:
        return not self.told("sick")

    def failed(self) -> bool:
        return self.vital.failed

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
