"""Texts to counted terms, a batch at a time, by arithmetic on arrays.

All texts are split at ASCII separators at once, and each *raw token* is known by its hash. What
a raw token means is worked out once for all its occurrences in the batch: by arrays too where it
is of ASCII letters or plain CJK characters, by `text.meaning` for the few others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from indexd.hashes import changes, gathered, in_order, span_hashes
from indexd.meanings import Meanings, meanings
from indexd.segment import Array, Dictionary, sort_pairs
from indexd.text import SEPARATE, SEPARATE_LOWER, Profile

_SPACE = 0x20


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
    """The distinct tokens of a batch, by hash: where one of each lies, and the pairs.

    tokens, owners, freqs: which token occurs in which text, and how often; ordered so.
    """

    hashes: Array
    places: Array
    tokens: Array
    owners: Array
    freqs: Array


def count(texts: Sequence[bytes], profile: Profile) -> Counted:
    """Return the terms of UTF-8 texts, counted."""
    joined = b" ".join((b"", *texts, b""))
    seed = profile == "seed"
    text = np.frombuffer(joined.translate(SEPARATE_LOWER if seed else SEPARATE), np.uint8)
    starts, ends = _words(text)
    begins = np.cumsum([0, *map(len, texts)]) + np.arange(1, len(texts) + 2)
    owners = np.repeat(np.arange(len(texts)), np.diff(starts.searchsorted(begins)))
    found = _distinct(span_hashes(text, starts, ends), owners)
    blob, bounds = gathered(text, starts[found.places], ends[found.places])
    if seed and joined.isascii():
        lengths = np.bincount(found.owners, found.freqs, len(texts)).astype(np.int64)
        dictionary = Dictionary(found.hashes, bounds, blob.tobytes())
        return Counted(found.tokens, found.owners, found.freqs, dictionary, lengths)
    return _meant(found, meanings(blob, bounds, profile), len(texts))


def _words(text: Array) -> tuple[Array, Array]:
    """Return where the tokens of a text begin and end; it begins and ends with a separator."""
    inside = text != _SPACE
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    return edges[0::2], edges[1::2]


def _distinct(hashes: Array, owners: Array) -> _Distinct:
    """Return the distinct tokens and their pairs; `owners` ascend."""
    places, ordered = in_order(hashes)
    owners = owners[places]
    fresh = changes(ordered)
    first = np.flatnonzero(fresh | changes(owners))
    heads = np.flatnonzero(fresh)
    return _Distinct(
        ordered[heads],
        places[heads],
        np.cumsum(fresh)[first] - 1,
        owners[first],
        np.diff(first, append=len(owners)),
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
