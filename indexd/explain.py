"""Why nothing was found: what was searched, what removed everything, what else to try.

Every way out that is named has been tried: it is a change of the request, and how many documents
that finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from indexd.index import Snapshot
from indexd.model import KINDS
from indexd.nearest import nearest
from indexd.query import MAX_TYPED_CHARS, Clause, Query, Shape
from indexd.ranking import Ranking
from indexd.requests import Search
from indexd.text import MAX_TERM_CHARACTERS, fold_case
from indexd.unmatched import Unmatched, told, unmatched

# Of a query of many unknown words, so many are looked at.
MAX_UNKNOWN = 3
_FREE: dict[str, Any] = {
    "scope": "global", "agent": None, "session": None, "tool_name": None, "role": None,
    "since": None, "until": None, "subagents": "include", "source": None,
}  # fmt: skip
# A longer word is shown up to here.
_SHOWN_CHARACTERS = 60


class Way(NamedTuple):
    """A change of the request's parameters, and what it does, in words."""

    words: str
    changes: dict[str, Any]


class Explained(NamedTuple):
    """What goes with an answer without hits.

    suggestions: `{"words", "total", "changes"}` each; a parameter that changes to null is left
    out.
    """

    warnings: list[str]
    suggestions: list[dict[str, Any]]


def nothing(
    snapshot: Snapshot,
    request: Search,
    meant: Search,
    query: Query,
    words: Sequence[bytes],
    found: Ranking,
    count: Callable[[Mapping[str, Any]], int],
) -> Explained:
    """Return what goes with an answer without hits.

    `request` is as it was sent, `meant` with the filters of its query, `query` what it asks for,
    `words` its words. `count` says how many documents match the request with some of its
    parameters changed.
    """
    if found.total:
        warnings = [f"offset {request.offset} is beyond the last hit", "try a smaller offset"]
        return Explained(warnings, [])
    near = _near(snapshot, request.query, words)
    strange = [*unmatched(meant, snapshot.files.values()), *_no_tool(snapshot, meant, query)]
    ways = (*_corrected(request, strange), *_lifted(request, query), *near.ways)
    tried = [(way, count(way.changes)) for way in ways]
    useful = [(way, total) for way, total in tried if total]
    return Explained(
        [
            f"nothing found: {_searched(request, query, found)}",
            *(each.words for each in strange),
            *near.warnings,
            *_unasked(request, words),
            *(f"{way.words}, {_documents(total)} would match" for way, total in useful),
        ],
        [{"words": w.words, "total": total, "changes": w.changes} for w, total in useful],
    )


def _searched(request: Search, query: Query, found: Ranking) -> str:
    kinds = query.filters.get("kinds", request.kinds)
    assert isinstance(kinds, tuple)
    scope = "project" if "project" in query.filters else request.scope
    named = "of every kind" if set(kinds) == set(KINDS) else f"of kinds {', '.join(kinds)}"
    searched = f"searched {_documents(found.documents)} {named}, scope {scope}"
    return searched if found.documents else f"{searched}: the filters select none"


def _no_tool(snapshot: Snapshot, meant: Search, query: Query) -> Iterator[Unmatched]:
    """Yield the filter on a tool's name where no tool has it; in a query, in any case."""
    known = {name for part in snapshot.parts for name in part.segment.tool_names if name}
    typed = str(query.filters.get("tool") or "")
    wanted = typed or meant.tool_name
    fits = typed.casefold() in map(str.casefold, known) if typed else wanted in known
    if wanted and not fits:
        yield told("tool_name", wanted, sorted(known))


def _corrected(request: Search, strange: Iterable[Unmatched]) -> Iterator[Way]:
    """Yield the request's filters with the value that was perhaps meant."""
    for each in strange:
        if each.near and getattr(request, each.parameter):
            named = each.parameter.replace("_", " ")
            yield Way(f"with {named} {each.near[0]}", {each.parameter: each.near[0]})


def _lifted(request: Search, query: Query) -> Iterator[Way]:
    """Yield the ways to lift one filter or one operator alone, and all of the query's at once."""
    for name, free in _FREE.items():
        if getattr(request, name) != free:
            yield Way(f"without {_named(request, name)}", {name: free})
    marked = [piece for piece in query.pieces if _restricts(piece.means)]
    for piece in marked:
        yield Way(f"without {piece.typed}", {"query": query.relaxed(piece.means)})
    if len(marked) > 1:
        yield Way("taking the query literally", {"literal": True})
    if "kinds" not in query.filters and set(request.kinds) != set(KINDS):
        yield Way("searching every kind", {"kinds": ["all"]})


def _named(request: Search, name: str) -> str:
    """Return a filter of the request as people would name it."""
    if name == "scope":
        return f"the project {request.project or request.session_dir}"
    if name in ("since", "until"):
        return f'"{name}"'
    return f"{name.replace('_', ' ')} {getattr(request, name)}"


def _unasked(request: Search, words: Sequence[bytes]) -> list[str]:
    """Say so where a query is nothing but data, which no document is found by."""
    if words or "*" in request.query:
        return []
    return [f"words of more than {MAX_TERM_CHARACTERS} characters are data, and not indexed"]


def _restricts(means: Clause | str) -> bool:
    return isinstance(means, str) or bool(means.sign) or means.shape is Shape.PHRASE


class _Near(NamedTuple):
    warnings: list[str]
    ways: list[Way]


def _near(snapshot: Snapshot, typed: str, words: Iterable[bytes]) -> _Near:
    """Return what is like the words that no document holds, and the query in their terms."""
    unknown = [w for w in words if not any(part.doc_freq(w) for part in snapshot.parts)]
    warnings, corrected = [], typed
    for term in unknown[:MAX_UNKNOWN]:
        word, like = term.decode("utf-8", "replace"), nearest(snapshot, term)
        known = f"; near it: {', '.join(like)}" if like else ""
        warnings.append(f'no document holds "{word[:_SHOWN_CHARACTERS]}"{known}')
        at = fold_case(corrected).find(word)
        if like and at >= 0:
            corrected = corrected[:at] + like[0] + corrected[at + len(word) :]
    if corrected == typed or len(corrected) > MAX_TYPED_CHARS:
        return _Near(warnings, [])
    return _Near(warnings, [Way(f"asking for {corrected}", {"query": corrected})])


def _documents(number: int) -> str:
    return f"{number:,} document" + ("" if number == 1 else "s")
