"""Reading and changing single settings, as `indexctl config` does.

The file belongs to its owner: comments, order and layout stay. So one line is changed and the
result is parsed and compared with what was meant; if they differ (a layout this edit does not
understand), nothing is written and the owner is told which line to change.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from indexd import config
from indexd.errors import BadRequest, NotFound

# A value as far as a comment; strings of our schema hold neither quotes nor `#`.
_ASSIGNMENT = (
    r"^(?P<head>\s*{key}\s*=\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^#\s]+)(?P<tail>\s*(?:#.*)?)$"
)

TEMPLATE = """\
# indexd works without this file; every line below shows a default.
# An unknown key is an error, so that a misspelt one is noticed.

# Directories to read. Without any, each known agent's own directory is read.
# [[root]]
# path = "~/.claude/projects"     # ~ and $VARS expand
# source = "global"               # "global" or "archive": the label in answers
# format = "claude"               # optional; else the content decides
# exclude = ["**/scratch/**"]     # optional globs

# Keep the agents' own directories beside the roots named above.
# default_roots = true

[analysis]
# profile = "code"                # "code", or "seed": plain words and nothing else

[tool_search]
# enabled = true
# min_pct = 5                     # defer tools when they fill more than this % of the window
# min_tokens = 50000              # ... or more than this many tokens; both 0: always
# threshold = 1.5                 # results that score lower are cut
# max_results = 5

[history]
# relative_score = 0.15           # hits below this share of the top score are dropped
# snippet_chars = 240
# recency = 0                     # days; prefer newer hits where scores are nearly equal
"""


def known_keys() -> list[str]:
    """Return the dotted names of all settings with a single value."""
    return [
        "default_roots",
        *(f"{section}.{key}" for section, rules in config.SECTIONS.items() for key in rules),
    ]


def canonical(key: str) -> str:
    """Return the name that `key` has here; Kiro's spelling (`toolSearch.minPct`) is understood.

    Raises NotFound, naming the nearest key, for one that does not exist.
    """
    name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()
    known = known_keys()
    if name in known:
        return name
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known keys: {', '.join(known)}"
    raise NotFound(f"no setting is named {key}", hint)


def value_of(tables: dict[str, Any], settings: config.Settings, key: str) -> Any:
    """Return the value in force for `key`, given the file's tables and the settings they gave."""
    name = canonical(key)
    if name == "default_roots":
        return tables.get(name, "root" not in tables)
    return config.values(settings)[name]


def set_value(file: str, key: str, text: str) -> str:
    """Set `key` to `text` in configuration file `file` and return the line now in it.

    The file is made when missing and replaced in one step. Raises NotFound for an unknown key,
    BadRequest for a bad value or a file whose layout this edit does not understand.
    """
    name = canonical(key)
    value = _parsed(text)
    before = config.read(file)
    wanted = _with_value(before, name, value)
    config.check(file, wanted, [])
    source = _source(file)
    edited = edit(source, name, value)
    if _tables(edited) != wanted:
        raise BadRequest(
            f"{file} writes {name} in a way this command cannot change safely",
            f"change it by hand to: {name} = {_literal(value)}",
        )
    _write(file, edited)
    return f"{name} = {_literal(value)}"


def init(file: str) -> None:
    """Write the commented defaults to `file`; raise BadRequest when it exists already."""
    if os.path.lexists(file):
        raise BadRequest(
            f"{file} exists already", f"edit it, or move it away: mv {file} {file}.old"
        )
    _write(file, TEMPLATE)


def edit(source: str, name: str, value: Any) -> str:
    """Return the TOML text `source` with the setting `name` set to `value`.

    Replaces the key's line where there is one, else adds a line at the end of its table's
    keys, else adds the table.
    """
    section, _, key = name.rpartition(".")
    lines = source.removesuffix("\n").split("\n") if source else []
    start, end = _table(lines, section)
    if start is None:
        lines += [*([""] if lines and lines[-1].strip() else []), f"[{section}]"]
        start = end = len(lines)
    pattern = re.compile(_ASSIGNMENT.format(key=re.escape(key)))
    for number in range(start, end):
        match = pattern.match(lines[number])
        if match:
            lines[number] = f"{match['head']}{_literal(value)}{match['tail']}"
            break
    else:
        lines.insert(_last_key(lines, start, end), f"{key} = {_literal(value)}")
    return "\n".join(lines) + "\n"


def _table(lines: list[str], section: str) -> tuple[int | None, int]:
    """Return where the lines of table `section` begin and end; the top table has no header."""
    headers = [number for number, line in enumerate(lines) if re.match(r"\s*\[", line)]
    if not section:
        return 0, headers[0] if headers else len(lines)
    for number in headers:
        if re.match(rf"\s*\[\s*{section}\s*\]", lines[number]):
            after = [later for later in headers if later > number]
            return number + 1, after[0] if after else len(lines)
    return None, len(lines)


def _last_key(lines: list[str], start: int, end: int) -> int:
    """Return the line before which a new key joins its table: ahead of trailing blank lines."""
    while end > start and not lines[end - 1].strip():
        end -= 1
    return end


def _parsed(text: str) -> Any:
    """Return the TOML value that `text` stands for; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _literal(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else (f'"{value}"' if isinstance(value, str) else str(value))
    )


def _with_value(tables: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    section, _, key = name.rpartition(".")
    if not section:
        return {**tables, key: value}
    return {**tables, section: {**tables.get(section, {}), key: value}}


def _source(file: str) -> str:
    try:
        with open(file, encoding="utf-8", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def _tables(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _write(file: str, text: str) -> None:
    # Through a link to the file itself: people keep their configuration elsewhere and link it.
    target = os.path.realpath(file)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o600
    temporary = f"{target}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8", newline="") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        os.fsync(stream.fileno())
    os.replace(temporary, target)
