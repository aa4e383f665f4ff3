"""Documents to a segment: tokens are counted by sorting integers, not in dictionaries.

Each different raw token is looked up once; what it means (its terms) is applied to its counts,
so identifier parts and bigrams cost by different tokens, not by occurrences.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import xxhash

from indexd.model import KINDS, Document
from indexd.segment import (
    Array,
    Columns,
    Dictionary,
    Segment,
    assemble,
    pack_postings,
    sort_pairs,
    term_hash,
)
from indexd.text import Profile, meaning, raw_tokens

_RANK = {kind: rank for rank, kind in enumerate(KINDS)}
# Enough for the words of a large home; each costs some 300 bytes, since long ones, which hardly
# ever come again (a paragraph of Chinese is one), are not kept.
_REMEMBERED_TOKENS = 1 << 17
_REMEMBERED_BYTES = 48


class Entry(NamedTuple):
    """A document on its way into a segment: of which file, said when, and where it lies.

    `timestamp` is in unix ms, 0 unknown; `offset`, `size` and `part` are as in Columns.
    """

    file_id: int
    document: Document
    timestamp: int = 0
    offset: int = 0
    size: int = 0
    part: int = 0


def build(entries: Iterable[Entry], profile: Profile) -> Segment:
    """Return the segment of `entries`; documents without a term are left out."""
    entries = list(entries)
    vocabulary = _Vocabulary()
    raws, owners, freqs = _count(entries, vocabulary)
    words = _words(vocabulary, profile)
    lengths = np.zeros(len(entries), np.int64)
    np.add.at(lengths, owners, words.lengths[raws] * freqs)
    order = _order(entries, lengths)
    dictionary, term_of_word = _dictionary(words)
    places, times = _spread(words.bounds, raws)
    ordinals = _inverse(order, len(entries))[np.repeat(owners, times)]
    keys, totals = _sum_equal(
        term_of_word[places] * max(1, len(order)) + ordinals, np.repeat(freqs, times)
    )
    return assemble(
        *_columns([entries[at] for at in order], lengths[order]),
        dictionary,
        pack_postings(len(dictionary), len(order), keys, totals),
    )


def text_digest(text: str) -> int:
    """Return the 64-bit digest by which equal texts are known."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace"))


class _Vocabulary(dict[bytes, int]):
    """Numbers raw tokens as they come."""

    def __missing__(self, raw: bytes) -> int:
        number = self[raw] = len(self)
        return number


class _Words(NamedTuple):
    """The terms of each raw token, end to end: token r owns bounds[r]..bounds[r + 1]."""

    bounds: Array  # i64
    hashes: Array  # u64
    lengths: Array  # i64 per raw token: how many of its terms are seed terms
    terms: dict[int, bytes]  # by hash


def _count(entries: Sequence[Entry], vocabulary: _Vocabulary) -> tuple[Array, Array, Array]:
    """Return (raw token, document, frequency), one row per pair that occurs."""
    occurrences, counts = array("I"), array("q")
    for entry in entries:
        before = len(occurrences)
        occurrences.extend(map(vocabulary.__getitem__, raw_tokens(entry.document.text)))
        counts.append(len(occurrences) - before)
    documents = max(1, len(entries))
    owners = np.repeat(np.arange(len(entries)), np.array(counts, np.int64))
    keys = np.sort(np.array(occurrences, np.int64) * documents + owners)
    keys, totals = _sum_equal(keys, None)
    raws, owners = np.divmod(keys, documents)
    return raws, owners, totals


def _sum_equal(keys: Array, values: Array | None) -> tuple[Array, Array]:
    """Return the distinct keys, ascending, and the sum of values (default 1 each) of each.

    Without values, `keys` is already ordered.
    """
    if not len(keys):
        return keys, np.zeros(0, np.int64)
    if values is not None:
        keys, values = sort_pairs(keys, values)
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    if values is None:
        return keys[first], np.diff(first, append=len(keys))
    return keys[first], np.add.reduceat(values, first)


@lru_cache(maxsize=_REMEMBERED_TOKENS)
def _hashed(raw: bytes, profile: Profile) -> tuple[tuple[int, ...], int, tuple[bytes, ...]]:
    known = meaning(raw, profile)
    return tuple(map(term_hash, known.terms)), known.length, known.terms


def _words(vocabulary: _Vocabulary, profile: Profile) -> _Words:
    counts, lengths, hashes = array("q", [0]), array("q"), array("Q")
    terms: dict[int, bytes] = {}
    for raw in vocabulary:
        look_up = _hashed if len(raw) <= _REMEMBERED_BYTES else _hashed.__wrapped__
        known, length, names = look_up(raw, profile)
        hashes.extend(known)
        counts.append(len(known))
        lengths.append(length)
        terms.update(zip(known, names, strict=True))
    return _Words(
        np.cumsum(np.array(counts, np.int64)),
        np.array(hashes, np.uint64),
        np.array(lengths, np.int64),
        terms,
    )


def _dictionary(words: _Words) -> tuple[Dictionary, Array]:
    """Return the dictionary, and the dictionary position of each entry of words.hashes."""
    hashes, term_of_word = np.unique(words.hashes, return_inverse=True)
    terms = [words.terms[value] for value in hashes.tolist()]
    starts = np.cumsum([0, *map(len, terms)], dtype=np.int64)
    return Dictionary(hashes, starts, b"".join(terms)), term_of_word.astype(np.int64)


def _spread(bounds: Array, rows: Array) -> tuple[Array, Array]:
    """Return the places bounds[r]..bounds[r + 1] of every row end to end, and their counts."""
    times = bounds[rows + 1] - bounds[rows]
    ends = np.cumsum(times)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - times, times)
    return np.repeat(bounds[rows], times) + within, times


def _order(entries: Sequence[Entry], lengths: Array) -> Array:
    """Return the canonical order of the documents that have terms."""
    documents = [entry.document for entry in entries]
    order = np.lexsort(
        (
            np.array([d.call for d in documents], np.int64),
            np.array([d.message_index for d in documents], np.int64),
            np.array([entry.file_id for entry in entries], np.int64),
            np.array([_RANK[d.kind] for d in documents], np.int64),
        )
    )
    kept: Array = order[lengths[order] > 0]
    return kept


def _inverse(order: Array, size: int) -> Array:
    inverse = np.full(size, -1, np.int64)
    inverse[order] = np.arange(len(order))
    return inverse


def _columns(
    entries: Sequence[Entry], lengths: Array
) -> tuple[Array, tuple[str, ...], Array, Columns]:
    documents = [entry.document for entry in entries]
    names = tuple(sorted({d.tool_name for d in documents}))
    position = {name: at for at, name in enumerate(names)}
    file_ids, files = np.unique(
        np.array([entry.file_id for entry in entries], np.uint32), return_inverse=True
    )
    columns = Columns(
        files.astype(np.uint32),
        np.array([d.message_index for d in documents], np.uint32),
        np.array([d.call for d in documents], np.uint16),
        lengths.astype(np.uint32),
        np.array([position[d.tool_name] for d in documents], np.uint32),
        np.array([text_digest(d.text) for d in documents], np.uint64),
        np.array([entry.timestamp for entry in entries], np.int64),
        np.array([entry.offset for entry in entries], np.uint64),
        np.array([entry.size for entry in entries], np.uint32),
        np.array([entry.part for entry in entries], np.uint16),
    )
    return file_ids, names, np.array([_RANK[d.kind] for d in documents], np.int64), columns
