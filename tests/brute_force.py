"""A second scorer, written from the documentation alone: plain documents, plain loops."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from indexd.model import DEFAULT_KINDS, KINDS
from indexd.plan import NO_DEMAND, Demand, Formula, QueryTerm
from indexd.text import Profile, meaning, raw_tokens

PLAIN = Formula()
Plain = dict[str, Any]  # path message kind call text tool time mtime


class Hit(NamedTuple):
    score: float
    document: Plain
    others: int = 0


class Answer(NamedTuple):
    hits: list[Hit]
    total: int
    documents: int
    doc_freqs: list[int]


@lru_cache(maxsize=10_000)
def analysed(text: str, profile: Profile) -> tuple[Counter[bytes], int]:
    meanings = [meaning(raw, profile) for raw in raw_tokens(text)]
    return Counter(t for m in meanings for t in m.terms), sum(m.length for m in meanings)


def when(document: Plain) -> int:
    return int(document["time"] or document["mtime"])


def before(hit: Hit, recent: bool) -> tuple[Any, ...]:
    """Return what orders hits."""
    document = hit.document
    return (
        -when(document) if recent else -hit.score,
        document["path"].encode("utf-8", "surrogateescape"),
        document["message"],
        KINDS.index(document["kind"]),
        document["call"],
    )


def search(
    documents: Iterable[Plain],
    query: Sequence[QueryTerm],
    profile: Profile,
    *,
    kinds: Iterable[str] = DEFAULT_KINDS,
    accepts: Callable[[Plain], bool] = lambda document: True,
    tool_names: Sequence[str] | None = None,
    since: int | None = None,
    until: int | None = None,
    formula: Formula = PLAIN,
    recent: bool = False,
    grouped: bool = False,
    recency: tuple[float, int] | None = None,
    relative_score: float = 0.15,
    demand: Demand = NO_DEMAND,
) -> Answer:
    """Return everything that answers `query`, best first, and the counts that go with it."""
    chosen = [
        (document, *analysed(document["text"], profile))
        for document in documents
        if document["kind"] in set(kinds)
        and accepts(document)
        and (tool_names is None or document["tool"] in tool_names)
        and (tool_names is None or document["kind"].startswith("tool_"))
        and (since is None or since <= when(document))
        and (until is None or when(document) <= until)
    ]
    chosen = [each for each in chosen if each[2]]
    count = len(chosen)
    average = sum(length for _, _, length in chosen) / count if count else 1.0
    occurring = {term for _, counts, _ in chosen for term in counts}

    def freq(asked: QueryTerm, counts: Counter[bytes]) -> int:
        if asked.known and occurring.isdisjoint(asked.terms[asked.known :]):
            return 0
        return sum(counts[term] for term in dict.fromkeys(asked.terms))

    doc_freqs = [sum(freq(asked, counts) > 0 for _, counts, _ in chosen) for asked in query]
    weights = [
        asked.weight * math.log(1 + (count - n + 0.5) / (n + 0.5)) if n else 0.0
        for asked, n in zip(query, doc_freqs, strict=True)
    ]
    whole = sum(weights)
    held_by_session: dict[str, set[int]] = defaultdict(set)
    for document, counts, _ in chosen:
        held_by_session[document["path"]] |= {
            at for at, asked in enumerate(query) if freq(asked, counts)
        }
    found: list[Hit] = []
    for document, counts, length in chosen:
        freqs = [freq(asked, counts) for asked in query]
        if demand.must or demand.must_not:
            if not all(freq(asked, counts) for asked in demand.must):
                continue
            if any(freq(asked, counts) for asked in demand.must_not):
                continue
        if not whole or not (any(freqs) or demand.must):
            continue
        score = 0.0
        for weight, tf in zip(weights, freqs, strict=True):
            if tf:
                norm = 1.2 * (1 - 0.75 + 0.75 * length / average)
                score += weight * tf * (1.2 + 1) / (tf + norm)
        mass = sum(weight for weight, tf in zip(weights, freqs, strict=True) if tf)
        score *= 1 + formula.coverage * (mass / whole)
        mass = sum(weights[at] for at in sorted(held_by_session[document["path"]]))
        found.append(Hit(score * (1 + formula.session_coverage * (mass / whole)), document))
    total = len(found)
    least = relative_score * max((hit.score for hit in found), default=0.0)
    found = [hit for hit in found if hit.score >= least]
    if recency and not recent:
        half_life, now = recency
        found = [
            h._replace(
                score=h.score * (1 + 0.1 * 0.5 ** (max(0, now - when(h.document)) / half_life))
            )
            for h in found
        ]
    found.sort(key=lambda hit: before(hit, recent))
    if grouped:
        sizes = Counter(hit.document["path"] for hit in found)
        firsts: dict[str, Hit] = {}
        seconds: dict[str, float] = {}
        for hit in found:
            path = hit.document["path"]
            known = firsts.setdefault(path, hit._replace(others=sizes[path] - 1))
            if known.document is not hit.document and path not in seconds and not recent:
                seconds[path] = formula.second * hit.score
        found = [h._replace(score=h.score + seconds.get(p, 0.0)) for p, h in firsts.items()]
        found.sort(key=lambda hit: before(hit, recent))
    return Answer(found, total, count, doc_freqs)
