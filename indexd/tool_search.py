"""Tool search whole: events in, the right tools out. Pure; the caller keeps what it must."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from indexd.catalog import Catalog, Change
from indexd.deferral import Activations, DeferralSettings, tool_list
from indexd.errors import BadRequest, NotFound
from indexd.tool import Tool, first_sentence, signature
from indexd.tool_library import Restored, State, ToolLibrary, Update
from indexd.tool_query import Slot
from indexd.tool_ranking import Ranked

# What an exact id or name scores: the largest 32-bit float, as Kiro's clients expect it.
EXACT_SCORE = 3.4028234663852886e38
MAX_RESULTS = 100
# Shares of a question's weight that a tool must speak of: below the first it is no answer,
# and when no tool reaches the second, the best is a guess and called one.
MIN_COVERAGE = 0.12
GUESS_COVERAGE = 0.25
DETAILS = ("signature", "full")
SENTENCE_CHARS = 240
MAX_UNKNOWN_SHOWN = 8


class SearchSettings(NamedTuple):
    """The `[tool_search]` part of the configuration."""

    deferral: DeferralSettings = DeferralSettings()
    threshold: float = 1.5
    max_results: int = 5


class _Found(NamedTuple):
    tool: Tool
    score: float
    coverage: float = 1.0


class ToolSearch:
    """The tools of all servers, searchable, with the activations of every session.

    `prepare` and `tidy` may work in another thread than the one that searches, one at a time;
    what they return has no effect until it is given to `commit`.
    """

    def __init__(
        self, settings: SearchSettings | None = None, activations: Activations | None = None
    ) -> None:
        self.settings = settings or SearchSettings()
        self.activations = activations or Activations()
        self._library = ToolLibrary()

    @property
    def _state(self) -> State:
        return self._library.state

    @property
    def catalog(self) -> Catalog:
        """The servers and their tools."""
        return self._state.catalog

    def restore(self, kept: Iterable[Restored]) -> list[Update]:
        """Take up what was kept, and return what had to be made again, already committed."""
        return self._library.restore(kept)

    def apply(self, event: Mapping[str, Any]) -> Change:
        """Take one connection event; raises BadRequest for a malformed one."""
        update = self.prepare(event)
        self.commit(update)
        self.commit(self.tidy())
        return update.change

    def prepare(self, event: Mapping[str, Any]) -> Update:
        """Return what a connection event changes; raises BadRequest for a malformed one."""
        return self._library.prepare(event)

    def tidy(self) -> State:
        """Return the present state with its index in few parts."""
        return self._library.tidy()

    def commit(self, what: Update | State) -> None:
        """Let what was prepared take effect."""
        if isinstance(what, Update) and what.change.removed:
            self.activations.drop(what.change.removed)
        self._library.commit(what)

    def search(
        self,
        *,
        query: str | None = None,
        tool_id: str | None = None,
        max_results: int | None = None,
        session: str | None = None,
        server: str | None = None,
        detail: str = "signature",
    ) -> dict[str, Any]:
        """Return `tools total_tools cut warnings` for a question, or for one tool's id.

        With a `session` the returned tools are activated for it. Raises BadRequest for bad
        arguments and NotFound, with the nearest names, for an unknown id or server.
        """
        limit = self._checked(query, tool_id, max_results, detail)
        if server is not None and server not in self.catalog.servers:
            raise NotFound(f"no server {server!r}", f"known: {_listed(self.catalog.servers)}")
        if tool_id is not None:
            found, cut, warnings = self._by_id(tool_id, server), 0, list[str]()
        else:
            found, cut, warnings = self._by_query(query or "", server, limit)
        exact = sum(one.score == EXACT_SCORE for one in found)
        # Whoever names seven tools means seven, unless told to stop at fewer.
        found = found[: max(limit, exact) if max_results is None else limit]
        if session:
            self.activations.activate(session, (hit.tool.id for hit in found))
        return {
            "tools": [self._answer(hit, detail) for hit in found],
            "total_tools": len(self._state.tools),
            "cut": cut,
            "warnings": warnings + self._offline(found),
        }

    def tool_list(
        self,
        *,
        session: str | None = None,
        context_window: int | None = None,
        budget: int | None = None,
    ) -> dict[str, Any]:
        """Return `active tokens_all tokens_now deferred loaded` for a session."""
        return self.listed(session)(context_window, budget)

    def listed(self, session: str | None) -> Callable[[int | None, int | None], dict[str, Any]]:
        """Return `tool_list` of a session as it is now, to be called in any thread with a window
        and a budget."""
        tools, active = self.catalog.tools(), self.activations.of(session)
        return partial(tool_list, tools, active, self.settings.deferral)

    def servers(self) -> dict[str, dict[str, Any]]:
        """Return `tools online problems` per server, ordered by name; counts are the index's."""
        return {
            name: {
                "tools": len(server.tools),
                "online": server.online,
                "problems": list(server.problems),
            }
            for name, server in sorted(self.catalog.servers.items())
        }

    def _checked(
        self, query: str | None, tool_id: str | None, max_results: int | None, detail: str
    ) -> int:
        if (query is None) == (tool_id is None):
            which = "both" if query is not None else "neither"
            raise BadRequest(f"{which} of query and tool_id given", "give exactly one of them")
        if not (query or tool_id or "").strip():
            raise BadRequest("the query is empty", "say what the tool should do, or name it")
        if detail not in DETAILS:
            raise BadRequest(f"detail {detail!r} is unknown", f"one of {', '.join(DETAILS)}")
        limit = self.settings.max_results if max_results is None else max_results
        if not 1 <= limit <= MAX_RESULTS:
            raise BadRequest(f"max_results {limit} is outside 1 to {MAX_RESULTS}")
        return limit

    def _by_id(self, tool_id: str, server: str | None) -> list[_Found]:
        named = self._named(self._state.names.resolve(tool_id), server)
        if named:
            return named
        nearest = self._state.names.nearest(tool_id)
        hint = f"nearest: {', '.join(nearest)}" if nearest else "ask with a query instead"
        raise NotFound(f"no tool {tool_id!r} among {len(self._state.tools)}", hint)

    def _named(self, ids: Iterable[str], server: str | None) -> list[_Found]:
        tools = [self._state.tools[self._state.file_ids[id]] for id in ids]
        return [_Found(tool, EXACT_SCORE) for tool in tools if server in (None, tool.server)]

    def _by_query(
        self, query: str, server: str | None, limit: int
    ) -> tuple[list[_Found], int, list[str]]:
        exact = self._named(self._state.names.named_in(query), server)
        slots = self._state.reader.slots(query)
        kept, cut = self._ranked(slots, server, {found.tool.id for found in exact}, limit)
        warnings = []
        if not exact and not kept:
            warnings = [self._nothing(query, slots, server)]
        elif not exact and max(found.coverage for found in kept) < GUESS_COVERAGE:
            cut += len(kept) - 1
            kept = kept[:1]
            warnings = [self._guess(query, slots)]
        return exact + kept, cut, warnings

    def _ranked(
        self, slots: Sequence[Slot], server: str | None, others: Set[str], limit: int
    ) -> tuple[list[_Found], int]:
        """Return the best `limit` tools but `others`, and how many were cut as too weak."""
        state = self._state
        ranked = state.ranking.rank(slots)
        if server is not None:
            known = state.catalog.servers[server].tools.values()
            ids = [state.file_ids[tool.id] for tool in known]
            ranked = ranked.where(np.isin(ranked.file_ids, ids))
        strong = (ranked.scores >= self.settings.threshold) & (ranked.coverage >= MIN_COVERAGE)
        best = _best(ranked.where(strong), limit + len(others))
        rows = zip(*(column.tolist() for column in best), strict=True)
        found = [_Found(state.tools[file_id], *more) for file_id, *more in rows]
        found.sort(key=lambda each: (-each.score, each.tool.id))
        kept = [each for each in found if each.tool.id not in others]
        return kept[:limit], int(np.count_nonzero(~strong))

    def _answer(self, found: _Found, detail: str) -> dict[str, Any]:
        tool = found.tool
        answer: dict[str, Any] = {
            "tool_id": tool.id,
            "server_name": tool.server,
            "tool_name": tool.name,
            "description": tool.description,
            "score": round(found.score, 3) if found.score < EXACT_SCORE else EXACT_SCORE,
            "online": self.catalog.servers[tool.server].online,
        }
        if detail == "full":
            return answer | {"input_schema": tool.input_schema()}
        sentence = first_sentence(tool.description, SENTENCE_CHARS)
        return answer | {"description": sentence, "signature": signature(tool)}

    def _guess(self, query: str, slots: Sequence[Slot]) -> str:
        return f"a guess: no tool speaks of most of {query!r}{self._unknown(slots)}"

    def _nothing(self, query: str, slots: Sequence[Slot], server: str | None) -> str:
        where = f"server {server!r}" if server else f"{len(self.catalog.servers)} servers"
        nearest = self._state.names.nearest(query)
        names = f"; nearest names: {', '.join(nearest)}" if nearest else ""
        return (
            f"none of the {len(self._state.tools)} tools of {where} answers {query!r}"
            f"{self._unknown(slots)}{names}; try a server's name, a verb or an object"
        )

    def _unknown(self, slots: Sequence[Slot]) -> str:
        unknown = [slot.text for slot in slots if not self._state.ranking.knows(slot)]
        shown = ", ".join(repr(text) for text in unknown[:MAX_UNKNOWN_SHOWN])
        return f" (no tool mentions {shown})" if shown else ""

    def _offline(self, found: Sequence[_Found]) -> list[str]:
        servers = {f.tool.server for f in found} if found else set(self.catalog.servers)
        down = sorted(name for name in servers if not self.catalog.servers[name].online)
        return [f"offline: {_listed(down)}; its tools are known from before"] if down else []


def _best(ranked: Ranked, top: int) -> Ranked:
    """Return the `top` best in no order, with those that are as good as the last of them."""
    if len(ranked.scores) <= top:
        return ranked
    least = np.partition(ranked.scores, -top)[-top]
    return ranked.where(ranked.scores >= least)


def _listed(names: Iterable[str], limit: int = 12) -> str:
    every = sorted(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more if every else "none"
