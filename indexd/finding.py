"""Which sessions are there, as stat sees them: sweeps of whole roots, and single directories."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from indexd.confine import RootDirectory, pass_exhaustion, relative_below
from indexd.discover import Candidate, in_directory, walk
from indexd.records import Record
from indexd.roots import Root
from indexd.tail import Stamp

# A stamp this old cannot hide another change in the same step of the file system's clock.
REST_NS = 2_000_000_000


class OpenRoot(NamedTuple):
    """A configured root and the directory it was when it was opened."""

    root: Root
    directory: RootDirectory

    @property
    def path(self) -> str:
        """Return the resolved path of the root."""
        return self.directory.path

    def holds(self, path: str) -> bool:
        """Say whether `path` is the root or below it."""
        return path == self.path or relative_below(self.path, path) is not None

    def excludes(self, path: str) -> bool:
        """Say whether the configuration leaves `path` out."""
        below = relative_below(self.path, path) or ""
        return any(
            fnmatchcase(below, glob) or fnmatchcase("/" + below, glob) for glob in self.root.exclude
        )


class Found(NamedTuple):
    """A session file as it is now: the stamps of its data and of its sidecars."""

    root: OpenRoot
    candidate: Candidate
    stamp: Stamp
    sidecars: dict[str, Stamp]

    def differs(self, record: Record | None) -> bool:
        """Say whether this is not, or may not be, what `record` knows."""
        return (
            record is None
            or record.checkpoint is None
            or record.checkpoint.stamp != self.stamp
            or record.data_path != self.candidate.data_path
            or record.sidecars != self.sidecars
            or record.source != self.root.root.source
        )

    def rests(self, record: Record, now_ns: int) -> bool:
        """Say whether this file is as `record` knows it, and has been for a while at `now_ns`."""
        last_change = max(self.stamp.mtime_ns, self.stamp.ctime_ns)
        return not self.differs(record) and now_ns - last_change > REST_NS


def opened(wanted: Iterable[Root], before: Mapping[str, OpenRoot]) -> dict[str, OpenRoot]:
    """Return the roots that are there now, by configured path; those of `before` as they are."""
    now: dict[str, OpenRoot] = {}
    for root in wanted:
        known = before.get(root.path)
        if known is not None and known.root == root and known.directory.is_current():
            now[root.path] = known
        else:
            with contextlib.suppress(OSError):
                now[root.path] = OpenRoot(root, RootDirectory(root.path))
    return now


def sweep(roots: Iterable[OpenRoot]) -> list[Found]:
    """Return every session below the roots. Links are not followed."""
    found: list[Found] = []
    for root in roots:
        for candidate in walk(root.path):
            found += _seen(root, candidate)
    return found


def around(root: OpenRoot, directory: str) -> list[Found]:
    """Return the sessions that lie directly in a directory below `root`."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        pass_exhaustion(error)
        return []
    return [f for candidate in in_directory(directory, names) for f in _seen(root, candidate)]


def below(root: OpenRoot, directory: str) -> list[Found]:
    """Return the sessions in a directory of `root` or below it."""
    return [found for candidate in walk(directory) for found in _seen(root, candidate)]


def known(root: OpenRoot, record: Record) -> list[Found]:
    """Return the session of a record as it is now; empty when it is gone."""
    return list(_seen(root, Candidate(record.path, record.data_path, tuple(record.sidecars))))


def _seen(root: OpenRoot, candidate: Candidate) -> Iterator[Found]:
    if any(map(root.excludes, {candidate.path, candidate.data_path})):
        return
    stamp = _stamp(candidate.data_path)
    if stamp is not None:
        stamps = {path: _stamp(path) for path in candidate.sidecars}
        yield Found(root, candidate, stamp, {p: s for p, s in stamps.items() if s is not None})


def _stamp(path: str) -> Stamp | None:
    """Return the stamp of a plain file; None for a link, a pipe, a directory, or nothing."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return Stamp.of(status) if stat.S_ISREG(status.st_mode) else None
