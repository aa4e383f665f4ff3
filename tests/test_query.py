"""What counts as an operator in a query, and that everything else is words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd.model import KINDS, Kind
from indexd.query import MAX_TYPED_CHARS, Clause, Shape, literal, parse

NOW = 1_786_000_000_000
HOUR = 3_600_000


def words(text: str, sign: str = "") -> Clause:
    return Clause(Shape.WORDS, text, sign)


def row(text: str, sign: str = "") -> Clause:
    return Clause(Shape.PHRASE, text, sign)


def beginning(text: str, sign: str = "") -> Clause:
    return Clause(Shape.PREFIX, text, sign)


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ('"exact phrase"', [row("exact phrase")]),
        ('cache "is locked" timeout', [words("cache timeout"), row("is locked")]),
        ("“typeset quotes” too", [words("too"), row("typeset quotes")]),
        ('"f(x) = y->z;"', [row("f(x) = y->z;")]),
        ("+cache timeout", [words("timeout"), words("cache", "+")]),
        ("+read_file +os.path", [words("read_file", "+"), words("os.path", "+")]),
        ('+"a b" c', [words("c"), row("a b", "+")]),
        ("cache -redis", [words("cache"), words("redis", "-")]),
        ("-redis cache", [words("cache"), words("redis", "-")]),
        ("-über -数据库 x", [words("x"), words("über", "-"), words("数据库", "-")]),
        ('git log -"merge branch"', [words("git log"), row("merge branch", "-")]),
        ("retry-policy don't -sleep, now", None),
        ("retry-policy don't, now -sleep", [words("retry-policy don't, now"), words("sleep", "-")]),
        ("config* loader", [words("loader"), beginning("config")]),
        ("x +conf* -test*", [words("x"), beginning("conf", "+"), beginning("test", "-")]),
        ("数据* x", [words("x"), beginning("数据")]),
    ],
)
def test_operators(text: str, clauses: list[Clause] | None) -> None:
    query = parse(text, NOW)
    assert (list(query.clauses), query.filters) == (clauses or [words(text)], {})


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("x tool:bash", {"tool": "bash"}),
        ("x tool:mcp__git__commit", {"tool": "mcp__git__commit"}),
        ("x kind:error", {"kinds": (Kind.TOOL_ERROR,)}),
        ("x kind:error,user", {"kinds": (Kind.TOOL_ERROR, Kind.USER_TEXT)}),
        ("x kind:all", {"kinds": KINDS}),
        ("agent:Codex x", {"agent": "codex"}),
        ("x project:~/src/app", {"project": "~/src/app"}),
        ("x project:app", {"project": "app"}),
        ('x project:"my app"', {"project": "my app"}),
        ("x project:.", {"project": "."}),
        ("x session:0b1c2d3e", {"session": "0b1c2d3e"}),
        ("x session:/a/b.jsonl", {"session": "/a/b.jsonl"}),
        ("x since:3h", {"since": NOW - 3 * HOUR}),
        ('x until:"3 hours ago"', {"until": NOW - 3 * HOUR}),
        ("x role:user", {"role": "user"}),
        ("since:3h x tool:bash", {"since": NOW - 3 * HOUR, "tool": "bash"}),
    ],
)
def test_filters(text: str, filters: dict[str, object]) -> None:
    query = parse(text, NOW)
    assert (query.clauses, query.filters) == ((words("x"),), filters)


@pytest.mark.parametrize(
    "text",
    [
        "database is locked",
        "",
        "   ",
        "!?",
        'unbalanced "quote here',
        '"',
        '""',
        '"..."',
        "error: foo: bar",
        "Error:foo",
        "ls -la",
        "tar -xvf backup",
        "find . -name config",
        "docker run -it ubuntu",
        "python -m pytest -x tests",
        "git clean -xdf",
        "java -jar app",
        "grep -rni --include=*.py foo",
        "make install prefix=/usr -verbose",
        "a - b",
        "-5 degrees",
        "-redis",
        "-a -b",
        "+1 for this",
        "+ x",
        "a+b c++ x-y",
        "std::vector<int*> x",
        "*.py src/* **bold** *args foo*bar",
        "a->b && c",
        '{"error": "is locked", "code": 5}',
        '["a b", "c"]',
        'print("hello world")',
        'File "/src/app.py", line 3, in main',
        "C:\\Users\\me\\app.py",
        "https://example.org/a?b=c#d",
        "me@example.org",
        "kind:Deployment x",
        "kind:error,Deployment x",
        "agent:smith x",
        "session:expired x",
        "role:admin x",
        "since:forever x",
        "tool:../../x y",
        "level:error project:app x",
        "status:ok agent:codex",
        "tool:bash",
        "agent:codex since:3d",
        "localhost:8080 refused",
        "one\n+two",
        "first line\ntool:bash",
        '"' + "long " * 60 + '"',
        "+" + "x" * MAX_TYPED_CHARS,
    ],
)
def test_what_is_pasted_is_words(text: str) -> None:
    assert parse(text, NOW) == literal(text)


def test_an_operator_or_filter_can_be_taken_back() -> None:
    query = parse('cache +lock "is cold" -redis kind:error now conf*', NOW)

    assert query.relaxed(words("lock", "+")) == 'cache lock "is cold" -redis kind:error now conf*'
    assert query.relaxed(row("is cold")) == "cache +lock is cold -redis kind:error now conf*"
    assert query.relaxed(words("redis", "-")) == 'cache +lock "is cold" kind:error now conf*'
    assert query.relaxed("kinds") == 'cache +lock "is cold" -redis now conf*'
    assert query.relaxed(beginning("conf")) == 'cache +lock "is cold" -redis kind:error now conf'


def test_numbers_after_a_colon_leave_filters_alone() -> None:
    assert parse("localhost:8080 refused tool:bash", NOW).filters == {"tool": "bash"}


PIECES = st.lists(
    st.sampled_from(
        [
            '"',
            "+",
            "-",
            "*",
            " ",
            ":",
            "a",
            "bc",
            "数",
            "tool:x",
            "since:3d",
            '"a b"',
            "\n",
            "“",
            "”",
        ]
    ),
    max_size=12,
).map("".join)


@given(PIECES | st.text(max_size=40))
def test_every_text_is_a_query_and_no_word_is_lost(text: str) -> None:
    query = parse(text, NOW)
    said = " ".join(clause.text for clause in query.clauses)

    assert query.clauses
    if not query.filters:
        assert sorted(filter(str.isalnum, said)) == sorted(filter(str.isalnum, text))
    assert query.plain == (query == literal(text))


@given(st.lists(st.from_regex(r"[a-zA-Z_]\w*", fullmatch=True), min_size=1).map(" ".join))
def test_plain_words_are_taken_as_they_are(text: str) -> None:
    assert parse(text, NOW) == literal(text)
