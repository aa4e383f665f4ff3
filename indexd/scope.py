"""Which session files a request selects: by agent, session, project and directory."""

from __future__ import annotations

import os
from typing import NamedTuple

from indexd.index import FileFacts
from indexd.ranking import FileFilter


class Choice(NamedTuple):
    """What a request says about files; None where it says nothing.

    project_only: scope is `project`, that is session_dir or project, whichever fits.
    """

    project_only: bool = False
    project: str | None = None
    session_dir: str | None = None
    agent: str | None = None
    session: str | None = None

    def accepts(self, facts: FileFacts) -> bool:
        """Say whether a file is selected."""
        if self.agent is not None and facts.agent != self.agent:
            return False
        if self.session is not None and self.session not in (facts.session_id, facts.path):
            return False
        if self.project_only:
            return in_project(facts, self.project, self.session_dir)
        return True


def in_project(facts: FileFacts, project: str | None, session_dir: str | None) -> bool:
    """Say whether a session lies directly in `session_dir` or its `subagents/`, or whether its
    recorded cwd is `project` or below it."""
    if session_dir:
        directory = os.path.dirname(facts.path)
        wanted = session_dir.rstrip("/")
        if directory in (wanted, wanted + "/subagents"):
            return True
    if project and facts.cwd:
        wanted = project.rstrip("/")
        return facts.cwd == wanted or facts.cwd.startswith(wanted + "/")
    return False


def file_filter(choice: Choice) -> FileFilter | None:
    """Return the filter of a choice; None when it selects every file."""
    if choice._replace(project=None, session_dir=None) == Choice():
        return None
    return FileFilter(choice, choice.accepts)
