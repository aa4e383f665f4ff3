"""What the words of tools mean, remembered: a few thousand different ones make up all of them.

A lexicon numbers words and terms as they come and keeps, for each word, the terms that a mention
adds. So a tool is analysed by one look into a dictionary per word, and everything after that is
arithmetic on arrays of numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from indexd.segment import Array, Dictionary, sort_pairs, term_hash
from indexd.text import Meaning
from indexd.tokens import Counted

# A word and its terms cost some 400 bytes; beyond these numbers a lexicon begins anew.
MAX_WORDS = 1 << 16
MAX_BYTES = 8 * 1024 * 1024


class Mentions(NamedTuple):
    """Which word occurs in which owner, and how often: parallel arrays (i64)."""

    words: Array
    owners: Array
    freqs: Array


class Lexicon(dict[bytes, int]):
    """The number of each word, which `means` explains; a new one is learned when asked for."""

    def __init__(self, means: Callable[[bytes], Meaning]) -> None:
        super().__init__()
        self._means = means
        self._bounds = array("q", [0])
        self._word_terms = array("I")
        self._lengths = array("I")
        self._numbers: dict[bytes, int] = {}
        self._hashes = array("Q")
        self._terms: list[bytes] = []
        self._bytes = 0

    def __missing__(self, raw: bytes) -> int:
        terms, length, _ = self._means(raw)
        self._word_terms.extend([self._number(term) for term in terms])
        self._bounds.append(len(self._word_terms))
        self._lengths.append(length)
        self._bytes += len(raw)
        number = self[raw] = len(self)
        return number

    def _number(self, term: bytes) -> int:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = len(self._terms)
            self._terms.append(term)
            self._hashes.append(term_hash(term))
            self._bytes += len(term)
        return number

    @property
    def full(self) -> bool:
        """Say whether it is time to begin another one."""
        return len(self) > MAX_WORDS or self._bytes > MAX_BYTES

    def lengths(self) -> Array:
        """Return how many terms each word counts for (i64)."""
        return np.array(self._lengths, np.int64)

    def counted(self, mentions: Mentions, lengths: Array) -> Counted:
        """Return the terms of mentions, counted by owner; each owner is of a length (i64).

        A pair of word and owner may be mentioned in pieces.
        """
        words, owners, freqs = mentions
        bounds = np.array(self._bounds, np.int64)
        places, times = _spread(bounds, words)
        numbers = np.array(self._word_terms, np.int64)[places]
        dictionary, terms = self._dictionary(numbers)
        size = max(1, len(lengths))
        keys = terms * size + np.repeat(owners, times)
        keys, totals = _sum_equal(*sort_pairs(keys, np.repeat(freqs, times)))
        terms, owners = np.divmod(keys, size)
        return Counted(terms, owners, totals, dictionary, lengths)

    def _dictionary(self, numbers: Array) -> tuple[Dictionary, Array]:
        """Return the dictionary of the terms numbered so, and the place of each in it."""
        hashes = np.array(self._hashes, np.uint64)
        seen = np.zeros(len(hashes), bool)
        seen[numbers] = True
        used = np.flatnonzero(seen)
        used = used[hashes[used].argsort()]
        place = np.empty(len(hashes), np.int64)
        place[used] = np.arange(len(used))
        names = [self._terms[number] for number in used.tolist()]
        starts = np.cumsum([0, *map(len, names)], dtype=np.int64)
        return Dictionary(hashes[used], starts, b"".join(names)), place[numbers]


def mentions(words: Array, owners: Array, size: int) -> Mentions:
    """Return how often each word occurs in each of `size` owners, from every occurrence."""
    size = max(1, size)
    keys = words * size + owners
    keys, totals = _sum_equal(np.sort(keys), np.ones(len(keys), np.int64))
    return Mentions(*np.divmod(keys, size), totals)


def _sum_equal(keys: Array, values: Array) -> tuple[Array, Array]:
    """Return the distinct ones of ascending keys, and the sum of values of each."""
    if not len(keys):
        return keys, values
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[first], np.add.reduceat(values, first)


def _spread(bounds: Array, rows: Array) -> tuple[Array, Array]:
    """Return the places bounds[r]..bounds[r + 1] of every row end to end, and their counts."""
    times = bounds[rows + 1] - bounds[rows]
    ends = np.cumsum(times)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - times, times)
    return np.repeat(bounds[rows], times) + within, times
