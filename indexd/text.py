"""Text to terms: what a document is found by, and what a query asks for.

Profile `seed` is exact and plain: runs of letters, decimal digits and `_`, lower-cased code
point by code point, and each CJK character alone. Profile `code` keeps every seed term and adds
parts and joined forms of identifiers, overlapping CJK bigrams, and accent and width folding.

Terms are UTF-8 bytes. Everything here works on *raw tokens*: the pieces between ASCII
separators, found by `bytes.translate` and `split` at several times the speed of a regular
expression. What many of them mean is worked out together in `meanings`, by the same rules.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import add
from typing import Literal, NamedTuple

Profile = Literal["seed", "code"]

# Which terms a text gives: the number counts up whenever this module would give others, and the
# properties of characters come with the interpreter.
ANALYSIS = f"3-{unicodedata.unidata_version}"
# Longer terms are blobs (hashes, encoded data); profile `code` drops them.
MAX_TERM_CHARACTERS = 128
# Words that change case or go over to digits this often, into parts shorter than this on
# average, are encoded data, not a name.
MANY_CHANGES = 10
SHORT_PART = 4
# Names mix in few numbers (sha256sum, utf8); hex digests change between digits and letters
# all the time, and splitting them would only add noise terms.
MAX_DIGIT_RUNS = 2

# Scripts Han, Hiragana, Katakana and Hangul of Unicode 15.1.
CJK = (
    "\u1100-\u11ff\u2e80-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5\u3005\u3007\u3021-\u3029\u302e\u302f"
    "\u3038-\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fd-\u30ff\u3131-\u318e\u31f0-\u31ff"
    "\u3200-\u321e\u3260-\u327e\u32d0-\u32fe\u3300-\u3357\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c"
    "\uac00-\ud7a3\ud7b0-\ud7c6\ud7cb-\ud7fb\uf900-\ufa6d\ufa70-\ufad9\uff66-\uff6f\uff71-\uff9d"
    "\uffa0-\uffbe\uffc2-\uffc7\uffca-\uffcf\uffd2-\uffd7\uffda-\uffdc\U00016fe2\U00016fe3"
    "\U00016ff0\U00016ff1\U0001aff0-\U0001aff3\U0001aff5-\U0001affb\U0001affd\U0001affe"
    "\U0001b000-\U0001b122\U0001b132\U0001b150-\U0001b152\U0001b155\U0001b164-\U0001b167"
    "\U0001f200\U00020000-\U0002a6df\U0002a700-\U0002b739\U0002b740-\U0002b81d"
    "\U0002b820-\U0002cea1\U0002ceb0-\U0002ebe0\U0002ebf0-\U0002ee5d\U0002f800-\U0002fa1d"
    "\U00030000-\U0003134a\U00031350-\U000323af"
)
# These letters belong to no one script, yet Japanese words run through them: the prolonged sound
# mark in both widths, and the halfwidth voicing marks.
SOUND_MARKS = "\u30fc\uff70\uff9e\uff9f"
# Combining marks: they separate seed terms, but a decomposed word is still one word to fold.
MARKS = "\u0300-\u036f\u3099\u309a"

_WORD_BYTES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
# Translate ASCII separators to blanks, and the second capitals to small letters.
SEPARATE = bytes(byte if byte >= 0x80 or byte in _WORD_BYTES else 0x20 for byte in range(256))
SEPARATE_LOWER = SEPARATE.lower()

# A CJK run keeps its sound marks, unless a word follows them: then they begin that word.
_PIECE = re.compile(
    rf"(?P<cjk>[{CJK}](?:[{CJK}{MARKS}]|[{SOUND_MARKS}]++(?![^\W{CJK}]))*)"
    rf"|[^\W{CJK}](?:(?![{CJK}])[\w{MARKS}])*"
)
CJK_CHARACTER = re.compile(f"[{CJK}]")
# What is in no word, and joins none.
NO_WORD = re.compile(rf"[^\w{CJK}{MARKS}]")
_MARK = re.compile(f"[{MARKS}{SOUND_MARKS}]")
_UNDERSCORED = re.compile("[^_]+")
_PART = re.compile("[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_CASE_PART = re.compile("[A-Z0-9]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_DIGIT_RUN = re.compile("[0-9]+")
# No composed character of these scripts is made of more than this.
_LONGEST_LETTER = 3
# Words are remembered, up to this length; runs of CJK hardly ever repeat.
_REMEMBERED_WORDS = 1 << 14
_REMEMBERED_CHARACTERS = 64


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
    return text.encode("utf-8", "replace").translate(SEPARATE).split()


def meaning(raw: bytes, profile: Profile) -> Meaning:
    """Return what the raw token `raw` means under `profile`."""
    if raw.isascii():
        return _ascii_seed(raw) if profile == "seed" else _ascii_code(raw)
    pieces = [_piece_meaning(match, profile) for match in _PIECE.finditer(raw.decode())]
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


def whole_terms(text: str, profile: Profile) -> list[bytes]:
    """Return terms that all are in a document that holds the words of `text`: of each word the
    whole, no parts or other forms; of a CJK run what a query asks by."""
    terms: dict[bytes, None] = {}
    for raw in raw_tokens(text):
        if raw.isascii():
            found = meaning(raw, profile).terms[:1]
        else:
            found = tuple(t for m in _PIECE.finditer(raw.decode()) for t in _whole(m, profile))
        terms.update(dict.fromkeys(found))
    return list(terms)


def _whole(match: re.Match[str], profile: Profile) -> tuple[bytes, ...]:
    known = _piece_meaning(match, profile)
    if match.lastgroup == "cjk":
        return known.asks
    return tuple(term for term in _piece_meaning(match, "seed").terms if term in known.terms)


def seed_tokens(text: str) -> list[bytes]:
    """Return every seed term of `text` in order, as often as it occurs."""
    if text.isascii():
        return raw_tokens(text.lower())
    return [term for raw in raw_tokens(text) for term in meaning(raw, "seed").terms]


class Sought:
    """Terms that are looked for in texts; remembers which words hold any of them."""

    def __init__(self, terms: Iterable[bytes], profile: Profile) -> None:
        self._terms, self._profile = frozenset(terms), profile
        self._known: dict[str, bool] = {}

    def stretches(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the words, CJK characters and pairs of `text` that hold a term, in order.

        Each is a stretch [start, end) in code points.
        """
        known = self._known
        for match in _PIECE.finditer(text):
            piece = match.group()
            holds = known.get(piece)
            if holds is None:
                meaning = _piece_meaning(match, self._profile)
                holds = known[piece] = not self._terms.isdisjoint(meaning.terms)
            if holds and match.lastgroup == "cjk":
                for start, end, term in _cjk_places(piece, self._profile):
                    if term in self._terms:
                        yield match.start() + start, match.start() + end
            elif holds:
                yield match.span()


def fold_case(text: str) -> str:
    """Return `text` lower-cased code point by code point; lengths and offsets stay."""
    return text.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower()


def _ascii_seed(raw: bytes) -> Meaning:
    term = raw.lower()
    return Meaning((term,), 1, (term,))


def _ascii_code(raw: bytes) -> Meaning:
    if len(raw) > MAX_TERM_CHARACTERS:
        return Meaning((), 1, ())
    terms = [raw.lower(), *(part.encode() for part in _identifier_terms(raw.decode()))]
    terms = list(dict.fromkeys(terms))
    return Meaning(tuple(terms), 1, tuple(terms))


def _identifier_terms(word: str) -> list[str]:
    """Return the parts of an identifier and its joined form; nothing for a plain word."""
    shape = _shape(word)
    if shape.islower() and shape.isalpha():
        return []
    pieces = list(_UNDERSCORED.finditer(shape))
    spans = [span for piece in pieces for span in _parts(piece)]
    changes = len(spans) - len(pieces)
    if changes >= MANY_CHANGES and len(word) < SHORT_PART * len(spans):
        return []
    parts = [word[start:end] for start, end in spans]
    return [fold_case(part) for part in (*parts, word.replace("_", "")) if part]


def _parts(piece: re.Match[str]) -> list[tuple[int, int]]:
    """Return where the parts of a word lie; `piece` is the shape of what has no underscore."""
    digit_runs = len(_DIGIT_RUN.findall(piece.group()))
    split = _PART if digit_runs <= MAX_DIGIT_RUNS else _CASE_PART
    return [match.span() for match in split.finditer(piece.string, *piece.span())]


def _shape(word: str) -> str:
    """Return `word` with an ASCII character of the same case or sort for each of its own."""
    if word.isascii():
        return word
    return "".join(
        "A" if c.isupper() or c.istitle() else "0" if c.isdecimal() else c if c == "_" else "a"
        for c in word
    )


def _piece_meaning(match: re.Match[str], profile: Profile) -> Meaning:
    piece = match.group()
    if match.lastgroup == "cjk":
        return _cjk_meaning(piece, profile)
    if len(piece) > _REMEMBERED_CHARACTERS:
        return _word_meaning.__wrapped__(piece, profile)
    return _word_meaning(piece, profile)


@lru_cache(maxsize=_REMEMBERED_WORDS)
def _word_meaning(piece: str, profile: Profile) -> Meaning:
    seed = [fold_case(piece[a:b]) for a, b in _seed_spans(piece)]
    terms = seed
    if seed and profile == "code":  # what has no letter (½) is no word, whatever it folds to
        terms = [term for term in seed if len(term) <= MAX_TERM_CHARACTERS]
        known = frozenset(terms)
        terms += [term for term in _folded_terms(piece) if term not in known]
    encoded = _encoded(terms)
    return Meaning(encoded, len(seed), tuple(dict.fromkeys(encoded)))


def _folded_terms(piece: str) -> list[str]:
    """Return the terms of a word in plain width and without accents, and its parts."""
    folded = _fold(piece)
    if len(folded) > MAX_TERM_CHARACTERS:
        return []
    terms: list[str] = []
    for a, b in _seed_spans(folded):
        terms += [fold_case(folded[a:b]), *_identifier_terms(folded[a:b])]
    return list(dict.fromkeys(terms))


def _fold(word: str) -> str:
    """Return `word` in plain width without accents, case kept; a final sigma is a sigma."""
    decomposed = unicodedata.normalize("NFKD", word.replace("ς", "σ"))
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


class _Letter(NamedTuple):
    """A character of a CJK run in plain width and composed, and the stretch it stands for."""

    start: int
    end: int
    text: str


def _cjk_meaning(run: str, profile: Profile) -> Meaning:
    if _is_plain(run):
        seed = singles = list(run)
        pairs = list(map(add, run, run[1:]))
    else:
        seed = [run[a:b] for a, b in _seed_spans(run)]
        letters = _letters(run)
        singles = [*seed, *(letter.text for letter in _new_letters(letters, seed))]
        pairs = [a.text + b.text for a, b in pairwise(letters)]
    if profile == "seed":
        singles, pairs = seed, []
    terms = _encoded((*singles, *pairs))
    asks = terms[len(singles) :] or terms
    return Meaning(terms, len(seed), tuple(dict.fromkeys(asks)))


def _is_plain(run: str) -> bool:
    """Say whether each character of a CJK run is a seed term, and folding changes none."""
    return not _MARK.search(run) and unicodedata.is_normalized("NFKC", run)


def _encoded(terms: Iterable[str]) -> tuple[bytes, ...]:
    return tuple([term.encode() for term in terms])


def _cjk_places(run: str, profile: Profile) -> list[tuple[int, int, bytes]]:
    seed = list(_seed_spans(run))
    found = [(a, b, run[a:b]) for a, b in seed]
    if profile == "code":
        letters = _letters(run)
        found += _new_letters(letters, [run[a:b] for a, b in seed])
        found += [(a.start, b.end, a.text + b.text) for a, b in pairwise(letters)]
    return [(start, end, term.encode()) for start, end, term in sorted(found)]


def _new_letters(letters: Sequence[_Letter], seed: Collection[str]) -> list[_Letter]:
    known = frozenset(seed)
    return [x for x in letters if x.text not in known and CJK_CHARACTER.match(x.text)]


def _letters(run: str) -> list[_Letter]:
    """Return the characters of a CJK run that bigrams are made of: folded, without marks."""
    if _is_plain(run):
        return [_Letter(at, at + 1, character) for at, character in enumerate(run)]
    return [
        _Letter(start, end, character)
        for start, end, folded in _clusters(run)
        for character in folded
        if CJK_CHARACTER.match(character) or _is_word(character)
    ]


def _clusters(run: str) -> Iterator[_Letter]:
    """Yield the stretches of `run` that fold on their own, with what they fold to."""
    start, folded = 0, ""
    for at, character in enumerate(run):
        alone = unicodedata.normalize("NFKC", character)
        both = unicodedata.normalize("NFKC", run[start : at + 1])
        if folded and (at - start == _LONGEST_LETTER or both == folded + alone):
            yield _Letter(start, at, folded)
            start, folded = at, alone
        else:
            folded = both
    yield _Letter(start, len(run), folded)


def _seed_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the seed terms of any text lie, by the letter of the definition."""
    start = -1
    for at, character in enumerate(text):
        alone = CJK_CHARACTER.match(character) is not None
        if not alone and (character == "_" or _is_word(character)):
            start = at if start < 0 else start
            continue
        if start >= 0:
            yield start, at
            start = -1
        if alone:
            yield at, at + 1
    if start >= 0:
        yield start, len(text)


def _is_word(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "L" or category == "Nd"
