"""The read side: what the socket's methods about sessions answer.

A request takes one snapshot of the index and one thread; nothing it does waits for indexing, but
for what `sync` promises.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from anyio import CapacityLimiter, to_thread

from indexd import history
from indexd.around import around
from indexd.errors import Busy, IndexdError, NotAllowed
from indexd.index import Index, Snapshot
from indexd.located import Sources
from indexd.paging import Page, Pages
from indexd.paths import plain_path
from indexd.recall import Changed
from indexd.requests import Around, History, Search, Sessions, Show, Sync
from indexd.searching import Searcher
from indexd.sessions import sessions
from indexd.settling import RowsLost
from indexd.show import show
from indexd.source import DamagedSegment

# Scoring holds the interpreter; more threads than this would only wait for each other.
THREADS = 2
# How often `around` begins anew because what it was about to look up was replaced meanwhile.
ROWS_TRIES = 5
# How often an answer begins anew because the base it was read from was damaged.
BASE_TRIES = 3


class BaseCare(NamedTuple):
    """Whether the base is what was written, and what has it restored if not."""

    sound: Callable[[], bool]
    restore: Callable[[], Awaitable[object]]


class Service:
    """Answers `search`, `around`, `show`, `sessions`, `history` and `sync`.

    `catch_up` returns once everything written before it was called is in the index; `pending`
    says how many files and bytes are not read yet; `restore` has a session read again if it
    is not what it was when last looked at, or the cache has lost rows of it; `base` sees to the
    base.
    """

    def __init__(
        self,
        index: Index,
        searcher: Searcher,
        sources: Sources,
        catch_up: Callable[[], Awaitable[None]],
        pending: Callable[[], tuple[int, int]],
        restore: Callable[[str], Awaitable[bool]],
        base: BaseCare,
    ) -> None:
        self._index, self._searcher, self._sources = index, searcher, sources
        self._catch_up, self._pending = catch_up, pending
        self._restore, self._base = restore, base
        self._threads = CapacityLimiter(THREADS)
        self._pages = Pages()

    async def search(self, request: Search) -> dict[str, Any]:
        """Return the answer to `search`."""
        began = time.perf_counter()
        page = None if request.generation is None else self._pages.get(request.generation)
        if request.sync and page is None:
            await self._catch_up()
        page, answer = await self._answered(
            lambda page: self._searcher.search(page.snapshot, request, page.now_ms), page
        )
        snapshot = page.snapshot
        if len(answer["hits"]) == request.limit:
            self._pages.keep(page)
        if request.generation not in (None, snapshot.generation):
            answer["warnings"].append(
                "the index has changed since the page before: hits may come again or be missed"
            )
        return self._completed(answer, snapshot, began)

    async def sessions(self, request: Sessions) -> dict[str, Any]:
        """Return the answer to `sessions`."""
        began = time.perf_counter()
        if request.sync:
            await self._catch_up()
        page, answer = await self._answered(
            lambda page: sessions(self._sources, page.snapshot, request)
        )
        return self._completed(answer, page.snapshot, began)

    async def _answered(
        self, answer: Callable[[Page], dict[str, Any]], page: Page | None = None
    ) -> tuple[Page, dict[str, Any]]:
        """Return what a thread answers from a page's snapshot, or else from the present one.

        An answer counts if the base was sound to its end; else the base is restored, and the
        answer is made anew.
        """
        for _ in range(BASE_TRIES):
            page = page or Page(self._index.snapshot, time.time_ns() // 1_000_000)
            try:
                made = await to_thread.run_sync(answer, page, limiter=self._threads)
                if self._base.sound():
                    return page, made
            except IndexdError:
                raise
            except Exception as error:
                if self._base.sound() and not isinstance(error, DamagedSegment):
                    raise
            await self._base.restore()
            self._pages, page = Pages(), None
        raise Busy("the index is being repaired", "ask again in a moment")

    def _completed(
        self, answer: dict[str, Any], snapshot: Snapshot, began: float
    ) -> dict[str, Any]:
        """Return `answer` with what it rests on, and what it lacks as yet."""
        files_pending, bytes_pending = self._pending()
        if files_pending:
            answer["warnings"].append(
                f"still indexing: {files_pending} files ({bytes_pending / 1e6:.1f} MB) are not"
                " searched yet, newest come first"
            )
        return answer | {
            "took_ms": round((time.perf_counter() - began) * 1000, 3),
            "index": {
                "documents": snapshot.documents,
                "files": len(snapshot.files),
                "files_pending": files_pending,
                "bytes_pending": bytes_pending,
                "generation": snapshot.generation,
            },
        }

    async def around(self, request: Around) -> dict[str, Any]:
        """Return the answer to `around`."""
        await self._catch_up()
        return await self._with_rows(around, request)

    async def show(self, request: Show) -> dict[str, Any]:
        """Return the answer to `show`."""
        await self._catch_up()
        return await self._with_rows(show, request)

    async def _with_rows(
        self, answer: Callable[[Sources, Any, Any], dict[str, Any]], request: Any
    ) -> dict[str, Any]:
        """Return an answer that needs the cache's rows of a session, restored if they are lost."""
        for _ in range(ROWS_TRIES):
            files = self._index.snapshot.files.values()
            try:
                return await to_thread.run_sync(
                    answer, self._sources, files, request, limiter=self._threads
                )
            except (RowsLost, Changed) as error:  # By a change at this moment, or with the cache.
                await self._catch_up()
                await self._restore(error.path)
            except NotAllowed:  # Or it was no session for a moment only.
                if not await self._restore(plain_path(request.session_path)):
                    raise
        raise Busy("the session is changing, or being read again", "ask again in a moment")

    async def history(self, request: History) -> dict[str, Any]:
        """Return the answer to `history`: the text that agents know."""
        if request.operation == "search":
            # An agent that names no directory has no project to keep to.
            placed = bool(request.session_dir or request.project)
            found = await self.search(
                Search(
                    query=request.query,
                    literal=True,
                    scope="project" if placed and request.scope == "project" else "global",
                    kinds=request.kind,
                    limit=request.limit,
                    tool_name=request.tool_name or None,
                    session_dir=request.session_dir or None,
                    project=request.project or None,
                )
            )
            return {"text": history.search_text(request.query, found["hits"])}
        assert request.message_index is not None
        found = await self.around(
            Around(
                session_path=request.session_path,
                message_index=request.message_index,
                before=request.before,
                after=request.after,
                full=True,
            )
        )
        text = history.around_text(request.session_path, request.message_index, found["messages"])
        return {"text": text}

    async def sync(self, request: Sync) -> dict[str, Any]:
        """Return once everything written before the call can be found."""
        await self._catch_up()
        return {"generation": self._index.snapshot.generation}
