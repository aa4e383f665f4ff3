"""Questions in, the right tools out: names, words, spellings, languages, cut-offs, order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd.deferral import DeferralSettings
from indexd.errors import BadRequest, NotFound
from indexd.merge import merge
from indexd.segment import Segment
from indexd.tool import Tool, parse_tool
from indexd.tool_analysis import FIELDS, NAME, SPELLING, Words, analyse, texts
from indexd.tool_search import EXACT_SCORE, SearchSettings, ToolSearch
from indexd.tool_text import squeeze, terms, words
from indexd.tool_words import parse, vocabulary

SERVERS: dict[str, list[tuple[str, str]]] = {
    "github": [
        ("create_issue", "Create a new issue in a GitHub repository."),
        ("list_issues", "List issues in a GitHub repository."),
        ("add_issue_comment", "Add a comment to an existing issue."),
        ("create_pull_request", "Create a new pull request in a GitHub repository."),
        ("merge_pull_request", "Merge a pull request."),
        ("search_code", "Search for code across GitHub repositories."),
        ("get_file_contents", "Get the contents of a file or directory."),
    ],
    "gitlab": [
        ("create_issue", "Create an issue in a GitLab project."),
        ("list_issues", "List issues of a GitLab project."),
    ],
    "browser": [
        ("browser_navigate", "Navigate to a URL."),
        ("browser_take_screenshot", "Take a screenshot of the current web page."),
        ("browser_click", "Perform a click on an element of a web page."),
    ],
    "cloudwatch": [
        ("get_alarm_history", "Get the history of a CloudWatch alarm."),
        ("execute_log_insights_query", "Run a query over log groups."),
    ],
    "files": [
        ("read_file", "Read the complete contents of a file."),
        ("write_file", "Write text to a file."),
        ("list_directory", "List the entries of a directory."),
        ("move_file", "Move or rename a file."),
    ],
    "home": [("set_light", "Control a light: state, brightness, colour.")],
    "time": [
        ("get_current_time", "Get the current time in a timezone."),
        ("convert_time", "Convert time between timezones."),
    ],
    "天气": [("查询天气", "查询某个城市的天气预报")],
}


def connect(search: ToolSearch, server: str, tools: list[tuple[str, str]]) -> None:
    raw: list[dict[str, Any]] = [{"name": name, "description": text} for name, text in tools]
    search.apply({"event": "connected", "server": server, "tools": raw})


@pytest.fixture(scope="module")
def search() -> ToolSearch:
    result = ToolSearch()
    for server, tools in SERVERS.items():
        connect(result, server, tools)
    return result


def ids(search: ToolSearch, query: str, **options: Any) -> list[str]:
    return [tool["tool_id"] for tool in search.search(query=query, **options)["tools"]]


# --- words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("readFile", ["readfil", "read", "file"]),
        ("read_file-now.ok", ["read", "file", "now", "ok"]),
        ("HTTPServer2", ["httpserver2", "http", "server", "2"]),
        ("URLs and IDs", ["url", "and", "id"]),
        ("École naïve", ["ecol", "naiv"]),
        ("файлов", ["файл"]),
        ("步行路线", ["步行", "行路", "路线"]),
        ("灯", ["灯"]),
        ("ｆｉｌｅ", ["file"]),
        ("GitHub里", ["github", "git", "hub", "里"]),
        ("", []),
    ],
)
def test_texts_become_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_spellings_of_a_name_are_equal_squeezed() -> None:
    spellings = ["createIssue", "create_issue", "Create issue", "CREATE-ISSUE", "create.issue"]
    assert {squeeze(spelling) for spelling in spellings} == {"createissue"}


@given(st.text(max_size=60))
def test_no_text_breaks_the_analysis(text: str) -> None:
    assert all(term for term in terms(text))
    assert all(word.text for word in words(text))


def test_the_word_list_relates_spells_and_translates() -> None:
    found = parse("# note\ncreate add | 创建 | créer\n= database db\n- the le\n")
    assert set(found.of("creat")) == {"add", "创建"}
    assert found.of("创建")["creat"] > found.of("创建")["add"]
    assert "creat" in found.of("creer")
    assert "db" in found.of("databas")
    assert found.stop_words == {"the", "le"}


def test_every_line_of_the_package_s_word_list_is_used() -> None:
    found = vocabulary()
    assert len(found.stand_ins) > 2000
    assert all(0 < w <= 1 for others in found.stand_ins.values() for w in others.values())


# --- the index -----------------------------------------------------------------------------


SAID = ["get", "getIssue", "file", "Файл", "读取文件", "école", "x", "--", "list the files. ok"]
TOOLS = st.lists(
    st.builds(
        lambda name, text, parameter, reads: parse_tool(
            "issueServer",
            {
                "name": name,
                "description": text,
                "inputSchema": {"properties": {parameter: {"description": text, "enum": [name]}}},
                "annotations": {"readOnlyHint": reads},
            },
        ),
        st.sampled_from(SAID),
        st.lists(st.sampled_from(SAID), max_size=30).map(" ".join),
        st.sampled_from(SAID),
        st.booleans(),
    ),
    max_size=6,
)


def held(segment: Segment) -> dict[int, dict[str, int]]:
    """Return the terms of each tool of a segment and their frequencies, by file id."""
    found: dict[int, dict[str, int]] = {}
    for at, term in enumerate(segment.dictionary):
        for ordinal, freq in zip(*segment.term_postings(at), strict=True):
            file_id = int(segment.file_ids[segment.columns.file[ordinal]])
            found.setdefault(file_id, {})[term.decode()] = int(freq)
    return found


def weighed(tool: Tool) -> dict[str, float]:
    """Return what each plain term of a tool counts, in hundredths, worked out word by word."""
    found: dict[str, float] = {}
    for (name, field), text in zip(FIELDS.items(), texts(tool), strict=True):
        said = terms(text) + (terms(squeeze(tool.name)) if name == "name" else [])
        length = len(said) / field.typical_terms
        for term in said:
            share = 100 * field.weight / (1 - field.dilution + field.dilution * length)
            found[term] = found.get(term, 0.0) + share
    return found


@given(TOOLS)
def test_a_tool_is_indexed_by_its_fields_weighted_words(tools: list[Tool]) -> None:
    found = held(analyse(list(enumerate(tools, 3)), Words()))
    for file_id, tool in enumerate(tools, 3):
        mine = found.get(file_id, {})
        expected = weighed(tool)
        assert {term for term in mine if ":" not in term} == expected.keys()
        for term, value in expected.items():
            assert mine[term] == pytest.approx(value, abs=max(5, 0.02 * value))
        named = {t for w in words(tool.name) for t in (w.parts or w.whole)}
        assert {t.removeprefix(NAME) for t in mine if t.startswith(NAME)} == named
        assert ("reads:only" in mine) == tool.read_only
        spelt = {t.removeprefix(SPELLING) for t in mine if t.startswith(SPELLING)}
        assert {word.text for word in words(tool.name)} <= spelt


@given(TOOLS, TOOLS)
def test_tools_analysed_apart_and_merged_are_tools_analysed_together(
    some: list[Tool], others: list[Tool]
) -> None:
    numbered = list(enumerate([*some, *others], 1))
    apart = merge(
        [analyse(numbered[: len(some)], Words()), analyse(numbered[len(some) :], Words())]
    )
    assert held(apart) == held(analyse(numbered, Words()))


# --- ranking -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create_pull_request", "github::create_pull_request"),
        ("mcp__files__read_file", "files::read_file"),
        ("take a screenshot", "browser::browser_take_screenshot"),
        ("merging pull requests", "github::merge_pull_request"),
        ("open a PR on github", "github::create_pull_request"),
        ("commenting on an issue", "github::add_issue_comment"),
        ("creat githb isue", "github::create_issue"),
        ("cloud watch alarm histroy", "cloudwatch::get_alarm_history"),
        ("screen shot of the webpage", "browser::browser_take_screenshot"),
        ("show me the files in this folder", "files::list_directory"),
        ("dim the lamp", "home::set_light"),
        ("relocate a document", "files::move_file"),
        ("读取文件", "files::read_file"),
        ("创建 github issue", "github::create_issue"),
        ("ファイルを読む", "files::read_file"),
        ("파일 읽기", "files::read_file"),
        ("прочитать файл", "files::read_file"),
        ("lire un fichier", "files::read_file"),
        ("Datei lesen", "files::read_file"),
        ("leer un archivo", "files::read_file"),
        ("天气", "天气::查询天气"),
        ("weather forecast", "天气::查询天气"),
    ],
)
def test_the_right_tool_comes_first(search: ToolSearch, query: str, best: str) -> None:
    assert ids(search, query)[0] == best


def test_names_in_a_question_come_first_in_its_order(search: ToolSearch) -> None:
    found = search.search(query="move_file, browser_click, list_issues", max_results=10)
    named = [tool["tool_id"] for tool in found["tools"] if tool["score"] == EXACT_SCORE]
    assert named == [
        "files::move_file",
        "browser::browser_click",
        "github::list_issues",
        "gitlab::list_issues",
    ]
    assert [tool["tool_id"] for tool in found["tools"]][:4] == named


def test_all_names_are_answered_unless_fewer_are_asked_for(search: ToolSearch) -> None:
    every = [f"files::{name}" for name, _ in SERVERS["files"]]
    every += [f"github::{name}" for name, _ in SERVERS["github"]]
    assert ids(search, " ".join(every)) == every
    assert ids(search, " ".join(every), max_results=3) == every[:3]
    assert ids(search, "create_issue", max_results=1) == ["github::create_issue"]


def test_a_tool_named_so_ranks_above_tools_that_mention_it() -> None:
    search = ToolSearch()
    connect(
        search,
        "code",
        [
            ("replace_body", "Find symbol, find symbol again, then replace. find symbol."),
            ("find_symbol", "Searches the code base."),
        ],
    )
    assert ids(search, "find a symbol") == ["code::find_symbol", "code::replace_body"]


def test_equal_scores_are_ordered_by_id_and_reading_tools_come_first() -> None:
    search = ToolSearch()
    raw = [
        {"name": name, "description": "Handles dns records.", "annotations": {"readOnlyHint": r}}
        for name, r in (("b_dns", False), ("a_dns", False), ("c_dns", True))
    ]
    search.apply({"event": "connected", "server": "s", "tools": raw})
    assert ids(search, "dns records please") == ["s::c_dns", "s::a_dns", "s::b_dns"]


def test_the_order_servers_connect_in_changes_no_answer(search: ToolSearch) -> None:
    shuffled = list(SERVERS.items())
    random.Random(7).shuffle(shuffled)
    other = ToolSearch()
    connect(other, "github", [("old", "Goes away.")])
    for server, tools in shuffled:
        connect(other, server, tools)
    for query in ("issue", "read a file", "time", "web page", "list"):
        assert other.search(query=query) == search.search(query=query)


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_no_question_breaks_the_search(search: ToolSearch, query: str) -> None:
    if not query.strip():
        with pytest.raises(BadRequest):
            search.search(query=query)
        return
    answer = search.search(query=query)
    scores = [tool["score"] for tool in answer["tools"]]
    assert scores == sorted(scores, reverse=True)
    assert answer["tools"] or answer["warnings"]


# --- cut-offs and answers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("convert a time", "convert_time"),
        ("current time", "get_current_time"),
        ("timezone conversion", "convert_time"),
        ("what is the current time in Tokyo", "get_current_time"),
    ],
)
def test_the_threshold_does_not_empty_a_catalog_of_two_tools(query: str, best: str) -> None:
    search = ToolSearch()
    connect(search, "time", SERVERS["time"])
    assert ids(search, query)[0] == f"time::{best}"


@pytest.mark.parametrize("query", ["teach me to juggle", "xyzzy plugh", "月亮的诗歌"])
def test_a_question_no_tool_answers_returns_nothing_and_says_why(
    search: ToolSearch, query: str
) -> None:
    answer = search.search(query=query)
    assert answer["tools"] == []
    (warning,) = answer["warnings"]
    assert f"none of the {answer['total_tools']} tools of 8 servers" in warning


def test_an_answer_to_a_fraction_of_the_question_is_one_flagged_guess(search: ToolSearch) -> None:
    answer = search.search(query="merge quantum entangled sourdough horoscopes")
    assert [tool["tool_id"] for tool in answer["tools"]] == ["github::merge_pull_request"]
    assert answer["warnings"][0].startswith("a guess")
    assert "'quantum'" in answer["warnings"][0]


def test_the_nearest_names_are_told_when_nothing_answers(search: ToolSearch) -> None:
    (warning,) = search.search(query="brwsrnvgt")["warnings"]
    assert "browser::browser_navigate" in warning


def test_a_high_threshold_cuts_all_but_exact_names() -> None:
    search = ToolSearch(SearchSettings(threshold=1000.0))
    connect(search, "files", SERVERS["files"])
    assert ids(search, "read_file") == ["files::read_file"]
    answer = search.search(query="read the file now")
    assert answer["tools"] == []
    assert answer["cut"] > 0


def test_a_server_filter_keeps_to_that_server(search: ToolSearch) -> None:
    assert ids(search, "create_issue", server="gitlab")[0] == "gitlab::create_issue"
    assert all(id.startswith("gitlab") for id in ids(search, "create issue", server="gitlab"))
    with pytest.raises(NotFound):
        search.search(query="x", server="nowhere")


def test_details_are_compact_unless_asked_for(search: ToolSearch) -> None:
    (compact,) = search.search(tool_id="files::read_file")["tools"]
    assert compact["signature"] == "read_file() - Read the complete contents of a file."
    assert "input_schema" not in compact
    (full,) = search.search(tool_id="files.readFile", detail="full")["tools"]
    assert full["input_schema"] == {"type": "object"}
    assert "signature" not in full


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": "a", "tool_id": "b"},
        {"query": "  "},
        {"tool_id": ""},
        {"query": "a", "max_results": 0},
        {"query": "a", "detail": "none"},
    ],
)
def test_bad_arguments_are_refused(search: ToolSearch, arguments: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        search.search(**arguments)


def test_an_unknown_id_is_an_error_that_names_the_nearest(search: ToolSearch) -> None:
    with pytest.raises(NotFound) as error:
        search.search(tool_id="github::creat_isue")
    assert "github::create_issue" in error.value.hint


def test_offline_tools_are_found_and_said_to_be_offline() -> None:
    search = ToolSearch()
    connect(search, "files", SERVERS["files"])
    search.apply({"event": "disconnected", "server": "files"})
    answer = search.search(query="read a file")
    assert not answer["tools"][0]["online"]
    assert answer["warnings"] == ["offline: files; its tools are known from before"]


def test_every_deferred_tool_is_found_by_its_line_and_loaded_once_found() -> None:
    always = SearchSettings(DeferralSettings(min_pct=0, min_tokens=0))
    search = ToolSearch(always)
    for server, tools in SERVERS.items():
        connect(search, server, tools)
    lines = search.tool_list(session="s")["deferred"]
    assert len(lines) == sum(map(len, SERVERS.values()))
    for line in lines:
        id, _, description = line.partition(": ")
        assert id in ids(search, description)
        assert ids(search, id, session="s", max_results=1) == [id]
    after = search.tool_list(session="s")
    assert (after["deferred"], len(after["loaded"])) == ([], len(lines))
    search.apply({"event": "tools_changed", "server": "time", "tools": []})
    gone = [tool["tool_id"] for tool in search.tool_list(session="s")["loaded"]]
    assert not [id for id in gone if id.startswith("time::")]
