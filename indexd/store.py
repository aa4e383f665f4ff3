"""The disk cache: rows of bytes, written in transactions by one thread of ours.

A row that is damaged is a row that is not there. Whatever is wrong with the database as a whole,
at opening or later, its directory is set aside and an empty one begins: only time is lost. A full
disk turns writes into waiting ones: they are kept in memory, answered from there, and tried again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shutil
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from indexd.errors import Unavailable
from indexd.rows import DATABASE, Changes, Damaged, Rows, passes

log = logging.getLogger(__name__)
T = TypeVar("T")

# One transaction takes what waits, up to this much, so the write-ahead log stays small.
BATCH_BYTES = 64 * 1024 * 1024
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


class Store:
    """The rows of the cache, safe to use from any thread.

    A unit of changes given to `put` is written whole or not at all, and units are written in
    order. What waits to be written is already seen by `get` and `scan`.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.degraded: str | None = None
        self.notice: str | None = None
        self._rows: Rows | None = None
        self._waiting: deque[Changes] = deque()
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="indexd-store", daemon=True)

    def start(self) -> None:
        """Open the rows, setting aside what cannot be opened."""
        self._thread.start()
        self._call(self._open)

    def put(self, changes: Changes) -> None:
        """Write a unit of changes soon; a value of None removes its row."""
        with self._lock:
            self._waiting.append(dict(changes))
        self._calls.put(self._drain)

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value, or None; of a damaged row too."""
        with self._lock:
            for unit in reversed(self._waiting):
                if key in unit:
                    return unit[key]
        return self._call(lambda: self._read(lambda rows: rows.get(key), None))

    def scan(self, prefix: bytes) -> dict[bytes, bytes]:
        """Return all rows whose key begins with `prefix`, without damaged ones."""
        return self._call(lambda: self._scan(prefix))

    def flush(self) -> bool:
        """Try to write all that waits; return whether nothing waits any more."""
        self._call(self._drain_now)
        return not self._waiting

    def close(self) -> None:
        """Write what waits and close; later calls fail."""
        if self._thread.is_alive():
            self._call(self._drain_now)
            self._calls.put(None)
            self._thread.join()

    def alive(self) -> bool:
        """Say whether the writing thread runs."""
        return self._thread.is_alive()

    def _call(self, work: Callable[[], T]) -> T:
        if not self._thread.is_alive():
            raise Unavailable("the cache is closed", "the daemon is stopping; ask again")
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(run)
        return future.result()

    def _scan(self, prefix: bytes) -> dict[bytes, bytes]:
        # In the writing thread, so that nothing is written between the two looks.
        nothing: dict[bytes, bytes] = {}
        found = self._read(lambda rows: rows.scan(prefix), nothing)
        with self._lock:
            waiting = {key: value for unit in self._waiting for key, value in unit.items()}
        later = {key: value for key, value in waiting.items() if key.startswith(prefix)}
        return {key: value for key, value in (found | later).items() if value is not None}

    def _read(self, work: Callable[[Rows], T], nothing: T) -> T:
        if self._rows is None:
            return nothing
        try:
            return work(self._rows)
        except Exception as error:
            log.warning("cache not readable error=%r", error)
            if not passes(error):
                self._set_aside(error)
            return nothing

    def _run(self) -> None:
        while True:
            try:
                work = self._calls.get(timeout=self._pause())
            except queue.Empty:
                work = self._drain_now
            if work is None:
                break
            work()
        self._let_go()

    def _pause(self) -> float | None:
        if not self._failures:
            return None
        return RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS)) - 1]

    def _open(self) -> None:
        try:
            self._rows = Rows(self.directory)
        except Exception as error:  # Any trouble at all means: rebuild.
            self._set_aside(error)

    def _set_aside(self, error: Exception) -> None:
        self._let_go()
        log.warning("cache unusable, rebuilding error=%r", error)
        self.notice = f"the cache was unusable and is being rebuilt: {error}"
        aside = f"{self.directory}.corrupt"
        try:
            shutil.rmtree(aside, ignore_errors=True)
            if os.path.lexists(self.directory):
                os.rename(self.directory, aside)
            self._rows = Rows(self.directory)
        except Exception as second:  # No cache at all: everything works from memory.
            self._fail(second)

    def _drain(self) -> None:
        # While the disk refuses, only the pause decides when to try again.
        if not self._failures:
            self._drain_now()

    def _drain_now(self) -> None:
        while self._waiting:
            batch = self._batch()
            try:
                if self._rows is None or self._rows.lost():
                    self._reopen()
                assert self._rows is not None
                self._rows.write(batch)
            except Exception as error:
                if not passes(error):
                    self._set_aside(error)
                self._fail(error)
                return
            with self._lock:
                for _ in batch:
                    self._waiting.popleft()
        if self._failures:
            log.info("cache writable again")
        self._failures, self.degraded = 0, None

    def _reopen(self) -> None:
        if self._rows is not None:
            self._let_go()
            self.notice = "the cache was removed while in use; it fills again as files change"
            log.warning("cache removed while in use")
        if os.path.lexists(os.path.join(self.directory, DATABASE)):
            # Whoever put it there counts files otherwise than we do.
            raise Damaged("another database is in the cache's place")
        self._rows = Rows(self.directory)

    def _let_go(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            with contextlib.suppress(sqlite3.Error):
                rows.close()

    def _batch(self) -> list[Changes]:
        with self._lock:
            batch: list[Changes] = []
            size = 0
            for unit in self._waiting:
                size += _size(unit)
                if batch and size > BATCH_BYTES:
                    break
                batch.append(unit)
            return batch

    def _fail(self, error: Exception) -> None:
        if not self._failures:
            log.warning("cache not writable, keeping changes in memory error=%r", error)
        self._failures += 1
        self.degraded = f"cache_write_failed: {error} (since {time.strftime('%H:%M:%S')})"


def _size(unit: Changes) -> int:
    return sum(len(value) for value in unit.values() if value is not None)
