"""One tool of one MCP server: its validated record, its compact signature, its cost in tokens.

What a server says of itself is text from a stranger: it is kept and shown, never obeyed, and a
tool that breaks the protocol is refused with a reason, without costing its neighbours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from indexd.errors import BadRequest

MAX_NAME_CHARS = 256
MAX_TOOL_BYTES = 1 << 20  # a dozen still fit an answer
MAX_SCHEMA_DEPTH = 128
TOKEN_BYTES = 4  # Kiro's estimate: a token is four bytes of name, description and schema
MAX_OPTIONAL_SHOWN = 12
MAX_ENUM_CHARS = 60
MAX_TYPE_DEPTH = 4
MAX_TYPE_CHARS = 200

# A full stop before a lower-case word ("e.g. this") ends nothing.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])|(?<=[。！？])|\n\s*\n|\n\s*[-*#]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Parameter(NamedTuple):
    """One top-level parameter of a tool; `choices` are the values its schema allows, if listed.

    `part` is its own schema, and `types` names it.
    """

    name: str
    required: bool
    description: str
    choices: tuple[str, ...]
    part: Mapping[str, Any]
    types: TypeNames

    @property
    def type(self) -> str:
        """The type in a word, see `TypeNames`."""
        return self.types.of(self.part)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as its server described it; `schema` is the input schema as compact JSON.

    `id` is the canonical `server::tool`; `digest` is equal for two tools that say the same.
    """

    id: str
    server: str
    name: str
    title: str
    description: str
    schema: bytes
    read_only: bool
    digest: str

    @property
    def tokens(self) -> int:
        """Estimated cost of this tool in a model's context, in tokens."""
        text_bytes = len(self.name.encode()) + len(self.description.encode())
        return (text_bytes + len(self.schema)) // TOKEN_BYTES

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The top-level parameters, read from the schema each time: few are ever shown."""
        return tuple(_parameters(self.input_schema()))

    def input_schema(self) -> dict[str, Any]:
        """Return the input schema, decoded."""
        schema: dict[str, Any] = json.loads(self.schema)
        return schema

    def as_record(self) -> dict[str, Any]:
        """Return what the cache keeps of this tool; `from_record` makes it a tool again."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "schema": self.schema,
            "read_only": self.read_only,
        }


def from_record(server: str, record: Mapping[str, Any]) -> Tool:
    """Return the tool that `as_record` wrote."""
    content = json.dumps([record[key] for key in ("name", "title", "description", "read_only")])
    digest = hashlib.blake2b(content.encode() + record["schema"], digest_size=16).hexdigest()
    return Tool(
        f"{server}::{record['name']}",
        server,
        record["name"],
        record["title"],
        record["description"],
        record["schema"],
        record["read_only"],
        digest,
    )


def parse_tool(server: str, raw: object, known: Tool | None = None) -> Tool:
    """Return the record of one raw MCP tool; `known` itself when it says the same.

    Raises BadRequest, naming the field, when the tool breaks the protocol.
    """
    if not isinstance(raw, Mapping):
        raise BadRequest(f"a tool is a {type(raw).__name__}, not a map")
    name = _text(raw, "name")
    if not name.strip() or len(name) > MAX_NAME_CHARS or _CONTROL.search(name):
        raise BadRequest(f"name {name[:40]!r} is empty, too long or has control characters")
    hints = raw.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    record = {
        "name": name,
        "title": _text(raw, "title") or _text(hints, "title"),
        "description": _text(raw, "description"),
        "schema": _schema(raw.get("inputSchema", {"type": "object"})),
        "read_only": hints.get("readOnlyHint") is True,
    }
    if known and known.as_record() == record:
        return known
    tool = from_record(server, record)
    if len(tool.title.encode()) + tool.tokens * TOKEN_BYTES > MAX_TOOL_BYTES:
        raise BadRequest(f"it takes more than {MAX_TOOL_BYTES:,} bytes")
    return tool


def parse_tools(
    server: str, raw_tools: Iterable[object], known: Mapping[str, Tool] | None = None
) -> tuple[list[Tool], list[str]]:
    """Return a server's good tools in their order, and one reason per tool that was dropped.

    Tools that `known` holds by name and that have not changed are returned as they are.
    """
    known = known or {}
    tools: dict[str, Tool] = {}
    problems: list[str] = []
    for position, raw in enumerate(raw_tools):
        label = raw.get("name") if isinstance(raw, Mapping) else None
        label = _writable(label) if isinstance(label, str) and label else f"tool {position}"
        try:
            tool = parse_tool(server, raw, known.get(label))
        except BadRequest as error:
            problems.append(f"{label[:80]}: {error.message}")
            continue
        if tool.name in tools:
            problems.append(f"{label[:80]}: a second tool of this name")
        else:
            tools[tool.name] = tool
    return list(tools.values()), problems


def integer(digits: str) -> int:
    """Return an integer of JSON, the nearest of 64 bits if it is beyond: no other travels."""
    return min(max(int(digits[:24]), -(1 << 63)), (1 << 64) - 1)


def first_sentence(text: str, limit: int = 160) -> str:
    """Return the first sentence of `text` on one line, at most `limit` characters of it."""
    beginning = text.strip()[: 16 * limit]  # blanks count, and a description may be a book
    sentence = " ".join(_SENTENCE_END.split(beginning, maxsplit=1)[0].split())
    return sentence if len(sentence) <= limit else sentence[: limit - 1].rstrip() + "…"


@lru_cache(maxsize=1024)
def signature(tool: Tool) -> str:
    """Return the tool as one line: `name(required: type, optional?: type) - first sentence`.

    No required parameter is left out; optional ones beyond a dozen are counted (`+9 optional`).
    """
    parameters = tool.parameters
    required = [f"{p.name}: {p.type}" for p in parameters if p.required]
    optional = [f"{p.name}?: {p.type}" for p in parameters if not p.required]
    hidden = len(optional) - MAX_OPTIONAL_SHOWN
    shown = required + optional[:MAX_OPTIONAL_SHOWN]
    if hidden > 0:
        shown.append(f"+{hidden} optional")
    line = f"{tool.name}({', '.join(shown)})"
    sentence = first_sentence(tool.description)
    return f"{line} - {sentence}" if sentence else line


def _schema(schema: object) -> bytes:
    if not isinstance(schema, Mapping):
        raise BadRequest(f"inputSchema is a {type(schema).__name__}, not a map")
    try:
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"inputSchema is not JSON ({type(error).__name__})") from error
    # Counting brackets is quick, and few schemas have so many.
    if text.count("{") + text.count("[") > MAX_SCHEMA_DEPTH and _deeper(schema, MAX_SCHEMA_DEPTH):
        raise BadRequest(f"inputSchema is nested deeper than {MAX_SCHEMA_DEPTH}")
    return text.encode("utf-8", "replace")


def _deeper(value: object, levels: int) -> bool:
    """Say whether maps and lists lie in `value` more than so many levels deep."""
    inner = value.values() if isinstance(value, Mapping) else value
    if not isinstance(inner, Iterable) or isinstance(inner, str):
        return False
    return levels == 0 or any(_deeper(each, levels - 1) for each in inner)


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if value is None and key != "name":
        return ""
    if not isinstance(value, str):
        raise BadRequest(f"{key} is a {type(value).__name__}, not a string")
    return _writable(value)


def _writable(text: str) -> str:
    """Return `text` without lone surrogates, legal in JSON and in no encoding that we write."""
    return text.encode("utf-8", "replace").decode()


def _parameters(schema: Mapping[str, Any]) -> Iterable[Parameter]:
    properties = schema.get("properties")
    required = schema.get("required")
    names = set(filter(_is_text, required)) if isinstance(required, list) else set()
    types = TypeNames(schema)
    for name, value in properties.items() if isinstance(properties, dict) else ():
        part = value if isinstance(value, dict) else {}
        description = part.get("description")
        yield Parameter(
            name,
            name in names,
            description if isinstance(description, str) else "",
            tuple(_choices(part)),
            part,
            types,
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _choices(part: Mapping[str, Any]) -> list[str]:
    values = part.get("enum")
    return [v for v in values if isinstance(v, str)] if isinstance(values, list) else []


class TypeNames:
    """Names the types of the parts of one JSON Schema, `root`.

    What a reference means is worked out once: each may lead to as many more.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._referenced: dict[tuple[str, int], str] = {}

    def of(self, part: Mapping[str, Any], depth: int = 0) -> str:
        """Return the type of `part` in a word: `string`, `a|b`, `integer[]`, `any`."""
        if depth > MAX_TYPE_DEPTH:
            return "any"
        name = _enumeration(part) or self._structure(part, depth)
        return name if len(name) <= MAX_TYPE_CHARS else "any"

    def _structure(self, part: Mapping[str, Any], depth: int) -> str:
        if isinstance(part.get("$ref"), str):
            return self._meant(part["$ref"], depth + 1)
        for key in ("anyOf", "oneOf"):
            if isinstance(part.get(key), list):
                branches = [v for v in part[key] if isinstance(v, Mapping)]
                return _union(self.of(branch, depth + 1) for branch in branches)
        named = part.get("type")
        if isinstance(named, list):
            return _union(str(name) for name in named)
        if named == "array":
            items = part.get("items")
            inner = self.of(items, depth + 1) if isinstance(items, Mapping) else "any"
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        return named if isinstance(named, str) else "any"

    def _meant(self, reference: str, depth: int) -> str:
        known = self._referenced.get((reference, depth))
        if known is None:
            known = self.of(_referenced(reference, self._root), depth)
            self._referenced[reference, depth] = known
        return known


def _enumeration(part: Mapping[str, Any]) -> str:
    choices = _choices(part)
    joined = "|".join(choices)
    return joined if len(joined) <= MAX_ENUM_CHARS and "\n" not in joined else ""


def _union(names: Iterable[str]) -> str:
    distinct = dict.fromkeys(name for name in names if name != "null")
    return "any" if "any" in distinct else "|".join(distinct) or "any"


def _referenced(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    part: Any = root
    for step in reference.removeprefix("#/").split("/"):
        part = part.get(step) if isinstance(part, Mapping) else None
    return part if isinstance(part, Mapping) else {}
