"""Which documents answer a query, and in which order.

The statistics (N, doc_freq, average length) are those of the selected documents, so a selection
is applied before anything is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from indexd import bm25
from indexd.index import FileFacts, Part, Snapshot
from indexd.matching import Matches, match
from indexd.plan import Formula, QueryTerm
from indexd.scoring import Scored, Terms, Wanted, score
from indexd.segment import Array
from indexd.selection import Selection, timestamps, views

# Up to this many documents, sorting them all is faster than to find the best of them first.
FEW_DOCUMENTS = 50


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
    """Documents of one part: their ordinals, their scores, and what orders them (descending)."""

    part: Part
    documents: Array
    scores: Array
    keys: Array

    def kept(self, at: Array) -> _Found:
        """Return those at some positions."""
        return _Found(self.part, self.documents[at], self.scores[at], self.keys[at])

    def from_key(self, least: float) -> _Found:
        """Return those whose key is at least `least`."""
        return self.kept((self.keys >= least).nonzero()[0])


def _best(
    snapshot: Snapshot,
    matches: Sequence[Matches],
    scored: Sequence[Scored],
    order: Order,
    top: int,
) -> list[Ranked]:
    """Return the best documents, trimmed by relative score, in order."""
    found = [
        _Found(match.view.part, each.documents, each.scores, each.scores)
        for match, each in zip(matches, scored, strict=True)
        if len(each.scores)
    ]
    if not found or top <= 0:
        return []
    if order.recent or sum(len(each.scores) for each in found) > FEW_DOCUMENTS:
        found = _trimmed(snapshot, found, order, top)
    rows = _in_order(snapshot, found, top)
    least = order.relative_score * max(row.score for row in rows)
    return rows if order.recent else [row for row in rows if row.score >= least]


def _trimmed(snapshot: Snapshot, found: list[_Found], order: Order, top: int) -> list[_Found]:
    """Return little more than the best of many documents, in no order."""
    least = Wanted(None if order.recent else top, order.relative_score).least(_keys(found))
    found = [each.from_key(least) for each in found]
    if order.recent:
        times = [timestamps(snapshot, each.part, each.documents) for each in found]
        found = [each._replace(keys=time) for each, time in zip(found, times, strict=True)]
        least = Wanted(top, 0.0).least(_keys(found))
        found = [each.from_key(least) for each in found]
    if sum(len(each.keys) for each in found) > top:
        found = _first_by_path(snapshot, found, least, top)
    return found


def _keys(found: Sequence[_Found]) -> Array:
    return found[0].keys if len(found) == 1 else np.concatenate([each.keys for each in found])


def _first_by_path(
    snapshot: Snapshot, found: Sequence[_Found], least: float, top: int
) -> list[_Found]:
    """Return the `top` best where too many are equal, with the key `least`, in the last place.

    A few more may be returned, where documents of one message are equal.
    """
    equal = [each.kept((each.keys == least).nonzero()[0]) for each in found]
    better = [each.kept((each.keys > least).nonzero()[0]) for each in found]
    places = _places(snapshot, equal)
    last = top - sum(len(each.keys) for each in better) - 1
    end = np.partition(np.concatenate(places), last)[last]
    return better + [
        each.kept((place <= end).nonzero()[0]) for each, place in zip(equal, places, strict=True)
    ]


def _places(snapshot: Snapshot, found: Sequence[_Found]) -> list[Array]:
    """Return for each document a number, ordered as (path, message) of the documents are."""
    files = [each.part.segment.columns.file[each.documents] for each in found]
    ids = [each.part.segment.file_ids[file] for each, file in zip(found, files, strict=True)]
    distinct = np.unique(np.concatenate(ids))
    paths = [_path_key(snapshot.files[file_id]) for file_id in distinct.tolist()]
    places = np.empty(len(paths), np.int64)
    places[sorted(range(len(paths)), key=paths.__getitem__)] = np.arange(len(paths))
    return [
        places[distinct.searchsorted(mine)] << 32
        | each.part.segment.columns.message[each.documents]
        for each, mine in zip(found, ids, strict=True)
    ]


def _path_key(facts: FileFacts) -> bytes:
    return facts.path.encode("utf-8", "surrogateescape")


def _in_order(snapshot: Snapshot, found: Sequence[_Found], top: int) -> list[Ranked]:
    """Return the `top` first by descending key; where equal by path, message, kind and call."""
    rows: list[tuple[Any, ...]] = []
    for part, documents, scores, keys in found:
        segment, columns = part.segment, part.segment.columns
        file_ids = segment.file_ids.take(columns.file.take(documents)).tolist()
        facts = [snapshot.files[file_id] for file_id in file_ids]
        rows += zip(
            (-keys).tolist(),
            map(_path_key, facts),
            columns.message.take(documents).tolist(),
            segment.kind_ranks(documents).tolist(),
            columns.call.take(documents).tolist(),
            scores.tolist(),
            facts,
            repeat(part),
            documents.tolist(),
            strict=False,
        )
    rows.sort()  # no two documents are equal in the first five
    return [Ranked(*row[5:]) for row in rows[:top]]
