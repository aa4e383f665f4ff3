"""Kiro CLI: `{version, kind, data}` per line (v2), `{timestamp, payload}` per line (v3).

The facts about a session stand in a JSON file beside it. In v2 only prompts have a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item, facts
from indexd.formats.content import call, closed, parted, plain, result, said
from indexd.formats.lines import Record, mapping, sequence, string, whole_object
from indexd.model import Block, Kind, Message, SessionState

_KINDS = frozenset({
    "Prompt", "AssistantMessage", "ToolResults", "Compaction", "Clear", "ResetTo",
    "CancelledPrompt",
})  # fmt: skip
_PAYLOADS = frozenset({
    "turn_start", "user", "assistant", "tool_call", "tool_result", "turn_end", "usage_summary",
})  # fmt: skip
_EXIT_STATUS = re.compile(r"exit status: (-?\d{1,9})")


class Kiro(Format):
    """Reads the session files of Kiro CLI, versions 2 and 3."""

    agent = "kiro"
    paths = re.compile(r"/\.kiro/sessions/")

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directory that holds the sessions of both versions."""
        return [f"{environment.get('KIRO_HOME') or f'{home}/.kiro'}/sessions"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is an entry of a Kiro session."""
        if "payload" in record:
            return (
                "type" not in record and string(mapping(record["payload"]).get("type")) in _PAYLOADS
            )
        return string(record.get("kind")) in _KINDS and "version" in record

    def sidecars(self, name: str) -> tuple[str, ...]:
        """Return the file with the facts: of this session (v2), of this directory (v3)."""
        return (f"{name.removesuffix('.jsonl')}.json", "session.json")

    def sidecar_facts(self, data: bytes) -> dict[str, str]:
        """Return what a session's JSON file states."""
        record = whole_object(data)
        state = mapping(mapping(record.get("session_state")).get("rts_model_state"))
        return facts(
            session_id=record.get("session_id"),
            cwd=record.get("cwd"),
            title=record.get("title"),
            parent=record.get("parent_session_id"),
            model=mapping(state.get("model_info")).get("model_id") or record.get("modelId"),
        )

    def is_subagent(self, path: str, state: SessionState, known: Mapping[str, str]) -> bool:
        """Say whether another session began this one."""
        return "parent" in known

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that a line is, if it is one."""
        if "payload" in record:
            return _entry(mapping(record["payload"]), record.get("timestamp"), state)
        kind, data = string(record.get("kind")), mapping(record.get("data"))
        if kind == "Prompt":
            return (_prompt(data, state),)
        if kind == "AssistantMessage":
            return (said(state, "assistant", _parts(data, Kind.ASSISTANT_TEXT, state)),)
        if kind == "ToolResults":
            return (said(state, "tool", _parts(data, Kind.USER_TEXT, state)),)
        if kind == "Compaction":
            return (said(state, "system", (Block(Kind.SUMMARY, string(data.get("summary"))),)),)
        state.skip(kind or "record without kind")
        return ()


def _prompt(data: Record, state: SessionState) -> Message:
    meta = mapping(data.get("meta"))
    found = _parts(data, Kind.USER_TEXT, state)
    if added := plain(meta.get("additionalContext")):
        found.append(Block(Kind.META, added))
    return said(state, "user", found, meta.get("timestamp"))


def _parts(data: Record, kind: Kind, state: SessionState) -> list[Block]:
    found: list[Block] = []
    for part in map(mapping, sequence(data.get("content"))):
        what, inner = string(part.get("kind")), part.get("data")
        if what == "text":
            found += (
                _typed(string(inner)) if kind is Kind.USER_TEXT else (Block(kind, string(inner)),)
            )
        elif what == "toolUse":
            use = mapping(inner)
            found.append(call(state, use.get("toolUseId"), use.get("name"), use.get("input")))
        elif what == "toolResult":
            found.append(_result(mapping(inner), state))
        elif what == "thinking":
            found.append(Block(Kind.REASONING, string(mapping(inner).get("text"))))
        else:
            state.skip(f"block {what or 'without kind'}")
    return found


def _typed(text: str) -> tuple[Block, ...]:
    """Return what a person typed; words typed while the agent worked come wrapped."""
    steering = parted(text, "user_message")
    return (Block(Kind.USER_TEXT, steering[0] if steering else text),)


def _result(data: Record, state: SessionState) -> Block:
    texts, failed = [], data.get("status") not in (None, "success")
    for part in map(mapping, sequence(data.get("content"))):
        inner = part.get("data")
        if isinstance(inner, dict) and "exit_status" in inner:
            texts += [string(inner.get(name)) for name in ("exit_status", "stdout", "stderr")]
            failed = failed or _exit_code(string(inner["exit_status"])) != 0
        else:
            texts.append(inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False))
    text = "\n".join(filter(None, texts))
    return result(closed(state, data.get("toolUseId")), text, failed)


def _exit_code(status: str) -> int:
    code = _EXIT_STATUS.match(status)
    return int(code[1]) if code else 0


def _entry(payload: Record, when: object, state: SessionState) -> Iterable[Item]:
    """Return the message of a version 3 entry."""
    what, text = string(payload.get("type")), plain(payload.get("content"))
    if what == "user":
        found = Block(Kind.USER_TEXT, text)
    elif what == "assistant":
        found = Block(Kind.ASSISTANT_TEXT, text)
    elif what == "tool_call":
        arguments = payload.get("args", payload.get("input"))
        found = call(state, payload.get("toolCallId"), payload.get("name"), arguments)
    elif what == "tool_result":
        failed = payload.get("isError") is True or payload.get("status") == "error"
        tool = closed(state, payload.get("toolCallId")) or string(payload.get("name"))
        found = result(tool, text, failed)
    else:
        state.skip(what or "payload without type")
        return ()
    role = {"tool_call": "assistant", "tool_result": "tool"}.get(what, what)
    return (said(state, role, (found,), when),)
