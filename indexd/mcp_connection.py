"""One connection to one MCP server, by the official SDK, from start to the last process gone.

Servers in the field print banners on stdout, die of requests newer than they are, leave
children behind and break the protocol in single tools; each costs itself only. This module
imports the SDK, so the daemon must not import it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskGroup
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from indexd.errors import IndexdError
from indexd.mcp_config import ServerSpec
from indexd.mcp_wire import Opened, Tap, Wire, plain

POLL_S = 300.0  # not every server tells of its changes
GROUP_GRACE_S = 2.0
MAX_PAGES = 1000
HTTP_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
# The SDK tells nobody the process it starts, so the process says it itself: the group to end.
LAUNCH = 'echo $$ > "$0" && exec "$@"'


class Failed(Exception):
    """Why a server could not be used; `sign_in` when a person is needed for it."""

    def __init__(self, reason: str, *, died: bool = False, sign_in: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.died = died
        self.sign_in = sign_in


class Connection:
    """A live connection: its tools, and waiting for them to change."""

    def __init__(self, client: Client, wire: Wire, spec: ServerSpec) -> None:
        self._client = client
        self._wire = wire
        self._spec = spec
        self.tools: list[Any] = []

    @property
    def instructions(self) -> str | None:
        """What the server says of its use, if anything."""
        said: str | None = self._client.instructions
        return said

    async def refresh(self) -> list[Any]:
        """Ask for every page of tools and return those the client wants, raw as they came."""
        self._wire.pages.clear()
        cursors: set[str | None] = set()
        cursor: str | None = None
        while cursor not in cursors and len(cursors) < MAX_PAGES:
            cursors.add(cursor)
            cursor = (await self._client.list_tools(cursor=cursor)).next_cursor
            if cursor is None:
                break
        every = [tool for page in self._wire.pages for tool in page]
        self.tools = [tool for tool in every if self._wanted(tool)]
        return self.tools

    async def follow(self, tell: Callable[[], Awaitable[None]]) -> None:
        """Call `tell` whenever the tools have changed; return when the connection is lost."""
        async with anyio.create_task_group() as group:
            self._watch(group)
            while await self._wire.stirred():
                before = self.tools
                if await self.refresh() != before:
                    await tell()
            group.cancel_scope.cancel()

    def _watch(self, group: TaskGroup) -> None:
        group.start_soon(self._poll)
        announces = self._client.server_capabilities.tools
        modern = self._client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if modern and announces and announces.list_changed:
            group.start_soon(self._subscribe)

    async def _poll(self) -> None:
        while True:
            await anyio.sleep(POLL_S)
            self._wire.stir()

    async def _subscribe(self) -> None:
        try:
            async with self._client.listen(tools_list_changed=True) as events:
                self._wire.stir()  # what changed since the list was asked for was not told
                async for _ in events:
                    self._wire.stir()
        except (MCPError, RuntimeError, TimeoutError):
            # A subscription that is refused or lost leaves polling; a lost server shows there.
            self._wire.stir()

    def _wanted(self, tool: Any) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        return not isinstance(name, str) or self._spec.wants(name)


async def connected(spec: ServerSpec, use: Callable[[Connection], Awaitable[None]]) -> None:
    """Connect, list the tools, and hand the connection to `use`; end all when `use` returns.

    Servers older than `server/discover` may die of it: they are started once more and asked
    the old way. Raises Failed, with nothing secret in the reason.
    """
    try:
        await _attempt(spec, "auto", use)
    except Failed as failure:
        if not failure.died or spec.transport != "stdio":
            raise
        await _attempt(spec, "legacy", use)


async def _attempt(
    spec: ServerSpec, mode: str, use: Callable[[Connection], Awaitable[None]]
) -> None:
    wire = Wire()
    ready = False
    # One scope around all that the connection holds: the deadline goes once it has answered.
    with anyio.CancelScope(deadline=anyio.current_time() + spec.timeout_s) as scope:
        try:
            async with _client(spec, mode, wire) as client:
                connection = Connection(client, wire, spec)
                await connection.refresh()
                ready = True
                scope.deadline = float("inf")
                await use(connection)
        except Exception as error:
            raise _failure(error, spec, wire, ready=ready) from None
    if scope.cancelled_caught:
        reason = f"no answer within {spec.timeout_s:g} s"
        raise Failed(wire.with_last_words(reason, spec))


@asynccontextmanager
async def _client(spec: ServerSpec, mode: str, wire: Wire) -> AsyncIterator[Client]:
    async with _transport(spec, wire) as (read, write):
        client = Client(
            Opened((Tap(read, wire), write)),
            mode=mode,
            read_timeout_seconds=spec.timeout_s,
            message_handler=wire.hear,
            client_info=Implementation(name="indexd", version="0"),
            cache=None,
        )
        async with client:
            yield client


def _transport(spec: ServerSpec, wire: Wire) -> AbstractAsyncContextManager[Any]:
    if spec.transport == "stdio":
        return _process(spec, wire)
    return _http(spec, wire)


@asynccontextmanager
async def _http(spec: ServerSpec, wire: Wire) -> AsyncIterator[Any]:
    async def note(response: httpx2.Response) -> None:
        wire.status = response.status_code

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        hooks = {"response": [note]}
        return httpx2.AsyncClient(
            headers=headers, timeout=timeout or HTTP_TIMEOUT, auth=auth, event_hooks=hooks
        )

    headers = dict(spec.headers)
    if spec.transport == "sse":
        async with sse_client(spec.url, headers, httpx_client_factory=client) as streams:
            yield streams
        return
    async with (
        client(headers) as http,
        streamable_http_client(spec.url, http_client=http) as streams,
    ):
        yield streams


@asynccontextmanager
async def _process(spec: ServerSpec, wire: Wire) -> AsyncIterator[Any]:
    if not shutil.which(spec.command, path=spec.environment.get("PATH")):
        raise FileNotFoundError(f"command {Path(spec.command).name!r} is not found")
    with tempfile.TemporaryDirectory(prefix="indexd-mcp-") as directory:
        pid_file = Path(directory, "pid")
        parameters = StdioServerParameters(
            command="/bin/sh",
            args=["-c", LAUNCH, str(pid_file), spec.command, *spec.args],
            env=dict(spec.environment),
            cwd=spec.cwd,
            encoding_error_handler="replace",
        )
        try:
            async with wire.stderr() as stderr, stdio_client(parameters, stderr) as streams:
                yield streams
        finally:
            with anyio.CancelScope(shield=True):
                await _end_group(pid_file)


async def _end_group(pid_file: Path) -> None:
    """End what a server that has exited left behind: its process group, children included."""
    group = _number_in(pid_file)
    if not group:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        with anyio.move_on_after(GROUP_GRACE_S):
            while True:
                os.killpg(group, 0)
                await anyio.sleep(0.02)
        os.killpg(group, signal.SIGKILL)


def _number_in(path: Path) -> int:
    text = path.read_text() if path.exists() else ""
    return int(text) if text.strip().isdigit() else 0


def _failure(error: Exception, spec: ServerSpec, wire: Wire, *, ready: bool) -> Failed:
    cause = _first_cause(error)
    if isinstance(cause, IndexdError):  # what we do with the tools failed, not the server
        return Failed(cause.message)
    if wire.status in (401, 403):
        return Failed(f"needs sign-in (HTTP {wire.status})", sign_in=True)
    died = isinstance(cause, MCPError) and cause.code == CONNECTION_CLOSED and not ready
    if died:
        return Failed(wire.with_last_words("it ended before it answered", spec), died=True)
    if isinstance(cause, ValidationError):
        return Failed("its answer breaks the protocol")
    text = str(cause) or type(cause).__name__
    if wire.status >= 400:
        text = f"HTTP {wire.status}"
    return Failed(plain(spec.mask(text)))


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
