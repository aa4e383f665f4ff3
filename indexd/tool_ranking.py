"""Which tools answer a question: fielded BM25 over slots, with a bonus for a name that fits.

Postings come from the index's own parts, as for sessions; only the formula differs, since a slot
counts once however many of its terms a tool holds. docs/tools.md states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from indexd.index import Snapshot
from indexd.matching import match
from indexd.plan import QueryTerm
from indexd.segment import Array, Segment, term_hash
from indexd.selection import Selection, views
from indexd.tool_analysis import KIND, NAME, READS_ONLY, SERVER, UNIT
from indexd.tool_query import Slot

K1 = 0.9
# A catalog is judged as if it had at least this many tools: in a catalog of two, BM25 finds
# every word common and a fixed threshold would cut right answers.
MIN_DOCUMENTS = 100

COVERAGE = 0.5  # how much a tool gains that speaks of everything the question says
SERVER_BONUS = 1.0
SERVER_MATCH = 0.6  # the least weight of a term that counts as naming the server
FULL_MENTION = 1.5  # a saturation of 1/1.5 already counts as the word being covered

# Of tools that answer equally well, the one that only reads comes first.
READ_ONLY = 1.02
# So many terms' postings are remembered; then all are forgotten.
REMEMBERED_TERMS = 4000


class Ranked(NamedTuple):
    """Documents that answer in any way, in no order: the file id of each, its score, and the share
    of the question that it covers."""

    file_ids: Array
    scores: Array
    coverage: Array

    def where(self, chosen: Array) -> Ranked:
        """Return those for which a boolean is true, or those at some positions."""
        return Ranked(*(column[chosen] for column in self))


class TermValues(NamedTuple):
    """A term's idf, the documents that hold it, what it scores in each, and the documents that
    hold it in their name or their server's."""

    idf: float
    documents: Array
    values: Array
    named: Array
    serving: Array


class Ranking:
    """Scores questions against one state of the index of tools.

    Documents are numbered through all parts, one part after the other.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._parts = snapshot.parts
        self._views = views(snapshot, Selection((KIND,)))
        sizes = [len(part.segment) for part in self._parts]
        self._first = np.cumsum([0, *sizes])[:-1].tolist()
        self._size = sum(sizes)
        self._file_ids = _joined(
            [p.segment.file_ids.take(p.segment.columns.file) for p in self._parts]
        )
        self._documents = snapshot.documents
        self._values: dict[str, TermValues] = {}
        self._name_weights = self._weigh_names()
        self._preference = np.ones(self._size)
        self._preference[self._postings([READS_ONLY])[0][0]] = READ_ONLY

    def rank(self, slots: Sequence[Slot]) -> Ranked:
        """Return the documents that answer `slots` in any way."""
        size = self._size
        self._learn({term for slot in slots for term in slot.terms})
        total, covered, named, server = np.zeros((4, size))
        mass = 0.0
        for slot in slots:
            weights, slot_idf = self._weigh(slot)
            best, name, of_server = np.zeros((3, size))
            for term, weight in weights:
                _raise(best, term.documents, weight * term.values)
                _raise(name, term.named, weight * term.idf)
                if weight >= SERVER_MATCH:
                    _raise(of_server, term.serving, weight * term.idf)
            total += best
            covered += np.minimum(slot_idf, best * (FULL_MENTION / (K1 + 1)))
            mass += slot_idf
            named += name
            server = np.maximum(server, of_server)
        coverage = covered / mass if mass else covered
        # The idf of the name's words that were asked for, times their share of the name: a
        # name said whole gains much, a name merely touched hardly anything.
        bonus = named * named / np.maximum(self._name_weights, 1e-9) + SERVER_BONUS * server
        score = (total * (1 + COVERAGE * coverage) + bonus) * self._preference
        # Sums differ in their last digits by the order of the parts; answers must not.
        return Ranked(self._file_ids, np.round(score, 9), coverage).where(total > 0)

    def knows(self, slot: Slot) -> bool:
        """Say whether any tool mentions what the slot says; `rank` was given it."""
        return any(len(self._values[term].documents) for term in slot.terms)

    def _learn(self, terms: Iterable[str]) -> None:
        """Look up those terms that are not remembered."""
        if len(self._values) > REMEMBERED_TERMS:
            self._values.clear()
        new = [term for term in terms if term not in self._values]
        if not new:
            return
        found = dict(zip(new, self._postings(new), strict=True))
        # What names hold is among what tools hold.
        known = [term for term, (documents, _) in found.items() if len(documents)]
        named = dict(zip(known, self._postings([NAME + term for term in known]), strict=True))
        serving = dict(zip(known, self._postings([SERVER + term for term in known]), strict=True))
        for term, (documents, freqs) in found.items():
            idf = float(_idf(np.array(len(documents)), self._documents))
            self._values[term] = TermValues(
                idf,
                documents,
                idf * _saturated(freqs),
                named.get(term, _NOTHING)[0],
                serving.get(term, _NOTHING)[0],
            )

    def _postings(self, terms: Sequence[str]) -> list[tuple[Array, Array]]:
        """Return the documents that hold each term, and how much of it each holds."""
        matches = match(self._views, [QueryTerm((term.encode(),)) for term in terms])
        found = []
        for at in range(len(terms)):
            held = [each.terms[at].postings() for each in matches]
            own = [each.ordinals + first for each, first in zip(held, self._first, strict=True)]
            found.append((_joined(own), _joined([each.freqs for each in held])))
        return found

    def _weigh(self, slot: Slot) -> tuple[list[tuple[TermValues, float]], float]:
        """Return the slot's terms that tools use, with their weights, and the slot's own idf.

        A stand-in rarer than the word it stands for must not say more than it, hence the cut.
        """
        terms = [(self._values[text], weight) for text, weight in slot.terms.items()]
        present = [(term, weight) for term, weight in terms if len(term.documents)]
        own = [term.idf for term, weight in present if weight >= 1]
        if own:
            limit = max(own)
            return [(term, w * min(1.0, limit / term.idf)) for term, w in present], limit
        guessed = [term.idf * weight for term, weight in present]
        unknown = float(np.log(1 + max(self._documents, MIN_DOCUMENTS)))
        return present, max(guessed, default=unknown)

    def _weigh_names(self) -> Array:
        """Return the idf of all words of each document's name, added up."""
        freqs = [part.doc_freqs() for part in self._parts]
        found = []
        for part in self._parts:
            dictionary, postings = part.segment.dictionary, part.segment.postings
            at, hashes = _name_words(part.segment)
            doc_freqs = sum(
                _looked_up(other.segment.dictionary.hashes, own, hashes)
                for other, own in zip(self._parts, freqs, strict=True)
            )
            idf = np.zeros(len(dictionary))
            idf[at] = _idf(np.asarray(doc_freqs), self._documents)
            ordinals, _ = postings.of(0, len(dictionary))
            each = np.repeat(idf, np.diff(postings.starts))
            found.append(np.bincount(ordinals, each, len(part.segment)))
        return _joined(found)


def _name_words(segment: Segment) -> tuple[Array, Array]:
    """Return where the words of names are in a segment's dictionary, and their own hashes."""
    known: tuple[Array, Array] | None = segment.derived.get("name_words")
    if known is None:
        at = segment.dictionary.places(NAME.encode())
        words = [segment.dictionary.term(place)[len(NAME) :] for place in at.tolist()]
        hashes = np.array([term_hash(word) for word in words], np.uint64)
        known = segment.derived["name_words"] = at, hashes
    return known


def _looked_up(hashes: Array, values: Array, wanted: Array) -> Array:
    """Return the value beside each wanted hash, 0 where it is not among the ascending hashes."""
    if not len(hashes):
        return np.zeros(len(wanted), np.int64)
    at = hashes.searchsorted(wanted)
    found: Array = values.take(at, mode="clip") * (hashes.take(at, mode="clip") == wanted)
    return found


def _idf(doc_freqs: Array, documents: int) -> Array:
    count = max(documents, MIN_DOCUMENTS)
    idf: Array = np.log(1 + (count - doc_freqs + 0.5) / (doc_freqs + 0.5))
    return idf


def _raise(scores: Array, documents: Array, values: Array | float) -> None:
    if len(documents):
        scores[documents] = np.maximum(scores[documents], values)


def _saturated(freqs: Array) -> Array:
    mentions = freqs / UNIT
    found: Array = mentions * (K1 + 1) / (mentions + K1)
    return found


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, np.uint32), *arrays])


_NOTHING = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))
