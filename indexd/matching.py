"""What a part of the index holds of each query term: postings, and rows of frequent terms.

A query term may stand for several terms; then those without a row are put together into one list,
and a document holds it as often as it holds all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from indexd import impact
from indexd.impact import Row
from indexd.plan import QueryTerm
from indexd.segment import Array, distinct, term_hash
from indexd.selection import View

# Up to this many ordinals, the distinct ones are counted by sorting.
FEW_ORDINALS = 30_000


class Listed(NamedTuple):
    """Postings of selected documents: ordinals (u32), ascending, and frequencies.

    A long list has impacts, and perhaps bits: of every document that holds the term.
    """

    ordinals: Array
    freqs: Array
    impacts: Array | None = None
    bits: Array | None = None


class Frequent(NamedTuple):
    """The row of a term, and its position in the dictionary."""

    row: Row
    at: int


class Held:
    """What one part holds of one query term."""

    def __init__(self, view: View, listed: Listed, frequent: Sequence[Frequent]) -> None:
        self._view, self.listed, self.frequent = view, listed, frequent
        self._count = len(listed.ordinals)
        if len(frequent) == 1 and not self._count:
            self._count = _selected(view, frequent[0])
        elif frequent:
            self._count = union(view, [each.row for each in frequent], [listed])

    def __len__(self) -> int:
        """Return how many selected documents hold the term."""
        return self._count

    def at(self, documents: Array) -> Array:
        """Return how often each of some selected documents holds the term."""
        listed = self.listed
        found = beside(listed.ordinals, listed.freqs, documents) if len(listed.ordinals) else None
        for each in self.frequent:
            freqs = each.row.freqs(documents)
            found = freqs if found is None else found.astype(np.uint32) + freqs
        return np.zeros(len(documents), np.uint8) if found is None else found

    def files(self) -> Array:
        """Return the boolean per file of the part: whether a selected document holds the term."""
        segment = self._view.part.segment
        held = np.zeros(len(segment.file_ids), bool)
        held[segment.columns.file.take(self.listed.ordinals)] = True
        for each in self.frequent:
            held |= _files(self._view, each)
        return held

    def postings(self) -> Listed:
        """Return the selected documents that hold the term, and how often each does."""
        if not self.frequent:
            return self.listed
        documents = self.documents()
        return Listed(documents, self.at(documents))

    def documents(self) -> Array:
        """Return the selected documents that hold the term, ascending."""
        lists = [_documents(self._view, each.row) for each in self.frequent]
        found = np.concatenate([self.listed.ordinals, *lists])
        return np.unique(found) if len(lists) else found


class Matches(NamedTuple):
    """What one part holds of each query term."""

    view: View
    terms: list[Held]

    def only(self, chosen: Sequence[int]) -> Matches:
        """Return the matches of some of the query terms."""
        return Matches(self.view, [self.terms[at] for at in chosen])


def match(views: Sequence[View], query: Sequence[QueryTerm]) -> list[Matches]:
    """Return what each view holds of each query term."""
    terms = list(dict.fromkeys([term for each in query for term in each.terms]))
    hashes = np.array([term_hash(term) for term in terms], np.uint64)
    found = [_terms(view, terms, hashes) for view in views]
    occurring = found[0].keys() if len(found) == 1 else frozenset().union(*found)
    wanted = [each.among(occurring) for each in query]
    return [
        Matches(view, [_held(view, [held[t] for t in which if t in held]) for which in wanted])
        for view, held in zip(views, found, strict=True)
    ]


def union(view: View, rows: Sequence[Row], lists: Sequence[Listed]) -> int:
    """Return how many selected documents are in any row or list."""
    known = [row.bits for row in rows] + [each.bits for each in lists if each.bits is not None]
    short = [each.ordinals for each in lists if each.bits is None]
    if sum(map(len, short)) > FEW_ORDINALS:
        known.append(impact.bits_of(view.part.segment, short))
        short = []
    ordinals = short[0] if len(short) == 1 else distinct(np.concatenate([_NONE, *short]))
    if not known:
        return len(ordinals)
    bits = known[0]
    for other in known[1:]:
        bits = bits | other
    outside = holds(bits, ordinals) == 0
    if not view.whole:
        bits = bits & view.bits()
    inside = np.bitwise_count(bits.view(np.uint64)).sum(dtype=np.int64)
    return int(inside) + int(np.count_nonzero(outside))


def holds(bits: Array, documents: Array) -> Array:
    """Return 1 or 0 for each of some documents: whether its bit is set."""
    found: Array = bits.take(documents >> np.uint32(3)) >> (7 - (documents & np.uint32(7))) & 1
    return found


def beside(ordinals: Array, values: Array, documents: Array) -> Array:
    """Return the value beside each of some documents in ascending ordinals; 0 where it is not."""
    place = ordinals.searchsorted(documents)
    found: Array = values.take(place, mode="clip")
    found = found * (ordinals.take(place, mode="clip") == documents)
    return found


def grouped(ordinals: Array) -> tuple[Array, Array, Array]:
    """Return the distinct ones of some ordinals, and the order that brings equal ones together.

    Equal ones stay in order; the third item says for each place which distinct one it is of.
    """
    order = ordinals.argsort(kind="stable")
    ordinals = ordinals[order]
    other = np.concatenate(([True], ordinals[1:] != ordinals[:-1]))
    return ordinals[other], order, other.cumsum() - 1


def _terms(view: View, terms: list[bytes], hashes: Array) -> dict[bytes, Listed | Frequent]:
    """Return those of the terms that a selected document holds."""
    segment = view.part.segment
    found: dict[bytes, Listed | Frequent] = {}
    for term, at in segment.dictionary.find_all(terms, hashes):
        row = impact.row(segment, at)
        if row is not None and view.few is None:
            frequent = Frequent(row, at)
            if _selected(view, frequent):
                found[term] = frequent
            continue
        listed = _of_few(view.few, row) if row is not None else _listed(view, at)
        if len(listed.ordinals):
            found[term] = listed
    return found


def _listed(view: View, at: int) -> Listed:
    segment = view.part.segment
    known = impact.listing(segment, at)
    if known is None:
        return Listed(*view.chosen(*segment.term_postings(at)))
    ordinals, freqs, impacts = view.chosen(known.ordinals, known.freqs, known.impacts)
    return Listed(ordinals, freqs, impacts, known.bits)


def _of_few(documents: Array | None, row: Row) -> Listed:
    """Return the postings of a few documents."""
    assert documents is not None
    freqs = row.freqs(documents)
    kept = freqs.nonzero()[0]
    return Listed(documents[kept], freqs[kept])


def _held(view: View, terms: Sequence[Listed | Frequent]) -> Held:
    lists = [term for term in terms if isinstance(term, Listed)]
    return Held(
        view, _together(view, lists), [term for term in terms if isinstance(term, Frequent)]
    )


def _together(view: View, lists: Sequence[Listed]) -> Listed:
    """Return the postings of any of some lists, frequencies added up."""
    if len(lists) < 2:
        return lists[0] if lists else _NOTHING
    ordinals, order, owners = grouped(np.concatenate([each.ordinals for each in lists]))
    freqs = np.concatenate([each.freqs for each in lists])[order]
    freqs = np.bincount(owners, freqs).astype(np.uint32)
    if all(each.impacts is None for each in lists):
        return Listed(ordinals, freqs)
    return Listed(ordinals, freqs, impact.impacts(view.part.segment, ordinals, freqs))


def _selected(view: View, frequent: Frequent) -> int:
    """Return how many selected documents hold a frequent term."""
    if view.mask is None:
        below = frequent.row.below
        return sum([below[rank + 1] - below[rank] for rank in view.ranks])
    known = view.counts.get(frequent.at)
    if known is None:
        known = view.counts[frequent.at] = union(view, [frequent.row], ())
    return known


def _files(view: View, frequent: Frequent) -> Array:
    """Return the boolean per file: whether a selected document holds a frequent term."""
    if view.by_file:
        held: Array = np.logical_or.reduce(frequent.row.files[list(view.ranks)])
        return held if view.files is None else held & view.files
    known = view.holders.get(frequent.at)
    if known is None:
        segment = view.part.segment
        known = np.zeros(len(segment.file_ids), bool)
        known[segment.columns.file.take(_documents(view, frequent.row))] = True
        view.holders[frequent.at] = known
    return known


def _documents(view: View, row: Row) -> Array:
    bits: Array = row.bits if view.whole else row.bits & view.bits()
    return np.unpackbits(bits).nonzero()[0].astype(np.uint32)


_NONE = np.zeros(0, np.uint32)
_NOTHING = Listed(_NONE, np.zeros(0, np.uint8))
