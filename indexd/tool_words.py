"""The vocabulary of `tool_words.txt`: what people call things, and what tools call them.

A question says "lamp", "spend" or "读取文件" where the tool says light, cost and read file. The
word list is general knowledge of the trade, in eight languages; it knows no particular tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from indexd.tool_text import is_cjk, words

# How much of a word's own weight its stand-ins carry: other spellings, words of like meaning,
# and the first and further English words of a translation.
SPELLING = 0.9
RELATED = 0.5
TRANSLATION = 0.9
FURTHER_TRANSLATION = 0.6
MAX_FURTHER = 5


@dataclass(slots=True)
class Vocabulary:
    """Stand-ins of words: terms joined by a space for a phrase, alone for a word."""

    stop_words: set[str] = field(default_factory=set)
    stand_ins: dict[str, dict[str, float]] = field(default_factory=dict)
    phrases: set[str] = field(default_factory=set)
    longest_cjk: int = 1

    def of(self, key: str) -> dict[str, float]:
        """Return the index terms that may stand for `key`, with their weights."""
        return self.stand_ins.get(key, {})

    def add(self, key: str, others: Iterable[tuple[str, float]]) -> None:
        """Let `others` stand for `key`; the highest weight given to a term counts."""
        known = self.stand_ins.setdefault(key, {})
        for other, weight in others:
            # Each word of a phrase says less than the phrase.
            each = weight / (1 + other.count(" "))
            for term in other.split():
                if term != key:
                    known[term] = max(known.get(term, 0.0), each)
        if " " in key:
            self.phrases.add(key)
        elif is_cjk(key):
            self.longest_cjk = max(self.longest_cjk, len(key))


@cache
def vocabulary() -> Vocabulary:
    """Return the vocabulary of the package's word list."""
    return parse(files("indexd").joinpath("tool_words.txt").read_text("utf-8"))


def parse(text: str) -> Vocabulary:
    """Return the vocabulary that a word list of the form of `tool_words.txt` describes."""
    result = Vocabulary()
    concepts = []
    for line in text.splitlines():
        kind, rest = line[:1], line[1:].split()
        if kind == "-":
            result.stop_words.update(word.text for entry in rest for word in words(entry))
        elif kind == "=":
            _relate(result, [_key(entry) for entry in rest], SPELLING)
        elif kind not in ("", "#"):
            concepts.append([[_key(word) for word in part.split()] for part in line.split("|")])
    for english, *_ in concepts:
        _relate(result, english, RELATED)
    # A foreign word that is also an English one ("table", "pie") keeps its English meaning.
    known = set(result.stand_ins)
    for english, *translations in concepts:
        foreign = [key for part in translations for key in part if key not in known]
        _translate(result, foreign, english)
    return result


def _relate(result: Vocabulary, keys: list[str], weight: float) -> None:
    # Half a phrase is no spelling of the whole: "get rid" is to delete, "get" is not.
    others = keys if weight == SPELLING else [key for key in keys if " " not in key]
    for key in keys:
        result.add(key, [(other, weight) for other in others])


def _translate(result: Vocabulary, foreign: list[str], english: list[str]) -> None:
    first, *further = [key for key in english if " " not in key][: 1 + MAX_FURTHER]
    others = [(first, TRANSLATION), *((word, FURTHER_TRANSLATION) for word in further)]
    for key in foreign:
        result.add(key, others)
    # A tool may be described in Chinese, Japanese or Korean, where two characters are a term.
    terms = [(key, RELATED) for key in foreign if is_cjk(key) and len(key) == 2]
    for key in english:
        result.add(key, terms)


def _key(entry: str) -> str:
    parts = words(entry.replace("_", " "))
    return " ".join(word.text if is_cjk(word.text) else word.whole[0] for word in parts)
