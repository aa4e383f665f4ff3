"""A daemon's day: restarts, appends, queries meanwhile, and doing nothing.

Works on a copy of the corpus, since it appends to its files.

    python tests/bench/live.py --corpus DIR [--idle 300] [--only restart appends cost busy idle]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
from daemon import Daemon, running

from indexd.client import Client

Row = tuple[str, str]
COMMON = "the file error"
SMALL, LARGE = 200_000, 200_000_000


def line(text: str, number: int = 0) -> bytes:
    """Return a line as Claude Code writes it, saying `text`."""
    record = {
        "parentUuid": None, "cwd": "/home/ana/src/live", "sessionId": "live", "type": "user",
        "message": {"role": "user", "content": text}, "uuid": f"u-{number}",
        "timestamp": "2026-11-30T10:00:00.000Z",
    }  # fmt: skip
    return json.dumps(record).encode() + b"\n"


def write(path: str, size: int) -> None:
    """Write a session of about `size` bytes; its lines are 2 KB long."""
    with open(path, "wb") as file:
        number = written = 0
        while written < size:
            text = " ".join(f"w{(number * 31 + at * 7) % 5000}" for at in range(350))
            written += file.write(line(text, number))
            number += 1


def append(path: str, text: str) -> None:
    """Add one line to a session, as an agent does."""
    with open(path, "ab") as file:
        file.write(line(text))


def found(client: Client, text: str, *, sync: bool) -> bool:
    """Say whether a search finds anything."""
    return bool(client.search(text, limit=1, sync=sync)["total"])


def until_found(client: Client, text: str, *, sync: bool) -> float:
    """Return the seconds until a search finds something."""
    began = time.perf_counter()
    while not found(client, text, sync=sync):
        time.sleep(0.002)
    return time.perf_counter() - began


def restart(home: str, work: str, cold: float) -> list[Row]:
    """Stop the daemon orderly, start it again and ask at once."""
    with running(home, work) as daemon, daemon.client() as client:
        right = client.search(COMMON, limit=10)
    took, reads = [], 0
    for _ in range(3):
        began = time.perf_counter()
        with running(home, work) as daemon, daemon.client() as client:
            while client.search(COMMON, limit=10)["total"] != right["total"]:
                time.sleep(0.002)
            took.append(time.perf_counter() - began)
            reads = read_bytes(daemon.pid)
            resident = measure.rss_mb(daemon.pid)
    return [
        ("start to first correct answer", f"{measure.median(took):.2f} s"),
        ("the same / cold indexing", f"1/{cold / measure.median(took):.0f}" if cold else "-"),
        ("read by the process until then", f"{reads / 1e6:.0f} MB"),
        ("resident after a restart", f"{resident:.0f} MB"),
    ]


def read_bytes(pid: int) -> int:
    """Return how many bytes a process has read, from the page cache too."""
    fields = Path(f"/proc/{pid}/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])


def appends(home: str, daemon: Daemon, count: int) -> list[Row]:
    """Append a line and ask without `sync` until it is found; then with it, once."""
    path = os.path.join(home, "appends.jsonl")
    write(path, SMALL)
    with daemon.client() as client:
        client.sync()
        plain, synced = [], []
        for number in range(count):
            append(path, f"plainword{number}x")
            plain.append(1000 * until_found(client, f"plainword{number}x", sync=False))
        for number in range(count):
            append(path, f"syncword{number}x")
            began = time.perf_counter()
            if not found(client, f"syncword{number}x", sync=True):
                raise SystemExit("an append that was complete before the request is not found")
            synced.append(1000 * (time.perf_counter() - began))
    os.unlink(path)
    return [
        ("append to searchable, without sync", _spread(plain)),
        ("append, then a query with sync", _spread(synced)),
    ]


def cost(home: str, daemon: Daemon, count: int) -> list[Row]:
    """Compare the processor time of one-line appends to a large and to a small session."""
    took = {}
    with daemon.client() as client:
        for size in (SMALL, LARGE):
            path = os.path.join(home, f"cost-{size}.jsonl")
            write(path, size)
            client.sync()
            daemon.wait_indexed(client)
            append(path, "first")
            client.sync()
            rested(daemon)
            before = daemon.cpu_seconds()
            for number in range(count):
                append(path, f"costword{size}x{number}")
                client.sync()
            took[size] = 1000 * (daemon.cpu_seconds() - before) / count
            os.unlink(path)
            client.sync()
    return [
        ("one-line append, session of 200 KB", f"{took[SMALL]:.2f} ms of processor time"),
        ("one-line append, session of 200 MB", f"{took[LARGE]:.2f} ms of processor time"),
        ("ratio", f"{took[LARGE] / took[SMALL]:.2f}"),
    ]


def rested(daemon: Daemon) -> None:
    """Return once the daemon has nothing left to merge."""
    before = -1.0
    while (now := daemon.cpu_seconds()) - before > 0.02:
        before = now
        time.sleep(1)


def busy(home: str, daemon: Daemon, more: str) -> list[Row]:
    """Ask while a second corpus is read, and while the base is written afterwards."""
    with daemon.client() as client:
        client.search(COMMON)
        quiet = ask_until(client, lambda: len(times) >= 200, times := [])
        target = os.path.join(home, "more")
        before = daemon.cpu_seconds()
        copier = threading.Thread(target=shutil.copytree, args=(more, target))
        copier.start()
        began = time.perf_counter()
        state: dict[str, Any] = {"pending": True}
        watcher = threading.Thread(target=_watch, args=(daemon, copier, state))
        watcher.start()
        during = ask_until(client, lambda: not state["pending"], [])
        seconds = time.perf_counter() - began
        watcher.join()
        base = _base_of(daemon)
        stamp = os.stat(base).st_mtime_ns if base else 0
        began = time.perf_counter()
        written = lambda: _rewritten(daemon, stamp) or time.perf_counter() - began > 90  # noqa: E731
        merging = ask_until(client, written, [])
        waited = time.perf_counter() - began
    return [
        ("query, nothing else going on", _spread(quiet)),
        ("query, while more is indexed", _spread(during)),
        ("p99 / p99", f"{measure.quantile(during, 0.99) / measure.quantile(quiet, 0.99):.1f}"),
        ("indexing meanwhile", f"{seconds:.1f} s, {daemon.cpu_seconds() - before:.1f} s of CPU"),
        ("query, until the base is written anew", _spread(merging)),
        ("which was after", f"{waited:.0f} s"),
    ]


def ask_until(client: Client, done: Callable[[], bool], times: list[float]) -> list[float]:
    """Ask again and again until `done`; return the milliseconds of each query."""
    while True:
        began = time.perf_counter()
        client.search(COMMON, limit=10, sync=False)
        times.append(1000 * (time.perf_counter() - began))
        if done():
            return times
        time.sleep(0.005)


def _watch(daemon: Daemon, copier: threading.Thread, state: dict[str, Any]) -> None:
    copier.join()
    with daemon.client() as client:
        client.sync()
        daemon.wait_indexed(client, 0.2)
    state["pending"] = False


def _base_of(daemon: Daemon) -> str | None:
    names = [name for name in os.listdir(daemon.cache) if name.startswith("base-")]
    return os.path.join(daemon.cache, names[0]) if names else None


def _rewritten(daemon: Daemon, stamp: int) -> bool:
    base = _base_of(daemon)
    return base is not None and os.stat(base).st_mtime_ns != stamp


def idle(daemon: Daemon, seconds: float) -> list[Row]:
    """Do nothing and see what the daemon does."""
    with daemon.client() as client:
        client.sync()
        files = client.status()["files"]
    time.sleep(2)
    before = _counters(daemon.pid)
    time.sleep(seconds)
    cpu, switches, reads = (b - a for a, b in zip(before, _counters(daemon.pid), strict=True))
    return [
        ("idle for", f"{seconds:.0f} s with {files:,} files"),
        ("processor time", f"{cpu:.2f} s, {100 * cpu / seconds:.3f} % of a core"),
        ("wake-ups", f"{switches / seconds:.2f} a second"),
        ("read", f"{reads / 1000:.0f} KB"),
        ("resident", f"{measure.rss_mb(daemon.pid):.0f} MB"),
    ]


def _counters(pid: int) -> tuple[float, float, float]:
    switches = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        for each in Path(f"/proc/{pid}/task/{task}/status").read_text().splitlines():
            if each.startswith("voluntary_ctxt_switches"):
                switches += int(each.split()[1])
    return measure.tree_cpu_seconds(pid), switches, read_bytes(pid)


def _spread(times: list[float]) -> str:
    p50, p95, p99 = (measure.quantile(times, share) for share in (0.5, 0.95, 0.99))
    return f"p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms of {len(times)}"


def main() -> None:
    """Measure what was asked for, in order, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--corpus", required=True, help="a directory of session files")
    parser.add_argument("--more", help="a second, smaller one to index while queries are asked")
    parser.add_argument("--work", help="keep the copy and the cache here")
    parser.add_argument("--idle", type=float, default=300.0, help="seconds to do nothing (300)")
    parser.add_argument("--count", type=int, default=100, help="appends of each sort (100)")
    parser.add_argument("--rest", type=float, default=45.0, help="seconds until the base is there")
    parser.add_argument("--only", nargs="*", help="restart, appends, cost, busy, idle")
    arguments = parser.parse_args()
    wanted = arguments.only or ["restart", "appends", "cost", "busy", "idle"]
    with measure.workplace(arguments.work) as work:
        home = os.path.join(work, "corpus")
        if not os.path.exists(home):
            shutil.copytree(arguments.corpus, home)
        began = time.perf_counter()
        with running(home, work) as daemon, daemon.client() as client:
            status = daemon.wait_indexed(client)
            cold = time.perf_counter() - began
            time.sleep(arguments.rest)
        print(f"{status['documents']:,} documents in {status['files']:,} files, {cold:.1f} s cold")
        rows = restart(home, work, cold) if "restart" in wanted else []
        with running(home, work) as daemon:
            if "appends" in wanted:
                rows += appends(home, daemon, arguments.count)
            if "cost" in wanted:
                rows += cost(home, daemon, arguments.count)
            if "busy" in wanted:
                rows += busy(home, daemon, arguments.more or arguments.corpus)
            if "idle" in wanted:
                rows += idle(daemon, arguments.idle)
        print(measure.table(["what", "measured"], rows))
        print(f"load {measure.load()}")


if __name__ == "__main__":
    main()
