"""Every filter, alone and in pairs, finds what a scan of all files finds."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd.errors import BadRequest
from indexd.model import DEFAULT_KINDS, KINDS, ROLES
from indexd.roots import Root
from indexd.text import query_terms
from tests import scan
from tests.living import Living, living
from tests.living import settings as settings_for
from tests.scan import Doc
from tests.writing import Said, chat, claude, codex

WORDS = ["cache", "error", "timeout", "retry", "socket", "parser", "数据", "readFile", "lock"]
DAY = 86_400_000
NOW = 1_786_000_000_000
KIND_NAMES = [str(kind) for kind in KINDS]


class Filter(NamedTuple):
    """A request's parameters and what they mean, said once more."""

    params: dict[str, Any]
    wanted: Callable[[Doc], bool]


def write_home(top: str, rng: random.Random) -> None:
    """Write sessions of three agents, in several directories and over twenty days."""

    def said(count: int, begin: int) -> Iterator[Said]:
        for at in range(count):
            what = rng.choice(["user", "assistant", "call", "output", "error", "summary", "note"])
            words = " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))
            yield Said(what, words, begin + at * 60_000, rng.choice(["Bash", "Read", "bash"]))

    for number in range(14):
        cwd = rng.choice(["/src/app", "/src/app/web", "/src/apple", "/home/me/notes"])
        session = f"{number:08x}-0000-4000-8000-{number:012x}"
        begin = NOW - rng.randint(1, 20) * DAY
        place = rng.choice(["sessions/a", "sessions/b", "archive/old"])
        path = f"{top}/{place}/{session}.jsonl"
        if number % 3 == 0:
            claude(path, said(8, begin), session=session, cwd=cwd)
            child = f"{top}/{place}/{session}/subagents/agent-{number:x}.jsonl"
            claude(child, said(4, begin), session=session, cwd=cwd, subagent=f"{number:x}")
        elif number % 3 == 1:
            meta = {"parent_thread_id": "0"} if number % 2 else {"forked_from_id": "1"}
            codex(path, said(8, begin), session=session, cwd=cwd, **meta)
        else:
            chat(path, said(8, 0))
            os.utime(path, (begin / 1000, begin / 1000))


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Living, list[Doc], str]]:
    """Return an engine over a home, its documents by brute force, and its directory."""
    top = str(tmp_path_factory.mktemp("home"))
    write_home(top, random.Random(4))
    labels = {f"{top}/sessions": "global", f"{top}/archive": "archive"}
    roots = tuple(Root(path, source) for path, source in labels.items())
    of = settings_for(top, f"{top}/cache", roots=roots, profile="seed")
    with living(of) as engine:
        yield engine.settled(), scan.home(labels), top


def filters(docs: list[Doc], top: str) -> dict[str, list[Filter]]:
    """Return, by name, some values of every filter."""
    return filters_of_sessions(docs, top) | filters_of_documents(docs)


def filters_of_sessions(docs: list[Doc], top: str) -> dict[str, list[Filter]]:
    some = [docs[0], docs[len(docs) // 2], docs[-1]]
    return {
        "agent": [
            Filter({"agent": name}, lambda doc, name=name: doc.agent == name.lower())
            for name in ("claude", "Codex", "generic", "nobody")
        ],
        "project": [
            Filter(
                {"project": "/src/app", "scope": "project"},
                lambda doc: doc.cwd == "/src/app" or doc.cwd.startswith("/src/app/"),
            ),
            Filter(
                {"project": "app", "scope": "project"},
                lambda doc: (doc.cwd + "/").startswith("/src/app/"),
            ),
            Filter(
                {"project": "~/notes/", "scope": "project"},
                lambda doc: doc.cwd == os.path.expanduser("~/notes"),
            ),
            Filter({"project": "web", "scope": "project"}, lambda doc: doc.cwd == "/src/app/web"),
            Filter({"project": "/src/app", "scope": "global"}, lambda doc: True),
        ],
        "session_dir": [
            Filter(
                {"session_dir": f"{top}/sessions/a", "scope": "project"},
                lambda doc: os.path.dirname(doc.path) == f"{top}/sessions/a",
            )
        ],
        "session": [
            Filter({"session": doc.session_id}, lambda d, doc=doc: d.session_id == doc.session_id)
            for doc in some
        ]
        + [
            Filter(
                {"session": doc.session_id[:8]}, lambda d, doc=doc: d.session_id == doc.session_id
            )
            for doc in some
            if not doc.subagent
        ]
        + [Filter({"session": doc.path}, lambda d, doc=doc: d.path == doc.path) for doc in some],
        "subagents": [
            Filter({"subagents": "exclude"}, lambda doc: not doc.subagent),
            Filter({"subagents": "only"}, lambda doc: doc.subagent),
        ],
        "source": [
            Filter({"source": name}, lambda doc, name=name: doc.source == name)
            for name in ("global", "archive")
        ],
    }


def filters_of_documents(docs: list[Doc]) -> dict[str, list[Filter]]:
    times = sorted({doc.time for doc in docs})
    return {
        "since": [
            Filter({"since": time}, lambda doc, time=time: doc.time >= time)
            for time in (times[0], times[len(times) // 2], times[-1] + 1)
        ],
        "until": [
            Filter({"until": time}, lambda doc, time=time: doc.time <= time)
            for time in (times[len(times) // 2], times[-1])
        ],
        "kinds": [
            Filter({"kinds": names}, lambda doc, names=names: doc.kind in names)
            for names in (["tool_error"], ["user_text", "meta"], KIND_NAMES)
        ],
        "tool_name": [
            Filter(
                {"tool_name": name},
                lambda doc, name=name: doc.kind.startswith("tool_") and doc.tool_name == name,
            )
            for name in ("Bash", "bash", "Read", "Nothing")
        ],
    }


def compare(engine: Living, docs: list[Doc], query: list[str], *chosen: Filter) -> None:
    """Assert that the engine answers as the scan does."""
    params = {name: value for each in chosen for name, value in each.params.items()}

    def wanted(doc: Doc) -> bool:
        kinds = params.get("kinds") or DEFAULT_KINDS
        return doc.kind in kinds and all(each.wanted(doc) for each in chosen)

    terms = [term.decode() for term in query_terms(" ".join(query), "seed")]
    total, expected = scan.search(docs, terms, wanted)
    answer = engine.call("search", query=" ".join(query), limit=200, sync=False, **params)
    got = [(h["session_path"], h["message_index"], h["kind"], h["score"]) for h in answer["hits"]]
    assert answer["total"] == total
    assert [row[:3] for row in got] == [row[:3] for row in expected[:200]]
    assert [row[3] for row in got] == pytest.approx([row[3] for row in expected[:200]], rel=1e-9)


QUERIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)


@settings(max_examples=12, deadline=None)
@given(query=QUERIES, data=st.data())
def test_every_filter_alone_equals_a_scan(homes: Any, query: list[str], data: Any) -> None:
    engine, docs, top = homes
    for values in filters(docs, top).values():
        compare(engine, docs, query, data.draw(st.sampled_from(values)))


@settings(max_examples=80, deadline=None)
@given(query=QUERIES, data=st.data())
def test_pairs_of_filters_equal_a_scan(homes: Any, query: list[str], data: Any) -> None:
    engine, docs, top = homes
    every = filters(docs, top)
    pairs = [
        pair
        for pair in itertools.combinations(every, 2)
        if set(pair) not in ({"project", "session_dir"}, {"since", "until"})
    ]
    one, other = data.draw(st.sampled_from(pairs))
    compare(
        engine,
        docs,
        query,
        data.draw(st.sampled_from(every[one])),
        data.draw(st.sampled_from(every[other])),
    )


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system"])
def test_a_role_is_that_of_its_kinds(homes: Any, role: str) -> None:
    engine, docs, _ = homes
    own = [str(kind) for kind in KINDS if ROLES[kind] == role]
    compare(
        engine,
        docs,
        WORDS[:3],
        Filter({"role": role, "kinds": KIND_NAMES}, lambda doc: doc.kind in own),
    )


def test_a_role_that_is_not_searched_by_default_is_searched_when_named(homes: Any) -> None:
    engine, _, _ = homes
    answer = engine.call("search", query=" ".join(WORDS), role="system", limit=200)

    assert {hit["kind"] for hit in answer["hits"]} == {"summary", "meta"}
    assert {hit["role"] for hit in answer["hits"]} == {"system"}


def test_a_project_and_a_directory_of_sessions_are_either(homes: Any) -> None:
    engine, docs, top = homes
    compare(
        engine,
        docs,
        ["cache"],
        Filter(
            {"project": "/src/apple", "session_dir": f"{top}/sessions/b", "scope": "project"},
            lambda d: d.cwd == "/src/apple" or os.path.dirname(d.path) == f"{top}/sessions/b",
        ),
    )


@pytest.mark.parametrize("name", ["project", "session", "session_dir"])
@pytest.mark.parametrize("path", ["/src/\0", "~\0/src", "/a" * 5_000])
def test_a_path_that_no_file_can_have_selects_nothing(homes: Any, name: str, path: str) -> None:
    engine, _, _ = homes
    scope = "global" if name == "session" else "project"

    assert engine.call("search", query="cache", scope=scope, **{name: path})["total"] == 0
    assert engine.call("sessions", **{name: path})["total"] == 0


def test_the_beginning_of_several_ids_is_refused(tmp_path: Any) -> None:
    for number in range(6):
        claude(
            f"{tmp_path}/sessions/{number}.jsonl", [Said("user", "x")], session=f"abcdefgh-{number}"
        )
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        with pytest.raises(BadRequest) as refused:
            engine.settled().call("search", query="x", session="abcdefgh")

        assert refused.value.message == "session abcdefgh begins the ids of 6 sessions"
        assert refused.value.hint == "as in abcdefgh-0, abcdefgh-1, abcdefgh-2, abcdefgh-3 ..."
        assert engine.call("search", query="x", session="abcdefgh-4")["total"] == 1
        assert engine.call("search", query="x", session="abcdefg")["total"] == 0


def test_sub_agents_are_told_from_forks(tmp_path: Any) -> None:
    top = f"{tmp_path}/sessions"
    said = [Said("user", "cache", NOW)]
    claude(f"{top}/main.jsonl", said, session="main")
    claude(f"{top}/agent-a1.jsonl", said, session="main", subagent="a1")
    codex(f"{top}/thread.jsonl", said, session="t", parent_thread_id="p")
    codex(f"{top}/fork.jsonl", said, session="f", forked_from_id="p")
    chat(f"{top}/subagents/sa.jsonl", said)
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        engine.settled()
        found = {
            choice: [
                os.path.basename(hit["session_path"])
                for hit in engine.call("search", query="cache", subagents=choice, copies="all")[
                    "hits"
                ]
            ]
            for choice in ("exclude", "only")
        }

    assert found == {
        "exclude": ["fork.jsonl", "main.jsonl"],
        "only": ["agent-a1.jsonl", "sa.jsonl", "thread.jsonl"],
    }


@settings(max_examples=40, deadline=None)
@given(query=QUERIES, recent=st.booleans(), size=st.integers(1, 7))
def test_groups_are_the_first_of_each_session(
    homes: Any, query: list[str], recent: bool, size: int
) -> None:
    engine, _, _ = homes
    params = {"query": " ".join(query), "sync": False, "order": "recent" if recent else None}
    every = engine.call("search", limit=200, **params)
    first: dict[str, dict[str, Any]] = {}
    for hit in every["hits"]:
        if hit["session_path"] in first:
            first[hit["session_path"]]["others"] += 1
        else:
            first[hit["session_path"]] = hit | {"others": 0, "rank": len(first) + 1}
    pages: list[dict[str, Any]] = []
    while page := engine.call("search", limit=size, offset=len(pages), group="session", **params)[
        "hits"
    ]:
        pages += page

    assert pages == list(first.values())


@settings(max_examples=40, deadline=None)
@given(query=QUERIES, recent=st.booleans(), size=st.integers(1, 9))
def test_pages_end_to_end_are_the_whole(
    homes: Any, query: list[str], recent: bool, size: int
) -> None:
    engine, _, _ = homes
    params = {"query": " ".join(query), "sync": False, "order": "recent" if recent else None}
    every = engine.call("search", limit=200, **params)["hits"]
    pages: list[dict[str, Any]] = []
    while page := engine.call("search", limit=size, offset=len(pages), **params)["hits"]:
        pages += page

    assert pages == every
    if recent:
        assert [hit["timestamp"] for hit in every] == sorted(
            (hit["timestamp"] for hit in every), reverse=True
        )
