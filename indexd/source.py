"""Where the bytes of a segment are read from: a file that stays open, or memory."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class DamagedSegment(Exception):
    """Raised when bytes are not a whole segment of this version."""


@contextmanager
def misfits_are_damage() -> Iterator[None]:
    """Turn whatever is raised by bytes that do not mean what they should into DamagedSegment."""
    try:
        yield
    except (zlib.error, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise DamagedSegment(f"not a whole segment: {error!r}") from error


class Source(Protocol):
    """Bytes that can be read from anywhere in them."""

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Return `size` bytes from `offset`. Raises DamagedSegment where there are fewer."""


class OpenFile:
    """A descriptor that is closed when the last array that reads from it goes."""

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._stamp = self._now()

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`.

        Raises DamagedSegment where the file is shorter, or cannot be read.
        """
        try:
            data = os.pread(self._descriptor, size, offset)
            while len(data) < size:
                piece = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not piece:
                    raise DamagedSegment("the base file is cut short")
                data += piece
        except OSError as error:
            raise DamagedSegment(f"the base file cannot be read: {error.strerror}") from error
        return data

    def unchanged(self) -> bool:
        """Say whether nobody has written to the file, or cut it, since it was opened."""
        return self._now() == self._stamp

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Memory:
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read(self, offset: int, size: int) -> memoryview:
        """Return `size` bytes from `offset`. Raises DamagedSegment where there are fewer."""
        if offset + size > len(self._data):
            raise DamagedSegment("the segment is cut short")
        return self._data[offset : offset + size]


class Section:
    """A stretch of a source, as a source."""

    def __init__(self, source: Source, offset: int) -> None:
        self._source, self._offset = source, offset

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Return `size` bytes from `offset`. Raises DamagedSegment where there are fewer."""
        return self._source.read(self._offset + offset, size)
