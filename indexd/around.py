"""The messages around one message, as an answer shows them."""

from __future__ import annotations

from typing import Any

from indexd import confine, recall
from indexd.errors import NotFound
from indexd.extract import shown_arguments, shown_text
from indexd.model import Block, Kind
from indexd.recall import Recalled
from indexd.requests import Around
from indexd.searching import Sources

TEXT_CHARS = 2_000
ASIDE_CHARS = 1_200
# What `full` shows of all messages together, in code points.
FULL_CHARS = 1 << 20


def around(sources: Sources, request: Around) -> dict[str, Any]:
    """Return the answer to `around`.

    Raises NotAllowed for any path that is not an indexed session, NotFound for an index outside
    of the session.
    """
    record = sources.record(request.session_path)
    root = sources.root(request.session_path)
    if record is None or root is None or not record.agent:
        raise confine.refusal()
    length = record.messages
    if request.message_index >= length:
        raise NotFound(
            f"message_index {request.message_index} is outside session length {length}",
            f"the last message is {length - 1}" if length else "the session has no messages",
        )
    first = max(0, request.message_index - request.before)
    wanted = recall.places(record, first, request.message_index + request.after + 1, sources.fetch)
    room = _Room(FULL_CHARS if request.full else None)
    return {
        "session_path": request.session_path,
        "message_index": request.message_index,
        "length": length,
        "messages": [
            _message(recalled, request, room) for recalled in recall.messages(root, record, wanted)
        ],
    }


class _Room:
    """How much text may still be shown: per text, or for `full` in all."""

    def __init__(self, left: int | None) -> None:
        self._left = left
        self.truncated = False

    def cut(self, text: str, limit: int) -> str:
        """Return what of `text` may be shown, and remember whether that is not all."""
        room = limit if self._left is None else self._left
        if len(text) > room:
            self.truncated = True
            text = text[:room]
        if self._left is not None:
            self._left -= len(text)
        return text


def _message(recalled: Recalled, request: Around, room: _Room) -> dict[str, Any]:
    place, message = recalled
    room.truncated = False
    said = [b for b in message.blocks if b.kind not in (Kind.TOOL_INPUT, Kind.REASONING)]
    # What the harness put in is shown only where nothing else was said.
    own = [block for block in said if block.kind is not Kind.META] or said
    limit = ASIDE_CHARS if message.role == "system" else TEXT_CHARS
    text = "\n".join(shown_text(block, reveal=request.reveal) for block in own)
    shown: dict[str, Any] = {
        "index": place.message_index,
        "role": message.role,
        "text": room.cut(text, limit),
        "tool_calls": [
            _call(block, request, room) for block in message.blocks if block.kind is Kind.TOOL_INPUT
        ],
        "tool_name": next((b.tool_name for b in said if b.tool_name), ""),
        "timestamp": place.timestamp or None,
        "target": place.message_index == request.message_index,
    }
    if request.reasoning:
        thought = [b for b in message.blocks if b.kind is Kind.REASONING]
        reasoning = "\n".join(shown_text(block, reveal=request.reveal) for block in thought)
        shown["reasoning"] = room.cut(reasoning, limit)
    shown["truncated"] = room.truncated
    return shown


def _call(block: Block, request: Around, room: _Room) -> dict[str, str]:
    arguments = shown_arguments(block, reveal=request.reveal)
    return {"name": block.tool_name, "arguments": room.cut(arguments, ASIDE_CHARS)}
