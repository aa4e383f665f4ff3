"""Texts to counted terms, a batch at a time, by arithmetic on arrays.

All texts are split at ASCII separators at once, and each *raw token* is known by its hash. What
a raw token means is worked out once for all its occurrences in the batch: by arrays too where it
is of ASCII letters or plain CJK characters, by `text.meaning` for the few others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from indexd.hashes import changes, gathered, in_order, span_hashes
from indexd.meanings import Meanings, meanings
from indexd.segment import Array, Dictionary, sort_pairs
from indexd.text import SEPARATE, SEPARATE_LOWER, Profile

_SPACE = 0x20
# So much text is worked on at a time; some 20 bytes of work space for each of its own.
PIECE_BYTES = 1 << 20
_SEPARATOR = re.compile(rb"[^0-9A-Za-z_\x80-\xff]")


class Counted(NamedTuple):
    """Which terms occur in which texts, and how often; parallel but for the last two.

    Pairs are ordered by (term, text); `terms` are positions in the dictionary, `lengths` says how
    many seed terms each text has.
    """

    terms: Array
    texts: Array
    freqs: Array
    dictionary: Dictionary
    lengths: Array


class _Distinct(NamedTuple):
    """The distinct tokens of a batch, by hash, and the pairs.

    blob, bounds: token i is blob[bounds[i]:bounds[i + 1]].
    tokens, owners, freqs: which token occurs in which text, and how often; ordered so.
    """

    hashes: Array
    blob: Array
    bounds: Array
    tokens: Array
    owners: Array
    freqs: Array


def count(texts: Sequence[bytes], profile: Profile) -> Counted:
    """Return the terms of UTF-8 texts, counted."""
    table = SEPARATE_LOWER if profile == "seed" else SEPARATE
    plain = profile == "seed" and all(map(bytes.isascii, texts))
    found = _united([_distinct(owners, some, table) for owners, some in _pieces(texts)])
    if plain:
        lengths = np.bincount(found.owners, found.freqs, len(texts)).astype(np.int64)
        dictionary = Dictionary(found.hashes, found.bounds, found.blob.tobytes())
        return Counted(found.tokens, found.owners, found.freqs, dictionary, lengths)
    return _meant(found, meanings(found.blob, found.bounds, profile), len(texts))


def _pieces(texts: Sequence[bytes]) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield texts (their positions, themselves) of some MB together, large ones in pieces."""
    owners: list[int] = []
    some: list[bytes] = []
    size = 0
    for owner, text in enumerate(texts):
        for piece in _cut(text) if len(text) > PIECE_BYTES else (text,):
            owners.append(owner)
            some.append(piece)
            size += len(piece)
            if size > PIECE_BYTES:
                yield owners, some
                owners, some, size = [], [], 0
    yield owners, some


def _cut(text: bytes) -> Iterator[bytes]:
    """Yield a large text in pieces; no token is cut."""
    start = 0
    while start < len(text):
        end = _SEPARATOR.search(text, start + PIECE_BYTES)
        stop = len(text) if end is None else end.start()
        yield text[start:stop]
        start = stop


def _words(text: Array) -> tuple[Array, Array]:
    """Return where the tokens of a text begin and end; it begins and ends with a separator."""
    inside = text != _SPACE
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    return edges[0::2], edges[1::2]


def _distinct(numbers: Sequence[int], texts: Sequence[bytes], table: bytes) -> _Distinct:
    """Return the distinct tokens of some texts, whose numbers ascend."""
    text = np.frombuffer(b" ".join((b"", *texts, b"")).translate(table), np.uint8)
    starts, ends = _words(text)
    begins = np.cumsum([0, *map(len, texts)]) + np.arange(1, len(texts) + 2)
    owners = np.repeat(np.array(numbers, np.int64), np.diff(starts.searchsorted(begins)))
    places, ordered = in_order(span_hashes(text, starts, ends))
    owners = owners[places]
    fresh = changes(ordered)
    first = np.flatnonzero(fresh | changes(owners))
    heads = places[fresh]
    return _Distinct(
        ordered[fresh],
        *gathered(text, starts[heads], ends[heads]),
        np.cumsum(fresh)[first] - 1,
        owners[first],
        np.diff(first, append=len(owners)),
    )


def _united(parts: Sequence[_Distinct]) -> _Distinct:
    """Return what several runs of texts hold together."""
    if len(parts) == 1:
        return parts[0]
    places, ordered = in_order(np.concatenate([part.hashes for part in parts]))
    fresh = changes(ordered)
    numbers = np.empty(len(places), np.int64)
    numbers[places] = np.cumsum(fresh) - 1
    cuts = np.cumsum([0, *(len(part.hashes) for part in parts)])
    tokens = [numbers[part.tokens + cut] for part, cut in zip(parts, cuts, strict=False)]
    owners = np.concatenate([part.owners for part in parts])
    span = int(owners.max(initial=0)) + 1
    keys, freqs = _sum_equal(
        np.concatenate(tokens) * span + owners, np.concatenate([part.freqs for part in parts])
    )
    blob = np.concatenate([part.blob for part in parts])
    sizes = np.concatenate([np.diff(part.bounds) for part in parts])
    ends = np.cumsum(sizes)
    heads = places[fresh]
    return _Distinct(
        ordered[fresh],
        *gathered(blob, ends[heads] - sizes[heads], ends[heads]),
        *np.divmod(keys, span),
        freqs,
    )


def _meant(found: _Distinct, means: Meanings, texts: int) -> Counted:
    """Return the counts of the terms that the tokens mean."""
    hashes = span_hashes(means.text, means.starts, means.ends)
    order, ordered = in_order(hashes)
    fresh = changes(ordered)
    heads = order[np.flatnonzero(fresh)]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(fresh) - 1
    blob, bounds = gathered(means.text, means.starts[heads], means.ends[heads])
    dictionary = Dictionary(hashes[heads], bounds, blob.tobytes())

    by_token = means.tokens.argsort(kind="stable")
    spans = means.tokens[by_token].searchsorted(np.arange(len(found.hashes) + 1))
    places, times = _spread(spans, found.tokens)
    span = max(1, texts)
    keys = numbers[by_token][places] * span + np.repeat(found.owners, times)
    keys, freqs = _sum_equal(keys, np.repeat(found.freqs, times))
    terms, owners = np.divmod(keys, span)
    weights = means.lengths[found.tokens] * found.freqs
    lengths = np.bincount(found.owners, weights, texts).astype(np.int64)
    return Counted(terms, owners, freqs, dictionary, lengths)


def _spread(bounds: Array, rows: Array) -> tuple[Array, Array]:
    """Return the places bounds[r]..bounds[r + 1] of every row end to end, and their counts."""
    times = bounds[rows + 1] - bounds[rows]
    ends = np.cumsum(times)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - times, times)
    return np.repeat(bounds[rows], times) + within, times


def _sum_equal(keys: Array, values: Array) -> tuple[Array, Array]:
    """Return the distinct keys, ascending, and the sum of the values of each."""
    if not len(keys):
        return keys, np.zeros(0, np.int64)
    keys, values = sort_pairs(keys, values)
    first = np.flatnonzero(changes(keys))
    return keys[first], np.add.reduceat(values, first)
