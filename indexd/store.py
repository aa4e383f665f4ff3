"""The disk cache as the daemon uses it: rows written in transactions by one thread of ours.

One connection lives in one thread (SQLite before 3.51.3 can lose pages when two connections
checkpoint at once). A damaged row is as good as none. Where the database itself is damaged,
foreign or gone, its directory is set aside and an empty one begins: only time is lost. A full
disk turns writes into waiting ones: they are kept in memory, answered from there, and tried again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from indexd.errors import Unavailable
from indexd.rows import Changes, Damaged, Rows, check, temporary

log = logging.getLogger(__name__)
T = TypeVar("T")

# One transaction takes what waits, up to this much, so the write-ahead log stays small.
BATCH_BYTES = 64 * 1024 * 1024
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


class Store:
    """The rows of the cache, safe to use from any thread.

    A unit of changes given to `put` is written whole or not at all, and units are written in
    order. What waits to be written is already seen by `get` and `scan`.

    degraded: why nothing can be written now. notice: why rows were lost, if any were; losses: how
    often that has happened to rows in use.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.degraded: str | None = None
        self.notice: str | None = None
        self.losses = 0
        self._rows: Rows | None = None
        # Guards what waits, and that nothing more is asked for after the end.
        self._lock = threading.Lock()
        self._waiting: deque[Changes] = deque()
        self._open, self._opened = False, threading.Event()
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._failures, self._retry_at = 0, 0.0
        # Whether there are rows that could not be opened for now.
        self._unopened = False
        self._thread = threading.Thread(target=self._run, name="indexd-store", daemon=True)

    def start(self) -> None:
        """Open the rows, setting aside what is damaged; what cannot be opened for now is kept."""
        self._open = True
        self._thread.start()
        self._opened.wait()

    def put(self, changes: Changes) -> None:
        """Write a unit of changes soon; a value of None removes its row.

        Raises Unavailable when the store is not open.
        """
        check(changes)
        with self._lock:
            self._must_be_open()
            self._waiting.append(dict(changes))
            self._calls.put(self._drain)

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value; None when there is none, or it is damaged.

        Raises Unavailable when the store is not open.
        """
        with self._lock:
            for unit in reversed(self._waiting):
                if key in unit:
                    return unit[key]
        return self._call(lambda: self._read(lambda rows: rows.get(key), None))

    def scan(self, prefix: bytes) -> dict[bytes, bytes]:
        """Return all rows whose key begins with `prefix`, without damaged ones.

        Raises Unavailable when the store is not open.
        """
        return self._call(lambda: self._scan(prefix))

    def give_back(self) -> None:
        """Let the file shrink to what it holds, bit by bit, between other work."""
        with self._lock:
            self._must_be_open()
            self._calls.put(self._give_back)

    def flush(self) -> bool:
        """Try to write all that waits; return whether nothing waits any more."""
        self._call(self._drain_now)
        return not self._waiting

    def close(self) -> None:
        """Write what waits and close; later calls raise Unavailable."""
        with self._lock:
            if self._open:
                self._open = False
                self._calls.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def alive(self) -> bool:
        """Say whether the writing thread runs."""
        return self._thread.is_alive()

    def _must_be_open(self) -> None:
        if not self._open:
            raise Unavailable("the cache is closed", "the daemon is stopping; ask again")

    def _call(self, work: Callable[[], T]) -> T:
        """Return what `work` returns in the thread of the rows."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            self._must_be_open()
            self._calls.put(run)
        return future.result()

    # The rest runs in the thread of the rows.

    def _run(self) -> None:
        try:
            self._rows = Rows(self.directory)
        except Exception as error:
            if temporary(error):
                self._unopened = True
                self._fail(error)
            else:
                self._rebuild(f"the cache was unusable and is being rebuilt: {_reason(error)}")
        self._opened.set()
        while (work := self._next()) is not None:
            work()
        # What could not be opened is worth more to the next start than a part of it, read anew.
        if not self._unopened:
            self._drain_now()
        self._close_rows()

    def _next(self) -> Callable[[], object] | None:
        """Return what to do next, None at the end; a retry that is due goes before all else."""
        if not self._failures:
            return self._calls.get()
        pause = self._retry_at - time.monotonic()
        with contextlib.suppress(queue.Empty):
            if pause > 0:
                return self._calls.get(timeout=pause)
        return self._drain_now

    def _scan(self, prefix: bytes) -> dict[bytes, bytes]:
        # In the thread that writes, nothing goes from what waits to the rows in between.
        nothing: dict[bytes, bytes] = {}
        found = self._read(lambda rows: rows.scan(prefix), nothing)
        with self._lock:
            for unit in self._waiting:
                for key, value in unit.items():
                    if value is None:
                        found.pop(key, None)
                    elif key.startswith(prefix):
                        found[key] = value
        return found

    def _read(self, read: Callable[[Rows], T], nothing: T) -> T:
        """Return what is read, or `nothing` where it is damaged."""
        if self._rows is None:
            return nothing
        try:
            return read(self._rows)
        except Damaged as error:
            log.warning("row damaged, taken for missing error=%s", error)
        except Exception as error:
            log.warning("cache not readable error=%r", error)
            if not temporary(error):
                self._rebuild(f"the cache was damaged and is being rebuilt: {_reason(error)}")
        return nothing

    def _give_back(self) -> None:
        if not self._failures and self._read(lambda rows: rows.give_back(), False):
            self._calls.put(self._give_back)

    def _drain(self) -> None:
        # While the disk refuses, only the pause decides when to try again.
        if not self._failures:
            self._drain_now()

    def _drain_now(self) -> None:
        try:
            if self._rows is None:
                self._begin_anew()
            while batch := self._batch():
                self._write(batch)
        except Exception as error:
            self._fail(error)
            if not temporary(error):
                self._rebuild(f"the cache was damaged and is being rebuilt: {_reason(error)}")
            return
        if self._failures:
            log.info("cache writable again")
        self._failures, self.degraded = 0, None

    def _write(self, batch: list[Changes]) -> None:
        if self._rows is None or self._rows.lost():
            self.notice = "the cache was removed while in use; it is being filled again"
            log.warning("cache removed while in use")
            self._begin_anew()
        assert self._rows is not None
        self._rows.write(batch)
        with self._lock:
            for _ in batch:
                self._waiting.popleft()

    def _batch(self) -> list[Changes]:
        with self._lock:
            batch: list[Changes] = []
            size = 0
            for unit in self._waiting:
                size += sum(len(value) for value in unit.values() if value is not None)
                if batch and size > BATCH_BYTES:
                    break
                batch.append(unit)
            return batch

    def _fail(self, error: Exception) -> None:
        """Note that nothing can be written now, and when to try again."""
        if not self._failures:
            log.warning("cache not writable, keeping changes in memory error=%r", error)
        self._retry_at = (
            time.monotonic() + RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        )
        self._failures += 1
        self.degraded = f"cache_write_failed: {_reason(error)} (since {time.strftime('%H:%M:%S')})"
        # For days of waiting, only the last value of each row is kept.
        with self._lock:
            merged: dict[bytes, bytes | None] = {}
            while self._waiting:
                merged |= self._waiting.popleft()
            if merged:
                self._waiting.append(merged)

    def _rebuild(self, notice: str) -> None:
        """Begin anew, because of what `notice` says."""
        log.warning("%s", notice)
        self.notice = notice
        try:
            self._begin_anew()
        except Exception as error:  # No cache at all: everything works from memory.
            self._fail(error)

    def _begin_anew(self) -> None:
        """Set aside what is there and open empty rows. Raises what opening raises.

        Rows that could not be opened at the start are of no use later: files were read without
        them, under numbers that they may use for others.
        """
        if self._rows is not None:
            self.losses += 1
        self._close_rows()
        aside = set_aside(self.directory)
        if os.path.lexists(self.directory):
            _remove(aside)
            os.rename(self.directory, aside)
        self._rows = Rows(self.directory)
        self._unopened = False

    def _close_rows(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            with contextlib.suppress(Exception):  # What is damaged may not even close.
                rows.close()


def set_aside(directory: str) -> str:
    """Return where the rows of `directory` are put when they cannot be used."""
    return f"{directory}.corrupt"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
