"""Why nothing was found: what was searched, what removed everything, what else to try."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from indexd.index import Snapshot
from indexd.model import KINDS
from indexd.plan import QueryTerm
from indexd.ranking import Order, Ranking, rank
from indexd.requests import Search
from indexd.selection import Selection

# Only terms that begin like the query's are compared; enough for a slip of the keyboard.
_CANDIDATES = 2000


def nothing(
    snapshot: Snapshot,
    request: Search,
    selection: Selection,
    terms: Sequence[QueryTerm],
    words: Sequence[bytes],
    found: Ranking,
) -> list[str]:
    """Return the sentences that go with an answer without hits; `words` are those asked for."""
    if found.total:
        return [f"offset {request.offset} is beyond the last hit", "try a smaller offset"]
    kinds = ", ".join(selection.kinds)
    searched = f"searched {found.documents} documents of kinds {kinds}, scope {request.scope}"
    sentences = [f"nothing found: {searched}"]
    sentences += _filters(snapshot, request, selection, terms)
    sentences += _nearest(snapshot, words)
    if set(selection.kinds) != set(KINDS):
        sentences.append('kinds "all" also searches tool output, reasoning, summaries and meta')
    return sentences


def _filters(
    snapshot: Snapshot, request: Search, selection: Selection, terms: Sequence[QueryTerm]
) -> list[str]:
    """Say which filters, each lifted alone, would let something through."""
    lifted = {
        "kinds": replace(selection, kinds=KINDS),
        "tool_name": replace(selection, tool_names=None),
        "since": replace(selection, since=None),
        "until": replace(selection, until=None),
        "scope, agent and session": replace(selection, files=None),
    }
    sentences = []
    for name, without in lifted.items():
        if without == selection:
            continue
        total = rank(snapshot, terms, without, Order(), 0).total
        if total:
            sentences.append(f"without the filter on {name} {total} documents match")
    return sentences


def _nearest(snapshot: Snapshot, words: Sequence[bytes]) -> list[str]:
    """Return a sentence with known terms that look like the unknown ones."""
    unknown = [t for t in words if all(p.segment.dictionary.find(t) < 0 for p in snapshot.parts)]
    near: dict[str, None] = {}
    for term in unknown[:3]:
        word = term.decode("utf-8", "replace")
        close = difflib.get_close_matches(word, _like(snapshot, term), n=3, cutoff=0.75)
        near.update(dict.fromkeys(close))
    return [f"near the words asked for: {', '.join(near)}"] if near else []


def _like(snapshot: Snapshot, term: bytes) -> Iterable[str]:
    found: dict[str, None] = {}
    for part in snapshot.parts:
        for known in part.segment.dictionary:
            if known[:2] == term[:2] and abs(len(known) - len(term)) <= 2:
                found[known.decode("utf-8", "replace")] = None
                if len(found) >= _CANDIDATES:
                    return found
    return found
