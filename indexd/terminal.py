"""What a terminal can show: columns, colour, and only characters that are meant to be seen.

Session text comes from anywhere. An escape sequence in it could retitle the window or hide what
follows, so every character that is not printable is written out (`\\x1b`) before it is shown.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    # A visible piece of text, its width in columns, and whether it is part of a match.
    Cell = tuple[str, int, bool]

# Where no terminal tells its width; also what a page is measured by.
USUAL_COLUMNS = 80
# Lines longer than this are hard to read, however wide the window is.
MAX_TEXT_COLUMNS = 110

STYLES = {"bold": "1", "dim": "2", "match": "1;33", "error": "31", "name": "36"}

# Where a word too long for its line may be broken, as paths, URLs and JSON often are.
_JOINTS = frozenset("/,;:|&=-)]}")

# Joiners, without which emoji and some scripts fall apart; not printable by Python's account.
_JOINERS = "\u200c\u200d"


class Terminal:
    """Where output goes: its width in `columns`, whether it `wraps`, whether it has `colour`."""

    __slots__ = ("colour", "columns", "wraps")

    def __init__(
        self, columns: int = USUAL_COLUMNS, *, wraps: bool = False, colour: bool = False
    ) -> None:
        self.columns = columns
        self.wraps = wraps
        self.colour = colour

    def paint(self, text: str, style: str) -> str:
        """Return `text` in one of STYLES, unchanged without colour."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.colour and text else text


def terminal(stream: TextIO, environment: Mapping[str, str]) -> Terminal:
    """Return what `stream` is: colour only on a terminal, and never against `NO_COLOR`."""
    if not stream.isatty():
        return Terminal()
    colour = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return Terminal(window_columns(environment, stream.fileno()), wraps=True, colour=colour)


def window_columns(environment: Mapping[str, str], descriptor: int) -> int:
    """Return the width of the window behind `descriptor`: `COLUMNS` if set, else its own."""
    named = environment.get("COLUMNS", "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    try:
        return os.get_terminal_size(descriptor).columns or USUAL_COLUMNS
    except OSError:
        return USUAL_COLUMNS


def visible(text: str) -> str:
    """Return `text` with every character that is not meant to be seen written out."""
    if text.isprintable():
        return text
    return "".join(map(_visible, text))


def width(text: str) -> int:
    """Return how many columns visible `text` takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def fitted(text: str, columns: int) -> str:
    """Return visible `text` cut to `columns`, ending in `...` when it was cut."""
    if width(text) <= columns:
        return text
    kept, left = [], columns - 3
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + "..."


def cells(text: str, highlights: list[list[int]]) -> list[Cell]:
    """Return `text` as cells; `highlights` are [start, end) in code points of `text`."""
    matched = {index for start, end in highlights for index in range(start, end)}
    if text.isascii() and text.isprintable():
        return [(piece, 1, index in matched) for index, piece in enumerate(text)]
    shown = map(_visible, text)
    return [(piece, width(piece), index in matched) for index, piece in enumerate(shown)]


def wrap(row: list[Cell], columns: int) -> list[list[Cell]]:
    """Return `row` in lines of at most `columns`, broken at spaces and between wide characters."""
    lines, start = [], 0
    while start < len(row):
        end = _line_end(row, start, columns)
        line = row[start:end]
        while line and line[-1][0] == " ":
            line.pop()
        lines.append(line)
        start = end
        while start < len(row) and row[start][0] == " ":
            start += 1
    return lines


def painted(line: list[Cell], term: Terminal) -> str:
    """Return a line of cells as text, its matches marked where there is colour."""
    if not term.colour:
        return "".join(piece for piece, _, _ in line)
    parts, index = [], 0
    while index < len(line):
        end, matched = index, line[index][2]
        while end < len(line) and line[end][2] == matched:
            end += 1
        part = "".join(piece for piece, _, _ in line[index:end])
        parts.append(term.paint(part, "match") if matched else part)
        index = end
    return "".join(parts)


def _line_end(row: list[Cell], start: int, columns: int) -> int:
    """Return where the line that begins at `start` ends: the last break that fits, or by force.

    A break that would leave more than half of the line empty gives way to one within a word.
    """
    end, used, last_break, filled, last_joint = start, 0, start, 0, start
    while end < len(row) and used + row[end][1] <= columns:
        piece, wide, _ = row[end]
        used += wide
        end += 1
        if piece == " " or wide == 2:
            last_break, filled = end, used
        elif piece in _JOINTS:
            last_joint = end
    if end == len(row) or row[end][0] == " ":
        return end
    if last_joint > last_break and 2 * filled < columns:
        return last_joint
    return last_break if last_break > start else max(end, start + 1)


def _visible(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        # A byte of a file name that is not UTF-8.
        return f"\\x{code - 0xDC00:02x}"
    if code >= 0xA0 and character.isspace() and character not in "\u2028\u2029":
        return " "
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    )


def _columns(character: str) -> int:
    if character < "\u0300":
        return 1
    import unicodedata

    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me", "Cf") else 1
