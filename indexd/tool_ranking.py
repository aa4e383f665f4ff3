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
from indexd.tool_query import Slot
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


class Analysis(NamedTuple):
    """What is made of one tool: term frequencies, spellings of its words, its name's words."""

    frequencies: dict[str, int]
    spellings: dict[str, str]
    name_terms: frozenset[str]


def analyse(tool: Tool) -> Analysis:
    """Return the terms of one tool, in hundredths of a mention, and how they are spelt."""
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
    name_terms = frozenset(p for word in fields["name"][:-1] for p in (word.parts or word.whole))
    frequencies.update((NAME + term, 1) for term in name_terms)
    frequencies.update((SERVER + term, 1) for word in fields["server"] for term in word.terms)
    spelt = [found for field, found in fields.items() if not field.startswith("parameter")]
    spellings = {word.text: word.whole[0] for found in spelt for word in found}
    return Analysis(frequencies, spellings, name_terms)


class Ranked(NamedTuple):
    """Documents, best first: their scores, and the share of the question that each covers."""

    ordinals: NDArray[np.intp]
    scores: NDArray[np.float64]
    coverage: NDArray[np.float64]


class TermValues(NamedTuple):
    """A term's idf, the documents that hold it, and what it scores in each."""

    idf: float
    ordinals: Ordinals
    values: NDArray[np.float64]


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
            stand_ins, slot_idf = self._weigh(slot)
            best = self._best(stand_ins, "")
            total += best
            covered += np.minimum(slot_idf, best * (FULL_MENTION / (K1 + 1)))
            mass += slot_idf
            named += self._best(stand_ins, NAME)
            close = {term: weight for term, weight in stand_ins.items() if weight >= SERVER_MATCH}
            server = np.maximum(server, self._best(close, SERVER))
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
            found = TermValues(idf, ordinals, idf * _saturated(frequencies))
            if len(ordinals):  # what strangers ask for must not fill the memory
                self._values[term] = found
        return found

    def _idf(self, doc_freq: int) -> float:
        return math.log(1 + (self._count - doc_freq + 0.5) / (doc_freq + 0.5))

    def _weigh(self, slot: Slot) -> tuple[dict[str, float], float]:
        """Return the weights of the slot's terms that tools use, and the slot's own idf.

        A stand-in rarer than the word it stands for must not say more than it, hence the cut.
        """
        present = {t: w for t, w in slot.terms.items() if len(self._term(t).ordinals)}
        own = [self._term(term).idf for term, weight in present.items() if weight >= 1]
        if own:
            limit = max(own)
            return {t: w * min(1.0, limit / self._term(t).idf) for t, w in present.items()}, limit
        guessed = [self._term(term).idf * weight for term, weight in present.items()]
        return present, max(guessed, default=math.log(1 + self._count))

    def _best(self, weights: dict[str, float], field: str) -> NDArray[np.float64]:
        """Return each document's value of its best term, by `field`'s postings or by all."""
        best = np.zeros(self._index.document_count)
        for text, weight in weights.items():
            term = self._term(text)
            ordinals = self._term(field + text).ordinals if field else term.ordinals
            if len(ordinals):
                value = weight * (term.idf if field else term.values)
                best[ordinals] = np.maximum(best[ordinals], value)
        return best


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
    described = [p.description[:PARAMETER_CHARS] for p in tool.parameters]
    choices = [choice for p in tool.parameters for choice in p.choices[:MAX_CHOICES]]
    return {
        "name": f"{tool.name} {squeeze(tool.name)}",
        "server": f"{tool.server} {squeeze(tool.server)}",
        "title": tool.title,
        "sentence": sentence,
        "rest": tool.description.strip()[len(sentence) : REST_CHARS],
        "parameters": "\n".join([p.name for p in tool.parameters]),
        "parameter_texts": "\n".join([*described, *choices]),
    }
