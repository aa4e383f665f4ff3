"""Conformance: searches of an agent's own history tool come back hit by hit, score by score."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexd.build import Entry, build
from indexd.index import FileFacts, Index, merge_parts
from indexd.model import DEFAULT_KINDS, KINDS, Document, Kind
from indexd.ordering import Order, Ranked
from indexd.plan import QueryTerm
from indexd.ranking import rank
from indexd.selection import FileFilter, Selection
from indexd.text import query_terms
from tests.cutting import snippet

DATA = Path(__file__).parent / "data" / "conformance" / "reasonix"
CASES: list[dict[str, Any]] = json.loads((DATA / "expected.json").read_bytes())["cases"]
SOURCES = ("project", "global", "archive")
Shown = dict[tuple[str, int, Kind, int], tuple[str, Document]]


def message_documents(message: dict[str, Any], index: int) -> Iterator[Document]:
    """Yield the documents of a checkpoint line as the history tool divides it."""
    content, name = (message.get("content") or "").strip(), message.get("name", "")
    match message["role"]:
        case "user":
            yield Document(Kind.USER_TEXT, content, index)
        case "assistant":
            yield Document(Kind.ASSISTANT_TEXT, content, index)
            for number, call in enumerate(message.get("tool_calls") or []):
                text = f"{call['name']} {call['arguments']}".strip()
                yield Document(Kind.TOOL_INPUT, text, index, call["name"], number)
        case "tool":
            lowered = content.lower()
            failed = lowered.startswith(("error:", "blocked:")) or "permission denied" in lowered
            kind = Kind.TOOL_ERROR if failed else Kind.TOOL_OUTPUT
            yield Document(kind, f"{name} {content}".strip(), index, name)


@pytest.fixture(scope="module")
def loaded() -> tuple[Index, Shown]:
    """Return the sessions as an index of several parts, and what its documents show."""
    index, shown = Index(), Shown()
    for source in SOURCES:
        for file in sorted((DATA / source).glob("*.jsonl")):
            path, file_id = f"{source}/{file.name}", len(index.snapshot.files)
            entries = []
            for number, line in enumerate(file.read_bytes().splitlines()):
                message = json.loads(line)
                for document in message_documents(message, number):
                    entries.append(Entry(file_id, document))
                    key = (path, number, document.kind, document.call)
                    shown[key] = message["role"], document
            facts = FileFacts(file_id, path, source, "reasonix")
            index.publish([build(entries, "seed")], [facts])
            while due := index.due():
                index.replace(due, merge_parts(due))
    return index, shown


def hit(ranked: Ranked, shown: Shown, query: str) -> dict[str, Any]:
    segment, at = ranked.part.segment, ranked.ordinal
    kind = KINDS[int(segment.kind_ranks(np.array([at]))[0])]
    message = int(segment.columns.message[at])
    role, document = shown[ranked.facts.path, message, kind, int(segment.columns.call[at])]
    return {
        "path": ranked.facts.path,
        "message_index": message,
        "kind": str(kind),
        "source": ranked.facts.source,
        "role": role,
        "tool_name": segment.tool_names[int(segment.columns.tool[at])],
        "score": ranked.score,
        "snippet": snippet(document.text, query, "seed", 240).text,
    }


def test_the_cases_are_all_there(loaded: tuple[Index, Shown]) -> None:
    assert len(CASES) == 83
    assert sum(len(case["hits"]) for case in CASES) == 697
    assert len(loaded[0].snapshot.files) == 90
    assert len(loaded[0].snapshot.parts) > 1


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{n}-{case['query'][:20]}" for n, case in enumerate(CASES)]
)
def test_a_search_gives_the_same_hits(case: dict[str, Any], loaded: tuple[Index, Shown]) -> None:
    index, shown = loaded
    selection = Selection(
        tuple(map(Kind, case["kind"])) or DEFAULT_KINDS,
        FileFilter("project", lambda facts: facts.source == "project")
        if case["scope"] == "project"
        else None,
        (case["tool_name"],) if case["tool_name"] else None,
    )
    terms = [QueryTerm((term,)) for term in query_terms(case["query"], "seed")]
    ranking = rank(index.snapshot, terms, selection, Order(), case["limit"])
    hits = [hit(ranked, shown, case["query"]) for ranked in ranking.ranked]
    wanted = [each | {"score": pytest.approx(each["score"], rel=1e-9)} for each in case["hits"]]
    assert hits == wanted
