"""A segment of many files to a segment of each: what merging them would join again.

Postings are sorted by file once for all, so that what is left to do per file is slicing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise

import numpy as np

from indexd.hashes import changes, gathered, starts_of
from indexd.segment import (
    Array,
    Columns,
    Dictionary,
    PlainPostings,
    Segment,
    assemble,
    narrowed,
    plain_postings,
)


def by_file(segment: Segment) -> Iterator[tuple[int, Segment]]:
    """Yield (file id, segment) of each file that has documents."""
    files = narrowed(segment.columns.file)
    documents = files.argsort(kind="stable")
    bounds = _bounds(files, len(segment.file_ids))
    within = np.empty(len(files), np.int64)
    within[documents] = np.arange(len(files)) - np.repeat(bounds[:-1], np.diff(bounds))
    ranks = segment.kind_ranks(documents)
    columns = [getattr(segment.columns, f.name).take(documents) for f in fields(Columns)]
    postings = _postings(segment, files, within)
    for file_id, (a, b), (dictionary, its) in zip(
        segment.file_ids.tolist(), pairwise(bounds.tolist()), postings, strict=True
    ):
        its_columns = Columns(*(column[a:b] for column in columns))
        yield file_id, _one(segment, file_id, ranks[a:b], its_columns, dictionary, its)


def _bounds(files: Array, count: int) -> Array:
    return starts_of(np.bincount(files, minlength=count))


def _postings(
    segment: Segment, files: Array, within: Array
) -> Iterator[tuple[Dictionary, PlainPostings]]:
    """Yield the dictionary and the postings of each file, in order."""
    ordinals, freqs = segment.postings.of(0, len(segment.dictionary))
    of_posting = files[ordinals]
    order = of_posting.argsort(kind="stable")
    bounds = _bounds(of_posting, len(segment.file_ids))
    terms = np.repeat(np.arange(len(segment.dictionary)), np.diff(segment.postings.starts))[order]
    ordinals = within[ordinals[order]].astype(np.uint32)
    freqs = freqs[order]
    heads = np.flatnonzero(changes(terms) | changes(of_posting[order]))
    used = terms[heads]
    begins = segment.dictionary.starts
    text = np.frombuffer(segment.dictionary.blob, np.uint8)
    blob, limits = gathered(text, begins[used], begins[used + 1])
    hashes, data = segment.dictionary.hashes[used], blob.tobytes()
    cuts = heads.searchsorted(bounds).tolist()
    for (a, b), (first, last) in zip(pairwise(bounds.tolist()), pairwise(cuts), strict=True):
        at = int(limits[first])
        dictionary = Dictionary(
            hashes[first:last],
            limits[first : last + 1] - at,
            data[at : int(limits[last])],
        )
        starts = np.append(heads[first:last], b) - a
        yield dictionary, plain_postings(starts, ordinals[a:b], freqs[a:b])


def _one(
    segment: Segment,
    file_id: int,
    ranks: Array,
    columns: Columns,
    dictionary: Dictionary,
    postings: PlainPostings,
) -> Segment:
    used = np.flatnonzero(np.bincount(columns.tool))
    place = np.zeros(int(used[-1]) + 1, np.uint32)
    place[used] = np.arange(len(used))
    names = tuple(segment.tool_names[at] for at in used.tolist())
    own = Columns(
        np.zeros(len(ranks), np.uint8),
        columns.message,
        columns.call,
        columns.length,
        place[columns.tool],
        columns.digest,
        columns.timestamp,
        columns.offset,
        columns.size,
        columns.part,
    )
    ids = np.array([file_id], np.uint32)
    return assemble(ids, names, ranks, own, dictionary, postings)
