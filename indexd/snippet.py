"""The piece of a text that shows why it was found.

Offsets are code points of the text as shown: white space is collapsed first, and case is folded
one code point at a time, so a match can never slip by letters whose lower case is longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from indexd.text import MAX_TERM_CHARACTERS, Profile, Sought, fold_case

CUT = "..."


class Snippet(NamedTuple):
    """A window of a text; `highlights` are [start, end) in code points of `text`."""

    text: str
    highlights: list[tuple[int, int]]


class Cutter:
    """Cuts snippets of `size` code points that show `query`; `terms` are what is highlighted."""

    def __init__(self, query: str, terms: Sequence[bytes], profile: Profile, size: int) -> None:
        self._whole = fold_case(" ".join(query.split()))
        self._terms, self._size = terms, size
        self._sought = Sought(terms, profile)

    def cut(self, text: str) -> Snippet:
        """Return the window of `text` that shows the query best.

        The whole text if it fits; else a window that starts half its size before the first match
        of the whole query, or of the first query term that occurs; `...` marks each cut side.
        """
        flat, size = " ".join(text.split()), self._size
        if len(flat) <= size:
            return Snippet(flat, self._highlights(flat, 0, len(flat)))
        start = max(0, min(self._match(flat) - size // 2, len(flat) - size))
        end = start + size
        before, after = CUT if start else "", CUT if end < len(flat) else ""
        # Words that the window cuts are known by their whole; they are not marked.
        first = max(0, start - MAX_TERM_CHARACTERS, flat.rfind(" ", 0, start))
        last = flat.find(" ", end, end + MAX_TERM_CHARACTERS)
        around = flat[first : last if last >= 0 else end + MAX_TERM_CHARACTERS]
        shift = first - start + len(before)
        marks = self._highlights(around, start - first, end - first)
        return Snippet(before + flat[start:end] + after, [(a + shift, b + shift) for a, b in marks])

    def _highlights(self, text: str, first: int, last: int) -> list[tuple[int, int]]:
        """Return the stretches within [first, last) that hold a term, merged where they touch."""
        found: list[tuple[int, int]] = []
        for start, end in self._sought.stretches(text):
            if start < first or end > last:
                continue
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], end))
            else:
                found.append((start, end))
        return found

    def _match(self, flat: str) -> int:
        """Return where the first match begins; 0 when there is none."""
        folded = fold_case(flat)
        at = folded.find(self._whole) if self._whole else -1
        if at >= 0:
            return at
        for term in self._terms:
            word = term.decode()
            if len(word) > 1 or not word.isascii():
                at = folded.find(word)
                if at >= 0:
                    return at
        start, _ = next(self._sought.stretches(flat), (0, 0))
        return start
