"""Does search find what people remember of their sessions?

    PYTHONPATH=. python tests/bench/session_ranking.py HOME [HOME ...] [--compare A B]

Makes known-item queries from the sessions below HOME and asks them of both profiles, of each step
of the ladder that leads from one to the other, of SQLite FTS5 and of tantivy, on the same
documents. Prints mean reciprocal rank (hits at 1 and at 5, in percent) per set, for the half the
formula was chosen on (dev) and the half it was not (held), and for each step the paired gain over
the one before, with 95 % intervals over clusters of alike sessions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from ranking_home import Home, Key, read_home
from ranking_peers import Engine, Fts5, Tantivy
from ranking_sets import MESSAGE_SETS, SESSION_SETS, Query, make_queries

from indexd.index import Snapshot
from indexd.model import DEFAULT_KINDS, KINDS
from indexd.ordering import Order
from indexd.plan import FORMULAS, Formula, plan
from indexd.ranking import rank
from indexd.selection import Selection
from indexd.text import Profile

# How deep an engine is asked, in documents; what lies deeper counts as not found.
DEPTH = 300
RESAMPLES = 2000


class Run(NamedTuple):
    """The reciprocal ranks of one engine, parallel to the queries."""

    name: str
    reciprocal: np.ndarray


class Indexd:
    """indexd's own ranking over a snapshot whose file ids are session numbers."""

    def __init__(self, snapshot: Snapshot, profile: Profile, formula: Formula) -> None:
        self._snapshot, self._profile, self._formula = snapshot, profile, formula

    def keys(self, query: str, grouped: bool) -> list[Key]:
        """Return the keys of the best documents, best first, or of the best of each session."""
        terms = plan(query, self._profile, self._formula)
        order = Order(self._formula, relative_score=0.0, grouped=grouped)
        found = rank(self._snapshot, terms, Selection(DEFAULT_KINDS), order, DEPTH)
        return [_key(r.facts.file_id, r.part.segment, r.ordinal) for r in found.ranked]


def _key(session, segment, ordinal) -> Key:
    kind = KINDS[int(segment.kind_ranks(np.array([ordinal]))[0])]
    return Key(session, int(segment.columns.message[ordinal]), kind)


class Peer:
    """Another engine over the same documents."""

    def __init__(self, engine: Engine, keys: Sequence[Key]) -> None:
        self._engine, self._keys = engine, keys

    def keys(self, query: str, grouped: bool) -> list[Key]:
        """Return the keys of the best documents, best first; these know nothing of sessions."""
        return [self._keys[number] for number in self._engine.best(query, DEPTH)]


def ladder() -> dict[str, Formula]:
    """Return the formula of each step; it adds to the one before, and the last is `code`."""
    full = FORMULAS["code"]
    steps = {
        "sum": {},
        "stop words": {"stop_words": full.stop_words},
        "coverage": {"coverage": full.coverage},
        "stems": {"stems": full.stems},
        "session coverage": {"session_coverage": full.session_coverage},
        "joined": {"joined": full.joined},
        "code": {"second": full.second},
    }
    formulas, formula = {}, Formula()
    for name, step in steps.items():
        formula = formula._replace(**step)
        formulas[name] = formula
    return formulas


def engines(home: Home) -> dict[str, Callable[[str, bool], list[Key]]]:
    """Return what ranks the keys of documents, or of sessions' best, for a query, by name."""
    seed, code = home.snapshot("seed"), home.snapshot("code")
    keys = [key for key, _ in home.searched]
    texts = [text for _, text in home.searched]
    own = {"seed": Indexd(seed, "seed", FORMULAS["seed"])}
    own |= {name: Indexd(code, "code", formula) for name, formula in ladder().items()}
    peers = {
        "fts5": Fts5("unicode61", texts),
        "fts5 porter": Fts5("porter unicode61", texts),
        "tantivy": Tantivy("default", texts),
        "tantivy stem": Tantivy("en_stem", texts),
    }
    found = {name: engine.keys for name, engine in own.items()}
    return found | {name: Peer(engine, keys).keys for name, engine in peers.items()}


def reciprocal_rank(query: Query, keys: Iterable[Key]) -> float:
    """Return 1 / rank of the first right answer, 0 if there is none.

    A session stands where the first of its documents stands.
    """
    if query.keys:
        order, right = list(dict.fromkeys(keys)), query.keys
    else:
        order, right = list(dict.fromkeys(key.session for key in keys)), query.sessions
    return next((1 / place for place, each in enumerate(order, 1) if each in right), 0.0)


class Table:
    """The queries and what each engine made of them."""

    def __init__(self, queries: Sequence[Query], runs: Mapping[str, np.ndarray]) -> None:
        self.queries, self.runs = queries, runs
        self.sets = np.array([query.set for query in queries])
        self.held = np.array([query.held for query in queries])
        self.clusters = np.array([query.cluster for query in queries])

    def rows(self, name: str, half: str) -> np.ndarray:
        """Return which queries are of a set, in a half (`dev`, `held` or `all`)."""
        mine = self.sets == name
        return mine if half == "all" else mine & (self.held == (half == "held"))

    def line(self, engine: str, half: str) -> str:
        """Return the figures of an engine: one column per set, then the two means."""
        cells, means = [], []
        for level in (SESSION_SETS, MESSAGE_SETS):
            values = []
            for name in level:
                found = self.runs[engine][self.rows(name, half)]
                cells.append(_cell(found))
                values += [found.mean()] if len(found) else []
            means.append(f"{np.mean(values):.3f}" if values else "-")
        return "".join(f"{cell:>15}" for cell in (*cells, *means))

    def gain(self, before: str, after: str, half: str) -> str:
        """Return the paired gain per set and in the two means, with intervals over clusters."""
        difference = self.runs[after] - self.runs[before]
        cells = [_interval(self._resampled(difference, (n,), half)) for n in _SETS]
        means = [_interval(self._resampled(difference, s, half)) for s in _LEVELS]
        return "".join(f"{cell:>21}" for cell in (*cells, *means))

    def _resampled(
        self, difference: np.ndarray, sets: Sequence[str], half: str
    ) -> np.ndarray | None:
        """Return the mean over sets of mean differences: as it is, then resampled."""
        chance = np.random.default_rng(7)
        masks = [mask for mask in (self.rows(name, half) for name in sets) if mask.any()]
        if not masks:
            return None
        numbers, groups = np.unique(self.clusters, return_inverse=True)
        draws = chance.multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), RESAMPLES)
        draws = np.vstack([np.ones(len(numbers), np.int64), draws])
        means = []
        for mask in masks:
            sums = np.bincount(groups[mask], difference[mask], len(numbers))
            sizes = np.bincount(groups[mask], minlength=len(numbers))
            means.append(draws @ sums / np.maximum(draws @ sizes, 1))
        return np.mean(means, axis=0)


_SETS = (*SESSION_SETS, *MESSAGE_SETS)
_LEVELS = (SESSION_SETS, MESSAGE_SETS)


def _cell(found: np.ndarray) -> str:
    if not len(found):
        return "-"
    return f"{found.mean():.3f} ({100 * (found == 1).mean():.0f}/{100 * (found >= 0.2).mean():.0f})"


def _interval(values: np.ndarray | None) -> str:
    if values is None:
        return "-"
    low, high = np.quantile(values[1:], (0.025, 0.975))
    mark = "*" if low > 0 or high < 0 else " "
    return f"{values[0]:+.3f}{mark}[{low:+.3f},{high:+.3f}]"


def measure(home: Home) -> Table:
    """Ask every query of every engine."""
    queries = make_queries(home)
    runs = {}
    for name, keys in engines(home).items():
        began = time.perf_counter()
        runs[name] = np.array([reciprocal_rank(q, keys(q.text, not q.keys)) for q in queries])
        print(f"{name:18}{1000 * (time.perf_counter() - began) / len(queries):8.2f} ms a query")
    return Table(queries, runs)


def report(table: Table, pairs: Sequence[tuple[str, str]]) -> None:
    """Print the figures of every engine and the gains of `pairs`."""
    heads = [*_SETS, "sessions", "messages"]
    for half in ("dev", "held", "all"):
        counts = {name: int(table.rows(name, half).sum()) for name in _SETS}
        print(f"\n{half}: {', '.join(f'{n} {counts[n]}' for n in _SETS)}")
        print(f"{'':18}" + "".join(f"{head:>15}" for head in heads))
        for engine in table.runs:
            print(f"{engine:18}{table.line(engine, half)}")
    for half in ("dev", "held", "all"):
        print(f"\ngain, {half}\n{'':36}" + "".join(f"{head:>21}" for head in heads))
        for before, after in pairs:
            print(f"{before + ' -> ' + after:36}{table.gain(before, after, half)}")


def main() -> None:
    """Run the whole test."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("home", nargs="+", help="a directory of real sessions")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), action="append", default=[])
    arguments = parser.parse_args()
    home = read_home(arguments.home)
    print(f"{len(home.sessions)} sessions, {len(home.searched)} documents, "
          f"{len(set(home.clusters))} clusters of alike sessions")  # fmt: skip
    table = measure(home)
    steps = [*pairwise(("seed", *ladder())), ("fts5", "code"), ("tantivy", "code")]
    report(table, [tuple(pair) for pair in arguments.compare] or steps)


if __name__ == "__main__":
    main()
