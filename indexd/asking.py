"""From a query, read, to what is asked of the index: terms to rank by, demands, phrases."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from indexd.index import Snapshot
from indexd.phrases import Phrase, phrase
from indexd.plan import Demand, Formula, QueryTerm, plan
from indexd.query import Clause, Query, Shape
from indexd.text import Profile, fold_case, whole_terms

# How many terms a beginning may stand for.
MAX_EXPANSION = 1000


class Asked(NamedTuple):
    """What is asked of the index.

    terms: what ranks. typed: the words, without operators. text: what a snippet is to show.
    found_by: every term that a match may have. warnings: what was left out.
    """

    terms: list[QueryTerm]
    typed: str
    text: str
    found_by: list[bytes]
    demand: Demand
    phrases: list[Phrase]
    warnings: list[str]


def asked(query: Query, snapshot: Snapshot, profile: Profile, formula: Formula) -> Asked:
    """Return what `query` asks of the documents of `snapshot`."""
    typed = [c for c in query.clauses if c.shape is not Shape.PREFIX and c.sign != "-"]
    text = " ".join(clause.text for clause in typed)
    warnings: list[str] = []
    prefixes = {
        clause: _expanded(snapshot, clause.text, warnings)
        for clause in query.clauses
        if clause.shape is Shape.PREFIX
    }
    terms = plan(text, profile, formula)
    terms += [term for clause, term in prefixes.items() if clause.sign != "-"]
    return Asked(
        terms,
        text,
        _shown(query, text),
        list(dict.fromkeys(term for each in terms for term in each.terms)),
        _demand(query.clauses, prefixes, profile),
        [phrase(c.text, wanted=c.sign != "-") for c in query.clauses if c.shape is Shape.PHRASE],
        warnings,
    )


def _shown(query: Query, text: str) -> str:
    """Return what a snippet looks for first: a phrase, where there is one."""
    wanted = (c.text for c in query.clauses if c.shape is Shape.PHRASE and c.sign != "-")
    return next(wanted, text)


def _demand(
    clauses: Iterable[Clause], prefixes: dict[Clause, QueryTerm], profile: Profile
) -> Demand:
    must: list[QueryTerm] = []
    must_not: list[QueryTerm] = []
    for clause in clauses:
        if not clause.sign and clause.shape is not Shape.PHRASE:
            continue
        if clause in prefixes:
            own = [prefixes[clause]]
        else:
            own = [QueryTerm((term,)) for term in whole_terms(clause.text, profile)]
        if clause.sign != "-":
            must += own
        elif clause.shape is not Shape.PHRASE:
            must_not += own
    return Demand(tuple(dict.fromkeys(must)), tuple(dict.fromkeys(must_not)))


def _expanded(snapshot: Snapshot, prefix: str, warnings: list[str]) -> QueryTerm:
    """Return the terms that begin with `prefix` as one; the shortest where they are many."""
    beginning = fold_case(prefix).encode("utf-8", "replace")
    found = {t for part in snapshot.parts for t in part.segment.dictionary.beginning(beginning)}
    if len(found) <= MAX_EXPANSION:
        return QueryTerm(tuple(found))
    # Terms of files that are gone must not take the place of others.
    in_order = sorted(found, key=lambda term: (len(term), term))
    living = (term for term in in_order if any(part.doc_freq(term) for part in snapshot.parts))
    terms = tuple(islice(living, MAX_EXPANSION + 1))
    if len(terms) > MAX_EXPANSION:
        warnings.append(f"{prefix}* begins more words than the {MAX_EXPANSION} shortest looked for")
    return QueryTerm(terms[:MAX_EXPANSION])
