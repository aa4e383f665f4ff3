"""A 64-bit hash of terms that is worked out for all terms of a text at once.

It is the value of the term's bytes as a polynomial, modulo 2**64, stirred so that any of its bits
may be used alone. Sums over a stretch of a text are differences of running sums, so hashing costs
a few operations on arrays per byte, however many terms there are.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_BASE = 0xD6E8FEB86659FD93
_STIR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
# Running sums are kept for so many bytes at a time, which stays in the second-level cache.
_BLOCK = 1 << 15
# A longer term is hashed on its own; most texts have none.
_LONG = 1 << 12
# Queries ask for the same words again.
_REMEMBERED = 1 << 12


def _powers(base: int) -> Array:
    found = np.full(_BLOCK + _LONG, base, np.uint64)
    found[0] = 1
    return np.multiply.accumulate(found)


_POWERS, _INVERSES = _powers(_BASE), _powers(pow(_BASE, -1, 1 << 64))
_POWER_NUMBERS: list[int] = _POWERS[:_LONG].tolist()


@lru_cache(maxsize=_REMEMBERED)
def term_hash(term: bytes) -> int:
    """Return the 64-bit hash that orders dictionaries."""
    if len(term) > _LONG:
        return int(_stirred(np.array([_long(np.frombuffer(term, np.uint8))], np.uint64))[0])
    value: int = sum(map(mul, term, _POWER_NUMBERS)) & _MASK
    value = (value ^ value >> 32) * _STIR & _MASK
    return value ^ value >> 29


def span_hashes(text: Array, starts: Array, ends: Array) -> Array:
    """Return the hash (u64) of each text[start:end]; `text` is bytes (u8), starts ascend."""
    values = np.empty(len(starts), np.uint64)
    cuts = starts.searchsorted(np.arange(0, len(text) + _BLOCK, _BLOCK)).tolist()
    for number, (first, last) in enumerate(pairwise(cuts)):
        if first < last:
            at = number * _BLOCK
            values[first:last] = _block(text, at, starts[first:last], ends[first:last])
    for each in np.flatnonzero(ends - starts > _LONG).tolist():
        values[each] = _long(text[starts[each] : ends[each]])
    return _stirred(values)


def _block(text: Array, at: int, starts: Array, ends: Array) -> Array:
    """Return the values of terms that begin in the block at `at`; of long ones, anything."""
    stop = min(int(ends.max()), at + len(_POWERS))
    sums = np.empty(stop - at + 1, np.uint64)
    sums[0] = 0
    np.cumsum(_POWERS[: stop - at] * text[at:stop], out=sums[1:])
    begin = starts - at
    values: Array = (sums.take(ends - at, mode="clip") - sums[begin]) * _INVERSES[begin]
    return values


def _long(term: Array) -> int:
    value = 0
    for at in range(0, len(term), _BLOCK):
        piece = term[at : at + _BLOCK].astype(np.uint64)
        value += int((piece * _POWERS[: len(piece)]).sum()) * pow(_BASE, at, 1 << 64)
    return value & _MASK


def _stirred(values: Array) -> Array:
    values = (values ^ values >> np.uint64(32)) * np.uint64(_STIR)
    stirred: Array = values ^ values >> np.uint64(29)
    return stirred


def starts_of(counts: Array) -> Array:
    """Return where each of some runs begins (i64) when they stand end to end, and their end."""
    starts: Array = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return starts


def gathered(text: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Return each text[start:end] end to end, and where each begins, with the end of the last."""
    sizes = ends - starts
    bounds = starts_of(sizes)
    places = np.arange(int(bounds[-1])) + np.repeat(starts - bounds[:-1], sizes)
    return text[places], bounds


def in_order(hashes: Array) -> tuple[Array, Array]:
    """Return the stable order of the hashes, and the hashes in it.

    Hash and place travel as one integer, which is sorted several times faster than by index. It
    holds as many bits of the hash as fit; should two hashes differ in the others only, sort those.
    """
    bits = np.uint64(len(hashes).bit_length())
    mask = (np.uint64(1) << bits) - np.uint64(1)
    packed = np.sort((hashes & ~mask) | np.arange(len(hashes), dtype=np.uint64))
    places = (packed & mask).astype(np.int64)
    ordered = hashes[places]
    if _torn(ordered, bits):
        places = hashes.argsort(kind="stable")
        ordered = hashes[places]
    return places, ordered


def _torn(ordered: Array, bits: np.uint64) -> bool:
    """Say whether different hashes share the bits that they were sorted by."""
    alike = (ordered[1:] >> bits) == (ordered[:-1] >> bits)
    return bool((alike & (ordered[1:] != ordered[:-1])).any())


def changes(values: Array) -> Array:
    """Return where a value is not the one before it."""
    changed = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed
