"""Text to terms: what a document is found by, and what a query asks for.

Profile `seed` is exact and plain: runs of letters, decimal digits and `_`, lower-cased code
point by code point, and each CJK character alone. Profile `code` keeps every seed term and adds
parts and joined forms of identifiers, overlapping CJK bigrams, and accent and width folding.

Terms are UTF-8 bytes. Everything here works on *raw tokens*: the pieces between ASCII
separators, found by `bytes.translate` and `split` at several times the speed of a regular
expression. What a raw token means is worked out once and remembered, since a few thousand
different tokens make up most of any text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

Profile = Literal["seed", "code"]

# Counts up whenever a text would give other terms than before.
ANALYSIS = 1
# Longer terms are blobs (hashes, encoded data); profile `code` drops them.
MAX_TERM_CHARACTERS = 128
# An identifier of more parts than this is encoded data in mixed case, not a name.
MAX_PARTS = 10
# Names mix in few numbers (sha256sum, utf8); hex digests change between digits and letters
# all the time, and splitting them would only add noise terms.
MAX_DIGIT_RUNS = 2

# Scripts Han, Hiragana, Katakana and Hangul of Unicode 15.
CJK = (
    "\u1100-\u11ff\u2e80-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5\u3005\u3007\u3021-\u3029\u302e\u302f"
    "\u3038-\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fd-\u30ff\u3131-\u318e\u31f0-\u31ff"
    "\u3200-\u321e\u3260-\u327e\u32d0-\u32fe\u3300-\u3357\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c"
    "\uac00-\ud7a3\ud7b0-\ud7c6\ud7cb-\ud7fb\uf900-\ufa6d\ufa70-\ufad9\uff66-\uff6f\uff71-\uff9d"
    "\uffa0-\uffbe\uffc2-\uffc7\uffca-\uffcf\uffd2-\uffd7\uffda-\uffdc\U00016fe2\U00016fe3"
    "\U00016ff0\U00016ff1\U0001aff0-\U0001aff3\U0001aff5-\U0001affb\U0001affd\U0001affe"
    "\U0001b000-\U0001b122\U0001b132\U0001b150-\U0001b152\U0001b155\U0001b164-\U0001b167"
    "\U0001f200\U00020000-\U0002a6df\U0002a700-\U0002b739\U0002b740-\U0002b81d"
    "\U0002b820-\U0002cea1\U0002ceb0-\U0002ebe0\U0002f800-\U0002fa1d\U00030000-\U0003134a"
    "\U00031350-\U000323af"
)
# The prolonged sound mark belongs to no one script, yet Japanese words run through it.
PROLONGED = "\u30fc\uff70"
# Combining marks: they separate seed terms, but a decomposed word is still one word to fold.
MARKS = "\u0300-\u036f\u3099\u309a"

_WORD_BYTES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_SEPARATE = bytes(byte if byte >= 0x80 or byte in _WORD_BYTES else 0x20 for byte in range(256))

# A CJK run keeps its prolonged marks, unless a word follows them: then they begin that word.
_PIECE = re.compile(
    rf"(?P<cjk>[{CJK}](?:[{CJK}{MARKS}]|[{PROLONGED}]++(?![^\W{CJK}]))*)"
    rf"|[^\W{CJK}](?:(?![{CJK}])[\w{MARKS}])*"
)
_CJK_CHARACTER = re.compile(f"[{CJK}]")
_PART = re.compile(rb"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_CASE_PART = re.compile(rb"[A-Z0-9]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_DIGIT_RUN = re.compile(rb"[0-9]+")


class Meaning(NamedTuple):
    """What one raw token stands for.

    `terms` are the terms a document gains by each occurrence (a term may be repeated);
    `length` is how many of them are seed terms; `asks` are the terms a query gains.
    """

    terms: tuple[bytes, ...]
    length: int
    asks: tuple[bytes, ...]


def raw_tokens(text: str) -> list[bytes]:
    """Return the pieces of `text` between ASCII separators, as UTF-8, case kept."""
    return text.encode("utf-8", "replace").translate(_SEPARATE).split()


def meaning(raw: bytes, profile: Profile) -> Meaning:
    """Return what the raw token `raw` means under `profile`."""
    if raw.isascii():
        return _ascii_seed(raw) if profile == "seed" else _ascii_code(raw)
    pieces = [_piece_meaning(piece, profile) for piece in _pieces(raw.decode("utf-8", "replace"))]
    return Meaning(
        tuple(term for piece in pieces for term in piece.terms),
        sum(piece.length for piece in pieces),
        tuple(term for piece in pieces for term in piece.asks),
    )


def query_terms(query: str, profile: Profile) -> list[bytes]:
    """Return the terms a query asks for, each once, in first-seen order."""
    terms: dict[bytes, None] = {}
    for raw in raw_tokens(query):
        terms.update(dict.fromkeys(meaning(raw, profile).asks))
    return list(terms)


class Place(NamedTuple):
    """A stretch of a text, [start, end) in code points, and the terms found there."""

    start: int
    end: int
    terms: tuple[bytes, ...]


def places(text: str, profile: Profile) -> Iterator[Place]:
    """Yield each word and each CJK character or pair of `text` with its terms, in order."""
    for match in _PIECE.finditer(text):
        start, piece = match.start(), match.group()
        if match.lastgroup != "cjk":
            yield Place(start, match.end(), _piece_meaning(piece, profile).terms)
            continue
        for at in range(len(piece)):
            for width in (1, 2) if profile == "code" else (1,):
                part = piece[at : at + width]
                if len(part) == width:
                    yield Place(start + at, start + at + width, (part.encode(),))


def fold_case(text: str) -> str:
    """Return `text` lower-cased code point by code point; lengths and offsets stay."""
    return text.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower()


def _pieces(text: str) -> Iterator[str]:
    return (match.group() for match in _PIECE.finditer(text))


def _ascii_seed(raw: bytes) -> Meaning:
    term = raw.lower()
    return Meaning((term,), 1, (term,))


def _ascii_code(raw: bytes) -> Meaning:
    if len(raw) > MAX_TERM_CHARACTERS:
        return Meaning((), 1, ())
    whole = raw.lower()
    terms = dict.fromkeys([whole, *_identifier_terms(raw)])
    return Meaning(tuple(terms), 1, tuple(terms))


def _identifier_terms(raw: bytes) -> list[bytes]:
    """Return the parts of an ASCII identifier and its joined form; nothing for a plain word."""
    if raw.islower() and raw.isalpha():
        return []
    split = _PART if len(_DIGIT_RUN.findall(raw)) <= MAX_DIGIT_RUNS else _CASE_PART
    parts = [part.lower() for part in split.findall(raw)]
    if not 0 < len(parts) <= MAX_PARTS:
        return []
    return [*parts, raw.replace(b"_", b"").lower()]


@lru_cache(maxsize=65536)
def _piece_meaning(piece: str, profile: Profile) -> Meaning:
    seed = [term.encode("utf-8", "replace") for term in _seed_walk(piece)]
    if profile == "seed":
        return Meaning(tuple(seed), len(seed), tuple(dict.fromkeys(seed)))
    if _CJK_CHARACTER.match(piece):
        return _cjk_meaning(piece, seed)
    folded = _fold(piece)
    extra = _folded_terms(folded)
    kept = [term for term in seed if len(term.decode()) <= MAX_TERM_CHARACTERS]
    terms = (*kept, *(term for term in extra if term not in kept))
    return Meaning(terms, len(seed), tuple(dict.fromkeys(terms)))


def _cjk_meaning(run: str, seed: list[bytes]) -> Meaning:
    bigrams = _bigrams(run)
    folded = _fold_width(run)
    if folded != run:
        known = {*seed, *bigrams}
        bigrams += [term for term in _bigrams(folded) if term not in known]
    asks = bigrams or seed
    return Meaning((*seed, *bigrams), len(seed), tuple(dict.fromkeys(asks)))


def _bigrams(run: str) -> list[bytes]:
    return [run[at : at + 2].encode() for at in range(len(run) - 1)]


def _folded_terms(folded: str) -> list[bytes]:
    if not folded or len(folded) > MAX_TERM_CHARACTERS:
        return []
    terms = []
    for word in _seed_walk(folded):
        terms.append(word.encode())
    if folded.isascii():
        terms += _identifier_terms(folded.encode())
    elif "_" in folded:
        terms += [part.encode() for part in folded.lower().split("_") if part]
        terms.append(folded.lower().replace("_", "").encode())
    return list(dict.fromkeys(term for term in terms if term))


def _fold(word: str) -> str:
    """Return `word` in plain width without accents, case kept."""
    decomposed = unicodedata.normalize("NFKD", word)
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def _fold_width(run: str) -> str:
    return unicodedata.normalize("NFKC", run)


def _seed_walk(text: str) -> Iterator[str]:
    """Yield the seed terms of any text, by the letter of the definition."""
    word: list[str] = []
    for character in text:
        if _CJK_CHARACTER.match(character):
            if word:
                yield "".join(word)
                word.clear()
            yield character
        elif character == "_" or _is_word(character):
            word.append(_lower(character))
        elif word:
            yield "".join(word)
            word.clear()
    if word:
        yield "".join(word)


def _is_word(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "L" or category == "Nd"


def _lower(character: str) -> str:
    return "i" if character == "\u0130" else character.lower()
