"""The three engines that are compared: indexd's own, tantivy and SQLite FTS5.

All hold the same documents under the same numbers, and the same terms of profile `seed` (the
others get them joined by blanks), so that their answers can be compared as well as their speed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

import msgpack
import tantivy
import texts

from indexd import base, finding, records
from indexd.attending import Task, attend
from indexd.confine import RootDirectory
from indexd.finding import OpenRoot
from indexd.index import Index, Part, merge_parts
from indexd.model import KINDS, Kind
from indexd.ordering import Order
from indexd.plan import QueryTerm
from indexd.ranking import Ranking, rank
from indexd.roots import Root
from indexd.selection import FileFilter, Selection

TOP = 10
RELATIVE_SCORE = 0.15


class Query(NamedTuple):
    """What is asked: any of some terms, in documents of some kinds, of one project."""

    group: str
    terms: tuple[str, ...]
    kinds: tuple[Kind, ...] = KINDS
    project: str = ""


class Answer(NamedTuple):
    """The best documents (number, score) and, where the engine says, how many matched."""

    hits: list[tuple[int, float]]
    total: int | None


class Ours:
    """The base as a daemon holds it after it has rested: one part, postings in a file."""

    name = "indexd"

    def __init__(self, home: str, work: str) -> None:
        path, known = os.path.join(work, "base"), os.path.join(work, "records")
        if not os.path.exists(known):
            _index(home, path, known)
        with open(known, "rb") as file:
            rows = [records.decode(row) for row in msgpack.unpack(file)]
        known = base.load(path, {record.file_id: record.messages for record in rows})
        assert known is not None
        self.index = Index()
        self.index.restore([known.segment], [record.facts() for record in rows])

    def rank(self, query: Query, top: int = TOP, relative_score: float = RELATIVE_SCORE) -> Ranking:
        """Return the engine's own answer: what is timed."""
        selection = Selection(query.kinds, _file_filter(query.project))
        order = Order(relative_score=relative_score)
        terms = [QueryTerm((term.encode(),)) for term in query.terms]
        return rank(self.index.snapshot, terms, selection, order, top)

    def places(self, found: Ranking) -> list[tuple[str, int, Kind, int]]:
        """Return (path, message_index, kind, call) of each hit."""
        return [
            (
                hit.facts.path,
                int(hit.part.segment.columns.message[hit.ordinal]),
                KINDS[int(hit.part.segment.kind_ranks(hit.ordinal))],
                int(hit.part.segment.columns.call[hit.ordinal]),
            )
            for hit in found.ranked
        ]


def _file_filter(project: str) -> FileFilter | None:
    if not project:
        return None
    return FileFilter(("project", project), lambda facts: facts.cwd == project)


def _index(home: str, path: str, known: str) -> None:
    """Read every session as the daemon does, and write the base and the records."""
    index, rows, covers = Index(), [], {}
    root = OpenRoot(Root(home), RootDirectory(home))
    for number, found in enumerate(finding.sweep([root])):
        change = attend(Task(found, None, number + 1, "seed"), lambda _: None)
        if change.record.agent:
            index.publish(change.segments, [change.record.facts()])
            rows.append(records.encode(change.record))
            covers[change.record.file_id] = change.record.messages
        while due := index.due():
            index.replace(due, merge_parts(due))
    parts: Iterable[Part] = index.snapshot.parts
    base.save(parts, covers, path)
    with open(known, "wb") as file:
        msgpack.pack(rows, file)


class Tantivy:
    """tantivy with its block-max OR queries; `counting` also asks how many matched."""

    name = "tantivy"

    def __init__(self, home: str, work: str, *, counting: bool = False) -> None:
        path = os.path.join(work, "tantivy")
        schema = tantivy.SchemaBuilder()
        schema.add_text_field("text", tokenizer_name="seed", index_option="freq")
        schema.add_text_field("kind", tokenizer_name="raw", index_option="basic")
        schema.add_text_field("project", tokenizer_name="raw", index_option="basic")
        schema.add_unsigned_field("number", fast=True, stored=True)
        self._schema = schema.build()
        fresh = not os.path.exists(path)
        os.makedirs(path, exist_ok=True)
        self._index = tantivy.Index(self._schema, path)
        analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        self._index.register_tokenizer("seed", analyzer)
        if fresh:
            self._fill(home)
        self._index.reload()
        self._searcher = self._index.searcher()
        self._counting = counting

    @property
    def segments(self) -> int:
        """Return how many segments the index has."""
        return self._searcher.num_segments

    def _fill(self, home: str) -> None:
        writer = self._index.writer(512_000_000, 1)
        for number, kind, project, text in numbered(home):
            document = tantivy.Document(text=text, kind=kind, project=project)
            document.add_unsigned("number", number)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()

    def search(self, query: Query) -> tantivy.SearchResult:
        """Return the engine's own answer: what is timed."""
        return self._searcher.search(self._built(query), TOP, self._counting)

    def _built(self, query: Query) -> tantivy.Query:
        terms = [self._term("text", term) for term in query.terms]
        asked = terms[0]
        if len(terms) > 1:
            asked = tantivy.Query.boolean_query([(tantivy.Occur.Should, one) for one in terms])
        musts = []
        if query.kinds != KINDS:
            kinds = tantivy.Query.term_set_query(self._schema, "kind", list(query.kinds))
            musts.append(kinds)
        if query.project:
            musts.append(self._term("project", query.project))
        if not musts:
            return asked
        silent = [tantivy.Query.const_score_query(must, 0.0) for must in musts]
        everything = [(tantivy.Occur.Must, one) for one in (asked, *silent)]
        return tantivy.Query.boolean_query(everything)

    def _term(self, field: str, value: str) -> tantivy.Query:
        return tantivy.Query.term_query(self._schema, field, value, index_option="freq")

    def answer(self, found: tantivy.SearchResult) -> Answer:
        """Return the document numbers behind the engine's answer."""
        hits = [(self._searcher.doc(at)["number"][0], score) for score, at in found.hits]
        return Answer(hits, found.count if self._counting else None)


class Fts5:
    """SQLite FTS5, contentless, without positions, ranked by its `bm25()`."""

    name = "FTS5"

    def __init__(self, home: str, work: str) -> None:
        path = os.path.join(work, "fts5.db")
        fresh = not os.path.exists(path)
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA cache_size = -200000")
        if fresh:
            self._fill(home)

    def _fill(self, home: str) -> None:
        run = self._database.execute
        run("PRAGMA synchronous = OFF")
        run("PRAGMA journal_mode = OFF")
        run("CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail=none,"
            " tokenize=\"unicode61 remove_diacritics 0 tokenchars '_'\")")  # fmt: skip
        run("CREATE TABLE facts (number INTEGER PRIMARY KEY, kind TEXT, project TEXT)")
        for number, kind, project, text in numbered(home):
            run("INSERT INTO texts (rowid, text) VALUES (?, ?)", (number, text))
            run("INSERT INTO facts VALUES (?, ?, ?)", (number, kind, project))
        run("INSERT INTO texts (texts) VALUES ('optimize')")
        self._database.commit()

    def search(self, query: Query) -> list[tuple[int, float]]:
        """Return the engine's own answer: what is timed."""
        match = " OR ".join(f'"{term}"' for term in query.terms)
        if query.kinds == KINDS and not query.project:
            sql = "SELECT rowid, rank FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?"
            return self._database.execute(sql, (match, TOP)).fetchall()
        wanted, values = [], []
        if query.kinds != KINDS:
            wanted.append(f"kind IN ({', '.join('?' * len(query.kinds))})")
            values += query.kinds
        if query.project:
            wanted.append("project = ?")
            values.append(query.project)
        sql = (
            "SELECT number, rank FROM texts JOIN facts ON number = texts.rowid WHERE texts MATCH ?"
            f" AND {' AND '.join(wanted)} ORDER BY rank LIMIT ?"
        )
        return self._database.execute(sql, (match, *values, TOP)).fetchall()


def numbered(home: str) -> Iterable[tuple[int, str, str, str]]:
    """Yield (number, kind, project, seed terms joined by blanks) of every document."""
    number = 0
    for session in texts.sessions(home):
        for document in session.documents:
            terms = " ".join(texts.seed_terms(document.text))
            yield number, str(document.kind), session.project, terms
            number += 1


def numbers(home: str) -> dict[tuple[str, int, Kind, int], int]:
    """Return the number of each document by (path, message_index, kind, call)."""
    places = (
        (session.path, document.message_index, document.kind, document.call)
        for session in texts.sessions(home)
        for document in session.documents
    )
    return {place: number for number, place in enumerate(places)}
