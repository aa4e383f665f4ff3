"""One daemon per cache directory: an advisory lock that ends with the process that holds it.

The lock, not the socket, decides who is alive: a socket file outlives its daemon, and removing
a live one would leave its daemon running where nobody can reach it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from indexd.errors import Busy, IndexdError, NotAllowed
from indexd.paths import private_directory

LOCK_NAME = "indexd.lock"


@contextmanager
def sole_daemon(cache_dir: str) -> Iterator[Lock]:
    """Hold the lock of `cache_dir`, which is made (0700) where it is missing.

    Raises Busy, naming process and socket, when another daemon holds the lock; NotAllowed when
    the directory is no place of our own.
    """
    lock = Lock(cache_dir)
    try:
        yield lock
    finally:
        lock.close()


class Lock:
    """The lock of a cache directory, held."""

    def __init__(self, cache_dir: str) -> None:
        self._cache_dir = cache_dir
        self._socket = ""
        self._path = os.path.join(cache_dir, LOCK_NAME)
        self._fd = _taken(self._path, cache_dir)
        self.announce("")

    def announce(self, socket: str) -> None:
        """Leave word of the socket that is listened at, for whoever comes second."""
        self._socket = socket
        _write(self._fd, socket)

    def keep(self) -> bool:
        """Say whether we are still the only one; a lock that was removed is made anew.

        False when another daemon holds it by now, which found none.
        """
        with suppress(OSError):
            if os.path.samestat(os.stat(self._path), os.fstat(self._fd)):
                return True
        try:
            fd = _taken(self._path, self._cache_dir)
        except IndexdError:
            return False
        os.close(self._fd)
        self._fd = fd
        self.announce(self._socket)
        return True

    def close(self) -> None:
        """Give the lock back. The file stays: whoever removed it could hold one nobody sees."""
        os.close(self._fd)


def _taken(path: str, cache_dir: str) -> int:
    """Return the descriptor of the lock file, locked."""
    private_directory(cache_dir)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NotAllowed(f"{path} cannot be opened: {error.strerror}", "move it away") from error
    try:
        _take(fd, cache_dir)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _take(fd: int, cache_dir: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid, _, socket = os.fsdecode(os.pread(fd, 4096, 0)).strip().partition("\n")
        # It may listen where this environment does not look: once without a runtime directory,
        # once with.
        hint = (
            f"use that one, with INDEXD_SOCKET={socket}, or end it: indexctl --socket {socket} stop"
        )
        raise Busy(
            f"another indexd (process {pid or 'unknown'}) already keeps {cache_dir}",
            hint if socket else "use that one, or end it first: indexctl stop",
        ) from error


def _write(fd: int, socket: str) -> None:
    # Only a courtesy to whoever comes second, so a full disk does not matter.
    with suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, os.fsencode(f"{os.getpid()}\n{socket}\n"), 0)
