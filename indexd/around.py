"""The messages around one message of a session, which an index, an end or a time names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from indexd import recall
from indexd.errors import NotFound
from indexd.index import FileFacts
from indexd.located import Sources
from indexd.requests import Around
from indexd.sessions import resume
from indexd.transcript import FULL_CHARS, Room, Session, session, shown


def around(sources: Sources, files: Iterable[FileFacts], request: Around) -> dict[str, Any]:
    """Return the answer to `around`.

    Raises NotAllowed for any path that is not an indexed session, NotFound for a message that
    the session does not have.
    """
    found = session(sources, files, request.session_path)
    target = _target(sources, found, request)
    first = max(0, target - request.before)
    wanted = recall.places(found.record, first, target + request.after + 1, sources.fetch)
    room, facts = Room(FULL_CHARS if request.full else None), found.record.facts()
    messages = []
    for recalled in recall.messages(found.root, found.record, wanted):
        message = shown(recalled, room, reasoning=request.reasoning, reveal=request.reveal)
        messages.append(message | {"target": message["index"] == target})
    return {
        "session_path": found.record.path,
        "message_index": target,
        "length": found.record.messages,
        "project": facts.cwd,
        "resume": resume(facts),
        "messages": messages,
    }


def _target(sources: Sources, found: Session, request: Around) -> int:
    """Return the index of the message that is asked for. Raises NotFound."""
    length = found.record.messages
    if request.message_index is not None:
        if request.message_index >= length:
            raise NotFound(
                f"message_index {request.message_index} is outside session length {length}",
                f"the last message is {length - 1}" if length else "the session has no messages",
            )
        return request.message_index
    if not length:
        raise NotFound("the session has no messages", "it may get some; try again then")
    if request.at in ("start", "end"):
        return 0 if request.at == "start" else length - 1
    assert isinstance(request.at, int)
    return _first_since(sources, found, request.at)


def _first_since(sources: Sources, found: Session, time: int) -> int:
    """Return the first message that was said at `time` or later; the last one if none was."""
    places = recall.places(found.record, 0, found.record.messages, sources.fetch)
    timed = [place for place in places if place.timestamp]
    if not timed:
        raise NotFound("no message of the session has a time", 'ask for at "start" or "end"')
    return next((p.message_index for p in timed if p.timestamp >= time), timed[-1].message_index)
