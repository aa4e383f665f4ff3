"""What passes between a service manager and us: a listening socket in, notifications out.

The two protocols of systemd, in the few lines they take. Every variable is removed once read:
it was meant for this process and no child of it. Without a manager, all of this is silent.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

from indexd.errors import BadRequest

FIRST_FD = 3
SOCKET_NAME = "indexd"
# A manager too busy to read is waited for no longer than this: the event loop stands meanwhile.
SEND_SECONDS = 0.5

log = logging.getLogger(__name__)

Environment = MutableMapping[str, str]


def adopt_socket(environment: Environment) -> socket.socket | None:
    """Return the listening Unix socket that was handed to this process, or None.

    Of several, the one named `indexd` is meant. Raises BadRequest when there is none among them.
    """
    pid, count, names = (
        environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    )
    if pid != str(os.getpid()) or not count.isdecimal() or int(count) < 1:
        return None
    fds = range(FIRST_FD, FIRST_FD + int(count))
    for fd in fds:
        with suppress(OSError):
            os.set_inheritable(fd, False)
    named = dict(zip(names.split(":"), fds, strict=False))
    fd = named.get(SOCKET_NAME, FIRST_FD)
    if not _listens(fd):
        raise BadRequest(
            f"descriptor {fd} from the service manager is no listening Unix stream socket",
            f"its socket unit needs ListenStream=/... and FileDescriptorName={SOCKET_NAME}",
        )
    return socket.socket(fileno=fd)


class Notifier:
    """Tells the service manager how the daemon is.

    `watchdog_seconds` is how often it wants to hear that all is well, None when it does not.
    """

    def __init__(self, environment: Environment) -> None:
        address, period, pid = (
            environment.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        )
        # A leading @ stands for the NUL byte of an abstract name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        ours = pid in ("", str(os.getpid()))
        self.watchdog_seconds = int(period) / 1e6 if ours and period.isdecimal() else None

    def __bool__(self) -> bool:
        return self._address.startswith(("/", "\0"))

    def ready(self) -> None:
        """Say that requests are answered, at start or again after a reload."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Show one line of text beside the unit."""
        self._send(f"STATUS={' '.join(text.split())}")

    def reloading(self) -> None:
        """Say that a reload has begun; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Say that all is well, as the watchdog wants to hear."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.settimeout(SEND_SECONDS)
                manager.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError as error:
            log.warning("notify failed message=%s error=%s", lines[0], error)


def _listens(fd: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as candidate:
            return (
                candidate.family == socket.AF_UNIX
                and candidate.type == socket.SOCK_STREAM
                and candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
                and str(candidate.getsockname()).startswith("/")
            )
    except OSError:
        return False
