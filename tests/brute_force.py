"""A second scorer, written from the specification alone: plain documents, plain loops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from indexd.model import DEFAULT_KINDS, KINDS
from indexd.text import Profile, meaning, query_terms, raw_tokens

Plain = dict[str, Any]  # path message kind call text tool time mtime


class Answer(NamedTuple):
    hits: list[tuple[float, Plain]]
    total: int
    documents: int
    doc_freqs: dict[bytes, int]


@lru_cache(maxsize=10_000)
def analysed(text: str, profile: Profile) -> tuple[Counter[bytes], int]:
    meanings = [meaning(raw, profile) for raw in raw_tokens(text)]
    return Counter(t for m in meanings for t in m.terms), sum(m.length for m in meanings)


def when(document: Plain) -> int:
    return int(document["time"] or document["mtime"])


def search(
    documents: Iterable[Plain],
    query: str,
    profile: Profile,
    *,
    kinds: Iterable[str] = DEFAULT_KINDS,
    accepts: Callable[[Plain], bool] = lambda document: True,
    tool_name: str | None = None,
    since: int | None = None,
    until: int | None = None,
    coverage: float = 0.0,
    recent: bool = False,
    relative_score: float = 0.15,
) -> Answer:
    """Return everything that answers `query`, best first, and the counts that go with it."""
    chosen = [
        (document, *analysed(document["text"], profile))
        for document in documents
        if document["kind"] in set(kinds)
        and accepts(document)
        and (tool_name is None or (document["tool"], document["kind"][:5]) == (tool_name, "tool_"))
        and (since is None or since <= when(document))
        and (until is None or when(document) <= until)
    ]
    chosen = [each for each in chosen if each[2]]
    count = len(chosen)
    average = sum(length for _, _, length in chosen) / count if count else 1.0
    terms = query_terms(query, profile)
    doc_freqs = {t: sum(t in counts for _, counts, _ in chosen) for t in terms}
    idf = {t: math.log(1 + (count - n + 0.5) / (n + 0.5)) for t, n in doc_freqs.items() if n}
    found: list[tuple[float, Plain]] = []
    for document, counts, length in chosen:
        held = [t for t in terms if t in counts]
        score = 0.0
        for t in held:
            tf = counts[t]
            score += idf[t] * tf * (1.2 + 1) / (tf + 1.2 * (1 - 0.75 + 0.75 * length / average))
        if held:
            mass = sum(idf[t] for t in held) / sum(idf.values())
            found.append((score * (1 + coverage * mass), document))
    total = len(found)
    least = relative_score * max((score for score, _ in found), default=0.0)
    found = [hit for hit in found if hit[0] >= least]
    found.sort(
        key=lambda hit: (
            -when(hit[1]) if recent else -hit[0],
            hit[1]["path"].encode("utf-8", "surrogateescape"),
            hit[1]["message"],
            KINDS.index(hit[1]["kind"]),
            hit[1]["call"],
        )
    )
    return Answer(found, total, count, doc_freqs)
