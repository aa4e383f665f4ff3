"""What keeps the index quick between changes: few parts, and a base on disk when it rests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import anyio
from anyio import to_thread

from indexd import base, memory, records
from indexd.index import MAX_PARTS, Index, Part, Snapshot, merge_parts
from indexd.library import Library
from indexd.records import Record
from indexd.segment import Segment
from indexd.settling import let_go, removal
from indexd.store import Store

log = logging.getLogger(__name__)

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
        self._base: Segment | None = None
        self._turn = anyio.Lock()
        self._wanted = anyio.Event()
        self._last_change = time.monotonic()

    def changed(self) -> None:
        """Note that the index was changed just now."""
        self._last_change = time.monotonic()
        self._wanted.set()

    async def run(self) -> None:
        """Merge whenever it is due, and write the base whenever the index has rested."""
        await to_thread.run_sync(self._prepare, self._index.snapshot)
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
                await self._replace(due, await to_thread.run_sync(_merged, due))

    async def write_base(self) -> None:
        """Write the base if enough of the index is new to it; a full disk is no error."""
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
            segment = await to_thread.run_sync(self._save, snapshot.parts, covers)
            if segment is not None:
                self._base = segment
                self._covers = {i: covers.get(i, 0) for i in segment.file_ids.tolist()}
                await self._replace(snapshot.parts, segment)

    async def _replace(self, parts: Sequence[Part], segment: Segment) -> None:
        self._index.replace(parts, segment)
        if not self._busy():
            await to_thread.run_sync(self._prepare, self._index.snapshot)

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
        part = next((part for part in snapshot.parts if part.segment is self._base), None)
        if part is None:
            return snapshot.documents
        living = int(part.segment.doc_counts[part.live_files].sum())
        return snapshot.documents - living + len(part.segment) - living

    def _save(self, parts: Sequence[Part], covers: Mapping[int, int]) -> Segment | None:
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
        known = self._stored_records()
        segment, covered = base.load(self._base_path, {r.file_id: r.messages for r in known})
        # The base may hold files that were deleted since: their ids must not come to mean others.
        self._library.never_again(covered)
        rest, damaged = base.beyond(known, covered, self._store.get)
        bad = {record.file_id for record in damaged}
        for record in known:
            if record.file_id in bad:
                self._store.put(removal(record))
            else:
                self._library.put(record)
        segments = [s for s in (segment, rest) if s is not None]
        self._index.restore(segments, [record.facts() for record in self._library if record.agent])
        self._base, self._covers = segment, covered

    def _stored_records(self) -> list[Record]:
        found = []
        for key, value in self._store.scan(records.RECORDS).items():
            try:
                found.append(records.decode(value))
            except ValueError as error:
                log.warning("record damaged, dropping it key=%r error=%r", key, error)
                self._store.put({key: None})
        return found


def _merged(parts: Sequence[Part]) -> Segment:
    segment = merge_parts(parts, packed=True)
    memory.give_back()
    return segment
