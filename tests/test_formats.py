from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd.extract import display, displayed, documents
from indexd.formats import Format, following
from indexd.formats.content import MAX_OPEN_CALLS
from indexd.formats.lines import milliseconds
from indexd.formats.registry import FORMATS, detect
from indexd.model import MAX_TYPE_CHARS, MAX_TYPES, Document, Kind, Message, Rewind, SessionState

DATA = Path(__file__).parent / "data" / "formats"
SAMPLES = sorted(DATA.glob("*/*.jsonl"))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def line(record: object) -> bytes:
    return json.dumps(record).encode()


def read(reader: Format, lines: list[bytes], state: SessionState | None = None) -> list[Message]:
    """Return the messages that stand at the end, as the caller of a Format keeps them."""
    state = state or SessionState()
    kept: list[Message] = []
    for each in lines:
        for item in reader.read(each, state):
            if isinstance(item, Rewind):
                del kept[item.length :]
            elif item.replaces is not None:
                kept[item.replaces] = item
            else:
                kept.append(item)
            state.next_index = following(item, state.next_index)
    assert state.next_index == len(kept)
    return kept


def said(reader: Format, *records: object) -> list[tuple[str, str]]:
    messages = read(reader, [line(record) for record in records])
    return [(doc.kind.value, doc.text) for doc in all_documents(messages)]


def all_documents(messages: list[Message]) -> list[Document]:
    return [doc for index, message in enumerate(messages) for doc in documents(message, index)]


# ---- the samples: one folder per agent, and what each file must yield ----


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_sample_yields_what_stands_beside_it(path: Path) -> None:
    expected = json.loads(path.with_name(f"{path.name}.expected.json").read_text())
    lines = lines_of(path)
    reader, oddity = detect(lines, str(path))
    assert reader is not None
    assert (reader.agent, oddity) == (path.parent.name, None)
    state = SessionState()
    found = []
    for number, each in enumerate(lines, 1):
        for item in reader.read(each, state):
            if isinstance(item, Message):
                found += [(number, doc) for doc in documents(item, state.next_index)]
            state.next_index = following(item, state.next_index)
    facts = reader.path_facts(str(path))
    for name in reader.sidecars(path.name):
        if (sidecar := path.with_name(name)).exists():
            facts |= reader.sidecar_facts(sidecar.read_bytes())
    assert facts | state.facts == expected["session"]
    for wanted in expected["documents"]:
        match = next(
            (
                (number, doc)
                for number, doc in found
                if (number, doc.kind) == (wanted["line"], wanted["kind"])
                and says(doc, wanted["text"])
            ),
            None,
        )
        assert match, f"{wanted} is not among {found}"
        found.remove(match)
    assert found == []


def says(doc: Document, words: str) -> bool:
    if doc.kind is Kind.TOOL_INPUT:
        return all(word in doc.text for word in words.split())
    return words in doc.text


def test_every_agent_has_a_sample() -> None:
    assert {path.parent.name for path in SAMPLES} == set(FORMATS)


def test_every_agent_is_documented() -> None:
    page = (Path(__file__).parent.parent / "docs" / "formats.md").read_text()
    assert [agent for agent in FORMATS if f"(`{agent}`)\n" not in page] == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_read_in_pieces_gives_the_same_messages(path: Path) -> None:
    lines = lines_of(path)
    reader, _ = detect(lines, str(path))
    assert reader is not None
    state = SessionState()
    kept: list[Message] = []
    for each in lines:  # between any two lines the state goes to disk and comes back
        state = msgspec.convert(msgspec.msgpack.decode(msgspec.msgpack.encode(state)), SessionState)
        for item in reader.read(each, state):
            if isinstance(item, Rewind):
                del kept[item.length :]
            elif item.replaces is not None:
                kept[item.replaces] = item
            else:
                kept.append(item)
            state.next_index = following(item, state.next_index)
    assert kept == read(reader, lines)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_line_read_again_alone_says_the_same(path: Path) -> None:
    lines = lines_of(path)
    reader, _ = detect(lines, str(path))
    assert reader is not None
    state = SessionState()
    for each in lines:
        items = reader.read(each, state)
        for item in items:
            state.next_index = following(item, state.next_index)
        first = [item for item in items if isinstance(item, Message)]
        if not first:
            continue  # only lines that said something are ever read again
        fresh = SessionState(facts=dict(state.facts))
        again = [item for item in reader.read(each, fresh) if isinstance(item, Message)]
        assert [spoken(message) for message in again] == [spoken(message) for message in first]


def spoken(message: Message) -> list[tuple[str, str, Any]]:
    return [(block.kind.value, block.text, block.arguments) for block in message.blocks]


# ---- nothing raises ----

READERS = sorted(FORMATS)
SAMPLE_LINES = [(path.parent.name, json.loads(each)) for path in SAMPLES for each in lines_of(path)]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300)
@given(agent=st.sampled_from(READERS), lines=st.lists(st.binary(max_size=80), max_size=5))
def test_arbitrary_bytes_never_raise(agent: str, lines: list[bytes]) -> None:
    read(FORMATS[agent], lines)
    detect(lines, "/x.jsonl", agent)


@settings(max_examples=400)
@given(data=st.data())
def test_a_record_with_any_part_exchanged_never_raises(data: st.DataObject) -> None:
    agent, record = data.draw(st.sampled_from(SAMPLE_LINES))
    spoiled = spoil(record, data)
    raw = line(spoiled)
    for reader in (FORMATS[agent], data.draw(st.sampled_from(list(FORMATS.values())))):
        detect([raw], "/x.jsonl")
        for message in read(reader, [raw, line(record)], SessionState()):
            for doc in documents(message, 0):
                doc.text.encode()
                displayed(message, doc.kind, doc.call).encode()
            for block in message.blocks:
                display(block).encode()


def spoil(value: Any, data: st.DataObject) -> Any:
    """Return `value` with one of its parts, at any depth, exchanged for something else."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 5)):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: spoil(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 5)):
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], spoil(value[place], data), *value[place + 1 :]]
    return data.draw(json_values)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 10_000 + b"]" * 10_000,
        b'{"role":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"role":"user","content":' + b"9" * 5000 + b"}",
        b'{"role":"user","content":"cut',
        b"not json at all",
    ],
    ids=["deep arrays", "deep objects", "5,000 digits", "torn", "no json"],
)
def test_an_unreadable_line_is_counted_and_costs_no_neighbour(raw: bytes) -> None:
    state = SessionState()
    good = line({"role": "user", "content": "still here"})
    messages = read(FORMATS["reasonix"], [good, raw, good], state)
    assert [message.blocks[0].text for message in messages] == ["still here"] * 2
    assert state.skipped == {"unreadable line": 1}


@pytest.mark.parametrize(
    "raw",
    [
        b'\xef\xbb\xbf{"role":"user","content":"ok"}',
        b'{"role":"user","content":"ok"}\0\0\0',
        b'\0\0\0{"role":"user","content":"ok"}',
        b'{"role":"user","content":"ok","x":"\xff\xfe"}',
        b'{"role":"user","content":"ok","x":"\\ud800"}',
        b'{"role":"user","content":"ok","x":"\x01"}',
        b'{"role":"user","content":"ok","x":NaN}',
    ],
    ids=["bom", "nuls after", "nuls before", "bad utf-8", "lone surrogate", "control", "nan"],
)
def test_a_damaged_line_is_repaired_and_counted(raw: bytes) -> None:
    state = SessionState()
    messages = read(FORMATS["reasonix"], [raw], state)
    assert [message.blocks[0].text for message in messages] == ["ok"]
    assert state.skipped == {"repaired line": 1}


def test_a_carriage_return_before_the_newline_is_no_damage() -> None:
    state = SessionState()
    assert len(read(FORMATS["reasonix"], [b'{"role":"user","content":"ok"}\r'], state)) == 1
    assert state.skipped == {}


def test_a_lone_surrogate_in_a_text_can_be_encoded_afterwards() -> None:
    raw = b'{"role":"user","content":"a\\ud83db"}'
    (message,) = read(FORMATS["reasonix"], [raw])
    assert message.blocks[0].text.encode() == b"a?b"


def test_two_records_glued_together_are_both_read() -> None:
    first, second = {"role": "user", "content": "one"}, {"role": "user", "content": "two"}
    for gap in (b"", b" \0 "):
        messages = read(FORMATS["reasonix"], [line(first) + gap + line(second)])
        assert [message.blocks[0].text for message in messages] == ["one", "two"]


def test_a_record_behind_a_torn_one_is_read() -> None:
    torn = b'{"role":"assistant","content":"half of it","tool_calls":[{"id":"c","na'
    state = SessionState()
    messages = read(FORMATS["reasonix"], [torn + line({"role": "user", "content": "whole"})], state)
    assert [message.blocks[0].text for message in messages] == ["whole"]
    assert state.skipped == {"unreadable line": 1}


CARRIERS: list[tuple[str, Any]] = [
    ("reasonix", {"role": "user", "content": "@@"}),
    ("reasonix", {"role": "tool", "content": "@@"}),
    ("claude", {"type": "user", "message": {"content": "@@"}}),
    ("codex", {"type": "message", "role": "user", "content": "@@"}),
    ("codex", {"type": "function_call_output", "output": "@@"}),
    ("kiro", {"kind": "Prompt", "data": {"content": [{"kind": "text", "data": "@@"}]}}),
    ("gemini", {"id": "g", "type": "user", "content": "@@"}),
    ("cursor", {"role": "user", "message": {"content": "@@"}}),
    ("droid", {"type": "message", "message": {"role": "user", "content": "@@"}}),
]
ENDLESS_CHARS = 200_000


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "sk-",
            "eyJ-",
            "bearer ",
            "://a:",
            "ghp_",
            "AKIA",
            "-----BEGIN RSA PRIVATE" + " KEY-----",
        ),
        *("\x1b]", "\x1b[", "data:", ";base64,", "A", "a" * 70 + "\n", " ", "\n", "<", "@://:"),
        *("<system-reminder>", "</system-reminder><system-reminder>", "[Plan mode", "{"),
        *("<memory-recall ", "<memory-recall></memory-recall> ", "<memory-recall>"),
        *("<hook-context>\n", "<hook-context></hook-context>\n", "</hook-context> "),
        *("<user_message>", "<user_query>", "<command-args>", "<session_context>"),
        *("# Context from my IDE\n", "Exit code: 1\n", "Workspace Directories: - /", '{"output":'),
    ],
)
def test_no_text_takes_long_to_read(piece: str) -> None:
    text = piece * (ENDLESS_CHARS // len(piece))
    started = time.process_time()
    for agent, record in CARRIERS:
        raw = line(record).replace(b"@@", json.dumps(text)[1:-1].encode())
        (message,) = read(FORMATS[agent], [raw])
        documents(message, 0)
    assert time.process_time() - started < 3


def test_types_nobody_knows_are_counted_within_bounds() -> None:
    state = SessionState()
    for number in range(MAX_TYPES * 2):
        FORMATS["claude"].read(line({"type": f"{number} {'x' * 1000}"}), state)
    assert sum(state.skipped.values()) == MAX_TYPES * 2
    assert len(state.skipped) == MAX_TYPES + 1
    assert max(map(len, state.skipped)) == MAX_TYPE_CHARS


def test_open_calls_are_bounded_and_answered_ones_forgotten() -> None:
    reader, state = FORMATS["reasonix"], SessionState()
    for number in range(MAX_OPEN_CALLS + 10):
        asked = {"id": f"c{number}", "name": "bash", "arguments": "{}"}
        reader.read(line({"role": "assistant", "tool_calls": [asked]}), state)
    assert len(state.calls) == MAX_OPEN_CALLS
    reader.read(line({"role": "tool", "tool_call_id": "c20", "content": ""}), state)
    assert "c20" not in state.calls


@pytest.mark.parametrize(
    ("stated", "moment"),
    [
        ("2026-08-20T09:00:00.100Z", 1787216400100),
        ("2026-08-20T11:00:00.100123456+02:00", 1787216400100),
        ("2026-08-20T09:00:00", 1787216400000),
        (1787216400, 1787216400000),
        (1787216400000, 1787216400000),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        (-5, None),
        ("yesterday", None),
        ("9999-12-31T23:59:59-23:00", None),
        (None, None),
    ],
)
def test_moments_are_unix_milliseconds(stated: object, moment: int | None) -> None:
    assert milliseconds(stated) == moment


def test_a_record_without_a_time_takes_over_the_last_one() -> None:
    stamped = {"role": "user", "content": "a", "createdAt": 1787217300000}
    messages = read(FORMATS["reasonix"], [line(stamped), line({"role": "user", "content": "b"})])
    assert [message.timestamp for message in messages] == [1787217300000] * 2
