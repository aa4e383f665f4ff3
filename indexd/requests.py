"""What each method may be asked: its parameters, their bounds and defaults.

One struct per method says it all; `convert` checks a map from the wire against it, once, so that
nothing behind it has to. Every error names the parameter, the value and what is allowed instead.
A parameter that is null counts as not given.
"""

from __future__ import annotations

import difflib
import functools
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from indexd.errors import BadRequest
from indexd.fields import (
    CopiesShown,
    Detail,
    Event,
    Flag,
    Group,
    Index,
    Limit,
    Nearby,
    Offset,
    OptionalDays,
    OptionalIndex,
    OptionalResults,
    OptionalText,
    OptionalTokens,
    OptionalTools,
    OptionalWhole,
    Order,
    Place,
    Role,
    Scope,
    Source,
    Subagents,
    Text,
    Time,
    Tokens,
    Versions,
    Whole,
)
from indexd.model import DEFAULT_KINDS, KINDS, Kind
from indexd.moment import moment

# Whatever fits a request's frame may be asked.
MAX_QUERY_CHARS = 64 * 1024
# An agent's `history` call is bounded more tightly than a person's: it pays for what it reads.
HISTORY_LIMIT, HISTORY_LIMIT_MAX = 8, 20
HISTORY_AROUND, HISTORY_AROUND_MAX = 3, 10


class Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """The parameters of one method; without fields, it takes none."""

    # Whether others may add fields of their own and spell keys as they like.
    lenient: ClassVar[bool] = False


class Hello(Request):
    """`hello`: the first request; `protocol` is the lowest and highest version the client has."""

    lenient: ClassVar[bool] = True

    protocol: Versions
    client: OptionalText = None


class Filters(Request, kw_only=True):
    """Which sessions a request is about, and when; times are unix milliseconds, inclusive."""

    scope: Scope = "global"
    project: OptionalText = None
    session_dir: OptionalText = None
    agent: OptionalText = None
    session: OptionalText = None
    subagents: Subagents = "include"
    source: Source = None
    since: int | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        if self.scope == "project" and not (self.project or self.session_dir):
            raise BadRequest(
                'scope "project" needs project or session_dir',
                'name the project\'s directory, or ask with scope "global"',
            )
        if self.since is not None and self.until is not None and self.since > self.until:
            raise BadRequest("since is later than until", "swap them, or leave one out")


class Search(Filters, kw_only=True):
    """`search`: the documents of the sessions that match best."""

    query: Text
    kinds: tuple[Kind, ...] = DEFAULT_KINDS
    role: Role = None
    tool_name: OptionalText = None
    literal: Flag = False
    limit: Limit = 8
    offset: Offset = 0
    generation: OptionalWhole = None
    order: Order = "relevance"
    recency: OptionalDays = None
    group: Group = None
    copies: CopiesShown = None
    sync: Flag = True
    reveal: Flag = False

    def __post_init__(self) -> None:
        _check_query(self.query)
        super().__post_init__()


class Around(Request):
    """`around`: the messages before and after one message of a session.

    The message is the one at `message_index`, or the one that `at` means: the "start" or "end" of
    the session, or the first since a time.
    """

    session_path: Text
    message_index: OptionalIndex = None
    at: Place = None
    before: Nearby = 3
    after: Nearby = 3
    full: Flag = False
    reasoning: Flag = False
    reveal: Flag = False

    def __post_init__(self) -> None:
        if (self.message_index is None) == (self.at is None):
            missing = "is missing" if self.at is None else "and at are both given"
            raise BadRequest(f"message_index {missing}", "give one of message_index and at")


class Show(Request):
    """`show`: a whole session, a page at a time; `first` is a message_index."""

    session_path: Text
    first: Index = 0
    limit: Limit = 50
    reasoning: Flag = False
    reveal: Flag = False


class Sessions(Filters, kw_only=True):
    """`sessions`: which sessions there are, the latest first."""

    limit: Limit = 20
    offset: Offset = 0
    sync: Flag = True
    reveal: Flag = False

    def __post_init__(self) -> None:
        if self.project or self.session_dir:
            self.scope = "project"
        super().__post_init__()


class History(Request):
    """`history`: the call of the tool of that name, as agents send it; errors are in its words.

    `kind` holds the kinds asked for; `limit`, `before` and `after` are within their bounds.
    """

    lenient: ClassVar[bool] = True

    operation: Text = ""
    query: Text = ""
    scope: Text = ""
    kind: tuple[Kind, ...] = DEFAULT_KINDS
    limit: Whole = 0
    tool_name: Text = ""
    session_dir: Text = ""
    project: Text = ""
    session_path: Text = ""
    message_index: OptionalWhole = None
    before: Whole = 0
    after: Whole = 0

    def __post_init__(self) -> None:
        self.operation = self.operation.strip()
        self.scope = self.scope.strip() or "project"
        self.limit = _clamped(self.limit, HISTORY_LIMIT, HISTORY_LIMIT_MAX)
        self.before = _clamped(self.before, HISTORY_AROUND, HISTORY_AROUND_MAX)
        self.after = _clamped(self.after, HISTORY_AROUND, HISTORY_AROUND_MAX)
        if not self.operation:
            raise BadRequest("operation is required", '"search" or "around"')
        check = {"search": self._check_search, "around": self._check_around}.get(self.operation)
        if check is None:
            raise BadRequest(f"unknown operation {shown(self.operation)}", '"search" or "around"')
        check()

    def _check_search(self) -> None:
        if not self.query.strip():
            raise BadRequest("query is required", "say what to look for")
        _check_query(self.query)
        if self.scope not in ("project", "global"):
            raise BadRequest('scope must be "project" or "global"', f"not {shown(self.scope)}")

    def _check_around(self) -> None:
        hint = "take both session_path and message_index from a search result"
        if self.message_index is None:
            raise BadRequest("message_index is required for operation=around", hint)
        if not self.session_path.strip():
            raise BadRequest("session_path is required", hint)
        if self.message_index < 0:
            raise BadRequest("message_index must be non-negative", hint)


class ToolSearch(Request):
    """`tool_search`: the MCP tools that match best, or the one that an id names."""

    query: OptionalText = None
    tool_id: OptionalText = None
    max_results: OptionalResults = None
    session: OptionalText = None
    server: OptionalText = None
    detail: Detail = "signature"

    def __post_init__(self) -> None:
        given = [name for name in ("query", "tool_id") if (getattr(self, name) or "").strip()]
        if len(given) != 1:
            raise BadRequest(
                f"exactly one of query and tool_id is needed, not {len(given)}",
                "query finds tools by what they do, tool_id loads one by its name",
            )
        _check_query(getattr(self, given[0]))


class ToolList(Request):
    """`tool_list`: which tools a session has loaded and which are deferred."""

    session: OptionalText = None
    context_window: Tokens = 200_000
    budget: OptionalTokens = None


class McpEvent(Request):
    """`mcp_event`: a server has connected, changed its tools, or gone."""

    event: Event
    server: Text
    tools: OptionalTools = None
    instructions: OptionalText = None
    time: Time = None

    def __post_init__(self) -> None:
        if not self.server.strip():
            raise BadRequest("server is empty", "give the name the client knows the server by")


class Status(Request):
    """`status`: how the daemon is."""


class Sync(Request):
    """`sync`: wait until everything written so far can be found."""


class Reindex(Request):
    """`reindex`: forget what is known of one path, or of everything, and read it again."""

    path: OptionalText = None


R = TypeVar("R", bound=Request)


def convert(params: Mapping[str, object], kind: type[R], *, now_ms: int | None = None) -> R:
    """Return the request of type `kind` that the map `params` stands for.

    `now_ms` is the time that "yesterday" is counted from. Raises BadRequest.
    """
    given = {name: value for name, value in params.items() if value is not None}
    if kind.lenient:
        lowered = {name.lower(): value for name, value in given.items()}
        given = {name: lowered[name] for name in kind.__struct_fields__ if name in lowered}
    fields = _fields(kind)
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    values = {}
    for name, value in given.items():
        if name not in fields:
            raise BadRequest(f"unknown parameter {shown(name)}", nearest(name, fields))
        values[name] = _read(name, value, fields[name].type, now)
    for name, field in fields.items():
        if field.required and name not in values:
            raise BadRequest(f"{name} is missing", f"give {_allowed(field.type)}")
    return kind(**values)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the known word nearest to `name`, or all of them."""
    words = list(known)
    close = difflib.get_close_matches(name[:80], words, n=1)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"known are {', '.join(words)}" if words else "there are none"


def shown(value: object) -> str:
    """Return `value` as an error shows it: short, quoted if a string, by type if not a scalar."""
    if isinstance(value, str):
        return json.dumps(value[:80], ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)[:80]
    words = {"dict": "a map", "list": "a list"}
    name = type(value).__name__
    return words.get(name, f"a {name} value")


def kinds(value: object) -> tuple[Kind, ...]:
    """Return the kinds that a name, a list of names, or `all` stands for; none means the default.

    Raises BadRequest for an unknown one.
    """
    names = value if isinstance(value, list) else [value]
    found: list[Kind] = []
    for name in names:
        if name == "all":
            found.extend(KINDS)
        elif isinstance(name, str) and name in KINDS:
            found.append(Kind(name))
        else:
            raise BadRequest(f"unknown kind {shown(name)}", _known_kinds(name))
    return tuple(dict.fromkeys(found)) or DEFAULT_KINDS


def _known_kinds(name: object) -> str:
    known = f"known are {', '.join(KINDS)} and all"
    close = difflib.get_close_matches(name[:80], [*KINDS, "all"]) if isinstance(name, str) else []
    return f'did you mean "{close[0]}"? {known}' if close else known


def _time(name: str, value: object, now_ms: int) -> int:
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number and not isinstance(value, str):
        raise BadRequest(f"{name} {shown(value)} is not a point in time", "give a string")
    try:
        return moment(str(value), now_ms, end=name == "until")
    except BadRequest as error:
        raise BadRequest(f"{name} {error.message}", error.hint) from error


@functools.cache
def _fields(kind: type[Request]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


def _read(name: str, value: object, kind: Any, now_ms: int) -> Any:
    if name in ("kinds", "kind"):
        return kinds(value)
    if name == "at" and value in ("start", "end"):
        return value
    if name in ("since", "until", "at"):
        return _time(name, value, now_ms)
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        message = f"{name} {shown(value)} is not {_allowed(kind)}"
        raise BadRequest(message, f"give {_allowed(kind)}") from error


def _allowed(kind: Any) -> str:
    return str(kind.__metadata__[0].description)


def _clamped(value: int, default: int, highest: int) -> int:
    return default if value <= 0 else min(value, highest)


def _check_query(query: str) -> None:
    if not query.strip():
        raise BadRequest("query is empty", "say what to look for, in the words it was said with")
    if len(query) > MAX_QUERY_CHARS:
        raise BadRequest(
            f"query has {len(query)} characters, over the limit of {MAX_QUERY_CHARS}",
            "its rarest words find as much",
        )
