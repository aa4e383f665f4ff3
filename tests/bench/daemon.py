"""A real daemon to measure: a process of its own, over a corpus, with a cache of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import measure

from indexd.client import Client

READY_VARIABLE = "INDEXD_READY_FD"


class Daemon:
    """A running daemon."""

    def __init__(self, process: subprocess.Popen[bytes], socket: str, cache: str) -> None:
        self.process, self.socket, self.cache = process, socket, cache
        self.pid = process.pid

    def client(self) -> Client:
        """Return a new connection."""
        return Client(self.socket, timeout=600)

    def wait_indexed(self, client: Client, pause: float = 0.1) -> dict[str, Any]:
        """Return the status once nothing is left to read."""
        client.status()  # which waits until it is known what there is to read
        while client.search("x", limit=1, sync=False)["index"]["files_pending"]:
            time.sleep(pause)
        return client.status()  # type: ignore[no-any-return]

    def cpu_seconds(self) -> float:
        """Return the user and system time of the daemon and its workers."""
        return measure.tree_cpu_seconds(self.pid)


@contextmanager
def running(home: str, work: str, profile: str = "seed") -> Iterator[Daemon]:
    """Run a daemon over the sessions below `home`, with its cache in `work`, until the end."""
    environment = prepared(home, work, profile)
    began, daemons = os.pipe()
    with open(os.path.join(work, "indexd.log"), "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "indexd"],
            cwd=measure.CHECKOUT,
            env={**environment, READY_VARIABLE: str(daemons)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(daemons,),
        )
    os.close(daemons)
    try:
        with open(began, "rb") as ready:
            if not ready.read(1):
                raise SystemExit(f"the daemon did not start, see {work}/indexd.log")
        yield Daemon(process, environment["INDEXD_SOCKET"], environment["INDEXD_CACHE_DIR"])
    finally:
        process.terminate()
        process.wait()


def prepared(home: str, work: str, profile: str) -> dict[str, str]:
    """Return the environment of a daemon over `home`, after writing its configuration."""
    configuration = os.path.join(work, "config.toml")
    with open(configuration, "w", encoding="utf-8") as file:
        file.write(f'[[root]]\npath = "{os.path.abspath(home)}"\n\n')
        file.write(f'[analysis]\nprofile = "{profile}"\n')
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("INDEXD_")},
        "HOME": work,
        "XDG_RUNTIME_DIR": work,
        "PYTHONPATH": measure.CHECKOUT,
        "INDEXD_CONFIG": configuration,
        "INDEXD_SOCKET": os.path.join(work, "s"),
        "INDEXD_CACHE_DIR": os.path.join(work, "cache"),
        "INDEXD_STATE_DIR": os.path.join(work, "state"),
    }
