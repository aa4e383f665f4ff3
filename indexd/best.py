"""The best documents so far, and what others must reach to matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from indexd.segment import Array, distinct

# Sums in another order, or of bounds in 32 bits, differ by less than this share.
_SLACK = 1e-5


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


class Best:
    """The documents that may belong to the answer, with their scores, and what others must reach.

    documents: each once, in no order.
    """

    def __init__(self, wanted: Wanted, score: Callable[[Array], Array]) -> None:
        self._wanted, self._score = wanted, score
        self.documents, self.scores = np.zeros(0, np.uint32), np.zeros(0)
        self.least = 0.0

    def take(self, lists: Sequence[Array]) -> None:
        """Score the documents of some lists, but for those that have been."""
        lists = [each for each in lists if len(each)]
        if not lists:
            return
        documents = lists[0] if len(lists) == 1 else distinct(np.concatenate(lists))
        if len(self.documents):
            known = np.sort(self.documents)
            place = known.searchsorted(documents)
            documents = documents[known.take(place, mode="clip") != documents]
        if len(documents):
            self.documents = np.concatenate([self.documents, documents])
            self.scores = np.concatenate([self.scores, self._score(documents)])
            self.at_least(self.scores)

    def at_least(self, scores: Array) -> None:
        """Raise what others must reach by scores of some documents, or less than their scores."""
        self.least = max(self.least, self._wanted.least(scores) * (1 - _SLACK))
