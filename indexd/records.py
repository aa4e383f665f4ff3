"""What the cache remembers of each session file, and under which keys.

The record of a file holds its checkpoint; it is written in one transaction with the segments and
places that the checkpoint covers, so a stored offset never runs ahead of stored statistics.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack
import msgspec

from indexd.formats.registry import FORMATS
from indexd.index import FileFacts
from indexd.model import SessionState
from indexd.tail import Checkpoint, Stamp

# What rows say: the number counts up whenever records have other fields, or reading makes other
# documents of the same lines. The rows of another version are read by nobody.
VERSION = 3


class Run(NamedTuple):
    """One run of a file's messages: its number, its documents, its first message.

    Its stored segment has the documents of messages from `kept_from` on; the base has the others.
    """

    number: int
    documents: int
    first_message: int
    kept_from: int = 0


class Record(msgspec.Struct, frozen=True, array_like=True):
    """All that is known of one session file.

    path: the session's, as answers give it; data_path: where its messages are read from.
    root: the resolved directory it lies in; source: that root's label; agent: the format's name.
    sidecars: the stamp of each sidecar when its facts were read; `sidecar_facts` what they said.
    state: what reading has to remember. runs: the stored segments, oldest first.
    problem: why the file gives nothing, if so.
    """

    file_id: int
    path: str
    data_path: str
    root: str
    source: str
    agent: str
    checkpoint: Checkpoint | None
    state: SessionState
    runs: tuple[Run, ...] = ()
    sidecars: dict[str, Stamp] = {}
    sidecar_facts: dict[str, str] = {}
    path_facts: dict[str, str] = {}
    documents: int = 0
    problem: str = ""

    @property
    def messages(self) -> int:
        """Return how many messages the session has."""
        return self.state.next_index

    def ends(self) -> list[tuple[Run, int]]:
        """Return each run and the message that comes after it."""
        firsts = [run.first_message for run in self.runs[1:]]
        return list(zip(self.runs, [*firsts, self.messages], strict=False))

    def facts(self) -> FileFacts:
        """Return what a search may know of this file."""
        known = {**self.path_facts, **self.sidecar_facts, **self.state.facts}
        mtime = self.checkpoint.stamp.mtime_ns // 1_000_000 if self.checkpoint else 0
        return FileFacts(
            self.file_id,
            self.path,
            self.source,
            self.agent,
            known.get("session_id", ""),
            known.get("cwd", ""),
            known.get("model", ""),
            known.get("title", ""),
            known.get("parent", ""),
            bool(self.agent) and FORMATS[self.agent].is_subagent(self.path, self.state, known),
            mtime,
        )


def encode(record: Record) -> bytes:
    """Return the stored form of a record; names that are not UTF-8 survive."""
    plain = msgspec.to_builtins(record)
    stored: bytes = msgpack.packb(plain, unicode_errors="surrogatepass")
    return stored


def decode(data: bytes) -> Record:
    """Return the record of its stored form; raises ValueError (msgspec's or msgpack's)."""
    plain = msgpack.unpackb(data, unicode_errors="surrogatepass", strict_map_key=False)
    return msgspec.convert(plain, Record)


RECORDS = b"f"


def record_key(file_id: int) -> bytes:
    """Return the key of a file's record."""
    return RECORDS + file_id.to_bytes(8, "big").hex().encode()


def segment_key(file_id: int, number: int) -> bytes:
    """Return the key of one of a file's segments."""
    return b"s" + record_key(file_id)[1:] + b"/%d" % number


def places_key(file_id: int, number: int) -> bytes:
    """Return the key of the places of the messages that a segment covers."""
    return b"m" + record_key(file_id)[1:] + b"/%d" % number
