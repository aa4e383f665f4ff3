"""An answer without hits says why, and every way out that it names leads somewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd.errors import BadRequest
from indexd.nearest import nearest
from tests.living import Living, living
from tests.living import settings as settings_for
from tests.writing import Said, claude, codex

NOW = 1_786_000_000_000
WORDS = ["cache", "error", "timeout", "lock", "socket", "connection", "database"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: Any) -> Iterator[Living]:
    """Return an engine over sessions of two agents."""
    top = str(tmp_path_factory.mktemp("home"))
    rng = random.Random(2)
    said = [
        Said(
            rng.choice(["user", "call", "error", "output"]),
            " ".join(rng.choices(WORDS, k=3)),
            NOW + at,
        )
        for at in range(60)
    ]
    claude(f"{top}/sessions/a.jsonl", said[:30], session="abcdefgh-1", cwd="/src/app")
    codex(f"{top}/sessions/b.jsonl", [*said[30:], Said("user", "connections", NOW)], session="b")
    only = [Said("output", "needle in output", NOW), Said("user", "is cold: the cache", NOW)]
    claude(f"{top}/sessions/c.jsonl", only, session="c", cwd="/src/web")
    with living(settings_for(top, f"{top}/cache")) as running:
        yield running.settled()


def nothing(engine: Living, query: str, **params: Any) -> tuple[list[str], dict[str, int]]:
    """Return the warnings of an answer without hits, and what each suggestion finds."""
    answer = engine.call("search", query=query, sync=False, **params)
    assert answer["hits"] == []
    found = {}
    for suggestion in answer["suggestions"]:
        changed = {"query": query} | params | suggestion["changes"]
        total = engine.call("search", sync=False, **changed)["total"]
        assert total == suggestion["total"] > 0
        found[suggestion["words"]] = total
    return answer["warnings"], found


def test_what_was_searched_is_said(engine: Living) -> None:
    warnings, found = nothing(engine, "xylophone", kinds=["user_text"])

    assert warnings[0].startswith("nothing found: searched ")
    assert warnings[0].endswith(" documents of kinds user_text, scope global")
    assert warnings[1:] == ['no document holds "xylophone"']
    assert found == {}


def test_a_slip_is_put_right(engine: Living) -> None:
    warnings, found = nothing(engine, "DataBsae  conection")

    assert 'no document holds "databsae"; near it: database' in warnings
    assert 'no document holds "conection"; near it: connection, connections' in warnings
    assert list(found) == ["asking for database  connection"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"agent": "kiro"}, "without agent kiro"),
        ({"project": "/elsewhere", "scope": "project"}, "without the project /elsewhere"),
        ({"session": "nothing"}, "without session nothing"),
        ({"tool_name": "Nothing", "kinds": ["all"]}, "without tool name Nothing"),
        ({"since": NOW + 10**9}, 'without "since"'),
        ({"until": NOW - 10**9}, 'without "until"'),
        ({"subagents": "only"}, "without subagents only"),
        ({"source": "archive"}, "without source archive"),
        ({"role": "system", "kinds": ["all"]}, "without role system"),
    ],
)
def test_each_filter_is_lifted_alone(engine: Living, params: dict[str, Any], words: str) -> None:
    warnings, found = nothing(engine, "cache", **params)

    assert list(found) == [words]
    assert warnings[-1] == f"{words}, {found[words]:,} documents would match"
    assert "the filters select none" in warnings[0]


@pytest.mark.parametrize(
    ("query", "ways"),
    [
        ("needle", ["searching every kind"]),
        ('"the cold cache"', ['without "the cold cache"']),
        ("+needle cache", ["without +needle", "searching every kind"]),
        ("needle +cache", []),
        ("cold -cache", ["without -cache"]),
        (
            'cold cache agent:kiro -"is cold"',
            ["without agent:kiro", "taking the query literally"],
        ),
        ("cold kind:error", ["without kind:error"]),
        (
            "cold agent:codex since:2020-01-01",
            ["without agent:codex", "taking the query literally"],
        ),
    ],
)
def test_each_operator_is_lifted_alone(engine: Living, query: str, ways: list[str]) -> None:
    if ways:
        assert list(nothing(engine, query)[1]) == ways
    else:
        assert engine.call("search", query=query)["hits"]


def test_two_filters_that_only_together_leave_nothing_are_both_named(engine: Living) -> None:
    _, found = nothing(engine, "cache", agent="codex", project="/src/web", scope="project")

    assert list(found) == ["without the project /src/web", "without agent codex"]


def test_an_offset_beyond_the_end_is_no_empty_search(engine: Living) -> None:
    warnings, found = nothing(engine, "cache", offset=1000)

    assert warnings == ["offset 1000 is beyond the last hit", "try a smaller offset"]
    assert found == {}


def test_a_pasted_page_of_unknown_words_is_answered_briefly(engine: Living) -> None:
    warnings, _ = nothing(engine, " ".join(f"nix{'y' * 70}{number}" for number in range(400)))

    assert len(warnings) == 4
    assert max(map(len, warnings)) < 200


def test_a_query_that_is_nothing_but_data_is_answered(engine: Living) -> None:
    warnings, _ = nothing(engine, "x" * 60_000)

    assert warnings[1:] == ["words of more than 128 characters are data, and not indexed"]
    with pytest.raises(BadRequest, match="at least one letter"):
        engine.call("search", query="?! ...")


@settings(max_examples=60, deadline=None)
@given(
    query=st.lists(
        st.sampled_from(
            [*WORDS, "+lock", "-cache", '"cache lock"', '"lock cache"', "sock*", "kind:output",
             "agent:codex", "agent:kiro", "tool:bash", "conection", "zzz"]
        ),
        min_size=1,
        max_size=4,
    ).map(" ".join),
    params=st.fixed_dictionaries(
        {},
        optional={
            "agent": st.sampled_from(["claude", "kiro"]),
            "kinds": st.sampled_from([["tool_error"], ["meta"]]),
            "until": st.just(NOW),
            "copies": st.just("all"),
        },
    ),
)  # fmt: skip
def test_every_suggestion_finds_what_it_says(engine: Living, query: str, params: Any) -> None:
    answer = engine.call("search", query=query, sync=False, **params)
    if not answer["hits"]:
        nothing(engine, query, **params)
    else:
        assert "suggestions" not in answer


@pytest.mark.parametrize(
    ("term", "near"),
    [
        ("conection", ["connection", "connections"]),
        ("cnonection", ["connection"]),
        ("tiemoutt", ["timeout"]),
        ("locks", ["lock"]),
        ("xockets", []),
        ("lo", []),
        ("数据", []),
    ],
)
def test_near_words_are_one_letter_off_or_two_if_long(
    engine: Living, term: str, near: list[str]
) -> None:
    assert nearest(engine.engine._index.snapshot, term.encode()) == near


@pytest.mark.parametrize(
    ("params", "told", "way"),
    [
        (
            {"agent": "cluade"},
            'no session is one of "cluade"; near it: claude',
            "with agent claude",
        ),
        ({"agent": "kiro"}, 'no session is one of "kiro"; there are: claude, codex', None),
        (
            {"session": "abcdefhg-1"},
            'no session is called "abcdefhg-1"; near it: abcdefgh-1',
            "with session abcdefgh-1",
        ),
        (
            {"session": "abcdefhg"},
            'no session is called "abcdefhg"; near it: abcdefgh-1',
            "with session abcdefgh-1",
        ),
        (
            {"project": "wbe", "scope": "project"},
            'no session lies in "wbe"; near it: web',
            "with project web",
        ),
        (
            {"project": "/src/ap", "scope": "project"},
            'no session lies in "/src/ap"; near it: /src/app',
            "with project /src/app",
        ),
        (
            {"project": "kettle", "scope": "project"},
            'no session lies in "kettle"; there are: app, web',
            None,
        ),
    ],
)
def test_a_filter_that_no_session_fits_is_told_with_what_there_is(
    engine: Living, params: dict[str, Any], told: str, way: str | None
) -> None:
    warnings, found = nothing(engine, "cache", **params)
    assert told in warnings
    assert [words for words in found if words.startswith("with ")] == ([way] if way else [])
    assert told in engine.call("sessions", **params)["warnings"]


@pytest.mark.parametrize(
    ("wanted", "told", "way"),
    [
        ("BASH", 'no tool is called "BASH"; near it: Bash', ["with tool name Bash"]),
        ("kettle", 'no tool is called "kettle"; there are: Bash', []),
    ],
)
def test_a_tool_that_there_is_not_is_told_with_those_there_are(
    engine: Living, wanted: str, told: str, way: list[str]
) -> None:
    warnings, found = nothing(engine, "cache", tool_name=wanted)
    assert told in warnings
    assert [words for words in found if words.startswith("with ")] == way


def test_a_tool_in_the_query_is_named_in_any_case(engine: Living) -> None:
    warnings, _ = nothing(engine, "kettle tool:BASH")
    assert not any("no tool is called" in warning for warning in warnings)
    warnings, _ = nothing(engine, "cache tool:bahs")
    assert 'no tool is called "bahs"; near it: Bash' in warnings


def test_a_filter_in_the_query_that_no_session_fits_is_told_too(engine: Living) -> None:
    warnings, _ = nothing(engine, "cache project:wbe")
    assert 'no session lies in "wbe"; near it: web' in warnings
