"""Which files below a root are sessions, and which merely stand beside one.

Decided per directory, from the names in it, so that a changed path costs a look at its directory
and no more. Two things need a look into files, and only where their names give cause: whether
a Reasonix event log is the authority over the session beside it, and whose child a sub-agent is
while its parent is being deleted.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from indexd.confine import pass_exhaustion
from indexd.formats.lines import Record, string, whole_object
from indexd.formats.reasonix import EVENT_SCHEMA, EVENT_TYPES
from indexd.formats.registry import FORMATS
from indexd.paths import COMPRESSED_ENDS, plain_path

SESSION = ".jsonl"
EVENT_LOG = ".events.jsonl"
PENDING = ".cleanup-pending.json"
SUBAGENTS = "subagents"
META = ".meta.json"

# `<stem>.<word>.jsonl` is a sidecar where `<stem>` is a session; these words are so anywhere.
_WORD = re.compile(r"(.+)\.([A-Za-z][A-Za-z_-]*)\.jsonl", re.DOTALL)
_SIDECAR_WORDS = frozenset({"conflicts", "guardian", "wire", "adjudication", "execution", "turns"})

# The first record of an event log may carry a whole conversation, but says early what it is.
HEAD_BYTES = 64 * 1024
_EARLY_SCHEMA = re.compile(rb'[{,]\s*"schema_version"\s*:\s*(\d{1,9})')
_EARLY_TYPE = re.compile(rb'[{,]\s*"type"\s*:\s*"(replace|append)"')
COMPRESSED = tuple(SESSION + end for end in COMPRESSED_ENDS)
META_BYTES = 1024 * 1024
KNOWN_LOGS = 10_000

_WITH_SIDECARS = [each for each in FORMATS.values() if each.sidecars("x.jsonl")]


class Candidate(NamedTuple):
    """A session: its path as people know it, the file its messages are in, and its sidecars.

    All are paths. `data_path` differs from `path` where an event log is the authority, and where
    the session was compressed: whether it is, `path` is that of the plain file.
    """

    path: str
    data_path: str
    sidecars: tuple[str, ...] = ()


def skipped(name: str) -> bool:
    """Say whether directories called `name` hold no sessions: the deleted, checkpoints, jobs."""
    return name == ".trash" or name.endswith((".ckpt", ".jobs"))


def walk(top: str) -> Iterator[Candidate]:
    """Yield every session in directory `top` or below it, following no links.

    What cannot be listed is passed over. Raises OSError without a descriptor to spare, since
    what is there then cannot be told from what is not; so does `in_directory`.
    """
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        names, inner = _listed(directory)
        yield from in_directory(directory, names)
        waiting += (path for path in inner if not skipped(os.path.basename(path)))


def _listed(directory: str) -> tuple[list[str], list[str]]:
    """Return the names of the plain files of a directory, and the paths of those below it."""
    names, inner = [], []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
    except OSError as error:
        pass_exhaustion(error)
        return [], []
    return names, inner


def in_directory(directory: str, names: Collection[str]) -> list[Candidate]:
    """Return the sessions that lie directly in `directory`, which holds `names`, by path."""
    if any(map(skipped, directory.split("/"))):
        return []
    plain = frozenset(names)
    # A session is called as it was before it was compressed, and has both for a moment.
    compressed = {
        session: name
        for name in names
        if name.endswith(COMPRESSED) and (session := plain_path(name)) not in plain
    }
    present = plain | compressed.keys()
    hidden = _pending(present) | _children_of_pending(directory, present)
    prefix = os.path.join(directory, "")
    found = (_candidate(prefix, stem, present) for stem in sorted(_stems(present) - hidden))
    return [_as_stored(prefix, each, compressed) for each in found if each is not None]


def _as_stored(prefix: str, candidate: Candidate, compressed: Mapping[str, str]) -> Candidate:
    name = candidate.data_path.removeprefix(prefix)
    stored = compressed.get(name)
    return candidate if stored is None else candidate._replace(data_path=prefix + stored)


def _stems(names: frozenset[str]) -> set[str]:
    """Return the names, without their ends, of what may be a session among `names`."""
    stems = {name.removesuffix(EVENT_LOG) for name in names if name.endswith(EVENT_LOG)}
    stems |= {name.removesuffix(SESSION) for name in names if name.endswith(SESSION)}
    return {
        stem
        for stem in stems
        if stem and not stem.startswith(".") and not _is_sidecar(f"{stem}{SESSION}", names)
    }


def _is_sidecar(name: str, names: frozenset[str]) -> bool:
    parts = _WORD.fullmatch(name)
    if parts is None:
        return False
    stem, word = parts.groups()
    beside = f"{stem}{SESSION}" in names or f"{stem}{EVENT_LOG}" in names
    return word in _SIDECAR_WORDS or beside or word == "events"


class _Log(Enum):
    """What a file called like an event log is."""

    AUTHORITY = auto()
    FOREIGN = auto()
    EMPTY = auto()


def _candidate(prefix: str, stem: str, names: frozenset[str]) -> Candidate | None:
    session, log = f"{stem}{SESSION}", f"{stem}{EVENT_LOG}"
    path = data = session
    if log in names:
        kind = _log(prefix + log)
        if kind is _Log.EMPTY and session not in names:
            return None
        path = session if session in names else log
        data = log if kind is _Log.AUTHORITY else path
    beside = [name for each in _WITH_SIDECARS for name in each.sidecars(session) if name in names]
    sidecars = tuple([prefix + name for name in dict.fromkeys(beside)])
    return Candidate(prefix + path, prefix + data, sidecars)


def _log(path: str) -> _Log:
    try:
        now = os.stat(path, follow_symlinks=False)
    except OSError:
        return _Log.EMPTY
    if not stat.S_ISREG(now.st_mode) or not now.st_size:
        return _Log.EMPTY
    return _log_kind(path, now.st_dev, now.st_ino, now.st_mtime_ns, now.st_size)


@lru_cache(maxsize=KNOWN_LOGS)
def _log_kind(path: str, device: int, inode: int, mtime_ns: int, size: int) -> _Log:
    """Return what the first record says; remembered, so that a resting log is not read again."""
    first, newline, _ = _head(path, HEAD_BYTES).partition(b"\n")
    if not newline and size <= HEAD_BYTES:
        return _Log.EMPTY
    record = whole_object(first) if newline else _early(first)
    version = record.get("schema_version")
    if not isinstance(version, int) or version < EVENT_SCHEMA:
        return _Log.FOREIGN
    # A log of a later schema is the authority too: better no answer than an outdated one.
    known = version > EVENT_SCHEMA or string(record.get("type")) in EVENT_TYPES
    return _Log.AUTHORITY if known else _Log.FOREIGN


def _early(first: bytes) -> Record:
    """Return what the beginning of a long first record states about its log."""
    schema, what = _EARLY_SCHEMA.search(first), _EARLY_TYPE.search(first)
    if schema is None or what is None:
        return {}
    return {"schema_version": int(schema[1]), "type": what[1].decode()}


def _pending(names: frozenset[str]) -> set[str]:
    """Return the stems of the sessions among `names` that are being deleted."""
    return {name.removesuffix(PENDING) for name in names if name.endswith(PENDING)}


def _children_of_pending(directory: str, names: frozenset[str]) -> set[str]:
    """Return the stems of the sub-agents whose parent, one directory up, is being deleted."""
    above, name = os.path.split(directory)
    if name != SUBAGENTS:
        return set()
    try:
        pending = _pending(frozenset(os.listdir(above)))
    except OSError as error:
        pass_exhaustion(error)
        return set()
    metas = [each for each in names if each.endswith(META)] if pending else []
    return {
        each.removesuffix(META)
        for each in metas
        if _parent_in(os.path.join(directory, each)) in pending
    }


def _parent_in(meta: str) -> str:
    """Return the stem of the parent session that a sub-agent's meta file names."""
    parent = string(whole_object(_head(meta, META_BYTES)).get("parentSession"))
    return os.path.basename(parent.strip()).removesuffix(SESSION)


def _head(path: str, size: int) -> bytes:
    """Return the first `size` bytes of a plain file; none when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        pass_exhaustion(error)
        return b""
    with open(fd, "rb") as file:
        try:
            return file.read(size) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        except OSError:
            return b""
