"""The backlog: files that are known to be there and not read yet, newest first.

The first pass over a home, or a giant file, must not keep anybody waiting: it is read beside
the turns that queries wait for, by worker processes where there is much of it.
"""

from __future__ import annotations

import logging
import os
from collections import Counter

import anyio
from anyio import CapacityLimiter, to_thread

from indexd import workers
from indexd.attending import FILE_BYTES, Task, attend, unread_bytes
from indexd.confine import exhausted
from indexd.finding import Found
from indexd.library import Library
from indexd.publishing import Publisher
from indexd.settling import Change, Fetch
from indexd.text import Profile
from indexd.workers import Worker, WorkerDied, WorkerUnusable

log = logging.getLogger(__name__)

# A backlog of more than this is read by worker processes, which cost a quarter of a second to
# start, in batches of about that size.
WORKER_BYTES = 16 * 1024 * 1024
BATCH_BYTES = 8 * 1024 * 1024
# A worker may also be killed by chance, or by whoever looks for memory to free.
DEATHS = 4
# Descriptors come back when somebody hangs up, and memory when an answer is out.
EXHAUSTED_PAUSE_SECONDS = 0.1


class Backlog:
    """Files waiting to be read, by session path; `turn` is held while anything is published.

    unread_bytes: how much of them was not read yet when they began to wait.
    """

    def __init__(
        self,
        library: Library,
        publisher: Publisher,
        fetch: Fetch,
        profile: Profile,
        turn: anyio.Lock,
    ) -> None:
        self._library, self._publisher, self._fetch = library, publisher, fetch
        self._profile, self._turn = profile, turn
        self._waiting: dict[str, Found] = {}
        self._unread: dict[str, int] = {}
        self.unread_bytes = 0
        self._reading: set[str] = set()
        self._usable = True
        self._deaths: Counter[str] = Counter()
        self._beside = CapacityLimiter(1)
        self._added, self._fewer = anyio.Event(), anyio.Event()

    def __contains__(self, path: str) -> bool:
        return path in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, files: list[Found]) -> None:
        """Let files wait; one that waits already waits in its newer form."""
        for found in files:
            path = found.candidate.path
            unread = unread_bytes(found.stamp, self._library.get(path))
            self.unread_bytes += unread - self._unread.get(path, 0)
            self._waiting[path], self._unread[path] = found, unread

    def remove(self, path: str) -> None:
        """Let a file wait no longer."""
        self._waiting.pop(path, None)
        self.unread_bytes -= self._unread.pop(path, 0)
        self._tell()

    def start(self) -> None:
        """Begin to read what waits."""
        if self._waiting:
            self._added.set()

    async def empty(self) -> None:
        """Return once nothing waits."""
        while self._waiting:
            await self._fewer.wait()

    async def run(self) -> None:
        """Read what waits, until cancelled."""
        while True:
            await self._added.wait()
            self._added = anyio.Event()
            while self._waiting:
                work = self.unread_bytes + FILE_BYTES * len(self._waiting)
                if self._usable and work > WORKER_BYTES:
                    await self._with_workers()
                for found in self._newest():
                    await self.read_beside(found)

    def _tell(self) -> None:
        self._fewer.set()
        self._fewer = anyio.Event()

    def _newest(self) -> list[Found]:
        waiting = [f for path, f in self._waiting.items() if path not in self._reading]
        return sorted(waiting, key=lambda found: found.stamp.mtime_ns, reverse=True)

    def _done(self, found: Found) -> None:
        """Take a file that was read out of the backlog, unless it has changed meanwhile."""
        if self._waiting.get(found.candidate.path) is found:
            self.remove(found.candidate.path)

    async def read_beside(self, found: Found, *, thorough: bool = False) -> None:
        """Read one file beside all else; it may change again, or go, while it is read."""
        path = found.candidate.path
        old = self._library.get(path)
        new_id = self._library.new_file_id()
        task = Task(found, old, new_id, self._profile, thorough, restore=True)
        try:
            change: Change | Exception = await to_thread.run_sync(
                attend, task, self._fetch, limiter=self._beside
            )
        except Exception as error:
            change = error
        if exhausted(change):
            await anyio.sleep(EXHAUSTED_PAUSE_SECONDS)
            return
        async with self._turn:
            missing = await to_thread.run_sync(_missing, [found])
            if self._library.get(path) is old and not missing:
                self._publisher.conclude(found, old, change)
            self._done(found)

    async def _with_workers(self) -> None:
        """Let worker processes read what was never read before, until none of it is left."""
        async with anyio.create_task_group() as tasks:
            for _ in range(workers.count()):
                tasks.start_soon(self._feed_a_worker)

    async def _feed_a_worker(self) -> None:
        async with Worker() as worker:
            while self._usable and (batch := self._next_batch()):
                paths = {found.candidate.path for found in batch}
                self._reading |= paths
                try:
                    await self._read_in(worker, batch)
                finally:
                    self._reading -= paths

    def _next_batch(self) -> list[Found]:
        """Return the newest files that were never read, enough to be worth a worker's while."""
        batch: list[Found] = []
        size = 0
        for found in self._newest():
            path = found.candidate.path
            if self._library.get(path) is not None or (batch and path in self._deaths):
                continue
            batch.append(found)
            size += found.stamp.size + FILE_BYTES
            if path in self._deaths or size > BATCH_BYTES:
                break
        return batch

    async def _read_in(self, worker: Worker, batch: list[Found]) -> None:
        tasks = [Task(f, None, self._library.new_file_id(), self._profile) for f in batch]
        try:
            answer = await worker.read(tasks)
        except WorkerDied as error:
            self._suspect_of(batch, error)
            return
        except WorkerUnusable as error:
            log.warning("reading without workers reason=%s", error)
            self._usable = False
            return
        async with self._turn:
            missing = await to_thread.run_sync(_missing, batch)
            fresh = [
                (found, read)
                for found, read in zip(batch, answer.reads, strict=True)
                if self._library.get(read.path) is None and read.path not in missing
            ]
            answer = answer._replace(reads=[read for _, read in fresh])
            self._publisher.conclude_batch([found for found, _ in fresh], answer)
            for found in batch:
                self._done(found)

    def _suspect_of(self, batch: list[Found], error: WorkerDied) -> None:
        """Read the files that a worker died of one by one; one that keeps killing is left out."""
        first = batch[0].candidate.path
        log.warning("worker died files=%d first=%r", len(batch), first)
        self._deaths.update(found.candidate.path for found in batch)
        if len(batch) == 1 and self._deaths[first] >= DEATHS:
            reason = f"left out until it changes: {error}"
            self._publisher.give_up(batch[0], reason, lasting=True)
            self._done(batch[0])


def _missing(batch: list[Found]) -> set[str]:
    """Return the session paths of those files that are not there any more."""
    return {f.candidate.path for f in batch if not os.path.lexists(f.candidate.data_path)}
