"""The whole process of `indexctl query`, beside an empty Python and a grep over the raw files.

python tests/bench/client.py --corpus DIR
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import measure
from daemon import prepared, running

QUERIES = ("error", "failed build", "the file error")


def main() -> None:
    """Run each command again and again, in turn, and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--corpus", required=True, help="a directory of session files")
    parser.add_argument("--work", help="keep the cache here and use it again")
    parser.add_argument("--profile", choices=("seed", "code"), default="seed")
    parser.add_argument("--runs", type=int, default=20, help="of each command (20)")
    arguments = parser.parse_args()
    with measure.workplace(arguments.work) as work:
        with running(arguments.corpus, work, arguments.profile) as daemon:
            with daemon.client() as client:
                daemon.wait_indexed(client)
            environment = prepared(arguments.corpus, work, arguments.profile)
            took = time_all(commands(arguments.corpus), environment, arguments.runs)
        report(took)
        for name, flags in (("ten hits as text", ()), ("ten hits as JSON", ("--json",))):
            print(f"{name}: {answer_bytes(arguments, work, flags)} bytes")


def commands(corpus: str) -> dict[str, list[list[str]]]:
    """Return the commands to compare, each in a form per query."""
    python = [sys.executable]
    found: dict[str, list[list[str]]] = {
        "python -c pass": [[*python, "-c", "pass"]],
        "python -I -S -c pass": [[*python, "-I", "-S", "-c", "pass"]],
        "indexctl query": [query_command(text) for text in QUERIES],
        "indexctl query --json": [[*query_command(text), "--json"] for text in QUERIES],
    }
    if grep := shutil.which("rg"):
        found["rg -c -i -F"] = [[grep, "-uu", "-c", "-i", "-F", text, corpus] for text in QUERIES]
    if grep := shutil.which("grep"):
        found["grep -r -c -i -F"] = [
            [grep, "-r", "-c", "-i", "-F", "--", text, corpus] for text in QUERIES
        ]
    return found


def query_command(text: str) -> list[str]:
    """Return the command line of a query."""
    # As the installed script does, which imports nothing but the command line.
    script = "import sys; from indexd.cli import main; sys.exit(main())"
    return [sys.executable, "-c", script, "query", "--limit", "10", text]


def time_all(
    asked: Mapping[str, Sequence[list[str]]], environment: Mapping[str, str], runs: int
) -> dict[str, list[float]]:
    """Return the milliseconds of every run, the commands taking turns."""
    took: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(runs + 1):
        for name, forms in asked.items():
            slow = "grep" in name or name.startswith("rg")
            if slow and number > max(3, runs // 5):
                continue
            began = time.perf_counter()
            done = subprocess.run(
                forms[number % len(forms)], env=dict(environment), cwd="/tmp",
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
            )  # fmt: skip
            if done.returncode > 1:
                raise SystemExit(f"{name}: {done.stderr.decode()}")
            if number:  # the first run warms up
                took[name].append(1000 * (time.perf_counter() - began))
    return took


def report(took: Mapping[str, Sequence[float]]) -> None:
    """Print medians and what they are of an empty Python."""
    base = measure.median(took["python -c pass"])
    rows = [
        [name, measure.median(times), measure.quantile(times, 0.95), measure.median(times) / base]
        for name, times in took.items()
    ]
    print(measure.table(["process", "p50 ms", "p95 ms", "/ python -c pass"], rows))
    print(f"load {measure.load()}")


def answer_bytes(arguments: argparse.Namespace, work: str, flags: Sequence[str]) -> int:
    """Return how large an answer of ten hits is."""
    environment = prepared(arguments.corpus, work, arguments.profile)
    with running(arguments.corpus, work, arguments.profile):
        done = subprocess.run(
            [*query_command(QUERIES[1]), *flags],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    return len(done.stdout)


if __name__ == "__main__":
    main()
