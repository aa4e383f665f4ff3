"""What each command of `indexctl` does: ask the daemon, show the answer, say how it went.

Every function takes the parsed command line and returns the exit status: 0 found or done,
1 nothing found. Errors are raised. Data goes to standard output, talk to standard error.
"""

from __future__ import annotations

import os
import sys
import time

from indexd import arguments, lasthits, output, paths
from indexd.client import Client
from indexd.errors import BadRequest, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

FOUND, NOTHING = 0, 1
DEFAULT_LIMIT = 8
WAIT_SECONDS = 0.2
STOP_SECONDS = 10.0
# A number this long begins a session's id; no list is.
MIN_ID_CHARS = 8


def connected(asked: argparse.Namespace) -> Client:
    """Return an open client; starts the daemon when none answers, unless that is forbidden."""
    client = Client(asked.socket, name="indexctl")
    try:
        client.connect()
    except Unavailable:
        if asked.no_start:
            raise
        from indexd.start import log_file, start

        process = start(client.socket_path, os.environ)
        if process is not None:
            output.say(
                f"started indexd (process {process.pid}, log {log_file(os.environ)});"
                " it reads the newest sessions first"
            )
        client.connect()
    return client


def query(asked: argparse.Namespace) -> int:
    """Search, show the hits, and remember them for `around`."""
    text, cache = " ".join(asked.text), paths.cache_dir(os.environ)
    with connected(asked) as client:
        answer = client.search(
            text,
            kinds=arguments.option_values(asked.kind),
            role=asked.role,
            tool_name=asked.tool_name,
            literal=asked.literal or None,
            limit=asked.limit,
            offset=asked.offset,
            generation=lasthits.generation(cache, text) if asked.offset else None,
            **_filters(asked),
            order=asked.order,
            recency=asked.recency,
            group=asked.group,
            copies="all" if asked.all_copies else None,
            sync=False if asked.no_sync else None,
            reveal=asked.reveal or None,
        )
    hits = answer["hits"]
    lasthits.remember(cache, hits, text, (answer.get("index") or {}).get("generation"))
    if asked.json:
        output.write_json(answer)
        return FOUND if hits else NOTHING
    output.warn(answer)
    from indexd import render, suggest

    if not hits:
        if not answer.get("warnings"):
            output.say(f"nothing found for {text!r}")
        for line in suggest.commands(asked, answer.get("suggestions") or []):
            output.say(f"try: {line}")
        return NOTHING
    is_full = len(hits) >= (asked.limit or DEFAULT_LIMIT)
    more = suggest.next_page(sys.argv[1:], hits) if is_full else ""
    page = render.hits(answer, output.terminal(), time.time(), more, is_last=not is_full)
    output.write(page)
    return FOUND


def around(asked: argparse.Namespace) -> int:
    """Show the messages around one, named by path and index or by a hit's number."""
    from indexd import render

    hit = _place(asked)
    with connected(asked) as client:
        answer = client.around(
            hit["session_path"],
            hit["message_index"],
            _first_given(asked.before, asked.context),
            _first_given(asked.after, asked.context),
            at=hit.get("at"),
            full=asked.full or None,
            reasoning=asked.reasoning or None,
            reveal=asked.reveal or None,
        )
    if asked.json:
        output.write_json(answer)
    else:
        output.warn(answer)
        output.write(render.around(answer, output.terminal(), paths.home(os.environ)))
    return FOUND


def show(asked: argparse.Namespace) -> int:
    """Print a whole session, page by page."""
    from indexd import render_session

    path, first = _session(asked.where)["session_path"], asked.first or 0
    term, home = output.terminal(), paths.home(os.environ)
    following: int | None = first
    with connected(asked) as client:
        while following is not None:
            answer = client.show(
                path, following, reasoning=asked.reasoning or None, reveal=asked.reveal or None
            )
            if asked.json:
                output.write_json(answer)
            else:
                if following == first:
                    markdown = asked.markdown
                    output.write(render_session.heading(answer, home, markdown=markdown, term=term))
                output.write(render_session.page(answer, markdown=asked.markdown, term=term))
            following = answer["next"]
    return FOUND


def sessions(asked: argparse.Namespace) -> int:
    """List the sessions, and remember them so that their numbers mean them."""
    from indexd import render_session

    filters = _filters(asked) | ({} if asked.project else {"project": None})
    if asked.scope == "project":
        filters["project"] = filters["project"] or _current_project()
    with connected(asked) as client:
        answer = client.sessions(limit=asked.limit, offset=asked.offset, **filters)
    found = answer["sessions"]
    ranked = [
        session | {"rank": rank, "message_index": 0}
        for rank, session in enumerate(found, (asked.offset or 0) + 1)
    ]
    lasthits.remember(paths.cache_dir(os.environ), ranked)
    if asked.json:
        output.write_json(answer)
        return FOUND if found else NOTHING
    output.warn(answer)
    if not found:
        return NOTHING
    listed = render_session.sessions(answer, asked.offset or 0, output.terminal(), time.time())
    output.write(listed)
    return FOUND


def tools(asked: argparse.Namespace) -> int:
    """Show the tools that fit, or without a query the deferred ones."""
    from indexd import render

    text = " ".join(asked.text)
    with connected(asked) as client:
        if not text and not asked.id:
            answer = client.tool_list(asked.session, asked.context_window, asked.budget)
            shown = render.tool_list
            some = bool(answer.get("tokens_all"))
        else:
            answer = client.tool_search(
                text or None,
                tool_id=asked.id,
                max_results=asked.max_results,
                server=asked.server,
                detail=asked.detail or (None if asked.json else "signature"),
            )
            shown = render.tools
            some = bool(answer["tools"])
    if asked.json:
        output.write_json(answer)
    else:
        output.warn(answer)
        if some:
            output.write(shown(answer, output.terminal()))
        elif not answer.get("warnings"):
            output.say("no server's tools are indexed; run: indexctl mcp sync")
    return FOUND if some else NOTHING


def history(asked: argparse.Namespace) -> int:
    """Answer a `history` call with the text that agents read."""
    from indexd.history import found_nothing

    payload = output.read_json(sys.stdin.read() if asked.payload == "-" else asked.payload)
    if not isinstance(payload, dict):
        raise BadRequest(
            "invalid arguments: not a JSON object", 'send {"operation": "search", ...}'
        )
    with connected(asked) as client:
        answer = client.history({"project": _current_project() or "", **payload})
    if asked.json:
        output.write_json(answer)
    else:
        output.write(answer["text"] + "\n")
    return NOTHING if found_nothing(answer["text"]) else FOUND


def status(asked: argparse.Namespace) -> int:
    """Show the daemon's state, at once or when everything is indexed."""
    from indexd import render_status

    with connected(asked) as client:
        answer = _indexed(client) if asked.wait else client.status()
    if asked.json:
        output.write_json(answer)
    else:
        output.write(render_status.status(answer, output.terminal(), paths.home(os.environ)))
    return FOUND


def mcp(asked: argparse.Namespace) -> int:
    """Feed events, or hand over to the program that speaks MCP."""
    rest = arguments.of_action(asked)
    if asked.action == "event":
        from indexd.mcp_event import feed

        return feed(asked, connected)
    if asked.socket:
        os.environ["INDEXD_SOCKET"] = os.path.abspath(asked.socket)
    if not {"-h", "--help"}.intersection(rest):
        connected(asked).close()
    from indexd.mcp_cli import main

    return int(main([asked.action, *(["--json"] if asked.json else []), *rest]) or 0)


def reindex(asked: argparse.Namespace) -> int:
    """Have sessions read again from the start."""
    with connected(asked) as client:
        path = os.path.abspath(asked.path) if asked.path else None
        answer = client.reindex(path)
    files = answer["files"]
    if asked.json:
        output.write_json(answer)
    elif files:
        output.say(f"reading {files:,} files again; see: indexctl status --wait")
    else:
        output.say(f"no session is indexed at {path or 'any root'}; see: indexctl status")
    return FOUND if files else NOTHING


def stop(asked: argparse.Namespace) -> int:
    """Stop the daemon and wait until it is gone."""
    from indexd.stop import stop_daemon

    client = Client(asked.socket, name="indexctl")
    try:
        client.connect()
    except Unavailable:
        output.say(f"no daemon runs at {client.socket_path}")
        if asked.json:
            output.write_json({"stopped": None})
        return FOUND
    with client:
        pid = stop_daemon(client, STOP_SECONDS)
    if asked.json:
        output.write_json({"stopped": pid})
    else:
        output.say(f"stopped indexd (process {pid})")
    return FOUND


def config(asked: argparse.Namespace) -> int:
    """Show or change settings; no daemon is needed."""
    from indexd.config_cli import run

    return run(asked)


def _current_project() -> str | None:
    """Return the project worked in; None where the current directory has been deleted."""
    try:
        return paths.project(os.getcwd())
    except FileNotFoundError:
        return None


def _place(asked: argparse.Namespace) -> dict[str, Any]:
    """Return the session path or id, and the message, that `around` was given."""
    session, *index = asked.where
    at = asked.at or ("start" if asked.start else "end" if asked.end else None)
    if not index and (at or session.isdecimal()):
        hit = _session(session)
        return hit | {"message_index": None, "at": at} if at else hit
    if len(index) == 1 and index[0].isdecimal() and not at:
        return {"session_path": _path_or_id(session), "message_index": int(index[0])}
    raise BadRequest(
        f"{' '.join(asked.where)} is neither a hit's number nor a session and one place in it",
        "write: indexctl around 3, indexctl around SESSION INDEX, or indexctl around SESSION --end",
    )


def _session(named: str) -> dict[str, Any]:
    """Return the hit or session of the last list that a number means, or a session by itself."""
    if named.isdecimal() and len(named) < MIN_ID_CHARS:
        return lasthits.recall(paths.cache_dir(os.environ), int(named))
    return {"session_path": _path_or_id(named)}


def _filters(asked: argparse.Namespace) -> dict[str, Any]:
    """Return which sessions a command line means; the project is also a hit's to be of or not."""
    return {
        "scope": asked.scope or ("project" if asked.project else None),
        "project": _directory_or_name(asked.project) if asked.project else _current_project(),
        "session_dir": os.path.abspath(asked.session_dir) if asked.session_dir else None,
        "agent": asked.agent,
        "session": _path_or_id(asked.session),
        "subagents": asked.subagents,
        "source": asked.source,
        "since": asked.since,
        "until": asked.until,
    }


def _directory_or_name(place: str) -> str:
    """Return `place` absolute, unless it is no more than a project's name."""
    return os.path.abspath(place) if "/" in place or place in (".", "..") else place


def _path_or_id(session: str | None) -> str | None:
    is_path = session is not None and (
        "/" in session or paths.plain_path(session).endswith(".jsonl")
    )
    return os.path.abspath(session) if session and is_path else session


def _first_given(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _indexed(client: Client) -> Any:
    """Return the state once nothing is left to read, showing a bar on a terminal until then."""
    from indexd.render_status import progress

    most_bytes = most_files = 0
    shows = sys.stderr.isatty()
    while True:
        answer = client.status()
        if not answer["files_pending"] and not answer["bytes_pending"]:
            break
        most_bytes = max(most_bytes, answer["bytes_pending"])
        most_files = max(most_files, answer["files_pending"])
        if shows:
            sys.stderr.write(f"\r\x1b[K{progress(answer, most_bytes, most_files)}")
            sys.stderr.flush()
        time.sleep(WAIT_SECONDS)
    if shows and (most_bytes or most_files):
        sys.stderr.write("\r\x1b[K")
    return answer


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "query": query,
    "around": around,
    "show": show,
    "sessions": sessions,
    "tools": tools,
    "history": history,
    "status": status,
    "mcp": mcp,
    "reindex": reindex,
    "stop": stop,
    "config": config,
}
