"""An MCP server in plain JSON-RPC that misbehaves as it is told to, by words on its command line.

Its tools are the JSON in the file named by TOOLS; on SIGUSR1 it says that they have changed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

WORDS = set(sys.argv[1:])
PAGE = 2


def say(message: dict) -> None:
    # In one call, since a signal may come at any time: a buffer forbids writing within a write.
    line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
    assert os.write(1, line.encode()) == len(line)


def tools() -> list:
    with open(os.environ["TOOLS"]) as file:
        return json.load(file)


def page(cursor: str | None) -> dict:
    if "pages" not in WORDS:
        return {"tools": tools()}
    start = int(cursor or 0)
    result = {"tools": tools()[start : start + PAGE]}
    if "endless" in WORDS:
        return {**result, "nextCursor": "0"}
    return {**result, "nextCursor": str(start + PAGE)} if start + PAGE < len(tools()) else result


def answer(request: dict) -> None:
    method, id = request.get("method"), request.get("id")
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "odd", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": capabilities}
        say({"id": id, "result": {**result, "serverInfo": info, "instructions": "Mind the gap."}})
    elif method == "tools/list":
        say({"id": id, "result": page((request.get("params") or {}).get("cursor"))})
    elif method == "server/discover" and "dies" in WORDS:
        sys.exit(1)
    elif id is not None:
        say({"id": id, "error": {"code": -32601, "message": f"no {method}"}})


def main() -> None:
    if "fails" in WORDS:
        sys.stderr.write(f"cannot use key {os.environ.get('API_KEY')}\n")
        sys.exit(3)
    if "PID_FILE" in os.environ:
        with open(os.environ["PID_FILE"], "a") as file:
            file.write(f"{os.getpid()}\n")
            if "child" in WORDS:
                child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
                file.write(f"{child.pid}\n")
    if "stubborn" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    changed = {"method": "notifications/tools/list_changed"}
    signal.signal(signal.SIGUSR1, lambda *_: say(changed))
    if "junk" in WORDS:
        os.write(1, b"Welcome to odd 1.0!\n\n{not json}\n\xff\n")
    for line in sys.stdin:
        if "hangs" not in WORDS:
            answer(json.loads(line))
    while "stubborn" in WORDS:
        signal.pause()


main()
