"""What people see: pages that fit, matches that are marked, and nothing a terminal would obey."""

from __future__ import annotations

import os
import pty
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd import render, render_status, terminal, when
from indexd.resume import quoted, resume_command
from indexd.terminal import Terminal, cells, fitted, painted, visible, width, wrap

NOW = 1_790_000_000.0
COLOUR = Terminal(80, wraps=True, colour=True)
ENGLISH = (
    "...the indexer held the write lock while it waited for the reader; the retry loop gave up"
    " after five attempts, so the timeout went up and the checkpoint moved into the same"
    " transaction as the rows that it covers, which fixed the database..."
)
CHINESE = "我们把索引器在写入时一直持有写锁的问题修好了" * 11
DEVANAGARI = "सर्वर ने जवाब देना बंद कर दिया क्योंकि डेटाबेस लॉक था और " * 4


def hit(rank: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "score": 3.5,
        "session_path": f"/home/ana/.claude/projects/-home-ana-src-app/0b1c2d3e-{rank}.jsonl",
        "session_id": "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0",
        "message_index": 128 * rank,
        "kind": "assistant_text",
        "role": "assistant",
        "tool_name": None,
        "source": "global",
        "agent": "claude",
        "project": "/home/ana/src/app",
        "timestamp": int((NOW - 7200) * 1000),
        "snippet": ENGLISH,
        "highlights": [[ENGLISH.index("lock"), ENGLISH.index("lock") + 4]],
    } | more


def answer(hits: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    index = {"documents": 12_345, "files": 10, "files_pending": 0, "bytes_pending": 0}
    return {"hits": hits, "total": 57, "took_ms": 2.6, "index": index, "warnings": []} | more


def page(hits: list[dict[str, Any]], term: Terminal | None = None, more: str = "") -> str:
    return render.hits(answer(hits), term or Terminal(), NOW, more)


# -- hits


def test_a_hit_says_when_where_what_and_how_to_go_on():
    text = page([hit()], more="indexctl query lock --offset 1")

    assert text == (
        "1 2 h ago  claude  app  assistant_text  0b1c2d3e #128\n"
        "   ...the indexer held the write lock while it waited for the reader; the retry\n"
        "   loop gave up after five attempts, so the timeout went up and the checkpoint\n"
        "   moved into the same transaction as the rows that it covers, which fixed...\n"
        "\n"
        "Hit 1, 57 matched in 12,345 documents, 3 ms.\n"
        "  indexctl around 1\n"
        "  indexctl query lock --offset 1\n"
        "  cd /home/ana/src/app && claude --resume 0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0\n"
    )


def test_the_last_page_says_why_it_does_not_show_all_that_matched():
    few = answer([hit(1), hit(2)], total=31)
    assert "Hits 1 to 2, 31 matched in 12,345 documents, 3 ms.\n" in render.hits(
        few, Terminal(), NOW
    )

    last = render.hits(few, Terminal(), NOW, is_last=True)
    assert "Hits 1 to 2, 31 matched in 12,345 documents, 3 ms; the other 29 far weaker.\n" in last
    all_of_them = render.hits(few | {"total": 2}, Terminal(), NOW, is_last=True)
    assert "Hits 1 to 2, 2 matched in 12,345 documents, 3 ms.\n" in all_of_them
    grouped = answer([hit(1, others=30)], total=31)
    assert "Hit 1, 31 matched" in render.hits(grouped, Terminal(), NOW, is_last=True)
    assert "weaker" not in render.hits(grouped, Terminal(), NOW, is_last=True)


def test_a_hit_whose_session_went_away_says_so():
    assert "#128\n   its session was rewritten or removed just now\n\nHit 1" in page(
        [hit(snippet="", highlights=[])]
    )


def test_heads_stand_in_columns():
    hits = [
        hit(9, agent="pi", project="", kind="tool_error", tool_name="Bash"),
        hit(10, timestamp=None, project="/a/naïve-数据"),
    ]
    heads = [line for line in page(hits).split("\n") if "#" in line]

    assert heads == [
        " 9 2 h ago  pi      -           tool_error Bash  0b1c2d3e #1152",
        "10          claude  naïve-数据  assistant_text   0b1c2d3e #1280",
    ]


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("snippet", [ENGLISH, CHINESE, DEVANAGARI, "x" * 246, "\x1b" * 240])
def test_no_line_is_wider_than_the_window(columns, snippet):
    text = page([hit(rank, snippet=snippet) for rank in range(1, 11)], Terminal(columns))
    body = text.split("\nHits ")[0]

    assert max(map(width, body.split("\n"))) <= columns


@pytest.mark.parametrize("snippet", [ENGLISH, CHINESE, DEVANAGARI, "x" * 246, "\x1b" * 240])
@pytest.mark.parametrize("columns", [80, 200])
def test_ten_hits_stay_within_4_kb_in_any_script(snippet, columns):
    hits = [
        hit(rank, snippet=snippet, kind="tool_output", tool_name="mcp__github__search_everything")
        for rank in range(1, 11)
    ]

    assert len(page(hits, Terminal(columns)).encode()) <= 4096


def test_a_match_is_on_the_page_even_in_wide_characters():
    snippet = CHINESE[:120] + "锁住" + CHINESE[:118]
    text = page([hit(snippet=snippet, highlights=[[120, 122]])], COLOUR)

    assert "\x1b[1;33m锁住\x1b[0m" in text
    assert text.split("\n")[1].startswith("   ...")


def test_matches_are_marked_only_where_there_is_colour():
    assert "\x1b[1;33mlock\x1b[0m" in page([hit()], COLOUR)
    assert "\x1b" not in page([hit()])


def test_a_match_across_two_lines_is_marked_on_both():
    lines = wrap(cells("one two three", [[4, 13]]), 8)

    assert [painted(line, COLOUR) for line in lines] == [
        "one \x1b[1;33mtwo\x1b[0m",
        "\x1b[1;33mthree\x1b[0m",
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('write {"path":"/home/ana/file"}', ['write {"path":"/', 'home/ana/file"}']),
        ("see the file /home/ana/projects", ["see the file", "/home/ana/projects"]),
        ("x aaaaaaaaaaaaaaaaaaaaaaa", ["x", "aaaaaaaaaaaaaaaaaaaa", "aaa"]),
    ],
)
def test_a_long_word_is_broken_at_a_joint_before_half_a_line_stays_empty(text, lines):
    assert [painted(line, Terminal()) for line in wrap(cells(text, []), 20)] == lines


@given(
    st.text(st.characters(codec=None), max_size=260),
    st.lists(st.tuples(st.integers(0, 260), st.integers(0, 260)), max_size=4),
    st.integers(20, 120),
)
def test_any_snippet_becomes_a_few_lines_that_fit_and_print(
    snippet: str, spans: list[tuple[int, int]], columns: int
):
    highlights = [sorted(span) for span in spans]
    text = page([hit(snippet=snippet, highlights=highlights)], Terminal(columns))
    lines = text.split("\n\nHit ")[0].split("\n")[1:]

    assert len(lines) <= render.SNIPPET_LINES
    assert all(width(line) <= columns for line in lines)
    assert visible("".join(lines)) == "".join(lines)


@pytest.mark.parametrize("field", ["snippet", "agent", "project", "session_id", "tool_name"])
def test_escape_sequences_are_shown_and_never_sent(field):
    evil = "a\x1b]0;owned\x07\x9b31m\u202eb\r\n"
    text = page([hit(**{field: evil}, kind="tool_error")])

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    if field != "session_id":
        assert r"a\x1b]0;owned" in text


# -- around, tools, status


def window(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "session_path": "/home/ana/s/a.jsonl",
        "message_index": 5,
        "length": 9,
        "messages": messages,
    }


def message(index: int = 5, **more: Any) -> dict[str, Any]:
    return {
        "index": index,
        "role": "user",
        "text": "why?",
        "tool_calls": [],
        "tool_name": None,
        "timestamp": None,
        "target": index == 5,
        "truncated": False,
    } | more


def test_the_target_among_its_neighbours_is_marked():
    call = {"name": "Bash", "arguments": {"command": "ls -l"}}
    messages = [
        message(4),
        message(5, role="assistant", text="", tool_calls=[call]),
        message(6, role="tool", tool_name="Bash", text="a\n\n\tb\r\n", truncated=True),
    ]

    answer = window(messages) | {"project": "", "resume": ["codex", "resume", "x"]}
    assert render.around(answer, Terminal(), "/home/ana") == (
        "~/s/a.jsonl  message 5 of 9\n"
        "\n  4 user\n   why?\n"
        '\n> 5 assistant\n   -> Bash {"command":"ls -l"}\n'
        "\n  6 tool Bash\n   a\n\n       b\n"
        "\nSome texts are cut; --full shows them whole.\n"
        "\nContinue this session: codex resume x\n"
    )


def test_long_lines_are_wrapped_for_a_window_and_left_alone_for_a_pipe():
    long = message(text="word " * 40)

    assert max(map(len, render.around(window([long]), Terminal(), "/h").split("\n"))) > 200
    shown = render.around(window([long]), Terminal(60, wraps=True), "/h")
    assert max(map(len, shown.split("\n"))) <= 60


@given(st.text(st.characters(codec=None), max_size=200))
def test_no_message_can_reach_the_terminal(text: str):
    call = {"name": text, "arguments": text}
    whole = message(text=text, role=text, tool_name=text, tool_calls=[call])
    shown = render.around(window([whole]) | {"session_path": text}, Terminal(), "/h")

    assert visible(shown.replace("\n", "")) == shown.replace("\n", "")


def test_a_tool_is_shown_with_how_it_is_called():
    tools = [
        {
            "tool_id": "git::commit",
            "description": "Record changes.\nMore.",
            "online": True,
            "signature": "commit(message: string)",
        },
        {
            "tool_id": "hub::issue",
            "description": None,
            "online": False,
            "input_schema": {"type": "object"},
        },
    ]

    assert render.tools({"tools": tools, "total_tools": 90, "cut": 2}, Terminal()) == (
        "git::commit\n   Record changes.\n   commit(message: string)\n"
        'hub::issue  (server offline)\n   {"type":"object"}\n'
        "\n2 tools of 90, 2 more scored too low\n"
    )


def test_a_signature_that_says_what_the_tool_does_is_enough():
    called = "commit(message: string) - Record changes."
    tool = {"tool_id": "git::commit", "description": "Record changes.", "signature": called}

    shown = render.tools({"tools": [tool], "total_tools": 1}, Terminal())

    assert shown.startswith(f"git::commit\n   {called}\n")


def test_ids_alone_are_listed_as_they_are():
    answer = {"active": True, "deferred": ["git::commit", "x::y"], "loaded": []}

    assert render.tool_list(answer, Terminal()).endswith("\n\ngit::commit\nx::y\n")


def test_deferred_tools_are_listed_a_line_each():
    answer = {
        "active": True,
        "tokens_all": 81_234,
        "tokens_now": 912,
        "deferred": ["git::commit: Record\x1b changes.\nMore.", "x::y: " + "long " * 50],
        "loaded": [],
    }
    text = render.tool_list(answer, Terminal(60, wraps=True))

    assert text.startswith(
        "Tool search is on: 2 deferred, 0 loaded; 912 of 81,234 tokens in context.\n\n"
        "git::commit: Record\\x1b changes.\n"
    )
    assert [len(line) for line in text.split("\n")[3:]] == [60, 0]


STATUS = {
    "version": "0.1.0",
    "pid": 77,
    "uptime_s": 93_784,
    "socket": "/home/ana/.cache/indexd/run/indexd.sock",
    "generation": 9,
    "documents": 124_345,
    "files": 1045,
    "files_pending": 0,
    "bytes_pending": 0,
    "index_bytes": 47_300_000,
    "rss_bytes": 999_999,
    "watch": {"mode": "inotify", "watched": 812, "overflows": 0, "polled": {}},
    "roots": [
        {
            "path": "/home/ana/.codex",
            "source": "global",
            "format": None,
            "files": 141,
            "documents": 13_345,
            "bytes": 72_000_000,
            "problems": [],
        }
    ],
    "agents": {"codex": {"files": 141, "documents": 13_345}},
    "servers": {"git": {"tools": 12, "online": False}},
    "problems": [],
    "degraded": [],
    "sandbox": {"home_read_only": False, "no_new_privileges": True, "openat2": True},
}


def test_status_tells_what_there_is():
    assert render_status.status(STATUS, Terminal(), "/home/ana") == (
        "indexd 0.1.0, process 77, up 1 d 2 h, ~/.cache/indexd/run/indexd.sock\n"
        "124,345 documents in 1,045 files; 47.3 MB on disk, 1.0 MB of memory\n"
        "everything is indexed\n"
        "watch: mode inotify, watched 812\n"
        "sandbox: no new privileges, openat2; not: home read only\n"
        "\nROOT      SOURCE  FORMAT  FILES  DOCUMENTS     SIZE\n"
        "~/.codex  global  -         141     13,345  72.0 MB\n"
        "\nAGENT  FILES  DOCUMENTS\n"
        "codex    141     13,345\n"
        "\nSERVER  TOOLS  STATE\n"
        "git        12  offline\n"
    )


def test_status_tells_which_tools_were_dropped_and_why():
    server = {"tools": 1, "online": True, "problems": ["b2: inputSchema is a list, not a map"]}

    text = render_status.status(STATUS | {"servers": {"git": server}}, Terminal(), "/h")

    assert text.endswith("\n\ndropped of git: b2: inputSchema is a list, not a map\n")


def test_status_tells_what_is_missing_and_what_is_wrong():
    root = STATUS["roots"][0] | {"problems": ["1 file is not ours"]}
    bad = STATUS | {
        "files_pending": 3,
        "bytes_pending": 1500,
        "roots": [root],
        "degraded": ["the disk is full"],
        "problems": [{"path": "/x\x1b", "problem": "not JSON"}],
    }
    text = render_status.status(bad, Terminal(), "/h")

    assert "still to read: 3 files, 1.5 KB; answers come from what is there\n" in text
    assert text.endswith(
        "\ndegraded: the disk is full\nproblem: path /x\\x1b, problem not JSON\n"
        "/home/ana/.codex: 1 file is not ours\n"
    )


def test_status_counts_the_directories_that_are_not_there_instead_of_listing_them():
    here = STATUS["roots"][0] | {"exists": True}
    none = {"exists": False, "files": 0, "documents": 0, "bytes": 0, "source": "global"}
    gone = [none | {"path": f"/home/ana/.{name}"} for name in ("pi", "qwen")]
    text = render_status.status(STATUS | {"roots": [here, *gone]}, Terminal(), "/home/ana")

    assert "~/.codex " in text
    assert "~/.pi" not in text
    assert (
        "\n2 more not there yet; each is read as soon as it appears (--json names them)\n" in text
    )


def test_status_names_a_file_with_a_problem_once_and_briefly():
    problem = "/home/ana/.codex/1.jsonl: the content is that of pi, not of codex"
    root = STATUS["roots"][0] | {"problems": [problem]}
    text = render_status.status(STATUS | {"roots": [root]}, Terminal(), "/home/ana")

    assert text.endswith("\n\nproblem: ~/.codex/1.jsonl: the content is that of pi, not of codex\n")


@pytest.mark.parametrize(
    ("left", "most", "expected"),
    [
        (100, 100, "[..............................]   0%  2 files, 100 B left"),
        (50, 100, "[###############...............]  50%  2 files, 50 B left"),
        (0, 100, "[##############################] 100%  2 files, 0 B left"),
    ],
)
def test_the_bar_grows_with_the_bytes_that_are_done(left, most, expected):
    pending = {"files_pending": 2, "bytes_pending": left}

    assert render_status.progress(pending, most, 2) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (99_960, "100 KB"), (999_999, "1.0 MB"),
     (652_000_000, "652 MB"), (4_800_000_000, "4.8 GB"), (10**16, "10000 TB")],
)  # fmt: skip
def test_sizes_are_short(count, expected):
    assert render_status.size(count) == expected


# -- the terminal


def test_characters_that_are_not_meant_to_be_seen_are_written_out():
    assert visible("a\tb\x00\x9b\u202e\u2028\U000e0001") == (
        r"a\x09b\x00\x9b\u202e\u2028\U000e0001"
    )


def test_text_of_all_scripts_stays_as_it_is():
    text = "naïve 数据 데이터 हिन्दी 👩‍💻 …"

    assert visible(text) == text
    assert visible("a\u00a0b\u3000c") == "a b c"


def test_bytes_of_a_name_that_is_not_utf8_show_as_bytes():
    assert visible(os.fsdecode(b"a\xff")) == r"a\xff"


def test_width_counts_columns_and_not_characters():
    assert [width(text) for text in ("abc", "数据", "e\u0301", "👩\u200d")] == [3, 4, 1, 2]


def test_a_text_that_is_too_long_is_cut_with_dots():
    assert fitted("abcdef", 6) == "abcdef"
    assert fitted("abcdefg", 6) == "abc..."
    assert width(fitted("数据数据数据", 8)) <= 8


@pytest.mark.parametrize(
    ("environment", "colour"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour_needs_a_terminal_and_no_objection(environment, colour):
    controller, device = pty.openpty()
    with os.fdopen(device, "w") as stream:
        term = terminal.terminal(stream, environment | {"COLUMNS": "123"})
    os.close(controller)

    assert (term.colour, term.wraps, term.columns) == (colour, True, 123)


def test_a_pipe_gets_no_colour_and_the_usual_width():
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w") as stream:
        term = terminal.terminal(stream, {"COLUMNS": "200"})

    assert (term.colour, term.wraps, term.columns) == (False, False, 80)


def test_a_window_of_unknown_width_is_taken_for_a_usual_one():
    controller, device = pty.openpty()
    assert terminal.window_columns({"COLUMNS": "x"}, device) == 80
    os.close(controller)
    os.close(device)


# -- resuming, times


@pytest.mark.parametrize(
    ("agent", "command"),
    [
        ("claude", "claude --resume 0b1c"),
        ("codex", "codex resume 0b1c"),
        ("copilot", "copilot --resume 0b1c"),
        ("droid", "droid --resume 0b1c"),
        ("gemini", "gemini --resume 0b1c"),
        ("kiro", "kiro-cli chat --resume-id 0b1c"),
        ("qwen", "qwen --resume 0b1c"),
        ("cursor", "cursor-agent --resume 0b1c"),
        ("reasonix", ""),
        (None, ""),
    ],
)
def test_a_session_is_resumed_in_the_agent_it_belongs_to(agent, command):
    assert resume_command({"agent": agent, "session_id": "0b1c"}) == command


def test_resuming_goes_to_the_project_first():
    found = {"agent": "codex", "session_id": "0b1c", "project": "/home/ana/it's here"}

    assert resume_command(found) == "cd '/home/ana/it'\"'\"'s here' && codex resume 0b1c"


@pytest.mark.parametrize(
    ("agent", "path", "command"),
    [
        ("claude", "/h/.claude/projects/-p/5d6a/subagents/agent-a1.jsonl", "claude --resume 5d6a"),
        (
            "claude",
            "/h/.claude/projects/-p/5d6a/subagents/w/agent-a1.jsonl",
            "claude --resume 5d6a",
        ),
        ("claude", "/h/.claude/projects/-p/agent-a1.jsonl", ""),
        ("claude", "/h/.claude/projects/-p/$(x)/subagents/agent-a1.jsonl", ""),
        ("gemini", "/h/.gemini/tmp/f1b5/chats/7c8d/agent-a1.jsonl", "gemini --resume 7c8d"),
    ],
)
def test_a_sub_agents_hit_resumes_the_session_it_worked_for(agent, path, command):
    found = {"agent": agent, "session_id": "agent-a1", "session_path": path}

    assert resume_command(found) == command


@pytest.mark.parametrize(
    ("path", "command"),
    [
        (
            "/h/.pi/agent/sessions/--p--/1_2.jsonl",
            "pi --session /h/.pi/agent/sessions/--p--/1_2.jsonl",
        ),
        ("/h/a b/.pi/agent/sessions/1.jsonl", "pi --session '/h/a b/.pi/agent/sessions/1.jsonl'"),
        ("/h/.pi/agent/sessions/\n.jsonl", ""),
        ("/h/.openclaw/agents/1.jsonl", ""),
    ],
)
def test_pi_opens_a_session_by_its_file_and_its_kin_do_not(path, command):
    found = {"agent": "pi", "session_id": "0b1c", "session_path": path}

    assert resume_command(found) == command


@pytest.mark.parametrize("session_id", ["a;rm", "a b", "$(x)", "-x", "", "a\nb", None])
def test_an_id_that_a_shell_could_misread_gives_no_command(session_id):
    assert resume_command({"agent": "claude", "session_id": session_id}) == ""


def test_a_project_that_cannot_be_printed_is_left_out():
    found = {"agent": "claude", "session_id": "0b1c", "project": "/a\x1b[2J"}

    assert resume_command(found) == "claude --resume 0b1c"


def test_words_are_quoted_for_a_shell_when_needed():
    assert [quoted(word) for word in ("a-b/c", "", "a b", "~")] == ["a-b/c", "''", "'a b'", "'~'"]


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0, "just now"), (-30, "just now"), (61, "1 min ago"), (7300, "2 h ago"),
     (86_400 * 6.9, "6 d ago")],
)  # fmt: skip
def test_recent_times_are_told_as_ages(age, expected):
    assert when.relative(int((NOW - age) * 1000), NOW) == expected


def test_other_times_are_told_as_dates():
    assert re.fullmatch(r"2026-0\d-\d\d", when.relative(int((NOW - 86_400 * 30) * 1000), NOW))
    assert when.relative(int((NOW + 86_400 * 30) * 1000), NOW).startswith("2026-")
    assert when.relative(None, NOW) == ""
    assert when.relative(10**18, NOW) == ""
    assert re.fullmatch(r"2026-\d\d-\d\d \d\d:\d\d", when.exact(int(NOW * 1000)))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(5.9, "5 s"), (65, "1 min 5 s"), (7_260, "2 h 1 min"), (200_000, "2 d 7 h")],
)
def test_spans_are_told_in_two_units(seconds, expected):
    assert when.lasting(seconds) == expected
