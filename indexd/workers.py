"""The daemon's side of its worker processes: started for a backlog, gone when it is read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from indexd.attending import Task
from indexd.worker import HEADER, Batch, order, result

ENDED = (anyio.BrokenResourceError, anyio.IncompleteRead, anyio.EndOfStream)
COMMAND = (sys.executable, "-m", "indexd.worker")


class WorkerDied(Exception):
    """Raised when a worker ended before it answered."""


def count() -> int:
    """Return how many workers this machine can use."""
    return max(1, min(4, os.cpu_count() or 1))


class WorkerUnusable(Exception):
    """Raised when a worker does not even start here."""


class Worker:
    """One worker process, as an asynchronous context; restarted when it has died."""

    def __init__(self) -> None:
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._end()

    async def read(self, tasks: Sequence[Task]) -> Batch:
        """Return what came of the files.

        Raises WorkerDied when one of them was too much, WorkerUnusable when none starts here.
        """
        if self._process is None:
            await self._start()
        try:
            await self._stdin.send(order(tasks))
            body = await self._receive()
        except ENDED as error:
            await self._end()
            raise WorkerDied(f"a worker ended while reading {len(tasks)} files") from error
        return await anyio.to_thread.run_sync(result, body)

    async def _start(self) -> None:
        try:
            self._process = await anyio.open_process(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None
            )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._stdin = self._process.stdin
            self._stdout = BufferedByteReceiveStream(self._process.stdout)
            await self._receive()
        except (OSError, *ENDED) as error:
            await self._end()
            raise WorkerUnusable(f"no worker process starts here: {error}") from error

    async def _receive(self) -> bytes:
        (length,) = HEADER.unpack(await self._stdout.receive_exactly(HEADER.size))
        return await self._stdout.receive_exactly(length) if length else b""

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.aclose()
