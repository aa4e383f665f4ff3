"""What passes between us and an MCP server: tools as they came, last words, signs of life."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from indexd.mcp_config import ServerSpec

GATHER_S = 0.2  # changes that come together are listed once
STDERR_TAIL_BYTES = 2048
MAX_REASON_CHARS = 200

_UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f]+")


def plain(text: str) -> str:
    """Return `text` fit for one line of a terminal: no control characters, not too long."""
    return _UNPRINTABLE.sub(" ", text).strip()[:MAX_REASON_CHARS]


class Wire:
    """What passes by: pages of tools as they came, junk, stderr, signs of change and loss."""

    def __init__(self) -> None:
        self.pages: list[list[Any]] = []
        self.status = 0
        self._tail = b""
        self._lost = False
        self._stir = anyio.Event()

    def stir(self) -> None:
        """Say that the tools may have changed."""
        self._stir.set()

    def lose(self) -> None:
        """Say that the connection is gone."""
        self._lost = True
        self._stir.set()

    async def stirred(self) -> bool:
        """Wait for a sign of change, then for what comes with it; False when all is lost."""
        await self._stir.wait()
        if not self._lost:
            await anyio.sleep(GATHER_S)
        self._stir = anyio.Event()
        return not self._lost

    async def hear(self, message: object) -> None:
        """Take what the server sends unasked; a line that is no message is let go."""
        if isinstance(message, types.ToolListChangedNotification):
            self.stir()

    def with_last_words(self, reason: str, spec: ServerSpec) -> str:
        """Return `reason`, with the last line the server wrote on stderr, secrets masked."""
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        words = plain(spec.mask(lines[-1])) if lines else ""
        return f"{reason}: {words}" if words else reason

    @asynccontextmanager
    async def stderr(self) -> AsyncIterator[Any]:
        """Yield a file for a server's stderr, of which the end is remembered."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        try:
            with os.fdopen(write, "w") as file:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._drain, read)
                    yield file
                    group.cancel_scope.cancel()
        finally:
            self._take(read)
            os.close(read)

    async def _drain(self, read: int) -> None:
        while True:
            await anyio.wait_readable(read)
            self._take(read)

    def _take(self, read: int) -> None:
        with suppress(BlockingIOError):
            self._tail = (self._tail + os.read(read, 65536))[-STDERR_TAIL_BYTES:]


class Tap:
    """A read stream that keeps the tools of each answer raw, and out of the SDK's sight.

    The SDK refuses a whole list for one bad tool; the catalog drops the one. An empty list in
    its place leaves paging, and everything else, to the SDK.
    """

    def __init__(self, stream: Any, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire

    @property
    def last_context(self) -> Any:
        """The sender's context, where the stream has one."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        try:
            item: SessionMessage | Exception = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._wire.lose()
            raise
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
            result = item.message.result
            if isinstance(result.get("tools"), list):
                self._wire.pages.append(result["tools"])
                result["tools"] = []
        return item

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Opened(AbstractAsyncContextManager[Any]):
    """Streams that are open already, as the transport the SDK's client asks for."""

    def __init__(self, streams: Any) -> None:
        self._streams = streams

    async def __aenter__(self) -> Any:
        return self._streams

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None
