"""What profile `code` makes of the plain sum, held against a scorer that is plain Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd.build import Entry, build
from indexd.english import STOP_WORDS, forms, stem
from indexd.index import FileFacts, Index, Snapshot
from indexd.model import DEFAULT_KINDS, KINDS, Document, Kind
from indexd.ordering import Order
from indexd.plan import FORMULAS, Formula, plan
from indexd.ranking import rank
from indexd.selection import Selection
from indexd.text import Profile, meaning, query_terms, raw_tokens
from tests.cutting import every_term, snippet

STEMMER = Stemmer.Stemmer("english")
WORDS = (
    *("cache", "caches", "cached", "caching", "error", "errors", "configure", "configured"),
    *("configuration", "read", "file", "readFile", "read_file", "readfile", "files", "running"),
    *("run", "the", "of", "is", "数据库", "数据", "café", "cafe", "x1", "login", "log", "in"),
)


class Said(NamedTuple):
    """One document: in which session, of which kind, and its text."""

    session: int
    text: str
    kind: Kind = Kind.USER_TEXT


def indexed(
    said: Sequence[Said], profile: Profile = "code", parts: Sequence[int] | None = None
) -> Snapshot:
    """Return an index of what was said, document i in part parts[i], message_index i."""
    stored: dict[int, list[Entry]] = {}
    for at, one in enumerate(said):
        document = Document(one.kind, one.text, at)
        stored.setdefault(parts[at] if parts else 0, []).append(Entry(one.session, document))
    index = Index()
    files = [FileFacts(number, f"/home/{number}", "global", "claude") for number in range(9)]
    index.restore([build(entries, profile) for entries in stored.values()], files)
    return index.snapshot


def scores(
    snapshot: Snapshot,
    query: str,
    formula: Formula = FORMULAS["code"],
    profile: Profile = "code",
    kinds: tuple[Kind, ...] = DEFAULT_KINDS,
) -> dict[int, float]:
    """Return the score of every document found, by message_index."""
    order = Order(formula, relative_score=0.0)
    found = rank(snapshot, plan(query, profile, formula), Selection(kinds), order, 10_000)
    return {
        int(each.part.segment.columns.message[each.ordinal]): each.score for each in found.ranked
    }


def plainly(
    said: Sequence[Said], query: str, formula: Formula, profile: Profile
) -> dict[int, float]:
    """Return what `scores` should, by the letter of docs/ranking-bench.md."""
    counts, lengths = {}, {}
    for at, one in enumerate(said):
        meant = [meaning(raw, profile) for raw in raw_tokens(one.text)]
        counts[at] = Counter(term for each in meant for term in each.terms)
        lengths[at] = sum(each.length for each in meant)
    searched = [at for at in counts if counts[at] and said[at].kind in DEFAULT_KINDS]
    average = sum(lengths[at] for at in searched) / max(1, len(searched))
    vocabulary = {term for at in searched for term in counts[at]}
    asked = []
    for group, weight in groups_of(query, profile, formula, vocabulary):
        freqs = {at: sum(counts[at][term] for term in group) for at in searched}
        held = {at: freq for at, freq in freqs.items() if freq}
        if held:
            idf = math.log(1 + (len(searched) - len(held) + 0.5) / (len(held) + 0.5))
            asked.append((held, weight * idf))
    total = sum(weight for _, weight in asked)
    found = {}
    for at in searched:
        if not any(at in held for held, _ in asked):
            continue
        norm = 1.2 * (0.25 + 0.75 * lengths[at] / average)
        score = sum(w * h[at] * 2.2 / (h[at] + norm) for h, w in asked if at in h)
        share = sum(w for h, w in asked if at in h) / total
        mates = {other for other in searched if said[other].session == said[at].session}
        session = sum(w for h, w in asked if not mates.isdisjoint(h)) / total
        score *= 1 + formula.coverage * share
        found[at] = score * (1 + formula.session_coverage * session)
    return found


def groups_of(
    query: str, profile: Profile, formula: Formula, vocabulary: set[bytes]
) -> list[tuple[set[bytes], float]]:
    """Return the groups of terms a query asks for, and what each weighs."""
    words = query_terms(query, profile)
    groups = [({w}, formula.stop_words if w in STOP_WORDS else 1.0) for w in words]
    raws = raw_tokens(query)
    if formula.joined and len(raws) in (2, 3) and all(raw.isascii() for raw in raws):
        runs = {(a, b) for a in range(3) for b in range(a + 2, len(raws) + 1)}
        joins = {b"".join(raws[a:b]).replace(b"_", b"").lower() for a, b in runs}
        groups += [({each}, formula.joined) for each in sorted(joins - set(words))]
    if formula.stems:
        plain = [w for w in words if w.isalpha() and w.isascii() and w not in STOP_WORDS]
        for root in {STEMMER.stemWord(w.decode()) for w in plain}:
            same = {t for t in vocabulary if t.isalpha() and STEMMER.stemWord(t.decode()) == root}
            if len(root) >= 3 and same - set(words):
                groups.append((same, formula.stems))
    return groups


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(" ".join)
said_lists = st.lists(
    st.builds(Said, st.integers(0, 3), texts, st.sampled_from((*DEFAULT_KINDS, Kind.REASONING))),
    min_size=1,
    max_size=14,
)
formulas = st.one_of(
    st.just(FORMULAS["code"]),
    st.builds(
        Formula,
        *(st.sampled_from((0.0, 1.0, 2.0)) for _ in range(2)),
        *(st.sampled_from((0.5, 1.0)) for _ in range(3)),
    ),
)


@settings(max_examples=60)
@given(said_lists, texts, formulas)
def test_the_formula_is_what_the_documentation_says(said, query, formula):
    found = scores(indexed(said), query, formula)
    assert found == pytest.approx(plainly(said, query, formula, "code"), abs=1e-9)


@given(said_lists, texts)
def test_profile_seed_stays_the_plain_sum(said, query):
    found = scores(indexed(said, "seed"), query, FORMULAS["seed"], "seed")
    assert found == pytest.approx(plainly(said, query, Formula(), "seed"), abs=1e-9)


@given(said_lists, texts, st.data())
def test_scores_do_not_depend_on_where_documents_are_stored(said, query, data):
    sizes = {"min_size": len(said), "max_size": len(said)}
    parts = data.draw(st.lists(st.integers(0, 3), **sizes), label="parts")
    assert scores(indexed(said, parts=parts), query) == scores(indexed(said), query)


def test_a_document_gains_by_the_share_of_the_query_it_holds():
    said = [Said(0, "socket timeout"), Said(1, "socket socket"), Said(2, "unrelated words")]
    plain, raised = (
        scores(indexed(said), "socket timeout", Formula(coverage=coverage)) for coverage in (0, 1)
    )
    assert raised[0] == pytest.approx(2 * plain[0])
    assert 1.3 < raised[1] / plain[1] < 1.4  # of the idf mass, `socket` is the lesser part


def test_words_that_nothing_holds_do_not_lessen_coverage():
    snapshot = indexed([Said(0, "socket timeout"), Said(1, "unrelated")])
    assert scores(snapshot, "socket timeout nowhere") == scores(snapshot, "socket timeout")


def test_words_of_one_stem_find_each_other_after_the_exact_word():
    said = [Said(0, "it was configured"), Said(1, "we configure it"), Said(2, "a configuration")]
    found = scores(indexed(said), "configure")
    assert found.keys() == {0, 1, 2}
    assert found[1] > max(found[0], found[2])


def test_a_stem_group_adds_nothing_where_no_other_form_occurs():
    snapshot = indexed([Said(0, "segment fault"), Said(1, "unrelated")])
    without = FORMULAS["code"]._replace(stems=0.0)
    assert scores(snapshot, "segment") == scores(snapshot, "segment", without)


def test_a_form_outside_the_selection_does_not_count():
    said = [Said(0, "segment fault"), Said(1, "unrelated")]
    hidden = [*said, Said(2, "segments", Kind.REASONING)]
    assert scores(indexed(hidden), "segment") == scores(indexed(said), "segment")


def test_two_forms_in_a_query_make_one_group():
    groups = [each for each in plan("cache cached caches", "code", FORMULAS["code"]) if each.known]
    assert [each.terms[:3] for each in groups] == [(b"cache", b"cached", b"caches")]


def test_stop_words_weigh_half_and_have_no_other_forms():
    query = plan("where did the daemon", "code", FORMULAS["code"])
    weights = {each.terms[0]: each.weight for each in query if not each.known}
    assert weights == {b"where": 0.5, b"did": 0.5, b"the": 0.5, b"daemon": 1.0}
    assert [each.terms[0] for each in query if each.known] == [b"daemon"]


@pytest.mark.parametrize(
    ("query", "finds"),
    [
        ("read file", True),
        ("Read File", True),
        ("please read file", True),
        ("please read file now", False),
        ("readfile", True),
    ],
)
def test_neighbours_in_short_queries_are_also_asked_for_joined(query, finds):
    found = scores(indexed([Said(0, "readfile failed"), Said(1, "unrelated")]), query)
    assert (0 in found) is finds


def test_three_words_also_ask_for_the_name_they_make_together():
    said = [Said(0, "getusername()"), Said(1, "get the user a name"), Said(2, "unrelated")]
    found = scores(indexed(said), "get user name")
    assert found.keys() == {0, 1}


@pytest.mark.parametrize("parts", [[0, 0, 0, 0], [0, 1, 0, 1]])
def test_what_a_session_says_elsewhere_speaks_for_its_documents(parts):
    said = [Said(0, "deadlock seen"), Said(0, "in the scheduler"), Said(1, "deadlock seen")]
    said.append(Said(2, "unrelated words"))
    found = scores(indexed(said, parts=parts), "deadlock scheduler")
    assert found[0] > found[2]


def test_what_a_session_says_in_kinds_not_searched_does_not_speak_for_it():
    said = [Said(0, "deadlock seen"), Said(0, "the scheduler", Kind.REASONING)]
    said += [Said(1, "deadlock seen"), Said(2, "a scheduler")]
    found = scores(indexed(said), "deadlock scheduler")
    assert found[0] == found[2]
    everything = scores(indexed(said), "deadlock scheduler", kinds=KINDS)
    assert everything[0] > everything[2]


@pytest.mark.parametrize(
    ("word", "others"),
    [
        (b"compact", {b"compacts", b"compacted", b"compacting", b"compaction"}),
        (b"running", {b"run", b"runs"}),
        (b"retries", {b"retry", b"retried", b"retrying"}),
        (b"migration", {b"migrate", b"migrates", b"migrated", b"migrating", b"migrations"}),
        (b"cached", {b"cache", b"caches", b"caching"}),
    ],
)
def test_the_forms_of_a_stem_are_those_that_english_makes(word, others):
    assert others <= set(forms(stem(word)))


@pytest.mark.parametrize("term", [b"x1", b"read_file", b"caf\xc3\xa9", b"ls", b"a" * 40])
def test_what_is_no_english_word_has_no_stem(term):
    assert stem(term) == ""


@given(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12))
def test_every_form_of_a_stem_has_that_stem(word):
    root = stem(word.encode())
    if root:
        assert {stem(form) for form in forms(root)} <= {root}


def test_a_snippet_marks_the_form_that_was_found():
    shown = snippet("the server was configured badly", "configure", "code", 240)
    assert [shown.text[a:b] for a, b in shown.highlights] == ["configured"]


def test_profile_seed_asks_for_the_words_and_nothing_else():
    assert every_term("Read File cached", "seed") == [b"read", b"file", b"cached"]
