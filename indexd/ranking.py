"""Which documents answer a query, and in which order.

The statistics (N, doc_freq, average length) are those of the selected documents, so a selection
is applied before anything is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from indexd import bm25
from indexd.index import FileFacts, Part, Snapshot
from indexd.matching import Matches, match
from indexd.plan import Formula, QueryTerm
from indexd.scoring import Scored, Terms, Wanted, score
from indexd.segment import Array
from indexd.selection import Selection, timestamps, views


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


def rank(
    snapshot: Snapshot, query: Sequence[QueryTerm], selection: Selection, order: Order, top: int
) -> Ranking:
    """Return the `top` best documents for `query` among those selected.

    `total` counts every document that holds a term, before the trim by relative score.
    """
    seen = views(snapshot, selection)
    documents = sum(view.documents for view in seen)
    average = bm25.average_length(documents, sum(view.tokens for view in seen))
    matches = match(seen, query)
    doc_freqs = [sum(len(m.terms[at]) for m in matches) for at in range(len(query))]
    weights = [
        term.weight * bm25.idf(documents, doc_freq) if doc_freq else 0.0
        for term, doc_freq in zip(query, doc_freqs, strict=True)
    ]
    wanted = Wanted(None if order.recent else top, order.relative_score)
    scored = score(matches, Terms(weights, average, order.formula), wanted)
    total = sum(each.total for each in scored)
    return Ranking(_best(snapshot, matches, scored, order, top), total, documents, doc_freqs)


class _Found(NamedTuple):
    """Documents of several parts, end to end; `part` is the position of each one's part."""

    part: Array
    document: Array
    score: Array

    def chosen(self, at: Array) -> _Found:
        """Return those at some positions."""
        return _Found(self.part[at], self.document[at], self.score[at])


def _best(
    snapshot: Snapshot,
    matches: Sequence[Matches],
    scored: Sequence[Scored],
    order: Order,
    top: int,
) -> list[Ranked]:
    """Return the best documents, trimmed by relative score, in order."""
    parts = [match.view.part for match in matches]
    found = _Found(
        np.repeat(np.arange(len(scored)), [len(each.scores) for each in scored]),
        np.concatenate([np.zeros(0, np.uint32), *(each.documents for each in scored)]),
        np.concatenate([np.zeros(0), *(each.scores for each in scored)]),
    )
    if not len(found.score) or top <= 0:
        return []
    least = Wanted(None if order.recent else top, order.relative_score).least(found.score)
    found = found.chosen(np.flatnonzero(found.score >= least))
    keys = _times(snapshot, parts, found) if order.recent else found.score
    if len(keys) > top:
        # Every tie of the last place stays, so that the order below decides it.
        last = np.partition(keys, len(keys) - top)[len(keys) - top]
        kept = np.flatnonzero(keys >= last)
        found, keys = found.chosen(kept), keys[kept]
    if len(keys) > top:
        kept = _first_by_path(snapshot, parts, found, keys, top)
        found, keys = found.chosen(kept), keys[kept]
    rows = _rows(snapshot, parts, found)
    in_order = sorted(zip(_sort_keys(rows, keys), rows, strict=True), key=lambda pair: pair[0])
    return [row for _, row in in_order[:top]]


def _first_by_path(
    snapshot: Snapshot, parts: Sequence[Part], found: _Found, keys: Array, top: int
) -> Array:
    """Return the positions of the `top` best where more than that are equal in the last place.

    A few more may be returned, where documents of one message are equal.
    """
    least = keys.min()
    better = np.flatnonzero(keys > least)
    equal = np.flatnonzero(keys == least)
    places = _places(snapshot, parts, found.chosen(equal))
    wanted = top - len(better)
    return np.concatenate([better, equal[places <= np.partition(places, wanted - 1)[wanted - 1]]])


def _places(snapshot: Snapshot, parts: Sequence[Part], found: _Found) -> Array:
    """Return numbers that are ordered as (path, message) of the documents are."""
    file_ids, messages = np.zeros(len(found.part), np.int64), np.zeros(len(found.part), np.int64)
    for number, part in enumerate(parts):
        mine = found.part == number
        columns = part.segment.columns
        file_ids[mine] = part.segment.file_ids[columns.file[found.document[mine]]]
        messages[mine] = columns.message[found.document[mine]]
    distinct, files = np.unique(file_ids, return_inverse=True)
    paths = [_path_key(snapshot.files[file_id]) for file_id in distinct.tolist()]
    places = np.empty(len(paths), np.int64)
    places[sorted(range(len(paths)), key=paths.__getitem__)] = np.arange(len(paths))
    together: Array = places[files] << 32 | messages
    return together


def _path_key(facts: FileFacts) -> bytes:
    return facts.path.encode("utf-8", "surrogateescape")


def _times(snapshot: Snapshot, parts: Sequence[Part], found: _Found) -> Array:
    times = np.zeros(len(found.part), np.int64)
    for number, part in enumerate(parts):
        mine = found.part == number
        times[mine] = timestamps(snapshot, part, found.document[mine].astype(np.int64))
    return times


def _rows(snapshot: Snapshot, parts: Sequence[Part], found: _Found) -> list[Ranked]:
    rows = []
    for number, document, points in zip(*(column.tolist() for column in found), strict=True):
        segment = parts[number].segment
        facts = snapshot.files[int(segment.file_ids[segment.columns.file[document]])]
        rows.append(Ranked(points, facts, parts[number], document))
    return rows


def _sort_keys(rows: Sequence[Ranked], keys: Array) -> list[tuple[object, ...]]:
    return [
        (
            -key,
            _path_key(row.facts),
            int(row.part.segment.columns.message[row.ordinal]),
            int(row.part.segment.kind_ranks(np.array([row.ordinal]))[0]),
            int(row.part.segment.columns.call[row.ordinal]),
        )
        for key, row in zip(keys.tolist(), rows, strict=True)
    ]
