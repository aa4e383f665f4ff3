"""How the daemon is, from facts: what it knows, what it could not read, what it costs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from indexd.finding import OpenRoot
from indexd.records import Record

# More problems than this are counted, not listed.
MAX_PROBLEMS = 200


def roots(
    configured: Iterable[tuple[str, str, str]], opened: Mapping[str, OpenRoot], known: list[Record]
) -> list[dict[str, Any]]:
    """Return what each configured root (path, source, format) holds."""
    rows = []
    for path, source, form in configured:
        root = opened.get(path)
        mine = [record for record in known if root is not None and record.root == root.path]
        rows.append(
            {
                "path": path,
                "source": source,
                "format": form,
                "exists": root is not None,
                "files": sum(bool(record.agent) for record in mine),
                "documents": sum(record.documents for record in mine),
                "bytes": sum(r.checkpoint.stamp.size for r in mine if r.checkpoint),
                "problems": sum(bool(record.problem) for record in mine),
            }
        )
    return rows


def agents(known: Iterable[Record]) -> dict[str, dict[str, int]]:
    """Return files and documents by agent."""
    counts: dict[str, dict[str, int]] = {}
    for record in known:
        if record.agent:
            row = counts.setdefault(record.agent, {"files": 0, "documents": 0})
            row["files"] += 1
            row["documents"] += record.documents
    return dict(sorted(counts.items()))


def problems(known: Iterable[Record], unreadable: Mapping[str, str]) -> list[str]:
    """Return a sentence for each file that is not read as it should be."""
    found = [f"{path}: {reason}" for path, reason in sorted(unreadable.items())]
    found += [f"{r.path}: {r.problem}" for r in known if r.problem]
    skipped: dict[tuple[str, str], int] = {}
    for record in known:
        for what, times in record.state.skipped.items():
            key = (record.agent, what)
            skipped[key] = skipped.get(key, 0) + times
    found += [
        f"{agent}: {times} records left out: {what}"
        for (agent, what), times in sorted(skipped.items())
    ]
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


def sandbox() -> dict[str, bool]:
    """Return what this process may not do, as it finds out by trying: nothing is taken on trust."""
    return {
        "home_read_only": not os.access(os.path.expanduser("~"), os.W_OK),
        "network_blocked": not _may_open_socket(),
    }


def _may_open_socket() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True
