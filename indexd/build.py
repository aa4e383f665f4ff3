"""Documents to a segment: tokens are counted by sorting integers, not in dictionaries.

What a raw token means (its terms) is applied to its count in a document, so identifier parts and
bigrams cost by different tokens, not by occurrences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import xxhash

from indexd.lexicon import Lexicon, lexicon
from indexd.model import KINDS, Document
from indexd.segment import (
    Array,
    Columns,
    Dictionary,
    Segment,
    assemble,
    postings_of,
    sort_pairs,
)
from indexd.text import Profile, tokens_of

_RANK = {kind: rank for rank, kind in enumerate(KINDS)}


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


class Counts(NamedTuple):
    """Which token occurs in which owner, and how often: parallel arrays (i64)."""

    tokens: Array
    owners: Array
    freqs: Array


def build(entries: Iterable[Entry], profile: Profile) -> Segment:
    """Return the segment of `entries`; documents without a term are left out."""
    entries = list(entries)
    known = lexicon(profile)
    raws = tokens_of([entry.document.text for entry in entries])
    tokens = np.fromiter(map(known.__getitem__, raws), np.int64, len(raws))
    between = tokens == 0
    counts = count(tokens[~between], np.cumsum(between)[~between], len(entries))
    terms = known.lengths()[counts.tokens] * counts.freqs
    lengths = np.bincount(counts.owners, terms, len(entries))
    return counted(entries, known, counts, lengths.astype(np.int64))


def counted(entries: Sequence[Entry], known: Lexicon, counts: Counts, lengths: Array) -> Segment:
    """Return the segment of `entries`, each of a length (i64), from the counts of their tokens.

    Documents of length 0 are left out. A pair of token and document may be counted in pieces.
    """
    tokens, owners, freqs = counts
    order = _order(entries, lengths)
    bounds, token_terms = known.token_terms()
    places, times = _spread(bounds, tokens)
    dictionary, terms = _dictionary(token_terms[places], known)
    ordinals = np.repeat(_inverse(order, len(entries))[owners], times)
    keys, totals = _sum_equal(terms * max(1, len(order)) + ordinals, np.repeat(freqs, times))
    return assemble(
        *_columns([entries[at] for at in order.tolist()], lengths[order]),
        dictionary,
        postings_of(len(dictionary), len(order), keys, totals),
    )


def text_digest(text: str) -> int:
    """Return the 64-bit digest by which equal texts are known."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace"))


def count(tokens: Array, owners: Array, documents: int) -> Counts:
    """Return how often each token occurs in each of so many owners, from every occurrence."""
    documents = max(1, documents)
    keys, totals = _sum_equal(np.sort(tokens * documents + owners), None)
    return Counts(*np.divmod(keys, documents), totals)


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


def _dictionary(terms: Array, known: Lexicon) -> tuple[Dictionary, Array]:
    """Return the dictionary of the terms numbered so, and the place of each in it."""
    hashes = known.hashes()
    seen = np.zeros(len(hashes), bool)
    seen[terms] = True
    used = np.flatnonzero(seen)
    used = used[hashes[used].argsort()]
    place = np.empty(len(hashes), np.int64)
    place[used] = np.arange(len(used))
    names = [known.terms[number] for number in used.tolist()]
    starts = np.cumsum([0, *map(len, names)], dtype=np.int64)
    return Dictionary(hashes[used], starts, b"".join(names)), place[terms]


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
        np.array([d.call for d in documents], np.uint32),
        lengths.astype(np.uint32),
        np.array([position[d.tool_name] for d in documents], np.uint32),
        np.array([text_digest(d.text) for d in documents], np.uint64),
        np.array([entry.timestamp for entry in entries], np.int64),
        np.array([entry.offset for entry in entries], np.uint64),
        np.array([entry.size for entry in entries], np.uint32),
        np.array([entry.part for entry in entries], np.uint32),
    )
    return file_ids, names, np.array([_RANK[d.kind] for d in documents], np.int64), columns
