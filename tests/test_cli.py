"""indexctl as a process and as a call: what it asks, prints, and answers with its status."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peer import Peer, short_directory

from indexd import __version__, arguments, cli
from indexd.errors import BadRequest, NotAllowed, NotFound
from indexd.history import search_text
from indexd.paths import project

HERE = Path(__file__).parent
INDEX = {"documents": 5, "files": 1, "files_pending": 0, "bytes_pending": 0, "generation": 1}


def hit(rank: int, **more: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "score": 1.5,
        "session_path": f"/s/{rank}.jsonl",
        "session_id": f"id{rank}",
        "message_index": 10 * rank,
        "kind": "user_text",
        "role": "user",
        "tool_name": None,
        "source": "global",
        "agent": "claude",
        "project": "/p",
        "timestamp": None,
        "snippet": "the cache first",
        "highlights": [[4, 9]],
    } | more


def found(*hits: dict[str, Any], warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    warned = list(warnings)
    return {
        "hits": list(hits),
        "total": len(hits),
        "took_ms": 1.0,
        "index": INDEX,
        "warnings": warned,
    }


AROUND = {
    "session_path": "/s/1.jsonl",
    "message_index": 10,
    "length": 20,
    "project": "/p",
    "resume": ["claude", "--resume", "id1"],
    "messages": [{"index": 10, "role": "user", "text": "the cache", "tool_calls": []}],
}
STATUS = INDEX | {
    "version": "0.1.0",
    "pid": 1,
    "uptime_s": 5,
    "socket": "/s",
    "index_bytes": 1,
    "rss_bytes": 1,
}


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give every test a home of its own and an environment that says nothing else."""
    with short_directory() as directory:
        for name in list(os.environ):
            if name.startswith(("INDEXD_", "XDG_", "KIRO_", "NO_COLOR", "COLUMNS")):
                monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(directory))
        monkeypatch.setenv("INDEXD_SOCKET", str(directory / "s"))
        work = directory / "work"
        work.mkdir()
        monkeypatch.chdir(work)
        yield directory


@pytest.fixture
def serve(place: Path) -> Iterator[Callable[..., Peer]]:
    """Return a function that starts a daemon's end with the answers it is given."""
    peers = []

    def start_peer(**answers: Any) -> Peer:
        peers.append(Peer(str(place / "s"), answers).__enter__())
        return peers[-1]

    yield start_peer
    for peer in peers:
        peer.__exit__()


class Ran:
    """What one command left behind."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return a function that runs one command line in this process."""

    def command(*words: str) -> Ran:
        status = cli.main(words)
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return command


def process(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run indexctl as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "indexd.cli", *words],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        timeout=30,
        check=False,
        **options,
    )


# -- query


def test_hits_are_printed_and_the_status_is_0(serve, run):
    serve(search=found(hit(1)))
    ran = run("query", "cache", "first")

    assert ran.status == 0
    assert ran.err == ""
    assert "the cache first" in ran.out
    assert "indexctl around 1" in ran.out


def test_without_options_only_words_and_project_are_sent(serve, run, place):
    peer = serve(search=found(hit(1)))
    run("query", "cache", "first")

    assert peer.requests[0][1]["client"] == f"indexctl {__version__}"
    assert peer.requests[-1] == (
        "search",
        {"query": "cache first", "project": str(place / "work")},
    )


def test_every_filter_travels_under_its_name(serve, run, place):
    peer = serve(search=found(hit(1)))
    run(
        *("query", "cache", "--scope", "global", "-k", "tool_error,meta", "--kind", "all"),
        *("-n", "3", "--offset", "6", "--tool-name", "Bash", "--agent", "codex"),
        *("--session", "abc", "--project", "../p", "--session-dir", "d", "--since", "3d"),
        *(
            "--until",
            "yesterday",
            "--order",
            "recent",
            "--recency",
            "14",
            "--no-sync",
            "--reveal",
            "first",
        ),
        *("--literal", "--group", "session", "--all-copies"),
        *("--role", "tool", "--subagents", "only", "--source", "archive"),
    )

    assert peer.requests[-1][1] == {
        "query": "cache first",
        "scope": "global",
        "kinds": ["tool_error", "meta", "all"],
        "role": "tool",
        "literal": True,
        "group": "session",
        "copies": "all",
        "limit": 3,
        "offset": 6,
        "tool_name": "Bash",
        "agent": "codex",
        "session": "abc",
        "project": str(place / "p"),
        "session_dir": str(place / "work" / "d"),
        "subagents": "only",
        "source": "archive",
        "since": "3d",
        "until": "yesterday",
        "order": "recent",
        "recency": 14.0,
        "sync": False,
        "reveal": True,
    }


def test_a_grouped_hit_says_how_many_more_its_session_has(serve, run):
    serve(search=found(hit(1, others=2), hit(2, others=0)))
    ran = run("query", "x", "--group", "session")

    assert "   the cache first\n   and 2 more hits in this session\n2 " in ran.out
    assert ran.out.count("more hit") == 1


def test_a_hit_says_where_it_was_said_too(serve, run):
    where = [{"session_path": "/s/fork.jsonl", "message_index": 7}]
    one, many = ({"count": count, "where": where} for count in (1, 1200))
    serve(search=found(hit(1, duplicates=one), hit(2, duplicates=many)))
    ran = run("query", "x")

    assert "   the same was said in fork #7\n" in ran.out
    assert "   1,200 copies, as in fork #7\n" in ran.out


def test_a_further_page_is_asked_for_as_of_the_one_before(serve, run):
    peer = serve(search=found(hit(1)))
    run("query", "x", "y")
    run("query", "x y", "--offset", "1")
    assert peer.requests[-1][1]["generation"] == INDEX["generation"]
    run("query", "z", "--offset", "1")
    assert "generation" not in peer.requests[-1][1]
    run("query", "z")
    assert "generation" not in peer.requests[-1][1]


def test_ways_out_of_an_empty_answer_are_commands(serve, run):
    ways = [{"agent": None}, {"kinds": ["all"]}, {"scope": "global"}, {"query": "-it's"}]
    suggestions = [{"words": "", "total": 1, "changes": changes} for changes in ways]
    serve(search=found(warnings=("nothing found",)) | {"suggestions": suggestions})
    ran = run("query", "a b", "--agent", "pi", "-k", "meta", "--project", "/p", "--all-copies")

    assert (ran.status, ran.out) == (1, "")
    shared = "--project /p"
    assert ran.err.splitlines() == [
        "indexctl: nothing found",
        f"indexctl: try: indexctl query --kind meta {shared} --all-copies 'a b'",
        f"indexctl: try: indexctl query --kind all {shared} --agent pi --all-copies 'a b'",
        "indexctl: try: indexctl query --kind meta --agent pi --all-copies 'a b'",
        f"indexctl: try: indexctl query --kind meta {shared} --agent pi --all-copies"
        " -- '-it'\"'\"'s'",
    ]


def test_naming_a_project_searches_in_it(serve, run):
    peer = serve(search=found(hit(1)))
    run("query", "x", "--project", "/p")

    assert peer.requests[-1][1] == {"query": "x", "scope": "project", "project": "/p"}


def test_a_project_is_named_by_its_directory_or_by_name(serve, run, place):
    peer = serve(search=found(hit(1)))
    for given, sent in (
        ("app", "app"),
        (".", str(place / "work")),
        ("a/b", str(place / "work/a/b")),
    ):
        run("query", "x", "--project", given)

        assert peer.requests[-1][1]["project"] == sent


def test_a_session_given_by_path_is_made_absolute(serve, run, place):
    peer = serve(search=found(hit(1)))
    run("query", "x", "--session", "./a.jsonl")

    assert peer.requests[-1][1]["session"] == str(place / "work" / "a.jsonl")


def test_the_project_is_the_git_top_level(place):
    (place / "work" / "a" / "b").mkdir(parents=True)
    (place / "work" / "a" / ".git").touch()

    assert project(str(place / "work" / "a" / "b")) == str(place / "work" / "a")
    assert project(str(place / "work")) == str(place / "work")


def test_nothing_found_is_status_1_and_explained(serve, run):
    serve(search=found(warnings=("searched 5 documents", "nearest terms: cash")))
    ran = run("query", "cache")

    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "indexctl: searched 5 documents\nindexctl: nearest terms: cash\n"


def test_nothing_found_is_never_silent(serve, run):
    serve(search=found())

    assert run("query", "cache").err == "indexctl: nothing found for 'cache'\n"


def test_warnings_beside_hits_are_talk(serve, run):
    serve(search=found(hit(1), warnings=("still indexing",)))
    ran = run("query", "cache")

    assert ran.err == "indexctl: still indexing\n"
    assert "still" not in ran.out


def test_the_next_page_is_offered_only_after_a_full_one(serve, run, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["indexctl", "query", "it's", "-n", "2", "--offset", "2"])
    serve(search=found(hit(3), hit(4)) | {"total": 9})

    assert "indexctl query 'it'\"'\"'s' -n 2 --offset 4\n" in run(*sys.argv[1:]).out
    last = run("query", "it's").out
    assert "--offset" not in last
    assert "weaker" in last


def test_the_next_page_of_a_query_for_an_option_looks_for_it_still(serve, run, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["indexctl", "query", "-n", "1", "--", "-x"])
    serve(search=found(hit(1)))

    assert "indexctl query -n 1 --offset 1 -- -x\n" in run(*sys.argv[1:]).out


def test_json_is_exactly_the_daemons_result(serve, run):
    answer = found(hit(1), warnings=("w",))
    serve(search=answer)
    ran = run("query", "cache", "--json")

    assert json.loads(ran.out) == answer
    assert ran.out.count("\n") == 1
    assert (ran.status, ran.err) == (0, "")


def test_json_without_hits_is_still_printed_with_status_1(serve, run):
    serve(search=found())
    ran = run("--json", "query", "cache")

    assert ran.status == 1
    assert json.loads(ran.out)["hits"] == []


def test_json_of_ten_full_hits_stays_within_10_kb(serve, run):
    hits = [
        hit(rank, snippet="x" * 246, highlights=[[1, 2], [30, 40], [99, 110]], project="/p" * 20)
        | {"session_path": f"/home/ana/.claude/projects/{'-home-ana-src' * 3}/{'a' * 36}.jsonl"}
        | {"session_id": "a" * 36}
        for rank in range(1, 11)
    ]
    serve(search=found(*hits))

    assert len(run("query", "x", "-n", "10", "--json").out.encode()) <= 10_000


def test_json_keeps_text_and_escapes_what_is_no_text(serve, run):
    serve(search=found(hit(1, snippet="数据 \x9b\x1b\x7f", session_path="/s/\udcff")))
    out = run("query", "x", "--json").out

    assert "数据" in out
    assert r"\u009b\u001b\u007f" in out
    assert r"\udcff" in out
    assert json.loads(out)["hits"][0]["session_path"] == "/s/\udcff"


# -- around


def test_a_hit_of_the_last_query_is_read_by_its_number(serve, run):
    peer = serve(search=found(hit(1), hit(2)), around=AROUND)
    run("query", "cache")
    ran = run("around", "2")

    assert peer.requests[-1] == ("around", {"session_path": "/s/2.jsonl", "message_index": 20})
    assert ran.status == 0
    assert "> 10 user\n   the cache\n" in ran.out
    assert "cd /p && claude --resume id1" in ran.out


def test_a_message_is_read_by_path_and_index(serve, run, place):
    peer = serve(around=AROUND)
    words = ("around", "a.jsonl", "7", "-B", "0", "-A", "2", "--full", "--reasoning", "--reveal")
    assert "cd /p && claude --resume id1" in run(*words).out

    assert peer.requests[-1][1] == {
        "session_path": str(place / "work" / "a.jsonl"),
        "message_index": 7,
        "before": 0,
        "after": 2,
        "full": True,
        "reasoning": True,
        "reveal": True,
    }


def test_context_means_both_sides_unless_one_is_named(serve, run):
    peer = serve(around=AROUND)
    run("around", "/a", "7", "-C", "5", "-A", "0")

    assert peer.requests[-1][1] == {
        "session_path": "/a",
        "message_index": 7,
        "before": 5,
        "after": 0,
    }


@pytest.mark.parametrize(
    ("words", "params"),
    [
        (("abcdefgh", "7"), {"session_path": "abcdefgh", "message_index": 7}),
        (("12345678", "--end"), {"session_path": "12345678", "at": "end"}),
        (("/a", "--start"), {"session_path": "/a", "at": "start"}),
        (("1", "--at", "yesterday"), {"session_path": "/s/1.jsonl", "at": "yesterday"}),
    ],
)
def test_a_place_in_a_session_is_an_index_an_end_or_a_time(serve, run, words, params):
    peer = serve(search=found(hit(1)), around=AROUND)
    run("query", "x")
    run("around", *words)

    assert peer.requests[-1] == ("around", params)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["3"], "no query is remembered"),
        (["/a", "1", "--end"], "neither a hit's number nor"),
        (["x"], "neither a hit's number nor"),
        (["/a", "b"], "neither a hit's number nor"),
        (["/a", "1", "2"], "neither a hit's number nor"),
        (["/a", "--start", "--end"], "not allowed with"),
        (["1", "--end", "--at", "3d"], "not allowed with"),
    ],
)
def test_what_is_no_place_is_refused_without_asking(run, words, part):
    ran = run("around", *words)

    assert ran.status == 2
    assert part in ran.err


def test_a_number_the_last_query_did_not_have_says_which_it_had(serve, run):
    serve(search=found(hit(9), hit(10)))
    run("query", "x", "--offset", "8")

    assert "it had hits 9 to 10" in run("around", "3").err


def test_after_a_query_without_hits_no_number_means_an_older_one(serve, run):
    answers = [found(), found(hit(1))]
    serve(search=lambda _: answers.pop())
    run("query", "x")
    run("query", "y")

    assert "the last query found nothing" in run("around", "1").err


def test_the_last_hits_are_their_owners_alone(serve, run, place):
    serve(search=found(hit(1)))
    run("query", "x")
    files = list((place / ".cache" / "indexd").iterdir())

    assert [file.name for file in files] == ["last-hits"]
    assert files[0].stat().st_mode & 0o777 == 0o600
    assert files[0].parent.stat().st_mode & 0o777 == 0o700


def test_a_query_succeeds_where_nothing_can_be_remembered(serve, run, place):
    (place / ".cache").touch()
    serve(search=found(hit(1)))

    assert run("query", "x").status == 0


def test_spoilt_last_hits_are_as_good_as_none(serve, run, place):
    serve(search=found(hit(1)))
    run("query", "x")
    (place / ".cache" / "indexd" / "last-hits").write_bytes(b"\0\0\0\5hello")

    assert "no query is remembered" in run("around", "1").err


# -- sessions and show


def listed(rank: int, **more: Any) -> dict[str, Any]:
    return {
        "session_path": f"/s/{rank}.jsonl",
        "session_id": f"id{rank}",
        "agent": "claude",
        "project": "/p/app",
        "title": "",
        "first_words": "fix the lock",
        "updated": None,
        "messages": 12,
        "size": 3400,
        "resume": ["claude", "--resume", f"id{rank}"],
    } | more


def test_sessions_are_listed_and_remembered_by_number(serve, run):
    rows = [listed(1), listed(2, title="The lock", subagent=True)]
    peer = serve(
        sessions={"sessions": rows, "total": 7, "warnings": []},
        show={"session": listed(2), "length": 0, "messages": [], "next": None},
    )
    ran = run("sessions", "--limit", "2", "--offset", "4", "--agent", "claude", "--since", "3d")

    assert peer.requests[-1] == (
        "sessions",
        {"limit": 2, "offset": 4, "agent": "claude", "since": "3d"},
    )
    assert ran.out == (
        "5   claude            app  12 messages  3.4 KB  id1\n"
        "   fix the lock\n"
        "6   claude sub-agent  app  12 messages  3.4 KB  id2\n"
        "   The lock\n"
        "\n"
        "Sessions 5 to 6 of 7.\n"
        "  indexctl show 5\n"
        "  cd /p/app && claude --resume id1\n"
    )
    run("show", "6")
    assert peer.requests[-1] == ("show", {"session_path": "/s/2.jsonl", "first": 0})


def test_sessions_of_a_project_are_asked_for_by_scope_or_name(serve, run, place):
    peer = serve(sessions={"sessions": [], "total": 0, "warnings": ["no session is selected"]})
    ran = run("sessions", "--scope", "project")
    assert peer.requests[-1][1] == {"scope": "project", "project": str(place / "work")}
    assert (ran.status, ran.out) == (1, "")
    assert "no session is selected" in ran.err

    run("sessions", "--project", "app", "--json")
    assert peer.requests[-1][1] == {"scope": "project", "project": "app"}


def pages(params: dict[str, Any]) -> dict[str, Any]:
    """Return a page of a session of two messages, one per page."""
    message = {"index": params["first"], "role": "user", "text": "a ``` b", "tool_calls": []}
    calls = [{"name": "Bash", "arguments": '{"command":"ls"}'}]
    second = {"index": 1, "role": "tool", "tool_name": "Bash", "text": "x\x1b```y"}
    return {
        "session": listed(1, title="The lock", started=None),
        "length": 2,
        "messages": [second if params["first"] else message | {"tool_calls": calls}],
        "next": None if params["first"] else 1,
    }


def test_a_whole_session_is_printed_page_by_page(serve, run):
    peer = serve(show=pages)
    ran = run("show", "abcdefgh", "--reasoning")

    asked = [params for method, params in peer.requests if method == "show"]
    assert asked == [
        {"session_path": "abcdefgh", "first": 0, "reasoning": True},
        {"session_path": "abcdefgh", "first": 1, "reasoning": True},
    ]
    assert ran.out == (
        "The lock\n/s/1.jsonl\nclaude\n/p/app\n2 messages\n"
        "cd /p/app && claude --resume id1\n"
        '\n  0 user\n   a ``` b\n   -> Bash {"command":"ls"}\n'
        "\n  1 tool Bash\n   x\\x1b```y\n"
    )


def test_a_session_is_printed_as_markdown(serve, run):
    serve(show=pages)

    assert run("show", "abcdefgh", "--markdown").out == (
        "# The lock\n\n- /s/1.jsonl\n- claude\n- /p/app\n- 2 messages\n"
        "- cd /p/app && claude --resume id1\n"
        "\n## 0 user\n\na ``` b\n"
        '\nCalls `Bash`:\n\n```\n{"command":"ls"}\n```\n'
        "\n## 1 tool `Bash`\n\n````\nx\\x1b```y\n````\n"
    )


def test_a_session_as_json_is_its_pages_a_line_each(serve, run):
    serve(show=pages)
    ran = run("show", "abcdefgh", "--first", "1", "--json")

    assert [json.loads(line) for line in ran.out.splitlines()] == [pages({"first": 1})]


# -- the other commands


def test_tools_are_searched(serve, run):
    tool = {"tool_id": "git::commit", "description": "Record.", "signature": "commit()"}
    peer = serve(tool_search={"tools": [tool], "total_tools": 9, "cut": 0, "warnings": []})
    ran = run("tools", "record", "changes", "--server", "git", "--max-results", "2")

    assert peer.requests[-1][1] == {
        "query": "record changes",
        "server": "git",
        "max_results": 2,
        "detail": "signature",
    }
    assert (ran.status, ran.out) == (0, "git::commit\n   Record.\n   commit()\n\n1 tool of 9\n")


def test_a_tool_is_loaded_by_its_id(serve, run):
    answer = {"tools": [], "total_tools": 9, "cut": 1, "warnings": ["all scored too low"]}
    peer = serve(tool_search=answer)
    ran = run("tools", "--id", "git::commit", "--detail", "full", "--json")

    assert peer.requests[-1][1] == {"tool_id": "git::commit", "detail": "full"}
    assert (ran.status, json.loads(ran.out)) == (1, answer)


def test_no_tools_is_never_silent(serve, run):
    serve(
        tool_search={"tools": [], "total_tools": 0, "cut": 0, "warnings": []},
        tool_list={"active": False, "deferred": [], "loaded": []},
    )

    said = "indexctl: no server's tools are indexed; run: indexctl mcp sync\n"
    assert (run("tools", "x").status, run("tools").err) == (1, said)


def test_without_a_query_the_deferred_tools_are_listed(serve, run):
    serve(tool_list={"active": True, "tokens_all": 9, "deferred": ["a::b: c"], "loaded": []})
    ran = run("tools")

    assert (ran.status, ran.out.split("\n")[2]) == (0, "a::b: c")


def test_a_history_call_is_passed_on_whole(serve, run, place):
    peer = serve(history={"text": "History search results"})
    ran = run("history", '{"operation": "search", "query": "x", "extra": [1]}')

    assert peer.requests[-1][1] == {
        "operation": "search",
        "query": "x",
        "extra": [1],
        "project": str(place / "work"),
    }
    assert (ran.status, ran.out) == (0, "History search results\n")


def test_a_history_call_that_finds_nothing_says_so_in_its_status_too(serve, run):
    serve(history={"text": search_text("x", [])})
    ran = run("history", '{"operation": "search", "query": "x"}')
    assert (ran.status, ran.out) == (1, search_text("x", []) + "\n")


def test_a_history_call_is_read_from_standard_input(serve):
    peer = serve(history={"text": "t"})
    ran = process("history", "-", input=b'{"operation": "around"}')

    assert (ran.returncode, ran.stdout) == (0, b"t\n")
    assert peer.requests[-1][1]["operation"] == "around"


@pytest.mark.parametrize("payload", ["{", "[]", "7", "[" * 10_000])
def test_a_history_call_that_is_no_object_is_refused(run, payload):
    ran = run("history", payload)

    assert ran.status == 2
    assert ran.err.startswith("indexctl: invalid arguments: ")


def test_status_is_printed(serve, run):
    serve(status=STATUS)

    assert run("status").out.startswith("indexd 0.1.0, process 1, up 5 s, /s\n")
    assert json.loads(run("status", "--json").out) == STATUS


def test_waiting_ends_when_nothing_is_pending(serve, run):
    left = [STATUS | {"files_pending": 2, "bytes_pending": 9}, STATUS | {"bytes_pending": 9}]
    peer = serve(status=lambda _: left.pop() if left else STATUS)
    ran = run("status", "--wait")

    assert "everything is indexed" in ran.out
    assert len([method for method, _ in peer.requests if method == "status"]) == 3
    assert ran.err == ""


def test_waiting_shows_a_bar_on_a_terminal(serve):
    left = [STATUS | {"files_pending": 1, "bytes_pending": 50}]
    serve(status=lambda _: left.pop() if left else STATUS)
    controller, device = pty.openpty()
    ran = subprocess.run(
        [sys.executable, "-m", "indexd.cli", "status", "--wait"],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        stdout=subprocess.PIPE,
        stderr=device,
        timeout=30,
        check=False,
    )
    os.close(device)
    shown = os.read(controller, 1000)
    os.close(controller)

    assert ran.returncode == 0
    assert b"]   0%  1 files, 50 B left" in shown
    assert shown.endswith(b"\r\x1b[K")


def test_mcp_events_are_read_from_standard_input(serve):
    peer = serve(
        mcp_event=lambda event: {"server": event["server"], "warnings": ["tool x: no name"]}
    )
    events = (
        b'{"event": "connected", "server": "git", "tools": []}\n'
        b'[{"event": "disconnected", "server": "hub"}]'
    )
    ran = process("mcp", "event", input=events)

    assert [params for method, params in peer.requests if method == "mcp_event"] == [
        {"event": "connected", "server": "git", "tools": []},
        {"event": "disconnected", "server": "hub"},
    ]
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert b"indexctl: tool x: no name\nindexctl: git: connected\n" in ran.stderr


def test_an_event_of_json_that_no_frame_carries_is_repaired(serve):
    peer = serve(mcp_event=lambda event: {"server": event["server"], "warnings": []})
    tool = b'{"name": "half \\ud83d", "inputSchema": {"maximum": 18446744073709551616}}'
    event = b'{"event": "connected", "server": "git", "tools": [' + tool + b"]}"

    assert process("mcp", "event", input=event).returncode == 0
    (sent,) = [params for method, params in peer.requests if method == "mcp_event"]
    assert sent["tools"] == [{"name": "half ?", "inputSchema": {"maximum": 2**64 - 1}}]


@pytest.mark.parametrize(
    ("text", "status", "part"),
    [
        (b"", 1, b"held no event"),
        (b"{", 2, b"is not JSON"),
        (b"[1]", 2, b"'1' is not an event"),
    ],
)
def test_standard_input_without_events_is_told(serve, text, status, part):
    serve(mcp_event={})
    ran = process("mcp", "event", input=text)

    assert ran.returncode == status
    assert part in ran.stderr


def test_servers_stand_in_columns_whatever_their_names(serve, run):
    known = {"git": {"tools": 1, "online": True}, "\u5e93": {"tools": 2, "online": True}}
    serve(status={"servers": known | {"a\u202eb": {"tools": 3, "online": False}}})
    assert run("mcp", "servers").out.splitlines() == [
        "a\\u202eb      3 tools  offline",
        "git           1 tools  online",
        "\u5e93            2 tools  online",
    ]


def test_options_that_may_stand_anywhere_may_follow_an_action(serve, run):
    serve(status={"servers": {"git": {"tools": 1, "online": True}}})
    assert run("mcp", "servers", "--no-start").status == 0
    asked = process("mcp", "event", "--no-start", "--help", stdin=subprocess.DEVNULL)
    assert asked.stdout.startswith(b"usage: indexctl mcp event <")
    wrong = run("mcp", "event", "events.json")
    assert (wrong.status, wrong.out) == (2, "")
    assert "unrecognized arguments: events.json" in wrong.err


def test_reindexing_names_an_absolute_path_or_everything(serve, run, place):
    peer = serve(reindex={"files": 3})

    assert run("reindex", "a").status == 0
    assert run("reindex").status == 0
    assert [params for method, params in peer.requests if method == "reindex"] == [
        {"path": str(place / "work" / "a")},
        {},
    ]


def test_reindexing_where_nothing_is_indexed_finds_nothing(serve, run, place):
    serve(reindex={"files": 0})
    ran = run("reindex", "a")

    assert ran.status == 1
    assert f"no session is indexed at {place / 'work' / 'a'}; see: indexctl status" in ran.err


# -- config


def test_all_settings_in_force_are_listed(run, place, monkeypatch):
    monkeypatch.setenv("INDEXD_TOOL_SEARCH_THRESHOLD", "2.5")
    (place / "config.toml").write_text('[[root]]\npath = "/r"\n[analysis]\nprofile = "seed"\n')
    monkeypatch.setenv("INDEXD_CONFIG", str(place / "config.toml"))
    lines = run("config").out.split("\n")

    assert f"config_file = {place}/config.toml" in lines
    assert lines[lines.index("roots =") + 1] == "  /r"
    assert "default_roots = false" in lines
    assert "analysis.profile = seed" in lines
    assert "tool_search.threshold = 2.5" in lines


def test_a_setting_is_set_and_read_back_in_kiros_spelling(run, place):
    (place / ".config" / "indexd").mkdir(parents=True)
    file = place / ".config" / "indexd" / "config.toml"
    file.write_text('[[root]]\npath = "/r"\n')

    ran = run("config", "set", "toolSearch.minPct", "10")
    assert ran.status == 0
    assert "when the daemon starts next: indexctl stop; indexctl status" in ran.err
    assert "min_pct = 10" in file.read_text()
    assert run("config", "get", "toolSearch.minPct").out == "10\n"
    assert json.loads(run("config", "get", "tool_search.min_pct", "--json").out) == {
        "tool_search.min_pct": 10
    }


def test_a_first_configuration_file_is_written_once(run, place):
    assert run("config", "--init").status == 0
    assert (place / ".config/indexd/config.toml").read_text().startswith("# indexd works without")
    assert "exists already" in run("config", "--init").err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["set", "tool_search.min_pct"], "needs a key and a value"),
        (["get"], "needs a key"),
        (["set", "tool_search.minpct", "5"], "did you mean tool_search.min_pct?"),
        (["set", "tool_search.min_pct", "500"], "allowed: a number from 0 to 100"),
    ],
)
def test_a_config_command_that_cannot_be_followed_says_why(run, words, part):
    ran = run("config", *words)

    assert ran.status == 2
    assert part in ran.err


# -- errors and the process


def test_an_error_is_two_lines_of_talk_and_status_2(serve, run):
    serve(search=BadRequest("no words", "say what to look for"))
    ran = run("query", "?")

    assert (ran.status, ran.out) == (2, "")
    assert ran.err == "indexctl: no words\nindexctl: say what to look for\n"


@pytest.mark.parametrize("error", [BadRequest("b", "h"), NotAllowed("a"), NotFound("n", "h")])
def test_with_json_an_error_is_data(serve, run, error):
    serve(around=error)
    ran = run("around", "/a", "1", "--json")

    assert (ran.status, ran.err) == (2, "")
    assert json.loads(ran.out) == {"error": error.as_map()}


def test_a_mistake_on_the_command_line_is_an_error_like_any_other(run):
    ran = run("query", "x", "--limit", "many")

    assert ran.status == 2
    assert ran.err == (
        "indexctl: argument -n/--limit: 'many' is not a whole number\n"
        "indexctl: see: indexctl query --help\n"
    )
    assert "error" in json.loads(run("query", "--json").out)
    assert "'quary'" in run("quary").err
    for option in ("--agent", "--project", "--session", "--session-dir", "--tool-name", "--kind"):
        assert f"{option}: its value is empty" in run("query", "x", option, "").err
    assert "--agent: its value is empty" in run("sessions", "--agent", " ").err
    assert "unrecognized arguments: --colour" in run("query", "x", "--colour").err
    assert "in one pair of quotes, or behind --" in run("query", "cache", "-redis").err
    assert "quotes" not in run("stop", "--now").err
    assert run().err.startswith("indexctl: the following arguments are required: COMMAND\n")
    assert run("mcp").err.startswith("indexctl: the following arguments are required: ACTION\n")


def test_without_a_daemon_and_leave_to_start_one_it_is_an_error(run, place):
    ran = run("query", "x", "--no-start")

    assert ran.status == 2
    assert ran.err.startswith(f"indexctl: no daemon at {place}/s\nindexctl: start it with")


def test_another_socket_can_be_named_before_or_after_the_command(run, place):
    with Peer(str(place / "other"), {"status": STATUS}):
        assert run("--socket", str(place / "other"), "status").status == 0
        assert run("status", "--socket", str(place / "other")).status == 0


def test_a_daemon_is_started_when_none_answers_and_stopped_again(run, place):
    # As indexctl would, but with a small daemon in the place of indexd.
    command = (sys.executable, str(HERE / "small_daemon.py"))
    script = (
        "import sys; from indexd import cli, start; "
        f"start.start.__defaults__ = ({command!r}, 30.0); sys.exit(cli.main(sys.argv[1:]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, "status", "--json"],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        timeout=30,
        check=False,
    )
    pid = json.loads(ran.stdout)["pid"]

    assert f"indexctl: started indexd (process {pid}, log {place}/.cache/" in ran.stderr.decode()
    assert json.loads(run("status", "--json").out) == {"pid": pid}
    assert run("stop").err == f"indexctl: stopped indexd (process {pid})\n"
    assert not (place / "s").exists()


def test_stopping_what_does_not_run_is_done_already(run, place):
    ran = run("stop", "--json")

    assert (ran.status, json.loads(ran.out)) == (0, {"stopped": None})
    assert f"no daemon runs at {place}/s" in ran.err


def test_only_the_process_that_answers_is_ever_ended(serve, run):
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        serve(status=STATUS | {"pid": bystander.pid})
        ran = run("stop")

        assert ran.status == 2
        assert "is not indexd as seen from here" in ran.err
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_pipe_closed_by_its_reader_is_no_error(serve):
    serve(around=AROUND | {"messages": [AROUND["messages"][0] | {"text": "x\n" * 200_000}]})
    child = subprocess.Popen(
        [sys.executable, "-m", "indexd.cli", "around", "/a", "1"],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.read(10)
    child.stdout.close()
    assert child.stderr is not None
    talk = child.stderr.read()
    child.stderr.close()

    assert (child.wait(), talk) == (0, b"")


def test_help_into_a_closed_pipe_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-m", "indexd.cli", "--help"],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)

    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_closed_standard_output_is_no_error(serve):
    serve(status=STATUS)
    words = f"exec '{sys.executable}' -m indexd.cli status >&-"
    ran = subprocess.run(
        ["sh", "-c", words],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        stderr=subprocess.PIPE,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("words", ["status", "status --json"])
def test_an_answer_that_finds_no_room_is_an_error_in_words(serve, words):
    serve(status=STATUS)
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "indexd.cli", *words.split()],
            env=os.environ | {"PYTHONPATH": str(HERE.parent)},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert (ran.returncode, ran.stderr) == (2, b"indexctl: cannot go on: No space left on device\n")


def test_a_current_directory_that_was_deleted_costs_only_the_project(
    serve, run, place, monkeypatch
):
    peer = serve(search=found(hit(1)), history={"text": "none"})
    gone = place / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert run("query", "cache").status == 0
    assert run("history", '{"operation": "search", "query": "x"}').status == 0
    asked = [params for method, params in peer.requests if method in ("search", "history")]
    assert "project" not in asked[0]
    assert asked[1]["project"] == ""


def test_an_encoding_without_the_characters_writes_them_out(serve, monkeypatch):
    serve(search=found(hit(1, snippet="数据 cache")))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ran = process("query", "x")

    assert ran.returncode == 0
    assert rb"\u6570\u636e cache" in ran.stdout


def test_colour_comes_on_a_terminal_only(serve):
    serve(search=found(hit(1)))
    assert b"\x1b" not in process("query", "x").stdout

    shown = {}
    for name, more in (("plain", {"NO_COLOR": "1"}), ("colour", {"TERM": "xterm"})):
        controller, device = pty.openpty()
        subprocess.run(
            [sys.executable, "-m", "indexd.cli", "query", "x"],
            env=os.environ | {"PYTHONPATH": str(HERE.parent)} | more,
            stdout=device,
            check=True,
        )
        os.close(device)
        shown[name] = os.read(controller, 10_000)
        os.close(controller)

    assert b"\x1b[1;33mcache\x1b[0m" in shown["colour"]
    assert b"\x1b" not in shown["plain"]


@pytest.mark.parametrize("command", [[], *([name] for name in arguments.COMMANDS)])
def test_help_explains_with_examples_and_fits_the_window(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as left:
        cli.main([*command, "--help"])
    shown = capsys.readouterr().out

    assert left.value.code == 0
    assert "examples:\n  indexctl " in shown
    assert max(map(len, shown.split("\n"))) <= 80


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])

    assert capsys.readouterr().out == f"indexctl {__version__}\n"


def test_a_lone_surrogate_in_a_query_is_refused_in_words(serve, run):
    peer = serve(search=found())
    ran = run("history", '{"operation": "search", "query": "\\ud800"}')

    assert ran.status == 2
    assert "half of a surrogate pair" in ran.err
    assert all(method == "hello" for method, _ in peer.requests)
