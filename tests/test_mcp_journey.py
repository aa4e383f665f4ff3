"""From a client's configuration to an answer: published servers, a real daemon, real commands.

Slow: packages are installed from their registries; without those the tests skip and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the MCP SDK is not installed (pip install 'indexd[mcp]')")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVERYTHING = "@modelcontextprotocol/server-everything"
NOTHING_OF = ("XDG_", "INDEXD_", "CLAUDE", "CODEX", "KIRO")


def installed(directory: Path, *command: str) -> None:
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"not to be had here (offline?): {' '.join(command)}")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The commands of three published servers."""
    place = tmp_path_factory.mktemp("published")
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    installed(place, sys.executable, "-m", "venv", str(place))
    installed(place, f"{place}/bin/pip", "-q", "install", "mcp-server-time", "mcp-server-git")
    installed(place, "npm", "install", "--silent", "--no-audit", EVERYTHING)
    return {
        "time": [f"{place}/bin/mcp-server-time"],
        "git": [f"{place}/bin/mcp-server-git"],
        "everything": ["node", f"{place}/node_modules/{EVERYTHING}/dist/index.js"],
    }


class Home:
    """A home directory, and the commands as a person runs them there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = {k: v for k, v in os.environ.items() if not k.startswith(NOTHING_OF)}
        self.environment = {**kept, "HOME": str(path), "PYTHONPATH": str(Path(__file__).parents[1])}

    def write(self, name: str, content: str | dict[str, Any]) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content))

    def run(self, *words: str) -> Any:
        command = [sys.executable, "-m", "indexd.cli", *words, "--json"]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        # A sync of which nothing came of is an error, and says of each server why.
        assert done.returncode in ((0, 2) if words == ("mcp", "sync") else (0,)), done.stderr
        return json.loads(done.stdout)

    def synced(self) -> dict[str, str]:
        return {one["server"]: one["state"] for one in self.run("mcp", "sync")["servers"]}

    def found(self, *words: str) -> list[tuple[str, bool]]:
        return [(tool["tool_id"], tool["online"]) for tool in self.run("tools", *words)["tools"]]


@pytest.fixture
def home() -> Iterator[Home]:
    path = Path(tempfile.mkdtemp(prefix="mcp"))
    home = Home(path)
    yield home
    subprocess.run(
        [sys.executable, "-m", "indexd.cli", "stop"],
        env=home.environment,
        capture_output=True,
        timeout=60,
    )
    shutil.rmtree(path)


def configure(home: Home, client: str, name: str, command: list[str]) -> None:
    """Write a client's configuration with one server."""
    program, *args = command
    entry = {"command": program, "args": args}
    toml = f"[mcp_servers.{name}]\ncommand = {json.dumps(program)}\nargs = {json.dumps(args)}\n"
    places: dict[str, tuple[str, str | dict[str, Any]]] = {
        "kiro": (".kiro/settings/mcp.json", {"mcpServers": {name: entry}}),
        "claude": (".claude.json", {"mcpServers": {name: entry}}),
        "cursor": (".cursor/mcp.json", {"mcpServers": {name: entry}}),
        "vscode": (".config/Code/User/mcp.json", {"servers": {name: {"type": "stdio", **entry}}}),
        "codex": (".codex/config.toml", toml),
        "gemini": (".gemini/settings.json", {"mcpServers": {name: entry}}),
    }
    home.write(*places[client])


QUESTIONS = {
    "time": ("convert a time between time zones", "convert_time"),
    "git": ("show unstaged changes", "git_diff_unstaged"),
    "everything": ("echo a message back", "echo"),
}


@pytest.mark.parametrize("client", ["kiro", "claude", "cursor", "vscode", "codex", "gemini"])
def test_a_published_server_is_configured_synced_found_changed_and_lost(
    home: Home, published: dict[str, list[str]], client: str
) -> None:
    configure(home, client, "clock", [*published["time"], "--local-timezone=Asia/Tokyo"])
    assert home.synced() == {"clock": "connected"}
    assert home.found("convert a time between zones")[0] == ("clock::convert_time", True)
    before = home.run("tools", "--id", "clock::convert_time", "--detail", "full")["tools"][0]
    assert "Asia/Tokyo" in json.dumps(before["input_schema"])

    configure(home, client, "clock", [*published["time"], "--local-timezone=America/Lima"])
    assert home.synced() == {"clock": "connected"}
    after = home.run("tools", "--id", "clock::convert_time", "--detail", "full")["tools"][0]
    assert "America/Lima" in json.dumps(after["input_schema"])

    configure(home, client, "clock", [str(home.path / "gone")])
    assert home.synced() == {"clock": "failed"}
    assert home.found("convert a time between zones")[0] == ("clock::convert_time", False)


def test_servers_of_several_clients_are_found_together_and_after_a_restart(
    home: Home, published: dict[str, list[str]]
) -> None:
    for client, (name, command) in zip(["kiro", "codex", "vscode"], published.items(), strict=True):
        configure(home, client, name, command)
    assert set(home.synced().values()) == {"connected"}
    for directory in (".kiro", ".codex", ".config/Code"):
        shutil.rmtree(home.path / directory)
    subprocess.run([sys.executable, "-m", "indexd.cli", "stop"], env=home.environment, check=True)

    for server, (question, tool) in QUESTIONS.items():
        assert home.found(question)[0] == (f"{server}::{tool}", True)
    for one in ("time", "git", "everything"):
        assert home.run("status")["servers"][one]["tools"] >= 2
