"""Qwen Code: an append-only tree, one record per line, in `~/.qwen/projects/<slug>/chats/`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item
from indexd.formats.content import (
    HostText,
    call,
    closed,
    failure_text,
    note,
    note_first,
    plain,
    result,
    said,
)
from indexd.formats.lines import Record, mapping, sequence, string
from indexd.model import Block, Kind, SessionState

_HOST = HostText(cut="system-reminder", whole="<(?:session_context|task-notification)>")
_TYPES = frozenset({"user", "assistant", "tool_result", "system"})


class Qwen(Format):
    """Reads the chat files of Qwen Code."""

    agent = "qwen"
    paths = re.compile(r"/\.qwen/")

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directory below which every project has its chats."""
        return [f"{home}/.qwen/projects"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is one of Qwen Code's, whose messages are made of parts."""
        if string(record.get("type")) not in _TYPES or "sessionId" not in record:
            return False
        return "parts" in mapping(record.get("message")) or "systemPayload" in record

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that a line is, if it is one."""
        note(state, session_id=record.get("sessionId"), model=record.get("model"))
        note_first(state, cwd=record.get("cwd"))
        what, when = string(record.get("type")), record.get("timestamp")
        parts = [mapping(part) for part in sequence(mapping(record.get("message")).get("parts"))]
        if what == "system":
            found = _system(record, state)
            return (said(state, "user", found, when),) if found else ()
        if what == "user":
            return (said(state, what, _user(record, parts), when),)
        if what in ("assistant", "tool_result"):
            failed = mapping(record.get("toolCallResult")).get("status") == "error"
            role = "tool" if what == "tool_result" else what
            return (said(state, role, _blocks(parts, failed, state), when),)
        state.skip(what or "record without type")
        return ()


def _user(record: Record, parts: list[Record]) -> Iterable[Block]:
    text = "\n".join(filter(None, map(plain, parts)))
    if record.get("provenance", "real_user") != "real_user":
        return (Block(Kind.META, text),)
    return _HOST.blocks(text)


def _system(record: Record, state: SessionState) -> tuple[Block, ...]:
    what, payload = string(record.get("subtype")), mapping(record.get("systemPayload"))
    text = next((value for value in payload.values() if isinstance(value, str)), "")
    if what == "mid_turn_user_message":
        return (Block(Kind.USER_TEXT, text),)
    if what == "session_notes":
        return (Block(Kind.SUMMARY, text),)
    if what == "custom_title":
        note(state, title=payload.get("title"))
    else:
        state.skip(f"system {what}")
    return ()


def _blocks(parts: list[Record], failed: bool, state: SessionState) -> Iterable[Block]:
    for part in parts:
        if "functionCall" in part:
            asked = mapping(part["functionCall"])
            yield call(state, asked.get("id"), asked.get("name"), asked.get("args"))
        elif "functionResponse" in part:
            yield _result(mapping(part["functionResponse"]), failed, state)
        elif "text" in part:
            kind = Kind.REASONING if part.get("thought") is True else Kind.ASSISTANT_TEXT
            yield Block(kind, plain(part))
        else:
            state.skip("part " + ", ".join(sorted(part)))


def _result(answer: Record, failed: bool, state: SessionState) -> Block:
    response = mapping(answer.get("response"))
    tool = closed(state, answer.get("id")) or string(answer.get("name"))
    text = plain(response.get("output")) or failure_text(response.get("error"))
    return result(tool, text, failed or "error" in response)
