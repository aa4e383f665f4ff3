"""The write side: keeps the index equal to the files.

Paths that may have changed come from the watcher; a sweep finds what events missed. What is
small is done at once, in turns; the rest goes to the backlog. Every step goes look, settle,
publish, store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeVar

import anyio
import msgspec
from anyio import CapacityLimiter, to_thread
from anyio.abc import TaskStatus

from indexd import finding
from indexd.attending import FILE_BYTES, Task, attend, unread_bytes
from indexd.backlog import Backlog
from indexd.confine import exhausted
from indexd.finding import Found, OpenRoot
from indexd.followed import FollowedRoots
from indexd.formats.registry import named_by_path
from indexd.index import Index, Snapshot
from indexd.library import Library
from indexd.looking import look_at
from indexd.publishing import Publisher
from indexd.reading import TooMuch
from indexd.records import Record
from indexd.roots import Root
from indexd.schedule import Schedule
from indexd.settling import Change, rows_are_whole
from indexd.source import DamagedSegment
from indexd.store import Store
from indexd.text import Profile
from indexd.upkeep import REST_SECONDS, Upkeep
from indexd.vital import Vital

log = logging.getLogger(__name__)
T = TypeVar("T")

# What a query may wait for: files with more unread bytes than this in all, FILE_BYTES for each
# besides, go to the backlog.
PROMPT_BYTES = 4 * 1024 * 1024
# How much a sweep reads again to be sure of it.
PROOF_BYTES = 256 * 1024 * 1024
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
        prepare: Callable[[Snapshot], None],
        vital: Vital,
    ) -> None:
        self.library = Library()
        self.roots = FollowedRoots(roots, os.path.join(cache_dir, "cookies"), self._wake)
        self._store, self._profile, self._vital = store, profile, vital
        base_path = os.path.join(cache_dir, base_name)
        self._turn = anyio.Lock()
        busy: Callable[[], bool] = lambda: bool(self.backlog)  # noqa: E731
        self.upkeep = Upkeep(index, self.library, store, base_path, busy, self._turn, prepare)
        self._publisher = Publisher(index, self.library, store, self.upkeep)
        self.backlog = Backlog(self.library, self._publisher, store.get, profile, self._turn)
        self._one = CapacityLimiter(1)
        self._listed, self._swept = anyio.Event(), anyio.Event()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._again: set[str] = set()
        self._losses = 0

    # What others ask.

    @property
    def problems(self) -> dict[str, str]:
        """Return by session path why a file that is there gives nothing."""
        return self._publisher.problems()

    async def listed(self) -> None:
        """Return once it is known what there is to read."""
        await self._listed.wait()

    async def worked_off(self) -> None:
        """Return once nothing is left to read."""
        await self._swept.wait()
        await self.backlog.empty()

    async def catch_up(self) -> None:
        """Return once every complete line written before the call is in the index.

        Files of the backlog are not waited for.
        """
        await self._swept.wait()
        seen = await asyncio.wrap_future(self.roots.barrier())
        async with self._in_turn():
            await self._take_events()
            # No event tells that a directory above a root was moved.
            if not seen or self.roots.moved():
                await self._sweep()
            elif unseen := self.roots.polled():
                await self._sweep(unseen)

    async def reindex(self, path: str | None) -> int:
        """Forget what is known of one session, or of all, and read it again; return how many."""
        async with self._in_turn():
            chosen = list(self.library) if path is None else [self.library.get(path)]
            for record in chosen:
                if record is not None:
                    self._publisher.forget(record)
            await self._sweep()
        return sum(record is not None for record in chosen)

    async def restore(self, path: str) -> bool:
        """Read a session again if it has changed, or the cache has lost rows of it; say if so."""
        async with self._in_turn():
            record = self.library.get(path)
            root = self.roots.of(path)
            if record is None or root is None:
                return False
            if not await self._in_thread(rows_are_whole, record, self._store.get):
                self._distrust(record)
            now = await self._in_thread(finding.known, root, record)
            news = list(filter(self._is_news, now))
            await self._attend_to(news, [] if now else [record])
            return bool(news)

    async def restore_base(self) -> bool:
        """Do without a base that is damaged, and read again what it alone held; say if it was."""
        async with self._in_turn():
            abandoned = await self.upkeep.abandon_base()
            if abandoned:
                await self._sweep()
        return abandoned

    async def changed_roots(self, roots: Sequence[Root]) -> None:
        """Follow another configuration of roots."""
        async with self._in_turn():
            self.roots.configure(roots)
            self._publisher.forget_problems()
            await self._sweep()

    # The process around it.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Restore what the cache holds, then follow the files until cancelled."""
        await self._in_thread(self.upkeep.restore)
        task_status.started()
        await self._open_roots()
        try:
            async with anyio.create_task_group() as tasks:
                for part in (self._following, self._sweeping, self.backlog.run, self._keeping_up):
                    tasks.start_soon(self._vital.part(part))
        finally:
            self.roots.close()

    def healthy(self) -> bool:
        """Say whether the threads that everything rests on are alive."""
        return self._store.alive() and self.roots.alive()

    def close(self) -> None:
        """Write down what a restart will want, in the little time there is."""
        self._store.close()
        self.roots.opened.clear()

    # Following.

    async def _following(self) -> None:
        """Take events as they come, so that the index is current before anybody asks."""
        await self._swept.wait()
        while True:
            await self._changed.wait()
            # Agents write in bursts: a moment's patience turns many looks into one.
            await anyio.sleep(SETTLE_SECONDS)
            async with self._in_turn():
                await self._take_events()

    async def _take_events(self) -> None:
        self._changed.clear()
        paths = self.roots.drain() | self._again
        self._again = set()
        if paths and await self._open_roots():
            await self._sweep()
        elif paths:
            try:
                found, gone = await self._in_thread(look_at, paths, self.library, self.roots.of)
            except OSError as error:
                self._look_again(paths, error)
            else:
                await self._attend_to(list(filter(self._is_news, found)), gone)

    def _look_again(self, paths: Iterable[str], error: Exception) -> None:
        """Keep in mind what could not be looked at for now; what is known of it stands."""
        log.debug("to be looked at again paths=%d reason=%s", len(set(paths)), error)
        self._again.update(paths)
        self._changed.set()

    async def _sweeping(self) -> None:
        schedule = Schedule.starting(_now())
        while True:
            polled = self.roots.polled()
            await anyio.sleep(schedule.wait(_now(), polling=bool(polled)))
            full = _now() >= schedule.full_at
            async with self._in_turn():
                found = await self._sweep(None if full else polled)
            self._swept.set()
            if full:
                await self._settle_doubts(time.time_ns())
            now = _now()
            schedule = schedule.after_full(now, found=found) if full else schedule.after_poll(now)

    async def sweep(self, now_ns: int) -> bool:
        """Compare every file with what is known, at the time `now_ns` by the system's clock.

        Say whether any had to be looked at.
        """
        async with self._in_turn():
            found = await self._sweep()
        await self._settle_doubts(now_ns)
        return found

    async def _sweep(self, roots: Sequence[OpenRoot] | None = None) -> bool:
        """Compare the files of some roots, or of all, with what is known; say if any differed."""
        if roots is None:
            await self._open_roots()
            if not self.upkeep.sound():
                await self.upkeep.abandon_base()
        chosen = list(self.roots.opened.values()) if roots is None else roots
        try:
            everything = await self._in_thread(finding.sweep, chosen)
        except OSError as error:
            self._look_again([root.path for root in chosen], error)
            return True
        here = {found.candidate.path for found in everything}
        differing = [f for f in everything if self._is_news(f)]
        if roots is None:
            self._publisher.forget_problems(but=here)
        swept = None if roots is None else {root.path for root in roots}
        gone = [
            record
            for record in self.library
            if record.path not in here and (swept is None or record.root in swept)
        ]
        await self._attend_to(differing, gone)
        if roots is None and self._losses != (losses := self._store.losses):
            # What is known without rows would have to be read again after a restart.
            self._losses = losses
            self.backlog.add([f for f in everything if self.library.get(f.candidate.path)])
            self.backlog.start()
        return bool(differing or gone)

    async def _keeping_up(self) -> None:
        while True:
            try:
                await self.upkeep.run()
            except DamagedSegment:
                if not await self.restore_base():
                    raise
            except MemoryError as error:  # The index is right without it, only slower.
                log.warning("no memory for upkeep, trying again later error=%s", error)
                await anyio.sleep(REST_SECONDS)

    async def _settle_doubts(self, now_ns: int) -> None:
        """Read again, once they rest, the files of whose middle an append left a doubt.

        Beside the turns: nobody who asks waits for a proof.
        """
        budget = PROOF_BYTES
        for record in self.library:
            if budget < 0:
                break
            root = self.roots.of(record.path)
            if root is None or record.checkpoint is None or record.checkpoint.proven:
                continue
            for found in await self._in_thread(finding.known, root, record):
                if found.rests(record, now_ns):
                    budget -= found.stamp.size
                    await self.backlog.read_beside(found, thorough=True)

    async def _open_roots(self) -> bool:
        """Open and watch the roots that are there now; say if others were before."""
        changed = self.roots.open()
        await self._in_thread(self.roots.follow)
        return changed

    def _is_news(self, found: Found) -> bool:
        """Say whether looking at a file may tell what is not known."""
        known = self.library.get(found.candidate.path)
        return found.differs(known) and not self._publisher.leaves_out(found)

    async def _attend_to(self, found: Sequence[Found], gone: Sequence[Record]) -> None:
        """Bring the index up to date with some files, now or by way of the backlog."""
        found = sorted(found, key=lambda one: one.stamp.mtime_ns, reverse=True)
        prompt = [one for one in found if one.candidate.path not in self.backlog]
        # All of them are pending from now on, so that nobody is told otherwise.
        self.backlog.add(found)
        self._listed.set()
        budget = PROMPT_BYTES
        moved: set[str] = set()
        for one in prompt:
            path = one.candidate.path
            old = self.library.get(path) or self._moved_from(one)
            budget -= unread_bytes(one.stamp, old) + FILE_BYTES
            if budget < 0:
                break
            if old is not None and old.path != path:
                moved.add(old.path)
            if await self._attend_now(one, old):
                self.backlog.remove(path)
        self.backlog.start()
        for record in gone:
            if record.path not in moved:
                self._publisher.forget(record)

    def _moved_from(self, found: Found) -> Record | None:
        """Return the record of the file that this one was, if it was renamed."""
        now = found.candidate.data_path
        for old in self.library.with_inode(found.stamp.device, found.stamp.inode):
            # A path may have its say in the format; only within one agent's directories it is
            # moot.
            if named_by_path(old.data_path) == named_by_path(now) and not os.path.lexists(
                old.data_path
            ):
                return old
        return None

    async def _attend_now(self, found: Found, old: Record | None) -> bool:
        """Attend to a session; False when that is so much that the backlog has to."""
        file_id = self.library.new_file_id()
        task = Task(found, old, file_id, self._profile, limit=PROMPT_BYTES)
        try:
            change: Change | Exception = await self._in_thread(attend, task, self._store.get)
        except TooMuch:
            if old is not None:
                self._distrust(old)
            return False
        except Exception as error:
            change = error
        if isinstance(change, Exception) and exhausted(change):
            self._look_again([found.candidate.data_path], change)
            return True
        self._publisher.conclude(found, old, change)
        return True

    def _distrust(self, record: Record) -> None:
        """Have a session read from its beginning; until then its old documents are found."""
        self.library.put(msgspec.structs.replace(record, checkpoint=None))

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        """Hold the turn; what has begun in it ends in it, even if who asked does not wait.

        Events that were drained and not attended to would be lost until the next sweep.
        """
        async with self._turn:
            with anyio.CancelScope(shield=True):
                yield

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._changed.set)

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await to_thread.run_sync(lambda: work(*args), limiter=self._one)


def _now() -> float:
    """Return seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
