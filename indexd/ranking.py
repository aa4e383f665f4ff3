"""Which documents answer a query, and how many did.

The statistics (N, doc_freq, average length) are those of the selected documents, so a selection
is applied before anything is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from indexd import bm25
from indexd.best import Wanted
from indexd.copies import Copies, Groups
from indexd.index import Snapshot
from indexd.matching import Held, Matches, match
from indexd.ordering import Keyed, Order, Ranked, best
from indexd.plan import NO_DEMAND, Demand, QueryTerm
from indexd.scoring import Scored, Terms, score, score_these
from indexd.segment import Array
from indexd.selection import Selection, View, views

# A query of more terms than this is ranked by the rarest of them.
MAX_TERMS = 256
# Of documents that must be looked at to be told from others, the best so many are, and where too
# few are answers so many times more each time; at once as many as come from so many bytes of lines.
CHECKED, CHECKED_MORE, CHECKED_BYTES = 200, 4, 4 * 1024 * 1024


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
    found, total = _keyed(matches, scored), sum(each.total for each in scored)
    looked_at = unchecked = 0
    if check is not None:
        found, looked_at = _checked(snapshot, found, order, top, check)
        unchecked = total - looked_at
        total = unchecked + sum(len(each.scores) for each in found)
    ranked = best(snapshot, found, order, top)
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


def _keyed(matches: Sequence[Matches], scored: Sequence[Scored]) -> list[Keyed]:
    return [
        Keyed(m.view.part, s.documents, s.scores, s.scores, np.zeros(len(s.scores), np.int64))
        for m, s in zip(matches, scored, strict=True)
        if len(s.scores)
    ]


def _checked(
    snapshot: Snapshot, found: list[Keyed], order: Order, top: int, check: Check
) -> tuple[list[Keyed], int]:
    """Return the documents that are an answer, as many as are wanted, and how many were looked at.

    The first by the order are looked at first, and more of them while too few are answers.
    """
    one_by_one = order._replace(relative_score=0.0, grouped=False, recency=None)
    answers: list[Ranked] = []
    looked_at, wanted = 0, CHECKED
    while found:
        rows = best(snapshot, found, one_by_one, wanted)
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
    highest = max((row.score for row in answers), default=0.0)
    return not order.recent and last.score < order.relative_score * highest


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
