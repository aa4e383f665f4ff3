"""The bytes of a session as its agent wrote them, whether the file that holds them is compressed.

Agents compress sessions that rest (Codex), or write them so, frame by frame (DeepSeek Harness).
Offsets are those of the plain bytes, so all that was learnt from a session stands when its file
is compressed. There is no seeking in a compressed file: whatever is wanted of it, it is read
from its start, at half a GB of plain bytes a second, and never is more than a few MiB held.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

# Stays in the second-level cache, where splitting and the CRC find it again: 820 MB/s against
# 700 with pieces of 256 KiB to 1 MiB, on lines of 2.4 KB as real sessions have them.
PIECE_BYTES = 128 * 1024

_MAGIC = b"\x28\xb5\x2f\xfd"
# A file may begin with a frame that says nothing: 16 magics are set aside for such.
_SKIPPABLE = b"\x2a\x4d\x18"
# How much is given to the decoder at once. A frame's block has at least 4 bytes and at most
# 128 KiB of content, so no step makes more than 8 MiB; and what a step made is lost if there is
# damage in it, so small steps save the lines before the damage.
STEP_BYTES = 256
# A window is memory that the file asks us for; what common levels ask is 8 MiB at most.
MAX_WINDOW_LOG = 25
# Sessions shrink to a tenth, those of one repeated line to a thousandth. What would grow more,
# beyond what any machine can bear, is not read to its end.
MAX_EXPANSION = 1000
ALWAYS_ALLOWED_BYTES = 64 * 1024 * 1024


# Where bytes begin, and how many they are.
Span = tuple[int, int]


class DataFile(Protocol):
    """An open session file.

    size: bytes in it, None where only reading them all would tell.
    damage: why its last bytes could not be read, once that is known; else empty.
    """

    size: int | None
    damage: str

    def pieces(self, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) from `start` to `end`, or to where the file ends before it.

        Raises OSError when reading fails.
        """
        ...

    def spans(self, wanted: Sequence[Span]) -> Iterator[bytes]:
        """Yield the bytes of each span, which come in order and apart; fewer where they end.

        Raises OSError when reading fails.
        """
        ...


def opened(fd: int, size: int) -> DataFile:
    """Return the session file of `size` bytes behind `fd`; its first bytes decide what it is."""
    magic = os.pread(fd, len(_MAGIC), 0)
    if magic == _MAGIC or (magic[1:] == _SKIPPABLE and magic[0] >> 4 == 5):
        return _Compressed(fd, size)
    return _Plain(fd, size)


def read(data: DataFile, start: int, size: int) -> bytes:
    """Return the `size` bytes from `start`, or as many as there are."""
    return b"".join(piece for _, piece in data.pieces(start, start + size))


class _Plain:
    """A file that holds the bytes themselves."""

    damage = ""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self.size: int | None = size

    def pieces(self, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
        assert end is not None
        while start < end and (piece := os.pread(self._fd, min(PIECE_BYTES, end - start), start)):
            yield start, piece
            start += len(piece)

    def spans(self, wanted: Sequence[Span]) -> Iterator[bytes]:
        return (read(self, start, size) for start, size in wanted)


class _Compressed:
    """A file of Zstandard frames."""

    size: int | None = None

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._most = max(ALWAYS_ALLOWED_BYTES, size * MAX_EXPANSION)
        self.damage = ""

    def pieces(self, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
        at = 0
        for piece in self._unpacked():
            part = piece[max(0, start - at) : None if end is None else max(0, end - at)]
            if part:
                yield max(start, at), part
            at += len(piece)
            if end is not None and at >= end:
                return
            if at > self._most:
                self.damage = f"not read beyond {at} bytes: it expands {MAX_EXPANSION} times"
                return

    def spans(self, wanted: Sequence[Span]) -> Iterator[bytes]:
        """Yield them from one pass over the file."""
        at = wanted[0][0] if wanted else 0
        pieces = self.pieces(at, max((start + size for start, size in wanted), default=0))
        held = bytearray()
        for start, size in wanted:
            while at + len(held) < start + size and (piece := next(pieces, (0, b""))[1]):
                held += piece
                passed = min(len(held), start - at)
                del held[:passed]
                at += passed
            yield bytes(held[start - at : start - at + size])

    def _unpacked(self) -> Iterator[bytes]:
        """Yield all that can be decompressed."""
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        options = {int(zstd.DecompressionParameter.window_log_max): MAX_WINDOW_LOG}
        decoder = zstd.ZstdDecompressor(options=options)
        try:
            for step in self._steps():
                while step:
                    if decoder.eof:
                        decoder = zstd.ZstdDecompressor(options=options)
                    yield decoder.decompress(step)
                    step = decoder.unused_data
        except zstd.ZstdError as error:
            self.damage = f"its compressed data is damaged: {error}"
        else:
            self.damage = "" if decoder.eof else "its compressed data has no end yet"

    def _steps(self) -> Iterator[bytes]:
        at = 0
        while piece := os.pread(self._fd, PIECE_BYTES, at):
            at += len(piece)
            for begin in range(0, len(piece), STEP_BYTES):
                yield piece[begin : begin + STEP_BYTES]
