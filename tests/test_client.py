"""Both clients against a real socket: what they send, what they return, how they fail."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from peer import GREETING, Answers, Peer, frame, short_directory

import indexd.client
from indexd import __version__, protocol
from indexd.client import AsyncClient, Client
from indexd.errors import (
    BadRequest,
    Busy,
    Internal,
    NotAllowed,
    NotFound,
    Timeout,
    Unavailable,
    VersionMismatch,
)


@pytest.fixture
def path() -> Iterator[str]:
    with short_directory() as directory:
        yield str(directory / "s")


def blocking(path: str, method: str, /, *args: Any, timeout: float = 10, **params: Any) -> Any:
    """Call one method of a Client and return its result."""
    with Client(path, timeout=timeout) as client:
        return getattr(client, method)(*args, **params)


def awaited(path: str, method: str, /, *args: Any, timeout: float = 10, **params: Any) -> Any:
    """Call one method of an AsyncClient and return its result."""

    async def call() -> Any:
        async with AsyncClient(path, timeout=timeout) as client:
            return await getattr(client, method)(*args, **params)

    return anyio.run(call)


both = pytest.mark.parametrize("ask", [blocking, awaited])


@both
def test_hello_comes_first_and_says_who_asks(path, ask):
    with Peer(path, {"status": {"pid": 7}}) as peer:
        assert ask(path, "status") == {"pid": 7}

    assert peer.requests == [
        ("hello", {"protocol": [1, 1], "client": f"indexd.client {__version__}"}),
        ("status", {}),
    ]


@both
def test_hello_itself_returns_the_daemons_greeting(path, ask):
    with Peer(path, {}) as peer:
        assert ask(path, "hello") == GREETING

    assert len(peer.requests) == 1


@both
@pytest.mark.parametrize(
    ("method", "args", "params", "sent"),
    [
        ("search", ("cache",), {}, {"query": "cache"}),
        (
            "search",
            (),
            {
                "query": "q",
                "scope": "project",
                "kinds": ["tool_error"],
                "limit": 3,
                "offset": 0,
                "tool_name": "Bash",
                "agent": "claude",
                "session": "s",
                "project": "/p",
                "session_dir": "/d",
                "since": 1,
                "until": 2,
                "order": "recent",
                "sync": False,
                "reveal": True,
            },
            None,
        ),
        (
            "around",
            ("/s", 4, 0, 2),
            {},
            {"session_path": "/s", "message_index": 4, "before": 0, "after": 2},
        ),
        (
            "around",
            (),
            {"session_path": "/s", "message_index": 4, "full": True, "reasoning": True},
            None,
        ),
        (
            "history",
            ({"operation": "search", "extra": 1},),
            {},
            {"operation": "search", "extra": 1},
        ),
        ("history", (), {"operation": "search", "query": "q", "limit": 2}, None),
        ("tool_search", ("git",), {"max_results": 2, "session": "s", "server": "x"}, None),
        ("tool_search", (), {"tool_id": "a::b", "detail": "full"}, None),
        ("tool_list", (), {"session": "s", "context_window": 200_000}, None),
        (
            "mcp_event",
            (),
            {"event": "connected", "server": "git", "tools": [], "instructions": "i", "time": 5},
            None,
        ),
        ("status", (), {}, {}),
        ("sync", (), {}, {}),
        ("reindex", (), {}, {}),
        ("reindex", (), {"path": "/p"}, None),
    ],
)
def test_parameters_travel_under_their_names_and_unset_ones_not_at_all(
    path, ask, method, args, params, sent
):
    with Peer(path, {method: {"ok": 1}}) as peer:
        assert ask(path, method, *args, **params) == {"ok": 1}

    if sent is None:
        sent = params | ({"query": args[0]} if args else {})
    assert peer.requests[-1] == (method, sent)


@both
@pytest.mark.parametrize(
    "error",
    [
        BadRequest("b"),
        NotFound("n", "try x"),
        NotAllowed("a"),
        Busy("y"),
        Timeout("t"),
        Unavailable("u"),
        VersionMismatch("v"),
        Internal("i"),
    ],
)
def test_a_daemons_error_is_raised_as_itself(path, ask, error):
    with Peer(path, {"status": error}), pytest.raises(type(error)) as caught:
        ask(path, "status")

    assert caught.value.as_map() == error.as_map()


@both
def test_no_shared_version_is_told_before_anything_else(path, ask):
    with (
        Peer(path, {"status": {}}, hello=VersionMismatch("speaks 2 to 3", "update")),
        pytest.raises(VersionMismatch, match="speaks 2 to 3"),
    ):
        ask(path, "status")


@both
def test_a_daemon_that_refuses_before_reading_is_heard(path, ask):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def refuse() -> None:
        connection, _ = listener.accept()
        connection.sendall(frame(None, Busy("128 connections are open")))
        connection.close()

    thread = threading.Thread(target=refuse)
    thread.start()
    with pytest.raises(Busy, match="128 connections"):
        ask(path, "status")
    thread.join()
    listener.close()


@both
def test_no_socket_file_means_no_daemon_and_how_to_start_one(path, ask):
    with pytest.raises(Unavailable, match=f"no daemon at {path}") as caught:
        ask(path, "status")
    assert "indexd" in caught.value.hint


@both
def test_a_socket_file_left_by_a_dead_daemon_means_the_same(path, ask):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)

    with pytest.raises(Unavailable, match="no daemon at"):
        ask(path, "status")


@both
def test_a_path_that_is_no_socket_is_unavailable(path, ask):
    Path(path).mkdir()

    with pytest.raises(Unavailable):
        ask(path, "status")


@both
def test_an_answer_that_does_not_come_in_time_is_a_timeout(path, ask):
    release = threading.Event()

    def late(_: object) -> dict[str, Any]:
        release.wait(10)
        return {}

    with Peer(path, {"status": late}):
        with pytest.raises(Timeout, match=r"no answer within 0\.2 s"):
            ask(path, "status", timeout=0.2)
        release.set()


@both
def test_a_daemon_that_hangs_up_is_unavailable(path, ask):
    with Peer(path, {"status": None}), pytest.raises(Unavailable, match="closed the connection"):
        ask(path, "status")


@both
def test_half_an_answer_is_unavailable(path, ask):
    with (
        Peer(path, {"status": frame(1, {"pid": 1})[:-1]}),
        pytest.raises(Unavailable, match="closed the connection"),
    ):
        ask(path, "status")


@both
def test_an_answer_over_the_limit_is_refused_before_it_is_read(path, ask):
    with (
        Peer(path, {"status": protocol.HEADER.pack(protocol.MAX_ANSWER_BYTES + 1)}),
        pytest.raises(BadRequest, match="outside 1 to"),
    ):
        ask(path, "status")


@both
def test_an_answer_to_another_request_is_never_returned(path, ask):
    with (
        Peer(path, {"status": frame(99, {"pid": 1})}),
        pytest.raises(Internal, match="answer 99 came to request 1"),
    ):
        ask(path, "status")


@both
def test_a_request_over_the_limit_is_refused_here(path, ask):
    with Peer(path, {}), pytest.raises(BadRequest, match="over the limit of 65536"):
        ask(path, "search", "x" * 70_000)


@both
def test_an_event_may_be_as_big_as_a_catalog(path, ask):
    tools = [{"name": "t", "description": "x" * 1_000_000}]
    with Peer(path, {"mcp_event": {}}) as peer:
        ask(path, "mcp_event", event="connected", server="s", tools=tools)

    assert peer.requests[-1][1]["tools"] == tools


@both
def test_a_big_answer_comes_whole(path, ask):
    text = "ü" * 2_000_000
    with Peer(path, {"around": {"messages": [{"text": text}]}}):
        assert ask(path, "around", "/s", 0)["messages"][0]["text"] == text


@both
def test_half_of_a_surrogate_pair_is_refused_by_name(path, ask):
    with Peer(path, {}), pytest.raises(BadRequest, match=r"\\ud800"):
        ask(path, "search", "a\ud800b")


@both
def test_a_path_that_is_not_utf8_travels_both_ways(path, ask):
    name = os.fsdecode(b"/s/\xff\xfe.jsonl")
    with Peer(path, {"around": lambda params: {"session_path": params["session_path"]}}):
        assert ask(path, "around", name, 0) == {"session_path": name}


def test_a_connection_is_kept_for_many_calls(path):
    with Peer(path, {"status": {"pid": 1}}) as peer, Client(path) as client:
        for _ in range(3):
            client.status()

    assert [method for method, _ in peer.requests] == ["hello", "status", "status", "status"]


def test_an_error_does_not_cost_the_connection(path):
    answers: Answers = {"search": BadRequest("no"), "status": {"pid": 1}}
    with Peer(path, answers) as peer, Client(path) as client:
        with pytest.raises(BadRequest):
            client.search("x")
        assert client.status() == {"pid": 1}

    assert len(peer.connections) == 1


def test_a_closed_idle_connection_is_opened_again(path):
    with Peer(path, {"status": {"pid": 1}}) as peer, Client(path) as client:
        client.status()
        peer.hang_up()
        assert client.status() == {"pid": 1}

    assert len(peer.connections) == 2


def test_after_a_timeout_the_late_answer_is_not_taken_for_the_next(path):
    release = threading.Event()

    def late(_: object) -> dict[str, Any]:
        release.wait(10)
        return {"late": True}

    with Peer(path, {"status": late, "sync": {"now": True}}), Client(path, timeout=0.2) as client:
        with pytest.raises(Timeout):
            client.status()
        release.set()
        client.timeout = 10
        assert client.sync() == {"now": True}


def test_the_socket_is_found_as_indexctl_finds_it(path, monkeypatch):
    monkeypatch.setenv("INDEXD_SOCKET", path)
    with Peer(path, {"status": {"pid": 1}}), Client() as client:
        assert client.status() == {"pid": 1}


def test_a_socket_path_that_is_too_long_says_so():
    with pytest.raises(BadRequest, match="the system allows 107"):
        Client("/" + "x" * 200)


def test_the_process_at_the_other_end_is_known(path):
    with Peer(path, {}), Client(path) as client:
        assert client.peer_pid == os.getpid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
@both
def test_a_daemon_of_another_user_gets_no_question(path, ask):
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.chmod(os.path.dirname(path), 0o755)
        os.chown(os.path.dirname(path), 12345, -1)
        os.setuid(12345)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        os.write(ready[1], b"1")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    with pytest.raises(NotAllowed, match="belongs to user 12345"):
        ask(path, "status")
    os.write(done[1], b"1")
    assert os.waitpid(child, 0)[1] == 0
    for end in (*ready, *done):
        os.close(end)


async def test_calls_at_the_same_time_each_get_their_own_answer(path):
    with Peer(path, {"search": lambda params: {"for": params["query"]}}) as peer:
        results: dict[str, Any] = {}

        async def ask(client: AsyncClient, query: str) -> None:
            results[query] = await client.search(query)

        async with AsyncClient(path) as client, anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, client, str(number))

    assert results == {str(number): {"for": str(number)} for number in range(20)}
    assert len(peer.connections) == 1


async def test_a_cancelled_call_leaves_no_answer_behind(path):
    release = threading.Event()

    def late(_: object) -> dict[str, Any]:
        release.wait(10)
        return {"late": True}

    with Peer(path, {"status": late, "sync": {"now": True}}):
        async with AsyncClient(path) as client:
            with anyio.move_on_after(0.1) as scope:
                await client.status()
            release.set()
            assert scope.cancelled_caught
            assert await client.sync() == {"now": True}


async def test_an_awaited_client_opens_a_closed_connection_again(path):
    with Peer(path, {"status": {"pid": 1}}) as peer:
        async with AsyncClient(path) as client:
            await client.status()
            peer.hang_up()
            assert await client.status() == {"pid": 1}


def test_a_name_the_module_does_not_have_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="Nothing"):
        _ = indexd.client.Nothing


@both
def test_a_daemon_with_a_full_queue_is_not_taken_for_none(path, ask):
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)

        with pytest.raises(Timeout, match="accepts no connection"):
            ask(path, "status", timeout=0.2)


@both
@pytest.mark.parametrize("value", [10**30, {1, 2}])
def test_a_parameter_that_cannot_travel_is_a_bad_request(path, ask, value):
    with Peer(path, {}), pytest.raises(BadRequest, match="cannot travel"):
        ask(path, "around", "/a.jsonl", value)


@both
def test_tools_nested_without_end_cannot_travel(path, ask):
    schema: dict[str, object] = {}
    for _ in range(5000):
        schema = {"items": schema}
    tools = [{"name": "deep", "inputSchema": schema}]
    with Peer(path, {}), pytest.raises(BadRequest, match="cannot travel"):
        ask(path, "mcp_event", event="connected", server="s", tools=tools)
