"""The history tool's answers, byte for byte where agents match on them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd.history import around_text, quoted, search_text

HIT = {
    "score": 3.39251,
    "source": "project",
    "session_id": "a",
    "message_index": 7,
    "kind": "user_text",
    "role": "user",
    "tool_name": None,
    "session_path": "/s/a.jsonl",
    "snippet": "keep the cache first",
}


def message(role: str, text: str = "", **more: Any) -> dict[str, Any]:
    return {"index": 4, "role": role, "text": text, "tool_calls": [], "truncated": False, **more}


def test_hits_are_listed_in_the_words_agents_know():
    second = HIT | {"kind": "tool_error", "role": "tool", "tool_name": "bash", "score": 1}

    assert search_text("cache first", [HIT, second]) == (
        'History search results for "cache first":\n'
        "\n"
        "1. score=3.393 source=project session_id=a message_index=7 kind=user_text role=user\n"
        "   session_path: /s/a.jsonl\n"
        "   snippet: keep the cache first\n"
        "\n"
        "2. score=1.000 source=project session_id=a message_index=7 kind=tool_error role=tool"
        " tool=bash\n"
        "   session_path: /s/a.jsonl\n"
        "   snippet: keep the cache first\n"
        "\n"
        'Use operation="around" with a session_path and message_index to read nearby messages.'
    )


def test_no_hit_says_so_and_gives_three_things_to_try():
    lines = search_text("q", []).split("\n")

    assert lines[:2] == ['No saved session history matched "q".', ""]
    assert lines[2].endswith("Try:")
    assert [line[:3] for line in lines[3:]] == ["1. ", "2. ", "3. "]
    assert "global" in lines[4]
    assert "tool_output" in lines[5]
    assert "tool_name" in lines[5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", '"plain"'),
        ("a<b>&c", '"a\\u003cb\\u003e\\u0026c"'),
        ('say "hi"\\', '"say \\"hi\\"\\\\"'),
        ("库\n\t", '"库\\n\\t"'),
        ("a\u2028b\u2029", '"a\\u2028b\\u2029"'),
        ("half \ud800 pair", '"half \ufffd pair"'),
        ("\x00\x1f", '"\\u0000\\u001f"'),
        ("😀", '"😀"'),
    ],
)
def test_a_query_is_quoted_as_the_first_tool_quoted_it(text, expected):
    assert quoted(text) == expected


@given(st.text())
def test_a_quoted_query_reads_back_as_itself_and_is_safe_in_html(text: str):
    assert json.loads(quoted(text)) == text
    assert not set("<>&\u2028\u2029") & set(quoted(text))


def test_messages_are_headed_by_index_and_role():
    messages = [
        message("user", "why?\n", index=3),
        message("assistant", "let me see", tool_calls=[{"name": "bash", "arguments": '{"c":1}'}]),
        message("tool", "no such file", index=5, tool_name="bash"),
        message("system", "be brief", index=6),
        message("developer", "rules", index=7),
    ]

    assert around_text("/s/a.jsonl", 4, messages) == (
        "History around /s/a.jsonl message_index=4:\n"
        "\n[3 user]\nwhy?\n"
        '\n[4 assistant]\nlet me see\n[tool call: bash]\n{"c":1}\n'
        "\n[5 tool bash result]\nno such file\n"
        "\n[6 system]\nbe brief\n"
        "\n[7 developer]\nrules"
    )


def test_a_call_without_words_follows_its_head_at_once():
    calls = [{"name": "a", "arguments": {"k": "ü"}}, {"name": "b", "arguments": ""}]

    assert around_text("/p", 4, [message("assistant", "  ", tool_calls=calls)]) == (
        'History around /p message_index=4:\n\n[4 assistant]\n[tool call: a]\n{"k":"ü"}\n'
        "[tool call: b]"
    )


@pytest.mark.parametrize(
    ("role", "limit"), [("user", 2000), ("assistant", 2000), ("tool", 2000), ("system", 1200)]
)
def test_long_texts_are_cut_and_dotted(role, limit):
    whole = around_text("/p", 4, [message(role, "ü" * limit)])
    cut = around_text("/p", 4, [message(role, "ü" * (limit + 1))])
    cut_before = around_text("/p", 4, [message(role, "ü" * limit, truncated=True)])

    assert whole.endswith("\n" + "ü" * limit)
    assert cut == whole + "..."
    assert cut_before == cut


def test_long_arguments_are_cut_at_their_own_limit():
    calls = [{"name": "a", "arguments": "x" * 1300}]

    text = around_text("/p", 4, [message("assistant", "y" * 1300, tool_calls=calls)])
    assert text.endswith("x" * 1200 + "...")
    assert "y" * 1300 + "\n" in text


def test_a_short_text_beside_a_cut_one_gets_no_dots():
    calls = [{"name": "a", "arguments": "x" * 1200}]

    text = around_text("/p", 4, [message("assistant", "short", tool_calls=calls, truncated=True)])
    assert "short\n" in text
    assert text.endswith("x...")
