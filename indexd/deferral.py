"""Which tools stay out of a model's context until they are asked for.

Above a share of the context window, or a number of tokens, only a line per tool is shown; a
tool that a session has searched for is shown to it whole from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from indexd.tool import TOKEN_BYTES, Tool, first_sentence

DESCRIPTION_BYTES = 1024
SENTENCE_CHARS = 120
MAX_SESSIONS = 1000

Record = tuple[int, Sequence[str]]


class DeferralSettings(NamedTuple):
    """When tool search is on: above `min_pct` percent of the window, or above `min_tokens`."""

    enabled: bool = True
    min_pct: float = 5
    min_tokens: int = 50_000


def is_active(settings: DeferralSettings, tokens_all: int, context_window: int | None) -> bool:
    """Say whether tools are deferred; `context_window` in tokens, None when unknown."""
    if not settings.enabled or tokens_all <= 0:
        return False
    if not settings.min_pct and not settings.min_tokens:
        return True
    share = settings.min_pct / 100 * context_window if context_window else None
    return tokens_all > settings.min_tokens or (share is not None and tokens_all > share)


def deferred_lines(tools: Sequence[Tool], budget: int | None = None) -> list[str]:
    """Return a line `server::tool: description` per tool, descriptions cut to 1 KiB.

    With a `budget` in tokens the lines are shortened to fit it: to the first sentence, then
    to the bare ids, whichever is the first that fits; the ids are always all there.
    """
    lines = [_line(tool, _cut(tool.description)) for tool in tools]
    if budget is None or _tokens(lines) <= budget:
        return lines
    short = [_line(tool, first_sentence(tool.description, SENTENCE_CHARS)) for tool in tools]
    return short if _tokens(short) <= budget else [tool.id for tool in tools]


def tool_list(
    tools: Iterable[Tool],
    activated: Iterable[str],
    settings: DeferralSettings,
    context_window: int | None = None,
    budget: int | None = None,
) -> dict[str, Any]:
    """Return `active tokens_all tokens_now deferred loaded` for one session.

    `loaded` are the full definitions of the session's activated tools; `tokens_now` is what
    the model is shown: everything when not active, else the lines and the loaded tools.
    """
    tools = list(tools)
    tokens_all = sum(tool.tokens for tool in tools)
    active = is_active(settings, tokens_all, context_window)
    chosen = set(activated)
    loaded = [tool for tool in tools if tool.id in chosen]
    waiting = [tool for tool in tools if tool.id not in chosen] if active else []
    lines = deferred_lines(waiting, budget)
    shown = _tokens(lines) + sum(tool.tokens for tool in loaded)
    return {
        "active": active,
        "tokens_all": tokens_all,
        "tokens_now": shown if active else tokens_all,
        "deferred": lines,
        "loaded": [_definition(tool) for tool in loaded],
    }


class Activations:
    """The tools each session has activated, in order; the sessions used last are kept.

    A session's record is when it was used last, counted in uses, and its tools' ids.
    """

    def __init__(self, records: Mapping[str, Record] | None = None) -> None:
        kept = sorted((records or {}).items(), key=lambda item: item[1][0])
        self._sessions = {session: dict.fromkeys(ids) for session, (_, ids) in kept}
        self._used = {session: used for session, (used, _) in kept}
        self._uses = max(self._used.values(), default=0)
        self._changed: set[str] = set()

    def of(self, session: str | None) -> list[str]:
        """Return the ids that `session` has activated, in the order it did."""
        return list(self._sessions.get(session or "", ()))

    def activate(self, session: str, ids: Iterable[str]) -> list[str]:
        """Activate `ids` for `session` and return those that were not active before."""
        active = self._sessions.pop(session, {})
        new = [id for id in dict.fromkeys(ids) if id not in active]
        active.update(dict.fromkeys(new))
        self._sessions[session] = active
        self._uses += 1
        self._used[session] = self._uses
        self._changed.add(session)
        while len(self._sessions) > MAX_SESSIONS:
            self._forget(next(iter(self._sessions)))
        return new

    def drop(self, ids: Iterable[str]) -> None:
        """Forget tools that are gone, in every session."""
        gone = set(ids)
        for session, active in self._sessions.items():
            for id in gone.intersection(active):
                del active[id]
                self._changed.add(session)

    def changes(self) -> dict[str, Record | None]:
        """Return the records that are other than at the last call; None of a session without tools.

        The constructor takes back the latest of each.
        """
        changed, self._changed = self._changed, set()
        return {
            session: (self._used[session], ids) if (ids := self.of(session)) else None
            for session in changed
        }

    def _forget(self, session: str) -> None:
        del self._sessions[session], self._used[session]
        self._changed.add(session)


def _definition(tool: Tool) -> dict[str, Any]:
    return {
        "tool_id": tool.id,
        "server_name": tool.server,
        "tool_name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema(),
    }


def _line(tool: Tool, description: str) -> str:
    return f"{tool.id}: {description}" if description else tool.id


def _cut(description: str) -> str:
    """Return `description` on one line, at most 1 KiB of it, in whole characters."""
    text = " ".join(description.split())
    return text.encode()[:DESCRIPTION_BYTES].decode("utf-8", "ignore")


def _tokens(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) for line in lines) // TOKEN_BYTES
