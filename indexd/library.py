"""The files that are known: records by session path, and which session a changed path concerns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

from indexd.records import Record

Key = TypeVar("Key")


class Library:
    """The table of records. Any path of a session (its data, its sidecars) leads to it."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._owners: dict[str, str] = {}
        self._directories: dict[str, set[str]] = {}
        self._inodes: dict[tuple[int, int], str] = {}
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

    def owner(self, path: str) -> Record | None:
        """Return the record of the session that a data or sidecar path belongs to."""
        return self._records.get(self._owners.get(path, ""))

    def with_inode(self, device: int, inode: int) -> Record | None:
        """Return the record whose data was last seen in this inode."""
        return self._records.get(self._inodes.get((device, inode), ""))

    def in_directory(self, directory: str) -> list[Record]:
        """Return the records of the sessions directly in a directory."""
        return [self._records[path] for path in self._directories.get(directory, ())]

    def below(self, directory: str) -> list[Record]:
        """Return the records of the sessions in a directory or below it."""
        prefix = directory.rstrip("/") + "/"
        return [
            record
            for known in list(self._directories)
            if known == directory or known.startswith(prefix)
            for record in self.in_directory(known)
        ]

    def put(self, record: Record) -> None:
        """Make a record the one of its path."""
        self.remove(record.path)
        self._records[record.path] = record
        self._directories.setdefault(os.path.dirname(record.path), set()).add(record.path)
        for path in (record.path, record.data_path, *record.sidecars):
            self._owners[path] = record.path
        if record.checkpoint is not None:
            stamp = record.checkpoint.stamp
            self._inodes[stamp.device, stamp.inode] = record.path
        self.never_again([record.file_id])

    def remove(self, path: str) -> Record | None:
        """Forget the record of a session path and return it."""
        record = self._records.pop(path, None)
        if record is None:
            return None
        names = self._directories[os.path.dirname(path)]
        names.discard(path)
        if not names:
            del self._directories[os.path.dirname(path)]
        for owned in (path, record.data_path, *record.sidecars):
            _drop(self._owners, owned, path)
        if record.checkpoint is not None:
            stamp = record.checkpoint.stamp
            _drop(self._inodes, (stamp.device, stamp.inode), path)
        return record


def _drop(table: dict[Key, str], key: Key, path: str) -> None:
    if table.get(key) == path:
        del table[key]
