"""What `indexctl` can be told: its commands, their options, and the help that explains them."""

from __future__ import annotations

import argparse
import os

from indexd import __version__, manual
from indexd.errors import BadRequest
from indexd.terminal import window_columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

MAX_HELP_COLUMNS = 96

# argparse looks for a translation of each of its words, in vain, for a twentieth of the time a
# whole query takes; our own words are English anyway.
argparse._ = str  # type: ignore[attr-defined]


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the window, within reason; asks the system and not shutil, which is slow."""

    def __init__(self, prog: str) -> None:
        columns = window_columns(os.environ, 1)
        super().__init__(prog, max_help_position=26, width=min(columns, MAX_HELP_COLUMNS) - 2)


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are errors like all others: one line, one hint, status 2."""

    def error(self, message: str) -> NoReturn:
        """Raise BadRequest; argparse would print a page of usage first."""
        raise BadRequest(message, f"see: {self.prog} --help")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return what the command line asks for; its `command` names one of COMMANDS.

    The command's own parser is the only one built where the command comes first, since building
    them all takes as long as a search. Raises BadRequest for a mistake; --help and --version
    are answered by SystemExit.
    """
    asked = argparse.Namespace(socket=None, no_start=False, json=False)
    if argv and argv[0] in COMMANDS:
        asked.command, rest = argv[0], argv[1:]
    else:
        _every_command().parse_args(argv, asked)
        rest = asked.rest
    parser = _one_command(asked.command)
    _, left = parser.parse_known_args(rest, asked)
    if hasattr(asked, "text") and not any(word.startswith("-") for word in left):
        # Words may stand on both sides of an option.
        asked.text += left
    elif left:
        hint = f"see: {parser.prog} --help"
        if hasattr(asked, "text"):
            hint += "; to look for it, put all the words in one pair of quotes, or behind --"
        raise BadRequest(f"unrecognized arguments: {' '.join(left)}", hint)
    return asked


def _every_command() -> Parser:
    names = "\n".join(f"  {name:<10} {summary}" for name, (summary, _, _) in COMMANDS.items())
    parser = Parser(
        prog="indexctl",
        usage="indexctl COMMAND ...",
        description=f"{manual.PROLOGUE}\n\ncommands:\n{names}",
        epilog=manual.EPILOGUE,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=argparse.SUPPRESS)
    _add_rest(parser)
    parser.add_argument("--version", action="version", version=f"indexctl {__version__}")
    _add_shared(parser)
    return parser


def _one_command(name: str) -> Parser:
    summary, text, fill = COMMANDS[name]
    about, _, examples = text.partition("examples:")
    parser = Parser(
        prog=f"indexctl {name}",
        description=about.strip() or summary,
        epilog=f"examples:{examples}",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    fill(parser)
    _add_shared(parser)
    return parser


def _add_rest(parser: argparse.ArgumentParser) -> None:
    rest = parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    # There may be none; Python 3.11 would ask for it, by this name.
    rest.required = False


def _add_shared(parser: Parser) -> None:
    """Add the options that may stand before or after the command; unset, they change nothing."""
    group = parser.add_argument_group("everywhere")
    unset = argparse.SUPPRESS
    group.add_argument(
        "--socket", metavar="PATH", default=unset, help="the daemon's socket (INDEXD_SOCKET)"
    )
    group.add_argument(
        "--no-start", action="store_true", default=unset, help="fail when no daemon answers"
    )
    group.add_argument(
        "--json", action="store_true", default=unset, help="print the daemon's answer as it came"
    )


def _query(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl query [options] TEXT ..."
    add = parser.add_argument
    add("text", nargs="+", metavar="TEXT", help="words to look for; rare ones help most")
    add("--literal", action="store_true", help="take every character for text, none for operators")
    add("-n", "--limit", type=_whole, metavar="N", help="hits to show, 1 to 200 (8)")
    add("--offset", type=_whole, metavar="N", help="hits to pass over")
    add(
        "-k",
        "--kind",
        action="append",
        type=_words,
        metavar="KIND",
        help="user_text, assistant_text, tool_input, tool_error (these by default), tool_output,"
        " reasoning, summary, meta, or all; repeat it, or separate by commas",
    )
    add("--role", choices=("user", "assistant", "tool", "system"), help="only what it said")
    add("--tool-name", type=_named, metavar="NAME", help="only calls and results of this tool")
    _add_filters(parser)
    add("--order", choices=("relevance", "recent"), help="best first (default), or newest first")
    add(
        "--recency", type=float, metavar="DAYS",
        help="prefer newer ones where scores are nearly equal; half as much for each DAYS of age",
    )  # fmt: skip
    add("--group", choices=("session",), help="of each session only its best hit")
    add("--no-sync", action="store_true", help="do not take in the very last lines first")
    add("--all-copies", action="store_true", help="show equal messages of forks and archives too")
    add("--reveal", action="store_true", help="show recognised secrets instead of masking them")


def _add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which sessions are meant, and when."""
    add = parser.add_argument
    add(
        "--scope",
        choices=("project", "global"),
        help="this project's sessions, or all (global, or project when --project names one)",
    )
    add(
        "--project",
        type=_named,
        metavar="DIR|NAME",
        help="sessions held in this directory or below it, or in one of this name (the git top"
        " level of the current directory)",
    )
    for option, metavar, about in (
        ("--agent", "NAME", "only sessions of this agent: claude, codex, kiro ..."),
        ("--session", "ID", "only this session: its path, its id or how that begins"),
        ("--session-dir", "DIR", "for --scope project: sessions in this directory"),
    ):
        add(option, type=_named, metavar=metavar, help=about)
    add("--subagents", choices=("include", "exclude", "only"), help="those of sub-agents (include)")
    add("--source", choices=("global", "archive"), help="only live roots, or only archives")
    add("--since", metavar="TIME", help="not older: 2026-11-03, yesterday, 3d, '2 weeks ago'")
    add("--until", metavar="TIME", help="not newer")


def _around(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl around [options] N | SESSION INDEX | SESSION --end"
    add = parser.add_argument
    add(
        "where",
        nargs="+",
        metavar="N | SESSION INDEX",
        help="a hit's number in the last query, or a session's path or id and a message index",
    )
    place = parser.add_mutually_exclusive_group().add_argument
    place("--start", action="store_true", help="where the session starts")
    place("--end", action="store_true", help="where it ends")
    place("--at", metavar="TIME", help="from this time on: 2026-11-03T14:30, yesterday, 3h")
    add("-B", "--before", type=_whole, metavar="N", help="messages before it, 0 to 50 (3)")
    add("-A", "--after", type=_whole, metavar="N", help="messages after it, 0 to 50 (3)")
    add("-C", "--context", type=_whole, metavar="N", help="messages on both sides")
    add("--full", action="store_true", help="whole texts, up to 1 MiB in all")
    add("--reasoning", action="store_true", help="show the agent's reasoning too")
    add("--reveal", action="store_true", help="show recognised secrets instead of masking them")


def _show(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl show [options] N | SESSION"
    add = parser.add_argument
    add(
        "where",
        metavar="N | SESSION",
        help="a number in the last list of hits or sessions, or a session's path or id",
    )
    add("--markdown", action="store_true", help="as Markdown")
    add("--first", type=_whole, metavar="INDEX", help="the message to begin with (0)")
    add("--reasoning", action="store_true", help="show the agent's reasoning too")
    add("--reveal", action="store_true", help="show recognised secrets instead of masking them")


def _sessions(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl sessions [options]"
    add = parser.add_argument
    add("-n", "--limit", type=_whole, metavar="N", help="sessions to list, 1 to 200 (20)")
    add("--offset", type=_whole, metavar="N", help="sessions to pass over")
    _add_filters(parser)


def _tools(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl tools [options] [QUERY ...]"
    add = parser.add_argument
    add("text", nargs="*", metavar="QUERY", help="what the tool should do, or its name")
    add("--id", metavar="ID", help="one tool: server::tool, mcp__server__tool, or its bare name")
    add("-n", "--max-results", type=_whole, metavar="N", help="tools to show (5)")
    add("--server", metavar="NAME", help="only tools of this server")
    add("--detail", choices=("signature", "full"), help="one line, or the whole input schema")
    add("--session", metavar="ID", help="without QUERY: what this session has loaded")
    add("--context-window", type=_whole, metavar="N", help="without QUERY: tokens it has (200000)")
    add("--budget", type=_whole, metavar="N", help="without QUERY: tokens the list may take")


def _history(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl history [options] JSON | -"
    parser.add_argument("payload", metavar="JSON", help="the call's arguments; - reads them")


def _status(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl status [options]"
    parser.add_argument("--wait", action="store_true", help="until everything is indexed")


def _mcp(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl mcp event | sync | servers | serve [options]"
    actions = ("event", "sync", "servers", "serve")
    parser.add_argument("action", metavar="ACTION", choices=actions, help="see above")
    _add_rest(parser)


def of_action(asked: argparse.Namespace) -> list[str]:
    """Return the words behind ACTION that are its own; those that may stand anywhere are heeded.

    `event` has none of its own. Raises BadRequest for a mistake.
    """
    parser = Parser(prog=f"indexctl mcp {asked.action}", add_help=False, allow_abbrev=False)
    _add_shared(parser)
    own = parser.parse_known_args(asked.rest, asked)[1]
    if asked.action == "event":
        Parser(
            prog=parser.prog,
            usage=f"{parser.prog} < FILE",
            description=manual.EVENT,
            formatter_class=Formatter,
        ).parse_args(own)
    return own


def _reindex(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl reindex [options] [PATH]"
    parser.add_argument("path", nargs="?", metavar="PATH", help="a session or directory (all)")


def _stop(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl stop [options]"


def _config(parser: argparse.ArgumentParser) -> None:
    parser.usage = "indexctl config [options] [get KEY | set KEY VALUE]"
    parser.add_argument("action", nargs="?", choices=("get", "set"), help="what to do")
    parser.add_argument("key", nargs="?", metavar="KEY", help="like tool_search.min_pct")
    parser.add_argument("value", nargs="?", metavar="VALUE", help="its new value")
    parser.add_argument("--init", action="store_true", help="write a commented file to start from")


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _named(text: str) -> str:
    # What a shell makes of a variable that is not set; to search everything instead would mislead.
    if not text.strip():
        raise argparse.ArgumentTypeError("its value is empty; leave it out to have all")
    return text


def _words(text: str) -> list[str]:
    return _named(text.replace(",", " ")).split()


def option_values(lists: list[list[str]] | None) -> list[str] | None:
    """Return the values of an option that may be repeated and may hold commas."""
    return [value for values in lists for value in values] if lists else None


COMMANDS: dict[str, tuple[str, str, Callable[[argparse.ArgumentParser], Any]]] = {
    "query": ("search all sessions", manual.QUERY, _query),
    "around": ("read the messages around a hit", manual.AROUND, _around),
    "show": ("read a whole session", manual.SHOW, _show),
    "sessions": ("list the sessions", manual.SESSIONS, _sessions),
    "tools": ("find MCP tools", manual.TOOLS, _tools),
    "history": ("answer an agent's history call", manual.HISTORY, _history),
    "status": ("what is indexed, and what is wrong", manual.STATUS, _status),
    "mcp": ("events, servers, and being one", manual.MCP, _mcp),
    "reindex": ("read sessions again from the start", manual.REINDEX, _reindex),
    "stop": ("stop the daemon", manual.STOP, _stop),
    "config": ("read and change settings", manual.CONFIG, _config),
}
