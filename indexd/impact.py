"""Rows: terms that a large share of all documents hold, as bytes over all documents of a segment.

A document's *impact* is what a term may add to its score at most, told from the term frequency
and a range of lengths, in 255ths of the most that a term can add. Blocks of neighbouring documents
have the highest of their impacts. So a query looks at one byte per block first, and only where
blocks may matter at bytes per document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from indexd.bm25 import K1, B, average_length
from indexd.model import KINDS
from indexd.segment import Array, Segment

# A term held by one document in so many has a row, in segments of at least so many documents.
ROW_SHARE = 12
ROW_DOCUMENTS = 1 << 16
# Each row takes two bytes per document; a segment keeps as many as fit, the last used ones.
ROW_BYTES = 40_000_000
BLOCK = 32
# A document with this impact gains the most that a term can add.
FULL = 255

_FREQS = 8  # 1 to 7, and all above
_LENGTHS = np.array(
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 21, 24,
     28, 32, 37, 42, 48, 56, 64, 74, 86, 100, 116, 135, 160, 200, 256, 400]
)  # fmt: skip
_LONGEST = int(_LENGTHS[-1])
_CLASS_OF_LENGTH = np.maximum(
    _LENGTHS.searchsorted(np.arange(_LONGEST + 1), "right") - 1, 0
).astype(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A term over all documents of a segment.

    freqs: how often each holds it. impacts: of each, at the segment's own average length; with
    zeros behind the last document to fill its block. blocks: the highest impact of each block.
    bits: whether each holds it, packed. below[k]: how many of those that hold it come before the
    documents of kind k. files: per kind and file whether one holds it.
    """

    freqs: Array
    impacts: Array  # u8
    blocks: Array  # u8
    bits: Array  # u8
    below: list[int]
    files: Array


def row(segment: Segment, at: int) -> Row | None:
    """Return the row of the term at dictionary position `at`, if it is one that has one."""
    starts = segment.postings.starts
    doc_freq = int(starts[at + 1]) - int(starts[at])
    if doc_freq * ROW_SHARE < len(segment) or len(segment) < ROW_DOCUMENTS:
        return None
    rows = segment.derived.setdefault("rows", {})
    known: Row = rows.pop(at, None) or _built(segment, at)
    room = max(1, ROW_BYTES // (2 * len(segment)))
    for oldest in list(rows)[: max(0, len(rows) + 1 - room)]:
        rows.pop(oldest, None)
    rows[at] = known
    return known


def excess(segment: Segment, average: float) -> float:
    """Return how many times higher impacts may be for another average length than their own.

    A shorter average only lowers them; a longer one raises each by less than its own share.
    """
    return max(1.0, average / _average(segment))


def _built(segment: Segment, at: int) -> Row:
    ordinals, freqs = segment.term_postings(at)
    whole = np.zeros(len(segment), np.uint8 if int(freqs.max()) < 256 else np.uint32)
    whole[ordinals] = freqs
    impacts = np.zeros(-(-len(segment) // BLOCK) * BLOCK, np.uint8)
    impacts[ordinals] = _impacts(segment, ordinals, freqs)
    below = ordinals.searchsorted(segment.kind_starts).tolist()
    files = np.zeros((len(KINDS), len(segment.file_ids)), bool)
    for rank in range(len(KINDS)):
        files[rank][segment.columns.file[ordinals[below[rank] : below[rank + 1]]]] = True
    blocks = impacts.reshape(-1, BLOCK).max(axis=1)
    return Row(whole, impacts, blocks, np.packbits(impacts > 0), below, files)


def _impacts(segment: Segment, ordinals: Array, freqs: Array) -> Array:
    """Return the impacts of postings (u8)."""
    lengths = np.minimum(segment.columns.length.take(ordinals), _LONGEST)
    capped = np.minimum(freqs, _FREQS).astype(np.uint8)
    found: Array = _table(_average(segment))[(capped - 1) << 5 | _CLASS_OF_LENGTH[lengths]]
    return found


@lru_cache(maxsize=16)
def _table(average: float) -> Array:
    """Return the impact of each class: a term frequency, and a range of lengths."""
    freqs = np.repeat(np.arange(1.0, _FREQS + 1), len(_LENGTHS))
    lengths = np.tile(_LENGTHS.astype(np.float64), _FREQS)
    shares = freqs / (freqs + K1 * (1 - B + B * lengths / average))
    shares[freqs == _FREQS] = 1.0
    return np.ceil(shares * FULL).astype(np.uint8)


def _average(segment: Segment) -> float:
    return average_length(len(segment), int(segment.token_counts.sum()))
