"""How each agent writes its sessions: one file per agent, one interface for all.

A Format turns the lines of one session file into messages. It never raises for bad data: it
counts it in `state.skipped` and goes on. What it makes of a line may depend only on the line
and the state, so that a file read in any number of pieces yields the same messages, and a
single line read again later (for a snippet) yields the same texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from indexd.model import Message, Rewind, SessionState

Item = Message | Rewind


class Format:
    """The reader of one agent's session files. Subclasses override what differs."""

    agent: str = ""

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directories this agent keeps sessions in, existing or not."""
        return []

    def recognises(self, record: object) -> bool:
        """Say whether a decoded line is one that only this agent writes."""
        return False

    def sidecars(self, name: str) -> tuple[str, ...]:
        """Return the names of files beside session file `name` that hold facts about it."""
        return ()

    def sidecar_facts(self, data: bytes) -> dict[str, str]:
        """Return the facts (`session_id cwd model title parent`) that a sidecar states."""
        return {}

    def path_facts(self, path: str) -> dict[str, str]:
        """Return the facts that a session's path states; the weakest source."""
        return {}

    def read(self, line: bytes, state: SessionState) -> Iterable[Item]:
        """Return what one complete line (without its newline) says; updates `state`.

        The caller advances `state.next_index` after each item.
        """
        raise NotImplementedError
