"""The MCP servers that agents on this machine are configured to use, read from their files.

Six clients, six dialects (`mcp_dialects`), one result: a `ServerSpec` per server, or a reason
why it is left out. What is secret, or may be, is in no `repr` and in no message.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from indexd.errors import BadRequest, NotFound
from indexd.mcp_dialects import DIALECTS
from indexd.mcp_entry import Context, Entry, Refused, Settled

MAX_FILE_BYTES = 16 * 1024 * 1024
MIN_SECRET_CHARS = 6  # shorter values are words like `true` and `info`

_COMMENT_OR_TEXT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


class Source(NamedTuple):
    """One client's configuration file; a project's file may come from a stranger."""

    client: str
    path: Path
    project: bool = False


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How to reach one server, or why not (`skip`). Values that may be secret are not shown.

    `transport` is `stdio`, `http` or `sse`; `timeout_s` bounds connecting and listing. A tool
    is wanted when it is in `allowed` (None allows all) and not in `denied`.
    """

    name: str
    client: str
    path: str
    transport: str = "stdio"
    command: str = field(default="", repr=False)
    args: tuple[str, ...] = field(default=(), repr=False)
    cwd: str | None = field(default=None, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 60.0
    allowed: frozenset[str] | None = None
    denied: frozenset[str] = frozenset()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    skip: str = ""

    @property
    def endpoint(self) -> tuple[str, ...]:
        """What is reached: equal for the same server under another name or in another file."""
        return (self.url,) if self.url else (self.command, *self.args)

    def wants(self, tool: str) -> bool:
        """Say whether the client shows this tool to its model."""
        return tool not in self.denied and (self.allowed is None or tool in self.allowed)

    def mask(self, text: str) -> str:
        """Return `text` with every value that may be secret replaced by `***`."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def find_files(context: Context) -> list[Source]:
    """Return the configuration files that exist, a project's before the user's own.

    In the home directory, what looks like a project's file is the user's own.
    """
    found = []
    for client, dialect in DIALECTS.items():
        places = dialect.places(context)
        own = {path.resolve() for path, project in places if not project}
        for path, project in places:
            if path.is_file() and not (project and path.resolve() in own):
                found.append(Source(client, path, project))
    return sorted(found, key=lambda source: not source.project)


def named_file(path: Path) -> Source:
    """Return the source for a file the user names; its place or its keys tell the client.

    Raises NotFound for a file that is not there, BadRequest for one without servers.
    """
    if not path.is_file():
        raise NotFound(f"no configuration file {str(path)!r}", "name a client's MCP file")
    places = {part for part in path.absolute().parts if part.startswith(".")}
    by_place = [name for name, dialect in DIALECTS.items() if places & dialect.directories]
    if by_place:
        return Source(by_place[0], path)
    data = load(path)
    for name, dialect in DIALECTS.items():
        if dialect.key in data:
            return Source(name, path)
    keys = sorted({dialect.key for dialect in DIALECTS.values()})
    raise BadRequest(f"{path}: none of the keys {', '.join(keys)}", "name a client's MCP file")


def read(source: Source, context: Context, *, trusted: bool = False) -> list[ServerSpec]:
    """Return the servers of one file in its order; a bad entry is left out with the reason.

    A project's file is the project's word, not the user's: unless `trusted`, its servers are
    skipped where the client has no record that the user approved them. Raises BadRequest,
    naming file and key, when the file as a whole cannot be read.
    """
    dialect = DIALECTS[source.client]
    data = load(source.path)
    specs = []
    for key, servers in dialect.tables(data, context):
        if not isinstance(servers, Mapping):
            raise BadRequest(f"{source.path}: {key} is not a map of servers")
        for name, raw in servers.items():
            entry = Entry(str(source.path), f"{key}.{name}", name, raw, data)
            specs.append(_spec(source, entry, context))
    if source.project and not trusted:
        specs = [_approved(spec, source, context) for spec in specs]
    return specs


def once(specs: Iterable[ServerSpec]) -> list[ServerSpec]:
    """Return `specs` with each server once: the first to have an endpoint, or a name, keeps it.

    Two entries of one file with one endpoint are two accounts of it, and both stay.
    """
    endpoints: dict[tuple[str, ...], ServerSpec] = {}
    names: dict[str, ServerSpec] = {}
    result = []
    for spec in specs:
        same = endpoints.get(spec.endpoint)
        if not spec.skip and same and same.path != spec.path:
            spec = replace(spec, skip=f"the same server as {same.name!r} in {same.path}")
        elif not spec.skip and spec.name in names:
            spec = replace(spec, skip=f"another server has this name in {names[spec.name].path}")
        if not spec.skip:
            endpoints.setdefault(spec.endpoint, spec)
            names[spec.name] = spec
        result.append(spec)
    return result


def load(path: Path) -> dict[str, Any]:
    """Return a configuration file's content: TOML by its suffix, else JSON with comments.

    Raises BadRequest naming the file, and the line where it is not well formed.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise BadRequest(f"{path}: over {MAX_FILE_BYTES} bytes")
        text = data.decode("utf-8-sig")
        content = tomllib.loads(text) if path.suffix == ".toml" else _jsonc(text)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{path}: not UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{path}: not TOML: {error}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise BadRequest(f"{path}: not JSON at {where}: {error.msg}") from error
    if not isinstance(content, dict):
        raise BadRequest(f"{path}: holds a {type(content).__name__}, not a map")
    return content


def _jsonc(text: str) -> Any:
    """Return JSON with comments and trailing commas, as editors' settings have them."""
    bare = _COMMENT_OR_TEXT.sub(lambda m: m[0] if m[0][0] == '"' else _blank(m[0]), text)
    return json.loads(_TRAILING_COMMA.sub(lambda m: m[1] or " ", bare) or "{}")


def _blank(comment: str) -> str:
    # Line and column of a later mistake stay right.
    return "".join(c if c == "\n" else " " for c in comment)


def _spec(source: Source, entry: Entry, context: Context) -> ServerSpec:
    bare = ServerSpec(entry.name, source.client, str(source.path))
    try:
        settled = DIALECTS[source.client].settle(entry, context)
    except Refused as refusal:
        return replace(bare, skip=refusal.reason)
    fields = settled._asdict()
    del fields["configured"]
    return replace(bare, **fields, secrets=_secrets(settled))


def _secrets(settled: Settled) -> frozenset[str]:
    """Return every value that a message could betray: of the environment, of headers, of
    options on the command line, and what variables put anywhere."""
    options = [value for i, value in enumerate(settled.args) if _follows_option(settled.args, i)]
    assigned = [value.partition("=")[2] for value in settled.args]
    bearer = [value.rpartition(" ")[2] for value in settled.headers.values()]
    path = settled.url.partition("//")[2].partition("/")[2]
    values = [*settled.configured, *settled.headers.values(), *options, *assigned, *bearer, path]
    return frozenset(value for value in values if len(value) >= MIN_SECRET_CHARS)


def _follows_option(args: Sequence[str], position: int) -> bool:
    return position > 0 and args[position - 1].startswith("--") and "=" not in args[position - 1]


def _approved(spec: ServerSpec, source: Source, context: Context) -> ServerSpec:
    if spec.skip or DIALECTS[source.client].approved(spec.name, source.path, context):
        return spec
    reason = f"a project's file; to use it run `indexctl mcp sync {source.path}`"
    return replace(spec, skip=reason)
