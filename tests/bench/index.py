"""What indexing a corpus costs: a cold daemon beside tantivy and FTS5 fed with the extracted texts.

Each engine runs in a process tree of its own, from a cold start until everything can be searched;
processor time is that of the whole tree. The peers get texts that were extracted before: reading
and parsing session files, which is part of indexd's figure, is none of theirs.

    python tests/bench/index.py --corpus DIR [--profile code]
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator

import measure
import texts
from daemon import running

PIECE = 10_000
HERE = os.path.dirname(os.path.abspath(__file__))


def extract(home: str, path: str) -> tuple[int, int, int]:
    """Write every document's text to `path`; return documents, bytes of files, bytes of text."""
    documents = file_bytes = text_bytes = 0
    with open(path, "wb") as file:
        for session in texts.sessions(home):
            file_bytes += session.bytes
            for document in session.documents:
                text = document.text.encode("utf-8", "replace")
                documents += 1
                text_bytes += len(text)
                file.write(len(text).to_bytes(4, "big") + text)
    return documents, file_bytes, text_bytes


def extracted(path: str) -> Iterator[str]:
    """Yield the texts that were extracted."""
    with open(path, "rb") as file:
        while size := file.read(4):
            yield file.read(int.from_bytes(size, "big")).decode()


def tantivy(path: str, target: str) -> None:
    """Index with tantivy, in one thread."""
    import tantivy as library

    schema = library.SchemaBuilder().add_text_field("text", index_option="freq").build()
    os.makedirs(target)
    writer = library.Index(schema, target).writer(128_000_000, 1)
    for text in extracted(path):
        writer.add_document(library.Document(text=text))
    writer.commit()
    writer.wait_merging_threads()


def fts5(path: str, target: str) -> None:
    """Index with a contentless FTS5 table."""
    os.makedirs(target)
    database = sqlite3.connect(os.path.join(target, "fts5.db"), isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail=none)")
    database.execute("BEGIN")
    for number, text in enumerate(extracted(path)):
        database.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (number, text))
        if number % PIECE == 0:
            database.execute("COMMIT")
            database.execute("BEGIN")
    database.execute("COMMIT")


def reading(path: str, target: str) -> None:
    """Read the extracted texts and nothing else, which is what the peers' feeding costs."""
    os.makedirs(target)
    for _ in extracted(path):
        pass


class Cost:
    """What one engine took: seconds, processor seconds, MB at its peak, MB on disk."""

    def __init__(self, seconds: float, cpu: float, peak: float, disk: float) -> None:
        self.seconds, self.cpu, self.peak, self.disk = seconds, cpu, peak, disk


def of_peer(run: Callable[[str, str], None], path: str, target: str) -> Cost:
    """Return what a peer takes, in a process of its own."""
    began = time.perf_counter()
    code = "import sys; sys.path.insert(0, sys.argv[1]); import index; {}(*sys.argv[2:])"
    command = [sys.executable, "-c", code.format(f"index.{run.__name__}"), HERE, path, target]
    pid = os.posix_spawn(sys.executable, command, os.environ)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{run.__name__} failed")
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6
    return Cost(time.perf_counter() - began, cpu, peak, measure.directory_mb(target))


def of_daemon(home: str, work: str, profile: str, rest: float) -> tuple[Cost, str]:
    """Return what a daemon with an empty cache takes until it has read everything.

    It then rests, so that what it does when nobody writes (the base) shows on disk.
    """
    began = time.perf_counter()
    with running(home, work, profile) as daemon, daemon.client() as client:
        peak = 0.0
        client.status()  # which waits until it is known what there is to read
        while True:
            peak = max(peak, measure.tree_rss_mb(daemon.pid))
            if not client.search("x", limit=1, sync=False)["index"]["files_pending"]:
                break
            time.sleep(0.1)
        seconds, cpu = time.perf_counter() - began, daemon.cpu_seconds()
        status = client.status()
        until = time.perf_counter() + rest
        while time.perf_counter() < until:
            time.sleep(0.2)
            peak = max(peak, measure.tree_rss_mb(daemon.pid))
        steady, after = measure.rss_mb(daemon.pid), daemon.cpu_seconds()
        parts = ", ".join(
            f"{name} {measure.directory_mb(os.path.join(daemon.cache, name)):.1f} MB"
            if os.path.isdir(os.path.join(daemon.cache, name))
            else f"{name} {os.stat(os.path.join(daemon.cache, name)).st_size / 1e6:.1f} MB"
            for name in sorted(os.listdir(daemon.cache))
        )
        disk = measure.directory_mb(daemon.cache)
    said = (
        f"{status['documents']:,} documents in {status['files']:,} files; {steady:.0f} MB resident"
        f" {rest:.0f} s later, {after - cpu:.1f} s of processor time in between; {parts}"
    )
    return Cost(seconds, cpu, peak, disk), said


def main() -> None:
    """Index a corpus with every engine and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--corpus", required=True, help="a directory of session files")
    parser.add_argument("--work", help="a directory for the indexes; a temporary one if missing")
    parser.add_argument("--profile", choices=("seed", "code"), default="seed")
    parser.add_argument("--rest", type=float, default=45.0, help="seconds to wait for the base")
    parser.add_argument("--no-peers", action="store_true", help="measure indexd alone")
    arguments = parser.parse_args()
    with measure.workplace(arguments.work) as work:
        path = os.path.join(work, "texts")
        documents, file_bytes, text_bytes = extract(arguments.corpus, path)
        print(
            f"{documents:,} documents, {file_bytes / 1e6:.1f} MB of files, "
            f"{text_bytes / 1e6:.1f} MB of text; profile {arguments.profile}; "
            f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {measure.load()}"
        )
        cost, said = of_daemon(arguments.corpus, work, arguments.profile, arguments.rest)
        costs = {"indexd": cost}
        if not arguments.no_peers:
            for run in (tantivy, fts5, reading):
                costs[run.__name__] = of_peer(run, path, os.path.join(work, run.__name__))
        print(said)
        files, text = file_bytes / 1e6, text_bytes / 1e6
        rows = [
            [
                name, each.seconds, files / each.seconds, text / each.seconds, each.cpu,
                cost.cpu / each.cpu, each.peak, each.disk, 100 * each.disk / text,
            ]
            for name, each in costs.items()
        ]  # fmt: skip
        header = ["", "s", "files MB/s", "text MB/s", "CPU s", "indexd / it", "peak MB", "disk MB"]
        print(measure.table([*header, "disk / text %"], rows))


if __name__ == "__main__":
    main()
