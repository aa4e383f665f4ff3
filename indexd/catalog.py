"""What every MCP server offers, as its connection events tell it.

`connected` and `tools_changed` replace a server's list whole; `disconnected` keeps it, marked
offline. An event is checked before anything changes, so that none leaves half a catalog.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from indexd.errors import BadRequest
from indexd.tool import Tool, from_record, parse_tools

EVENTS = ("connected", "tools_changed", "disconnected")
MAX_SERVER_NAME_CHARS = 256
MAX_INSTRUCTIONS_CHARS = 16_384
RECORD_VERSION = 1

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Server:
    """One server's tools by name, and its state; `problems` has a reason per dropped tool."""

    name: str
    tools: dict[str, Tool] = field(default_factory=dict)
    online: bool = False
    instructions: str = ""
    problems: list[str] = field(default_factory=list)

    def as_record(self) -> dict[str, Any]:
        """Return what the cache keeps of this server, in values that msgpack knows."""
        return {
            "version": RECORD_VERSION,
            "name": self.name,
            "online": self.online,
            "instructions": self.instructions,
            "problems": self.problems,
            "tools": [tool.as_record() for tool in self.tools.values()],
        }


class Change(NamedTuple):
    """What an event did: the ids of tools that came, changed and went."""

    server: str
    online: bool
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Catalog:
    """All servers by name."""

    def __init__(self, servers: Iterable[Server] = ()) -> None:
        self.servers: dict[str, Server] = {server.name: server for server in servers}

    def tools(self) -> Iterator[Tool]:
        """Yield every tool, ordered by server and name."""
        for _, server in sorted(self.servers.items()):
            for _, tool in sorted(server.tools.items()):
                yield tool

    def after(self, event: Mapping[str, Any]) -> tuple[Catalog, Change]:
        """Return what this catalog becomes by one connection event, and what that changes."""
        catalog = Catalog(self.servers.values())
        return catalog, catalog.apply(event)

    def apply(self, event: Mapping[str, Any]) -> Change:
        """Take one connection event and return what it changed.

        Raises BadRequest, naming the field, for a malformed event; nothing has changed then.
        """
        kind, name = _kind(event), _server_name(event)
        before = self.servers.get(name, Server(name))
        if kind == "disconnected":
            self.servers[name] = replace(before, online=False)
            return Change(name, online=False)
        after = _connected(event, before, kind)
        self.servers[name] = after
        return _difference(before, after)


def server_from_record(record: Mapping[str, Any]) -> Server:
    """Return the server that `Server.as_record` wrote.

    Raises BadRequest when the record is of another version or damaged; the caller forgets it.
    """
    try:
        if record["version"] != RECORD_VERSION:
            raise BadRequest(f"a server's record has version {record['version']!r}")
        name = str(record["name"])
        tools = {raw["name"]: from_record(name, raw) for raw in record["tools"]}
        problems = [str(problem) for problem in record["problems"]]
        return Server(name, tools, bool(record["online"]), record["instructions"], problems)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(f"a server's record is damaged ({type(error).__name__})") from error


def _kind(event: Mapping[str, Any]) -> str:
    kind = event.get("event")
    if kind not in EVENTS:
        raise BadRequest(f"event {kind!r} is unknown", f"one of {', '.join(EVENTS)}")
    return str(kind)


def _server_name(event: Mapping[str, Any]) -> str:
    name = event.get("server")
    if not isinstance(name, str) or not name.strip() or _CONTROL.search(name):
        raise BadRequest(f"server {name!r} is not a name", "give the server's configured name")
    if len(name) > MAX_SERVER_NAME_CHARS:
        raise BadRequest(f"server {name[:40]!r}... is over {MAX_SERVER_NAME_CHARS} characters")
    if "::" in f"{name}:":  # else a::b of c and b::c of a would have one id
        raise BadRequest(f"server {name!r} holds '::' or ends in ':'", "ids are server::tool")
    return name.encode("utf-8", "replace").decode()


def _connected(event: Mapping[str, Any], before: Server, kind: str) -> Server:
    raw_tools = event.get("tools")
    if not isinstance(raw_tools, list | tuple):
        raise BadRequest(
            f"tools of {before.name!r} is a {type(raw_tools).__name__}, not a list",
            f'"{kind}" carries the whole answer to tools/list, which may be an empty list',
        )
    instructions = event.get("instructions", before.instructions if kind != "connected" else "")
    if not isinstance(instructions, str | None):
        raise BadRequest(f"instructions of {before.name!r} is not a string")
    text = (instructions or "").encode("utf-8", "replace").decode()[:MAX_INSTRUCTIONS_CHARS]
    tools, problems = parse_tools(before.name, raw_tools, before.tools)
    return Server(before.name, {tool.name: tool for tool in tools}, True, text, problems)


def _difference(before: Server, after: Server) -> Change:
    old = {tool.id: tool.digest for tool in before.tools.values()}
    new = {tool.id: tool.digest for tool in after.tools.values()}
    return Change(
        after.name,
        after.online,
        added=tuple(id for id in new if id not in old),
        changed=tuple(id for id in new if id in old and old[id] != new[id]),
        removed=tuple(id for id in old if id not in new),
    )
