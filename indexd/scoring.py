"""Exact scores, without scoring every document that matches.

Where postings are few, all are scored. Where they are many, bounds are added up first, whole
numbers that no score exceeds; the documents with the highest bounds are scored, and then those
whose bound reaches what the answer already asks for. Scores are added up term by term in the
query's order, wherever a document is stored: equal documents get bit-equal scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from indexd import bm25, impact
from indexd.bounds import LARGEST, Bounds, borrowed
from indexd.matching import Listed, Matches, Rowed, grouped
from indexd.plan import Formula
from indexd.segment import Array, distinct

# Up to this many postings, or one for so many documents, to score them all is faster than to
# find those worth it.
FEW_POSTINGS, FEW_SHARE = 4096, 50
# Each term may be rounded up by one, or by a row's full impact; more terms would not fit.
MAX_BOUNDED_TERMS = 64
_SCALE = float(LARGEST - impact.FULL * MAX_BOUNDED_TERMS)
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


class _Scoring:
    """The scoring of one part; `factors`, where given, are per file."""

    def __init__(self, match: Matches, terms: Terms, factors: Array | None) -> None:
        self._view, self._terms, self._factors = match.view, terms, factors
        self._columns = match.view.part.segment.columns
        held = [pair for pair in zip(match.terms, terms.weights, strict=True) if len(pair[0])]
        if len(held) > MAX_BOUNDED_TERMS:
            held = [(h.listed(), weight) for h, weight in held]
        self._held = held
        self._lists = [(h, weight) for h, weight in held if isinstance(h, Listed)]
        self._rows = [(h, weight) for h, weight in held if isinstance(h, Rowed)]

    def best(self, wanted: Wanted) -> Scored:
        """Return the documents that matter."""
        if not self._rows and (len(self._lists) <= 1 or self._few()):
            return self._all()
        if self._lists and self._rows and self._postings() <= FEW_POSTINGS:
            found = self._beside_rows(wanted)
            if found is not None:
                return found
        return self._bounded(wanted)

    def of(self, documents: Array) -> Scored:
        """Return the scores of some documents."""
        return Scored(documents, self._exact(documents), len(documents))

    def _few(self) -> bool:
        enough = max(FEW_POSTINGS, len(self._columns.file) // FEW_SHARE)
        return self._postings() <= enough or len(self._lists) > MAX_BOUNDED_TERMS

    def _postings(self) -> int:
        return sum([len(held) for held, _ in self._lists])

    def _all(self) -> Scored:
        """Score every posting."""
        if not self._lists:
            return _NONE
        if len(self._lists) == 1:
            [(held, weight)] = self._lists
            sums = self._added(held.ordinals, held.freqs, weight)
            masses = np.full(len(sums), weight) if self._terms.formula.coverage else sums
            return Scored(held.ordinals, self._scores(held.ordinals, sums, masses), len(sums))
        ordinals = np.concatenate([held.ordinals for held, _ in self._lists])
        freqs = np.concatenate([held.freqs for held, _ in self._lists])
        sizes = [len(held) for held, _ in self._lists]
        masses = np.repeat([weight for _, weight in self._lists], sizes)
        sums = self._added(ordinals, freqs, masses)
        ordinals, order, owners = grouped(ordinals)
        sums, masses = _sums(owners, sums[order]), _sums(owners, masses[order])
        return Scored(ordinals, self._scores(ordinals, sums, masses), len(ordinals))

    def _added(self, ordinals: Array, freqs: Array, weights: float | Array) -> Array:
        lengths = self._columns.length.take(ordinals)
        return bm25.weights(freqs, lengths, self._terms.average, weights)

    def _beside_rows(self, wanted: Wanted) -> Scored | None:
        """Score the documents in any list, if no document in rows alone can matter beside them."""
        documents, _, _ = grouped(np.concatenate([held.ordinals for held, _ in self._lists]))
        scores = self._exact(documents)
        mass = sum(weight for _, weight in self._rows)
        share = mass / sum(self._terms.weights)
        most = mass * bm25.most(1.0) * self._most(share) * (1 + _SLACK)
        if most >= wanted.least(scores):
            return None
        first, *others = [held for held, _ in self._rows]
        impacts = first.impacts()
        for other in others:
            impacts = impacts | other.impacts()
        total = self._view.count(impacts) if others else len(first)
        return Scored(documents, scores, total + int(np.count_nonzero(impacts[documents] == 0)))

    def _bounded(self, wanted: Wanted) -> Scored:
        """Score what may matter, most promising first."""
        with borrowed(self._view.part.segment) as bounds:
            scale = self._fill(bounds)
            total = len(self._held[0][0]) if len(self._held) == 1 else bounds.count()
            documents, scores = _NONE.documents, _NONE.scores
            cuts, above = bounds.cuts(), LARGEST + 1
            while wanted.top != 0:
                least = max(1, int(wanted.least(scores) * scale))
                if least >= above:
                    break
                cut = max(next(cuts), least)
                at = bounds.between(cut, above)
                above = cut
                documents = np.concatenate([documents, at])
                scores = np.concatenate([scores, self._exact(at)])
        return Scored(documents, scores, total)

    def _fill(self, bounds: Bounds) -> float:
        """Add up what each document may score, and return how much of it a score stands for."""
        view, average = self._view, self._terms.average
        most = sum([weight for _, weight in self._held]) * bm25.most(1.0)
        most *= impact.excess(view.part.segment, average)
        if len(self._rows) == len(self._held) == 1 and view.whole:
            scale = impact.FULL / most
            bounds.be(self._rows[0][0].impacts())
        else:
            scale = _SCALE / most
            for held, weight in self._held:
                held.add(bounds, weight * scale, average)
            view.clear(bounds.numbers)
        return scale * (1 - _SLACK) / self._most(1.0)

    def _most(self, share: float) -> float:
        """Return how many times its sum a score may be, of a document that holds this share."""
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


_NONE = Scored(np.zeros(0, np.uint32), np.zeros(0), 0)
