"""Which session files a request selects: by agent, session, project, directory and descent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from indexd.errors import BadRequest
from indexd.index import FileFacts
from indexd.paths import plain_path
from indexd.requests import Filters
from indexd.selection import FileFilter

# A shorter beginning of a session's id says too little to mean it.
MIN_PREFIX = 8
# What the kernel takes for a path, with the NUL that ends it.
MAX_PATH_BYTES = 4096
# An error names this many of the sessions that an id may mean.
MAX_NAMED = 4


class Choice(NamedTuple):
    """What a request says about files; None, empty or "include" where it says nothing.

    scoped: only files in `session_dir` or `project`, whichever fits. project: a directory in
    each way it is spelled, or a name. session: an id, or a path in each way it is spelled.
    """

    scoped: bool = False
    project: tuple[str, ...] = ()
    session_dir: str | None = None
    agent: str | None = None
    session: tuple[str, ...] = ()
    subagents: str = "include"
    source: str | None = None

    def accepts(self, facts: FileFacts) -> bool:
        """Say whether a file is selected."""
        return (
            (self.agent is None or facts.agent == self.agent)
            and (not self.session or facts.session_id in self.session or facts.path in self.session)
            and (self.subagents == "include" or facts.subagent == (self.subagents == "only"))
            and (self.source is None or facts.source == self.source)
            and (not self.scoped or self.owns(facts))
        )

    def owns(self, facts: FileFacts) -> bool:
        """Say whether a session is in the project: directly in `session_dir` or its `subagents/`,
        or with a recorded directory that is the project's or below it."""
        own = self.session_dir
        if own is not None:
            directory = os.path.dirname(facts.path)
            if directory in (own, os.path.join(own, "subagents")):
                return True
        return any(_lies_in(facts.cwd, project) for project in self.project)


def chosen(filters: Filters, files: Iterable[FileFacts]) -> Choice:
    """Return what `filters` say about `files`.

    Raises BadRequest for a beginning of a session id that several sessions share.
    """
    return Choice(
        filters.scope == "project",
        _spelled(filters.project) if filters.project else (),
        _resolved(filters.session_dir) if filters.session_dir else None,
        filters.agent.strip().lower() if filters.agent else None,
        session_named(filters.session, files) if filters.session else (),
        filters.subagents,
        filters.source,
    )


def file_filter(choice: Choice) -> FileFilter | None:
    """Return the filter of a choice; None when it selects every file."""
    if not choice.scoped:
        # These only name what is to be called the project.
        choice = choice._replace(project=(), session_dir=None)
    return None if choice == Choice() else FileFilter(choice, choice.accepts)


def session_named(wanted: str, files: Iterable[FileFacts]) -> tuple[str, ...]:
    """Return the path, in each way it is spelled, or the id of the session that is `wanted`.

    An id may be cut short where its beginning is that of one session's only; raises BadRequest
    where it is not.
    """
    if "/" in wanted:
        return _spelled(plain_path(wanted))
    ids = {facts.session_id for facts in files if facts.session_id.startswith(wanted)}
    if wanted in ids or len(wanted) < MIN_PREFIX or not ids:
        return (wanted,)
    if len(ids) > 1:
        some = ", ".join(sorted(ids)[:MAX_NAMED]) + (" ..." if len(ids) > MAX_NAMED else "")
        raise BadRequest(f"session {wanted} begins the ids of {len(ids)} sessions", f"as in {some}")
    return tuple(ids)


def _spelled(place: str) -> tuple[str, ...]:
    """Return a directory or file by its own and its resolved path; a mere name as it is."""
    if "/" not in place or not _can_name_a_file(place):
        return (place,)
    path = os.path.normpath(os.path.expanduser(place))
    return tuple(dict.fromkeys((path, os.path.realpath(path))))


def _resolved(path: str) -> str:
    """Return `path` with its links followed, if there are any to follow."""
    return os.path.realpath(path) if _can_name_a_file(path) else path


def _can_name_a_file(path: str) -> bool:
    """Say whether the kernel may be asked about `path`."""
    return "\0" not in path and len(os.fsencode(path)) < MAX_PATH_BYTES


def _lies_in(cwd: str, project: str) -> bool:
    """Say whether `cwd` is `project`, or below it; a name is that of any directory above."""
    if not project or not cwd:
        return False
    if "/" not in project:
        return project in cwd.split("/")
    return cwd.rstrip("/") == project or cwd.startswith(project.rstrip("/") + "/")
