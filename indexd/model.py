"""The nouns of the engine, without behaviour.

A session file holds messages; a message holds blocks; `extract` turns a message's blocks into
documents, the unit of scoring. Paths are `str` with surrogateescape throughout, so that names
which are not UTF-8 survive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """What a document is; kinds are disjoint. The order is the order inside a segment."""

    USER_TEXT = "user_text"
    ASSISTANT_TEXT = "assistant_text"
    TOOL_INPUT = "tool_input"
    TOOL_ERROR = "tool_error"
    TOOL_OUTPUT = "tool_output"
    REASONING = "reasoning"
    SUMMARY = "summary"
    META = "meta"


KINDS: tuple[Kind, ...] = tuple(Kind)
DEFAULT_KINDS: tuple[Kind, ...] = KINDS[:4]
TOOL_KINDS = frozenset({Kind.TOOL_INPUT, Kind.TOOL_ERROR, Kind.TOOL_OUTPUT})

# Who speaks in a document: what the role filter asks for, and what a hit says.
ROLES: dict[Kind, str] = {
    Kind.USER_TEXT: "user",
    Kind.ASSISTANT_TEXT: "assistant",
    Kind.TOOL_INPUT: "assistant",
    Kind.REASONING: "assistant",
    Kind.TOOL_ERROR: "tool",
    Kind.TOOL_OUTPUT: "tool",
    Kind.SUMMARY: "system",
    Kind.META: "system",
}


# Types are what the files say they are, so their number and length are bounded.
MAX_TYPES = 100
MAX_TYPE_CHARS = 80
# So are names: of directories, sessions, models and tools. No path is longer.
MAX_NAME_CHARS = 4096


class Block(NamedTuple):
    """One piece of a message, of one kind, as the agent stored it.

    `text` is what was said; for `tool_input` it is empty and `arguments` holds the call's
    arguments, decoded from JSON where they were JSON. `tool_name` is set for tool kinds.
    """

    kind: Kind
    text: str
    tool_name: str = ""
    arguments: Any = None


class Message(NamedTuple):
    """One record of a session that a person would call a message.

    `replaces` is the message_index of the earlier message whose place this one takes; without
    it the message is the session's next. `timestamp` is in unix milliseconds.
    """

    role: str
    blocks: tuple[Block, ...]
    timestamp: int | None = None
    replaces: int | None = None


class Rewind(NamedTuple):
    """From here on the session has only its first `length` messages."""

    length: int


@dataclass(slots=True)
class SessionState:
    """What reading has to remember between two lines of one session; msgpack values only.

    facts: `session_id cwd model title parent` (str), as far as known.
    began, timestamp: when the first and the last message was said (unix ms), as far as known.
    calls: tool name by call id, for calls whose result has not been seen.
    memory: whatever else the format needs.
    skipped: how many records of which type were left out or unreadable.
    """

    facts: dict[str, str] = field(default_factory=dict)
    next_index: int = 0
    began: int | None = None
    timestamp: int | None = None
    calls: dict[str, str] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, what: str) -> None:
        """Count one record of type `what` that gives no message."""
        what = what[:MAX_TYPE_CHARS]
        if what not in self.skipped and len(self.skipped) >= MAX_TYPES:
            what = "other"
        self.skipped[what] = self.skipped.get(what, 0) + 1


class Document(NamedTuple):
    """The unit of scoring: one (message, kind), or one tool call.

    `text` is what is analysed; `call` tells the documents of the same message and kind apart.
    """

    kind: Kind
    text: str
    message_index: int
    tool_name: str = ""
    call: int = 0
