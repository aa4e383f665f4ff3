"""The base: most of the index as one file, so that a restart reads two files and no session.

It is derived from the rows of the cache and may be missing, old or damaged: what it covers is
said in its header, and the rows fill in the rest. Nothing ever waits for it.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from indexd import encoding
from indexd.build import build
from indexd.index import Part, merge_parts
from indexd.merge import merge
from indexd.records import Record
from indexd.segment import Segment
from indexd.settling import Fetch, RowsLost, segment_of
from indexd.source import DamagedSegment, OpenFile

log = logging.getLogger(__name__)


class Base(NamedTuple):
    """Most of the index: how many messages of each file it covers, and the file it reads from.

    Without a file it is in memory.
    """

    segment: Segment
    covered: Mapping[int, int]
    file: OpenFile | None

    def sound(self) -> bool:
        """Say whether it still is what was written and checked."""
        return self.file is None or self.file.unchanged()


def save(parts: Iterable[Part], messages: Mapping[int, int], path: str) -> Base:
    """Merge `parts`, write them to `path`, and return the base as read from there.

    `messages` says how many messages of each file the parts cover. Raises OSError, DamagedSegment
    when a part cannot be read.
    """
    merged = merge_parts(list(parts), packed=True)
    covered = {file_id: messages.get(file_id, 0) for file_id in merged.file_ids.tolist()}
    encoding.save(merged, path, {"covered": list(covered.values())})
    file = OpenFile(path)
    try:
        segment, _ = encoding.load(file)
    except DamagedSegment as error:
        os.unlink(path)
        raise OSError(errno.EIO, f"the base is not what was written: {error}") from error
    return Base(segment, covered, file)


def load(path: str, messages: Mapping[int, int]) -> Base | None:
    """Return the base, if there is one. Raises DamagedSegment when it is unusable.

    `messages` says how many messages of each file the rows know. A base that knows more (rows
    can be lost with the power) is cut down to that: the files will be read on from there.
    """
    try:
        file = OpenFile(path)
        segment, extra = encoding.load(file)
        covered = dict(zip(segment.file_ids.tolist(), extra["covered"], strict=True))
        if all(have <= messages.get(i, 0) for i, have in covered.items() if i in messages):
            return Base(segment, covered, file)
        return Base(*_cut_down(segment, covered, messages), None)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedSegment(str(error)) from error


def _cut_down(
    segment: Segment, covered: dict[int, int], messages: Mapping[int, int]
) -> tuple[Segment, dict[int, int]]:
    limits = np.array([messages.get(i, 0) for i in segment.file_ids.tolist()], np.int64)
    keep = segment.columns.message < limits[segment.columns.file]
    kept = {i: min(have, messages.get(i, 0)) for i, have in covered.items()}
    return merge([segment], [np.asarray(keep)], packed=True), kept


def beyond(
    known: Iterable[Record], covered: Mapping[int, int], fetch: Fetch
) -> tuple[Segment, list[Record]]:
    """Return the documents that the base does not cover, and the records whose rows lack some.

    Files of those records are to be read again.
    """
    segments, damaged = [], []
    for record in known:
        have = covered.get(record.file_id, 0)
        if have >= record.messages:
            continue
        try:
            segments += _runs_beyond(record, have, fetch)
        except RowsLost as error:
            log.debug("rows lost path=%r error=%r", record.path, error)
            damaged.append(record)
    if damaged:
        first = damaged[0].path
        log.warning("rows lost, reading the files again files=%d first=%r", len(damaged), first)
    return merge(segments or [build((), "seed")]), damaged


def _runs_beyond(record: Record, have: int, fetch: Fetch) -> list[Segment]:
    found = []
    for run, end in record.ends():
        if end <= have:
            continue
        segment = segment_of(record, run, have, fetch)
        wanted = segment.columns.message >= have
        found.append(segment if wanted.all() else merge([segment], [np.asarray(wanted)]))
    return found
