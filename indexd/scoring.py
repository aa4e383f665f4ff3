"""Exact scores, without scoring every document that matches.

The postings of short lists are all scored. What long lists and rows may add is known by bounds;
once a few documents that are likely to be good have been scored, only those can matter whose
bounds reach as far. This is MaxScore (Turtle and Flood, 1995), by arrays instead of cursors.
Scores are added up term by term in the query's order, wherever a document is stored: equal
documents get bit-equal scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from indexd import bm25, impact
from indexd.best import Best, Wanted
from indexd.impact import FULL, Row
from indexd.matching import Held, Listed, Matches, beside, grouped, holds, union
from indexd.plan import Formula
from indexd.segment import Array, distinct

# Where all lists together are not longer, bounds cost more than scores.
FEW_POSTINGS = 8192
# How many documents of a long list are scored first, where not only the best are wanted.
CHAMPIONS = 16
# How many blocks of documents are looked into first, and how many times more each next time.
FIRST_ROUND, NEXT_ROUND = 16, 8
_SAMPLE = 2048
# Above nothing at all, below any bound: a document that holds no term has none.
_TINY = 1e-30


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
    """What the impacts of a term stand for in a sum: `unit` each, `most` at most.

    mass: its term's weight.
    """

    unit: float
    most: float
    mass: float

    def times(self, impacts: Array) -> Array:
        """Return what impacts stand for (f32)."""
        bounds: Array = impacts * np.float32(self.unit)
        return bounds


class _Long(NamedTuple):
    """A long list, and its bound."""

    listed: Listed
    impacts: Array
    bound: _Bound

    def champions(self, count: int) -> Array:
        """Return documents with high impacts: about `count`, not all of them the highest."""
        step = max(1, len(self.impacts) // _SAMPLE)
        sample = self.impacts[::step]
        last = max(0, len(sample) - 1 - 2 * count // step)
        at = (self.impacts >= np.partition(sample, last)[last]).nonzero()[0]
        found: Array = self.listed.ordinals.take(at[: 4 * count])
        return found

    def from_sum(self, least: float) -> Array:
        """Return the positions of the postings that stand for at least `least`."""
        if least <= 0:
            return np.arange(len(self.impacts))
        cut = min(FULL + 1, math.ceil(least / self.bound.unit))
        return (self.impacts >= cut).nonzero()[0]


class _Scoring:
    """The scoring of one part; `factors`, where given, are per file.

    Every bound is of documents that hold none of what was looked at before: of short lists, then
    of long lists by what they may add, then of rows alone.
    """

    def __init__(self, match: Matches, terms: Terms, factors: Array | None) -> None:
        self._view, self._terms, self._factors = match.view, terms, factors
        self._segment = match.view.part.segment
        self._columns = self._segment.columns
        self._held = [p for p in zip(match.terms, terms.weights, strict=True) if len(p[0])]
        self._short: list[tuple[Listed, float]] = []
        self._long: list[_Long] = []
        self._rows: list[tuple[Row, _Bound]] = []
        some = sum([len(held.listed.ordinals) for held, _ in self._held])
        self._few = some <= FEW_POSTINGS and not any(held.frequent for held, _ in self._held)
        for held, weight in self._held:
            self._sort_in(held, weight)
        self._long.sort(key=lambda each: -each.bound.most)

    def _sort_in(self, held: Held, weight: float) -> None:
        if held.frequent or (held.listed.impacts is not None and not self._few):
            excess = impact.excess(self._segment, self._terms.average)
            unit = bm25.most(weight) / FULL * excess
            bound = _Bound(unit, unit * FULL, weight)
            self._rows += [(frequent.row, bound) for frequent in held.frequent]
            if held.listed.impacts is not None:
                self._long.append(_Long(held.listed, held.listed.impacts, bound))
                return
        if len(held.listed.ordinals):
            self._short.append((held.listed, weight))

    def of(self, documents: Array) -> Scored:
        """Return the scores of some documents."""
        return Scored(documents, self._exact(documents), len(documents))

    def best(self, wanted: Wanted) -> Scored:
        """Return the documents that matter."""
        if wanted.top == 0:
            return Scored(_NONE.documents, _NONE.scores, self._total())
        ordinals, sums, masses = self._of_lists(self._short)
        if not self._long and not self._rows:
            scores = self._scores(ordinals, sums, masses)
            kept = (scores >= wanted.least(scores)).nonzero()[0]
            return Scored(ordinals[kept], scores[kept], len(ordinals))
        best = Best(wanted, self._exact)
        best.take([each.champions(wanted.top or CHAMPIONS) for each in self._long])
        best.at_least(self._scores(ordinals, sums, masses))
        short = self._worth_it(ordinals, sums, masses, best.least)
        best.take([short, *[self._of_long(0, best.least) for _ in self._long[:1]]])
        best.take([self._of_long(at, best.least) for at in range(1, len(self._long))])
        self._with_blocks(best)
        return Scored(best.documents, best.scores, self._total())

    def _total(self) -> int:
        """Return how many documents hold any term."""
        if len(self._held) == 1:
            return len(self._held[0][0])
        lists = [held.listed for held, _ in self._held if len(held.listed.ordinals)]
        return union(self._view, [row for row, _ in self._rows], lists)

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
        sums = _sums(owners, added[order])
        covers = self._terms.formula.coverage != 0
        return ordinals, sums, _sums(owners, masses[order]) if covers else sums

    def _added(self, ordinals: Array, freqs: Array, weights: float | Array) -> Array:
        lengths = self._columns.length.take(ordinals)
        return bm25.weights(freqs, lengths, self._terms.average, weights)

    def _worth_it(self, ordinals: Array, sums: Array, masses: Array, least: float) -> Array:
        """Return which documents of short lists may reach a score, with what else adds."""
        rows = [bound for _, bound in self._rows]
        bounds = [each.bound for each in self._long]
        mass = _mass(bounds) + _mass(rows)
        most = _most(bounds)
        scores = self._scores(ordinals, sums + (most + _most(rows)), masses + mass)
        kept = (scores >= least).nonzero()[0]
        ordinals, sums, masses = ordinals[kept], sums[kept], masses[kept]
        for row, bound in self._rows:
            sums = sums + bound.times(row.impacts(row.codes.take(ordinals)))
        return ordinals[self._scores(ordinals, sums + most, masses + mass) >= least]

    def _of_long(self, at: int, least: float) -> Array:
        """Return which documents of a long list may reach a score, being in none before it."""
        rows = [bound for _, bound in self._rows]
        long, others = self._long[at], self._long[at + 1 :]
        rest = _most([each.bound for each in others])
        mass = long.bound.mass + _mass([each.bound for each in others]) + _mass(rows)
        least = least / self._factor(mass)
        if long.bound.most + rest + _most(rows) < least:
            return _NONE.documents
        kept = long.from_sum(least - rest - _most(rows))
        documents, sums = long.listed.ordinals[kept], long.bound.times(long.impacts[kept])
        for row, bound in self._rows:
            sums += bound.times(row.impacts(row.codes.take(documents)))
        kept = (sums >= least - rest).nonzero()[0]
        documents, sums = documents[kept], sums[kept]
        for listed, impacts, bound in others:
            rest -= bound.most
            if listed.bits is not None:
                reach = sums + bound.most * holds(listed.bits, documents)
                kept = (reach >= least - rest).nonzero()[0]
                documents, sums = documents[kept], sums[kept]
            sums += bound.times(beside(listed.ordinals, impacts, documents))
            kept = (sums >= least - rest).nonzero()[0]
            documents, sums = documents[kept], sums[kept]
        return documents

    def _with_blocks(self, best: Best) -> None:
        """Take in the documents that rows alone bring."""
        if not self._rows:
            return
        factor = self._factor(_mass([bound for _, bound in self._rows]))
        [(row, bound), *others] = self._rows
        blocks = bound.times(row.blocks)
        for row, bound in others:
            blocks += bound.times(row.blocks)
        above = np.inf
        for cut in _cuts(blocks):
            least = best.least / factor
            if least >= above:
                break
            cut = max(cut, least)
            some = ((blocks >= cut) & (blocks < above)).nonzero()[0]
            best.take([self._in_blocks(some, least)])
            above = cut

    def _in_blocks(self, blocks: Array, least: float) -> Array:
        """Return the selected documents of some blocks whose frequent terms may reach a sum."""
        sums = np.zeros((len(blocks), impact.BLOCK), np.float32)
        for row, bound in self._rows:
            codes = row.codes.reshape(-1, impact.BLOCK).take(blocks, axis=0)
            sums += bound.times(row.impacts(codes))
        block, within = (sums >= max(least, _TINY)).nonzero()
        documents = (blocks[block] * impact.BLOCK + within).astype(np.uint32)
        return documents if self._view.whole else documents[self._view.selects(documents)]

    def _factor(self, mass: float) -> float:
        """Return how many times its sum a score may be, of a document that holds this mass."""
        share = mass / sum(self._terms.weights)
        of_sessions = 1.0 if self._factors is None else float(self._factors.max(initial=1.0))
        return (1 + self._terms.formula.coverage * share) * of_sessions

    def _exact(self, documents: Array) -> Array:
        if not self._held:
            return np.zeros(len(documents))
        freqs = np.empty((len(self._held), len(documents)))
        for found, (held, _) in zip(freqs, self._held, strict=True):
            found[:] = held.at(documents)
        weights = np.array([[weight] for _, weight in self._held])
        lengths = self._columns.length.take(documents)
        added = bm25.weights(freqs, lengths, self._terms.average, weights)
        # Added up one after the other, as everywhere; a plain sum would go by pairs.
        sums = np.add.accumulate(added, out=added)[-1]
        if not self._terms.formula.coverage:
            return self._scores(documents, sums, sums)
        masses = np.add.accumulate(weights * (freqs > 0))[-1]
        return self._scores(documents, sums, masses)

    def _scores(self, documents: Array, sums: Array, masses: Array) -> Array:
        """Return the scores of documents: their sums, raised by what they and theirs hold."""
        coverage = self._terms.formula.coverage
        if coverage:
            sums = sums * (1 + coverage * (masses / sum(self._terms.weights)))
        if self._factors is not None:
            sums = sums * self._factors[self._columns.file.take(documents)]
        return sums


def _most(bounds: Sequence[_Bound]) -> float:
    return sum([bound.most for bound in bounds])


def _mass(bounds: Sequence[_Bound]) -> float:
    return sum([bound.mass for bound in bounds])


def _sums(owners: Array, values: Array) -> Array:
    """Return the sum of each owner's values, added one after the other."""
    return np.bincount(owners, values)


def _cuts(bounds: Array) -> Iterator[float]:
    """Yield falling bounds with more and more bounds above them, at last none."""
    step = max(1, len(bounds) // _SAMPLE)
    ordered = np.sort(bounds[::step])
    wanted = FIRST_ROUND
    while wanted // step < len(ordered):
        yield float(ordered[-1 - wanted // step])
        wanted *= NEXT_ROUND
    yield 0.0


_NONE = Scored(np.zeros(0, np.uint32), np.zeros(0), 0)
