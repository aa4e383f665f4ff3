"""One search: from a request to the answer, on one snapshot, in one thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from indexd import explain, recall
from indexd.errors import BadRequest, IndexdError
from indexd.extract import displayed
from indexd.finding import OpenRoot
from indexd.index import FileFacts, Snapshot
from indexd.model import KINDS, Kind
from indexd.ranking import Order, Ranked, Selection, rank, timestamps
from indexd.records import Record
from indexd.requests import Search
from indexd.scope import Choice, file_filter, in_project
from indexd.settling import Fetch
from indexd.snippet import Snippet, snippet
from indexd.text import Profile, query_terms

# How much a document that holds all of the query's idf mass gains; see docs/ranking.md.
COVERAGE = {"seed": 0.0, "code": 1.0}


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
        terms = query_terms(request.query, self._profile)
        if not terms:
            raise BadRequest(
                "query must contain at least one letter or number",
                "ask with a word, a name or a number",
            )
        choice = _choice(request)
        selection = Selection(
            request.kinds, file_filter(choice), request.tool_name, request.since, request.until
        )
        order = Order(COVERAGE[self._profile], request.order == "recent", self._relative_score)
        found = rank(snapshot, terms, selection, order, request.offset + request.limit)
        page = found.ranked[request.offset :]
        hits = [
            self._hit(snapshot, request, number, ranked)
            for number, ranked in enumerate(page, start=request.offset + 1)
        ]
        warnings = [] if hits else explain.nothing(snapshot, request, selection, terms, found)
        return {"hits": hits, "total": found.total, "warnings": warnings}

    def _hit(
        self, snapshot: Snapshot, request: Search, number: int, ranked: Ranked
    ) -> dict[str, Any]:
        facts, at = ranked.facts, ranked.ordinal
        segment = ranked.part.segment
        message_index = int(segment.columns.message[at])
        kind = KINDS[int(segment.kind_ranks(np.array([at]))[0])]
        role, shown = self._shown(
            facts, message_index, kind, int(segment.columns.call[at]), request
        )
        own = in_project(facts, request.project, _resolved(request.session_dir))
        time_ms = int(timestamps(snapshot, ranked.part, np.array([at]))[0])
        return {
            "rank": number,
            "score": ranked.score,
            "session_path": facts.path,
            "session_id": facts.session_id,
            "message_index": message_index,
            "kind": str(kind),
            "role": role or _ROLES.get(kind, "user"),
            "tool_name": segment.tool_names[int(segment.columns.tool[at])],
            "source": "project" if own else facts.source,
            "agent": facts.agent,
            "project": facts.cwd,
            "timestamp": time_ms or None,
            "snippet": shown.text,
            "highlights": [list(pair) for pair in shown.highlights],
        }

    def _shown(
        self, facts: FileFacts, message_index: int, kind: Kind, call: int, request: Search
    ) -> tuple[str, Snippet]:
        """Return the role and snippet of a hit; a file that changed under us has neither."""
        record = self._sources.record(facts.path)
        root = self._sources.root(facts.path)
        if record is None or root is None:
            return "", Snippet("", [])
        try:
            wanted = recall.places(record, message_index, message_index + 1, self._sources.fetch)
            recalled = recall.messages(root, record, wanted)
        except IndexdError:
            return "", Snippet("", [])
        if not recalled:
            return "", Snippet("", [])
        message = recalled[0].message
        text = displayed(message, kind, call, reveal=request.reveal)
        return message.role, snippet(text, request.query, self._profile, self._snippet_chars)


_ROLES = {
    Kind.ASSISTANT_TEXT: "assistant",
    Kind.TOOL_INPUT: "assistant",
    Kind.REASONING: "assistant",
    Kind.TOOL_ERROR: "tool",
    Kind.TOOL_OUTPUT: "tool",
}


def _choice(request: Search) -> Choice:
    return Choice(
        request.scope == "project",
        request.project,
        _resolved(request.session_dir),
        request.agent,
        request.session,
    )


def _resolved(directory: str | None) -> str | None:
    return os.path.realpath(directory) if directory else None
