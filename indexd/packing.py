"""Postings in few bytes: gaps instead of ordinals, and frequencies only where they are not 1.

Each term has a block of its own, so that a query reads just what it asks for:

    u4                      how many gaps are escaped, if any is
    u1, u2 or u4 each       gaps; the first is the first ordinal itself
    u4 each                 the gaps that are escaped
    a bit each              whether the frequency is not 1, if any is not
    u1 each                 the frequencies that are not 1
    u4 each                 the frequencies that are escaped

The largest number of one or two bytes says that the value itself is among the escaped ones. A
term's *code* says how wide its gaps are, and which of the optional pieces there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from indexd.hashes import starts_of
from indexd.segment import Array, Postings
from indexd.source import Memory, Source, misfits_are_damage

_WIDTH, _ESCAPED, _COUNTED = 0b0011, 0b0100, 0b1000
_DTYPES = ("<u1", "<u2", "<u4")
# Gaps from here on are escaped, by width.
_ESCAPES = np.array([0xFF, 0xFFFF, 1 << 32], np.int64)
_LARGE = 0xFF


class Packed(NamedTuple):
    """The blocks of some terms, end to end, with the code and the bytes of each."""

    codes: Array  # u8
    sizes: Array  # i64
    data: bytes | memoryview


class PackedPostings:
    """The postings of a segment, in blocks."""

    def __init__(self, counts: Array, codes: Array, sizes: Array, source: Source) -> None:
        self.starts = starts_of(counts)
        self.codes, self._offsets, self._source = codes, starts_of(sizes), source

    def one(self, at: int) -> tuple[Array, Array]:
        """Return the ordinals (u32) and the frequencies (u8 or u32) of a term."""
        count = int(self.starts[at + 1]) - int(self.starts[at])
        offset = int(self._offsets[at])
        data = self._source.read(offset, int(self._offsets[at + 1]) - offset)
        with misfits_are_damage():
            return unpack_one(int(self.codes[at]), count, data)

    def of(self, first: int, last: int) -> tuple[Array, Array]:
        """Return the ordinals and frequencies (u32) of the terms first <= i < last, end to end."""
        counts = np.diff(self.starts[first : last + 1])
        sizes = np.diff(self._offsets[first : last + 1])
        data = self._source.read(int(self._offsets[first]), int(sizes.sum()))
        with misfits_are_damage():
            return unpack(self.codes[first:last], counts, sizes, data)

    def blocks(self) -> Packed:
        """Return all blocks."""
        sizes = np.diff(self._offsets)
        return Packed(self.codes, sizes, self._source.read(0, int(self._offsets[-1])))


class _Places(NamedTuple):
    """Where the pieces of each term's block begin, and its postings: parallel to terms.

    owners and within say of each posting which term's it is, and which of them.
    """

    counts: Array
    widths: Array
    escaped: Array
    gaps: Array
    escapes: Array
    bits: Array
    freqs: Array
    owners: Array
    within: Array

    def of_gaps(self) -> Array:
        """Return the place of each posting's gap."""
        places: Array = self.gaps[self.owners] + self.within * self.widths[self.owners]
        return places


def pack(counts: Array, ordinals: Array, freqs: Array) -> Packed:
    """Return the blocks of terms of `counts` postings each, whose postings stand end to end."""
    counts = counts.astype(np.int64)
    owners = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    gaps = ordinals.astype(np.int64)
    gaps[1:] -= ordinals[:-1]
    gaps[starts] = ordinals[starts]
    freqs = freqs.astype(np.int64)
    counted = (freqs != 1).nonzero()[0]
    large = (freqs >= _LARGE).nonzero()[0]
    kinds, escaped = _widths(counts, owners, gaps)
    uncommon, larger = _per_term(owners[counted], counts), _per_term(owners[large], counts)
    codes = kinds | _ESCAPED * (escaped > 0) | _COUNTED * (uncommon > 0)
    head = 4 * (escaped > 0)
    tail = np.where(uncommon > 0, (counts + 7) // 8 + uncommon + 4 * larger, 0)
    sizes = head + (counts << kinds) + 4 * escaped + tail
    places = _places(counts, codes, escaped, np.cumsum(sizes) - sizes, owners)
    data = np.zeros(int(sizes.sum()), np.uint8)
    heads = (escaped > 0).nonzero()[0]
    _put(data, places.gaps[heads] - 4, escaped[heads], 4)
    _put_gaps(data, places, gaps, kinds[owners])
    _put_freqs(data, places, freqs, counted, large, uncommon)
    return Packed(codes.astype(np.uint8), sizes, data.tobytes())


def joined(parts: Sequence[tuple[Array, Packed]]) -> PackedPostings:
    """Return the postings of several runs of terms, given with their counts, in memory."""
    return PackedPostings(
        np.concatenate([counts for counts, _ in parts]),
        np.concatenate([packed.codes for _, packed in parts]),
        np.concatenate([packed.sizes for _, packed in parts]),
        Memory(b"".join(packed.data for _, packed in parts)),
    )


def packed(postings: Postings) -> PackedPostings:
    """Return postings in blocks, in memory."""
    if isinstance(postings, PackedPostings):
        return postings
    counts = np.diff(postings.starts)
    return joined([(counts, pack(counts, *postings.of(0, len(counts))))])


def unpack(
    codes: Array, counts: Array, sizes: Array, data: bytes | memoryview
) -> tuple[Array, Array]:
    """Return the ordinals (u32) and frequencies (u32) of the terms of some blocks, end to end."""
    counts = counts.astype(np.int64)
    codes = codes.astype(np.int64)
    blocks = np.cumsum(sizes) - sizes
    array = np.frombuffer(data, np.uint8)
    escaped = np.zeros(len(counts), np.int64)
    heads = (codes & _ESCAPED).nonzero()[0]
    escaped[heads] = _get(array, blocks[heads], 4)
    owners = np.repeat(np.arange(len(counts)), counts)
    places = _places(counts, codes, escaped, blocks, owners)
    gaps = _get_gaps(array, places, (codes & _WIDTH)[owners])
    sums = np.cumsum(gaps)
    first = np.cumsum(counts) - counts
    before = sums[first] - gaps[first]
    freqs = _get_freqs(array, places, (codes & _COUNTED) > 0)
    return (sums - before[owners]).astype(np.uint32), freqs


def unpack_one(code: int, count: int, data: bytes | memoryview) -> tuple[Array, Array]:
    """Return the ordinals (u32) and frequencies (u8 or u32) of one term's block."""
    width = code & _WIDTH
    at = escaped = 0
    if code & _ESCAPED:
        at, escaped = 4, int.from_bytes(data[:4], "little")
    gaps = np.frombuffer(data, _DTYPES[width], count, at)
    at += count << width
    if escaped:
        gaps = gaps.astype(np.uint32)
        gaps[gaps == _ESCAPES[width]] = np.frombuffer(data, "<u4", escaped, at)
        at += 4 * escaped
    freqs: Array = np.ones(count, np.uint8)
    if code & _COUNTED:
        freqs = _counted(freqs, data, at)
    return gaps.cumsum(dtype=np.uint32), freqs


def _counted(freqs: Array, data: bytes | memoryview, at: int) -> Array:
    """Return frequencies, 1 each, with those in their places that are not."""
    count = len(freqs)
    bits = np.frombuffer(data, np.uint8, (count + 7) // 8, at)
    uncommon = np.unpackbits(bits, count=count).view(bool).nonzero()[0]
    at += len(bits)
    freqs[uncommon] = values = np.frombuffer(data, np.uint8, len(uncommon), at)
    at += len(uncommon)
    if at < len(data):
        freqs = freqs.astype(np.uint32)
        freqs[uncommon[values == _LARGE]] = np.frombuffer(data, "<u4", -1, at)
    return freqs


def _widths(counts: Array, owners: Array, gaps: Array) -> tuple[Array, Array]:
    """Return the cheapest width of each term's gaps (0, 1, 2), and how many it escapes."""
    escaped = [_per_term(owners[gaps >= limit], counts) for limit in _ESCAPES[:2]]
    escaped.append(np.zeros(len(counts), np.int64))
    costs = [(counts << width) + 4 * many + 4 * (many > 0) for width, many in enumerate(escaped)]
    cheapest = np.argmin(np.stack(costs), axis=0)
    return cheapest, np.choose(cheapest, escaped)


def _per_term(owners: Array, counts: Array) -> Array:
    return np.bincount(owners, minlength=len(counts))


def _places(counts: Array, codes: Array, escaped: Array, blocks: Array, owners: Array) -> _Places:
    gaps = blocks + 4 * (escaped > 0)
    escapes = gaps + (counts << (codes & _WIDTH))
    bits = escapes + 4 * escaped
    freqs = bits + (counts + 7) // 8
    within = np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners]
    widths = np.int64(1) << (codes & _WIDTH)
    return _Places(counts, widths, escaped, gaps, escapes, bits, freqs, owners, within)


def _put_gaps(data: Array, places: _Places, gaps: Array, kinds: Array) -> None:
    at = places.of_gaps()
    limits = _ESCAPES[kinds]
    values = np.minimum(gaps, limits)
    data[at] = values & 0xFF
    for kind, wide in ((1, 2), (2, 4)):
        these = (kinds == kind).nonzero()[0]
        _put(data, at[these], values[these], wide)
    these = (gaps >= limits).nonzero()[0]
    owners = places.owners[these]
    _put(data, places.escapes[owners] + 4 * _rank(owners), gaps[these], 4)


def _get_gaps(data: Array, places: _Places, kinds: Array) -> Array:
    at = places.of_gaps()
    gaps = data[at].astype(np.int64)
    for kind, wide in ((1, 2), (2, 4)):
        these = (kinds == kind).nonzero()[0]
        gaps[these] = _get(data, at[these], wide)
    these = (gaps == _ESCAPES[kinds]).nonzero()[0]
    owners = places.owners[these]
    gaps[these] = _get(data, places.escapes[owners] + 4 * _rank(owners), 4)
    return gaps


def _put_freqs(
    data: Array, places: _Places, freqs: Array, counted: Array, large: Array, uncommon: Array
) -> None:
    owners, within = places.owners[counted], places.within[counted]
    np.bitwise_or.at(data, places.bits[owners] + within // 8, _bit(within))
    data[places.freqs[owners] + _rank(owners)] = np.minimum(freqs[counted], _LARGE)
    owners = places.owners[large]
    _put(data, (places.freqs + uncommon)[owners] + 4 * _rank(owners), freqs[large], 4)


def _get_freqs(data: Array, places: _Places, with_bits: Array) -> Array:
    freqs = np.ones(len(places.owners), np.uint32)
    these = with_bits[places.owners].nonzero()[0]
    owners, within = places.owners[these], places.within[these]
    marked = (data[places.bits[owners] + within // 8] & _bit(within)).nonzero()[0]
    these, owners = these[marked], owners[marked]
    freqs[these] = data[places.freqs[owners] + _rank(owners)]
    uncommon = _per_term(owners, places.counts)
    large = (freqs[these] == _LARGE).nonzero()[0]
    these, owners = these[large], owners[large]
    freqs[these] = _get(data, (places.freqs + uncommon)[owners] + 4 * _rank(owners), 4)
    return freqs


def _bit(within: Array) -> Array:
    return (0x80 >> (within % 8)).astype(np.uint8)


def _rank(owners: Array) -> Array:
    """Return for each of some ascending owners how many equal ones come before it."""
    if not len(owners):
        return owners
    first = np.concatenate(([True], owners[1:] != owners[:-1])).nonzero()[0]
    counts = np.diff(first, append=len(owners))
    return np.arange(len(owners)) - np.repeat(first, counts)


def _put(data: Array, at: Array, values: Array, wide: int) -> None:
    for byte in range(wide):
        data[at + byte] = (values >> (8 * byte)) & 0xFF


def _get(data: Array, at: Array, wide: int) -> Array:
    values = np.zeros(len(at), np.int64)
    for byte in range(wide):
        values |= data[at + byte].astype(np.int64) << (8 * byte)
    return values
