"""Factory Droid: sessions in Anthropic's blocks, and the stream of `droid exec` as a dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item, facts
from indexd.formats.content import (
    RESULT_KINDS,
    TEXTS,
    HostText,
    blocks,
    call,
    closed,
    note,
    note_first,
    plain,
    result,
    said,
)
from indexd.formats.lines import Record, mapping, string, whole_object
from indexd.model import Block, Kind, SessionState

_HOST = HostText(cut="system-reminder")
_ENTRIES = frozenset({"message", "todo_state", "compaction_state"})


class Droid(Format):
    """Reads the session files of Factory's Droid."""

    agent = "droid"
    paths = re.compile(r"/\.factory/(?:sessions|projects)/")

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directories of sessions and of streams."""
        return [f"{home}/.factory/sessions", f"{home}/.factory/projects"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` opens a session of Droid, or is an entry of one."""
        what = string(record.get("type"))
        if what == "session_start":
            return "id" in record and ("cwd" in record or "owner" in record)
        if what in ("tool_call", "tool_result"):
            return "toolId" in record
        is_entry = what in _ENTRIES and (
            "role" in mapping(record.get("message")) or "todos" in record
        )
        return named and is_entry

    def sidecars(self, name: str) -> tuple[str, ...]:
        """Return the file with the session's settings."""
        return (f"{name.removesuffix('.jsonl')}.settings.json",)

    def sidecar_facts(self, data: bytes) -> dict[str, str]:
        """Return the model that the settings name."""
        return facts(model=whole_object(data).get("model"))

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that a line is, if it is one."""
        what, when = string(record.get("type")), record.get("timestamp")
        if what == "message":
            return (_message(record, when, state),)
        if what == "tool_call":
            asked = call(state, record.get("id"), record.get("toolName"), record.get("parameters"))
            return (said(state, "assistant", (asked,), when),)
        if what == "tool_result":
            tool = closed(state, record.get("id")) or string(record.get("toolName"))
            answer = result(tool, plain(record.get("value")), record.get("isError") is True)
            return (said(state, "tool", (answer,), when),)
        if what == "compaction_state":
            summary = Block(Kind.SUMMARY, plain(record.get("summary")))
            return (said(state, "system", (summary,), when),)
        if what == "session_start":
            note(state, session_id=record.get("id"), title=record.get("title"))
        else:
            state.skip(what or "record without type")
        note_first(state, cwd=record.get("cwd"), model=record.get("model"))
        return ()


def _message(record: Record, when: object, state: SessionState) -> Item:
    message = mapping(record.get("message")) or record
    role = string(message.get("role"))
    note(state, model=message.get("model"))
    content = message.get("content", message.get("text"))
    found = blocks(content, TEXTS.get(role, Kind.META), state, _HOST.blocks)
    return said(state, role, map(_told_by_words, found), when)


def _told_by_words(block: Block) -> Block:
    """Return `block`, a failure where only its first word says so."""
    if block.kind in RESULT_KINDS and block.text.startswith("Error:"):
        return block._replace(kind=Kind.TOOL_ERROR)
    return block
