"""What the process may do here, seen from inside.

A hardened unit is only text: on systems without user namespaces some of its directives do
nothing and say nothing. `status` shows what really holds.
"""

from __future__ import annotations

import os
import socket

from indexd.confine import OPENAT2_UNUSABLE, resolve_by_openat2


def probe(home: str) -> dict[str, bool]:
    """Return which protections hold; nothing is written to find out.

    `home_read_only`, `network_blocked`, `no_new_privileges`, `system_calls_filtered`, and
    `openat2`: whether paths are resolved by the kernel in one step rather than by our walk.
    """
    with open("/proc/self/status") as lines:
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {
        "home_read_only": bool(os.statvfs(home).f_flag & os.ST_RDONLY),
        "network_blocked": _network_blocked(),
        "no_new_privileges": facts.get("NoNewPrivs", "0").strip() == "1",
        "system_calls_filtered": facts.get("Seccomp", "0").strip() == "2",
        "openat2": _openat2(),
    }


def _network_blocked() -> bool:
    try:
        socket.socket(socket.AF_INET).close()
    except OSError:
        return True
    return False


def _openat2() -> bool:
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(resolve_by_openat2(root, b"etc"))
    except OSError as error:
        return error.errno not in OPENAT2_UNUSABLE
    finally:
        os.close(root)
    return True
