"""Which directory trees may be read, and which never.

A root is the whole of what the daemon is allowed to see, so a doubtful one is refused with its
reason rather than repaired.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from indexd.errors import BadRequest
from indexd.formats import Format

# What agents call the directories of sessions they have put away.
ARCHIVES = ("archive", "archived_sessions")

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Root(NamedTuple):
    """A directory tree that may be read.

    `path` is absolute, as configured, and need not exist yet; `source` is its label in answers;
    `format` names an agent's reader or is empty, and then the content decides; `exclude` holds
    globs of paths below it.
    """

    path: str
    source: str = "global"
    format: str = ""
    exclude: tuple[str, ...] = ()


def expanded(path: str, environment: Mapping[str, str], home: str) -> str:
    """Return `path` with a leading `~` and `$VARS` expanded, normalised.

    Raises BadRequest for a variable that is not set, or a path that is still relative.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environment.get(name):
            raise BadRequest(f"{path} uses ${name}, which is not set", f"set {name}")
        return environment[name]

    full = _VARIABLE.sub(value, path)
    if full == "~" or full.startswith("~/"):
        full = home + full[1:]
    if not os.path.isabs(full):
        raise BadRequest(f"{path} is not an absolute path", "begin it with /, ~ or a variable")
    return os.path.normpath(full)


def default_roots(
    formats: Iterable[Format], environment: Mapping[str, str], home: str
) -> Iterator[Root]:
    """Yield each known agent's directories, outer ones first, so that inner ones give way."""
    found = {
        os.path.normpath(path): reader.agent
        for reader in formats
        for path in reader.default_roots(environment, home)
    }
    for path in sorted(found, key=lambda path: (path.count("/"), path)):
        source = "archive" if os.path.basename(path) in ARCHIVES else "global"
        yield Root(path, source, format=found[path])


def refusal(path: str, accepted: Sequence[Root], own_places: Iterable[str]) -> str:
    """Return why `path` may not be a root beside the `accepted` ones; empty when it may.

    `own_places` are indexd's own directories: what it writes must never be read as a session.
    Links are followed first, so that two names of one tree are seen to be one.
    """
    if not os.path.isabs(path):
        return "is not an absolute path"
    real = os.path.realpath(path)
    if real == "/":
        return "is the whole file system"
    if os.path.exists(real) and not os.path.isdir(real):
        return "is a file, not a directory"
    for place in own_places:
        if overlap(real, os.path.realpath(place)):
            return f"overlaps indexd's own directory {place}"
    for other in accepted:
        if overlap(real, os.path.realpath(other.path)):
            return f"overlaps root {other.path}"
    return ""


def overlap(one: str, other: str) -> bool:
    """Say whether one of two resolved directories is, or lies below, the other."""
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")
