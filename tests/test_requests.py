from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd import protocol
from indexd.errors import BadRequest
from indexd.model import DEFAULT_KINDS, KINDS, Kind
from indexd.requests import (
    MAX_QUERY_CHARS,
    Around,
    Hello,
    History,
    McpEvent,
    Reindex,
    Request,
    Search,
    Status,
    Sync,
    ToolList,
    ToolSearch,
    convert,
)

ALL = [Hello, Search, Around, History, ToolSearch, ToolList, McpEvent, Status, Sync, Reindex]
NOW = 1_786_000_000_000
FIELDS = sorted({field.name for kind in ALL for field in msgspec.structs.fields(kind)})
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary()
)


def refusal(params: dict[str, Any], kind: type[Request]) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        convert(params, kind, now_ms=NOW)
    return refused.value


def test_a_search_needs_no_more_than_a_query() -> None:
    search = convert({"query": "retry budget"}, Search)
    assert msgspec.structs.asdict(search) == {
        "query": "retry budget",
        "scope": "global",
        "kinds": DEFAULT_KINDS,
        "limit": 8,
        "offset": 0,
        "generation": None,
        "role": None,
        "literal": False,
        "group": None,
        "copies": None,
        "tool_name": None,
        "agent": None,
        "session": None,
        "project": None,
        "session_dir": None,
        "subagents": "include",
        "source": None,
        "since": None,
        "until": None,
        "order": "relevance",
        "recency": None,
        "sync": True,
        "reveal": False,
    }


def test_around_shows_three_messages_on_each_side_by_default() -> None:
    around = convert({"session_path": "/s.jsonl", "message_index": 0}, Around)
    assert (around.before, around.after) == (3, 3)
    assert {around.full, around.reasoning, around.reveal} == {False}


def test_null_means_not_given() -> None:
    assert convert({"query": "a", "limit": None, "kinds": None}, Search).limit == 8
    assert "query is missing" in refusal({"query": None}, Search).message


@pytest.mark.parametrize("value", [0, 50])
def test_bounds_are_inclusive(value: int) -> None:
    params = {"session_path": "/s", "message_index": 5, "before": value, "after": value}
    around = convert(params, Around)
    assert (around.before, around.after) == (value, value)


@pytest.mark.parametrize(
    ("value", "seen"),
    [(0, "0"), (201, "201"), (-1, "-1"), (True, "true"), (8.0, "8.0"), (math.nan, "nan"),
     (math.inf, "inf"), (2**63, "9223372036854775808"), ("8", '"8"'), ([8], "a list"),
     ({"a": 1}, "a map"), (b"8", "a bytes value")],
)  # fmt: skip
def test_a_bad_limit_is_named_with_what_is_allowed(value: object, seen: str) -> None:
    error = refusal({"query": "a", "limit": value}, Search)
    assert error.message == f"limit {seen} is not a whole number from 1 to 200"
    assert error.hint == "give a whole number from 1 to 200"


@pytest.mark.parametrize("value", [-1, 2**31, 2**63, 1.5, math.nan, False, "1", None])
def test_a_message_index_is_a_whole_number_and_nothing_like_it(value: object) -> None:
    error = refusal({"session_path": "/s", "message_index": value}, Around)
    assert error.message.startswith("message_index")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("scope", "all", '"global" or "project"'), ("order", "best", '"relevance" or "recent"'),
     ("sync", 1, "true or false"), ("query", 5, "a string"), ("agent", ["a"], "a string"),
     ("scope", "\udcff", '"global" or "project"')],
)  # fmt: skip
def test_every_field_says_what_it_takes(name: str, value: object, allowed: str) -> None:
    error = refusal({"query": "a"} | {name: value}, Search)
    assert error.message.startswith(f"{name} ")
    assert error.message.endswith(f" is not {allowed}")


def test_every_field_of_every_request_can_be_refused_in_words() -> None:
    for kind in ALL:
        for field in msgspec.structs.fields(kind):
            error = refusal({field.name: object()}, kind)
            assert error.message.startswith((field.name, "unknown kind"))
            assert error.hint


def test_an_unknown_parameter_names_the_nearest() -> None:
    error = refusal({"query": "a", "limt": 5}, Search)
    assert (error.message, error.hint) == ('unknown parameter "limt"', 'did you mean "limit"?')
    assert refusal({"x": 1}, Reindex).hint == "known are path"
    assert refusal({"x": 1}, Status).hint == "there are none"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("user_text", (Kind.USER_TEXT,)), ("all", KINDS), ([], DEFAULT_KINDS), (["all"], KINDS),
     (["meta", "tool_output", "meta"], (Kind.META, Kind.TOOL_OUTPUT))],
)  # fmt: skip
def test_kinds_are_one_name_a_list_or_all(value: object, expected: tuple[Kind, ...]) -> None:
    assert convert({"query": "a", "kinds": value}, Search).kinds == expected


@pytest.mark.parametrize("value", ["user_txt", ["meta", "user_txt"]])
def test_an_unknown_kind_names_the_known_ones(value: object) -> None:
    error = refusal({"query": "a", "kinds": value}, Search)
    assert error.message == 'unknown kind "user_txt"'
    assert error.hint.startswith('did you mean "user_text"? known are user_text, assistant_text,')
    assert error.hint.endswith("meta and all")


@pytest.mark.parametrize("value", [5, True, [["meta"]], {"meta": 1}, ""])
def test_what_is_no_kind_at_all_is_refused(value: object) -> None:
    assert refusal({"query": "a", "kinds": value}, Search).message.startswith("unknown kind ")


def test_times_become_unix_milliseconds() -> None:
    search = convert({"query": "a", "since": "2h", "until": NOW}, Search, now_ms=NOW)
    assert (search.since, search.until) == (NOW - 7_200_000, NOW)
    assert convert({"query": "a", "since": NOW // 1000}, Search).since == NOW


@pytest.mark.parametrize("value", ["lately", True, 1.5, ["3d"], -5, 12])
def test_a_time_that_is_none_is_named(value: object) -> None:
    error = refusal({"query": "a", "since": value}, Search)
    assert error.message.startswith("since ")
    assert error.message.endswith("is not a point in time")


def test_a_span_of_time_runs_forwards() -> None:
    error = refusal({"query": "a", "since": "1d", "until": "2d"}, Search)
    assert error.message == "since is later than until"
    today = {"query": "a", "since": "today", "until": "today"}
    search = convert(today, Search, now_ms=NOW)
    assert search.until is not None
    assert search.since is not None
    assert search.until > search.since


@pytest.mark.parametrize("query", ["", " ", "\n\t"])
def test_an_empty_query_is_refused(query: str) -> None:
    assert refusal({"query": query}, Search).message == "query is empty"


def test_a_query_has_a_length_that_a_person_might_type() -> None:
    convert({"query": "q" * MAX_QUERY_CHARS}, Search)
    error = refusal({"query": "q" * (MAX_QUERY_CHARS + 1)}, Search)
    assert error.message == "query has 65537 characters, over the limit of 65536"


def test_the_project_scope_needs_to_know_the_project() -> None:
    assert "project or session_dir" in refusal({"query": "a", "scope": "project"}, Search).message
    for name in ("project", "session_dir"):
        assert convert({"query": "a", "scope": "project", name: "/p"}, Search).scope == "project"


def test_a_path_that_is_not_utf8_arrives_as_it_was_sent() -> None:
    frame = protocol.encode({"session_path": "/s\udcff", "message_index": 1}, 1000)
    around = convert(protocol.decode(frame[4:]), Around)
    assert around.session_path == "/s\udcff"


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "operation is required"),
        ({"operation": "  "}, "operation is required"),
        ({"operation": "scan"}, 'unknown operation "scan"'),
        ({"operation": "search"}, "query is required"),
        ({"operation": "search", "query": " "}, "query is required"),
        (
            {"operation": "search", "query": "a", "scope": "all"},
            'scope must be "project" or "global"',
        ),
        ({"operation": "search", "query": "a", "kind": ["x"]}, 'unknown kind "x"'),
        ({"operation": "search", "query": "a", "limit": "8"}, 'limit "8" is not a whole number'),
        (
            {"operation": "around", "session_path": "/s"},
            "message_index is required for operation=around",
        ),
        ({"operation": "around"}, "message_index is required for operation=around"),
        ({"operation": "around", "message_index": 1}, "session_path is required"),
        ({"operation": "around", "message_index": -1}, "session_path is required"),
        (
            {"operation": "around", "session_path": "/s", "message_index": -1},
            "message_index must be non-negative",
        ),
    ],
)
def test_a_history_call_fails_in_the_words_of_its_tool(payload: Any, message: str) -> None:
    assert refusal(payload, History).message == message


def test_a_history_call_forgives_what_harnesses_do() -> None:
    payload = {"Operation": " search ", "QUERY": "a", "kind": [], "scope": "", "thinking": "x"}
    call = convert(payload, History)
    assert (call.operation, call.query, call.scope) == ("search", "a", "project")
    assert (call.kind, call.limit) == (DEFAULT_KINDS, 8)


@pytest.mark.parametrize(("given", "used"), [(-1, 8), (0, 8), (1, 1), (20, 20), (21, 20)])
def test_the_limit_of_a_history_search_is_kept_within_bounds(given: int, used: int) -> None:
    call = convert({"operation": "search", "query": "a", "limit": given}, History)
    assert call.limit == used


@pytest.mark.parametrize(("given", "used"), [(-1, 3), (0, 3), (1, 1), (10, 10), (11, 10)])
def test_the_window_of_a_history_call_is_kept_within_bounds(given: int, used: int) -> None:
    payload = {"operation": "around", "session_path": "/s", "message_index": 4, "before": given}
    call = convert(payload, History)
    assert (call.before, call.after) == (used, 3)


def test_a_tool_search_asks_by_exactly_one_thing() -> None:
    assert convert({"query": "a"}, ToolSearch).max_results is None
    assert convert({"tool_id": "s::t", "query": " "}, ToolSearch).detail == "signature"
    for params in ({}, {"query": "a", "tool_id": "s::t"}, {"query": ""}):
        error = refusal(params, ToolSearch)
        assert error.message.startswith("exactly one of query and tool_id is needed")


def test_an_event_carries_the_tools_as_the_server_gave_them() -> None:
    tools = [{"name": "x", "inputSchema": {}}, 5, None]
    event = convert({"event": "connected", "server": "s", "tools": tools, "time": 5}, McpEvent)
    assert event.tools == tools
    assert convert({"event": "disconnected", "server": "s"}, McpEvent).tools is None
    assert refusal({"event": "connected", "server": " "}, McpEvent).message == "server is empty"
    assert (
        '"gone" is not "connected"' in refusal({"event": "gone", "server": "s"}, McpEvent).message
    )


@given(
    st.sampled_from(ALL),
    st.dictionaries(
        st.sampled_from(FIELDS) | st.text(max_size=9),
        VALUES | st.lists(VALUES) | st.dictionaries(st.text(max_size=3), VALUES),
        max_size=6,
    ),
)
def test_any_map_is_a_request_or_a_bad_request(
    kind: type[Request], params: dict[str, object]
) -> None:
    answer: dict[str, Any] = {}
    try:
        assert isinstance(convert(params, kind, now_ms=NOW), kind)
    except BadRequest as error:
        answer = error.as_map()
    assert len(protocol.encode(answer, 1000)) < 1000


def test_a_bad_value_of_a_parameter_that_may_be_left_out_is_told() -> None:
    for bad in (-1, "5", 1.5, 10**30, [], {}):
        with pytest.raises(BadRequest, match=r"max_results .* is not"):
            convert({"query": "x", "max_results": bad}, ToolSearch)
