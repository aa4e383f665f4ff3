"""Kill the daemon at random moments while it indexes, and compare what it answers after.

    python tests/bench/kill.py --home DIR [--rounds 100]

DIR is copied; each round starts with a cache cut off at a random moment of indexing.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indexd.client import Client
from indexd.errors import IndexdError

QUERIES = ("permission denied", "error", "test failed", "git commit", "readFile", "why", "数据")


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return kept | {"HOME": str(home)}


@contextmanager
def daemon(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "indexd", "--log-level", "error"],
        env=environment(home) | {"INDEXD_READY_FD": str(write)},
        pass_fds=(write,),
    )
    os.close(write)
    try:
        if os.read(read, 1):
            yield process
        else:
            raise SystemExit("the daemon did not start")
    finally:
        os.close(read)
        if process.poll() is None:
            process.terminate()
        process.wait()


def client(home: Path) -> Client:
    return Client(str(home / ".cache/indexd/run/indexd.sock"))


def wait_until_indexed(home: Path) -> None:
    with client(home) as asked:
        while asked.status()["files_pending"]:
            time.sleep(0.05)


def answers(home: Path) -> list[Any]:
    with client(home) as asked:
        return [
            (
                query,
                kinds,
                {
                    k: v
                    for k, v in asked.search(query, kinds=kinds, limit=200).items()
                    if k in ("hits", "total")
                },
            )
            for query in QUERIES
            for kinds in (None, ["all"])
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="kill") as directory:
        home = Path(directory) / "h"
        shutil.copytree(asked.home, home, symlinks=True)
        began = time.monotonic()
        with daemon(home):
            wait_until_indexed(home)
            full = time.monotonic() - began
            expected = answers(home)
        wrong = 0
        for number in range(asked.rounds):
            shutil.rmtree(home / ".cache")
            for _ in range(draw.randint(1, 3)):
                with daemon(home) as process:
                    time.sleep(draw.random() * full / 2)
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
            with daemon(home):
                wait_until_indexed(home)
                try:
                    same = answers(home) == expected
                except IndexdError as error:
                    print(f"round {number}: {error}")
                    same = False
            wrong += not same
            if not same:
                print(f"round {number}: answers differ")
        print(f"{asked.rounds} rounds, full indexing {full:.1f} s, {wrong} with other answers")
        raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
