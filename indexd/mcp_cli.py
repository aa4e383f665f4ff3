"""`indexctl mcp sync`, `servers` and `serve`.

`sync` and `serve` speak MCP with the official SDK, an optional extra, which is imported here only
when one of them runs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from indexd import output, paths
from indexd.client import Client
from indexd.errors import BadRequest, IndexdError, Unavailable
from indexd.mcp_config import ServerSpec, find_files, named_file, once, read
from indexd.mcp_entry import Context
from indexd.terminal import visible, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from indexd.mcp_sync import Outcome, Talk

FOUND, NOTHING, ERROR, INTERRUPTED = 0, 1, 2, 130
SYNC = """\
Connects to the MCP servers that your agents are configured to use and has their tools indexed.
Without FILE it reads the configuration of Kiro, Claude Code, Cursor, VS Code, Codex and Gemini
CLI: yours, and this project's where you have approved it. A FILE that you name is trusted.
Servers are started, asked for their tools, and ended; --watch stays connected."""


def main(argv: Sequence[str]) -> int:
    """Run `sync`, `servers` or `serve` and return the exit status.

    Raises IndexdError, for the caller to report.
    """
    asked = _parser().parse_args(argv)
    if asked.action == "servers":
        return servers(asked.json)
    if asked.action == "serve":
        return _serve()
    return _sync([Path(name) for name in asked.files], watch=asked.watch, as_json=asked.json)


def servers(as_json: bool) -> int:
    """Show the servers whose tools are indexed, with their state; 1 when there are none."""
    with Client(name="indexctl mcp servers") as client:
        status = client.status()
    known: dict[str, dict[str, Any]] = status.get("servers") or {}
    if as_json:
        output.write_json({"servers": known})
    else:
        widest = max((width(visible(name)) for name in known), default=0)
        for name, server in sorted(known.items()):
            state = "online" if server.get("online") else "offline"
            shown = visible(name)
            output.write(
                f"{shown}{'':{widest - width(shown)}}  {server['tools']:5} tools  {state}\n"
            )
            for problem in server.get("problems") or ():
                output.write(f"{'':{widest}}  dropped: {visible(problem)}\n")
    if not known:
        output.say("no server's tools are indexed; run: indexctl mcp sync")
    return FOUND if known else NOTHING


def specs(files: Sequence[Path], context: Context) -> tuple[list[ServerSpec], list[IndexdError]]:
    """Return the servers of the named files, or of all that are found, and what was unreadable.

    Raises IndexdError when a named file cannot be read.
    """
    if files:
        named = [named_file(path) for path in files]
        return once(s for source in named for s in read(source, context, trusted=True)), []
    found: list[ServerSpec] = []
    unreadable: list[IndexdError] = []
    for source in find_files(context):
        try:
            found += read(source, context)
        except BadRequest as error:
            unreadable.append(error)
    return once(found), unreadable


def _sync(files: Sequence[Path], *, watch: bool, as_json: bool) -> int:
    import_sdk()
    import anyio

    home, here = Path(paths.home(os.environ)), Path(paths.project(os.getcwd()))
    wanted, unreadable = specs(files, Context(home, here, dict(os.environ)))
    for error in unreadable:
        output.say(error.message)
    if not wanted:
        output.say("no MCP server is configured; name a file: indexctl mcp sync FILE")
        return ERROR if unreadable else NOTHING
    last: dict[tuple[str, str], Outcome] = {}

    def tell(line: str, outcome: Outcome) -> None:
        output.say(line)
        last[outcome.path, outcome.server] = outcome
        if as_json and watch:
            output.write_json(outcome._asdict())
            sys.stdout.flush()  # a reader follows along

    with Client(name="indexctl mcp sync") as client:
        interrupted = anyio.run(_run, wanted, client, tell, watch)
    if as_json and not watch:
        output.write_json({"servers": [outcome._asdict() for outcome in last.values()]})
    if interrupted and not watch:
        return INTERRUPTED
    return _status([outcome.state for outcome in last.values()])


async def _run(wanted: Sequence[ServerSpec], client: Client, tell: Talk, watch: bool) -> bool:
    """Sync until done or told to stop, every server ended; return whether told to stop."""
    import anyio

    from indexd.mcp_sync import sync

    def send(event: dict[str, Any]) -> None:
        client.mcp_event(**event)

    interrupted = False
    async with anyio.create_task_group() as group:

        async def obey() -> None:
            nonlocal interrupted
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
                async for _ in received:
                    interrupted = True
                    group.cancel_scope.cancel()

        group.start_soon(obey)
        await sync(wanted, send, tell, watch=watch)
        group.cancel_scope.cancel()
    return interrupted


def _status(states: Sequence[str]) -> int:
    if "connected" in states:
        return FOUND
    return ERROR if "failed" in states else NOTHING


def _serve() -> int:
    import_sdk()
    import anyio

    from indexd.mcp_serve import serve

    with Client(name="indexctl mcp serve") as client:
        anyio.run(serve, client, paths.project(os.getcwd()))
    return FOUND


def import_sdk() -> None:
    """Raise Unavailable, saying what to install, when the MCP SDK is not there."""
    try:
        import mcp_types  # noqa: F401
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the MCP SDK is not installed", "install it with: pip install 'indexd[mcp]'"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="indexctl mcp")
    actions = parser.add_subparsers(dest="action", required=True)
    sync = actions.add_parser(
        "sync", description=SYNC, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sync.add_argument("files", nargs="*", metavar="FILE", help="a client's MCP configuration")
    sync.add_argument("--watch", action="store_true", help="stay connected and follow changes")
    sync.add_argument("--json", action="store_true", help="what became of each server, as JSON")
    listing = actions.add_parser("servers", description="Lists the servers that are indexed.")
    listing.add_argument("--json", action="store_true", help="as JSON")
    serve = actions.add_parser("serve", description="Is an MCP server on stdin and stdout.")
    serve.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    return parser
