"""Segments as bytes: whole for a row of the cache, in sections for a file or another process.

In a row every array takes the narrowest integers that hold it, ordinals are differences, hashes
are left out (they follow from the terms), and the whole is deflated. In the base file postings
are packed term by term, and what is wanted of few documents lies in blocks, so that a query reads
just what it needs with `pread`: a file cut short under us is then an error, never a fault of the
process. Between processes nothing is worth packing.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from typing import Any, BinaryIO

import msgpack
import numpy as np

from indexd.blocks import Blocks, Column, pack
from indexd.hashes import span_hashes, starts_of
from indexd.packing import PackedPostings, packed
from indexd.segment import (
    UNSIGNED,
    Array,
    Columns,
    Dictionary,
    PlainPostings,
    Segment,
    assemble,
    narrowed,
    plain_postings,
)
from indexd.source import DamagedSegment, Section, Source, misfits_are_damage

VERSION = 1
_RESIDENT = ("file", "message", "call", "length", "tool")
_DISTANT = ("digest", "timestamp", "offset", "size", "part")
# Where a document lies and when it was said; in a file these are in blocks.
_PLACES = {"timestamp": "<i8", "offset": "<u8", "size": "<u4", "part": "<u4"}
# Sections that are compressed in a file: all that is read once and whole.
_ZIPPED = frozenset({
    *_RESIDENT, "file_ids", "term_sizes", "blob", "counts", "codes", "block_sizes", "place_sizes",
})  # fmt: skip
_WIDTHS = {
    "file": "<u4", "message": "<u4", "call": "<u4", "length": "<u4", "tool": "<u4",
    "digest": "<u8", "timestamp": "<i8", "offset": "<u8", "size": "<u4", "part": "<u4",
}  # fmt: skip
_CODES = frozenset(np.dtype(code).str for code in (*UNSIGNED, "<i8"))
_MAGIC = b"indexd-base\x03"
# Up to so many elements of a column in a file are read one by one: a page of hits, say.
SINGLE_READS = 64
# Bounds what a damaged length can make us read; a header holds 12 bytes per file.
_MAX_HEADER_BYTES = 1 << 26


def encode(segment: Segment) -> bytes:
    """Return the compact form of a segment."""
    postings, columns = _plain(segment), segment.columns
    everything = np.arange(len(segment))
    arrays = [
        segment.file_ids,
        *(
            getattr(columns, name).take(everything)
            for name in (*_RESIDENT, "offset", "size", "part")
        ),
        _differences(postings.starts, postings.ordinals),
        np.diff(postings.starts),
        postings.freqs,
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
    with misfits_are_damage():
        return _decode(msgpack.unpackb(zlib.decompress(data), unicode_errors="surrogatepass"))


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
    starts = starts_of(counts)
    postings = PlainPostings(
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
        _dictionary(starts_of(sizes), blob),
        postings,
    )


def dump(segment: Segment, file: BinaryIO, extra: dict[str, Any]) -> None:
    """Write a segment to `file` so that it is read section by section, `extra` in its header.

    With packed postings everything is kept small, as a file should be; else quick to load.
    """
    layout: dict[str, Any] = {}
    pieces: list[bytes | memoryview] = []
    at = 0
    for name, array in _sections(segment).items():
        data: bytes | memoryview = np.ascontiguousarray(array).view("u1").data
        zipped = name in _ZIPPED and isinstance(segment.postings, PackedPostings)
        data = zlib.compress(data, 1) if zipped else data
        layout[name] = [array.dtype.str, at, len(data), zlib.crc32(data), zipped]
        pieces += [data, bytes(-len(data) % 8)]
        at += -(-len(data) // 8) * 8
    header = msgpack.packb(
        [VERSION, list(segment.tool_names), layout, extra], unicode_errors="surrogatepass"
    )
    head = _MAGIC + len(header).to_bytes(8, "big") + zlib.crc32(header).to_bytes(4, "big") + header
    file.write(head + bytes(-len(head) % 8))
    file.writelines(pieces)


def save(segment: Segment, path: str, extra: dict[str, Any]) -> None:
    """Write a segment, packed, as a base file: whole or not at all. Raises OSError."""
    segment = replace(segment, postings=packed(segment.postings))
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


class FileArray:
    """A column in a source; what is asked for is read when asked for."""

    def __init__(self, source: Source, dtype: str, wide: str) -> None:
        self._source, self._dtype, self._wide = source, np.dtype(dtype), np.dtype(wide)

    def take(self, at: Array) -> Array:
        """Return the elements at some positions, a few one by one, more in one stretch."""
        size = self._dtype.itemsize
        if len(at) <= SINGLE_READS:
            pieces = [self._source.read(each * size, size) for each in at.tolist()]
            return np.frombuffer(b"".join(pieces), self._dtype).astype(self._wide)
        first, last = int(at.min()), int(at.max())
        data = self._source.read(first * size, (last + 1 - first) * size)
        return np.frombuffer(data, self._dtype).take(at - first).astype(self._wide)


def load(source: Source) -> tuple[Segment, dict[str, Any]]:
    """Return the segment in its plain form, and the `extra` it was written with.

    Postings of a file stay there, and are read as queries need them. Every section is checked
    against its checksum once; raises DamagedSegment.
    """
    with misfits_are_damage():
        return _load(source)


def _load(source: Source) -> tuple[Segment, dict[str, Any]]:
    names, layout, extra, start = _read_header(source)

    def array(name: str) -> Array:
        code, at, size, checksum, zipped = layout[name]
        data = source.read(start + at, size)
        if zlib.crc32(data) != checksum:
            raise DamagedSegment(f"section {name} fails its checksum")
        return _array(zlib.decompress(data) if zipped else data, code)

    def section(name: str) -> Section:
        _, at, size, checksum, _ = layout[name]
        _check_section(source, start + at, size, checksum)
        return Section(source, start + at)

    in_blocks = "codes" in layout
    resident = {name: array(name) for name in _RESIDENT}
    resident["length"] = resident["length"].astype("<u4")
    if in_blocks:
        offsets = starts_of(array("place_sizes"))
        blocks = Blocks(section("places"), offsets, _PLACES, len(resident["file"]))
        distant: dict[str, Any] = {name: Column(blocks, name) for name in _PLACES}
        distant["digest"] = FileArray(section("digest"), layout["digest"][0], _WIDTHS["digest"])
    else:
        distant = {name: array(name).astype(_WIDTHS[name]) for name in _DISTANT}
    segment = assemble(
        array("file_ids"),
        tuple(names),
        _ranks(array("kind_starts")),
        Columns(*(distant[name] if name in distant else resident[name] for name in _WIDTHS)),
        _dictionary(starts_of(array("term_sizes")), array("blob").tobytes()),
        PackedPostings(array("counts"), array("codes"), array("block_sizes"), section("postings"))
        if in_blocks
        else PlainPostings(
            starts_of(array("counts")),
            array("ordinals").astype("<u4"),
            array("freqs"),
            array("large_at"),
            array("large"),
        ),
    )
    return segment, extra


def _sections(segment: Segment) -> dict[str, Array]:
    """Return what is written of a segment, by name."""
    everything = np.arange(len(segment))
    columns = {n: getattr(segment.columns, n).take(everything) for n in _WIDTHS}
    sections = {
        "file_ids": segment.file_ids,
        "kind_starts": segment.kind_starts,
        "term_sizes": narrowed(np.diff(segment.dictionary.starts)),
        "blob": np.frombuffer(segment.dictionary.blob, "u1"),
        "counts": narrowed(np.diff(segment.postings.starts)),
    }
    if isinstance(segment.postings, PackedPostings):
        blocks = pack({name: columns.pop(name) for name in _PLACES})
        whole = segment.postings.blocks()
        sections |= {
            "places": np.frombuffer(b"".join(blocks), "u1"),
            "place_sizes": np.array(list(map(len, blocks)), "u4"),
            "codes": whole.codes,
            "block_sizes": narrowed(whole.sizes),
            "postings": np.frombuffer(whole.data, "u1"),
        }
    else:
        postings = _plain(segment)
        sections |= {
            "ordinals": narrowed(postings.ordinals),
            "freqs": postings.freqs,
            "large_at": postings.large_at,
            "large": postings.large,
        }
    return sections | {name: narrowed(column) for name, column in columns.items()}


def _plain(segment: Segment) -> PlainPostings:
    """Return the postings of a segment as arrays."""
    postings = segment.postings
    if isinstance(postings, PlainPostings):
        return postings
    return plain_postings(postings.starts, *postings.of(0, len(segment.dictionary)))


def _read_header(
    source: Source,
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


def _check_section(source: Source, start: int, size: int, checksum: int) -> None:
    value, piece = 0, 1 << 20
    for at in range(0, size, piece):
        value = zlib.crc32(source.read(start + at, min(piece, size - at)), value)
    if value != checksum:
        raise DamagedSegment("the postings fail their checksum")


def _narrow(array: Array) -> list[Any]:
    narrow = narrowed(array)
    return [narrow.dtype.str, narrow.tobytes()]


def _differences(starts: Array, ordinals: Array) -> Array:
    """Return each ordinal less the one before it in its term; a term's first stays whole."""
    differences: Array = ordinals.astype("i8")
    differences[1:] -= ordinals[:-1]
    differences[starts[:-1]] = ordinals[starts[:-1]]
    return differences


def _ordinals(differences: Array, starts: Array) -> Array:
    sums = np.cumsum(differences, dtype="i8")
    first = starts[:-1]
    offsets = sums[first] - differences[first].astype("i8")
    ordinals: Array = (sums - np.repeat(offsets, np.diff(starts))).astype("u4")
    return ordinals


def _ranks(kind_starts: Array) -> Array:
    ranks: Array = np.repeat(np.arange(len(kind_starts) - 1), np.diff(kind_starts))
    return ranks


def _dictionary(starts: Array, blob: bytes) -> Dictionary:
    text = np.frombuffer(blob, "u1")
    return Dictionary(span_hashes(text, starts[:-1], starts[1:]), starts, blob)
