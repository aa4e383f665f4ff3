"""`indexctl mcp sync`, `servers` and `serve`, as processes, against a socket and real servers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peer import Peer, short_directory

from indexd.errors import BadRequest, IndexdError
from indexd.mcp_cli import import_sdk, main
from indexd.tool_search import ToolSearch

pytest.importorskip("mcp", reason="the MCP SDK is not installed (pip install 'indexd[mcp]')")

PROJECT = Path(__file__).parent.parent
ODD = PROJECT / "tests" / "mcp_servers" / "odd.py"
TOOLS = [
    {"name": "resize_image", "description": "Resize an image.", "inputSchema": {}},
    {"name": "broken", "inputSchema": 5},
]
HIT = {"rank": 1, "session_path": "/s.jsonl", "message_index": 3, "snippet": "we fixed it"}


class Place:
    """A home, a project, and a daemon's socket with real tool search behind it."""

    def __init__(self, home: Path, socket: Path) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        (home / "tools.json").write_text(json.dumps(TOOLS))
        self.tools = ToolSearch()
        self.search: list[dict[str, Any]] = []
        self.environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PROJECT),
            "INDEXD_SOCKET": str(socket),
            "INDEXD_CACHE_DIR": str(home / "cache"),
            "TOOLS": str(home / "tools.json"),
            "PID_FILE": str(home / "pids"),
        }

    def answers(self) -> dict[str, Any]:
        def kept(params: dict[str, Any]) -> Any:
            self.search.append(params)
            return {"hits": [HIT], "total": 1, "warnings": []}

        return {
            "status": lambda _: {"servers": self.tools.servers()},
            "mcp_event": answering(lambda **event: self.tools.apply(event) and {}),
            "tool_search": answering(self.tools.search),
            "search": kept,
            "history": lambda params: {"text": f"History of {params}"},
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "indexd.cli", "mcp", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=50,
        )

    def write(self, name: str, content: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path


def answering(method: Any) -> Any:
    def answer(params: dict[str, Any]) -> Any:
        try:
            return method(**params)
        except IndexdError as error:
            return error

    return answer


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with short_directory() as directory:
        place = Place(tmp_path, directory / "s")
        with Peer(str(directory / "s"), place.answers()):
            yield place


def entry(place: Place, **more: Any) -> dict[str, Any]:
    variables = {name: place.environment[name] for name in ("TOOLS", "PID_FILE")}
    return {"command": sys.executable, "args": [str(ODD)], "env": variables, **more}


def dialect(place: Place, client: str, name: str = "images", *words: str) -> tuple[str, str]:
    """Return where a client keeps its configuration, and one that holds a server `name`."""
    one = entry(place, args=[str(ODD), *words])
    servers = json.dumps({"mcpServers": {name: one}})
    toml = (
        f"[mcp_servers.{name}]\ncommand = {json.dumps(one['command'])}\n"
        f"args = {json.dumps(one['args'])}\n[mcp_servers.{name}.env]\n"
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in one["env"].items())
    )
    code = json.dumps({"servers": {name: {"type": "stdio", **one}}})
    return {
        "kiro": (".kiro/settings/mcp.json", servers),
        "claude": (".claude.json", servers),
        "cursor": (".cursor/mcp.json", servers),
        "vscode": (".config/Code/User/mcp.json", f"// mine\n{code}"),
        "codex": (".codex/config.toml", toml),
        "gemini": (".gemini/settings.json", servers),
    }[client]


def test_servers_configured_in_any_dialect_are_synced_and_found(place: Place) -> None:
    clients = ["kiro", "claude", "cursor", "vscode", "codex", "gemini"]
    for client in clients:
        place.write(*dialect(place, client, f"of_{client}", client))
    ran = place.run("sync", "--json")
    assert ran.returncode == 0
    outcomes = {o["client"]: o for o in json.loads(ran.stdout)["servers"]}
    assert {client: outcomes[client]["state"] for client in clients} == dict.fromkeys(
        clients, "connected"
    )
    steps = sorted(line.split()[1] for line in ran.stderr.splitlines())
    assert steps == [f"[{number}/6]" for number in range(1, 7)]
    found = place.tools.search(query="resize a picture", max_results=6)["tools"]
    assert {tool["tool_id"] for tool in found} == {f"of_{c}::resize_image" for c in clients}


def test_the_same_server_in_two_clients_is_synced_once(place: Place) -> None:
    for client in ("kiro", "cursor"):
        place.write(*dialect(place, client))
    ran = place.run("sync", "--json")
    states = [outcome["state"] for outcome in json.loads(ran.stdout)["servers"]]
    assert sorted(states) == ["connected", "skipped"]
    assert len((place.home / "pids").read_text().split()) == 1


def test_a_projects_servers_run_only_when_the_file_is_named(place: Place) -> None:
    path = place.write("work/.mcp.json", json.dumps({"mcpServers": {"images": entry(place)}}))
    ran = place.run("sync")
    assert ran.returncode == 1
    assert f"to use it run `indexctl mcp sync {path}`" in ran.stderr
    assert not (place.home / "pids").exists()
    assert place.run("sync", str(path)).returncode == 0
    assert (place.home / "pids").exists()


def test_nothing_configured_is_nothing_found_and_only_failures_are_an_error(place: Place) -> None:
    assert place.run("sync").returncode == 1
    path = place.write("a.json", '{"mcpServers": {"no": {"command": "no-such-command"}}}')
    assert place.run("sync", str(path)).returncode == 2
    assert place.tools.servers()["no"]["online"] is False
    ran = place.run("sync", str(place.home / "none.json"))
    assert ran.returncode == 2
    assert "no configuration file" in ran.stderr


def test_an_unreadable_file_costs_the_others_nothing(place: Place) -> None:
    place.write(".kiro/settings/mcp.json", "{broken")
    place.write(*dialect(place, "cursor"))
    ran = place.run("sync")
    assert ran.returncode == 0
    assert ".kiro/settings/mcp.json: not JSON at line 1" in ran.stderr


def test_servers_are_listed_with_their_state_and_what_was_dropped(place: Place) -> None:
    assert place.run("servers").returncode == 1
    place.write(*dialect(place, "kiro"))
    place.run("sync")
    ran = place.run("servers")
    assert ran.returncode == 0
    assert "images      1 tools  online\n" in ran.stdout
    assert "dropped: broken: inputSchema is a int" in ran.stdout
    as_json = json.loads(place.run("servers", "--json").stdout)
    assert as_json["servers"]["images"]["tools"] == 1


def test_a_watch_follows_until_it_is_ended_and_leaves_no_process(place: Place) -> None:
    place.write(*dialect(place, "kiro"))
    command = place.command("sync", "--watch", "--json")
    with (
        subprocess.Popen(
            command, cwd=place.work, env=place.environment, stdout=subprocess.PIPE, text=True
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stdout
        assert json.loads(process.stdout.readline())["tools"] == 2
        (place.home / "tools.json").write_text(json.dumps(TOOLS[:1]))
        pid = int((place.home / "pids").read_text())
        os.kill(pid, signal.SIGUSR1)
        assert json.loads(process.stdout.readline())["tools"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert not Path(f"/proc/{pid}").exists()
    assert place.tools.servers()["images"] == {"tools": 1, "online": True, "problems": []}


def test_what_to_install_is_said_when_the_sdk_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with pytest.raises(IndexdError) as error:
        import_sdk()
    assert error.value.hint == "install it with: pip install 'indexd[mcp]'"


def test_the_daemon_imports_no_sdk() -> None:
    code = "import sys, indexd.daemon, indexd.tool_search; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == 0


# --- serve ---------------------------------------------------------------------------------


def test_the_bytes_that_models_see_are_fixed() -> None:
    from indexd.mcp_serve import TOOLS, tools

    assert [tool.name for tool in tools()] == ["history", "session_search", "tool_search"]
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools())
    assert [t["inputSchema"] for t in json.loads(TOOLS)] == [t.input_schema for t in tools()]
    digest = hashlib.sha256(TOOLS.encode()).hexdigest()
    assert digest == "d7c2c1d384190c84f922cd4f2dd2dafdad1a1b2d73c7dc73dc538fa4e42b5d64"


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_agents_of_both_eras_search_through_it(place: Place, mode: str) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    place.tools.apply({"event": "connected", "server": "images", "tools": TOOLS})
    program, *words = place.command("serve")
    parameters = StdioServerParameters(
        command=program, args=words, env=place.environment, cwd=place.work
    )

    async with Client(stdio_client(parameters), mode=mode) as client:

        async def asked(name: str, **arguments: Any) -> tuple[str, bool]:
            result = await client.call_tool(name, arguments)
            return result.content[0].text, bool(result.is_error)

        offered = [tool.name for tool in (await client.list_tools()).tools]
        assert offered == ["history", "session_search", "tool_search"]
        text, failed = await asked("tool_search", query="resize a picture")
        assert not failed
        assert json.loads(text)["tools"][0]["signature"].startswith("resize_image(")
        text, _ = await asked("tool_search", tool_id="images.resizeImage")
        assert json.loads(text)["tools"][0]["input_schema"] == {}
        text, failed = await asked("tool_search", tool_id="images::resize_imag")
        assert failed
        assert "nearest: images::resize_image" in text
        text, _ = await asked("session_search", query="fixed", limit=3)
        assert json.loads(text)["hits"] == [HIT]
        assert place.search[-1] == {
            "project": str(place.work),
            "scope": "global",
            "query": "fixed",
            "limit": 3,
        }
        text, _ = await asked("history", operation="search", query="x")
        assert str(place.work) in text
        assert (await asked("history", bogus=1))[1]
        assert (await asked("nothing"))[1]


def test_an_unknown_action_is_an_error() -> None:
    with pytest.raises((SystemExit, BadRequest)):
        main(["dance"])
