"""What a part of the index holds of each query term: a list of postings, or a row of documents.

Either says how many selected documents hold the term, how often given documents hold it, what it
may add to the score of each, and which files it occurs in.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        self._view, self.ordinals, self.freqs = view, ordinals, freqs

    def __len__(self) -> int:
        return len(self.ordinals)

    def at(self, documents: Array) -> Array:
        """Return how often each of some documents holds the term."""
        if not len(self.ordinals):
            return np.zeros(len(documents), np.uint8)
        place = self.ordinals.searchsorted(documents)
        place[place == len(self.ordinals)] = 0
        found: Array = self.freqs[place] * (self.ordinals[place] == documents)
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

    def impacts(self) -> Array:
        """Return the impact on each document of the part (u8)."""
        segment = self._view.part.segment
        impacts = np.zeros(len(segment), np.uint8)
        impacts[self.ordinals] = impact.of_postings(segment, self.ordinals, self.freqs)
        return impacts


class Rowed:
    """A query term that many documents hold: the sum of some terms, at least one with a row."""

    def __init__(self, view: View, terms: Sequence[_Frequent | Listed], impacts: Array) -> None:
        self._view, self._terms, self._impacts = view, terms, impacts
        self._count = _count(view, impacts)

    def __len__(self) -> int:
        return self._count

    def at(self, documents: Array) -> Array:
        """Return how often each of some selected documents holds the term."""
        found: Array = self._terms[0].at(documents)
        for other in self._terms[1:]:
            found = found.astype(np.uint32) + other.at(documents)
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


class _Frequent(NamedTuple):
    """One term that has a row."""

    row: impact.Row

    def at(self, documents: Array) -> Array:
        freqs: Array = self.row.freqs[documents]
        return freqs

    def impacts(self) -> Array:
        return self.row.impacts


Held = Listed | Rowed


class Matches(NamedTuple):
    """What one part holds of each query term."""

    view: View
    terms: list[Held]


def match(views: Sequence[View], query: Sequence[QueryTerm]) -> list[Matches]:
    """Return what each view holds of each query term."""
    terms = list(dict.fromkeys(term for each in query for term in each.terms))
    hashes = np.array([term_hash(term) for term in terms], np.uint64)
    found = [_terms(view, terms, hashes) for view in views]
    occurring = frozenset().union(*found)
    wanted = [each.among(occurring) for each in query]
    return [
        Matches(view, [_together(view, [held[t] for t in which if t in held]) for which in wanted])
        for view, held in zip(views, found, strict=True)
    ]


def _terms(view: View, terms: list[bytes], hashes: Array) -> dict[bytes, _Frequent | Listed]:
    """Return those of the terms that a selected document holds."""
    segment = view.part.segment
    found: dict[bytes, _Frequent | Listed] = {}
    for number, at in segment.dictionary.find_all(terms, hashes):
        row = impact.row(segment, at)
        if row is None:
            listed = Listed(view, *view.chosen(*segment.term_postings(at)))
            if len(listed):
                found[terms[number]] = listed
        elif _count(view, row.impacts):
            found[terms[number]] = _Frequent(row)
    return found


def _together(view: View, terms: Sequence[_Frequent | Listed]) -> Held:
    """Return one query term that stands for all of `terms`, their frequencies added up."""
    if len(terms) == 1 and isinstance(terms[0], Listed):
        return terms[0]
    lists = [term for term in terms if isinstance(term, Listed)]
    if len(lists) == len(terms):
        return _listed_together(view, lists)
    impacts = terms[0].impacts()
    for other in terms[1:]:
        # No sum of frequencies adds more than what the frequencies add one by one.
        impacts = impacts + np.minimum(other.impacts(), impact.FULL - impacts)
    return Rowed(view, terms, impacts)


def _listed_together(view: View, lists: Sequence[Listed]) -> Listed:
    if not lists:
        return Listed(view, *NOTHING)
    ordinals, order, first = grouped([each.ordinals for each in lists])
    freqs = np.concatenate([each.freqs for each in lists]).astype(np.uint32)
    return Listed(view, ordinals, np.add.reduceat(freqs[order], first))


def grouped(lists: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Return the distinct ordinals of some lists, and the order that brings equal ones together.

    The third item says where in that order each group begins; lists keep their order within it.
    """
    ordinals = np.concatenate(lists)
    order = ordinals.argsort(kind="stable")
    ordinals = ordinals[order]
    first = np.flatnonzero(np.concatenate(([True], ordinals[1:] != ordinals[:-1])))
    return ordinals[first], order, first


def _count(view: View, impacts: Array) -> int:
    """Return how many selected documents have an impact."""
    counted = 0
    for start, stop in view.ranges:
        piece = impacts[start:stop]
        if view.mask is not None:
            piece = piece * view.mask[start:stop]
        counted += int(np.count_nonzero(piece))
    return counted


NOTHING = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))
