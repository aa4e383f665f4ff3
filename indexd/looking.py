"""What a round of looking at changed places found, and what it missed that was there before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from indexd import finding
from indexd.discover import EVENT_LOG, SUBAGENTS
from indexd.finding import Found, OpenRoot
from indexd.library import Library
from indexd.records import Record


class Looked:
    """Gathers what is there now and which known sessions should have been."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._found: dict[str, Found] = {}
        self._suspects: dict[str, Record] = {}
        self._directories: set[str] = set()

    def below(self, root: OpenRoot, directory: str) -> None:
        """Look at a directory and everything below it."""
        self._add(finding.below(root, directory))
        known = self._library.below(directory)
        self.suspect(known)
        self._directories.update(os.path.dirname(record.path) for record in known)

    def around(self, root: OpenRoot, directory: str) -> None:
        """Look at what lies directly in a directory."""
        if directory not in self._directories:
            self._directories.add(directory)
            self._add(finding.around(root, directory))
            self.suspect(self._library.in_directory(directory))

    def at(self, root: OpenRoot, record: Record) -> None:
        """Look at one known session; where its directory was looked at, that has decided."""
        if os.path.dirname(record.path) in self._directories:
            return
        now = finding.known(root, record)
        if now:
            self._add(now)
        else:
            self.around(root, os.path.dirname(record.path))

    def suspect(self, records: Iterable[Record]) -> None:
        """Note sessions that are gone unless they are found."""
        self._suspects |= {record.path: record for record in records}

    def found(self) -> list[Found]:
        """Return what was found."""
        return list(self._found.values())

    def gone(self) -> list[Record]:
        """Return the known sessions that are not there any more."""
        return [record for path, record in self._suspects.items() if path not in self._found]

    def _add(self, found: Iterable[Found]) -> None:
        self._found |= {one.candidate.path: one for one in found}


def around_changes(
    library: Library, root_of: Callable[[str], OpenRoot | None], paths: Iterable[str]
) -> Looked:
    """Return what there is around changed paths.

    An append to a known session looks at that file alone; anything else, at its directory,
    whose names decide together which files are sessions. So do the contents of event logs.
    Raises OSError without a descriptor to spare.
    """
    looked = Looked(library)
    resting: list[tuple[OpenRoot, Record]] = []
    for path in paths:
        root = root_of(path)
        if root is None:
            looked.suspect(library.below(path))
        elif not path.endswith(EVENT_LOG) and (sessions := library.with_data(path)):
            resting += [(root, session) for session in sessions]
        elif os.path.isdir(path) and not os.path.islink(path):
            looked.below(root, path)
        else:
            # A session being deleted hides its sub-agents with it.
            directory = os.path.dirname(path)
            looked.around(root, directory)
            looked.around(root, os.path.join(directory, SUBAGENTS))
            looked.suspect(library.below(path))
    for root, record in resting:
        looked.at(root, record)
    return looked
