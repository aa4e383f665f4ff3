"""How the daemon is, from facts: what it knows, what it could not read, what it costs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from indexd.finding import OpenRoot
from indexd.formats.lines import DAMAGE
from indexd.records import Record
from indexd.roots import Root

# More problems than this of one kind are counted, not listed.
MAX_PROBLEMS = 50


def roots(
    configured: Iterable[Root], opened: Mapping[str, OpenRoot], known: Sequence[Record]
) -> list[dict[str, Any]]:
    """Return what each configured root holds, and which of its files are not read as they are."""
    return [_root(root, opened.get(root.path), known) for root in configured]


def _root(root: Root, opened: OpenRoot | None, known: Sequence[Record]) -> dict[str, Any]:
    mine = [record for record in known if opened is not None and record.root == opened.path]
    return {
        "path": root.path,
        "source": root.source,
        "format": root.format,
        "exists": opened is not None,
        "files": sum(bool(record.agent) for record in mine),
        "documents": sum(record.documents for record in mine),
        "bytes": sum(r.checkpoint.stamp.size for r in mine if r.checkpoint),
        "problems": _listed(f"{r.path}: {r.problem}" for r in mine if r.problem),
    }


def agents(known: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Return files, documents, and what was left out by record type, for each agent."""
    counts: dict[str, dict[str, Any]] = {}
    for record in known:
        if record.agent:
            row = counts.setdefault(record.agent, {"files": 0, "documents": 0, "left_out": {}})
            row["files"] += 1
            row["documents"] += record.documents
            for what, times in record.state.skipped.items():
                row["left_out"][what] = row["left_out"].get(what, 0) + times
    return dict(sorted(counts.items()))


def problems(known: Iterable[Record], unreadable: Mapping[str, str]) -> list[str]:
    """Return a sentence for each file that cannot be read, or holds damaged lines."""
    found = [f"{path}: {reason}" for path, reason in sorted(unreadable.items())]
    for record in known:
        damaged = sum(record.state.skipped.get(what, 0) for what in DAMAGE)
        if damaged:
            lines = f"{damaged} damaged lines" if damaged > 1 else "1 damaged line"
            found.append(f"{record.path}: {lines}, the others are indexed")
    return _listed(found)


def _listed(sentences: Iterable[str]) -> list[str]:
    found = list(sentences)
    if len(found) > MAX_PROBLEMS:
        found = [*found[:MAX_PROBLEMS], f"and {len(found) - MAX_PROBLEMS} more"]
    return found


def rss_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def directory_bytes(path: str) -> int:
    """Return what the files below a directory take on disk."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                continue
    return total
