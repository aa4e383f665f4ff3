"""Which documents answer a query, and in which order.

The statistics (N, doc_freq, average length) are those of the selected documents, so a selection
is applied before anything is counted. Scores are accumulated term by term in the query's order,
the same way wherever a document is stored: equal documents get bit-equal scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from indexd import bm25
from indexd.index import FileFacts, FileMask, Part, Snapshot
from indexd.model import KINDS, TOOL_KINDS, Kind
from indexd.plan import Formula, QueryTerm
from indexd.scoring import NOTHING, Matches, Scored, score, together
from indexd.segment import Array, term_hash


class FileFilter(NamedTuple):
    """Which files a request selects: `accepts` decides, `key` says when two are the same."""

    key: object
    accepts: Callable[[FileFacts], bool]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which documents a request selects; times are unix ms, `since` <= time <= `until`."""

    kinds: tuple[Kind, ...]
    files: FileFilter | None = None
    tool_name: str | None = None
    since: int | None = None
    until: int | None = None


class Ranked(NamedTuple):
    """One document of the answer."""

    score: float
    facts: FileFacts
    part: Part
    ordinal: int


class Ranking(NamedTuple):
    """The best documents in order, how many matched, and what was searched."""

    ranked: list[Ranked]
    total: int
    documents: int
    doc_freqs: list[int]  # of each query term


class Order(NamedTuple):
    """How to rank: by which formula (the default is pure BM25), and what comes first."""

    formula: Formula = Formula()
    recent: bool = False
    relative_score: float = 0.15


@dataclass(slots=True, eq=False)
class _View:
    """A selection as seen in one part: ranges of ordinals, and masks where they are needed."""

    part: Part
    ranks: Array
    ranges: list[tuple[int, int]]
    files: Array | None  # boolean per local file
    documents: Array | None  # boolean per document

    def count(self) -> tuple[int, int]:
        """Return (documents, tokens) selected."""
        segment = self.part.segment
        if self.documents is not None:
            chosen = [np.flatnonzero(self.documents[a:b]) + a for a, b in self.ranges]
            at = np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
            return len(at), int(segment.columns.length[at].sum(dtype=np.int64))
        docs, tokens = segment.doc_counts, segment.token_counts
        if self.files is not None:
            docs, tokens = docs[self.files], tokens[self.files]
        return int(docs[:, self.ranks].sum()), int(tokens[:, self.ranks].sum())

    def postings(self, at: int) -> tuple[Array, Array]:
        """Return the selected (ordinals, frequencies) of the term at dictionary position `at`."""
        segment = self.part.segment
        ordinals, freqs = segment.term_postings(at)
        if self.ranges != [(0, len(segment))]:
            cuts = [ordinals.searchsorted(bounds) for bounds in self.ranges]
            ordinals = np.concatenate([NOTHING[0], *(ordinals[a:b] for a, b in cuts)])
            freqs = np.concatenate([NOTHING[1], *(freqs[a:b] for a, b in cuts)])
        mask = None
        if self.documents is not None:
            mask = self.documents[ordinals]
        elif self.files is not None:
            mask = self.files[segment.columns.file[ordinals]]
        return (ordinals, freqs) if mask is None else (ordinals[mask], freqs[mask])


def rank(
    snapshot: Snapshot, query: Sequence[QueryTerm], selection: Selection, order: Order, top: int
) -> Ranking:
    """Return the `top` best documents for `query` among those selected.

    `total` counts every document that holds a term, before the trim by relative score.
    """
    views = [_view(snapshot, part, selection) for part in snapshot.parts]
    counts = [view.count() for view in views]
    documents = sum(docs for docs, _ in counts)
    average = bm25.average_length(documents, sum(tokens for _, tokens in counts))
    matches = _matches(views, query)
    doc_freqs = [sum(len(m.terms[at][0]) for m in matches) for at in range(len(query))]
    weights = [
        term.weight * bm25.idf(documents, doc_freq) if doc_freq else 0.0
        for term, doc_freq in zip(query, doc_freqs, strict=True)
    ]
    scored = score(matches, weights, average, order.formula)
    return Ranking(
        _best(snapshot, matches, scored, order, top),
        sum(len(ordinals) for ordinals, _ in scored),
        documents,
        doc_freqs,
    )


def _matches(views: Sequence[_View], query: Sequence[QueryTerm]) -> list[Matches]:
    """Return what each view holds of each query term."""
    terms = list(dict.fromkeys(term for each in query for term in each.terms))
    hashes = np.array([term_hash(term) for term in terms], np.uint64)
    found = [
        {
            terms[number]: postings
            for number, at in view.part.segment.dictionary.find_all(terms, hashes)
            if len((postings := view.postings(at))[0])
        }
        for view in views
    ]
    occurring = frozenset().union(*found)
    wanted = [each.among(occurring) for each in query]
    return [
        Matches(view.part, [together([held[t] for t in which if t in held]) for which in wanted])
        for view, held in zip(views, found, strict=True)
    ]


def _view(snapshot: Snapshot, part: Part, selection: Selection) -> _View:
    ranks = np.array(sorted(KINDS.index(kind) for kind in selection.kinds), np.int64)
    files = _file_mask(snapshot, part, selection.files)
    view = _View(part, ranks, _ranges(part, ranks), files, None)
    if (
        selection.tool_name is not None
        or selection.since is not None
        or selection.until is not None
    ):
        view.documents = _document_mask(snapshot, part, selection, files)
    return view


def _ranges(part: Part, ranks: Array) -> list[tuple[int, int]]:
    """Return the ranges of ordinals of the kinds, neighbours joined, empty ones left out."""
    ranges: list[tuple[int, int]] = []
    starts = part.segment.kind_starts
    for rank in ranks.tolist():
        a, b = int(starts[rank]), int(starts[rank + 1])
        if a == b:
            continue
        if ranges and ranges[-1][1] == a:
            ranges[-1] = (ranges[-1][0], b)
        else:
            ranges.append((a, b))
    return ranges


def _file_mask(snapshot: Snapshot, part: Part, chosen: FileFilter | None) -> Array | None:
    if chosen is None:
        return part.alive
    key = (chosen.key, id(part))
    known = snapshot.remembered.get(key)
    if known is not None:
        return known.mask
    files = snapshot.files
    ids = part.segment.file_ids.tolist()
    mask = np.array([(f := files.get(i)) is not None and chosen.accepts(f) for i in ids], bool)
    snapshot.remember(key, FileMask(part, mask))
    return mask


def _document_mask(
    snapshot: Snapshot, part: Part, selection: Selection, files: Array | None
) -> Array:
    segment = part.segment
    mask = np.ones(len(segment), bool) if files is None else files[segment.columns.file]
    if selection.tool_name is not None:
        mask &= _tool_mask(part, selection.tool_name)
    if selection.since is not None or selection.until is not None:
        times = timestamps(snapshot, part, np.arange(len(segment)))
        if selection.since is not None:
            mask &= times >= selection.since
        if selection.until is not None:
            mask &= times <= selection.until
    return mask


def _tool_mask(part: Part, tool_name: str) -> Array:
    segment = part.segment
    mask = np.zeros(len(segment), bool)
    if tool_name in segment.tool_names:
        of_tool = segment.columns.tool == segment.tool_names.index(tool_name)
        for kind in TOOL_KINDS:
            rank = KINDS.index(kind)
            a, b = segment.kind_starts[rank : rank + 2]
            mask[a:b] = of_tool[a:b]
    return mask


def timestamps(snapshot: Snapshot, part: Part, ordinals: Array) -> Array:
    """Return the time (unix ms) of documents; their file's mtime where they have none."""
    segment = part.segment
    times: Array = segment.columns.timestamp.take(ordinals)
    unknown = np.flatnonzero(times == 0)
    if len(unknown):
        files = segment.file_ids[segment.columns.file[ordinals[unknown]]].tolist()
        known = snapshot.files
        times = times.copy()
        times[unknown] = [f.mtime if (f := known.get(i)) else 0 for i in files]
    return times


def _best(
    snapshot: Snapshot,
    matches: Sequence[Matches],
    scored: Sequence[Scored],
    order: Order,
    top: int,
) -> list[Ranked]:
    """Return the best documents, trimmed by relative score, in order."""
    scores = np.concatenate([np.zeros(0), *(s for _, s in scored)])
    if not len(scores) or top <= 0:
        return []
    numbers = np.repeat(np.arange(len(scored)), [len(s) for _, s in scored])
    ordinals = np.concatenate([o for o, _ in scored])
    chosen = np.flatnonzero(scores >= order.relative_score * scores.max())
    keys = scores[chosen]
    if order.recent:
        keys = _times(snapshot, matches, numbers[chosen], ordinals[chosen]).astype(np.float64)
    if len(chosen) > top:
        # Every tie of the last place stays, so that the order below decides it.
        least = np.partition(keys, len(keys) - top)[len(keys) - top]
        chosen, keys = chosen[keys >= least], keys[keys >= least]
    rows = _rows(snapshot, matches, scores, numbers, ordinals, chosen)
    return [
        row
        for _, row in sorted(
            zip(_sort_keys(rows, keys), rows, strict=True), key=lambda pair: pair[0]
        )[:top]
    ]


def _times(
    snapshot: Snapshot, matches: Sequence[Matches], numbers: Array, ordinals: Array
) -> Array:
    times = np.zeros(len(ordinals), np.int64)
    for number, match in enumerate(matches):
        mine = numbers == number
        times[mine] = timestamps(snapshot, match.part, ordinals[mine].astype(np.int64))
    return times


def _rows(
    snapshot: Snapshot,
    matches: Sequence[Matches],
    scores: Array,
    numbers: Array,
    ordinals: Array,
    chosen: Array,
) -> list[Ranked]:
    rows = []
    for at in chosen.tolist():
        part, ordinal = matches[numbers[at]].part, int(ordinals[at])
        segment = part.segment
        facts = snapshot.files[int(segment.file_ids[segment.columns.file[ordinal]])]
        rows.append(Ranked(float(scores[at]), facts, part, ordinal))
    return rows


def _sort_keys(rows: Sequence[Ranked], keys: Array) -> list[tuple[object, ...]]:
    return [
        (
            -key,
            row.facts.path.encode("utf-8", "surrogateescape"),
            int(row.part.segment.columns.message[row.ordinal]),
            int(row.part.segment.kind_ranks(np.array([row.ordinal]))[0]),
            int(row.part.segment.columns.call[row.ordinal]),
        )
        for key, row in zip(keys.tolist(), rows, strict=True)
    ]
