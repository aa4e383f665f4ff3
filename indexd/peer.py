"""Who is at the other end of a Unix socket, for both sides of it."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("3i")


def credentials(connection: socket.socket) -> tuple[int, int]:
    """Return process and user at the other end of a Unix socket, as the kernel knows them."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
