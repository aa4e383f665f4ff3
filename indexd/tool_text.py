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
_ASCII_RUN = re.compile("[A-Za-z0-9]+")  # the same, several times as fast
_IS_CJK = re.compile(rf"[{_CJK}]")
# `readFile`, `HTTPServer`, `sha256sum`: where a lower-case letter, an acronym or a number ends.
_PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\dA-Za-z_]+")
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
MAX_WORD_CHARS = 64

_ENGLISH = Stemmer.Stemmer("english")
_RUSSIAN = Stemmer.Stemmer("russian")


class Word(NamedTuple):
    """One word of a text, as terms: what it is whole, its parts where it has several, and both.

    `GitHub` is `github` and the parts `git`, `hub`; `issues` is `issu` without parts.
    """

    text: str
    whole: tuple[str, ...]
    parts: tuple[str, ...]
    terms: tuple[str, ...]


def runs(text: str) -> list[str]:
    """Return the pieces of `text` that are one word each, folded, in order."""
    found: list[str] = _ASCII_RUN.findall(text) if text.isascii() else _RUN.findall(fold(text))
    return found


def words(text: str) -> list[Word]:
    """Return the words of `text` in order."""
    return [word(run) for run in runs(text)]


def terms(text: str) -> list[str]:
    """Return the index terms of `text` in order: each word whole, then its parts."""
    return [term for found in words(text) for term in found.terms]


def is_cjk(text: str) -> bool:
    """Say whether `text` begins with a Han, kana or Hangul character."""
    return _IS_CJK.match(text) is not None


def pairs(run: str) -> tuple[str, ...]:
    """Return the overlapping pairs of characters of a CJK run; a single character as it is."""
    return tuple(run[i : i + 2] for i in range(len(run) - 1)) or (run,)


def stem(word: str) -> str:
    """Return the Snowball stem of one folded lower-case word."""
    return str((_ENGLISH if word.isascii() else _RUSSIAN).stemWord(word))


def fold(text: str) -> str:
    """Return `text` with width and accents folded, its case kept (case marks word boundaries)."""
    if text.isascii():
        return text
    return _FOREIGN.sub(_fold_run, unicodedata.normalize("NFKC", text))


def _fold_run(match: re.Match[str]) -> str:
    return "".join(map(_fold_character, match.group()))


@lru_cache(maxsize=8192)
def _fold_character(character: str) -> str:
    # The marks of a kana or of Cyrillic short i make another letter; elsewhere they are accents.
    if character in "йЙ" or is_cjk(character):
        return character
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


@lru_cache(maxsize=4096)
def word(run: str) -> Word:
    """Return the word that one of `runs` is."""
    run = run[:MAX_WORD_CHARS]
    if is_cjk(run):
        return Word(run, pairs(run), (), pairs(run))
    text = run.lower()
    found = [] if text == run and text.isalpha() else _PART.findall(run)
    parts = tuple(stem(part.lower()) for part in found) if len(found) > 1 else ()
    whole = (stem(text),)
    return Word(text, whole, parts, whole + parts)


@lru_cache(maxsize=16384)
def squeeze(text: str) -> str:
    """Return only the letters and digits of `text`, folded and in lower case.

    `createIssue`, `create_issue` and `Create issue` are the same name squeezed.
    """
    return "".join(runs(text)).lower()
