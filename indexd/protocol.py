"""Frames on the wire, without any input or output.

A frame is a 4-byte big-endian length and one msgpack map. Both sides use this module, so it may
import nothing but the standard library and msgpack. Strings that are not UTF-8 (file names)
travel as surrogateescape bytes inside msgpack's str type.
"""

from __future__ import annotations

import struct

import msgpack

from indexd.errors import BadRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The range of protocol versions this build speaks; `hello` agrees on the highest shared one.
PROTOCOL_MIN = 1
PROTOCOL_MAX = 1

# A query is small; a frame of empty maps costs 69 times its size once decoded, hence the
# tight bound on what a stranger may send before anything is known about it.
MAX_REQUEST_BYTES = 64 * 1024
# An MCP server's whole catalog with its schemas arrives as one event.
MAX_EVENT_BYTES = 16 * 1024 * 1024
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_DEPTH_ELEMENTS = 1_000_000

HEADER = struct.Struct(">I")


def encode(message: dict[str, Any], limit: int) -> bytes:
    """Return `message` as one frame.

    Raises BadRequest when the frame would exceed `limit` bytes.
    """
    body: bytes = msgpack.packb(message, use_bin_type=True, unicode_errors="surrogateescape")
    if len(body) > limit:
        raise BadRequest(
            f"a frame of {len(body)} bytes is over the limit of {limit}",
            "ask for fewer results or within a budget, or send a smaller request",
        )
    return HEADER.pack(len(body)) + body


def body_length(header: bytes, limit: int) -> int:
    """Return the body length that a 4-byte `header` announces.

    Raises BadRequest when it is zero or over `limit` bytes, before any body is read.
    """
    (length,) = HEADER.unpack(header)
    if not 0 < length <= limit:
        raise BadRequest(
            f"a frame of {length} bytes is outside 1 to {limit}",
            "a frame is a 4-byte big-endian length and one msgpack map",
        )
    return int(length)


def decode(body: bytes) -> dict[str, Any]:
    """Return the map in a frame's body.

    Raises BadRequest for anything that is not exactly one msgpack map of plain values.
    """
    try:
        message = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            unicode_errors="surrogateescape",
            max_array_len=MAX_DEPTH_ELEMENTS,
            max_map_len=MAX_DEPTH_ELEMENTS,
            max_ext_len=0,
            ext_hook=_refuse_extension,
        )
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise BadRequest(
            f"the frame is not one msgpack map ({type(error).__name__})",
            "a frame is a 4-byte big-endian length and one msgpack map",
        ) from error
    if not isinstance(message, dict):
        raise BadRequest(
            f"the frame holds a {type(message).__name__}, not a map",
            'send {"id": ..., "method": ..., "params": {...}}',
        )
    return message


def _refuse_extension(code: int, data: bytes) -> object:
    raise ValueError(f"extension type {code}")
