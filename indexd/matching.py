"""What a part of the index holds of each query term: a list of postings, or a row of documents.

Either says how many selected documents hold the term, how often given documents hold it, what it
may add to the score of each, and which files it occurs in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from indexd import impact
from indexd.bm25 import K1
from indexd.bounds import Bounds
from indexd.impact import Row
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

    def at(self, documents: Array) -> Array:
        """Return how often each of some documents holds the term."""
        place = self.ordinals.searchsorted(documents)
        found: Array = self.freqs.take(place, mode="clip")
        found = found * (self.ordinals.take(place, mode="clip") == documents)
        return found

    def add(self, bounds: Bounds, weight: float, average: float) -> None:
        """Add to each document's bound what the term may add to its score."""
        segment = self._view.part.segment
        table = np.ceil(impact.saturations(average) * weight).astype(np.uint16)
        at = self.ordinals.astype(np.int64)
        bounds.add_postings(at, table.take(impact.classes(segment, at, self.freqs)))

    def files(self) -> Array:
        """Return the boolean per file of the part: whether a selected document holds the term."""
        segment = self._view.part.segment
        held = np.zeros(len(segment.file_ids), bool)
        held[segment.columns.file[self.ordinals]] = True
        return held

    def listed(self) -> Listed:
        """Return the selected postings."""
        return self

    def documents(self) -> Array:
        """Return the selected documents that hold the term."""
        return self.ordinals

    def impacts(self) -> Array:
        """Return the impact on each document of the part (u8)."""
        segment = self._view.part.segment
        impacts = np.zeros(len(segment), np.uint8)
        impacts[self.ordinals] = impact.of_postings(segment, self.ordinals, self.freqs)
        return impacts


class Frequent:
    """The row of a term that many documents hold, and which of its documents are selected."""

    def __init__(self, view: View, row: Row) -> None:
        self._view, self._row = view, row
        if view.mask is None:
            self._count = sum([row.below[k + 1] - row.below[k] for k in view.ranks])
        else:
            self._count = view.count(row.impacts)

    def __len__(self) -> int:
        return self._count

    def at(self, documents: Array) -> Array:
        """Return how often each of some selected documents holds the term."""
        freqs: Array = self._row.freqs.take(documents)
        return freqs

    def files(self) -> Array:
        """Return the boolean per file of the part: whether a selected document holds the term."""
        view = self._view
        if view.by_file:
            held: Array = np.logical_or.reduce(self._row.files[list(view.ranks)])
            return held if view.files is None else held & view.files
        return self.listed().files()

    def impacts(self) -> Array:
        """Return the impact on each document of the part, selected or not (u8)."""
        return self._row.impacts

    def listed(self) -> Listed:
        """Return the selected postings."""
        ordinals = self._row.impacts.nonzero()[0].astype(np.uint32)
        return Listed(self._view, *self._view.chosen(ordinals, self.at(ordinals)))


class Rowed:
    """A query term that many documents hold: any of some terms, their frequencies added up."""

    def __init__(self, view: View, terms: Sequence[Frequent | Listed]) -> None:
        self._view, self._terms = view, terms
        self._impacts = terms[0].impacts()
        for other in terms[1:]:
            # No sum of frequencies adds more than what the frequencies add one by one.
            room = impact.FULL - self._impacts
            self._impacts = self._impacts + np.minimum(other.impacts(), room)
        self._count = len(terms[0]) if len(terms) == 1 else view.count(self._impacts)

    def __len__(self) -> int:
        return self._count

    def at(self, documents: Array) -> Array:
        """Return how often each of some selected documents holds the term."""
        found = self._terms[0].at(documents)
        for other in self._terms[1:]:
            found = found.astype(np.uint32) + other.at(documents)
        return found

    def add(self, bounds: Bounds, weight: float, average: float) -> None:
        """Add to each document's bound what the term may add to its score."""
        most = weight * (K1 + 1) * impact.excess(self._view.part.segment, average)
        bounds.add_row(self._impacts, math.ceil(most / impact.FULL), self._view.ranges)

    def files(self) -> Array:
        """Return the boolean per file of the part: whether a selected document holds the term."""
        held = self._terms[0].files()
        for other in self._terms[1:]:
            held = held | other.files()
        return held

    def impacts(self) -> Array:
        """Return the impact on each document of the part, selected or not (u8)."""
        return self._impacts

    def documents(self) -> Array:
        """Return the selected documents that hold the term."""
        return self.listed().ordinals

    def listed(self) -> Listed:
        """Return the selected postings."""
        return listed_together(self._view, [term.listed() for term in self._terms])


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


def _terms(view: View, terms: list[bytes], hashes: Array) -> dict[bytes, Frequent | Listed]:
    """Return those of the terms that a selected document holds."""
    segment = view.part.segment
    found = {}
    for term, at in segment.dictionary.find_all(terms, hashes):
        held = _term(view, at)
        if len(held):
            found[term] = held
    return found


def _term(view: View, at: int) -> Frequent | Listed:
    segment = view.part.segment
    row = impact.row(segment, at)
    if row is None:
        return Listed(view, *view.chosen(*segment.term_postings(at)))
    if view.few is None:
        return Frequent(view, row)
    freqs = row.freqs.take(view.few)
    kept = freqs.nonzero()[0]
    return Listed(view, view.few[kept], freqs[kept])


def _together(view: View, terms: Sequence[Frequent | Listed]) -> Held:
    """Return one query term that stands for all of `terms`, their frequencies added up."""
    lists = [term for term in terms if isinstance(term, Listed)]
    return listed_together(view, lists) if len(lists) == len(terms) else Rowed(view, terms)


def listed_together(view: View, lists: Sequence[Listed]) -> Listed:
    """Return the postings of any of some lists, frequencies added up."""
    if len(lists) == 1:
        return lists[0]
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
