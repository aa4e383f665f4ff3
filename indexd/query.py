"""What a query says: words to rank by, and the few operators among them.

The language must not get in the way of what people paste: stack traces, paths, JSON, command
lines. So an operator counts only where it is unmistakable, and all else is words. docs/queries.md
states the rules with examples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from indexd.errors import BadRequest
from indexd.formats.registry import FORMATS
from indexd.model import KINDS, ROLES, Kind
from indexd.moment import moment

# Who types operators types a line; what is longer was pasted and holds none.
MAX_TYPED_CHARS = 240

# What kinds are called for short.
KIND_WORDS = {
    "user": Kind.USER_TEXT, "assistant": Kind.ASSISTANT_TEXT, "input": Kind.TOOL_INPUT,
    "call": Kind.TOOL_INPUT, "error": Kind.TOOL_ERROR, "output": Kind.TOOL_OUTPUT,
} | {str(kind): kind for kind in KINDS}  # fmt: skip

# Programs whose options are words after a single dash: `find -name` excludes nothing.
PROGRAMS = frozenset({
    "ansible", "apt", "apt-get", "awk", "bash", "cargo", "cc", "chmod", "chown", "clang",
    "clang++", "cmake", "convert", "cp", "curl", "dd", "df", "docker", "du", "env", "ffmpeg",
    "ffprobe", "find", "g++", "gcc", "git", "go", "grep", "egrep", "rg", "gunzip", "gzip", "head",
    "java", "javac", "journalctl", "jq", "kubectl", "ld", "less", "ln", "ls", "lsof", "magick",
    "make", "mv", "mvn", "mysql", "nc", "netstat", "ninja", "nmap", "node", "npm", "nvcc",
    "openssl", "perl", "pip", "ps", "psql", "pytest", "python", "python3", "rm", "rsync", "ruby",
    "scp", "sed", "sh", "sort", "ss", "ssh", "strace", "sudo", "swift", "swiftc", "systemctl",
    "tail", "tar", "tcpdump", "terraform", "time", "top", "tshark", "unzip", "wget", "xargs",
    "xcodebuild", "xxd", "zip", "zsh",
})  # fmt: skip

_TOKEN = re.compile(
    r"""(?:(?P<key>[a-z]+):|(?P<sign>[+-]))?"""
    r"""(?:"(?P<quoted>[^"\n]*)"(?!\S)|“(?P<curly>[^“”\n]*)”(?!\S)|(?P<bare>\S+))"""
)
_PREFIX = re.compile(r"[^\W\d_]\w+\*")
_MUST = re.compile(r"[^\W\d]\w*(?:[.:/-]+\w+)*")
_NOT = re.compile(r"[^\W\d_]\w{2,}|[^\W\d_a-zA-Z]\w*")
# Words as people type them; anything else among them makes a dash an option's.
_PLAIN = re.compile(r"\w+(?:['’-]\w+)*[.,!?]?")
_PAIR = re.compile(r"[A-Za-z_]+:(?!\d+\Z)[^\s:/\\]+")


class Shape(Enum):
    """How a clause is to be matched: by any of its words, all in a row, or as a beginning."""

    WORDS = auto()
    PHRASE = auto()
    PREFIX = auto()


class Clause(NamedTuple):
    """One part of a query; `sign` is "+" where it must hold, "-" where it must not."""

    shape: Shape
    text: str
    sign: str = ""


class Piece(NamedTuple):
    """A stretch of a query as it was typed, and the clause, or the name of the filter, it is."""

    typed: str
    means: Clause | str


class Query(NamedTuple):
    """What a query says. `filters` are parameters of a search, with values as they take them.

    pieces: where each operator and filter stands in what was typed.
    """

    clauses: tuple[Clause, ...]
    filters: dict[str, object]
    pieces: tuple[Piece, ...] = ()

    @property
    def plain(self) -> bool:
        """Say whether there is nothing but words."""
        return not self.filters and all(c == Clause(Shape.WORDS, c.text) for c in self.clauses)

    def relaxed(self, one: Clause | str) -> str:
        """Return the query as it would be typed without one operator or filter.

        What must occur then may; what must not occur, and a filter, is left out.
        """
        kept = one.text if isinstance(one, Clause) and one.sign != "-" else ""
        words = [kept if piece.means == one else piece.typed for piece in self.pieces]
        return " ".join(filter(None, words))


def literal(text: str) -> Query:
    """Return the query that takes `text` for words throughout."""
    words = Clause(Shape.WORDS, text)
    return Query((words,), {}, (Piece(text, words),))


def parse(text: str, now_ms: int) -> Query:
    """Return what `text` says; times in it are counted from `now_ms` (unix ms)."""
    stripped = text.strip()
    if "\n" in stripped or len(stripped) > MAX_TYPED_CHARS:
        return literal(text)
    tokens = list(_TOKEN.finditer(stripped))
    filters = _filters(tokens, now_ms)
    excludes = _may_exclude([token for token in tokens if token.start() not in filters])
    pieces = tuple(
        Piece(t[0], filters[t.start()][0] if t.start() in filters else _clause(t, excludes))
        for t in tokens
    )
    clauses = [piece.means for piece in pieces if isinstance(piece.means, Clause)]
    if not any(clause.sign != "-" and _has_word(clause.text) for clause in clauses):
        return literal(text)
    query = Query(_joined(clauses), dict(filters.values()), pieces)
    return literal(text) if query.plain else query


def _clause(token: re.Match[str], excludes: bool) -> Clause:
    """Return the clause that one token is; words where it is no operator for certain."""
    words = Clause(Shape.WORDS, token[0])
    sign, quoted = token["sign"] or "", _quoted(token)
    if token["key"]:
        return words
    if quoted is not None:
        return Clause(Shape.PHRASE, quoted, sign) if _has_word(quoted) else words
    bare = token["bare"]
    if sign == "-" and not (excludes and (_NOT.fullmatch(bare) or _PREFIX.fullmatch(bare))):
        return words
    if _PREFIX.fullmatch(bare):
        return Clause(Shape.PREFIX, bare[:-1], sign)
    if sign == "+" and not _MUST.fullmatch(bare):
        return words
    return Clause(Shape.WORDS, bare, sign)


def _may_exclude(tokens: Sequence[re.Match[str]]) -> bool:
    """Say whether a dash before a word can mean "not" here, and not an option of a command."""
    bare = [token for token in tokens if _quoted(token) is None]
    if not bare or bare[0][0].lower() in PROGRAMS:
        return False
    return all(
        _PLAIN.fullmatch(token[0])
        or _PREFIX.fullmatch(token["bare"])
        or (token["sign"] == "+" and _MUST.fullmatch(token["bare"]))
        or (token["sign"] == "-" and _NOT.fullmatch(token["bare"]))
        for token in bare
    )


def _joined(clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """Return the clauses with all plain words in one, so that they keep their neighbours."""
    plain = [c.text for c in clauses if c.shape is Shape.WORDS and not c.sign]
    others = [c for c in clauses if c.shape is not Shape.WORDS or c.sign]
    return (*((Clause(Shape.WORDS, " ".join(plain)),) if plain else ()), *others)


def _filters(tokens: Sequence[re.Match[str]], now_ms: int) -> dict[int, tuple[str, object]]:
    """Return (parameter, value) of each filter, by where it starts.

    Where other words come in pairs of the same form, all of them are text: that is a log line.
    """
    found: dict[int, tuple[str, object]] = {}
    for token in tokens:
        read = _FILTERS.get(token["key"] or "")
        quoted = _quoted(token)
        filter_ = read(quoted if quoted is not None else token["bare"], now_ms) if read else None
        if filter_ is not None:
            found[token.start()] = filter_
        elif _quoted(token) is None and _PAIR.fullmatch(token[0]):
            return {}
    return found


def _quoted(token: re.Match[str]) -> str | None:
    quoted: str | None = token["quoted"] if token["quoted"] is not None else token["curly"]
    return quoted


def _has_word(text: str) -> bool:
    return any(character.isalnum() for character in text)


Filter = tuple[str, object]


def _tool(value: str, now_ms: int) -> Filter | None:
    return ("tool", value) if re.fullmatch(r"[\w.-]+", value) else None


def _kind(value: str, now_ms: int) -> Filter | None:
    names = value.lower().split(",")
    if names == ["all"]:
        return "kinds", KINDS
    if not all(name in KIND_WORDS for name in names):
        return None
    return "kinds", tuple(dict.fromkeys(KIND_WORDS[name] for name in names))


def _agent(value: str, now_ms: int) -> Filter | None:
    return ("agent", value.lower()) if value.lower() in FORMATS else None


def _project(value: str, now_ms: int) -> Filter | None:
    return ("project", value) if re.fullmatch(r"\.|~?/.*|~|\w[\w. -]*", value) else None


def _session(value: str, now_ms: int) -> Filter | None:
    is_id = re.fullmatch(r"[\w-]{8,}", value) and any(map(str.isdigit, value))
    return ("session", value) if is_id or re.fullmatch(r"~?/.+", value) else None


def _role(value: str, now_ms: int) -> Filter | None:
    return ("role", value.lower()) if value.lower() in ROLES.values() else None


def _since(value: str, now_ms: int) -> Filter | None:
    return _time("since", value, now_ms)


def _until(value: str, now_ms: int) -> Filter | None:
    return _time("until", value, now_ms)


def _time(name: str, value: str, now_ms: int) -> Filter | None:
    try:
        return name, moment(value, now_ms, end=name == "until")
    except BadRequest:
        return None


_FILTERS: dict[str, Callable[[str, int], Filter | None]] = {
    "tool": _tool,
    "kind": _kind,
    "agent": _agent,
    "project": _project,
    "session": _session,
    "since": _since,
    "until": _until,
    "role": _role,
}
