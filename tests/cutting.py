"""Snippets of texts that no session holds."""

from __future__ import annotations

from indexd.plan import FORMULAS, plan
from indexd.snippet import Cutter, Snippet
from indexd.text import Profile


def every_term(query: str, profile: Profile) -> list[bytes]:
    """Return every term that a document may be found by, the query's own first."""
    planned = plan(query, profile, FORMULAS[profile])
    return list(dict.fromkeys(term for each in planned for term in each.terms))


def snippet(text: str, query: str, profile: Profile, size: int) -> Snippet:
    """Return the snippet of a text that a query finds."""
    return Cutter(query, every_term(query, profile), profile, size).cut(text)
