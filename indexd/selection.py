"""Which documents a request selects, and what each part of the index holds of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from indexd.impact import padded
from indexd.index import FileFacts, Part, Snapshot
from indexd.model import KINDS, TOOL_KINDS, Kind
from indexd.segment import Array, Segment

# One document in so many is few.
FEW_SHARE = 20


class FileFilter(NamedTuple):
    """Which files a request selects: `accepts` decides, `key` says when two are the same."""

    key: object
    accepts: Callable[[FileFacts], bool]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which documents a request selects; times are unix ms, `since` <= time <= `until`."""

    kinds: tuple[Kind, ...]
    files: FileFilter | None = None
    tool_names: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None

    @property
    def of_files(self) -> bool:
        """Say whether kind and file decide alone, so that a view of it can be remembered."""
        return self.tool_names is None and self.since is None and self.until is None


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A selection as seen in one part: the documents in `ranges` for which `mask` is true.

    `ranks` are the kinds, by position in KINDS, that the ranges come from; `mask` is None where
    they say it all; `few` are the documents themselves, where a mask leaves but few. `files`
    says which files are selected (None: all), and `by_file` that nothing else but kinds matters.
    `documents` and `tokens` are what it selects.
    """

    part: Part
    ranks: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    mask: Array | None
    few: Array | None
    files: Array | None
    by_file: bool
    documents: int
    tokens: int
    # What was worked out: about frequent terms, by dictionary position, and for `bits`.
    counts: dict[int, int] = field(default_factory=dict, init=False)
    holders: dict[int, Array] = field(default_factory=dict, init=False)
    remembered_bits: list[Array] = field(default_factory=list, init=False)

    @property
    def whole(self) -> bool:
        """Say whether every document of the part is selected."""
        return self.mask is None and self.ranges == ((0, len(self.part.segment)),)

    def chosen(self, ordinals: Array, *columns: Array) -> tuple[Array, ...]:
        """Return those of some ordinals that are of selected documents, and columns beside them."""
        found = (ordinals, *columns)
        if self.whole:
            return found
        if self.ranges != ((0, len(self.part.segment)),):
            bounds = np.array(self.ranges, ordinals.dtype)
            cuts = ordinals.searchsorted(bounds).tolist()
            found = tuple([_joined([each[a:b] for a, b in cuts], each) for each in found])
        if self.mask is not None:
            kept = self.mask.take(found[0]).nonzero()[0]
            found = tuple([each[kept] for each in found])
        return found

    def selects(self, documents: Array) -> Array:
        """Return the boolean for each of some documents: whether it is selected."""
        chosen = np.zeros(len(documents), bool)
        for start, stop in self.ranges:
            chosen |= (documents >= start) & (documents < stop)
        if self.mask is not None:
            chosen &= self.mask[documents]
        return chosen

    def bits(self) -> Array:
        """Return whether each document is selected, packed as rows are."""
        known = self.remembered_bits
        if not known:
            chosen = np.zeros(padded(self.part.segment), bool)
            for start, stop in self.ranges:
                chosen[start:stop] = True if self.mask is None else self.mask[start:stop]
            known.append(np.packbits(chosen))
        return known[0]


def _joined(pieces: list[Array], like: Array) -> Array:
    return pieces[0] if len(pieces) == 1 else np.concatenate([like[:0], *pieces])


def views(snapshot: Snapshot, selection: Selection) -> list[View]:
    """Return what a selection is in each part."""
    if not selection.of_files:
        return [_view(snapshot, part, selection) for part in snapshot.parts]
    key = (selection.kinds, None if selection.files is None else selection.files.key)
    found = []
    for part in snapshot.parts:
        known = snapshot.remembered.get((key, id(part)))
        if known is None:
            known = _view(snapshot, part, selection)
            snapshot.remember((key, id(part)), known)
        found.append(known)
    return found


def timestamps(snapshot: Snapshot, part: Part, ordinals: Array) -> Array:
    """Return the time (unix ms) of documents; their file's mtime where they have none."""
    segment = part.segment
    times: Array = segment.columns.timestamp.take(ordinals)
    unknown = np.flatnonzero(times == 0)
    if len(unknown):
        files = segment.files_of(ordinals[unknown]).tolist()
        known = snapshot.files
        times = times.copy()
        times[unknown] = [f.mtime if (f := known.get(i)) else 0 for i in files]
    return times


def _view(snapshot: Snapshot, part: Part, selection: Selection) -> View:
    segment = part.segment
    ranks = tuple(sorted({KINDS.index(kind) for kind in selection.kinds}))
    ranges = _ranges(part, ranks)
    files = _live_files(snapshot, part, selection.files)
    mask = None if files is None else files[segment.columns.file]
    if selection.of_files:
        counts = segment.doc_counts[:, list(ranks)], segment.token_counts[:, list(ranks)]
        documents, tokens = (int((c if files is None else c[files]).sum()) for c in counts)
    else:
        mask = _document_mask(snapshot, part, selection, mask)
        lengths = segment.columns.length[_at(mask, ranges)]
        documents, tokens = len(lengths), int(lengths.sum(dtype=np.int64))
    few = None
    if mask is not None and documents <= len(segment) // FEW_SHARE:
        few = _at(mask, ranges)
    return View(part, ranks, ranges, mask, few, files, selection.of_files, documents, tokens)


def _at(mask: Array, ranges: Iterable[tuple[int, int]]) -> Array:
    """Return the ordinals (u32) in some ranges for which the mask is true."""
    found = [mask[start:stop].nonzero()[0] + start for start, stop in ranges]
    return np.concatenate([np.zeros(0, np.int64), *found]).astype(np.uint32)


def _ranges(part: Part, ranks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of ordinals of the kinds, neighbours joined, empty ones left out."""
    ranges: list[tuple[int, int]] = []
    starts = part.segment.kind_starts
    for rank in ranks:
        a, b = int(starts[rank]), int(starts[rank + 1])
        if a == b:
            continue
        if ranges and ranges[-1][1] == a:
            ranges[-1] = (ranges[-1][0], b)
        else:
            ranges.append((a, b))
    return tuple(ranges)


def _live_files(snapshot: Snapshot, part: Part, chosen: FileFilter | None) -> Array | None:
    """Return the boolean per file of the part; None when every one is selected."""
    if chosen is None:
        return part.alive
    files = snapshot.files
    ids = part.segment.file_ids.tolist()
    return np.array([(f := files.get(i)) is not None and chosen.accepts(f) for i in ids], bool)


def _document_mask(
    snapshot: Snapshot, part: Part, selection: Selection, files: Array | None
) -> Array:
    segment = part.segment
    mask = np.ones(len(segment), bool) if files is None else files
    if selection.tool_names is not None:
        mask &= _tool_mask(part, selection.tool_names)
    if selection.since is not None or selection.until is not None:
        mask &= _time_mask(snapshot, part, selection)
    return mask


def _time_mask(snapshot: Snapshot, part: Part, selection: Selection) -> Array:
    """Return the boolean per document: whether it was said in the time that is selected."""
    segment = part.segment
    since = -1 if selection.since is None else selection.since
    until = np.iinfo(np.int64).max if selection.until is None else selection.until
    first, last = _times_of_files(segment)
    inside = (first >= since) & (last <= until)
    mask: Array = inside[segment.columns.file]
    # Most sessions lie on one side; only of the others times are read.
    doubtful = ~inside & (last >= since) & (first <= until)
    at = doubtful[segment.columns.file].nonzero()[0]
    times = timestamps(snapshot, part, at)
    mask[at] = (times >= since) & (times <= until)
    return mask


def _times_of_files(segment: Segment) -> tuple[Array, Array]:
    """Return the first and the last time in each file; all of time where one is unknown."""
    known: tuple[Array, Array] | None = segment.derived.get("times")
    if known is None:
        times = segment.columns.timestamp.take(np.arange(len(segment)))
        first = np.full(len(segment.file_ids), np.iinfo(np.int64).max)
        last = np.zeros(len(first), np.int64)
        np.minimum.at(first, segment.columns.file, times)
        np.maximum.at(last, segment.columns.file, times)
        last[first == 0] = np.iinfo(np.int64).max
        known = segment.derived["times"] = (first, last)
    return known


def _tool_mask(part: Part, tool_names: Collection[str]) -> Array:
    segment = part.segment
    mask = np.zeros(len(segment), bool)
    named = np.array([name in tool_names for name in segment.tool_names], bool)
    if named.any():
        for kind in TOOL_KINDS:
            rank = KINDS.index(kind)
            a, b = segment.kind_starts[rank : rank + 2]
            mask[a:b] = named[segment.columns.tool[a:b]]
    return mask
