"""Which paths may have changed: inotify's events are hints, a stat sweep is the truth.

A Watcher turns events into a set of paths, without delay and without looking at any file; who
drains the set looks. A directory in the set means: look at everything below it. Every watch is
added before the directory is listed, so a name is either listed or reported.

All roots and the cookie directory share one inotify descriptor, whose queue is ordered. A
`barrier` renames a cookie in a directory of ours; once that comes out of the queue, every
earlier change below a watched root is in the set.

What events cannot tell (a full queue, no watches left, a network file system, writes through a
memory map, a hard link written under another name, a root whose parent was moved away) costs
time, never truth: a sweep finds it.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from watchdog.observers.inotify_c import InotifyEvent

from indexd.inotify import Cookies, Inotify, watch_limit
from indexd.mounts import mountinfo, remote_type, within

log = logging.getLogger(__name__)

VANISHED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


class Watched(NamedTuple):
    """The directory behind a watch descriptor, and the root that it belongs to.

    Without a root it is a guard: a directory above one or more roots that do not exist.
    """

    path: str
    root: str | None


class Watcher:
    """Collects the paths below `roots` that may have changed, in a thread of its own.

    roots: absolute paths without symbolic links, existing or not; none lies within another.
    cookie_directory: a directory of ours below none of the roots; made when missing.
    wake: called in the watcher's thread when the set of paths ceases to be empty.
    excluded: says of a directory that nothing in it matters.

    Each root is in the set from the moment on that it is watched; so is the root after its
    directory was deleted, moved or recreated, and every root after an overflow.
    """

    def __init__(
        self,
        roots: Sequence[str],
        cookie_directory: str,
        wake: Callable[[], None],
        excluded: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._roots = tuple(roots)
        self._excluded = excluded
        self._hints = _Hints(wake)
        self._cookies = Cookies(cookie_directory, self._add)
        self._inotify: Inotify | None = None
        # All below is changed by the watcher's thread alone.
        self._watched: dict[int, Watched] = {}
        self._places: dict[str, str] = {}  # the directory watched for a root: itself, or a guard
        self._identities: dict[str, tuple[int, int] | None] = {}
        self._polled: dict[str, str] = {}  # root -> why its events cannot be relied on
        self._overflows = 0

    def start(self) -> None:
        """Begin to watch. Without any inotify instance left, every root is to be polled."""
        try:
            self._inotify = Inotify(self._begin, self._on_event, self._cookies.close)
        except OSError as error:
            self._cookies.close()
            reason = f"no inotify instance: {error.strerror}; raise fs.inotify.max_user_instances"
            self._polled = dict.fromkeys(self._roots, reason)
            self._hints.add(*self._roots)
        else:
            self._cookies.prepare()
            self._inotify.start()

    def close(self) -> None:
        """Stop watching and wait for the thread; barriers still open become False."""
        if self._inotify:
            self._inotify.stop()
            self._inotify.join()

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def drain(self) -> set[str]:
        """Return the paths collected since the last call, and forget them. Thread-safe."""
        return self._hints.drain()

    def barrier(self) -> Future[bool]:
        """Return a future that is set once everything before this call is in the set.

        True: every change that returned before the call, below a root whose mode is "inotify",
        can be drained. False: events cannot tell, sweep instead. Never an exception. It is set
        in the watcher's thread (`asyncio.wrap_future` awaits it). Thread-safe.
        """
        return self._cookies.touch()

    def alive(self) -> bool:
        """Say whether the thread that reads events runs; where there can be none, all is well."""
        return self._inotify is None or self._inotify.is_alive()

    def mode(self, root: str) -> str:
        """Return "inotify", or "poll" for a root that only a sweep can follow, or not ours."""
        running = self._inotify is not None and self.alive()
        followed = running and root in self._roots and root not in self._polled
        return "inotify" if followed else "poll"

    def status(self) -> dict[str, Any]:
        """Return the state for people: mode, watched, limit, overflows, and polled roots."""
        ended = "the watching thread has ended"
        polled = {
            root: self._polled.get(root, ended) for root in self._roots if self.mode(root) == "poll"
        }
        return {
            "mode": "poll" if polled else "inotify",
            "watched": len(self._watched),
            "limit": watch_limit(),
            "overflows": self._overflows,
            "polled": polled,
        }

    # --- what follows runs in the watcher's thread ---

    def _begin(self) -> None:
        for root in self._roots:
            self._attach(root)

    def _on_event(self, event: InotifyEvent) -> None:
        try:
            self._take(event)
        except Exception:
            log.exception("an event was lost, all roots are to be looked at: %r", event)
            self._hints.add(*self._roots)

    def _take(self, event: InotifyEvent) -> None:
        if event.is_queue_overflow:
            self._on_overflow()
            return
        if event.wd == self._cookies.wd:
            self._on_cookie(event)
        watched = self._watched.get(event.wd)
        if watched is None:
            return
        if event.is_ignored:
            del self._watched[event.wd]
        path = os.path.join(watched.path, os.fsdecode(event.name)) if event.name else watched.path
        if watched.root is None:
            self._on_guard(path)
        elif event.name:
            self._on_change(event, path, watched.root)
        elif path == watched.root:
            self._attach(watched.root)

    def _on_change(self, event: InotifyEvent, path: str, root: str) -> None:
        if event.is_directory and event.is_moved_from:
            self._remove(
                {wd for wd, watched in self._watched.items() if within(watched.path, path)}
            )
        elif event.is_directory and (event.is_create or event.is_moved_to):
            self._watch_tree(path, root)
        self._hints.add(path)

    def _on_guard(self, path: str) -> None:
        for root in self._roots:
            if self._places[root] != root and within(root, path):
                self._attach(root)

    def _on_overflow(self) -> None:
        self._overflows += 1
        for root in self._roots:
            self._attach(root)
        self._cookies.give_up()

    def _on_cookie(self, event: InotifyEvent) -> None:
        if event.is_ignored:
            self._cookies.lose()
        elif event.is_moved_to:
            # No event tells that a directory above a root was moved; a stat does.
            for root in self._roots:
                if root in self._identities and self._identities[root] != _identity(root):
                    self._attach(root)
            self._cookies.seen(os.fsdecode(event.name))

    def _attach(self, root: str) -> None:
        """Watch all of `root` anew, or while it is missing the nearest directory above it."""
        self._polled.pop(root, None)
        stale = {wd for wd, watched in self._watched.items() if watched.root == root}
        if kind := remote_type(root, mountinfo()):
            self._polled[root] = f"{kind} does not tell of changes made elsewhere"
            self._places[root] = root
        else:
            stale -= self._watch_place(root)
        guards = {wd for wd, watched in self._watched.items() if watched.root is None}
        needed = set(self._places.values())
        self._remove(stale | {wd for wd in guards if self._watched[wd].path not in needed})
        self._hints.add(root)

    def _watch_place(self, root: str) -> set[int]:
        touched: set[int] = set()
        place = None
        # What appeared before the guard stood made no event, hence the second look.
        while place != (nearest := _nearest_directory(root)):
            place = self._places[root] = nearest
            self._identities[root] = _identity(root)
            if place == root:
                touched |= self._watch_tree(root, root)
            elif (wd := self._watch(place, root)) is not None:
                self._watched[wd] = Watched(place, None)
        return touched

    def _watch_tree(self, path: str, root: str) -> set[int]:
        """Watch `path` and every directory below it; return the watch descriptors."""
        touched: set[int] = set()
        pending = [path]
        while pending:
            directory = pending.pop()
            if self._excluded(directory) or (wd := self._watch(directory, root)) is None:
                continue
            self._watched[wd] = Watched(directory, root)
            touched.add(wd)
            pending.extend(_subdirectories(directory))
        return touched

    def _watch(self, directory: str, root: str) -> int | None:
        try:
            return self._add(directory)
        except OSError as error:
            # What vanished is no loss, and what may not be read below a root holds nothing.
            if error.errno not in VANISHED and (error.errno != errno.EACCES or directory == root):
                hint = "; raise fs.inotify.max_user_watches" if error.errno == errno.ENOSPC else ""
                self._polled[root] = f"{directory} cannot be watched: {error.strerror}{hint}"
            return None

    def _remove(self, wds: Iterable[int]) -> None:
        for wd in wds:
            del self._watched[wd]
            if self._inotify and wd != self._cookies.wd:
                self._inotify.remove(wd)

    def _add(self, directory: str) -> int:
        if self._inotify is None:
            raise OSError(errno.EBADF, "not started", directory)
        return self._inotify.add(directory)


class _Hints:
    """The set of paths between the watcher's thread and who drains it."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._paths: set[str] = set()

    def add(self, *paths: str) -> None:
        with self._lock:
            first = not self._paths
            self._paths.update(paths)
        if first and paths:
            try:
                self._wake()
            except Exception:
                log.exception("the watcher could not wake its owner")

    def drain(self) -> set[str]:
        with self._lock:
            paths, self._paths = self._paths, set()
        return paths


def _identity(path: str) -> tuple[int, int] | None:
    """Return (device, inode) of a directory; None for all else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _nearest_directory(path: str) -> str:
    while _identity(path) is None and path != "/":
        path = os.path.dirname(path)
    return path


def _subdirectories(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
