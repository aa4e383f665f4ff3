"""The right answers, the slow way: every document is read and scored in plain Python.

Shares with the engine the readers of session files and the tokenizer, and nothing of how it
stores, counts or ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import texts
from engines import RELATIVE_SCORE, TOP, Query

from indexd.model import KINDS, Kind

K1, B = 1.2, 0.75
Place = tuple[str, int, Kind, int]


class Doc(NamedTuple):
    """A document that holds any term of the queries; `freqs` by term."""

    place: Place
    project: str
    length: int
    freqs: dict[str, int]


class Truth:
    """All that can be asked with the terms of some queries."""

    def __init__(self, home: str, queries: Iterable[Query]) -> None:
        wanted = {term for query in queries for term in query.terms}
        self._holders: dict[str, list[Doc]] = {term: [] for term in wanted}
        # (documents, tokens) by kind and project
        self._sizes: dict[tuple[Kind, str], tuple[int, int]] = {}
        for session in texts.sessions(home):
            for document in session.documents:
                terms = texts.seed_terms(document.text)
                key = document.kind, session.project
                count, tokens = self._sizes.get(key, (0, 0))
                self._sizes[key] = count + 1, tokens + len(terms)
                held = wanted.intersection(terms)
                if held:
                    place = (session.path, document.message_index, document.kind, document.call)
                    freqs = {term: terms.count(term) for term in held}
                    doc = Doc(place, session.project, len(terms), freqs)
                    for term in held:
                        self._holders[term].append(doc)

    def answer(self, query: Query) -> tuple[list[tuple[Place, float]], int]:
        """Return the best documents with their scores, and how many matched."""
        sizes = [
            size
            for (kind, project), size in self._sizes.items()
            if kind in query.kinds and query.project in ("", project)
        ]
        documents, tokens = sum(n for n, _ in sizes), sum(t for _, t in sizes)
        scores: dict[Place, float] = {}
        for term in query.terms:
            holders = [doc for doc in self._holders[term] if _selected(doc, query)]
            idf = math.log(1 + (documents - len(holders) + 0.5) / (len(holders) + 0.5))
            for doc in holders:
                freq = doc.freqs[term]
                norm = K1 * (1 - B + B * doc.length / (tokens / documents))
                added = idf * freq * (K1 + 1) / (freq + norm)
                scores[doc.place] = scores.get(doc.place, 0.0) + added
        best = sorted(scores.items(), key=_order)[:TOP]
        least = RELATIVE_SCORE * best[0][1] if best else 0.0
        return [hit for hit in best if hit[1] >= least], len(scores)


def differences(
    found: Sequence[tuple[Place, float]], right: Sequence[tuple[Place, float]]
) -> list[str]:
    """Return what is wrong with an answer; equal scores may differ by less than 1e-9."""
    wrong = [] if len(found) == len(right) else [f"{len(found)} hits instead of {len(right)}"]
    for number, (mine, theirs) in enumerate(zip(found, right, strict=False), start=1):
        if mine[0] != theirs[0] or abs(mine[1] - theirs[1]) > 1e-9:
            wrong.append(f"hit {number} is {mine} instead of {theirs}")
    return wrong


def _selected(doc: Doc, query: Query) -> bool:
    return doc.place[2] in query.kinds and query.project in ("", doc.project)


def _order(hit: tuple[Place, float]) -> tuple[float, bytes, int, int, int]:
    (path, message, kind, call), score = hit
    # Sums in another order differ in the last bits; what is equal must be so here as well.
    return -round(score, 12), path.encode(), message, KINDS.index(kind), call
