"""The list of sessions, whole sessions, and the places in one that are not an index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexd.errors import BadRequest, NotAllowed, NotFound
from indexd.roots import Root
from indexd.show import PAGE_BYTES
from indexd.transcript import FULL_CHARS
from tests.living import Living, living
from tests.living import settings as settings_for
from tests.writing import Said, chat, claude, codex

NOW = 1_786_000_000_000
MINUTE = 60_000
ID = "0b1c2d3e-4f50-4172-8394-a5b6c7d8e9f0"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a session and its sub-agent's, an archived one, and a plain chat."""
    talk = [
        Said("user", "fix  the\nlock", NOW),
        Said("call", "ls", NOW + MINUTE),
        Said("output", "a.py", NOW + MINUTE),
        Said("assistant", "done", NOW + 3 * MINUTE),
    ]
    place = tmp_path / "sessions" / "app"
    claude(f"{place}/{ID}.jsonl", talk, session=ID, title="The lock")
    child = f"{place}/{ID}/subagents/agent-7.jsonl"
    claude(child, [Said("user", "look", NOW + 1)], session=ID, subagent="7")
    old = [Said("user", "long ago", NOW - 9 * 86_400_000)]
    codex(f"{tmp_path}/archive/old.jsonl", old, session="old-1234", cwd="/src/web")
    chat(f"{place}/chat.jsonl", [Said("assistant", "hello " * 40)])
    os.utime(place / "chat.jsonl", (NOW / 1000 + 600, NOW / 1000 + 600))
    return tmp_path


@pytest.fixture
def engine(home: Path) -> Iterator[Living]:
    roots = (Root(f"{home}/sessions"), Root(f"{home}/archive", "archive"))
    with living(settings_for(str(home), f"{home}/cache", roots=roots)) as running:
        yield running.settled()


def ids(engine: Living, **params: Any) -> list[str]:
    return [row["session_id"] for row in engine.call("sessions", **params)["sessions"]]


def test_a_session_says_whose_where_what_and_how_to_go_on(engine: Living, home: Path) -> None:
    path = f"{home}/sessions/app/{ID}.jsonl"
    answer = engine.call("sessions", session=ID)

    assert answer["total"] == 1
    assert answer["sessions"] == [
        {
            "session_path": path,
            "session_id": ID,
            "agent": "claude",
            "project": "/src/app",
            "title": "The lock",
            "first_words": "fix the lock",
            "model": "",
            "source": "global",
            "parent": "",
            "subagent": False,
            "started": NOW,
            "updated": NOW + 3 * MINUTE,
            "messages": 4,
            "size": os.path.getsize(path),
            "resume": ["claude", "--resume", ID],
        }
    ]


def test_the_latest_come_first_and_pages_follow(engine: Living) -> None:
    assert ids(engine) == ["chat", ID, "agent-7", "old-1234"]
    assert ids(engine, limit=1, offset=1) == [ID]
    assert engine.call("sessions", limit=1)["total"] == 4
    assert engine.call("sessions", offset=4)["warnings"] == [
        "offset 4 is beyond the last of 4 sessions"
    ]


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"agent": "codex"}, ["old-1234"]),
        ({"source": "global", "subagents": "exclude"}, ["chat", ID]),
        ({"subagents": "only"}, ["agent-7"]),
        ({"project": "/src/web"}, ["old-1234"]),
        ({"project": "app"}, [ID, "agent-7"]),
        ({"session": ID[:8]}, [ID]),
        ({"until": NOW - 1}, ["old-1234"]),
        ({"since": NOW + 2 * MINUTE}, ["chat", ID]),
        ({"since": NOW + MINUTE, "until": NOW + MINUTE}, [ID]),
    ],
)
def test_sessions_are_filtered(engine: Living, params: dict[str, Any], found: list[str]) -> None:
    assert ids(engine, **params) == found


def test_no_session_says_what_there_is(engine: Living) -> None:
    assert engine.call("sessions", agent="kiro")["warnings"] == [
        "no session is selected of 4",
        'no session is one of "kiro"; there are: claude, codex, generic',
    ]
    assert engine.call("sessions", until="2001-01-01")["warnings"] == [
        "no session is selected of 4, of the agents claude, codex, generic"
    ]


def test_a_sub_agent_is_resumed_by_its_parent(engine: Living) -> None:
    (row,) = engine.call("sessions", subagents="only")["sessions"]
    (hit,) = engine.call("search", query="look")["hits"]

    assert row["parent"] == ID
    assert row["resume"] == hit["resume"] == ["claude", "--resume", ID]
    assert engine.call("search", query="hello")["hits"][0]["resume"] is None


def test_a_session_grows_in_the_list_as_it_is_written(engine: Living, home: Path) -> None:
    path = f"{home}/sessions/app/{ID}.jsonl"
    claude(path + ".more", [Said("user", "more", NOW + 20 * MINUTE)], session=ID)
    with open(path, "ab") as file:
        file.write(Path(path + ".more").read_bytes())
    row = engine.call("sessions")["sessions"][0]

    assert (row["session_id"], row["messages"], row["started"]) == (ID, 5, NOW)
    assert row["updated"] == NOW + 20 * MINUTE


def test_a_whole_session_comes_in_pages(engine: Living, home: Path) -> None:
    pages = []
    following: int | None = 0
    while following is not None:
        pages.append(engine.call("show", session_path=ID[:8], first=following, limit=3))
        following = pages[-1]["next"]
    messages = [message for page in pages for message in page["messages"]]

    assert [page["next"] for page in pages] == [3, None]
    assert [m["index"] for m in messages] == [0, 1, 2, 3]
    assert [m["text"] for m in messages] == ["fix  the\nlock", "", "a.py", "done"]
    assert messages[1]["tool_calls"] == [{"name": "Bash", "arguments": '{"command":"ls"}'}]
    assert pages[0]["length"] == 4
    assert pages[0]["session"]["session_path"] == f"{home}/sessions/app/{ID}.jsonl"


def test_a_page_is_bounded_in_text_and_in_bytes_read(tmp_path: Path) -> None:
    sizes = [FULL_CHARS // 2, FULL_CHARS // 2 + 10, 10, FULL_CHARS + 5, 1, PAGE_BYTES, 1]
    said = [Said("user", "x" + " y" * (size // 2)) for size in sizes]
    chat(f"{tmp_path}/sessions/big.jsonl", said)
    with living(settings_for(str(tmp_path), f"{tmp_path}/cache")) as engine:
        engine.settled()
        pages, following = [], 0
        while following is not None:
            pages.append(engine.call("show", session_path="big", first=following))
            following = pages[-1]["next"]

    shown = [[message["index"] for message in page["messages"]] for page in pages]
    assert shown == [[0], [1, 2], [3], [4], [5], [6]]
    cut = [m["index"] for page in pages for m in page["messages"] if m["truncated"]]
    assert cut == [3, 5]
    assert all(sum(len(m["text"]) for m in page["messages"]) <= FULL_CHARS for page in pages)


def test_a_page_beyond_the_end_is_no_page(engine: Living) -> None:
    assert engine.call("show", session_path=ID, first=4)["messages"] == []
    with pytest.raises(NotFound, match="beyond the session's 4 messages"):
        engine.call("show", session_path=ID, first=5)


@pytest.mark.parametrize("method", ["show", "around"])
@pytest.mark.parametrize("path", ["", "nothing", "/etc/passwd", "../x", "agent-7.jsonl"])
def test_what_is_no_indexed_session_is_not_shown(engine: Living, method: str, path: str) -> None:
    params = {"message_index": 0} if method == "around" else {}
    with pytest.raises(NotAllowed) as refused:
        engine.call(method, session_path=path, **params)
    assert "`indexctl sessions` lists them" in refused.value.hint


@pytest.mark.parametrize(
    ("at", "target"),
    [
        ("start", 0),
        ("end", 3),
        (NOW, 0),
        (NOW + 1, 1),
        (NOW + 2 * MINUTE, 3),
        (NOW + 9 * MINUTE, 3),
        (NOW - MINUTE, 0),
    ],
)
def test_a_place_is_an_end_or_a_time(engine: Living, at: Any, target: int) -> None:
    answer = engine.call("around", session_path=ID, at=at, before=0, after=0)

    assert (answer["project"], answer["resume"]) == ("/src/app", ["claude", "--resume", ID])
    assert answer["message_index"] == target
    assert [(m["index"], m["target"]) for m in answer["messages"]] == [(target, True)]


def test_a_session_without_times_has_ends_only(engine: Living) -> None:
    assert engine.call("around", session_path="chat", at="end")["message_index"] == 0
    with pytest.raises(NotFound, match="no message of the session has a time"):
        engine.call("around", session_path="chat", at=NOW)


def test_one_place_is_asked_for(engine: Living) -> None:
    with pytest.raises(BadRequest, match="message_index is missing"):
        engine.call("around", session_path=ID)
    with pytest.raises(BadRequest, match="both given"):
        engine.call("around", session_path=ID, message_index=0, at="end")


def test_of_two_files_of_one_session_the_live_one_is_shown(home: Path) -> None:
    live, kept = f"{home}/sessions/app/{ID}.jsonl", f"{home}/archive/{ID}.jsonl"
    Path(kept).write_bytes(Path(live).read_bytes())
    roots = (Root(f"{home}/archive", "archive"), Root(f"{home}/sessions"))
    with living(settings_for(str(home), f"{home}/cache", roots=roots)) as engine:
        page = engine.settled().call("show", session_path=ID)

    assert page["session"]["session_path"] == live
