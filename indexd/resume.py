"""The command that continues a session in the agent it was held with."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# What goes before the session's id. Only agents whose own documentation names the option.
COMMANDS = {
    "claude": ("claude", "--resume"),
    "codex": ("codex", "resume"),
    "copilot": ("copilot", "--resume"),
    "cursor": ("cursor-agent", "--resume"),
    "droid": ("droid", "--resume"),
    "gemini": ("gemini", "--resume"),
    "kiro": ("kiro-cli", "chat", "--resume-id"),
    "pi": ("pi", "--session"),
    "qwen": ("qwen", "--resume"),
}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+:@%,=")


def resume_arguments(agent: str, session_id: str) -> list[str] | None:
    """Return the command line that goes on with a session; None when none is known.

    A session id that is not plainly one gives none: what is printed gets pasted into a shell.
    """
    command = COMMANDS.get(agent)
    if command is None or not session_id or not _is_plain(session_id):
        return None
    return [*command, session_id]


def resume_command(hit: Mapping[str, Any]) -> str:
    """Return a shell command that resumes the session of `hit`; empty when none is known.

    It goes to the project first, since most agents look for sessions there only.
    """
    words = hit.get("resume")
    if "resume" not in hit:
        words = resume_arguments(hit.get("agent") or "", hit.get("session_id") or "")
    if not words:
        return ""
    resume = " ".join(map(quoted, words))
    project = hit.get("project") or ""
    if not project or not project.isprintable():
        return resume
    return f"cd {quoted(project)} && {resume}"


def quoted(word: str) -> str:
    """Return `word` as a shell takes it for one word."""
    return word if word and _PLAIN.issuperset(word) else "'" + word.replace("'", "'\"'\"'") + "'"


def _is_plain(session_id: str) -> bool:
    return _PLAIN.issuperset(session_id) and not session_id.startswith("-")
