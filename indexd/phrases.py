"""Phrases: words that must stand in a text one after the other, whatever stands between them.

Only the words of profile `seed` count, in lower case; punctuation and white space do not, so a
phrase may be code.
"""

from __future__ import annotations

from typing import NamedTuple

from indexd.text import seed_tokens


class Phrase(NamedTuple):
    """The words of a phrase; `wanted` is false where it must not occur."""

    words: tuple[bytes, ...]
    wanted: bool = True


def phrase(text: str, *, wanted: bool = True) -> Phrase:
    """Return the phrase that `text` is."""
    return Phrase(tuple(seed_tokens(text)), wanted)


def agrees(text: str, phrases: list[Phrase]) -> bool:
    """Say whether `text` holds all phrases that it must, and none that it must not."""
    words = b" %b " % b" ".join(seed_tokens(text))
    return all((b" %b " % b" ".join(p.words) in words) == p.wanted for p in phrases)
