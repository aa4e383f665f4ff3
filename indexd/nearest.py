"""Words that are known and look like one that is not: what a slip of the keyboard meant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rapidfuzz.distance import OSA

from indexd.index import Snapshot
from indexd.segment import term_hash

# Shorter words are near too many others.
MIN_CHARACTERS = 3
# From this length on, two slips are forgiven.
LONG_CHARACTERS = 7
SHOWN = 3
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"
# Two slips are looked for among the words that begin alike.
_PREFIX_BYTES = 2


def nearest(snapshot: Snapshot, term: bytes) -> list[str]:
    """Return the known words nearest to `term`, those in most documents first.

    Words one letter off are all found; words two letters off where they begin alike.
    """
    word = term.decode("utf-8", "replace")
    if len(word) < MIN_CHARACTERS:
        return []
    distances = dict.fromkeys(_one_letter_off(snapshot, word), 1)
    if len(word) >= LONG_CHARACTERS:
        distances |= {near: 2 for near in _begin_alike(snapshot, word) if near not in distances}
    found = []
    for near, distance in distances.items():
        doc_freq = sum(part.doc_freq(near.encode()) for part in snapshot.parts)
        if doc_freq:
            found.append((distance, -doc_freq, near))
    return [near for _, _, near in sorted(found)[:SHOWN]]


def _one_letter_off(snapshot: Snapshot, word: str) -> set[str]:
    """Return the known words that one insertion, deletion, change or swap makes of `word`."""
    terms = [edit.encode() for edit in dict.fromkeys(_edits(word))]
    hashes = np.array([term_hash(term) for term in terms], np.uint64)
    return {
        term.decode()
        for part in snapshot.parts
        for term, _ in part.segment.dictionary.find_all(terms, hashes)
    }


def _edits(word: str) -> Iterator[str]:
    letters = dict.fromkeys(_LETTERS + word)
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        yield from (before + letter + after for letter in letters)
        if after:
            yield before + after[1:]
            yield from (before + letter + after[1:] for letter in letters if letter != after[0])
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]


def _begin_alike(snapshot: Snapshot, word: str) -> set[str]:
    prefix = word.encode()[:_PREFIX_BYTES]
    known = {
        term.decode("utf-8", "replace")
        for part in snapshot.parts
        for term in part.segment.dictionary.beginning(prefix)
        if abs(len(term) - len(word.encode())) <= 2
    }
    return {near for near in known if OSA.distance(word, near, score_cutoff=2) <= 2}
