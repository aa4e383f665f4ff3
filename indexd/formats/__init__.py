"""How each agent writes its sessions: one file per agent, one interface for all.

A Format turns the lines of one session file into messages. It never raises for bad data: it
counts it in `state.skipped` and goes on. What it makes of a line may depend only on the line
and the state, so that a file read in any number of pieces yields the same messages, and a
single line read again later (for a snippet) yields the same texts.

Facts about a session come from three places: what its lines state (`state.facts`, empty at first)
outweighs its sidecars, and those outweigh its path.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping

from indexd.formats.lines import Decode, Record, decode, objects
from indexd.model import MAX_NAME_CHARS, Message, Rewind, SessionState

Item = Message | Rewind

# Sessions whose file is called like this are named by their directory.
_COMMON_STEMS = frozenset({"events", "messages", "session"})
_FIRST_TYPE = re.compile(rb'\{"type":"([^"\\]+)"')


class Format:
    """The reader of one agent's session files. Subclasses override what differs."""

    agent: str = ""
    # Matches the paths at which this agent keeps its sessions.
    paths: re.Pattern[str] = re.compile(r"(?!)")
    # Types of records that are left out unparsed, where a line begins with its type.
    left_out: frozenset[bytes] = frozenset()
    # Decodes a line; a format of which most fields are unwanted names the others.
    decode: Decode = staticmethod(decode)

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directories this agent keeps sessions in, existing or not."""
        return []

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether this agent wrote `record`.

        `named` tells that a hint or the path names this agent, which settles the shapes that
        several agents write.
        """
        return False

    def sidecars(self, name: str) -> tuple[str, ...]:
        """Return the names of files beside session file `name` that hold facts about it."""
        return ()

    def sidecar_facts(self, data: bytes) -> dict[str, str]:
        """Return the facts (`session_id cwd model title parent`) that a sidecar states."""
        return {}

    def path_facts(self, path: str) -> dict[str, str]:
        """Return the facts that a session's path states; the weakest source."""
        directory, name = os.path.split(path)
        stem = os.path.splitext(name)[0]
        in_common = stem in _COMMON_STEMS and os.path.basename(directory)
        return {"session_id": os.path.basename(directory) if in_common else stem}

    def is_subagent(self, path: str, state: SessionState, known: Mapping[str, str]) -> bool:
        """Say whether an agent began this session, not a person; `known` are all its facts."""
        return "/subagents/" in path

    def read(self, line: bytes, state: SessionState) -> list[Item]:
        """Return what one complete line (without its newline) says; updates `state`.

        All but `state.next_index`, which is the caller's to advance: see `following`.
        """
        if self.left_out and (first := _FIRST_TYPE.match(line)) and first[1] in self.left_out:
            state.skip(first[1].decode())
            return []
        items: list[Item] = []
        index = state.next_index
        for record in objects(line, state, self.decode):
            for item in self.items(record, state, index):
                items.append(item)
                index = following(item, index)
        return items

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return what one record says; `index` is the message_index that comes next."""
        raise NotImplementedError


def following(item: Item, next_index: int) -> int:
    """Return the message_index that comes after `item`, which was read at `next_index`."""
    if isinstance(item, Rewind):
        return min(item.length, next_index)
    return next_index if item.replaces is not None else next_index + 1


def facts(**values: object) -> dict[str, str]:
    """Return those of `values` that are known: texts that are not empty, none of them long."""
    known = {name: value for name, value in values.items() if isinstance(value, str) and value}
    return {name: value[:MAX_NAME_CHARS] for name, value in known.items()}
