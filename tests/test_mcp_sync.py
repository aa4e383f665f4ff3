"""`sync` end to end, against real server processes: odd ones, modern ones, and published ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from indexd.errors import Unavailable
from indexd.mcp_config import Source, once, read
from indexd.mcp_entry import Context
from indexd.tool_search import ToolSearch

pytest.importorskip("mcp", reason="the MCP SDK is not installed (pip install 'indexd[mcp]')")

from indexd.mcp_sync import Outcome, sync

SERVERS = Path(__file__).parent / "mcp_servers"
TOOLS = [{"name": f"tool_{i}", "description": f"Does {i}.", "inputSchema": {}} for i in range(5)]

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Workshop:
    """A home with one configuration file, and the events that syncing it gives."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.tools = home / "tools.json"
        self.pids = home / "pids"
        self.said: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.servers: dict[str, Any] = {}
        self.offer(*TOOLS)

    def offer(self, *tools: Any) -> None:
        self.tools.write_text(json.dumps(tools))

    def odd(self, *words: str, name: str = "odd", **entry: Any) -> None:
        environment = {"TOOLS": str(self.tools), "PID_FILE": str(self.pids), **entry.pop("env", {})}
        args = [str(SERVERS / "odd.py"), *words]
        self.servers[name] = {"command": sys.executable, "args": args, "env": environment, **entry}

    def specs(self) -> list[Any]:
        path = self.home / "mcp.json"
        path.write_text(json.dumps({"mcpServers": self.servers}))
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        return once(read(Source("kiro", path), Context(self.home, self.home, environment)))

    def hear(self, line: str, outcome: Outcome) -> None:
        self.said.append(line)

    async def sync(self) -> list[Outcome]:
        return await sync(self.specs(), self.events.append, self.hear)

    def pid(self) -> int:
        return int(self.pids.read_text().split()[-1])

    def alive(self) -> list[int]:
        return [pid for pid in map(int, self.pids.read_text().split()) if _alive(pid)]


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def names(event: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in event["tools"]]


# --- one visit -----------------------------------------------------------------------------


async def test_a_server_s_tools_come_raw_in_one_event(shop: Workshop) -> None:
    raw = [
        *TOOLS,
        {"name": "bad", "inputSchema": "no map"},
        7,
        {"name": "x", "execution": {"a": 1}},
    ]
    shop.offer(*raw)
    shop.odd("junk")
    (outcome,) = await shop.sync()
    assert (outcome.state, outcome.tools) == ("connected", 8)
    assert shop.events == [
        {"event": "connected", "server": "odd", "tools": raw, "instructions": "Mind the gap."}
    ]
    assert shop.said == [f"[1/1] odd: 8 tools ({outcome.seconds:.1f} s)"]
    assert shop.alive() == []
    search = ToolSearch()
    search.apply(shop.events[0])
    assert search.servers()["odd"]["tools"] == 6


async def test_a_server_that_dies_of_the_first_request_is_asked_the_old_way(shop: Workshop) -> None:
    shop.odd("dies")
    (outcome,) = await shop.sync()
    assert outcome.state == "connected"
    assert len(shop.pids.read_text().split()) == 2


async def test_every_page_of_tools_is_read(shop: Workshop) -> None:
    shop.odd("pages")
    await shop.sync()
    assert names(shop.events[0]) == [tool["name"] for tool in TOOLS]


async def test_a_cursor_that_comes_again_ends_the_reading(shop: Workshop) -> None:
    shop.odd("pages", "endless")
    (outcome,) = await shop.sync()
    assert outcome.state == "connected"
    assert set(names(shop.events[0])) == {"tool_0", "tool_1"}


async def test_tools_the_client_has_switched_off_are_left_out(shop: Workshop) -> None:
    shop.odd(disabledTools=["tool_1"])
    await shop.sync()
    assert "tool_1" not in names(shop.events[0])


async def test_a_server_that_never_answers_is_given_up_in_time(shop: Workshop) -> None:
    shop.odd("hangs", "stubborn", "child", timeout=700)
    with anyio.fail_after(20):
        (outcome,) = await shop.sync()
    assert (outcome.state, outcome.reason) == ("failed", "no answer within 0.7 s")
    assert shop.events == [{"event": "disconnected", "server": "odd"}]
    assert shop.alive() == []


async def test_what_a_server_leaves_behind_is_ended(shop: Workshop) -> None:
    shop.odd("child")
    await shop.sync()
    assert len(shop.pids.read_text().split()) == 2
    assert shop.alive() == []


async def test_a_failing_server_s_last_words_are_told_without_its_secrets(shop: Workshop) -> None:
    shop.odd("fails", env={"API_KEY": "top-secret-value"})
    (outcome,) = await shop.sync()
    assert outcome.state == "failed"
    assert outcome.reason == "it ended before it answered: cannot use key ***"
    assert "top-secret" not in repr((outcome, shop.said, shop.events))


async def test_one_bad_server_costs_no_other_and_skipped_ones_say_why(shop: Workshop) -> None:
    shop.odd(name="good")
    shop.servers |= {
        "absent": {"command": "no-such-command-here"},
        "off": {"command": "x", "disabled": True},
        "nobody": {"url": "http://127.0.0.1:9/mcp"},
    }
    good, absent, off, nobody = await shop.sync()
    assert good.state == "connected"
    assert (absent.state, absent.reason) == (
        "failed",
        "command 'no-such-command-here' is not found",
    )
    assert (off.state, off.reason) == ("skipped", "disabled")
    assert nobody.state == "failed"
    assert sorted(line.split(" ", 1)[0] for line in shop.said) == [f"[{i}/4]" for i in range(1, 5)]
    told = {event["server"]: event["event"] for event in shop.events}
    assert told == {"good": "connected", "absent": "disconnected", "nobody": "disconnected"}


async def test_not_more_than_four_connect_at_a_time(shop: Workshop) -> None:
    for number in range(6):
        shop.odd("hangs", name=f"s{number}", timeout=1500)
        shop.servers[f"s{number}"]["args"].append(str(number))
    started = anyio.current_time()
    outcomes = await shop.sync()
    assert {outcome.state for outcome in outcomes} == {"failed"}
    assert anyio.current_time() - started >= 3


async def test_a_daemon_that_does_not_answer_is_told_as_the_reason(shop: Workshop) -> None:
    shop.odd()

    def sink(event: dict[str, Any]) -> None:
        raise Unavailable("no daemon answers")

    (outcome,) = await sync(shop.specs(), sink, shop.hear)
    assert outcome.state == "failed"
    assert outcome.reason.startswith("no daemon answers")
    assert shop.alive() == []


# --- watching ------------------------------------------------------------------------------

Next = Callable[[], Awaitable[dict[str, Any]]]


@asynccontextmanager
async def watching(shop: Workshop) -> AsyncIterator[Next]:
    """Watch the servers of `shop`; yields a function that waits for the next event."""
    send, receive = anyio.create_memory_object_stream[dict[str, Any]](100)

    def sink(event: dict[str, Any]) -> None:
        anyio.from_thread.run_sync(send.send_nowait, json.loads(json.dumps(event)))

    async def run() -> None:
        await sync(shop.specs(), sink, shop.hear, watch=True)

    async def following() -> dict[str, Any]:
        with anyio.fail_after(20):
            return await receive.receive()

    with send, receive:
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            yield following
            group.cancel_scope.cancel()


async def test_changes_are_followed_and_told_once(shop: Workshop) -> None:
    shop.odd()
    async with watching(shop) as event:
        assert (await event())["event"] == "connected"
        shop.offer(*TOOLS, {"name": "new"})
        for _ in range(5):
            os.kill(shop.pid(), signal.SIGUSR1)
        changed = await event()
        assert changed["event"] == "tools_changed"
        assert names(changed)[-1] == "new"
        os.kill(shop.pid(), signal.SIGUSR1)  # nothing has changed, nothing is told
        shop.offer({"name": "last"})
        os.kill(shop.pid(), signal.SIGUSR1)
        assert names(await event()) == ["last"]
    assert shop.alive() == []


async def test_a_lost_server_is_offline_and_tried_again(shop: Workshop) -> None:
    shop.odd()
    async with watching(shop) as event:
        assert (await event())["event"] == "connected"
        first = shop.pid()
        os.kill(first, signal.SIGKILL)
        assert await event() == {"event": "disconnected", "server": "odd"}
        assert (await event())["event"] == "connected"
        assert shop.pid() != first
    assert shop.alive() == []


# --- streamable HTTP -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def modern() -> Iterator[str]:
    command = [sys.executable, str(SERVERS / "modern.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


async def add_tool(url: str) -> None:
    request = Request(f"{url}/add", method="POST", headers={"x-key": "open-sesame"})
    with await anyio.to_thread.run_sync(urlopen, request) as answer:
        assert answer.status == 200


async def test_a_modern_server_over_http_is_followed_by_subscription(
    shop: Workshop, modern: str
) -> None:
    headers = {"x-key": "open-sesame"}
    shop.servers["web"] = {"url": f"{modern}/mcp", "headers": headers, "disabledTools": ["hidden"]}
    async with watching(shop) as event:
        first = await event()
        assert (first["event"], names(first)) == ("connected", ["echo"])
        assert first["instructions"] == "Speak up."
        await add_tool(modern)
        assert names(await event()) == ["echo", "late"]


async def test_a_server_that_wants_a_sign_in_is_skipped(shop: Workshop, modern: str) -> None:
    shop.servers["web"] = {"url": f"{modern}/mcp", "headers": {"x-key": "wrong-key-value"}}
    (outcome,) = await shop.sync()
    assert (outcome.state, outcome.reason) == ("skipped", "needs sign-in (HTTP 401)")
    assert "wrong-key" not in repr((outcome, shop.said))


# --- published servers ---------------------------------------------------------------------


async def installed(directory: Path, *command: str) -> None:
    result = await anyio.run_process(command, check=False, cwd=directory)
    if result.returncode:
        pytest.skip(f"not to be had here (offline?): {' '.join(command)}")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_published_python_servers_are_found(shop: Workshop) -> None:
    place = shop.home / "venv"
    await installed(shop.home, sys.executable, "-m", "venv", str(place))
    await installed(shop.home, f"{place}/bin/pip", "-q", "install", "mcp-server-time")
    await installed(shop.home, f"{place}/bin/pip", "-q", "install", "mcp-server-git")
    shop.servers["time"] = {"command": f"{place}/bin/mcp-server-time"}
    shop.servers["git"] = {"command": f"{place}/bin/mcp-server-git"}
    await check_found(shop, {"convert time between zones": "time::convert_time"})
    await check_found(shop, {"unstaged changes": "git::git_diff_unstaged"})


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_published_reference_server_is_found(shop: Workshop) -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    package = "@modelcontextprotocol/server-everything"
    await installed(shop.home, "npm", "install", "--silent", "--no-audit", package)
    program = shop.home / "node_modules" / package / "dist/index.js"
    shop.servers["everything"] = {"command": "node", "args": [str(program)]}
    await check_found(shop, {"echo a message": "everything::echo"})


async def check_found(shop: Workshop, questions: dict[str, str]) -> None:
    outcomes = await shop.sync()
    assert {outcome.state for outcome in outcomes} == {"connected"}, outcomes
    search = ToolSearch()
    for event in shop.events:
        search.apply(event)
    for question, id in questions.items():
        assert search.search(query=question)["tools"][0]["tool_id"] == id
