"""From one line of a session file to the JSON objects on it, whatever the line went through.

Lines are written by other programs, cut by crashes and joined by the next append. What can be
read is read; what cannot is counted. Nothing here raises for bad data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from indexd.model import SessionState

Record = dict[str, Any]
Decode = Callable[[bytes | str], Any]

REPAIRED = "repaired line"
UNREADABLE = "unreadable line"
TOO_LONG = "line over 16 MiB"
# What is counted of lines that are damaged, as against records that say nothing to search.
DAMAGE = frozenset({REPAIRED, UNREADABLE, TOO_LONG})

# The places on a bad line where a whole record may begin that are tried before giving up, and
# how much text all the tries together may walk through.
MAX_RESUMES = 200
MAX_RESUMED_CHARS = 50_000_000
# Numbers below are unix seconds: as milliseconds they would all lie before March 1973.
MAX_SECONDS = 10**11
MAX_MILLISECONDS = 10**14

_PADDING = b"\0\r\n\t \xef\xbb\xbf"
_GAP = re.compile(r"[\s\0\ufeff]*")
_FAILURES = (msgspec.MsgspecError, ValueError, RecursionError)
decode: Decode = msgspec.json.Decoder().decode
_lenient = json.JSONDecoder(strict=False, parse_constant=lambda _: None)


def objects(line: bytes, state: SessionState, decode: Decode = decode) -> list[Record]:
    """Return the JSON objects on `line`, usually one; other JSON is counted and left out.

    Two records glued together by an interrupted write are both returned. Padding, a byte order
    mark, bytes that are not UTF-8 and lone surrogates are repaired; what stays unreadable is
    counted in `state.skipped`.
    """
    try:
        found = [decode(line)]
        if isinstance(found[0], dict):
            return found
    except _FAILURES:
        found = _repaired(line, state, decode)
    kept = [record for record in found if isinstance(record, dict)]
    if len(kept) < len(found):
        state.skip("not an object")
    return kept


def whole_object(data: bytes) -> Record:
    """Return the JSON object that a whole file holds; an empty one when it holds none."""
    try:
        return mapping(decode(data))
    except _FAILURES:
        return {}


def _repaired(line: bytes, state: SessionState, decode: Decode) -> list[Any]:
    text = line.strip(_PADDING).decode("utf-8", "replace")
    if not text:
        state.skip("blank line")
        return []
    found = []
    try:
        values, complete = _salvaged(text)
        for value in values:
            clean = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
            found.append(decode(clean))
    except _FAILURES:
        complete = False
    state.skip(REPAIRED if complete else UNREADABLE)
    return found


def _salvaged(text: str) -> tuple[list[Any], bool]:
    """Return the JSON values of `text`, and whether nothing of it was lost.

    After a torn record the next position is sought from which all the rest is whole.
    """
    values, stop = _run_of_values(text, 0)
    if stop == len(text):
        return values, True
    for start in _resumes(text, stop):
        more, end = _run_of_values(text, start)
        if end == len(text):
            return values + more, False
    return values, False


def _resumes(text: str, start: int) -> Iterator[int]:
    for _ in range(min(MAX_RESUMES, 1 + MAX_RESUMED_CHARS // len(text))):
        start = text.find('{"', start + 1)
        if start < 0:
            return
        yield start


def _run_of_values(text: str, start: int) -> tuple[list[Any], int]:
    """Return the JSON objects that follow each other from `start`, and where they end."""
    values: list[Any] = []
    while start < len(text) and (text[start] in "{[" or not values):
        try:
            value, stop = _lenient.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        values.append(value)
        gap = _GAP.match(text, stop)
        start = gap.end() if gap else stop
    return values, start


def milliseconds(value: object) -> int | None:
    """Return a moment as unix milliseconds; None when `value` does not state one.

    Accepts ISO 8601 text (UTC unless it says otherwise) and unix seconds or milliseconds.
    """
    if isinstance(value, str):
        return _from_iso(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        scaled = value * 1000 if value < MAX_SECONDS else value
        return int(scaled) if 0 < scaled < MAX_MILLISECONDS else None
    return None


def _from_iso(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        stamp = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return stamp if 0 < stamp < MAX_MILLISECONDS else None


def mapping(value: object) -> Record:
    """Return `value` when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    """Return `value` when it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def string(value: object) -> str:
    """Return `value` when it is text, else the empty text."""
    return value if isinstance(value, str) else ""


def decoded(value: object) -> Any:
    """Return `value`, decoded when it is text that holds a JSON object or array."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return decode(value)
        except _FAILURES:
            return value
    return value
