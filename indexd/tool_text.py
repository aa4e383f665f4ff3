"""The words of tools and of questions about tools.

Names are written for programs (`createIssue`, `API-post-page`, `srem`), questions by people in
any language. Both become terms here: words split where case, digits and separators change,
accents folded, reduced to their Snowball stem; Chinese, Japanese and Korean as overlapping
pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import Stemmer

# Han, kana, Hangul: written without spaces, so that pairs of characters stand for words.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IS_CJK = re.compile(rf"[{_CJK}]")
# `readFile`, `HTTPServer`, `sha256sum`: where a lower-case letter, an acronym or a number ends.
_PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\dA-Za-z_]+")
MAX_WORD_CHARS = 64

_ENGLISH = Stemmer.Stemmer("english")
_RUSSIAN = Stemmer.Stemmer("russian")


class Word(NamedTuple):
    """One word of a text, as terms: what it is whole, and its parts where it has several.

    `GitHub` is `github` and the parts `git`, `hub`; `issues` is `issu` without parts.
    """

    text: str
    whole: tuple[str, ...]
    parts: tuple[str, ...] = ()


def words(text: str) -> list[Word]:
    """Return the words of `text` in order."""
    return [_word(run) for run in _RUN.findall(fold(text))]


def terms(text: str) -> list[str]:
    """Return the index terms of `text` in order: each word whole, then its parts."""
    return [term for word in words(text) for term in (*word.whole, *word.parts)]


def stem(word: str) -> str:
    """Return the Snowball stem of one folded lower-case word."""
    return str((_ENGLISH if word.isascii() else _RUSSIAN).stemWord(word))


def fold(text: str) -> str:
    """Return `text` with width and accents folded, its case kept (case marks word boundaries)."""
    if text.isascii():
        return text
    return "".join(_fold_character(c) for c in unicodedata.normalize("NFKC", text))


@lru_cache(maxsize=8192)
def _fold_character(character: str) -> str:
    # The marks of a kana or of Cyrillic short i make another letter; elsewhere they are accents.
    if character.isascii() or character in "йЙ" or _IS_CJK.match(character):
        return character
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


@lru_cache(maxsize=32768)
def _word(run: str) -> Word:
    run = run[:MAX_WORD_CHARS]
    if _IS_CJK.match(run):
        return Word(run, tuple(run[i : i + 2] for i in range(len(run) - 1)) or (run,))
    text = run.lower()
    found = [] if text == run and text.isalpha() else _PART.findall(run)
    parts = tuple(stem(part.lower()) for part in found) if len(found) > 1 else ()
    return Word(text, (stem(text),), parts)


def squeeze(text: str) -> str:
    """Return only the letters and digits of `text`, folded and in lower case.

    `createIssue`, `create_issue` and `Create issue` are the same name squeezed.
    """
    return "".join(_RUN.findall(fold(text))).lower()
