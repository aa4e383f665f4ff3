"""The sessions that are there, newest first: whose, where, about what, how long, how to go on."""

from __future__ import annotations

import os
from typing import Any

from indexd.extract import displayed
from indexd.index import FileFacts, Snapshot
from indexd.located import Located, Sources, located
from indexd.model import DEFAULT_KINDS, KINDS, Kind
from indexd.records import Record
from indexd.requests import Sessions
from indexd.resume import resume_arguments
from indexd.scope import chosen
from indexd.unmatched import unmatched

FIRST_WORDS_CHARS = 120


def sessions(sources: Sources, snapshot: Snapshot, request: Sessions) -> dict[str, Any]:
    """Return the answer to `sessions` but for what the daemon adds."""
    choice = chosen(request, snapshot.files.values())
    found = [
        record
        for facts in snapshot.files.values()
        if choice.accepts(facts)
        and (record := sources.record(facts.path)) is not None
        and _within(record, request)
    ]
    found.sort(key=lambda record: (-updated(record), os.fsencode(record.path)))
    page = found[request.offset : request.offset + request.limit]
    return {
        "sessions": [
            described(record)
            | {"first_words": first_words(sources, snapshot, record, reveal=request.reveal)}
            for record in page
        ],
        "total": len(found),
        "warnings": [] if page else _nothing(snapshot, request, len(found)),
    }


def described(record: Record) -> dict[str, Any]:
    """Return what is known of a session; times are unix ms, `size` is bytes."""
    facts = record.facts()
    return {
        "session_path": facts.path,
        "session_id": facts.session_id,
        "agent": facts.agent,
        "project": facts.cwd,
        "title": facts.title,
        "model": facts.model,
        "source": facts.source,
        "parent": facts.parent,
        "subagent": facts.subagent,
        "started": record.state.began,
        "updated": updated(record),
        "messages": record.messages,
        "size": record.checkpoint.stamp.size if record.checkpoint else 0,
        "resume": resume(facts),
    }


def updated(record: Record) -> int:
    """Return when a session was last added to (unix ms): by its messages, else by its file."""
    return record.state.timestamp or record.facts().mtime


def resume(facts: FileFacts) -> list[str] | None:
    """Return the command that goes on with a session; a sub-agent's is that of its parent."""
    known = facts.parent if facts.subagent else facts.session_id
    return resume_arguments(facts.agent, known, facts.path)


def first_words(
    sources: Sources, snapshot: Snapshot, record: Record, *, reveal: bool = False
) -> str:
    """Return how a session begins: what a person said first, else what anyone did."""
    for kind in (Kind.USER_TEXT, *DEFAULT_KINDS[1:]):
        first = _first(snapshot, record.file_id, kind)
        if first is None:
            continue
        message = sources.message(record.facts(), first.place)
        if message is not None:
            words = displayed(message, kind, first.call, reveal=reveal).split()
            return _cut(" ".join(words))
    return ""


def _first(snapshot: Snapshot, file_id: int, kind: Kind) -> Located | None:
    """Return the first document of a kind in a file."""
    found: list[Located] = []
    rank = KINDS.index(kind)
    for part in snapshot.parts:
        segment = part.segment
        local = int(segment.file_ids.searchsorted(file_id))
        if local == len(segment.file_ids) or segment.file_ids[local] != file_id:
            continue
        # Within a kind, documents are ordered by file and message.
        start, stop = (int(bound) for bound in segment.kind_starts[rank : rank + 2])
        at = start + int(segment.columns.file[start:stop].searchsorted(local))
        if at < stop and segment.columns.file[at] == local:
            found += located(snapshot, part, [at])
    return min(found, key=lambda each: each.place.message_index, default=None)


def _within(record: Record, request: Sessions) -> bool:
    """Say whether anything was said between the times asked for."""
    last = updated(record)
    first = record.state.began or last
    return (request.since is None or last >= request.since) and (
        request.until is None or first <= request.until
    )


def _cut(words: str) -> str:
    if len(words) <= FIRST_WORDS_CHARS:
        return words
    return words[:FIRST_WORDS_CHARS].rsplit(" ", 1)[0] + "..."


def _nothing(snapshot: Snapshot, request: Sessions, selected: int) -> list[str]:
    """Say of how many sessions none was selected, and which filters no session fits."""
    if selected:
        return [f"offset {request.offset} is beyond the last of {selected} sessions"]
    agents = sorted({facts.agent for facts in snapshot.files.values()})
    known = f"no session is selected of {len(snapshot.files)}"
    strange = [each.words for each in unmatched(request, snapshot.files.values())]
    if agents and not strange:
        known += f", of the agents {', '.join(agents)}"
    return [known, *strange]
