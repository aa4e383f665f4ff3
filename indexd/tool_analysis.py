"""Tools to a segment: what the index keeps of each tool.

A tool is a document of the index that sessions have; only what its words mean is decided here. A
term's frequency is the weighted sum of its mentions in the fields, in hundredths: the name tells
most, the server and the first sentence next, the rest of the description and the parameters
little. Terms behind `name:`, `server:` and `word:` say what a tool's name and its server's are
made of, and how the words of its texts are spelt.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from indexd.build import Entry, counted, text_digest
from indexd.model import Document, Kind
from indexd.segment import Array, Segment
from indexd.text import Meaning
from indexd.tool import Tool, first_sentence
from indexd.tool_lexicon import Lexicon, Mentions, mentions
from indexd.tool_text import Word, runs, squeeze, word

UNIT = 100  # term frequencies are stored in hundredths of a mention
SENTENCE_CHARS = 300
REST_CHARS = 1000
PARAMETER_CHARS = 300
MAX_CHOICES = 30

KIND = Kind.META
NAME, SERVER, SPELLING = "name:", "server:", "word:"
READS_ONLY = "reads:only"
# Bumped whenever `analyse` makes something else of a tool, since caches keep what it made.
VERSION = 2


class Field(NamedTuple):
    """How much a field's words count, and how a field longer than is typical dilutes them.

    `sort` says which terms its words give beside themselves, see `meaning`.
    """

    sort: str
    weight: float
    dilution: float = 0.0
    typical_terms: int = 1


# The typical lengths are the means over 3,000 tools of 76 servers.
FIELDS = {
    "name": Field("n", 4.0, 0.3, 5),
    "server": Field("s", 2.0),
    "title": Field("t", 1.0, 0.3, 5),
    "sentence": Field("t", 2.0, 0.5, 11),
    "rest": Field("t", 0.3, 0.5, 45),
    "parameters": Field("p", 0.3, 0.5, 10),
    "parameter_texts": Field("p", 0.2, 0.5, 70),
}


def meaning(raw: bytes) -> Meaning:
    """Return the terms of a word behind the letter of its sort.

    `n` is a word of a tool's name, `s` of its server's, `t` of another text, `p` of parameters,
    whose spelling is not remembered, and `h` a hint, which is a term as it is.
    """
    sort, text = raw[:1].decode(), raw[1:].decode()
    if sort == "h":
        return Meaning((text.encode(),), 0, ())
    found = word(text)
    terms = [*found.terms, *_prefixed(sort, found)]
    return Meaning(tuple(term.encode() for term in terms), len(found.terms), ())


def _prefixed(sort: str, found: Word) -> list[str]:
    spelling = [] if sort == "p" else [SPELLING + found.text]
    if sort == "n":
        return [*spelling, *(NAME + term for term in found.parts or found.whole)]
    if sort == "s":
        return [*spelling, *(SERVER + term for term in found.terms)]
    return spelling


class Words:
    """The words of tools as tokens of a lexicon; it learns the more the more tools it sees."""

    def __init__(self) -> None:
        self.lexicon = Lexicon(meaning)
        self._sorts = {field.sort: _Sort(field.sort, self.lexicon) for field in FIELDS.values()}
        self._hint = self.lexicon[b"h" + READS_ONLY.encode()]

    @property
    def full(self) -> bool:
        """Say whether it is time to begin anew."""
        return self.lexicon.full

    def tokens(self, tool: Tool) -> list[list[int]]:
        """Return the tokens of each field."""
        found = [
            [*map(self._sorts[field.sort].__getitem__, runs(text))]
            for field, text in zip(FIELDS.values(), texts(tool), strict=True)
        ]
        # A name is found as one word as well, which is no word of the name.
        found[0] += map(self._sorts["t"].__getitem__, runs(squeeze(tool.name)))
        if tool.read_only:
            found[0].append(self._hint)
        return found


class _Sort(dict[str, int]):
    """The token of each word of one sort, see `meaning`."""

    def __init__(self, sort: str, lexicon: Lexicon) -> None:
        super().__init__()
        self._sort, self._lexicon = sort, lexicon

    def __missing__(self, run: str) -> int:
        token = self[run] = self._lexicon[(self._sort + run).encode()]
        return token


def analyse(tools: Sequence[tuple[int, Tool]], words: Words) -> Segment:
    """Return the segment of tools, each under the file id beside it."""
    tools = sorted(tools, key=itemgetter(0))
    tokens: list[int] = []
    sizes: list[int] = []
    for _, tool in tools:
        for some in words.tokens(tool):
            tokens += some
            sizes.append(len(some))
    known = words.lexicon
    owners = np.repeat(np.arange(len(sizes)), np.array(sizes, np.int64))
    by_text = mentions(np.array(tokens, np.int64), owners, len(sizes))
    terms = known.lengths()[by_text.words] * by_text.freqs
    lengths = np.bincount(by_text.owners, terms, len(sizes)).reshape(-1, len(FIELDS))
    share = _shares(lengths).ravel()[by_text.owners]
    freqs = np.maximum(1, np.rint(by_text.freqs * share)).astype(np.int64)
    by_tool = Mentions(by_text.words, by_text.owners // len(FIELDS), freqs)
    counts = known.counted(by_tool, lengths.sum(axis=1).astype(np.int64))
    entries = [Entry(id, Document(KIND, tool.digest, 0, tool.name)) for id, tool in tools]
    return counted(entries, counts, lambda at: text_digest(tools[at][1].digest))


def _shares(lengths: Array) -> Array:
    """Return what one mention counts, in each field of each tool, from the fields' lengths."""
    weight, dilution, typical = np.array([field[1:] for field in FIELDS.values()]).T
    shares: Array = UNIT * weight / (1 - dilution + dilution * lengths / typical)
    return shares


def texts(tool: Tool) -> tuple[str, ...]:
    """Return the text of each field, in the order of FIELDS."""
    sentence = first_sentence(tool.description, SENTENCE_CHARS).rstrip("…")
    parameters = tool.parameters
    described = [p.description[:PARAMETER_CHARS] for p in parameters]
    choices = [choice for p in parameters for choice in p.choices[:MAX_CHOICES]]
    return (
        tool.name,
        f"{tool.server} {squeeze(tool.server)}",
        tool.title,
        sentence,
        tool.description.strip()[len(sentence) : REST_CHARS],
        "\n".join([p.name for p in parameters]),
        "\n".join([*described, *choices]),
    )
