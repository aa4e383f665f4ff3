"""A search without an index, as history tools without one do it, beside a daemon that has one.

For each query the scan reads every session file, parses every line, tokenizes every text and
scores every document with BM25, in plain Python; answers are compared before times are.

    python tests/bench/history_scan.py [--corpus DIR] [--documents 190000]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterator

import corpus
import measure
from daemon import running

QUERIES = ("error", "failed build", "import data request", "the file error")
WORD = re.compile(r"[a-z0-9_]+|[\u4e00-\u9fff]")
K1, B = 1.2, 0.75


def scan(home: str, query: str) -> tuple[int, float]:
    """Return how many documents match and the best score, from the files alone."""
    wanted = list(dict.fromkeys(WORD.findall(query.lower())))
    freqs: list[tuple[Counter[str], int]] = []
    doc_freqs: Counter[str] = Counter()
    count = tokens = 0
    for text in said(home):
        words = WORD.findall(text.lower())
        if not words:
            continue
        count, tokens = count + 1, tokens + len(words)
        counts = Counter(words)
        held = Counter({word: counts[word] for word in wanted if word in counts})
        if held:
            doc_freqs.update(held.keys())
            freqs.append((held, len(words)))
    best = 0.0
    for held, length in freqs:
        norm = K1 * (1 - B + B * length * count / tokens)
        best = max(best, sum(
            math.log(1 + (count - doc_freqs[word] + 0.5) / (doc_freqs[word] + 0.5))
            * freq * (K1 + 1) / (freq + norm)
            for word, freq in held.items()
        ))  # fmt: skip
    return len(freqs), best


def said(home: str) -> Iterator[str]:
    """Yield what users, assistants and tools said in the Claude Code sessions below `home`."""
    for directory, _, names in os.walk(home):
        for name in sorted(names):
            if name.endswith(".jsonl"):
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    for line in file:
                        yield from texts(json.loads(line))


def texts(record: dict[str, object]) -> Iterator[str]:
    """Yield the texts of a record that are searched when nothing else is asked for."""
    message = record.get("message")
    if record.get("isMeta") or not isinstance(message, dict):
        return
    names: dict[str, str] = {}
    for block in message["content"]:
        if block["type"] == "text":
            yield block["text"]
        elif block["type"] == "tool_use":
            names[block["id"]] = block["name"]
            pairs = [word for pair in block["input"].items() for word in pair]
            yield " ".join([block["name"], *pairs])


def main() -> None:
    """Ask the files and the daemon the same, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--documents", type=int, default=150_000, help="about 100 MB of files")
    parser.add_argument("--rounds", type=int, default=50, help="of each query, to the daemon (50)")
    parser.add_argument("--work", help="keep the corpus and the cache here")
    arguments = parser.parse_args()
    with measure.workplace(arguments.work) as work:
        home = os.path.join(work, "claude")
        if not os.path.exists(home):
            # One agent, so that the scan needs to know one format.
            corpus.AGENTS = (("claude", 1.0),)
            print(corpus.write(home, arguments.documents, 1))
        rows: list[list[object]] = []
        with running(home, work) as daemon, daemon.client() as client:
            daemon.wait_indexed(client)
            kinds = ["user_text", "assistant_text", "tool_input"]
            for query in QUERIES:
                began = time.perf_counter()
                total, best = scan(home, query)
                scanned = 1000 * (time.perf_counter() - began)
                took = []
                for _ in range(arguments.rounds):
                    began = time.perf_counter()
                    answer = client.search(query, kinds=kinds, limit=10)
                    took.append(1000 * (time.perf_counter() - began))
                same = answer["total"] == total and abs(answer["hits"][0]["score"] - best) < 1e-9
                if not same:
                    raise SystemExit(f"{query}: {total}, {best} against {answer['total']}")
                asked = measure.median(took)
                rows.append([query, total, scanned, asked, scanned / asked])
        print(measure.table(["query", "matches", "scan ms", "indexd ms", "scan / indexd"], rows))
        print(f"load {measure.load()}")


if __name__ == "__main__":
    main()
