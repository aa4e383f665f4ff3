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


_decoder = msgspec.msgpack.Decoder(list[Place])


def encode(places: Iterable[Place]) -> bytes:
    """Return the stored form of a run of places."""
    return zlib.compress(msgspec.msgpack.encode(list(places)), 1)


def decode(data: bytes) -> list[Place]:
    """Return the places of their stored form. Raises ValueError when it is damaged."""
    try:
        return _decoder.decode(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(f"damaged places: {error}") from error
