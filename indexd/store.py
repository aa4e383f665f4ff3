"""The disk cache: rows of bytes, written in transactions by one thread of ours.

diskcache is used so that it cannot lose or run anything: nothing is evicted, expired, pickled or
spilled into files; one connection lives in one thread (SQLite before 3.51.3 can lose pages when
two connections checkpoint at once); every value carries its CRC, and a row that fails it is a row
that is not there. Whatever is wrong with the database as a whole, at opening or later, its
directory is set aside and an empty one begins: only time is lost. A full disk turns writes into
waiting ones: they are kept in memory, answered from there, and tried again.
"""

from __future__ import annotations

import logging
import os
import queue
import shutil
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import diskcache

from indexd.errors import Unavailable

log = logging.getLogger(__name__)
T = TypeVar("T")
Changes = Mapping[bytes, bytes | None]

SCHEMA = b"1"
# SQLite copies a value whole; pieces of this size bound that copy.
PIECE_BYTES = 4 * 1024 * 1024
# One transaction takes what waits, up to this much, so the write-ahead log stays small.
BATCH_BYTES = 64 * 1024 * 1024
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
_SETTINGS = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "size_limit": 2**62,
    "statistics": 0,
    "tag_index": 0,
    "disk_min_file_size": 2**62,
    "sqlite_auto_vacuum": 0,
    "sqlite_mmap_size": 0,
    "sqlite_cache_size": 1024,
    "sqlite_synchronous": 1,
    "sqlite_journal_mode": "wal",
    "sqlite_journal_size_limit": 64 * 1024 * 1024,
}
_META = b"\x00schema"


class Damaged(Exception):
    """Raised when a row is not what was written."""


class BytesDisk(diskcache.Disk):  # type: ignore[misc]
    """Rows of plain bytes and nothing else: no pickle in either direction, no files."""

    def put(self, key: Any) -> tuple[Any, bool]:
        """Return the stored form of a key."""
        if type(key) is not bytes:
            raise TypeError(f"a key is bytes, not {type(key).__name__}")
        return sqlite3.Binary(key), True

    def get(self, key: Any, raw: Any) -> bytes:
        """Return the key of its stored form; raises Damaged for anything not ours."""
        if not raw or type(key) is not bytes:
            raise Damaged("a key that was not written by indexd")
        return key

    def store(self, value: Any, read: bool, key: Any = None) -> tuple[int, int, None, Any]:
        """Return the stored form of a value: raw, inline."""
        if type(value) is not bytes or read:
            raise TypeError(f"a value is bytes, not {type(value).__name__}")
        return 0, diskcache.core.MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: Any, filename: Any, value: Any, read: bool) -> bytes:
        """Return the value of its stored form; raises Damaged for anything not ours."""
        if mode != diskcache.core.MODE_RAW or filename is not None or type(value) is not bytes:
            raise Damaged("a value that was not written by indexd")
        return value


class _Rows:
    """The rows on disk; every method is called in the thread that opened it."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self.path = os.path.join(directory, "cache.db")
        self.cache = diskcache.Cache(directory, timeout=2, disk=BytesDisk, **_SETTINGS)
        self.inode = os.stat(self.path).st_ino

    def get(self, key: bytes) -> bytes | None:
        framed = self.cache.get(key)
        if framed is None:
            return None
        try:
            return self._join(key, _unframe(framed))
        except Damaged as error:
            log.warning("row damaged, taken as lost key=%r error=%s", key, error)
            return None

    def scan(self, prefix: bytes) -> dict[bytes, bytes]:
        # Iterating through diskcache's own interface asks one query per row.
        rows = self.cache._sql(
            "SELECT key, raw, mode, filename, value FROM Cache WHERE key >= ? AND key < ?"
            " ORDER BY key",
            (sqlite3.Binary(prefix), sqlite3.Binary(prefix + b"\xff")),
        )
        disk, found = self.cache.disk, {}
        for key, raw, mode, filename, value in rows.fetchall():
            try:
                name = disk.get(key, raw)
                if b"\x00piece" not in name:
                    framed = disk.fetch(mode, filename, value, False)
                    found[name] = self._join(name, _unframe(framed))
            except Damaged as error:
                log.warning("row damaged, taken as lost key=%r error=%s", key, error)
        return found

    def write(self, units: list[Changes]) -> None:
        with self.cache.transact(retry=False):
            for unit in units:
                for key, value in unit.items():
                    self._write_one(key, value)

    def _write_one(self, key: bytes, value: bytes | None) -> None:
        old = self.cache.get(key)
        pieces = _piece_count(old)
        for number in range(pieces):
            self.cache.delete(_piece_key(key, number), retry=False)
        if value is None:
            self.cache.delete(key, retry=False)
        elif len(value) <= PIECE_BYTES:
            self.cache.set(key, _frame(b"v", value), retry=False)
        else:
            cuts = range(0, len(value), PIECE_BYTES)
            for number, at in enumerate(cuts):
                piece = _frame(b"v", value[at : at + PIECE_BYTES])
                self.cache.set(_piece_key(key, number), piece, retry=False)
            self.cache.set(key, _frame(b"n", b"%d" % len(cuts)), retry=False)

    def _join(self, key: bytes, framed: tuple[bytes, bytes]) -> bytes:
        form, value = framed
        if form == b"v":
            return value
        pieces = [self.cache.get(_piece_key(key, number)) for number in range(int(value))]
        if None in pieces:
            raise Damaged(f"row {key!r} lacks a piece")
        return b"".join(_unframe(piece)[1] for piece in pieces)

    def lost(self) -> bool:
        """Say whether the database was removed or replaced under us."""
        try:
            return os.stat(self.path).st_ino != self.inode
        except OSError:
            return True

    def close(self) -> None:
        self.cache.close()


class Store:
    """The rows of the cache, safe to use from any thread.

    A unit of changes given to `put` is written whole or not at all, and units are written in
    order. What waits to be written is already seen by `get` and `scan`.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.degraded: str | None = None
        self.notice: str | None = None
        self._rows: _Rows | None = None
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

    def _read(self, work: Callable[[_Rows], T], nothing: T) -> T:
        if self._rows is None:
            return nothing
        try:
            return work(self._rows)
        except sqlite3.DatabaseError as error:
            if not _malformed(error):
                raise
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
        if self._rows is not None:
            self._rows.close()

    def _pause(self) -> float | None:
        if not self._failures:
            return None
        return RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS)) - 1]

    def _open(self) -> None:
        try:
            self._rows = _Rows(self.directory)
            self._check_schema(self._rows)
        except Exception as error:  # Any trouble at all means: rebuild.
            self._set_aside(error)

    def _check_schema(self, rows: _Rows) -> None:
        known = rows.get(_META)
        if known is None:
            rows.write([{_META: SCHEMA}])
        elif known != SCHEMA:
            raise Damaged(f"schema {known!r} instead of {SCHEMA!r}")

    def _set_aside(self, error: Exception) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        log.warning("cache unusable, rebuilding error=%r", error)
        self.notice = f"the cache was unusable and is being rebuilt: {error}"
        aside = f"{self.directory}.corrupt"
        try:
            shutil.rmtree(aside, ignore_errors=True)
            if os.path.lexists(self.directory):
                os.rename(self.directory, aside)
            self._rows = _Rows(self.directory)
            self._check_schema(self._rows)
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
                if _malformed(error):
                    self._set_aside(error)
                    continue
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
            self._rows.close()
            self._rows = None
            self.notice = "the cache was removed while in use; it fills again as files change"
            log.warning("cache removed while in use")
        self._rows = _Rows(self.directory)
        self._check_schema(self._rows)

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


def _malformed(error: Exception) -> bool:
    """Say whether the database itself is broken; its subclasses mean a lock, a disk, a misuse."""
    return type(error) is sqlite3.DatabaseError


def _frame(form: bytes, value: bytes) -> bytes:
    return form + zlib.crc32(value).to_bytes(4, "big") + value


def _unframe(framed: bytes) -> tuple[bytes, bytes]:
    form, value = framed[:1], framed[5:]
    if form not in (b"v", b"n") or zlib.crc32(value) != int.from_bytes(framed[1:5], "big"):
        raise Damaged("a row fails its checksum")
    return form, value


def _piece_key(key: bytes, number: int) -> bytes:
    return key + b"\x00piece%d" % number


def _piece_count(framed: bytes | None) -> int:
    if framed is None or framed[:1] != b"n":
        return 0
    try:
        return int(_unframe(framed)[1])
    except Damaged:
        return 0


def _size(unit: Changes) -> int:
    return sum(len(value) for value in unit.values() if value is not None)
