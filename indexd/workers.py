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

COMMAND = (sys.executable, "-m", "indexd.worker")


class WorkerDied(Exception):
    """Raised when a worker ended before it answered."""


def count() -> int:
    """Return how many workers this machine can use."""
    return max(1, min(4, os.cpu_count() or 1))


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
        """Return what came of the files; raises WorkerDied when one of them was too much."""
        if self._process is None:
            self._process = await anyio.open_process(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            await stdin.send(order(tasks))
            answer = BufferedByteReceiveStream(stdout)
            (length,) = HEADER.unpack(await answer.receive_exactly(HEADER.size))
            body = await answer.receive_exactly(length)
        except (anyio.BrokenResourceError, anyio.IncompleteRead, anyio.EndOfStream) as error:
            await self._end()
            raise WorkerDied(f"a worker ended while reading {len(tasks)} files") from error
        return await anyio.to_thread.run_sync(result, body)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.aclose()
