"""Every change to what is known goes through here: library, index and store in one step."""

from __future__ import annotations

import logging
import os

from indexd.errors import IndexdError
from indexd.finding import Found
from indexd.index import Index
from indexd.library import Library
from indexd.records import Record
from indexd.settling import Change, removal
from indexd.store import Store
from indexd.upkeep import Upkeep
from indexd.worker import Batch

log = logging.getLogger(__name__)


class Publisher:
    """Publishes what looks at files bring; `problems` says by path why a file gives nothing.

    Called by the event loop alone, so that no reader sees half a step.
    """

    def __init__(self, index: Index, library: Library, store: Store, upkeep: Upkeep) -> None:
        self._index, self._library, self._store, self._upkeep = index, library, store, upkeep
        self.problems: dict[str, str] = {}

    def conclude(self, found: Found, old: Record | None, change: Change | Exception) -> None:
        """Publish a change, or note why there is none: one file's trouble stops no other."""
        path = found.candidate.path
        if isinstance(change, Change):
            self.problems.pop(path, None)
            self._apply(change, old)
        elif isinstance(change, IndexdError | OSError):
            self._unreadable(found, old, str(change))
        else:
            log.error("cannot index path=%r", path, exc_info=change)
            self._unreadable(found, old, f"internal error: {change!r}")

    def conclude_batch(self, batch: list[Found], answer: Batch) -> None:
        """Publish files that were never known before, read by a worker."""
        rows: dict[bytes, bytes | None] = {}
        known: list[Record] = []
        for found, read in zip(batch, answer.reads, strict=True):
            if read.record is None:
                self._unreadable(found, None, read.reason)
                continue
            self.problems.pop(read.path, None)
            self._library.put(read.record)
            known.append(read.record)
            rows |= read.rows
        facts = [record.facts() for record in known if record.agent]
        self._index.publish([answer.segment], facts)
        self._store.put(rows)
        self._upkeep.changed()

    def forget(self, record: Record) -> None:
        """Take a session out of everything."""
        self._library.remove(record.path)
        self._index.publish(drop=(record.file_id,))
        self._store.put(removal(record))
        self._upkeep.changed()

    def _unreadable(self, found: Found, old: Record | None, reason: str) -> None:
        """Note a file that is there but cannot be read; what it said before is not shown."""
        if old is not None:
            self.forget(old)
        if os.path.lexists(found.candidate.data_path):
            self.problems[found.candidate.path] = reason

    def _apply(self, change: Change, old: Record | None) -> None:
        record = change.record
        if old is not None and old.path != record.path:
            self._library.remove(old.path)
        self._library.put(record)
        drop = () if change.drop is None else (change.drop,)
        facts = (record.facts(),) if record.agent else ()
        self._index.publish(change.segments, facts, drop)
        self._store.put(change.rows)
        self._upkeep.changed()
