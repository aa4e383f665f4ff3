"""What a user sees of the units under a real manager; prints it as one JSON map.

Run beside the manager by user_manager.sh.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from indexd.client import Client
from indexd.errors import IndexdError

SOCKET = f"{os.environ['XDG_RUNTIME_DIR']}/indexd/indexd.sock"


def systemctl(*words: str) -> str:
    """Run systemctl for the user and return what it says."""
    run = subprocess.run(
        ["systemctl", "--user", *words], check=True, capture_output=True, text=True
    )
    return run.stdout.strip()


def property_of(unit: str, name: str) -> str:
    """Return one property of a unit."""
    return systemctl("show", unit, "--property", name, "--value")


def ask(method: str, **params: Any) -> Any:
    """Return the answer of the daemon, which starts for it if need be."""
    with Client(SOCKET) as client:
        return client.call(method, params)


def seconds_until(condition: Callable[[], bool]) -> float:
    """Return how long it took until `condition` held; 20 s at most."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > 20:
            raise SystemExit("waited for 20 s in vain")
        time.sleep(0.02)
    return time.monotonic() - begin


def restarted(pid: int) -> bool:
    """Say whether another process answers than `pid`."""
    try:
        return bool(ask("status")["pid"] != pid)
    except IndexdError:
        return False


def main() -> None:
    """Go through the life of the units."""
    seen: dict[str, Any] = {}
    systemctl("start", "indexd.socket")
    seen["before"] = property_of("indexd.service", "ActiveState")
    seen["modes"] = [
        stat.S_IMODE(os.stat(path).st_mode) for path in (SOCKET, os.path.dirname(SOCKET))
    ]
    first = ask("status")
    seen["sandbox"], seen["socket"] = first["sandbox"], first["socket"]
    seen["attempts"] = ask("attempts")
    seen["wrong_paths"] = ask("paths", path=sys.argv[1])["wrong"]
    seconds_until(lambda: property_of("indexd.service", "ActiveState") == "active")
    seen["status_text"] = property_of("indexd.service", "StatusText")
    systemctl("reload", "indexd.service")
    seconds_until(lambda: ask("status")["reloads"] == 1)
    os.kill(first["pid"], signal.SIGKILL)
    seen["restart_seconds"] = seconds_until(lambda: restarted(first["pid"]))
    frozen = ask("status")["pid"]
    os.kill(frozen, signal.SIGSTOP)
    seen["thaw_seconds"] = seconds_until(lambda: property_of("indexd.service", "NRestarts") == "2")
    seconds_until(lambda: restarted(frozen))
    systemctl("stop", "indexd.service")
    seen["stopped"] = property_of("indexd.service", "Result")
    seen["woken_pid"] = ask("status")["pid"]
    seen["frozen_pid"] = frozen
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
