"""One peer's connection: whole frames in, whole frames out, each within its size and its time.

A peer may be slow, silent or hostile; none may hold more memory than its frame or more time than
the limits say. A frame over 64 KiB can only be an MCP server's catalog: such frames take turns in
the whole process, and their method is looked at before their contents are built, which may cost
many times the frame's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
from anyio.abc import SocketStream

from indexd import protocol
from indexd.errors import BadRequest, Timeout

CONNECTIONS = 128
LARGE_METHOD = "mcp_event"
RECEIVE_BYTES = 64 * 1024
SEND_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections there may be, and how many seconds each step may take.

    patience_seconds: how long a peer may keep its place without a hello when all are taken;
    rest_seconds: and without a request after it.
    """

    connections: int = CONNECTIONS
    hello_seconds: float = 2.0
    patience_seconds: float = 0.5
    rest_seconds: float = 5.0
    idle_seconds: float = 60.0
    frame_seconds: float = 5.0
    stall_seconds: float = 5.0
    answer_seconds: float = 30.0
    drain_seconds: float = 1.0


class Idle(Exception):
    """Raised when a peer does not begin a frame within its time."""


class Connection:
    """Frames over one stream; `large` is the turn that large frames take in this process."""

    def __init__(self, stream: SocketStream, limits: Limits, large: anyio.Lock) -> None:
        self._stream = stream
        self._received = bytearray()
        self._limits = limits
        self._large = large

    async def begun(self, idle_seconds: float) -> None:
        """Return once the next frame begins; raises Idle when that takes over `idle_seconds`.

        Raises anyio's errors when the peer is gone, as all of these do.
        """
        with anyio.move_on_after(idle_seconds) as idle:
            await self._fill(1)
        if idle.cancelled_caught:
            raise Idle

    async def receive(self, limit: int) -> dict[str, Any]:
        """Return the map in the frame that has begun, whose body may have `limit` bytes.

        Raises Timeout when it does not end in time, BadRequest when it is not one the protocol
        allows (what follows cannot be told apart then).
        """
        length = protocol.body_length(await self._take(protocol.HEADER.size), limit)
        if length <= protocol.MAX_REQUEST_BYTES:
            return protocol.decode(await self._take(length))
        async with self._large:
            body = await self._take(length)
            _check_large(body)
            return protocol.decode(body)

    async def send(self, frame: bytes) -> None:
        """Send one frame; raises TimeoutError when the peer stops reading it."""
        for begin in range(0, len(frame), SEND_CHUNK_BYTES):
            with anyio.fail_after(self._limits.stall_seconds):
                await self._stream.send(frame[begin : begin + SEND_CHUNK_BYTES])

    async def _take(self, count: int) -> bytes:
        """Return the next `count` bytes; raises Timeout when they do not come in time."""
        if len(self._received) < count:
            seconds = self._limits.frame_seconds
            with anyio.move_on_after(seconds) as late:
                await self._fill(count)
            if late.cancelled_caught:
                raise Timeout(f"a frame did not end within {seconds:g} s", "send frames whole")
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    async def _fill(self, count: int) -> None:
        # What came along is kept: mostly a whole frame, and then nothing more is waited for.
        while len(self._received) < count:
            self._received += await self._stream.receive(RECEIVE_BYTES)


class _Envelope(msgspec.Struct):
    method: str


# Skips what it does not name without building it.
_envelope = msgspec.msgpack.Decoder(_Envelope)


def _check_large(body: bytes) -> None:
    try:
        method = _envelope.decode(body).method
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        method = ""
    if method != LARGE_METHOD:
        raise BadRequest(
            f"a request of {len(body)} bytes is over the limit of {protocol.MAX_REQUEST_BYTES}",
            f"only {LARGE_METHOD} may be longer",
        )
