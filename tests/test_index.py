"""The index: after any changes and merges, a snapshot holds exactly the live documents."""

from __future__ import annotations

import tempfile

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from indexd.build import Entry, build
from indexd.index import MAX_PARTS, FileFacts, Index, Part, Snapshot, merge_parts
from indexd.model import KINDS, Document, Kind
from indexd.segment import nothing
from indexd.selection import FileFilter, Selection, views
from tests.brute_force import Plain
from tests.live_index import LiveIndex

Row = tuple[str, int, str, int, frozenset[str]]
paths = st.sampled_from([f"/{name}" for name in "abcdefgh"])


def rows(snapshot: Snapshot) -> list[Row]:
    """Return each live document once for every part that holds it."""
    found = []
    for part in snapshot.parts:
        segment = part.segment
        terms: list[set[str]] = [set() for _ in range(len(segment))]
        for at, term in enumerate(segment.dictionary):
            for ordinal in segment.term_postings(at)[0].tolist():
                terms[ordinal].add(term.decode())
        ranks = segment.kind_ranks(np.arange(len(segment))).tolist()
        for at in range(len(segment)):
            file = int(segment.columns.file[at])
            if part.live_files[file]:
                path = snapshot.files[int(segment.file_ids[file])].path
                message, call = int(segment.columns.message[at]), int(segment.columns.call[at])
                found.append((path, message, KINDS[ranks[at]], call, frozenset(terms[at])))
    return sorted(found, key=repr)


def model_rows(live: LiveIndex) -> list[Row]:
    return sorted(
        (
            (d["path"], d["message"], d["kind"], d["call"], frozenset(d["text"].split()))
            for d in live.live()
            if d["text"].split()
        ),
        key=repr,
    )


class Histories(RuleBasedStateMachine):
    """Whatever is published, merged, replaced and restored, nothing is lost, doubled or old."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.live = LiveIndex("seed", self.directory.name)
        self.number = 0
        self.seen: list[tuple[Snapshot, list[Row]]] = []

    def teardown(self) -> None:
        self.directory.cleanup()

    def documents(self, path: str, count: int) -> list[Plain]:
        """Return documents like no others; now and then one without words."""
        found = []
        for _ in range(count):
            self.number += 1
            found.append(
                {
                    "path": path, "message": self.number, "kind": KINDS[self.number % len(KINDS)],
                    "call": self.number % 3, "tool": "", "time": 0,
                    "text": f"n{self.number} common" if self.number % 5 else "",
                }
            )  # fmt: skip
        return found

    @rule(path=paths, count=st.sampled_from([0, 1, 1, 2, 9]))
    def write(self, path: str, count: int) -> None:
        self.live.write(FileFacts(0, path, "global", "x"), self.documents(path, count))

    @precondition(lambda self: self.live.facts)
    @rule(data=st.data(), count=st.sampled_from([0, 1, 1, 1, 20]), mtime=st.integers(1, 9))
    def append(self, data: st.DataObject, count: int, mtime: int) -> None:
        path = data.draw(st.sampled_from(sorted(self.live.facts)))
        self.live.append(path, self.documents(path, count), mtime)

    @precondition(lambda self: self.live.facts)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.live.remove(data.draw(st.sampled_from(sorted(self.live.facts))))

    @rule()
    def remember_a_snapshot(self) -> None:
        snapshot = self.live.index.snapshot
        self.seen.append((snapshot, rows(snapshot)))

    @rule()
    def merge_what_is_due(self) -> None:
        self.live.merge_due()
        assert len(self.live.index.snapshot.parts) <= MAX_PARTS

    @rule(chosen=st.lists(st.booleans(), min_size=12, max_size=12))
    def begin_a_merge(self, chosen: list[bool]) -> None:
        self.live.finish_merge()
        self.live.begin_merge(chosen)

    @rule()
    def finish_the_merge(self) -> None:
        self.live.finish_merge()

    @rule()
    def replace_the_base(self) -> None:
        self.live.rebase()
        assert len(self.live.index.snapshot.parts) <= 1

    @rule()
    def restart(self) -> None:
        self.live.restart()

    @invariant()
    def it_holds_the_live_documents(self) -> None:
        snapshot = self.live.index.snapshot
        wanted = model_rows(self.live)
        assert rows(snapshot) == wanted
        assert snapshot.documents == len(wanted)
        assert {f.path: f for f in snapshot.files.values()} == self.live.facts
        assert all(len(part.segment) and part.live_files.any() for part in snapshot.parts)
        for kind in KINDS:
            seen = views(snapshot, Selection((kind,)))
            mine = [row for row in wanted if row[2] == kind]
            assert sum(view.documents for view in seen) == len(mine)
            assert sum(view.tokens for view in seen) == sum(len(row[4]) for row in mine)

    @invariant()
    def filters_are_never_those_of_an_earlier_state(self) -> None:
        chosen = FileFilter("early", lambda facts: facts.path < "/d")
        seen = views(self.live.index.snapshot, Selection(KINDS, chosen))
        mine = [row for row in model_rows(self.live) if row[0] < "/d"]
        assert sum(view.documents for view in seen) == len(mine)

    @invariant()
    def earlier_snapshots_stay_as_they_were(self) -> None:
        for snapshot, was in self.seen:
            assert rows(snapshot) == was


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=40, stateful_step_count=25)


def entry(file_id: int, message: int, text: str = "word") -> Entry:
    return Entry(file_id, Document(Kind.USER_TEXT, text, message))


def facts(file_id: int) -> FileFacts:
    return FileFacts(file_id, f"/{file_id}", "global", "x")


def test_documents_of_a_file_that_is_not_known_are_dead() -> None:
    index = Index()
    index.publish([build([entry(1, 0), entry(2, 0)], "seed")], [facts(1)])
    assert index.snapshot.documents == 1
    index.publish(drop=[1, 99])
    assert index.snapshot.parts == ()


def test_a_file_that_dies_while_it_is_merged_stays_dead() -> None:
    index = Index()
    for file_id in (1, 2, 3):
        index.publish([build([entry(file_id, 0)], "seed")], [facts(file_id)])
    parts = index.snapshot.parts[:2]
    merged = merge_parts(parts)
    index.publish(drop=[1])
    index.publish([build([entry(4, 0)], "seed")], [facts(4)])
    index.replace(parts, merged)
    assert index.snapshot.documents == 3
    assert [p.counts(np.arange(len(KINDS)))[0] for p in index.snapshot.parts] == [1, 1, 1]


def test_everything_may_die_while_it_is_merged() -> None:
    index = Index()
    index.publish([build([entry(1, 0)], "seed")], [facts(1)])
    parts = index.snapshot.parts
    merged = merge_parts(parts)
    index.publish(drop=[1])
    index.replace(parts, merged)
    assert index.snapshot.parts == ()
    index.replace((), merge_parts(()))
    index.replace((), nothing())
    assert index.snapshot.parts == ()
    assert index.snapshot.documents == 0


def test_many_small_changes_are_merged_a_few_times_each() -> None:
    index, merged_documents, count = Index(), 0, 600
    for file_id in range(count):
        index.publish([build([entry(file_id, 0)], "seed")], [facts(file_id)])
        while due := index.due():
            assert len(due) >= 2
            segment = merge_parts(due)
            merged_documents += len(segment)
            index.replace(due, segment)
        assert len(index.snapshot.parts) <= MAX_PARTS
    assert merged_documents <= 5 * count


def test_merging_small_changes_leaves_a_big_base_alone() -> None:
    index = Index()
    base = build([entry(1, message) for message in range(1000)], "seed")
    index.publish([base], [facts(1)])
    for file_id in range(2, 60):
        index.publish([build([entry(file_id, 0)], "seed")], [facts(file_id)])
        while due := index.due():
            assert all(part.segment is not base for part in due)
            index.replace(due, merge_parts(due))
    assert index.snapshot.parts[0].segment is base


def test_what_is_remembered_is_bounded_and_goes_with_its_parts() -> None:
    index = Index()
    index.publish([build([entry(1, 0)], "seed")], [facts(1)])
    for number in range(500):
        views(index.snapshot, Selection(KINDS, FileFilter(number, lambda facts: True)))
    assert len(index.snapshot.remembered) < 100
    part: Part = index.snapshot.parts[0]
    index.replace([part], merge_parts([part]))
    assert index.snapshot.remembered == {}


def test_a_new_time_of_change_alone_keeps_what_is_remembered() -> None:
    index = Index()
    index.publish([build([entry(1, 0)], "seed")], [facts(1)])
    views(index.snapshot, Selection(KINDS, FileFilter("all", lambda facts: True)))
    index.publish(put=[facts(1)._replace(mtime=5)])
    assert len(index.snapshot.remembered) == 1
    index.publish(put=[facts(1)._replace(cwd="/elsewhere", mtime=5)])
    assert index.snapshot.remembered == {}
