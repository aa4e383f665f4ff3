"""The engine as the daemon runs it: the parts put together, and the methods they answer."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, cast

import anyio
from anyio import to_thread
from anyio.abc import TaskStatus

from indexd import __version__, config, paths, records, sandbox, status
from indexd.config import Settings
from indexd.copies import Copies
from indexd.deferral import DeferralSettings
from indexd.index import Index, Snapshot
from indexd.indexer import Indexer
from indexd.located import Sources
from indexd.requests import (
    Around,
    History,
    McpEvent,
    Reindex,
    Search,
    Sessions,
    Show,
    Status,
    Sync,
    ToolList,
    ToolSearch,
)
from indexd.searching import Searcher
from indexd.server import Method
from indexd.service import BaseCare, Service
from indexd.store import Store, set_aside
from indexd.text import ANALYSIS, Profile
from indexd.tool_search import SearchSettings
from indexd.tools import Tools
from indexd.vital import Vital


class Engine:
    """Everything between the socket and the files, for one Settings."""

    def __init__(self, settings: Settings, load: Callable[[], Settings]) -> None:
        self._settings, self._load = settings, load
        self._began = time.monotonic()
        self._vital = Vital()
        profile = cast(Profile, settings.analysis.profile)
        # What rows mean depends on how texts are read and analysed: each way has a directory.
        name = f"sessions-{profile}-{ANALYSIS}-{records.VERSION}"
        base_name = f"base-{name}"
        os.makedirs(settings.cache_dir, mode=0o700, exist_ok=True)
        _remove_others(settings.cache_dir, (name, set_aside(name), base_name))
        self._store = Store(os.path.join(settings.cache_dir, name))
        self._index = Index()
        copies = Copies()
        self.indexer = Indexer(
            self._index,
            self._store,
            settings.roots,
            profile,
            settings.cache_dir,
            base_name,
            copies.prepare if profile == "code" else _nothing,
            self._vital,
        )
        sources = Sources(self.indexer.library.get, self.indexer.roots.of, self._store.get)
        searcher = Searcher(sources, profile, settings.history, copies)
        self._service = Service(
            self._index,
            searcher,
            sources,
            self.indexer.catch_up,
            self._pending,
            self.indexer.restore,
            BaseCare(self.indexer.upkeep.sound, self.indexer.restore_base),
        )
        self._tools = Tools(
            _tool_settings(settings),
            os.path.join(settings.cache_dir, "tools-2"),
            paths.events_dir(settings.state_dir),
            os.path.join(settings.cache_dir, "cookies-tools"),
        )

    def methods(self) -> Mapping[str, Method]:
        """Return what answers each method of the socket."""
        return {
            "search": Method(self._service.search, Search),
            "around": Method(self._service.around, Around),
            "show": Method(self._service.show, Show),
            "sessions": Method(self._service.sessions, Sessions),
            "history": Method(self._service.history, History),
            "sync": Method(self._service.sync, Sync),
            "tool_search": Method(self._tools.tool_search, ToolSearch),
            "tool_list": Method(self._tools.tool_list, ToolList),
            "mcp_event": Method(self._tools.mcp_event, McpEvent),
            "status": Method(self._status, Status),
            "reindex": Method(self._reindex, Reindex),
        }

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Restore what the cache holds, then follow the files until cancelled."""
        await to_thread.run_sync(self._store.start)
        await self._tools.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._vital.part(self._tools.run))
            await tasks.start(self.indexer.run)
            task_status.started()

    async def worked_off(self) -> None:
        """Return once every file that is there has been read."""
        await self.indexer.worked_off()

    def healthy(self) -> bool:
        """Say whether everything that must run does."""
        return self.indexer.healthy() and self._tools.alive()

    def failed(self) -> bool:
        """Say whether a part has failed that nothing goes on without."""
        return self._vital.failed

    def status_text(self) -> str:
        """Return the state in one line."""
        files, size = self._pending()
        known = f"{self._index.snapshot.documents} documents in {len(self.indexer.library)} files"
        return f"{known}, {files} files ({size / 1e6:.0f} MB) to read" if files else known

    async def reload(self) -> None:
        """Read the configuration again; its roots take effect at once, the rest at a restart."""
        settings = self._load()
        self._settings = settings
        await self.indexer.changed_roots(settings.roots)

    async def close(self) -> None:
        """Write down what a restart will want."""
        await to_thread.run_sync(self._tools.close)
        await to_thread.run_sync(self.indexer.close)

    def _pending(self) -> tuple[int, int]:
        return len(self.indexer.backlog), self.indexer.backlog.unread_bytes

    async def _reindex(self, request: Reindex) -> dict[str, Any]:
        path = None if request.path is None else paths.plain_path(request.path)
        return {"files": await self.indexer.reindex(path)}

    async def _status(self, request: Status) -> dict[str, Any]:
        await self.indexer.listed()
        return await to_thread.run_sync(self._facts)

    def _facts(self) -> dict[str, Any]:
        settings, indexer = self._settings, self.indexer
        known = list(indexer.library)
        files_pending, bytes_pending = self._pending()
        snapshot = self._index.snapshot
        notices = (self._store.degraded, self._store.notice, indexer.upkeep.notice)
        degraded = [text for text in notices if text]
        degraded += self._tools.degraded
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._began, 3),
            "socket": settings.socket,
            "generation": snapshot.generation,
            "documents": snapshot.documents,
            "files": sum(bool(record.agent) for record in known),
            "files_pending": files_pending,
            "bytes_pending": bytes_pending,
            "index_bytes": status.directory_bytes(settings.cache_dir),
            "rss_bytes": status.rss_bytes(),
            "watch": indexer.roots.status(),
            "roots": status.roots(settings.roots, indexer.roots.opened, known),
            "agents": status.agents(known),
            "servers": self._tools.servers(),
            "problems": [
                *settings.left_out,
                *status.problems(known, indexer.problems),
                *self._tools.problems,
            ],
            "degraded": degraded,
            "sandbox": sandbox.probe(paths.home(os.environ)),
        }


def _tool_settings(settings: Settings) -> SearchSettings:
    wanted = settings.tool_search
    deferral = DeferralSettings(wanted.enabled, wanted.min_pct, wanted.min_tokens)
    return SearchSettings(deferral, wanted.threshold, wanted.max_results)


def build(settings: Settings) -> Engine:
    """Return the engine that `settings` describe."""

    def load() -> Settings:
        return config.load(
            os.environ,
            config_file=settings.config_file,
            socket=settings.socket,
            cache_dir=settings.cache_dir,
            state_dir=settings.state_dir,
        )

    return Engine(settings, load)


def _nothing(snapshot: Snapshot) -> None:
    """Profile `seed` counts every copy, unless asked otherwise."""


def _remove_others(cache_dir: str, kept: Container[str]) -> None:
    """Remove the rows of other versions and analyses; they could only grow old."""
    for other in os.listdir(cache_dir):
        if other.startswith(("sessions-", "base-")) and other not in kept:
            path = os.path.join(cache_dir, other)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
