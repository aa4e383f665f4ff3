"""Exact scores, without scoring every document that matches.

Postings are all scored, but for those of terms that a large share of documents hold. What such
terms may add is known by bounds; so of the documents that hold any other term only those are
scored in full that can still reach the answer, and of all others only those in blocks that can.
Scores are added up term by term in the query's order, wherever a document is stored: equal
documents get bit-equal scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from indexd import bm25, impact
from indexd.matching import Frequent, Listed, Matches, grouped, union
from indexd.plan import Formula
from indexd.segment import Array, distinct

# Up to this many postings are scored one by one: that is the faster way, out of the cache.
TINY_POSTINGS = 32
# How many postings are taken in first, before it is asked whether more can matter.
FEW_POSTINGS = 4096
# How many blocks of documents are looked into first, and how many times more each next time
# (of postings too).
FIRST_ROUND, NEXT_ROUND = 16, 8
_SAMPLE = 4096
# Sums in another order differ by less than this share.
_SLACK = 1e-9


class Wanted(NamedTuple):
    """Which scores matter: the `top` best, of them those from `share` of the best on.

    `top` is None where another order than that of scores decides.
    """

    top: int | None
    share: float

    def least(self, scores: Array) -> float:
        """Return the score below which no document matters, given some of the scores."""
        if not len(scores):
            return 0.0
        if self.top is None or not 0 < self.top <= len(scores):
            return self.share * float(scores.max())
        last = len(scores) - self.top
        ordered = scores.copy()
        ordered.partition(last)
        return max(float(ordered[last]), self.share * float(ordered[last:].max()))


class Scored(NamedTuple):
    """Documents of a part (ordinals) and their scores: all that matter. `total` matched."""

    documents: Array
    scores: Array
    total: int


class Terms(NamedTuple):
    """What scores are made of, beside what the parts hold.

    `weights` are those of the query's terms, idf included, 0 where none occurs; `average` is
    the mean length of the documents selected.
    """

    weights: Sequence[float]
    average: float
    formula: Formula


def score(matches: Sequence[Matches], terms: Terms, wanted: Wanted) -> list[Scored]:
    """Return for each part the documents that may belong to the answer, and their scores."""
    if not any(terms.weights):
        return [_NONE for _ in matches]
    factors = _session_factors(matches, terms)
    return [
        _Scoring(match, terms, factor).best(wanted)
        for match, factor in zip(matches, factors, strict=True)
    ]


def score_these(
    matches: Sequence[Matches], terms: Terms, documents: Sequence[Array]
) -> list[Scored]:
    """Return the scores of given documents of each part; they are all that matched."""
    if not any(terms.weights):
        return [_NONE for _ in matches]
    factors = _session_factors(matches, terms)
    return [
        _Scoring(match, terms, factor).of(these)
        for match, factor, these in zip(matches, factors, documents, strict=True)
    ]


def _session_factors(matches: Sequence[Matches], terms: Terms) -> list[Array | None]:
    """Return per file of each part what its session is worth: how much of the query it holds."""
    gain = terms.formula.session_coverage
    if not gain:
        return [None] * len(matches)
    numbers, sessions = _numbered([match.view.part.segment.file_ids for match in matches])
    mass = np.zeros(sessions)
    for at, weight in enumerate(terms.weights):
        holds = np.zeros(sessions, bool)
        for match, number in zip(matches, numbers, strict=True):
            holds[number[match.terms[at].files()]] = True
        mass[holds] += weight
    factors = 1 + gain * (mass / sum(terms.weights))
    return [factors[number] for number in numbers]


def _numbered(file_ids: Sequence[Array]) -> tuple[list[Array], int]:
    """Return a number for each file of each part, the same for the same id, and how many."""
    if len(file_ids) == 1:
        return [np.arange(len(file_ids[0]))], len(file_ids[0])
    known = distinct(np.concatenate(file_ids))
    return [known.searchsorted(ids) for ids in file_ids], len(known)


class _Bound(NamedTuple):
    """A frequent term, and what one of its impacts stands for in a sum of weights."""

    frequent: Frequent
    unit: float

    def times(self, impacts: Array) -> Array:
        """Return what impacts stand for."""
        bounds: Array = impacts * self.unit
        return bounds


class _Taken(NamedTuple):
    """The documents of the lists that were taken in, with what these add to their scores.

    least: the score that others must reach. most, mass: what the terms that were not taken in
    may add to a sum, and their weight. all: whether every list was taken in.
    """

    ordinals: Array
    sums: Array
    masses: Array
    scores: Array
    least: float
    most: float
    mass: float
    all: bool


class _Scoring:
    """The scoring of one part; `factors`, where given, are per file."""

    def __init__(self, match: Matches, terms: Terms, factors: Array | None) -> None:
        self._view, self._terms, self._factors = match.view, terms, factors
        self._segment = match.view.part.segment
        self._columns = self._segment.columns
        self._held = [p for p in zip(match.terms, terms.weights, strict=True) if len(p[0])]
        self._lists = [(h.listed, w) for h, w in self._held if len(h.listed.ordinals)]
        self._bounds: list[_Bound] = []
        self._frequent_mass = 0.0
        if len(self._lists) < len(self._held) or any(h.frequent for h, _ in self._held):
            unit = bm25.most(1.0) / impact.FULL * impact.excess(self._segment, terms.average)
            self._bounds = [_Bound(f, w * unit) for h, w in self._held for f in h.frequent]
            self._frequent_mass = sum([w for h, w in self._held if h.frequent])

    def of(self, documents: Array) -> Scored:
        """Return the scores of some documents."""
        return Scored(documents, self._exact(documents), len(documents))

    def best(self, wanted: Wanted) -> Scored:
        """Return the documents that matter."""
        if not self._bounds and sum([len(h) for h, _ in self._held]) <= TINY_POSTINGS:
            return self._one_by_one()
        if wanted.top == 0:
            return Scored(_NONE.documents, _NONE.scores, self._total(None))
        taken = self._taken(wanted)
        if taken.all and not self._bounds:
            kept = (taken.scores >= taken.least).nonzero()[0]
            return Scored(taken.ordinals[kept], taken.scores[kept], len(taken.ordinals))
        total = self._total(taken.ordinals if taken.all else None)
        listed = self._worth_it(taken)
        documents, scores = listed, self._exact(listed)
        if taken.all:
            documents, scores = self._with_blocks(listed, scores, wanted)
        return Scored(documents, scores, total)

    def _one_by_one(self) -> Scored:
        """Score a handful of postings."""
        lengths, average = self._columns.length, self._terms.average
        sums: dict[int, float] = {}
        masses: dict[int, float] = {}
        for listed, weight in self._lists:
            for at, freq in zip(listed.ordinals.tolist(), listed.freqs.tolist(), strict=True):
                added = bm25.weight(freq, int(lengths[at]), average, weight)
                sums[at] = sums.get(at, 0.0) + added
                masses[at] = masses.get(at, 0.0) + weight
        documents = np.array(list(sums), np.uint32)
        of_sums, of_masses = np.array(list(sums.values())), np.array(list(masses.values()))
        return Scored(documents, self._scores(documents, of_sums, of_masses), len(documents))

    def _total(self, ordinals: Array | None) -> int:
        """Return how many documents hold any term; `ordinals`, if known, are those in lists."""
        if len(self._held) == 1:
            return len(self._held[0][0])
        if ordinals is None:
            lists = [listed.ordinals for listed, _ in self._lists]
            ordinals = distinct(np.concatenate([_NONE.documents, *lists]))
        if not self._bounds:
            return len(ordinals)
        return union(self._view, [bound.frequent.row for bound in self._bounds], ordinals)

    def _taken(self, wanted: Wanted) -> _Taken:
        """Take lists in, short ones first, until what others may add cannot reach the answer."""
        by_size = sorted(range(len(self._lists)), key=lambda at: len(self._lists[at][0].ordinals))
        frequent = sum([bound.unit * impact.FULL for bound in self._bounds])
        limit = FEW_POSTINGS
        while True:
            chosen = _within(limit, [len(self._lists[at][0].ordinals) for at in by_size])
            lists = [self._lists[at] for at in sorted(by_size[:chosen])]
            ordinals, sums, masses = self._of_lists(lists)
            scores = self._scores(ordinals, sums, masses)
            least = wanted.least(scores) * (1 - _SLACK)
            mass = sum([self._lists[at][1] for at in by_size[chosen:]])
            most, mass = mass * bm25.most(1.0) + frequent, mass + self._frequent_mass
            everything = chosen == len(by_size)
            if everything or most * self._factor(mass) < least:
                return _Taken(ordinals, sums, masses, scores, least, most, mass, everything)
            limit *= NEXT_ROUND

    def _of_lists(self, lists: Sequence[tuple[Listed, float]]) -> tuple[Array, Array, Array]:
        """Return the documents in any list, and sums and masses of what is listed of them."""
        if not lists:
            return _NONE.documents, _NONE.scores, _NONE.scores
        if len(lists) == 1:
            [(listed, weight)] = lists
            sums = self._added(listed.ordinals, listed.freqs, weight)
            return listed.ordinals, sums, np.full(len(sums), weight)
        ordinals = np.concatenate([listed.ordinals for listed, _ in lists])
        freqs = np.concatenate([listed.freqs for listed, _ in lists])
        masses = np.repeat([w for _, w in lists], [len(listed.ordinals) for listed, _ in lists])
        added = self._added(ordinals, freqs, masses)
        ordinals, order, owners = grouped(ordinals)
        return ordinals, _sums(owners, added[order]), _sums(owners, masses[order])

    def _added(self, ordinals: Array, freqs: Array, weights: float | Array) -> Array:
        lengths = self._columns.length.take(ordinals)
        return bm25.weights(freqs, lengths, self._terms.average, weights)

    def _worth_it(self, taken: _Taken) -> Array:
        """Return which documents may reach the answer with what other terms add."""
        ordinals, sums, masses = taken.ordinals, taken.sums, taken.masses + taken.mass
        kept = (self._scores(ordinals, sums + taken.most, masses) >= taken.least).nonzero()[0]
        if not self._bounds:
            return ordinals[kept]
        ordinals, sums, masses = ordinals[kept], sums[kept], masses[kept]
        sums = sums + (taken.most - sum([bound.unit * impact.FULL for bound in self._bounds]))
        for bound in self._bounds:
            sums = sums + bound.times(bound.frequent.row.impacts.take(ordinals))
        return ordinals[self._scores(ordinals, sums, masses) >= taken.least]

    def _with_blocks(self, listed: Array, scores: Array, wanted: Wanted) -> tuple[Array, Array]:
        """Return documents and scores, and beside them those that frequent terms alone bring."""
        factor = self._factor(self._frequent_mass)
        blocks = self._bounds[0].times(self._bounds[0].frequent.row.blocks)
        for bound in self._bounds[1:]:
            blocks += bound.times(bound.frequent.row.blocks)
        documents, above = listed, np.inf
        for cut in _cuts(blocks):
            least = wanted.least(scores) * (1 - _SLACK) / factor
            if least >= above:
                break
            cut = max(cut, least)
            some = ((blocks >= cut) & (blocks < above)).nonzero()[0]
            at = self._in_blocks(some, least)
            at = at[~np.isin(at, listed)] if len(listed) else at
            documents = np.concatenate([documents, at])
            scores = np.concatenate([scores, self._exact(at)])
            above = cut
        return documents, scores

    def _in_blocks(self, blocks: Array, least: float) -> Array:
        """Return the selected documents of some blocks whose frequent terms may reach a sum."""
        sums = np.zeros((len(blocks), impact.BLOCK))
        for bound in self._bounds:
            rows = bound.frequent.row.impacts.reshape(-1, impact.BLOCK)
            sums += bound.times(rows.take(blocks, axis=0))
        block, within = (sums >= max(least, _TINY)).nonzero()
        documents = (blocks[block] * impact.BLOCK + within).astype(np.uint32)
        return documents if self._view.whole else documents[self._view.selects(documents)]

    def _factor(self, mass: float) -> float:
        """Return how many times its sum a score may be, of a document that holds this mass."""
        share = mass / sum(self._terms.weights)
        of_sessions = 1.0 if self._factors is None else float(self._factors.max(initial=1.0))
        return (1 + self._terms.formula.coverage * share) * of_sessions

    def _exact(self, documents: Array) -> Array:
        lengths = self._columns.length.take(documents)
        sums, masses = np.zeros(len(documents)), np.zeros(len(documents))
        for held, weight in self._held:
            freqs = held.at(documents)
            sums += bm25.weights(freqs, lengths, self._terms.average, weight)
            masses += weight * (freqs > 0)
        return self._scores(documents, sums, masses)

    def _scores(self, documents: Array, sums: Array, masses: Array) -> Array:
        """Return the scores of documents: their sums, raised by what they and theirs hold."""
        coverage = self._terms.formula.coverage
        if coverage:
            sums = sums * (1 + coverage * (masses / sum(self._terms.weights)))
        if self._factors is not None:
            sums = sums * self._factors[self._columns.file.take(documents)]
        return sums


def _sums(owners: Array, values: Array) -> Array:
    """Return the sum of each owner's values, added one after the other."""
    return np.bincount(owners, values)


def _within(limit: int, sizes: Sequence[int]) -> int:
    """Return how many of the sizes, at least one, are within a limit together."""
    chosen = total = 0
    for size in sizes:
        total += size
        if chosen and total > limit:
            break
        chosen += 1
    return chosen


def _cuts(bounds: Array) -> Iterator[float]:
    """Yield falling bounds with more and more bounds above them, at last none."""
    step = max(1, len(bounds) // _SAMPLE)
    ordered = np.sort(bounds[::step])
    wanted = FIRST_ROUND
    while wanted // step < len(ordered):
        yield float(ordered[-1 - wanted // step])
        wanted *= NEXT_ROUND
    yield 0.0


_TINY = 1e-300
_NONE = Scored(np.zeros(0, np.uint32), np.zeros(0), 0)
