"""Impacts: what a posting may add to a score at most, known without its document's length.

A posting's *class* is its term frequency and a range of document lengths, in one byte. For an
average length, a table of 256 numbers bounds what BM25 makes of each class. For a term that a
large share of all documents holds, the bounds are kept as a *row*: one byte per document, 0 where
the term is not, which adds up over terms many times faster than postings do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from indexd.bm25 import B, K1, average_length
from indexd.segment import Array, Segment

# A term held by one document in so many has a row, in segments of at least so many documents.
ROW_SHARE = 20
ROW_DOCUMENTS = 1 << 16
ROWS = 24

_FREQS = 8  # 1 to 7, and all above
_LENGTHS = np.array(
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 21, 24,
     28, 32, 37, 42, 48, 56, 64, 74, 86, 100, 116, 135, 160, 200, 256, 400]
)  # fmt: skip
_LENGTH_CLASS = np.maximum(_LENGTHS.searchsorted(np.arange(_LENGTHS[-1] + 1), "right") - 1, 0)
_MOST = K1 + 1
FULL = 255


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A term over all documents of a segment: its frequencies, and its impacts in 255ths of
    the most that a term can add, at the segment's own average length."""

    freqs: Array
    impacts: Array  # u8


def length_classes(segment: Segment) -> Array:
    """Return the class of each document's length (u8)."""
    known = segment.derived.get("length_classes")
    if known is None:
        capped = np.minimum(segment.columns.length, _LENGTHS[-1])
        known = _LENGTH_CLASS.astype(np.uint8)[capped]
        segment.derived["length_classes"] = known
    return known


def classes(freqs: Array, length_classes: Array) -> Array:
    """Return the class of each posting (u8)."""
    capped = np.minimum(freqs, _FREQS).astype(np.uint8)
    found: Array = (capped - 1) << 5 | length_classes
    return found


def saturations(average: float) -> Array:
    """Return for each class the most that BM25 makes of it, the term's weight apart."""
    freqs = np.repeat(np.arange(1.0, _FREQS + 1), len(_LENGTHS))
    lengths = np.tile(_LENGTHS.astype(np.float64), _FREQS)
    bounds = freqs * _MOST / (freqs + K1 * (1 - B + B * lengths / average))
    bounds[freqs == _FREQS] = _MOST
    return bounds


def has_row(segment: Segment, doc_freq: int) -> bool:
    """Say whether a term of this document frequency is kept as a row."""
    return len(segment) >= ROW_DOCUMENTS and doc_freq * ROW_SHARE >= len(segment)


def row(segment: Segment, at: int) -> Row:
    """Return the row of the term at dictionary position `at`."""
    rows = segment.derived.setdefault("rows", {})
    known = rows.pop(at, None)
    if known is None:
        known = _built(segment, at)
        for oldest in list(rows)[: max(0, len(rows) - ROWS + 1)]:
            rows.pop(oldest, None)
    rows[at] = known
    return known


def _built(segment: Segment, at: int) -> Row:
    ordinals, freqs = segment.term_postings(at)
    table = np.ceil(saturations(average(segment)) * (FULL / _MOST)).astype(np.uint8)
    impacts = np.zeros(len(segment), np.uint8)
    impacts[ordinals] = table[classes(freqs, length_classes(segment)[ordinals])]
    whole = np.zeros(len(segment), np.uint8 if int(freqs.max()) < FULL else np.uint32)
    whole[ordinals] = freqs
    return Row(whole, impacts)


def average(segment: Segment) -> float:
    """Return the mean length of the segment's documents."""
    return average_length(len(segment), int(segment.token_counts.sum()))
