from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexd import __version__
from indexd.client import Client
from indexd.errors import Unavailable
from indexd.start import start
from tests.talk import Talk, frame

REPOSITORY = Path(__file__).parent.parent
TINY = [sys.executable, "-m", "tests.tiny_daemon"]


class Place:
    """A home of its own, and the daemons started in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cache = path / "cache"
        self.socket = path / "run" / "indexd.sock"
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "HOME": str(path),
            "XDG_RUNTIME_DIR": str(path),
            "INDEXD_CACHE_DIR": str(self.cache),
            "INDEXD_SOCKET": str(self.socket),
        }
        self.processes: list[subprocess.Popen[str]] = []

    def launch(
        self, *flags: str, command: list[str] = TINY, fds: tuple[int, ...] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """Start a daemon without waiting for it."""
        process = subprocess.Popen(
            [*command, *flags],
            env={**self.environment, **environment},
            pass_fds=fds,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def running(self, *flags: str, **environment: str) -> subprocess.Popen[str]:
        """Start a daemon and wait until it says that it answers."""
        ready, its_end = os.pipe()
        process = self.launch(
            *flags, fds=(its_end,), **{"INDEXD_READY_FD": str(its_end), **environment}
        )
        os.close(its_end)
        with open(ready, "rb") as pipe:
            assert pipe.read() == b"\n", process.communicate()[1]
        return process

    def failed(self, *flags: str, **environment: str) -> str:
        """Start a daemon that must fail, and return what it says."""
        process = self.launch(*flags, **environment)
        said: str = process.communicate(timeout=20)[1]
        assert process.returncode == 1, said
        return said

    def listens(self) -> bool:
        """Say whether a connection gets through; the file alone is there a moment earlier."""
        try:
            Talk(str(self.socket), greet=False).socket.close()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def tell(self, word: str) -> None:
        self.cache.mkdir(mode=0o700, exist_ok=True)
        (self.cache / word).touch()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def status_of(place: Place) -> dict[str, object]:
    with Client(str(place.socket)) as client:
        answer: dict[str, object] = client.status()
        return answer


def ended(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> float:
    """Signal a process and return how many seconds it took to end well."""
    begin = time.monotonic()
    process.send_signal(number)
    assert process.wait(10) == 0
    return time.monotonic() - begin


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_started_daemon_answers_and_is_open_to_its_owner_alone(place: Place) -> None:
    process = place.running()
    answer = status_of(place)
    assert (answer["pid"], answer["socket"]) == (process.pid, str(place.socket))
    assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.cache.stat().st_mode) == 0o700
    assert stat.S_IMODE((place.cache / "indexd.lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_told_to_stop_does_so_soon_and_tidies_up(place: Place, number: int) -> None:
    process = place.running()
    with Client(str(place.socket)) as client:
        client.status()
        assert ended(process, number) < 2
    assert not place.socket.exists()
    assert (place.cache / "closed").exists()


def test_flags_go_before_the_environment(place: Place) -> None:
    elsewhere = place.path / "other" / "s.sock"
    place.running("--socket", str(elsewhere), "--cache-dir", str(place.path / "cache2"))
    with Client(str(elsewhere)) as client:
        assert client.status()["socket"] == str(elsewhere)
    assert (place.path / "cache2" / "indexd.lock").exists()
    assert not place.cache.exists()


def test_a_second_daemon_names_the_first_and_leaves_it_alone(place: Place) -> None:
    first = place.running()
    said = place.failed("--socket", str(place.path / "run" / "two.sock"))
    assert said.splitlines()[-1].startswith(f"indexd: another indexd (process {first.pid}) ")
    # Where it listens, since that is not where the second one was looking.
    assert f"INDEXD_SOCKET={place.socket}, or end it: indexctl --socket {place.socket} stop" in said
    assert status_of(place)["pid"] == first.pid


def test_a_second_daemon_with_another_cache_cannot_take_the_socket(place: Place) -> None:
    first = place.running()
    said = place.failed("--cache-dir", str(place.path / "cache2"))
    assert f"indexd: process {first.pid} already listens at {place.socket}" in said
    assert status_of(place)["pid"] == first.pid


def test_daemons_started_at_once_end_up_as_one(place: Place) -> None:
    caches = [str(place.path / f"cache{n}") for n in range(4)]
    processes = [place.launch("--cache-dir", cache) for cache in caches]
    wait_until(lambda: sum(process.poll() == 1 for process in processes) == 3)
    (alive,) = [process for process in processes if process.poll() is None]
    wait_until(place.listens)
    assert status_of(place)["pid"] == alive.pid


def test_a_killed_daemon_leaves_nothing_that_stops_the_next(place: Place) -> None:
    first = place.running()
    first.kill()
    first.wait()
    assert place.socket.exists()
    second = place.running()
    assert status_of(place)["pid"] == second.pid


def test_what_is_no_socket_is_not_removed(place: Place) -> None:
    place.socket.parent.mkdir(mode=0o700)
    place.socket.write_text("precious")
    assert f"{place.socket} is not a socket" in place.failed()
    assert place.socket.read_text() == "precious"


def test_a_directory_open_to_others_is_refused(place: Place) -> None:
    place.socket.parent.mkdir(mode=0o755)
    said = place.failed()
    assert f"{place.socket.parent} is open to other users" in said
    assert "chmod 700" in said


def test_a_lock_file_that_is_a_link_is_refused(place: Place) -> None:
    place.cache.mkdir(mode=0o700)
    (place.path / "victim").write_text("precious")
    (place.cache / "indexd.lock").symlink_to(place.path / "victim")
    assert "indexd.lock cannot be opened" in place.failed()
    assert (place.path / "victim").read_text() == "precious"


def test_a_socket_that_took_the_place_of_ours_is_left(place: Place) -> None:
    process = place.running()
    place.socket.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place.socket))
        ended(process)
        assert place.socket.exists()


def test_an_answer_under_way_gets_out_before_the_end(place: Place) -> None:
    process = place.running()
    with Talk(str(place.socket)) as talk:
        talk.socket.sendall(frame({"id": 1, "method": "sync"}))
        wait_until((place.cache / "waiting").exists)
        process.send_signal(signal.SIGTERM)
        assert talk.hear() == {"id": 1, "result": {}}
    assert process.wait(2) == 0


def test_a_daemon_that_still_starts_can_be_stopped(place: Place) -> None:
    place.tell("hold")
    process = place.launch()
    wait_until(place.listens)
    # Signals are obeyed before the engine starts, so once it is there, they are.
    with socket.socket(socket.AF_UNIX) as early:
        early.connect(str(place.socket))
        wait_until(lambda: catches(process.pid, signal.SIGTERM))
        assert ended(process) < 2
    assert not place.socket.exists()


def catches(pid: int, number: int) -> bool:
    """Say whether a process has a handler for a signal."""
    text = Path(f"/proc/{pid}/status").read_text()
    return bool(int(text.split("SigCgt:\t")[1].split()[0], 16) >> (number - 1) & 1)


def test_a_thread_that_hangs_does_not_hold_the_end_up(place: Place) -> None:
    place.tell("hang")
    process = place.running()
    assert ended(process) < 2.3
    assert place.running().poll() is None


def test_an_engine_that_fails_ends_the_daemon_with_its_reason(place: Place) -> None:
    process = place.running()
    place.tell("crash")
    status_of(place)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == 1
    assert "RuntimeError: the engine broke down" in said
    assert not place.socket.exists()
    assert (place.cache / "closed").exists()


def test_an_engine_that_fails_while_a_thread_hangs_ends_the_daemon_soon_and_says_why(
    place: Place,
) -> None:
    place.tell("stuck")
    process = place.running()
    place.tell("crash")
    begin = time.monotonic()
    status_of(place)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == 1
    assert "RuntimeError: the engine broke down" in said
    assert time.monotonic() - begin < 5
    assert place.running().poll() is None


def test_sighup_reloads_and_a_bad_reload_changes_nothing(place: Place) -> None:
    process = place.running()
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: status_of(place)["reloads"] == 1)
    place.tell("broken")
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    wait_for_line(process, "reading failed")
    place.tell("refuse")
    process.send_signal(signal.SIGHUP)
    assert "limit 0 is too low" in wait_for_line(process, "reload refused")
    assert status_of(place)["reloads"] == 1


def wait_for_line(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    return next(line for line in process.stderr if words in line)


def test_whoever_started_it_hears_when_it_answers_or_that_it_will_not(place: Place) -> None:
    place.running()
    ready, its_end = os.pipe()
    second = place.launch(fds=(its_end,), INDEXD_READY_FD=str(its_end))
    os.close(its_end)
    with open(ready, "rb") as pipe:
        assert pipe.read() == b""
    assert second.wait(10) == 1


def test_a_starter_that_has_gone_away_does_not_matter(place: Place) -> None:
    ready, its_end = os.pipe()
    os.close(ready)
    place.launch(fds=(its_end,), INDEXD_READY_FD=str(its_end))
    os.close(its_end)
    wait_until(place.listens)
    assert status_of(place)["reloads"] == 0


@pytest.mark.parametrize("number", ["x", "999", "-1"])
def test_a_ready_descriptor_that_is_none_is_refused(place: Place, number: str) -> None:
    assert f"INDEXD_READY_FD '{number}'" in place.failed(INDEXD_READY_FD=number)


def test_the_client_starts_it_when_none_answers(place: Place) -> None:
    process = start(str(place.socket), place.environment, TINY)
    assert process is not None
    try:
        assert status_of(place)["pid"] == process.pid
        assert start(str(place.socket), place.environment, TINY) is None
    finally:
        process.terminate()
        process.wait()


def test_the_client_says_why_it_did_not_start(place: Place) -> None:
    place.socket.parent.mkdir(mode=0o700)
    place.socket.write_text("precious")
    with pytest.raises(Unavailable, match=r"did not start: /.* is not a socket; move it"):
        start(str(place.socket), place.environment, TINY)


@pytest.fixture
def manager(place: Place) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(str(place.path / "notify.sock"))
        receiving.settimeout(20)
        yield receiving


def test_the_manager_hears_of_every_step(place: Place, manager: socket.socket) -> None:
    process = place.running(NOTIFY_SOCKET=str(place.path / "notify.sock"), WATCHDOG_USEC="60000000")
    heard = [manager.recv(4096).decode() for _ in range(3)]
    assert heard == ["READY=1", "WATCHDOG=1", "STATUS=0 reloads"]
    process.send_signal(signal.SIGHUP)
    assert manager.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert manager.recv(4096) == b"READY=1"
    ended(process)
    assert manager.recv(4096) == b"STOPPING=1"


def test_the_watchdog_hears_only_from_a_healthy_engine(
    place: Place, manager: socket.socket
) -> None:
    place.running(NOTIFY_SOCKET=str(place.path / "notify.sock"), WATCHDOG_USEC="300000")
    heard = [manager.recv(4096) for _ in range(6)]
    assert heard.count(b"WATCHDOG=1") == 4
    place.tell("sick")
    manager.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        for _ in range(3):
            assert manager.recv(4096) == b"WATCHDOG=1"
        pytest.fail("the watchdog is told that all is well")


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="no systemd here")
def test_a_socket_of_the_manager_is_served_and_left_in_place(place: Place) -> None:
    place.socket.parent.mkdir(mode=0o700)
    # It passes no descriptor but the socket on, so readiness shows in the first answer.
    process = place.launch(
        command=[
            "systemd-socket-activate", "-l", str(place.socket), "--fdname=indexd",
            "-E", "HOME", "-E", "PYTHONPATH", "-E", "INDEXD_CACHE_DIR", "-E", "XDG_RUNTIME_DIR",
            *TINY, "--socket", str(place.path / "unused" / "s.sock"),
        ]
    )  # fmt: skip
    wait_until(place.listens)
    answer = status_of(place)
    assert (answer["pid"], answer["socket"]) == (process.pid, str(place.socket))
    ended(process)
    assert place.socket.exists()
    assert not (place.path / "unused").exists()


def test_a_lack_of_descriptors_is_survived(place: Place) -> None:
    command = ["bash", "-c", 'ulimit -n 40; exec "$@"', "bash", *TINY]
    place.launch(command=command)
    wait_until(place.listens)
    told_busy = threading.Event()
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            talk = stack.enter_context(Talk(str(place.socket), greet=False))
            talk.socket.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                if talk.hear().get("error", {}).get("code") == "busy":
                    told_busy.set()
    assert told_busy.is_set()
    assert status_of(place)["reloads"] == 0


def test_the_command_line_is_explained(place: Place) -> None:
    version = place.launch("--version")
    assert version.communicate()[0] == f"indexd {__version__}\n"
    wrong = place.launch("--sokcet", "x")
    assert "usage: indexd" in wrong.communicate()[1]
    assert wrong.returncode == 2


def test_a_directory_that_cannot_be_is_named_with_a_next_step(place: Place) -> None:
    said = place.failed(INDEXD_SOCKET="/proc/none/s")
    assert said == (
        "indexd: /proc/none cannot be used: No such file or directory; choose another directory\n"
    )


def test_a_bad_configuration_is_named_and_ends_it(place: Place) -> None:
    file = place.path / "config.toml"
    file.write_text("[tool_serach]\n")
    said = place.failed("--config", str(file))
    assert said.startswith("indexd: ")
    assert "tool_serach" in said
    assert not place.socket.exists()


def test_what_a_peer_says_cannot_forge_a_line_of_the_log(place: Place) -> None:
    process = place.running("--log-level", "debug")
    with Talk(str(place.socket)) as talk:
        talk.call("status\ntime=0 level=error at=forged", x=1)
    assert ended(process) < 2
    assert process.stderr is not None
    lines = process.stderr.read().splitlines()
    assert not [line for line in lines if line.startswith("time=0")]


@pytest.mark.slow
def test_a_daemon_stopped_at_any_moment_is_gone_soon_and_starts_again(place: Place) -> None:
    moments = random.Random(1)
    for _ in range(60):
        process = place.launch()
        time.sleep(moments.uniform(0, 0.6))
        begin = time.monotonic()
        process.terminate()
        # A daemon that has not come as far as to listen to signals ends by them.
        assert process.wait(10) in (0, -signal.SIGTERM)
        assert time.monotonic() - begin < 2
    assert place.running().poll() is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_hundred_thousand_damaged_frames_change_nothing(place: Place) -> None:
    process = place.running()
    random_bytes = random.Random(2)
    models = [
        frame({"id": 1, "method": method, "params": params})
        for method, params in (
            ("search", {"query": "retry budget", "limit": 5, "kinds": ["meta"], "since": "3d"}),
            ("hello", {"protocol": [1, 1]}),
            ("status", {}),
        )
    ]
    answered, before = 0, resident_bytes(process.pid)
    # The first frame that is no map at all ends its connection, so each gets a few.
    while answered < 100_000:
        with Talk(str(place.socket)) as talk:
            sent = b"".join(damaged(random_bytes.choice(models), random_bytes) for _ in range(10))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                talk.socket.sendall(sent)
                talk.socket.shutdown(socket.SHUT_WR)
            while talk.hear():
                answered += 1
    assert status_of(place)["pid"] == process.pid
    assert resident_bytes(process.pid) - before < 32 << 20


def damaged(model: bytes, random_bytes: random.Random) -> bytes:
    """Return a frame of which a few bytes of the body are others."""
    body = bytearray(model[4:])
    for _ in range(random_bytes.randrange(3)):
        body[random_bytes.randrange(len(body))] = random_bytes.randrange(256)
    return len(body).to_bytes(4, "big") + body


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024
