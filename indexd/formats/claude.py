"""Claude Code: one JSON object per line in `~/.claude/projects/<slug>/<session>.jsonl`.

A reply is several lines, one block each; every line is a message here. Sub-agents write files
of their own that carry their parent's session id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import msgspec

from indexd.formats import Format, Item
from indexd.formats.content import (
    HostText,
    blocks,
    failure_text,
    first_string,
    note,
    note_first,
    parted,
    plain,
    said,
)
from indexd.formats.lines import Record, mapping, string
from indexd.model import Block, Kind, SessionState

_HOST = HostText(
    cut="system-reminder|ide_opened_file|ide_selection|ide_diagnostics",
    whole=r"<(?:local-command-\w+|command-name|command-message|task-notification"
    r"|teammate-message|bash-(?:input|stdout|stderr)|user-prompt-submit-hook)\b"
    r"|\[Request interrupted|Caveat:",
)
_TYPES = frozenset({
    "user", "assistant", "system", "attachment", "progress", "summary", "queue-operation",
    "file-history-snapshot", "file-history-delta", "last-prompt", "ai-title", "custom-title",
    "mode", "permission-mode", "agent-name", "worktree-state", "pr-link", "relocated",
})  # fmt: skip


class _Line(TypedDict, total=False):
    """What is wanted of a line. The rest, half of the bytes, is passed over undecoded."""

    type: Any
    subtype: Any
    timestamp: Any
    sessionId: Any
    agentId: Any
    cwd: Any
    isMeta: Any
    isCompactSummary: Any
    isApiErrorMessage: Any
    message: Any
    attachment: Any
    content: Any
    error: Any
    summary: Any
    aiTitle: Any
    customTitle: Any


class Claude(Format):
    """Reads the session files of Claude Code."""

    decode = staticmethod(msgspec.json.Decoder(_Line).decode)
    agent = "claude"
    paths = re.compile(r"/\.?claude/projects/|/agent-[0-9a-f]+\.jsonl$")

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the projects directories of both places Claude Code is known to use."""
        if configured := environment.get("CLAUDE_CONFIG_DIR"):
            return [f"{configured}/projects"]
        xdg = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
        return [f"{home}/.claude/projects", f"{xdg}/claude/projects"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` has the envelope of Claude Code."""
        if string(record.get("type")) not in _TYPES:
            return False
        if "sessionId" in record:
            return "parts" not in mapping(record.get("message")) and "id" not in record
        return "leafUuid" in record or "snapshot" in record or "trackedFileBackups" in record

    def is_subagent(self, path: str, state: SessionState, known: Mapping[str, str]) -> bool:
        """Say whether the lines name the sub-agent that they are of."""
        return "parent" in known

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that a line is, if it is one."""
        what = string(record.get("type"))
        when = record.get("timestamp")
        if what == "assistant":
            return (said(state, what, _assistant(record, state), when),)
        if what == "user":
            return (said(state, what, _user(record, state), when),)
        found = _aside(what, record, state)
        role = "user" if what == "attachment" else "system"
        return (said(state, role, found, when),) if found else ()


def _assistant(record: Record, state: SessionState) -> list[Block]:
    _note_session(record, state)
    message = mapping(record.get("message"))
    if message.get("model") != "<synthetic>":
        note(state, model=message.get("model"))
    if record.get("isApiErrorMessage"):
        return [Block(Kind.TOOL_ERROR, plain(message.get("content")))]
    return blocks(message.get("content"), Kind.ASSISTANT_TEXT, state)


def _user(record: Record, state: SessionState) -> list[Block]:
    _note_session(record, state)
    content = mapping(record.get("message")).get("content")
    if record.get("isCompactSummary"):
        return [Block(Kind.SUMMARY, plain(content))]
    kind = Kind.META if record.get("isMeta") else Kind.USER_TEXT
    return blocks(content, kind, state, _typed)


def _typed(text: str) -> tuple[Block, ...]:
    found = _HOST.blocks(text)
    arguments = parted(text, "command-args")
    return (*found, Block(Kind.USER_TEXT, arguments[0])) if arguments else found


def _aside(what: str, record: Record, state: SessionState) -> list[Block]:
    """Return the blocks of a line that is neither the user's nor the assistant's turn."""
    if what == "attachment":
        return _attachment(mapping(record.get("attachment")), state)
    if what == "system":
        return _system(record, state)
    if what == "summary":
        return [Block(Kind.SUMMARY, string(record.get("summary")))]
    if what == "custom-title":
        note(state, title=record.get("customTitle"))
        state.memory["titled"] = True
    elif what == "ai-title" and "titled" not in state.memory:
        note(state, title=record.get("aiTitle"))
    else:
        state.skip(what or "record without type")
    return []


def _attachment(attachment: Record, state: SessionState) -> list[Block]:
    what = string(attachment.get("type"))
    if what == "queued_command":
        return blocks(attachment.get("prompt"), Kind.USER_TEXT, state, _typed)
    if what == "hook_blocking_error":
        reason = mapping(attachment.get("blockingError")).get("blockingError")
        return [
            Block(Kind.TOOL_ERROR, string(reason) or first_string(attachment, "content", "stderr"))
        ]
    state.skip(f"attachment {what}")
    return []


def _system(record: Record, state: SessionState) -> list[Block]:
    what = string(record.get("subtype"))
    if what == "api_error":
        text = failure_text(record.get("error")) or string(record.get("content"))
        return [Block(Kind.TOOL_ERROR, text)]
    if what in ("local_command", "informational"):
        return [Block(Kind.META, string(record.get("content")))]
    state.skip(f"system {what}")
    return []


def _note_session(record: Record, state: SessionState) -> None:
    session, agent = record.get("sessionId"), string(record.get("agentId"))
    if agent:
        note_first(state, session_id=f"agent-{agent}", parent=session)
    note_first(state, session_id=session, cwd=record.get("cwd"))
