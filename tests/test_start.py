"""Starting the daemon: one process, detached, ready when start returns, honest when it fails."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer import Peer, short_directory

from indexd import paths
from indexd.client import Client
from indexd.errors import NotAllowed, Timeout, Unavailable
from indexd.start import MAX_LOG_BYTES, log_file, start

DAEMON = (sys.executable, str(Path(__file__).parent / "small_daemon.py"))


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with short_directory() as directory:
        yield {"HOME": str(directory), "INDEXD_SOCKET": str(directory / "s"), "PATH": os.defpath}


@pytest.fixture
def socket_path(environment) -> str:
    return paths.socket_path(environment)


def stop(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.terminate()
        assert process.wait(10) == 0


def test_a_started_daemon_listens_when_start_returns(environment, socket_path):
    process = start(socket_path, environment, DAEMON)
    try:
        assert process is not None
        with Client(socket_path) as client:
            assert client.status() == {"pid": process.pid}
    finally:
        stop(process)


def test_it_is_detached_from_terminal_and_directory(environment, socket_path):
    process = start(socket_path, environment, DAEMON)
    assert process is not None
    stop(process)

    assert Path(f"{socket_path}.starts").read_text() == f"{process.pid} / {process.pid}\n"


def test_clients_that_start_at_once_start_one(environment, socket_path):
    started: list[subprocess.Popen[bytes] | None] = []
    threads = [
        threading.Thread(target=lambda: started.append(start(socket_path, environment, DAEMON)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in started:
        stop(process)

    assert len([process for process in started if process is not None]) == 1
    assert len(started) == 4
    assert len(Path(f"{socket_path}.starts").read_text().splitlines()) == 1


def test_with_a_daemon_there_nothing_is_started(environment, socket_path):
    with Peer(socket_path, {}):
        assert start(socket_path, environment, ("/nowhere",)) is None


def test_a_daemon_that_gives_up_is_quoted_with_its_last_words(environment, socket_path):
    with pytest.raises(Unavailable, match="did not start: root / is refused") as caught:
        start(socket_path, environment, (*DAEMON, "--fail", "root / is refused"))
    assert log_file(environment) in caught.value.hint


def test_a_daemon_that_loses_to_another_is_no_failure(environment, socket_path):
    # The winner comes up, from elsewhere, while our own candidate is still starting.
    loser = (
        "import os, subprocess, sys; ready, end = os.pipe(); "
        "subprocess.Popen(sys.argv[1:], pass_fds=[end], "
        "env={**os.environ, 'INDEXD_READY_FD': str(end)}); "
        "os.read(ready, 1); os._exit(1)"
    )
    assert start(socket_path, environment, (sys.executable, "-c", loser, *DAEMON)) is None

    with Client(socket_path) as client:
        pid = client.status()["pid"]
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    assert select.select([process], [], [], 10)[0]
    os.close(process)


def test_a_daemon_that_never_says_it_is_ready_is_ended(environment, socket_path):
    silent = "import os, signal, sys; sys.stderr.write(f'process {os.getpid()}\\n'); signal.pause()"
    with pytest.raises(Timeout, match=r"did not listen within 1 s: process \d+") as caught:
        start(socket_path, environment, (sys.executable, "-c", silent), seconds=1)

    with pytest.raises(ProcessLookupError):
        os.kill(int(caught.value.message.split()[-1]), 0)


def test_a_daemon_that_cannot_be_run_is_unavailable(environment, socket_path):
    with pytest.raises(Unavailable, match="cannot be run"):
        start(socket_path, environment, ("/nowhere/indexd",))


def test_a_log_that_has_grown_is_moved_aside(environment, socket_path):
    log = Path(log_file(environment))
    paths.private_directory(str(log.parent))
    log.write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    with pytest.raises(Unavailable):
        start(socket_path, environment, (*DAEMON, "--fail", "no"))

    assert log.stat().st_size < 100
    assert log.stat().st_mode & 0o777 == 0o600
    assert Path(f"{log}.1").stat().st_size == MAX_LOG_BYTES + 1


def test_a_cache_directory_open_to_others_starts_nothing(environment, socket_path):
    cache = Path(paths.cache_dir(environment))
    cache.mkdir(parents=True)
    cache.chmod(0o755)

    with pytest.raises(NotAllowed, match="open to other users"):
        start(socket_path, environment, DAEMON)


def test_a_checkout_is_found_from_any_directory(environment, socket_path):
    imports = "import indexd, sys; sys.stderr.write(indexd.__file__); sys.exit(1)"
    with pytest.raises(Unavailable) as caught:
        start(socket_path, environment, (sys.executable, "-P", "-c", imports))

    assert caught.value.message.endswith(str(Path("indexd/__init__.py").absolute()))
