"""What one part of the index holds of a query term: a list of postings, or a row of all documents.

Either says how many documents hold the term, how often given documents hold it, and what it may
add to the score of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from indexd import impact
from indexd.bm25 import K1
from indexd.impact import Row
from indexd.segment import Array
from indexd.selection import View


class Listed:
    """The selected postings of a term."""

    def __init__(self, ordinals: Array, freqs: Array) -> None:
        self.ordinals, self.freqs = ordinals, freqs

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

    def add(self, bounds: Array, view: View, weight: float, average: float) -> None:
        """Add to each document's bound (u16) what the term may add to its score."""
        segment = view.part.segment
        table = np.ceil(impact.saturations(average) * weight).astype(np.uint16)
        lengths = impact.length_classes(segment)
        at = self.ordinals.astype(np.int64)
        np.add.at(bounds, at, table[impact.classes(self.freqs, lengths[at])])


class Rowed:
    """A term that so many documents hold that it has a row."""

    def __init__(self, row: Row, view: View) -> None:
        self._row, self._view = row, view
        self._count = _selected(row.impacts, view)

    def __len__(self) -> int:
        return self._count

    def at(self, documents: Array) -> Array:
        """Return how often each of some selected documents holds the term."""
        freqs: Array = self._row.freqs[documents]
        return freqs

    def add(self, bounds: Array, view: View, weight: float, average: float) -> None:
        """Add to each document's bound (u16) what the term may add to its score."""
        # A shorter average only lowers scores; a longer one raises them by its excess at most.
        excess = max(1.0, average / impact.average(view.part.segment))
        unit = np.uint16(np.ceil(weight * (K1 + 1) * excess / impact.FULL))
        for start, stop in view.ranges:
            bounds[start:stop] += np.multiply(
                self._row.impacts[start:stop], unit, dtype=np.uint16
            )


Held = Listed | Rowed


def held(view: View, terms: Sequence[bytes]) -> list[Held]:
    """Return what the part of `view` holds of each term."""
    dictionary = view.part.segment.dictionary
    return [_held(view, dictionary.find(term)) for term in terms]


def _held(view: View, at: int) -> Held:
    segment = view.part.segment
    if at < 0:
        return NOTHING
    starts = segment.postings.starts
    if impact.has_row(segment, int(starts[at + 1] - starts[at])):
        return Rowed(impact.row(segment, at), view)
    return Listed(*view.chosen(*segment.term_postings(at)))


def _selected(impacts: Array, view: View) -> int:
    counted = 0
    for start, stop in view.ranges:
        piece = impacts[start:stop]
        if view.mask is not None:
            piece = piece * view.mask[start:stop]
        counted += int(np.count_nonzero(piece))
    return counted


NOTHING = Listed(np.zeros(0, np.uint32), np.zeros(0, np.uint8))
