"""The table of paths that `around` may be asked for, and what must come of each.

`plant(base)` builds the tree; `verdicts(base, resolve)` asks for every path and returns what
went differently from the table. As a program it does the second for a tree that is there, so
that the same table can be checked from inside another mount namespace or a hardened unit:

    python -m tests.path_table BASE
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from indexd.confine import (
    Resolve,
    RootDirectory,
    is_plain_path,
    open_below,
    refusal,
    relative_below,
    resolve,
    resolve_by_openat2,
    resolve_by_walk,
)
from indexd.errors import NotAllowed

INSIDE, OUTSIDE, REFUSE = b"inside", b"outside", b""
NFC, NFD = "caf\u00e9.jsonl", "cafe\u0301.jsonl"
NOT_UTF8 = b"bad\xff\xfe.jsonl"
DEEP = ["d" * 200] * 31


class Case(NamedTuple):
    """One row: its number in the table, the path asked for, the content that may come out."""

    number: int
    ask: Callable[[Path], object]
    expected: bytes


def below(name: str) -> Callable[[Path], object]:
    return lambda base: f"{base}/root/{name}"


def exactly(path: object) -> Callable[[Path], object]:
    return lambda base: path


CASES = [
    Case(1, below("proj/a/s.jsonl"), INSIDE),
    Case(2, lambda base: f"{base}/root", REFUSE),
    Case(3, below(""), REFUSE),
    Case(4, below(".hidden.jsonl"), INSIDE),
    Case(5, below("../outside/x.jsonl"), REFUSE),
    Case(6, below("proj/../proj/a/s.jsonl"), REFUSE),
    Case(7, below("proj/a/../../../outside/x.jsonl"), REFUSE),
    Case(8, below("proj/.."), REFUSE),
    Case(9, below("./proj/a/s.jsonl"), REFUSE),
    Case(10, below("/proj/a/s.jsonl"), REFUSE),
    Case(11, below("proj/a/s.jsonl/"), REFUSE),
    Case(12, lambda base: f"/{base}/root/proj/a/s.jsonl", REFUSE),
    Case(13, lambda base: f"{base}/root-evil/s.jsonl", REFUSE),
    Case(14, exactly("proj/a/s.jsonl"), REFUSE),
    Case(15, exactly(""), REFUSE),
    Case(16, exactly("~/x.jsonl"), REFUSE),
    Case(17, lambda base: f"file://{base}/root/proj/a/s.jsonl", REFUSE),
    Case(18, below("proj/a/s.jsonl\0.txt"), REFUSE),
    Case(19, below("\0/../outside/x.jsonl"), REFUSE),
    Case(20, below("\ud800.jsonl"), REFUSE),
    Case(21, below(os.fsdecode(NOT_UTF8)), INSIDE),
    Case(22, below(NOT_UTF8.decode("latin-1")), REFUSE),
    Case(23, below("new\nline.jsonl"), INSIDE),
    Case(24, below("a ;$(x) b.jsonl"), INSIDE),
    Case(25, below("%2e%2e.jsonl"), INSIDE),
    Case(26, below("%2e%2e/outside/x.jsonl"), REFUSE),
    Case(27, lambda base: f"{base}/root\\proj\\a\\s.jsonl", REFUSE),
    Case(28, below("n" * 255), INSIDE),
    Case(29, below("n" * 256), REFUSE),
    Case(30, below("a/" * 2100 + "s.jsonl"), REFUSE),
    Case(31, below("/".join([*DEEP, "s.jsonl"])), REFUSE),
    Case(32, below("absolute-link.jsonl"), REFUSE),
    Case(33, below("relative-link.jsonl"), REFUSE),
    Case(34, below("linked-outside/x.jsonl"), REFUSE),
    Case(35, below("link-to-inside.jsonl"), REFUSE),
    Case(36, below("linked-inside/s.jsonl"), REFUSE),
    Case(37, below("loop/s.jsonl"), REFUSE),
    Case(38, below("dangling.jsonl"), REFUSE),
    Case(39, lambda base: f"{base}/root/proc-root{base}/root/proj/a/s.jsonl", REFUSE),
    Case(40, below("proc-fd/0"), REFUSE),
    Case(41, lambda base: f"/proc/self/root{base}/root/proj/a/s.jsonl", REFUSE),
    Case(42, exactly("/proc/self/fd/0/s.jsonl"), REFUSE),
    Case(43, exactly("/proc/self/cwd/etc/passwd"), REFUSE),
    Case(44, exactly("/dev/fd/0"), REFUSE),
    Case(45, below("zero-link.jsonl"), REFUSE),
    Case(46, below("hard-link.jsonl"), OUTSIDE),  # a hard link is a file like any other
    Case(47, below("pipe.jsonl"), REFUSE),
    Case(48, below("socket.jsonl"), REFUSE),
    Case(49, below("zero-device.jsonl"), REFUSE),
    Case(50, below("directory.jsonl"), REFUSE),
    Case(51, below("proj/a/s.jsonl/x"), REFUSE),
    Case(52, below("mode-000.jsonl"), REFUSE),
    Case(53, below("other-owner.jsonl"), REFUSE),
    Case(54, below("mounted-tmpfs/s.jsonl"), REFUSE),
    Case(55, below("mounted-directory/x.jsonl"), REFUSE),
    Case(56, below("mounted-file.jsonl"), REFUSE),
    Case(57, below("missing.jsonl"), REFUSE),
    Case(58, below("PROJ/a/s.jsonl"), REFUSE),
    Case(59, below(NFC), REFUSE),
    Case(60, below("sparse.jsonl"), INSIDE),
    Case(61, exactly(5), REFUSE),
    Case(62, lambda base: os.fsencode(f"{base}/root/proj/a/s.jsonl"), REFUSE),
    Case(63, exactly(["/", "etc", "passwd"]), REFUSE),
]


def plant(base: Path) -> None:
    """Build the tree below the empty directory `base`; needs root for 49 and 53."""
    root, outside = base / "root", base / "outside"
    for directory in (root / "proj/a", outside, base / "root-evil"):
        directory.mkdir(parents=True)
    (outside / "x.jsonl").write_bytes(OUTSIDE)
    (base / "root-evil/s.jsonl").write_bytes(OUTSIDE)
    for name in (
        "proj/a/s.jsonl", ".hidden.jsonl", "new\nline.jsonl", "a ;$(x) b.jsonl", "%2e%2e.jsonl",
        "n" * 255, NFD, os.fsdecode(NOT_UTF8), "mode-000.jsonl", "sparse.jsonl",
        "mounted-file.jsonl", "other-owner.jsonl",
    ):  # fmt: skip
        (root / name).write_bytes(INSIDE)
    (root / "mode-000.jsonl").chmod(0)
    os.truncate(root / "sparse.jsonl", 1 << 40)
    _plant_links(root, outside)
    _plant_oddities(root)
    _plant_deep(root)


def _plant_links(root: Path, outside: Path) -> None:
    for name, target in {
        "absolute-link.jsonl": outside / "x.jsonl",
        "relative-link.jsonl": "../outside/x.jsonl",
        "linked-outside": outside,
        "link-to-inside.jsonl": "proj/a/s.jsonl",
        "linked-inside": "proj/a",
        "loop": "loop",
        "dangling.jsonl": "nowhere",
        "proc-root": "/proc/self/root",
        "proc-fd": "/proc/self/fd",
        "zero-link.jsonl": "/dev/zero",
    }.items():
        (root / name).symlink_to(target)
    (root / "hard-link.jsonl").hardlink_to(outside / "x.jsonl")


def _plant_oddities(root: Path) -> None:
    os.mkfifo(root / "pipe.jsonl")
    (root / "directory.jsonl").mkdir()
    (root / "mounted-tmpfs").mkdir()
    (root / "mounted-directory").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        directory = os.open(root, os.O_PATH)
        server.bind(f"/proc/self/fd/{directory}/socket.jsonl")
        os.close(directory)
    if os.geteuid() == 0:
        os.mknod(root / "zero-device.jsonl", 0o20666, os.makedev(1, 5))
        os.chown(root / "other-owner.jsonl", 12345, 12345)


def _plant_deep(root: Path) -> None:
    directory = os.open(root, os.O_PATH)
    for name in DEEP:
        os.mkdir(name, dir_fd=directory)
        child = os.open(name, os.O_PATH, dir_fd=directory)
        os.close(directory)
        directory = child
    fd = os.open("s.jsonl", os.O_CREAT | os.O_WRONLY, dir_fd=directory)
    os.write(fd, OUTSIDE)
    os.close(fd)
    os.close(directory)


def expected(case: Case, base: Path) -> bytes:
    """Return the content the table promises here: root reads and owns what others may not."""
    if case.number == 52 and os.geteuid() == 0:
        return INSIDE
    if case.number == 53 and (base / "root/other-owner.jsonl").stat().st_uid == os.geteuid():
        return INSIDE
    if case.number == 56:  # nothing but its content shows a bind mount of the same file system
        return INSIDE if (base / "root/mounted-file.jsonl").read_bytes() == INSIDE else REFUSE
    return case.expected


def outcome(root: RootDirectory, path: object, resolve: Resolve) -> bytes:
    """Return the first bytes of the file at `path`, or REFUSE when it may not be opened."""
    try:
        if not isinstance(path, str) or not is_plain_path(path):
            raise refusal()
        relative = relative_below(root.path, path)
        if relative is None:
            raise refusal()
        fd = open_below(root.fd, relative, resolve=resolve)
    except NotAllowed as error:
        if error.as_map() != refusal().as_map():
            raise AssertionError(f"{path!r} is refused differently: {error}") from error
        return REFUSE
    try:
        return os.read(fd, 7).rstrip(b"\0")
    finally:
        os.close(fd)


def verdicts(base: Path, resolve: Resolve) -> list[str]:
    """Return one line per case that came out differently from the table."""
    wrong = []
    with RootDirectory(str(base / "root")) as root:
        for case in CASES:
            got, due = outcome(root, case.ask(base), resolve), expected(case, base)
            if got != due:
                wrong.append(f"{case.number} {resolve.__name__}: {got!r} instead of {due!r}")
    return wrong


if __name__ == "__main__":
    wrong = [
        line
        for way in (resolve, resolve_by_openat2, resolve_by_walk)
        for line in verdicts(Path(sys.argv[1]), way)
    ]
    sys.stdout.write("\n".join([*wrong, f"{len(CASES)} cases checked\n"]))
    sys.exit(bool(wrong))
