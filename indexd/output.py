"""Where a command's words go: data to standard output, talk to standard error."""

from __future__ import annotations

import os
import sys

from indexd.errors import BadRequest, IndexdError
from indexd.terminal import Terminal, visible
from indexd.terminal import terminal as terminal_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def prepare() -> None:
    """Make both streams take any text: what cannot be encoded is written out instead."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Closed by whoever started us, who then wants to hear nothing.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (for good)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def terminal() -> Terminal:
    """Return what standard output goes to."""
    return terminal_of(sys.stdout, os.environ)


def write(text: str) -> None:
    """Write data; `text` holds nothing a terminal would obey, unless it is colour of ours."""
    sys.stdout.write(text)


def write_json(value: Any) -> None:
    """Write one JSON document on a line of its own."""
    sys.stdout.write(_escaped(compact_json(value)) + "\n")


def compact_json(value: Any) -> str:
    """Return `value` as JSON without needless spaces, its characters as they are."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_json(text: str) -> Any:
    """Return the value that JSON `text` holds; raise BadRequest when it is not JSON."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"invalid arguments: {error}", "send one JSON object") from error


def say(text: str) -> None:
    """Write one line of talk."""
    sys.stderr.write(f"indexctl: {visible(text)}\n")


def warn(answer: dict[str, Any]) -> None:
    """Say the warnings that came with an answer."""
    for warning in answer.get("warnings") or ():
        say(warning)


def report(error: IndexdError, *, as_json: bool) -> None:
    """Say what went wrong and what to do next; as data where data was asked for."""
    if as_json:
        write_json({"error": error.as_map()})
        return
    say(error.message)
    if error.hint:
        say(error.hint)


def leave_quietly() -> None:
    """Forget what could not be written: the reader has seen enough, which is no error."""
    # The stream would be flushed once more at exit, into a pipe that nobody reads.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escaped(text: str) -> str:
    """Return JSON text whose remaining control characters and half pairs are escaped."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(
        f"\\u{ord(character):04x}"
        if "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff"
        else character
        for character in text
    )
