"""pi and its kin (OpenClaw, Oh-my-pi, Prime): a header, then entries of a tree, one per line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item
from indexd.formats.content import (
    blocks,
    closed,
    failure_text,
    first_string,
    note,
    note_first,
    plain,
    result,
    said,
)
from indexd.formats.lines import Record, mapping, string
from indexd.model import Block, Kind, SessionState

_ENTRIES = frozenset({
    "message", "compaction", "branch_summary", "session_info", "model_change",
    "thinking_level_change", "custom", "custom_message", "label", "leaf",
})  # fmt: skip
_SUMMARIES = frozenset({"branchSummary", "compactionSummary"})


class Pi(Format):
    """Reads the session files of pi, OpenClaw, Oh-my-pi and Prime."""

    agent = "pi"
    paths = re.compile(r"/\.(?:pi|omp|prime)/agent/|/\.openclaw/agents/")

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the session directories of pi and of its kin."""
        base = environment.get("PI_CODING_AGENT_DIR") or f"{home}/.pi/agent"
        return [
            environment.get("PI_CODING_AGENT_SESSION_DIR") or f"{base}/sessions",
            f"{home}/.openclaw/agents",
            f"{home}/.omp/agent/sessions",
            f"{home}/.prime/agent/sessions",
        ]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is pi's header, or an entry of its tree."""
        if record.get("type") == "session":
            return "id" in record and "timestamp" in record and "data" not in record
        is_entry = string(record.get("type")) in _ENTRIES and "id" in record
        role = mapping(record.get("message")).get("role")
        return is_entry and (named or role == "toolResult" or "modelId" in record)

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that an entry is, if it is one."""
        what, when = string(record.get("type")), record.get("timestamp")
        if what == "message":
            return _message(mapping(record.get("message")), when, state)
        if what in ("compaction", "branch_summary"):
            return (
                said(state, "system", (Block(Kind.SUMMARY, plain(record.get("summary"))),), when),
            )
        if what == "custom_message":
            return (said(state, "system", (Block(Kind.META, plain(record.get("content"))),), when),)
        if what == "session":
            note(state, session_id=record.get("id"), parent=record.get("parentSession"))
            note_first(state, cwd=record.get("cwd"))
        elif what == "session_info":
            note(state, title=record.get("name"))
        elif what == "model_change":
            note(state, model=record.get("modelId"))
        else:
            state.skip(what or "record without type")
        return ()


def _message(message: Record, when: object, state: SessionState) -> Iterable[Item]:
    role, content = string(message.get("role")), message.get("content")
    when = when or message.get("timestamp")
    if role == "user":
        return (said(state, role, blocks(content, Kind.USER_TEXT, state), when),)
    if role == "assistant":
        return (said(state, role, _assistant(message, state), when),)
    if role == "toolResult":
        tool = string(message.get("toolName")) or closed(state, message.get("toolCallId"))
        answer = result(tool, plain(content), message.get("isError") is True)
        closed(state, message.get("toolCallId"))
        return (said(state, "tool", (answer,), when),)
    if role == "bashExecution":
        return (said(state, "user", _shell(message), when),)
    kind = Kind.SUMMARY if role in _SUMMARIES else Kind.META
    text = plain(content) or first_string(message, "summary", "text")
    return (said(state, role, (Block(kind, text),), when),)


def _assistant(message: Record, state: SessionState) -> list[Block]:
    note(state, model=message.get("model"))
    found = blocks(message.get("content"), Kind.ASSISTANT_TEXT, state)
    if failure := failure_text(message.get("errorMessage")):
        found.append(Block(Kind.TOOL_ERROR, failure))
    return found


def _shell(message: Record) -> Iterable[Block]:
    """Return the command that a person ran, and what it printed."""
    failed = message.get("exitCode") not in (None, 0)
    return (
        Block(Kind.TOOL_INPUT, "", "bash", {"command": message.get("command")}),
        result("bash", plain(message.get("output")), failed),
    )
