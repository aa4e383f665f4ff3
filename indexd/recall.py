"""Reading messages back from their session files, for snippets and `around`.

Nothing but an indexed session below its root is opened, by descriptor; of a file only the lines
of the wanted messages are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from indexd import confine, datafile
from indexd.datafile import DataFile, Span
from indexd.errors import Busy, NotAllowed
from indexd.finding import OpenRoot
from indexd.formats import Format
from indexd.formats.registry import FORMATS
from indexd.messages import Place
from indexd.model import TOOL_KINDS, Message, SessionState
from indexd.records import Record
from indexd.settling import Fetch, places_of
from indexd.tail import Stamp


class Changed(Busy):
    """Raised when the file of the session at `path` is not as it was last looked at."""

    def __init__(self, path: str) -> None:
        super().__init__("the session is changing", "ask again in a moment")
        self.path = path


class Recalled(NamedTuple):
    """A message as its file holds it now, and where it stood."""

    place: Place
    message: Message


def places(record: Record, first: int, last: int, fetch: Fetch) -> list[Place]:
    """Return the places of the messages first <= index < last.

    Raises RowsLost when the cache has lost them.
    """
    found: list[Place] = []
    for run, end in record.ends():
        if run.first_message < last and end > first:
            found += [p for p in places_of(record, run, fetch) if first <= p.message_index < last]
    return found


def messages(root: OpenRoot, record: Record, wanted: Sequence[Place]) -> list[Recalled]:
    """Return the wanted messages of a session in their order; raises what `each` raises."""
    found = dict(each(root, record, wanted))
    return [Recalled(place, found[place]) for place in wanted if place in found]


def each(root: OpenRoot, record: Record, wanted: Iterable[Place]) -> Iterator[Recalled]:
    """Yield the wanted messages of a session as they lie in its file, those that can be read.

    No more than one line of the file is held. Raises Changed when one is not to be had because
    the file is not the indexed one any more, may not be opened, or changed; Busy without a
    descriptor to spare.
    """
    if record.checkpoint is None:
        raise Changed(record.path)
    stamp = record.checkpoint.stamp
    identity = confine.Identity(stamp.device, stamp.inode)
    try:
        fd = root.directory.open(record.data_path, identity)
    except NotAllowed as error:
        raise Changed(record.path) from error
    except OSError as error:
        raise Busy("the daemon has no descriptors left", "try again in a moment") from error
    try:
        reader = FORMATS[record.agent]
        missing = False
        for place, line in _lines(datafile.opened(fd, os.fstat(fd).st_size), wanted):
            message = _message(reader, record, line, place)
            if message is not None:
                yield Recalled(place, message)
            missing = missing or message is None
        if missing and Stamp.of(os.fstat(fd)) != stamp:
            raise Changed(record.path)
    except OSError as error:
        raise confine.refusal() from error
    finally:
        os.close(fd)


def _lines(data: DataFile, wanted: Iterable[Place]) -> Iterator[tuple[Place, bytes]]:
    """Yield each wanted place with its line, as they lie in the file; one cut short is empty."""
    by_span: dict[Span, list[Place]] = {}
    for place in wanted:
        by_span.setdefault((place.offset, place.size), []).append(place)
    spans = sorted(by_span)
    for span, line in zip(spans, data.spans(spans), strict=True):
        for place in by_span[span]:
            yield place, line if len(line) == place.size else b""


class _KnownCall(dict[str, str]):
    """The open calls of a line that is read alone: whatever its id, the tool is known."""

    def __init__(self, tool_name: str) -> None:
        super().__init__()
        self._tool_name = tool_name

    def get(self, key: str, default: object = None) -> str:
        return self._tool_name

    def pop(self, key: str, default: object = None) -> str:
        return self._tool_name


def _message(reader: Format, record: Record, line: bytes, place: Place) -> Message | None:
    state = SessionState(facts=dict(record.state.facts), calls=_KnownCall(place.tool_name))
    items = [item for item in reader.read(line, state) if isinstance(item, Message)]
    return _named(items[place.part], place) if place.part < len(items) else None


def _named(message: Message, place: Place) -> Message:
    """Return the message with its results' tool named, as their call named it."""
    if not place.tool_name or all(b.tool_name or b.kind not in TOOL_KINDS for b in message.blocks):
        return message
    blocks = tuple(
        b._replace(tool_name=place.tool_name) if b.kind in TOOL_KINDS and not b.tool_name else b
        for b in message.blocks
    )
    return message._replace(blocks=blocks)
