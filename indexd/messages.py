"""Where each message of a session lies in its file: what snippets and `around` read back.

Spans are byte ranges of whole lines; one line may hold several messages, so `part` counts them.
The table of a session is kept beside its segments and is read only when a message is shown.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec


class Place(NamedTuple):
    """Where one message lies and what only its context tells.

    offset, size: bytes of its line, without the newline. part: which of that line's messages.
    timestamp: unix ms, 0 unknown. tool_name: of the call that this message answers.
    """

    message_index: int
    offset: int
    size: int
    part: int
    timestamp: int
    tool_name: str


class _Columns(NamedTuple):
    """Places as columns of differences, most of which are the same number over and over.

    A line is expected right behind the one before it, or to be that line again.
    """

    indexes: list[int]
    offsets: list[int]
    sizes: list[int]
    parts: list[int]
    timestamps: list[int]
    tool_names: list[str]


_BEGIN = Place(-1, -1, 0, 0, 0, "")
_decoder = msgspec.msgpack.Decoder(_Columns)


def encode(places: Iterable[Place]) -> bytes:
    """Return the stored form of a run of places."""
    columns = _Columns([], [], [], [], [], [])
    last = _BEGIN
    for place in places:
        columns.indexes.append(place.message_index - last.message_index)
        columns.offsets.append(place.offset - _expected(last, place.part))
        columns.sizes.append(place.size)
        columns.parts.append(place.part)
        columns.timestamps.append(place.timestamp - last.timestamp)
        columns.tool_names.append(place.tool_name)
        last = place
    return zlib.compress(msgspec.msgpack.encode(columns), 1)


def decode(data: bytes) -> list[Place]:
    """Return the places of their stored form. Raises ValueError when it is damaged."""
    try:
        columns = _decoder.decode(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(f"damaged places: {error}") from error
    places: list[Place] = []
    last = _BEGIN
    for index, offset, size, part, time, name in zip(*columns, strict=True):
        last = Place(
            last.message_index + index,
            _expected(last, part) + offset,
            size,
            part,
            last.timestamp + time,
            name,
        )
        places.append(last)
    return places


def _expected(last: Place, part: int) -> int:
    return last.offset if part else last.offset + last.size + 1
