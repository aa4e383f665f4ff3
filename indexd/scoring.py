"""From postings to scores.

Whatever is added up per document or per session is added in the order of the query's terms, so
that equal documents get bit-equal scores wherever they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from indexd import bm25
from indexd.index import Part
from indexd.plan import Formula
from indexd.segment import Array, Segment, sort_pairs

# With a posting for every so many documents of a part, marking them in one array of all its
# documents beats sorting ordinals.
DENSE_DOCUMENTS = 32

Postings = tuple[Array, Array]  # ordinals, ascending, and term frequencies
Scored = tuple[Array, Array]  # ordinals, ascending, and scores

NOTHING: Postings = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))


class Matches(NamedTuple):
    """What one part holds of a query: the selected postings of each query term."""

    part: Part
    terms: list[Postings]


def together(found: Sequence[Postings]) -> Postings:
    """Return the documents that hold any of some terms, their frequencies added up."""
    if len(found) < 2:
        return found[0] if found else NOTHING
    ordinals, freqs = sort_pairs(
        np.concatenate([ordinals for ordinals, _ in found]).astype(np.int64),
        np.concatenate([freqs for _, freqs in found]).astype(np.int64),
    )
    first = _firsts(ordinals)
    return ordinals[first], np.add.reduceat(freqs, first)


def score(
    matches: Sequence[Matches], weights: Sequence[float], average: float, formula: Formula
) -> list[Scored]:
    """Return for each part the documents that hold any term, and their scores.

    `weights` are those of the query's terms, idf included: 0 where none occurs.
    """
    scored = [_score(match, weights, average, formula.coverage) for match in matches]
    if formula.session_coverage and any(weights):
        _favour_sessions(matches, scored, weights, formula.session_coverage)
    return scored


def _score(match: Matches, weights: Sequence[float], average: float, coverage: float) -> Scored:
    documents, positions = _documents(match.part.segment, match.terms)
    lengths = match.part.segment.columns.length
    scores = np.zeros(len(documents))
    mass = np.zeros(len(documents))
    for at, weight, (ordinals, freqs) in zip(positions, weights, match.terms, strict=True):
        scores[at] += bm25.weights(freqs, lengths[ordinals], average, weight)
        if coverage:
            mass[at] += weight
    if coverage and len(documents):
        scores *= 1 + coverage * (mass / sum(weights))
    return documents, scores


def _documents(segment: Segment, terms: Sequence[Postings]) -> tuple[Array, list[Array]]:
    """Return the documents that hold any term, and each term's positions among them."""
    found = [ordinals for ordinals, _ in terms if len(ordinals)]
    if not found:
        return np.zeros(0, np.int64), [np.zeros(0, np.int64)] * len(terms)
    if sum(map(len, found)) * DENSE_DOCUMENTS > len(segment):
        touched = np.zeros(len(segment), bool)
        for ordinals in found:
            touched[ordinals] = True
        documents = np.flatnonzero(touched)
        place = np.empty(len(touched), np.int64)
        place[documents] = np.arange(len(documents))
        return documents, [place[ordinals] for ordinals, _ in terms]
    ordinals = np.sort(np.concatenate(found))
    documents = ordinals[_firsts(ordinals)]
    return documents, [documents.searchsorted(ordinals) for ordinals, _ in terms]


def _favour_sessions(
    matches: Sequence[Matches], scored: Sequence[Scored], weights: Sequence[float], gain: float
) -> None:
    """Raise each score by the share of the query that its session holds, in all its documents."""
    files = [match.part.segment.columns.file for match in matches]
    numbers, sessions = _numbered([match.part.segment.file_ids for match in matches])
    mass = np.zeros(sessions)
    for at, weight in enumerate(weights):
        holds = np.zeros(sessions, bool)
        for match, file, number in zip(matches, files, numbers, strict=True):
            here = np.zeros(len(number), bool)
            here[file[match.terms[at][0]]] = True
            holds[number[here]] = True
        mass[holds] += weight
    factors = 1 + gain * (mass / sum(weights))
    for file, number, (documents, scores) in zip(files, numbers, scored, strict=True):
        scores *= factors[number][file[documents]]


def _numbered(file_ids: Sequence[Array]) -> tuple[list[Array], int]:
    """Return a number for each file of each part, the same for the same id, and how many."""
    if len(file_ids) == 1:
        return [np.arange(len(file_ids[0]))], len(file_ids[0])
    ids = np.sort(np.concatenate(file_ids))
    known = ids[_firsts(ids)]
    return [known.searchsorted(each) for each in file_ids], len(known)


def _firsts(ordered: Array) -> Array:
    """Return where each run of equal values begins; `ordered` is not empty."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
