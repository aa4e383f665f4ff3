"""The rows of the cache as they lie on disk: one database, one connection, one thread.

diskcache is used so that it cannot lose or run anything: nothing is evicted, expired, pickled or
spilled into files; one connection lives in one thread (SQLite before 3.51.3 can lose pages when
two connections checkpoint at once); every value carries its length's CRC. What is not as it was
written is told from trouble that may pass.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import zlib
from collections.abc import Mapping
from typing import Any

import diskcache

log = logging.getLogger(__name__)
Changes = Mapping[bytes, bytes | None]

DATABASE = diskcache.core.DBNAME
SCHEMA = b"1"
# SQLite copies a value whole; pieces of this size bound that copy.
PIECE_BYTES = 4 * 1024 * 1024
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
# What SQLite says when the disk is full, slow or gone for a moment: the rows themselves are fine.
_PASSING = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
    }
)


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


class _Cache(diskcache.Cache):  # type: ignore[misc]
    """The library's cache, but that its database belongs to this connection alone.

    So SQLite keeps the index of its write-ahead log in memory. It would else map a file, and
    whoever cuts that file short would end this process. It must be said before the first read.
    """

    @property
    def _con(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "con", None)
        if connection is None:
            connection = sqlite3.connect(
                os.path.join(self.directory, DATABASE),
                timeout=self.timeout,
                isolation_level=None,
            )
            self._local.con = connection
            connection.execute("PRAGMA locking_mode = exclusive").fetchall()
            for name, value in _SETTINGS.items():
                if name.startswith("sqlite_"):
                    self.reset(name, value, update=False)
        return connection


class Rows:
    """The rows on disk; every method is called in the thread that opened it.

    Opening and every method raise sqlite3.Error, OSError or Damaged, for `passes` to judge.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self.path = os.path.join(directory, DATABASE)
        self.cache = _Cache(directory, timeout=2, disk=BytesDisk, **_SETTINGS)
        self.inode = os.stat(self.path).st_ino
        try:
            self._check_schema()
        except BaseException:
            self.cache.close()
            raise

    def _check_schema(self) -> None:
        known = self.get(_META)
        if known is None:
            self.write([{_META: SCHEMA}])
        elif known != SCHEMA:
            raise Damaged(f"schema {known!r} instead of {SCHEMA!r}")

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value, or None; of a damaged row too."""
        try:
            framed = self.cache.get(key)
            return None if framed is None else self._join(key, _unframe(framed))
        except Damaged as error:
            log.warning("row damaged, taken as lost key=%r error=%s", key, error)
            return None

    def scan(self, prefix: bytes) -> dict[bytes, bytes]:
        """Return all rows whose key begins with `prefix`, without damaged ones."""
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
        """Write all units or none; a value of None removes its row."""
        with self.cache.transact(retry=False):
            for unit in units:
                for key, value in unit.items():
                    self._write_one(key, value)

    def _write_one(self, key: bytes, value: bytes | None) -> None:
        pieces = self._piece_count(key)
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

    def _piece_count(self, key: bytes) -> int:
        try:
            framed = self.cache.get(key)
            return 0 if framed is None or framed[:1] != b"n" else int(_unframe(framed)[1])
        except Damaged:
            return 0

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
        """Close the database."""
        self.cache.close()


def passes(error: Exception) -> bool:
    """Say whether trouble with the rows may pass by itself, and leaves them as they are."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _PASSING
    return isinstance(error, OSError | MemoryError | diskcache.Timeout)


def _frame(form: bytes, value: bytes) -> bytes:
    return form + zlib.crc32(value).to_bytes(4, "big") + value


def _unframe(framed: bytes) -> tuple[bytes, bytes]:
    form, value = framed[:1], framed[5:]
    if form not in (b"v", b"n") or zlib.crc32(value) != int.from_bytes(framed[1:5], "big"):
        raise Damaged("a row fails its checksum")
    return form, value


def _piece_key(key: bytes, number: int) -> bytes:
    return key + b"\x00piece%d" % number
