"""Postings of a few thousand tools, in numpy arrays.

Ranking asks an index of terms three things only, the `TermIndex` interface; whatever holds
postings can answer them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ordinals = NDArray[np.int32]
Frequencies = NDArray[np.uint16]

MAX_FREQUENCY = 65535


class TermIndex(Protocol):
    """What ranking needs to know of a collection of documents, numbered from 0."""

    @property
    def document_count(self) -> int:
        """The number of documents."""

    def doc_freq(self, term: str) -> int:
        """Return in how many documents `term` occurs."""

    def postings(self, term: str) -> tuple[Ordinals, Frequencies]:
        """Return the documents that hold `term`, ascending, and how much of it each holds."""

    def terms(self, prefix: str) -> Iterator[str]:
        """Yield what follows `prefix` in every term that begins with it."""


class PackedTerms:
    """One document's terms and their frequencies, as numbers of one `Dictionary`."""

    __slots__ = ("frequencies", "numbers")

    def __init__(self, numbers: Ordinals, frequencies: Frequencies) -> None:
        self.numbers = numbers
        self.frequencies = frequencies


class Dictionary:
    """Terms by number; it only grows, so that packed documents stay valid."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, term: str) -> int:
        """Return the number of `term`, or -1 for one never seen."""
        return self._numbers.get(term, -1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def unpack(self, packed: PackedTerms) -> dict[str, int]:
        """Return the terms and frequencies that `pack` was given."""
        if len(self._names) < len(self._numbers):
            self._names = list(self._numbers)
        pairs = zip(packed.numbers.tolist(), packed.frequencies.tolist(), strict=True)
        return {self._names[number]: frequency for number, frequency in pairs}

    def pack(self, frequencies: Mapping[str, int]) -> PackedTerms:
        """Return a document's terms as numbers; new terms get the next ones."""
        numbers = self._numbers
        packed = [numbers.setdefault(term, len(numbers)) for term in frequencies]
        counts = [min(count, MAX_FREQUENCY) for count in frequencies.values()]
        return PackedTerms(np.array(packed, np.int32), np.array(counts, np.uint16))


class ArrayIndex:
    """A `TermIndex` over packed documents, built in one sort."""

    def __init__(self, dictionary: Dictionary, documents: Sequence[PackedTerms]) -> None:
        self._dictionary = dictionary
        self._count = len(documents)
        none = PackedTerms(np.empty(0, np.int32), np.empty(0, np.uint16))
        numbers = np.concatenate([d.numbers for d in (none, *documents)])
        frequencies = np.concatenate([d.frequencies for d in (none, *documents)])
        lengths = np.array([len(d.numbers) for d in documents], np.int64)
        order = np.argsort(numbers, kind="stable")
        self._ordinals = np.repeat(np.arange(self._count, dtype=np.int32), lengths)[order]
        self._frequencies = frequencies[order]
        self._starts = np.searchsorted(numbers[order], np.arange(len(dictionary) + 1))

    @property
    def document_count(self) -> int:
        """The number of documents."""
        return self._count

    def doc_freq(self, term: str) -> int:
        """Return in how many documents `term` occurs."""
        start, end = self._span(term)
        return end - start

    def postings(self, term: str) -> tuple[Ordinals, Frequencies]:
        """Return the documents that hold `term`, ascending, and how much of it each holds."""
        start, end = self._span(term)
        return self._ordinals[start:end], self._frequencies[start:end]

    def terms(self, prefix: str) -> Iterator[str]:
        """Yield what follows `prefix` in every term that begins with it."""
        for term in self._dictionary:
            if term.startswith(prefix) and self.doc_freq(term):
                yield term.removeprefix(prefix)

    def _span(self, term: str) -> tuple[int, int]:
        number = self._dictionary.number(term)
        # A term that the dictionary learned after this index was built is in no document of it.
        if not 0 <= number < len(self._starts) - 1:
            return 0, 0
        return int(self._starts[number]), int(self._starts[number + 1])
