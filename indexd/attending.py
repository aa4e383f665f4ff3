"""Attending to one session: look at its file and sidecars, and settle what changed.

Runs in a thread of the daemon, or in a worker process without the cache at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from indexd.build import build
from indexd.errors import IndexdError, NotAllowed
from indexd.finding import Found
from indexd.formats.registry import FORMATS
from indexd.model import SessionState
from indexd.reading import BATCH_CHARACTERS, Job, Outcome, read
from indexd.records import Record
from indexd.segment import Segment
from indexd.settling import Change, Fetch, RowsLost, rows_are_whole, settle
from indexd.split import by_file
from indexd.tail import Stamp
from indexd.text import Profile

# A sidecar holds a few facts; one larger than this is something else.
SIDECAR_BYTES = 4 * 1024 * 1024


# Reading a file takes at least as long as reading so many bytes of one that is long.
FILE_BYTES = 16 * 1024


class Task(NamedTuple):
    """A session to attend to: as found now, as known before, and the id it gets if it is new.

    `thorough` asks for proof that what is known of it still stands, see `tail.examine`. With a
    `limit`, a file of more bytes than that is not read from its beginning. `restore` has it read
    from there if the cache has lost rows of it.
    """

    found: Found
    old: Record | None
    new_file_id: int
    profile: Profile
    thorough: bool = False
    limit: int | None = None
    restore: bool = False


def attend(task: Task, fetch: Fetch) -> Change:
    """Return what has changed about a session.

    Raises NotAllowed when the file may not be opened or is gone, OSError when reading fails,
    TooMuch when it is to be read from the beginning and is over the task's limit.
    """
    whole = not task.restore or task.old is None or rows_are_whole(task.old, fetch)
    try:
        return settle(task.old, _counted(look(task, anew=not whole), task.profile), fetch)
    except RowsLost:  # Begin anew, as for a file never seen.
        return settle(task.old, _counted(look(task, anew=True), task.profile), fetch)


class Together(NamedTuple):
    """What there is to say of several sessions, and segments of all their documents."""

    changes: list[Change | Exception]
    segments: list[Segment]


def attend_to_all(tasks: Iterable[Task]) -> Together:
    """Return what there is to say of sessions never seen before, or why one cannot be read.

    Their documents are counted together, which costs far less than file by file.
    """
    answer = Together([], [])
    waiting: list[Outcome | Exception] = []
    characters = 0
    for task in tasks:
        try:
            outcome = look(task)
        except (IndexdError, OSError) as error:
            waiting.append(error)
            continue
        waiting.append(outcome)
        characters += sum(len(entry.document.text) for entry in outcome.entries)
        if characters > BATCH_CHARACTERS:
            _settle_all(waiting, task.profile, answer)
            waiting, characters = [], 0
    if waiting:
        _settle_all(waiting, task.profile, answer)
    return answer


def _settle_all(waiting: list[Outcome | Exception], profile: Profile, answer: Together) -> None:
    outcomes = [each for each in waiting if isinstance(each, Outcome)]
    together = build([entry for each in outcomes for entry in each.entries], profile)
    answer.segments.extend([together, *(s for each in outcomes for s in each.segments)])
    apart = dict(by_file(together))
    for each in waiting:
        if isinstance(each, Outcome):
            own = apart.pop(each.record.file_id, None)
            segments = each.segments if own is None else [*each.segments, own]
            whole = each._replace(segments=segments, entries=[])
            answer.changes.append(settle(None, whole, lambda key: None))
        else:
            answer.changes.append(each)


def _counted(outcome: Outcome, profile: Profile) -> Outcome:
    """Return the outcome with all of its documents in segments."""
    if not outcome.entries:
        return outcome
    segments = [*outcome.segments, build(outcome.entries, profile)]
    return outcome._replace(segments=segments, entries=[])


def look(task: Task, *, anew: bool = False) -> Outcome:
    """Return what a look at a session finds, `anew` as if it had never been read.

    Raises as `attend` does.
    """
    found, old = task.found, task.old
    base = _now(found, old)
    if anew:
        base, old = msgspec.structs.replace(base, checkpoint=None), None
    thorough = task.thorough and not anew
    job = Job(base, found.root.root.format, task.new_file_id, task.profile, thorough, task.limit)
    outcome = read(job, found.root.directory)
    return outcome._replace(record=_with_sidecars(found, outcome.record, old))


def _now(found: Found, old: Record | None) -> Record:
    """Return the old record under the file's present name, or a first one."""
    candidate = found.candidate
    if old is None:
        return Record(
            0, candidate.path, candidate.data_path, found.root.path, found.root.root.source, "",
            None, SessionState(),
        )  # fmt: skip
    moved = msgspec.structs.replace(
        old,
        path=candidate.path,
        data_path=candidate.data_path,
        root=found.root.path,
        source=found.root.root.source,
    )
    if old.path != candidate.path and old.agent:
        facts = FORMATS[old.agent].path_facts(candidate.path)
        moved = msgspec.structs.replace(moved, path_facts=facts)
    return moved


def _with_sidecars(found: Found, record: Record, old: Record | None) -> Record:
    if not record.agent:
        return record
    if old is not None and old.sidecars == found.sidecars and old.agent == record.agent:
        return record
    facts: dict[str, str] = {}
    for path in found.sidecars:
        facts |= FORMATS[record.agent].sidecar_facts(_content(found, path))
    return msgspec.structs.replace(record, sidecars=found.sidecars, sidecar_facts=facts)


def _content(found: Found, path: str) -> bytes:
    try:
        fd = found.root.directory.open(path)
    except NotAllowed:
        return b""
    with open(fd, "rb") as file:
        return file.read(SIDECAR_BYTES)


def unread_bytes(stamp: Stamp, old: Record | None) -> int:
    """Return how many bytes of a file are not known yet."""
    if old is None or old.checkpoint is None:
        return stamp.size
    known = old.checkpoint
    same = (known.stamp.device, known.stamp.inode) == (stamp.device, stamp.inode)
    grown = stamp.size - known.offset
    return grown if same and grown >= 0 else stamp.size
