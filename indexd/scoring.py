"""Exact scores, without scoring every document that matches.

Where postings are few, all are scored. Where they are many, bounds are added up first, whole
numbers that no score exceeds; the documents with the highest bounds are scored, and then those
whose bound reaches what the answer already asks for. Scores are added up term by term in the
query's order, wherever a document is stored: equal documents get bit-equal scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from indexd import bm25, impact
from indexd.matching import Listed, Matches, grouped
from indexd.plan import Formula
from indexd.segment import Array

# Up to this many postings, to score them all is faster than to find those worth it.
FEW_POSTINGS = 30_000
# Each term may be rounded up by one, or by a row's full impact; more terms would not fit.
MAX_BOUNDED_TERMS = 64
_TOP_BOUND = (1 << 16) - 1
_SCALE = float(_TOP_BOUND - impact.FULL * MAX_BOUNDED_TERMS)
# How many documents the first round scores, and how many times more each next one may.
FIRST_ROUND, NEXT_ROUND = 500, 8
_SAMPLE = 1 << 14
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
        least = self.share * float(scores.max())
        if self.top is not None and 0 < self.top <= len(scores):
            last = len(scores) - self.top
            least = max(least, float(np.partition(scores, last)[last]))
        return least


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
    known = np.unique(np.concatenate(file_ids))
    return [known.searchsorted(ids) for ids in file_ids], len(known)


class _Scoring:
    """The scoring of one part; `factors`, where given, are per file."""

    def __init__(self, match: Matches, terms: Terms, factors: Array | None) -> None:
        self._view, self._terms, self._factors = match.view, terms, factors
        self._columns = match.view.part.segment.columns
        self._held = [
            (held, weight)
            for held, weight in zip(match.terms, terms.weights, strict=True)
            if len(held)
        ]

    def best(self, wanted: Wanted) -> Scored:
        """Return the documents that matter."""
        lists = [held for held, _ in self._held if isinstance(held, Listed)]
        few = len(lists) == len(self._held) and sum(map(len, lists)) <= FEW_POSTINGS
        if few or len(self._held) > MAX_BOUNDED_TERMS:
            return self._all(lists)
        return self._bounded(wanted)

    def _all(self, lists: Sequence[Listed]) -> Scored:
        """Score every posting."""
        if not lists:
            return _NONE
        ordinals = _joined([each.ordinals for each in lists])
        freqs = _joined([each.freqs for each in lists])
        masses: Array = np.repeat(
            [weight for _, weight in self._held], [len(each) for each in lists]
        )
        added = bm25.weights(freqs, self._columns.length[ordinals], self._terms.average, masses)
        if len(lists) > 1:
            ordinals, order, first = grouped([each.ordinals for each in lists])
            owners = np.repeat(np.arange(len(first)), np.diff(first, append=len(order)))
            added, masses = _sums(owners, added[order]), _sums(owners, masses[order])
        return Scored(ordinals, self._scores(ordinals, added, masses), len(ordinals))

    def _bounded(self, wanted: Wanted) -> Scored:
        """Score what may matter, most promising first."""
        bounds, scale = self._bounds()
        total = int(np.count_nonzero(bounds))
        documents, scores = _NONE.documents, _NONE.scores
        if wanted.top == 0:
            return Scored(documents, scores, total)
        above = _TOP_BOUND + 1
        for cut in _cuts(bounds):
            least = max(1, int(wanted.least(scores) * scale))
            if least >= above:
                break
            at = _between(bounds, max(cut, least), above)
            above = max(cut, least)
            documents = np.concatenate([documents, at])
            scores = np.concatenate([scores, self._exact(at)])
        return Scored(documents, scores, total)

    def _bounds(self) -> tuple[Array, float]:
        """Return each document's bound (u16), and how much of it a score stands for."""
        average = self._terms.average
        segment = self._view.part.segment
        most = sum(weight for _, weight in self._held) * bm25.most(1.0)
        scale = _SCALE / (most * impact.excess(segment, average))
        bounds = np.zeros(len(segment), np.uint16)
        for held, weight in self._held:
            held.add(bounds, weight * scale, average)
        self._view.clear(bounds)
        return bounds, scale * (1 - _SLACK) / self._most()

    def _most(self) -> float:
        """Return how many times its sum a score may be."""
        of_sessions = 1.0 if self._factors is None else float(self._factors.max(initial=1.0))
        return (1 + self._terms.formula.coverage) * of_sessions

    def _exact(self, documents: Array) -> Array:
        lengths = self._columns.length[documents]
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
            sums = sums * self._factors[self._columns.file[documents]]
        return sums


def _sums(owners: Array, values: Array) -> Array:
    """Return the sum of each owner's values, added one after the other."""
    return np.bincount(owners, values)


def _cuts(bounds: Array) -> Iterator[int]:
    """Yield falling bounds with more and more documents above them, at last 1."""
    step = max(1, len(bounds) // _SAMPLE)
    sample = bounds[::step]
    size = FIRST_ROUND
    while size < len(bounds):
        last = len(sample) - max(1, size // step)
        yield max(1, int(np.partition(sample, last)[last]))
        size *= NEXT_ROUND
    yield 1


def _between(bounds: Array, low: int, above: int) -> Array:
    """Return the documents with low <= bound < above."""
    chosen = bounds >= low
    if above <= _TOP_BOUND:
        chosen &= bounds < above
    return np.flatnonzero(chosen).astype(np.uint32)


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


_NONE = Scored(np.zeros(0, np.uint32), np.zeros(0), 0)
