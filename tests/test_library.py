"""The library: every table leads to exactly the records that are known."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from indexd.library import Library
from indexd.model import SessionState
from indexd.records import Record
from indexd.tail import Checkpoint, Stamp

PATHS = ["/r/a", "/r/b", "/r/sub/a", "/r/sub/deep/c", "/rr/a", "/a"]
DIRECTORIES = ["/", "/r", "/r/", "/r/sub", "/rr", "/none", "/r/su"]
DATA = ["/r/a.events", "/r/shared"]


def record(path: str, file_id: int, data_path: str = "", inode: int | None = None) -> Record:
    checkpoint = None
    if inode is not None:
        stamp = Stamp(device=1, inode=inode, size=0, mtime_ns=0, ctime_ns=0)
        checkpoint = Checkpoint(stamp, 0, 0, b"", b"", False)
    return Record(file_id, path, data_path or path, "/r", "global", "x", checkpoint, SessionState())


records = st.builds(
    record,
    st.sampled_from(PATHS),
    st.integers(1, 50),
    st.sampled_from(["", *DATA]),
    st.none() | st.integers(1, 3),
)
steps = st.lists(records | st.sampled_from(PATHS), max_size=25)


def ids(found: list[Record]) -> list[int]:
    return sorted(each.file_id for each in found)


def inode_of(known: Record) -> tuple[int, int] | None:
    stamp = known.checkpoint and known.checkpoint.stamp
    return (stamp.device, stamp.inode) if stamp else None


def agree(library: Library, model: dict[str, Record]) -> None:
    """Compare every question with the answer of a plain dictionary."""
    known = list(model.values())
    assert len(library) == len(model)
    assert {each.path: each for each in library} == model
    for path in (*PATHS, *DATA, "/none"):
        assert library.get(path) == model.get(path)
        assert ids(library.with_data(path)) == ids([r for r in known if r.data_path == path])
    for inode in range(5):
        wanted = [r for r in known if inode_of(r) == (1, inode)]
        assert ids(library.with_inode(1, inode)) == ids(wanted)
        assert library.with_inode(2, inode) == []
    for directory in DIRECTORIES:
        here = [r for r in known if os.path.dirname(r.path) == directory]
        assert ids(library.in_directory(directory)) == ids(here)
        below = [r for r in known if r.path.startswith(directory.rstrip("/") + "/")]
        assert ids(library.below(directory)) == ids(below)


@settings(max_examples=150)
@given(steps)
def test_any_records_that_come_and_go_leave_what_a_dictionary_holds(
    steps: list[Record | str],
) -> None:
    library, model = Library(), dict[str, Record]()
    used = 0
    for step in steps:
        if isinstance(step, Record):
            library.put(step)
            model[step.path] = step
            used = max(used, step.file_id)
        else:
            assert library.remove(step) == model.pop(step, None)
        agree(library, model)
    assert library.new_file_id() > used


def test_a_renamed_session_is_found_by_its_inode_until_it_is_put_in_its_new_place() -> None:
    library = Library()
    library.put(record("/r/a", 1, inode=7))
    assert ids(library.with_inode(1, 7)) == [1]
    library.remove("/r/a")
    library.put(record("/r/b", 1, inode=7))
    assert [each.path for each in library.with_inode(1, 7)] == ["/r/b"]
    assert library.with_data("/r/a") == []


def test_hard_linked_sessions_share_an_inode_and_outlive_each_other() -> None:
    library = Library()
    library.put(record("/r/a", 1, inode=7))
    library.put(record("/r/b", 2, inode=7))
    assert ids(library.with_inode(1, 7)) == [1, 2]
    library.remove("/r/b")
    assert ids(library.with_inode(1, 7)) == [1]


def test_a_file_id_is_never_given_twice() -> None:
    library = Library()
    first = library.new_file_id()
    library.put(record("/r/a", first + 10))
    library.remove("/r/a")
    assert library.new_file_id() == first + 11
    library.never_again([100, 3])
    library.never_again([])
    assert library.new_file_id() == 101


def test_records_may_change_while_they_are_walked() -> None:
    library = Library()
    for number, path in enumerate(PATHS):
        library.put(record(path, number + 1))
    for each in library:
        library.remove(each.path)
    assert len(library) == 0
