"""DeepSeek Harness: a header, then numbered events, in `~/.dsh/sessions/**/session.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item
from indexd.formats.content import blocks, call, closed, note, note_first, plain, result, said
from indexd.formats.lines import Record, mapping, string
from indexd.model import Block, Kind, SessionState

_TYPED = frozenset({"user/message", "steering/message"})


class DeepSeekHarness(Format):
    """Reads the session files of DeepSeek Harness (dsh)."""

    agent = "dsh"
    paths = re.compile(r"/\.dsh/sessions/")
    left_out = frozenset({
        b"assistant/chunk", b"tool/chunk", b"assistant-chunks", b"tool-chunks", b"reasoning-chunks",
    })  # fmt: skip

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directory of all projects' sessions."""
        return [f"{home}/.dsh/sessions"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is the header or an event of a session of dsh."""
        if record.get("type") == "session":
            return "createdAt" in record and "timestamp" not in record
        return "/" in string(record.get("type")) and "seq" in record and "data" in record

    def is_subagent(self, path: str, state: SessionState, known: Mapping[str, str]) -> bool:
        """Say whether another session delegated to this one."""
        return "parent" in known

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that an event is, if it is one."""
        what, data = string(record.get("type")), mapping(record.get("data"))
        if what == "session":
            note(state, session_id=record.get("id"), parent=record.get("parentId"))
            note_first(state, cwd=record.get("cwd"))
            return ()
        role, found = _blocks(what, data, state)
        if found:
            return (said(state, role, found, record.get("time")),)
        if what == "request/header":
            note(state, model=mapping(mapping(data.get("header")).get("config")).get("model"))
        elif what == "session/title":
            note(state, title=data.get("title"))
        else:
            state.skip(what or "event without type")
        return ()


def _blocks(what: str, data: Record, state: SessionState) -> tuple[str, list[Block]]:
    """Return who speaks in an event, and what is said; nothing for most events."""
    content = data.get("content")
    if what in _TYPED:
        return "user", blocks(content, Kind.USER_TEXT, state)
    if what == "assistant/message":
        return "assistant", blocks(content, Kind.ASSISTANT_TEXT, state)
    if what == "tool/call":
        return "assistant", [
            call(state, data.get("callId"), data.get("name"), data.get("arguments"))
        ]
    if what == "tool/result":
        tool = closed(state, data.get("callId")) or string(data.get("name"))
        return "tool", [result(tool, plain(content), data.get("isError") is True)]
    if what == "context/message":
        return "user", blocks(content, Kind.META, state)
    if what.startswith("compaction"):
        return "system", [Block(Kind.SUMMARY, plain(data.get("summary", content)))]
    return "", []
