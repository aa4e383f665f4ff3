"""Which bytes of a session file are new, and whether the old ones still stand.

A Checkpoint says how far a file was read and carries the proof of it: the stamp the file had
(device, inode, size, times), a print of its first bytes and of those before the offset, and the
CRC of every byte before the offset. CRC-32 is used because it can be continued from a stored
value (a hashlib state cannot be stored), so that an append pays for the appended bytes alone;
a change slips past it once in 2**32, and only where the stamp had raised doubt to begin with.

What a look costs, and which histories it sees (measured at 2.3 GB/s for the CRC):

* same stamp: one fstat, and four bytes read;
* same inode, grown, offset over 1 MiB: two prints, 1.3 KiB read. Sees appends, truncation and
  regrowth, a new head, and any edit that moves the bytes before the offset. A large file that
  has shrunk below the offset is known by its tail print alone;
* all else (a file up to 1 MiB, a new inode, the same size with other times, a smaller size):
  every byte up to the offset, 0.5 ms per MiB. Sees every difference. A new inode with the old
  bytes is the same content (agents that save to a temporary file and rename it), and so is a
  compressed file of the old bytes (agents that compress what rests). Compressed files are
  always compared in full.

Two histories leave a doubt that a look does not pay to settle at once: bytes changed in the
middle of a large file that also grew since the last look (in place, or by a new file that was
given the old one's inode number), and bytes changed within one step of the file system's clock
after it (from Linux 6.13 on the common file systems have no such step).
Then the checkpoint is not `proven`, and one `thorough` look, once the file rests, reads every
byte and closes both. The change time is part of the stamp since a program can set a file's
modification time back, but not its change time.

Not seen: writes through a memory map to a page that was already dirty at the last look and
that alter no size; the kernel gives them no time of their own.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple, Self

import msgspec

from indexd import datafile
from indexd.datafile import DataFile

# What is kept of one line; longer ones are skipped. Session lines of 2 MB are normal, tens of
# MB have been reported.
MAX_LINE_BYTES = 16 * 1024 * 1024
# Up to here reading everything again costs less than indexing one line.
SMALL_BYTES = 1024 * 1024
HEAD_BYTES = 1024
TAIL_BYTES = 256

# How long a file system may give two changes the same time: a kernel tick is 10 ms at most;
# FAT counts in steps of two seconds, and its times are whole seconds.
CLOCK_STEP_NS = 50_000_000
COARSE_CLOCK_STEP_NS = 2_000_000_000


class Stamp(NamedTuple):
    """What stat tells about a file's content; equal stamps mean an equal file, but for a doubt
    of one clock step (see the module's text). Times are in nanoseconds."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp in a stat result."""
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )

    def settled(self, now_ns: int) -> bool:
        """Say whether any later change would have to give the file another stamp."""
        whole_seconds = self.ctime_ns % 1_000_000_000 == 0
        step = COARSE_CLOCK_STEP_NS if whole_seconds else CLOCK_STEP_NS
        return now_ns - self.ctime_ns > step


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """How far a file was read, and the proof; msgpack-able by msgspec.

    stamp: the file's, taken before its bytes were read.
    offset: bytes read, as they are uncompressed; 0, or just behind a newline.
    crc: CRC-32 of the bytes before `offset`.
    head: digest of the first min(1024, offset) bytes.
    tail: digest of the last min(256, offset) bytes before `offset`.
    proven: no doubt is left that an equal stamp means equal bytes.
    """

    stamp: Stamp
    offset: int
    crc: int
    head: bytes
    tail: bytes
    proven: bool


class Verdict(StrEnum):
    """What became of the content that a checkpoint covers."""

    UNCHANGED = "unchanged"  # it stands, and nothing was added
    APPENDED = "appended"  # it stands, and there are bytes behind it
    REPLACED = "replaced"  # it is gone, or was never read: begin at 0


class Line(NamedTuple):
    """One complete line: where it begins, its bytes with the newline, its data without.

    A line over 16 MiB is `skipped`: its data is empty.
    """

    offset: int
    length: int
    data: bytes

    @property
    def skipped(self) -> bool:
        """Say whether the line was too long to be kept."""
        return not self.data and self.length > 1


class Look:
    """One look at an open file: the verdict, the new lines, the next checkpoint.

    offset: bytes covered so far; `lines` moves it behind each line it hands out.
    """

    __slots__ = ("_data", "_finished", "_known", "_mark", "offset", "proven", "stamp", "verdict")

    def __init__(
        self, data: DataFile, stamp: Stamp, verdict: Verdict, known: Checkpoint | None, proven: bool
    ) -> None:
        self._data = data
        self._known = known if verdict is not Verdict.REPLACED else None
        self.stamp = stamp
        self.verdict = verdict
        self.proven = proven
        self.offset = self._known.offset if self._known else 0
        # A place at or before `offset`, the CRC up to it, and the bytes that follow it.
        self._mark = (self.offset, self._known.crc if self._known else 0, b"")
        self._finished = verdict is Verdict.UNCHANGED

    @property
    def size(self) -> int | None:
        """Return how many bytes the look covers in all; None where only reading them tells."""
        return self._data.size

    @property
    def damage(self) -> str:
        """Return why bytes behind the last line could not be read, if so; known after `lines`."""
        return self._data.damage

    def lines(self) -> Iterator[Line]:
        """Yield the complete lines behind the checkpoint, up to the size the look found.

        An unfinished last line is left for another look. Memory is bounded by two lines of
        16 MiB, whatever the file holds. Raises OSError when reading fails.
        """
        if self.verdict is Verdict.UNCHANGED:
            return
        crc = self._mark[1]
        held: list[bytes] = []  # the line whose newline has not come yet
        for start, piece in self._data.pieces(self.offset, self.size):
            *parts, rest = piece.split(b"\n")
            if parts:
                self._mark = (start, crc, piece)
                begin, end = self.offset, start
                for part in parts:
                    end += len(part) + 1
                    self.offset = end
                    data = _joined(held, part, end - begin) if held else part
                    yield Line(begin, end - begin, data)
                    begin = end
                crc = self._crc()
                self._mark = (end, crc, b"")
            crc = zlib.crc32(rest, crc)
            if rest and start + len(piece) - self.offset <= MAX_LINE_BYTES:
                held.append(rest)
        self._finished = True

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint that covers every line handed out so far."""
        # Who stops early must come back: as if the file had ended there and grew since.
        stamp = self.stamp if self._finished else self.stamp._replace(size=self.offset)
        if self._known and self._known.offset == self.offset:
            return msgspec.structs.replace(self._known, stamp=stamp, proven=self.proven)
        return Checkpoint(
            stamp=stamp,
            offset=self.offset,
            crc=self._crc(),
            head=_head(self._data, self.offset),
            tail=_tail(self._data, self.offset),
            proven=self.proven,
        )

    def _crc(self) -> int:
        start, crc, piece = self._mark
        return zlib.crc32(memoryview(piece)[: self.offset - start], crc)


def examine(fd: int, known: Checkpoint | None, *, thorough: bool = False) -> Look:
    """Return a look at the open regular file `fd`, of which `known` is remembered.

    `thorough` asks to settle what is not proven yet, at the price of reading every known byte;
    it is for a file whose stamp has rested for two seconds or more by the caller's own clock.
    Raises OSError when reading fails.
    """
    stamp = Stamp.of(os.fstat(fd))
    data = datafile.opened(fd, stamp.size)
    settled = stamp.settled(time.time_ns())
    if known is None:
        return Look(data, stamp, Verdict.REPLACED, known, settled)
    if stamp == known.stamp and (known.proven or not thorough):
        return Look(data, stamp, Verdict.UNCHANGED, known, known.proven)
    by_prints = data.size is not None and known.offset > SMALL_BYTES and _grew(known.stamp, stamp)
    in_full = thorough or not by_prints
    if not _stands(data, known, in_full):
        return Look(data, stamp, Verdict.REPLACED, known, settled)
    grown = data.size is None or data.size > known.offset
    verdict = Verdict.APPENDED if grown else Verdict.UNCHANGED
    rested = thorough and stamp == known.stamp
    return Look(data, stamp, verdict, known, in_full and (settled or rested))


def _grew(old: Stamp, new: Stamp) -> bool:
    """Say whether an append alone explains the new stamp."""
    return (old.device, old.inode) == (new.device, new.inode) and new.size > old.size


def _stands(data: DataFile, known: Checkpoint, in_full: bool) -> bool:
    """Say whether the bytes that `known` covers are still there, by prints or in full."""
    return (
        _tail(data, known.offset) == known.tail
        and _head(data, known.offset) == known.head
        and (not in_full or _crc_until(data, known.offset) == known.crc)
    )


def _crc_until(data: DataFile, end: int) -> int:
    crc = 0
    for _, piece in data.pieces(0, end):
        crc = zlib.crc32(piece, crc)
    return crc


def _head(data: DataFile, offset: int) -> bytes:
    return _digest(datafile.read(data, 0, min(HEAD_BYTES, offset)))


def _tail(data: DataFile, offset: int) -> bytes:
    length = min(TAIL_BYTES, offset)
    return _digest(datafile.read(data, offset - length, length))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _joined(held: list[bytes], part: bytes, length: int) -> bytes:
    """Return the line of `length` bytes that ends with `part`; empty if it is too long."""
    data = b"".join((*held, part)) if length <= MAX_LINE_BYTES else b""
    held.clear()
    return data
