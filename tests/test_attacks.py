"""What others may do to a running daemon's files, and what must hold all the same."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from indexd.client import Client
from indexd.confine import RootDirectory
from indexd.errors import Busy, IndexdError
from indexd.lock import sole_daemon
from indexd.model import MAX_NAME_CHARS, SessionState
from indexd.ranking import CHECKED
from indexd.reading import Job, TooMuch, read
from indexd.records import Record
from indexd.roots import Root
from indexd.store import Store
from tests.living import Living, living, settings
from tests.zstandard import compress

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="attack") as directory:
        (Path(directory) / "sessions").mkdir()
        yield Path(directory)


def said(text: str, role: str = "user") -> bytes:
    return json.dumps({"role": role, "content": text}).encode() + b"\n"


def write(home: Path, name: str, *texts: str) -> Path:
    path = home / "sessions" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(b"".join(map(said, texts)))
    return path


class Process:
    """The real daemon in a home of its own; its socket lies outside the cache."""

    def __init__(self, home: Path, descriptors: int | None = None) -> None:
        self.socket = str(home / "run" / "s")
        (home / "config.toml").write_text(f'[[root]]\npath = "{home}/sessions"\n')
        ready, its_end = os.pipe()
        limit = None if descriptors is None else (descriptors, descriptors)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "indexd"],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(REPOSITORY),
                "HOME": str(home),
                "INDEXD_CONFIG": str(home / "config.toml"),
                "INDEXD_CACHE_DIR": str(home / "cache"),
                "INDEXD_SOCKET": self.socket,
                "INDEXD_READY_FD": str(its_end),
            },
            pass_fds=(its_end,),
            stderr=subprocess.PIPE,
            preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit)),
        )
        os.close(its_end)
        with open(ready, "rb") as pipe:
            assert pipe.read() == b"\n"

    def total(self, query: str) -> int:
        with Client(self.socket) as client:
            found: int = client.search(query, copies="all")["total"]
            return found


@contextmanager
def running(home: Path, descriptors: int | None = None) -> Iterator[Process]:
    daemon = Process(home, descriptors)
    try:
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.communicate()


@contextmanager
def engine(home: Path, *roots: Root) -> Iterator[Living]:
    with living(settings(str(home), str(home / "cache"), roots=roots)) as started:
        yield started.settled()


def total(of: Living, query: str) -> int:
    found: int = of.call("search", query=query, copies="all")["total"]
    return found


def take_every_descriptor(held: ExitStack) -> None:
    with suppress(OSError):
        while True:
            held.callback(os.close, os.dup(0))


def rows(home: Path) -> Path:
    return next((home / "cache").glob("sessions-*"))


def test_files_of_the_cache_that_are_cut_to_nothing_do_not_end_the_daemon(home: Path) -> None:
    write(home, "a.jsonl", "apricot")
    with running(home) as daemon:
        assert daemon.total("apricot") == 1
        for path in rows(home).iterdir():
            os.truncate(path, 0)
        for number in range(5):
            write(home, "a.jsonl", f"apricot {number}")
            assert daemon.total("apricot") == number + 2
        assert daemon.process.poll() is None
    with running(home) as daemon:
        assert daemon.total("apricot") == 6


@pytest.mark.parametrize("what", ["directory", "database"])
def test_around_reads_a_session_again_whose_rows_were_lost(home: Path, what: str) -> None:
    path = write(home, "a.jsonl", "apricot", "cherry")
    with engine(home) as running_engine:
        if what == "directory":
            shutil.rmtree(rows(home))
        else:
            for each in rows(home).iterdir():
                each.unlink()
        write(home, "b.jsonl", "so that something is written")
        assert total(running_engine, "something") == 1

        answer = running_engine.call("around", session_path=str(path), message_index=1)

        assert [message["text"] for message in answer["messages"]] == ["apricot", "cherry"]
        assert total(running_engine, "cherry") == 1


def save_by_rename(path: Path, data: bytes) -> None:
    path.with_suffix(".new").write_bytes(data)
    os.rename(path.with_suffix(".new"), path)


def truncate_and_write(path: Path, data: bytes) -> None:
    os.truncate(path, len(data) // 3)
    with open(path, "r+b") as file:
        file.write(data)


@pytest.mark.parametrize("rewrite", [save_by_rename, truncate_and_write, Path.write_bytes])
def test_around_tells_of_one_state_of_a_session_that_is_rewritten_all_the_time(
    home: Path, rewrite: Callable[[Path, bytes], object]
) -> None:
    path = write(home, "a.jsonl", *(f"state0 {n}" for n in range(20)))
    done = threading.Event()

    def keep_rewriting() -> None:
        number = 0
        while not done.is_set():
            number += 1
            texts = [f"state{number} {n} " * (1 + number % 3) for n in range(20 + number % 7)]
            rewrite(path, b"".join(map(said, texts)))

    writer = threading.Thread(target=keep_rewriting)
    with engine(home) as running_engine:
        writer.start()
        try:
            answers = [around_of(running_engine, path) for _ in range(15)]
        finally:
            done.set()
            writer.join()
        assert around_of(running_engine, path) != "busy"
    # Written in place it is short for moments, or empty, and then no session.
    true = {
        save_by_rename: {"busy"},
        truncate_and_write: {"busy", "not_found"},
        Path.write_bytes: {"busy", "not_found", "not_allowed"},
    }
    assert set(answers) - {"whole"} <= true[rewrite]


def around_of(of: Living, path: Path) -> str:
    """Return that all messages around message 5 are there, of one state; or an error's code."""
    try:
        answer = of.call("around", session_path=str(path), message_index=5)
    except IndexdError as error:
        return error.code
    texts = [message["text"] for message in answer["messages"]]
    assert len({text.split()[0] for text in texts}) == 1
    assert len(texts) == min(answer["length"], 9) - 2
    return "whole"


def test_sessions_whose_rows_were_lost_are_read_again_though_they_rest(home: Path) -> None:
    write(home, "a.jsonl", "apricot", "cherry")
    write(home, "empty.jsonl")
    with engine(home) as running_engine:
        shutil.rmtree(rows(home))
        write(home, "b.jsonl", "so that something is written")
        assert total(running_engine, "something") == 1
        running_engine.sweep_later()
        running_engine.settled()
        (degraded,) = running_engine.call("status")["degraded"]
        assert "removed while in use" in degraded
        assert total(running_engine, "cherry") == 1

    kept = Store(str(rows(home)))
    kept.start()
    assert [len(kept.scan(prefix)) for prefix in (b"f", b"s", b"m")] == [3, 2, 2]
    kept.close()


def test_another_database_in_the_place_of_ours_is_not_mixed_with_it(tmp_path: Path) -> None:
    other, ours = Store(str(tmp_path / "other")), Store(str(tmp_path / "ours"))
    for store, value in ((other, b"other"), (ours, b"ours")):
        store.start()
        store.put({b"row": value, b"only " + value: value})
        assert store.flush()
    other.close()
    shutil.rmtree(tmp_path / "ours")
    shutil.copytree(tmp_path / "other", tmp_path / "ours")

    ours.put({b"later": b"1"})
    ours.flush()
    ours.close()

    again = Store(str(tmp_path / "ours"))
    again.start()
    assert again.scan(b"") == {b"later": b"1"}
    again.close()


def test_a_daemon_whose_socket_was_removed_makes_room_for_the_next(home: Path) -> None:
    with running(home) as first:
        os.unlink(first.socket)
        shutil.rmtree(home / "cache", ignore_errors=True)  # It may write there meanwhile.

        assert first.process.wait(20) == 0


def test_a_lock_that_was_removed_is_taken_again(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    with sole_daemon(cache) as lock:
        shutil.rmtree(cache)

        assert lock.keep()

        with pytest.raises(Busy), sole_daemon(cache):
            pass


def test_a_lock_that_another_daemon_holds_by_now_is_lost(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    with sole_daemon(cache) as lock:
        shutil.rmtree(cache)
        with sole_daemon(cache):
            assert not lock.keep()
        assert lock.keep()


def test_a_crowd_of_clients_takes_no_session_out_of_the_index(home: Path) -> None:
    for number in range(5):
        write(home, f"{number}.jsonl", "apricot")
    with running(home, descriptors=64) as daemon, ExitStack() as crowd:
        asking = crowd.enter_context(Client(daemon.socket))
        asking.sync()
        busy = 0
        for _ in range(70):
            try:
                crowd.enter_context(Client(daemon.socket)).sync()
            except IndexdError as error:
                busy += error.code == "busy"
        assert busy > 0
        write(home, "3.jsonl", "apricot")
        write(home, "deeper/new.jsonl", "apricot")
        assert asking.search("apricot", copies="all")["total"] == 7

        asking.reindex()
        asking.sync()

        assert asking.search("apricot", copies="all")["total"] == 7


def test_a_lack_of_descriptors_is_no_absence_of_files(home: Path) -> None:
    write(home, "a.jsonl", "apricot")
    with engine(home) as running_engine:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        try:
            with ExitStack() as held:
                take_every_descriptor(held)
                running_engine.sweep_later()
                running_engine.call("sync")
                assert running_engine.call("search", query="apricot", sync=False)["total"] == 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        write(home, "a.jsonl", "apricot again")

        assert total(running_engine, "apricot") == 2


def test_a_large_file_that_begins_anew_is_left_to_the_backlog(home: Path) -> None:
    path = write(home, "a.jsonl", *["apricot"] * 100)
    record = Record(0, str(path), str(path), str(path.parent), "global", "", None, SessionState())
    with RootDirectory(str(path.parent)) as root:
        with pytest.raises(TooMuch):
            read(Job(record, "", 1, "code", limit=path.stat().st_size - 1), root)
        outcome = read(Job(record, "", 1, "code", limit=path.stat().st_size), root)
    assert outcome.record.messages == 100


def test_a_large_file_rewritten_in_place_is_found_by_its_new_words_alone(home: Path) -> None:
    path = write(home, "a.jsonl", *["apricot " + "x" * 1000] * 5000)
    with engine(home) as running_engine:
        with open(path, "r+b") as file:
            file.write(b"".join([said("cherry " + "x" * 1000)] * 5100))
        running_engine.call("search", query="cherry")
        running_engine.settled()

        assert (total(running_engine, "apricot"), total(running_engine, "cherry")) == (0, 5100)


def test_an_event_log_that_is_none_any_more_gives_the_session_back(home: Path) -> None:
    write(home, "a.jsonl", "apricot")
    log = home / "sessions" / "a.events.jsonl"
    event = {"schema_version": 1, "type": "replace", "messages": [
        {"role": "user", "content": "cherry"}]}  # fmt: skip
    log.write_bytes(json.dumps(event).encode() + b"\n")
    with engine(home) as running_engine:
        assert (total(running_engine, "apricot"), total(running_engine, "cherry")) == (0, 1)

        log.write_bytes(b'{"something": "else", "padding": "' + b"x" * 500 + b'"}\n')

        assert (total(running_engine, "apricot"), total(running_engine, "cherry")) == (1, 0)


def test_sessions_of_a_root_that_moved_are_not_found_twice(home: Path) -> None:
    write(home, "a.jsonl", "apricot")
    root, elsewhere = home / "sessions", home / "elsewhere"
    with engine(home) as running_engine:
        os.rename(root, elsewhere)
        os.symlink(elsewhere, root)
        assert total(running_engine, "apricot") == 1
        os.unlink(root)
        os.rename(elsewhere, root)

        assert total(running_engine, "apricot") == 1


def bytes_read() -> int:
    """Return how many bytes this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("query", ["apricot", '"echo apricot"'])
def test_a_line_of_many_hits_is_read_once_for_all_of_them(home: Path, query: str) -> None:
    calls = [
        {"id": f"t{number}", "function": {"name": "Bash", "arguments": '{"x": "echo apricot"}'}}
        for number in range(CHECKED)
    ]
    path = home / "sessions" / "a.jsonl"
    message = {"role": "assistant", "content": "x " * 1_000_000, "tool_calls": calls}
    path.write_bytes(json.dumps(message).encode() + b"\n")
    with engine(home) as running_engine:
        running_engine.settled().call("search", query=query)
        before = bytes_read()
        answer = running_engine.call("search", query=query, limit=CHECKED, copies="all")
        times = (bytes_read() - before) / path.stat().st_size

    assert {hit["snippet"] for hit in answer["hits"]} == {'Bash {"x":"echo apricot"}'}
    assert len(answer["hits"]) == CHECKED
    assert times < 3


def test_a_compressed_session_is_unpacked_once_for_all_its_hits(home: Path) -> None:
    lines = [said(f"apricot {os.urandom(2000).hex()}") for _ in range(CHECKED)]
    path = home / "sessions" / "a.jsonl.zst"
    path.write_bytes(compress(b"".join(lines)))
    with engine(home) as running_engine:
        running_engine.settled().call("search", query="apricot")
        before = bytes_read()
        answer = running_engine.call("search", query="apricot", limit=CHECKED, copies="all")
        times = (bytes_read() - before) / path.stat().st_size

    assert len([hit for hit in answer["hits"] if hit["snippet"]]) == CHECKED
    assert times < 3


def test_names_without_measure_do_not_fill_the_answers(home: Path) -> None:
    endless = "n" * 4_000_000
    use = {"type": "tool_use", "id": "t", "name": endless, "input": {"x": "apricot"}}
    lines = [
        {"type": "ai-title", "aiTitle": endless},
        {"type": "assistant", "message": {"role": "assistant", "content": [use]}},
    ]
    for number in range(3):
        common = {"sessionId": f"{number}{endless}", "cwd": "/" + endless}
        path = home / "sessions" / f"{number}.jsonl"
        path.write_text("".join(json.dumps(line | common) + "\n" for line in lines))
    with engine(home) as running_engine:
        found = running_engine.call("search", query="apricot", copies="all")
        listed = running_engine.call("sessions")

    assert (len(found["hits"]), len(listed["sessions"])) == (3, 3)
    assert max(len(json.dumps(found)), len(json.dumps(listed))) < 3 * 10 * MAX_NAME_CHARS
