"""The order of scored documents: which of them come first, and which of equals.

A few dozen are shown of many thousands, so all but those that may be are dropped by arrays
before any is sorted by more than its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from indexd.best import Wanted
from indexd.index import FileFacts, Part, Snapshot
from indexd.plan import Formula
from indexd.segment import Array, distinct
from indexd.selection import timestamps

# Up to this many documents, sorting them all is faster than to find the best of them first.
FEW_DOCUMENTS = 50
# How much more a document scores that was said just now, where newer ones are preferred: enough to
# decide between near ties, and nothing else.
MOST_RECENCY = 0.1
# A little more than that, so that rounding hides nobody.
_SAFE_RECENCY = 1 + 1.001 * MOST_RECENCY


class Ranked(NamedTuple):
    """One document of the answer; if grouped, with the score of its session, and how many others
    of it stand behind it.
    """

    score: float
    facts: FileFacts
    part: Part
    ordinal: int
    others: int = 0


class Recency(NamedTuple):
    """How much newer documents are preferred: what is said at `now` (unix ms) scores a tenth more.

    half_life: after how many ms half of that is left.
    """

    half_life: float
    now: int

    def factors(self, times: Array) -> Array:
        """Return what the scores of documents of some times are multiplied by: 1 to 1.1."""
        ages = np.maximum(0, self.now - times)
        factors: Array = 1 + MOST_RECENCY * np.exp2(-ages / self.half_life)
        return factors


class Order(NamedTuple):
    """How to rank: by which formula (the default is pure BM25), and what comes first.

    recent: the newest first, whatever their scores. grouped: of each session only the first.
    recency: how much newer documents are preferred where scores are nearly equal.
    """

    formula: Formula = Formula()
    recent: bool = False
    relative_score: float = 0.15
    grouped: bool = False
    recency: Recency | None = None

    @property
    def by_score(self) -> bool:
        """Say whether documents come in the order of their scores, one by one."""
        return not (self.recent or self.grouped or self.recency)


class Keyed(NamedTuple):
    """Documents of one part: their ordinals, their scores, and what orders them (descending).

    others: how many more of its session stand behind each.
    """

    part: Part
    documents: Array
    scores: Array
    keys: Array
    others: Array

    def kept(self, at: Array) -> Keyed:
        """Return those at some positions."""
        return Keyed(self.part, *(column[at] for column in self[1:]))

    def file_ids(self) -> Array:
        """Return the file id of each document."""
        return self.part.segment.files_of(self.documents)

    def messages(self) -> Array:
        """Return the message_index of each document."""
        messages: Array = self.part.segment.columns.message.take(self.documents)
        return messages

    def times(self, snapshot: Snapshot) -> Array:
        """Return the times of the documents (unix ms)."""
        return timestamps(snapshot, self.part, self.documents)

    def scoring(self, scores: Array) -> Keyed:
        """Return them with other scores, and in the order of those."""
        return self._replace(scores=scores, keys=scores)

    def from_key(self, least: float) -> Keyed:
        """Return those whose key is at least `least`."""
        return self.kept((self.keys >= least).nonzero()[0])


def best(snapshot: Snapshot, found: list[Keyed], order: Order, top: int) -> list[Ranked]:
    """Return the best documents, trimmed by relative score, in order."""
    if not found or top <= 0:
        return []
    many = sum(len(each.scores) for each in found) > FEW_DOCUMENTS
    if many or not order.by_score:
        found = _trimmed(snapshot, found, order, top)
    rows = _in_order(snapshot, found, top)
    least = order.relative_score * max(row.score for row in rows)
    return [row for row in rows if row.score >= least] if order.by_score else rows


def _trimmed(snapshot: Snapshot, found: list[Keyed], order: Order, top: int) -> list[Keyed]:
    """Return little more than the best of many documents, in no order."""
    least = Wanted(top if order.by_score else None, order.relative_score).least(_keys(found))
    found = [each.from_key(least) for each in found]
    if order.recent:
        found = [each._replace(keys=each.times(snapshot)) for each in found]
    elif order.recency:
        if not order.grouped:
            # What lies further below the last one wanted cannot pass it.
            least = Wanted(top, 0.0).least(_keys(found)) / _SAFE_RECENCY
            found = [each.from_key(least) for each in found]
        factors = [order.recency.factors(each.times(snapshot)) for each in found]
        found = [each.scoring(each.scores * f) for each, f in zip(found, factors, strict=True)]
    if order.grouped:
        found = _one_per_session(found, 0.0 if order.recent else order.formula.second)
    if not order.by_score:
        least = Wanted(top, 0.0).least(_keys(found))
        found = [each.from_key(least) for each in found]
    if sum(len(each.keys) for each in found) > top:
        found = _first_by_path(snapshot, found, least, top)
    return found


def _one_per_session(found: Sequence[Keyed], second: float) -> list[Keyed]:
    """Return of each session the document that comes first, with the number of its others.

    The score of the document that comes next is added to its own, `second` times.
    """
    ids = np.concatenate([each.file_ids() for each in found])
    messages = np.concatenate([each.messages() for each in found])
    # Documents of one message lie in one part, so there ordinals may decide.
    documents = np.concatenate([each.documents for each in found])
    order = np.lexsort((documents, messages, -_keys(found), ids))
    begins = np.flatnonzero(np.concatenate(([True], ids[order][1:] != ids[order][:-1])))
    others, added = np.zeros(len(ids), np.int64), np.zeros(len(ids))
    first = order[begins]
    others[first] = np.diff(begins, append=len(order)) - 1
    if second:
        several = others[first] > 0
        added[first[several]] = second * _keys(found)[order[begins[several] + 1]]
    is_first = np.zeros(len(ids), bool)
    is_first[first] = True
    kept, at = [], 0
    for each in found:
        mine = slice(at, at := at + len(each.keys))
        each = each.scoring(each.scores + added[mine]) if second else each
        kept.append(each._replace(others=others[mine]).kept(np.flatnonzero(is_first[mine])))
    return kept


def _keys(found: Sequence[Keyed]) -> Array:
    return found[0].keys if len(found) == 1 else np.concatenate([each.keys for each in found])


def _first_by_path(
    snapshot: Snapshot, found: Sequence[Keyed], least: float, top: int
) -> list[Keyed]:
    """Return the `top` best where too many are equal, with the key `least`, in the last place.

    A few more may be returned, where documents of one message are equal.
    """
    equal = [each.kept((each.keys == least).nonzero()[0]) for each in found]
    better = [each.kept((each.keys > least).nonzero()[0]) for each in found]
    places = _by_path(snapshot, equal)
    last = top - sum(len(each.keys) for each in better) - 1
    end = np.partition(np.concatenate(places), last)[last]
    return better + [
        each.kept((place <= end).nonzero()[0]) for each, place in zip(equal, places, strict=True)
    ]


def _by_path(snapshot: Snapshot, found: Sequence[Keyed]) -> list[Array]:
    """Return for each document a number, ordered as (path, message) of the documents are."""
    ids = [each.file_ids() for each in found]
    known = distinct(np.concatenate(ids))
    paths = [snapshot.files[file_id].path_bytes for file_id in known.tolist()]
    places = np.empty(len(paths), np.int64)
    places[sorted(range(len(paths)), key=paths.__getitem__)] = np.arange(len(paths))
    return [
        places[known.searchsorted(mine)] << 32 | each.messages()
        for each, mine in zip(found, ids, strict=True)
    ]


def _in_order(snapshot: Snapshot, found: Sequence[Keyed], top: int) -> list[Ranked]:
    """Return the `top` first by descending key; where equal by path, message, kind and call."""
    rows: list[tuple[Any, ...]] = []
    for each in found:
        rows += zip(
            (-each.keys).tolist(),
            repeat(None),
            each.scores.tolist(),
            repeat(each.part),
            each.documents.tolist(),
            each.others.tolist(),
            strict=False,
        )
    if len({row[0] for row in rows}) < len(rows):
        places = chain.from_iterable([_tie_breakers(snapshot, each) for each in found])
        rows = [(row[0], place, *row[2:]) for row, place in zip(rows, places, strict=True)]
        rows.sort(key=itemgetter(0, 1))
    else:
        rows.sort(key=itemgetter(0))
    return [
        Ranked(score, snapshot.facts_of(part, ordinal), part, ordinal, others)
        for _, _, score, part, ordinal, others in rows[:top]
    ]


def _tie_breakers(snapshot: Snapshot, found: Keyed) -> list[tuple[Any, ...]]:
    """Return what tells documents of equal keys apart: no two are equal in all of it."""
    part, documents = found.part, found.documents
    return list(
        zip(
            [snapshot.files[file_id].path_bytes for file_id in found.file_ids().tolist()],
            found.messages().tolist(),
            part.segment.kind_ranks(documents).tolist(),
            part.segment.columns.call.take(documents).tolist(),
            strict=True,
        )
    )
