from __future__ import annotations

import concurrent.futures
import contextlib
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexd import __version__, protocol
from indexd.connection import Limits
from indexd.errors import NotFound
from indexd.requests import McpEvent, Request, Search, Status
from indexd.server import Method, Server
from tests.talk import HELLO, Talk, frame

REPOSITORY = Path(__file__).parent.parent


async def status(request: Status) -> Mapping[str, Any]:
    return {"documents": 3}


async def search(request: Search) -> Mapping[str, Any]:
    if request.query == "bug":
        raise RuntimeError("a bug of ours")
    if request.query == "memory":
        raise MemoryError
    if request.query == "nothing":
        raise NotFound("no such session", "look elsewhere")
    if request.query == "surrogate":
        return {"text": "\ud800"}
    return {"query": request.query, "text": "x" * request.offset * 100}


async def mcp_event(request: McpEvent) -> Mapping[str, Any]:
    return {"tools": len(request.tools)}


class Running:
    """A server in a thread of its own, and where to reach it."""

    def __init__(self, path: str, portal: BlockingPortal, limits: Limits) -> None:
        self.path = path
        self.portal = portal
        self.entered = threading.Semaphore(0)
        self.gate = portal.call(anyio.Event)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(512)
        self.server = portal.call(Server, listener, self.methods(), limits)
        self.done, _ = portal.start_task(self.server.run)
        self.listener = listener

    def methods(self) -> dict[str, Method]:
        return {
            "status": Method(status, Status),
            "search": Method(search, Search),
            "mcp_event": Method(mcp_event, McpEvent),
            "sync": Method(self.wait, Request),
        }

    async def wait(self, request: Request) -> Mapping[str, Any]:
        self.entered.release()
        await self.gate.wait()
        return {"waited": True}

    def stop(self) -> None:
        self.portal.call(self.server.stop)
        self.done.result(10)
        self.listener.close()


Serve = Callable[..., Running]


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as running:
        yield running


@pytest.fixture
def serve(tmp_path: Path, portal: BlockingPortal) -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def start(**limits: Any) -> Running:
            running = Running(str(tmp_path / "s.sock"), portal, Limits(**limits))
            stack.callback(running.stop)
            return running

        yield start


def test_hello_agrees_on_a_version_and_tells_what_there_is(serve: Serve) -> None:
    with Talk(serve().path, greet=False) as talk:
        assert talk.ask(HELLO) == {
            "id": 0,
            "result": {
                "protocol": 1,
                "version": __version__,
                "capabilities": ["hello", "mcp_event", "search", "status", "sync"],
            },
        }


def test_a_newer_client_is_met_at_the_highest_shared_version(serve: Serve) -> None:
    hello = {"id": 1, "method": "hello", "params": {"protocol": [0, 9], "novelty": True}}
    with Talk(serve().path, greet=False) as talk:
        assert talk.ask(hello)["result"]["protocol"] == 1


@pytest.mark.parametrize("versions", [[2, 3], [0, 0], [3, 2]])
def test_a_client_without_a_shared_version_is_told_so_and_left(
    serve: Serve, versions: list[int]
) -> None:
    with Talk(serve().path, greet=False) as talk:
        answer = talk.ask({"id": 5, "method": "hello", "params": {"protocol": versions}})
        assert (answer["id"], answer["error"]["code"]) == (5, "version")
        assert f"not {versions[0]} to {versions[1]}" in answer["error"]["message"]
        assert talk.hear() == {}


@pytest.mark.parametrize(
    "first",
    [{"id": 1, "method": "status"}, {}, {"id": 1, "method": "hello"},
     {"id": 1, "method": "hello", "params": {"protocol": 1}},
     {"id": 1, "method": "hello", "params": {"protocol": [1, 1, 1]}}],
)  # fmt: skip
def test_whoever_does_not_say_hello_first_is_left(serve: Serve, first: dict[str, Any]) -> None:
    with Talk(serve().path, greet=False) as talk:
        assert talk.ask(first)["error"]["code"] == "bad_request"
        assert talk.hear() == {}


def test_requests_sent_ahead_are_answered_in_order(serve: Serve) -> None:
    requests = [HELLO] + [
        {"id": n, "method": "search", "params": {"query": f"q{n}"}} for n in range(1, 500)
    ]
    with Talk(serve().path, greet=False) as talk:
        sender = threading.Thread(
            target=talk.socket.sendall, args=(b"".join(map(frame, requests)),)
        )
        sender.start()
        answers = [talk.hear() for _ in requests]
        sender.join()
    assert [answer["id"] for answer in answers] == list(range(500))
    assert answers[499]["result"]["query"] == "q499"


def test_an_unknown_method_names_the_nearest(serve: Serve) -> None:
    with Talk(serve().path) as talk:
        error = talk.call("serch", query="a")
        assert error["code"] == "bad_request"
        assert error["message"] == 'unknown method "serch"'
        assert error["hint"] == 'did you mean "search"?'


def test_parameters_are_checked_before_the_method_is_called(serve: Serve) -> None:
    with Talk(serve().path) as talk:
        error = talk.call("search", query="a", limit=0)
        assert error["message"] == "limit 0 is not a whole number from 1 to 200"
        assert talk.call("status") == {"documents": 3}


@pytest.mark.parametrize(
    "request_map",
    [{"id": 1}, {"id": 1, "method": 5}, {"id": 1, "method": "status", "params": []},
     {"id": 1, "method": "status", "extra": 1}, {"id": 1.5, "method": "status"},
     {"id": 1, "method": "status", "params": {b"x": 1}}, {"id": [1], "method": "status"}],
)  # fmt: skip
def test_a_request_of_another_shape_is_refused_and_the_next_one_answered(
    serve: Serve, request_map: dict[str, Any]
) -> None:
    with Talk(serve().path) as talk:
        answer = talk.ask(request_map)
        assert answer["error"]["code"] == "bad_request"
        assert answer["id"] == request_map["id"]
        assert talk.call("status") == {"documents": 3}


def test_an_expected_failure_travels_with_code_message_and_hint(serve: Serve) -> None:
    with Talk(serve().path) as talk:
        assert talk.call("search", query="nothing") == {
            "code": "not_found",
            "message": "no such session",
            "hint": "look elsewhere",
        }


@pytest.mark.parametrize("query", ["bug", "surrogate"])
def test_a_bug_is_logged_and_costs_one_answer(
    serve: Serve, caplog: pytest.LogCaptureFixture, query: str
) -> None:
    with Talk(serve().path) as talk:
        error = talk.call("search", query=query)
        assert error["code"] == "internal"
        assert "a bug of ours" not in str(error)
        assert talk.call("status") == {"documents": 3}
    assert "Traceback" in caplog.text


def test_a_lack_of_memory_is_told_as_being_busy_and_costs_one_answer(serve: Serve) -> None:
    with Talk(serve().path) as talk:
        assert talk.call("search", query="memory")["code"] == "busy"
        assert talk.call("status") == {"documents": 3}


def test_an_answer_that_takes_too_long_times_out(serve: Serve) -> None:
    with Talk(serve(answer_seconds=0.05).path) as talk:
        error = talk.call("sync")
        assert (error["code"], error["message"]) == ("timeout", "sync took over 0.05 s")
        assert talk.call("status") == {"documents": 3}


def test_an_answer_over_the_limit_becomes_an_error_with_a_hint(serve: Serve) -> None:
    with Talk(serve().path) as talk:
        error = talk.call("search", query="a", offset=170_000)
        assert error["code"] == "bad_request"
        assert "over the limit of 16777216" in error["message"]
        assert "fewer results" in error["hint"]
        assert len(talk.call("search", query="a", offset=160_000)["text"]) == 16_000_000


def test_a_request_over_64_kib_is_refused_unless_it_is_an_event(serve: Serve) -> None:
    path = serve().path
    tools = [{"name": f"tool{n}", "description": "d" * 1000} for n in range(15_000)]
    with Talk(path) as talk:
        assert talk.call("mcp_event", event="connected", server="s", tools=tools) == {
            "tools": 15_000
        }
        answer = talk.ask({"id": 7, "method": "search", "params": {"query": "q" * 70_000}})
        assert answer["id"] is None
        assert answer["error"]["code"] == "bad_request"
        assert answer["error"]["hint"] == "only mcp_event may be longer"
        assert talk.hear() == {}


def test_an_event_may_follow_hello_in_one_breath(serve: Serve) -> None:
    event = {"event": "connected", "server": "s", "tools": [{"name": "x" * 3_000_000}]}
    with Talk(serve().path, greet=False) as talk:
        talk.socket.sendall(frame(HELLO) + frame({"id": 1, "method": "mcp_event", "params": event}))
        assert talk.hear()["id"] == 0
        assert talk.hear() == {"id": 1, "result": {"tools": 1}}


@pytest.mark.parametrize(("greet", "length"), [(False, 65537), (True, (16 << 20) + 1), (True, 0)])
def test_a_length_out_of_bounds_ends_the_conversation_before_the_body(
    serve: Serve, greet: bool, length: int
) -> None:
    with Talk(serve().path, greet=greet) as talk:
        talk.socket.sendall(struct.pack(">I", length))
        assert talk.hear()["error"]["code"] == "bad_request"
        assert talk.hear() == {}


def test_a_large_frame_that_is_no_event_is_not_built(serve: Serve) -> None:
    # A million empty maps: some 70 MB once decoded.
    bomb = b"\x82\xa2id\x01\xa6params\xdd" + struct.pack(">I", 1_000_000) + b"\x80" * 1_000_000
    peak_bytes()
    before = peak_bytes()
    with Talk(serve().path) as talk:
        talk.socket.sendall(struct.pack(">I", len(bomb)) + bomb)
        assert talk.hear()["error"]["hint"] == "only mcp_event may be longer"
    assert peak_bytes() - before < 32 << 20


def peak_bytes() -> int:
    """Return the most memory this process had resident since the last call."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_who_says_nothing_is_left_after_the_time_for_hello(serve: Serve) -> None:
    path = serve(hello_seconds=0.05).path
    with Talk(path, greet=False) as talk:
        assert talk.rest() == b""


def test_who_falls_idle_is_left_without_a_word(serve: Serve) -> None:
    with Talk(serve(idle_seconds=0.05).path) as talk:
        assert talk.rest() == b""


@pytest.mark.parametrize("part", [frame(HELLO)[:2], frame(HELLO)[:-1]])
def test_a_frame_that_does_not_end_is_given_up(serve: Serve, part: bytes) -> None:
    with Talk(serve(frame_seconds=0.05).path, greet=False) as talk:
        talk.socket.sendall(part)
        assert talk.hear()["error"]["code"] == "timeout"
        assert talk.hear() == {}


def test_a_frame_of_which_a_byte_comes_now_and_then_is_given_up(serve: Serve) -> None:
    begin = time.monotonic()
    with Talk(serve(frame_seconds=0.3).path, greet=False) as talk:
        with pytest.raises(BrokenPipeError):
            dribble(talk, b"\0\0\xff\xff" + b"x" * 0xFFFF)
        assert talk.hear()["error"]["code"] == "timeout"
    assert 0.3 < time.monotonic() - begin < 5


def dribble(talk: Talk, sent: bytes) -> None:
    for byte in sent:
        talk.socket.sendall(bytes([byte]))
        time.sleep(0.02)


def test_who_stops_reading_is_left(serve: Serve) -> None:
    running = serve(stall_seconds=0.1)
    with Talk(running.path) as talk:
        talk.socket.sendall(
            frame({"id": 1, "method": "search", "params": {"query": "a", "offset": 100_000}})
        )
        # Not reading; the daemon hangs up, which shows as an end in the middle of the answer.
        wait_until(lambda: running.server.connections == 0)
        assert 0 < len(talk.rest()) < 10_000_000


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_slow_and_silent_peers_do_not_delay_the_others(serve: Serve) -> None:
    path = serve().path
    with contextlib.ExitStack() as stack:
        for number in range(100):
            talk = stack.enter_context(Talk(path, greet=number % 2 == 0))
            talk.socket.sendall(frame(HELLO)[: number % 20])
        with Talk(path) as quick:
            times = []
            for _ in range(200):
                begin = time.perf_counter()
                assert quick.call("status") == {"documents": 3}
                times.append(time.perf_counter() - begin)
    assert sorted(times)[len(times) // 2] < 0.05


def test_one_connection_too_many_is_told_and_closed(serve: Serve) -> None:
    running = serve(connections=3)
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(Talk(running.path)) for _ in range(3)]
        with Talk(running.path, greet=False) as fourth:
            answer = fourth.hear()
            assert (answer["id"], answer["error"]["code"]) == (None, "busy")
            assert fourth.hear() == {}
        assert [talk.call("status") for talk in talks] == [{"documents": 3}] * 3
        talks[0].socket.close()
        wait_until(lambda: running.server.connections == 2)
        assert stack.enter_context(Talk(running.path)).call("status") == {"documents": 3}


def test_a_crowd_that_does_not_say_hello_gives_way_to_whoever_does(serve: Serve) -> None:
    running = serve(connections=3, hello_seconds=60.0, frame_seconds=60.0, patience_seconds=0.0)
    with contextlib.ExitStack() as stack:
        for part in (b"", b"\0", frame(HELLO)[:-1]):
            silent = stack.enter_context(Talk(running.path, greet=False))
            silent.socket.sendall(part)
        wait_until(lambda: running.server.connections == 3)
        for _ in range(3):
            talk = stack.enter_context(Talk(running.path))
            assert talk.call("status") == {"documents": 3}
        with Talk(running.path, greet=False) as late:
            assert late.hear()["error"]["code"] == "busy"


def test_a_crowd_that_asks_nothing_gives_way_but_not_who_is_asking(serve: Serve) -> None:
    running = serve(connections=4, rest_seconds=0.0)
    with contextlib.ExitStack() as stack:
        asking, sending, *idle = [stack.enter_context(Talk(running.path)) for _ in range(4)]
        asking.socket.sendall(frame({"id": 7, "method": "sync"}))
        assert running.entered.acquire(timeout=10)
        request = frame({"id": 8, "method": "status"})
        sending.socket.sendall(request[:-1])
        wait_until(lambda: len(running.server._idle) == 2)
        for gone in idle:
            assert stack.enter_context(Talk(running.path)).call("status") == {"documents": 3}
            assert gone.hear() == {}
        running.portal.call(running.gate.set)
        assert asking.hear()["result"] == {"waited": True}
        sending.socket.sendall(request[-1:])
        assert sending.hear()["result"] == {"documents": 3}


def test_five_thousand_connections_leave_the_daemon_as_it_was(serve: Serve) -> None:
    running = serve(rest_seconds=60.0)
    refused = 0
    with contextlib.ExitStack() as stack:
        for _ in range(128):
            stack.enter_context(Talk(running.path))
        for _ in range(5000 - 128):
            with Talk(running.path, greet=False) as talk:
                refused += talk.hear()["error"]["code"] == "busy"
        assert refused == 5000 - 128
    wait_until(lambda: running.server.connections == 0)
    with Talk(running.path) as talk:
        assert talk.call("status") == {"documents": 3}


@pytest.mark.parametrize("clients", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_many_clients_at_once_are_all_answered(serve: Serve, clients: int) -> None:
    path = serve().path

    def twenty(number: int) -> int:
        with Talk(path) as talk:
            return sum(
                talk.call("search", query=f"{number} {n}")["query"] == f"{number} {n}"
                for n in range(20)
            )

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert sum(pool.map(twenty, range(clients))) == clients * 20


def test_an_answer_under_way_still_gets_out_after_stop(serve: Serve) -> None:
    running = serve(drain_seconds=5)
    with Talk(running.path) as busy, Talk(running.path) as idle:
        busy.socket.sendall(frame({"id": 1, "method": "sync"}))
        running.entered.acquire()
        running.portal.call(running.server.stop)
        assert idle.hear() == {}
        assert not running.done.done()
        running.portal.call(running.gate.set)
        assert busy.hear() == {"id": 1, "result": {"waited": True}}
        assert busy.hear() == {}
        running.done.result(5)


def test_an_answer_that_does_not_come_is_not_waited_for_after_stop(serve: Serve) -> None:
    running = serve(drain_seconds=0.05)
    with Talk(running.path) as busy:
        busy.socket.sendall(frame({"id": 1, "method": "sync"}))
        running.entered.acquire()
        running.portal.call(running.server.stop)
        running.done.result(5)
        assert busy.hear() == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(serve: Serve, tmp_path: Path) -> None:
    running = serve()
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(20);"
        "s.connect('s.sock'); sys.stdout.buffer.write(s.recv(4096)); s.recv(1)"
    )
    os.chmod(running.path, 0o666)
    # The descriptor lets the stranger past directories that are closed to it.
    directory = os.open(tmp_path, os.O_PATH)
    tmp_path.chmod(0o755)
    run = subprocess.run(
        ["setpriv", "--reuid", "12345", "--clear-groups",
         "/usr/bin/env", "python3", "-c", f"import os; os.fchdir({directory});{script}"],
        capture_output=True, pass_fds=[directory],
    )  # fmt: skip
    os.close(directory)
    if run.returncode == 126 or b"python3" in run.stderr:
        pytest.skip("no interpreter that another user may run")
    answer = protocol.decode(run.stdout[4:])
    assert answer["error"]["code"] == "not_allowed"
    assert "not user 12345" in answer["error"]["message"]


FRAMES = st.one_of(
    st.binary(max_size=64),
    st.binary(min_size=1, max_size=64).map(lambda body: struct.pack(">I", len(body)) + body),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
        | st.binary(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=9,
    ).map(lambda params: frame({"id": 1, "method": "search", "params": params})),
    st.dictionaries(
        st.sampled_from(["id", "method", "params", "x"]),
        st.sampled_from(["search", "hello", 1, None, {}, {"query": "a"}, {"protocol": [1, 1]}]),
    ).map(frame),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(FRAMES, max_size=5), st.booleans())
def test_whatever_is_sent_is_answered_in_maps_or_not_at_all(
    fuzzed: Running, frames: list[bytes], greet: bool
) -> None:
    with Talk(fuzzed.path, greet=greet) as talk:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            talk.socket.sendall(b"".join(frames))
            talk.socket.shutdown(socket.SHUT_WR)
        while answer := talk.hear():
            assert answer.keys() in ({"id", "result"}, {"id", "error"})
            assert answer.get("error", {}).get("code") in (None, "bad_request", "version")
    with Talk(fuzzed.path) as talk:
        assert talk.call("status") == {"documents": 3}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory, portal: BlockingPortal) -> Iterator[Running]:
    running = Running(str(tmp_path_factory.mktemp("fuzz") / "s.sock"), portal, Limits())
    yield running
    running.stop()
