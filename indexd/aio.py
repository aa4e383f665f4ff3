"""The client for programs that run an event loop (anyio: asyncio or trio).

Calls made at the same time on one AsyncClient take turns, as the daemon answers a connection in
order; open several clients to ask in parallel.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute, SocketStream, UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from indexd import protocol
from indexd.client import (
    TIMEOUT_SECONDS,
    check_peer,
    closed,
    find_socket,
    hello_frame,
    request_frame,
    result_of,
    too_late,
    unreachable,
)
from indexd.methods import Methods

# How often to look whether the daemon takes more connections.
QUEUE_SECONDS = 0.05


class AsyncClient(Methods):
    """One connection to the daemon, opened by `connect`, `async with` or the first call.

    Finds the socket as `indexctl` does. `timeout` bounds each call, in seconds. The daemon
    closes connections that stay idle; the next call opens a new one.
    """

    def __init__(
        self,
        socket_path: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        name: str = "indexd.client",
    ) -> None:
        self.socket_path = find_socket(socket_path)
        self.timeout = timeout
        self.name = name
        self._stream: SocketStream | None = None
        self._received: BufferedByteReceiveStream
        self._greeting: Any = None
        self._request_id = 0
        self._turn = anyio.Lock()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def connect(self) -> None:
        """Open the connection unless it is open.

        Raises Unavailable when nothing answers, NotAllowed when it belongs to another user.
        """
        if self._stream is not None:
            return
        try:
            with anyio.fail_after(self.timeout):
                stream = await self._connected()
        except OSError as error:
            raise unreachable(self.socket_path, error) from error
        try:
            check_peer(stream.extra(SocketAttribute.raw_socket), self.socket_path)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self._greeting = None

    async def _connected(self) -> UNIXSocketStream:
        """Return a stream to the daemon, once it has a place in its queue for us."""
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            try:
                connection.connect(self.socket_path)
                return await UNIXSocketStream.from_socket(connection)
            except BlockingIOError:
                # No event tells when there is room, and asyncio would take this for success.
                connection.close()
                await anyio.sleep(QUEUE_SECONDS)
            except BaseException:
                connection.close()
                raise

    async def aclose(self) -> None:
        """Close the connection; harmless when there is none."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    async def hello(self) -> Any:
        """Return the daemon's `protocol`, `version` and `capabilities`."""
        async with self._turn:
            await self._answer(b"")
            return self._greeting

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of `method` with `params`.

        Raises the IndexdError the daemon answered, Timeout, or Unavailable.
        """
        async with self._turn:
            self._request_id += 1
            request = request_frame(self._request_id, method, params)
            return result_of(await self._answer(request), self._request_id)

    async def _answer(self, request: bytes) -> dict[str, Any]:
        """Return the answer to `request`, or nothing to an empty one, once hello is said."""
        while True:
            fresh = self._stream is None
            try:
                with anyio.fail_after(self.timeout):
                    return await self._exchange(request)
            except TimeoutError as error:
                await self.aclose()
                raise too_late(self.timeout) from error
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
                await self.aclose()
                # Else the daemon had closed an idle connection: every method may be asked again.
                if fresh:
                    raise closed(self.socket_path) from error
            except BaseException:
                # Whatever cut the exchange short, a cancellation too, left an answer on its way.
                await self.aclose()
                raise

    async def _exchange(self, request: bytes) -> dict[str, Any]:
        await self.connect()
        if self._greeting is None:
            await self._send(hello_frame(self.name) + request)
            self._greeting = result_of(await self._receive(), 0)
        else:
            await self._send(request)
        return await self._receive() if request else {}

    async def _send(self, frames: bytes) -> None:
        assert self._stream is not None
        try:
            await self._stream.send(frames)
        except anyio.BrokenResourceError:
            # A daemon that refuses us answers and closes without reading: its answer is next.
            return

    async def _receive(self) -> dict[str, Any]:
        header = await self._received.receive_exactly(protocol.HEADER.size)
        length = protocol.body_length(header, protocol.MAX_ANSWER_BYTES)
        return protocol.decode(await self._received.receive_exactly(length))
