"""A second scorer, written from the documentation alone: plain documents, plain loops."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
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


def of_tool(document: Plain, names: Sequence[str]) -> bool:
    return document["tool"] in names and document["kind"].startswith("tool_")


def freq_of(occurring: set[bytes], asked: QueryTerm, counts: Counter[bytes]) -> int:
    """Return how often a document with these counts holds a query term."""
    if asked.known and occurring.isdisjoint(asked.terms[asked.known :]):
        return 0
    return sum(counts[term] for term in dict.fromkeys(asked.terms))


def bm25(weights: Sequence[float], freqs: Sequence[int], length: int, average: float) -> float:
    """Return the sum over the terms of a document."""
    score = 0.0
    for weight, tf in zip(weights, freqs, strict=True):
        if tf:
            norm = 1.2 * (1 - 0.75 + 0.75 * length / average)
            score += weight * tf * (1.2 + 1) / (tf + norm)
    return score


def mass_by_session(
    paths: Sequence[str], freqs: Sequence[Sequence[int]], weights: Sequence[float]
) -> dict[str, float]:
    """Return of each session the sum of the weights of all terms that any document of it holds."""
    held: dict[str, set[int]] = defaultdict(set)
    for path, mine in zip(paths, freqs, strict=True):
        held[path] |= {at for at, tf in enumerate(mine) if tf}
    return {path: sum(weights[at] for at in sorted(its)) for path, its in held.items()}


def raised(hit: Hit, half_life: float, now: int) -> Hit:
    """Return a hit with the score that it has where newer ones are preferred."""
    age = max(0, now - when(hit.document))
    return hit._replace(score=hit.score * (1 + 0.1 * 0.5 ** (age / half_life)))


def one_per_session(hits: list[Hit], second: float) -> list[Hit]:
    """Return of each session its first hit, with `second` times the score of its next added."""
    sessions: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        sessions[hit.document["path"]].append(hit)
    return [
        first._replace(
            score=first.score + sum(second * hit.score for hit in rest[:1]), others=len(rest)
        )
        for first, *rest in sessions.values()
    ]


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
    names = set(kinds)
    chosen = [
        (document, *analysed(document["text"], profile))
        for document in documents
        if document["kind"] in names
        and accepts(document)
        and (tool_names is None or of_tool(document, tool_names))
        and (since is None or since <= when(document))
        and (until is None or when(document) <= until)
    ]
    chosen = [each for each in chosen if each[2]]
    count = len(chosen)
    average = sum(length for _, _, length in chosen) / count if count else 1.0
    freq = partial(freq_of, {term for _, counts, _ in chosen for term in counts})
    every = [[freq(asked, counts) for asked in query] for _, counts, _ in chosen]
    doc_freqs = [sum(freqs[at] > 0 for freqs in every) for at in range(len(query))]
    weights = [
        asked.weight * math.log(1 + (count - n + 0.5) / (n + 0.5)) if n else 0.0
        for asked, n in zip(query, doc_freqs, strict=True)
    ]
    whole = sum(weights)
    by_session = mass_by_session([document["path"] for document, _, _ in chosen], every, weights)
    found: list[Hit] = []
    for (document, counts, length), freqs in zip(chosen, every, strict=True):
        held = all(freq(asked, counts) for asked in demand.must)
        barred = any(freq(asked, counts) for asked in demand.must_not)
        if not whole or not held or barred or not (any(freqs) or demand.must):
            continue
        score = bm25(weights, freqs, length, average)
        mass = sum(weight for weight, tf in zip(weights, freqs, strict=True) if tf)
        score *= 1 + formula.coverage * (mass / whole)
        score *= 1 + formula.session_coverage * (by_session[document["path"]] / whole)
        found.append(Hit(score, document))
    least = relative_score * max((hit.score for hit in found), default=0.0)
    hits = [hit for hit in found if hit.score >= least]
    if recency and not recent:
        hits = [raised(hit, *recency) for hit in hits]
    hits.sort(key=lambda hit: before(hit, recent))
    if grouped:
        hits = one_per_session(hits, 0.0 if recent else formula.second)
        hits.sort(key=lambda hit: before(hit, recent))
    return Answer(hits, len(found), count, doc_freqs)
