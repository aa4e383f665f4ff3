"""Writes units into a store until it is killed, telling each that is on disk."""

from __future__ import annotations

import sys

from indexd.store import Store

KEPT = 5


def unit(number: int) -> dict[bytes, bytes | None]:
    """Return unit `number`: it says so in one row, adds a row and removes an older one."""
    return {
        b"last": b"%d" % number,
        b"row%d" % number: b"%d " % number * (number * 37 % 3000),
        b"row%d" % (number - KEPT): None,
    }


def main(directory: str) -> None:
    store = Store(directory)
    store.start()
    number = int(store.get(b"last") or 0)
    while True:
        number += 1
        store.put(unit(number))
        if number % 3 == 0 and store.flush():
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
