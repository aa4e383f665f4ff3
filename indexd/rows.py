"""The rows of the disk cache: bytes by key, in one SQLite file that diskcache keeps.

diskcache is used so that it cannot lose or run anything: nothing is evicted, expired, pickled or
spilled into files. Every value carries a CRC of its key and itself, since a damaged index can
lead to another's row. A database that is not just as we make them is refused.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from operator import lt
from typing import Any

import diskcache

log = logging.getLogger(__name__)
Changes = Mapping[bytes, bytes | None]

SCHEMA = b"3"
# SQLite copies a value whole; pieces of this size bound that copy.
PIECE_BYTES = 4 * 1024 * 1024
# Pages that are returned at a time, so that a read waits some milliseconds for it.
GIVEN_BACK_PAGES = 1000
_SETTINGS = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "size_limit": 2**62,
    "statistics": 0,
    "tag_index": 0,
    "disk_min_file_size": 2**62,
    "sqlite_auto_vacuum": 2,
    "sqlite_mmap_size": 0,
    "sqlite_cache_size": 1024,
    "sqlite_synchronous": 1,
    "sqlite_journal_mode": "wal",
    "sqlite_journal_size_limit": 1024 * 1024,
}
_SETTING_NAMES = {*diskcache.core.DEFAULT_SETTINGS, *diskcache.core.METADATA, *_SETTINGS}
_TABLES = {
    "Settings", "sqlite_autoindex_Settings_1", "Cache", "Cache_key_raw", "Cache_expire_time",
    "Settings_count_insert", "Settings_count_delete", "Settings_size_insert",
    "Settings_size_update", "Settings_size_delete",
}  # fmt: skip
_META = b"\x00schema"
_PIECE = b"\x00piece"
# What the disk, its owner or another process may mend; all else is damage.
_TEMPORARY = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM,
}  # fmt: skip


class Damaged(Exception):
    """Raised when a row or the database is not what was written."""


class BytesDisk(diskcache.Disk):  # type: ignore[misc]
    """Rows of plain bytes and nothing else: no pickle in either direction, no files."""

    def put(self, key: Any) -> tuple[Any, bool]:
        """Return the stored form of a key."""
        return sqlite3.Binary(key), True

    def get(self, key: Any, raw: Any) -> bytes:
        """Return the key of its stored form; raises Damaged for anything not ours."""
        if not raw or type(key) is not bytes:
            raise Damaged("a key that was not written by indexd")
        return key

    def store(self, value: Any, read: bool, key: Any = None) -> tuple[int, int, None, Any]:
        """Return the stored form of a value: raw, inline."""
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

    The library opens a database twice, and the first time writes down what is there already. Of
    one that is whole this is taken back, so that it opens on a full disk too.
    """

    _opened = False

    @property
    def _con(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "con", None)
        if connection is None:
            connection = sqlite3.connect(
                os.path.join(self.directory, diskcache.core.DBNAME),
                timeout=self.timeout,
                isolation_level=None,
            )
            self._local.con = connection
            connection.execute("PRAGMA locking_mode = exclusive").fetchall()
            for name, value in _SETTINGS.items():
                if name.startswith("sqlite_"):
                    self.reset(name, value, update=False)
            if not self._opened and _is_whole(connection):
                connection.execute("BEGIN")
            self._opened = True
        return connection


def _is_whole(connection: sqlite3.Connection) -> bool:
    """Say whether a database lacks nothing that opening it would add."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not tables >= _TABLES:
        return False
    return {key for (key,) in connection.execute("SELECT key FROM Settings")} >= _SETTING_NAMES


class Rows:
    """The rows of a directory; every method is called in the thread that opened it."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._path = os.path.join(directory, "cache.db")
        self._cache = _Cache(directory, timeout=2, disk=BytesDisk, **_SETTINGS)
        try:
            self._inode = os.stat(self._path).st_ino
            self._must_be_ours()
        except BaseException:
            self.close()
            raise

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value, or None. Raises Damaged when it is not what was written."""
        framed = self._cache.get(key)
        return None if framed is None else self._whole(key, framed)

    def scan(self, prefix: bytes) -> dict[bytes, bytes]:
        """Return the rows whose keys begin with `prefix`, without those that are damaged."""
        found = {}
        for key, value in self._from(prefix):
            if not key.startswith(prefix):
                break
            if key == _META or _PIECE in key:
                continue
            try:
                found[key] = self._whole(key, self._cache.disk.fetch(*value, False))
            except Damaged as error:
                log.warning("row damaged, taken for missing key=%r error=%s", key, error)
        return found

    def write(self, units: Sequence[Changes]) -> None:
        """Write units of changes in one transaction."""
        try:
            with self._cache.transact(retry=False):
                for unit in units:
                    for key, value in unit.items():
                        self._write_one(key, value)
        except Exception as error:
            # A commit that fails for want of space leaves its transaction open, and a statement
            # that does has ended it already, so that the rollback fails: the first error counts.
            if self._cache._con.in_transaction:
                self._cache._sql("ROLLBACK")
            raise _first(error) from None

    def give_back(self) -> bool:
        """Return some free pages to the file system; say whether there are more."""
        self._cache._sql(f"PRAGMA incremental_vacuum({GIVEN_BACK_PAGES})").fetchall()
        ((free,),) = self._cache._sql("PRAGMA freelist_count").fetchall()
        if not free:
            self._cache._sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return bool(free)

    def lost(self) -> bool:
        """Say whether the database was removed or replaced under us."""
        try:
            return os.stat(self._path).st_ino != self._inode
        except OSError:
            return True

    def close(self) -> None:
        """Close the database."""
        self._cache.close()

    def _must_be_ours(self) -> None:
        """Raise Damaged unless this database is as we make them; a new one is made so."""
        _expect("tables", _TABLES, self._column("SELECT name FROM sqlite_master"))
        _expect("settings", _SETTING_NAMES, self._column("SELECT key FROM Settings"))
        # Disorder would hide rows, and show old ones that were replaced meanwhile.
        keys = self._cache._sql("SELECT key FROM Cache ORDER BY key").fetchall()
        if not all(map(lt, keys, keys[1:])):
            raise Damaged("its keys are not in order")
        known = self.get(_META)
        if known is None:
            if keys:
                raise Damaged("rows without a schema")
            self.write([{_META: SCHEMA}])
        elif known != SCHEMA:
            raise Damaged(f"schema {known!r} instead of {SCHEMA!r}")

    def _column(self, query: str) -> list[Any]:
        return [value for (value,) in self._cache._sql(query).fetchall()]

    def _from(self, first: bytes) -> Iterator[tuple[bytes, tuple[Any, Any, Any]]]:
        """Yield (key, (mode, filename, value)) of the rows from a key on, in order of keys."""
        # Iterating through diskcache's own interface asks one query per row.
        cursor = self._cache._sql(
            "SELECT key, mode, filename, value FROM Cache WHERE key >= ? AND raw = 1 ORDER BY key",
            (sqlite3.Binary(first),),
        )
        with closing(cursor):
            for key, *value in cursor:
                yield key, tuple(value)

    def _write_one(self, key: bytes, value: bytes | None) -> None:
        self._cache._sql(
            "DELETE FROM Cache WHERE key > ? AND key < ?",
            (sqlite3.Binary(key + _PIECE), sqlite3.Binary(key + _PIECE + b"\xff")),
        )
        if value is None:
            self._cache.delete(key, retry=False)
        elif len(value) <= PIECE_BYTES:
            self._set(key, b"v", value)
        else:
            cuts = range(0, len(value), PIECE_BYTES)
            for number, at in enumerate(cuts):
                self._set(_piece_key(key, number), b"v", value[at : at + PIECE_BYTES])
            self._set(key, b"n", b"%d %d" % (len(cuts), zlib.crc32(value)))

    def _set(self, key: bytes, form: bytes, value: bytes) -> None:
        self._cache.set(key, _frame(key, form, value), retry=False)

    def _whole(self, key: bytes, framed: bytes) -> bytes:
        """Return the value of a row, its pieces joined."""
        form, value = _unframe(key, framed)
        if form == b"v":
            return value
        count, checksum = map(int, value.split())
        joined = b"".join(self._piece(_piece_key(key, number)) for number in range(count))
        if zlib.crc32(joined) != checksum:
            raise Damaged("a row has a piece of another value")
        return joined

    def _piece(self, name: bytes) -> bytes:
        framed = self._cache.get(name)
        if framed is None:
            raise Damaged("a row lacks a piece")
        return _unframe(name, framed)[1]


def check(changes: Changes) -> None:
    """Raise TypeError unless these can be rows."""
    for key, value in changes.items():
        if type(key) is not bytes or _PIECE in key or key == _META:
            raise TypeError(f"{key!r} cannot be the key of a row")
        if value is not None and type(value) is not bytes:
            raise TypeError(f"the value of {key!r} is {type(value).__name__}, not bytes")


def temporary(error: Exception) -> bool:
    """Say whether what failed may work another time, as on a full disk; else it is damage."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _TEMPORARY
    return isinstance(error, OSError | MemoryError | diskcache.Timeout)


def _first(error: BaseException) -> BaseException:
    while isinstance(error.__context__, sqlite3.Error):
        error = error.__context__
    return error


def _expect(what: str, wanted: Collection[str], found: Collection[object]) -> None:
    if set(found) != set(wanted):
        raise Damaged(f"its {what} are not ours: {sorted(map(str, set(found) ^ set(wanted)))}")


def _frame(key: bytes, form: bytes, value: bytes) -> bytes:
    return form + _checksum(key, form, value) + value


def _unframe(key: bytes, framed: bytes) -> tuple[bytes, bytes]:
    form, value = framed[:1], framed[5:]
    if form not in (b"v", b"n") or framed[1:5] != _checksum(key, form, value):
        raise Damaged("a row fails its checksum")
    return form, value


def _checksum(key: bytes, form: bytes, value: bytes) -> bytes:
    return zlib.crc32(value, zlib.crc32(form + key)).to_bytes(4, "big")


def _piece_key(key: bytes, number: int) -> bytes:
    return key + _PIECE + b"%d" % number
