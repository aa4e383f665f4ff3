"""One search: from a request to the answer, on one snapshot, in one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from indexd import explain, recall
from indexd.errors import BadRequest, IndexdError
from indexd.extract import displayed
from indexd.finding import OpenRoot
from indexd.index import FileFacts, Snapshot
from indexd.messages import Place
from indexd.model import DEFAULT_KINDS, KINDS, ROLES, Kind
from indexd.plan import FORMULAS, plan
from indexd.ranking import Order, Ranked, rank
from indexd.records import Record
from indexd.requests import Search
from indexd.scope import Choice, chosen, file_filter
from indexd.selection import Selection, timestamps
from indexd.settling import Fetch
from indexd.snippet import Snippet, snippet
from indexd.text import Profile, query_terms


class Sources:
    """Where the pieces of an answer come from; shared by `search` and `around`."""

    def __init__(
        self,
        record: Callable[[str], Record | None],
        root: Callable[[str], OpenRoot | None],
        fetch: Fetch,
    ) -> None:
        self.record, self.root, self.fetch = record, root, fetch


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
        found = _found(snapshot, ranked)
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
        }

    def _shown(self, facts: FileFacts, found: _Found, request: Search) -> Snippet:
        """Return the snippet of a hit; a file that changed under us gives none."""
        record = self._sources.record(facts.path)
        root = self._sources.root(facts.path)
        if record is None or root is None or record.file_id != facts.file_id:
            return _NO_SNIPPET
        try:
            recalled = recall.messages(root, record, [found.place])
        except IndexdError:
            return _NO_SNIPPET
        if not recalled:
            return _NO_SNIPPET
        text = displayed(recalled[0].message, found.kind, found.call, reveal=request.reveal)
        return snippet(text, request.query, self._profile, self._snippet_chars)


class _Found(NamedTuple):
    """A document of the answer: of which kind, which of its message's calls, and where."""

    kind: Kind
    call: int
    place: Place


def _found(snapshot: Snapshot, ranked: Ranked) -> _Found:
    columns, at = ranked.part.segment.columns, np.array([ranked.ordinal])
    time = int(timestamps(snapshot, ranked.part, at)[0])
    place = Place(
        int(columns.message[ranked.ordinal]),
        int(columns.offset.take(at)[0]),
        int(columns.size.take(at)[0]),
        int(columns.part.take(at)[0]),
        time,
        ranked.part.segment.tool_names[int(columns.tool[ranked.ordinal])],
    )
    kind = KINDS[int(ranked.part.segment.kind_ranks(at)[0])]
    return _Found(kind, int(columns.call[ranked.ordinal]), place)


_NO_SNIPPET = Snippet("", [])


def _kinds(request: Search) -> tuple[Kind, ...]:
    """Return the kinds to search: a role's, of those asked for or else at all."""
    if request.role is None:
        return request.kinds
    own = [kind for kind in KINDS if ROLES[kind] == request.role]
    both = [kind for kind in own if kind in request.kinds]
    return tuple(both or (own if request.kinds == DEFAULT_KINDS else ()))
