"""The command that continues a session in the agent it was held with."""

from __future__ import annotations

import re

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
    "qwen": ("qwen", "--resume"),
}
# Of the agents that write as pi does, pi itself; it opens a session by its file.
_PI_SESSIONS = "/.pi/agent/sessions/"
# Where Claude Code, and Gemini, keep a sub-agent's file: below the id of the session it works for.
_WORKS_FOR = re.compile(r"/([^/]+)/subagents/|/chats/([^/]+)/[^/]+\.jsonl$")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+:@%,=")


def resume_arguments(agent: str, session_id: str, path: str) -> list[str] | None:
    """Return the command line that goes on with the session at `path`; None when none is known.

    Of a sub-agent it resumes the session that it worked for. A session id that is not plainly
    one gives none: what is printed gets pasted into a shell.
    """
    if agent == "pi":
        return ["pi", "--session", path] if _PI_SESSIONS in path and path.isprintable() else None
    command, known = COMMANDS.get(agent), _resumable_id(session_id, path)
    return [*command, known] if command and known else None


def resume_command(hit: Mapping[str, Any]) -> str:
    """Return a shell command that resumes the session of `hit`; empty when none is known.

    It goes to the project first, since most agents look for sessions there only.
    """
    words = hit.get("resume")
    if "resume" not in hit:
        path = hit.get("session_path") or ""
        words = resume_arguments(hit.get("agent") or "", hit.get("session_id") or "", path)
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


def _resumable_id(session_id: str, path: str) -> str:
    """Return the id an agent knows a session by; a sub-agent's own id is not one."""
    parent = _WORKS_FOR.search(path)
    if parent:
        session_id = parent[1] or parent[2]
    elif session_id.startswith("agent-"):
        return ""
    return session_id if _is_plain(session_id) else ""


def _is_plain(session_id: str) -> bool:
    return bool(session_id) and _PLAIN.issuperset(session_id) and session_id[0] != "-"
