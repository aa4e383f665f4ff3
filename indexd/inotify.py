"""One inotify descriptor, and the cookies that measure how far its queue has been read.

The library's own event path is passed over on purpose: it holds back half of a move for half a
second, rebuilds its watches after an overflow in a way that can overflow the queue again, and
hides a watch limit. Its descriptor, thread and parser are used as they are.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import reduce
from operator import or_

from watchdog.observers.inotify_c import (
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    WatchDescriptor,
    inotify_add_watch,
    inotify_rm_watch,
)

# Neither open nor close-without-write: what indexd reads must not wake indexd.
MASK = reduce(
    or_,
    (
        InotifyConstants.IN_MODIFY,
        InotifyConstants.IN_CREATE,
        InotifyConstants.IN_DELETE,
        InotifyConstants.IN_MOVED_FROM,
        InotifyConstants.IN_MOVED_TO,
        InotifyConstants.IN_MOVE_SELF,
        InotifyConstants.IN_ONLYDIR,
        InotifyConstants.IN_DONT_FOLLOW,
    ),
)

COOKIE_PREFIX = "cookie-"


class Inotify(InotifyFD):
    """The library's descriptor and reading thread, with one place where every event goes.

    The thread calls `begin`, then `take` for each event in the kernel's order, at last `end`.
    Raises OSError (EMFILE) when the user has no inotify instance left.
    """

    def __init__(
        self,
        begin: Callable[[], None],
        take: Callable[[InotifyEvent], None],
        end: Callable[[], None],
    ) -> None:
        super().__init__()
        self.name = "indexd-watch"
        os.set_inheritable(self._inotify_fd, False)
        # The library leaves it to its read to close the descriptors, and says from the start that
        # one is under way; whoever stops before the first would leave an instance behind.
        self._is_reading = False
        self._begin, self._take, self._end = begin, take, end

    def run(self) -> None:
        """Read events until the descriptor is closed."""
        try:
            self._begin()
            super().run()
        finally:
            with self._lock:
                self._is_reading = False
            self._end()

    def handle_event(self, event: InotifyEvent) -> None:
        """Pass on an event; the library's callbacks per watch are not used."""
        self._take(event)

    def add(self, directory: str) -> int:
        """Watch a directory and return its watch descriptor, which is that of its inode.

        Raises OSError: ENOSPC at the limit of watches, ENOENT or ENOTDIR when it is none.
        """
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), directory)
            wd = inotify_add_watch(self._inotify_fd, os.fsencode(directory), MASK)
            if wd == -1:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), directory)
            return wd

    def remove(self, wd: int) -> None:
        """Give a watch back; one that is gone already is no matter."""
        with self._lock:
            if not self._closed:
                inotify_rm_watch(self._inotify_fd, WatchDescriptor(wd))


class Cookies:
    """Numbered cookies: one file, renamed for each barrier, so that its event names which."""

    def __init__(self, directory: str, watch: Callable[[str], int]) -> None:
        self._directory = directory
        self._watch = watch
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[bool]] = {}
        self._number = 0
        self._closed = False
        self.wd = -1

    def prepare(self) -> None:
        """Watch the directory and leave the cookie there; a failure shows in each `touch`."""
        with self._lock, suppress(OSError):
            self._lay()

    def touch(self) -> Future[bool]:
        """Rename the cookie; return the future of its event, False when none can come."""
        future: Future[bool] = Future()
        with self._lock:
            asked = not self._closed and self._ask(future)
        if not asked:
            future.set_result(False)
        return future

    def seen(self, name: str) -> None:
        """Set the futures that the cookie called `name` stands for, and all earlier ones."""
        number = name.removeprefix(COOKIE_PREFIX)
        if number.isdecimal():
            self._set(True, int(number))

    def lose(self) -> None:
        """Take note that the directory is gone; the next `touch` makes it again."""
        self.wd = -1
        self.give_up()

    def give_up(self) -> None:
        """Set every open future to False."""
        with self._lock:
            last = self._number
        self._set(False, last)

    def close(self) -> None:
        """Give up now and for good."""
        with self._lock:
            self._closed = True
        self.give_up()

    def _set(self, result: bool, last: int) -> None:
        with self._lock:
            futures = [self._waiting.pop(n) for n in sorted(self._waiting) if n <= last]
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_result(result)

    def _ask(self, future: Future[bool]) -> bool:
        try:
            if self.wd == -1:
                self._lay()
            try:
                self._rename()
            except FileNotFoundError:  # somebody tidied up
                self._lay()
                self._rename()
        except OSError:
            return False
        self._waiting[self._number] = future
        return True

    def _lay(self) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        for name in os.listdir(self._directory):
            if name.startswith(COOKIE_PREFIX):
                os.unlink(os.path.join(self._directory, name))
        with open(self._path(self._number), "wb"):
            pass
        self.wd = self._watch(self._directory)

    def _rename(self) -> None:
        os.rename(self._path(self._number), self._path(self._number + 1))
        self._number += 1

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, f"{COOKIE_PREFIX}{number}")


def watch_limit() -> int:
    """Return how many watches this user may have in this namespace; 0 if the system is silent."""
    try:
        with open("/proc/sys/user/max_inotify_watches", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
