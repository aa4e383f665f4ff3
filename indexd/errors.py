"""The failures a person is meant to read.

Anything that is not an IndexdError is a bug: the server logs its traceback and answers
`internal`. An expected failure carries a code for programs, a message for people that names
the offending value, and a hint that says what to do next.
"""

from __future__ import annotations


class IndexdError(Exception):
    """Base of every expected failure; `code` is what travels on the wire."""

    code = "internal"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_map(self) -> dict[str, str]:
        """Return the error as it travels: code, message, hint."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class BadRequest(IndexdError):
    """Raised when a request, an argument or a configuration value is not acceptable."""

    code = "bad_request"


class NotFound(IndexdError):
    """Raised when the named thing is not in the index."""

    code = "not_found"


class NotAllowed(IndexdError):
    """Raised for every path that may not be opened, whatever the reason."""

    code = "not_allowed"


class Busy(IndexdError):
    """Raised when the daemon already does as much as it may."""

    code = "busy"


class Timeout(IndexdError):
    """Raised when an answer did not come within its time."""

    code = "timeout"


class Unavailable(IndexdError):
    """Raised when no daemon answers."""

    code = "unavailable"


class VersionMismatch(IndexdError):
    """Raised when client and daemon share no protocol version."""

    code = "version"


class Internal(IndexdError):
    """Raised on the client's side when the daemon reports a bug of its own."""

    code = "internal"


CODES: dict[str, type[IndexdError]] = {
    kind.code: kind
    for kind in (
        BadRequest, NotFound, NotAllowed, Busy, Timeout, Unavailable, VersionMismatch, Internal,
    )
}  # fmt: skip


def from_map(error: dict[str, str]) -> IndexdError:
    """Return the exception that an error map from the wire stands for."""
    kind = CODES.get(error.get("code", ""), Internal)
    return kind(error.get("message", ""), error.get("hint", ""))
