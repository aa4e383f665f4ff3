"""Starting the daemon when none answers.

Clients that find no daemon at the same moment take turns at a lock, so one of them starts it and
the others find it there. The daemon says that it listens through a pipe: one byte when it does,
the end of the pipe when it gave up. So nobody polls, and a failure is known at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from indexd import paths
from indexd.client import Client
from indexd.errors import IndexdError, Timeout, Unavailable

READY_VARIABLE = "INDEXD_READY_FD"
START_SECONDS = 30.0
EXIT_SECONDS = 5.0
MAX_LOG_BYTES = 1 << 20

# Not from the current directory (-P): a project may hold modules named like ours.
COMMAND = (sys.executable, "-P", "-m", "indexd")


def start(
    socket_path: str,
    environment: Mapping[str, str],
    command: Sequence[str] = COMMAND,
    seconds: float = START_SECONDS,
) -> subprocess.Popen[bytes] | None:
    """Start the daemon at `socket_path`, wait until it listens, and return its process.

    Returns None when another client has started one meanwhile. Raises Unavailable with the last
    line of the daemon's log when it gives up, Timeout when it is not ready within `seconds`.
    """
    cache = paths.private_directory(paths.cache_dir(environment))
    with _alone(os.path.join(cache, "start.lock")), _opened(log_file(environment)) as log:
        if _answers(socket_path):
            return None
        begin = os.fstat(log.fileno()).st_size
        process, ready = _spawned(socket_path, environment, command, log)
        with ready:
            in_time = select.select([ready], [], [], seconds)[0]
            if in_time and ready.read(1):
                return process
        if in_time:
            _end(process, EXIT_SECONDS)
            if _answers(socket_path):
                return None
            raise Unavailable(
                f"indexd did not start: {_last_line(log.name, begin)}", f"its log is {log.name}"
            )
        _end(process, 0)
        raise Timeout(
            f"indexd did not listen within {seconds:g} s: {_last_line(log.name, begin)}",
            f"its log is {log.name}",
        )


def log_file(environment: Mapping[str, str]) -> str:
    """Return where a daemon that was started here writes its log."""
    return os.path.join(paths.cache_dir(environment), "indexd.log")


def _spawned(
    socket_path: str, environment: Mapping[str, str], command: Sequence[str], log: IO[bytes]
) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Return the daemon's process, detached, and the end of the pipe that tells how it fares."""
    ready, daemons_end = os.pipe()
    try:
        process = subprocess.Popen(
            command,
            cwd="/",
            env={
                **environment,
                **_importable(environment),
                "INDEXD_SOCKET": socket_path,
                READY_VARIABLE: str(daemons_end),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=(daemons_end,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(ready)
        raise Unavailable(f"indexd cannot be run: {error}", "install it again") from error
    finally:
        os.close(daemons_end)
    return process, open(ready, "rb", buffering=0)


def _importable(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the daemon's process needs in order to find this very package.

    Nothing when it is installed; a checkout is on the path only for having been started in.
    """
    parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.basename(parent) in ("site-packages", "dist-packages"):
        return {}
    inherited = environment.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{parent}{os.pathsep}{inherited}" if inherited else parent}


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Let a daemon that gave up leave by itself for some `seconds`, then make it."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _alone(lock: str) -> Iterator[None]:
    with open(lock, "ab", opener=_private) as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _opened(log: str) -> IO[bytes]:
    """Return the log opened for appending; one that has grown is moved aside first."""
    if os.path.exists(log) and os.path.getsize(log) > MAX_LOG_BYTES:
        os.replace(log, f"{log}.1")
    return open(log, "ab", buffering=0, opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _answers(socket_path: str) -> bool:
    try:
        with Client(socket_path):
            return True
    except IndexdError:
        return False


def _last_line(log: str, begin: int) -> str:
    """Return the last line the log gained since it was `begin` bytes long."""
    with open(log, "rb") as stream:
        stream.seek(begin)
        lines = stream.read().decode("utf-8", "backslashreplace").strip().splitlines()
    return lines[-1].strip().removeprefix("indexd: ") if lines else "it wrote no reason"
