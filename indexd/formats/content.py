"""What most agents share: content that is a text or a list of typed blocks, calls and results.

Anthropic's shape (`text thinking tool_use tool_result`), OpenAI's and the ones derived from them
differ in the names of fields only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from indexd.formats.lines import Record, decoded, mapping, milliseconds, string
from indexd.model import MAX_NAME_CHARS, TOOL_KINDS, Block, Kind, Message, SessionState

# A call whose result never comes would be remembered for ever.
MAX_OPEN_CALLS = 1000
# Errors come wrapped in errors; none is known to be wrapped deeper.
MAX_ERROR_DEPTH = 8

TEXTS = {
    "user": Kind.USER_TEXT,
    "human": Kind.USER_TEXT,
    "assistant": Kind.ASSISTANT_TEXT,
    "model": Kind.ASSISTANT_TEXT,
}

TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text", "refusal"})
CALL_TYPES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use", "toolCall", "tool_call"})
RESULT_TYPES = frozenset({"tool_result", "mcp_tool_result", "toolResult"})
RESULT_KINDS = TOOL_KINDS - {Kind.TOOL_INPUT}

Split = Callable[[str], Iterable[Block]]


def said(state: SessionState, role: str, found: Iterable[Block], when: object = None) -> Message:
    """Return a message; without a time of its own it takes over the session's last one.

    Results that an agent files under the user's role are said by the tool.
    """
    state.timestamp = milliseconds(when) or state.timestamp
    parts = tuple([part for part in found if part.text or part.kind in TOOL_KINDS])
    if role == "user" and parts and RESULT_KINDS.issuperset([part.kind for part in parts]):
        role = "tool"
    return Message(role, parts, state.timestamp)


def note(state: SessionState, **facts: object) -> None:
    """Take over the facts that are known; a later one replaces an earlier one."""
    for name, value in facts.items():
        if isinstance(value, str) and value:
            state.facts[name] = value[:MAX_NAME_CHARS]


def note_first(state: SessionState, **facts: object) -> None:
    """Take over the facts that were not known so far."""
    for name, value in facts.items():
        if name not in state.facts and isinstance(value, str) and value:
            state.facts[name] = value[:MAX_NAME_CHARS]


def plain(content: object) -> str:
    """Return the text of `content`: a text, a text block, or a list of either."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return string(content.get("text"))
    if isinstance(content, list):
        return "\n".join(filter(None, map(plain, content)))
    return ""


def opened(state: SessionState, call_id: object, name: str) -> None:
    """Remember the tool that call `call_id` asks for, until its result is seen."""
    if isinstance(call_id, str) and call_id:
        state.calls[call_id] = name[:MAX_NAME_CHARS]
        if len(state.calls) > MAX_OPEN_CALLS:
            del state.calls[next(iter(state.calls))]


def closed(state: SessionState, call_id: object) -> str:
    """Return the tool whose result has now been seen; empty when its call was not."""
    return state.calls.pop(call_id, "") if isinstance(call_id, str) else ""


def call(state: SessionState, call_id: object, name: object, arguments: object) -> Block:
    """Return the block of a tool call, and remember the call."""
    tool = string(name)[:MAX_NAME_CHARS]
    opened(state, call_id, tool)
    return Block(Kind.TOOL_INPUT, "", tool, decoded(arguments))


def result(tool: str, text: str, failed: bool) -> Block:
    """Return the block of a tool's result."""
    return Block(Kind.TOOL_ERROR if failed else Kind.TOOL_OUTPUT, text, tool[:MAX_NAME_CHARS])


def reads_as_error(text: str) -> bool:
    """Say whether a tool's answer tells of a failure by its words alone."""
    lowered = text.lower()
    return "permission denied" in lowered or lowered.lstrip().startswith(("error:", "blocked:"))


def user_text(text: str) -> tuple[Block, ...]:
    """Return what a person typed as a block."""
    return (Block(Kind.USER_TEXT, text),)


def parted(text: str, tag: str) -> tuple[str, str] | None:
    """Return what the first element `tag` of `text` encloses, and what stands around it."""
    start = text.find(f"<{tag}")
    inner = text.find(">", start) + 1 if start >= 0 else 0
    end = text.find(f"</{tag}>", inner) if inner else -1
    if end < 0:
        return None
    return text[inner:end].strip(), text[:start] + text[end + len(tag) + len("</>") :]


class HostText:
    """Tells what a person typed from what one agent's host puts into the user's role.

    `cut` names the tags whose elements are cut out of a text; a text that begins with `whole`
    is the host's altogether. Both are regular expressions.
    """

    def __init__(self, cut: str = "(?!)", whole: str = "(?!)") -> None:
        self._opening = re.compile(rf"<({cut})\b")
        self._whole = re.compile(rf"\s*(?:{whole})")

    def blocks(self, text: str) -> tuple[Block, ...]:
        """Return `text` as blocks: what a person typed, and the host's words as meta."""
        if self._whole.match(text):
            return (Block(Kind.META, text),)
        spans = self._elements(text)
        if not spans:
            return (Block(Kind.USER_TEXT, text),)
        starts, ends = zip(*spans, strict=True)
        said = (text[start:end] for start, end in zip((0, *ends), (*starts, None), strict=True))
        host = (text[start:end] for start, end in spans)
        return (Block(Kind.USER_TEXT, "".join(said).strip()), Block(Kind.META, "".join(host)))

    def _elements(self, text: str) -> list[tuple[int, int]]:
        """Return where the elements to cut are; one that is never closed is a person's word."""
        spans: list[tuple[int, int]] = []
        unclosed: set[str] = set()
        at = 0
        while opening := self._opening.search(text, at):
            at, tag = opening.end(), opening[1]
            end = -1 if tag in unclosed else text.find(f"</{tag}>", at)
            if end < 0:
                unclosed.add(tag)
                continue
            at = end + len(tag) + len("</>")
            spans.append((opening.start(), at))
        return spans


def blocks(
    content: object,
    kind: Kind,
    state: SessionState,
    split: Split = user_text,
) -> list[Block]:
    """Return the blocks of a message's content.

    `kind` is that of its plain texts; those of kind user_text go through `split`, which tells
    what a person typed from what the host put in. Unknown blocks are counted.
    """
    found: list[Block] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            found += split(part) if kind is Kind.USER_TEXT else (Block(kind, part),)
        elif isinstance(part, dict):
            found += _block(part, kind, state, split)
    return found


def _block(part: Record, kind: Kind, state: SessionState, split: Split) -> Iterable[Block]:
    what = string(part.get("type"))
    if what in TEXT_TYPES or (not what and "text" in part):
        text = string(part.get("text"))
        return split(text) if kind is Kind.USER_TEXT else (Block(kind, text),)
    if what in CALL_TYPES:
        arguments = part.get("input", part.get("arguments"))
        return (call(state, part.get("id"), part.get("name"), arguments),)
    if what in RESULT_TYPES:
        return (_result(part, state),)
    if what == "thinking" or what == "reasoning":
        return (Block(Kind.REASONING, string(part.get("thinking", part.get("text")))),)
    state.skip(f"block {what or 'without type'}")
    return ()


def _result(part: Record, state: SessionState) -> Block:
    content = part.get("content", part.get("output"))
    tool = closed(state, part.get("tool_use_id", part.get("toolUseId")))
    return result(tool or string(part.get("name")), plain(content), part.get("is_error") is True)


def first_string(record: Record, *names: str) -> str:
    """Return the first non-empty text among the named fields of `record`."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def failure_text(value: object) -> str:
    """Return the words of an error that is a text or an object holding one, however deep."""
    for _ in range(MAX_ERROR_DEPTH):
        if isinstance(value, str) or not value:
            break
        value = mapping(value).get("message") or mapping(value).get("error")
    return string(value)
