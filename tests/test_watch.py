"""Watching: with real inotify, every change before a barrier is in the drained set."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from indexd.mounts import remote_type
from indexd.watch import Watcher

TIMEOUT = 20


class Ground:
    """A root, a place for cookies, and whatever a test builds beside them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "root"
        self.cookies = path / "run"
        self.root.mkdir()

    @contextmanager
    def watching(self, *roots: Path, **options: object) -> Iterator[Watcher]:
        """Yield a started watcher whose initial hints are drained."""
        paths = [str(root) for root in roots or (self.root,)]
        options.setdefault("wake", lambda: None)
        with Watcher(paths, str(self.cookies), **options) as watcher:  # type: ignore[arg-type]
            assert settle(watcher) >= set(paths)
            yield watcher


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def settle(watcher: Watcher) -> set[str]:
    """Return the hints of everything done so far."""
    assert watcher.barrier().result(TIMEOUT)
    return watcher.drain()


def append(path: Path, data: bytes = b"{}\n") -> str:
    with path.open("ab") as file:
        file.write(data)
    return str(path)


def covered(path: Path, hints: set[str]) -> bool:
    return str(path) in hints or any(str(parent) in hints for parent in path.parents)


# --- files and directories -------------------------------------------------------------------


def test_a_root_is_to_be_looked_at_once_it_is_watched(ground: Ground) -> None:
    with Watcher([str(ground.root)], str(ground.cookies), lambda: None) as watcher:
        assert settle(watcher) == {str(ground.root)}
        assert settle(watcher) == set()


def test_what_happens_to_a_file_names_that_file(ground: Ground) -> None:
    first, second = ground.root / "a.jsonl", ground.root / "b.jsonl"
    with ground.watching() as watcher:
        append(first)
        assert settle(watcher) == {str(first)}
        append(first)
        assert settle(watcher) == {str(first)}
        os.truncate(first, 0)
        assert settle(watcher) == {str(first)}
        first.rename(second)
        assert settle(watcher) == {str(first), str(second)}
        second.unlink()
        assert settle(watcher) == {str(second)}


def test_saving_by_rename_is_reported_without_delay_under_the_final_name(ground: Ground) -> None:
    session = ground.root / "s.jsonl"
    append(session)
    with ground.watching() as watcher:
        append(ground.path / "tmp")
        (ground.path / "tmp").rename(session)
        assert settle(watcher) == {str(session)}


def test_no_file_in_a_new_tree_is_lost(ground: Ground) -> None:
    files = [ground.root / f"{n}" / "b" / "c" / "s.jsonl" for n in range(300)]
    with ground.watching() as watcher:
        for file in files:
            file.parent.mkdir(parents=True)
            append(file)
        hints = settle(watcher)
        assert [file for file in files if not covered(file, hints)] == []
        assert settle(watcher) == set()
        assert watcher.status()["watched"] == 1 + 3 * len(files)
        assert {append(file) for file in files} == settle(watcher)


def test_a_tree_moved_in_is_followed_and_one_moved_out_is_left(ground: Ground) -> None:
    outside, inside = ground.path / "tree", ground.root / "tree"
    (outside / "deep").mkdir(parents=True)
    append(outside / "deep" / "s.jsonl")
    with ground.watching() as watcher:
        outside.rename(inside)
        assert settle(watcher) == {str(inside)}
        assert {append(inside / "deep" / "s.jsonl")} == settle(watcher)
        inside.rename(outside)
        assert settle(watcher) == {str(inside)}
        append(outside / "deep" / "s.jsonl")
        assert settle(watcher) == set()
        assert watcher.status()["watched"] == 1


def test_a_tree_moved_within_a_root_goes_by_its_new_name(ground: Ground) -> None:
    old, new = ground.root / "old", ground.root / "new"
    (old / "deep").mkdir(parents=True)
    with ground.watching() as watcher:
        old.rename(new)
        assert settle(watcher) == {str(old), str(new)}
        assert {append(new / "deep" / "s.jsonl")} == settle(watcher)
        old.mkdir()
        assert settle(watcher) == {str(old)}
        assert {append(old / "s.jsonl")} == settle(watcher)


def test_a_directory_deleted_and_made_again_is_followed(ground: Ground) -> None:
    project = ground.root / "project"
    with ground.watching() as watcher:
        for _ in range(20):
            project.mkdir()
            append(project / "s.jsonl")
            shutil.rmtree(project)
        project.mkdir()
        assert str(project) in settle(watcher)
        assert {append(project / "s.jsonl")} == settle(watcher)
        assert watcher.status()["watched"] == 2


def test_reading_makes_no_event(ground: Ground) -> None:
    append(ground.root / "s.jsonl")
    with ground.watching() as watcher:
        (ground.root / "s.jsonl").read_bytes()
        list(ground.root.iterdir())
        (ground.root / "s.jsonl").stat()
        assert settle(watcher) == set()


def test_linked_directories_are_not_followed(ground: Ground) -> None:
    elsewhere = ground.path / "elsewhere"
    elsewhere.mkdir()
    (ground.root / "before").symlink_to(elsewhere)
    with ground.watching() as watcher:
        (ground.root / "after").symlink_to(elsewhere)
        assert settle(watcher) == {str(ground.root / "after")}
        append(elsewhere / "s.jsonl")
        assert settle(watcher) == set()


def test_excluded_directories_cost_no_watch(ground: Ground) -> None:
    (ground.root / "scratch" / "deep").mkdir(parents=True)
    with ground.watching(excluded=lambda path: path.endswith("/scratch")) as watcher:
        append(ground.root / "scratch" / "s.jsonl")
        assert settle(watcher) == set()
        assert watcher.status()["watched"] == 1


def test_names_that_are_not_utf8_come_back_as_they_are(ground: Ground) -> None:
    path = os.path.join(os.fsencode(ground.root), b"caf\xe9.jsonl")
    with ground.watching() as watcher:
        with open(path, "wb"):
            pass
        assert {os.fsencode(hint) for hint in settle(watcher)} == {path}


# --- roots -----------------------------------------------------------------------------------


def test_a_root_that_appears_step_by_step_is_picked_up(ground: Ground) -> None:
    root = ground.path / "home" / "agent" / "sessions"
    with ground.watching(root) as watcher:
        for directory in (root.parent.parent, root.parent):
            directory.mkdir()
            append(directory / "unrelated")
            settle(watcher)
        root.mkdir()
        assert settle(watcher) == {str(root)}
        assert {append(root / "s.jsonl")} == settle(watcher)
        append(ground.path / "unrelated")
        assert settle(watcher) == set()
        assert watcher.status()["watched"] == 1


def test_a_root_that_appears_all_at_once_loses_no_file(ground: Ground) -> None:
    root = ground.path / "home" / "agent" / "sessions"
    with ground.watching(root) as watcher:
        root.mkdir(parents=True)
        append(root / "s.jsonl")
        assert covered(root / "s.jsonl", settle(watcher))
        assert {append(root / "s.jsonl")} == settle(watcher)


def test_a_root_deleted_and_made_again_is_followed(ground: Ground) -> None:
    append(ground.root / "s.jsonl")
    with ground.watching() as watcher:
        for _ in range(20):
            shutil.rmtree(ground.root)
            ground.root.mkdir()
        settle(watcher)
        assert {append(ground.root / "s.jsonl")} == settle(watcher)
        shutil.rmtree(ground.root)
        assert str(ground.root) in settle(watcher)
        assert watcher.mode(str(ground.root)) == "inotify"
        ground.root.mkdir()
        assert settle(watcher) == {str(ground.root)}
        assert {append(ground.root / "s.jsonl")} == settle(watcher)
        assert watcher.status()["watched"] == 1


@pytest.mark.parametrize("moved", ["root", "a directory above it"])
def test_a_root_moved_away_and_made_again_is_followed(ground: Ground, moved: str) -> None:
    root = ground.root / "agent" / "sessions"
    (root / "project").mkdir(parents=True)
    old = root if moved == "root" else ground.root
    with ground.watching(root) as watcher:
        old.rename(ground.path / "away")
        assert settle(watcher) == {str(root)}
        (root / "project").mkdir(parents=True)
        assert str(root) in settle(watcher)
        assert {append(root / "project" / "s.jsonl")} == settle(watcher)
        assert watcher.status()["watched"] == 2


@pytest.mark.parametrize("change", ["mkdir", "rename away"])
def test_a_root_that_comes_or_goes_wakes_the_owner_unasked(ground: Ground, change: str) -> None:
    root = ground.root / "agent" / "sessions"
    awake = threading.Event()
    if change != "mkdir":
        root.mkdir(parents=True)
    with ground.watching(root, wake=awake.set) as watcher:
        awake.clear()
        if change == "mkdir":
            root.mkdir(parents=True)
        else:
            root.rename(ground.path / "away")
        assert awake.wait(TIMEOUT)
        assert watcher.drain() == {str(root)}


def test_no_root_is_lost_that_appears_while_it_is_waited_for(ground: Ground) -> None:
    awake = threading.Event()
    roots = [ground.path / f"home{n}" / "b" / "c" / "d" / "sessions" for n in range(100)]
    with ground.watching(*roots, wake=awake.set) as watcher:
        missing = {str(root) for root in roots}
        # Another process, so that the watching thread truly runs beside it.
        subprocess.run(["mkdir", "-p", *roots], check=True)
        while missing and awake.wait(TIMEOUT):
            awake.clear()
            missing -= watcher.drain()
        assert missing == set()


def test_a_directory_waited_in_may_go_and_come_too(ground: Ground) -> None:
    root = ground.root / "agent" / "sessions"
    with ground.watching(root, ground.root / "agent" / "archive") as watcher:
        ground.root.rmdir()
        settle(watcher)
        root.mkdir(parents=True)
        assert str(root) in settle(watcher)
        assert {append(root / "s.jsonl")} == settle(watcher)


def test_each_root_of_several_is_followed_and_no_other(ground: Ground) -> None:
    roots = [ground.path / f"root{n}" for n in range(5)]
    for root in roots[:3]:
        root.mkdir()
    with ground.watching(*roots) as watcher:
        for root in roots[3:]:
            root.mkdir()
        settle(watcher)
        assert {append(root / "s.jsonl") for root in roots} == settle(watcher)
        assert {watcher.mode(str(root)) for root in roots} == {"inotify"}
        assert watcher.mode(str(ground.root)) == "poll"


# --- barriers --------------------------------------------------------------------------------


def test_each_append_before_a_barrier_is_in_the_set(ground: Ground) -> None:
    session = ground.root / "s.jsonl"
    append(session)
    fd = os.open(session, os.O_WRONLY | os.O_APPEND)
    with ground.watching() as watcher:
        missed = 0
        for _ in range(10_000):
            os.write(fd, b"{}\n")
            missed += settle(watcher) != {str(session)}
    os.close(fd)
    assert missed == 0


def test_barriers_of_many_threads_each_cover_their_own_append(ground: Ground) -> None:
    seen: set[str] = set()
    lock = threading.Lock()

    def appends(worker: int) -> int:
        missed = 0
        for n in range(200):
            path = append(ground.root / f"{worker}-{n}")
            assert watcher.barrier().result(TIMEOUT)
            with lock:
                seen.update(watcher.drain())
                missed += path not in seen
        return missed

    with ground.watching() as watcher, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(appends, range(4))) == [0] * 4


def test_a_barrier_can_be_awaited(ground: Ground) -> None:
    async def ask(watcher: Watcher) -> bool:
        return await asyncio.wrap_future(watcher.barrier())

    with ground.watching() as watcher:
        assert asyncio.run(ask(watcher))


def test_a_barrier_given_up_by_its_asker_harms_no_other(ground: Ground) -> None:
    with ground.watching() as watcher:
        for _ in range(100):
            watcher.barrier().cancel()
        assert settle(watcher) == set()


@pytest.mark.parametrize("what", ["the cookie", "its directory"])
def test_barriers_survive_the_deletion_of(ground: Ground, what: str) -> None:
    with ground.watching() as watcher:
        for _ in range(20):
            if what == "the cookie":
                next(ground.cookies.iterdir()).unlink()
            else:
                shutil.rmtree(ground.cookies)
            append(ground.root / "s.jsonl")
            assert str(ground.root / "s.jsonl") in settle(watcher)
        assert ground.cookies.stat().st_mode & 0o777 == 0o700


def test_cookies_of_a_process_that_died_are_cleared_away(ground: Ground) -> None:
    ground.cookies.mkdir()
    (ground.cookies / "cookie-17").touch()
    with ground.watching() as watcher:
        settle(watcher)
        assert len(list(ground.cookies.iterdir())) == 1


def test_the_cookie_directory_may_be_where_a_root_is_waited_for(ground: Ground) -> None:
    ground.cookies.mkdir()
    root = ground.cookies / "mcp-events"
    with ground.watching(root) as watcher:
        root.mkdir()
        assert settle(watcher) == {str(root)}
        assert {append(root / "journal.jsonl")} == settle(watcher)


def test_without_a_watching_thread_a_barrier_says_so_at_once(ground: Ground) -> None:
    watcher = Watcher([str(ground.root)], str(ground.cookies), lambda: None)
    assert watcher.barrier().result(0) is False
    watcher.start()
    assert watcher.barrier().result(TIMEOUT) is True
    watcher.close()
    assert watcher.barrier().result(0) is False
    assert not watcher.alive()
    assert watcher.mode(str(ground.root)) == "poll"
    assert "ended" in watcher.status()["polled"][str(ground.root)]


def test_closing_returns_every_descriptor_even_amid_the_first_walk(ground: Ground) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(5):
        walking, go_on = threading.Event(), threading.Event()

        def stall(path: str, walking: threading.Event, go_on: threading.Event) -> bool:
            walking.set()
            return not go_on.wait(TIMEOUT)

        watcher = Watcher(
            [str(ground.root)],
            str(ground.cookies),
            lambda: None,
            excluded=partial(stall, walking=walking, go_on=go_on),
        )
        watcher.start()
        asked = watcher.barrier()
        assert walking.wait(TIMEOUT)
        closing = threading.Thread(target=watcher.close)
        closing.start()
        go_on.set()
        closing.join(TIMEOUT)
        asked.result(TIMEOUT)  # either answer is right, none would be wrong
    assert os.listdir("/proc/self/fd") == before


# --- waking and failing ----------------------------------------------------------------------


def test_the_owner_is_woken_once_until_it_drains(ground: Ground) -> None:
    woken: list[None] = []
    with ground.watching(wake=lambda: woken.append(None)) as watcher:
        woken.clear()
        for n in range(10):
            append(ground.root / f"{n}")
        assert len(settle(watcher)) == 10
        assert len(woken) == 1
        append(ground.root / "more")
        settle(watcher)
        assert len(woken) == 2


def test_a_failing_owner_does_not_stop_the_watcher(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("the loop is closed")

    with ground.watching(wake=fail) as watcher:
        assert {append(ground.root / "s.jsonl")} == settle(watcher)
        assert watcher.alive()
    assert "the loop is closed" in caplog.text


def test_a_failure_inside_asks_for_a_look_at_everything(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    def excluded(path: str) -> bool:
        if path.endswith("/bad"):
            raise ValueError(path)
        return False

    with ground.watching(excluded=excluded) as watcher:
        (ground.root / "bad").mkdir()
        assert settle(watcher) == {str(ground.root)}
        assert {append(ground.root / "s.jsonl")} == settle(watcher)
    assert "an event was lost" in caplog.text


def queue_length() -> int:
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


@pytest.mark.skipif(queue_length() > 100_000, reason="the event queue is too long to fill here")
def test_after_an_overflow_everything_is_looked_at_and_followed(ground: Ground) -> None:
    stalled, go_on = threading.Event(), threading.Event()

    def stall() -> None:
        stalled.set()
        assert go_on.wait(TIMEOUT)

    go_on.set()
    with ground.watching(wake=stall) as watcher:
        stalled.clear()
        go_on.clear()
        append(ground.root / "first")
        assert stalled.wait(TIMEOUT)
        fill_the_queue(ground.root)
        (ground.root / "lost").mkdir()
        lost_barrier = watcher.barrier()
        go_on.set()
        assert lost_barrier.result(TIMEOUT) is False
        assert str(ground.root) in settle(watcher)
        assert watcher.status()["overflows"] == 1
        files = [ground.root / "lost" / "s.jsonl", ground.root / "s.jsonl"]
        assert {append(file) for file in files} == settle(watcher)


def fill_the_queue(directory: Path) -> None:
    """Write to two files in turn, since the kernel merges equal neighbours."""
    files = [os.open(directory / name, os.O_CREAT | os.O_WRONLY) for name in ("a", "b")]
    for n in range(queue_length() + 10):
        os.write(files[n % 2], b"x")
    for fd in files:
        os.close(fd)


LIMITED = """
import json, os, sys
from indexd.watch import Watcher
small, large, cookies = sys.argv[1:]
with Watcher([small, large], cookies, lambda: None) as watcher:
    barriers = [watcher.barrier().result(20)]
    watcher.drain()
    open(small + "/s.jsonl", "w").close()
    barriers.append(watcher.barrier().result(20))
    print(json.dumps([watcher.alive(), barriers, sorted(watcher.drain()),
                      watcher.mode(small), watcher.mode(large), watcher.status()]))
"""


def limited(ground: Ground, limit: str, value: int) -> list[object]:
    """Return what a watcher says in a user namespace of its own with a lowered limit."""
    small, large = ground.root / "small", ground.root / "large"
    for directory in (small, *(large / f"{n}" for n in range(100))):
        directory.mkdir(parents=True)
    script = f'echo {value} > /proc/sys/user/{limit} && exec "$@"'
    python = [sys.executable, "-c", LIMITED, str(small), str(large), str(ground.cookies)]
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", *python]
    if subprocess.run([*command[:3], "true"], capture_output=True).returncode:
        pytest.skip("no user namespace may be made here")
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    answer: list[object] = json.loads(done.stdout)
    return answer


def test_a_reached_watch_limit_is_noticed_and_named(ground: Ground) -> None:
    small, large = str(ground.root / "small"), str(ground.root / "large")
    alive, barriers, hints, small_mode, large_mode, status = limited(
        ground, "max_inotify_watches", 30
    )
    assert alive
    assert barriers == [True, True]
    assert hints == [f"{small}/s.jsonl"]
    assert (small_mode, large_mode) == ("inotify", "poll")
    assert isinstance(status, dict)
    assert (status["mode"], status["limit"], status["watched"]) == ("poll", 30, 29)
    assert "max_user_watches" in status["polled"][large]
    assert small not in status["polled"]


def test_without_any_inotify_instance_every_root_is_polled(ground: Ground) -> None:
    alive, barriers, hints, *modes, status = limited(ground, "max_inotify_instances", 0)
    assert alive  # It needs no thread, and a daemon that polls is not to be restarted for it.
    assert barriers == [False, False]
    assert hints == []
    assert modes == ["poll", "poll"]
    assert isinstance(status, dict)
    assert "max_user_instances" in status["polled"][str(ground.root / "small")]


# --- mounts ----------------------------------------------------------------------------------

MOUNTS = r"""
22 1 0:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:2 / /home rw shared:2 - nfs4 server:/home rw
24 23 0:3 / /home/ann/local rw - btrfs /dev/sdb rw
25 22 0:4 / /home/ann/my\040files rw shared:3 master:4 - fuse.sshfs there: rw
26 22 0:5 / /mnt/disk rw - fuseblk /dev/sdc1 rw
27 22 0:6 / /srv rw - cifs //server/share rw
28 22 0:7 / /srv rw - ext4 /dev/sdd1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/sessions", ""),
        ("/home/ann/.claude", "nfs4"),
        ("/home/ann/local/sessions", ""),
        ("/home/ann/localsessions", "nfs4"),
        ("/home/ann/my files/x", "fuse.sshfs"),
        ("/mnt/disk/x", ""),
        ("/mnt", ""),
        ("/srv/x", ""),
        ("/", "cifs"),
    ],
)
def test_file_systems_changed_from_elsewhere_are_told_by_the_mount_table(
    path: str, kind: str
) -> None:
    assert bool(remote_type(path, MOUNTS)) == bool(kind)
    assert path == "/" or remote_type(path, MOUNTS) == kind
