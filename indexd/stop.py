"""Stopping the daemon: the process that answers, and no other."""

from __future__ import annotations

import os
import select
import signal

from indexd.client import Client
from indexd.errors import NotAllowed, Timeout, Unavailable


def stop_daemon(client: Client, seconds: float) -> int:
    """Ask the daemon behind `client` to end, wait until it is gone, and return its pid.

    Raises NotAllowed when the process is not ours to end, Unavailable when it cannot be seen
    from here, Timeout when it is still there after `seconds`.
    """
    pid = client.status()["pid"]
    try:
        # A handle on the process itself: the number alone could be somebody else's by now.
        process = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise Unavailable(
            f"process {pid} is not to be seen from here", "stop indexd where it was started"
        ) from error
    try:
        _check_process(client.peer_pid, pid)
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], seconds)[0]:
            raise Timeout(f"indexd (process {pid}) still runs after {seconds:g} s", "see its log")
    finally:
        os.close(process)
    return int(pid)


def _check_process(peer_pid: int, pid: int) -> None:
    """Raise NotAllowed unless process `pid` is the one that answers.

    Behind a socket of systemd's the peer is the manager that opened it; and from inside a
    container the daemon's own idea of its pid may mean some other process here.
    """
    if peer_pid == pid:
        return
    with open(f"/proc/{pid}/cmdline", "rb") as stream:
        if b"indexd" in stream.read():
            return
    raise NotAllowed(f"process {pid} is not indexd as seen from here", "stop it where it runs")
