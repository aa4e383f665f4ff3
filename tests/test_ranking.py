"""Ranking: wherever documents are stored, the answer is that of a scorer over plain documents."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd.impact import LISTED, ROW_DOCUMENTS
from indexd.index import FileFacts
from indexd.model import DEFAULT_KINDS, KINDS, Kind
from indexd.ordering import Order, Ranked, Recency
from indexd.plan import NO_DEMAND, Demand, Formula, QueryTerm
from indexd.ranking import MAX_TERMS, rank
from indexd.selection import FileFilter, Selection
from indexd.text import Profile, query_terms
from tests import brute_force
from tests.brute_force import Plain
from tests.live_index import LiveIndex, identity

PATHS = ["/p/a", "/p/b", "/p/a/é", "/q/\udcff", "/q/z", "/r"]
WORDS = ["a", "b", "c", "readFile", "read_file", "file", "数据库", "数据", "café", "cafe", "½"]
TOOLS = ["", "bash", "read"]
TIMES = [0, 0, 10, 20, 30, 1_760_000_000_000]

words = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
paths = st.sampled_from(PATHS)
times = st.sampled_from(TIMES)


def identify(document: Plain) -> tuple[object, ...]:
    return tuple(document[name] for name in ("path", "message", "kind", "call", "tool", "time"))


def asked(query: str, profile: Profile) -> list[QueryTerm]:
    """Return the query's terms alone, each at full weight."""
    return [QueryTerm((term,)) for term in query_terms(query, profile)]


def check(
    live: LiveIndex,
    query: Sequence[QueryTerm],
    selection: Selection,
    order: Order,
    top: int,
    demand: Demand = NO_DEMAND,
) -> list[Ranked]:
    """Return an answer of the index, which is compared with the scorer's."""
    ranking = rank(live.index.snapshot, query, selection, order, top, demand)
    files, accepted = selection.files, live.facts
    answer = brute_force.search(
        live.live(),
        query,
        live.profile,
        kinds=selection.kinds,
        accepts=lambda d: files is None or files.accepts(accepted[d["path"]]),
        tool_names=selection.tool_names,
        since=selection.since,
        until=selection.until,
        formula=order.formula,
        recent=order.recent,
        grouped=order.grouped,
        recency=order.recency,
        relative_score=order.relative_score,
        demand=demand,
    )
    wanted = answer.hits[:top]
    assert [(*identity(hit), hit.others) for hit in ranking.ranked] == [
        (*identify(hit.document), hit.others) for hit in wanted
    ]
    for hit, other in zip(ranking.ranked, wanted, strict=True):
        assert math.isclose(hit.score, other.score, rel_tol=1e-9)
    assert (ranking.total, ranking.documents) == (answer.total, answer.documents)
    assert ranking.doc_freqs == answer.doc_freqs
    return ranking.ranked


# --- any documents, any history --------------------------------------------------------------


@st.composite
def plain_documents(draw: st.DrawFn, path: str, first: int) -> list[Plain]:
    """Draw documents of a file whose messages are numbered from `first`."""
    kinds = st.sampled_from(KINDS)
    keys = draw(
        st.lists(st.tuples(st.integers(0, 3), kinds, st.integers(0, 2)), unique=True, max_size=6)
    )
    return [
        {
            "path": path, "message": first + message, "kind": kind, "call": call,
            "text": draw(words), "tool": draw(st.sampled_from(TOOLS)), "time": draw(times),
        }
        for message, kind, call in keys
    ]  # fmt: skip


def befall(live: LiveIndex, draw: st.DrawFn) -> None:
    """Let one thing happen to an index."""
    path = draw(paths)
    known = live.facts.get(path)
    match draw(
        st.sampled_from(["write", "append", "append", "remove", "merge", "base", "restart"])
    ):
        case "append" if known is not None:
            first = 1 + max((d["message"] for d in live.documents[path]), default=-1)
            live.append(path, draw(plain_documents(path, first)), draw(times))
        case "remove" if known is not None:
            live.remove(path)
        case "merge":
            live.finish_merge()
            live.begin_merge(draw(st.lists(st.booleans(), min_size=8, max_size=8)))
        case "base":
            live.rebase()
        case "restart":
            live.restart()
        case _:
            facts = FileFacts(
                0, path, "global", draw(st.sampled_from(["x", "y"])), mtime=draw(times)
            )
            live.write(facts, draw(plain_documents(path, 0)))


def only_agent_x() -> FileFilter:
    return FileFilter("x", lambda facts: facts.agent == "x")


selections = st.builds(
    Selection,
    kinds=st.just(DEFAULT_KINDS) | st.just(KINDS)
    | st.lists(st.sampled_from(KINDS), max_size=5).map(tuple),
    files=st.none() | st.builds(only_agent_x),
    tool_names=st.none() | st.sampled_from([("bash",), ("read", "other"), ("other",), ()]),
    since=st.none() | st.sampled_from([10, 20, 31]),
    until=st.none() | st.sampled_from([0, 20, 1_760_000_000_000]),
)  # fmt: skip
orders = st.builds(
    Order,
    formula=st.builds(
        Formula,
        coverage=st.sampled_from([0.0, 1.0]),
        session_coverage=st.sampled_from([0.0, 1.0]),
        second=st.sampled_from([0.0, 1.0]),
    ),
    recent=st.booleans(),
    relative_score=st.sampled_from([0.15, 0.0, 0.8]),
    grouped=st.booleans(),
    recency=st.none() | st.builds(Recency, half_life=st.just(400.0), now=st.just(900)),
)
known_terms = [term for word in WORDS for term in query_terms(word, "code")]
groups = st.builds(
    lambda terms, weight, known: QueryTerm(tuple(terms), weight, known % len(terms)),
    st.lists(st.sampled_from([*known_terms, b"unknown"]), min_size=1, max_size=3, unique=True),
    st.sampled_from([1.0, 0.5]),
    st.integers(0, 2),
)
queries = st.lists(groups, max_size=4)
demands = st.just(NO_DEMAND) | st.builds(
    Demand,
    must=st.lists(groups, max_size=2).map(tuple),
    must_not=st.lists(groups, max_size=1).map(tuple),
)


def answer_alike(data: st.DataObject, profile: Profile, directory: Path) -> None:
    live = LiveIndex(profile, str(directory))
    for _ in range(data.draw(st.integers(1, 12))):
        befall(live, data.draw)
        if data.draw(st.booleans()):
            live.merge_due()
        top = data.draw(st.sampled_from([0, 1, 3, 99]))
        query, selection, order = data.draw(queries), data.draw(selections), data.draw(orders)
        check(live, query, selection, order, top, data.draw(demands))


histories = given(st.data(), st.sampled_from(["seed", "code"]))


@settings(max_examples=50)
@histories
def test_any_history_answers_as_a_scorer_over_the_live_documents(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, profile: Profile
) -> None:
    answer_alike(data, profile, tmp_path_factory.getbasetemp())


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=600)
@histories
def test_many_histories_answer_as_a_scorer_over_the_live_documents(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, profile: Profile
) -> None:
    answer_alike(data, profile, tmp_path_factory.getbasetemp())


# --- one case each ---------------------------------------------------------------------------


def document(text: str, **facts: Any) -> Plain:
    plain: Plain = {
        "path": "/f", "message": 0, "kind": Kind.USER_TEXT, "call": 0, "tool": "", "time": 0,
    }  # fmt: skip
    return plain | {"text": text} | facts


def indexed(directory: Path, *documents: Plain, profile: Profile = "seed") -> LiveIndex:
    """Return an index of these documents, each file a part of its own."""
    live = LiveIndex(profile, str(directory))
    for path in dict.fromkeys(d["path"] for d in documents):
        mine = [d for d in documents if d["path"] == path]
        live.write(FileFacts(0, path, "global", "x", mtime=mine[0].get("mtime", 0)), mine)
    return live


def found(live: LiveIndex, query: str, top: int = 9, **chosen: Any) -> list[tuple[str, int]]:
    """Return (path, message) of the hits, which are also compared with the scorer's."""
    names = Order.__annotations__
    formula = Formula(coverage=chosen.pop("coverage", 0.0))
    order = Order(formula, **{name: chosen.pop(name) for name in list(chosen) if name in names})
    selection = replace(Selection(KINDS), **chosen)
    ranked = check(live, asked(query, live.profile), selection, order, top)
    return [identity(hit)[:2] for hit in ranked]  # type: ignore[misc]


def test_scores_are_those_of_the_formula(tmp_path: Path) -> None:
    live = indexed(tmp_path, document("a a b"), document("a", path="/g"), document("c", path="/h"))
    hits = rank(live.index.snapshot, asked("a b", "seed"), Selection(KINDS), Order(), 9).ranked
    idf_a, idf_b = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    norm = 1.2 * (0.25 + 0.75 * 3 / (5 / 3))
    assert hits[0].score == pytest.approx(
        idf_a * 2 * 2.2 / (2 + norm) + idf_b * 2.2 / (1 + norm), rel=1e-12
    )
    assert hits[1].score == pytest.approx(
        idf_a * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / (5 / 3))), rel=1e-12
    )


def test_coverage_adds_the_share_of_the_idf_mass_that_is_found(tmp_path: Path) -> None:
    live = indexed(tmp_path, document("a b"), document("a", path="/g"), document("c", path="/h"))
    terms = asked("a b nowhere", "seed")
    plain = rank(live.index.snapshot, terms, Selection(KINDS), Order(), 9).ranked
    covered = rank(
        live.index.snapshot, terms, Selection(KINDS), Order(Formula(coverage=1.0)), 9
    ).ranked
    idf_a, idf_b = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    by_path = {hit.facts.path: hit.score for hit in plain}
    for hit in covered:
        share = 1.0 if hit.facts.path == "/f" else idf_a / (idf_a + idf_b)
        assert hit.score == pytest.approx(by_path[hit.facts.path] * (1 + share), rel=1e-12)


def test_statistics_are_those_of_the_selected_documents_only(tmp_path: Path) -> None:
    others = [document("a " * n, path=f"/o{n}", kind=Kind.TOOL_OUTPUT) for n in range(1, 9)]
    alone = indexed(tmp_path, document("a b"), document("a", message=1))
    among = indexed(tmp_path, document("a b"), document("a", message=1), *others)
    for live in (alone, among):
        found(live, "a b", kinds=DEFAULT_KINDS)
    one, other = (
        rank(live.index.snapshot, asked("a", "seed"), Selection(DEFAULT_KINDS), Order(), 9).ranked
        for live in (alone, among)
    )
    assert [hit.score for hit in one] == [hit.score for hit in other]


def test_a_kind_asked_for_twice_counts_once(tmp_path: Path) -> None:
    live = indexed(tmp_path, document("a"), document("b", message=1))
    assert found(live, "a", kinds=(Kind.USER_TEXT, Kind.META, Kind.USER_TEXT)) == [("/f", 0)]


def test_a_tool_name_selects_documents_of_tool_kinds_only(tmp_path: Path) -> None:
    live = indexed(
        tmp_path,
        document("a", kind=Kind.TOOL_INPUT, tool="bash"),
        document("a", kind=Kind.TOOL_ERROR, tool="bash", message=1),
        document("a", kind=Kind.TOOL_INPUT, tool="read", message=2),
        document("a", kind=Kind.USER_TEXT, tool="bash", message=3),
        document("a", kind=Kind.TOOL_OUTPUT, tool="bash", message=4),
    )
    assert found(live, "a", tool_names=("bash",)) == [("/f", 0), ("/f", 1), ("/f", 4)]
    assert found(live, "a", tool_names=("bash",), kinds=DEFAULT_KINDS) == [("/f", 0), ("/f", 1)]
    assert found(live, "a", tool_names=("other",)) == []


def test_the_time_of_a_message_without_one_is_its_files(tmp_path: Path) -> None:
    live = indexed(
        tmp_path, document("a", time=10), document("a", message=1, mtime=99), document("b", time=50)
    )
    live.append("/f", [], 30)
    assert found(live, "a", since=20) == [("/f", 1)]
    assert found(live, "a", until=30) == [("/f", 0), ("/f", 1)]
    assert found(live, "a", until=29) == [("/f", 0)]
    assert found(live, "a", since=31) == []


def test_equal_scores_go_by_path_bytes_then_message_index(tmp_path: Path) -> None:
    order = ["/f", "/f/x", "/fé", "/f\udcff", "/g"]
    documents = [document("a", path=path, message=m) for path in order for m in (10, 9, 2)]
    random.Random(5).shuffle(documents)
    live = indexed(tmp_path, *documents)
    ordered = [(path, m) for path in order for m in (2, 9, 10)]
    for top in range(1, len(ordered) + 1):
        assert found(live, "a", top=top) == ordered[:top]


def test_recent_order_trims_by_score_and_then_goes_by_time(tmp_path: Path) -> None:
    live = indexed(
        tmp_path,
        document("rare a", time=10),
        document("rare", message=1, time=20),
        *(document("a " + "x " * 60, message=2 + n, time=30 + n) for n in range(20)),
    )
    assert found(live, "rare a", recent=True) == [("/f", 1), ("/f", 0)]
    assert found(live, "rare", recent=True, top=1) == [("/f", 1)]
    assert len(found(live, "rare a", recent=True, top=99, relative_score=0.0)) == 22


def test_what_is_far_below_the_best_is_cut_but_counted(tmp_path: Path) -> None:
    many = [document("common", path=f"/{n:02}") for n in range(12)]
    live = indexed(tmp_path, document("rareterm common common common"), *many)
    assert found(live, "rareterm common", top=20) == [("/f", 0)]
    ranking = rank(
        live.index.snapshot, asked("rareterm common", "seed"), Selection(KINDS), Order(), 20
    )
    assert ranking.total == 13


def test_an_empty_index_and_an_empty_selection_answer_nothing(tmp_path: Path) -> None:
    assert found(LiveIndex("seed", str(tmp_path)), "a") == []
    live = indexed(tmp_path, document("a"))
    assert found(live, "a", kinds=()) == []
    assert found(live, "", top=3) == []


def test_a_group_counts_only_where_it_adds_to_what_is_asked_anyway(tmp_path: Path) -> None:
    live = indexed(tmp_path, document("test"), document("tests", message=1))
    group = QueryTerm((b"test", b"tests", b"tested"), 0.5, known=1)
    alone = indexed(tmp_path, document("test"))
    order = Order(relative_score=0.0)
    assert len(check(live, [QueryTerm((b"test",)), group], Selection(KINDS), order, 9)) == 2
    assert check(alone, [group], Selection(KINDS), order, 9) == []


def test_what_is_demanded_is_asked_for_without_touching_scores(tmp_path: Path) -> None:
    live = indexed(tmp_path, document("a b"), document("a", message=1), document("b c", message=2))
    query, a, b = asked("a b", "seed"), QueryTerm((b"a",)), QueryTerm((b"b",))
    both = check(live, query, Selection(KINDS), Order(), 9, Demand(must=(a, b)))
    without = check(live, query, Selection(KINDS), Order(), 9, Demand(must_not=(a,)))
    assert [identity(hit)[1] for hit in both] == [0]
    assert [identity(hit)[1] for hit in without] == [2]
    plain = check(live, query, Selection(KINDS), Order(), 9)
    assert both[0].score == next(hit.score for hit in plain if identity(hit)[1] == 0)


def test_of_each_session_the_first_stands_for_the_others(tmp_path: Path) -> None:
    many = [
        document("a " * (1 + m % 3), path=f"/{n}", message=m) for n in range(3) for m in range(9)
    ]
    live = indexed(tmp_path, *many)
    hits = check(live, asked("a", "seed"), Selection(KINDS), Order(grouped=True), 9)
    assert [(hit.facts.path, hit.others) for hit in hits] == [("/0", 8), ("/1", 8), ("/2", 8)]


# --- very many documents ---------------------------------------------------------------------


def crowd(chance: random.Random, directory: Path, count: int) -> LiveIndex:
    """Return an index of many documents, most words of which are common ones."""
    common = list("abcdef")
    rare = [f"r{n}" for n in range(300)]
    texts = []
    for _ in range(3000):
        words = chance.choices(common, [9, 7, 5, 3, 2, 1], k=chance.choice([1, 3, 8, 30, 300]))
        texts.append(" ".join(words + chance.choices(rare, k=chance.choice([0, 0, 1, 2]))))
    documents = [
        document(
            chance.choice(texts), message=n, path=f"/{n % 40}", kind=KINDS[n % 7 % 3 * 2],
            tool=TOOLS[n % 3], time=n % 1000,
        )
        for n in range(count)
    ]  # fmt: skip
    live = indexed(directory, *documents)
    live.rebase()
    live.write(FileFacts(0, "/3", "global", "x"), [document("a r1 r2", path="/3")])
    live.append("/5", [document("a b", path="/5", message=count)], 500)
    live.remove("/7")
    return live


def ask_the_crowd(live: LiveIndex, chance: random.Random) -> None:
    words = [*"aaabbccdef", *(f"r{n}" for n in range(30)), "unknown"]

    def term() -> QueryTerm:
        terms = tuple({chance.choice(words).encode() for _ in range(chance.choice([1, 1, 1, 3]))})
        return QueryTerm(terms, chance.choice([1.0, 0.5]), chance.randrange(len(terms)))

    selection = Selection(
        chance.choice([KINDS, DEFAULT_KINDS, (KINDS[2],)]),
        chance.choice(
            [None, None, FileFilter("few", lambda facts: facts.path in ("/1", "/3", "/5"))]
        ),
        chance.choice([None, None, None, ("bash",)]),
        chance.choice([None, None, None, 990]),
    )
    order = Order(
        Formula(chance.choice([0.0, 1.0]), chance.choice([0.0, 1.0])),
        chance.random() < 0.1,
        chance.choice([0.15, 0.0, 0.9]),
        chance.random() < 0.1,
    )
    demand = Demand(must=(term(),)) if chance.random() < 0.1 else NO_DEMAND
    query = [term() for _ in range(chance.choice([1, 2, 2, 3, 4]))]
    check(live, query, selection, order, chance.choice([1, 8, 50, 1000]), demand)


def test_bounds_hide_nothing_where_documents_are_very_many(tmp_path: Path) -> None:
    chance = random.Random(1)
    live = crowd(chance, tmp_path, ROW_DOCUMENTS + 5000)
    for _ in range(3):
        ask_the_crowd(live, chance)


def test_bounds_hide_nothing_where_lists_are_long_and_none_has_a_row(tmp_path: Path) -> None:
    chance = random.Random(2)
    live = crowd(chance, tmp_path, 12 * LISTED)
    for _ in range(25):
        ask_the_crowd(live, chance)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_bounds_hide_nothing_in_very_many_queries(tmp_path: Path) -> None:
    for seed in range(2):
        chance = random.Random(seed + 100)
        live = crowd(chance, tmp_path, ROW_DOCUMENTS + 5000)
        for _ in range(100):
            ask_the_crowd(live, chance)


def test_a_query_of_very_many_terms_is_ranked_by_the_rarest(tmp_path: Path) -> None:
    texts = [f"common w{n} w{n + 1}" for n in range(MAX_TERMS + 50)]
    live = indexed(tmp_path, *(document(text, message=n) for n, text in enumerate(texts)))
    query = asked("common " + " ".join(f"w{n}" for n in range(MAX_TERMS + 20)), "seed")
    ranking = rank(live.index.snapshot, query, Selection(KINDS), Order(), 9)
    assert ranking.unused == len(query) - MAX_TERMS
    occurring = [t for t, n in zip(query, ranking.doc_freqs, strict=True) if n]
    rarest = sorted(occurring, key=lambda t: ranking.doc_freqs[query.index(t)])[:MAX_TERMS]
    kept = [term for term in query if term in rarest]
    assert ranking.ranked == check(live, kept, Selection(KINDS), Order(), 9)
