"""A question about tools, read word by word into slots.

A slot is one thing the question says and every term by which a tool may say it: the word
itself, its parts, other spellings, words of like meaning, translations, and, for a word that no
tool uses, what it may be a misspelling of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import OSA

from indexd.index import Snapshot
from indexd.tool_analysis import SPELLING
from indexd.tool_text import Word, is_cjk, pairs, stem, words
from indexd.tool_words import Vocabulary

PART = 0.5  # of a word that tools use whole as well: `git` for "GitHub"
UNKNOWN_PART = 0.9  # of a word that only its parts make known
HALF = 0.8  # one of the two known words that an unknown compound splits into
JOINED = 0.99  # "web page" for `webpage`; below 1, so that it never outweighs its words
MISSPELT = 0.85
MAX_PHRASE_WORDS = 3
MIN_MISSPELT_CHARS = 4
TWO_ERRORS_FROM_CHARS = 8
MAX_CORRECTIONS = 4


class Slot(NamedTuple):
    """One thing a question says: its word, and the terms that say it, by weight up to 1."""

    text: str
    terms: dict[str, float]


class Spellings:
    """Words by first letter and length, so that those that may be meant by another are few."""

    def __init__(self) -> None:
        self._alike: dict[tuple[str, int], dict[str, None]] = {}

    def learn(self, words: Iterable[str]) -> None:
        """Take up words; they stay, even when no tool uses them any more."""
        for word in words:
            self._alike.setdefault((word[:1], len(word)), {})[word] = None

    def like(self, word: str, errors: int) -> list[str]:
        """Return the words of the same first letter and at most so many letters more or less."""
        lengths = range(len(word) - errors, len(word) + errors + 1)
        return [w for length in lengths for w in self._alike.get((word[0], length), ())]


class Known:
    """The words of one state of the index: which terms are known, and how each is spelt."""

    def __init__(self, snapshot: Snapshot, spellings: Spellings) -> None:
        self._parts = snapshot.parts
        self._spellings = spellings

    def __contains__(self, term: str) -> bool:
        return any(part.doc_freq(term.encode()) for part in self._parts)

    def corrections(self, word: str) -> list[str]:
        """Return the terms of the nearest known words: one error away, two for a long word.

        The first letter is taken as right; people rarely mistype it, and it rules out most.
        """
        if len(word) < MIN_MISSPELT_CHARS or not word.isascii():
            return []
        errors = 2 if len(word) >= TWO_ERRORS_FROM_CHARS else 1
        alike = self._spellings.like(word, errors)
        near = process.extract(word, alike, scorer=OSA.distance, score_cutoff=errors, limit=None)
        found = [each for each in near if SPELLING + each[0] in self]
        nearest = min((distance for _, distance, _ in found), default=0)
        terms = {stem(w): None for w, distance, _ in sorted(found) if distance == nearest}
        return list(terms)[:MAX_CORRECTIONS]


class QueryReader:
    """Reads questions against the words of one state of the index."""

    def __init__(self, known: Known, vocabulary: Vocabulary) -> None:
        self._known = known
        self._vocabulary = vocabulary

    def slots(self, query: str) -> list[Slot]:
        """Return what `query` says, each thing once, in the order it is said."""
        kept = self._content(words(query))
        found: dict[tuple[str, ...], Slot] = {}
        while kept:
            taken, slots = self._next(kept)
            kept = kept[taken:]
            for slot in slots:
                found.setdefault(tuple(sorted(slot.terms)), slot)
        return list(found.values())

    def _content(self, found: list[Word]) -> list[Word]:
        # A bare number is an argument of the tool, hardly ever its name.
        stop = self._vocabulary.stop_words
        return [w for w in found if w.text not in stop and not w.text.isdigit()] or found

    def _next(self, kept: list[Word]) -> tuple[int, list[Slot]]:
        if is_cjk(kept[0].text):
            return 1, self._cjk_slots(kept[0].text)
        for length in range(min(MAX_PHRASE_WORDS, len(kept)), 1, -1):
            phrase = " ".join(word.whole[0] for word in kept[:length])
            if phrase in self._vocabulary.phrases:
                stand_ins = self._vocabulary.of(phrase)
                return length, [self._slot(word, stand_ins) for word in kept[:length]]
        joined = self._joined(kept[:2])
        if joined:
            return 2, [self._slot(word, {joined: JOINED}) for word in kept[:2]]
        return 1, [self._slot(kept[0], {})]

    def _joined(self, two: list[Word]) -> str:
        if len(two) < 2 or is_cjk(two[1].text) or min(len(word.text) for word in two) < 2:
            return ""
        term = stem(two[0].text + two[1].text)
        return term if term in self._known else ""

    def _slot(self, word: Word, stand_ins: Mapping[str, float]) -> Slot:
        (term,) = word.whole
        known = term in self._known
        terms: dict[str, float] = {}
        _offer(terms, stand_ins.items())
        _offer(terms, self._vocabulary.of(term).items())
        _offer(terms, ((p, PART if known else UNKNOWN_PART) for p in word.parts if len(p) > 1))
        if not known and not terms:
            self._guess(word.text, terms)
        terms[term] = 1.0
        return Slot(word.text, terms)

    def _guess(self, text: str, terms: dict[str, float]) -> None:
        halves = self._halves(text)
        _offer(terms, ((half, HALF) for half in halves))
        for term in () if halves else self._known.corrections(text):
            _offer(terms, [(term, MISSPELT)])
            related = self._vocabulary.of(term).items()
            _offer(terms, ((other, MISSPELT * weight) for other, weight in related))

    def _halves(self, text: str) -> tuple[str, ...]:
        for cut in range(3, len(text) - 2):
            halves = stem(text[:cut]), stem(text[cut:])
            if all(half in self._known for half in halves):
                return halves
        return ()

    def _cjk_slots(self, run: str) -> list[Slot]:
        slots: list[Slot] = []
        for piece in self._segment(run):
            stand_ins = self._vocabulary.of(piece)
            own = pairs(piece)
            if stand_ins:
                terms = dict.fromkeys(own, 1.0 / len(own))
                _offer(terms, stand_ins.items())
                slots.append(Slot(piece, terms))
            else:
                slots += [Slot(pair, {pair: 1.0}) for pair in own]
        return slots

    def _segment(self, run: str) -> list[str]:
        """Cut a CJK run into known words, longest first, and the rest between; no stop words."""
        pieces: list[str] = []
        rest = ""
        while run:
            word = self._known_prefix(run)
            if not word:
                rest += run[0]
            else:
                pieces += [rest, word]
                rest = ""
            run = run[len(word) or 1 :]
        return [p for p in [*pieces, rest] if p and p not in self._vocabulary.stop_words]

    def _known_prefix(self, run: str) -> str:
        for length in range(min(self._vocabulary.longest_cjk, len(run)), 0, -1):
            word = run[:length]
            if word in self._vocabulary.stand_ins or word in self._vocabulary.stop_words:
                return word
        return ""


def _offer(terms: dict[str, float], more: Iterable[tuple[str, float]]) -> None:
    for term, weight in more:
        terms[term] = max(terms.get(term, 0.0), weight)
