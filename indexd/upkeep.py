"""What keeps the index quick between changes: few parts, and a base on disk when it rests."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import anyio
from anyio import to_thread

from indexd import base, memory, records
from indexd.base import Base
from indexd.index import MAX_PARTS, FileFacts, Index, Part, Snapshot, merge_parts
from indexd.library import Library
from indexd.records import Record
from indexd.segment import Segment
from indexd.settling import let_go, removal
from indexd.source import DamagedSegment
from indexd.store import Store

log = logging.getLogger(__name__)
T = TypeVar("T")

# How long the index must rest before the base is written anew, and how much of it must be new. A
# restart takes what is new from each file's rows, and a base is written as a whole.
REST_SECONDS = 20.0
NEW_SHARE = 0.02
# While much is being read, merging would only repeat what the base does at the end.
BUSY_PARTS = 12


class Upkeep:
    """Merges parts as they become many, and writes the base.

    `busy` says that work is under way; `publishing` is held by whoever changes what is known;
    `prepare` works out, for a snapshot with large parts that are new, what queries would else
    have to.

    notice: why there is no base, if it was lost. What raises DamagedSegment rests on a base that
    is to be abandoned.
    """

    def __init__(
        self,
        index: Index,
        library: Library,
        store: Store,
        base_path: str,
        busy: Callable[[], bool],
        publishing: anyio.Lock,
        prepare: Callable[[Snapshot], None],
    ) -> None:
        self._index, self._library, self._store = index, library, store
        self._base_path, self._busy, self._publishing = base_path, busy, publishing
        self._prepare = prepare
        # What the base covers and rows may have still.
        self._covers: Mapping[int, int] = {}
        self._base: Base | None = None
        self.notice: str | None = None
        self._turn = anyio.Lock()
        self._wanted = anyio.Event()
        self._last_change = time.monotonic()

    def changed(self) -> None:
        """Note that the index was changed just now."""
        self._last_change = time.monotonic()
        self._wanted.set()

    async def run(self) -> None:
        """Merge whenever it is due, and write the base whenever the index has rested.

        Raises DamagedSegment.
        """
        await self._made(self._prepare, self._index.snapshot)
        while True:
            with anyio.move_on_after(REST_SECONDS):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            await self._merge_what_is_due()
            if not self._busy() and time.monotonic() - self._last_change >= REST_SECONDS:
                await self.write_base()

    async def _merge_what_is_due(self) -> None:
        async with self._turn:
            while due := self._index.due(BUSY_PARTS if self._busy() else MAX_PARTS):
                await self._replace(due, await self._made(_merged, due))

    async def write_base(self) -> None:
        """Write the base if enough of the index is new to it; a full disk is no error.

        Raises DamagedSegment.
        """
        await self._write_base()
        if self._covers:
            await self._let_go()
            memory.give_back()

    async def _write_base(self) -> None:
        async with self._turn:
            snapshot = self._index.snapshot
            if self._unlike_base(snapshot) <= NEW_SHARE * snapshot.documents:
                return
            covers = {record.file_id: record.messages for record in self._library}
            written = await self._made(self._save, snapshot.parts, covers)
            if written is not None:
                self._base, self._covers, self.notice = written, written.covered, None
                await self._replace(snapshot.parts, written.segment)

    async def _replace(self, parts: Sequence[Part], segment: Segment) -> None:
        self._index.replace(parts, segment)
        if not self._busy():
            await self._made(self._prepare, self._index.snapshot)

    async def _made(self, make: Callable[..., T], *args: object) -> T:
        """Return what is made in a thread; raises DamagedSegment if the base was not sound."""
        try:
            made = await to_thread.run_sync(make, *args)
        except Exception as error:
            if self.sound():
                raise
            raise DamagedSegment("the base was changed") from error
        if not self.sound():
            raise DamagedSegment("the base was changed")
        return made

    async def _let_go(self) -> None:
        """Remove rows of what the base has as well, unless somebody is about to build on them."""
        async with self._publishing:
            if self._busy():
                return
            rows: dict[bytes, bytes | None] = {}
            for record in self._library:
                record, gone = let_go(record, self._covers.get(record.file_id, 0))
                if gone:
                    self._library.put(record)
                    rows |= gone
            self._covers = {}
        if rows:
            self._store.put(rows)
            self._store.give_back()

    def _unlike_base(self, snapshot: Snapshot) -> int:
        """Return how many documents the base lacks, and how many of its own are dead."""
        part = self._part_of_base(snapshot)
        if part is None:
            return snapshot.documents
        living = int(part.segment.doc_counts[part.live_files].sum())
        return snapshot.documents - living + len(part.segment) - living

    def _part_of_base(self, snapshot: Snapshot) -> Part | None:
        base = self._base
        return next((p for p in snapshot.parts if base and p.segment is base.segment), None)

    def _save(self, parts: Sequence[Part], covers: Mapping[int, int]) -> Base | None:
        # What the base covers must be in the rows, or a restart would read it again beside it.
        if not self._store.flush():
            return None
        try:
            return base.save(parts, covers, self._base_path)
        except OSError as error:
            log.warning("base not written error=%r", error)
            return None

    def restore(self) -> None:
        """Publish what the cache holds; what does not fit together is left to be read again."""
        facts = self._stored()
        try:
            self._base = base.load(self._base_path, {r.file_id: r.messages for r, _ in facts})
        except DamagedSegment as error:
            self._lose_base(str(error))
        # The base may hold files that were deleted since: their ids must not come to mean others.
        self._covers = {} if self._base is None else self._base.covered
        self._library.never_again(self._covers)
        self._publish(facts)

    def sound(self) -> bool:
        """Say whether the base is what was written; what was read from it counts only then."""
        return self._base is None or self._base.sound()

    async def abandon_base(self) -> bool:
        """Do without the base, if there is one; say so.

        What rows have of it is taken from there. Sessions of which they have not are forgotten:
        they are to be read again. Whoever calls it holds `publishing`.
        """
        async with self._turn:
            if self._base is None:
                return False
            in_use = self._part_of_base(self._index.snapshot) is not None
            self._lose_base("it was changed while in use")
            if in_use:
                await to_thread.run_sync(self._publish_rows)
            return True

    def _lose_base(self, reason: str) -> None:
        log.warning("base unusable, doing without reason=%s", reason)
        self.notice = f"the base of the index was lost and is being rebuilt: {reason}"
        self._base, self._covers = None, {}
        with contextlib.suppress(OSError):
            os.unlink(self._base_path)

    def _publish_rows(self) -> None:
        self._publish([(record, _facts(record)) for record in self._library])

    def _publish(self, known: Sequence[tuple[Record, FileFacts | None]]) -> None:
        """Publish the base and what rows have beyond it; forget sessions that rows have not."""
        rest, damaged = base.beyond([r for r, _ in known], self._covers, self._store.get)
        lost = {record.file_id for record in damaged}
        for record, _ in known:
            if record.file_id in lost:
                self._library.remove(record.path)
                self._store.put(removal(record))
            else:
                self._library.put(record)
        segments = [rest] if self._base is None else [self._base.segment, rest]
        self._index.restore(segments, [f for _, f in known if f and f.file_id not in lost])

    def _stored(self) -> list[tuple[Record, FileFacts | None]]:
        """Return the records of the cache with the facts of those that are sessions."""
        found = []
        for key, value in self._store.scan(records.RECORDS).items():
            try:
                record = records.decode(value)
                found.append((record, _facts(record)))
            except Exception as error:  # Nothing in a row may keep the daemon from starting.
                log.warning("record damaged, dropping it key=%r error=%r", key, error)
                self._store.put({key: None})
        return found


def _facts(record: Record) -> FileFacts | None:
    return record.facts() if record.agent else None


def _merged(parts: Sequence[Part]) -> Segment:
    segment = merge_parts(parts, packed=True)
    memory.give_back()
    return segment
