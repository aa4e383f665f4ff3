"""Snippets: the window that shows why a text was found, right for every Unicode text."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexd.snippet import CUT, Snippet
from indexd.text import Profile, Sought, fold_case, meaning, query_terms, raw_tokens
from tests.cutting import snippet

SIZE = 240

anything = st.text(st.characters(exclude_categories=()), max_size=80)
hard = st.text("aB _-İıΣςßſKǅ中文ーｶﾞ\u3099\u0301e\u00a0\u2028\n\t\x1c\ud800\U0001f600", max_size=60)
fillers = st.sampled_from(["x", "é ", "İ", "中", "。", "\U0001f600", "ß\n\n", "word ", " ", "ﬁ"])
texts = st.one_of(
    anything,
    hard,
    st.builds(lambda a, unit, n, b: a + unit * n + b, hard, fillers, st.integers(0, 400), anything),
)
profiles = st.sampled_from(["seed", "code"])


def body(shown: Snippet, flat: str) -> tuple[str, int]:
    """Return the window without its cut marks, and where it begins in the snippet."""
    text = shown.text
    if len(flat) <= SIZE:
        return text, 0
    first = 0 if text[:SIZE] == flat[:SIZE] and len(text) == SIZE + len(CUT) else len(CUT)
    return text[first : first + SIZE], first


def terms_of(text: str, profile: Profile) -> set[bytes]:
    return {term for raw in raw_tokens(text) for term in meaning(raw, profile).terms}


# --- any text --------------------------------------------------------------------------------


@given(texts, st.one_of(hard, anything), profiles)
@example("İ" * 300 + " needle " + "ß" * 300, "NEEDLE", "seed")
def test_a_snippet_is_a_window_of_the_text_with_its_cuts_marked(
    text: str, query: str, profile: Profile
) -> None:
    flat = " ".join(text.split())
    shown = snippet(text, query, profile, SIZE)
    window, first = body(shown, flat)
    assert window in flat
    if len(flat) <= SIZE:
        assert shown.text == flat
        return
    assert len(window) == SIZE
    assert shown.text[:first] in ("", CUT)
    assert shown.text[first + SIZE :] in ("", CUT)
    assert flat.startswith(window) or first
    assert flat.endswith(window) or shown.text.endswith(CUT)


@given(texts, st.one_of(hard, anything), profiles)
@example("x" * 180 + " prebase " + "x" * 300, "base", "seed")
@example("y" * 116 + " database " + "x" * 300 + " base", "base", "seed")
def test_highlights_lie_in_the_snippet_and_cover_the_query_terms_in_it(
    text: str, query: str, profile: Profile
) -> None:
    flat = " ".join(text.split())
    shown = snippet(text, query, profile, SIZE)
    window, first = body(shown, flat)
    wanted = set(query_terms(query, profile))
    for (_, end), (start, _) in zip(shown.highlights, shown.highlights[1:], strict=False):
        assert end < start
    covered: set[int] = set()
    for start, end in shown.highlights:
        assert first <= start < end <= first + len(window)
        assert not wanted.isdisjoint(terms_of(shown.text[start:end], profile))
        covered.update(range(start, end))
    if flat.count(window) == 1:
        begin = flat.index(window)
        marked = set()
        for start, end in Sought(wanted, profile).stretches(flat):
            if begin <= start and end <= begin + len(window):
                marked.update(range(start, end))
        assert covered == {at - begin + first for at in marked}


needles = st.sampled_from(
    ["needle", "Two Words", "ΟΔΟΣ", "İstanbul", "straße", "検索する", "readFile"]
)


@settings(max_examples=200)
@given(fillers, st.integers(0, 300), needles, fillers, st.integers(0, 300), st.booleans(), profiles)
def test_the_window_begins_half_its_size_before_the_whole_query(
    before: str, n: int, needle: str, after: str, m: int, shout: bool, profile: Profile
) -> None:
    query = needle.swapcase() if shout else needle
    if fold_case(query) != fold_case(needle):  # not every letter has a partner
        query = fold_case(needle)
    flat = " ".join(f"{before * n} {needle} {after * m}".split())
    at = fold_case(flat).index(fold_case(needle))
    shown = snippet(flat, query, profile, SIZE)
    assert needle in shown.text
    if len(flat) > SIZE:
        start = max(0, min(at - SIZE // 2, len(flat) - SIZE))
        cut_before, cut_after = CUT * (start > 0), CUT * (start + SIZE < len(flat))
        assert shown.text == cut_before + flat[start : start + SIZE] + cut_after


# --- one case each ---------------------------------------------------------------------------


def shown_around(text: str, query: str, profile: Profile = "seed") -> str:
    """Return the twenty characters of the window's middle, where its match begins."""
    window = snippet(text, query, profile, SIZE).text.removeprefix(CUT)
    return window[SIZE // 2 : SIZE // 2 + 20]


FAR = " lorem" * 60


def test_white_space_is_collapsed_in_text_and_query() -> None:
    assert snippet(" a\n\tb  c ", "b", "seed", SIZE) == Snippet("a b c", [(2, 3)])
    text = f"needle{FAR} two\n\n needle words{FAR}"
    assert shown_around(text, " two \n needle ").startswith("two needle")


def test_the_first_query_term_found_is_shown_where_the_whole_query_is_nowhere() -> None:
    text = f"start{FAR} second{FAR} first{FAR}"
    assert shown_around(text, "missing first second").startswith("first")
    assert shown_around(text, "First").startswith("first")
    assert shown_around(f"start{FAR} x alone{FAR}", "x y").startswith("x alone")


def test_one_letter_does_not_match_inside_a_word() -> None:
    text = f"box{FAR} x alone{FAR}"
    assert shown_around(text, "y x").startswith("x alone")


def test_folded_accents_parts_and_bigrams_are_found() -> None:
    assert shown_around(f"a{FAR} Café open{FAR}", "cafe", "code").startswith("Café")
    assert shown_around(f"a{FAR} read_file(x){FAR}", "readFile", "code").startswith("read_file")
    assert shown_around(f"数{FAR} 旧数据 迁移{FAR}", "数据库", "code").startswith("数据")
    assert shown_around(f"a{FAR} ﾃﾞｰﾀ{FAR}", "データ", "code").startswith("ﾃﾞｰﾀ")


def test_a_text_without_any_match_shows_its_beginning() -> None:
    shown = snippet("start" + FAR, "absent", "code", SIZE)
    assert shown.text == ("start" + FAR)[:SIZE] + CUT
    assert shown.highlights == []


def test_a_text_of_exactly_the_size_is_shown_whole() -> None:
    assert snippet("é" * SIZE, "x", "seed", SIZE).text == "é" * SIZE
    assert snippet("é" * (SIZE + 1), "x", "seed", SIZE).text == "é" * SIZE + CUT


@pytest.mark.parametrize(
    ("text", "query", "profile", "marked"),
    [
        ("a readFile b", "file", "code", ["readFile"]),
        ("a readFile b", "file", "seed", []),
        ("旧数据库的", "数据库", "code", ["数据库"]),
        ("旧数据库的", "数库", "seed", ["数", "库"]),
        ("サーーーバー", "サー", "code", ["サー"]),
        ("İstanbul, ISTANBUL", "istanbul", "seed", ["İstanbul", "ISTANBUL"]),
        ("CAFÉ cafe", "café", "code", ["CAFÉ", "cafe"]),
        ("ﾃﾞｰﾀだ", "データ", "code", ["ﾃﾞｰﾀ"]),
        ("one two two", "two", "seed", ["two", "two"]),
    ],
)
def test_what_is_marked(text: str, query: str, profile: Profile, marked: list[str]) -> None:
    shown = snippet(text, query, profile, SIZE)
    assert [shown.text[start:end] for start, end in shown.highlights] == marked


def test_a_word_that_the_window_cuts_is_not_marked_as_its_rest() -> None:
    for cut in range(100, 125):
        shown = snippet("needle" + " x" * cut + " baseline base" + FAR, "needle base", "seed", SIZE)
        assert shown.highlights[0] == (0, len("needle"))
        for start, end in shown.highlights[1:]:
            assert shown.text[start - 1 : end] == " base"
            assert shown.text[end : end + 1] in (" ", ".")
