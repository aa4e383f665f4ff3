"""Which tools a name means, in any of the spellings agents and people use.

`github::create_issue`, `github.create_issue`, `github/create_issue`,
`mcp__github__create_issue`, `create_issue`, `createIssue`: the exact spelling wins, then case
and separators are forgiven. A bare name that several servers have means all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rapidfuzz import fuzz, process

from indexd.tool import Tool
from indexd.tool_text import squeeze, words

_SEPARATORS = re.compile(r"[\s,;'\"`()]+")
_PREFIX = "mcp"
NEAREST = 5
ALIKE = 55.0  # of 100: below it, names have little but letters in common


_Table = dict[str, tuple[str, ...]]


class ToolNames:
    """The ids of all tools of a catalog by what they may be called: their id and their name, each
    as it is written and squeezed."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tables: tuple[_Table, ...] = ({}, {}, {}, {})
        self._add(tools)

    def after(self, gone: Iterable[Tool], new: Iterable[Tool]) -> ToolNames:
        """Return the names without some tools and with others."""
        other = ToolNames()
        other._tables = tuple(dict(table) for table in self._tables)
        for tool in gone:
            for table, key in zip(other._tables, _keys(tool), strict=True):
                left = tuple(id for id in table.pop(key) if id != tool.id)
                table.update({key: left} if left else {})
        other._add(new)
        return other

    def _add(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            for table, key in zip(self._tables, _keys(tool), strict=True):
                table[key] = tuple(sorted((*table.get(key, ()), tool.id)))

    def resolve(self, text: str) -> Sequence[str]:
        """Return the ids of the tools that `text` names: of all owners of an ambiguous name."""
        text = text.strip()
        loose = squeeze(text)
        ids, names, loose_ids, loose_names = self._tables
        tries = (
            (ids, text),
            (names, text),
            (loose_ids, loose),
            (loose_ids, loose.removeprefix(_PREFIX)),
            (loose_names, loose),
        )
        return next((table[key] for table, key in tries if key in table), ())

    def named_in(self, query: str) -> list[str]:
        """Return the ids of the tools that a question names exactly, in the order it names them.

        The whole question may be one name ("create pull request"), or hold names among other
        words; a single plain word ("search") is a name only where every other word is one.
        """
        query = query.strip().removeprefix("select:")
        whole = self.resolve(query)
        if whole:
            return list(whole)
        parts = [part for part in _SEPARATORS.split(query) if part]
        meant = {part: self._exactly(part) for part in parts}
        if not all(meant.values()):
            meant = {part: found for part, found in meant.items() if _is_composite(part)}
        return list(dict.fromkeys(id for found in meant.values() for id in found))

    def nearest(self, text: str) -> list[str]:
        """Return the ids most alike `text`, the most alike first."""
        names = {id: name for name, owners in self._tables[3].items() for id in owners}
        ids = {id: name for name, owners in self._tables[2].items() for id in owners}
        wanted = squeeze(text)
        alike: dict[str, float] = {}
        for choices in (names, ids):
            for _, score, id in process.extract(
                wanted, choices, scorer=fuzz.ratio, score_cutoff=ALIKE, limit=NEAREST
            ):
                alike[id] = max(alike.get(id, 0.0), score)
        return sorted(alike, key=lambda id: (-alike[id], id))[:NEAREST]

    def _exactly(self, part: str) -> Sequence[str]:
        return self.resolve(part) if _is_composite(part) else self._tables[1].get(part, ())


def _keys(tool: Tool) -> tuple[str, str, str, str]:
    return tool.id, tool.name, squeeze(tool.id), squeeze(tool.name)


def _is_composite(part: str) -> bool:
    found = words(part)
    return len(found) > 1 or any(len(word.parts) > 1 for word in found)
