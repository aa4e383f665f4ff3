"""Sessions as agents write them, from a few words each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple


class Said(NamedTuple):
    """One message: `what` is user, assistant, call, output, error, summary or note."""

    what: str
    text: str
    time: int = 0
    tool: str = "Bash"


def iso(time: int) -> str:
    """Return unix milliseconds as agents write them."""
    return datetime.fromtimestamp(time / 1000, UTC).isoformat().replace("+00:00", "Z")


def claude(
    path: str,
    said: Iterable[Said],
    *,
    session: str,
    cwd: str = "/src/app",
    subagent: str = "",
    title: str = "",
) -> None:
    """Write a session of Claude Code."""
    lines: list[dict[str, Any]] = [{"type": "ai-title", "aiTitle": title}] if title else []
    lines += [_claude(one) for one in said]
    common = {"sessionId": session, "cwd": cwd} | ({"agentId": subagent} if subagent else {})
    _write(path, [common | line for line in lines])


def codex(
    path: str, said: Iterable[Said], *, session: str, cwd: str = "/src/app", **meta: str
) -> None:
    """Write a session of Codex; `meta` goes into its header."""
    lines: list[dict[str, Any]] = [
        {"type": "session_meta", "payload": {"id": session, "cwd": cwd, **meta}}
    ]
    for one in said:
        lines.append({"timestamp": iso(one.time), "type": "response_item", "payload": _codex(one)})
    _write(path, lines)


def chat(path: str, said: Iterable[Said]) -> None:
    """Write plain chat messages, which have no times and name no directory."""
    _write(path, [_chat(one) for one in said])


def _claude(one: Said) -> dict[str, Any]:
    when = {"timestamp": iso(one.time)} if one.time else {}
    role = "assistant" if one.what in ("assistant", "call") else "user"
    content: Any = one.text
    if one.what == "call":
        use = {"type": "tool_use", "id": f"t{one.time}", "name": one.tool}
        content = [use | {"input": {"command": one.text}}]
    elif one.what in ("output", "error"):
        result = {"type": "tool_result", "tool_use_id": f"t{one.time}", "content": one.text}
        content = [result | {"is_error": one.what == "error"}]
    elif one.what == "assistant":
        content = [{"type": "text", "text": one.text}]
    line = when | {"type": role, "message": {"role": role, "content": content}}
    if one.what == "summary":
        line["isCompactSummary"] = True
    elif one.what == "note":
        line["isMeta"] = True
    return line


def _codex(one: Said) -> dict[str, Any]:
    call_id = f"t{one.time}"
    if one.what == "call":
        arguments = json.dumps({"command": one.text})
        return {
            "type": "function_call", "name": one.tool, "call_id": call_id, "arguments": arguments
        }  # fmt: skip
    if one.what in ("output", "error"):
        return {"type": "function_call_output", "call_id": call_id, "output": one.text}
    text = {"type": "input_text" if one.what == "user" else "output_text", "text": one.text}
    role = one.what if one.what in ("user", "assistant") else "developer"
    return {"type": "message", "role": role, "content": [text]}


def _chat(one: Said) -> dict[str, Any]:
    if one.what == "call":
        function = {"name": one.tool, "arguments": json.dumps({"command": one.text})}
        calls = [{"id": f"t{one.time}", "type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}
    if one.what in ("output", "error"):
        text = f"error: {one.text}" if one.what == "error" else one.text
        return {"role": "tool", "tool_call_id": f"t{one.time}", "content": text}
    return {"role": one.what, "content": one.text}


def _write(path: str, lines: Iterable[dict[str, Any]]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
