"""What a part of the index holds of each query term: a list of postings, or a row of documents.

Either says how many selected documents hold the term, how often given documents hold it, what it
may add to the score of each, and which files it occurs in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from indexd import impact
from indexd.bm25 import K1
from indexd.plan import QueryTerm
from indexd.segment import Array, term_hash
from indexd.selection import View


class Listed:
    """The selected postings of a query term."""

    def __init__(self, view: View, ordinals: Array, freqs: Array) -> None:
        self.ordinals, self.freqs = ordinals, freqs
        self._view = view

    def __len__(self) -> int:
        return len(self.ordinals)

    @property
    def lookups(self) -> list[Callable[[Array], Array]]:
        """Return what says how often each of some documents holds the term."""
        return [self.at]

    def at(self, documents: Array) -> Array:
        """Return how often each of some documents holds the term."""
        place = self.ordinals.searchsorted(documents)
        found: Array = self.freqs.take(place, mode="clip")
        found = found * (self.ordinals.take(place, mode="clip") == documents)
        return found

    def add(self, bounds: Array, weight: float, average: float) -> None:
        """Add to each document's bound (u16) what the term may add to its score."""
        segment = self._view.part.segment
        table = np.ceil(impact.saturations(average) * weight).astype(np.uint16)
        at = self.ordinals.astype(np.int64)
        np.add.at(bounds, at, table[impact.classes(segment, at, self.freqs)])

    def files(self) -> Array:
        """Return the boolean per file of the part: whether a selected document holds the term."""
        segment = self._view.part.segment
        held = np.zeros(len(segment.file_ids), bool)
        held[segment.columns.file[self.ordinals]] = True
        return held

    def documents(self) -> Array:
        """Return the selected documents that hold the term."""
        return self.ordinals

    def impacts(self) -> Array:
        """Return the impact on each document of the part (u8)."""
        segment = self._view.part.segment
        impacts = np.zeros(len(segment), np.uint8)
        impacts[self.ordinals] = impact.of_postings(segment, self.ordinals, self.freqs)
        return impacts


class Rowed:
    """A query term that many documents hold, as a row over all documents of the part.

    `lookups` say how often each of some documents holds it; their answers are added up.
    """

    def __init__(
        self, view: View, impacts: Array, lookups: Sequence[Callable[[Array], Array]], count: int
    ) -> None:
        self.lookups = lookups
        self._view, self._impacts, self._count = view, impacts, count

    def __len__(self) -> int:
        return self._count

    def at(self, documents: Array) -> Array:
        """Return how often each of some selected documents holds the term."""
        found = self.lookups[0](documents)
        for lookup in self.lookups[1:]:
            found = found.astype(np.uint32) + lookup(documents)
        return found

    def add(self, bounds: Array, weight: float, average: float) -> None:
        """Add to each document's bound (u16) what the term may add to its score."""
        most = weight * (K1 + 1) * impact.excess(self._view.part.segment, average)
        unit = np.uint16(np.ceil(most / impact.FULL))
        for start, stop in self._view.ranges:
            bounds[start:stop] += np.multiply(self._impacts[start:stop], unit, dtype=np.uint16)

    def files(self) -> Array:
        """Return the boolean per file of the part: whether a selected document holds the term."""
        segment = self._view.part.segment
        held = np.zeros(len(segment.file_ids), bool)
        for start, stop in self._view.ranges:
            here = self._impacts[start:stop] > 0
            if self._view.mask is not None:
                here &= self._view.mask[start:stop]
            held[segment.columns.file[start:stop][here]] = True
        return held

    def impacts(self) -> Array:
        """Return the impact on each document of the part, selected or not (u8)."""
        return self._impacts

    def documents(self) -> Array:
        """Return the selected documents that hold the term."""
        return self.listed().ordinals

    def listed(self) -> Listed:
        """Return the postings."""
        ordinals = self._impacts.nonzero()[0].astype(np.uint32)
        return Listed(self._view, *self._view.chosen(ordinals, self.at(ordinals)))


Held = Listed | Rowed


class Matches(NamedTuple):
    """What one part holds of each query term."""

    view: View
    terms: list[Held]

    def only(self, chosen: Sequence[int]) -> Matches:
        """Return the matches of some of the query terms."""
        return Matches(self.view, [self.terms[at] for at in chosen])


def match(views: Sequence[View], query: Sequence[QueryTerm]) -> list[Matches]:
    """Return what each view holds of each query term."""
    terms = list(dict.fromkeys(term for each in query for term in each.terms))
    hashes = np.array([term_hash(term) for term in terms], np.uint64)
    found = [_terms(view, terms, hashes) for view in views]
    occurring = found[0].keys() if len(found) == 1 else frozenset().union(*found)
    wanted = [each.among(occurring) for each in query]
    return [
        Matches(view, [_together(view, [held[t] for t in which if t in held]) for which in wanted])
        for view, held in zip(views, found, strict=True)
    ]


def _terms(view: View, terms: list[bytes], hashes: Array) -> dict[bytes, Held]:
    """Return those of the terms that a selected document holds."""
    segment = view.part.segment
    found = {}
    for term, at in segment.dictionary.find_all(terms, hashes):
        held = _term(view, at)
        if len(held):
            found[term] = held
    return found


def _term(view: View, at: int) -> Held:
    segment = view.part.segment
    row = impact.row(segment, at)
    if row is None:
        return Listed(view, *view.chosen(*segment.term_postings(at)))
    if view.few is not None:
        freqs = row.at(view.few)
        kept = freqs.nonzero()[0]
        return Listed(view, view.few[kept], freqs[kept])
    if view.mask is None:
        count = sum(row.below[rank + 1] - row.below[rank] for rank in view.ranks)
    else:
        count = view.count(row.impacts)
    return Rowed(view, row.impacts, [row.at], count)


def _together(view: View, terms: Sequence[Held]) -> Held:
    """Return one query term that stands for all of `terms`, their frequencies added up."""
    if len(terms) == 1:
        return terms[0]
    lists = [term for term in terms if isinstance(term, Listed)]
    if len(lists) == len(terms):
        return _listed_together(view, lists)
    impacts = terms[0].impacts()
    for other in terms[1:]:
        # No sum of frequencies adds more than what the frequencies add one by one.
        impacts = impacts + np.minimum(other.impacts(), impact.FULL - impacts)
    lookups = [lookup for term in terms for lookup in term.lookups]
    return Rowed(view, impacts, lookups, view.count(impacts))


def _listed_together(view: View, lists: Sequence[Listed]) -> Listed:
    if not lists:
        return Listed(view, *_NOTHING)
    ordinals, order, owners = grouped(np.concatenate([each.ordinals for each in lists]))
    freqs = np.concatenate([each.freqs for each in lists])[order]
    return Listed(view, ordinals, np.bincount(owners, freqs).astype(np.uint32))


def grouped(ordinals: Array) -> tuple[Array, Array, Array]:
    """Return the distinct ones of some ordinals, and the order that brings equal ones together.

    Equal ones stay in order; the third item says for each place which distinct one it is of.
    """
    order = ordinals.argsort(kind="stable")
    ordinals = ordinals[order]
    other = np.concatenate(([True], ordinals[1:] != ordinals[:-1]))
    return ordinals[other], order, other.cumsum() - 1


_NOTHING = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))
