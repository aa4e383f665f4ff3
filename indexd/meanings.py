"""What raw tokens mean, many at once: their terms as stretches of a text.

Equal to `text.meaning`, which says it one by one and by the letter; here identifiers are divided
and CJK characters paired by looking at the classes of all bytes or characters at once. Tokens of
other scripts, and what has too many digits to be divided by neighbours, are asked there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from indexd.hashes import gathered, span_hashes
from indexd.segment import Array
from indexd.text import (
    CJK_CHARACTER,
    MANY_CHANGES,
    MAX_DIGIT_RUNS,
    MAX_TERM_CHARACTERS,
    NO_WORD,
    SHORT_PART,
    Profile,
    meaning,
)

_LINE, _LOWER, _UPPER, _DIGIT, _HIGH = range(5)
_CLASSES = np.full(256, _LINE, np.uint8)
_CLASSES[ord("a") : ord("z") + 1] = _LOWER
_CLASSES[ord("A") : ord("Z") + 1] = _UPPER
_CLASSES[ord("0") : ord("9") + 1] = _DIGIT
_CLASSES[0x80:] = _HIGH
# The sorts of characters: separators, ASCII words, plain CJK, and what needs a closer look.
_APART, _WORD, _ALONE, _ELSE = range(4)
_LAST_CHARACTER = 0x32400
_JAMO = re.compile("[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]")
# So many bytes of tokens are worked on at a time; some 40 bytes of work space for each.
PIECE_BYTES = 1 << 20


class Meanings(NamedTuple):
    """Terms as stretches of `text` (u8): an occurrence of tokens[i] adds text[starts[i]:ends[i]].

    Starts ascend. `lengths` says for each token how many seed terms it counts for.
    """

    text: Array
    tokens: Array
    starts: Array
    ends: Array
    lengths: Array


class _Spans(NamedTuple):
    """Stretches of a text and the token that each is a term of."""

    text: Array
    tokens: Array
    starts: Array
    ends: Array


def meanings(blob: Array, bounds: Array, profile: Profile) -> Meanings:
    """Return what the raw tokens blob[bounds[i]:bounds[i + 1]] (u8) mean under `profile`."""
    cuts = bounds[:-1].searchsorted(np.arange(0, max(1, len(blob)), PIECE_BYTES)).tolist()
    found = []
    for first, last in pairwise([*cuts, len(bounds) - 1]):
        at = int(bounds[first])
        some = blob[at : int(bounds[last])]
        found.append((first, _meanings(some, bounds[first : last + 1] - at, profile)))
    spans = [
        _Spans(each.text, each.tokens + first, each.starts, each.ends) for first, each in found
    ]
    return _end_to_end(spans, np.concatenate([each.lengths for _, each in found]))


def _meanings(blob: Array, bounds: Array, profile: Profile) -> Meanings:
    lengths = np.ones(len(bounds) - 1, np.int64)
    if not len(blob):
        return Meanings(blob, bounds[:0], bounds[:0], bounds[:0], lengths)
    classes = _CLASSES[blob]
    wide = np.logical_or.reduceat(classes == _HIGH, bounds[:-1])
    plain, others = np.flatnonzero(~wide), np.flatnonzero(wide)
    spans: list[_Spans] = []
    odd = plain[:0]
    if profile == "code":
        plain = plain[bounds[plain + 1] - bounds[plain] <= MAX_TERM_CHARACTERS]
        marked = np.add.reduceat(classes != _LOWER, bounds[:-1], dtype=np.int64)[plain]
        spans, odd = _identifiers(blob, bounds, plain[marked > 0])
        plain = np.setdiff1d(plain, odd, assume_unique=True)
    spans.append(_Spans(_lower(blob), plain, bounds[plain], bounds[plain + 1]))
    if len(others):
        more, counts, left = _characters(blob, bounds, others, profile)
        spans += more
        lengths[others] = counts
        odd = np.union1d(odd, left)
    if len(odd):
        one, lengths[odd] = _one_by_one(blob, bounds, odd, profile)
        spans.append(one)
    return _end_to_end(spans, lengths)


def _lower(text: Array) -> Array:
    return np.frombuffer(text.tobytes().lower(), np.uint8)


def _end_to_end(spans: Sequence[_Spans], lengths: Array) -> Meanings:
    offsets = np.cumsum([0, *(len(each.text) for each in spans)]).tolist()
    return Meanings(
        np.concatenate([each.text for each in spans]),
        np.concatenate([each.tokens for each in spans]),
        np.concatenate([s.starts + at for s, at in zip(spans, offsets, strict=False)]),
        np.concatenate([s.ends + at for s, at in zip(spans, offsets, strict=False)]),
        lengths,
    )


def _one_by_one(blob: Array, bounds: Array, asked: Array, profile: Profile) -> tuple[_Spans, Array]:
    """Return what `text.meaning` says of some tokens, and the length of each."""
    data = blob.tobytes()
    known = [
        meaning(data[a:b], profile)
        for a, b in zip(bounds[asked].tolist(), bounds[asked + 1].tolist(), strict=True)
    ]
    terms = [term for each in known for term in each.terms]
    ends = np.cumsum([len(term) for term in terms], dtype=np.int64)
    tokens = np.repeat(asked, [len(each.terms) for each in known])
    text = np.frombuffer(b"".join(terms), np.uint8)
    starts = np.concatenate((ends[:0] if not len(ends) else [0], ends[:-1])).astype(np.int64)
    return _Spans(text, tokens, starts, ends), np.array([each.length for each in known], np.int64)


def _characters(
    blob: Array, bounds: Array, chosen: Array, profile: Profile
) -> tuple[list[_Spans], Array, Array]:
    """Return terms and lengths of tokens of plain CJK and ASCII, and which tokens are not."""
    data, limits = gathered(blob, bounds[chosen], bounds[chosen + 1])
    codes = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), "<u4")
    sorts = _sorts().take(codes, mode="clip")
    ends = np.cumsum(1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF), dtype=np.int64)
    starts = np.concatenate(([0], ends[:-1]))
    owners = limits.searchsorted(starts, side="right") - 1
    count = len(chosen)
    left = np.bincount(owners[sorts == _ELSE], minlength=count) > 0
    within = ~left[owners]
    alone = (sorts == _ALONE) & within
    spans = [_Spans(data, chosen[owners[alone]], starts[alone], ends[alone])]
    lengths = np.bincount(owners[alone], minlength=count)
    if profile == "code":
        pairs = np.flatnonzero(alone[:-1] & alone[1:] & (owners[:-1] == owners[1:]))
        spans.append(_Spans(data, chosen[owners[pairs]], starts[pairs], ends[pairs + 1]))
    words = (sorts == _WORD) & within
    edge = owners[1:] != owners[:-1]
    begins = np.flatnonzero(words & np.append(True, ~words[:-1] | edge))
    stops = np.flatnonzero(words & np.append(~words[1:] | edge, True))
    if len(begins):
        known = _meanings(*gathered(data, starts[begins], ends[stops]), profile)
        of_words = owners[begins]
        spans.append(_known_as(known, chosen[of_words]))
        lengths += np.bincount(of_words, known.lengths, count).astype(np.int64)
    return spans, lengths, chosen[left]


def _known_as(known: Meanings, tokens: Array) -> _Spans:
    """Return the terms of some tokens as those of others that they are parts of."""
    return _Spans(known.text, tokens[known.tokens], known.starts, known.ends)


@cache
def _sorts() -> Array:
    """Return the sort of each character; the last entry stands for all beyond."""
    everything = "".join(map(chr, range(0xD800))) + "\0" * 0x800
    everything += "".join(map(chr, range(0xE000, _LAST_CHARACTER)))
    sorts = np.full(_LAST_CHARACTER + 1, _ELSE, np.uint8)
    sorts[[match.start() for match in NO_WORD.finditer(everything)]] = _APART
    sorts[[at for at in range(0x80) if chr(at).isalnum() or at == ord("_")]] = _WORD
    sorts[_steady(CJK_CHARACTER.findall(everything))] = _ALONE
    return sorts


def _steady(characters: Sequence[str]) -> list[int]:
    """Return the codes of those that folding leaves as they are, whatever stands beside them."""
    folded = unicodedata.normalize("NFKC", "\n".join(characters)).split("\n")
    return [
        ord(character)
        for character, one in zip(characters, folded, strict=True)
        if character == one and not (unicodedata.combining(character) or _JAMO.match(character))
    ]


def _identifiers(blob: Array, bounds: Array, chosen: Array) -> tuple[list[_Spans], Array]:
    """Return parts and joined forms of some tokens of ASCII, and which have to be asked."""
    text, limits = gathered(blob, bounds[chosen], bounds[chosen + 1])
    if not len(text):
        return [], chosen
    shape = _Shape(text, limits)
    odd = shape.odd()
    divided = shape.divided() & ~odd
    text = _lower(text)
    starts, ends = shape.parts()
    owners = shape.owners[starts]
    wanted = divided[owners]
    parts = _Spans(text, owners[wanted], starts[wanted], ends[wanted])
    joined = _joined(text[~shape.lines], shape.owners[~shape.lines], divided & shape.underscored)
    both = [each._replace(tokens=chosen[each.tokens]) for each in _each_once(parts, joined)]
    return both, chosen[odd]


def _joined(text: Array, owners: Array, wanted: Array) -> _Spans:
    """Return the tokens as they are without underscores: text, and the owner of each byte."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    ends = np.append(starts[1:], len(owners))
    chosen = wanted[owners[starts]]
    return _Spans(text, owners[starts][chosen], starts[chosen], ends[chosen])


def _each_once(*spans: _Spans) -> list[_Spans]:
    """Return the terms without those that their token has already."""
    tokens = np.concatenate([each.tokens for each in spans])
    hashes = np.concatenate([span_hashes(each.text, each.starts, each.ends) for each in spans])
    order = np.lexsort((hashes, tokens))
    tokens, hashes = tokens[order], hashes[order]
    again = np.zeros(len(order), bool)
    again[1:] = (tokens[1:] == tokens[:-1]) & (hashes[1:] == hashes[:-1])
    kept = np.ones(len(order), bool)
    kept[order] = ~again
    cuts = np.cumsum([len(each.tokens) for each in spans])[:-1]
    return [
        _Spans(each.text, each.tokens[mine], each.starts[mine], each.ends[mine])
        for each, mine in zip(spans, np.split(kept, cuts), strict=True)
    ]


class _Shape:
    """Where identifiers end to end are divided: `limits` say where each of them begins.

    All arrays but `limits` and `underscored` are parallel to the bytes.
    """

    def __init__(self, text: Array, limits: Array) -> None:
        classes = _CLASSES[text]
        self._limits, self._sizes = limits, np.diff(limits)
        self.owners = np.repeat(np.arange(len(self._sizes)), self._sizes)
        self.lines = classes == _LINE
        first = np.zeros(len(text) + 1, bool)
        first[limits] = True
        before, after = np.roll(classes, 1), np.roll(classes, -1)
        edge = first[:-1] | (before == _LINE)
        self._upper, self._pieces = classes == _UPPER, edge & ~self.lines
        digit, was_digit = classes == _DIGIT, before == _DIGIT
        word = (before == _UPPER) & self._upper & (after == _LOWER) & ~first[1:]
        camel = (before == _LOWER) & self._upper
        self._cuts = (edge | camel | (digit != was_digit) | word) & ~self.lines
        self._piece = np.maximum(np.cumsum(self._pieces) - 1, 0)
        runs = np.bincount(self._piece[digit & (edge | ~was_digit)], minlength=len(text))
        self._many = (runs > MAX_DIGIT_RUNS)[self._piece] & ~self.lines
        self._cuts &= ~self._many | self._pieces
        self._stops = self._cuts | self.lines | first[:-1]
        self.underscored = self._any(self.lines)

    def odd(self) -> Array:
        """Return which tokens have both many digits and capitals in one piece."""
        capitals = np.bincount(self._piece[self._upper], minlength=len(self.owners)) > 0
        return self._any(self._many & capitals[self._piece])

    def divided(self) -> Array:
        """Return which tokens have parts; what changes all the time is data, not a name."""
        parts, pieces = self._count(self._cuts), self._count(self._pieces)
        data = (parts - pieces >= MANY_CHANGES) & (self._sizes < SHORT_PART * parts)
        named: Array = ((parts > 1) | self.underscored) & ~data
        return named

    def parts(self) -> tuple[Array, Array]:
        """Return where the parts begin and end."""
        stops = np.flatnonzero(self._stops)
        begins = self._cuts[stops]
        return stops[begins], np.append(stops[1:], len(self.owners))[begins]

    def _count(self, marks: Array) -> Array:
        return np.add.reduceat(marks, self._limits[:-1], dtype=np.int64)

    def _any(self, marks: Array) -> Array:
        found: Array = np.logical_or.reduceat(marks, self._limits[:-1])
        return found
