"""What `indexctl --help` says of each command, beside its options."""

from __future__ import annotations

PROLOGUE = "Search what was said, done or broken in every past coding-agent session."
EPILOGUE = """\
examples:
  indexctl query database is locked        what did we say about this?
  indexctl around 3                        read around the third hit
  indexctl tools "create an issue"         which tool does this?
  indexctl status --wait                   until everything is indexed

Each command explains itself: indexctl query --help
Exit status: 0 found or done, 1 nothing found, 2 error.
"""

QUERY = """\
Search all sessions and print the best hits: when, in which agent and project,
what kind of text, and where it matched. A hit's number leads on, as in:
indexctl around 3.

In TEXT, "a phrase" in quotes must occur as it is, +word must occur, -word must
not, begin* stands for all words that begin so, and kind:error, tool:bash,
agent:codex, project:app, since:3d, role:user and the like filter. Whatever else
you paste is plain text. For your shell, put it in single quotes.

examples:
  indexctl query database is locked
  indexctl query --kind tool_error --since 1w pytest fixture
  indexctl query --scope project --agent claude '"retry policy" -sleep'
  indexctl query --json OAuth callback | jq -r '.hits[].session_path'
"""
AROUND = """\
Print the messages around one of a session. The one asked for is marked with >.

examples:
  indexctl around 3                     the third hit of the last query
  indexctl around 3 -C 10 --full        more of it
  indexctl around ~/.claude/projects/-src-app/0b1c2d3e.jsonl 128 -B 0
  indexctl around 0b1c2d3e --end -B 10  how a session ended
  indexctl around 0b1c2d3e --at yesterday
"""
SHOW = """\
Print a whole session, as text or as Markdown. It comes page by page, so that
the longest may be read; with --json each page is one line.

examples:
  indexctl show 2                       the session of the second hit
  indexctl show 0b1c2d3e --markdown > session.md
"""
SESSIONS = """\
List the sessions, the latest first: when, whose, in which project, how long,
and its title or first words. Each can be shown by its number.

examples:
  indexctl sessions --project . --since 1w
  indexctl sessions --agent codex --subagents exclude -n 50
  indexctl sessions --json | jq -r '.sessions[].session_path'
"""
TOOLS = """\
Find the MCP tool that does something, among all servers that were ever
connected. Without a query: the list of deferred tools, and how much of the
context window they would take.

examples:
  indexctl tools create an issue
  indexctl tools --id github::create_issue --detail full
  indexctl tools --server git --json diff
"""
HISTORY = """\
Answer an agent's call of the `history` tool, in the text that agents read.

examples:
  indexctl history '{"operation": "search", "query": "retry policy"}'
  indexctl history - < call.json
"""
STATUS = """\
Print what is indexed, from which roots, what is still to be read, and what is
wrong.

examples:
  indexctl status
  indexctl status --wait && indexctl query "it is all there"
  indexctl status --json | jq .files_pending
"""
MCP = """\
Tell indexd about MCP servers, or be one.

  event     read events from standard input, as JSON, one or several:
            {"event": "connected", "server": "git", "tools": [...]}
  sync      connect to the servers of an agent's configuration and index
            their tools
  servers   list the servers and their state
  serve     be an MCP server that offers search to an agent

examples:
  indexctl mcp event < event.json
  indexctl mcp sync --help
"""
EVENT = """\
Read events from standard input, as JSON, one or several, and tell indexd.

  {"event": "connected", "server": "git", "tools": [...]}
  {"event": "tools_changed", "server": "git", "tools": [...]}
  {"event": "disconnected", "server": "git"}

"tools" is what the server answers to tools/list, whole."""
REINDEX = """\
Forget what is known of a session, of all below a directory, or of everything,
and read it again. Only the index is touched, never a session.

examples:
  indexctl reindex
  indexctl reindex ~/.codex/sessions
"""
STOP = """\
Stop the daemon and wait until it is gone. The next query starts it again.

examples:
  indexctl stop
"""
CONFIG = """\
Print all settings in force, or one; set one in the configuration file, whose
comments and layout stay as they are. Tool search settings are also known as
Kiro spells them.

examples:
  indexctl config
  indexctl config get tool_search.min_pct
  indexctl config set toolSearch.minPct 10
  indexctl config --init
"""
