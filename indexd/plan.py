"""From a query to what is looked up and how much each of it counts.

A query term is usually one word, weighing 1. Profile `code` adds what people mean beyond what
they type: other forms of an English word, and the joined form of words they wrote apart; words
that only hold a sentence together count less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import pairwise
from typing import NamedTuple

from indexd.english import STOP_WORDS, forms, stem
from indexd.text import Profile, query_terms, raw_tokens

# Neighbours are joined in queries of this many words: longer ones are sentences.
JOINED_WORDS = (2, 3)


class QueryTerm(NamedTuple):
    """One thing that is asked for: any of `terms`, their frequencies added up, at `weight`.

    The first `known` of the terms are asked for on their own as well: the group counts only
    where another of them occurs in what is searched.
    """

    terms: tuple[bytes, ...]
    weight: float = 1.0
    known: int = 0

    def among(self, occurring: Set[bytes]) -> list[bytes]:
        """Return those of the terms that count where `occurring` are all that occur."""
        if self.known and occurring.isdisjoint(self.terms[self.known :]):
            return []
        return [term for term in self.terms if term in occurring]


class Demand(NamedTuple):
    """What a document must and must not hold to be an answer; statistics know nothing of it.

    Each of `must` asks for any of its terms; a document with a term of `must_not` is none.
    """

    must: tuple[QueryTerm, ...] = ()
    must_not: tuple[QueryTerm, ...] = ()


NO_DEMAND = Demand()


class Formula(NamedTuple):
    """How a score differs from the plain sum over the query's terms; the default is that sum.

    coverage, session_coverage: how much a document gains when it, or its session, holds the
    whole of the query's idf mass. stop_words: the weight of words without meaning of their own.
    stems: the weight of a group of words of one stem, beside its exact words.
    joined: the weight of neighbours written together. second: how much a session's second best
    document adds to its best where sessions are ranked.
    """

    coverage: float = 0.0
    session_coverage: float = 0.0
    stop_words: float = 1.0
    stems: float = 0.0
    joined: float = 0.0
    second: float = 0.0


FORMULAS: dict[Profile, Formula] = {
    "seed": Formula(),
    "code": Formula(
        coverage=1.0, session_coverage=1.0, stop_words=0.5, stems=0.5, joined=1.0, second=1.0
    ),
}


def plan(query: str, profile: Profile, formula: Formula) -> list[QueryTerm]:
    """Return what `query` asks for, in a fixed order, no term or group twice."""
    words = query_terms(query, profile)
    terms = [QueryTerm((w,), formula.stop_words if w in STOP_WORDS else 1.0) for w in words]
    if formula.joined:
        known = set(words)
        extra = (term for term in _joined_neighbours(query) if term not in known)
        terms += [QueryTerm((term,), formula.joined) for term in dict.fromkeys(extra)]
    if formula.stems:
        terms += _stem_groups(words, formula.stems)
    return terms


def _joined_neighbours(query: str) -> Iterator[bytes]:
    raws = raw_tokens(query)
    if len(raws) in JOINED_WORDS:
        for pair in pairwise(raws):
            yield from _joined(pair)
        if len(raws) > 2:
            yield from _joined(raws)


def _joined(raws: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the words written as one; nothing where one of them is not ASCII."""
    whole = b"".join(raws).replace(b"_", b"").lower()
    if whole.isascii():
        yield whole


def _stem_groups(words: Iterable[bytes], weight: float) -> Iterator[QueryTerm]:
    groups: dict[str, list[bytes]] = {}
    for word in words:
        if word not in STOP_WORDS and (of_word := stem(word)):
            groups.setdefault(of_word, []).append(word)
    for of_words, asked in groups.items():
        yield QueryTerm(tuple(dict.fromkeys((*asked, *forms(of_words)))), weight, len(asked))
