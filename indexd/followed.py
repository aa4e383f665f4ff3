"""The configured roots: which of them are there, and how changes below them are noticed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from indexd import finding
from indexd.discover import skipped
from indexd.finding import OpenRoot
from indexd.roots import Root
from indexd.watch import Watcher


class FollowedRoots:
    """Roots held open, and the one watcher of them all.

    `opened` has those that are there, by configured path. `wake` is called in the watcher's thread
    when there is something to drain.
    """

    def __init__(
        self, configured: Sequence[Root], cookie_directory: str, wake: Callable[[], None]
    ) -> None:
        self.opened: dict[str, OpenRoot] = {}
        self._configured, self._wake = tuple(configured), wake
        # Two watchers meet for a moment where one follows the other: neither may take the
        # cookies of the other for its own.
        self._cookies = (f"{cookie_directory}-0", f"{cookie_directory}-1")
        self._watcher: Watcher | None = None
        self._watched: list[str] = []

    def configure(self, roots: Sequence[Root]) -> None:
        """Take note of another configuration; `open` and `follow` act on it."""
        self._configured = tuple(roots)

    def open(self) -> bool:
        """Open the roots that have appeared, let go of those that are gone; say if any was."""
        before = self.opened
        self.opened = finding.opened(self._configured, before)
        return before != self.opened

    def moved(self) -> bool:
        """Say whether an open root is not where it was found any more."""
        return not all(root.directory.is_current() for root in self.opened.values())

    def follow(self) -> None:
        """Watch what the configured paths led to when opened, unless it is watched already."""
        wanted = [self._resolved(root.path) for root in self._configured]
        if self._watcher is not None and wanted == self._watched:
            return
        old = self._watcher
        self._watcher = Watcher(wanted, self._cookies[0], self._wake, self._left_out)
        self._watcher.start()
        self._watched, self._cookies = wanted, self._cookies[::-1]
        if old is not None:
            old.close()

    def _resolved(self, path: str) -> str:
        known = self.opened.get(path)
        return os.path.realpath(path) if known is None else known.directory.path

    def of(self, path: str) -> OpenRoot | None:
        """Return the open root that holds `path`."""
        return next((r for r in list(self.opened.values()) if r.holds(path)), None)

    def drain(self) -> set[str]:
        """Return the paths that may have changed since the last call."""
        return set() if self._watcher is None else self._watcher.drain()

    def barrier(self) -> Future[bool]:
        """Return a future of whether all before this call can be drained, see Watcher."""
        assert self._watcher is not None
        return self._watcher.barrier()

    def polled(self) -> list[OpenRoot]:
        """Return the open roots whose changes only a sweep finds."""
        return [r for r in list(self.opened.values()) if not self._has_events(r)]

    def status(self) -> dict[str, Any]:
        """Return how changes are noticed."""
        return {} if self._watcher is None else self._watcher.status()

    def alive(self) -> bool:
        """Say whether the watcher, if there is one, does its work."""
        return self._watcher is None or self._watcher.alive()

    def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._watcher.close()

    def _has_events(self, root: OpenRoot) -> bool:
        return self._watcher is not None and self._watcher.mode(root.path) == "inotify"

    def _left_out(self, directory: str) -> bool:
        root = self.of(directory)
        excluded = root is not None and root.excludes(directory)
        return excluded or skipped(os.path.basename(directory))
