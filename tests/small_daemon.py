"""A process that starts, listens and stops as the daemon does, and answers two methods.

Usage: small_daemon.py [--fail REASON]
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys

from peer import Peer


def main() -> int:
    """Serve at INDEXD_SOCKET until SIGTERM."""
    path = os.environ["INDEXD_SOCKET"]
    if "--fail" in sys.argv:
        sys.stderr.write(f"first line\n{sys.argv[-1]}\n")
        return 1
    with open(f"{path}.starts", "a") as starts:
        starts.write(f"{os.getpid()} {os.getcwd()} {os.getsid(0)}\n")
    lock = os.open(f"{path}.lock", os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write("another one runs\n")
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with Peer(path, {"status": {"pid": os.getpid()}, "search": {"hits": [], "total": 0}}):
        os.write(int(os.environ["INDEXD_READY_FD"]), b"1")
        signal.sigwait({signal.SIGTERM})
    os.unlink(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
