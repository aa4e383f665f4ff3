"""Times as people read them; on the wire they are unix milliseconds."""

from __future__ import annotations

from datetime import datetime


def relative(milliseconds: int | None, now: float) -> str:
    """Return how long ago a time was, as its date after a week; empty when unknown."""
    if milliseconds is None:
        return ""
    seconds = now - milliseconds / 1000
    if -60 < seconds < 60:
        return "just now"
    for limit, unit, name in ((3600, 60, "min"), (86_400, 3600, "h"), (604_800, 86_400, "d")):
        if 0 <= seconds < limit:
            return f"{int(seconds // unit)} {name} ago"
    return exact(milliseconds)[:10]


def exact(milliseconds: int | None) -> str:
    """Return local date and time to the minute; empty when unknown or out of the calendar."""
    if milliseconds is None:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000).isoformat(" ", "minutes")
    except (ValueError, OverflowError, OSError):
        return ""


def lasting(seconds: float) -> str:
    """Return a span in its two largest units: `2 d 3 h`."""
    whole = int(seconds)
    for unit, name, smaller, smaller_name in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // smaller} {smaller_name}"
    return f"{whole} s"
