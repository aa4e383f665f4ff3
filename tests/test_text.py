"""Text to terms: the seed profile to the letter, and what profile `code` adds to it."""

from __future__ import annotations

import unicodedata
from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexd.text import (
    MAX_TERM_CHARACTERS,
    Profile,
    Sought,
    fold_case,
    meaning,
    query_terms,
    raw_tokens,
)

CJK_NAMES = (
    "CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI RADICAL",
    "IDEOGRAPHIC ITERATION MARK", "IDEOGRAPHIC NUMBER ZERO", "VERTICAL IDEOGRAPHIC ITERATION MARK",
    "HANGZHOU NUMERAL", "OLD CHINESE", "VIETNAMESE ALTERNATE READING MARK", "HIRAGANA",
    "HENTAIGANA", "KATAKANA", "HALFWIDTH KATAKANA", "CIRCLED KATAKANA", "HANGUL",
    "HALFWIDTH HANGUL", "CIRCLED HANGUL", "PARENTHESIZED HANGUL", "CIRCLED KOREAN",
    "PARENTHESIZED KOREAN",
)  # fmt: skip
# Marks and stops that several scripts share, whatever their names say.
SHARED = set("\u309b\u309c\u30a0\u30fb\u30fc\uff65\uff70\uff9e\uff9f")
# Since Unicode 15 and 15.1, which the interpreter may be too old to know.
SINCE_15 = {0x1B132, 0x1B155, 0x2B739, *range(0x2EBF0, 0x2EE5E), *range(0x31350, 0x323B0)}


def is_cjk(character: str) -> bool:
    """Say whether a character is of a script of single characters, by its name."""
    code = ord(character)
    if character in SHARED:
        return False
    if code in SINCE_15 or 0x3300 <= code <= 0x3357 or code == 0x1F200:
        return True
    return unicodedata.name(character, "").startswith(CJK_NAMES)


def walk(text: str) -> list[str]:
    """Return the seed terms of `text`, one character at a time."""
    terms: list[str] = []
    word = ""
    for character in text + " ":
        category = unicodedata.category(character)
        cjk = is_cjk(character)
        if not cjk and (character == "_" or category[0] == "L" or category == "Nd"):
            word += "i" if character == "İ" else character.lower()
            continue
        if word:
            terms.append(word)
            word = ""
        if cjk:
            terms.append(character)
    return terms


def document_terms(text: str, profile: Profile) -> list[str]:
    return [t.decode() for raw in raw_tokens(text) for t in meaning(raw, profile).terms]


def length(text: str, profile: Profile) -> int:
    return sum(meaning(raw, profile).length for raw in raw_tokens(text))


def asked(query: str, profile: Profile = "code") -> list[str]:
    return [term.decode() for term in query_terms(query, profile)]


def finds(query: str, text: str) -> bool:
    """Say whether a search for `query` finds `text`."""
    return not set(asked(query)).isdisjoint(document_terms(text, "code"))


anything = st.text(st.characters(exclude_categories=()), max_size=40)
# What is hard: everything that touches case, width, marks and the borders of scripts.
hard = st.text(
    "aBz09_ -.\n\0éÉßſKÅİıΣςσǅﬁ½²Ⅷ٣٤Ａａ１ーｰ゛ﾞﾟ中文々〇库かがカｶﾃﾀ゙゚́̈ि्हनदภาไทי한ᄒ"
    "\u1161\u11ab\uffa1\u200d\u00a0—。、\U0001f600\U00020000\ud800\udfff㈀㌀ゟ㆒\u302e",
    max_size=30,
)
code_like = st.from_regex(r"[A-Za-z0-9_]{1,60}", fullmatch=True)
texts = st.one_of(anything, hard, code_like, st.lists(st.one_of(hard, code_like)).map(" ".join))


# --- profile seed ----------------------------------------------------------------------------


@given(texts)
@example("サーバー エラー")
@example("ﾃﾞｰﾀa")
@example("か\u3099ー\u0301ーa")
def test_seed_terms_are_those_of_a_walk_over_the_characters(text: str) -> None:
    assert document_terms(text, "seed") == walk(text)
    assert length(text, "seed") == len(walk(text))
    assert asked(text, "seed") == list(dict.fromkeys(walk(text)))


def test_every_assigned_character_is_the_letter_separator_or_term_that_it_is() -> None:
    codes = (*range(0x3400), *range(0x3400, 0x110000, 37), *range(0xF900, 0x10000))
    assigned = (c for c in map(chr, codes) if unicodedata.category(c)[0] in "LNMSPZ")
    while block := list(islice(assigned, 1000)):
        text = "".join(f"a{character}b " for character in block)
        assert document_terms(text, "seed") == walk(text)


@pytest.mark.slow
def test_every_code_point_has_seed_terms_that_keep_their_length_when_folded() -> None:
    for code in range(0x110000):
        character = chr(code)
        assert document_terms(f"x{character}", "seed") == walk(f"x{character}")
        assert len(fold_case(character)) == 1


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("BM25 检索 cache-first", "bm25 检 索 cache first"),
        ("用pnpm装依赖", "用 pnpm 装 依 赖"),
        ("foo.bar/baz-qux a_b __x__ v1.2.3 C++", "foo bar baz qux a_b __x__ v1 2 3 c"),
        ("サーバー エラー", "サ ー バ ー エ ラ ー"),
        ("हिन्दी", "ह न द"),
        ("ภาษาไทย", "ภาษาไทย"),
        ("x² Ⅷ", "x"),
        ("٣٤ Ａ", "٣٤ ａ"),
        ("cafe\u0301", "cafe"),
        ("e\u0301te\u0301", "e te"),
        ("İstanbul ΟΔΟΣ", "istanbul οδοσ"),
        ("a\ud800b", "a b"),
        ("", ""),
        ("?! \n", ""),
    ],
)
def test_seed_examples(text: str, terms: str) -> None:
    assert document_terms(text, "seed") == terms.split()


# --- profile code keeps the seed -------------------------------------------------------------


@given(texts)
def test_code_keeps_every_seed_term_and_its_length(text: str) -> None:
    kept = Counter(term for term in walk(text) if len(term) <= MAX_TERM_CHARACTERS)
    assert kept <= Counter(document_terms(text, "code"))
    assert length(text, "code") == len(walk(text))


@given(texts)
def test_a_text_holds_every_term_that_it_asks_for(text: str) -> None:
    for profile in ("seed", "code"):
        assert set(asked(text, profile)) <= set(document_terms(text, profile))
        assert len(set(asked(text, profile))) == len(asked(text, profile))


@given(texts)
def test_every_cjk_character_and_every_seed_word_of_a_text_finds_it(text: str) -> None:
    for term in set(walk(text)):
        if len(term) <= MAX_TERM_CHARACTERS:
            assert finds(term, text)
            assert term in asked(term) or is_cjk(term)


def test_terms_of_more_than_128_characters_are_dropped_and_still_count_in_the_length() -> None:
    for letter in "aé":
        longest, blob = letter * MAX_TERM_CHARACTERS, letter * (MAX_TERM_CHARACTERS + 1)
        assert longest in document_terms(longest, "code")
        assert document_terms(blob, "code") == []
        assert length(blob, "code") == 1
        assert asked(blob) == []
        assert document_terms(blob, "seed") == [blob]


@given(texts)
def test_no_term_of_code_is_longer_than_128_characters_but_runs_of_sound_marks(text: str) -> None:
    assert all(len(term) <= MAX_TERM_CHARACTERS for term in document_terms(text * 5, "code"))


# --- identifiers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identifier", "parts"),
    [
        ("readFile", "read file readfile"),
        ("read_file", "read file readfile read_file"),
        ("HTTPServer2", "http server 2 httpserver2"),
        ("parseHTTPResponse", "parse http response parsehttpresponse"),
        ("READ_FILE", "read file readfile read_file"),
        ("__init__", "init __init__"),
        ("sha256sum", "sha 256 sum sha256sum"),
        ("sha256sum_md5sum_crc32sum", "sha256sum md5sum crc32sum md5 sum"),
        ("utf8", "utf 8 utf8"),
        ("größeÄndern", "größe größeändern andern große großeandern"),
        ("читатьФайл", "читать фаил читатьфайл читатьфаил"),
        ("café_olé", "cafe ole cafeole café_olé"),
        ("ＲｅａｄＦｉｌｅ", "read file readfile ｒｅａｄｆｉｌｅ"),
        (
            "test_a_rewritten_file_forgets_its_old_words_when_the_file_is_replaced",
            "test a rewritten forgets words replaced",
        ),
        (
            "testThatUserCannotLoginWhenPasswordIsWrongAndAccountIsLocked",
            "that user cannot login when password wrong account locked",
        ),
        ("to_be_or_not_to_be_that_is_the_q", "to be or not that is the q"),
    ],
)
def test_an_identifier_is_found_whole_by_its_parts_and_joined(identifier: str, parts: str) -> None:
    assert finds(identifier, identifier)
    for part in parts.split():
        assert finds(part, f"in {identifier}()"), part


def test_the_spellings_of_a_name_find_each_other() -> None:
    spellings = ["readFile", "read_file", "ReadFile", "READ_FILE", "readfile"]
    for query in spellings:
        for text in spellings:
            assert finds(query, text), (query, text)


def test_plain_words_and_encoded_data_have_no_parts() -> None:
    assert document_terms("word", "code") == ["word"]
    assert document_terms("Word WORD", "code") == ["word", "word"]
    digest = "d41d8cd98f00b204e9800998ecf8427e"
    assert document_terms(digest, "code") == [digest]
    for encoded in ("aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNlNjQ", "Ab1Cd_Ef2Gh_Ij3Kl_Mn4Op_Qr5St"):
        assert document_terms(encoded, "code") == [encoded.lower()]


def test_a_part_that_occurs_twice_in_a_name_counts_once_for_it() -> None:
    assert Counter(document_terms("file_of_file file_of_file", "code"))["file"] == 2


# --- accents and width -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("cafe", "café"), ("cafe", "CAFÉ"), ("café", "cafe\u0301"), ("οδος", "ΟΔΟΣ"),
        ("ete", "e\u0301te\u0301"),
        ("istanbul", "İstanbul"), ("naive", "naïve—yes"), ("read", "ｒｅａｄ"), ("file", "ﬁle"),
        ("2024", "２０２４"), ("データ", "ﾃﾞｰﾀ"), ("デ", "ﾃﾞｰﾀ"), ("カ", "ｶ"), ("が", "か\u3099"),
        ("がく", "か\u3099く"), ("한국", unicodedata.normalize("NFD", "한국어")),
        ("한", unicodedata.normalize("NFD", "한")), ("アパート", "㌀"), ("株", "株\u0301"),
    ],
)  # fmt: skip
def test_accents_and_width_do_not_matter(query: str, text: str) -> None:
    found = set(asked(query)) & set(document_terms(text, "code"))
    assert found, (asked(query), document_terms(text, "code"))
    assert asked(query)[-1] in found


@given(st.text("データベースがぎぐカナ漢字한국어판", min_size=1, max_size=12))
def test_cjk_finds_itself_in_every_normal_form(text: str) -> None:
    text = "字" + text  # a sound mark alone begins no run
    halfwidth = text.replace("デ", "ﾃﾞ").replace("ー", "ｰ").replace("タ", "ﾀ").replace("ス", "ｽ")
    for other in (unicodedata.normalize("NFD", text), halfwidth):
        for query, target in ((text, other), (other, text)):
            assert finds(query, target), (query, target)
        assert set(bigrams(text)) <= set(document_terms(other, "code"))


# --- CJK -------------------------------------------------------------------------------------


def bigrams(run: str) -> list[str]:
    return [a + b for a, b in pairwise(run)]


@given(st.text("数据库迁移検索한국データー々", min_size=2, max_size=12))
def test_cjk_runs_hold_characters_and_bigrams_and_are_asked_by_bigrams_only(run: str) -> None:
    run = "字" + run
    terms = document_terms(f"x {run}, y", "code")
    assert Counter(bigrams(run)) <= Counter(terms)
    assert asked(run) == list(dict.fromkeys(bigrams(run)))
    for character in run:
        assert finds(character, run) or character == "ー"


def test_one_cjk_character_asks_by_itself() -> None:
    assert asked("库") == ["库"]
    assert asked("中a文") == ["中", "a", "文"]
    assert asked("库 数据库") == ["库", "数据", "据库"]


def test_an_adversary_of_marks_costs_no_more_than_its_length() -> None:
    assert len(document_terms("か" + "\u0301\u3099" * 50_000, "code")) < 10


# --- where terms are ---------------------------------------------------------------------------


def stretches(text: str, term: str, profile: Profile) -> list[tuple[int, int]]:
    return list(Sought([term.encode()], profile).stretches(text))


@given(texts)
@example("サーーー")
@example("ﾃﾞｰﾀﾍﾞｰｽ")
def test_every_term_of_a_text_is_held_by_a_stretch_of_it(text: str) -> None:
    for profile in ("seed", "code"):
        for term in document_terms(text, profile):
            found = stretches(text, term, profile)
            assert found
            assert found == sorted(found)
            assert all(0 <= start < end <= len(text) for start, end in found)
        assert not stretches(text, "nowhere", profile) or "nowhere" in text.casefold()


@given(texts)
def test_a_stretch_alone_holds_its_term(text: str) -> None:
    for term in set(document_terms(text, "code")):
        for start, end in stretches(text, term, "code"):
            stretch = text[start:end]
            # A sound mark alone begins no run.
            alone = document_terms(stretch, "code")
            assert term in {*alone, *document_terms("字" + stretch, "code")}, stretch


# --- folding case ----------------------------------------------------------------------------


@given(anything)
def test_folding_case_keeps_every_offset(text: str) -> None:
    assert len(fold_case(text)) == len(text)
    assert fold_case(text) == "".join(map(fold_case, text))
