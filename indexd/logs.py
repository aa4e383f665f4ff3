"""Log lines for people and for grep: `key=value` on standard error, one record a line."""

from __future__ import annotations

import logging
import sys

LEVELS = ("debug", "info", "warning", "error")


class Formatter(logging.Formatter):
    """Writes `time level at` and the message, in which nothing can begin a line of its own."""

    def __init__(self) -> None:
        super().__init__("time={asctime} level={levelname} at={name} {message}", style="{")
        self.default_time_format, self.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03d"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the record's line; file names and peers' words are escaped in it."""
        record.levelname = record.levelname.lower()
        record.message = "".join(
            letter if letter.isprintable() else ascii(letter)[1:-1] for letter in record.message
        )
        return super().formatMessage(record)


def set_up(level: str) -> None:
    """Send records of `level` and above to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
