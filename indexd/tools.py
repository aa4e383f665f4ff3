"""MCP tools as the daemon serves them: events in, answers out, everything kept over restarts.

What an event changes is written in one transaction. Events come by the socket or as lines of
journal files, which are tailed like sessions: a journal's checkpoint is stored with what its lines
changed. Events are worked on in a thread, one after the other; meanwhile questions are answered
from what was known before.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
from anyio import to_thread

from indexd.confine import RootDirectory
from indexd.deferral import Activations
from indexd.errors import BadRequest, IndexdError
from indexd.requests import McpEvent, ToolList, ToolSearch
from indexd.store import Store
from indexd.tail import Checkpoint, examine
from indexd.tool import integer
from indexd.tool_library import Update
from indexd.tool_rows import SERVERS, Rows, ServerRows, packed, unpacked
from indexd.tool_search import SearchSettings
from indexd.tool_search import ToolSearch as Search
from indexd.watch import Watcher

log = logging.getLogger(__name__)

_JOURNAL, _ACTIVATIONS = b"j", b"a"
MAX_PROBLEMS = 50


class Tools:
    """Answers `tool_search`, `tool_list` and `mcp_event`, and follows the journals."""

    def __init__(self, settings: SearchSettings, store_dir: str, events_dir: str, cookies: str):
        self._settings, self._cookies = settings, cookies
        self._events_dir = os.path.realpath(events_dir)
        self._store = Store(store_dir)
        self._search = Search(settings)
        self._server_rows = ServerRows(self._store.get)
        self._checkpoints: dict[str, Checkpoint] = {}
        self._watcher: Watcher | None = None
        self._turn = anyio.Lock()  # of who changes something
        self._changed, self._untidy = asyncio.Event(), asyncio.Event()
        # How often journals were seen to change, and up to which time they have been read.
        self._seen = self._read = 0
        self.problems: list[str] = []

    async def start(self) -> None:
        """Restore what the cache holds, and read what the journals gained meanwhile."""
        await to_thread.run_sync(self._restore)
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._changed.set)

        self._watcher = Watcher([self._events_dir], self._cookies, wake)
        await to_thread.run_sync(self._watcher.start)
        async with self._turn:
            await self._read_journals()

    async def run(self) -> None:
        """Follow the journals until cancelled."""
        assert self._watcher is not None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow)
                tasks.start_soon(self._tidy)
        finally:
            self._watcher.close()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._catch_up()

    async def _tidy(self) -> None:
        """Put parts of the index together whenever events have made it many."""
        while True:
            await self._untidy.wait()
            self._untidy.clear()
            async with self._turn:
                self._search.commit(await to_thread.run_sync(self._search.tidy))

    def close(self) -> None:
        """Write down what waits."""
        self._store.close()

    def alive(self) -> bool:
        """Say whether the threads behind are alive."""
        return self._store.alive() and (self._watcher is None or self._watcher.alive())

    @property
    def degraded(self) -> list[str]:
        """Return what is wrong with the tools' rows of the cache."""
        return [text for text in (self._store.degraded, self._store.notice) if text]

    def servers(self) -> dict[str, dict[str, Any]]:
        """Return `tools online problems` per server."""
        return self._search.servers()

    async def tool_search(self, request: ToolSearch) -> dict[str, Any]:
        """Return the answer to `tool_search`."""
        await self._catch_up()
        answer = self._search.search(
            query=request.query,
            tool_id=request.tool_id,
            max_results=request.max_results,
            session=request.session,
            server=request.server,
            detail=request.detail,
        )
        if request.session:
            self._store.put(self._activations())
        return answer

    async def tool_list(self, request: ToolList) -> dict[str, Any]:
        """Return the answer to `tool_list`."""
        await self._catch_up()
        state = self._search.listed(request.session)
        return await to_thread.run_sync(state, request.context_window, request.budget)

    async def mcp_event(self, request: McpEvent) -> dict[str, Any]:
        """Take one connection event and return what it changed."""
        event = {name: getattr(request, name) for name in ("event", "server", "tools")}
        if request.instructions is not None:
            event["instructions"] = request.instructions
        async with self._turn:
            update, rows = await to_thread.run_sync(self._prepared, event)
            self._store.put(rows | self._commit(update))
        # Nobody has it in a file to read it again from: what is answered outlives a crash.
        await to_thread.run_sync(self._store.flush)
        change, server = update.change, update.server
        return {
            "server": change.server,
            "tools": len(server.tools),
            "added": len(change.added),
            "changed": len(change.changed),
            "removed": len(change.removed),
            "warnings": list(server.problems),
        }

    def _prepared(self, event: Mapping[str, Any]) -> tuple[Update, Rows]:
        update = self._search.prepare(event)
        return update, self._server_rows.changed(update)

    def _commit(self, update: Update) -> Rows:
        """Let an update take effect and return the other rows that it changes."""
        self._search.commit(update)
        self._untidy.set()
        return self._activations() if update.change.removed else {}

    def _activations(self) -> Rows:
        return {
            _ACTIVATIONS + session.encode("utf-8", "surrogatepass"): record and packed(record)
            for session, record in self._search.activations.changes().items()
        }

    async def _catch_up(self) -> None:
        """Read what journals hold that was written before this call."""
        assert self._watcher is not None
        seen = await asyncio.wrap_future(self._watcher.barrier())
        if self._watcher.drain() or not seen:
            self._seen += 1
        if (wanted := self._seen) <= self._read:
            return
        async with self._turn:
            # What was begun is ended, even if who asked does not wait for it.
            with anyio.CancelScope(shield=True):
                if self._read < wanted:
                    wanted = self._seen
                    await self._read_journals()
                    self._read = wanted

    async def _read_journals(self) -> None:
        """Apply what the journals gained, a unit of rows for each."""
        for path, lines, checkpoint in await to_thread.run_sync(self._gained):
            rows: Rows = {}
            for line in lines:
                prepared = await to_thread.run_sync(self._line, path, line)
                if prepared is not None:
                    update, changed = prepared
                    rows |= changed | self._commit(update)
            self._checkpoints[path] = checkpoint
            key = _JOURNAL + os.fsencode(path)
            self._store.put(rows | {key: msgspec.msgpack.encode(checkpoint)})

    def _gained(self) -> list[tuple[str, list[bytes], Checkpoint]]:
        """Return (path, new lines, checkpoint) of each journal that changed."""
        try:
            directory = RootDirectory(self._events_dir)
        except OSError:  # Not there yet.
            return []
        found = []
        with directory:
            for name in sorted(os.listdir(directory.path)):
                if name.endswith(".jsonl") and not name.startswith("."):
                    path = os.path.join(directory.path, name)
                    try:
                        lines, checkpoint = self._new_lines(directory, path)
                    except (IndexdError, OSError) as error:
                        self._problem(f"{name}: {error}")
                        continue
                    if checkpoint != self._checkpoints.get(path):
                        found.append((path, lines, checkpoint))
        return found

    def _new_lines(self, directory: RootDirectory, path: str) -> tuple[list[bytes], Checkpoint]:
        fd = directory.open(path)
        try:
            look = examine(fd, self._checkpoints.get(path))
            return [line.data for line in look.lines()], look.checkpoint()
        finally:
            os.close(fd)

    def _line(self, path: str, line: bytes) -> tuple[Update, Rows] | None:
        """Return what one line of a journal changes; a bad line changes nothing."""
        if not line.strip():
            return None
        try:
            event = json.loads(line, parse_int=integer)
            if not isinstance(event, dict):
                raise BadRequest("an event is a JSON object")
            return self._prepared(event)
        except (ValueError, TypeError, KeyError, RecursionError, IndexdError) as error:
            self._problem(f"{os.path.basename(path)}: a line was left out: {error}")
            return None

    def _problem(self, text: str) -> None:
        if text not in self.problems and len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)
            log.warning("mcp events problem=%r", text)

    def _restore(self) -> None:
        self._store.start()
        servers, problems = self._server_rows.restored(self._store.scan(SERVERS))
        sessions = {
            key[1:].decode("utf-8", "surrogatepass"): unpacked(value)
            for key, value in self._store.scan(_ACTIVATIONS).items()
        }
        self._search = Search(self._settings, Activations(sessions))
        for update in self._search.restore(servers):
            self._store.put(self._server_rows.changed(update))
        for problem in problems:
            self._problem(problem)
        for key, value in self._store.scan(_JOURNAL).items():
            self._checkpoints[os.fsdecode(key[1:])] = msgspec.msgpack.decode(value, type=Checkpoint)
