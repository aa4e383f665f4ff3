"""Points in time as people write them: dates, clock times, `yesterday`, `3d`, `2 weeks ago`."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

from indexd.errors import BadRequest

ALLOWED = (
    'a date (2026-08-01), a date and time (2026-08-01T14:30, with or without a zone), "now", '
    '"today", "yesterday", an age ("3d", "2 weeks ago") or unix seconds or milliseconds'
)
# A month and a year as ages are round figures: nobody counts the days of "2 months ago".
AGE_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}
UNIT_WORDS = {
    "sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "hr": "h",
    "day": "d", "week": "w", "month": "mo", "year": "y",
}  # fmt: skip
_AGE = re.compile(r"([0-9]{1,5}|an?(?=\s))\s*([a-z]+?)(?:\s+ago)?")
_UNIX = re.compile(r"[0-9]{9,13}")
# Unix seconds reach this in the year 5138, milliseconds passed it in 1973.
_FIRST_MILLISECONDS = 100_000_000_000


def moment(text: str, now_ms: int, *, end: bool = False) -> int:
    """Return the unix milliseconds that `text` means at `now_ms`, in the local time zone.

    Where `text` names a whole day, that is the day's first millisecond, or with `end` its
    last, so that a span "until yesterday" holds yesterday. Raises BadRequest.
    """
    words = text.strip().lower()
    try:
        day = _whole_day(words, now_ms)
        if day is None:
            return _instant(words, now_ms)
        return _midnight(day + timedelta(days=1)) - 1 if end else _midnight(day)
    except (ValueError, OverflowError, OSError) as error:
        raise BadRequest(f'"{text[:80]}" is not a point in time', f"allowed: {ALLOWED}") from error


def _whole_day(words: str, now_ms: int) -> date | None:
    today = datetime.fromtimestamp(now_ms / 1000).date()
    if words == "today":
        return today
    if words == "yesterday":
        return today - timedelta(days=1)
    try:
        return None if _UNIX.fullmatch(words) else date.fromisoformat(words.upper())
    except ValueError:
        return None


def _instant(words: str, now_ms: int) -> int:
    if words == "now":
        return now_ms
    if _UNIX.fullmatch(words):
        number = int(words)
        return number if number >= _FIRST_MILLISECONDS else number * 1000
    age = _AGE.fullmatch(words)
    if age:
        return now_ms - _milliseconds(*age.groups())
    return round(datetime.fromisoformat(words.upper()).timestamp() * 1000)


def _milliseconds(count: str, word: str) -> int:
    unit = AGE_UNITS.get(word) or AGE_UNITS.get(UNIT_WORDS.get(word.removesuffix("s"), ""))
    if unit is None:
        raise ValueError(word)
    return (int(count) if count.isdigit() else 1) * (unit // timedelta(milliseconds=1))


def _midnight(day: date) -> int:
    return round(datetime.combine(day, time.min).timestamp() * 1000)
