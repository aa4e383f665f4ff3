"""What the cache keeps of MCP servers: a record of each, and the segments that hold its tools.

Segments have the form that those of sessions have. An event adds one with the tools that are new
to it; what earlier segments hold of other tools stays, and the dead among them go when a server
has so many segments that they are put together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np

from indexd import encoding, records
from indexd.catalog import server_from_record
from indexd.errors import BadRequest
from indexd.merge import merge, of_files
from indexd.segment import Segment
from indexd.source import DamagedSegment
from indexd.tool_analysis import VERSION
from indexd.tool_library import Restored, Update

log = logging.getLogger(__name__)
Rows = dict[bytes, bytes | None]

SERVERS = b"c"
# A server has so many segments at most; one new tool then rarely costs more than itself.
MAX_RUNS = 4


class ServerRows:
    """The rows of all servers, of which it remembers under which numbers segments are stored.

    `fetch` gives rows of the cache.
    """

    def __init__(self, fetch: Callable[[bytes], bytes | None]) -> None:
        self._fetch = fetch
        self._runs: dict[str, tuple[int, ...]] = {}

    def changed(self, update: Update) -> Rows:
        """Return the rows that an update changes; they are one unit."""
        name = update.server.name
        old = self._runs.get(name, ())
        runs, rows = self._settled(old, update)
        self._runs[name] = runs
        record = {
            **update.server.as_record(),
            "analysis": VERSION,
            "file_ids": dict(update.file_ids),
            "runs": runs,
        }
        key = SERVERS + name.encode("utf-8", "surrogatepass")
        return (
            {records.segment_key(run, 0): None for run in old if run not in runs}
            | rows
            | {key: packed(record)}
        )

    def restored(self, values: Mapping[bytes, bytes]) -> tuple[list[Restored], list[str]]:
        """Return the servers of their records, and what is wrong with those that are left out."""
        found, problems = [], []
        for value in values.values():
            try:
                found.append(self._restored(unpacked(value)))
            except (ValueError, TypeError, KeyError, AttributeError, BadRequest) as error:
                problems.append(f"a server's record is left out: {error}")
        return found, problems

    def _restored(self, record: Mapping[str, Any]) -> Restored:
        server = server_from_record(record)
        runs, file_ids = record.get("runs", ()), record.get("file_ids", {})
        self._runs[server.name] = tuple(map(int, runs))
        if record.get("analysis") != VERSION:
            return Restored(server, {})
        segments = [self._segment(run) for run in runs]
        whole = [segment for segment in segments if segment is not None]
        kept = {str(name): int(file_id) for name, file_id in file_ids.items()}
        return Restored(server, kept if len(whole) == len(runs) else {}, whole)

    def _settled(self, old: tuple[int, ...], update: Update) -> tuple[tuple[int, ...], Rows]:
        """Return under which numbers a server's segments are from now on, and those to write."""
        new = update.segment
        if new is None:
            return old, {}
        others = len(update.file_ids) - len(new)
        if others and len(old) < MAX_RUNS:
            return self._written(old, new)
        if others:
            segments = [self._segment(run) for run in old]
            new = _together([s for s in segments if s is not None] + [new], update)
        return self._written((), new)

    def _written(self, old: tuple[int, ...], new: Segment) -> tuple[tuple[int, ...], Rows]:
        if not len(new):
            return old, {}
        number = int(new.file_ids[0])
        return (*old, number), {records.segment_key(number, 0): encoding.encode(new)}

    def _segment(self, run: int) -> Segment | None:
        value = self._fetch(records.segment_key(run, 0))
        try:
            return None if value is None else encoding.decode(value)
        except DamagedSegment as error:
            log.warning("tools' segment damaged, analysing again run=%d error=%s", run, error)
            return None


def packed(record: Any) -> bytes:
    """Return the stored form of plain values."""
    stored: bytes = msgpack.packb(record, unicode_errors="surrogatepass")
    return stored


def unpacked(value: bytes) -> Any:
    """Return the plain values of their stored form; raises ValueError."""
    return msgpack.unpackb(value, unicode_errors="surrogatepass", strict_map_key=False)


def _together(segments: Sequence[Segment], update: Update) -> Segment:
    living = np.array(list(update.file_ids.values()), np.uint32)
    return merge(segments, [of_files(s, np.isin(s.file_ids, living)) for s in segments])
