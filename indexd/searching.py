"""One search: from a request to the answer, on one snapshot, in one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from indexd import explain
from indexd.asking import Asked, asked
from indexd.config import History
from indexd.copies import Copies, Groups
from indexd.errors import BadRequest
from indexd.extract import analysed_of, by_kind, displayed_of
from indexd.index import FileFacts, Part, Snapshot
from indexd.located import Located, Sources, located_rows
from indexd.messages import Place
from indexd.model import DEFAULT_KINDS, KINDS, ROLES, Kind, Message
from indexd.ordering import Order, Ranked, Recency
from indexd.phrases import Phrase, agrees
from indexd.plan import FORMULAS, Formula
from indexd.query import Query, literal, parse
from indexd.ranking import MAX_TERMS, Check, Ranking, rank
from indexd.requests import Search
from indexd.scope import Choice, chosen, file_filter
from indexd.selection import Selection
from indexd.sessions import resume
from indexd.snippet import Cutter, Snippet
from indexd.text import Profile, query_terms, whole_terms

# How long texts may be read to tell whether they hold a phrase.
CHECK_SECONDS = 1.0
DAY_MS = 86_400_000
# A hit says of so many of its copies where they are.
SHOWN_COPIES = 3


class Searcher:
    """Answers searches with one profile and one set of limits."""

    def __init__(self, sources: Sources, profile: Profile, limits: History, copies: Copies) -> None:
        self._sources, self._profile, self._limits = sources, profile, limits
        self._copies = copies

    def search(self, snapshot: Snapshot, request: Search, now_ms: int) -> dict[str, Any]:
        """Return the answer but for what the daemon adds (`took_ms`, `index`).

        `now_ms` (unix ms) is what ages are counted from. Raises BadRequest when the query holds
        no letter or number.
        """
        top = request.offset + request.limit
        answered = self._find(snapshot, request, now_ms, top)
        found, ask = answered.ranking, answered.ask
        hits = self._hits(snapshot, answered, found.ranked[request.offset :])
        answer = {
            "hits": hits,
            "total": found.total,
            "warnings": [*ask.warnings, *_left_out(found)],
        }
        return answer if hits else self._explained(snapshot, request, now_ms, answered, answer)

    def _find(self, snapshot: Snapshot, request: Search, now_ms: int, top: int) -> _Answered:
        """Return the best documents for a request. Raises BadRequest."""
        query = literal(request.query) if request.literal else parse(request.query, now_ms)
        request = _filtered(request, query.filters)
        formula = FORMULAS[self._profile]
        ask = asked(query, snapshot, self._profile, formula)
        if not ask.terms and not query_terms(request.query, "seed"):
            raise BadRequest(
                "query must contain at least one letter or number",
                "ask with a word, a name or a number",
            )
        choice = chosen(request, snapshot.files.values())
        selection = _selection(snapshot, request, choice, query)
        order = self._order(formula, request, now_ms)
        copies = self._copies if self._collapses(request) else None
        check = self._check(snapshot, ask.phrases) if ask.phrases else None
        ranking = rank(snapshot, ask.terms, selection, order, top, ask.demand, check, copies)
        return _Answered(request, query, ask, choice, ranking)

    def _order(self, formula: Formula, request: Search, now_ms: int) -> Order:
        days = self._limits.recency if request.recency is None else request.recency
        return Order(
            formula,
            request.order == "recent",
            self._limits.relative_score,
            request.group == "session",
            Recency(days * DAY_MS, now_ms) if days else None,
        )

    def _explained(
        self,
        snapshot: Snapshot,
        request: Search,
        now_ms: int,
        answered: _Answered,
        answer: dict[str, Any],
    ) -> dict[str, Any]:
        """Return an answer without hits with the reason why, and what would find something."""

        def count(changes: Mapping[str, Any]) -> int:
            own = dict(changes) | ({"kinds": KINDS} if "kinds" in changes else {})
            other = msgspec.structs.replace(request, **own)
            return self._find(snapshot, other, now_ms, 0).ranking.total

        words = whole_terms(answered.ask.typed, self._profile)
        why = explain.nothing(
            snapshot, request, answered.request, answered.query, words, answered.ranking, count
        )
        return answer | {
            "warnings": [*answer["warnings"], *why.warnings],
            "suggestions": why.suggestions,
        }

    def _collapses(self, request: Search) -> bool:
        """Say whether copies count and show once; in profile `seed` only where asked for."""
        return request.copies == "collapse" or (request.copies is None and self._profile == "code")

    def _check(self, snapshot: Snapshot, phrases: list[Phrase]) -> Check:
        """Return what says of documents whether their texts agree with the phrases.

        After CHECK_SECONDS, of none.
        """
        until = time.monotonic() + CHECK_SECONDS

        def check(rows: Sequence[Ranked]) -> list[bool]:
            if time.monotonic() > until:
                return []
            places, said = located_rows(snapshot, rows), [False] * len(rows)
            for message, numbers in self._messages(rows, places):
                made = by_kind(message)
                for number in numbers:
                    kind, call, _ = places[number]
                    said[number] = agrees(analysed_of(made, kind, call), phrases)
            return said

        return check

    def _messages(
        self, rows: Sequence[Ranked], places: Sequence[Located]
    ) -> Iterator[tuple[Message, list[int]]]:
        """Yield each message that documents lie in, once, with the numbers of their rows.

        None of a file that changed under us.
        """
        by_file: dict[FileFacts, dict[Place, list[int]]] = {}
        for number, (row, found) in enumerate(zip(rows, places, strict=True)):
            by_file.setdefault(row.facts, {}).setdefault(found.place, []).append(number)
        for facts, wanted in by_file.items():
            for place, message in self._sources.each(facts, wanted):
                yield message, wanted[place]

    def _hits(
        self, snapshot: Snapshot, answered: _Answered, page: Sequence[Ranked]
    ) -> list[dict[str, Any]]:
        ask, first = answered.ask, answered.request.offset + 1
        cutter = Cutter(ask.text, ask.found_by, self._profile, self._limits.snippet_chars)
        places = located_rows(snapshot, page)
        duplicates = _duplicates(snapshot, answered.ranking.groups, page)
        # A file that changed under us gives none.
        shown = [Snippet("", [])] * len(page)
        for message, numbers in self._messages(page, places):
            made = by_kind(message)
            for at in numbers:
                kind, call, _ = places[at]
                text = displayed_of(made, kind, call, reveal=answered.request.reveal)
                shown[at] = cutter.cut(text)
        return [
            {"rank": first + at} | _hit(answered, page[at], places[at], shown[at]) | duplicates[at]
            for at in range(len(page))
        ]


class _Answered(NamedTuple):
    """What a request, with the filters of its query in force, asks for and finds."""

    request: Search
    query: Query
    ask: Asked
    choice: Choice
    ranking: Ranking


def _hit(answered: _Answered, ranked: Ranked, found: Located, shown: Snippet) -> dict[str, Any]:
    request, choice = answered.request, answered.choice
    facts = ranked.facts
    hit = {
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
    return hit | {"others": ranked.others} if request.group else hit


def _duplicates(
    snapshot: Snapshot, groups: Groups | None, page: Sequence[Ranked]
) -> list[dict[str, Any]]:
    """Return how many copies each hit has and where the first are; nothing of one without any."""
    if groups is None:
        return [{}] * len(page)
    copies = groups.others([(ranked.part, ranked.ordinal) for ranked in page])
    return [_counted(snapshot, others) if others else {} for others in copies]


def _counted(snapshot: Snapshot, others: Sequence[tuple[Part, int]]) -> dict[str, Any]:
    where = []
    for part, document in others[:SHOWN_COPIES]:
        path = snapshot.facts_of(part, document).path
        message = int(part.segment.columns.message[document])
        where.append({"session_path": path, "message_index": message})
    return {"duplicates": {"count": len(others), "where": where}}


def _filtered(request: Search, filters: Mapping[str, Any]) -> Search:
    """Return the request with the filters of its query in place of its own."""
    own = {name: value for name, value in filters.items() if name != "tool"}
    if "project" in own:
        own["scope"] = "project"
        if own["project"] == ".":
            own["project"] = request.project
    return msgspec.structs.replace(request, **own) if own else request


def _selection(snapshot: Snapshot, request: Search, choice: Choice, query: Query) -> Selection:
    tools: tuple[str, ...] | None = (request.tool_name,) if request.tool_name else None
    if "tool" in query.filters:
        wanted = str(query.filters["tool"]).casefold()
        known = {name for part in snapshot.parts for name in part.segment.tool_names}
        tools = tuple(sorted(name for name in known if name.casefold() == wanted))
    return Selection(_kinds(request), file_filter(choice), tools, request.since, request.until)


def _left_out(found: Ranking) -> list[str]:
    """Say what a ranking did not take into account."""
    warnings = []
    if found.unused:
        warnings.append(f"the query is long: only the {MAX_TERMS} rarest of its terms were used")
    if found.unchecked:
        warnings.append(
            f"{found.checked:,} documents were looked at for the phrase,"
            f" {found.unchecked:,} more hold its words"
        )
    return warnings


def _kinds(request: Search) -> tuple[Kind, ...]:
    """Return the kinds to search: a role's, of those asked for or else at all."""
    if request.role is None:
        return request.kinds
    own = [kind for kind in KINDS if ROLES[kind] == request.role]
    both = [kind for kind in own if kind in request.kinds]
    return tuple(both or (own if request.kinds == DEFAULT_KINDS else ()))
