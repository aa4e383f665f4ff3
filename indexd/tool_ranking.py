"""Which tools answer a question: fielded BM25 over slots, with a bonus for a name that fits.

The weights say what a reader of a tool list would say: the name tells most, the server and the
first sentence next, the rest of the description and the parameters little. docs/tools.md
states the whole formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexd.tool import Tool, first_sentence
from indexd.tool_index import Ordinals, TermIndex
from indexd.tool_query import SPELLING, Slot
from indexd.tool_text import squeeze, words

K1 = 0.9
UNIT = 100  # term frequencies are stored in hundredths
SENTENCE_CHARS = 300
REST_CHARS = 1000
PARAMETER_CHARS = 300
MAX_CHOICES = 30
# A catalog is judged as if it had at least this many tools: in a catalog of two, BM25 finds
# every word common and a fixed threshold would cut right answers.
MIN_DOCUMENTS = 100

COVERAGE = 0.5  # how much a tool gains that speaks of everything the question says
SERVER_BONUS = 1.0
SERVER_MATCH = 0.6  # the least weight of a term that counts as naming the server
FULL_MENTION = 1.5  # a saturation of 1/1.5 already counts as the word being covered

# Of tools that answer equally well, the one that only reads comes first.
READ_ONLY = 1.02

NAME = "name:"
SERVER = "server:"
# Bumped whenever `analyse` makes something else of a tool, since caches keep what it made.
VERSION = 1


class Field(NamedTuple):
    """How much a field's words count, and how a field longer than is typical dilutes them."""

    weight: float
    dilution: float = 0.0
    typical_terms: int = 1


# The typical lengths are the means over 3,000 tools of 76 servers.
FIELDS = {
    "name": Field(4.0, 0.3, 5),
    "server": Field(2.0),
    "title": Field(1.0, 0.3, 5),
    "sentence": Field(2.0, 0.5, 11),
    "rest": Field(0.3, 0.5, 45),
    "parameters": Field(0.3, 0.5, 10),
    "parameter_texts": Field(0.2, 0.5, 70),
}


def analyse(tool: Tool) -> dict[str, int]:
    """Return what the index keeps of one tool: its terms, in hundredths of a mention.

    Terms that begin with `name:`, `server:` and `word:` say what its name and its server are
    made of, and how the words of its texts are spelt.
    """
    fields = {field: words(text) for field, text in texts(tool).items()}
    weighed: dict[str, float] = {}
    for field, found in fields.items():
        weight, dilution, typical = FIELDS[field]
        length = sum([len(word.terms) for word in found])
        share = UNIT * weight / (1 - dilution + dilution * length / typical)
        for word in found:
            for term in word.terms:
                weighed[term] = weighed.get(term, 0.0) + share
    frequencies = {term: int(value) or 1 for term, value in weighed.items()}
    name = [part for word in fields["name"][:-1] for part in (word.parts or word.whole)]
    frequencies.update((NAME + term, 1) for term in name)
    frequencies.update((SERVER + term, 1) for word in fields["server"] for term in word.terms)
    spelt = [found for field, found in fields.items() if not field.startswith("parameter")]
    frequencies.update((SPELLING + word.text, 1) for found in spelt for word in found)
    return frequencies


def name_terms(frequencies: Iterable[str]) -> frozenset[str]:
    """Return the terms of a tool's name, out of its analysis."""
    return frozenset(t.removeprefix(NAME) for t in frequencies if t.startswith(NAME))


class Ranked(NamedTuple):
    """Documents, best first: their scores, and the share of the question that each covers."""

    ordinals: NDArray[np.intp]
    scores: NDArray[np.float64]
    coverage: NDArray[np.float64]


class TermValues(NamedTuple):
    """A term's idf, the documents that hold it, what it scores in each, and the documents that
    hold it in their name or their server's."""

    idf: float
    ordinals: Ordinals
    values: NDArray[np.float64]
    named: Ordinals
    serving: Ordinals


class Ranking:
    """Scores questions against one index of tools."""

    def __init__(
        self, index: TermIndex, names: Iterable[frozenset[str]], read_only: Iterable[bool]
    ) -> None:
        """Score by `index`; `names` and `read_only` say of each document, in the index's order,
        the terms of its name and whether it only reads."""
        self._index = index
        self._count = max(index.document_count, MIN_DOCUMENTS)
        self._values: dict[str, TermValues] = {}
        idf = _Memo(lambda term: self._idf(index.doc_freq(term)))
        self._name_weights = np.array([sum([idf[t] for t in name]) for name in names], np.float64)
        self._preference = np.array([READ_ONLY if r else 1.0 for r in read_only], np.float64)

    def rank(self, slots: Iterable[Slot]) -> Ranked:
        """Return the documents that answer `slots` in any way, best first.

        Equal scores keep the documents' own order.
        """
        size = self._index.document_count
        total, covered, named = np.zeros(size), np.zeros(size), np.zeros(size)
        server = np.zeros(size)
        mass = 0.0
        for slot in slots:
            weights, slot_idf = self._weigh(slot)
            best, name, of_server = np.zeros(size), np.zeros(size), np.zeros(size)
            for term, weight in weights:
                _raise(best, term.ordinals, weight * term.values)
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
        found = np.flatnonzero(total > 0)
        order = found[np.argsort(-np.round(score[found], 9), kind="stable")]
        return Ranked(order, score[order], coverage[order])

    def knows(self, slot: Slot) -> bool:
        """Say whether any tool mentions what the slot says."""
        return any(self._index.doc_freq(term) for term in slot.terms)

    def _term(self, term: str) -> TermValues:
        found = self._values.get(term)
        if found is None:
            ordinals, frequencies = self._index.postings(term)
            idf = self._idf(len(ordinals))
            values = idf * _saturated(frequencies)
            named, _ = self._index.postings(NAME + term)
            serving, _ = self._index.postings(SERVER + term)
            found = TermValues(idf, ordinals, values, named, serving)
            if len(ordinals):  # what strangers ask for must not fill the memory
                self._values[term] = found
        return found

    def _idf(self, doc_freq: int) -> float:
        return math.log(1 + (self._count - doc_freq + 0.5) / (doc_freq + 0.5))

    def _weigh(self, slot: Slot) -> tuple[list[tuple[TermValues, float]], float]:
        """Return the slot's terms that tools use, with their weights, and the slot's own idf.

        A stand-in rarer than the word it stands for must not say more than it, hence the cut.
        """
        terms = [(self._term(text), weight) for text, weight in slot.terms.items()]
        present = [(term, weight) for term, weight in terms if len(term.ordinals)]
        own = [term.idf for term, weight in present if weight >= 1]
        if own:
            limit = max(own)
            return [(term, w * min(1.0, limit / term.idf)) for term, w in present], limit
        guessed = [term.idf * weight for term, weight in present]
        return present, max(guessed, default=math.log(1 + self._count))


def _raise(
    scores: NDArray[np.float64], ordinals: Ordinals, values: NDArray[np.float64] | float
) -> None:
    if len(ordinals):
        scores[ordinals] = np.maximum(scores[ordinals], values)


class _Memo(dict[str, float]):
    """Values by term, each computed once."""

    def __init__(self, compute: Callable[[str], float]) -> None:
        self._compute = compute

    def __missing__(self, term: str) -> float:
        value = self[term] = self._compute(term)
        return value


def _saturated(frequencies: NDArray[np.uint16]) -> NDArray[np.float64]:
    mentions = frequencies / UNIT
    return np.asarray(mentions * (K1 + 1) / (mentions + K1), np.float64)


def texts(tool: Tool) -> dict[str, str]:
    """Return the text of each field; a name is followed by itself as one word."""
    sentence = first_sentence(tool.description, SENTENCE_CHARS).rstrip("…")
    parameters = tool.parameters
    described = [p.description[:PARAMETER_CHARS] for p in parameters]
    choices = [choice for p in parameters for choice in p.choices[:MAX_CHOICES]]
    return {
        "name": f"{tool.name} {squeeze(tool.name)}",
        "server": f"{tool.server} {squeeze(tool.server)}",
        "title": tool.title,
        "sentence": sentence,
        "rest": tool.description.strip()[len(sentence) : REST_CHARS],
        "parameters": "\n".join([p.name for p in parameters]),
        "parameter_texts": "\n".join([*described, *choices]),
    }
