"""Gemini CLI: messages appended to `~/.gemini/tmp/<project>/chats/session-*.jsonl`.

A message is written again, under the same id, when its tool calls have run: the later line takes
the earlier one's place. `$rewindTo` removes a message and all after it, `$set` may set the whole
list anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from indexd.formats import Format, Item, facts
from indexd.formats.content import (
    HostText,
    failure_text,
    note,
    note_first,
    plain,
    result,
    said,
)
from indexd.formats.lines import Record, mapping, sequence, string
from indexd.model import MAX_NAME_CHARS, Block, Kind, Message, Rewind, SessionState

_HOST = HostText(whole="<(?:session_context|state_snapshot|scratchpad)>")
_TYPES = frozenset({"user", "gemini", "info", "error", "warning"})
_CWD = re.compile(r"(?:[Ww]orking in|Workspace Directories:\**\s*-) (/[^\n<]*[^\s<])")
_CHILD = re.compile(r"/chats/([^/]+)/[^/]+\.jsonl$")


class Gemini(Format):
    """Reads the append-only session files of Gemini CLI."""

    agent = "gemini"
    paths = re.compile(r"/\.gemini/tmp/")

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directory below which every project has its chats."""
        return [f"{environment.get('GEMINI_CLI_HOME') or home}/.gemini/tmp"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is a header, a message or an operation of Gemini CLI."""
        if "sessionId" in record:
            return "projectHash" in record and "startTime" in record
        if "$rewindTo" in record or "$set" in record:
            return True
        return string(record.get("type")) in _TYPES and "id" in record and "content" in record

    def path_facts(self, path: str) -> dict[str, str]:
        """Return the session id, and of a sub-agent's the session that it works for."""
        child = _CHILD.search(path)
        return super().path_facts(path) | facts(parent=child and child[1])

    def is_subagent(self, path: str, state: SessionState, known: Mapping[str, str]) -> bool:
        """Say whether the session lies in a directory of its parent's."""
        return _CHILD.search(path) is not None

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message of a line, or what an operation does to the list of messages."""
        ids: dict[str, int] = state.memory.setdefault("ids", {})
        if "$rewindTo" in record:
            return (_rewind(ids, _position(ids.get(string(record["$rewindTo"]), 0))),)
        if "$set" in record:
            return _set(mapping(record["$set"]), state, ids)
        if "sessionId" in record:
            note(state, session_id=record["sessionId"])
            _note_directories(record, state)
            return ()
        return _listed([record], state, ids, index)


def _position(place: int) -> int:
    """Return a message's index; one that was left out keeps the next index, as its complement."""
    return place if place >= 0 else ~place


def _rewind(ids: dict[str, int], length: int) -> Rewind:
    for gone in [name for name, place in ids.items() if _position(place) >= length]:
        del ids[gone]
    return Rewind(length)


def _set(changes: Record, state: SessionState, ids: dict[str, int]) -> Iterator[Item]:
    note(state, title=changes.get("summary"))
    _note_directories(changes, state)
    if "messages" in changes:
        yield _rewind(ids, 0)
        yield from _listed(sequence(changes["messages"]), state, ids, 0)


def _note_directories(record: Record, state: SessionState) -> None:
    for directory in sequence(record.get("directories"))[:1]:
        note_first(state, cwd=directory)


def _listed(
    records: Iterable[object], state: SessionState, ids: dict[str, int], index: int
) -> Iterator[Message]:
    for record in map(mapping, records):
        name = string(record.get("id"))
        message = _message(record, state)
        known = ids.get(name, -1) if name else -1
        if message is None:
            ids.setdefault(name, ~index)
        elif known >= 0:
            yield message._replace(replaces=known)
        else:
            ids[name] = index
            index += 1
            yield message


def _message(record: Record, state: SessionState) -> Message | None:
    what, content = string(record.get("type")), record.get("content")
    if what == "gemini":
        note(state, model=record.get("model"))
        return said(state, "assistant", _assistant(record), record.get("timestamp"))
    if what == "user":
        if _repeats_results(content):
            state.skip("repeated function response")
            return None
        return said(state, what, _typed(content, state), record.get("timestamp"))
    if what not in _TYPES:
        state.skip(what or "record without type")
        return None
    kind = Kind.TOOL_ERROR if what == "error" else Kind.META
    return said(state, "system", (Block(kind, plain(content)),), record.get("timestamp"))


def _repeats_results(content: object) -> bool:
    parts = sequence(content)
    return bool(parts) and all("functionResponse" in mapping(part) for part in parts)


def _typed(content: object, state: SessionState) -> Iterator[Block]:
    for part in content if isinstance(content, list) else [content]:
        text = plain(part)
        found = _HOST.blocks(text)
        if found[0].kind is Kind.META and (directory := _CWD.search(text)):
            note_first(state, cwd=directory[1])
        yield from found


def _assistant(record: Record) -> Iterator[Block]:
    for thought in map(mapping, sequence(record.get("thoughts"))):
        parts = (string(thought.get("subject")), string(thought.get("description")))
        yield Block(Kind.REASONING, "\n".join(filter(None, parts)))
    content = record.get("content")
    for part in content if isinstance(content, list) else [content]:
        kind = Kind.REASONING if mapping(part).get("thought") is True else Kind.ASSISTANT_TEXT
        yield Block(kind, plain(part))
    for asked in map(mapping, sequence(record.get("toolCalls"))):
        yield from _call(asked)


def _call(asked: Record) -> Iterator[Block]:
    """Return a call and its result, which stand in the same object."""
    tool, status = string(asked.get("name"))[:MAX_NAME_CHARS], asked.get("status")
    yield Block(Kind.TOOL_INPUT, "", tool, asked.get("args"))
    responses = [
        mapping(mapping(mapping(part).get("functionResponse")).get("response"))
        for part in sequence(asked.get("result"))
    ]
    failed = status == "error" or any("error" in response for response in responses)
    texts = [
        plain(response.get("output")) or failure_text(response.get("error"))
        for response in responses
    ]
    text = "\n".join(filter(None, texts)) or plain(asked.get("resultDisplay"))
    if text or status in ("error", "success"):
        yield result(tool, text, failed)
