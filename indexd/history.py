"""The text that answers an agent's `history` call.

Agents were taught this wording by an earlier tool and match on it, so every byte of the frame is
part of the contract. What the call may hold is checked with every other request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_TEXT_CHARS = 2_000
MAX_ASIDE_CHARS = 1_200
CUT = "..."

NEXT_STEP = 'Use operation="around" with a session_path and message_index to read nearby messages.'
NOTHING = "No saved session history matched "
NOTHING_FOUND = f"""\
{NOTHING}{{query}}.

Finding nothing does not mean that it was never said. Try:
1. Fewer and rarer words: a function's name, a command, part of an error message, a ticket id.
2. scope="global", which looks beyond this project.
3. kind=["tool_output"] for what tools printed, or tool_name for one tool's calls and errors."""

# Go's JSON, which wrote these texts first, keeps them safe inside HTML.
_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def search_text(query: str, hits: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer to `operation="search"`: the ranked `hits` of a search for `query`."""
    if not hits:
        return NOTHING_FOUND.format(query=quoted(query))
    found = (_hit(rank, hit) for rank, hit in enumerate(hits, start=1))
    return "\n\n".join([f"History search results for {quoted(query)}:", *found, NEXT_STEP])


def found_nothing(text: str) -> bool:
    """Say whether `text` is the answer to a search that found nothing."""
    return text.startswith(NOTHING)


def around_text(path: str, index: int, messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer to `operation="around"`: `messages` as an `around` answer holds them.

    Texts are cut here, so whole ones (`full`) may be given; those cut before stay as they are.
    """
    title = f"History around {path} message_index={index}:"
    return "\n\n".join([title, *map(_message, messages)]).strip()


def quoted(text: str) -> str:
    """Return `text` as a JSON string with HTML's special characters escaped."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.dumps(whole, ensure_ascii=False).translate(_HTML)


def _hit(rank: int, hit: Mapping[str, Any]) -> str:
    tool = f" tool={hit['tool_name']}" if hit.get("tool_name") else ""
    return (
        f"{rank}. score={hit['score']:.3f} source={hit['source']} session_id={hit['session_id']}"
        f" message_index={hit['message_index']} kind={hit['kind']} role={hit['role']}{tool}\n"
        f"   session_path: {hit['session_path']}\n"
        f"   snippet: {hit['snippet']}"
    )


def _message(message: Mapping[str, Any]) -> str:
    role = message["role"]
    name = f"tool {message.get('tool_name') or ''} result" if role == "tool" else role
    limit = MAX_ASIDE_CHARS if role == "system" else MAX_TEXT_CHARS
    truncated = bool(message.get("truncated"))
    parts = [f"[{message['index']} {name}]", _cut(message.get("text") or "", limit, truncated)]
    for call in message.get("tool_calls") or ():
        parts.append(f"[tool call: {call['name']}]")
        parts.append(_cut(_arguments(call.get("arguments")), MAX_ASIDE_CHARS, truncated))
    return "\n".join(part for part in parts if part)


def _cut(text: str, limit: int, truncated: bool) -> str:
    """Return `text` within `limit`, dotted if it is cut here or, being full, was cut before."""
    text = text.strip()
    cut = len(text) > limit or (truncated and len(text) == limit)
    return text[:limit] + CUT if cut else text


def _arguments(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
