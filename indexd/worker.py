"""A process that reads session files for the daemon, so that queries keep the interpreter.

It knows nothing but its orders: files to read come in by standard input, statistics go out by
standard output, one frame each way (8 bytes of length, msgpack). It writes no file, and ends
when its input does.
"""

from __future__ import annotations

import gc
import io
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import msgpack

from indexd import encoding, memory, records
from indexd.attending import Task, attend_to_all
from indexd.build import build
from indexd.confine import RootDirectory
from indexd.discover import Candidate
from indexd.finding import Found, OpenRoot
from indexd.merge import merge
from indexd.records import Record
from indexd.roots import Root
from indexd.segment import Segment
from indexd.settling import Change
from indexd.source import Memory
from indexd.tail import Stamp
from indexd.text import Profile

HEADER = struct.Struct(">Q")
READY = HEADER.pack(0)
# Reading is for later, answering is for now.
NICE = 5
# A batch is some hundred thousand objects without a cycle: looking for one over and over is vain.
COLLECT_AFTER = 200_000


class Read(NamedTuple):
    """What came of one file: its record and rows, or the reason why there is none."""

    path: str
    record: Record | None
    rows: dict[bytes, bytes | None]
    reason: str


class Batch(NamedTuple):
    """What came of some files, and one segment of all their documents."""

    reads: list[Read]
    segment: Segment


def order(tasks: Sequence[Task]) -> bytes:
    """Return the frame that orders a worker to read files never read before."""
    return _frame(
        [
            [
                tuple(task.found.root.root),
                tuple(task.found.candidate),
                tuple(task.found.stamp),
                {path: tuple(stamp) for path, stamp in task.found.sidecars.items()},
                task.new_file_id,
                task.profile,
            ]
            for task in tasks
        ]
    )


def result(body: bytes) -> Batch:
    """Return what the body of a worker's frame says."""
    reads, segment = _unpacked(body)
    return Batch(
        [
            Read(path, records.decode(record) if record else None, dict(rows), reason)
            for path, record, rows, reason in reads
        ],
        encoding.load(Memory(segment))[0],
    )


def main() -> int:
    """Obey orders until there are no more."""
    os.nice(NICE)
    gc.set_threshold(COLLECT_AFTER)
    roots: dict[Root, OpenRoot] = {}
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(READY)
    sink.flush()
    while (body := _received(source)) is not None:
        answer = _answer(_unpacked(body), roots)
        try:
            sink.write(answer)
            sink.flush()
        except BrokenPipeError:  # The daemon has gone; there is nobody to tell.
            os._exit(0)
        del answer
        memory.give_back()
    return 0


def _task(
    roots: dict[Root, OpenRoot],
    root: Sequence[Any],
    candidate: Sequence[Any],
    stamp: Sequence[int],
    sidecars: dict[str, Sequence[int]],
    file_id: int,
    profile: Profile,
) -> Task:
    path, source, form, exclude = root
    wanted = Root(path, source, form, tuple(exclude))
    if wanted not in roots:
        roots[wanted] = OpenRoot(wanted, RootDirectory(path))
    session, data, beside = candidate
    found = Found(
        roots[wanted],
        Candidate(session, data, tuple(beside)),
        Stamp(*stamp),
        {name: Stamp(*known) for name, known in sidecars.items()},
    )
    return Task(found, None, file_id, profile)


def _answer(orders: Sequence[Sequence[Any]], roots: dict[Root, OpenRoot]) -> bytes:
    tasks: dict[str, Task] = {}
    reads: dict[str, tuple[str, bytes, dict[bytes, bytes | None], str]] = {}
    for fields in orders:
        path = fields[1][0]
        try:
            tasks[path] = _task(roots, *fields)
        except OSError as error:  # A root may be gone by now, as a file may.
            reads[path] = (path, b"", {}, str(error))
    together = attend_to_all(tasks.values())
    for path, change in zip(tasks, together.changes, strict=True):
        if isinstance(change, Change):
            reads[path] = (path, records.encode(change.record), change.rows, "")
        else:
            reads[path] = (path, b"", {}, str(change))
    segments = together.segments or [build((), "seed")]
    plain = io.BytesIO()
    encoding.dump(segments[0] if len(segments) == 1 else merge(segments), plain, {})
    return _frame([[reads[fields[1][0]] for fields in orders], plain.getvalue()])


def _frame(message: object) -> bytes:
    body: bytes = msgpack.packb(message, unicode_errors="surrogatepass")
    return HEADER.pack(len(body)) + body


def _unpacked(body: bytes) -> Any:
    return msgpack.unpackb(body, unicode_errors="surrogatepass", strict_map_key=False)


def _received(source: BinaryIO) -> bytes | None:
    header = source.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    return source.read(length)


if __name__ == "__main__":
    sys.exit(main())
