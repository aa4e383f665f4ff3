"""A whole session, page by page: each page is bounded, and says where the next begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from indexd import recall
from indexd.errors import NotFound
from indexd.index import FileFacts
from indexd.located import Sources
from indexd.messages import Place
from indexd.requests import Show
from indexd.sessions import described
from indexd.transcript import FULL_CHARS, Room, session, shown

# What of a file is read for one page: its lines are held in memory together.
PAGE_BYTES = 4 * 1024 * 1024


def show(sources: Sources, files: Iterable[FileFacts], request: Show) -> dict[str, Any]:
    """Return the answer to `show`: a page of a session's messages, with their whole texts.

    Raises NotAllowed for any path that is not an indexed session, NotFound for a first message
    beyond its end.
    """
    found = session(sources, files, request.session_path)
    record, first = found.record, request.first
    if first > record.messages:
        raise NotFound(
            f"message {first} is beyond the session's {record.messages} messages",
            "begin at the last page's `next`",
        )
    places = recall.places(record, first, first + request.limit, sources.fetch)
    wanted = _fitting(places)
    room = Room(FULL_CHARS)
    messages: list[dict[str, Any]] = []
    following = wanted[-1].message_index + 1 if wanted else record.messages
    for recalled in recall.messages(found.root, record, wanted):
        message = shown(recalled, room, reasoning=request.reasoning, reveal=request.reveal)
        if message["truncated"] and messages:
            # It begins the next page, which has room for it.
            following = message["index"]
            break
        messages.append(message)
    return {
        "session": described(record),
        "length": record.messages,
        "messages": messages,
        "next": following if following < record.messages else None,
    }


def _fitting(places: Sequence[Place]) -> list[Place]:
    """Return the first places whose lines fit a page; at least one."""
    fitting: list[Place] = []
    left = PAGE_BYTES
    for place in places:
        left -= place.size
        if fitting and left < 0:
            break
        fitting.append(place)
    return fitting
