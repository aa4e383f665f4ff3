"""Copies: documents of the same kind and text, of which one stands for all.

Forks, resumed sessions, recoveries and archives repeat messages by the hundred. Among the documents
that a request selects, the original of each text is kept and the others are hidden from it, so that
they neither fill the answer nor skew its statistics. Which one is the original depends on nothing
but the files: the one that was said first; then one that is not archived; then one of a session
that does not follow from another; then the first by path.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from indexd.index import FileFacts, Part, Snapshot
from indexd.model import DEFAULT_KINDS
from indexd.segment import Array, Segment
from indexd.selection import Selection, View, views

# Tells equal texts of different kinds apart.
_KIND_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_REMEMBERED = 8
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


class Keys(NamedTuple):
    """What documents are known by as copies: their keys, ascending, and whose they are."""

    keys: Array  # u64
    documents: Array  # u32


class Twins(NamedTuple):
    """Documents with a key that occurs twice or more, by key, originals first; parallel columns.

    number: of the document's segment.
    """

    keys: Array  # u64
    number: Array  # u16
    document: Array  # u32

    def at(self, chosen: Array | slice) -> Twins:
        """Return those at some positions."""
        return Twins(*(column[chosen] for column in self))


class Groups(NamedTuple):
    """A selection without its copies: its views, and which of the twins it selected."""

    views: Sequence[View]
    parts: Sequence[Part]
    twins: Twins

    def others(self, documents: Sequence[tuple[Part, int]]) -> list[Sequence[tuple[Part, int]]]:
        """Return the copies of each of some documents of the answer, likeliest originals first."""
        if not len(self.twins.keys):
            return [()] * len(documents)
        keys = [_keys_of(part.segment, np.array([at])) for part, at in documents]
        made = np.concatenate([_NO_TWINS.keys, *keys])
        first, last = (self.twins.keys.searchsorted(made, side).tolist() for side in _SIDES)
        # A document that is shown is the first of its group.
        return [self._at(a + 1, b) for a, b in zip(first, last, strict=True)]

    def _at(self, first: int, last: int) -> Sequence[tuple[Part, int]]:
        if last <= first:
            return ()
        _, numbers, documents = self.twins.at(slice(first, last))
        at = zip(numbers.tolist(), documents.tolist(), strict=True)
        return [(self.parts[number], each) for number, each in at]


class Copies:
    """Knows the copies in a snapshot, and takes over what it knew of the one before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = -1
        self._segments: list[Segment] = []
        self._twins = _NO_TWINS
        self._files: Mapping[int, FileFacts] = {}
        self._groups: dict[object, Groups] = {}

    def prepare(self, snapshot: Snapshot) -> None:
        """Work out what the next search will want to know; worth it for new large segments."""
        selection = Selection(DEFAULT_KINDS)
        self.hidden(snapshot, selection, views(snapshot, selection))

    def hidden(self, snapshot: Snapshot, selection: Selection, views: Sequence[View]) -> Groups:
        """Return `views`, which are those of `selection`, without copies."""
        key = (replace(selection, files=None), selection.files and selection.files.key)
        with self._lock:
            if snapshot.generation != self._generation:
                self._follow(snapshot)
            known = self._groups.get(key)
            if known is None:
                known = _groups(self._segments, self._twins, views)
                while len(self._groups) >= _REMEMBERED:
                    self._groups.pop(next(iter(self._groups)))
                self._groups[key] = known
            return known

    def _follow(self, snapshot: Snapshot) -> None:
        """Bring the twins up to date with the segments and files there are now."""
        segments = [part.segment for part in snapshot.parts]
        if _reordered(self._files, snapshot.files):
            self._segments, self._twins = [], _NO_TWINS
        now = set(map(id, segments))
        kept = [at for at, segment in enumerate(self._segments) if id(segment) in now]
        if len(kept) < len(self._segments):
            self._segments = [self._segments[at] for at in kept]
            self._twins = _only(self._twins, kept)
        known = set(map(id, self._segments))
        for segment in segments:
            if id(segment) not in known:
                self._segments.append(segment)
                self._twins = _with_last(self._twins, self._segments, snapshot.files)
        self._files, self._generation = snapshot.files, snapshot.generation
        self._groups.clear()


def _reordered(before: Mapping[int, FileFacts], now: Mapping[int, FileFacts]) -> bool:
    """Say whether a file's facts changed so that another may be the home of originals."""
    return any(
        facts is not old and _precedence(facts) != _precedence(old)
        for file_id, facts in now.items()
        if (old := before.get(file_id)) is not None
    )


def keys(segment: Segment) -> Keys:
    """Return the keys of a segment's documents; they are made once."""
    known: Keys | None = segment.derived.get("copies")
    if known is None:
        every = _keys_of(segment, np.arange(len(segment)))
        order = every.argsort().astype(np.uint32)
        known = segment.derived["copies"] = Keys(every[order], order)
    return known


def _keys_of(segment: Segment, documents: Array) -> Array:
    ranks = segment.kind_ranks(documents).astype(np.uint64)
    made: Array = segment.columns.digest.take(documents) ^ (ranks * _KIND_FACTOR)
    return made


def _only(twins: Twins, numbers: Sequence[int]) -> Twins:
    """Return the twins in some segments, which are numbered anew; some may be no twins any more."""
    left = twins.at(np.flatnonzero(np.isin(twins.number, numbers)))
    renumbered = np.searchsorted(numbers, left.number).astype(np.uint16)
    return left._replace(number=renumbered)


def _with_last(twins: Twins, segments: Sequence[Segment], files: Mapping[int, FileFacts]) -> Twins:
    """Return `twins`, which are those of all segments but the last, with those that it makes."""
    *before, last = segments
    own = keys(last).keys
    shared = [own[1:][own[1:] == own[:-1]]]
    shared += [_shared(own, keys(segment).keys) for segment in before]
    new = np.unique(np.concatenate(shared))
    if not len(new):
        return twins
    known = _stretches(twins.keys, new)
    members = [_members(number, segment, new) for number, segment in enumerate(segments)]
    added = Twins(*(np.concatenate(columns) for columns in zip(*members, strict=True)))
    added = added.at(_in_order(segments, added, files))
    rest = Twins(*(np.delete(column, known) for column in twins)) if len(known) else twins
    place = rest.keys.searchsorted(added.keys)
    return Twins(*(np.insert(r, place, a) for r, a in zip(rest, added, strict=True)))


def _shared(some: Array, others: Array) -> Array:
    """Return the keys that are in both; both are ascending."""
    few, many = (some, others) if len(some) <= len(others) else (others, some)
    if not len(many):
        return few
    found: Array = few[many.take(many.searchsorted(few), mode="clip") == few]
    return found


def _stretches(ascending: Array, wanted: Array) -> Array:
    """Return the positions in `ascending` of all that equals one of `wanted`; both ascend."""
    first, last = (ascending.searchsorted(wanted, side) for side in _SIDES)
    counts = last - first
    positions: Array = np.repeat(last - counts.cumsum(), counts) + np.arange(counts.sum())
    return positions


def _members(number: int, segment: Segment, wanted: Array) -> Twins:
    """Return the documents of a segment that have one of the keys."""
    known = keys(segment)
    at = _stretches(known.keys, wanted)
    return Twins(known.keys[at], np.full(len(at), number, np.uint16), known.documents[at])


def _in_order(segments: Sequence[Segment], twins: Twins, files: Mapping[int, FileFacts]) -> Array:
    """Return the order of twins by key, and of each key's from the original on."""
    size = len(twins.keys)
    file, time, message, call = (np.zeros(size, np.int64) for _ in range(4))
    for number, segment in enumerate(segments):
        mine = np.flatnonzero(twins.number == number)
        documents, columns = twins.document[mine], segment.columns
        file[mine] = segment.files_of(documents)
        time[mine] = columns.timestamp.take(documents)
        message[mine], call[mine] = columns.message[documents], columns.call[documents]
    time[time == 0] = np.iinfo(np.int64).max
    distinct, which = np.unique(file, return_inverse=True)
    by_rank = sorted(range(len(distinct)), key=lambda at: _precedence(files.get(int(distinct[at]))))
    ranks = np.empty(len(distinct), np.int64)
    ranks[by_rank] = np.arange(len(distinct))
    return np.lexsort((call, message, ranks[which], time, twins.keys))


def _precedence(facts: FileFacts | None) -> tuple[bool, bool, bytes]:
    """Return what orders the files that equal texts of one time are in."""
    if facts is None:
        return True, True, b""
    path = facts.path_bytes
    follows = bool(facts.parent) or facts.subagent or b"-recovery-" in path.rpartition(b"/")[2]
    return facts.source == "archive", follows, path


def _groups(segments: Sequence[Segment], twins: Twins, views: Sequence[View]) -> Groups:
    """Return `views` without the selected twins that are not the first of their key."""
    view_of = {id(view.part.segment): view for view in views}
    by_number = [view_of[id(segment)] for segment in segments]
    if not all(view.whole for view in by_number):
        selected = np.zeros(len(twins.keys), bool)
        for number, view in enumerate(by_number):
            mine = np.flatnonzero(twins.number == number)
            selected[mine] = view.selects(twins.document[mine])
        twins = twins.at(np.flatnonzero(selected))
    copy = twins.at(np.flatnonzero(twins.keys[1:] == twins.keys[:-1]) + 1)
    without = {
        id(view): _without(view, copy.document[copy.number == number])
        for number, view in enumerate(by_number)
    }
    return Groups([without[id(v)] for v in views], [v.part for v in by_number], twins)


def _without(view: View, hidden: Array) -> View:
    """Return the view without some of the documents that it selects."""
    if not len(hidden):
        return view
    segment = view.part.segment
    mask = np.ones(len(segment), bool) if view.mask is None else view.mask.copy()
    mask[hidden] = False
    tokens = int(segment.columns.length[hidden].sum(dtype=np.int64))
    return replace(
        view,
        mask=mask,
        few=None if view.few is None else view.few[mask[view.few]],
        by_file=False,
        documents=view.documents - len(hidden),
        tokens=view.tokens - tokens,
    )


_NO_TWINS = Twins(np.zeros(0, np.uint64), np.zeros(0, np.uint16), np.zeros(0, np.uint32))
