"""Index: the files that are known now, and the segments that hold their documents.

Readers take a Snapshot and never lock; one writer publishes a new one by assignment. A *part* is
a segment over many files: the big one is the base, small ones are what changed since. A file
that is rewritten gets a new file id, so its old documents die wherever they are stored; parts of
like size are merged, which also buries the dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from indexd.merge import merge, of_files
from indexd.model import KINDS
from indexd.segment import Array, Segment

# A query looks its terms up in each part; merging waits until there are more than this, and then
# takes the youngest parts up to the first that is more than twice what they hold together. So
# each document is merged a few times in all.
MAX_PARTS = 8
MERGE_SHARE = 2
# A selection of single files costs a byte per document while it is remembered.
_REMEMBERED_SELECTIONS = 32


class FileFacts(NamedTuple):
    """What a search may say or ask about a session file.

    `path` is the session's path, `source` its root's label; `mtime` (unix ms) stands in for the
    time of messages that have none. `parent` is the session that this one continues or, if
    `subagent`, works for.
    """

    file_id: int
    path: str
    source: str
    agent: str
    session_id: str = ""
    cwd: str = ""
    model: str = ""
    title: str = ""
    parent: str = ""
    subagent: bool = False
    mtime: int = 0

    @property
    def path_bytes(self) -> bytes:
        """Return the path as the file system has it, which is what paths are ordered by."""
        return self.path.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A segment and which of its files are still as they were (None: all of them)."""

    segment: Segment
    alive: Array | None = None

    @property
    def live_files(self) -> Array:
        """Return the boolean per local file; a fresh array of ones where all live."""
        if self.alive is None:
            return np.ones(len(self.segment.file_ids), bool)
        return self.alive

    def doc_freq(self, term: bytes) -> int:
        """Return how many documents of live files hold `term`."""
        at = self.segment.dictionary.find(term)
        if at < 0:
            return 0
        starts = self.segment.postings.starts
        if self.alive is None:
            return int(starts[at + 1] - starts[at])
        ordinals, _ = self.segment.term_postings(at)
        return int(np.count_nonzero(self.alive[self.segment.columns.file[ordinals]]))

    def doc_freqs(self) -> Array:
        """Return how many documents of live files hold each term of the segment (i64)."""
        starts = self.segment.postings.starts
        if self.alive is None:
            return np.diff(starts)
        ordinals, _ = self.segment.postings.of(0, len(self.segment.dictionary))
        before = np.concatenate(([0], np.cumsum(of_files(self.segment, self.alive)[ordinals])))
        return np.diff(before[starts])

    def counts(self, kinds: Array) -> tuple[int, int]:
        """Return (documents, tokens) of the live files in the kinds of rank `kinds`."""
        docs, tokens = self.segment.doc_counts, self.segment.token_counts
        if self.alive is not None:
            docs, tokens = docs[self.alive], tokens[self.alive]
        return int(docs[:, kinds].sum()), int(tokens[:, kinds].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A consistent state of the index; nothing in it ever changes but what is remembered."""

    generation: int
    parts: tuple[Part, ...]
    files: Mapping[int, FileFacts]
    documents: int
    remembered: dict[object, Any] = field(default_factory=dict)

    def facts_of(self, part: Part, ordinal: int) -> FileFacts:
        """Return the file of a document of one of the parts."""
        segment = part.segment
        return self.files[int(segment.file_ids[segment.columns.file[ordinal]])]

    def remember(self, key: object, value: Any) -> None:
        """Keep what a selection is in a part, for later queries; any thread may."""
        for oldest in list(self.remembered)[: 1 - _REMEMBERED_SELECTIONS]:
            self.remembered.pop(oldest, None)
        self.remembered[key] = value


class Index:
    """The one mutable table; its methods are called by one thread at a time."""

    def __init__(self) -> None:
        self.snapshot = Snapshot(0, (), {}, 0)

    def restore(self, segments: Iterable[Segment], files: Iterable[FileFacts]) -> None:
        """Begin with these segments; documents of files that are not given are dead."""
        known = {facts.file_id: facts for facts in files}
        parts = []
        for segment in segments:
            gone = [file_id for file_id in segment.file_ids.tolist() if file_id not in known]
            part = _bury(Part(segment), gone)
            if part is not None and len(segment):
                parts.append(part)
        self._assign(tuple(parts), known, {})

    def publish(
        self,
        segments: Iterable[Segment] = (),
        put: Iterable[FileFacts] = (),
        drop: Iterable[int] = (),
    ) -> None:
        """Make files known with their new segments, and forget others, in one step.

        Documents of files that are not known then are dead from the beginning.
        """
        now = self.snapshot
        files = dict(now.files)
        same = True
        for facts in put:
            known = files.get(facts.file_id)
            same = same and known is not None and known._replace(mtime=facts.mtime) == facts
            files[facts.file_id] = facts
        gone = [file_id for file_id in drop if files.pop(file_id, None) is not None]
        parts: list[Part | None] = list(now.parts)
        if gone:
            parts = [_bury(part, gone) for part in now.parts]
        for segment in segments:
            unknown = [i for i in segment.file_ids.tolist() if i not in files]
            parts.append(_bury(Part(segment), unknown) if len(segment) else None)
        kept = now.remembered if same and not gone else {}
        self._assign(tuple(p for p in parts if p is not None), files, kept)

    def due(self, most: int = MAX_PARTS) -> tuple[Part, ...]:
        """Return the youngest parts that should become one; empty when there are up to `most`."""
        parts = self.snapshot.parts
        if len(parts) <= most:
            return ()
        total, first = 0, len(parts)
        for at in range(len(parts) - 1, -1, -1):
            size = _live_documents(parts[at])
            if len(parts) - first >= 2 and size > MERGE_SHARE * total:
                break
            total, first = total + size, at
        return parts[first:]

    def replace(self, old: Sequence[Part], merged: Segment) -> None:
        """Put `merged`, made of `old`, in their place; files that died meanwhile stay dead."""
        now = self.snapshot
        merging = {id(part.segment) for part in old}
        gone = [i for i in merged.file_ids.tolist() if i not in now.files]
        part = _bury(Part(merged), gone)
        parts = [p for p in now.parts if id(p.segment) not in merging]
        # The elders stay in front: `due` walks from the youngest.
        at = next((i for i, p in enumerate(now.parts) if id(p.segment) in merging), 0)
        if part is not None and len(merged):
            parts.insert(at, part)
        # What is remembered of parts that are gone would keep them in memory.
        self._assign(tuple(parts), now.files, {})

    def _assign(
        self,
        parts: tuple[Part, ...],
        files: Mapping[int, FileFacts],
        remembered: dict[object, Any],
    ) -> None:
        documents = sum(_live_documents(part) for part in parts)
        self.snapshot = Snapshot(self.snapshot.generation + 1, parts, files, documents, remembered)


def merge_parts(parts: Sequence[Part], *, packed: bool = False) -> Segment:
    """Return the live documents of `parts` as one segment, its postings packed if asked for."""
    return merge(
        [part.segment for part in parts],
        [None if p.alive is None else of_files(p.segment, p.alive) for p in parts],
        packed=packed,
    )


def _bury(part: Part, gone: Sequence[int]) -> Part | None:
    """Return the part without the files `gone`; None when nothing of it lives."""
    dead = np.isin(part.segment.file_ids, np.array(gone, np.uint32))
    if not dead.any():
        return part
    alive = part.live_files & ~dead
    return Part(part.segment, alive) if alive.any() else None


def _live_documents(part: Part) -> int:
    return part.counts(_EVERY_KIND)[0]


_EVERY_KIND = np.arange(len(KINDS))
