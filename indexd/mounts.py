"""Which file systems change without this kernel knowing, so that only polling sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Network and cluster file systems, shared folders of virtual machines, and FUSE but for fuseblk
# (a local disk).
REMOTE_TYPES = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs2", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf",
        "virtiofs",
    }
)  # fmt: skip


def remote_type(path: str, mountinfo: str) -> str:
    """Return the type of a file system at or below `path` that hides changes; "" if none does.

    `mountinfo` is the text of /proc/self/mountinfo.
    """
    holder, holder_length, below = "", 0, ""
    for mount_point, kind in _mounts(mountinfo):
        if within(path, mount_point) and len(mount_point) >= holder_length:
            holder, holder_length = kind, len(mount_point)
        elif within(mount_point, path) and _is_remote(kind):
            below = kind
    return holder if _is_remote(holder) else below


def _is_remote(kind: str) -> bool:
    return kind in REMOTE_TYPES or kind.startswith("fuse.")


def _mounts(mountinfo: str) -> Iterator[tuple[str, str]]:
    """Yield (mount point, type) of each line; the kernel writes blanks in octal."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
            yield point, after.split()[0]


def mountinfo() -> str:
    """Return the text of /proc/self/mountinfo; empty if it cannot be read."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def within(path: str, directory: str) -> bool:
    """Say whether `path` is `directory` or lies below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
