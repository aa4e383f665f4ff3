"""The piece of a text that shows why it was found.

Offsets are code points of the text as shown: white space is collapsed first, and case is folded
one code point at a time, so a match can never slip by letters whose lower case is longer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from indexd.plan import every_term
from indexd.text import MAX_TERM_CHARACTERS, Profile, fold_case, held

CUT = "..."


class Snippet(NamedTuple):
    """A window of a text; `highlights` are [start, end) in code points of `text`."""

    text: str
    highlights: list[tuple[int, int]]


def snippet(
    text: str, query: str, profile: Profile, size: int, terms: Sequence[bytes] | None = None
) -> Snippet:
    """Return the window of `size` code points of `text` that shows `query` best.

    The whole text if it fits; else a window that starts half its size before the first match of
    the whole query, or of the first query term that occurs; `...` marks each cut side. `terms`
    are what is highlighted: the query's, unless given.
    """
    flat = " ".join(text.split())
    terms = every_term(query, profile) if terms is None else terms
    if len(flat) <= size:
        return Snippet(flat, highlights(flat, terms, profile))
    start = max(0, min(_match(flat, query, profile, terms) - size // 2, len(flat) - size))
    window = flat[start : start + size]
    before, after = CUT if start else "", CUT if start + size < len(flat) else ""
    # Words that the window cuts are known by their whole; they are not marked.
    end = start + size
    first = max(0, start - MAX_TERM_CHARACTERS, flat.rfind(" ", 0, start))
    last = flat.find(" ", end, end + MAX_TERM_CHARACTERS)
    around = flat[first : last if last >= 0 else end + MAX_TERM_CHARACTERS]
    inner = (start - first, end - first)
    shift = len(before) - inner[0]
    marks = [(a + shift, b + shift) for a, b in highlights(around, terms, profile, inner)]
    return Snippet(before + window + after, marks)


def highlights(
    text: str, terms: Collection[bytes], profile: Profile, inner: tuple[int, int] | None = None
) -> list[tuple[int, int]]:
    """Return the stretches of `text` that hold any of `terms`, merged where they touch.

    Only those that lie in `inner`, where given.
    """
    first, last = inner or (0, len(text))
    found: list[tuple[int, int]] = []
    for start, end in held(text, frozenset(terms), profile):
        if start < first or end > last:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _match(flat: str, query: str, profile: Profile, terms: Sequence[bytes]) -> int:
    """Return where the first match begins; 0 when there is none."""
    folded = fold_case(flat)
    whole = fold_case(" ".join(query.split()))
    at = folded.find(whole) if whole else -1
    if at >= 0:
        return at
    for term in terms:
        word = term.decode()
        if len(word) > 1 or not word.isascii():
            at = folded.find(word)
            if at >= 0:
                return at
    start, _ = next(held(flat, frozenset(terms), profile), (0, 0))
    return start
