"""Every change to what is known goes through here: library, index and store in one step."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Sequence
from typing import NamedTuple

from indexd.errors import IndexdError
from indexd.finding import Found
from indexd.index import FileFacts, Index
from indexd.library import Library
from indexd.records import Record
from indexd.settling import Change, removal
from indexd.store import Store
from indexd.upkeep import Upkeep
from indexd.worker import Batch

log = logging.getLogger(__name__)


class Problem(NamedTuple):
    """Why a file gives nothing, and the file as it was then.

    lasting: it gives nothing for as long as it stays as it is, so that looking again is vain.
    """

    reason: str
    found: Found
    lasting: bool


class Publisher:
    """Publishes what looks at files bring, and remembers those that give nothing.

    Called by the event loop alone, so that no reader sees half a step.
    """

    def __init__(self, index: Index, library: Library, store: Store, upkeep: Upkeep) -> None:
        self._index, self._library, self._store, self._upkeep = index, library, store, upkeep
        self._problems: dict[str, Problem] = {}

    def problems(self) -> dict[str, str]:
        """Return by session path why a file that is there gives nothing."""
        return {path: problem.reason for path, problem in list(self._problems.items())}

    def leaves_out(self, found: Found) -> bool:
        """Say whether a file is known to give nothing as it is."""
        known = self._problems.get(found.candidate.path)
        return known is not None and known.lasting and known.found == found

    def forget_problems(self, but: Container[str] = ()) -> None:
        """Forget what was wrong with the files of all session paths `but` for some."""
        self._problems = {p: problem for p, problem in self._problems.items() if p in but}

    def conclude(self, found: Found, old: Record | None, change: Change | Exception) -> None:
        """Publish a change, or note why there is none: one file's trouble stops no other."""
        path = found.candidate.path
        facts = _facts(change.record) if isinstance(change, Change) else change
        if isinstance(change, Change) and not isinstance(facts, Exception):
            self._problems.pop(path, None)
            self._apply(change, old, facts)
        else:
            assert isinstance(facts, Exception)
            self._unreadable(found, old, facts)

    def give_up(self, found: Found, reason: str, *, lasting: bool) -> None:
        """Note that a file gives nothing, unless it is gone; see Problem."""
        if os.path.lexists(found.candidate.data_path):
            self._problems[found.candidate.path] = Problem(reason, found, lasting)

    def conclude_batch(self, batch: list[Found], answer: Batch) -> None:
        """Publish files that were never known before, read by a worker."""
        rows: dict[bytes, bytes | None] = {}
        facts: list[FileFacts] = []
        for found, read in zip(batch, answer.reads, strict=True):
            if read.record is None:
                self.give_up(found, read.reason, lasting=False)
                continue
            own = _facts(read.record)
            if isinstance(own, Exception):
                self._unreadable(found, None, own)
                continue
            self._problems.pop(read.path, None)
            self._library.put(read.record)
            facts += own
            rows |= read.rows
        self._index.publish([answer.segment], facts)
        self._store.put(rows)
        self._upkeep.changed()

    def forget(self, record: Record) -> None:
        """Take a session out of everything."""
        self._library.remove(record.path)
        self._index.publish(drop=(record.file_id,))
        self._store.put(removal(record))
        self._upkeep.changed()

    def _unreadable(self, found: Found, old: Record | None, error: Exception) -> None:
        """Note a file that is there but cannot be read; what it said before is not shown."""
        if old is not None:
            self.forget(old)
        reason = str(error)
        if not isinstance(error, IndexdError | OSError):
            log.error("cannot index path=%r", found.candidate.path, exc_info=error)
            reason = f"internal error: {error!r}"
        # The disk may do better another time; and a directory above may have been elsewhere for
        # a moment, which alters nothing about the file.
        known = self._problems.get(found.candidate.path)
        again = known is not None and known.found == found
        self.give_up(found, reason, lasting=again and not isinstance(error, OSError))

    def _apply(self, change: Change, old: Record | None, facts: Sequence[FileFacts]) -> None:
        record = change.record
        if old is not None and old.path != record.path:
            self._library.remove(old.path)
        self._library.put(record)
        drop = () if change.drop is None else (change.drop,)
        self._index.publish(change.segments, facts, drop)
        self._store.put(change.rows)
        self._upkeep.changed()


def _facts(record: Record) -> list[FileFacts] | Exception:
    """Return what a search may know of a session, if it is one, or why that cannot be told."""
    try:
        return [record.facts()] if record.agent else []
    except Exception as error:
        return error
