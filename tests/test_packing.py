"""Packing: postings and columns come back as they were, one by one and end to end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd import blocks
from indexd.hashes import starts_of
from indexd.packing import joined, pack, packed, unpack_one
from indexd.segment import Array, plain_postings
from indexd.source import Memory

# Gaps and frequencies around the places where another number of bytes is needed.
edges = st.sampled_from([1, 1, 1, 2, 127, 254, 255, 256, 65534, 65535, 65536, 1 << 24])
gaps = edges | st.integers(1, 300)
freqs = st.sampled_from([1, 1, 1, 1, 2, 7, 254, 255, 256, 1 << 20])
lists = st.lists(st.tuples(gaps, freqs), min_size=1, max_size=40)


def columns(terms: list[list[tuple[int, int]]]) -> tuple[Array, Array, Array]:
    """Return counts, ordinals and frequencies of terms given as (gap, frequency)."""
    counts = np.array([len(term) for term in terms], np.int64)
    ordinals = [np.cumsum([gap for gap, _ in term]) - 1 for term in terms]
    counted = [freq for term in terms for _, freq in term]
    return (
        counts,
        np.concatenate([np.zeros(0, np.int64), *ordinals]).astype(np.uint32),
        np.array(counted, np.uint32),
    )


@settings(max_examples=200)
@given(st.lists(lists, max_size=12), st.data())
def test_packed_postings_are_what_they_were(
    terms: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    counts, ordinals, freqs = columns(terms)
    wanted = plain_postings(starts_of(counts), ordinals, freqs)
    found = packed(wanted)
    assert found.starts.tolist() == wanted.starts.tolist()
    first = data.draw(st.integers(0, len(terms)))
    last = data.draw(st.integers(first, len(terms)))
    for mine, theirs in zip(found.of(first, last), wanted.of(first, last), strict=True):
        assert mine.tolist() == theirs.tolist()
    for at in range(len(terms)):
        for mine, theirs in zip(found.one(at), wanted.one(at), strict=True):
            assert mine.tolist() == theirs.tolist()


@given(st.lists(lists, max_size=6), st.lists(lists, max_size=6))
def test_runs_of_terms_are_packed_apart_as_together(
    some: list[list[tuple[int, int]]], more: list[list[tuple[int, int]]]
) -> None:
    runs = [columns(some), columns(more)]
    apart = joined([(counts, pack(counts, *postings)) for counts, *postings in runs]).blocks()
    counts, *postings = columns(some + more)
    together = pack(counts, *postings)
    assert bytes(apart.data) == together.data
    assert apart.codes.tolist() == together.codes.tolist()


def test_neighbours_take_a_byte_each() -> None:
    counts, ordinals, freqs = columns([[(1, 1)] * 1000])
    whole = pack(counts, ordinals, freqs)
    assert len(whole.data) == 1000
    assert unpack_one(int(whole.codes[0]), 1000, whole.data)[0].tolist() == list(range(1000))


numbers = st.integers(-5, 5) | st.integers(0, 1 << 45)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(numbers, st.integers(0, 1 << 20)), min_size=1, max_size=60),
    st.lists(st.integers(0, 10**6), max_size=30),
)
def test_columns_in_blocks_are_what_they_were(
    rows: list[tuple[int, int]], asked: list[int]
) -> None:
    repeated = (rows * (2 * blocks.BLOCK // len(rows) + 1))[: 2 * blocks.BLOCK + len(rows)]
    wanted: Mapping[str, Array] = {
        "signed": np.array([row[0] for row in repeated], np.int64),
        "small": np.array([row[1] for row in repeated], np.uint32),
    }
    pieces = blocks.pack(wanted)
    offsets = np.cumsum([0, *map(len, pieces)])
    dtypes = {name: column.dtype.str for name, column in wanted.items()}
    found = blocks.Blocks(Memory(b"".join(pieces)), offsets, dtypes, len(repeated))
    at = np.array([each % len(repeated) for each in asked], np.int64)
    for name, column in wanted.items():
        taken = blocks.Column(found, name).take(at)
        assert taken.dtype == column.dtype
        assert taken.tolist() == column[at].tolist()
        assert blocks.Column(found, name).take(np.arange(len(repeated))).tolist() == column.tolist()
