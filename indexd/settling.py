"""What a look at a file changes: rows for the cache, segments for the index.

The stored segments of a file follow the logarithmic method: an append adds one, and while the
last but one is not more than twice the last, the two become one. So the cost of an append
follows what was appended, and a file never has more than a few segments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from indexd import encoding, messages, records
from indexd.build import build
from indexd.errors import NotFound
from indexd.merge import merge
from indexd.messages import Place
from indexd.reading import Outcome
from indexd.records import Record, Run
from indexd.segment import Segment
from indexd.source import DamagedSegment

T = TypeVar("T")
Fetch = Callable[[bytes], bytes | None]


class RowsLost(NotFound):
    """Raised when the cache lacks a row of the session at `path`, or cannot make sense of it."""

    def __init__(self, path: str, key: bytes, what: str) -> None:
        super().__init__(f"the cache's row {key.decode()} is {what}", "the session is read again")
        self.path = path


class Change(NamedTuple):
    """What a look at a file changes.

    record: what is known of the file now. rows: for the cache, one unit; None removes a row.
    segments: new documents for the index. drop: the file id whose documents are gone, if any.
    """

    record: Record
    rows: dict[bytes, bytes | None]
    segments: list[Segment]
    drop: int | None


def settle(old: Record | None, outcome: Outcome, fetch: Fetch) -> Change:
    """Return the change that an outcome stands for; `old` is what was known before.

    `fetch` gives rows of the cache. Raises RowsLost when it lacks one that is needed.
    """
    record = outcome.record
    if old is not None and record.file_id == old.file_id:
        return _append(record, outcome, fetch)
    segments, places = outcome.segments, outcome.places
    if old is not None and outcome.keep is not None:
        segments, places = _rewritten(old, outcome, fetch)
    rows = {} if old is None else removal(old)
    run, new = _run(0, segments, places)
    record = _counted(record, (run,) if places else ())
    if places:
        rows |= _run_rows(record.file_id, run, new, places)
    rows[records.record_key(record.file_id)] = records.encode(record)
    return Change(record, rows, [new], None if old is None else old.file_id)


def removal(record: Record) -> dict[bytes, bytes | None]:
    """Return the rows to remove when a file goes away."""
    rows: dict[bytes, bytes | None] = {records.record_key(record.file_id): None}
    for run in record.runs:
        rows[records.segment_key(record.file_id, run.number)] = None
        rows[records.places_key(record.file_id, run.number)] = None
    return rows


def let_go(record: Record, covered: int) -> tuple[Record, dict[bytes, bytes | None]]:
    """Return the record without the stored segments of messages below `covered`, and its rows.

    They are in the base, and twice on disk is once too often.
    """
    runs, rows = [], dict[bytes, bytes | None]()
    for run, end in record.ends():
        if run.kept_from < end <= covered:
            rows[records.segment_key(record.file_id, run.number)] = None
            run = run._replace(kept_from=end)
        runs.append(run)
    if rows:
        record = msgspec.structs.replace(record, runs=tuple(runs))
        rows[records.record_key(record.file_id)] = records.encode(record)
    return record, rows


def segment_of(record: Record, run: Run, since: int, fetch: Fetch) -> Segment:
    """Return what is stored of a run, with all documents of messages from `since` on.

    Raises RowsLost.
    """
    key = records.segment_key(record.file_id, run.number)
    if run.kept_from > max(since, run.first_message):
        raise RowsLost(record.path, key, "in the base alone")
    return _decoded(encoding.decode, record, fetch, key)


def places_of(record: Record, run: Run, fetch: Fetch) -> list[Place]:
    """Return the places of the messages of a run. Raises RowsLost."""
    key = records.places_key(record.file_id, run.number)
    return _decoded(messages.decode, record, fetch, key)


def rows_are_whole(record: Record, fetch: Fetch) -> bool:
    """Say whether the cache has all that was stored of a session."""
    try:
        for run, end in record.ends():
            if run.kept_from < end:
                segment_of(record, run, run.kept_from, fetch)
            places_of(record, run, fetch)
    except RowsLost:
        return False
    return True


def _decoded(decode: Callable[[bytes], T], record: Record, fetch: Fetch, key: bytes) -> T:
    value = fetch(key)
    if value is None:
        raise RowsLost(record.path, key, "missing")
    try:
        return decode(value)
    except (ValueError, TypeError, DamagedSegment) as error:
        raise RowsLost(record.path, key, "damaged") from error


def _append(record: Record, outcome: Outcome, fetch: Fetch) -> Change:
    """Add a run, then join runs of like size."""
    rows: dict[bytes, bytes | None] = {}
    runs = list(record.runs)
    added: list[Segment] = []
    if outcome.places:
        number = runs[-1].number + 1 if runs else 0
        run, segment = _run(number, outcome.segments, outcome.places)
        added.append(segment)
        places = outcome.places
        while runs and runs[-1].documents <= 2 * run.documents:
            last = runs.pop()
            if last.kept_from < run.first_message:
                segment = merge([segment_of(record, last, last.kept_from, fetch), segment])
            places = places_of(record, last, fetch) + places
            rows[records.segment_key(record.file_id, run.number)] = None
            rows[records.places_key(record.file_id, run.number)] = None
            together = last.documents + run.documents
            run = Run(last.number, together, last.first_message, last.kept_from)
        runs.append(run)
        rows |= _run_rows(record.file_id, run, segment, places)
    record = _counted(record, tuple(runs))
    rows[records.record_key(record.file_id)] = records.encode(record)
    return Change(record, rows, added, None)


def _rewritten(old: Record, outcome: Outcome, fetch: Fetch) -> tuple[list[Segment], list[Place]]:
    """Return all that stands of a file some of whose messages were replaced or taken back."""
    keep = outcome.keep
    assert keep is not None
    segments: list[Segment] = []
    places: dict[int, Place] = {}
    for run in old.runs:
        segment = segment_of(old, run, run.first_message, fetch)
        kept = merge([segment], [keep.mask(segment.columns.message)])
        segments.append(kept.with_file_id(outcome.record.file_id))
        places |= {p.message_index: p for p in places_of(old, run, fetch)}
    standing = {i: p for i, p in places.items() if i < keep.below}
    standing |= {p.message_index: p for p in outcome.places}
    return segments + outcome.segments, [standing[i] for i in sorted(standing)]


def _run(number: int, segments: list[Segment], places: list[Place]) -> tuple[Run, Segment]:
    segment = segments[0] if len(segments) == 1 else merge(segments or [build((), "seed")])
    return Run(number, len(segment), places[0].message_index if places else 0), segment


def _run_rows(
    file_id: int, run: Run, segment: Segment, places: list[Place]
) -> dict[bytes, bytes | None]:
    return {
        records.segment_key(file_id, run.number): encoding.encode(segment),
        records.places_key(file_id, run.number): messages.encode(places),
    }


def _counted(record: Record, runs: tuple[Run, ...]) -> Record:
    return msgspec.structs.replace(record, runs=runs, documents=sum(r.documents for r in runs))
