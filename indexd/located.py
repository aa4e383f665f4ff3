"""From a document of the index back to its text in the session file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from indexd import recall
from indexd.errors import IndexdError
from indexd.finding import OpenRoot
from indexd.index import FileFacts, Part, Snapshot
from indexd.messages import Place
from indexd.model import KINDS, Kind, Message
from indexd.ordering import Ranked
from indexd.recall import Recalled
from indexd.records import Record
from indexd.selection import timestamps
from indexd.settling import Fetch


class Sources:
    """Where the pieces of an answer come from.

    `record` and `root` give what is known of a session path, `fetch` rows of the cache.
    """

    def __init__(
        self,
        record: Callable[[str], Record | None],
        root: Callable[[str], OpenRoot | None],
        fetch: Fetch,
    ) -> None:
        self.record, self.root, self.fetch = record, root, fetch

    def each(self, facts: FileFacts, places: Iterable[Place]) -> Iterator[Recalled]:
        """Yield the messages at `places` in the file's order; none where it changed under us."""
        record, root = self.record(facts.path), self.root(facts.path)
        if record is None or root is None or record.file_id != facts.file_id:
            return
        with contextlib.suppress(IndexdError):
            yield from recall.each(root, record, places)

    def message(self, facts: FileFacts, place: Place) -> Message | None:
        """Return the message at `place`; None where the file changed under us."""
        return next((recalled.message for recalled in self.each(facts, [place])), None)


class Located(NamedTuple):
    """A document: of which kind, which of its message's calls, and where its message lies."""

    kind: Kind
    call: int
    place: Place


def located(snapshot: Snapshot, part: Part, ordinals: Sequence[int]) -> list[Located]:
    """Return where documents of `part` lie in their session files."""
    segment, at = part.segment, np.array(ordinals, np.int64)
    columns, names = segment.columns, segment.tool_names
    places = map(
        Place,
        columns.message.take(at).tolist(),
        columns.offset.take(at).tolist(),
        columns.size.take(at).tolist(),
        columns.part.take(at).tolist(),
        timestamps(snapshot, part, at).tolist(),
        [names[tool] for tool in columns.tool.take(at).tolist()],
    )
    kinds = [KINDS[rank] for rank in segment.kind_ranks(at).tolist()]
    return list(map(Located, kinds, columns.call.take(at).tolist(), places))


def located_rows(snapshot: Snapshot, rows: Sequence[Ranked]) -> list[Located]:
    """Return where the documents of an answer lie, one for one."""
    by_part: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        by_part.setdefault(id(row.part), []).append(number)
    found: dict[int, Located] = {}
    for numbers in by_part.values():
        ordinals = [rows[number].ordinal for number in numbers]
        part = rows[numbers[0]].part
        found |= dict(zip(numbers, located(snapshot, part, ordinals), strict=True))
    return [found[number] for number in range(len(rows))]
