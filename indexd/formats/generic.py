"""Any agent: one chat message per line, in OpenAI's or Anthropic's way, bare or in an envelope.

This reader comes last: it takes what no reader of a known agent recognises.
"""

from __future__ import annotations

from collections.abc import Iterable

from indexd.formats import Format, Item
from indexd.formats.content import (
    TEXTS,
    blocks,
    call,
    closed,
    first_string,
    note,
    note_first,
    plain,
    reads_as_error,
    result,
    said,
)
from indexd.formats.lines import Record, mapping, sequence, string
from indexd.model import Block, Kind, SessionState

_ROLES = frozenset(
    {"system", "developer", "user", "human", "assistant", "model", "tool", "function"}
)
_CALLS = frozenset({"function_call", "tool_call"})
_OUTPUTS = frozenset({"function_call_output", "function_call_result", "tool_result"})


class Generic(Format):
    """Reads files of one chat message per line."""

    agent = "generic"

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` has a role and content, directly or one level down."""
        message = _message(record)
        has_content = "content" in message or "tool_calls" in message
        return has_content and string(message.get("role")) in _ROLES

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that a line is, if it is one."""
        session = first_string(record, "sessionId", "session_id")
        note(state, session_id=session, model=record.get("model"))
        note_first(state, cwd=record.get("cwd"))
        message, what = _message(record), string(record.get("type"))
        when = record.get("timestamp", record.get("created_at", message.get("timestamp")))
        if isinstance(message.get("role"), str):
            role = string(message["role"])
            found = _result(message, state) if role in ("tool", "function") else ()
            return (said(state, role, found or _turn(role, message, state), when),)
        if what in _CALLS:
            asked = call(state, _call_id(record), record.get("name"), record.get("arguments"))
            return (said(state, "assistant", (asked,), when),)
        if what in _OUTPUTS:
            return (said(state, "tool", _result(record, state), when),)
        state.skip(what or "record without role")
        return ()


def _message(record: Record) -> Record:
    return record if "role" in record else mapping(record.get("message"))


def _call_id(record: Record) -> object:
    return record.get("tool_call_id", record.get("call_id", record.get("id")))


def _turn(role: str, message: Record, state: SessionState) -> list[Block]:
    kind = TEXTS.get(role, Kind.META)
    found = [Block(Kind.REASONING, string(message.get("reasoning_content")))]
    found += blocks(message.get("content"), kind, state)
    for asked in map(mapping, sequence(message.get("tool_calls"))):
        function = mapping(asked.get("function")) or asked
        found.append(call(state, asked.get("id"), function.get("name"), function.get("arguments")))
    return found


def _result(record: Record, state: SessionState) -> tuple[Block, ...]:
    text = plain(record.get("content", record.get("output")))
    tool = string(record.get("name")) or closed(state, _call_id(record))
    failed = record.get("is_error") is True or reads_as_error(text)
    return (result(tool, text, failed),)
