"""Segments as bytes: compact for a row of the cache, plain for the base file.

In a row every array takes the narrowest integers that hold it, ordinals are differences, hashes
are left out (they follow from the terms), and the whole is deflated. In the base file postings
stay as they are, so that a query reads just its slices with `pread`: a file cut short under us
is then an error, never a fault of the process.
"""

from __future__ import annotations

import os
import zlib
from itertools import pairwise
from typing import Any

import msgpack
import numpy as np

from indexd.segment import Array, Columns, Dictionary, Postings, Segment, assemble, term_hash

VERSION = 1
_COLUMNS = ("file", "message", "call", "length", "tool", "digest", "timestamp")
_COLUMN_TYPES = ("<u4", "<u4", "<u2", "<u4", "<u4", "<u8", "<i8")
_NARROW = ("<u1", "<u2", "<u4", "<u8")
_MAGIC = b"indexd-base\x01"


class DamagedSegment(Exception):
    """Raised when bytes are not a whole segment of this version."""


def encode(segment: Segment) -> bytes:
    """Return the compact form of a segment."""
    postings = segment.postings
    columns = segment.columns
    arrays = [
        segment.file_ids,
        *(getattr(columns, name) for name in _COLUMNS[:-2]),
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
            columns.digest.astype("<u8").tobytes(),
            columns.timestamp.astype("<i8").tobytes(),
            segment.dictionary.blob,
        ],
        unicode_errors="surrogateescape",
    )
    return zlib.compress(body, 1)


def decode(data: bytes) -> Segment:
    """Return the segment of its compact form; raises DamagedSegment."""
    try:
        version, names, arrays, digest, timestamp, blob = msgpack.unpackb(
            zlib.decompress(data), unicode_errors="surrogateescape"
        )
    except (zlib.error, ValueError) as error:
        raise DamagedSegment(str(error)) from error
    if version != VERSION:
        raise DamagedSegment(f"version {version}")
    wide = [np.frombuffer(raw, code) for code, raw in arrays]
    file_ids, file, message, call, length, tool = wide[:6]
    differences, counts, freqs, large_at, large, sizes, kind_starts = wide[6:]
    columns = Columns(
        file.astype("u4"),
        message.astype("u4"),
        call.astype("u2"),
        length.astype("u4"),
        tool.astype("u4"),
        np.frombuffer(digest, "<u8"),
        np.frombuffer(timestamp, "<i8"),
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


def save(segment: Segment, path: str, extra: dict[str, Any]) -> None:
    """Write a segment as a base file, whole or not at all; `extra` travels in its header."""
    sections = {name: getattr(segment.columns, name) for name in _COLUMNS}
    sections |= {
        "file_ids": segment.file_ids,
        "kind_starts": segment.kind_starts,
        "hashes": segment.dictionary.hashes,
        "term_starts": segment.dictionary.starts,
        "blob": np.frombuffer(segment.dictionary.blob, "u1"),
        "starts": segment.postings.starts,
        "large_at": segment.postings.large_at,
        "large": segment.postings.large,
        "ordinals": segment.postings.ordinals[0 : int(segment.postings.starts[-1])],
        "freqs": segment.postings.freqs[0 : int(segment.postings.starts[-1])],
    }
    layout, at = {}, 0
    for name, array in sections.items():
        layout[name] = [array.dtype.str, at, array.nbytes, zlib.crc32(memoryview(array).cast("B"))]
        at += -(-array.nbytes // 8) * 8
    header = msgpack.packb(
        [VERSION, list(segment.tool_names), layout, extra], unicode_errors="surrogateescape"
    )
    head = _MAGIC + len(header).to_bytes(8, "big") + zlib.crc32(header).to_bytes(4, "big") + header
    head += bytes(-len(head) % 8)
    temporary = f"{path}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(head)
        for array in sections.values():
            file.write(memoryview(array).cast("B"))
            file.write(bytes(-array.nbytes % 8))
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


class OpenFile:
    """A descriptor that is closed when the last array that reads from it goes."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        os.close(self.descriptor)


class FileArray:
    """An array in an open file; slices are read when asked for."""

    def __init__(self, file: OpenFile, offset: int, dtype: str) -> None:
        self._file, self._offset, self._dtype = file, offset, np.dtype(dtype)

    def __getitem__(self, part: slice) -> Array:
        size = self._dtype.itemsize
        wanted = (part.stop - part.start) * size
        data = os.pread(self._file.descriptor, wanted, self._offset + part.start * size)
        if len(data) != wanted:
            raise DamagedSegment("the base file ends before its postings")
        return np.frombuffer(data, self._dtype)


def load(path: str) -> tuple[Segment, dict[str, Any]]:
    """Return the segment in a base file, and the `extra` it was saved with.

    The file stays open as long as the segment is used, and may be unlinked. Every section is
    checked against its checksum once; raises DamagedSegment or OSError.
    """
    file = OpenFile(path)
    descriptor = file.descriptor
    names, layout, extra, start = _read_header(descriptor)

    def array(name: str) -> Array:
        code, at, size, checksum = layout[name]
        data = os.pread(descriptor, size, start + at)
        if len(data) != size or zlib.crc32(data) != checksum:
            raise DamagedSegment(f"section {name} fails its checksum")
        return np.frombuffer(data, code)

    for name in ("ordinals", "freqs"):
        _check_section(descriptor, start, layout[name], name)
    postings = Postings(
        array("starts"),
        FileArray(file, start + layout["ordinals"][1], layout["ordinals"][0]),
        FileArray(file, start + layout["freqs"][1], layout["freqs"][0]),
        array("large_at"),
        array("large"),
    )
    segment = assemble(
        array("file_ids"),
        tuple(names),
        _ranks(array("kind_starts")),
        Columns(*(array(name) for name in _COLUMNS)),
        Dictionary(array("hashes"), array("term_starts"), array("blob").tobytes()),
        postings,
    )
    return segment, extra


def _read_header(descriptor: int) -> tuple[list[str], dict[str, Any], dict[str, Any], int]:
    fixed = len(_MAGIC) + 12
    head = os.pread(descriptor, fixed, 0)
    if len(head) != fixed or head[: len(_MAGIC)] != _MAGIC:
        raise DamagedSegment("not a base file of this version")
    length = int.from_bytes(head[len(_MAGIC) : len(_MAGIC) + 8], "big")
    if length > os.fstat(descriptor).st_size:
        raise DamagedSegment("the header is cut")
    header = os.pread(descriptor, length, fixed)
    if zlib.crc32(header) != int.from_bytes(head[-4:], "big"):
        raise DamagedSegment("the header fails its checksum")
    _, names, layout, extra = msgpack.unpackb(
        header, unicode_errors="surrogateescape", strict_map_key=False
    )
    return names, layout, extra, -(-(fixed + length) // 8) * 8


def _check_section(descriptor: int, start: int, place: list[Any], name: str) -> None:
    _, at, size, checksum = place
    value, done, piece = 0, 0, 1 << 20
    while done < size:
        data = os.pread(descriptor, min(piece, size - done), start + at + done)
        if not data:
            break
        value = zlib.crc32(data, value)
        done += len(data)
    if done != size or value != checksum:
        raise DamagedSegment(f"section {name} fails its checksum")


def _narrow(array: Array) -> list[Any]:
    most = int(array.max()) if len(array) else 0
    code = next(c for c in _NARROW if most <= np.iinfo(c).max)
    return [code, array.astype(code).tobytes()]


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
