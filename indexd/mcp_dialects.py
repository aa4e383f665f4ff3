"""How each client writes down its MCP servers: where, under which key, with which rules.

A dialect settles one entry into the fields of a `ServerSpec`, or refuses it with the reason:
switched off, malformed, or in need of a person (a prompt, a sign-in).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from indexd.mcp_entry import (
    CREDENTIAL,
    DEFAULT_TIMEOUT_S,
    Context,
    Dialect,
    Entry,
    Place,
    Refused,
    fill_braces,
    variable,
)

_GEMINI = re.compile(r"\$\{(\w+)\}|\$(\w+)|%(\w+)%")
_CODEX_KEEPS = frozenset({
    "HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ",
    "__CF_USER_TEXT_ENCODING",
})  # fmt: skip


class Kiro(Dialect):
    """Kiro: `${VAR}` and `${env:VAR}`."""

    directories = frozenset({".kiro"})
    deny_field = "disabledTools"

    def places(self, context: Context) -> list[Place]:
        """The workspace's file and the user's; KIRO_HOME moves the latter."""
        home = Path(context.environment.get("KIRO_HOME") or context.home / ".kiro")
        project = context.workspace / ".kiro/settings/mcp.json"
        return [(project, True), (home / "settings/mcp.json", False)]

    def expand(self, text: str, context: Context) -> str:
        """Fill in `${VAR}` and `${env:VAR}`."""
        return fill_braces(text, lambda body: variable(body.removeprefix("env:"), context))


class Claude(Dialect):
    """Claude Code: user and local servers in one file, the project's beside the code."""

    directories = frozenset({".claude.json", ".mcp.json", ".claude"})

    def places(self, context: Context) -> list[Place]:
        """The project's file, the user's (CLAUDE_CONFIG_DIR moves it), the machine's."""
        home = Path(context.environment.get("CLAUDE_CONFIG_DIR") or context.home)
        managed = Path("/etc/claude-code/managed-mcp.json")
        project = context.workspace / ".mcp.json"
        return [(project, True), (home / ".claude.json", False), (managed, False)]

    def tables(self, data: Mapping[str, Any], context: Context) -> Iterable[tuple[str, Any]]:
        """The servers local to this project, then the user's."""
        local = _project_of(data, context).get(self.key)
        if local is not None:
            yield f"projects[{context.workspace}].{self.key}", local
        yield from super().tables(data, context)

    def approved(self, name: str, path: Path, context: Context) -> bool:
        """What the user answered when asked about the project's servers."""
        home = Path(context.environment.get("CLAUDE_CONFIG_DIR") or context.home)
        user = Path(context.environment.get("CLAUDE_CONFIG_DIR") or context.home / ".claude")
        settings = _quietly(user / "settings.json")
        local = _quietly(context.workspace / ".claude/settings.local.json")
        answers = [settings, local, _project_of(_quietly(home / ".claude.json"), context)]
        if any(name in _names(answer, "disabledMcpjsonServers") for answer in answers):
            return False
        return any(
            answer.get("enableAllProjectMcpServers") is True
            or name in _names(answer, "enabledMcpjsonServers")
            for answer in answers
        )

    def refuse(self, entry: Entry, context: Context) -> None:
        """Also what needs a helper command, and what the user switched off for this project."""
        super().refuse(entry, context)
        if entry.name in _names(_project_of(entry.file, context), "disabledMcpServers"):
            raise Refused("disabled for this project")
        if entry.get("headersHelper", str):
            raise Refused("needs its headersHelper command to sign in")

    def expand(self, text: str, context: Context) -> str:
        """Fill in `${VAR}` and `${VAR:-default}`."""

        def fill(body: str) -> str:
            name, has_default, default = body.partition(":-")
            value = context.environment.get(name)
            return default if has_default and not value else variable(name, context)

        return fill_braces(text, fill)

    def timeout_s(self, entry: Entry, context: Context) -> float:
        """MCP_TIMEOUT in milliseconds, for every server."""
        given = context.environment.get("MCP_TIMEOUT", "")
        return int(given) / 1000 if given.isdigit() and int(given) else DEFAULT_TIMEOUT_S


class Cursor(Dialect):
    """Cursor: `${env:NAME}` and the editor's own places."""

    directories = frozenset({".cursor"})

    def places(self, context: Context) -> list[Place]:
        """The workspace's file and the user's."""
        return [
            (context.workspace / ".cursor/mcp.json", True),
            (context.home / ".cursor/mcp.json", False),
        ]

    def refuse(self, entry: Entry, context: Context) -> None:
        """Also what signs in."""
        super().refuse(entry, context)
        if entry.get("auth", Mapping) is not None:
            raise Refused("needs sign-in (auth)")

    def expand(self, text: str, context: Context) -> str:
        """Fill in variables and places; what only the editor knows is refused."""
        places = {
            "userHome": str(context.home),
            "workspaceFolder": str(context.workspace),
            "workspaceFolderBasename": context.workspace.name,
            "pathSeparator": "/",
            "/": "/",
        }

        def fill(body: str) -> str:
            kind, _, name = body.partition(":")
            if kind == "env":
                return variable(name, context)
            if kind == "input":
                raise Refused(f"needs interaction: it asks for {name!r}")
            if body not in places:
                raise Refused(f"needs its editor to fill in ${{{body}}}")
            return places[body]

        return fill_braces(text, fill)


class VSCode(Cursor):
    """VS Code: `servers`, with `inputs` that are asked for."""

    key = "servers"
    directories = frozenset({".vscode"})

    def places(self, context: Context) -> list[Place]:
        """The workspace's file and the user profile's."""
        config = context.environment.get("XDG_CONFIG_HOME") or context.home / ".config"
        return [
            (context.workspace / ".vscode/mcp.json", True),
            (Path(config) / "Code/User/mcp.json", False),
        ]


class Codex(Dialect):
    """Codex: TOML, no variables; it forwards the variables that are listed."""

    key = "mcp_servers"
    directories = frozenset({".codex"})
    allow_field = "enabled_tools"
    deny_field = "disabled_tools"

    def places(self, context: Context) -> list[Place]:
        """The project's file and the user's; CODEX_HOME moves the latter."""
        return [
            (context.workspace / ".codex/config.toml", True),
            (_codex_home(context) / "config.toml", False),
        ]

    def approved(self, name: str, path: Path, context: Context) -> bool:
        """Whether the user trusts the project."""
        user = _quietly(_codex_home(context) / "config.toml")
        return _project_of(user, context).get("trust_level") == "trusted"

    def refuse(self, entry: Entry, context: Context) -> None:
        """Switched off, mixed transports, or a sign-in."""
        super().refuse(entry, context)
        if not entry.get("enabled", bool, True):
            raise Refused("disabled")
        if entry.get("url", str) and entry.get("command", str):
            raise Refused(f"{entry.path}: {entry.key} has both command and url")

    def inherited(self, entry: Entry, context: Context) -> dict[str, str]:
        """A short list of variables, and those of `env_vars`."""
        named = [
            v["name"] if isinstance(v, Mapping) else v for v in entry.get("env_vars", list, [])
        ]
        wanted = _CODEX_KEEPS | {name for name in named if isinstance(name, str)}
        return {key: value for key, value in context.environment.items() if key in wanted}

    def headers_of(self, entry: Entry, context: Context) -> dict[str, str]:
        """`http_headers`, those named by variables, and a bearer token."""
        headers = entry.table("http_headers")
        for header, name in entry.table("env_http_headers").items():
            headers[header] = variable(name, context)
        bearer = entry.get("bearer_token_env_var", str, "")
        if bearer:
            headers["Authorization"] = f"Bearer {variable(bearer, context)}"
        return headers

    def timeout_s(self, entry: Entry, context: Context) -> float:
        """`startup_timeout_sec`, or `startup_timeout_ms`."""
        milliseconds = entry.get("startup_timeout_ms", (int, float), 0)
        seconds = entry.get("startup_timeout_sec", (int, float), milliseconds / 1000)
        return seconds or DEFAULT_TIMEOUT_S


class Gemini(Dialect):
    """Gemini CLI: `url` is SSE, `httpUrl` streamable; lists of servers allowed and excluded."""

    directories = frozenset({".gemini"})
    allow_field = "includeTools"
    deny_field = "excludeTools"

    def places(self, context: Context) -> list[Place]:
        """The project's file and the user's."""
        return [
            (context.workspace / ".gemini/settings.json", True),
            (context.home / ".gemini/settings.json", False),
        ]

    def refuse(self, entry: Entry, context: Context) -> None:
        """Also what the `mcp` part of the file leaves out."""
        super().refuse(entry, context)
        rules = entry.file.get("mcp")
        rules = rules if isinstance(rules, Mapping) else {}
        allowed = _names(rules, "allowed")
        if entry.name in _names(rules, "excluded") or (allowed and entry.name not in allowed):
            raise Refused("disabled by mcp.allowed or mcp.excluded")

    def url_of(self, entry: Entry) -> tuple[str, str]:
        """`httpUrl` before `url`, which is SSE unless `type` says http."""
        streamable = entry.get("httpUrl", str, "")
        url = streamable or entry.get("url", str, "")
        kind = "http" if streamable or entry.get("type", str) == "http" else "sse"
        return (url, kind) if url else ("", "stdio")

    def expand(self, text: str, context: Context) -> str:
        """Fill in `$VAR`, `${VAR}` and `%VAR%`; one that is not set is empty."""
        return _GEMINI.sub(
            lambda match: context.environment.get(match[1] or match[2] or match[3], ""), text
        )

    def inherited(self, entry: Entry, context: Context) -> dict[str, str]:
        """Everything but what looks like a credential."""
        return {k: v for k, v in context.environment.items() if not CREDENTIAL.search(k)}


DIALECTS: dict[str, Dialect] = {
    "kiro": Kiro(),
    "claude": Claude(),
    "cursor": Cursor(),
    "vscode": VSCode(),
    "codex": Codex(),
    "gemini": Gemini(),
}


def _codex_home(context: Context) -> Path:
    return Path(context.environment.get("CODEX_HOME") or context.home / ".codex")


def _project_of(data: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    projects = data.get("projects")
    project = projects.get(str(context.workspace)) if isinstance(projects, Mapping) else None
    return project if isinstance(project, Mapping) else {}


def _names(data: Mapping[str, Any], key: str) -> frozenset[str]:
    values = data.get(key)
    return (
        frozenset(v for v in values if isinstance(v, str))
        if isinstance(values, list)
        else (frozenset())
    )


def _quietly(path: Path) -> Mapping[str, Any]:
    """Return a settings file's content, or nothing when it is not there or not readable."""
    try:
        text = path.read_text("utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, Mapping) else {}
