"""What a segment keeps in memory of the terms last asked for, so that bounds come before scores.

A document's *impact* is what a term may add to its score at most, told from the term frequency
and a range of lengths, in 255ths of the most that a term can add. A long posting list has the
impact of each posting beside it. A term that a large share of all documents hold has a row, which
is bytes over all documents of the segment; blocks of neighbouring documents have the highest of
their impacts. So a query looks at one byte per block or posting first, and only where these may
matter at more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from indexd.bm25 import K1, B, average_length
from indexd.model import KINDS
from indexd.segment import Array, Segment

# A term held by one document in so many has a row, in segments of at least so many documents.
ROW_SHARE = 12
ROW_DOCUMENTS = 1 << 16
# A list of so many postings has impacts; if a share of the documents hold the term, bits as well.
LISTED = 2048
BITS_SHARE = 128
# How many bytes a segment keeps, of each, those last used.
ROW_BYTES = 40_000_000
LISTED_BYTES = 24_000_000
BLOCK = 32
# A document with this impact gains the most that a term can add.
FULL = 255

# What an impact is told from: a frequency, or any from 8 on, and a range of lengths.
_FREQS = 8
_LENGTHS = np.array(
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 21, 24,
     28, 32, 37, 42, 48, 56, 64, 74, 86, 100, 120, 150, 200, 256, 400]
)  # fmt: skip
_CLASS_OF_LENGTH = np.maximum(
    _LENGTHS.searchsorted(np.arange(int(_LENGTHS[-1]) + 1), "right") - 1, 0
).astype(np.uint8)
_FIRST_CODE = (1 + (np.maximum(np.arange(_FREQS + 1), 1) - 1) * len(_LENGTHS)).astype(np.uint8)
_FREQ_OF_CODE = np.concatenate(([0], np.repeat(np.arange(1, _FREQS + 1), len(_LENGTHS)))).astype(
    np.uint8
)


class Listing(NamedTuple):
    """A long posting list: ordinals (u32), frequencies and impacts (u8).

    bits: whether each document of the segment holds the term, packed, if many do.
    """

    ordinals: Array
    freqs: Array
    impacts: Array
    bits: Array | None

    @property
    def nbytes(self) -> int:
        """Return how many bytes of memory it takes."""
        return sum([array.nbytes for array in self if array is not None])


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A term over all documents of a segment.

    codes: of each, to fill the last block: 0 where it does not hold the term, else of its impact.
    many, counts: those that hold it _FREQS times and more (u32), and how often. blocks: the
    highest impact of each block. bits: whether each holds it, packed. below[k]: how many of those
    that hold it come before the documents of kind k. files: per kind and file whether one does.
    """

    codes: Array  # u8
    many: Array
    counts: Array
    blocks: Array  # u8
    bits: Array  # u8
    below: list[int]
    files: Array
    table: Array  # u8, by code

    def impacts(self, codes: Array) -> Array:
        """Return the impacts (u8) that codes stand for, at the segment's own average length."""
        found: Array = self.table.take(codes)
        return found

    def freqs(self, documents: Array) -> Array:
        """Return how often each of some documents holds the term."""
        found: Array = _FREQ_OF_CODE.take(self.codes.take(documents))
        many = (found == _FREQS).nonzero()[0]
        if len(many):
            found = found.astype(np.uint32)
            found[many] = self.counts[self.many.searchsorted(documents[many])]
        return found

    @property
    def nbytes(self) -> int:
        """Return how many bytes of memory it takes."""
        arrays = (self.codes, self.many, self.counts, self.blocks, self.bits, self.files)
        return sum([array.nbytes for array in arrays])


def row(segment: Segment, at: int) -> Row | None:
    """Return the row of the term at dictionary position `at`, if it is one that has one."""
    starts = segment.postings.starts
    doc_freq = int(starts[at + 1]) - int(starts[at])
    if doc_freq * ROW_SHARE < len(segment) or len(segment) < ROW_DOCUMENTS:
        return None
    return _kept(segment, "rows", at, _row, ROW_BYTES)


def listing(segment: Segment, at: int) -> Listing | None:
    """Return the posting list of the term at dictionary position `at`, if it is a long one."""
    starts = segment.postings.starts
    if int(starts[at + 1]) - int(starts[at]) < LISTED:
        return None
    return _kept(segment, "listings", at, _listing, LISTED_BYTES)


def impacts(segment: Segment, ordinals: Array, freqs: Array) -> Array:
    """Return the impacts (u8) of postings, at the segment's own average length."""
    found: Array = _table(_average(segment)).take(_codes(segment, ordinals, freqs))
    return found


_Kept = TypeVar("_Kept", Row, Listing)


def _kept(
    segment: Segment, name: str, at: int, make: Callable[[Segment, int], _Kept], most: int
) -> _Kept:
    """Return what was made for a term, anew if it has been dropped."""
    kept: dict[int, _Kept] = segment.derived.setdefault(name, {})
    found = kept.pop(at, None)
    if found is None:
        found = make(segment, at)
        taken = sum([each.nbytes for each in list(kept.values())]) + found.nbytes
        for oldest in list(kept):
            if taken <= most:
                break
            if dropped := kept.pop(oldest, None):
                taken -= dropped.nbytes
    kept[at] = found
    return found


def excess(segment: Segment, average: float) -> float:
    """Return how many times higher impacts may be for another average length than their own.

    A shorter average only lowers them; a longer one raises each by less than its own share.
    """
    return max(1.0, average / _average(segment))


def _listing(segment: Segment, at: int) -> Listing:
    ordinals, freqs = segment.term_postings(at)
    many = len(ordinals) * BITS_SHARE >= len(segment)
    bits = bits_of(segment, [ordinals]) if many else None
    return Listing(ordinals, freqs, impacts(segment, ordinals, freqs), bits)


def _row(segment: Segment, at: int) -> Row:
    ordinals, freqs = segment.term_postings(at)
    table = _table(_average(segment))
    codes = np.zeros(padded(segment), np.uint8)
    codes[ordinals] = _codes(segment, ordinals, freqs)
    many = (freqs >= _FREQS).nonzero()[0]
    below = ordinals.searchsorted(segment.kind_starts).tolist()
    files = np.zeros((len(KINDS), len(segment.file_ids)), bool)
    for rank in range(len(KINDS)):
        files[rank][segment.columns.file[ordinals[below[rank] : below[rank + 1]]]] = True
    return Row(
        codes,
        ordinals[many],
        freqs[many].astype(np.uint32),
        table.take(codes).reshape(-1, BLOCK).max(axis=1),
        np.packbits(codes > 0),
        below,
        files,
        table,
    )


def _codes(segment: Segment, ordinals: Array, freqs: Array) -> Array:
    """Return the codes of the impacts of postings (u8)."""
    lengths = _CLASS_OF_LENGTH.take(segment.columns.length.take(ordinals), mode="clip")
    return _FIRST_CODE.take(freqs, mode="clip") + lengths


def bits_of(segment: Segment, lists: Sequence[Array]) -> Array:
    """Return whether each document of the segment is in any list of ordinals, packed."""
    flags = np.zeros(padded(segment), bool)
    for ordinals in lists:
        flags[ordinals] = True
    return np.packbits(flags)


def padded(segment: Segment) -> int:
    """Return the number of documents, raised to fill blocks, and whole words with bits."""
    return -(-len(segment) // 64) * 64


@lru_cache(maxsize=16)
def _table(average: float) -> Array:
    """Return the impact of each code: a term frequency, and a range of lengths."""
    freqs = np.repeat(np.arange(1.0, _FREQS + 1), len(_LENGTHS))
    lengths = np.tile(_LENGTHS.astype(np.float64), _FREQS)
    shares = freqs / (freqs + K1 * (1 - B + B * lengths / average))
    shares[freqs == _FREQS] = 1.0
    return np.concatenate(([0], np.ceil(shares * FULL))).astype(np.uint8)


def _average(segment: Segment) -> float:
    known: float | None = segment.derived.get("average")
    if known is None:
        known = average_length(len(segment), int(segment.token_counts.sum()))
        segment.derived["average"] = known
    return known
