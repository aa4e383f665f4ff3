"""Other engines on the same documents, asked for any of a query's words."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Protocol

import tantivy

_WORD = re.compile(r"\w+")


class Engine(Protocol):
    """Something that ranks documents, known by their numbers."""

    def best(self, query: str, top: int) -> list[int]:
        """Return the numbers of the best documents, best first."""
        ...


class Fts5:
    """SQLite FTS5 with one of its tokenizers, ranked by bm25()."""

    def __init__(self, tokenizer: str, texts: Sequence[str]) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            f"CREATE VIRTUAL TABLE documents USING fts5(text, content='', tokenize='{tokenizer}')"
        )
        self._database.executemany(
            "INSERT INTO documents(rowid, text) VALUES (?, ?)",
            ((number, plain(text)) for number, text in enumerate(texts)),
        )

    def best(self, query: str, top: int) -> list[int]:
        """Return the numbers of the best documents, best first."""
        words = " OR ".join(f'"{word}"' for word in _words(query))
        rows = self._database.execute(
            "SELECT rowid FROM documents WHERE documents MATCH ? ORDER BY rank, rowid LIMIT ?",
            (words, top),
        )
        return [number for (number,) in rows]


class Tantivy:
    """tantivy with one of its tokenizers."""

    def __init__(self, tokenizer: str, texts: Sequence[str]) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text", tokenizer_name=tokenizer)
        builder.add_integer_field("number", stored=True)
        self._index = tantivy.Index(builder.build())
        writer = self._index.writer(heap_size=64_000_000, num_threads=1)
        for number, text in enumerate(texts):
            writer.add_document(tantivy.Document(text=plain(text), number=number))
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()

    def best(self, query: str, top: int) -> list[int]:
        """Return the numbers of the best documents, best first."""
        words = " ".join(f'"{word}"' for word in _words(query))
        searcher = self._index.searcher()
        found = searcher.search(self._index.parse_query(words, ["text"]), top, count=False)
        return [searcher.doc(address)["number"][0] for _, address in found.hits]


def plain(text: str) -> str:
    """Return `text` as any engine can take it: valid Unicode without NULs."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def _words(query: str) -> Iterator[str]:
    return (match.group() for match in _WORD.finditer(plain(query)))
