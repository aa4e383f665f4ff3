"""GitHub Copilot CLI: events in `~/.copilot/session-state/<session>/events.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item, facts
from indexd.formats.content import (
    call,
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

_EVENTS = re.compile(
    r"(?:session|user|assistant|tool|system|hook|permission|subagent|skill|model)\.\w+|abort"
)
_WORKSPACE_LINE = re.compile(r"^(\w+):(.*)$", re.MULTILINE)
_CALLS = frozenset({"tool.execution_start", "tool.user_requested"})
_META = frozenset({"session.info", "session.warning", "system.notification"})
# Where each of the events with one text keeps it, and what it is.
_SUMMARIES = {"session.compaction_complete": "summaryContent", "session.task_complete": "summary"}
_FACTS = frozenset({
    "session.start", "session.resume", "session.context_changed", "session.model_change",
    "session.auto_mode_resolved",
})  # fmt: skip


class Copilot(Format):
    """Reads the event files of GitHub Copilot CLI."""

    agent = "copilot"
    paths = re.compile(r"/\.copilot/(?:history-)?session-state/")
    left_out = frozenset({b"system.message", b"hook.start", b"hook.end", b"session.shutdown"})

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directories of sessions, present and of older versions."""
        base = environment.get("COPILOT_HOME") or f"{home}/.copilot"
        return [f"{base}/session-state", f"{base}/history-session-state"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is an event of Copilot CLI."""
        what = record.get("type")
        is_event = isinstance(what, str) and _EVENTS.fullmatch(what) is not None
        return is_event and isinstance(record.get("data"), dict) and "id" in record

    def sidecars(self, name: str) -> tuple[str, ...]:
        """Return the file that describes the workspace."""
        return ("workspace.yaml",)

    def sidecar_facts(self, data: bytes) -> dict[str, str]:
        """Return the facts among the plain `key: value` lines of a workspace file."""
        lines = dict(_WORKSPACE_LINE.findall(data.decode("utf-8", "replace")))
        values = {key: value.strip().strip("'\"") for key, value in lines.items()}
        return facts(
            session_id=values.get("id"),
            cwd=values.get("cwd"),
            title=values.get("name") or values.get("summary"),
        )

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that an event is, if it is one."""
        what, data = string(record.get("type")), mapping(record.get("data"))
        role, found = _blocks(what, data, state)
        if found:
            return (said(state, role, found, record.get("timestamp")),)
        if what in _FACTS:
            _note(data, state)
        else:
            state.skip(what or "event without type")
        return ()


def _blocks(what: str, data: Record, state: SessionState) -> tuple[str, list[Block]]:
    """Return who speaks in an event, and what is said; nothing for most events."""
    if what == "user.message":
        typed = string(data.get("source")).startswith("skill-")
        kind = Kind.META if typed else Kind.USER_TEXT
        return "user", [Block(kind, plain(data.get("content")))]
    if what == "assistant.message":
        return "assistant", _assistant(data, state)
    if what == "assistant.reasoning":
        return "assistant", [Block(Kind.REASONING, plain(data.get("content")))]
    if what in _CALLS:
        asked = (data.get("toolCallId"), data.get("toolName"), data.get("arguments"))
        return "assistant", [call(state, *asked)]
    if what == "tool.execution_complete":
        return "tool", [_result(data, state)]
    if what in _SUMMARIES:
        return "system", [Block(Kind.SUMMARY, plain(data.get(_SUMMARIES[what])))]
    if what == "session.error":
        return "system", [Block(Kind.TOOL_ERROR, failure_text(data.get("message")))]
    if what in _META:
        return "system", [Block(Kind.META, first_string(data, "message", "content"))]
    return "", []


def _assistant(data: Record, state: SessionState) -> list[Block]:
    note(state, model=data.get("model"))
    reasoning = Block(Kind.REASONING, string(data.get("reasoningText")))
    return [reasoning, Block(Kind.ASSISTANT_TEXT, plain(data.get("content")))]


def _result(data: Record, state: SessionState) -> Block:
    tool = closed(state, data.get("toolCallId")) or string(data.get("toolName"))
    answer = mapping(data.get("result"))
    text = first_string(answer, "detailedContent", "content") or failure_text(data.get("error"))
    return result(tool, text, data.get("success") is False)


def _note(data: Record, state: SessionState) -> None:
    context = mapping(data.get("context"))
    note(state, session_id=data.get("sessionId"))
    note_first(state, cwd=context.get("cwd") or data.get("cwd"))
    model = first_string(data, "newModel", "chosenModel", "selectedModel")
    if model != "auto":
        note(state, model=model)
