"""Search by brute force: every file is read, every document is scored, nothing is remembered."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from indexd.extract import documents
from indexd.formats import following
from indexd.formats.registry import FORMATS, detect
from indexd.model import KINDS, Message, SessionState
from indexd.text import meaning, raw_tokens

K1, B, RELATIVE = 1.2, 0.75, 0.15


class Doc(NamedTuple):
    """One document and all that a filter may ask about it."""

    path: str
    agent: str
    session_id: str
    cwd: str
    parent: str
    subagent: bool
    source: str
    message_index: int
    kind: str
    call: int
    tool_name: str
    time: int
    terms: tuple[str, ...]


def home(roots: dict[str, str]) -> list[Doc]:
    """Return every document below the directories, which map to their labels."""
    found = []
    for top, source in roots.items():
        for directory, _, names in os.walk(top):
            for name in sorted(names):
                if name.endswith(".jsonl"):
                    found += _session(os.path.join(directory, name), source)
    return found


def _session(path: str, source: str) -> Iterator[Doc]:
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    reader, _ = detect(lines, path)
    assert reader is not None, path
    state, found = SessionState(), []
    for line in lines:
        for item in reader.read(line, state):
            assert isinstance(item, Message)
            state.timestamp = item.timestamp or state.timestamp
            found += [(doc, state.timestamp) for doc in documents(item, state.next_index)]
            state.next_index = following(item, state.next_index)
    facts = reader.path_facts(path) | state.facts
    mtime = os.stat(path).st_mtime_ns // 1_000_000
    for doc, time in found:
        terms = [t.decode() for raw in raw_tokens(doc.text) for t in meaning(raw, "seed").terms]
        if terms:
            yield Doc(
                path,
                reader.agent,
                facts["session_id"],
                facts.get("cwd", ""),
                facts.get("parent", ""),
                FORMATS[reader.agent].is_subagent(path, state, facts),
                source,
                doc.message_index,
                str(doc.kind),
                doc.call,
                doc.tool_name,
                time or mtime,
                tuple(terms),
            )


def search(
    docs: Sequence[Doc], query: Sequence[str], wanted: Callable[[Doc], bool]
) -> tuple[int, list[tuple[str, int, str, float]]]:
    """Return (total, hits) for distinct terms: hits are (path, message_index, kind, score)."""
    chosen = [doc for doc in docs if wanted(doc)]
    average = sum(len(doc.terms) for doc in chosen) / len(chosen) if chosen else 1.0
    idfs = {term: _idf(len(chosen), sum(term in doc.terms for doc in chosen)) for term in query}
    scored: list[tuple[float, Doc]] = []
    for doc in chosen:
        freqs = Counter(doc.terms)
        if any(freqs[term] for term in query):
            norm = K1 * (1 - B + B * len(doc.terms) / average)
            score = sum(
                idfs[term] * freqs[term] * (K1 + 1) / (freqs[term] + norm) for term in query
            )
            scored.append((score, doc))
    scored.sort(key=lambda pair: _key(*pair))
    top = max((score for score, _ in scored), default=0.0)
    hits = [
        (doc.path, doc.message_index, doc.kind, score)
        for score, doc in scored
        if score >= RELATIVE * top
    ]
    return len(scored), hits


def _idf(documents: int, doc_freq: int) -> float:
    return math.log(1 + (documents - doc_freq + 0.5) / (doc_freq + 0.5))


def _key(score: float, doc: Doc) -> tuple[Any, ...]:
    kind = [str(kind) for kind in KINDS].index(doc.kind)
    # Sums of the same numbers in another order differ in their last bits.
    return (-round(score, 9), doc.path.encode(), doc.message_index, kind, doc.call)
