"""The socket that clients find: handed over by the service manager, or made by ourselves.

One that we make is open to us alone, and replaces what lies at its path only when that is a
socket nobody listens at any more.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from indexd.confine import Identity, identity_of
from indexd.errors import Busy, NotAllowed
from indexd.paths import check_socket_path, private_directory
from indexd.peer import credentials
from indexd.systemd import Environment, adopt_socket

BACKLOG = 128
PROBE_SECONDS = 1.0


class Listening(NamedTuple):
    """A listening socket; `file` is what lies at its path, unless the manager looks after that."""

    socket: socket.socket
    file: Identity | None = None

    def in_place(self) -> bool:
        """Say whether clients can still find the socket."""
        if self.file is None:
            return True
        try:
            return identity_of(os.lstat(self.socket.getsockname())) == self.file
        except OSError:
            return False


@contextmanager
def listening(path: str, environment: Environment) -> Iterator[Listening]:
    """Yield the listening socket; the one at `path` unless the manager has handed one over.

    Raises Busy when another daemon listens at `path`, NotAllowed when no socket can be there.
    """
    adopted = adopt_socket(environment)
    if adopted is not None:
        # The manager's own, with its file: it keeps taking connections while we are away.
        with adopted:
            yield Listening(adopted)
        return
    with _made(check_socket_path(path)) as listener:
        identity = identity_of(os.lstat(path))
        try:
            yield Listening(listener, identity)
        finally:
            _remove(path, identity)


def _made(path: str) -> socket.socket:
    directory = os.open(
        private_directory(os.path.dirname(path)), os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    )
    listener = socket.socket(socket.AF_UNIX)
    try:
        # Two that start at once take turns, else one could remove what the other just bound.
        fcntl.flock(directory, fcntl.LOCK_EX)
        _clear(path)
        listener.bind(path)
        # Before listen, so that no connection comes in while the mode is still the umask's.
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise NotAllowed(
            f"no socket can be made at {path}: {error.strerror}", "choose another with --socket"
        ) from error
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener


def _clear(path: str) -> None:
    """Remove a socket that nobody listens at; raises Busy or NotAllowed for anything else."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise NotAllowed(f"{path} is not a socket", "move it away, or choose another with --socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except TimeoutError:
            who = "a process too busy to answer"
        else:
            who = f"process {credentials(probe)[0]}"
    raise Busy(f"{who} already listens at {path}", "end it first: indexctl stop")


def _remove(path: str, identity: Identity) -> None:
    with suppress(FileNotFoundError):
        if identity_of(os.lstat(path)) == identity:
            os.unlink(path)
