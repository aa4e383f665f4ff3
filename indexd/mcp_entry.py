"""One server's entry in a client's configuration file, and what all dialects do with it.

A field of the wrong type refuses the entry, naming file and key and never the value: values
may be secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

DEFAULT_TIMEOUT_S = 60.0  # a first start may download the server
MAX_TIMEOUT_S = 600.0
CREDENTIAL = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|PRIVATE|CERT", re.I)

_BRACED = re.compile(r"\$\{([^}]*)\}")
Place = tuple[Path, bool]


class Context(NamedTuple):
    """Whose configuration is read, and for which project."""

    home: Path
    workspace: Path
    environment: Mapping[str, str]


class Refused(Exception):
    """Why an entry is left out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Settled(NamedTuple):
    """An entry's fields, variables filled in.

    `configured` are the values that the file or a variable put there: what may be secret.
    """

    transport: str
    command: str
    args: tuple[str, ...]
    cwd: str | None
    environment: Mapping[str, str]
    url: str
    headers: Mapping[str, str]
    timeout_s: float
    allowed: frozenset[str] | None
    denied: frozenset[str]
    configured: tuple[str, ...]


class Entry(NamedTuple):
    """One server as the file has it; `file` is the file's whole content."""

    path: str
    key: str
    name: str
    raw: Any
    file: Mapping[str, Any]

    def get(self, field: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Return a field's value; Refused, naming file and key, when it is of another type."""
        if not isinstance(self.raw, Mapping):
            raise Refused(f"{self.path}: {self.key} is not a map")
        value = self.raw.get(field)
        if value is None:
            return default
        wrong_flag = isinstance(value, bool) and kind is not bool
        if not isinstance(value, kind) or wrong_flag:
            raise Refused(f"{self.path}: {self.key}.{field} is a {type(value).__name__}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self.get(field, list, [])
        for value in values:
            if not isinstance(value, str):
                raise Refused(f"{self.path}: {self.key}.{field} holds a {type(value).__name__}")
        return tuple(values)

    def table(self, field: str) -> dict[str, str]:
        """Return a map of strings; numbers and flags become text, as clients have it."""
        result = {}
        for key, value in self.get(field, Mapping, {}).items():
            if not isinstance(value, str | int | float | bool):
                raise Refused(f"{self.path}: {self.key}.{field}.{key} is not a string")
            result[key] = json.dumps(value) if not isinstance(value, str) else value
        return result


class Dialect:
    """A client with `mcpServers` in JSON; subclasses override what differs."""

    key = "mcpServers"
    directories: frozenset[str] = frozenset()
    timeout_ms_field = "timeout"
    allow_field = ""
    deny_field = ""

    def places(self, context: Context) -> list[Place]:
        """Return where the client keeps its files, and whether each belongs to a project."""
        raise NotImplementedError

    def tables(self, data: Mapping[str, Any], context: Context) -> Iterable[tuple[str, Any]]:
        """Return the maps of servers in a file, each with its key."""
        return [(self.key, data[self.key])] if self.key in data else []

    def approved(self, name: str, path: Path, context: Context) -> bool:
        """Say whether the user has approved this server of a project's file."""
        return False

    def refuse(self, entry: Entry, context: Context) -> None:
        """Raise Refused for an entry that is switched off or needs a person."""
        if entry.get("disabled", bool, False):
            raise Refused("disabled")
        if entry.get("oauth", Mapping) is not None:
            raise Refused("needs sign-in (oauth)")

    def expand(self, text: str, context: Context) -> str:
        """Return `text` with variables filled in; Refused for one that is not set."""
        return text

    def inherited(self, entry: Entry, context: Context) -> dict[str, str]:
        """Return what the server's process gets of our environment."""
        return dict(context.environment)

    def url_of(self, entry: Entry) -> tuple[str, str]:
        """Return the address and its transport; empty for a local process."""
        url = entry.get("url", str, "")
        kind = entry.get("type", str, "http" if url else "stdio")
        kinds = {"stdio": "stdio", "local": "stdio", "sse": "sse", "http": "http"}
        kinds |= {"streamable-http": "http", "streamableHttp": "http", "streamable_http": "http"}
        if kind not in kinds:
            raise Refused(f"{entry.path}: {entry.key}.type {kind!r} is not supported")
        if kinds[kind] == "stdio":
            return "", "stdio"
        if not url:
            raise Refused(f"{entry.path}: {entry.key}.url is missing")
        return url, kinds[kind]

    def headers_of(self, entry: Entry, context: Context) -> dict[str, str]:
        """Return the headers, before variables are filled in."""
        return entry.table("headers")

    def timeout_s(self, entry: Entry, context: Context) -> float:
        """Return the time that connecting may take, in seconds."""
        milliseconds = entry.get(self.timeout_ms_field, (int, float), 0)
        return milliseconds / 1000 or DEFAULT_TIMEOUT_S

    def settle(self, entry: Entry, context: Context) -> Settled:
        """Return an entry's fields; Refused, with the reason, when it is left out."""
        self.refuse(entry, context)
        filled: list[str] = []

        def expand(text: str) -> str:
            result = self.expand(text, context)
            if result != text:
                filled.append(result)
            return result

        url, transport = self.url_of(entry)
        command = entry.get("command", str, "")
        if not url and not command:
            raise Refused(f"{entry.path}: {entry.key} has neither command nor url")
        url = expand(url)
        if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise Refused(f"{entry.path}: {entry.key}.url is not an http address")
        own = {**self._env_file(entry, context), **entry.table("env")}
        own = {key: expand(value) for key, value in own.items()}
        headers = {k: expand(v) for k, v in self.headers_of(entry, context).items()} if url else {}
        cwd = entry.get("cwd", str)
        return Settled(
            transport=transport,
            command=expand(command),
            args=tuple(map(expand, entry.texts("args"))),
            cwd=expand(cwd) if cwd else None,
            environment={**self.inherited(entry, context), **own} if not url else {},
            url=url,
            headers=headers,
            timeout_s=min(self.timeout_s(entry, context), MAX_TIMEOUT_S),
            allowed=self._allowed(entry),
            denied=frozenset(entry.texts(self.deny_field)) if self.deny_field else frozenset(),
            configured=(*own.values(), *filled, *_credentials(context.environment)),
        )

    def _allowed(self, entry: Entry) -> frozenset[str] | None:
        listed = self.allow_field and entry.get(self.allow_field, list) is not None
        return frozenset(entry.texts(self.allow_field)) if listed else None

    def _env_file(self, entry: Entry, context: Context) -> dict[str, str]:
        path = entry.get("envFile", str, "")
        if not path:
            return {}
        try:
            text = (context.workspace / self.expand(path, context)).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"{entry.path}: {entry.key}.envFile cannot be read") from error
        lines = [line.removeprefix("export ").strip() for line in text.splitlines()]
        pairs = [line.partition("=") for line in lines if "=" in line and line[0] != "#"]
        return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def fill_braces(text: str, fill: Callable[[str], str]) -> str:
    """Return `text` with the body of every `${...}` replaced by what `fill` makes of it."""
    return _BRACED.sub(lambda match: fill(match[1]), text)


def variable(name: str, context: Context) -> str:
    """Return an environment variable; Refused when it is not set."""
    value = context.environment.get(name)
    if value is None:
        raise Refused(f"the variable {name} is not set")
    return value


def _credentials(environment: Mapping[str, str]) -> list[str]:
    return [value for key, value in environment.items() if CREDENTIAL.search(key)]
