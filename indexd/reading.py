"""One session file, from bytes to statistics: everything a look at it brings in.

A pure function of a job and the file system: it runs in the daemon for what is small, and in a
worker process for what is big. It opens its file below the root and nothing else.
"""

from __future__ import annotations

import copy
import os
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np

from indexd.build import Entry, build
from indexd.confine import RootDirectory
from indexd.extract import documents
from indexd.formats import Format
from indexd.formats.lines import TOO_LONG
from indexd.formats.registry import DETECTION_LINES, FORMATS, GENERIC, contradiction, detect
from indexd.merge import merge
from indexd.messages import Place
from indexd.model import Message, Rewind, SessionState
from indexd.records import Record
from indexd.segment import Array, Segment
from indexd.tail import Line, Look, Verdict, examine
from indexd.text import Profile

# Text is counted in batches, so that memory is bounded whatever a file's size.
BATCH_CHARACTERS = 4 * 1024 * 1024


class Job(NamedTuple):
    """A file to look at: what is known of it, and the file id it gets should it begin anew.

    limit: how many bytes may be read of a file that begins anew; None for any number.
    """

    record: Record
    hint: str
    new_file_id: int
    profile: Profile
    thorough: bool = False
    limit: int | None = None


class TooMuch(Exception):
    """Raised when a file that begins anew is larger than its job allows."""


class Outcome(NamedTuple):
    """What a look found.

    record: what is known now; its `file_id` is the job's new one if the old content is gone.
    segments, places: of the messages that this look brought; `entries` are documents of them that
    are not in a segment yet, so that those of many files can be counted together.
    keep: which earlier messages still stand (None: all of them); see `Kept`.
    """

    record: Record
    segments: list[Segment]
    entries: list[Entry]
    places: list[Place]
    keep: Kept | None


class Kept(NamedTuple):
    """Earlier messages that still stand: those below `below` that are not `replaced`."""

    below: int
    replaced: frozenset[int]

    def mask(self, messages: Array) -> Array:
        """Return the boolean per message_index."""
        kept: Array = messages < self.below
        if self.replaced:
            kept &= ~np.isin(messages, np.fromiter(self.replaced, np.int64))
        return kept


def read(job: Job, root: RootDirectory) -> Outcome:
    """Return what one look at the job's file brings.

    Raises NotAllowed when it may not be opened or is gone, OSError when reading fails, TooMuch
    when it begins anew and is over the limit.
    """
    fd = root.open(job.record.data_path)
    try:
        look = examine(fd, job.record.checkpoint, thorough=job.thorough)
        return _follow(job, look, fd)
    finally:
        os.close(fd)


def _follow(job: Job, look: Look, fd: int) -> Outcome:
    record = job.record
    if look.verdict is Verdict.APPENDED and _is_another_format(job, look, fd):
        look = examine(fd, None)
    if look.verdict is Verdict.REPLACED:
        if job.limit is not None and look.size is not None and look.size > job.limit:
            raise TooMuch(record.data_path)
        record = msgspec.structs.replace(
            record, file_id=job.new_file_id, state=SessionState(), runs=(), agent="", problem=""
        )
    elif look.verdict is Verdict.UNCHANGED:
        record = msgspec.structs.replace(record, checkpoint=look.checkpoint())
        return Outcome(record, [], [], [], None)
    reader, problem = _reader(record, job.hint, fd, look)
    if reader is None:
        record = msgspec.structs.replace(record, checkpoint=look.checkpoint(), problem=problem)
        return Outcome(record, [], [], [], None)
    return _gather(job, record, reader, problem, look)


def _reader(record: Record, hint: str, fd: int, look: Look) -> tuple[Format | None, str]:
    """Return the format and what is wrong with the hint or the file, if anything."""
    if record.agent:
        return FORMATS[record.agent], contradiction(record.agent, hint or None) or ""
    head, damage = _head(fd, look)
    if not head:
        return None, damage
    reader, contradicted = detect(head, record.path, hint or None)
    if reader is None:
        return None, contradicted or "not a session: none of its lines is one of a known agent"
    return reader, contradicted or ""


def _is_another_format(job: Job, look: Look, fd: int) -> bool:
    """Say whether a file taken for a plain chat turns out, by its later lines, to be more.

    Only the generic reader is chosen for want of a better sign; all others by a sign that stays.
    """
    if job.record.agent != GENERIC:
        return False
    head, _ = _head(fd, look)
    reader, _ = detect(head, job.record.path, job.hint or None)
    return reader is not None and reader.agent != GENERIC


def _head(fd: int, look: Look) -> tuple[list[bytes], str]:
    """Return the first lines that the look covers, and why there are no more, if that is odd."""
    first = examine(fd, None)
    lines = [
        line.data
        for line in islice(first.lines(), DETECTION_LINES)
        if look.size is None or line.offset <= look.size
    ]
    return lines, first.damage


def _gather(job: Job, record: Record, reader: Format, problem: str, look: Look) -> Outcome:
    state = copy.deepcopy(record.state)  # records are values; reading changes its own copy
    gathered = _Gathered(record.file_id, state, job.profile)
    for line in look.lines():
        if line.skipped:
            state.skip(TOO_LONG)
            continue
        gathered.take(line, reader)
        if job.limit is not None and look.verdict is Verdict.REPLACED and look.offset > job.limit:
            raise TooMuch(record.data_path)
    kept = gathered.kept()
    file_id = record.file_id if kept is None else job.new_file_id
    record = msgspec.structs.replace(
        record,
        file_id=file_id,
        agent=reader.agent,
        problem=look.damage or problem,
        state=state,
        path_facts=reader.path_facts(record.path),
        checkpoint=look.checkpoint(),
    )
    return Outcome(record, *gathered.finish(file_id), kept)


class _Gathered:
    """The documents of the lines read so far, ready to forget some of them again."""

    def __init__(self, file_id: int, state: SessionState, profile: Profile) -> None:
        self._first = state.next_index
        self._file_id, self._state, self._profile = file_id, state, profile
        self._below = state.next_index
        self._replaced: set[int] = set()
        self._entries: list[Entry] = []
        self._characters = 0
        self._segments: list[Segment] = []
        self._places: dict[int, Place] = {}

    def take(self, line: Line, reader: Format) -> None:
        """Add what a line says."""
        part = 0
        for item in reader.read(line.data, self._state):
            if isinstance(item, Rewind):
                self._rewind(item.length)
                continue
            self._add(item, line, part)
            part += 1
        if self._characters > BATCH_CHARACTERS:
            self._flush()

    def kept(self) -> Kept | None:
        """Return which messages from before still stand; None when all do."""
        if self._below == self._first and not self._replaced:
            return None
        return Kept(self._below, frozenset(self._replaced))

    def finish(self, file_id: int) -> tuple[list[Segment], list[Entry], list[Place]]:
        """Return the segments, entries and places of everything taken, under `file_id`."""
        segments = [segment.with_file_id(file_id) for segment in self._segments]
        entries = self._entries
        if file_id != self._file_id:
            entries = [entry._replace(file_id=file_id) for entry in entries]
        return segments, entries, [self._places[index] for index in sorted(self._places)]

    def _add(self, message: Message, line: Line, part: int) -> None:
        state = self._state
        index = state.next_index if message.replaces is None else message.replaces
        if index < state.next_index:
            self._forget(index, index + 1)
            if index < self._below:
                self._replaced.add(index)
        else:
            state.next_index = index + 1
        state.timestamp = message.timestamp or state.timestamp
        state.began = state.began or state.timestamp
        time, offset, size = state.timestamp or 0, line.offset, len(line.data)
        name = ""
        for block in message.blocks:
            if block.tool_name:
                name = block.tool_name
                break
        self._places[index] = Place(index, offset, size, part, time, name)
        for document in documents(message, index):
            self._entries.append(Entry(self._file_id, document, time, offset, size, part))
            self._characters += len(document.text)

    def _rewind(self, length: int) -> None:
        self._forget(length, self._state.next_index)
        self._below = min(self._below, length)
        self._replaced = {index for index in self._replaced if index < length}
        self._state.next_index = min(self._state.next_index, length)

    def _forget(self, first: int, last: int) -> None:
        """Drop the messages first <= index < last that were taken in this look."""
        for index in range(max(first, min(self._places, default=last)), last):
            self._places.pop(index, None)
        self._entries = [e for e in self._entries if not first <= e.document.message_index < last]
        for at, segment in enumerate(self._segments):
            messages = segment.columns.message
            gone = (messages >= first) & (messages < last)
            if gone.any():
                self._segments[at] = merge([segment], [~gone])

    def _flush(self) -> None:
        if self._entries:
            self._segments.append(build(self._entries, self._profile))
        self._entries, self._characters = [], 0
