"""What the daemon is told to do: one frozen Settings, read once.

A value comes from a flag, else the environment, else the configuration file, else its default.
Anything unknown or out of bounds is an error that says where it stands and what is allowed, since
a misspelt key that is silently ignored costs its owner an evening.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from indexd import paths
from indexd.errors import BadRequest
from indexd.formats import Format
from indexd.roots import Root, default_roots, expanded, refusal

PROFILES = ("code", "seed")
SOURCES = ("global", "archive")

# Kiro's variable is honoured so that one setting serves both tools.
THRESHOLD_VARIABLES = (
    "INDEXD_TOOL_SEARCH_THRESHOLD",
    "KIRO_CLI_TOOL_SEARCH_MATCHING_THRESHOLD",
)


@dataclass(frozen=True, slots=True)
class Analysis:
    """How text becomes terms."""

    profile: str = "code"


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """When tools are deferred and which results are shown.

    `min_pct` is in per cent of the context window, `min_tokens` in tokens; below `threshold` a
    result is cut.
    """

    enabled: bool = True
    min_pct: float = 5
    min_tokens: int = 50_000
    threshold: float = 1.5
    max_results: int = 5


@dataclass(frozen=True, slots=True)
class History:
    """What a search of sessions shows: the share of the top score a hit needs, snippet length.

    `recency` is the half-life, in days, of what newer documents are preferred by; 0: they are not.
    """

    relative_score: float = 0.15
    snippet_chars: int = 240
    recency: float = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the daemon is told. `left_out` says which default roots were refused and why."""

    config_file: str
    socket: str
    cache_dir: str
    state_dir: str
    roots: tuple[Root, ...] = ()
    left_out: tuple[str, ...] = ()
    analysis: Analysis = field(default_factory=Analysis)
    tool_search: ToolSearch = field(default_factory=ToolSearch)
    history: History = field(default_factory=History)


class Rule(NamedTuple):
    """What a key's value may be: in words, and as a test."""

    allowed: str
    accepts: Callable[[Any], bool]


def _one_of(*values: str) -> Rule:
    return Rule(" or ".join(f'"{value}"' for value in values), lambda value: value in values)


def _number(low: float, high: float) -> Rule:
    # By exact type, since True is an int to isinstance.
    return Rule(
        f"a number from {low:g} to {high:g}",
        lambda value: type(value) in (int, float) and low <= value <= high,
    )


def _whole(low: int, high: int) -> Rule:
    return Rule(
        f"a whole number from {low} to {high}",
        lambda value: type(value) is int and low <= value <= high,
    )


_FLAG = Rule("true or false", lambda value: isinstance(value, bool))
_TEXT = Rule("a string", lambda value: isinstance(value, str) and value != "")
_GLOBS = Rule(
    "a list of strings",
    lambda value: isinstance(value, list) and all(isinstance(glob, str) for glob in value),
)

SECTIONS: dict[str, dict[str, Rule]] = {
    "analysis": {"profile": _one_of(*PROFILES)},
    "tool_search": {
        "enabled": _FLAG,
        "min_pct": _number(0, 100),
        "min_tokens": _whole(0, 1_000_000_000),
        "threshold": _number(0, 1_000_000),
        "max_results": _whole(1, 100),
    },
    "history": {
        "relative_score": _number(0, 1),
        "snippet_chars": _whole(40, 2_000),
        "recency": _number(0, 36_500),
    },
}
_SECTION_TYPES = {"analysis": Analysis, "tool_search": ToolSearch, "history": History}
_TOP_KEYS = ("root", "default_roots", *SECTIONS)
_ROOT_KEYS = {"path": _TEXT, "source": _one_of(*SOURCES), "format": _TEXT, "exclude": _GLOBS}


def load(
    environment: Mapping[str, str],
    *,
    config_file: str | None = None,
    socket: str | None = None,
    cache_dir: str | None = None,
    state_dir: str | None = None,
    formats: Sequence[Format] | None = None,
) -> Settings:
    """Return the settings; keyword arguments are the command line's flags.

    `formats` are the readers whose default roots count, all known ones when None.
    Raises BadRequest for anything that is unknown, malformed or refused, and for a file that was
    named but is not there.
    """
    file = config_file or paths.config_file(environment)
    if (config_file or environment.get("INDEXD_CONFIG")) and not os.path.exists(file):
        raise BadRequest(
            f"configuration file {file} does not exist",
            "correct --config or INDEXD_CONFIG, or write the file: indexctl config --init",
        )
    return settings(
        read(file),
        Settings(
            config_file=file,
            socket=paths.check_socket_path(socket) if socket else paths.socket_path(environment),
            cache_dir=os.path.abspath(cache_dir) if cache_dir else paths.cache_dir(environment),
            state_dir=os.path.abspath(state_dir) if state_dir else paths.state_dir(environment),
        ),
        environment,
        known_formats() if formats is None else formats,
    )


def known_formats() -> Sequence[Format]:
    """Return the readers of all known agents."""
    from indexd.formats.registry import FORMATS

    return tuple(FORMATS.values())


def read(file: str) -> dict[str, Any]:
    """Return the configuration file's tables; an empty map when there is no file."""
    try:
        with open(file, "rb") as stream:
            return tomllib.load(stream)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadRequest(f"{file}: {error}", "correct the file, or move it away") from error


def settings(
    tables: dict[str, Any],
    places: Settings,
    environment: Mapping[str, str],
    formats: Sequence[Format],
) -> Settings:
    """Return `places` completed by what the file's `tables` and the environment say."""
    file = places.config_file
    check(file, tables, [reader.agent for reader in formats])
    roots, left_out = _roots(tables, places, environment, formats)
    return replace(
        places,
        roots=roots,
        left_out=left_out,
        analysis=Analysis(**tables.get("analysis", {})),
        tool_search=ToolSearch(**{**tables.get("tool_search", {}), **_threshold(environment)}),
        history=History(**tables.get("history", {})),
    )


def check(file: str, tables: dict[str, Any], agents: Sequence[str]) -> None:
    """Raise BadRequest for the first key of `tables` that is unknown or has a bad value."""
    for name, value in tables.items():
        if name == "default_roots":
            _check_value(file, name, value, _FLAG)
        elif name == "root":
            _check_roots(file, value, agents)
        elif name in SECTIONS:
            _check_table(file, name, value, SECTIONS[name])
        else:
            raise _unknown(file, name, _TOP_KEYS)


def values(of: Settings) -> dict[str, Any]:
    """Return every scalar setting by its dotted key, in the order of the documentation."""
    return {
        f"{section}.{key.name}": getattr(getattr(of, section), key.name)
        for section, kind in _SECTION_TYPES.items()
        for key in fields(kind)
    }


def _check_roots(file: str, entries: Any, agents: Sequence[str]) -> None:
    if not isinstance(entries, list):
        raise BadRequest(f"{file}: root is not a list of tables", "write [[root]], twice bracketed")
    rules = dict(_ROOT_KEYS)
    if agents:
        rules["format"] = _one_of(*agents)
    for number, entry in enumerate(entries, start=1):
        _check_table(file, f"root {number}", entry, rules, "root")
        if "path" not in entry:
            raise BadRequest(f"{file}: root {number} has no path", 'write path = "/a/directory"')


def _check_table(
    file: str, where: str, table: Any, rules: Mapping[str, Rule], name: str = ""
) -> None:
    name = name or where
    if not isinstance(table, dict):
        raise BadRequest(f"{file}: {where} is {table!r}, not a table", f"write [{name}]")
    for key, value in table.items():
        if key not in rules:
            raise _unknown(file, f"{name}.{key}", [f"{name}.{known}" for known in rules])
        _check_value(file, f"{where}.{key}", value, rules[key])


def _check_value(file: str, key: str, value: Any, rule: Rule) -> None:
    if not rule.accepts(value):
        raise BadRequest(f"{file}: {key} is {value!r}", f"allowed: {rule.allowed}")


def _unknown(file: str, key: str, known: Iterable[str]) -> BadRequest:
    known = list(known)
    nearest = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known keys: {', '.join(known)}"
    return BadRequest(f"{file}: unknown key {key}", hint)


def _threshold(environment: Mapping[str, str]) -> dict[str, float]:
    """Return the environment's threshold, if it has one, as the key it replaces."""
    rule = SECTIONS["tool_search"]["threshold"]
    for name in THRESHOLD_VARIABLES:
        text = environment.get(name, "").strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not rule.accepts(value):
            raise BadRequest(f"{name} is {text!r}", f"allowed: {rule.allowed}")
        return {"threshold": value}
    return {}


def _roots(
    tables: dict[str, Any],
    places: Settings,
    environment: Mapping[str, str],
    formats: Sequence[Format],
) -> tuple[tuple[Root, ...], tuple[str, ...]]:
    """Return the configured roots, the defaults that fit beside them, and why others do not."""
    own_places = (places.cache_dir, places.state_dir)
    accepted: list[Root] = []
    for entry in tables.get("root", []):
        root = _root(places.config_file, entry, environment)
        reason = refusal(root.path, accepted, own_places)
        if reason:
            raise BadRequest(f"{places.config_file}: root {root.path} {reason}", "correct its path")
        accepted.append(root)
    left_out: list[str] = []
    if tables.get("default_roots", not accepted):
        for root in default_roots(formats, environment, paths.home(environment)):
            reason = refusal(root.path, accepted, own_places)
            if reason:
                left_out.append(f"default root {root.path} {reason}")
            else:
                accepted.append(root)
    return tuple(accepted), tuple(left_out)


def _root(file: str, entry: dict[str, Any], environment: Mapping[str, str]) -> Root:
    try:
        path = expanded(entry["path"], environment, paths.home(environment))
    except BadRequest as error:
        raise BadRequest(f"{file}: root {error.message}", error.hint) from error
    return Root(
        path=path,
        source=entry.get("source", "global"),
        format=entry.get("format", ""),
        exclude=tuple(entry.get("exclude", ())),
    )
