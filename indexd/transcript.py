"""Messages of one session as answers show them: which session is meant, and how much is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from indexd import confine, scope
from indexd.extract import shown_arguments, shown_text
from indexd.finding import OpenRoot
from indexd.index import FileFacts
from indexd.located import Sources
from indexd.model import Block, Kind
from indexd.paths import plain_path
from indexd.recall import Recalled
from indexd.records import Record

TEXT_CHARS = 2_000
ASIDE_CHARS = 1_200
# What one answer shows of whole texts together, in code points.
FULL_CHARS = 1 << 20


class Session(NamedTuple):
    """A session that may be read."""

    record: Record
    root: OpenRoot


def session(sources: Sources, files: Iterable[FileFacts], wanted: str) -> Session:
    """Return the session with this path, or with an id that is or begins with `wanted`.

    Raises NotAllowed for all that is not an indexed session, BadRequest where several ids
    begin so.
    """
    path = plain_path(wanted) if "/" in wanted else _path(files, wanted)
    record, root = sources.record(path), sources.root(path)
    if record is None or root is None or not record.agent:
        raise confine.refusal()
    if "/" in wanted and wanted not in (record.path, record.data_path):
        raise confine.refusal()
    return Session(record, root)


def _path(files: Iterable[FileFacts], wanted: str) -> str:
    """Return the path of the session with this id; of several, that of the one in use."""
    known = list(files)
    ids = scope.session_named(wanted, known)
    own = [facts for facts in known if facts.session_id in ids]
    best = max(own, key=lambda f: (f.source != "archive", not f.subagent, f.mtime), default=None)
    return "" if best is None else best.path


class Room:
    """How much text may still be shown: per text, or where `left` says so in all."""

    def __init__(self, left: int | None = None) -> None:
        self.left = left
        self.truncated = False

    def cut(self, text: str, limit: int) -> str:
        """Return what of `text` may be shown, and remember whether that is not all."""
        room = limit if self.left is None else self.left
        if len(text) > room:
            self.truncated = True
            text = text[:room]
        if self.left is not None:
            self.left -= len(text)
        return text


def shown(recalled: Recalled, room: Room, *, reasoning: bool, reveal: bool) -> dict[str, Any]:
    """Return a message as answers show it, as far as there is room."""
    place, message = recalled
    room.truncated = False
    said = [b for b in message.blocks if b.kind not in (Kind.TOOL_INPUT, Kind.REASONING)]
    # What the harness put in is shown only where nothing else was said.
    own = [block for block in said if block.kind is not Kind.META] or said
    limit = ASIDE_CHARS if message.role == "system" else TEXT_CHARS
    text = "\n".join(shown_text(block, reveal=reveal) for block in own)
    calls = [block for block in message.blocks if block.kind is Kind.TOOL_INPUT]
    answer: dict[str, Any] = {
        "index": place.message_index,
        "role": message.role,
        "text": room.cut(text, limit),
        "tool_calls": [_call(block, room, reveal) for block in calls],
        "tool_name": next((b.tool_name for b in said if b.tool_name), ""),
        "timestamp": place.timestamp or None,
    }
    if reasoning:
        thought = [b for b in message.blocks if b.kind is Kind.REASONING]
        text = "\n".join(shown_text(block, reveal=reveal) for block in thought)
        answer["reasoning"] = room.cut(text, limit)
    answer["truncated"] = room.truncated
    return answer


def _call(block: Block, room: Room, reveal: bool) -> dict[str, str]:
    arguments = shown_arguments(block, reveal=reveal)
    return {"name": block.tool_name, "arguments": room.cut(arguments, ASIDE_CHARS)}
