"""What a sweep tells apart by stat alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from indexd import finding
from indexd.confine import RootDirectory
from indexd.finding import OpenRoot
from indexd.model import SessionState
from indexd.records import Record
from indexd.roots import Root
from indexd.tail import examine


@pytest.fixture
def root(tmp_path: Path) -> Iterator[OpenRoot]:
    with RootDirectory(str(tmp_path)) as directory:
        yield OpenRoot(Root(str(tmp_path)), directory)


def write(directory: Path, *names: str) -> None:
    for name in names:
        (directory / f"{name}.jsonl").write_text("{}\n")


def known(root: OpenRoot) -> dict[str, Record]:
    """Return the records of the sessions as they are now."""
    records = {}
    for found in finding.sweep([root]):
        path = found.candidate.path
        with open(path, "rb") as file:
            checkpoint = examine(file.fileno(), None).checkpoint()
        records[path] = Record(
            1, path, path, root.path, "global", "generic",
            msgspec.structs.replace(checkpoint, stamp=found.stamp), SessionState(),
        )  # fmt: skip
    return records


def differing(root: OpenRoot, records: dict[str, Record]) -> set[str]:
    return {
        Path(found.candidate.path).stem
        for found in finding.sweep([root])
        if found.differs(records.get(found.candidate.path))
    }


def test_resting_files_differ_in_nothing(root: OpenRoot, tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    assert differing(root, known(root)) == set()


def test_what_grew_came_or_was_replaced_differs_whatever_its_times_say(
    root: OpenRoot, tmp_path: Path
) -> None:
    write(tmp_path, "grown", "replaced", "set_back", "resting")
    records = known(root)
    write(tmp_path, "come")
    with open(tmp_path / "grown.jsonl", "a") as file:
        file.write("{}\n")
    for name in ("replaced", "set_back"):
        path = tmp_path / f"{name}.jsonl"
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        written = tmp_path / f"{name}.tmp" if name == "replaced" else path
        with open(written, "w") as file:
            file.write("[]\n")
        os.utime(written, ns=times)
        os.rename(written, path)

    assert differing(root, records) == {"grown", "come", "replaced", "set_back"}


def test_links_and_pipes_are_no_sessions(root: OpenRoot, tmp_path: Path) -> None:
    write(tmp_path, "a")
    os.symlink(tmp_path / "a.jsonl", tmp_path / "link.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert differing(root, {}) == {"a"}
