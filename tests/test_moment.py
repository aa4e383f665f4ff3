from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd.errors import BadRequest
from indexd.moment import moment

HOUR = 3_600_000
DAY = 24 * HOUR


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp() * 1000)


NOW = ms(2026, 8, 20, 12, 34)


@pytest.fixture(autouse=True)
def two_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-08-01", ms(2026, 8, 1) - 2 * HOUR),
        ("2026-08-01T14:30", ms(2026, 8, 1, 14, 30) - 2 * HOUR),
        ("2026-08-01 14:30", ms(2026, 8, 1, 14, 30) - 2 * HOUR),
        ("2026-08-01t14:30z", ms(2026, 8, 1, 14, 30)),
        ("2026-08-01T14:30+05:00", ms(2026, 8, 1, 9, 30)),
        ("2026-08-01T14:30:00.25Z", ms(2026, 8, 1, 14, 30) + 250),
        ("20260801", ms(2026, 8, 1) - 2 * HOUR),
        ("1970-01-01", -2 * HOUR),
        ("1970-01-01T02:00", 0),
        (" Today ", ms(2026, 8, 20) - 2 * HOUR),
        ("yesterday", ms(2026, 8, 19) - 2 * HOUR),
        ("now", NOW),
        ("3d", NOW - 3 * DAY),
        ("90m", NOW - 90 * 60_000),
        ("2 weeks ago", NOW - 14 * DAY),
        ("an hour ago", NOW - HOUR),
        ("a day", NOW - DAY),
        ("1 month ago", NOW - 30 * DAY),
        ("2mo", NOW - 60 * DAY),
        ("1 year", NOW - 365 * DAY),
        ("30 secs ago", NOW - 30_000),
        ("1754000000", 1_754_000_000_000),
        ("1754000000123", 1_754_000_000_123),
    ],
)
def test_a_moment_is_read_as_people_write_it(text: str, expected: int) -> None:
    assert moment(text, NOW) == expected


@pytest.mark.parametrize("text", ["2026-08-19", "yesterday", "2026-W34-3"])
def test_the_end_of_a_day_is_its_last_millisecond(text: str) -> None:
    assert moment(text, NOW, end=True) == ms(2026, 8, 20) - 2 * HOUR - 1


def test_the_end_of_an_instant_is_that_instant() -> None:
    assert moment("3d", NOW, end=True) == moment("3d", NOW)
    assert moment("2026-08-01T14:30", NOW, end=True) == moment("2026-08-01T14:30", NOW)


@pytest.mark.parametrize(
    "text",
    ["", " ", "lately", "3 parsecs ago", "-3d", "2026-13-01", "999999y", "and", "12345",
     "9999-12-31x", "１２３４５６７８９", "3ms", "3d from now"],
)  # fmt: skip
def test_what_is_no_moment_is_refused_with_the_forms_allowed(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        moment(text, NOW)
    assert text in refused.value.message
    assert "2 weeks ago" in refused.value.hint


@given(st.text() | st.from_regex(r"[0-9TZ:+ -]{1,25}", fullmatch=True))
def test_any_text_is_a_number_or_a_bad_request(text: str) -> None:
    for end in (False, True):
        with contextlib.suppress(BadRequest):
            assert isinstance(moment(text, NOW, end=end), int)
