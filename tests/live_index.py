"""An Index beside the documents that it should hold, and all that may befall the two."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from indexd import encoding
from indexd.build import Entry, build
from indexd.index import FileFacts, Index, Part, merge_parts
from indexd.model import KINDS, Document
from indexd.ordering import Ranked
from indexd.segment import Segment
from indexd.source import OpenFile
from indexd.text import Profile
from tests.brute_force import Plain


class LiveIndex:
    """Every change is made to the Index as the indexer makes it, and to a table of documents."""

    def __init__(self, profile: Profile, directory: str) -> None:
        self.index, self.profile = Index(), profile
        self.facts: dict[str, FileFacts] = {}
        self.documents: dict[str, list[Plain]] = {}
        self._directory = directory
        self._ids = 0
        self._merging: tuple[Sequence[Part], Segment] | None = None

    def live(self) -> list[Plain]:
        """Return the documents of all files, each with its file's present mtime."""
        return [
            {**document, "mtime": self.facts[path].mtime}
            for path, documents in self.documents.items()
            for document in documents
        ]

    def write(self, facts: FileFacts, documents: list[Plain]) -> None:
        """Begin a file, or rewrite it: its old documents are gone."""
        self._ids += 1
        old = self.facts.get(facts.path)
        facts = facts._replace(file_id=self._ids)
        drop = [] if old is None else [old.file_id]
        self.index.publish([self._build(facts, documents)], [facts], drop)
        self.facts[facts.path], self.documents[facts.path] = facts, list(documents)

    def append(self, path: str, documents: list[Plain], mtime: int) -> None:
        """Add documents with message indexes of their own to a file."""
        facts = self.facts[path] = self.facts[path]._replace(mtime=mtime)
        self.index.publish([self._build(facts, documents)], [facts])
        self.documents[path] += documents

    def remove(self, path: str) -> None:
        self.index.publish(drop=[self.facts.pop(path).file_id])
        del self.documents[path]

    def merge_due(self) -> None:
        while due := self.index.due():
            self.index.replace(due, merge_parts(due))

    def begin_merge(self, chosen: Sequence[bool]) -> None:
        """Merge some parts, of which the index is told only later."""
        parts = self.index.snapshot.parts
        some = [p for p, wanted in zip(parts, chosen, strict=False) if wanted]
        self._merging = some, merge_parts(some)

    def finish_merge(self) -> None:
        if self._merging is not None:
            self.index.replace(*self._merging)
            self._merging = None

    def rebase(self) -> None:
        """Put everything into one file and go on with what is read from there."""
        parts = self.index.snapshot.parts
        self.index.replace(parts, self._stored(merge_parts(parts)))
        self._merging = None

    def restart(self) -> None:
        """Begin a new Index with what would be on disk."""
        segments = [self._stored(merge_parts(self.index.snapshot.parts)), *self._buried()]
        self.index = Index()
        self.index.restore(segments, self.facts.values())
        self._merging = None

    def _buried(self) -> list[Segment]:
        """Return a segment of documents that died before the restart."""
        self._ids += 1
        facts = FileFacts(self._ids, "/dead", "", "")
        dead: Plain = {"message": 0, "kind": KINDS[0], "call": 0, "tool": "", "time": 0}
        return [self._build(facts, [dead | {"text": "a b c dead"}])]

    def _stored(self, segment: Segment) -> Segment:
        path = os.path.join(self._directory, "base")
        encoding.save(segment, path, {})
        return encoding.load(OpenFile(path))[0]

    def _build(self, facts: FileFacts, documents: list[Plain]) -> Segment:
        return build(
            (
                Entry(
                    facts.file_id,
                    Document(d["kind"], d["text"], d["message"], d["tool"], d["call"]),
                    d["time"],
                )
                for d in documents
            ),
            self.profile,
        )


def identity(ranked: Ranked) -> tuple[object, ...]:
    """Return which document a hit is, and what is known of it."""
    segment, at = ranked.part.segment, ranked.ordinal
    columns = segment.columns
    return (
        ranked.facts.path,
        int(columns.message[at]),
        KINDS[int(segment.kind_starts[1:].searchsorted(at, side="right"))],
        int(columns.call[at]),
        segment.tool_names[int(columns.tool[at])],
        int(columns.timestamp.take(np.array([at]))[0]),
    )
