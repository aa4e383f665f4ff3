"""What the operators of a query find, on real files."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd import searching
from indexd.asking import MAX_EXPANSION
from indexd.config import History
from indexd.errors import BadRequest
from indexd.paging import KEPT
from indexd.ranking import CHECKED, MAX_TERMS
from indexd.requests import MAX_QUERY_CHARS
from tests.living import Living, living
from tests.living import settings as settings_for
from tests.pasted import PASTES
from tests.writing import Said, chat, claude

NOW = 1_786_000_000_000
WORDS = ["read", "reading", "file", "cache", "lock", "locked"]


@pytest.fixture
def home(tmp_path: Any) -> Iterator[Any]:
    """Return a function that starts an engine over sessions of the given texts."""
    engines = []

    def start(*texts: str, profile: str = "code") -> Living:
        chat(f"{tmp_path}/sessions/s.jsonl", [Said("user", text) for text in texts])
        of = settings_for(str(tmp_path), f"{tmp_path}/cache", profile=profile)
        engine = living(replace(of, history=History(relative_score=0.0)))
        engines.append(engine)
        return engine.__enter__().settled()

    yield start
    for engine in engines:
        engine.__exit__(None, None, None)


def found(engine: Living, query: str, **params: Any) -> list[int]:
    """Return the message indexes of the hits, in their order in the session."""
    answer = engine.call("search", query=query, **{"limit": 200} | params)
    return sorted(hit["message_index"] for hit in answer["hits"])


def test_a_phrase_is_words_in_a_row_whatever_stands_between(home: Any) -> None:
    engine = home(
        "The DATABASE\nis: locked!",
        "locked is the database",
        "the database, it seems, is locked",
        "database_is locked",
    )

    assert found(engine, '"database is locked"') == [0]
    assert found(engine, "database is locked") == [0, 1, 2, 3]
    assert found(engine, '"the database" locked') == [0, 1, 2]


@pytest.mark.parametrize("profile", ["seed", "code"])
def test_a_phrase_may_be_code_or_any_script(home: Any, profile: str) -> None:
    engine = home(
        "if (x->next == NULL) return -1;",
        "NULL next x if",
        "数据库连接失败",
        "连接数据库",
        "Ça n'est PAS là",
        profile=profile,
    )

    assert found(engine, '"(x->next == NULL)"') == [0]
    assert found(engine, '"数据库连接"') == [2]
    assert found(engine, '"连接"') == [2, 3]
    assert found(engine, '"n’est pas"') == [4]


def test_a_phrase_is_looked_for_in_calls_and_results(tmp_path: Any) -> None:
    said = [
        Said("call", "git push --force-with-lease", 1),
        Said("error", "rejected: non-fast forward", 1),
        Said("call", "git status", 2),
    ]
    claude(f"{tmp_path}/sessions/s.jsonl", said, session="s")
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        engine.settled()

        assert found(engine, '"push --force with lease"') == [0]
        assert found(engine, '"Bash command git"') == [0, 2]
        assert found(engine, '"non fast-forward"') == [1]


@pytest.mark.parametrize("tools", [("Bash", "Read"), ("Bash", "Bash"), ("Bash", "Read", "Bash")])
def test_results_in_one_message_are_found_and_shown_each(
    tmp_path: Any, tools: tuple[str, ...]
) -> None:
    words = ["apricot", "bramble", "cherry"][: len(tools)]
    uses = [
        {"type": "tool_use", "id": w, "name": t, "input": {}}
        for w, t in zip(words, tools, strict=True)
    ]
    results = [
        {"type": "tool_result", "tool_use_id": word, "content": f"one {word} fell"}
        for word in words
    ]
    lines = [("assistant", uses), ("user", results)]
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.jsonl").write_text(
        "".join(
            json.dumps({"type": role, "sessionId": "s", "message": {"role": role, "content": said}})
            + "\n"
            for role, said in lines
        )
    )
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        engine.settled()
        for word, tool in zip(words, tools, strict=True):
            for query in (word, f'"one {word} fell"'):
                hit = engine.call("search", query=query, kinds="tool_output", tool_name=tool)
                assert [h["tool_name"] for h in hit["hits"]] == [tool]
                assert f"{tool} one {word} fell" in hit["hits"][0]["snippet"]


def test_must_and_must_not(home: Any) -> None:
    engine = home("cache read", "cache write", "read write", "cache read_file", "cache 数据库")

    assert found(engine, "+cache write") == [0, 1, 3, 4]
    assert found(engine, "+cache +write") == [1]
    assert found(engine, "cache write -read") == [1, 4]
    assert found(engine, "cache -数据") == [0, 1, 3]
    assert found(engine, "+数据库") == [4]
    assert found(engine, 'cache -"cache read"') == [1, 3, 4]
    assert found(engine, "cache -write -read", literal=True) == [0, 1, 2, 3, 4]


def test_a_beginning_finds_its_words_and_counts_them_as_one(home: Any) -> None:
    engine = home("connection connect connected", "connect", "connoisseur", "reconnect", "Connects")

    assert found(engine, "connect*") == [0, 1, 4]
    assert found(engine, "+connect* -connected* reconnect") == [1, 4]
    hits = engine.call("search", query="connect*")["hits"]
    assert hits[0]["message_index"] == 0
    assert hits[0]["highlights"] == [[0, 10], [11, 18], [19, 28]]


def test_a_beginning_of_too_many_words_says_so(home: Any) -> None:
    words = [f"wo{number}" for number in range(MAX_EXPANSION + 5)]
    engine = home(*words, profile="seed")
    answer = engine.call("search", query="wo1*")
    assert answer["warnings"] == []
    answer = engine.call("search", query="wo* -wo5", limit=1)

    assert answer["total"] == MAX_EXPANSION - 1
    assert answer["warnings"] == [
        f"wo* begins more words than the {MAX_EXPANSION} shortest looked for"
    ]


def test_operators_leave_the_statistics_alone(home: Any) -> None:
    texts = ["cache read", "cache write", "read write", "cache"]
    engine = home(*texts, profile="seed")
    plain = {
        h["message_index"]: h["score"] for h in engine.call("search", query="cache read")["hits"]
    }
    for query in ("+cache read", "cache +read", "cache read -write", '"cache read"'):
        for hit in engine.call("search", query=query)["hits"]:
            assert hit["score"] == plain[hit["message_index"]]


def test_filters_in_a_query_are_the_parameters_of_the_same_name(tmp_path: Any) -> None:
    said = [Said("user", "x", NOW), Said("call", "x", NOW + 1), Said("error", "x", NOW + 1)]
    claude(f"{tmp_path}/sessions/0b1c2d3e.jsonl", said, session="0b1c2d3e", cwd="/src/app")
    claude(f"{tmp_path}/sessions/b.jsonl", said, session="b", cwd="/src/web")
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        engine.settled()

        def hits(query: str, **params: Any) -> list[tuple[str, str]]:
            answer = engine.call("search", query=query, copies="all", **params)
            return [(hit["session_id"], hit["kind"]) for hit in answer["hits"]]

        assert hits("x project:app kind:error") == [("0b1c2d3e", "tool_error")]
        assert hits("x project:. kind:user", project="/src/web") == [("b", "user_text")]
        assert hits("x session:0b1c2d3e role:tool") == [("0b1c2d3e", "tool_error")]
        assert hits("x tool:BASH kind:call project:web") == [("b", "tool_input")]
        assert hits("x tool:grep") == []
        assert hits("x agent:claude until:2020-01-01") == []
        assert len(hits("x kind:error", kinds=["user_text"])) == 2


def test_a_query_may_be_as_long_as_a_frame(home: Any) -> None:
    rare = [f"rare{number}" for number in range(MAX_TERMS)]
    engine = home(*(f"{word} common" for word in rare), " ".join(rare), "common again")
    answer = engine.call("search", query=" ".join(["common", "again", *rare]))

    assert answer["hits"][0]["message_index"] == MAX_TERMS
    assert answer["warnings"] == [
        f"the query is long: only the {MAX_TERMS} rarest of its terms were used"
    ]
    longest = ("common " * MAX_QUERY_CHARS)[:MAX_QUERY_CHARS]
    assert engine.call("search", query=longest)["total"] == MAX_TERMS + 1


def test_a_phrase_of_common_words_is_found_however_far_down(home: Any) -> None:
    last = 5 * CHECKED
    engine = home(*(f"b a n{number}" for number in range(last)), "and a b at the end of all")
    answer = engine.call("search", query='"a b"')

    assert [hit["message_index"] for hit in answer["hits"]] == [last]
    assert (answer["total"], answer["warnings"]) == (1, [])
    grouped = engine.call("search", query='"a b"', group="session", order="recent")
    assert [hit["message_index"] for hit in grouped["hits"]] == [last]


def test_a_phrase_that_must_not_be_leaves_the_next_best(home: Any) -> None:
    engine = home(*["cache lock"] * 40, *["lock of some cache"] * 40, profile="seed")
    without = engine.call("search", query='cache lock -"cache lock"', limit=5)
    assert [hit["message_index"] for hit in without["hits"]] == [40, 41, 42, 43, 44]
    assert without["total"] == 40
    counted = engine.call("search", query='cache lock -"cache lock"', limit=1, offset=199)
    assert counted["total"] == 40


def test_a_phrase_is_looked_for_until_there_are_hits_enough(home: Any) -> None:
    engine = home("a b", *(f"b a n{number}" for number in range(CHECKED + 50)))
    answer = engine.call("search", query='"a b"', limit=1)

    assert [hit["message_index"] for hit in answer["hits"]] == [0]
    assert answer["total"] == 1 + 51
    assert answer["warnings"] == [
        f"{CHECKED} documents were looked at for the phrase, 51 more hold its words"
    ]


def test_a_phrase_that_takes_long_to_look_for_is_given_up_and_told(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "CHECK_SECONDS", -1)
    answer = home("a b", "b a").call("search", query='"a b"')

    assert answer["hits"] == []
    assert "0 documents were looked at for the phrase, 2 more hold its words" in answer["warnings"]


OPERATORS = st.lists(
    st.tuples(st.sampled_from(["", "+", "-"]), st.sampled_from(WORDS), st.sampled_from(["", "*"]))
    | st.tuples(
        st.sampled_from(["", "+", "-"]), st.just('"'), st.sampled_from(["read file", "cache lock"])
    ),
    min_size=1,
    max_size=4,
)


def holds(text: str, clause: tuple[str, str, str]) -> bool:
    """Say whether a text holds what one clause asks for, by the words it is made of."""
    _, word, end = clause
    if word == '"':
        return f" {end} " in f" {text} "
    return any(w == word or (end and w.startswith(word)) for w in text.split())


@pytest.fixture(scope="module")
def random_home(tmp_path_factory: Any) -> Iterator[tuple[Living, list[str]]]:
    """Return an engine over random texts, and these."""
    top = str(tmp_path_factory.mktemp("home"))
    rng = random.Random(5)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 5))) for _ in range(60)]
    for number, some in enumerate([texts[:20], texts[20:40], texts[40:]]):
        chat(f"{top}/sessions/{number}.jsonl", [Said("user", text) for text in some])
    of = settings_for(top, f"{top}/cache", profile="seed")
    with living(replace(of, history=History(relative_score=0.0))) as engine:
        yield engine.settled(), texts


@settings(max_examples=150, deadline=None)
@given(clauses=OPERATORS)
def test_operators_equal_a_scan(random_home: Any, clauses: list[tuple[str, str, str]]) -> None:
    engine, texts = random_home
    asks = [c for c in clauses if c[0] != "-"]
    if not asks:
        return
    must = [c for c in asks if c[0] == "+" or c[1] == '"']
    must_not = [c for c in clauses if c[0] == "-"]
    expected = [
        number
        for number, text in enumerate(texts)
        if any(holds(text, c) for c in asks if c[1] != '"' or holds(text, c))
        and all(holds(text, c) for c in must)
        and not any(holds(text, c) for c in must_not)
    ]
    query = " ".join(
        f'{s}"{end}"' if word == '"' else f"{s}{word}{end}" for s, word, end in clauses
    )
    answer = engine.call("search", query=query, limit=200, sync=False)
    numbers = [20 * int(hit["session_path"][-7]) + hit["message_index"] for hit in answer["hits"]]

    assert sorted(numbers) == expected
    assert answer["total"] == len(expected)


@pytest.mark.parametrize("profile", ["seed", "code"])
def test_whatever_is_pasted_finds_its_source_first(tmp_path: Any, profile: str) -> None:
    words = " ".join(paste.stored for paste in PASTES).split()
    rng = random.Random(3)
    for number, paste in enumerate(PASTES):
        said = [Said("user", " ".join(rng.choices(words, k=12)))]
        said += [Said("call", f"make {number}", 1), Said("error", paste.stored, 1)]
        said += [Said("assistant", " ".join(rng.choices(words, k=30))) for _ in range(5)]
        chat(f"{tmp_path}/sessions/{number:02}.jsonl", said)
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache", profile=profile)) as engine:
        engine.settled()
        first = []
        for paste in PASTES:
            for text in (paste.pasted, paste.stored):
                hits = engine.call("search", query=text, kinds=["all"], limit=1)["hits"]
                first.append((hits[0]["session_id"], hits[0]["message_index"]) if hits else None)

    assert len(PASTES) == 30
    assert first == [(f"{number // 2:02}", 2) for number in range(60)]


def test_pages_of_one_generation_fit_while_sessions_grow(tmp_path: Any) -> None:
    path = f"{tmp_path}/sessions/s.jsonl"
    chat(path, [Said("user", f"cache {'x ' * number}") for number in range(30)])
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        first = engine.settled().call("search", query="cache", limit=10)
        generation = first["index"]["generation"]
        every = engine.call("search", query="cache", limit=200)["hits"]
        chat(path + ".more", [Said("user", f"cache cache {'y ' * number}") for number in range(30)])
        with open(path, "ab") as file, open(path + ".more", "rb") as more:
            file.write(more.read())
        pages = list(first["hits"])
        while True:
            page = engine.call(
                "search", query="cache", limit=10, offset=len(pages), generation=generation
            )
            assert page["index"]["generation"] == generation
            assert page["warnings"] == [] or not page["hits"]
            if not page["hits"]:
                break
            pages += page["hits"]
        now = engine.call("search", query="cache", limit=10, offset=10, generation=generation + 99)

    assert pages == every
    assert now["index"]["generation"] > generation
    assert now["warnings"] == [
        "the index has changed since the page before: hits may come again or be missed"
    ]


def test_few_states_are_kept_for_pages(tmp_path: Any) -> None:
    path = f"{tmp_path}/sessions/s.jsonl"
    chat(path, [Said("user", "cache")])
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        engine.settled()
        generations = []
        for number in range(KEPT + 2):
            with open(path, "a") as file:
                file.write(f'{{"role": "user", "content": "cache {number}"}}\n')
            answer = engine.call("search", query="cache", limit=1)
            generations.append(answer["index"]["generation"])
        answered = [
            engine.call("search", query="cache", limit=1, generation=g)["index"]["generation"]
            for g in generations[:2] + generations[-KEPT + 1 :]
        ]

    assert len(set(generations)) == KEPT + 2
    assert answered == [generations[-1]] * 2 + generations[-KEPT + 1 :]


# --- newer and more ----------------------------------------------------------------------------


DAY = 86_400_000


@pytest.fixture
def dated(tmp_path: Any) -> Iterator[Living]:
    """Return an engine over one word said at different times, in texts of different length."""
    now = time.time_ns() // 1_000_000
    for name, age, text in (
        ("old", 400, "the kumquat"),
        ("new", 1, "the kumquat"),
        ("long", 0, "the kumquat " + "and so on " * 40),
    ):
        said = [Said("user", text + f" {name}", now - age * DAY)]
        claude(f"{tmp_path}/sessions/{name}.jsonl", said, session=name)
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        yield engine.settled()


def sessions_of(engine: Living, **params: Any) -> list[str]:
    hits = engine.call("search", query="kumquat", **params)["hits"]
    return [hit["session_path"].rpartition("/")[2].removesuffix(".jsonl") for hit in hits]


def test_recency_decides_between_near_ties_and_nothing_else(dated: Living) -> None:
    assert sessions_of(dated, order="recent") == ["long", "new", "old"]
    assert sessions_of(dated, recency=30) == ["new", "old", "long"]
    plain = dated.call("search", query="kumquat")
    fresh = dated.call("search", query="kumquat", recency=30)
    assert fresh["total"] == plain["total"] == 3
    before = {hit["session_path"]: hit["score"] for hit in plain["hits"]}
    gains = [hit["score"] / before[hit["session_path"]] for hit in fresh["hits"]]
    assert gains == pytest.approx([1 + 0.1 * 0.5 ** (1 / 30), 1.0 + 0.1 * 0.5 ** (40 / 3), 1.1])


def test_pages_with_recency_fit_together(dated: Living) -> None:
    first = dated.call("search", query="kumquat", recency=0.001, limit=1)
    pages = [first] + [
        dated.call(
            "search", query="kumquat", recency=0.001, limit=1, offset=at,
            generation=first["index"]["generation"],
        )
        for at in (1, 2)
    ]  # fmt: skip
    whole = dated.call("search", query="kumquat", recency=0.001)["hits"]
    assert [page["hits"][0]["session_path"] for page in pages] == [h["session_path"] for h in whole]


def test_the_configuration_may_ask_for_recency(tmp_path: Any, dated: Living) -> None:
    of = settings_for(str(tmp_path), f"{tmp_path}/cache2")
    with living(replace(of, history=History(recency=30))) as engine:
        engine.settled()
        assert sessions_of(engine)[0] == "new"
        asked = engine.call("search", query="kumquat", recency=0)["hits"]
        assert [h["score"] for h in asked] == [
            h["score"] for h in dated.call("search", query="kumquat")["hits"]
        ]


@pytest.mark.parametrize("days", [-1, 40_000, "soon", float("nan")])
def test_a_recency_that_is_none_is_refused(dated: Living, days: Any) -> None:
    with pytest.raises(BadRequest, match="recency"):
        dated.call("search", query="kumquat", recency=days)


@pytest.mark.parametrize(("profile", "first"), [("code", "often"), ("seed", "once")])
def test_a_session_that_says_it_twice_is_before_one_that_says_it_once(
    tmp_path: Any, profile: str, first: str
) -> None:
    chat(f"{tmp_path}/sessions/once.jsonl", [Said("user", "a kumquat")])
    twice = ["the kumquat here, longer", "the kumquat there, longer", "nothing"]
    chat(f"{tmp_path}/sessions/often.jsonl", [Said("user", text) for text in twice])
    of = settings_for(str(tmp_path), f"{tmp_path}/cache", profile=profile)
    with living(of) as engine:
        engine.settled()
        assert sessions_of(engine)[0] == "once"
        grouped = engine.call("search", query="kumquat", group="session")["hits"]
        every = engine.call("search", query="kumquat")["hits"]
    assert [first in hit["session_path"] for hit in grouped] == [True, False]
    own = [hit["score"] for hit in every if first in hit["session_path"]]
    assert grouped[0]["score"] == pytest.approx(sum(own))
