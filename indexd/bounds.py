"""Bounds: a whole number per document of a segment that stands for a score not exceeded.

Adding them up and choosing among them touches every document of a segment, so the arrays are kept
for the next query: fresh memory would cost more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from indexd.segment import Array, Segment

LARGEST = (1 << 16) - 1

# How many documents the first cut leaves, and how many times more each next one.
FIRST_CUT, NEXT_CUT = 500, 8
# A sample of the bounds is this many runs of neighbours, which are read together.
_SAMPLE_RUNS, _RUN = 256, 32


class Bounds:
    """The bounds of the documents of one segment, for one query at a time."""

    def __init__(self, size: int) -> None:
        self._sums = np.zeros(size, np.uint16)
        self._products = np.empty(size, np.uint16)
        self._chosen = np.empty(size, bool)
        self._other = np.empty(size, bool)
        self.numbers: Array = self._sums

    def reset(self) -> None:
        """Begin anew, with 0 for every document."""
        self.numbers = self._sums
        self._sums.fill(0)

    def be(self, numbers: Array) -> None:
        """Take these numbers, without changing them."""
        self.numbers = numbers

    def add_row(self, impacts: Array, unit: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Add `unit` times its impact to each document of some ranges."""
        for start, stop in ranges:
            product = self._products[start:stop]
            np.multiply(impacts[start:stop], np.uint16(unit), out=product, dtype=np.uint16)
            self._sums[start:stop] += product

    def add_postings(self, ordinals: Array, numbers: Array) -> None:
        """Add a number (u16) to each of some documents, none of them twice."""
        np.add.at(self._sums, ordinals, numbers)

    def count(self) -> int:
        """Return how many documents have a bound."""
        return int(np.count_nonzero(self.numbers))

    def cuts(self) -> Iterator[int]:
        """Yield falling bounds with more and more documents above them, at last 1."""
        size = len(self.numbers)
        runs = max(1, size // (_SAMPLE_RUNS * _RUN))
        sample = self.numbers[: size // runs // _RUN * runs * _RUN].reshape(-1, runs, _RUN)[:, 0]
        ordered = np.sort(sample, axis=None, kind="stable")  # a radix sort for small numbers
        wanted = FIRST_CUT
        while wanted < size and wanted // runs < len(ordered):
            yield max(1, int(ordered[-max(1, wanted // runs)]))
            wanted *= NEXT_CUT
        yield 1

    def between(self, low: int, above: int) -> Array:
        """Return the documents (u32) with low <= bound < above."""
        chosen = np.greater_equal(self.numbers, low, out=self._chosen)
        if above <= LARGEST:
            chosen &= np.less(self.numbers, above, out=self._other)
        return chosen.nonzero()[0].astype(np.uint32)


@contextmanager
def borrowed(segment: Segment) -> Iterator[Bounds]:
    """Give the bounds of a segment, all 0, to one query."""
    free: list[Bounds] = segment.derived.setdefault("bounds", [])
    try:
        bounds = free.pop()
        bounds.reset()
    except IndexError:
        bounds = Bounds(len(segment))
    yield bounds
    free.append(bounds)
