from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexd.systemd import Notifier, adopt_socket

REPOSITORY = Path(__file__).parent.parent

# Says what it adopted, and whether a child of its would inherit anything.
ADOPT = """
import os, sys
from indexd.errors import BadRequest
from indexd.systemd import adopt_socket
os.environ["LISTEN_PID"] = os.environ["LISTEN_PID"].replace("SELF", str(os.getpid()))
try:
    found = adopt_socket(os.environ)
except BadRequest as error:
    sys.exit(error.message)
left = [name for name in os.environ if name.startswith("LISTEN_")]
print(found and (found.getsockname(), found.fileno(), found.get_inheritable()), left)
"""


def adopted(fds: list[int], **environment: str) -> str:
    """Return what a process makes of `fds` handed over from number 3 on."""
    # Descriptors move to their places in the child, where nothing else is in the way.
    moves = "".join(f"exec {3 + n}<&{fd}; " for n, fd in enumerate(fds))
    run = subprocess.run(
        ["bash", "-c", f'{moves}exec "$@"', "bash", sys.executable, "-c", ADOPT],
        env={**os.environ, "LISTEN_PID": "SELF", "LISTEN_FDS": str(len(fds)), **environment},
        pass_fds=fds,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    return run.stdout or run.stderr


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.sock"))
        listening.listen()
        high = socket.socket(fileno=os.dup(listening.fileno()))
        with high:
            yield high


def high_fd(fd: int) -> int:
    """Return a copy of `fd` out of the way of the numbers that are handed over."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD, 20)


def test_a_socket_handed_over_is_adopted_and_kept_from_children(
    listener: socket.socket,
) -> None:
    fd = high_fd(listener.fileno())
    assert adopted([fd]) == f"('{listener.getsockname()}', 3, False) []\n"
    os.close(fd)


def test_of_several_sockets_the_named_one_is_adopted(listener: socket.socket) -> None:
    fds = [high_fd(2), high_fd(listener.fileno())]
    names = "other:indexd"
    assert adopted(fds, LISTEN_FDNAMES=names) == f"('{listener.getsockname()}', 4, False) []\n"
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize(
    "environment", [{"LISTEN_PID": "1"}, {"LISTEN_FDS": "0"}, {"LISTEN_FDS": "x"}]
)
def test_what_was_meant_for_another_process_is_left_alone(
    listener: socket.socket, environment: dict[str, str]
) -> None:
    fd = high_fd(listener.fileno())
    assert adopted([fd], **environment) == "None []\n"
    os.close(fd)


def test_without_a_manager_there_is_nothing_to_adopt() -> None:
    assert adopt_socket({}) is None


@pytest.mark.parametrize("kind", ["file", "missing", "connected", "datagram", "inet", "abstract"])
def test_what_is_no_listening_unix_socket_is_refused(tmp_path: Path, kind: str) -> None:
    held = wrong_descriptors(tmp_path, kind)
    fds = [high_fd(held[0].fileno())] if held else []
    said = adopted(fds, LISTEN_FDS="1")
    for each in fds:
        os.close(each)
    for each_socket in held:
        each_socket.close()
    assert said == "descriptor 3 from the service manager is no listening Unix stream socket\n"


def wrong_descriptors(directory: Path, kind: str) -> list[socket.socket]:
    if kind == "missing":
        return []
    if kind == "file":
        return [open(directory / "file", "w")]  # type: ignore[list-item]
    if kind == "connected":
        return list(socket.socketpair(socket.AF_UNIX))
    if kind == "inet":
        inet = socket.socket()
        inet.bind(("127.0.0.1", 0))
        inet.listen()
        return [inet]
    if kind == "datagram":
        datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagram.bind(str(directory / "d.sock"))
        return [datagram]
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0indexd-test-{os.getpid()}")
    abstract.listen()
    return [abstract]


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """A service manager's end of the notifications."""
    path = str(tmp_path / "n.sock") if request.param == "path" else f"\0indexd-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(path)
        receiving.setblocking(False)
        yield receiving


def address(manager: socket.socket) -> str:
    name = manager.getsockname()
    return name if isinstance(name, str) else "@" + name[1:].decode()


def test_the_manager_is_told_how_we_are(manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": address(manager)}
    notifier = Notifier(environment)
    assert environment == {}
    assert notifier
    before = time.monotonic_ns() // 1000
    notifier.ready()
    notifier.status("3 documents\n  READY=1")
    notifier.reloading()
    notifier.alive()
    notifier.stopping()
    told = [manager.recv(4096).decode() for _ in range(5)]
    reloading, _, stamp = told.pop(2).partition("\nMONOTONIC_USEC=")
    assert reloading == "RELOADING=1"
    assert before <= int(stamp) <= time.monotonic_ns() // 1000
    assert told == ["READY=1", "STATUS=3 documents READY=1", "WATCHDOG=1", "STOPPING=1"]


def test_a_manager_that_does_not_read_is_not_waited_for(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address(manager)})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                filler.sendto(b"x", manager.getsockname())
    begin = time.monotonic()
    notifier.alive()
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("where", ["", "/nowhere/n.sock", "vsock:2:1234"])
def test_without_a_manager_notifications_are_harmless(where: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": where})
    notifier.ready()
    notifier.stopping()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [({"WATCHDOG_USEC": "30000000"}, 30.0), ({"WATCHDOG_USEC": "x"}, None), ({}, None),
     ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": str(os.getpid())}, 5.0),
     ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}, None)],
)  # fmt: skip
def test_the_watchdog_s_period_is_ours_only_when_meant_for_us(
    environment: dict[str, str], seconds: float | None
) -> None:
    assert Notifier(environment).watchdog_seconds == seconds
