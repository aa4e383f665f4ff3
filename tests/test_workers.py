"""What may befall worker processes, and that it befalls nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexd import finding, worker, workers
from indexd.attending import Task
from indexd.confine import RootDirectory
from indexd.finding import OpenRoot
from indexd.roots import Root
from tests.living import living, settings

# Says that it is ready, and dies of whatever it is asked.
MORTAL = "import sys; sys.stdout.buffer.write(bytes(8)); sys.stdout.flush(); sys.stdin.read(1)"

# Dies of its first order, but for the third and later workers of all.
UNLUCKY = """
import os, runpy, sys
for number in range(2):
    try:
        os.mkdir(f"{sys.argv[1]}/{number}")
    except FileExistsError:
        continue
    sys.stdout.buffer.write(bytes(8)), sys.stdout.flush(), sys.stdin.read(1), sys.exit(1)
runpy.run_module("indexd.worker", run_name="__main__")
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wo") as directory:
        (Path(directory) / "sessions").mkdir()
        yield Path(directory)


def said(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text}).encode() + b"\n"


def test_a_root_that_vanished_costs_its_files_and_not_the_worker(home: Path) -> None:
    tasks = []
    for name in ("gone", "here"):
        (home / name).mkdir()
        (home / name / "a.jsonl").write_bytes(said("jabuticaba"))
        root = OpenRoot(Root(str(home / name)), RootDirectory(str(home / name)))
        tasks += [Task(found, None, 1, "code") for found in finding.sweep([root])]
    (home / "gone").rename(home / "elsewhere")

    done = subprocess.run(
        [sys.executable, "-m", "indexd.worker"],
        input=worker.order(tasks),
        capture_output=True,
        check=True,
    )

    body = done.stdout[len(worker.READY) + worker.HEADER.size :]
    gone, here = worker.result(body).reads
    assert gone.record is None
    assert "gone" in gone.reason
    assert here.record is not None
    assert here.record.documents == 1


def test_a_file_that_workers_die_of_is_left_alone_until_it_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "COMMAND", (sys.executable, "-c", MORTAL))
    (home / "sessions" / "small").mkdir()
    deadly = home / "sessions" / "small" / "a.jsonl"
    deadly.write_bytes(said("jabuticaba"))
    os.utime(deadly, (1_700_000_000, 1_700_000_000))
    for number in range(3):
        large = home / "sessions" / f"{number}.jsonl"
        large.write_bytes(said("filler " + "x" * 6_000_000))

    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled()
        # An event beside it makes its directory be looked at.
        (home / "sessions" / "small" / "b.jsonl").write_bytes(said("kumquat"))
        assert engine.call("search", query="kumquat")["total"] == 1
        assert engine.call("search", query="jabuticaba")["total"] == 0
        problems = engine.call("status")["problems"]
        assert any("small/a.jsonl: left out until it changes" in each for each in problems)

        deadly.write_bytes(said("jabuticaba again"))
        assert engine.call("search", query="jabuticaba")["total"] == 1
        problems = engine.call("status")["problems"]
        assert not any("small/a.jsonl" in each for each in problems)


def test_workers_that_are_killed_by_chance_cost_no_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = home / "deaths"
    counter.mkdir()
    monkeypatch.setattr(workers, "COMMAND", (sys.executable, "-c", UNLUCKY, str(counter)))
    monkeypatch.setattr(workers, "count", lambda: 1)
    for number in range(3):
        large = home / "sessions" / f"{number}.jsonl"
        large.write_bytes(said("jabuticaba " + f"{number} " + "x" * 8_000_000))

    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled()
        assert len(list(counter.iterdir())) == 2
        assert engine.call("status")["problems"] == []
        assert engine.call("search", query="jabuticaba")["total"] == 3
