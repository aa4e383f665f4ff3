"""Opening a file below a root, and nothing else.

Names come from the wire and from directories that others may be rearranging at this moment, so
a name is never resolved twice: the kernel resolves it once, below a directory held open, with
symbolic links, magic links and mount points refused on the way, and every check is made on the
descriptor that came out. Devices and pipes are found out before they are opened for real.
Whatever the reason, a refusal looks the same, so that nobody can learn what lies outside.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from indexd.errors import NotAllowed

MAX_PATH_BYTES = 4095
MAX_NAME_BYTES = 255

# Asks for a handle without opening: no device is touched, no pipe waited for.
HANDLE_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NOATIME: reading a session leaves no trace on it; allowed since the file is ours.
READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOATIME

SYS_OPENAT2 = 437  # the same number on every architecture Python runs on, alpha apart
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
# Answers that say "not here" rather than "not this file": an old kernel, a system call filter,
# an unknown flag, or a tree moving too fast. The walk gives the same answer without openat2.
OPENAT2_UNUSABLE = frozenset(
    {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EAGAIN}
)  # fmt: skip


# No room for another descriptor says nothing about the file, nor does a lack of memory.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class Identity(NamedTuple):
    """What makes a file the same file, whatever its name."""

    device: int
    inode: int


Resolve = Callable[[int, bytes], int]


def refusal() -> NotAllowed:
    """Return the one error for every path that may not be opened, whatever the reason."""
    return NotAllowed(
        "session_path is not a session that may be read",
        "use a session_path as a hit of `search` gives it, or a session's id, of which its first"
        " 8 characters do; `indexctl sessions` lists them",
    )


# A name that is empty, or leads to where it stands or above, or is too long; or no name at all.
_ODD = re.compile(rb"(?:^|/)(?:\.?\.?(?:/|\Z)|[^/]{%d})|\0" % (MAX_NAME_BYTES + 1))


def is_plain_path(path: object) -> bool:
    """Say whether `path` is an absolute path in its only spelling, without asking the system.

    Nothing is normalised: dropping `..` on paper is wrong where links are about.
    """
    if not isinstance(path, str) or not path.startswith("/"):
        return False
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return len(name) <= MAX_PATH_BYTES and _is_plain_relative(name[1:])


def relative_below(root: str, path: str) -> str | None:
    """Return what follows `root` in `path`, or None when `path` is not below it.

    Both are plain paths; names are compared whole, so that `/root-evil` is not below `/root`.
    """
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) and path != prefix else None


class RootDirectory:
    """A root held open: the directory its path led to when opened, wherever it leads by now.

    The descriptor is closed with the last reference: a thread that still reads through a root
    which was let go must not find another directory under the same number.
    """

    def __init__(self, path: str) -> None:
        """Open the directory at `path`, through symbolic links if need be.

        Raises OSError when it is not a directory that can be reached.
        """
        self.path = os.path.realpath(path, strict=True)
        self.fd = os.open(self.path, os.O_DIRECTORY | HANDLE_FLAGS)
        # Threads may be about to open something below: it closes when the last lets go of it.
        self._close = weakref.finalize(self, os.close, self.fd)
        self.identity = identity_of(os.fstat(self.fd))

    def open(self, path: object, identity: Identity | None = None) -> int:
        """Return a read-only descriptor of the file at the absolute `path`.

        Raises NotAllowed as `open_below` does, and for a path that is not below this root.
        """
        if not isinstance(path, str) or not is_plain_path(path):
            raise refusal()
        relative = relative_below(self.path, path)
        if relative is None:
            raise refusal()
        return open_below(self.fd, relative, identity)

    def is_current(self) -> bool:
        """Say whether the path that was resolved still leads to the directory held open."""
        try:
            return identity_of(os.stat(self.path, follow_symlinks=False)) == self.identity
        except OSError:
            return False

    def close(self) -> None:
        """Close the directory now, when nobody else can hold it."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity that a stat result shows."""
    return Identity(status.st_dev, status.st_ino)


def resolve(root_fd: int, name: bytes) -> int:
    """Return an O_PATH descriptor of `name` below the directory `root_fd`.

    By openat2 where the kernel lets us, else by walking. Raises OSError.
    """
    try:
        return resolve_by_openat2(root_fd, name)
    except OSError as error:
        if error.errno not in OPENAT2_UNUSABLE:
            raise
    return resolve_by_walk(root_fd, name)


def open_below(
    root_fd: int,
    relative: str | bytes,
    identity: Identity | None = None,
    *,
    resolve: Resolve = resolve,
) -> int:
    """Return a read-only, non-blocking descriptor of the regular file `relative`.

    The name is resolved below the directory `root_fd`. The file must be ours and, when
    `identity` is given, that very file. Raises NotAllowed, always the same, for everything else,
    but OSError when there is no room for another descriptor.
    """
    try:
        name = os.fsencode(relative)
        if not _is_plain_relative(name):
            raise refusal()
        handle = resolve(root_fd, name)
        try:
            _check(os.fstat(handle), identity)
            return os.open(f"/proc/self/fd/{handle}", READ_FLAGS)
        finally:
            os.close(handle)
    except (OSError, TypeError, UnicodeEncodeError) as error:
        if isinstance(error, OSError):
            pass_exhaustion(error)
        raise refusal() from error


def exhausted(error: object) -> bool:
    """Say whether an error tells of a lack of descriptors or memory, not of what was looked at."""
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno in EXHAUSTED
    )


def pass_exhaustion(error: OSError) -> None:
    """Raise the error again if it tells of a lack of descriptors, not of what was looked at."""
    if exhausted(error):
        raise error


def resolve_by_openat2(root_fd: int, name: bytes) -> int:
    """Return an O_PATH descriptor of `name`, resolved by the kernel in one step.

    Raises OSError: ELOOP at a link, EXDEV at a mount point, one of OPENAT2_UNUSABLE where the
    call cannot be used.
    """
    fd: int = _libc.syscall(
        ctypes.c_long(SYS_OPENAT2),
        ctypes.c_int(root_fd),
        ctypes.c_char_p(name),
        ctypes.byref(_HOW),
        ctypes.c_size_t(ctypes.sizeof(_HOW)),
    )
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def resolve_by_walk(root_fd: int, name: bytes) -> int:
    """Return an O_PATH descriptor of `name`, resolved one component at a time.

    Raises OSError: ENOTDIR at a linked directory, EXDEV when a mount point was crossed. A walk
    that only goes down cannot come back to the mount it left, so the end tells.
    """
    *parents, last = name.split(b"/")
    fd = os.dup(root_fd)
    try:
        for parent in parents:
            fd = _step(fd, parent, os.O_DIRECTORY)
        fd = _step(fd, last, 0)
        # The device number would not do: a bind mount of the same file system shares it.
        if _mount_id(fd) != _mount_id(root_fd):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    except OSError:
        os.close(fd)
        raise
    return fd


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_HOW = _OpenHow(
    flags=HANDLE_FLAGS,
    resolve=RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
)


def _is_plain_relative(name: bytes) -> bool:
    return not _ODD.search(name)


def _check(status: os.stat_result, identity: Identity | None) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise refusal()
    if identity is not None and identity_of(status) != identity:
        raise refusal()


def _step(fd: int, part: bytes, flags: int) -> int:
    below = os.open(part, HANDLE_FLAGS | flags, dir_fd=fd)
    os.close(fd)
    return below


def _mount_id(fd: int) -> bytes:
    with open(f"/proc/self/fdinfo/{fd}", "rb") as lines:
        return next(line for line in lines if line.startswith(b"mnt_id:"))
