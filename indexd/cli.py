"""`indexctl`: the thin client.

Exit status 0: found or done; 1: nothing found; 2: error. A pipe that its reader closes is no
error, as the reader has what it wanted.
"""

from __future__ import annotations

import sys

from indexd import arguments, commands, output
from indexd.errors import IndexdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    output.prepare()
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        output.leave_quietly()
        return 0
    except OSError as error:
        output.leave_quietly()
        place = f"{error.filename}: " if error.filename else ""
        output.say(f"cannot go on: {place}{error.strerror}")
        return ERROR
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(words: Sequence[str]) -> int:
    try:
        asked = arguments.parse(words)
        return commands.COMMANDS[asked.command](asked)
    except IndexdError as error:
        output.report(error, as_json="--json" in words)
        return ERROR


if __name__ == "__main__":
    sys.exit(main())
