"""Run in a mount namespace of its own: a store on a small disk that fills up and is freed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from indexd.store import Store, set_aside

KIB = 1024


def fill(ballast: str) -> None:
    """Take all the space there is."""
    with open(ballast, "wb", buffering=0) as file:
        for size in (64 * KIB, 4 * KIB, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


def wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.01)


def fills_up_while_it_is_used(directory: str, ballast: str) -> None:
    """Write, fill, write, read, free, and find everything."""
    store = Store(directory)
    store.start()
    rows = {b"before%d" % n: os.urandom(3000) for n in range(30)}
    store.put(rows)
    assert store.flush()
    fill(ballast)
    for n in range(2000):
        added = {b"during%d" % n: os.urandom(5000), b"before%d" % (n % 30): b"%d" % n}
        rows |= added
        store.put(added)
    store.put({b"before7": None})
    del rows[b"before7"]
    assert not store.flush()
    assert "full" in (store.degraded or ""), store.degraded
    assert store.notice is None
    assert {key: store.get(key) for key in rows} == rows
    assert store.get(b"before7") is None
    assert store.scan(b"") == rows
    os.unlink(ballast)
    # It heals of itself, also while it is asked all the time.
    wait_for(lambda: (store.get(b"during1"), store.degraded)[1] is None)
    assert store.scan(b"") == rows
    store.close()
    again = Store(directory)
    again.start()
    assert again.scan(b"") == rows
    assert again.notice is None
    again.close()


def starts_on_a_full_disk(directory: str, ballast: str) -> None:
    """Everything works from memory, and is on disk once there is room."""
    fill(ballast)
    store = Store(directory)
    store.start()
    assert store.degraded is not None
    store.put({b"key": b"value"})
    assert not store.flush()
    assert store.get(b"key") == b"value"
    os.unlink(ballast)
    wait_for(lambda: store.degraded is None)
    store.close()
    again = Store(directory)
    again.start()
    assert again.scan(b"") == {b"key": b"value"}
    again.close()


def starts_on_a_full_disk_with_rows(directory: str, ballast: str) -> None:
    """What is there is found and kept, and what is added is on disk once there is room."""
    rows = {b"row%d" % n: os.urandom(3000) for n in range(100)}
    store = Store(directory)
    store.start()
    store.put(rows)
    store.close()
    fill(ballast)
    again = Store(directory)
    again.start()
    assert (again.notice, again.scan(b"")) == (None, rows)
    rows |= {b"added": os.urandom(100_000)}
    again.put({b"added": rows[b"added"]})
    assert not again.flush()
    assert "full" in (again.degraded or ""), again.degraded
    assert again.scan(b"") == rows
    os.unlink(ballast)
    wait_for(lambda: again.degraded is None)
    again.close()
    assert not os.path.exists(set_aside(directory))
    last = Store(directory)
    last.start()
    assert (last.notice, last.scan(b"")) == (None, rows)
    last.close()


def main(mountpoint: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", mountpoint], check=True)
    scenarios = (
        fills_up_while_it_is_used, starts_on_a_full_disk, starts_on_a_full_disk_with_rows
    )  # fmt: skip
    for number, scenario in enumerate(scenarios):
        directory = os.path.join(mountpoint, f"rows{number}")
        scenario(directory, os.path.join(mountpoint, "ballast"))
        subprocess.run(["rm", "-r", directory], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
