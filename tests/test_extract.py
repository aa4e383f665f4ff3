from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd.extract import (
    BLOB,
    clean,
    display,
    displayed,
    documents,
    shown_arguments,
    shown_text,
)
from indexd.model import Block, Document, Kind, Message

KEY = "sk-" + "a1B2c3D4e5F6g7H8i9J0"


def call(tool: str, arguments: object) -> Block:
    return Block(Kind.TOOL_INPUT, "", tool, arguments)


def message(*blocks: Block) -> Message:
    return Message("assistant", blocks)


def noise(size: int) -> str:
    return base64.b64encode(random.Random(7).randbytes(size)).decode()


def test_texts_of_one_kind_are_one_document() -> None:
    one = Block(Kind.ASSISTANT_TEXT, "first")
    two = Block(Kind.ASSISTANT_TEXT, "second")
    thought = Block(Kind.REASONING, "aside")
    assert documents(message(one, thought, two), 4) == [
        Document(Kind.ASSISTANT_TEXT, "first\nsecond", 4),
        Document(Kind.REASONING, "aside", 4),
    ]


def test_every_tool_call_is_a_document_of_its_own() -> None:
    calls = message(call("Read", {"path": "a.py"}), call("Bash", "ls"), call("Stop", None))
    assert documents(calls, 2) == [
        Document(Kind.TOOL_INPUT, "Read path a.py", 2, "Read", 0),
        Document(Kind.TOOL_INPUT, "Bash ls", 2, "Bash", 1),
        Document(Kind.TOOL_INPUT, "Stop", 2, "Stop", 2),
    ]


def test_arguments_are_flattened_in_their_order_with_keys_and_without_escapes() -> None:
    arguments = {"b": "two\nlines", "a": [1, 2.5, True, False, None, {"x": {"deep": "中文"}}]}
    (doc,) = documents(message(call("t", arguments)), 0)
    assert doc.text == "t b two\nlines a 1 2.5 true false null x deep 中文"


def test_results_are_found_by_their_tool_and_their_words() -> None:
    results = message(
        Block(Kind.TOOL_OUTPUT, "fine", "Bash"),
        Block(Kind.TOOL_ERROR, "exit 1", "Make"),
        Block(Kind.TOOL_OUTPUT, "too", "Read"),
        Block(Kind.TOOL_OUTPUT, "again", "Bash"),
    )
    assert documents(results, 0) == [
        Document(Kind.TOOL_OUTPUT, "Bash fine", 0, "Bash", 1),
        Document(Kind.TOOL_OUTPUT, "Read too", 0, "Read", 2),
        Document(Kind.TOOL_OUTPUT, "Bash again", 0, "Bash", 3),
        Document(Kind.TOOL_ERROR, "Make exit 1", 0, "Make", 0),
    ]
    assert displayed(results, Kind.TOOL_OUTPUT, 2) == "Read too"
    alike = message(*(Block(Kind.TOOL_OUTPUT, text, "Bash") for text in ("fine", "again")))
    assert documents(alike, 0) == [
        Document(Kind.TOOL_OUTPUT, "Bash fine\nBash again", 0, "Bash", 0)
    ]


@pytest.mark.parametrize("text", ["", " \n\t", "\x1b[0m", "\0\0"])
def test_a_blank_document_is_dropped(text: str) -> None:
    assert documents(message(Block(Kind.USER_TEXT, text)), 0) == []


def test_a_call_is_shown_with_compact_json_and_its_characters_unescaped() -> None:
    block = call("bash", {"cmd": 'echo "é\n"', "n": [1, None]})
    assert display(block) == 'bash {"cmd":"echo \\"é\\n\\"","n":[1,null]}'
    assert shown_arguments(block) == '{"cmd":"echo \\"é\\n\\"","n":[1,null]}'
    assert shown_text(block) == ""


def test_arguments_that_were_a_text_are_shown_as_they_are() -> None:
    assert display(call("apply_patch", "*** Begin\n+a")) == "apply_patch *** Begin\n+a"
    assert display(call("stop", None)) == "stop"
    assert display(call("stop", {})) == "stop {}"


def test_a_document_is_shown_with_the_words_it_was_analysed_with() -> None:
    said = message(
        Block(Kind.ASSISTANT_TEXT, "one"),
        call("a", {"k": 1}),
        call("b", {"k": 2}),
        Block(Kind.ASSISTANT_TEXT, "two"),
        Block(Kind.TOOL_ERROR, "broken", "a"),
    )
    assert displayed(said, Kind.ASSISTANT_TEXT) == "one\ntwo"
    assert displayed(said, Kind.TOOL_INPUT, 1) == 'b {"k":2}'
    assert displayed(said, Kind.TOOL_ERROR) == "a broken"
    assert displayed(said, Kind.SUMMARY) == ""


def test_secrets_are_masked_in_texts_and_in_what_is_shown_unless_revealed() -> None:
    said = message(call("bash", {"env": f"KEY=x\n{KEY}"}), Block(Kind.TOOL_OUTPUT, KEY, "bash"))
    for doc in documents(said, 0):
        assert KEY not in doc.text
        assert KEY not in displayed(said, doc.kind, doc.call)
    for doc in documents(said, 0, reveal=True):
        assert KEY in doc.text
        assert KEY in displayed(said, doc.kind, doc.call, reveal=True)


def test_a_secret_among_the_keys_of_arguments_is_masked() -> None:
    assert display(call("t", {KEY: 1})) == 't {"[secret]":1}'


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[1;31mred\x1b[0m plain", "red plain"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x1b\\text", "text"),
        ("a\0b", "ab"),
        ("see data:image/png;base64,iVBORw0KGgo= there", f"see {BLOB} there"),
    ],
)
def test_what_is_no_text_is_cut_out(raw: str, text: str) -> None:
    assert clean(raw) == text


def test_long_base64_is_cut_out_and_the_words_around_it_stay() -> None:
    assert clean(f"before {noise(900)} after") == f"before {BLOB} after"
    wrapped = "\n".join(noise(900)[at : at + 76] for at in range(0, 1200, 76))
    assert clean(f"before\n{wrapped}\nafter").startswith(f"before\n{BLOB}")
    assert clean(f"before\n{wrapped}\nafter").endswith("after")


def test_words_paths_and_hashes_are_no_base64() -> None:
    text = "\n".join(f"src/module_{n}/file_{n}.py {n:064x}" for n in range(200))
    assert clean(text) == text
    assert clean(text.replace(" ", "\n")) == text.replace(" ", "\n")


def test_deeply_nested_arguments_are_analysed_and_shown() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    (doc,) = documents(message(call("t", deep)), 0)
    assert doc.text == "t bottom"
    assert "bottom" in display(call("t", deep))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(alphabet="abc"), json_values, max_size=3))
def test_shown_arguments_are_the_arguments(arguments: dict[str, Any]) -> None:
    shown = shown_arguments(call("t", arguments), reveal=True)
    cleaned = json.loads(json.dumps(arguments), object_hook=_clean_object)
    assert json.loads(shown) == cleaned


def _clean_object(value: dict[str, Any]) -> dict[str, Any]:
    return {clean(key): _clean(inner) for key, inner in value.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    return clean(value) if isinstance(value, str) else value
