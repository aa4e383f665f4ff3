"""From a message to its documents: the kind rules, applied once for all agents.

A document's text is what is analysed. What a person is shown differs for tool calls only: there
the arguments are compact JSON, as one would have to type them again. Colour codes, base64 and
NULs are text for nobody; secrets are masked unless their owner asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from indexd.model import Block, Document, Kind, Message
from indexd.secrets import mask

# A run of base64 this long is data, not words. It covers at least one of the windows that a text
# is divided into; where none of them is base64 throughout, no run is looked for.
BLOB_CHARS = 512
BLOB_WINDOW = BLOB_CHARS // 2
BLOB = "[...]"

ByKind = dict[Kind, list[Block]]

_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_DATA_URI = re.compile(r"data:[\w.+/-]*(?:;[\w.+=-]+)*?;base64,[A-Za-z0-9+/=_-]*")
_BLOB_WINDOW = re.compile(rf"[A-Za-z0-9+/=_\r\n-]{{{BLOB_WINDOW}}}")
_BLOB = re.compile(
    r"(?<![A-Za-z0-9+/=_-])"
    rf"(?:[A-Za-z0-9+/=_-]{{{BLOB_CHARS},}}"
    r"|(?:[A-Za-z0-9+/=_-]{60,}\r?\n){8,}(?:[A-Za-z0-9+/]{2,60}={1,2})?)"
)


def documents(message: Message, message_index: int, *, reveal: bool = False) -> list[Document]:
    """Return the documents of `message`: one per kind, and one per tool call.

    Results of several tools in one message are a document each. Blank ones are left out.
    Secrets in their texts are masked unless `reveal`.
    """
    blocks = message.blocks
    if len(blocks) == 1:
        return _document(blocks[0], _words(blocks[0]), message_index, 0, reveal)
    found: list[Document] = []
    for kind, alike in by_kind(message).items():
        for call in _calls(kind, alike):
            own = _of(alike, kind, call)
            text = "\n".join(map(_words, own))
            found += _document(own[0], text, message_index, call, reveal)
    return found


def by_kind(message: Message) -> ByKind:
    """Return the blocks of a message by kind, in their order."""
    found: ByKind = {}
    for block in message.blocks:
        found.setdefault(block.kind, []).append(block)
    return found


def _calls(kind: Kind, alike: Sequence[Block]) -> Iterable[int]:
    """Return the numbers of the documents that blocks of one kind make.

    A result's number must mean the same where its line is read alone, and no block knows its
    tool: 0 is all of them, and where they are of several tools they count from 1.
    """
    if kind is Kind.TOOL_INPUT:
        return range(len(alike))
    return range(1, len(alike) + 1) if len({block.tool_name for block in alike}) > 1 else (0,)


def _of(alike: Sequence[Block], kind: Kind, call: int) -> Sequence[Block]:
    """Return the blocks of document `call` among those of its kind."""
    if kind is Kind.TOOL_INPUT:
        return alike[call : call + 1]
    return alike[call - 1 : call] if call else alike


def _document(
    block: Block, text: str, message_index: int, call: int, reveal: bool
) -> list[Document]:
    """Return the document of the kind and tool of `block` that says `text`; none if blank."""
    text = _tidy(text, reveal)
    if not text or text.isspace():
        return []
    return [Document(block.kind, text, message_index, block.tool_name, call)]


def _words(block: Block) -> str:
    """Return what is analysed of a block."""
    text = _flattened(block.arguments) if block.kind is Kind.TOOL_INPUT else block.text
    return _named(block.tool_name, text)


def displayed(message: Message, kind: Kind, call: int = 0, *, reveal: bool = False) -> str:
    """Return what a snippet is cut from: document (`kind`, `call`) of `message` as shown.

    Empty when the message has no such document.
    """
    return displayed_of(by_kind(message), kind, call, reveal=reveal)


def displayed_of(made: ByKind, kind: Kind, call: int, *, reveal: bool = False) -> str:
    """Return what `displayed` does; `made` is `by_kind` of the message, for many at once."""
    own = _of(made.get(kind, ()), kind, call)
    return "\n".join(display(block, reveal=reveal) for block in own)


def analysed_of(made: ByKind, kind: Kind, call: int) -> str:
    """Return the text that document (`kind`, `call`) was indexed by; empty if there is none."""
    return _tidy("\n".join(map(_words, _of(made.get(kind, ()), kind, call))), False)


def display(block: Block, *, reveal: bool = False) -> str:
    """Return `block` as one text: the tool's name where it has one, then what it says."""
    if block.kind is Kind.TOOL_INPUT:
        return _named(block.tool_name, shown_arguments(block, reveal=reveal))
    return _named(block.tool_name, shown_text(block, reveal=reveal))


def shown_text(block: Block, *, reveal: bool = False) -> str:
    """Return the text of `block` without its tool's name; empty for a tool call."""
    return _tidy(block.text, reveal)


def shown_arguments(block: Block, *, reveal: bool = False) -> str:
    """Return the arguments of a tool call: compact JSON, or the text they are."""
    arguments = block.arguments
    if isinstance(arguments, str):
        return _tidy(arguments, reveal)
    if arguments is None:
        return ""
    try:
        tidied = _tidied(arguments, reveal)
        return json.dumps(tidied, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return _tidy(_flattened(arguments), reveal)


def _named(tool: str, text: str) -> str:
    return f"{tool} {text}" if tool and text else tool or text


def _flattened(arguments: object) -> str:
    """Return keys and scalar values in the order they stand, however deep."""
    words: list[str] = []
    waiting = [] if arguments is None else [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, dict):
            for key, inner in reversed(value.items()):
                waiting += (inner, key)
        elif isinstance(value, list | tuple):
            waiting += reversed(value)
        elif value is None or isinstance(value, bool):
            words.append({None: "null", True: "true", False: "false"}[value])
        else:
            words.append(str(value))
    return " ".join(words)


def _tidied(value: Any, reveal: bool) -> Any:
    if isinstance(value, str):
        return _tidy(value, reveal)
    if isinstance(value, dict):
        return {_tidy(key, reveal): _tidied(inner, reveal) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_tidied(inner, reveal) for inner in value]
    return value


def _tidy(text: str, reveal: bool) -> str:
    text = clean(text)
    return text if reveal else mask(text)


def clean(text: str) -> str:
    """Return `text` without terminal colour codes, NULs, data URIs and runs of base64."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if "\0" in text:
        text = text.replace("\0", "")
    if ";base64," in text:
        text = _DATA_URI.sub(BLOB, text)
    if len(text) >= BLOB_CHARS and _may_hold_blob(text):
        words = text.split(" ")
        text = " ".join(
            [word if len(word) < BLOB_CHARS else _BLOB.sub(BLOB, word) for word in words]
        )
    return text


def _may_hold_blob(text: str) -> bool:
    return any(
        " " not in text[start : start + BLOB_WINDOW] and _BLOB_WINDOW.match(text, start)
        for start in range(0, len(text) - BLOB_WINDOW + 1, BLOB_WINDOW)
    )
