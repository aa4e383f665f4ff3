"""The base: most of the index as one file, so that a restart reads two files and no session.

It is derived from the rows of the cache and may be missing, old or damaged: what it covers is
said in its header, and the rows fill in the rest. Nothing ever waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping

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


def save(parts: Iterable[Part], messages: Mapping[int, int], path: str) -> Segment:
    """Merge `parts`, write them to `path`, and return the segment as read from there.

    `messages` says how many messages of each file the parts cover. Raises OSError.
    """
    merged = merge_parts(list(parts), packed=True)
    covered = [messages.get(file_id, 0) for file_id in merged.file_ids.tolist()]
    encoding.save(merged, path, {"covered": covered})
    segment, _ = encoding.load(OpenFile(path))
    return segment


def load(path: str, messages: Mapping[int, int]) -> tuple[Segment | None, dict[int, int]]:
    """Return the base and how many messages of each file it covers; nothing if it is unusable.

    `messages` says how many messages of each file the rows know. A base that knows more (rows
    can be lost with the power) is cut down to that: the files will be read on from there.
    """
    try:
        segment, extra = encoding.load(OpenFile(path))
        covered = dict(zip(segment.file_ids.tolist(), extra["covered"], strict=True))
        return _cut_down(segment, covered, messages)
    except FileNotFoundError:
        return None, {}
    except (OSError, ValueError, KeyError, TypeError, DamagedSegment) as error:
        log.warning("base unusable, rebuilding it from the rows error=%r", error)
        with contextlib.suppress(OSError):
            os.unlink(path)
        return None, {}


def _cut_down(
    segment: Segment, covered: dict[int, int], messages: Mapping[int, int]
) -> tuple[Segment, dict[int, int]]:
    limits = np.array([messages.get(i, 0) for i in segment.file_ids.tolist()], np.int64)
    if all(have <= messages.get(i, 0) for i, have in covered.items() if i in messages):
        return segment, covered
    keep = segment.columns.message < limits[segment.columns.file]
    kept = {i: min(have, messages.get(i, 0)) for i, have in covered.items()}
    return merge([segment], [np.asarray(keep)], packed=True), kept


def beyond(
    known: Iterable[Record], covered: Mapping[int, int], fetch: Fetch
) -> tuple[Segment, list[Record]]:
    """Return the documents that the base does not cover, and the records whose rows are damaged.

    Files of damaged records are to be read again.
    """
    segments, damaged = [], []
    for record in known:
        have = covered.get(record.file_id, 0)
        if have >= record.messages:
            continue
        try:
            segments += _runs_beyond(record, have, fetch)
        except RowsLost as error:
            log.warning("rows damaged, reading the file again path=%r error=%r", record.path, error)
            damaged.append(record)
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
