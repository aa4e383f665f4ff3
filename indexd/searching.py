"""One search: from a request to the answer, on one snapshot, in one thread."""

from __future__ import annotations

from typing import Any

from indexd import explain
from indexd.errors import BadRequest
from indexd.extract import displayed
from indexd.index import FileFacts, Snapshot
from indexd.located import Located, Sources, located
from indexd.model import DEFAULT_KINDS, KINDS, ROLES, Kind
from indexd.plan import FORMULAS, plan
from indexd.ranking import Order, Ranked, rank
from indexd.requests import Search
from indexd.scope import Choice, chosen, file_filter
from indexd.selection import Selection
from indexd.sessions import resume
from indexd.snippet import Snippet, snippet
from indexd.text import Profile, query_terms


class Searcher:
    """Answers searches with one profile and one set of limits."""

    def __init__(
        self, sources: Sources, profile: Profile, relative_score: float, snippet_chars: int
    ) -> None:
        self._sources, self._profile = sources, profile
        self._relative_score, self._snippet_chars = relative_score, snippet_chars

    def search(self, snapshot: Snapshot, request: Search) -> dict[str, Any]:
        """Return the answer but for what the daemon adds (`took_ms`, `index`).

        Raises BadRequest when the query holds no letter or number.
        """
        words = query_terms(request.query, self._profile)
        if not words:
            raise BadRequest(
                "query must contain at least one letter or number",
                "ask with a word, a name or a number",
            )
        choice = chosen(request, snapshot.files.values())
        selection = Selection(
            _kinds(request), file_filter(choice), request.tool_name, request.since, request.until
        )
        formula = FORMULAS[self._profile]
        terms = plan(request.query, self._profile, formula)
        order = Order(formula, request.order == "recent", self._relative_score)
        found = rank(snapshot, terms, selection, order, request.offset + request.limit)
        page = found.ranked[request.offset :]
        hits = [
            self._hit(snapshot, request, choice, number, ranked)
            for number, ranked in enumerate(page, start=request.offset + 1)
        ]
        warnings: list[str] = []
        if not hits:
            warnings = explain.nothing(snapshot, request, selection, terms, words, found)
        return {"hits": hits, "total": found.total, "warnings": warnings}

    def _hit(
        self, snapshot: Snapshot, request: Search, choice: Choice, number: int, ranked: Ranked
    ) -> dict[str, Any]:
        facts = ranked.facts
        found = located(snapshot, ranked.part, ranked.ordinal)
        shown = self._shown(facts, found, request)
        return {
            "rank": number,
            "score": ranked.score,
            "session_path": facts.path,
            "session_id": facts.session_id,
            "message_index": found.place.message_index,
            "kind": str(found.kind),
            "role": ROLES[found.kind],
            "tool_name": found.place.tool_name,
            "source": "project" if choice.owns(facts) else facts.source,
            "agent": facts.agent,
            "project": facts.cwd,
            "timestamp": found.place.timestamp or None,
            "snippet": shown.text,
            "highlights": [list(pair) for pair in shown.highlights],
            "resume": resume(facts),
        }

    def _shown(self, facts: FileFacts, found: Located, request: Search) -> Snippet:
        """Return the snippet of a hit; a file that changed under us gives none."""
        message = self._sources.message(facts, found.place)
        if message is None:
            return Snippet("", [])
        text = displayed(message, found.kind, found.call, reveal=request.reveal)
        return snippet(text, request.query, self._profile, self._snippet_chars)


def _kinds(request: Search) -> tuple[Kind, ...]:
    """Return the kinds to search: a role's, of those asked for or else at all."""
    if request.role is None:
        return request.kinds
    own = [kind for kind in KINDS if ROLES[kind] == request.role]
    both = [kind for kind in own if kind in request.kinds]
    return tuple(both or (own if request.kinds == DEFAULT_KINDS else ()))
