"""What a cache that was damaged, or is older than the files, costs: time, never an answer."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexd import records
from indexd.source import DamagedSegment
from indexd.text import ANALYSIS
from tests.living import Living, living, settings
from tests.writing import Said, claude


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ca") as directory:
        (Path(directory) / "sessions").mkdir()
        yield Path(directory)


def said(*texts: str) -> bytes:
    lines = (json.dumps({"role": "user", "content": text}) for text in texts)
    return "".join(line + "\n" for line in lines).encode()


def total(home: Path, *queries: str) -> list[int]:
    """Return how many documents a new engine over the same cache finds."""
    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled()
        return [engine.call("search", query=query)["total"] for query in queries]


def rows(home: Path) -> Path:
    return home / "cache" / f"sessions-code-{ANALYSIS}-{records.VERSION}" / "cache.db"


@pytest.mark.parametrize("prefix", ["f", "s", "m"])
def test_a_damaged_row_is_read_again_from_its_session(home: Path, prefix: str) -> None:
    (home / "sessions" / "a.jsonl").write_bytes(said("quince", "salsify"))
    assert total(home, "quince") == [1]

    with sqlite3.connect(rows(home)) as database:
        changed = database.execute(
            "UPDATE Cache SET value = CAST(substr(value, 1, length(value) - 1) || x'00' AS BLOB)"
            " WHERE substr(key, 1, 1) = ?",
            (prefix.encode(),),
        )
        assert changed.rowcount > 0
    database.close()
    (home / "sessions" / "a.jsonl").write_bytes(said("quince", "salsify", "quince again"))

    assert total(home, "quince", "salsify") == [2, 1]


@pytest.mark.parametrize("first", [2, 12])
def test_a_database_damaged_inside_is_set_aside(home: Path, first: int) -> None:
    for number in range(50):
        (home / "sessions" / f"{number}.jsonl").write_bytes(said(f"quince {number} " * 50))
    assert total(home, "quince") == [50]

    whole = bytearray(rows(home).read_bytes())
    for page in range(first, len(whole) // 4096):
        whole[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    rows(home).write_bytes(whole)

    assert total(home, "quince") == [50]


def test_a_base_never_lends_its_documents_to_another_file(home: Path) -> None:
    sessions = home / "sessions"
    (sessions / "a.jsonl").write_bytes(said("apricot"))
    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled()
        (sessions / "b.jsonl").write_bytes(said("blackcurrant"))
        engine.settled().write_base()
    (sessions / "b.jsonl").unlink()
    assert total(home, "blackcurrant") == [0]

    (sessions / "c.jsonl").write_bytes(said("cherimoya"))

    assert total(home, "blackcurrant", "cherimoya") == [0, 1]
    assert total(home, "blackcurrant", "cherimoya") == [0, 1]


def test_what_the_base_holds_is_not_kept_twice_and_is_read_again_if_the_base_is_lost(
    home: Path,
) -> None:
    session = home / "sessions" / "a.jsonl"
    session.write_bytes(said(*(f"quince {n}" for n in range(50))))
    base = home / "cache" / f"base-sessions-code-{ANALYSIS}-{records.VERSION}"
    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled().write_base()
        (record,) = engine.engine.indexer.library
        assert [run.kept_from for run in record.runs] == [50]
        with open(session, "ab") as file:
            file.write(said(*(f"salsify {n}" for n in range(40))))
        engine.settled()
    assert total(home, "quince", "salsify") == [50, 40]

    base.unlink()

    assert total(home, "quince", "salsify") == [50, 40]


def test_the_base_is_written_again_once_enough_is_new_to_it(home: Path) -> None:
    session = home / "sessions" / "a.jsonl"
    session.write_bytes(said(*(f"quince {n}" for n in range(500))))
    base = home / "cache" / f"base-sessions-code-{ANALYSIS}-{records.VERSION}"
    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled().write_base()
        first = base.stat().st_ino

        with open(session, "ab") as file:
            file.write(said("salsify"))
        engine.write_base()
        assert base.stat().st_ino == first

        with open(session, "ab") as file:
            file.write(said(*(f"salsify {n}" for n in range(20))))
        engine.write_base()
        assert base.stat().st_ino != first

    assert total(home, "quince", "salsify") == [500, 21]


def cut_to_nothing(base: Path) -> None:
    os.truncate(base, 0)


def cut_short(base: Path) -> None:
    os.truncate(base, base.stat().st_size * 2 // 3)


def overwrite(base: Path) -> None:
    with open(base, "r+b") as file:
        file.seek(base.stat().st_size // 2)
        file.write(b"\x01" * 200)


def copy_another_over_it(base: Path) -> None:
    base.write_bytes(base.with_name("other").read_bytes())


DAMAGES = [cut_to_nothing, cut_short, overwrite, copy_another_over_it]


@pytest.fixture
def resting(home: Path) -> Iterator[Living]:
    """An engine whose index is in a base, but for what was appended since."""
    for number in range(30):
        texts = [f"quince {number} of {n} " + "filler " * n for n in range(40)]
        (home / "sessions" / f"{number}.jsonl").write_bytes(said(*texts))
    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled().write_base()
        with open(home / "sessions" / "7.jsonl", "ab") as file:
            file.write(said("quince salsify"))
        engine.settled()
        (home / "cache" / "other").write_bytes(b"another base entirely " * 5000)
        yield engine


def base_of(home: Path) -> Path:
    return next(path for path in (home / "cache").glob("base-*") if path.suffix != ".new")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_base_damaged_while_in_use_costs_time_and_no_answer(
    resting: Living, home: Path, damage: Callable[[Path], None]
) -> None:
    damage(base_of(home))

    found = resting.call("search", query="quince filler", limit=200, copies="all")

    assert (found["total"], found["index"]["files_pending"]) == (1201, 0)
    assert "base of the index was lost" in resting.call("status")["degraded"][0]
    with living(settings(str(home), str(home / "fresh"))) as fresh:
        expected = fresh.settled().call("search", query="quince filler", limit=200, copies="all")
    assert found["hits"] == expected["hits"]

    resting.settled().write_base()
    assert resting.call("status")["degraded"] == []
    again = resting.call("search", query="quince filler", limit=200, copies="all")
    assert again["hits"] == expected["hits"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_base_is_noticed_by_a_sweep_and_by_what_builds_on_it(
    resting: Living, home: Path, damage: Callable[[Path], None]
) -> None:
    damage(base_of(home))
    resting.sweep_later()
    assert "base of the index was lost" in resting.call("status")["degraded"][0]
    resting.settled().write_base()

    with open(home / "sessions" / "new.jsonl", "ab") as file:
        file.write(said(*(f"medlar {n}" for n in range(100))))
    resting.call("sync")
    damage(base_of(home))
    with pytest.raises(DamagedSegment):
        resting.write_base()
    assert resting.call("search", query="quince", copies="all")["total"] == 1201
    assert resting.call("search", query="medlar", copies="all")["total"] == 100


def test_a_base_that_nothing_rests_on_any_more_may_be_damaged(home: Path) -> None:
    sessions = home / "sessions"
    (sessions / "a.jsonl").write_bytes(said("quince"))
    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled().write_base()
        (sessions / "a.jsonl").unlink()
        (sessions / "b.jsonl").write_bytes(said("medlar"))
        engine.call("sync")
        cut_to_nothing(base_of(home))
        assert engine.call("search", query="medlar")["total"] == 1
        assert engine.call("search", query="quince")["total"] == 0
        engine.write_base()
        assert engine.call("status")["degraded"] == []


def test_only_rows_of_this_very_analysis_are_kept(home: Path) -> None:
    cache = home / "cache"
    cache.mkdir()
    name = rows(home).parent.name
    own = {name, f"{name}.corrupt", f"base-{name}"}
    others = {f"{name}1", f"base-{name}1", f"base-{name}.new", f"sessions-old-{name}"}
    for each in own | others:
        if each.startswith("base-"):
            (cache / each).write_bytes(b"")
        else:
            (cache / each).mkdir()
    (cache / "unrelated").write_bytes(b"")

    assert total(home, "quince") == [0]

    left = set(os.listdir(cache))
    assert {name, f"{name}.corrupt", "unrelated"} <= left
    assert not left & others


def test_a_cache_of_an_older_version_is_read_anew(home: Path) -> None:
    of = settings(str(home), str(home / "cache"))
    claude(f"{home}/sessions/a.jsonl", [Said("user", "quince", 1_786_000_000_000)], session="a")
    with living(of) as engine:
        engine.settled().write_base()
        expected = engine.call("sessions")["sessions"]
    assert [session["started"] for session in expected] == [1_786_000_000_000]
    for name in os.listdir(of.cache_dir):
        if name.startswith(("sessions-", "base-")):
            older = name.rpartition("-")[0]
            (home / "cache" / name).rename(home / "cache" / older)

    with living(of) as engine:
        assert engine.settled().call("sessions")["sessions"] == expected
    names = [n for n in os.listdir(of.cache_dir) if n.startswith(("sessions-", "base-"))]
    assert all(n.endswith(f"-{records.VERSION}") for n in names)
