"""Segments as bytes: compact for a row of the cache, plain for the base file.

In a row every array takes the narrowest integers that hold it, ordinals are differences, hashes
are left out (they follow from the terms), and the whole is deflated. In the base file postings
stay as they are, so that a query reads just its slices with `pread`: a file cut short under us
is then an error, never a fault of the process.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, BinaryIO

import msgpack
import numpy as np

from indexd.segment import Array, Columns, Dictionary, Postings, Segment, assemble, term_hash

VERSION = 1
_RESIDENT = ("file", "message", "call", "length", "tool")
_DISTANT = ("digest", "timestamp", "offset", "size", "part")
_WIDTHS = {
    "file": "<u4", "message": "<u4", "call": "<u4", "length": "<u4", "tool": "<u4",
    "digest": "<u8", "timestamp": "<i8", "offset": "<u8", "size": "<u4", "part": "<u4",
}  # fmt: skip
_NARROW = ("<u1", "<u2", "<u4", "<u8")
_CODES = frozenset(np.dtype(code).str for code in (*_NARROW, "<i8"))
_MAGIC = b"indexd-base\x01"
# Up to so many elements of a column in a file are read one by one: a page of hits, say.
SINGLE_READS = 64
# Bounds what a damaged length can make us read; a header holds 12 bytes per file.
_MAX_HEADER_BYTES = 1 << 26


class DamagedSegment(Exception):
    """Raised when bytes are not a whole segment of this version."""


def encode(segment: Segment) -> bytes:
    """Return the compact form of a segment."""
    postings = segment.postings
    columns = segment.columns
    everything = np.arange(len(segment))
    arrays = [
        segment.file_ids,
        *(
            getattr(columns, name).take(everything)
            for name in (*_RESIDENT, "offset", "size", "part")
        ),
        _differences(postings),
        np.diff(postings.starts),
        postings.freqs[0 : int(postings.starts[-1])],
        postings.large_at,
        postings.large,
        np.diff(segment.dictionary.starts),
        segment.kind_starts,
    ]
    body = msgpack.packb(
        [
            VERSION,
            list(segment.tool_names),
            [_narrow(array) for array in arrays],
            columns.digest.take(everything).astype("<u8").tobytes(),
            columns.timestamp.take(everything).astype("<i8").tobytes(),
            segment.dictionary.blob,
        ],
        unicode_errors="surrogatepass",
    )
    return zlib.compress(body, 1)


def decode(data: bytes) -> Segment:
    """Return the segment of its compact form; raises DamagedSegment."""
    with _misfits_are_damage():
        return _decode(msgpack.unpackb(zlib.decompress(data), unicode_errors="surrogatepass"))


@contextmanager
def _misfits_are_damage() -> Iterator[None]:
    """Turn whatever is raised by bytes that do not mean what they should into DamagedSegment."""
    try:
        yield
    except (zlib.error, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise DamagedSegment(f"not a whole segment: {error!r}") from error


def _decode(body: Any) -> Segment:
    version, names, arrays, digest, timestamp, blob = body
    if version != VERSION:
        raise DamagedSegment(f"version {version}")
    wide = [_array(raw, code) for code, raw in arrays]
    file_ids, file, message, call, length, tool, offset, size, part = wide[:9]
    differences, counts, freqs, large_at, large, sizes, kind_starts = wide[9:]
    columns = Columns(
        file.astype("u4"),
        message.astype("u4"),
        call.astype("u4"),
        length.astype("u4"),
        tool.astype("u4"),
        np.frombuffer(digest, "<u8"),
        np.frombuffer(timestamp, "<i8"),
        offset.astype("u8"),
        size.astype("u4"),
        part.astype("u4"),
    )
    starts = _starts(counts)
    postings = Postings(
        starts,
        _ordinals(differences, starts),
        freqs.astype("u1"),
        large_at.astype("i8"),
        large.astype("u4"),
    )
    return assemble(
        file_ids.astype("u4"),
        tuple(names),
        _ranks(kind_starts.astype("i8")),
        columns,
        _dictionary(_starts(sizes), blob),
        postings,
    )


def dump(segment: Segment, file: BinaryIO, extra: dict[str, Any]) -> None:
    """Write the plain form of a segment to `file`; `extra` travels in its header."""
    sections = _sections(segment)
    layout, at = {}, 0
    for name, array in sections.items():
        layout[name] = [array.dtype.str, at, array.nbytes, zlib.crc32(_bytes(array))]
        at += -(-array.nbytes // 8) * 8
    header = msgpack.packb(
        [VERSION, list(segment.tool_names), layout, extra], unicode_errors="surrogatepass"
    )
    head = _MAGIC + len(header).to_bytes(8, "big") + zlib.crc32(header).to_bytes(4, "big") + header
    file.write(head + bytes(-len(head) % 8))
    for array in sections.values():
        file.write(_bytes(array))
        file.write(bytes(-array.nbytes % 8))


def save(segment: Segment, path: str, extra: dict[str, Any]) -> None:
    """Write a segment as a base file, whole or not at all. Raises OSError."""
    temporary = f"{path}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            dump(segment, file, extra)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)  # half a file would only fill a full disk
        raise


class OpenFile:
    """A descriptor that is closed when the last array that reads from it goes."""

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`. Raises DamagedSegment where the file is shorter."""
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:
            piece = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not piece:
                raise DamagedSegment("the base file is cut short")
            data += piece
        return data

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Memory:
    """The plain form of a segment in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read(self, offset: int, size: int) -> memoryview:
        """Return `size` bytes from `offset`. Raises DamagedSegment where there are fewer."""
        if offset + size > len(self._data):
            raise DamagedSegment("the segment is cut short")
        return self._data[offset : offset + size]


class FileArray:
    """An array in an open file; slices are read when asked for."""

    def __init__(self, file: OpenFile, offset: int, dtype: str, wide: str) -> None:
        self._file, self._offset = file, offset
        self._dtype, self._wide = np.dtype(dtype), np.dtype(wide)

    def __getitem__(self, part: slice) -> Array:
        size = self._dtype.itemsize
        data = self._file.read(self._offset + part.start * size, (part.stop - part.start) * size)
        return np.frombuffer(data, self._dtype).astype(self._wide, copy=False)

    def take(self, at: Array) -> Array:
        """Return the elements at some positions, a few one by one, more in one stretch."""
        if len(at) <= SINGLE_READS:
            size = self._dtype.itemsize
            pieces = [self._file.read(self._offset + each * size, size) for each in at.tolist()]
            return np.frombuffer(b"".join(pieces), self._dtype).astype(self._wide, copy=False)
        first, last = int(at.min()), int(at.max())
        taken: Array = self[first : last + 1].take(at - first)
        return taken


def load(source: OpenFile | Memory) -> tuple[Segment, dict[str, Any]]:
    """Return the segment in its plain form, and the `extra` it was written with.

    Postings of a file stay there, and are read as queries need them. Every section is checked
    against its checksum once; raises DamagedSegment.
    """
    with _misfits_are_damage():
        return _load(source)


def _load(source: OpenFile | Memory) -> tuple[Segment, dict[str, Any]]:
    names, layout, extra, start = _read_header(source)

    def array(name: str) -> Array:
        code, at, size, checksum = layout[name]
        data = source.read(start + at, size)
        if zlib.crc32(data) != checksum:
            raise DamagedSegment(f"section {name} fails its checksum")
        return _array(data, code)

    def distant(name: str, wide: str) -> Array | FileArray:
        if isinstance(source, Memory):
            return array(name).astype(wide)
        code, at, size, checksum = layout[name]
        _check_section(source, start + at, size, checksum)
        return FileArray(source, start + at, code, wide)

    segment = assemble(
        array("file_ids"),
        tuple(names),
        _ranks(array("kind_starts")),
        Columns(
            *(array(name).astype(_WIDTHS[name]) for name in _RESIDENT),
            *(distant(name, _WIDTHS[name]) for name in _DISTANT),
        ),
        Dictionary(array("hashes"), array("term_starts"), array("blob").tobytes()),
        Postings(
            array("starts"),
            distant("ordinals", "<u4"),
            distant("freqs", "<u1"),
            array("large_at"),
            array("large"),
        ),
    )
    return segment, extra


def _sections(segment: Segment) -> dict[str, Array]:
    postings = segment.postings
    total = int(postings.starts[-1])
    everything = np.arange(len(segment))
    columns = {n: getattr(segment.columns, n).take(everything) for n in _WIDTHS}
    return {name: _narrowed(column) for name, column in columns.items()} | {
        "file_ids": segment.file_ids,
        "kind_starts": segment.kind_starts,
        "hashes": segment.dictionary.hashes,
        "term_starts": segment.dictionary.starts,
        "blob": np.frombuffer(segment.dictionary.blob, "u1"),
        "starts": postings.starts,
        "large_at": postings.large_at,
        "large": postings.large,
        "ordinals": postings.ordinals[0:total],
        "freqs": postings.freqs[0:total],
    }


def _bytes(array: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(array).tobytes())


def _read_header(
    source: OpenFile | Memory,
) -> tuple[list[str], dict[str, Any], dict[str, Any], int]:
    fixed = len(_MAGIC) + 12
    head = bytes(source.read(0, fixed))
    if head[: len(_MAGIC)] != _MAGIC:
        raise DamagedSegment("not a segment of this version")
    length = int.from_bytes(head[len(_MAGIC) : len(_MAGIC) + 8], "big")
    if length > _MAX_HEADER_BYTES:
        raise DamagedSegment("the header's length is not possible")
    header = source.read(fixed, length)
    if zlib.crc32(header) != int.from_bytes(head[-4:], "big"):
        raise DamagedSegment("the header fails its checksum")
    version, names, layout, extra = msgpack.unpackb(
        header, unicode_errors="surrogatepass", strict_map_key=False
    )
    if version != VERSION:
        raise DamagedSegment(f"version {version}")
    return names, layout, extra, -(-(fixed + length) // 8) * 8


def _array(data: bytes | memoryview, code: str) -> Array:
    if code not in _CODES:
        raise DamagedSegment(f"{code!r} is no kind of array")
    return np.frombuffer(data, code)


def _check_section(source: OpenFile, start: int, size: int, checksum: int) -> None:
    value, piece = 0, 1 << 20
    for at in range(0, size, piece):
        value = zlib.crc32(source.read(start + at, min(piece, size - at)), value)
    if value != checksum:
        raise DamagedSegment("the postings fail their checksum")


def _narrow(array: Array) -> list[Any]:
    narrow = _narrowed(array)
    return [narrow.dtype.str, narrow.tobytes()]


def _narrowed(array: Array) -> Array:
    """Return the array in the narrowest unsigned integers that hold it; signed ones stay."""
    if len(array) and array.min() < 0:
        return array
    most = int(array.max()) if len(array) else 0
    return array.astype(next(code for code in _NARROW if most <= np.iinfo(code).max))


def _differences(postings: Postings) -> Array:
    """Return each ordinal less the one before it in its term; a term's first stays whole."""
    ordinals = postings.ordinals[0 : int(postings.starts[-1])].astype("i8")
    differences: Array = ordinals.copy()
    differences[1:] -= ordinals[:-1]
    first = postings.starts[:-1]
    differences[first] = ordinals[first]
    return differences


def _ordinals(differences: Array, starts: Array) -> Array:
    sums = np.cumsum(differences, dtype="i8")
    first = starts[:-1]
    offsets = sums[first] - differences[first].astype("i8")
    ordinals: Array = (sums - np.repeat(offsets, np.diff(starts))).astype("u4")
    return ordinals


def _starts(counts: Array) -> Array:
    starts: Array = np.concatenate(([0], np.cumsum(counts, dtype="i8")))
    return starts


def _ranks(kind_starts: Array) -> Array:
    ranks: Array = np.repeat(np.arange(len(kind_starts) - 1), np.diff(kind_starts))
    return ranks


def _dictionary(starts: Array, blob: bytes) -> Dictionary:
    bounds = starts.tolist()
    hashes = np.array([term_hash(blob[a:b]) for a, b in pairwise(bounds)], "u8")
    return Dictionary(hashes, starts, blob)
