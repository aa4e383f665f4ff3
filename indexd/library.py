"""The files that are known: records by session path, and which session a changed path concerns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from indexd.records import Record

Key = TypeVar("Key")


class Library:
    """The table of records, and what leads to them: data paths, directories, inodes."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._by_data: _Paths[str] = _Paths()
        self._by_directory: _Paths[str] = _Paths()
        self._by_inode: _Paths[tuple[int, int]] = _Paths()
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def new_file_id(self) -> int:
        """Return a file id that was never used."""
        self._next_id += 1
        return self._next_id - 1

    def never_again(self, file_ids: Iterable[int]) -> None:
        """Note ids that were used, though no record has them any more."""
        self._next_id = max(self._next_id, 1 + max(file_ids, default=0))

    def get(self, path: str) -> Record | None:
        """Return the record of a session path."""
        return self._records.get(path)

    def with_data(self, path: str) -> list[Record]:
        """Return the records of the sessions whose messages are read from `path`."""
        return self._at(self._by_data.of(path))

    def with_inode(self, device: int, inode: int) -> list[Record]:
        """Return the records whose data was last seen in this inode: several, if hard-linked."""
        return self._at(self._by_inode.of((device, inode)))

    def in_directory(self, directory: str) -> list[Record]:
        """Return the records of the sessions directly in a directory."""
        return self._at(self._by_directory.of(directory))

    def below(self, directory: str) -> list[Record]:
        """Return the records of the sessions in a directory or below it."""
        prefix = directory.rstrip("/") + "/"
        return [
            record
            for known in list(self._by_directory)
            if f"{known}/".startswith(prefix)
            for record in self.in_directory(known)
        ]

    def put(self, record: Record) -> None:
        """Make a record the one of its path."""
        self.remove(record.path)
        path = record.path
        self._records[path] = record
        self._by_data.add(record.data_path, path)
        self._by_directory.add(os.path.dirname(path), path)
        if record.checkpoint is not None:
            stamp = record.checkpoint.stamp
            self._by_inode.add((stamp.device, stamp.inode), path)
        self.never_again([record.file_id])

    def remove(self, path: str) -> Record | None:
        """Forget the record of a session path and return it."""
        record = self._records.pop(path, None)
        if record is None:
            return None
        self._by_data.drop(record.data_path, path)
        self._by_directory.drop(os.path.dirname(path), path)
        if record.checkpoint is not None:
            stamp = record.checkpoint.stamp
            self._by_inode.drop((stamp.device, stamp.inode), path)
        return record

    def _at(self, paths: Iterable[str]) -> list[Record]:
        return [self._records[path] for path in paths]


class _Paths(Generic[Key]):
    """The session paths that each key leads to, in the order they came."""

    def __init__(self) -> None:
        self._table: dict[Key, dict[str, None]] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._table)

    def of(self, key: Key) -> Iterable[str]:
        return self._table.get(key, ())

    def add(self, key: Key, path: str) -> None:
        self._table.setdefault(key, {})[path] = None

    def drop(self, key: Key, path: str) -> None:
        paths = self._table[key]
        del paths[path]
        if not paths:
            del self._table[key]
