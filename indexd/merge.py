"""Segments to one segment, without some of their documents where asked.

Works through ranges of the dictionaries (they are ordered by hash, so a range is a slice of
each), which bounds the memory beyond inputs and result whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from indexd.hashes import changes, gathered, in_order, starts_of
from indexd.packing import Packed, joined, pack
from indexd.segment import (
    Array,
    Columns,
    Dictionary,
    PlainPostings,
    Segment,
    assemble,
    nothing,
    postings_of,
    sort_pairs,
)

# How many postings are merged at a time; some 100 bytes of work space each.
RANGE_POSTINGS = 300_000


def merge(
    segments: Sequence[Segment],
    keep: Sequence[Array | None] | None = None,
    *,
    packed: bool = False,
    range_postings: int = RANGE_POSTINGS,
) -> Segment:
    """Return one segment of the documents of all `segments`; no document may be in two.

    `keep[i]`, where given, is a boolean per document of segment i: the others are left out.
    `packed` postings take less memory, and more time to make. Some `range_postings` postings are
    worked on at a time.
    """
    segments = segments or (nothing(),)
    keep = keep or [None] * len(segments)
    kept = [
        np.arange(len(segment)) if mask is None else np.flatnonzero(mask)
        for segment, mask in zip(segments, keep, strict=True)
    ]
    file_ids, names, ranks, columns, order = _merge_columns(segments, kept)
    ordinals = _new_ordinals(segments, kept, order)
    dictionaries: list[Dictionary] = []
    postings: list[PlainPostings] = []
    blocks: list[tuple[Array, Packed]] = []
    for bounds in _ranges(segments, range_postings):
        dictionary, some = _merge_range(segments, ordinals, len(order), bounds)
        dictionaries.append(dictionary)
        if packed:
            counts = np.diff(some.starts)
            blocks.append((counts, pack(counts, *some.of(0, len(counts)))))
        else:
            postings.append(some)
    return assemble(
        file_ids,
        names,
        ranks,
        columns,
        _join_dictionaries(dictionaries),
        joined(blocks) if packed else _join_postings(postings),
    )


def of_files(segment: Segment, alive: Array) -> Array:
    """Return a boolean per document from a boolean per file of `segment`."""
    chosen: Array = alive[segment.columns.file]
    return chosen


def _merge_columns(
    segments: Sequence[Segment], kept: Sequence[Array]
) -> tuple[Array, tuple[str, ...], Array, Columns, Array]:
    """Return the merged columns and the order that gives them from the kept ones end to end."""
    file_ids, files = np.unique(
        _concat([s.files_of(k) for s, k in zip(segments, kept, strict=True)]),
        return_inverse=True,
    )
    names, tools = _merge_names(segments, kept)
    ranks = _concat([s.kind_ranks(k) for s, k in zip(segments, kept, strict=True)])

    def column(name: str) -> Array:
        return _concat(
            [getattr(s.columns, name).take(k) for s, k in zip(segments, kept, strict=True)]
        )

    message, call = column("message"), column("call")
    order = np.lexsort((call, message, files, ranks))
    columns = Columns(
        files[order].astype(np.uint32),
        message[order],
        call[order],
        column("length")[order],
        tools[order].astype(np.uint32),
        column("digest")[order],
        column("timestamp")[order],
        column("offset")[order],
        column("size")[order],
        column("part")[order],
    )
    return file_ids, names, ranks[order], columns, order


def _merge_names(
    segments: Sequence[Segment], kept: Sequence[Array]
) -> tuple[tuple[str, ...], Array]:
    """Return the tool names still in use, and each kept document's position among them."""
    used = [
        [segment.tool_names[at] for at in np.unique(segment.columns.tool[k])]
        for segment, k in zip(segments, kept, strict=True)
    ]
    names = tuple(sorted({name for some in used for name in some}))
    position = {name: at for at, name in enumerate(names)}
    tools = [
        np.array([position.get(name, 0) for name in segment.tool_names], np.int64)[
            segment.columns.tool[k]
        ]
        for segment, k in zip(segments, kept, strict=True)
    ]
    return names, _concat(tools)


def _new_ordinals(segments: Sequence[Segment], kept: Sequence[Array], order: Array) -> list[Array]:
    """Return for each segment the new ordinal of each of its documents, -1 if left out."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    result, at = [], 0
    for segment, k in zip(segments, kept, strict=True):
        new = np.full(len(segment), -1, np.int64)
        new[k] = place[at : at + len(k)]
        at += len(k)
        result.append(new)
    return result


def _ranges(segments: Sequence[Segment], range_postings: int) -> Iterator[list[tuple[int, int]]]:
    """Yield, per range of hashes, the slice of each segment's dictionary that falls in it."""
    total = sum(int(s.postings.starts[-1]) for s in segments)
    pieces = max(1, -(-total // range_postings))
    limits = [np.uint64(((1 << 64) * i) // pieces) for i in range(1, pieces)]
    cuts = [
        [0, *(int(s.dictionary.hashes.searchsorted(v)) for v in limits), len(s.dictionary)]
        for s in segments
    ]
    for i in range(pieces):
        yield [(cut[i], cut[i + 1]) for cut in cuts]


def _merge_range(
    segments: Sequence[Segment],
    ordinals: Sequence[Array],
    documents: int,
    bounds: Sequence[tuple[int, int]],
) -> tuple[Dictionary, PlainPostings]:
    parts = list(zip(segments, ordinals, bounds, strict=True))
    places, hashes = in_order(_concat([s.dictionary.hashes[a:b] for s, _, (a, b) in parts]))
    fresh = changes(hashes)
    term_of = np.empty(len(places), np.int64)
    term_of[places] = np.cumsum(fresh) - 1
    keys, freqs = [], []
    at = 0
    for segment, new, (first, last) in parts:
        terms = term_of[at : at + last - first]
        at += last - first
        part_keys, part_freqs = _range_postings(segment, new, terms, first, last, documents)
        keys.append(part_keys)
        freqs.append(part_freqs)
    ordered, values = sort_pairs(_concat(keys), _concat(freqs))
    owners, targets = np.divmod(ordered, max(1, documents))
    of_used = changes(owners)
    used = owners[of_used]
    heads = places[np.flatnonzero(fresh)[used]]
    dictionary = _range_dictionary([(s, b) for s, _, b in parts], hashes[fresh][used], heads)
    return dictionary, postings_of(len(used), np.cumsum(of_used) - 1, targets, values)


def _range_postings(
    segment: Segment, new: Array, terms: Array, first: int, last: int, documents: int
) -> tuple[Array, Array]:
    """Return keys and frequencies of a slice of the dictionary, in the merged numbering."""
    starts = segment.postings.starts
    from_ordinals, freqs = segment.postings.of(first, last)
    targets = new[from_ordinals]
    owners = np.repeat(terms, np.diff(starts[first : last + 1])).astype(np.int64)
    alive = targets >= 0
    return (owners * max(1, documents) + targets)[alive], freqs[alive].astype(np.int64)


def _range_dictionary(
    parts: Sequence[tuple[Segment, tuple[int, int]]], hashes: Array, heads: Array
) -> Dictionary:
    """Return the dictionary of some terms, given by their places in the slices end to end."""
    text, starts, ends = [], [], []
    at = 0
    for segment, (first, last) in parts:
        bounds = segment.dictionary.starts[first : last + 1]
        begin, end = int(bounds[0]), int(bounds[-1])
        text.append(np.frombuffer(segment.dictionary.blob, np.uint8)[begin:end])
        starts.append(bounds[:-1] - begin + at)
        ends.append(bounds[1:] - begin + at)
        at += end - begin
    blob, limits = gathered(_concat(text), _concat(starts)[heads], _concat(ends)[heads])
    return Dictionary(hashes, limits, blob.tobytes())


def _join_dictionaries(parts: Sequence[Dictionary]) -> Dictionary:
    return Dictionary(
        _concat([p.hashes for p in parts]),
        _join_starts([p.starts for p in parts]),
        b"".join(p.blob for p in parts),
    )


def _join_postings(parts: Sequence[PlainPostings]) -> PlainPostings:
    sizes = np.cumsum([0, *(int(p.starts[-1]) for p in parts)])
    return PlainPostings(
        _join_starts([p.starts for p in parts]),
        _concat([p.ordinals for p in parts]),
        _concat([p.freqs for p in parts]),
        _concat([p.large_at + size for p, size in zip(parts, sizes, strict=False)]),
        _concat([p.large for p in parts]),
    )


def _join_starts(parts: Sequence[Array]) -> Array:
    return starts_of(_concat([np.diff(part) for part in parts]))


def _concat(arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays)
