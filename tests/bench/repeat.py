"""Repeats a home of sessions until it is large: the same texts in other sessions.

Each copy is a home of its own below DIR, with other session ids in names and lines, as if many
people had said the same.

    python tests/bench/repeat.py --home HOME --out DIR --megabytes 700
"""

from __future__ import annotations

import argparse
import os
import re

_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def copy(home: bytes, target: bytes, number: int) -> int:
    """Copy a home, every id in it changed by `number`; return the bytes written."""

    def other(found: re.Match[bytes]) -> bytes:
        first = int(found[0][:8], 16) ^ number * 2654435761 % (1 << 32)
        return b"%08x" % first + found[0][8:]

    written = 0
    for directory, _, names in os.walk(home):
        below = _ID.sub(other, os.path.relpath(directory, home))
        os.makedirs(os.path.join(target, below), exist_ok=True)
        for name in names:
            source = os.path.join(directory, name)
            if not os.path.isfile(source) or os.path.islink(source):
                continue
            with open(source, "rb") as file:
                data = _ID.sub(other, file.read())
            with open(os.path.join(target, below, _ID.sub(other, name)), "wb") as file:
                written += file.write(data)
    return written


def main() -> None:
    """Write copies until there is enough."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--home", required=True, help="a directory of session files")
    parser.add_argument("--out", required=True, help="a directory to make")
    parser.add_argument("--megabytes", type=int, default=700)
    arguments = parser.parse_args()
    written = number = 0
    while written < arguments.megabytes * 1_000_000:
        target = os.path.join(os.fsencode(arguments.out), b"home%d" % number)
        written += copy(os.fsencode(arguments.home), target, number)
        number += 1
    print(f"{number} copies, {written / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
