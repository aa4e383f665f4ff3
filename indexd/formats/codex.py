"""Codex CLI: `{timestamp, type, payload}` per line in `~/.codex/sessions/**/rollout-*.jsonl`.

The oldest files hold bare items, without envelope and time. What a person saw is written twice,
as items and as events; the items are read, the events only where a file has no items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item
from indexd.formats.content import (
    TEXTS,
    HostText,
    blocks,
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
from indexd.formats.lines import Record, decoded, mapping, milliseconds, sequence, string
from indexd.model import Block, Kind, Message, SessionState

_HOST = HostText(
    whole=r"<(?:environment_context|user_instructions|turn_aborted|user_shell_command"
    r"|subagent_notification)>|# AGENTS\.md instructions|<EXTERNAL SESSION IMPORTED>"
)
_IDE_CONTEXT = "# Context from my IDE"
_IDE_REQUEST = re.compile(r"^## My request for Codex:?[ \t]*\n", re.MULTILINE)

# Where a run's outcome is stated: at the top of an output, above its `Output:` line.
STATUS_LINES = 10
STATUS_CHARS = 8000
_EXIT = re.compile(r"(?:Exit code: |Process exited with code )(-?\d{1,9})")
_FAILURES = (
    "apply_patch verification failed",
    "failed to parse function arguments",
    "exec command rejected",
    "Script failed",
)

_CALLS = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
})  # fmt: skip
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_ARGUMENTS = ("arguments", "input", "action")
_ENVELOPES = frozenset({
    "session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state",
    "inter_agent_communication", "ghost_snapshot", "rollout_reference", "fork_reference",
})  # fmt: skip
_TWINS = {
    "user_message": ("user", Kind.USER_TEXT, "message"),
    "agent_message": ("assistant", Kind.ASSISTANT_TEXT, "message"),
    "agent_reasoning": ("assistant", Kind.REASONING, "text"),
}


class Codex(Format):
    """Reads the rollout files of Codex CLI."""

    agent = "codex"
    paths = re.compile(r"/\.codex/|/rollout-\d{4}-[^/]*\.jsonl$")

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directories of running and of archived sessions."""
        base = environment.get("CODEX_HOME") or f"{home}/.codex"
        return [f"{base}/sessions", f"{base}/archived_sessions"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is an enveloped or a bare item of Codex."""
        what = string(record.get("type"))
        if "payload" in record:
            return what in _ENVELOPES
        if what == "message":
            parts = map(mapping, sequence(record.get("content")))
            return any(part.get("type") in ("input_text", "output_text") for part in parts)
        header = "instructions" in record and "git" in record and "id" in record
        return header or record.get("record_type") == "state" or (named and what in _CALLS)

    def is_subagent(self, path: str, state: SessionState, known: Mapping[str, str]) -> bool:
        """Say whether the session is a thread of its parent's, and no fork of it."""
        return "parent" in known and state.memory.get("meta") != "fork"

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that a line is, if it is one."""
        what, when = string(record.get("type")), record.get("timestamp")
        if "payload" not in record:
            return _bare(what, record, state)
        payload = mapping(record["payload"])
        if what == "response_item":
            return _item(payload, when, state)
        if what == "event_msg":
            return _event(payload, when, state)
        if what == "session_meta":
            _note_session(payload, state)
        elif what == "turn_context":
            note(state, model=payload.get("model"))
            note_first(state, cwd=payload.get("cwd"))
        elif what == "compacted" and payload.get("message"):
            summary = Block(Kind.SUMMARY, string(payload["message"]))
            return (said(state, "system", (summary,), when),)
        else:
            state.skip(what or "record without type")
        return ()


def _note_session(payload: Record, state: SessionState) -> None:
    """Take over the facts of the first session_meta; a fork carries its parent's after it."""
    if "meta" in state.memory:
        return
    state.memory["meta"] = "fork" if string(payload.get("forked_from_id")) else "own"
    parent = first_string(payload, "forked_from_id", "parent_thread_id")
    note(state, session_id=payload.get("id"), cwd=payload.get("cwd"), parent=parent)


def _bare(what: str, record: Record, state: SessionState) -> Iterable[Item]:
    if what:
        return _item(record, record.get("timestamp"), state)
    if "instructions" in record:
        note(state, session_id=record.get("id"))
        state.timestamp = milliseconds(record.get("timestamp")) or state.timestamp
    else:
        state.skip(string(record.get("record_type")) or "record without type")
    return ()


def _item(payload: Record, when: object, state: SessionState) -> Iterable[Item]:
    what = string(payload.get("type"))
    if what == "message":
        return (_message(payload, when, state),)
    if what in _CALLS:
        return (said(state, "assistant", (_call(what, payload, state),), when),)
    if what in _OUTPUTS:
        return (said(state, "tool", (_output(payload, state),), when),)
    text = plain(payload.get("summary")) or plain(payload.get("content"))
    if what == "reasoning" and text:
        return (said(state, "assistant", (Block(Kind.REASONING, text),), when),)
    state.skip(what or "item without type")
    return ()


def _message(payload: Record, when: object, state: SessionState) -> Message:
    state.memory["items"] = True
    role = string(payload.get("role"))
    kind = TEXTS.get(role, Kind.META)
    return said(state, role, blocks(payload.get("content"), kind, state, _typed), when)


def _typed(text: str) -> tuple[Block, ...]:
    """Return what a person typed, without what the host or an editor put before it."""
    if text.startswith(_IDE_CONTEXT) and (request := _IDE_REQUEST.search(text)):
        context = Block(Kind.META, text[: request.start()])
        return (context, Block(Kind.USER_TEXT, text[request.end() :]))
    return _HOST.blocks(text)


def _call(what: str, payload: Record, state: SessionState) -> Block:
    name = payload.get("name") or what.removesuffix("_call")
    arguments = next((payload[key] for key in _ARGUMENTS if key in payload), None)
    return call(state, payload.get("call_id"), name, arguments)


def _output(payload: Record, state: SessionState) -> Block:
    tool = closed(state, payload.get("call_id"))
    output = payload.get("output", payload.get("tools"))
    text, failed = _outcome(decoded(output) if _is_wrapped(output) else output)
    return result(tool, text, failed)


def _is_wrapped(output: object) -> bool:
    return isinstance(output, str) and output.startswith('{"output":')


def _outcome(output: object) -> tuple[str, bool]:
    """Return an output's text, and whether it tells of a failure."""
    if isinstance(output, dict):
        text = plain(output.get("output", output.get("content")))
        code = mapping(output.get("metadata")).get("exit_code")
        return text, code not in (None, 0) or output.get("success") is False
    text = plain(output)
    return text, _failed(text)


def _failed(text: str) -> bool:
    head = text[:STATUS_CHARS].partition("\nOutput:")[0].split("\n", STATUS_LINES)[:STATUS_LINES]
    for line in head:
        if code := _EXIT.match(line):
            return int(code[1]) != 0
    return any(line.startswith(_FAILURES) for line in head)


def _event(payload: Record, when: object, state: SessionState) -> Iterable[Item]:
    what = string(payload.get("type"))
    if what in _TWINS and "items" not in state.memory:
        role, kind, field = _TWINS[what]
        text = string(payload.get(field))
        found = _typed(text) if kind is Kind.USER_TEXT else (Block(kind, text),)
        return (said(state, role, found, when),)
    if what in ("error", "stream_error"):
        failure = Block(Kind.TOOL_ERROR, failure_text(payload.get("message")))
        return (said(state, "system", (failure,), when),)
    state.skip(f"event {what}")
    return ()
