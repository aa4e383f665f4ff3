"""Events in, a catalog out: validation, state, ids, signatures, deferral, activation."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd.catalog import Catalog, server_from_record
from indexd.deferral import Activations, DeferralSettings, deferred_lines, is_active, tool_list
from indexd.encoding import decode
from indexd.errors import BadRequest
from indexd.records import segment_key
from indexd.tool import MAX_TOOL_BYTES, Tool, first_sentence, parse_tool, parse_tools, signature
from indexd.tool_ids import ToolNames
from indexd.tool_library import Update
from indexd.tool_rows import MAX_RUNS, SERVERS, ServerRows, packed, unpacked
from indexd.tool_search import ToolSearch


def raw_tool(name: str, description: str = "Does a thing.", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
    return {"name": name, "description": description, "inputSchema": schema}


def connected(server: str, *tools: Any, event: str = "connected") -> dict[str, Any]:
    return {"event": event, "server": server, "tools": list(tools)}


def tools_of(catalog: Catalog) -> list[str]:
    return [tool.id for tool in catalog.tools()]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


# --- one tool ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("text", "not a map"),
        ({"description": "no name"}, "name is a NoneType"),
        ({"name": 7}, "name is a int"),
        ({"name": ""}, "empty"),
        ({"name": "a\nb"}, "control"),
        ({"name": "x" * 300}, "too long"),
        ({"name": " "}, "empty"),
        ({"name": "x", "description": "w" * MAX_TOOL_BYTES}, "more than 1,048,576 bytes"),
        ({"name": "x", "inputSchema": {"default": float("nan")}}, "not JSON"),
        ({"name": "x", "inputSchema": nested(200)}, "nested deeper than 128"),
        ({"name": "x", "inputSchema": nested(5000)}, "not JSON"),
        ({"name": "x", "description": ["list"]}, "description is a list"),
        ({"name": "x", "inputSchema": "nope"}, "inputSchema is a str"),
    ],
)
def test_a_bad_tool_is_dropped_with_a_reason_and_costs_no_neighbour(bad: Any, reason: str) -> None:
    tools, problems = parse_tools("s", [raw_tool("before"), bad, raw_tool("after")])
    assert [tool.name for tool in tools] == ["before", "after"]
    assert len(problems) == 1
    assert reason in problems[0]


def test_the_second_tool_of_a_name_is_dropped() -> None:
    tools, problems = parse_tools("s", [raw_tool("a", "first"), raw_tool("a", "second")])
    assert [tool.description for tool in tools] == ["first"]
    assert problems == ["a: a second tool of this name"]


def test_a_tool_without_a_schema_has_no_parameters() -> None:
    tool = parse_tool("s", {"name": "ping"})
    assert tool.parameters == ()
    assert tool.input_schema() == {"type": "object"}


def test_lone_surrogates_become_text_that_can_be_written() -> None:
    tool = parse_tool("s", json.loads('{"name": "a", "description": "half \\ud83d pair"}'))
    assert tool.description == "half ? pair"
    msgpack.packb(tool.as_record())


def test_a_reason_for_dropping_a_tool_can_be_written_whatever_its_name() -> None:
    halves = json.loads('[{"name": "\\ud800"}, {"name": "\\ud800"}, {"name": "\\ud800\\n"}]')
    tools, problems = parse_tools("s", halves)
    assert [tool.name for tool in tools] == ["?"]
    assert len([problem.encode() for problem in problems]) == 2


def test_tokens_are_the_bytes_of_name_description_and_schema_over_four() -> None:
    raw = raw_tool("名", "描述", path={"type": "string"})
    schema = json.dumps(raw["inputSchema"], ensure_ascii=False, separators=(",", ":"))
    assert parse_tool("s", raw).tokens == (3 + 6 + len(schema.encode())) // 4


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["integer", "null"]}, "integer"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"type": "array", "items": {"type": "number"}}, "number[]"),
        ({"type": "array", "items": {"type": ["string", "number"]}}, "(string|number)[]"),
        ({"enum": ["asc", "desc"], "type": "string"}, "asc|desc"),
        ({"$ref": "#/$defs/Level"}, "low|high"),
        ({"$ref": "#/$defs/Loop"}, "any"),
        ({}, "any"),
        (True, "any"),
    ],
)
def test_a_parameter_type_is_told_in_a_word(schema: Any, name: str) -> None:
    definitions = {"Level": {"enum": ["low", "high"]}, "Loop": {"$ref": "#/$defs/Loop"}}
    raw = {"name": "t", "inputSchema": {"properties": {"p": schema}, "$defs": definitions}}
    assert parse_tool("s", raw).parameters[0].type == name


def test_references_that_multiply_are_named_at_once() -> None:
    many = {"anyOf": [{"$ref": "#/$defs/many"}, {"type": "string"}] * 2000}
    schema = {"properties": {"p": many, "q": {"anyOf": [many]}}, "$defs": {"many": many}}
    tool = parse_tool("s", {"name": "t", "inputSchema": schema})
    assert signature(tool) == "t(p?: any, q?: any)"


def test_a_type_that_is_no_word_is_any() -> None:
    parts = {"a": {"type": "x" * 5000}, "b": {"anyOf": [{"type": f"t{i}"} for i in range(500)]}}
    tool = parse_tool("s", {"name": "t", "inputSchema": {"properties": parts}})
    assert signature(tool) == "t(a?: any, b?: any)"


def test_a_signature_has_every_required_parameter_and_counts_hidden_optional_ones() -> None:
    properties = {f"p{i:02}": {"type": "string"} for i in range(40)}
    schema = {"properties": properties, "required": [f"p{i:02}" for i in range(20, 40)]}
    raw = {"name": "big", "description": "First. Second.", "inputSchema": schema}
    line = signature(parse_tool("s", raw))
    assert all(f"p{i}: string" in line for i in range(20, 40))
    assert line.endswith("+8 optional) - First.")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("  Reads a file, e.g. this one. More.", "Reads a file, e.g. this one."),
        ("Get\n   it\n\nArgs: x", "Get it"),
        ("获取天气。然后", "获取天气。"),
        ("word " * 100, ("word " * 100)[:39].rstrip() + "…"),
        ("", ""),
    ],
)
def test_the_first_sentence_is_one_line(text: str, sentence: str) -> None:
    assert first_sentence(text, 40) == sentence


# --- events --------------------------------------------------------------------------------


def test_a_connected_event_replaces_the_servers_list_whole() -> None:
    catalog = Catalog()
    catalog.apply(connected("git", raw_tool("log"), raw_tool("diff")))
    change = catalog.apply(connected("git", raw_tool("diff", "Changed."), raw_tool("show")))
    assert tools_of(catalog) == ["git::diff", "git::show"]
    assert change.added == ("git::show",)
    assert change.changed == ("git::diff",)
    assert change.removed == ("git::log",)


def test_no_two_tools_have_one_id() -> None:
    catalog = Catalog()
    catalog.apply(connected("git", raw_tool(":log"), raw_tool("hub::log")))
    for taken in ("git:", "git::hub"):
        with pytest.raises(BadRequest, match="::"):
            catalog.apply(connected(taken, raw_tool("log")))
    assert tools_of(catalog) == ["git:::log", "git::hub::log"]


def test_a_tool_that_says_the_same_is_the_same_record() -> None:
    catalog = Catalog()
    catalog.apply(connected("git", raw_tool("log"), raw_tool("diff")))
    before = catalog.servers["git"].tools["log"]
    event = connected("git", raw_tool("log"), raw_tool("x"), event="tools_changed")
    assert catalog.apply(event).changed == ()
    assert catalog.servers["git"].tools["log"] is before


def test_a_disconnected_server_keeps_its_tools_offline() -> None:
    catalog = Catalog()
    catalog.apply(connected("git", raw_tool("log")))
    catalog.apply({"event": "disconnected", "server": "git"})
    assert tools_of(catalog) == ["git::log"]
    assert not catalog.servers["git"].online
    catalog.apply(connected("git", raw_tool("log")))
    assert catalog.servers["git"].online


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"event": "exploded", "server": "git"},
        {"event": "connected"},
        {"event": "connected", "server": ""},
        {"event": "connected", "server": 3, "tools": []},
        {"event": "connected", "server": "git::hub", "tools": []},
        {"event": "connected", "server": "git:", "tools": []},
        {"event": "connected", "server": "git"},
        {"event": "connected", "server": "git", "tools": {"a": 1}},
        {"event": "tools_changed", "server": "git", "tools": [], "instructions": 5},
    ],
)
def test_a_malformed_event_is_refused_and_changes_nothing(event: dict[str, Any]) -> None:
    catalog = Catalog()
    catalog.apply(connected("git", raw_tool("log")))
    before = [server.as_record() for server in catalog.servers.values()]
    with pytest.raises(BadRequest):
        catalog.apply(event)
    assert [server.as_record() for server in catalog.servers.values()] == before


def test_a_server_survives_its_record() -> None:
    catalog = Catalog()
    event = connected("git", raw_tool("log", q={"type": "string"}), {"bad": 1})
    catalog.apply(event | {"instructions": "Use it."})
    server = catalog.servers["git"]
    again = server_from_record(msgpack.unpackb(msgpack.packb(server.as_record())))
    assert again == server
    assert again.problems


@pytest.mark.parametrize("damage", ["version", "tools", "name"])
def test_a_damaged_record_is_refused(damage: str) -> None:
    catalog = Catalog()
    catalog.apply(connected("git", raw_tool("log")))
    record = catalog.servers["git"].as_record()
    del record[damage]
    with pytest.raises(BadRequest):
        server_from_record(record)


class Kept:
    """Tool search with rows as the daemon keeps them, without the daemon."""

    def __init__(self, rows: dict[bytes, bytes] | None = None) -> None:
        self.rows = rows or {}
        self.search = ToolSearch()
        self.keeper = ServerRows(self.rows.get)
        servers = {k: v for k, v in self.rows.items() if k.startswith(SERVERS)}
        restored, self.problems = self.keeper.restored(servers)
        for update in self.search.restore(restored):
            self.keep(update)

    def apply(self, event: dict[str, Any]) -> None:
        update = self.search.prepare(event)
        self.keep(update)
        self.search.commit(update)

    def keep(self, update: Update) -> None:
        for key, value in self.keeper.changed(update).items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def again(self) -> Kept:
        return Kept(self.rows)


def test_a_restart_takes_up_what_was_kept_and_mends_or_leaves_out_what_is_damaged() -> None:
    kept = Kept()
    for server in ("git", "time", "web", "zoo"):
        kept.apply(connected(server, raw_tool("read", f"Reads {server}.")))
    git, time, web = (unpacked(kept.rows[SERVERS + name]) for name in (b"git", b"time", b"web"))
    del git["tools"]
    kept.rows[segment_key(time["runs"][0], 0)] = b"no segment"
    web["analysis"] = -1
    kept.rows |= {SERVERS + b"git": packed(git), SERVERS + b"web": packed(web)}
    kept.search.apply({"event": "connected", "server": "git", "tools": []})
    before = kept.search.search(query="reads web time zoo")

    restored = kept.again()

    assert len(restored.problems) == 1
    assert tools_of(restored.search.catalog) == ["time::read", "web::read", "zoo::read"]
    after = restored.search.search(query="reads web time zoo")
    assert after["tools"] == before["tools"]
    assert restored.again().search.search(query="zoo") == restored.search.search(query="zoo")


def test_only_changed_tools_are_written_and_dead_segments_go() -> None:
    kept = Kept()
    tools = [raw_tool(f"tool{n}", f"Does thing{n}.") for n in range(8)]
    kept.apply(connected("s", *tools))
    for step in range(20):
        tools[step % 8] = raw_tool(f"tool{step % 8}", f"Does other{step}.")
        before = set(kept.rows)
        kept.apply(connected("s", *tools))
        written = [decode(kept.rows[key]) for key in set(kept.rows) - before]
        assert sum(map(len, written)) in (1, 8)  # the new tool alone, or all put together
        assert len(kept.rows) <= 1 + MAX_RUNS
        query = f"other{step}"
        assert kept.again().search.search(query=query) == kept.search.search(query=query)
    kept.apply(connected("s"))
    assert list(kept.rows) == [SERVERS + b"s"]
    assert tools_of(kept.again().search.catalog) == []


NAMES = st.sampled_from(["read", "write", "list", "drop"])
RAW = st.one_of(
    st.builds(raw_tool, NAMES, st.sampled_from(["One.", "Two."])), st.sampled_from([None, 3, {}])
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "event": st.sampled_from(["connected", "tools_changed", "disconnected", "what"]),
            "server": st.sampled_from(["a", "b", ""]),
            "tools": st.one_of(st.lists(RAW, max_size=4), st.none()),
        }
    ),
    max_size=12,
)


@given(EVENTS)
def test_any_order_of_events_leaves_whole_catalogs_and_active_tools_that_exist(
    events: list[dict[str, Any]],
) -> None:
    kept = Kept()
    search = kept.search
    expected: dict[str, list[str]] = {}
    for event in events:
        try:
            kept.apply(event)
        except BadRequest:
            continue
        if event["event"] != "disconnected":
            good, _ = parse_tools(event["server"], event["tools"])
            expected[event["server"]] = sorted(tool.id for tool in good)
        for tool in list(search.catalog.tools())[:1]:
            search.search(tool_id=tool.id, session="s")
    assert tools_of(search.catalog) == [id for name in sorted(expected) for id in expected[name]]
    assert set(search.activations.of("s")) <= set(tools_of(search.catalog))
    restored = kept.again().search
    assert tools_of(restored.catalog) == tools_of(search.catalog)
    assert restored.search(query="one read") == search.search(query="one read")


# --- ids -----------------------------------------------------------------------------------

NAMED = [
    ("github", "create_issue"),
    ("gitlab", "create_issue"),
    ("postman", "createCollection"),
    ("home-assistant", "ha.call-service"),
    ("redis", "get"),
    ("日本", "読む"),
]


@pytest.fixture(scope="module")
def names() -> ToolNames:
    return ToolNames([parse_tool(server, raw_tool(name)) for server, name in NAMED])


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("github::create_issue", ["github::create_issue"]),
        ("github.create_issue", ["github::create_issue"]),
        ("github/create_issue", ["github::create_issue"]),
        ("@github/create_issue", ["github::create_issue"]),
        ("mcp__github__create_issue", ["github::create_issue"]),
        ("GitHub::createIssue", ["github::create_issue"]),
        ("create_issue", ["github::create_issue", "gitlab::create_issue"]),
        ("Create-Issue", ["github::create_issue", "gitlab::create_issue"]),
        ("postman.create_collection", ["postman::createCollection"]),
        ("create_collection", ["postman::createCollection"]),
        ("home_assistant__ha_call_service", ["home-assistant::ha.call-service"]),
        ("mcp__home-assistant__ha.call-service", ["home-assistant::ha.call-service"]),
        ("日本::読む", ["日本::読む"]),
        ("nothing_like_it", []),
        ("", []),
    ],
)
def test_every_spelling_of_an_id_is_understood(names: ToolNames, text: str, ids: list[str]) -> None:
    assert list(names.resolve(text)) == ids


def test_several_names_in_one_question_mean_their_union(names: ToolNames) -> None:
    query = "please load `redis::get`, postman/createCollection and mcp__github__create_issue"
    found = names.named_in(query)
    assert found == ["redis::get", "postman::createCollection", "github::create_issue"]


def test_a_plain_word_among_others_is_no_name(names: ToolNames) -> None:
    assert names.named_in("get the weather") == []
    assert names.named_in("get") == ["redis::get"]
    assert names.named_in("get create_issue") == [
        "redis::get",
        "github::create_issue",
        "gitlab::create_issue",
    ]


def test_the_nearest_ids_of_a_misspelt_one_come_first(names: ToolNames) -> None:
    assert names.nearest("github::creat_isue")[0] == "github::create_issue"
    assert names.nearest("zzzzqqqq") == []


# --- deferral ------------------------------------------------------------------------------


def tool_of_tokens(tokens: int) -> Tool:
    empty = parse_tool("s", {"name": "t", "description": ""})
    return parse_tool("s", {"name": "t", "description": "x" * (tokens * 4 - empty.tokens * 4)})


@pytest.mark.parametrize(
    ("settings", "tokens", "window", "active"),
    [
        (DeferralSettings(), 50_000, 10_000_000, False),
        (DeferralSettings(), 50_001, 10_000_000, True),
        (DeferralSettings(), 10_001, 200_000, True),
        (DeferralSettings(), 10_000, 200_000, False),
        (DeferralSettings(), 40_000, None, False),
        (DeferralSettings(min_pct=0, min_tokens=0), 1, None, True),
        (DeferralSettings(min_pct=0, min_tokens=0), 0, 200_000, False),
        (DeferralSettings(enabled=False, min_pct=0, min_tokens=0), 10**6, 1000, False),
    ],
)
def test_tool_search_is_on_above_either_limit(
    settings: DeferralSettings, tokens: int, window: int | None, active: bool
) -> None:
    assert is_active(settings, tokens, window) is active


def test_descriptions_in_the_deferred_list_are_cut_to_one_kib_of_whole_characters() -> None:
    tool = parse_tool("s", {"name": "t", "description": "é" * 1000})
    assert deferred_lines([tool]) == ["s::t: " + "é" * 512]


def test_a_budget_shortens_the_list_but_never_loses_an_id() -> None:
    described = [
        parse_tool("s", {"name": f"t{i}", "description": "One sentence. " + "More. " * 200})
        for i in range(20)
    ]
    whole, short, bare = (deferred_lines(described, budget) for budget in (None, 500, 1))
    assert len(whole[0]) > 1000
    assert short[0] == "s::t0: One sentence."
    assert bare == [tool.id for tool in described]


def test_the_tool_list_counts_what_the_model_is_shown() -> None:
    tools = [parse_tool("s", raw_tool(f"t{i}", "Says much. " * 200)) for i in range(10)]
    settings = DeferralSettings(min_pct=0, min_tokens=0)
    answer = tool_list(tools, ["s::t3"], settings)
    assert answer["active"]
    assert answer["tokens_all"] == sum(tool.tokens for tool in tools)
    assert len(answer["deferred"]) == 9
    assert [tool["tool_id"] for tool in answer["loaded"]] == ["s::t3"]
    lines = sum(len(line.encode()) for line in answer["deferred"]) // 4
    assert answer["tokens_now"] == lines + tools[3].tokens
    off = tool_list(tools, [], DeferralSettings(enabled=False))
    assert (off["active"], off["deferred"]) == (False, [])
    assert off["tokens_now"] == off["tokens_all"]


def restored(rows: dict[str, Any]) -> Activations:
    """Return what the latest record of each session, as the cache keeps them, is again."""
    records = msgpack.unpackb(msgpack.packb(rows))
    return Activations({session: record for session, record in records.items() if record})


def test_activating_twice_changes_nothing_and_records_survive() -> None:
    activations = Activations()
    assert activations.activate("s", ["a::x", "a::y"]) == ["a::x", "a::y"]
    assert activations.activate("s", ["a::x"]) == []
    again = restored(activations.changes())
    assert again.of("s") == ["a::x", "a::y"]
    again.drop(["a::x"])
    assert again.of("s") == ["a::y"]
    assert restored(again.changes()).of("s") == ["a::y"]
    assert again.of("another") == []


def test_only_sessions_that_changed_are_written() -> None:
    activations = Activations()
    for session in ("s", "t", "u"):
        activations.activate(session, ["a::x", f"a::{session}"])
    assert set(activations.changes()) == {"s", "t", "u"}
    assert activations.changes() == {}
    activations.activate("t", ["a::z"])
    assert set(activations.changes()) == {"t"}
    activations.drop(["a::u", "a::unknown"])
    assert set(activations.changes()) == {"u"}


def test_the_sessions_used_last_are_kept() -> None:
    activations = Activations()
    rows: dict[str, Any] = {}
    for number in range(1001):
        activations.activate(f"s{number}", ["a::x"])
        activations.activate("s0", ["a::x"])
        rows |= activations.changes()
        if number == 500:
            activations = restored(rows)
    assert activations.of("s0") == ["a::x"]
    assert activations.of("s1") == []
    assert sum(record is not None for record in rows.values()) == 1000
