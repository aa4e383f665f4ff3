"""A home directory of real sessions, read by indexd's own parts, as the ranking test needs it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from indexd import messages, recall, records
from indexd.attending import Task, attend
from indexd.build import Entry, build
from indexd.confine import RootDirectory
from indexd.extract import documents
from indexd.finding import OpenRoot, sweep
from indexd.index import FileFacts, Index, Snapshot
from indexd.model import DEFAULT_KINDS, Document, Kind
from indexd.roots import Root
from indexd.text import Profile

# Sessions that share this much are copies of each other: forks, resumes, runs of one recipe.
SHARED_BEGINNING = 4
SHARED_MESSAGES = 5
# What an agent says last in a turn of this many documents sums it up.
RECAP_DOCUMENTS = 6


class Session(NamedTuple):
    """One session file and its documents of all kinds."""

    facts: FileFacts
    documents: list[Document]

    @property
    def searched(self) -> list[Document]:
        """Return the documents of the default kinds."""
        return [d for d in self.documents if d.kind in DEFAULT_KINDS]


class Key(NamedTuple):
    """Which document: of session number `session`, which message, which kind."""

    session: int
    message: int
    kind: Kind


@dataclass(frozen=True)
class Home:
    """All sessions of some directories, and which of them are alike."""

    sessions: list[Session]

    @cached_property
    def clusters(self) -> list[int]:
        """Return the cluster number of each session."""
        return _clusters([_digests(session) for session in self.sessions])

    @cached_property
    def families(self) -> list[frozenset[int]]:
        """Return for each session those that are as right as it: copies and sub-agents."""
        groups: dict[object, set[int]] = {}
        for number, session in enumerate(self.sessions):
            for name in _family_names(session, self.clusters[number]):
                groups.setdefault(name, set()).add(number)
        return [
            frozenset().union(*(groups[n] for n in _family_names(s, self.clusters[i])))
            for i, s in enumerate(self.sessions)
        ]

    @cached_property
    def recaps(self) -> list[tuple[int, str]]:
        """Return session numbers and what an agent said at the end of a turn's work there."""
        return [
            (number, document.text)
            for number, session in enumerate(self.sessions)
            for document in _turn_ends(session.searched)
        ]

    @cached_property
    def searched(self) -> list[tuple[Key, str]]:
        """Return key and text of every document of the default kinds but the recaps."""
        left_out = {text for _, text in self.recaps}
        return [
            (Key(number, d.message_index, d.kind), d.text)
            for number, session in enumerate(self.sessions)
            for d in session.searched
            if d.text not in left_out
        ]

    @cached_property
    def equal_prompts(self) -> dict[str, set[Key]]:
        """Return which documents of user text hold exactly each text."""
        known: dict[str, set[Key]] = {}
        for key, text in self.searched:
            if key.kind is Kind.USER_TEXT:
                known.setdefault(text, set()).add(key)
        return known

    def snapshot(self, profile: Profile) -> Snapshot:
        """Return the index of all documents; a session's file id is its number."""
        left_out = {text for _, text in self.recaps}
        entries = [
            Entry(number, d)
            for number, session in enumerate(self.sessions)
            for d in session.documents
            if d.text not in left_out
        ]
        index = Index()
        facts = [s.facts._replace(file_id=n) for n, s in enumerate(self.sessions)]
        index.restore([build(entries, profile)], facts)
        return index.snapshot


def read_home(directories: Iterable[str]) -> Home:
    """Return the sessions below `directories`, as the daemon would read them."""
    sessions = []
    for directory in directories:
        root = OpenRoot(Root(directory), RootDirectory(directory))
        for found in sweep([root]):
            change = attend(Task(found, None, 1, "seed"), lambda key: None)
            record = change.record
            if not record.runs:
                continue
            rows = change.rows[records.places_key(record.file_id, record.runs[0].number)]
            recalled = recall.messages(root, record, messages.decode(rows or b""))
            texts = [d for r in recalled for d in documents(r.message, r.place.message_index)]
            sessions.append(Session(record.facts(), texts))
        root.directory.close()
    return Home(sorted(sessions, key=lambda s: s.facts.path))


def digest(text: str) -> int:
    """Return a number that depends on `text` alone, for choices that look random."""
    return int.from_bytes(hashlib.sha1(text.encode("utf-8", "replace")).digest()[:8], "big")


def _family_names(session: Session, cluster: int) -> list[tuple[str, object]]:
    facts = session.facts
    ids = [each for each in (facts.session_id, facts.parent) if each]
    return [("cluster", cluster), *(("id", each) for each in ids)]


def _turn_ends(documents: Iterable[Document]) -> Iterable[Document]:
    turn: list[Document] = []
    for document in (*documents, Document(Kind.USER_TEXT, "", 0)):
        if document.kind is not Kind.USER_TEXT:
            turn.append(document)
            continue
        if len(turn) >= RECAP_DOCUMENTS and turn[-1].kind is Kind.ASSISTANT_TEXT:
            yield turn[-1]
        turn = []


def _digests(session: Session) -> list[int]:
    """Return one digest per message, in order."""
    texts: dict[int, str] = {}
    for d in session.searched:
        texts[d.message_index] = f"{texts.get(d.message_index, '')}\n{d.kind} {d.text}"
    return [digest(texts[index]) for index in sorted(texts)]


def _clusters(sessions: Sequence[Sequence[int]]) -> list[int]:
    owner = list(range(len(sessions)))

    def top(number: int) -> int:
        while owner[number] != number:
            number = owner[number]
        return number

    for one, other in _alike(sessions):
        a, b = sorted((top(one), top(other)))
        owner[b] = a
    return [top(number) for number in range(len(sessions))]


def _alike(sessions: Sequence[Sequence[int]]) -> Iterable[tuple[int, int]]:
    """Yield pairs of sessions with the same beginning or with half of their messages in common."""
    beginnings: dict[tuple[int, ...], int] = {}
    holders: dict[int, list[int]] = {}
    sets = [set(messages) for messages in sessions]
    for number, session in enumerate(sessions):
        if session:
            beginning = tuple(session[:SHARED_BEGINNING])
            yield number, beginnings.setdefault(beginning, number)
        shared = Counter(other for m in sets[number] for other in holders.get(m, ()))
        for other, count in shared.items():
            smaller = min(len(sets[number]), len(sets[other]))
            if count >= SHARED_MESSAGES and 2 * count >= smaller:
                yield number, other
        for message in sets[number]:
            holders.setdefault(message, []).append(number)
