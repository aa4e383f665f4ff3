"""Tool search whole: events in, the right tools out. Pure; the caller keeps the records.

The index is derived from the catalog and rebuilt when a server's list changes; what was made
of a tool is kept by its digest, so that one new tool costs one tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from indexd.catalog import Catalog, Change, server_from_record
from indexd.deferral import Activations, DeferralSettings, tool_list
from indexd.errors import BadRequest, NotFound
from indexd.tool import Tool, first_sentence, signature
from indexd.tool_ids import ToolNames
from indexd.tool_index import ArrayIndex, Dictionary, PackedTerms
from indexd.tool_query import Lexicon, QueryReader, Slot
from indexd.tool_ranking import VERSION, Ranking, analyse, name_terms
from indexd.tool_words import vocabulary

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


class _Analysed(NamedTuple):
    digest: str
    terms: PackedTerms
    name_terms: frozenset[str]


class _Found(NamedTuple):
    tool: Tool
    score: float
    coverage: float = 1.0


class ToolSearch:
    """The tools of all servers, searchable, with the activations of every session."""

    def __init__(
        self,
        settings: SearchSettings | None = None,
        records: Iterable[Mapping[str, Any]] = (),
        activations: Activations | None = None,
    ) -> None:
        """Take up what `record` wrote of each server; a damaged record is left out, and told
        in `problems`."""
        self.settings = settings or SearchSettings()
        self.catalog = Catalog()
        self.activations = activations or Activations()
        self.problems: list[str] = []
        self._dictionary = Dictionary()
        self._analysed: dict[str, _Analysed] = {}
        for record in records:
            self._restore(record)
        self._rebuild()

    def apply(self, event: Mapping[str, Any]) -> Change:
        """Take one connection event; raises BadRequest for a malformed one."""
        change = self.catalog.apply(event)
        if change.removed:
            self.activations.drop(change.removed)
        if change.added or change.changed or change.removed:
            self._rebuild()
        return change

    def record(self, server: str) -> dict[str, Any]:
        """Return what the cache keeps of one server: its list, and what was made of its tools.

        Raises NotFound for a server that is not known.
        """
        if server not in self.catalog.servers:
            raise NotFound(f"no server {server!r}", f"known: {_listed(self.catalog.servers)}")
        known = self.catalog.servers[server]
        made = [self._dictionary.unpack(self._analysed[t.id].terms) for t in known.tools.values()]
        return {**known.as_record(), "analysis": {"version": VERSION, "tools": made}}

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
            "total_tools": len(self._tools),
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
        active = self.activations.of(session)
        return tool_list(self._tools, active, self.settings.deferral, context_window, budget)

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

    def _rebuild(self) -> None:
        self._tools: Sequence[Tool] = list(self.catalog.tools())
        self._analysed = {tool.id: self._analyse(tool) for tool in self._tools}
        analysed = list(self._analysed.values())
        index = ArrayIndex(self._dictionary, [one.terms for one in analysed])
        self._names = ToolNames(self._tools)
        self._reader = QueryReader(Lexicon(index), vocabulary())
        read_only = [tool.read_only for tool in self._tools]
        self._ranking = Ranking(index, [one.name_terms for one in analysed], read_only)

    def _analyse(self, tool: Tool) -> _Analysed:
        known = self._analysed.get(tool.id)
        if known and known.digest == tool.digest:
            return known
        return self._pack(tool, analyse(tool))

    def _pack(self, tool: Tool, frequencies: Mapping[str, int]) -> _Analysed:
        names = name_terms(frequencies)
        return _Analysed(tool.digest, self._dictionary.pack(frequencies), names)

    def _restore(self, record: Mapping[str, Any]) -> None:
        try:
            server = server_from_record(record)
        except BadRequest as error:
            self.problems.append(error.message)
            return
        self.catalog.servers[server.name] = server
        for tool, made in zip(server.tools.values(), _kept_analysis(record), strict=False):
            self._analysed[tool.id] = self._pack(tool, made)

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
        named = [t for t in self._names.resolve(tool_id) if server in (None, t.server)]
        if named:
            return [_Found(tool, EXACT_SCORE) for tool in named]
        nearest = self._names.nearest(tool_id)
        hint = f"nearest: {', '.join(nearest)}" if nearest else "ask with a query instead"
        raise NotFound(f"no tool {tool_id!r} among {len(self._tools)}", hint)

    def _by_query(
        self, query: str, server: str | None, limit: int
    ) -> tuple[list[_Found], int, list[str]]:
        named = [t for t in self._names.named_in(query) if server in (None, t.server)]
        exact = [_Found(tool, EXACT_SCORE) for tool in named]
        slots = self._reader.slots(query)
        kept, cut = self._ranked(slots, server, {tool.id for tool in named}, limit)
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
        ordinals, scores, coverage = self._ranking.rank(slots)
        strong = (scores >= self.settings.threshold) & (coverage >= MIN_COVERAGE)
        kept: list[_Found] = []
        for position in np.flatnonzero(strong):
            tool = self._tools[ordinals[position]]
            if tool.id not in others and server in (None, tool.server):
                kept.append(_Found(tool, float(scores[position]), float(coverage[position])))
                if len(kept) == limit:
                    break
        weak = ordinals[~strong]
        if server is None:
            return kept, len(weak)
        return kept, sum(self._tools[ordinal].server == server for ordinal in weak)

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
        nearest = self._names.nearest(query)
        names = f"; nearest names: {', '.join(nearest)}" if nearest else ""
        return (
            f"none of the {len(self._tools)} tools of {where} answers {query!r}"
            f"{self._unknown(slots)}{names}; try a server's name, a verb or an object"
        )

    def _unknown(self, slots: Sequence[Slot]) -> str:
        unknown = [slot.text for slot in slots if not self._ranking.knows(slot)]
        shown = ", ".join(repr(text) for text in unknown[:MAX_UNKNOWN_SHOWN])
        return f" (no tool mentions {shown})" if shown else ""

    def _offline(self, found: Sequence[_Found]) -> list[str]:
        servers = {f.tool.server for f in found} if found else set(self.catalog.servers)
        down = sorted(name for name in servers if not self.catalog.servers[name].online)
        return [f"offline: {_listed(down)}; its tools are known from before"] if down else []


def _kept_analysis(record: Mapping[str, Any]) -> Sequence[Mapping[str, int]]:
    """Return what an earlier run made of a server's tools, or nothing that can be used.

    Analysing again costs a second for 3,000 tools; what another version made is of no use.
    """
    kept = record.get("analysis")
    if not isinstance(kept, Mapping) or kept.get("version") != VERSION:
        return ()
    made = kept.get("tools")
    if not isinstance(made, list) or len(made) != len(record["tools"]):
        return ()
    return made if all(isinstance(one, Mapping) for one in made) else ()


def _listed(names: Iterable[str], limit: int = 12) -> str:
    every = sorted(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more if every else "none"
