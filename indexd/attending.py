"""Attending to one session: look at its file and sidecars, and settle what changed.

Runs in a thread of the daemon, or in a worker process without the cache at hand.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from indexd.errors import NotAllowed
from indexd.finding import Found
from indexd.formats.registry import FORMATS
from indexd.model import SessionState
from indexd.reading import Job, read
from indexd.records import Record
from indexd.settling import Change, Fetch, RowsLost, settle
from indexd.tail import Stamp
from indexd.text import Profile

# A sidecar holds a few facts; one larger than this is something else.
SIDECAR_BYTES = 4 * 1024 * 1024


class Task(NamedTuple):
    """A session to attend to: as found now, as known before, and the id it gets if it is new.

    `thorough` asks for proof that what is known of it still stands, see `tail.examine`. With a
    `limit`, a file of more bytes than that is not read from its beginning.
    """

    found: Found
    old: Record | None
    new_file_id: int
    profile: Profile
    thorough: bool = False
    limit: int | None = None


def attend(task: Task, fetch: Fetch) -> Change:
    """Return what has changed about a session.

    Raises NotAllowed when the file may not be opened or is gone, OSError when reading fails,
    TooMuch when it is to be read from the beginning and is over the task's limit.
    """
    found, old = task.found, task.old
    base = _now(found, old)
    hint = found.root.root.format
    root = found.root.directory
    job = Job(base, hint, task.new_file_id, task.profile, task.thorough, task.limit)
    outcome = read(job, root)
    outcome = outcome._replace(record=_with_sidecars(found, outcome.record, old))
    try:
        return settle(old, outcome, fetch)
    except RowsLost:  # Begin anew, as for a file never seen.
        base = msgspec.structs.replace(base, checkpoint=None)
        outcome = read(job._replace(record=base, thorough=False), root)
        record = _with_sidecars(found, outcome.record, None)
        return settle(old, outcome._replace(record=record), fetch)


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
