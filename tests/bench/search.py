"""How long a search takes: indexd's engine beside tantivy and SQLite FTS5, and through the socket.

All engines hold the same documents and terms and are asked the same OR queries for ten hits, in
turn, query by query, so that what else the machine does weighs on all alike. Every answer is first
compared with brute force.

    python tests/bench/search.py --corpus DIR
    python tests/bench/search.py --corpus DIR --socket
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any

import brute
import measure
import numpy as np
from daemon import Daemon, running
from engines import Fts5, Ours, Query, Tantivy

from indexd.client import Client
from indexd.model import DEFAULT_KINDS, KINDS, Kind

# Document frequencies: absolute, or a share of all documents.
RARE, MEDIUM, COMMON, VERY = "rare", "medium", "common", "very common"
MIXES: dict[str, tuple[str, ...]] = {
    "1 rare": (RARE,),
    "2 rare": (RARE,) * 2,
    "4 rare": (RARE,) * 4,
    "1 medium": (MEDIUM,),
    "3 medium": (MEDIUM,) * 3,
    "1 common": (COMMON,),
    "2 common": (COMMON,) * 2,
    "1 very common": (VERY,),
    "2 very common": (VERY,) * 2,
    "rare + very common": (RARE, VERY),
    "medium + common + very": (MEDIUM, COMMON, VERY),
    "8, two of each": (RARE, RARE, MEDIUM, MEDIUM, COMMON, COMMON, VERY, VERY),
}
CJK = [chr(0x4E00 + rank * 7 % 6000) for rank in range(300)]
# The slower an engine, the fewer of the rounds it takes part in.
EVERY = {"indexd": 1, "tantivy": 1, "tantivy, count, ids": 1, "FTS5": 8}


class Words:
    """Draws terms of a corpus by how common they are, and sentences out of its documents."""

    def __init__(self, ours: Ours, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        [part] = ours.index.snapshot.parts
        self._segment = part.segment
        freqs = np.diff(self._segment.postings.starts)
        size = len(self._segment)
        bounds = {
            RARE: (2, 20), MEDIUM: (0.0005 * size, 0.005 * size),
            COMMON: (0.01 * size, 0.1 * size), VERY: (0.2 * size, size),
        }  # fmt: skip
        self._at = {
            name: np.flatnonzero((freqs >= low) & (freqs < high))
            for name, (low, high) in bounds.items()
        }
        self._shares = np.cumsum(freqs) / freqs.sum()

    def mix(self, mix: Sequence[str]) -> tuple[str, ...]:
        """Return a term of each of some classes."""
        terms = [self._ascii(lambda name=name: self._rng.choice(self._at[name])) for name in mix]
        return tuple(dict.fromkeys(terms))

    def sentence(self) -> tuple[str, ...]:
        """Return five to eight words, as often as documents hold them."""
        count = int(self._rng.integers(5, 9))
        draw = lambda: self._shares.searchsorted(self._rng.random())  # noqa: E731
        return tuple(dict.fromkeys(self._ascii(draw) for _ in range(count)))

    def cjk(self) -> tuple[str, ...]:
        """Return two to four characters."""
        count = int(self._rng.integers(2, 5))
        return tuple(map(str, self._rng.choice(CJK, count, replace=False)))

    def _ascii(self, draw: Callable[[], Any]) -> str:
        while not (term := self._segment.dictionary.term(int(draw()))).isascii():
            pass
        return term.decode()


def queries(ours: Ours, count: int, seed: int) -> list[Query]:
    """Return `count` queries of each group."""
    words = Words(ours, seed)
    projects = sorted({facts.cwd for facts in ours.index.snapshot.files.values()})
    found = []
    for number in range(count):
        for group, mix in MIXES.items():
            found.append(Query(group, words.mix(mix)))
        found.append(Query("5 to 8 words", words.sentence()))
        found.append(Query("2 to 4 CJK", words.cjk()))
        found.append(Query("5 to 8 words, 4 kinds", words.sentence(), DEFAULT_KINDS))
        found.append(Query("5 to 8 words, user", words.sentence(), (Kind.USER_TEXT,)))
        project = projects[number * 7 % len(projects)]
        found.append(Query("5 to 8 words, a project", words.sentence(), KINDS, project))
    return found


def check(home: str, ours: Ours, tantivy: Tantivy, asked: Sequence[Query]) -> None:
    """Compare every answer with brute force, and end the run if any differs."""
    truth = brute.Truth(home, asked)
    for query in asked:
        right, total = truth.answer(query)
        found = ours.rank(query)
        scores = [hit.score for hit in found.ranked]
        mine = list(zip(ours.places(found), scores, strict=True))
        wrong = brute.differences(mine, right)
        if wrong or found.total != total:
            raise SystemExit(f"{query}: {found.total} matched, {total} do; {wrong[:3]}")
        if (counted := tantivy.answer(tantivy.search(query)).total) != total:
            raise SystemExit(f"{query}: tantivy counts {counted}, {total} match")
    print(f"{len(asked)} answers equal those of brute force (order, scores, totals)\n")


def time_engines(
    engines: dict[str, Callable[[Query], object]], asked: Sequence[Query], rounds: int
) -> dict[str, dict[Query, list[float]]]:
    """Return the milliseconds that each engine took for each query, each time."""
    names = list(engines)
    took: dict[str, dict[Query, list[float]]] = {name: {q: [] for q in asked} for name in names}
    for number in range(rounds):
        for query in asked:
            names.append(names.pop(0))
            for name in names:
                if number % EVERY[name] == 0:
                    began = time.perf_counter()
                    engines[name](query)
                    took[name][query].append((time.perf_counter() - began) * 1000)
    return took


def report(took: dict[str, dict[Query, list[float]]], asked: Sequence[Query]) -> None:
    """Print medians, 99th percentiles and ratios by group."""
    ours, *others = took
    rows: list[list[object]] = []
    ratios: dict[str, list[float]] = {name: [] for name in others}
    for group in dict.fromkeys(query.group for query in asked):
        mine = [query for query in asked if query.group == group]
        row: list[object] = [group]
        for name in took:
            times = [each for query in mine for each in took[name][query]]
            row += [measure.median(times), measure.quantile(times, 0.99)]
        for name in others:
            here = [
                measure.median(took[ours][query]) / measure.median(took[name][query])
                for query in mine
            ]
            ratios[name] += here
            row.append(measure.geometric_mean(here))
        rows.append(row)
    overall: list[object] = ["geometric mean", *[""] * (2 * len(took))]
    rows.append(overall + [measure.geometric_mean(ratios[name]) for name in others])
    header = ["query", *(f"{name} {q}" for name in took for q in ("p50", "p99"))]
    print(measure.table([*header, *(f"/ {name}" for name in others)], rows))


def in_process(home: str, work: str, arguments: argparse.Namespace) -> None:
    """Compare the engines inside this process."""
    before = measure.rss_mb()
    ours = Ours(home, work)
    loaded = measure.rss_mb()
    tantivy, counting = Tantivy(home, work), Tantivy(home, work, counting=True)
    fts5 = Fts5(home, work)
    asked = queries(ours, arguments.queries, arguments.seed)
    [part] = ours.index.snapshot.parts
    print(
        f"{len(part.segment):,} documents, {len(part.segment.dictionary):,} terms, "
        f"{int(part.segment.postings.starts[-1]):,} postings, load {measure.load()}"
    )
    if arguments.check:
        check(home, ours, counting, asked)
    engines: dict[str, Callable[[Query], object]] = {
        "indexd": ours.rank,
        "tantivy": lambda query: tantivy.search(query).hits,
        "tantivy, count, ids": lambda query: counting.answer(counting.search(query)),
        "FTS5": fts5.search,
    }
    time_engines(engines, asked, 1)
    start = measure.rss_mb()
    for query in asked:
        ours.rank(query)
    print(f"indexd: {loaded - before:.0f} MB resident when loaded, {start - loaded:.0f} more")
    report(time_engines(engines, asked, arguments.rounds), asked)


def through_socket(home: str, work: str, arguments: argparse.Namespace) -> None:
    """Ask a real daemon, with snippets, by one client and by several at once."""
    with running(home, work) as daemon, daemon.client() as client:
        began = time.perf_counter()
        status = daemon.wait_indexed(client)
        print(
            f"{status['documents']:,} documents in {status['files']:,} files, "
            f"ready after {time.perf_counter() - began:.1f} s, {status['rss_bytes'] / 1e6:.0f} MB"
        )
        asked = queries(Ours(home, work), arguments.queries, arguments.seed)
        ask_all(daemon.socket, asked, True)  # warm
        rows = []
        for clients in (1, arguments.clients):
            for sync in (True, False):
                took = _by_clients(daemon, asked, clients, arguments.rounds, sync)
                flat = [ms for _, times in took for ms in times]
                rows.append([
                    clients, "yes" if sync else "no", measure.median(flat),
                    measure.quantile(flat, 0.99), len(flat) / max(s for s, _ in took),
                ])  # fmt: skip
        print(measure.table(["clients", "sync", "p50 ms", "p99 ms", "queries/s"], rows))
        print(f"daemon: {measure.rss_mb(daemon.pid):.0f} MB, load {measure.load()}")


def _by_clients(
    daemon: Daemon, asked: Sequence[Query], clients: int, rounds: int, sync: bool
) -> list[tuple[float, list[float]]]:
    if clients == 1:
        return [ask_all(daemon.socket, list(asked) * rounds, sync)]
    with multiprocessing.get_context("spawn").Pool(clients) as pool:
        share = max(1, rounds // 4)
        return pool.starmap(ask_all, [(daemon.socket, list(asked) * share, sync)] * clients)


def ask_all(socket: str, asked: Sequence[Query], sync: bool) -> tuple[float, list[float]]:
    """Return the seconds that all queries took, and the milliseconds of each."""
    took = []
    with Client(socket, timeout=60) as client:
        began = time.perf_counter()
        for query in asked:
            kinds = [str(kind) for kind in query.kinds]
            start = time.perf_counter()
            if query.project:
                client.search(
                    " ".join(query.terms), kinds=kinds, limit=10, sync=sync,
                    scope="project", project=query.project,
                )  # fmt: skip
            else:
                client.search(" ".join(query.terms), kinds=kinds, limit=10, sync=sync)
            took.append((time.perf_counter() - start) * 1000)
    return time.perf_counter() - began, took


def main() -> None:
    """Run the comparison in this process, or with `--socket` through a daemon."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--corpus", required=True, help="a directory written by corpus.py")
    parser.add_argument("--work", help="keep the indexes here and use them again")
    parser.add_argument("--queries", type=int, default=6, metavar="N", help="of each group (6)")
    parser.add_argument("--rounds", type=int, default=24, metavar="N", help="of each query (24)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--socket", action="store_true", help="ask a real daemon")
    parser.add_argument("--clients", type=int, default=8, help="at once, with --socket (8)")
    parser.add_argument(
        "--no-check", dest="check", action="store_false", help="do not compare with brute force"
    )
    arguments = parser.parse_args()
    with measure.workplace(arguments.work) as work:
        run = through_socket if arguments.socket else in_process
        run(arguments.corpus, work, arguments)


if __name__ == "__main__":
    main()
