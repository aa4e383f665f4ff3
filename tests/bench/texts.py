"""The documents of a corpus, as every engine gets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import measure  # noqa: F401

from indexd.discover import walk
from indexd.extract import documents
from indexd.formats.registry import detect
from indexd.model import Document, Message, SessionState
from indexd.text import meaning, raw_tokens


class Session(NamedTuple):
    """One session's documents; `bytes` is the size of its file."""

    path: str
    agent: str
    project: str
    bytes: int
    documents: list[Document]


def sessions(home: str) -> Iterator[Session]:
    """Yield the sessions below a directory, by path."""
    for candidate in sorted(walk(home)):
        with open(candidate.data_path, "rb") as file:
            data = file.read()
        lines = data.split(b"\n")[:-1]
        reader, _ = detect(lines, candidate.path)
        if reader is None:
            continue
        state = SessionState()
        found: list[Document] = []
        for line in lines:
            for item in reader.read(line, state):
                if isinstance(item, Message):
                    found += documents(item, state.next_index)
                    state.next_index += 1
        facts: dict[str, str] = {}
        for sidecar in candidate.sidecars:
            with open(sidecar, "rb") as file:
                facts |= reader.sidecar_facts(file.read())
        project = state.facts.get("cwd") or facts.get("cwd", "")
        yield Session(candidate.path, reader.agent, project, len(data), found)


def seed_terms(text: str) -> list[str]:
    """Return every term of `text` under profile `seed`, in order."""
    terms = [term for raw in raw_tokens(text) for term in meaning(raw, "seed").terms]
    return [term.decode() for term in terms]
