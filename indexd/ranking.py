"""Which documents answer a query, and in which order.

The statistics (N, doc_freq, average length) are those of the selected documents, so a selection
is applied before anything is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from indexd import bm25
from indexd.copies import Copies, Groups
from indexd.index import FileFacts, Part, Snapshot
from indexd.matching import Held, Matches, match
from indexd.plan import NO_DEMAND, Demand, Formula, QueryTerm
from indexd.scoring import Scored, Terms, Wanted, score, score_these
from indexd.segment import Array, distinct
from indexd.selection import Selection, View, timestamps, views

# Up to this many documents, sorting them all is faster than to find the best of them first.
FEW_DOCUMENTS = 50


# How much more a document scores that was said just now, where newer ones are preferred: enough to
# decide between near ties, and nothing else.
MOST_RECENCY = 0.1
# A little more than that, so that rounding hides nobody.
_SAFE_RECENCY = 1 + 1.001 * MOST_RECENCY
# A query of more terms than this is ranked by the rarest of them.
MAX_TERMS = 256
# Of documents that must be looked at to be told from others, the best so many are, and where too
# few are answers so many times more each time; at once as many as come from so many bytes of lines.
CHECKED, CHECKED_MORE, CHECKED_BYTES = 200, 4, 4 * 1024 * 1024


class Ranked(NamedTuple):
    """One document of the answer; if grouped, with the score of its session, and how many others
    of it stand behind it.
    """

    score: float
    facts: FileFacts
    part: Part
    ordinal: int
    others: int = 0


class Ranking(NamedTuple):
    """The best documents in order, how many matched, and what was searched.

    doc_freqs: of each query term. unused: how many terms that occur were too many. checked,
    unchecked: how many documents that may be an answer were looked at and were not. groups: of
    copies, if those are hidden.
    """

    ranked: list[Ranked]
    total: int
    documents: int
    doc_freqs: list[int]
    unused: int = 0
    checked: int = 0
    unchecked: int = 0
    groups: Groups | None = None


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


# Says of each of some documents whether it is an answer; of fewer, from the first on, if there is
# no time for more.
Check = Callable[[Sequence[Ranked]], Sequence[bool]]


def rank(
    snapshot: Snapshot,
    query: Sequence[QueryTerm],
    selection: Selection,
    order: Order,
    top: int,
    demand: Demand = NO_DEMAND,
    check: Check | None = None,
    copies: Copies | None = None,
) -> Ranking:
    """Return the `top` best documents for `query` among those selected.

    `total` counts every document that holds a term and does as demanded, before the trim by
    relative score; of those that need a check, all but the ones that failed it. With `copies`,
    of equal documents only the original is one.
    """
    seen: Sequence[View] = views(snapshot, selection)
    groups = copies.hidden(snapshot, selection, seen) if copies else None
    seen = groups.views if groups else seen
    documents = sum(view.documents for view in seen)
    average = bm25.average_length(documents, sum(view.tokens for view in seen))
    every = match(seen, [*query, *demand.must, *demand.must_not])
    doc_freqs = [sum(len(each.terms[at]) for each in every) for at in range(len(query))]
    used = _rarest(doc_freqs)
    matches = [each.only(used) for each in every]
    weights = [
        query[at].weight * bm25.idf(documents, doc_freqs[at]) if doc_freqs[at] else 0.0
        for at in used
    ]
    terms = Terms(weights, average, order.formula)
    if demand == NO_DEMAND and check is None:
        wanted = Wanted(top if order.by_score else None, order.relative_score)
        scored = score(matches, terms, wanted)
    else:
        demanded = [
            _demanded(each.terms[len(query) :], demand, m)
            for each, m in zip(every, matches, strict=True)
        ]
        scored = score_these(matches, terms, demanded)
    found, total = _found(matches, scored), sum(each.total for each in scored)
    looked_at = unchecked = 0
    if check is not None:
        found, looked_at = _checked(snapshot, found, order, top, check)
        unchecked = total - looked_at
        total = unchecked + sum(len(each.scores) for each in found)
    ranked = _best(snapshot, found, order, top)
    unused = max(0, sum(map(bool, doc_freqs)) - MAX_TERMS)
    return Ranking(ranked, total, documents, doc_freqs, unused, looked_at, unchecked, groups)


def _rarest(doc_freqs: Sequence[int]) -> Sequence[int]:
    """Return the positions of the terms to use, in order: all, unless they are too many."""
    if len(doc_freqs) <= MAX_TERMS:
        return range(len(doc_freqs))
    occurring = [at for at, doc_freq in enumerate(doc_freqs) if doc_freq]
    return sorted(sorted(occurring, key=doc_freqs.__getitem__)[:MAX_TERMS])


def _demanded(held: Sequence[Held], demand: Demand, match: Matches) -> Array:
    """Return the documents that hold what they must, else any term, and not what they must not."""
    must, must_not = held[: len(demand.must)], held[len(demand.must) :]
    if must:
        documents = must[0].documents()
        for other in must[1:]:
            documents = np.intersect1d(documents, other.documents(), assume_unique=True)
    else:
        lists = [each.documents() for each in match.terms]
        documents = np.unique(np.concatenate([np.zeros(0, np.uint32), *lists]))
    for other in must_not:
        documents = np.setdiff1d(documents, other.documents(), assume_unique=True)
    return documents.astype(np.uint32)


class _Found(NamedTuple):
    """Documents of one part: their ordinals, their scores, and what orders them (descending).

    others: how many more of its session stand behind each.
    """

    part: Part
    documents: Array
    scores: Array
    keys: Array
    others: Array

    def kept(self, at: Array) -> _Found:
        """Return those at some positions."""
        return _Found(self.part, *(column[at] for column in self[1:]))

    def times(self, snapshot: Snapshot) -> Array:
        """Return the times of the documents (unix ms)."""
        return timestamps(snapshot, self.part, self.documents)

    def scoring(self, scores: Array) -> _Found:
        """Return them with other scores, and in the order of those."""
        return self._replace(scores=scores, keys=scores)

    def from_key(self, least: float) -> _Found:
        """Return those whose key is at least `least`."""
        return self.kept((self.keys >= least).nonzero()[0])


def _found(matches: Sequence[Matches], scored: Sequence[Scored]) -> list[_Found]:
    return [
        _Found(m.view.part, s.documents, s.scores, s.scores, np.zeros(len(s.scores), np.int64))
        for m, s in zip(matches, scored, strict=True)
        if len(s.scores)
    ]


def _checked(
    snapshot: Snapshot, found: list[_Found], order: Order, top: int, check: Check
) -> tuple[list[_Found], int]:
    """Return the documents that are an answer, as many as are wanted, and how many were looked at.

    The first by the order are looked at first, and more of them while too few are answers.
    """
    one_by_one = order._replace(relative_score=0.0, grouped=False, recency=None)
    answers: list[Ranked] = []
    looked_at, wanted = 0, CHECKED
    while found:
        rows = _in_order(snapshot, _trimmed(snapshot, found, one_by_one, wanted), wanted)
        while looked_at < len(rows):
            some = _within_bytes(rows[looked_at:])
            said = check(some)
            answers += [row for row, is_one in zip(some, said, strict=False) if is_one]
            looked_at += len(said)
            if len(said) < len(some):
                break
        if looked_at < wanted or _enough(answers, rows[-1], order, top):
            break
        wanted *= CHECKED_MORE
    kept = []
    for each in found:
        mine = [row.ordinal for row in answers if row.part is each.part]
        kept.append(each.kept(np.flatnonzero(np.isin(each.documents, mine))))
    return [each for each in kept if len(each.scores)], looked_at


def _enough(answers: Sequence[Ranked], last: Ranked, order: Order, top: int) -> bool:
    """Say whether more answers than those found would not be shown; `last` was looked at last."""
    if len({row.facts.file_id for row in answers} if order.grouped else answers) >= top:
        return True
    best = max((row.score for row in answers), default=0.0)
    return not order.recent and last.score < order.relative_score * best


def _within_bytes(rows: Sequence[Ranked]) -> list[Ranked]:
    """Return the first rows whose lines are few enough bytes; at least one.

    A line is read once, however many of its documents are looked at.
    """
    kept: list[Ranked] = []
    left, lines = CHECKED_BYTES, set()
    for row in rows:
        columns, at = row.part.segment.columns, np.array([row.ordinal])
        line = (row.facts.file_id, int(columns.offset.take(at)[0]))
        if line not in lines:
            lines.add(line)
            left -= int(columns.size.take(at)[0])
            if kept and left < 0:
                break
        kept.append(row)
    return kept


def _best(snapshot: Snapshot, found: list[_Found], order: Order, top: int) -> list[Ranked]:
    """Return the best documents, trimmed by relative score, in order."""
    if not found or top <= 0:
        return []
    many = sum(len(each.scores) for each in found) > FEW_DOCUMENTS
    if many or not order.by_score:
        found = _trimmed(snapshot, found, order, top)
    rows = _in_order(snapshot, found, top)
    least = order.relative_score * max(row.score for row in rows)
    return [row for row in rows if row.score >= least] if order.by_score else rows


def _trimmed(snapshot: Snapshot, found: list[_Found], order: Order, top: int) -> list[_Found]:
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


def _one_per_session(found: Sequence[_Found], second: float) -> list[_Found]:
    """Return of each session the document that comes first, with the number of its others.

    The score of the document that comes next is added to its own, `second` times.
    """
    columns = [each.part.segment.columns for each in found]
    files = [c.file[each.documents] for c, each in zip(columns, found, strict=True)]
    ids = np.concatenate(
        [e.part.segment.file_ids[file] for e, file in zip(found, files, strict=True)]
    )
    messages = np.concatenate([c.message[e.documents] for c, e in zip(columns, found, strict=True)])
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
    known = distinct(np.concatenate(ids))
    paths = [_path_key(snapshot.files[file_id]) for file_id in known.tolist()]
    places = np.empty(len(paths), np.int64)
    places[sorted(range(len(paths)), key=paths.__getitem__)] = np.arange(len(paths))
    return [
        places[known.searchsorted(mine)] << 32 | each.part.segment.columns.message[each.documents]
        for each, mine in zip(found, ids, strict=True)
    ]


def _path_key(facts: FileFacts) -> bytes:
    return facts.path.encode("utf-8", "surrogateescape")


def _in_order(snapshot: Snapshot, found: Sequence[_Found], top: int) -> list[Ranked]:
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
        places = chain.from_iterable([_places_of(snapshot, each) for each in found])
        rows = [(row[0], place, *row[2:]) for row, place in zip(rows, places, strict=True)]
        rows.sort(key=itemgetter(0, 1))
    else:
        rows.sort(key=itemgetter(0))
    return [
        Ranked(score, _facts(snapshot, part, ordinal), part, ordinal, others)
        for _, _, score, part, ordinal, others in rows[:top]
    ]


def _places_of(snapshot: Snapshot, found: _Found) -> list[tuple[Any, ...]]:
    """Return what tells documents of equal keys apart: no two are equal in all of it."""
    part, documents = found.part, found.documents
    segment, columns = part.segment, part.segment.columns
    file_ids = segment.file_ids.take(columns.file.take(documents)).tolist()
    return list(
        zip(
            [_path_key(snapshot.files[file_id]) for file_id in file_ids],
            columns.message.take(documents).tolist(),
            segment.kind_ranks(documents).tolist(),
            columns.call.take(documents).tolist(),
            strict=True,
        )
    )


def _facts(snapshot: Snapshot, part: Part, ordinal: int) -> FileFacts:
    segment = part.segment
    return snapshot.files[int(segment.file_ids[segment.columns.file[ordinal]])]
