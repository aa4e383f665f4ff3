"""The write side: keeps the index equal to the files.

Paths that may have changed come from the watcher; a sweep finds what events missed. What is
small is done at once, in turns; a backlog (the first pass, giant files) is worked off beside it,
newest files first. Every step goes look, settle, publish, store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.abc import TaskStatus

from indexd import base, finding, records
from indexd.attending import Task, attend, unread_bytes
from indexd.confine import RootDirectory
from indexd.discover import skipped
from indexd.errors import IndexdError
from indexd.finding import Found, OpenRoot
from indexd.formats.registry import named_by_path
from indexd.index import Index, Part, merge_parts
from indexd.library import Library
from indexd.records import Record
from indexd.roots import Root
from indexd.settling import Change, removal
from indexd.store import Store
from indexd.sweep import Schedule
from indexd.text import Profile
from indexd.watch import Watcher

log = logging.getLogger(__name__)
T = TypeVar("T")

# What a query may wait for: files with more unread bytes than this go to the backlog.
PROMPT_BYTES = 4 * 1024 * 1024
# How long the index must rest before the base is written anew, and how much of it must be new.
REST_SECONDS = 20.0
NEW_SHARE = 0.1
# Twice this is what an append may wait until it is found without being asked for.
SETTLE_SECONDS = 0.1


class Indexer:
    """Keeps `index` equal to the session files below `roots`."""

    def __init__(
        self,
        index: Index,
        store: Store,
        roots: Sequence[Root],
        profile: Profile,
        cache_dir: str,
        base_name: str,
    ) -> None:
        self.index, self.store, self.library = index, store, Library()
        self.problems: dict[str, str] = {}
        self.watcher: Watcher | None = None
        self._configured = list(roots)
        self.opened_roots: dict[str, OpenRoot] = {}
        self._cache_dir, self._profile = cache_dir, profile
        self._base_path = os.path.join(cache_dir, base_name)
        self._base_documents = 0
        self._turn = anyio.Lock()
        self._swept = anyio.Event()
        self._listed, self._one_less = anyio.Event(), anyio.Event()
        self._changed = asyncio.Event()
        self._one, self._beside = CapacityLimiter(1), CapacityLimiter(1)
        self._backlog: dict[str, Found] = {}
        self._backlog_added = anyio.Event()
        self._merge_wanted = anyio.Event()
        self._last_change = time.monotonic()

    # What others ask.

    @property
    def files_pending(self) -> int:
        """Return how many files have not been read yet."""
        return len(self._backlog)

    @property
    def bytes_pending(self) -> int:
        """Return how many bytes have not been read yet."""
        return sum(
            unread_bytes(found.stamp, self.library.get(path))
            for path, found in list(self._backlog.items())
        )

    @property
    def roots(self) -> list[OpenRoot]:
        """Return the roots that exist."""
        return list(self.opened_roots.values())

    async def listed(self) -> None:
        """Return once it is known what there is to read."""
        await self._listed.wait()

    async def worked_off(self) -> None:
        """Return once nothing is left to read."""
        await self._swept.wait()
        while self._backlog:
            await self._one_less.wait()

    async def catch_up(self) -> None:
        """Return once every complete line written before the call is in the index.

        Files of the backlog are not waited for.
        """
        await self._swept.wait()
        assert self.watcher is not None
        seen = await asyncio.wrap_future(self.watcher.barrier())
        async with self._turn:
            await self._take_events()
            unseen = [root for root in self.roots if not seen or self._polled(root)]
            if unseen:
                await self._sweep(unseen)

    async def reindex(self, path: str | None) -> int:
        """Forget what is known of one session, or of all, and read it again; return how many."""
        async with self._turn:
            chosen = list(self.library) if path is None else [self.library.get(path)]
            for record in chosen:
                if record is not None:
                    self._forget(record)
            await self._sweep()
        return sum(record is not None for record in chosen)

    async def changed_roots(self, roots: Sequence[Root]) -> None:
        """Follow another configuration of roots."""
        async with self._turn:
            self._configured = list(roots)
            self._open_roots()
            await self._sweep()

    # The process around it.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Restore what the cache holds, then follow the files until cancelled."""
        await self._in_thread(self._restore)
        task_status.started()
        self._open_roots()
        self.watcher = await self._in_thread(self._watch, asyncio.get_running_loop())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._following)
                tasks.start_soon(self._sweeping)
                tasks.start_soon(self._working_off)
                tasks.start_soon(self._merging)
        finally:
            self.watcher.close()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> Watcher:
        def wake() -> None:
            loop.call_soon_threadsafe(self._changed.set)

        watcher = Watcher(
            [os.path.realpath(root.path) for root in self._configured],
            os.path.join(self._cache_dir, "cookies"),
            wake,
            excluded=self._left_out,
        )
        watcher.start()
        return watcher

    def _left_out(self, directory: str) -> bool:
        root = self.root_of(directory)
        excluded = root is not None and root.excludes(directory)
        return excluded or skipped(os.path.basename(directory))

    def healthy(self) -> bool:
        """Say whether the threads that everything rests on are alive."""
        return self.store.alive() and (self.watcher is None or self.watcher.alive())

    def close(self) -> None:
        """Write down what a restart will want, in the little time there is."""
        self.store.close()
        for root in self.opened_roots.values():
            root.directory.close()

    # Following.

    async def _following(self) -> None:
        """Take events as they come, so that the index is current before anybody asks."""
        assert self.watcher is not None
        await self._swept.wait()
        while True:
            await self._changed.wait()
            # Agents write in bursts: a moment's patience turns many looks into one.
            await anyio.sleep(SETTLE_SECONDS)
            async with self._turn:
                await self._take_events()

    async def _take_events(self) -> None:
        assert self.watcher is not None
        self._changed.clear()
        paths = self.watcher.drain()
        if paths:
            self._open_roots()
            found, gone = await self._in_thread(self._concerned, paths)
            await self._attend_to(found, gone)

    async def _sweeping(self) -> None:
        schedule = Schedule.starting(_now())
        while True:
            polled = [root for root in self.roots if self._polled(root)]
            await anyio.sleep(schedule.wait(_now(), polling=bool(polled)))
            full = _now() >= schedule.full_at
            async with self._turn:
                found = await self._sweep(None if full else polled)
            self._swept.set()
            now = _now()
            schedule = schedule.after_full(now, found=found) if full else schedule.after_recent(now)

    def _polled(self, root: OpenRoot) -> bool:
        return self.watcher is None or self.watcher.mode(root.path) == "poll"

    async def _sweep(self, roots: Sequence[OpenRoot] | None = None) -> bool:
        """Compare the files of some roots, or of all, with what is known; say if any differed."""
        if roots is None:
            self._open_roots()
        everything = await self._in_thread(finding.sweep, self.roots if roots is None else roots)
        here = {found.candidate.path: found for found in everything}
        differing = [f for p, f in here.items() if f.differs(self.library.get(p))]
        swept = None if roots is None else {root.path for root in roots}
        gone = [
            record
            for record in self.library
            if record.path not in here and (swept is None or record.root in swept)
        ]
        await self._attend_to(differing, gone)
        return bool(differing or gone)

    def _open_roots(self) -> None:
        """Open the roots that have appeared, and let go of those that are gone."""
        wanted = {root.path: root for root in self._configured}
        for path, opened in list(self.opened_roots.items()):
            if wanted.get(path) != opened.root or not opened.directory.is_current():
                opened.directory.close()
                del self.opened_roots[path]
        for path, root in wanted.items():
            if path not in self.opened_roots:
                with contextlib.suppress(OSError):
                    self.opened_roots[path] = OpenRoot(root, RootDirectory(path))

    def root_of(self, path: str) -> OpenRoot | None:
        """Return the open root that holds `path`."""
        return next((r for r in list(self.opened_roots.values()) if r.holds(path)), None)

    def watch_status(self) -> dict[str, Any]:
        """Return how changes are noticed."""
        return {} if self.watcher is None else self.watcher.status()

    def _concerned(self, paths: Iterable[str]) -> tuple[list[Found], list[Record]]:
        """Return the sessions that differ around the changed paths, and the records now gone."""
        found: dict[str, Found] = {}
        suspects: dict[str, Record] = {}
        for path in paths:
            root = self.root_of(path)
            owner = self.library.owner(path)
            if owner is not None:
                suspects[owner.path] = owner
            now = finding.known(root, owner) if root and owner and path == owner.data_path else []
            if root is None:
                suspects |= {record.path: record for record in self.library.below(path)}
            elif now:
                found |= {f.candidate.path: f for f in now}
            elif os.path.isdir(path) and not os.path.islink(path):
                found |= {f.candidate.path: f for f in finding.below(root, path)}
                suspects |= {record.path: record for record in self.library.below(path)}
            else:
                directory = os.path.dirname(path)
                found |= {f.candidate.path: f for f in finding.around(root, directory)}
                for known in (*self.library.in_directory(directory), *self.library.below(path)):
                    suspects[known.path] = known
        gone = [record for path, record in suspects.items() if path not in found]
        return [f for p, f in found.items() if f.differs(self.library.get(p))], gone

    async def _attend_to(self, found: Sequence[Found], gone: Sequence[Record]) -> None:
        """Bring the index up to date with some files, now or by way of the backlog."""
        found = sorted(found, key=lambda f: f.stamp.mtime_ns, reverse=True)
        prompt = [one for one in found if one.candidate.path not in self._backlog]
        # All of them are pending from now on, so that nobody is told otherwise.
        self._backlog |= {one.candidate.path: one for one in found}
        self._listed.set()
        budget = PROMPT_BYTES
        moved: set[str] = set()
        for one in prompt:
            path = one.candidate.path
            old = self.library.get(path) or self._moved_from(one)
            budget -= unread_bytes(one.stamp, old)
            if budget < 0:
                break
            if old is not None and old.path != path:
                moved.add(old.path)
            await self._attend_now(one, old)
            self._backlog.pop(path, None)
        if self._backlog:
            self._backlog_added.set()
        for record in gone:
            if record.path not in moved:
                self._forget(record)

    def _moved_from(self, found: Found) -> Record | None:
        """Return the record of the file that this one was, if it was renamed."""
        old = self.library.with_inode(found.stamp.device, found.stamp.inode)
        if old is None or os.path.lexists(old.data_path):
            return None
        # A path may have its say in the format; only within one agent's directories it is moot.
        now = found.candidate.data_path
        return old if named_by_path(old.data_path) == named_by_path(now) else None

    async def _attend_now(self, found: Found, old: Record | None) -> None:
        task = Task(found, old, self.library.new_file_id(), self._profile)
        try:
            change: Change | Exception = await self._in_thread(attend, task, self.store.get)
        except Exception as error:
            change = error
        self._conclude(found, old, change)

    def _conclude(self, found: Found, old: Record | None, change: Change | Exception) -> None:
        """Publish a change, or note why there is none: one file's trouble stops no other."""
        path = found.candidate.path
        if isinstance(change, Change):
            self.problems.pop(path, None)
            self._apply(change, old)
        elif isinstance(change, IndexdError | OSError):
            self._unreadable(found, old, str(change))
        else:
            log.error("cannot index path=%r", path, exc_info=change)
            self._unreadable(found, old, f"internal error: {change!r}")

    def _unreadable(self, found: Found, old: Record | None, reason: str) -> None:
        """Note a file that is there but cannot be read; what it said before is not shown."""
        if old is not None:
            self._forget(old)
        if os.path.lexists(found.candidate.data_path):
            self.problems[found.candidate.path] = reason

    def _apply(self, change: Change, old: Record | None) -> None:
        """Publish a change, then hand it to the store."""
        record = change.record
        if old is not None and old.path != record.path:
            self.library.remove(old.path)
        self.library.put(record)
        drop = () if change.drop is None else (change.drop,)
        facts = (record.facts(),) if record.agent else ()
        self.index.publish(change.segments, facts, drop)
        self.store.put(change.rows)
        self._last_change = time.monotonic()
        self._merge_wanted.set()

    def _forget(self, record: Record) -> None:
        self.library.remove(record.path)
        self.index.publish(drop=(record.file_id,))
        self.store.put(removal(record))
        self._last_change = time.monotonic()

    # The backlog.

    async def _working_off(self) -> None:
        """Read the files of the backlog, newest first."""
        while True:
            while self._backlog:
                path = max(self._backlog, key=lambda p: self._backlog[p].stamp.mtime_ns)
                await self._read_backlog(self._backlog[path])
                self._one_less.set()
                self._one_less = anyio.Event()
            self._backlog_added = anyio.Event()
            await self._backlog_added.wait()

    async def _read_backlog(self, found: Found) -> None:
        """Read one file beside all else; it may change again, or go, while it is read."""
        path = found.candidate.path
        old = self.library.get(path)
        task = Task(found, old, self.library.new_file_id(), self._profile)
        try:
            change: Change | Exception = await to_thread.run_sync(
                attend, task, self.store.get, limiter=self._beside
            )
        except Exception as error:
            change = error
        async with self._turn:
            if self._backlog.get(path) is found:
                del self._backlog[path]
            there = await to_thread.run_sync(os.path.lexists, found.candidate.data_path)
            if self.library.get(path) is old and there:
                self._conclude(found, old, change)

    # Merging and the base.

    async def _merging(self) -> None:
        """Keep the parts few, and write the base whenever the index has rested."""
        while True:
            with anyio.move_on_after(REST_SECONDS):
                await self._merge_wanted.wait()
            self._merge_wanted = anyio.Event()
            while due := self.index.due():
                await self._merge(due)
            if not self._backlog and time.monotonic() - self._last_change >= REST_SECONDS:
                await self._write_base()

    async def _merge(self, parts: Sequence[Part]) -> None:
        merged = await to_thread.run_sync(merge_parts, parts)
        self.index.replace(parts, merged)

    async def _write_base(self) -> None:
        parts = self.index.snapshot.parts
        documents = self.index.snapshot.documents
        new = documents - self._base_documents
        if abs(new) <= NEW_SHARE * documents and len(parts) <= 1:
            return
        covers = {record.file_id: record.messages for record in self.library}
        try:
            segment = await to_thread.run_sync(base.save, parts, covers, self._base_path)
        except OSError as error:
            log.warning("base not written error=%r", error)
            return
        self.index.replace(parts, segment)
        self._base_documents = len(segment)

    # Restoring.

    def _restore(self) -> None:
        """Publish what the cache holds; what does not fit together is read again."""
        segment, covered = base.load(self._base_path)
        known = self._stored_records()
        rest, damaged = base.beyond(known, covered, self.store.get)
        bad = {record.file_id for record in damaged}
        for record in known:
            if record.file_id in bad:
                self.store.put(removal(record))
            else:
                self.library.put(record)
        segments = [s for s in (segment, rest) if s is not None]
        self.index.restore(segments, [record.facts() for record in self.library if record.agent])
        self._base_documents = 0 if segment is None else len(segment)

    def _stored_records(self) -> list[Record]:
        found = []
        for key, value in self.store.scan(records.RECORDS).items():
            try:
                found.append(records.decode(value))
            except ValueError as error:
                log.warning("record damaged, dropping it key=%r error=%r", key, error)
                self.store.put({key: None})
        return found

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await to_thread.run_sync(lambda: work(*args), limiter=self._one)


def _now() -> float:
    """Return seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
