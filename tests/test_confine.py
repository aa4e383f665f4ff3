from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd.confine import (
    MAX_NAME_BYTES,
    MAX_PATH_BYTES,
    Identity,
    Resolve,
    RootDirectory,
    identity_of,
    is_plain_path,
    open_below,
    refusal,
    relative_below,
    resolve,
    resolve_by_openat2,
    resolve_by_walk,
)
from indexd.errors import NotAllowed
from tests import path_table

REPOSITORY = Path(__file__).parent.parent
WAYS = [resolve, resolve_by_openat2, resolve_by_walk]
RENAME_EXCHANGE = 2
IN_OPEN = 0x20


def openat2_works() -> bool:
    root = os.open("/", os.O_PATH)
    try:
        os.close(resolve_by_openat2(root, b"proc"))
    except OSError as error:
        return error.errno == errno.EXDEV
    finally:
        os.close(root)
    return True


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Resolve:
    if request.param is resolve_by_openat2 and not openat2_works():
        pytest.skip("this kernel or its filter has no openat2")
    chosen: Resolve = request.param
    return chosen


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("paths")
    path_table.plant(base)
    yield base
    # Too deep for the cleaner that comes by later.
    subprocess.run(["rm", "-rf", str(base)], check=True)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[RootDirectory]:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/s.jsonl").write_bytes(b"inside")
    with RootDirectory(str(tmp_path / "root")) as opened:
        yield opened


def content(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def test_every_path_of_the_table_comes_out_as_laid_down(planted: Path, way: Resolve) -> None:
    assert path_table.verdicts(planted, way) == []


def test_no_descriptor_is_left_behind(planted: Path, way: Resolve) -> None:
    before = os.listdir("/proc/self/fd")
    path_table.verdicts(planted, way)
    assert os.listdir("/proc/self/fd") == before


def test_what_is_mounted_below_a_root_is_outside(tmp_path: Path) -> None:
    path_table.plant(tmp_path)
    script = """
        cd "$1/root"
        mount -t tmpfs tmpfs mounted-tmpfs && echo outside > mounted-tmpfs/s.jsonl
        mount --bind ../outside mounted-directory
        mount --bind ../outside/x.jsonl mounted-file.jsonl
        cd "$2" && exec "$3" -m tests.path_table "$1"
    """
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip(f"no mount namespace here: {probe.stderr.decode().strip()}")
    run = subprocess.run(
        ["unshare", "-m", "bash", "-ec", script, "bash", tmp_path, REPOSITORY, sys.executable],
        capture_output=True,
        text=True,
    )
    subprocess.run(["rm", "-rf", tmp_path / "root"], check=True)
    assert (run.stdout, run.returncode) == ("63 cases checked\n", 0), run.stderr


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("error", ["ENOSYS", "EPERM", "EINVAL", "E2BIG", "EAGAIN"])
def test_without_openat2_the_walk_takes_over(tmp_path: Path, error: str) -> None:
    (tmp_path / "s.jsonl").write_bytes(b"inside")
    script = (
        "import os, sys; from indexd.confine import open_below;"
        "root = os.open(sys.argv[1], os.O_PATH);"
        "sys.stdout.buffer.write(os.read(open_below(root, 's.jsonl'), 99))"
    )
    run = subprocess.run(
        ["strace", "-f", "-o", tmp_path / "trace", "-e", "trace=openat2",
         "-e", f"inject=openat2:error={error}", sys.executable, "-c", script, tmp_path],
        capture_output=True, cwd=REPOSITORY,
    )  # fmt: skip
    if b"PTRACE" in run.stderr:
        pytest.skip("tracing is not permitted here")
    assert run.stdout == b"inside", run.stderr
    assert f"= -1 {error}" in (tmp_path / "trace").read_text()


def test_a_hard_link_is_a_file_like_any_other(root: RootDirectory, way: Resolve) -> None:
    os.link(f"{root.path}/s.jsonl", f"{root.path}/t.jsonl")
    assert content(open_below(root.fd, "t.jsonl", resolve=way)) == b"inside"


def test_only_the_expected_file_is_opened(root: RootDirectory) -> None:
    path = f"{root.path}/s.jsonl"
    seen = identity_of(os.stat(path))
    assert content(root.open(path, seen)) == b"inside"
    with pytest.raises(NotAllowed):
        root.open(path, Identity(seen.device, seen.inode + 1))
    with pytest.raises(NotAllowed):
        root.open(path, Identity(seen.device + 1, seen.inode))


def test_a_root_replaced_by_a_link_stays_the_directory_it_was(root: RootDirectory) -> None:
    kept = Path(root.path).with_name("kept")
    other = Path(root.path).with_name("other")
    other.mkdir()
    (other / "s.jsonl").write_bytes(b"outside")
    assert root.is_current()
    os.rename(root.path, kept)
    os.symlink(other, root.path)
    assert not root.is_current()
    assert content(root.open(f"{root.path}/s.jsonl")) == b"inside"


def test_a_deleted_root_refuses_like_anything_else(root: RootDirectory) -> None:
    shutil.rmtree(root.path)
    assert not root.is_current()
    with pytest.raises(NotAllowed) as refused:
        root.open(f"{root.path}/s.jsonl")
    assert refused.value.as_map() == refusal().as_map()


def test_a_root_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/s.jsonl").write_bytes(b"inside")
    (tmp_path / "link").symlink_to("real")
    with RootDirectory(str(tmp_path / "link")) as root:
        assert root.path == str(tmp_path / "real")
        assert content(root.open(f"{tmp_path}/real/s.jsonl")) == b"inside"


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_root_that_is_no_directory_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=name):
        RootDirectory(str(tmp_path / name))


def test_a_pipe_is_refused_without_being_opened(root: RootDirectory, way: Resolve) -> None:
    pipe = f"{root.path}/pipe.jsonl"
    os.mkfifo(pipe)
    with opens_of(pipe) as opens:
        with pytest.raises(NotAllowed):
            open_below(root.fd, "pipe.jsonl", resolve=way)
        assert opens() == 0
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        assert opens() == 1


class opens_of:
    """Counts how often a path was opened for real, as the kernel tells through inotify."""

    def __init__(self, path: str) -> None:
        libc = ctypes.CDLL(None)
        self.fd = libc.inotify_init1(os.O_NONBLOCK)
        assert libc.inotify_add_watch(self.fd, path.encode(), IN_OPEN) >= 0

    def __enter__(self) -> Callable[[], int]:
        return self.count

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def count(self) -> int:
        try:
            return len(os.read(self.fd, 4096)) // struct.calcsize("iIII")
        except BlockingIOError:
            return 0


def test_reading_leaves_no_trace_on_the_session(root: RootDirectory) -> None:
    path = f"{root.path}/s.jsonl"
    os.utime(path, (1_000_000, 2_000_000))
    content(root.open(path))
    assert os.stat(path).st_atime == 1_000_000


def test_the_descriptor_cannot_write(root: RootDirectory) -> None:
    fd = root.open(f"{root.path}/s.jsonl")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(fd, b"x")
    assert not os.get_inheritable(fd)
    os.close(fd)


@given(st.text("/.ab\0é\ud800"))
def test_plain_paths_are_absolute_and_spelt_in_one_way(text: str) -> None:
    if is_plain_path(text):
        assert text.startswith("/")
        assert os.path.normpath(text) == text
        assert "\0" not in text


@given(st.lists(st.sampled_from(["a", "b.jsonl", "..a", "...", " ", "é"]), min_size=1, max_size=9))
def test_a_path_of_plain_names_is_plain(names: list[str]) -> None:
    assert is_plain_path("/" + "/".join(names))
    assert relative_below("/r", "/r/" + "/".join(names)) == "/".join(names)
    assert relative_below("/r", "/r-evil/" + "/".join(names)) is None


def test_the_longest_names_and_paths_are_plain() -> None:
    assert is_plain_path("/" + "n" * MAX_NAME_BYTES)
    assert not is_plain_path("/" + "n" * (MAX_NAME_BYTES + 1))
    assert not is_plain_path("/" + "é" * 128)
    assert is_plain_path("/a" * (MAX_PATH_BYTES // 2) + "a")
    assert not is_plain_path("/a" * (MAX_PATH_BYTES // 2) + "aa")


@pytest.mark.parametrize("seconds", [0.5, pytest.param(10.0, marks=pytest.mark.slow)])
def test_a_directory_swapped_for_a_link_never_leaks(
    tmp_path: Path, way: Resolve, seconds: float
) -> None:
    for name in ("root/moving", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root/moving/s.jsonl").write_bytes(b"inside")
    (tmp_path / "outside/s.jsonl").write_bytes(b"outside")
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    attacker = subprocess.Popen(
        [sys.executable, "-c", ATTACK, tmp_path / "root/moving", tmp_path / "root/link"],
        stdout=subprocess.PIPE,
    )
    assert attacker.stdout is not None
    attacker.stdout.read(1)
    try:
        opened, refused = race(tmp_path / "root", way, seconds)
    finally:
        attacker.kill()
        attacker.communicate()
    assert opened > 100
    assert refused > 100


ATTACK = f"""
import ctypes, os, sys
swap = ctypes.CDLL(None).renameat2
here, there = map(os.fsencode, sys.argv[1:])
os.write(1, b"!")
while swap(-100, here, -100, there, {RENAME_EXCHANGE}) == 0:
    pass
"""


def race(path: Path, way: Resolve, seconds: float) -> tuple[int, int]:
    """Return how many opens succeeded and failed; each success must have stayed inside."""
    counts = [0, 0]
    end = os.times().elapsed + seconds
    with RootDirectory(str(path)) as root:
        while os.times().elapsed < end:
            try:
                assert content(open_below(root.fd, "moving/s.jsonl", resolve=way)) == b"inside"
                counts[0] += 1
            except NotAllowed:
                counts[1] += 1
    return counts[0], counts[1]
