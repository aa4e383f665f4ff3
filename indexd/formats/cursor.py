"""Cursor CLI: transcripts without times, results or directory, one message per line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item
from indexd.formats.content import TEXTS, blocks, parted, said
from indexd.formats.lines import Record, mapping, string
from indexd.model import Block, Kind, SessionState


class Cursor(Format):
    """Reads the transcripts of Cursor CLI."""

    agent = "cursor"
    paths = re.compile(r"/\.cursor/projects/|/agent-transcripts/")

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directory below which every project has its transcripts."""
        return [f"{home}/.cursor/projects"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is a message with nothing but its role beside it."""
        bare = record.keys() == {"role", "message"}
        return bare and "content" in mapping(record["message"])

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message that a line is, if it is one."""
        role = string(record.get("role"))
        if not role:
            state.skip(string(record.get("type")) or "record without role")
            return ()
        content = mapping(record.get("message")).get("content")
        return (said(state, role, blocks(content, TEXTS.get(role, Kind.META), state, _typed)),)


def _typed(text: str) -> tuple[Block, ...]:
    """Return what a person typed, and what was put around it as meta."""
    query = parted(text, "user_query")
    if query is None:
        return (Block(Kind.USER_TEXT, text),)
    return (Block(Kind.USER_TEXT, query[0]), Block(Kind.META, query[1].strip()))
