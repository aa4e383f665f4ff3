"""Sessions as people read them: the list, and one as text or Markdown. Pure text, no output."""

from __future__ import annotations

import re

from indexd.render import message_lines, shortened
from indexd.resume import resume_command
from indexd.terminal import MAX_TEXT_COLUMNS, fitted, visible
from indexd.when import exact, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from indexd.terminal import Terminal

    Answer = dict[str, Any]

INDENT = "   "
_BACKTICKS = re.compile("`{3,}")


def sessions(answer: Answer, offset: int, term: Terminal, now: float) -> str:
    """Return the list of sessions, numbered from `offset` + 1; `now` is in unix seconds."""
    columns = min(term.columns, MAX_TEXT_COLUMNS)
    found = answer["sessions"]
    heads = [_head(session, now) for session in found]
    widths = [max(map(len, column)) for column in zip(*heads, strict=True)]
    parts = []
    for number, (session, head) in enumerate(zip(found, heads, strict=True), offset + 1):
        padded = "  ".join(cell.ljust(wide) for cell, wide in zip(head, widths, strict=True))
        rank = term.paint(str(number).rjust(len(str(offset + len(found)))), "bold")
        parts.append(f"{rank} {fitted(padded.rstrip(), columns - 4)}")
        words = visible(session.get("title") or session.get("first_words") or "")
        if words:
            parts.append(INDENT + fitted(words, columns - len(INDENT)))
    last = offset + len(found)
    parts += ["", f"Sessions {offset + 1} to {last} of {answer['total']:,}."]
    steps = [f"indexctl show {offset + 1}", resume_command(found[0])]
    return "\n".join([*parts, *("  " + term.paint(s, "name") for s in steps if s)]) + "\n"


def heading(answer: Answer, home: str, *, markdown: bool, term: Terminal) -> str:
    """Return what stands above a session: its title, where and when it was held."""
    session = answer["session"]
    title = _title(session)
    facts = [
        shortened(session["session_path"], home),
        " ".join(visible(str(session.get(n) or "")) for n in ("agent", "model")).strip(),
        shortened(session.get("project") or "", home),
        _span(session),
        f"{answer['length']:,} messages",
        visible(resume_command(session)),
    ]
    known = [fact for fact in facts if fact]
    if markdown:
        return "\n".join([f"# {title}", "", *(f"- {fact}" for fact in known)]) + "\n"
    return "\n".join([term.paint(title, "bold"), *(term.paint(f, "dim") for f in known)]) + "\n"


def page(answer: Answer, *, markdown: bool, term: Terminal) -> str:
    """Return one page of a session's messages."""
    parts: list[str] = []
    for message in answer["messages"]:
        parts += ["", *(_markdown(message) if markdown else message_lines(message, None, term))]
    return "\n".join(parts) + "\n" if parts else ""


def _head(session: Answer, now: float) -> list[str]:
    """Return the cells of a session's first line: when, agent, project, size, id."""
    project = (session.get("project") or "").rstrip("/").rpartition("/")[2]
    return [
        relative(session.get("updated"), now),
        visible(session["agent"]) + (" sub-agent" if session.get("subagent") else ""),
        fitted(visible(project) or "-", 18),
        f"{session['messages']:,} messages",
        _bytes(session["size"]),
        visible(session.get("session_id") or "-")[:8],
    ]


def _title(session: Answer) -> str:
    return visible(session.get("title") or f"Session {session.get('session_id') or ''}".strip())


def _span(session: Answer) -> str:
    started, updated = exact(session.get("started")), exact(session.get("updated"))
    return f"{started} to {updated}" if started and started != updated else updated


def _bytes(size: int) -> str:
    for unit, name in ((1_000_000, "MB"), (1_000, "KB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def _markdown(message: Answer) -> list[str]:
    """Return a message as Markdown: what was said as it is, calls and results as blocks."""
    tool = visible(message.get("tool_name") or "")
    when = exact(message.get("timestamp"))
    role = visible(message.get("role") or "")
    head = " ".join(filter(None, ["##", str(message["index"]), role, f"`{tool}`" if tool else ""]))
    lines = [f"{head} ({when})" if when else head]
    text = message.get("text") or ""
    if text.strip():
        lines += ["", *(_fenced(text) if tool or role == "tool" else _plain(text))]
    for call in message.get("tool_calls") or ():
        lines += ["", f"Calls `{visible(call.get('name') or '')}`:", ""]
        lines += _fenced(str(call.get("arguments") or ""))
    if message.get("reasoning"):
        lines += ["", "Reasoning:", "", *(f"> {line}" for line in _plain(message["reasoning"]))]
    return lines


def _plain(text: str) -> list[str]:
    return [visible(line.expandtabs(4)) for line in text.strip("\r\n").split("\n")]


def _fenced(text: str) -> list[str]:
    """Return `text` as a code block, whose fence is longer than any in the text."""
    longest = max((len(run[0]) for run in _BACKTICKS.finditer(text)), default=2)
    fence = "`" * (longest + 1)
    return [fence, *_plain(text), fence]
