"""From a document of the index back to its text in the session file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from indexd import recall
from indexd.errors import IndexdError
from indexd.finding import OpenRoot
from indexd.index import FileFacts, Part, Snapshot
from indexd.messages import Place
from indexd.model import KINDS, Kind, Message
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

    def messages(self, facts: FileFacts, places: Sequence[Place]) -> dict[int, Message]:
        """Return the messages at `places` by index; none where the file changed under us."""
        record, root = self.record(facts.path), self.root(facts.path)
        if record is None or root is None or record.file_id != facts.file_id:
            return {}
        try:
            recalled = recall.messages(root, record, places)
        except IndexdError:
            return {}
        return {place.message_index: message for place, message in recalled}

    def message(self, facts: FileFacts, place: Place) -> Message | None:
        """Return the message at `place`; None where the file changed under us."""
        return self.messages(facts, [place]).get(place.message_index)


class Located(NamedTuple):
    """A document: of which kind, which of its message's calls, and where its message lies."""

    kind: Kind
    call: int
    place: Place


def located(snapshot: Snapshot, part: Part, ordinal: int) -> Located:
    """Return where a document of `part` lies in its session file."""
    segment, at = part.segment, np.array([ordinal])
    columns = segment.columns
    place = Place(
        int(columns.message[ordinal]),
        int(columns.offset.take(at)[0]),
        int(columns.size.take(at)[0]),
        int(columns.part.take(at)[0]),
        int(timestamps(snapshot, part, at)[0]),
        segment.tool_names[int(columns.tool[ordinal])],
    )
    return Located(KINDS[int(segment.kind_ranks(at)[0])], int(columns.call[ordinal]), place)
