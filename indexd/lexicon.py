"""What raw tokens mean, remembered: a few thousand different ones make up most of any text.

A lexicon numbers raw tokens and terms as they come and keeps, for each token, the terms that an
occurrence adds. So a text is analysed by one look into a dictionary per token, and everything
after that is arithmetic on arrays of numbers.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from functools import partial

import numpy as np

from indexd.segment import Array, term_hash
from indexd.text import BOUNDARY, Meaning, Profile, meaning

# A token and its terms cost some 400 bytes; beyond these numbers a lexicon begins anew.
MAX_TOKENS = 1 << 16
MAX_BYTES = 8 * 1024 * 1024


class Lexicon(dict[bytes, int]):
    """The number of each raw token; a token never seen is learned when it is asked for.

    `means` says what a raw token stands for. Token 0 is the boundary between two texts; it has no
    terms.
    """

    def __init__(self, means: Callable[[bytes], Meaning]) -> None:
        super().__init__()
        self._means = means
        self._bounds = array("q", [0])
        self._token_terms = array("I")
        self._lengths = array("I")
        self._numbers: dict[bytes, int] = {}
        self._hashes = array("Q")
        self._bytes = 0
        self.terms: list[bytes] = []
        self[BOUNDARY] = 0
        self._lengths.append(0)
        self._bounds.append(0)

    def __missing__(self, raw: bytes) -> int:
        terms, length, _ = self._means(raw)
        self._token_terms.extend([self._number(term) for term in terms])
        self._bounds.append(len(self._token_terms))
        self._lengths.append(length)
        self._bytes += len(raw)
        number = self[raw] = len(self)
        return number

    def _number(self, term: bytes) -> int:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = len(self.terms)
            self.terms.append(term)
            self._hashes.append(term_hash(term))
            self._bytes += len(term)
        return number

    @property
    def full(self) -> bool:
        """Say whether it is time to begin another one."""
        return len(self) > MAX_TOKENS or self._bytes > MAX_BYTES

    def lengths(self) -> Array:
        """Return how many seed terms each token counts for (i64)."""
        return np.array(self._lengths, np.int64)

    def token_terms(self) -> tuple[Array, Array]:
        """Return (bounds, numbers): token t adds the terms numbers[bounds[t]:bounds[t + 1]]."""
        return np.array(self._bounds, np.int64), np.array(self._token_terms, np.int64)

    def hashes(self) -> Array:
        """Return the hash of each term (u64)."""
        return np.array(self._hashes, np.uint64)


_local = threading.local()


def lexicon(profile: Profile) -> Lexicon:
    """Return this thread's lexicon; it may be another one after each call."""
    known: dict[Profile, Lexicon] = _local.__dict__.setdefault("lexicons", {})
    if profile not in known or known[profile].full:
        known[profile] = Lexicon(partial(meaning, profile=profile))
    return known[profile]
