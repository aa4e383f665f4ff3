"""How well tool search finds the right tool, beside plain BM25 on the same tokens.

    python tests/bench/tool_ranking.py DIRECTORY        (or INDEXD_TOOL_BENCH=DIRECTORY)

DIRECTORY holds `catalog/<server>.json` ({server, tools}), `queries.jsonl` ({query, tools, cat}),
`queries-negative.jsonl`, and pairs of `public-<set>-tools.jsonl` and `public-<set>.jsonl`.
A question is answered when any of its tools is among the first k; figures are those of the
whole answer, after the cut of weak matches. Needs `bm25s` for the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from indexd.tool import Tool
from indexd.tool_analysis import FIELDS, texts
from indexd.tool_search import ToolSearch
from indexd.tool_text import squeeze, terms

DEPTH = 10
Search = Callable[[str], Sequence[str]]


def main() -> int:
    """Print the tables; the exit status says whether every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", default=os.environ.get("INDEXD_TOOL_BENCH"))
    parser.add_argument("--sensitivity", action="store_true", help="also vary the weights")
    options = parser.parse_args()
    directory = options.directory
    if not directory:
        parser.error("give the directory of catalogs and queries")
    data = Path(directory)
    ours = load_catalogs(data / "catalog")
    print(f"{len(list(ours.catalog.tools()))} tools of {len(ours.catalog.servers)} servers")
    queries = read_lines(data / "queries.jsonl")
    figures = compare("queries", ours, queries)
    met = [
        check("hit@1", figures["all"][0], 0.75),
        check("hit@5", figures["all"][1], 0.88),
        check("ids hit@1", figures["id"][0], 1.0),
        check("names hit@1", figures["name"][0], 1.0),
        negatives(ours, read_lines(data / "queries-negative.jsonl")),
        public(data, "mcpproxy", "mcpproxy", 0.80),
        public(data, "livemcp", "livemcp-steps", None),
        latency(ours, [q["query"] for q in queries]),
    ]
    if options.sensitivity:
        sensitivity(data, queries)
    return 0 if all(met) else 1


def load_catalogs(directory: Path) -> ToolSearch:
    """Return tool search over every catalog file of `directory`."""
    search = ToolSearch()
    for path in sorted(directory.glob("*.json")):
        catalog = json.loads(path.read_bytes())
        connect(search, catalog["server"], catalog["tools"])
    return search


def load_public(path: Path) -> ToolSearch:
    """Return tool search over the tools of a public set, one JSON tool per line."""
    by_server: dict[str, list[Any]] = defaultdict(list)
    for tool in read_lines(path):
        by_server[tool["server"]].append(tool)
    search = ToolSearch()
    for server, tools in by_server.items():
        connect(search, server, tools)
    return search


def connect(search: ToolSearch, server: str, tools: list[Any]) -> None:
    """Tell `search` that a server is there."""
    search.apply({"event": "connected", "server": server, "tools": tools})


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON records of a file, one per line."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def plain_bm25(tools: Sequence[Tool]) -> Search:
    """Return plain BM25 over all the texts of each tool, tokenised as ours are."""
    retriever = bm25s.BM25(k1=1.2, b=0.75)
    corpus = [terms("\n".join([squeeze(tool.name), *texts(tool)])) for tool in tools]
    retriever.index(corpus, show_progress=False)
    known = {term for document in corpus for term in document}

    def search(query: str) -> list[str]:
        asked = [term for term in terms(query) if term in known]
        if not asked:
            return []
        found, scores = retriever.retrieve([asked], k=min(DEPTH, len(tools)), show_progress=False)
        pairs = zip(found[0], scores[0], strict=True)
        return [tools[int(i)].id for i, score in pairs if score > 0]

    return search


def with_ours(search: ToolSearch) -> Search:
    """Return our search as a function from a question to ids."""

    def find(query: str) -> list[str]:
        answer = search.search(query=query, max_results=DEPTH)
        return [tool["tool_id"] for tool in answer["tools"]]

    return find


def compare(
    title: str, ours: ToolSearch, queries: list[dict[str, Any]]
) -> dict[str, tuple[float, ...]]:
    """Print hit@1, hit@5, MRR by category for both; return ours by category and for `all`."""
    mine = score(with_ours(ours), queries)
    plain = score(plain_bm25(list(ours.catalog.tools())), queries)
    print(f"\n{title:16} {'n':>5}   indexd hit@1 hit@5   MRR    plain hit@1 hit@5   MRR")
    for category, figures in mine.items():
        count = sum(category in ("all", q.get("cat", "all")) for q in queries)
        left = "  ".join(f"{value:.3f}" for value in figures)
        right = "  ".join(f"{value:.3f}" for value in plain[category])
        print(f"  {category:14} {count:>5}         {left}         {right}")
    return mine


def score(search: Search, queries: Iterable[dict[str, Any]]) -> dict[str, tuple[float, ...]]:
    """Return (hit@1, hit@5, MRR) by category and for `all`."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for query in queries:
        found = search(query["query"])
        rank = next((i for i, id in enumerate(found, 1) if id in query["tools"]), 0)
        for category in {query.get("cat", "all"), "all"}:
            ranks[category].append(rank)
    return {category: figures(values) for category, values in sorted(ranks.items())}


def figures(ranks: list[int]) -> tuple[float, ...]:
    """Return hit@1, hit@5 and MRR of ranks from 1; 0 is a miss."""
    hit = [sum(0 < rank <= k for rank in ranks) / len(ranks) for k in (1, 5)]
    return (*hit, sum(1 / rank for rank in ranks if rank) / len(ranks))


def negatives(ours: ToolSearch, queries: list[dict[str, Any]]) -> bool:
    """Print what questions without an answer get; more than one flagged guess is a failure."""
    print("\nquestions that no tool answers")
    good = True
    for query in queries:
        answer = ours.search(query=query["query"])
        ids = [tool["tool_id"] for tool in answer["tools"]]
        flagged = any(warning.startswith("a guess") for warning in answer["warnings"])
        good &= not ids or (len(ids) == 1 and flagged)
        said = f"{', '.join(ids)} (a guess)" if flagged else ", ".join(ids) or "-"
        print(f"  {query['query'][:44]:44} {said}")
    return good


def public(data: Path, tools: str, queries: str, target: float | None) -> bool:
    """Print a public set's figures; recall@5 counts the share of a question's right tools."""
    search = load_public(data / f"public-{tools}-tools.jsonl")
    asked = read_lines(data / f"public-{queries}.jsonl")
    compare(queries, search, asked)
    find = with_ours(search)
    shares = [len(set(find(q["query"])[:5]) & set(q["tools"])) / len(q["tools"]) for q in asked]
    primary = [q for q in asked if q.get("primary")]
    if primary:
        found = sum(bool(set(find(q["query"])[:5]) & set(q["primary"])) for q in primary)
        print(f"  recall@5 of primary tools  {found / len(primary):.3f}")
    recall = sum(shares) / len(shares)
    return check("recall@5", recall, target) if target else True


def latency(ours: ToolSearch, queries: list[str]) -> bool:
    """Print p50 and p99 of whole searches, warm, and how fast the biggest server is renewed.

    Time is CPU time, which other work on the machine leaves alone; wall time is shown beside.
    """
    times = np.array([timed(lambda q=q: ours.search(query=q)) for q in queries * 5])
    warm = times[len(queries) :]
    (p50, wall50), (p99, wall99) = np.percentile(warm, [50, 99], axis=0)
    print(f"\nsearch p50 {p50:.2f} ms, p99 {p99:.2f} ms (wall {wall50:.2f} and {wall99:.2f})")
    big = max(ours.catalog.servers.values(), key=lambda server: len(server.tools))
    raw = [
        {"name": t.name, "description": t.description, "inputSchema": t.input_schema()}
        for t in big.tools.values()
    ]
    event = {"event": "tools_changed", "server": big.name}
    everything, _ = timed(lambda: ours.apply({**event, "tools": raw}))
    one, _ = timed(lambda: ours.apply({**event, "tools": [*raw, {"name": "one_more"}]}))
    print(f"{len(raw)} tools renewed in {everything:.0f} ms, one more in {one:.0f} ms")
    return check("p99 ms", -p99, -5.0)


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Return how many milliseconds of CPU and of wall time `action` took."""
    wall, cpu = time.perf_counter(), time.thread_time()
    action()
    return (time.thread_time() - cpu) * 1000, (time.perf_counter() - wall) * 1000


def sensitivity(data: Path, queries: list[dict[str, Any]]) -> None:
    """Print what halving and doubling each field's weight does: weights that were fitted to
    the labels would show it."""
    print("\nweights        halved hit@1 hit@5   doubled hit@1 hit@5")
    for name, field in list(FIELDS.items()):
        row = []
        for factor in (0.5, 2):
            FIELDS[name] = field._replace(weight=field.weight * factor)
            hit1, hit5, _ = score(with_ours(load_catalogs(data / "catalog")), queries)["all"]
            row.append(f"{hit1:.3f} {hit5:.3f}")
        FIELDS[name] = field
        print(f"  {name:16}    {row[0]}          {row[1]}")


def check(name: str, value: float, target: float) -> bool:
    """Print whether `value` reaches `target`, and return it."""
    met = value >= target
    print(f"  {name} {abs(value):.3f} (target {abs(target):g}): {'met' if met else 'MISSED'}")
    return met


if __name__ == "__main__":
    sys.exit(main())
