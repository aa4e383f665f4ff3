"""Documents to a segment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import xxhash

from indexd.model import KINDS, Document
from indexd.segment import (
    Array,
    Columns,
    Segment,
    assemble,
    postings_of,
)
from indexd.text import Profile
from indexd.tokens import Counted, count

_RANK = {kind: rank for rank, kind in enumerate(KINDS)}


class Entry(NamedTuple):
    """A document on its way into a segment: of which file, said when, and where it lies.

    `timestamp` is in unix ms, 0 unknown; `offset`, `size` and `part` are as in Columns.
    """

    file_id: int
    document: Document
    timestamp: int = 0
    offset: int = 0
    size: int = 0
    part: int = 0


def build(entries: Iterable[Entry], profile: Profile) -> Segment:
    """Return the segment of `entries`; documents without a term are left out."""
    entries = _in_order(list(entries))
    texts = [entry.document.text.encode("utf-8", "replace") for entry in entries]
    return counted(entries, count(texts, profile), lambda at: xxhash.xxh3_64_intdigest(texts[at]))


def counted(entries: Sequence[Entry], counts: Counted, digest: Callable[[int], int]) -> Segment:
    """Return the segment of entries in the canonical order whose terms are counted.

    `digest` returns the digest of the text of the entry at a position.
    """
    kept = counts.lengths > 0
    places = np.flatnonzero(kept).tolist()
    ordinals = (np.cumsum(kept) - 1)[counts.texts]
    return assemble(
        *_columns([entries[at] for at in places], counts.lengths[kept], list(map(digest, places))),
        counts.dictionary,
        postings_of(len(counts.dictionary), counts.terms, ordinals, counts.freqs),
    )


def text_digest(text: str) -> int:
    """Return the 64-bit digest by which equal texts are known."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace"))


def _in_order(entries: list[Entry]) -> list[Entry]:
    """Return the entries in the canonical order of documents."""
    return sorted(
        entries,
        key=lambda e: (
            _RANK[e.document.kind],
            e.file_id,
            e.document.message_index,
            e.document.call,
        ),
    )


def _columns(
    entries: Sequence[Entry], lengths: Array, digests: Sequence[int]
) -> tuple[Array, tuple[str, ...], Array, Columns]:
    documents = [entry.document for entry in entries]
    names = tuple(sorted({d.tool_name for d in documents}))
    position = {name: at for at, name in enumerate(names)}
    file_ids, files = np.unique(
        np.array([entry.file_id for entry in entries], np.uint32), return_inverse=True
    )
    columns = Columns(
        files.astype(np.uint32),
        np.array([d.message_index for d in documents], np.uint32),
        np.array([d.call for d in documents], np.uint32),
        lengths.astype(np.uint32),
        np.array([position[d.tool_name] for d in documents], np.uint32),
        np.array(digests, np.uint64),
        np.array([entry.timestamp for entry in entries], np.int64),
        np.array([entry.offset for entry in entries], np.uint64),
        np.array([entry.size for entry in entries], np.uint32),
        np.array([entry.part for entry in entries], np.uint32),
    )
    return file_ids, names, np.array([_RANK[d.kind] for d in documents], np.int64), columns
