"""Values of filters that no session has: what there is instead, and what was perhaps meant."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import OSA

from indexd.index import FileFacts
from indexd.requests import Filters
from indexd.scope import chosen

# So many values are named as those there are, and as near ones.
SHOWN, NEAR = 8, 3
_NONE = {
    "agent": "no session is one of",
    "session": "no session is called",
    "project": "no session lies in",
    "tool_name": "no tool is called",
}
# Values are near each other that differ in no more than one of three characters.
LEAST_LIKE = 0.66


class Unmatched(NamedTuple):
    """A filter that alone selects no session: its parameter, why in words, and near values."""

    parameter: str
    words: str
    near: list[str]


def unmatched(filters: Filters, files: Collection[FileFacts]) -> Iterator[Unmatched]:
    """Yield the filters on agent, session and project that select none of some files alone."""
    for parameter in ("agent", "session", "project"):
        wanted = getattr(filters, parameter)
        if not wanted or (parameter == "project" and filters.scope != "project"):
            continue
        scope = "project" if parameter == "project" else "global"
        alone = chosen(Filters(**{parameter: wanted, "scope": scope}), files)
        if not any(map(alone.accepts, files)):
            yield told(parameter, wanted, _known(parameter, "/" in wanted, files))


def told(parameter: str, wanted: str, known: Sequence[str]) -> Unmatched:
    """Return what there is to say of a value that is none of the known ones, commonest first."""
    near = like(wanted, known)
    words = f'{_NONE[parameter]} "{wanted}"'
    if near:
        words += f"; near it: {', '.join(near)}"
    elif parameter != "session" and known:
        more = ", ..." if len(known) > SHOWN else ""
        words += f"; there are: {', '.join(known[:SHOWN])}{more}"
    return Unmatched(parameter, words, near)


def like(wanted: str, known: Iterable[str]) -> list[str]:
    """Return those of the known values that `wanted` looks like, the likest first.

    A value may be cut short: ids are typed by their beginning.
    """
    longest = len(wanted) + 1
    scorer, processor = OSA.normalized_similarity, lambda value: value.lower()[:longest]
    found = process.extract(
        wanted, list(known), scorer=scorer, processor=processor, limit=NEAR,
        score_cutoff=LEAST_LIKE,
    )  # fmt: skip
    return [value for value, _, _ in found]


def _known(parameter: str, is_path: bool, files: Iterable[FileFacts]) -> list[str]:
    """Return the values that sessions have, the commonest first."""
    if parameter == "agent":
        values = Counter(facts.agent for facts in files)
    elif parameter == "session":
        values = Counter(facts.path if is_path else facts.session_id for facts in files)
    else:
        directories = (facts.cwd.rstrip("/") for facts in files)
        values = Counter(cwd if is_path else os.path.basename(cwd) for cwd in directories)
    return [value for value, _ in values.most_common() if value]
