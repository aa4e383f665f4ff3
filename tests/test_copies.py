"""Copies count once and show once: a home with copies answers as one without them."""

from __future__ import annotations

import math
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexd.copies import Copies
from indexd.index import FileFacts
from indexd.model import DEFAULT_KINDS, Kind
from indexd.roots import Root
from indexd.selection import FileFilter, Selection, View, views
from tests.brute_force import Plain
from tests.live_index import LiveIndex
from tests.living import Living, living
from tests.living import settings as settings_for
from tests.writing import Said, chat, claude, codex

NOW = 1_786_000_000_000
TALK = [Said("user", "the cache is cold", NOW), Said("assistant", "warm it up", NOW + 1)]


def engine_over(top: Path, cache: str, profile: str = "code") -> Any:
    roots = (Root(f"{top}/sessions"), Root(f"{top}/archive", "archive"))
    return living(settings_for(str(top), f"{top}/{cache}", roots=roots, profile=profile))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Any]:
    """Return a function that runs an engine over what was written."""
    engines = []

    def start(profile: str = "code") -> Living:
        engines.append(engine_over(tmp_path, f"cache-{profile}", profile))
        return engines[-1].__enter__().settled()

    start.top = tmp_path
    yield start
    for engine in engines:
        engine.__exit__(None, None, None)


def shown(engine: Living, query: str, **params: Any) -> list[tuple[str, Any]]:
    """Return (file name, copies) of each hit."""
    hits = engine.call("search", query=query, limit=50, **params)["hits"]
    return [(os.path.basename(h["session_path"]), h.get("duplicates")) for h in hits]


def test_a_fork_shows_its_own_words_and_the_originals_of_the_others(home: Any) -> None:
    top = home.top
    claude(f"{top}/sessions/z.jsonl", TALK, session="z")
    more = [Said("user", "cache in the fork", NOW + 9)]
    codex(f"{top}/sessions/a.jsonl", [*TALK, *more], session="a", forked_from_id="z")
    engine = home()
    hits = {h["session_id"]: h for h in engine.call("search", query="the cache")["hits"]}

    assert sorted(hits) == ["a", "z"]
    assert hits["z"]["duplicates"] == {
        "count": 1,
        "where": [{"session_path": f"{top}/sessions/a.jsonl", "message_index": 0}],
    }
    assert "duplicates" not in hits["a"]
    assert engine.call("search", query="the cache")["total"] == 2


def test_every_copy_is_shown_where_asked_for(home: Any) -> None:
    for name in "abc":
        chat(f"{home.top}/sessions/{name}.jsonl", TALK)

    assert shown(home(), "cache", copies="all") == [(f"{name}.jsonl", None) for name in "abc"]
    seed = home("seed")
    assert len(shown(seed, "cache")) == 3
    assert len(shown(seed, "cache", copies="collapse")) == 1


def test_only_the_first_copies_are_named(home: Any) -> None:
    for number in range(8):
        chat(f"{home.top}/sessions/{number}.jsonl", TALK)
    ((name, copies),) = shown(home(), "cache")

    assert (name, copies["count"]) == ("0.jsonl", 7)
    assert [os.path.basename(where["session_path"]) for where in copies["where"]] == [
        "1.jsonl",
        "2.jsonl",
        "3.jsonl",
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sessions/z.jsonl", "archive/a.jsonl"),
        ("sessions/z.jsonl", "sessions/a-recovery-0123456789abcdef.jsonl"),
        ("sessions/z.jsonl", "sessions/subagents/a.jsonl"),
        ("sessions/a.jsonl", "sessions/z.jsonl"),
        ("archive/a.jsonl", "archive/b-recovery-0123456789abcdef.jsonl"),
    ],
)
def test_the_original_is_neither_archived_nor_derived(home: Any, first: str, second: str) -> None:
    for path in (second, first):
        chat(f"{home.top}/{path}", TALK)
    os.utime(f"{home.top}/{second}", (1, 1))

    assert [name for name, _ in shown(home(), "cache")] == [os.path.basename(first)]


def test_what_was_said_first_is_the_original_wherever_it_is(home: Any) -> None:
    codex(f"{home.top}/archive/z.jsonl", TALK, session="z")
    later = [said._replace(time=said.time + 5) for said in TALK]
    codex(f"{home.top}/sessions/a.jsonl", later, session="a")
    chat(f"{home.top}/sessions/b.jsonl", TALK)
    engine = home()
    ((name, copies),) = shown(engine, "cache")

    assert name == "z.jsonl"
    assert [os.path.basename(where["session_path"]) for where in copies["where"]] == [
        "a.jsonl",
        "b.jsonl",
    ]


def test_the_original_is_that_among_the_selected(home: Any) -> None:
    codex(f"{home.top}/sessions/z.jsonl", TALK, session="z")
    later = [said._replace(time=said.time + 50) for said in TALK]
    codex(f"{home.top}/sessions/a.jsonl", later, session="a")
    codex(f"{home.top}/sessions/b.jsonl", later, session="b")
    engine = home()

    assert shown(engine, "cache", session="a") == [("a.jsonl", None)]
    ((name, copies),) = shown(engine, "cache", since=NOW + 50)
    assert (name, copies["count"]) == ("a.jsonl", 1)


def test_equal_texts_of_different_kinds_are_no_copies(home: Any) -> None:
    chat(f"{home.top}/sessions/a.jsonl", [Said("user", "cache"), Said("assistant", "cache")])

    assert shown(home(), "cache") == [("a.jsonl", None), ("a.jsonl", None)]


def test_copies_within_one_session_are_copies_too(home: Any) -> None:
    chat(f"{home.top}/sessions/a.jsonl", [Said("user", "go on"), *TALK, Said("user", "go on")])
    (hit,) = home().call("search", query="go on")["hits"]

    assert hit["message_index"] == 0
    assert hit["duplicates"]["where"][0]["message_index"] == 3


def said_in(path: str, message: int, text: str, time: int = 0) -> Plain:
    return {
        "path": path, "message": message, "kind": Kind.USER_TEXT, "call": 0, "text": text,
        "tool": "", "time": time,
    }  # fmt: skip


def selected(live: LiveIndex, views: Sequence[View]) -> set[tuple[str, int]]:
    """Return (path, message) of the documents of some views."""
    found = set()
    for view in views:
        segment = view.part.segment
        chosen = np.flatnonzero(view.selects(np.arange(len(segment)))).tolist()
        assert len(chosen) == view.documents
        assert view.tokens == int(segment.columns.length[chosen].sum())
        for at in chosen:
            facts = live.index.snapshot.files[int(segment.file_ids[segment.columns.file[at]])]
            found.add((facts.path, int(segment.columns.message[at])))
    return found


def originals(live: LiveIndex, accepts: Callable[[FileFacts], bool]) -> set[tuple[str, int]]:
    """Return (path, message) of the documents that count, by the words of the docs."""

    def order(plain: Plain) -> tuple[Any, ...]:
        facts = live.facts[plain["path"]]
        return (plain["time"] or math.inf, facts.source == "archive", bool(facts.parent),
                plain["path"], plain["message"])  # fmt: skip

    best: dict[str, Plain] = {}
    for plain in live.live():
        known = best.get(plain["text"])
        better = known is None or order(plain) < order(known)
        if accepts(live.facts[plain["path"]]) and better:
            best[plain["text"]] = plain
    return {(plain["path"], plain["message"]) for plain in best.values()}


def only_live(facts: FileFacts) -> bool:
    return facts.source != "archive"


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6))
def test_after_any_history_the_originals_are_those_of_a_scan(
    tmp_path_factory: Any, seed: int
) -> None:
    rng, copies = random.Random(seed), Copies()
    live = LiveIndex("code", str(tmp_path_factory.mktemp("base")))
    for step in range(25):
        path = rng.choice(["/a", "/b", "/c", "/d"])
        texts = [rng.choice(["one", "two", "three", "four", f"own{step}"]) for _ in range(4)]
        said = [
            said_in(path, 100 * step + at, text, rng.choice([0, 5, 9]))
            for at, text in enumerate(texts)
        ]
        what = rng.choice(
            ["write", "append", "append", "append", "remove", "merge", "rebase", "move"]
        )
        if what == "append" and path in live.facts:
            live.append(path, said, step)
        elif what == "remove" and path in live.facts:
            live.remove(path)
        elif what == "move" and path in live.facts:
            # The file's facts have changed, and nothing else.
            source = rng.choice(["global", "archive"])
            live.facts[path] = live.facts[path]._replace(source=source)
            live.index.publish(put=[live.facts[path]])
        elif what == "merge":
            parts = len(live.index.snapshot.parts)
            live.begin_merge([rng.random() < 0.5 for _ in range(parts)])
            live.finish_merge()
        elif what == "rebase" and live.facts:
            live.rebase()
        else:
            source, parent = rng.choice([("global", ""), ("global", "p"), ("archive", "")])
            live.write(FileFacts(0, path, source, "claude", parent=parent, mtime=step), said)
        for chosen in (None, FileFilter("live", only_live)):
            selection = Selection(DEFAULT_KINDS, chosen)
            seen = views(live.index.snapshot, selection)
            hidden = copies.hidden(live.index.snapshot, selection, seen)
            assert selected(live, hidden.views) == originals(
                live, chosen.accepts if chosen else lambda _: True
            )


def test_copies_are_hidden_from_every_form_of_a_view(tmp_path: Path) -> None:
    live = LiveIndex("code", str(tmp_path))
    for path, texts in (("/a", ["one", "two"]), ("/b", ["two", "three"])):
        said = [said_in(path, at, text) for at, text in enumerate(texts)]
        live.write(FileFacts(0, path, "global", "claude"), said)
    selection = Selection(DEFAULT_KINDS)
    seen = [
        replace(view, few=np.arange(len(view.part.segment), dtype=np.uint32))
        for view in views(live.index.snapshot, selection)
    ]
    whole, cut = Copies().hidden(live.index.snapshot, selection, seen).views

    assert whole is seen[0]
    assert cut.few is not None
    assert cut.few.tolist() == [1]
    assert cut.mask is not None
    assert cut.mask.tolist() == [False, True]
    assert not cut.by_file


def test_the_original_changes_with_the_files(home: Any) -> None:
    top = home.top
    chat(f"{top}/sessions/a.jsonl", TALK)
    chat(f"{top}/sessions/b.jsonl", TALK)
    engine = home()
    assert shown(engine, "cache")[0][0] == "a.jsonl"
    os.unlink(f"{top}/sessions/a.jsonl")
    assert shown(engine, "cache") == [("b.jsonl", None)]
    chat(f"{top}/sessions/c/0.jsonl", TALK)
    assert [copies and copies["count"] for _, copies in shown(engine, "cache")] == [1]


WORDS = ["cache", "error", "readFile", "lock", "数据库"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
SESSIONS = st.lists(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "error"]), TEXTS), max_size=5),
    min_size=1,
    max_size=5,
)


def answers(engine: Living, **params: Any) -> list[Any]:
    engine.call("sync")
    found = []
    for query in (*WORDS, "cache error", "read file lock"):
        answer = engine.call("search", query=query, limit=200, sync=False, **params)
        hits = [
            (os.path.basename(h["session_path"]), h["message_index"], h["score"])
            for h in answer["hits"]
        ]
        found.append((query, answer["total"], hits))
    return found


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(sessions=SESSIONS, seed=st.integers(0, 99))
def test_a_home_with_copies_answers_as_one_without(
    tmp_path_factory: Any, sessions: list[list[tuple[str, str]]], seed: int
) -> None:
    """Originals are told by time; a copy's session says nothing but what is copied."""
    top = Path(tmp_path_factory.mktemp("home"))
    rng = random.Random(seed)
    texts: set[tuple[str, str]] = set()
    every: list[Said] = []
    for number, session in enumerate(sessions):
        new = [each for each in dict.fromkeys(session) if each not in texts]
        texts |= set(new)
        said = [Said(what, text, NOW + 100 * number + at) for at, (what, text) in enumerate(new)]
        codex(f"{top}/sessions/{number}.jsonl", said, session=str(number))
        every += said
    shutil.copytree(f"{top}/sessions", f"{top}/plain/sessions")
    with engine_over(top / "plain", "cache") as plain:
        expected = answers(plain.settled())
    with engine_over(top, "cache") as engine:
        engine.settled()
        for name in ("archive/x", "sessions/a", "sessions/9"):
            copied = [
                said._replace(time=said.time + 5000) for said in rng.sample(every, len(every) // 2)
            ]
            codex(f"{top}/{name}.jsonl", copied, session=name[-1])
            assert answers(engine) == expected
    with engine_over(top, "other-cache") as fresh:
        assert answers(fresh.settled()) == expected
    shutil.rmtree(top)


def test_a_new_base_comes_with_what_is_known_of_its_copies(tmp_path: Path) -> None:
    of = settings_for(str(tmp_path), f"{tmp_path}/cache")
    for name in ("a", "b"):
        said = [Said("user", "the same", 1), Said("user", f"only {name}", 2)]
        claude(f"{tmp_path}/sessions/{name}.jsonl", said, session=name)
    with living(of) as engine:
        engine.settled().write_base()
        (part,) = engine.engine._index.snapshot.parts
        assert "copies" in part.segment.derived
        assert engine.call("search", query="same")["hits"][0]["duplicates"]["count"] == 1
