"""Impacts: what a posting may add to a score at most, told without its document's exact length.

A posting's *class* is its term frequency and a range of document lengths, in one byte. For an
average length, a table of 256 numbers bounds what BM25 makes of each class. For a term that a
large share of all documents holds, the bounds are kept as a *row*: one byte per document, 0 where
the term is not. Rows add up over all documents many times faster than postings do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from indexd.bm25 import K1, B, average_length
from indexd.model import KINDS
from indexd.segment import Array, Segment

# A term held by one document in so many has a row, in segments of at least so many documents.
ROW_SHARE = 20
ROW_DOCUMENTS = 1 << 16
# Each row takes two bytes per document.
ROWS = 24
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
    """A term over all documents of a segment: how often each holds it, and its impacts at the
    segment's own average length.

    `below[k]` is how many of the documents that hold it come before those of kind k; `files` says
    per kind and file whether one holds it.
    """

    freqs: Array
    impacts: Array  # u8
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
    for oldest in list(rows)[: max(0, len(rows) - ROWS + 1)]:
        rows.pop(oldest, None)
    rows[at] = known
    return known


def _built(segment: Segment, at: int) -> Row:
    ordinals, freqs = segment.term_postings(at)
    whole = np.zeros(len(segment), np.uint8 if int(freqs.max()) < 256 else np.uint32)
    whole[ordinals] = freqs
    impacts = np.zeros(len(segment), np.uint8)
    impacts[ordinals] = of_postings(segment, ordinals, freqs)
    below = ordinals.searchsorted(segment.kind_starts).tolist()
    files = np.zeros((len(KINDS), len(segment.file_ids)), bool)
    for rank in range(len(KINDS)):
        files[rank][segment.columns.file[ordinals[below[rank] : below[rank + 1]]]] = True
    return Row(whole, impacts, below, files)


def of_postings(segment: Segment, ordinals: Array, freqs: Array) -> Array:
    """Return the impacts of postings at the segment's own average length (u8)."""
    share = saturations(_average(segment)) / (K1 + 1)
    return np.ceil(share * FULL).astype(np.uint8)[classes(segment, ordinals, freqs)]


def classes(segment: Segment, ordinals: Array, freqs: Array) -> Array:
    """Return the class of each posting (u8)."""
    capped = np.minimum(freqs, _FREQS).astype(np.uint8)
    found: Array = (capped - 1) << 5 | _length_classes(segment).take(ordinals)
    return found


@lru_cache(maxsize=16)
def saturations(average: float) -> Array:
    """Return for each class the most that BM25 makes of it, the term's weight apart."""
    freqs = np.repeat(np.arange(1.0, _FREQS + 1), len(_LENGTHS))
    lengths = np.tile(_LENGTHS.astype(np.float64), _FREQS)
    bounds: Array = freqs * (K1 + 1) / (freqs + K1 * (1 - B + B * lengths / average))
    bounds[freqs == _FREQS] = K1 + 1
    return bounds


def excess(segment: Segment, average: float) -> float:
    """Return how many times higher impacts may be for another average length than their own.

    A shorter average only lowers them; a longer one raises each by less than its own share.
    """
    return max(1.0, average / _average(segment))


def _length_classes(segment: Segment) -> Array:
    known: Array | None = segment.derived.get("length_classes")
    if known is None:
        known = _CLASS_OF_LENGTH[np.minimum(segment.columns.length, _LONGEST)]
        segment.derived["length_classes"] = known
    return known


def _average(segment: Segment) -> float:
    return average_length(len(segment), int(segment.token_counts.sum()))
