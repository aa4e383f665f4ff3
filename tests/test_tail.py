"""Tailing: after any history of a file, the lines known are the lines it holds."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from indexd import datafile, tail
from indexd.tail import Checkpoint, Line, Look, Verdict

KIB = 1024
MIB = 1024 * KIB


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


def complete_lines(data: bytes) -> list[tuple[int, bytes]]:
    """Return (offset, data) of each line that ends: what a reader from scratch must find."""
    found, offset = [], 0
    for line in data.split(b"\n")[:-1]:
        found.append((offset, line))
        offset += len(line) + 1
    return found


class Follower:
    """A caller as the indexer is: it remembers lines and a checkpoint, nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[tuple[int, bytes]] = []
        self.checkpoint: Checkpoint | None = None

    def look(self, *, thorough: bool = False) -> Look:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            look = tail.examine(fd, self.checkpoint, thorough=thorough)
            if look.verdict is Verdict.REPLACED:
                self.lines.clear()
            self.lines += [(line.offset, line.data) for line in look.lines()]
            self.checkpoint = look.checkpoint()
            return look
        finally:
            os.close(fd)

    def is_right(self) -> bool:
        return self.lines == complete_lines(self.path.read_bytes())


# --- any history -----------------------------------------------------------------------------

contents = st.binary(max_size=60)
places = st.floats(0, 1)


class Histories(RuleBasedStateMachine):
    """Whatever is done to the file between two looks, what is known stays what it holds."""

    base = b""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "session.jsonl"
        self.follower = Follower(self.path)
        self.edited = False

    def teardown(self) -> None:
        self.rest()
        self.directory.cleanup()

    @initialize(data=contents)
    def create(self, data: bytes) -> None:
        self.path.write_bytes(self.base + data)

    def place(self, where: float) -> int:
        return int(where * self.path.stat().st_size)

    def write_at(self, offset: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def replace(self, data: bytes) -> None:
        other = self.path.with_suffix(".tmp")
        other.write_bytes(data)
        other.rename(self.path)

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    @rule(data=contents)
    def append_a_line(self, data: bytes) -> None:
        self.append(data + b"\n")

    @rule(data=contents)
    def append_half_a_line(self, data: bytes) -> None:
        self.append(data.replace(b"\n", b""))

    @rule()
    def finish_the_line(self) -> None:
        self.append(b"\n")

    @rule(where=places)
    def truncate(self, where: float) -> None:
        os.truncate(self.path, self.place(where))
        self.edited = True

    @rule(where=places, data=contents)
    def rewrite_in_place(self, where: float, data: bytes) -> None:
        offset = self.place(where)
        self.write_at(offset, data[: self.path.stat().st_size - offset])
        self.edited = True

    @rule(where=places, data=contents)
    def rewrite_in_place_and_set_the_time_back(self, where: float, data: bytes) -> None:
        before = self.path.stat()
        self.rewrite_in_place(where, data)
        os.utime(self.path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @rule(where=places, data=contents, more=contents)
    def rewrite_larger(self, where: float, data: bytes, more: bytes) -> None:
        self.rewrite_in_place(where, data)
        self.append(more)

    @rule(data=contents)
    def truncate_and_regrow(self, data: bytes) -> None:
        self.path.write_bytes(self.base + data * 3)
        self.edited = True

    @rule(more=contents)
    def rename_over_with_the_same_prefix(self, more: bytes) -> None:
        self.replace(self.path.read_bytes() + more)

    @rule(where=places, data=contents)
    def rename_over_with_other_content(self, where: float, data: bytes) -> None:
        old, offset = self.path.read_bytes(), self.place(where)
        self.replace(old[:offset] + data + old[offset + len(data) :])
        self.edited = True

    @rule(data=contents)
    def delete_and_recreate(self, data: bytes) -> None:
        self.path.unlink()
        self.path.write_bytes(self.base + data)
        self.edited = True

    @rule(where=places, length=st.integers(1, 100))
    def punch_a_hole(self, where: float, length: int) -> None:
        punch_hole(self.path, self.place(where), length)
        self.edited = True

    @rule()
    def touch(self) -> None:
        os.utime(self.path)

    @rule()
    def look(self) -> None:
        before = self.follower.checkpoint
        look = self.follower.look()
        if before is None or self.must_be_seen(before, look):
            assert self.follower.is_right()
        self.edited = self.edited and not self.follower.is_right()

    def must_be_seen(self, before: Checkpoint, look: Look) -> bool:
        old, new = before.stamp, look.stamp
        if old == new:
            return not self.edited
        # Two renames between looks may bring the first inode's number back, hence no "renamed".
        grew = (old.device, old.inode) == (new.device, new.inode) and new.size > old.size
        return not (self.edited and grew and before.offset > tail.SMALL_BYTES)

    @rule()
    def rest(self) -> None:
        self.follower.look(thorough=True)
        assert self.follower.is_right()
        self.edited = False
        self.doubt_unless_settled()

    def doubt_unless_settled(self) -> None:
        """A caller asks for a thorough look after seconds of rest; here there was none."""
        known = self.follower.checkpoint
        assert known is not None
        if not known.stamp.settled(time.time_ns()):
            self.follower.checkpoint = msgspec.structs.replace(known, proven=False)

    @invariant()
    def the_checkpoint_survives_storing(self) -> None:
        known = self.follower.checkpoint
        if known is not None:
            stored = msgspec.msgpack.encode(known)
            assert msgspec.msgpack.decode(stored, type=Checkpoint) == known


class LargeHistories(Histories):
    """The same where a look does not read the known bytes again."""

    base = b"".join(bytes([65 + n]) * (64 * KIB) + b"\n" for n in range(17))


def punch_hole(path: Path, offset: int, length: int) -> None:
    """Free the blocks of a range, which then reads as zeros; the size stays."""
    keep_size_and_punch = 3
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file:
        failed = libc.fallocate(
            file.fileno(), keep_size_and_punch, ctypes.c_long(offset), ctypes.c_long(length)
        )
    if failed:
        pytest.skip(f"no hole punching here: {os.strerror(ctypes.get_errno())}")


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestLargeHistories = LargeHistories.TestCase
TestLargeHistories.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)


# --- verdicts --------------------------------------------------------------------------------


def big(middle: bytes = b"m") -> bytes:
    """Return 2 MiB of lines, of which one in the middle can be chosen."""
    line = b"x" * 1023 + b"\n"
    return line * KIB + middle * 1023 + b"\n" + line * KIB


@pytest.fixture
def follower(path: Path) -> Follower:
    path.write_bytes(big())
    follower = Follower(path)
    follower.look()
    return follower


def replace(path: Path, data: bytes) -> None:
    path.with_suffix(".tmp").write_bytes(data)
    path.with_suffix(".tmp").rename(path)


def test_a_file_never_seen_is_read_from_its_start(path: Path) -> None:
    path.write_bytes(b"one\ntwo\nthr")
    follower = Follower(path)
    assert follower.look().verdict == "replaced"
    assert follower.lines == [(0, b"one"), (4, b"two")]


def test_a_second_look_at_a_resting_file_finds_nothing(path: Path) -> None:
    path.write_bytes(b"one\ntw")
    follower = Follower(path)
    follower.look()
    known = follower.checkpoint
    assert follower.look().verdict == "unchanged"
    assert follower.checkpoint == known


def test_an_unfinished_last_line_waits_for_its_newline(path: Path) -> None:
    path.write_bytes(b"one\ntw")
    follower = Follower(path)
    follower.look()
    with path.open("ab") as file:
        file.write(b"o\n")
    assert follower.look().verdict == "appended"
    assert follower.lines == [(0, b"one"), (4, b"two")]


def test_saving_by_rename_goes_on_where_the_old_file_ended(follower: Follower) -> None:
    replace(follower.path, big() + b"more\n")
    assert follower.look().verdict == "appended"
    replace(follower.path, big() + b"more\n")
    assert follower.look().verdict == "unchanged"
    assert follower.is_right()


def test_saving_by_rename_with_another_middle_is_another_content(follower: Follower) -> None:
    replace(follower.path, big(b"n") + b"more\n")
    assert follower.look().verdict == "replaced"
    assert follower.is_right()


def test_an_edit_of_equal_length_in_the_middle_is_seen(follower: Follower) -> None:
    with follower.path.open("r+b") as file:
        file.seek(MIB + 100)
        file.write(b"edited")
    assert follower.look().verdict == "replaced"
    assert follower.is_right()


def test_setting_the_modification_time_back_hides_no_edit(follower: Follower) -> None:
    before = follower.path.stat()
    with follower.path.open("r+b") as file:
        file.seek(MIB + 100)
        file.write(b"edited")
    os.utime(follower.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert follower.look().verdict == "replaced"


def test_an_edit_hidden_by_growth_is_found_once_the_file_rests(follower: Follower) -> None:
    with follower.path.open("r+b") as file:
        file.seek(MIB + 100)
        file.write(b"edited")
        file.seek(0, os.SEEK_END)
        file.write(b"more\n")
    follower.look()
    assert follower.checkpoint is not None
    assert not follower.checkpoint.proven
    assert follower.look(thorough=True).verdict == "replaced"
    assert follower.is_right()


@pytest.mark.parametrize("offset", [0, 1000, 2 * MIB + 1000])
def test_another_head_or_tail_of_a_grown_file_is_seen_at_once(
    follower: Follower, offset: int
) -> None:
    with follower.path.open("r+b") as file:
        file.seek(offset)
        file.write(b"edited")
        file.seek(0, os.SEEK_END)
        file.write(b"more\n")
    assert follower.look().verdict == "replaced"
    assert follower.is_right()


def test_a_file_at_rest_for_long_is_proven_at_its_first_look() -> None:
    follower = Follower(Path(os.__file__))
    follower.look()
    assert follower.checkpoint is not None
    assert follower.checkpoint.proven
    other_inode = follower.checkpoint.stamp._replace(inode=0)
    follower.checkpoint = msgspec.structs.replace(follower.checkpoint, stamp=other_inode)
    assert follower.look().verdict == "unchanged"
    assert follower.checkpoint.proven


def test_what_has_been_proven_is_not_read_again(follower: Follower) -> None:
    with follower.path.open("ab") as file:
        file.write(b"more\n")
    follower.look()
    follower.look(thorough=True)
    assert follower.checkpoint is not None
    assert follower.checkpoint.proven
    before = bytes_read()
    assert follower.look(thorough=True).verdict == "unchanged"
    assert bytes_read() - before < 4 * KIB


def test_truncation_and_regrowth_beyond_the_old_size_is_seen(path: Path) -> None:
    path.write_bytes(b"first line\nsecond line\nx\n")
    follower = Follower(path)
    follower.look()
    path.write_bytes(b"first line\n" + b"other lines that reach further than the old ones\n" * 2)
    assert follower.look().verdict == "replaced"
    assert follower.is_right()


def test_a_mode_change_or_a_hard_link_is_no_new_content(follower: Follower) -> None:
    follower.path.chmod(0o600)
    os.link(follower.path, follower.path.with_name("backup"))
    assert follower.look().verdict == "unchanged"
    assert follower.checkpoint is not None
    assert follower.checkpoint.stamp == tail.Stamp.of(follower.path.stat())


def test_a_file_cut_while_it_is_read_ends_early_and_is_read_again(path: Path) -> None:
    path.write_bytes(big())
    follower = Follower(path)
    with path.open("rb") as file:
        look = tail.examine(file.fileno(), None)
        lines = look.lines()
        next(lines)
        os.truncate(path, 10 * KIB)
        seen = 1 + sum(1 for _ in lines)
        follower.checkpoint = look.checkpoint()
    assert seen <= datafile.PIECE_BYTES // KIB
    assert follower.look().verdict == "replaced"
    assert follower.is_right()


def test_a_stamp_is_settled_once_the_clock_has_moved_on() -> None:
    fine = tail.Stamp(1, 1, 1, 0, 5_000_000_001)
    coarse = fine._replace(ctime_ns=5_000_000_000)
    assert not fine.settled(5_010_000_000)
    assert fine.settled(5_100_000_000)
    assert not coarse.settled(6_900_000_000)
    assert coarse.settled(7_100_000_000)
    assert not fine.settled(1_000_000_000)


# --- cost ------------------------------------------------------------------------------------


def bytes_read() -> int:
    """Return how many bytes this thread has read so far, from whatever it was."""
    counters = Path("/proc/thread-self/io").read_text()
    return int(counters.split("rchar: ")[1].split()[0])


def test_an_append_to_a_large_file_reads_little_more_than_the_append(follower: Follower) -> None:
    with follower.path.open("ab") as file:
        file.write(b"more\n")
    before = bytes_read()
    assert follower.look().verdict == "appended"
    assert bytes_read() - before < 8 * KIB
    assert follower.is_right()


ONE_LONG_LINE = """
import os, resource, sys
from indexd import tail
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
look = tail.examine(os.open(sys.argv[1], os.O_RDONLY), None)
found = [(line.length, line.data, line.skipped) for line in look.lines()]
print(found, peak() - before < 64)
"""


def test_a_line_of_a_gibibyte_is_skipped_in_little_memory(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(KIB * MIB)
        file.seek(0, os.SEEK_END)
        file.write(b"\nnext\n")
    command = [sys.executable, "-c", ONE_LONG_LINE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path.unlink()
    assert done.stdout.strip() == f"[({KIB * MIB + 1}, b'', True), (5, b'next', False)] True"


# --- lines -----------------------------------------------------------------------------------


def lines_of(path: Path) -> list[Line]:
    with path.open("rb") as file:
        return list(tail.examine(file.fileno(), None).lines())


@pytest.mark.parametrize("excess", [0, 1])
def test_a_line_is_kept_up_to_the_bound_and_no_further(path: Path, excess: int) -> None:
    length = tail.MAX_LINE_BYTES + excess
    path.write_bytes(b"a\n" + b"y" * (length - 1) + b"\nb\n")
    kept = b"" if excess else b"y" * (length - 1)
    assert lines_of(path) == [Line(0, 2, b"a"), Line(2, length, kept), Line(2 + length, 2, b"b")]
    assert [line.skipped for line in lines_of(path)] == [False, bool(excess), False]


def test_only_the_newline_byte_ends_a_line_and_nothing_is_stripped(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf a\r\n\n\0\0b\x0b\x0c\x1c\xc2\x85\xe2\x80\xa8\xff \n")
    assert [line.data for line in lines_of(path)] == [
        b"\xef\xbb\xbf a\r",
        b"",
        b"\0\0b\x0b\x0c\x1c\xc2\x85\xe2\x80\xa8\xff ",
    ]


def runs() -> Iterator[st.SearchStrategy[bytes]]:
    """Bytes with lines from none to several pieces long."""
    yield st.binary(max_size=20)
    yield st.builds(bytes.__mul__, st.sampled_from([b"x", b"\n", b"ab\n"]), st.integers(1, 200_000))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=st.lists(st.one_of(*runs()), max_size=6), stop=st.integers(0, 300_000))
def test_a_reading_stopped_at_any_line_goes_on_from_its_checkpoint(
    parts: list[bytes], stop: int, path: Path
) -> None:
    path.write_bytes(b"".join(parts))
    with path.open("rb") as file:
        first = tail.examine(file.fileno(), None)
        lines = list(islice(first.lines(), stop))
        lines += tail.examine(file.fileno(), first.checkpoint()).lines()
    assert [(line.offset, line.data) for line in lines] == complete_lines(path.read_bytes())
    assert all(line.length == len(line.data) + 1 for line in lines)
