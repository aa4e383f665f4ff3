"""`indexctl mcp event`: MCP events from standard input to the daemon."""

from __future__ import annotations

import json
import sys

from indexd import output
from indexd.errors import BadRequest
from indexd.tool import integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from typing import Any

    from indexd.client import Client


def feed(asked: argparse.Namespace, connected: Callable[[argparse.Namespace], Client]) -> int:
    """Send every event on standard input and say what became of it; 1 when there was none."""
    sent = 0
    with connected(asked) as client:
        for event in events(sys.stdin.read()):
            answer = client.call("mcp_event", event)
            sent += 1
            if asked.json:
                output.write_json(answer)
            else:
                output.warn(answer)
                output.say(f"{event.get('server')}: {event.get('event')}")
    if not sent:
        output.say("standard input held no event")
    return 0 if sent else 1


def events(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in `text`, whether one, several, or a list of them.

    What no frame can carry is repaired: halves of characters, integers of more than 64 bits.
    Raises BadRequest for what is not an object, saying where it stands.
    """
    decoder, position = json.JSONDecoder(parse_int=integer), 0
    while True:
        while position < len(text) and text[position] in " \t\r\n\ufeff":
            position += 1
        if position == len(text):
            return
        try:
            value, position = decoder.raw_decode(text, position)
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"standard input is not JSON: {error}", "send JSON objects") from error
        for event in value if isinstance(value, list) else [value]:
            if not isinstance(event, dict):
                raise BadRequest(
                    f"{str(event)[:40]!r} is not an event",
                    'send {"event": "connected", "server": "name", "tools": [...]}',
                )
            yield event
