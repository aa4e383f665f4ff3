"""The command that continues a session in the agent it was held with."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Only agents whose own documentation names the option.
COMMANDS = {
    "claude": "claude --resume {}",
    "codex": "codex resume {}",
    "copilot": "copilot --resume {}",
    "gemini": "gemini --resume {}",
    "kiro": "kiro-cli chat --resume-id {}",
    "qwen": "qwen --resume {}",
}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+:@%,=")


def resume_command(hit: Mapping[str, Any]) -> str:
    """Return a shell command that resumes the session of `hit`; empty when none is known.

    It goes to the project first, since most agents look for sessions there only. A session id
    that is not plainly one gives no command: what is printed here gets pasted into a shell.
    """
    command = COMMANDS.get(hit.get("agent") or "")
    session_id = hit.get("session_id") or ""
    if not command or not session_id or not _is_plain(session_id):
        return ""
    resume = command.format(session_id)
    project = hit.get("project") or ""
    if not project or not project.isprintable():
        return resume
    return f"cd {quoted(project)} && {resume}"


def quoted(word: str) -> str:
    """Return `word` as a shell takes it for one word."""
    return word if word and _PLAIN.issuperset(word) else "'" + word.replace("'", "'\"'\"'") + "'"


def _is_plain(session_id: str) -> bool:
    return _PLAIN.issuperset(session_id) and not session_id.startswith("-")
