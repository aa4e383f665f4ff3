"""Exact scores, without scoring every document that matches.

Few postings are all scored. Many are first added up as bounds, whole numbers that no score can
exceed; the documents with the highest bounds are scored, and then those whose bound reaches what
the answer already asks for. Scores are added up term by term in the query's order, one document
like the other, so that equal documents get bit-equal scores wherever they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from indexd import bm25
from indexd.matching import Held, Listed
from indexd.segment import Array
from indexd.selection import View

# Up to this many postings, scoring all of them is faster than to find those worth it.
FEW_POSTINGS = 30_000
# A bound is a whole number below 2**16; beyond this many terms rounding would show.
MAX_BOUNDED_TERMS = 64
_SCALE = float((1 << 16) - 1 - 256 * MAX_BOUNDED_TERMS)
# How many documents the first round scores, and how many times more each next one may.
FIRST_ROUND, NEXT_ROUND = 500, 8
_SAMPLE = 1 << 14
# Sums in another order differ by less than this share.
_SLACK = 1e-9


class Formula(Protocol):
    """What becomes of the sum of a document's term weights."""

    most: float  # no score is more than this many times its sum

    def scores(self, view: View, documents: Array, sums: Array, masses: Array) -> Array:
        """Return final scores; `masses` are the weights of the terms that documents hold."""


class Wanted(NamedTuple):
    """Which scores matter: the `top` best, and of those the ones from `share` of the best on.

    `top` is None where another order than that of scores decides.
    """

    top: int | None
    share: float

    def least(self, scores: Array) -> float:
        """Return the score below which no document matters, given some that are known."""
        if not len(scores):
            return 0.0
        least = self.share * float(scores.max())
        if self.top is not None and len(scores) >= self.top > 0:
            last = len(scores) - self.top
            least = max(least, float(np.partition(scores, last)[last]))
        return least


class Scored(NamedTuple):
    """Documents of a part with their scores, all that matter; `total` is how many matched."""

    documents: Array  # u32
    scores: Array
    total: int


def score(
    view: View,
    terms: Sequence[Held],
    weights: Sequence[float],
    average: float,
    formula: Formula,
    wanted: Wanted,
) -> Scored:
    """Return the documents of a part that may belong to the answer; terms weigh `weights`."""
    lists = [term for term in terms if isinstance(term, Listed)]
    few = len(lists) == len(terms) and sum(map(len, lists)) <= FEW_POSTINGS
    if few or len(terms) > MAX_BOUNDED_TERMS:
        documents, sums, masses = _all(view, lists, weights, average)
        return Scored(documents, formula.scores(view, documents, sums, masses), len(documents))
    return _Bounded(view, terms, weights, average, formula).best(wanted)


def _all(
    view: View, lists: Sequence[Listed], weights: Sequence[float], average: float
) -> tuple[Array, Array, Array]:
    """Return every document that holds a term, and the sums and masses of its terms."""
    sizes = [len(each) for each in lists]
    ordinals = _end_to_end([each.ordinals for each in lists])
    masses = np.repeat(weights, sizes)
    freqs = _end_to_end([each.freqs for each in lists])
    sums = bm25.weights(freqs, view.part.segment.columns.length[ordinals], average, masses)
    if sum(map(bool, sizes)) <= 1:
        return ordinals, sums, masses
    # Stable, so that the terms of each document keep the query's order.
    order = ordinals.argsort(kind="stable")
    ordinals = ordinals[order]
    first = np.concatenate(([True], ordinals[1:] != ordinals[:-1]))
    owner = np.cumsum(first) - 1
    return ordinals[first], np.bincount(owner, sums[order]), np.bincount(owner, masses[order])


def _end_to_end(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class _Bounded:
    """The scoring of one part by bounds."""

    def __init__(
        self,
        view: View,
        terms: Sequence[Held],
        weights: Sequence[float],
        average: float,
        formula: Formula,
    ) -> None:
        self._view, self._formula = view, formula
        self._terms = list(zip(terms, weights, strict=True))
        self._average = average
        self._scale = _SCALE / (sum(weights) * (bm25.K1 + 1) * self._excess())
        self._bounds = np.zeros(len(view.part.segment), np.uint16)
        for term, weight in self._terms:
            term.add(self._bounds, view, weight * self._scale, average)
        view.clear(self._bounds)

    def _excess(self) -> float:
        return 1.0

    def best(self, wanted: Wanted) -> Scored:
        """Return the documents that matter."""
        total = int(np.count_nonzero(self._bounds))
        documents, scores = np.zeros(0, np.uint32), np.zeros(0)
        above = 1 << 16
        for cut in self._cuts():
            least = wanted.least(scores) / self._formula.most * self._scale * (1 - _SLACK)
            least = max(1, int(least))
            if least >= above:
                break
            at = self._between(max(cut, least), above)
            above = max(cut, least)
            documents = np.concatenate([documents, at])
            scores = np.concatenate([scores, self._scores(at)])
        return Scored(documents, scores, total)

    def _cuts(self) -> Iterator[int]:
        """Yield falling bounds with more and more documents above them, at last 1."""
        step = max(1, len(self._bounds) // _SAMPLE)
        sample = self._bounds[::step]
        size = FIRST_ROUND
        while size < len(self._bounds):
            last = max(0, len(sample) - max(1, size // step))
            yield max(1, int(np.partition(sample, last)[last]))
            size *= NEXT_ROUND
        yield 1

    def _between(self, low: int, above: int) -> Array:
        chosen = self._bounds >= low
        if above < 1 << 16:
            chosen &= self._bounds < above
        return np.flatnonzero(chosen).astype(np.uint32)

    def _scores(self, documents: Array) -> Array:
        lengths = self._view.part.segment.columns.length[documents]
        sums, masses = np.zeros(len(documents)), np.zeros(len(documents))
        for term, weight in self._terms:
            freqs = term.at(documents)
            sums += bm25.weights(freqs, lengths, self._average, weight)
            masses += weight * (freqs > 0)
        return self._formula.scores(self._view, documents, sums, masses)
