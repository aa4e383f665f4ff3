"""Segment: the immutable term statistics of a set of documents.

A segment is columns over documents, a dictionary of terms and their postings. Documents are
ordered by (kind, file, message, call) and numbered by that order, their *ordinals*; so a choice
of kinds is a few ranges of ordinals. Terms are ordered by a 64-bit hash: looking one up is a
binary search over integers, and merging never compares strings.

Everything incremental rests on one law, where + is concatenation of documents:
build(x + y) == merge([build(x), build(y)]).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from indexd.hashes import Array as Array
from indexd.hashes import starts_of
from indexd.hashes import term_hash as term_hash
from indexd.model import KINDS

# Term frequencies are kept in one byte; this value says "look in `large`".
ESCAPE = 255
UNSIGNED = ("<u1", "<u2", "<u4", "<u8")
NARROW_COLUMNS = ("file", "message", "call", "tool")


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What is known of each document; parallel columns over ordinals.

    Narrow ones are unsigned and have as many bits as their largest number needs.

    Those from `digest` on are wanted for few documents at a time, so they may stay in a file:
    ask them by `take(ordinals)`, which arrays know too.
    """

    file: Array  # narrow: position in Segment.file_ids
    message: Array  # narrow: message_index
    call: Array  # narrow: position among the documents of this message and kind
    length: Array  # u32: seed terms
    tool: Array  # narrow: position in Segment.tool_names
    digest: Any  # u64: of the text, to know copies
    timestamp: Any  # i64: unix ms, 0 unknown
    offset: Any  # u64: where the line of its message begins in the file
    size: Any  # u32: bytes of that line, without the newline
    part: Any  # u32: which of that line's messages it is of


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """The terms of a segment, ordered by hash; term i is blob[starts[i]:starts[i + 1]]."""

    hashes: Array  # u64, ascending
    starts: Array  # i64, one more than terms
    blob: bytes

    def find(self, term: bytes) -> int:
        """Return the position of `term`, or -1."""
        wanted = np.uint64(term_hash(term))
        at = int(self.hashes.searchsorted(wanted))
        if at == len(self.hashes) or self.hashes[at] != wanted or self.term(at) != term:
            return -1
        return at

    def find_all(self, terms: Sequence[bytes], hashes: Array) -> Iterator[tuple[bytes, int]]:
        """Yield each of `terms` that is here, and its position; `hashes` (u64) are theirs."""
        if len(self.hashes):
            at = self.hashes.searchsorted(hashes)
            equal = self.hashes.take(at, mode="clip") == hashes
            for term, place, same in zip(terms, at.tolist(), equal.tolist(), strict=True):
                if same and self.term(place) == term:
                    yield term, place

    def beginning(self, prefix: bytes) -> list[bytes]:
        """Return the terms that begin with `prefix`, in no order."""
        return [self.term(each) for each in self.places(prefix).tolist()]

    def places(self, prefix: bytes) -> Array:
        """Return the positions of the terms that begin with `prefix`, ascending."""
        if not prefix:
            return np.arange(len(self))
        letters = np.frombuffer(self.blob, np.uint8)
        # Most terms differ in their first letter, which is all that is looked at of them.
        at: Array = (letters.take(self.starts[:-1]) == prefix[0]).nonzero()[0]
        at = at[self.starts[at + 1] - self.starts[at] >= len(prefix)]
        for number, byte in enumerate(prefix[1:], 1):
            at = at[letters[self.starts[at] + number] == byte]
        return at

    def term(self, at: int) -> bytes:
        """Return the term at position `at`."""
        return self.blob[self.starts[at] : self.starts[at + 1]]

    def __len__(self) -> int:
        return len(self.hashes)

    def __iter__(self) -> Iterator[bytes]:
        bounds = self.starts.tolist()
        return (self.blob[a:b] for a, b in pairwise(bounds))


class Postings(Protocol):
    """Which documents hold each term, and how often; term i has the postings starts[i] to
    starts[i + 1]. Ordinals ascend within a term."""

    @property
    def starts(self) -> Array:
        """Return how many postings come before each term (i64), and how many there are."""

    def one(self, at: int) -> tuple[Array, Array]:
        """Return the ordinals (u32) and the frequencies (u8 or u32) of a term."""

    def of(self, first: int, last: int) -> tuple[Array, Array]:
        """Return ordinals (u32) and frequencies of the terms first <= i < last, end to end."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainPostings:
    """Postings as arrays. `large` holds the frequencies of 255 and more, by position."""

    starts: Array  # i64, one more than terms
    ordinals: Array  # u32
    freqs: Array  # u8
    large_at: Array  # i64, ascending
    large: Array  # u32

    def one(self, at: int) -> tuple[Array, Array]:
        """Return the ordinals and frequencies of a term."""
        return self.of(at, at + 1)

    def of(self, first: int, last: int) -> tuple[Array, Array]:
        """Return the ordinals and frequencies of some terms."""
        start, stop = int(self.starts[first]), int(self.starts[last])
        freqs = self.freqs[start:stop]
        a, b = self.large_at.searchsorted([start, stop]) if len(self.large_at) else (0, 0)
        if a < b:
            freqs = freqs.astype(np.uint32)
            freqs[self.large_at[a:b] - start] = self.large[a:b]
        return self.ordinals[start:stop], freqs


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The statistics of a set of documents; see the module's docstring."""

    file_ids: Array  # u32, ascending
    tool_names: tuple[str, ...]
    kind_starts: Array  # i64: kind k owns the ordinals kind_starts[k]..kind_starts[k + 1]
    columns: Columns
    dictionary: Dictionary
    postings: Postings
    doc_counts: Array  # i64 [file, kind]
    token_counts: Array  # i64 [file, kind]
    derived: dict[str, Any] = field(default_factory=dict)  # what queries have worked out from it

    def __len__(self) -> int:
        return len(self.columns.file)

    def term_postings(self, at: int) -> tuple[Array, Array]:
        """Return (ordinals u32, term frequencies) of the term at dictionary position `at`."""
        return self.postings.one(at)

    def with_file_id(self, file_id: int) -> Segment:
        """Return this segment, of one file, under another file id."""
        return replace(self, file_ids=np.full(len(self.file_ids), file_id, np.uint32))

    def files_of(self, ordinals: Array) -> Array:
        """Return the file id (u32) of each of some documents."""
        ids: Array = self.file_ids.take(self.columns.file.take(ordinals))
        return ids

    def kind_ranks(self, ordinals: Array) -> Array:
        """Return the position in KINDS (i64) of each document's kind."""
        ranks: Array = self.kind_starts[1:].searchsorted(ordinals, side="right")
        return ranks


def assemble(
    file_ids: Array,
    tool_names: tuple[str, ...],
    ranks: Array,
    columns: Columns,
    dictionary: Dictionary,
    postings: Postings,
) -> Segment:
    """Return a segment of these parts; `ranks` is the kind rank of each document, ascending."""
    kinds = len(KINDS)
    narrow = {name: narrowed(getattr(columns, name)) for name in NARROW_COLUMNS}
    columns = replace(columns, **narrow)
    cells = columns.file.astype(np.int64) * kinds + ranks
    shape = (len(file_ids), kinds)
    doc_counts = np.bincount(cells, minlength=shape[0] * kinds).reshape(shape)
    token_counts = np.zeros(shape[0] * kinds, np.int64)
    np.add.at(token_counts, cells, columns.length.astype(np.int64))
    return Segment(
        file_ids,
        tool_names,
        ranks.searchsorted(np.arange(kinds + 1)),
        columns,
        dictionary,
        postings,
        doc_counts,
        token_counts.reshape(shape),
    )


def narrowed(array: Array) -> Array:
    """Return the array in the narrowest unsigned integers that hold it; signed ones stay."""
    if len(array) and array.min() < 0:
        return array
    most = int(array.max()) if len(array) else 0
    size = max(1, most.bit_length() + 7 >> 3)
    return array.astype(UNSIGNED[(size - 1).bit_length()], copy=False)


def nothing() -> Segment:
    """Return the segment of no documents; merging it changes nothing."""
    u32, u64, i64 = (np.zeros(0, dtype) for dtype in (np.uint32, np.uint64, np.int64))
    return assemble(
        u32,
        (),
        i64,
        Columns(u32, u32, u32, u32, u32, u64, i64, u64, u32, u32),
        Dictionary(u64, np.zeros(1, np.int64), b""),
        postings_of(0, i64, i64, i64),
    )


def postings_of(terms: int, owners: Array, ordinals: Array, freqs: Array) -> PlainPostings:
    """Return the postings of `terms` terms: parallel arrays, ordered by term and ordinal.

    `owners` says which term each posting is of.
    """
    return plain_postings(starts_of(np.bincount(owners, minlength=terms)), ordinals, freqs)


def plain_postings(starts: Array, ordinals: Array, freqs: Array) -> PlainPostings:
    """Return the postings of terms that begin at `starts`, from frequencies of any size."""
    large_at = np.flatnonzero(freqs >= ESCAPE)
    return PlainPostings(
        starts,
        ordinals.astype(np.uint32, copy=False),
        np.minimum(freqs, ESCAPE).astype(np.uint8),
        large_at,
        freqs[large_at].astype(np.uint32),
    )


def distinct(values: Array) -> Array:
    """Return the distinct values, ascending.

    Sorting integers is many times faster than hashing them, as numpy's unique does.
    """
    ordered = np.sort(values)
    first: Array = np.concatenate((np.ones(len(ordered[:1]), bool), ordered[1:] != ordered[:-1]))
    found: Array = ordered[first]
    return found


def sort_pairs(keys: Array, values: Array) -> tuple[Array, Array]:
    """Return both arrays in the order of `keys` (i64, not negative); ties in no order.

    Sorting plain integers is several times faster than sorting by index, so the pair travels as
    one integer wherever it fits.
    """
    if not len(keys):
        return keys, values
    shift = int(values.max()).bit_length()
    if int(keys.max()).bit_length() + shift > 63:
        order = keys.argsort(kind="stable")
        return keys[order], values[order]
    packed = np.sort(keys << shift | values)
    return packed >> shift, packed & ((1 << shift) - 1)
