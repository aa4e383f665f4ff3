from __future__ import annotations

import json

import pytest

from indexd.formats.registry import detect

CHAT = b'{"role":"user","content":"hi"}'
CLAUDE = b'{"type":"user","sessionId":"s","uuid":"u","message":{"role":"user","content":"hi"}}'


def agent(lines: list[bytes], path: str = "/x.jsonl", hint: str | None = None) -> str | None:
    reader, _ = detect(lines, path, hint)
    return reader.agent if reader else None


@pytest.mark.parametrize(
    "record",
    [
        {"display": "fix it", "project": "/p", "timestamp": 1},
        {"session_id": "s", "ts": 1787216400, "text": "typed"},
        {"event": "connected", "server": "files", "tools": []},
        {"name": "ana", "age": 7},
        ["role", "user"],
        "role",
    ],
)
def test_other_things_called_jsonl_are_left_alone(record: object) -> None:
    assert detect([json.dumps(record).encode()] * 3, "/home/ana/.claude/x.jsonl", "claude") == (
        None,
        None,
    )


def test_a_file_without_a_complete_line_cannot_be_decided() -> None:
    assert detect([], "/home/ana/.claude/projects/a/b.jsonl") == (None, None)


def test_a_pretty_printed_object_is_no_session() -> None:
    assert agent([b"{", b' "role": "user",', b' "content": "hi"', b"}"]) is None


def test_the_content_decides_against_path_and_hint_and_that_is_said() -> None:
    reader, oddity = detect([CLAUDE], "/home/ana/.codex/sessions/rollout-1.jsonl", "codex")
    assert reader is not None
    assert reader.agent == "claude"
    assert oddity == "the content is that of claude, not of codex"


def test_a_bare_chat_message_is_read_as_what_the_path_or_the_hint_says() -> None:
    assert agent([CHAT]) == "generic"
    assert agent([CHAT], "/home/ana/.reasonix/sessions/a.jsonl") == "reasonix"
    assert agent([CHAT], "/s/20260820-090000.000000000-model-x.jsonl") == "reasonix"
    assert agent([CHAT], hint="reasonix") == "reasonix"


def test_a_known_agent_is_found_behind_lines_that_say_nothing() -> None:
    assert agent([b"", b"garbage", CHAT, CLAUDE]) == "claude"


def test_a_hint_may_be_the_generic_reader() -> None:
    assert detect([CHAT], "/x.jsonl", "generic")[1] is None
