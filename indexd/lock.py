"""One daemon per cache directory: an advisory lock that ends with the process that holds it.

The lock, not the socket, decides who is alive: a socket file outlives its daemon, and removing
a live one would leave its daemon running where nobody can reach it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from indexd.errors import Busy, NotAllowed
from indexd.paths import private_directory

LOCK_NAME = "indexd.lock"


@contextmanager
def sole_daemon(cache_dir: str) -> Iterator[None]:
    """Hold the lock of `cache_dir`, which is made (0700) where it is missing.

    Raises Busy, naming the process, when another daemon holds it; NotAllowed when the directory
    is no place of our own.
    """
    path = os.path.join(private_directory(cache_dir), LOCK_NAME)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NotAllowed(f"{path} cannot be opened: {error.strerror}", "move it away") from error
    try:
        _take(fd, cache_dir)
        yield
    finally:
        # The file stays: whoever removed it could hold a lock that nobody else sees.
        os.close(fd)


def _take(fd: int, cache_dir: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        raise Busy(
            f"another indexd (process {pid}) already keeps {cache_dir}",
            "use that one, or end it first: indexctl stop",
        ) from error
    # Only a courtesy to whoever comes second, so a full disk does not matter.
    with suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
