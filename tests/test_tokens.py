"""Counting terms by arrays finds what looking at each token by the letter finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexd.hashes import in_order, span_hashes, term_hash
from indexd.text import Profile, meaning, raw_tokens
from indexd.tokens import count

PROFILES: tuple[Profile, ...] = ("seed", "code")
profiles = st.sampled_from(PROFILES)
identifiers = st.text("abABxX019_", max_size=14) | st.text("aB1_", min_size=125, max_size=131)
scripts = st.text("aZ1_ -é½ñςİ日本カーｶﾞ\u0308\u3099한글\u1100\u1161，。😀’𠀀\0", max_size=12)
texts = st.lists(st.lists(identifiers | scripts, max_size=8).map(" ".join), max_size=5)

Counts = list[tuple[Counter[bytes], int]]


def counted(of: Sequence[str], profile: Profile) -> Counts:
    """Return the terms and the length of each text, as the arrays say."""
    found = count([text.encode() for text in of], profile)
    names = list(found.dictionary)
    terms: list[Counter[bytes]] = [Counter() for _ in of]
    for term, text, freq in zip(
        found.terms.tolist(), found.texts.tolist(), found.freqs.tolist(), strict=True
    ):
        terms[text][names[term]] += freq
    return list(zip(terms, found.lengths.tolist(), strict=True))


def by_the_letter(of: Sequence[str], profile: Profile) -> Counts:
    known = [[meaning(raw, profile) for raw in raw_tokens(text)] for text in of]
    return [
        (Counter(term for one in each for term in one.terms), sum(one.length for one in each))
        for each in known
    ]


@settings(max_examples=60)
@given(texts, profiles)
@example(["readFile HTTPServer2 read_file a1b2c3 A1b2C3d4 _ __x foo_foo"], "code")
@example(["使用readFile函数，好 “quoted” naïve", "½ 1½"], "code")
def test_terms_are_those_of_each_token(of: list[str], profile: Profile) -> None:
    assert counted(of, profile) == by_the_letter(of, profile)


@pytest.mark.parametrize("beside", ["", "一", "a", "カ", "ー", "가"])
def test_every_character_means_the_same(beside: str) -> None:
    characters = [chr(c) for c in range(0x80, 0x32400, 61) if not 0xD800 <= c < 0xE000]
    tokens = [beside + character + beside for character in characters]
    for profile in PROFILES:
        assert counted(tokens, profile) == by_the_letter(tokens, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_giant_text_is_counted_like_its_pieces(profile: Profile) -> None:
    words = [f"w{number * number % 5003}" for number in range(250_000)]
    ((terms, length),) = counted([" ".join(words)], profile)
    assert length == len(words)
    assert {term: terms[term] for term in map(str.encode, words)} == Counter(map(str.encode, words))


@settings(max_examples=50)
@given(st.lists(st.binary(min_size=1, max_size=9), max_size=20))
@example([b"x" * 4096, b"z" * 4097, b"x" * 70_000, b"y"])
def test_a_term_has_one_hash_wherever_it_stands(terms: list[bytes]) -> None:
    ends = np.cumsum([len(term) for term in terms], dtype=np.int64)
    starts = ends - np.array([len(term) for term in terms], np.int64)
    text = np.frombuffer(b"".join(terms), np.uint8)
    assert span_hashes(text, starts, ends).tolist() == [term_hash(term) for term in terms]


@given(st.lists(st.sampled_from([0, 1, 2, 3, 1 << 63, (1 << 63) + 1, (1 << 64) - 1])))
def test_hashes_that_differ_little_are_put_in_order(values: list[int]) -> None:
    places, ordered = in_order(np.array(values, np.uint64))
    assert places.tolist() == sorted(range(len(values)), key=values.__getitem__)
    assert ordered.tolist() == sorted(values)
