"""DeepSeek-Reasonix: chat messages, one per line, or an event log that rebuilds such a list.

The plain file is saved whole at every turn. Where an event log stands beside it, the log is the
authority and is read in its place: `replace` sets the whole list anew, `append` adds to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from indexd.formats import Format, Item, facts
from indexd.formats.content import call, closed, first_string, plain, reads_as_error, result, said
from indexd.formats.lines import Record, mapping, milliseconds, sequence, string, whole_object
from indexd.model import Block, Kind, Message, Rewind, SessionState

EVENT_TYPES = frozenset({"replace", "append"})
EVENT_SCHEMA = 1

# What the host puts before a person's words. The names of the two tags need not match.
_TAGS = (
    "memory-update|background-jobs|active-goal|hook-context|response-language|reasoning-language"
    "|autoresearch-runtime|capability-route|interrupted-turn-recovery|memory-compiler-execution"
)
_LEADING = re.compile(rf"\s*<(?:{_TAGS})\b[^>]*>.*?</(?:{_TAGS})>\s*\n\s*", re.DOTALL)
_TRAILING = re.compile(
    r"<(memory-recall|delivery-runtime)\b[^<>]*>(?:(?!<\1\b).)*</\1>\s*\Z", re.DOTALL
)
_PLAN_MODE = re.compile(r"\[Plan mode[^\]]*\]\s*")
_COMPACTION = "<compaction-summary>"

_MARKS = (
    "raw_content", "reasoning_content", "createdAt", "tool_execution", "local_only",
    "workDurationMs", "memoryCitations", "responses_items", "decision_receipt",
)  # fmt: skip


class Reasonix(Format):
    """Reads the session files and event logs of DeepSeek-Reasonix."""

    agent = "reasonix"
    paths = re.compile(
        r"/\.reasonix/|/\d{8}-\d{6}\.\d{3,9}(?:-[^/]*)?\.jsonl$|/subagents/sa_\d{8}_[^/]*\.jsonl$"
    )

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        """Return the directories of global, of per-project and of archived sessions."""
        base = environment.get("REASONIX_HOME") or f"{home}/.reasonix"
        state = environment.get("REASONIX_STATE_HOME") or base
        return [f"{state}/sessions", f"{state}/projects", f"{state}/archive"]

    def recognises(self, record: Record, named: bool) -> bool:
        """Say whether `record` is an event, or a message with a mark of Reasonix."""
        if string(record.get("type")) in EVENT_TYPES:
            return isinstance(record.get("messages"), list) and "schema_version" in record
        if not isinstance(record.get("role"), str) or "type" in record or "message" in record:
            return named and record.keys() <= {"schema_version"} and bool(record)
        calls = map(mapping, sequence(record.get("tool_calls")))
        flat = any("name" in each and "arguments" in each for each in calls)
        return named or flat or any(mark in record for mark in _MARKS)

    def sidecars(self, name: str) -> tuple[str, ...]:
        """Return the session's meta file; sub-agents' is called a little differently."""
        return (f"{name}.meta", f"{name.removesuffix('.jsonl')}.meta.json")

    def sidecar_facts(self, data: bytes) -> dict[str, str]:
        """Return what a meta file states."""
        record = whole_object(data)
        return facts(
            session_id=record.get("id"),
            cwd=record.get("workspace_root"),
            title=first_string(record, "custom_title", "topic_title", "name"),
            model=record.get("model"),
            parent=first_string(record, "parent_id", "parentSession"),
        )

    def path_facts(self, path: str) -> dict[str, str]:
        """Return the session id; an event log's is that of the session it belongs to."""
        if path.endswith(".events.jsonl"):
            path = f"{path.removesuffix('.events.jsonl')}.jsonl"
        return super().path_facts(path)

    def items(self, record: Record, state: SessionState, index: int) -> Iterable[Item]:
        """Return the message of a line, or what an event does to the list of messages."""
        if isinstance(record.get("role"), str):
            return (_message(record, state),)
        if string(record.get("type")) in EVENT_TYPES and "messages" in record:
            return _event(record, state, index)
        if record.keys() != {"schema_version"}:
            state.skip(string(record.get("type")) or "record without role")
        return ()


def _event(record: Record, state: SessionState, index: int) -> Iterable[Item]:
    version, messages = record.get("schema_version"), sequence(record["messages"])
    if version != EVENT_SCHEMA:
        state.skip(f"event of schema {version}")
        return
    state.timestamp = milliseconds(record.get("created_at")) or state.timestamp
    if record["type"] == "replace":
        yield Rewind(0)
    elif index not in (0, record.get("message_index", 0)):
        # Index 0 is also what a reader of this one line starts from, who need not be refused.
        state.skip("append out of place")
        return
    for message in messages:
        yield _message(mapping(message), state)


def _message(record: Record, state: SessionState) -> Message:
    role, content = string(record.get("role")), plain(record.get("content"))
    found: list[Block] = []
    if role == "user":
        found += _user(content, string(record.get("raw_content")))
    elif role == "assistant":
        found.append(Block(Kind.REASONING, string(record.get("reasoning_content"))))
        found.append(Block(Kind.ASSISTANT_TEXT, content))
        found += (_call(mapping(each), state) for each in sequence(record.get("tool_calls")))
    elif role == "tool":
        found.append(_result(record, content, state))
    else:
        found.append(Block(Kind.META, content))
    return said(state, role, found, record.get("createdAt"))


def _user(content: str, typed: str) -> Iterable[Block]:
    """Return a person's words: what was typed when that is kept, else without the host's."""
    if typed.strip():
        return (Block(Kind.USER_TEXT, typed),)
    if content.startswith(_COMPACTION):
        return (Block(Kind.SUMMARY, content),)
    start = 0
    while block := _LEADING.match(content, start):
        start = block.end()
    if plan := _PLAN_MODE.match(content, start):
        start = plan.end()
    trailing = _TRAILING.search(content, start)
    end = trailing.start() if trailing else len(content)
    host = content[:start] + content[end:]
    said_words = Block(Kind.USER_TEXT, content[start:end].rstrip())
    return (said_words, Block(Kind.META, host)) if host else (said_words,)


def _call(record: Record, state: SessionState) -> Block:
    function = mapping(record.get("function")) or record
    return call(state, record.get("id"), function.get("name"), function.get("arguments"))


def _result(record: Record, content: str, state: SessionState) -> Block:
    tool = closed(state, record.get("tool_call_id"))
    exit_code = mapping(record.get("tool_execution")).get("exitCode")
    failed = exit_code not in (None, 0) or reads_as_error(content)
    return result(string(record.get("name")) or tool, content, failed)
