"""What is particular to one agent, beyond what its sample shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexd.extract import documents
from indexd.formats import Item, following
from indexd.formats.registry import FORMATS
from indexd.model import Message, Rewind, SessionState

Said = list[tuple[str, str]]


def items(agent: str, *records: object, state: SessionState | None = None) -> list[Item]:
    state = state or SessionState()
    found = []
    for record in records:
        for item in FORMATS[agent].read(json.dumps(record).encode(), state):
            found.append(item)
            state.next_index = following(item, state.next_index)
    return found


def said(agent: str, *records: object, state: SessionState | None = None) -> Said:
    """Return kind and text of every document of the messages read, in order."""
    return [
        (doc.kind.value, doc.text)
        for item in items(agent, *records, state=state)
        if isinstance(item, Message)
        for doc in documents(item, 0)
    ]


def roles(agent: str, *records: object) -> list[str]:
    return [item.role for item in items(agent, *records) if isinstance(item, Message)]


# ---- Reasonix ----


@pytest.mark.parametrize(
    ("content", "extra", "kind"),
    [
        ("error: exit status 1", {}, "tool_error"),
        ("  ERROR: loud", {}, "tool_error"),
        ("blocked: by policy", {}, "tool_error"),
        ("ls: x: Permission Denied", {}, "tool_error"),
        ("./flow: not found", {"tool_execution": {"exitCode": 127}}, "tool_error"),
        ("fine", {"tool_execution": {"exitCode": 0}}, "tool_output"),
        ("exit status 1: no error prefix", {}, "tool_output"),
    ],
)
def test_reasonix_results_fail_by_their_words_or_their_exit_code(
    content: str, extra: dict[str, Any], kind: str
) -> None:
    record = {"role": "tool", "name": "bash", "content": content, **extra}
    assert said("reasonix", record) == [(kind, f"bash {content}")]


@pytest.mark.parametrize(
    ("content", "typed"),
    [
        ('<hook-context x="1">\nhost\n</hook-context>\nfix it', "fix it"),
        (
            "<memory-update>\nm\n</active-goal>\n\n<background-jobs>\nb\n</background-jobs>\nok",
            "ok",
        ),
        ("[Plan mode: read only] look around", "look around"),
        ("look\n\n<memory-recall>\nold\n</memory-recall>", "look"),
        ("<hook-context> on one line </hook-context> stays", None),
        ("nothing to cut", None),
    ],
)
def test_what_the_reasonix_host_puts_around_a_persons_words_is_meta(
    content: str, typed: str | None
) -> None:
    found = said("reasonix", {"role": "user", "content": content})
    assert found[0] == ("user_text", typed or content)
    assert [kind for kind, _ in found[1:]] == ([] if typed is None else ["meta"])


def test_reasonix_prefers_what_was_typed() -> None:
    record = {"role": "user", "content": "<x>\nhost\n</x>\nfix it", "raw_content": "fix it"}
    assert said("reasonix", record) == [("user_text", "fix it")]


def test_every_reasonix_role_has_an_index_and_a_header_has_none() -> None:
    header, system = {"schema_version": 1}, {"role": "system", "content": "rules"}
    strange = {"role": "narrator", "content": "meanwhile"}
    assert roles("reasonix", header, system, strange) == ["system", "narrator"]
    assert said("reasonix", system, strange) == [("meta", "rules"), ("meta", "meanwhile")]


def test_calls_nested_as_a_function_are_read_too() -> None:
    nested = {"id": "c", "function": {"name": "bash", "arguments": '{"cmd":"a\\nb \\u4e2d"}'}}
    found = said("reasonix", {"role": "assistant", "content": "", "tool_calls": [nested]})
    assert found == [("tool_input", "bash cmd a\nb 中")]


def event(kind: str, at: int, *texts: str, schema: int = 1) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    return {"schema_version": schema, "type": kind, "message_index": at, "messages": messages}


def test_an_event_log_replaces_and_appends() -> None:
    found = items("reasonix", event("replace", 0, "a", "b"), event("append", 2, "c"))
    assert found[0] == Rewind(0)
    assert said("reasonix", event("replace", 0, "a", "b"), event("append", 2, "c")) == [
        ("user_text", "a"),
        ("user_text", "b"),
        ("user_text", "c"),
    ]


def test_an_append_out_of_place_or_of_a_later_schema_is_counted_and_left_out() -> None:
    state = SessionState()
    log = [event("replace", 0, "a"), event("append", 5, "x"), event("append", 1, "y", schema=2)]
    assert said("reasonix", *log, state=state) == [("user_text", "a")]
    assert state.skipped == {"append out of place": 1, "event of schema 2": 1}


# ---- Claude Code ----


def claude(kind: str, content: object, **envelope: object) -> dict[str, Any]:
    return {
        "type": kind,
        "sessionId": "s",
        "message": {"role": kind, "content": content},
    } | envelope


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "do it <system-reminder>be brief</system-reminder>now",
            [("user_text", "do it now"), ("meta", "<system-reminder>be brief</system-reminder>")],
        ),
        (
            "<ide_opened_file>a.py</ide_opened_file>\nwhy?",
            [("user_text", "why?"), ("meta", "<ide_opened_file>a.py</ide_opened_file>")],
        ),
        ("[Request interrupted by user]", [("meta", "[Request interrupted by user]")]),
        (
            "why does <system-reminder> appear?",
            [("user_text", "why does <system-reminder> appear?")],
        ),
        ([{"type": "text", "text": "a"}, {"type": "image", "source": {}}], [("user_text", "a")]),
    ],
)
def test_claude_users_words_are_told_from_the_hosts(content: object, expected: Said) -> None:
    assert said("claude", claude("user", content)) == expected


def test_the_arguments_of_a_claude_command_were_typed() -> None:
    text = "<command-name>/goal</command-name>\n<command-args>ship it</command-args>"
    assert said("claude", claude("user", text)) == [("meta", text), ("user_text", "ship it")]


def test_a_claude_user_line_of_results_only_is_said_by_the_tool() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    assert roles("claude", claude("user", [result])) == ["tool"]
    assert roles("claude", claude("user", [{"type": "text", "text": "hi"}])) == ["user"]


def test_claude_errors_of_the_service_are_errors() -> None:
    error = {
        "type": "system",
        "subtype": "api_error",
        "error": {"error": {"message": "overloaded"}},
    }
    spoken = claude("assistant", [{"type": "text", "text": "API Error"}], isApiErrorMessage=True)
    assert said("claude", error, spoken) == [
        ("tool_error", "overloaded"),
        ("tool_error", "API Error"),
    ]


def test_a_title_given_by_hand_outlasts_a_generated_one() -> None:
    state = SessionState()
    items("claude", {"type": "custom-title", "customTitle": "mine"}, state=state)
    items("claude", {"type": "ai-title", "aiTitle": "theirs"}, state=state)
    assert state.facts["title"] == "mine"


# ---- Codex ----


def codex(payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
    return {"timestamp": "2026-08-20T09:00:00Z", "type": kind, "payload": payload}


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ('{"output":"gone\\n","metadata":{"exit_code":2}}', "tool_error"),
        ('{"output":"here\\n","metadata":{"exit_code":0}}', "tool_output"),
        ("Exit code: 1\nWall time: 0 seconds\nOutput:\nno", "tool_error"),
        ("Exit code: 0\nWall time: 0 seconds\nOutput:\nExit code: 1", "tool_output"),
        (
            "Command: ls\nChunk ID: 1\nWall time: 1\nProcess exited with code 3\nOutput:\n",
            "tool_error",
        ),
        ("Chunk ID: 1\nWall time: 1\nProcess running with session ID 5\nOutput:\n", "tool_output"),
        ("apply_patch verification failed: no such line", "tool_error"),
        ("failed to parse function arguments: eof", "tool_error"),
        ({"content": "no", "success": False}, "tool_error"),
        ([{"type": "input_text", "text": "Script failed\nOutput:\n"}], "tool_error"),
        ("Plan updated", "tool_output"),
        ('{"output":7,"metadata":null}', "tool_output"),
    ],
)
def test_codex_outputs_fail_by_what_they_state_first(output: object, kind: str) -> None:
    record = codex({"type": "function_call_output", "call_id": "c", "output": output})
    assert [
        item.blocks[0].kind for item in items("codex", record) if isinstance(item, Message)
    ] == [kind]


def test_the_first_codex_session_is_the_files_own() -> None:
    state = SessionState()
    own = {"id": "child", "cwd": "/c", "forked_from_id": "parent"}
    items("codex", codex(own, "session_meta"), state=state)
    items("codex", codex({"id": "parent", "cwd": "/p"}, "session_meta"), state=state)
    assert state.facts == {"session_id": "child", "cwd": "/c", "parent": "parent"}


def test_codex_events_are_read_only_where_there_are_no_items() -> None:
    typed = codex({"type": "user_message", "message": "hello"}, "event_msg")
    content = [{"type": "input_text", "text": "hello"}]
    item = codex({"type": "message", "role": "user", "content": content})
    assert said("codex", typed) == [("user_text", "hello")]
    assert said("codex", item, typed) == [("user_text", "hello")]


def test_a_codex_request_is_told_from_the_editors_context() -> None:
    text = "# Context from my IDE setup:\n\n## Open tabs\n- a.py\n\n## My request for Codex:\nfix a"
    content = [{"type": "input_text", "text": text}]
    found = said("codex", codex({"type": "message", "role": "user", "content": content}))
    assert found[1] == ("user_text", "fix a")
    assert found[0][0] == "meta"


# ---- Kiro ----


def kiro(status: str, exit_status: str) -> dict[str, Any]:
    inner = {"exit_status": exit_status, "stdout": "out", "stderr": ""}
    result = {"toolUseId": "t", "status": status, "content": [{"kind": "json", "data": inner}]}
    return {
        "version": "v1",
        "kind": "ToolResults",
        "data": {"content": [{"kind": "toolResult", "data": result}]},
    }


@pytest.mark.parametrize(
    ("status", "exit_status", "kind"),
    [
        ("success", "exit status: 0", "tool_output"),
        ("success", "exit status: 2", "tool_error"),
        ("error", "exit status: 0", "tool_error"),
    ],
)
def test_kiro_results_fail_by_status_or_exit(status: str, exit_status: str, kind: str) -> None:
    assert said("kiro", kiro(status, exit_status)) == [(kind, f"{exit_status}\nout")]


# ---- Gemini ----


def gemini(name: str, text: str, kind: str = "user") -> dict[str, Any]:
    return {"id": name, "timestamp": "2026-08-20T09:00:00Z", "type": kind, "content": text}


def test_a_gemini_message_written_again_takes_its_own_place() -> None:
    found = items("gemini", gemini("a", "one"), gemini("b", "two", "gemini"), gemini("a", "three"))
    assert [item.replaces for item in found if isinstance(item, Message)] == [None, None, 0]


def test_a_gemini_rewind_removes_a_message_and_all_after_it() -> None:
    three = [gemini("a", "1"), gemini("b", "2"), gemini("c", "3")]
    assert items("gemini", *three, {"$rewindTo": "b"})[-1] == Rewind(1)
    assert items("gemini", *three, {"$rewindTo": "unheard of"})[-1] == Rewind(0)


def test_a_gemini_message_after_a_rewind_is_a_new_one() -> None:
    found = items("gemini", gemini("a", "1"), {"$rewindTo": "a"}, gemini("a", "2"))
    assert isinstance(found[-1], Message)
    assert found[-1].replaces is None


def test_gemini_sets_the_list_anew() -> None:
    state = SessionState()
    whole = {"$set": {"messages": [gemini("x", "1"), gemini("y", "2")]}}
    found = items("gemini", gemini("a", "0"), whole, gemini("y", "2b"), state=state)
    assert found[1] == Rewind(0)
    assert state.next_index == 2
    assert isinstance(found[-1], Message)
    assert found[-1].replaces == 1


def test_a_gemini_rewind_to_a_left_out_message_keeps_all_before_it() -> None:
    repeated = gemini("r", "") | {"content": [{"functionResponse": {"id": "t"}}]}
    found = items("gemini", gemini("a", "1"), repeated, gemini("b", "2"), {"$rewindTo": "r"})
    assert found[-1] == Rewind(1)


# ---- the others ----


def test_lines_that_begin_with_an_unwanted_type_are_not_even_parsed() -> None:
    state = SessionState()
    assert FORMATS["copilot"].read(b'{"type":"system.message","data":{not json', state) == []
    assert FORMATS["dsh"].read(b'{"type":"assistant/chunk", torn', state) == []
    assert state.skipped == {"system.message": 1, "assistant/chunk": 1}


def test_a_copilot_skill_speaks_for_the_host() -> None:
    spoken = {"type": "user.message", "id": "e", "data": {"content": "x", "source": "skill-pdf"}}
    assert said("copilot", spoken) == [("meta", "x")]


def test_a_pi_reply_that_failed_is_an_error() -> None:
    failed = {"role": "assistant", "content": [], "errorMessage": "no such model"}
    assert said("pi", {"type": "message", "id": "1", "message": failed}) == [
        ("tool_error", "no such model")
    ]


def test_the_streams_of_droid_are_read() -> None:
    assert said(
        "droid",
        {"type": "message", "role": "user", "text": "go", "timestamp": 1787216400000},
        {"type": "tool_call", "id": "1", "toolId": "x", "toolName": "LS", "parameters": {"p": "."}},
        {"type": "tool_result", "id": "1", "toolId": "x", "isError": True, "value": "denied"},
    ) == [("user_text", "go"), ("tool_input", "LS p ."), ("tool_error", "LS denied")]


def test_a_copilot_workspace_states_its_facts() -> None:
    yaml = b"id: 252d\ncwd: /home/ana\nsummary: 'Add a tray'\nbroken\n"
    assert FORMATS["copilot"].sidecar_facts(yaml) == {
        "session_id": "252d",
        "cwd": "/home/ana",
        "title": "Add a tray",
    }


@pytest.mark.parametrize("agent", sorted(FORMATS))
@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"[1]", b'{"id":5,"cwd":[]}', b"{" * 5000])
def test_a_sidecar_that_is_something_else_states_nothing(agent: str, data: bytes) -> None:
    assert FORMATS[agent].sidecar_facts(data) == {}


def test_default_roots_follow_the_environment() -> None:
    everything = {agent: reader.default_roots({}, "/home/ana") for agent, reader in FORMATS.items()}
    assert everything["claude"][0] == "/home/ana/.claude/projects"
    assert everything["reasonix"] == [
        f"/home/ana/.reasonix/{name}" for name in ("sessions", "projects", "archive")
    ]
    moved = {
        "CLAUDE_CONFIG_DIR": "/c",
        "CODEX_HOME": "/x",
        "KIRO_HOME": "/k",
        "REASONIX_HOME": "/r",
    }
    assert FORMATS["claude"].default_roots(moved, "/home/ana") == ["/c/projects"]
    assert FORMATS["codex"].default_roots(moved, "/home/ana")[0] == "/x/sessions"
    assert FORMATS["kiro"].default_roots(moved, "/home/ana") == ["/k/sessions"]
    assert FORMATS["reasonix"].default_roots(moved, "/home/ana")[0] == "/r/sessions"
