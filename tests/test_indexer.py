"""What following files promises beyond the law: doubts are settled, trouble stays with its file."""

from __future__ import annotations

import concurrent.futures
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from indexd import finding
from indexd.attending import Task, attend
from indexd.confine import RootDirectory
from indexd.finding import OpenRoot
from indexd.index import Index
from indexd.library import Library
from indexd.publishing import Publisher
from indexd.roots import Root
from indexd.store import Store
from indexd.upkeep import Upkeep
from tests.living import Living, living, settings

LINE_CHARS = 2_000


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ix") as directory:
        (Path(directory) / "sessions").mkdir()
        yield Path(directory)


@pytest.fixture
def engine(home: Path) -> Iterator[Living]:
    with living(settings(str(home), str(home / "cache"))) as running:
        yield running.settled()


def said(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text}).encode() + b"\n"


def total(engine: Living, query: str) -> int:
    found: int = engine.call("search", query=query)["total"]
    return found


def test_an_edit_in_the_middle_of_a_grown_file_is_found_by_a_sweep(
    engine: Living, home: Path
) -> None:
    path = home / "sessions" / "long.jsonl"
    filler = [said("filler " + "x" * LINE_CHARS) for _ in range(1500)]
    path.write_bytes(b"".join([*filler, said("apricot"), *filler]))
    assert total(engine.settled(), "apricot") == 1
    at = path.read_bytes().index(b"apricot")

    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"cherimo")
        file.seek(0, os.SEEK_END)
        file.write(said("appended"))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert total(engine, "appended") == 1
    engine.sweep_later()
    engine.settled()  # So much is read beside the queries.

    assert (total(engine, "apricot"), total(engine, "cherimo")) == (0, 1)


def test_a_file_that_may_not_be_read_is_told_and_stops_no_other(engine: Living, home: Path) -> None:
    sessions = home / "sessions"
    (sessions / "good.jsonl").write_bytes(said("persimmon"))
    (sessions / "pipe.jsonl").symlink_to(sessions / "good.jsonl")
    os.mkfifo(sessions / "fifo.jsonl")
    (sessions / "junk.jsonl").write_bytes(b"\x00\xff" * 3000 + b"\n[1,2]\n")

    assert total(engine, "persimmon") == 1
    status = engine.call("status")
    assert status["files"] == 1
    assert [problem for root in status["roots"] for problem in root["problems"]] == [
        f"{sessions.resolve()}/junk.jsonl: not a session: none of its lines is one of a known agent"
    ]


def test_a_backlog_is_read_by_workers_and_answers_are_the_same(home: Path) -> None:
    sessions = home / "sessions"
    for number in range(40):
        words = f"loquat{chr(97 + number % 26)} " + "filler words " * 40_000
        (sessions / f"{number}.jsonl").write_bytes(said(words) + said(f"medlar {number}"))
    with living(settings(str(home), str(home / "cache"))) as running:
        running.settled()
        found = running.call("search", query="medlar", limit=100)

    with living(settings(str(home), str(home / "cache"))) as again:
        after = again.settled().call("search", query="medlar", limit=100)

    assert found["total"] == 40
    assert after["hits"] == found["hits"]


def test_reindex_reads_a_session_anew(engine: Living, home: Path) -> None:
    path = home / "sessions" / "a.jsonl"
    path.write_bytes(said("tangelo"))
    assert total(engine, "tangelo") == 1

    assert engine.call("reindex", path=str(path.resolve())) == {"files": 1}
    assert total(engine.settled(), "tangelo") == 1
    assert engine.call("reindex") == {"files": 1}
    assert total(engine.settled(), "tangelo") == 1


def test_a_root_that_appears_later_is_followed(home: Path) -> None:
    os.rmdir(home / "sessions")
    with living(settings(str(home), str(home / "cache"))) as running:
        assert running.settled().call("search", query="yuzu")["total"] == 0
        (home / "sessions").mkdir()
        (home / "sessions" / "a.jsonl").write_bytes(said("yuzu"))

        assert running.call("search", query="yuzu")["total"] == 1


def test_a_replaced_root_stays_open_for_whom_still_reads_through_it(
    engine: Living, home: Path
) -> None:
    sessions = home / "sessions"
    (sessions / "a.jsonl").write_bytes(said("feijoa"))
    assert total(engine, "feijoa") == 1
    held = engine.engine.indexer.roots.of(str(sessions.resolve()))
    assert held is not None

    sessions.rename(home / "away")
    sessions.mkdir()
    (sessions / "b.jsonl").write_bytes(said("guava"))

    assert (total(engine, "feijoa"), total(engine, "guava")) == (0, 1)
    assert engine.engine.indexer.roots.of(str(sessions.resolve())) is not held
    assert os.path.samestat(os.fstat(held.directory.fd), os.stat(home / "away"))


def test_who_gives_up_waiting_costs_nobody_an_append(engine: Living, home: Path) -> None:
    path = home / "sessions" / "a.jsonl"
    for number in range(40):
        with open(path, "ab") as file:
            file.write(said(f"sapodilla {number}"))
        engine.give_up_after(number / 4000)

        assert total(engine, "sapodilla") == number + 1


def test_a_root_behind_a_link_stays_where_the_link_led_at_start(home: Path) -> None:
    for name, text in (("old", "apricot"), ("new", "cherry")):
        (home / name).mkdir()
        (home / name / "a.jsonl").write_bytes(said(text))
    link = home / "link"
    link.symlink_to(home / "old")
    with living(settings(str(home), str(home / "cache"), roots=(Root(str(link)),))) as running:
        assert total(running.settled(), "apricot") == 1
        link.unlink()
        link.symlink_to(home / "new")

        assert (total(running, "apricot"), total(running, "cherry")) == (1, 0)
        with open(home / "old" / "a.jsonl", "ab") as file:
            file.write(said("apricot again"))
        assert total(running, "apricot") == 2
        watch = running.call("status")["watch"]
        assert (watch["mode"], watch["polled"]) == ("inotify", {})


def test_watchers_that_follow_each_other_keep_to_their_own_cookies(
    engine: Living, home: Path
) -> None:
    path = home / "sessions" / "a.jsonl"
    asked = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for number in range(20):
            roots = (Root(str(home / "sessions")), Root(str(home / f"other{number}")))
            reload = pool.submit(engine.follow, roots)
            while not reload.done():
                with open(path, "ab") as file:
                    file.write(said(f"sapodilla {asked}"))
                asked += 1
                assert total(engine, "sapodilla") == asked
            reload.result()
    assert {"cookies-0", "cookies-1"} <= set(os.listdir(home / "cache"))


def test_a_file_that_cannot_be_read_is_told_and_tried_again_once_it_has_changed(
    engine: Living, home: Path
) -> None:
    path = home / "sessions" / "a.jsonl"
    path.write_bytes(said("apricot"))
    make_unreadable(path)
    engine.call("sync")
    for _ in range(3):
        engine.sweep_later()
        (problem,) = engine.call("status")["problems"]
        assert problem.startswith(str(path.resolve()))
    assert not engine.sweep_finds_news()

    make_readable(path)
    assert engine.sweep_finds_news()
    assert total(engine, "apricot") == 1
    assert engine.call("status")["problems"] == []

    make_unreadable(path)
    engine.sweep_later()
    assert total(engine, "apricot") == 0
    path.unlink()
    engine.sweep_later()
    assert engine.call("status")["problems"] == []


def test_a_reload_tries_a_file_again_that_could_not_be_read(engine: Living, home: Path) -> None:
    path = home / "sessions" / "a.jsonl"
    path.write_bytes(said("apricot"))
    make_unreadable(path)
    engine.sweep_later()
    engine.sweep_later()
    assert not engine.sweep_finds_news()

    engine.follow((Root(str(home / "sessions")),))

    assert engine.sweep_finds_news()


def make_unreadable(path: Path) -> None:
    """Make a file one that is not to be read; root may read what it has no right to."""
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    path.chmod(0)


def make_readable(path: Path) -> None:
    """Undo make_unreadable."""
    if os.geteuid() == 0:
        os.chown(path, 0, 0)
    path.chmod(0o600)


def test_a_session_of_which_nothing_can_be_said_stops_no_other(home: Path) -> None:
    index, library, store = Index(), Library(), Store(str(home / "rows"))
    store.start()
    upkeep = Upkeep(
        index, library, store, str(home / "base"), lambda: False, anyio.Lock(), lambda now: None
    )
    publisher = Publisher(index, library, store, upkeep)
    with RootDirectory(str(home / "sessions")) as directory:
        root = OpenRoot(Root(str(home / "sessions")), directory)
        for name in ("bad", "good"):
            path = str(home / "sessions" / f"{name}.jsonl")
            Path(path).write_bytes(said(name))
            (found,) = finding.around(root, str(home / "sessions"))[-1:]
            change = attend(Task(found, None, library.new_file_id(), "code"), store.get)
            if name == "bad":
                nobodys = msgspec.structs.replace(change.record, agent="nobody")
                change = change._replace(record=nobodys)
            publisher.conclude(found, None, change)
    store.close()

    assert [record.path for record in library] == [path]
    assert index.snapshot.documents == 1
    assert list(publisher.problems()) == [path.replace("good", "bad")]


def test_nobody_waits_for_very_many_files_however_small(engine: Living, home: Path) -> None:
    for number in range(1000):
        (home / "sessions" / f"{number}.jsonl").write_bytes(said(f"loquat {number}"))

    answer = engine.call("search", query="loquat")
    assert answer["index"]["files_pending"] > 0
    assert "still indexing" in answer["warnings"][0]

    assert total(engine.settled(), "loquat") == 1000
