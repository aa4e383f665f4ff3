"""The disk cache: what was written comes back, whole or not at all, whatever befalls the disk."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import diskcache
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexd import rows as rows_module
from indexd.errors import Unavailable
from indexd.rows import PIECE_BYTES
from indexd.store import Store
from tests import store_writer

BIG = PIECE_BYTES * 2 + 17


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "rows")


@pytest.fixture
def store(directory: str) -> Iterator[Store]:
    store = opened(directory)
    yield store
    store.close()


def opened(directory: str) -> Store:
    store = Store(directory)
    store.start()
    return store


def stored(directory: str) -> dict[bytes, bytes]:
    """Return all rows of a directory, as a fresh process would find them."""
    store = opened(directory)
    try:
        assert store.degraded is None
        return store.scan(b"")
    finally:
        store.close()


def database(directory: str) -> sqlite3.Connection:
    return sqlite3.connect(os.path.join(directory, "cache.db"), isolation_level=None)


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end, "did not happen"


# --- rows ------------------------------------------------------------------------------------


def test_room_of_removed_rows_goes_back_to_the_file_system(directory: str, store: Store) -> None:
    store.put({b"%d" % number: random.randbytes(50_000) for number in range(200)})
    assert store.flush()
    store.put({b"%d" % number: None for number in range(199)})
    assert store.flush()

    store.give_back()

    names = ("cache.db", "cache.db-wal")
    until(lambda: sum(os.stat(os.path.join(directory, n)).st_size for n in names) < 1_000_000)
    assert set(store.scan(b"")) == {b"199"}


def test_rows_survive_closing_and_opening(directory: str) -> None:
    store = opened(directory)
    store.put({b"a": b"1", b"b": b"", b"\xff\x00": b"\x00\xff", b"c": b"old"})
    store.put({b"c": b"new", b"gone": b"x"})
    store.put({b"gone": None, b"never": None})
    store.close()
    again = opened(directory)
    assert again.scan(b"") == {b"a": b"1", b"b": b"", b"c": b"new", b"\xff\x00": b"\x00\xff"}
    assert again.get(b"b") == b""
    assert again.get(b"gone") is None
    assert again.notice is None
    again.close()


@settings(max_examples=15)
@given(
    st.lists(st.dictionaries(st.binary(max_size=3), st.none() | st.binary(max_size=5)), max_size=6),
    st.binary(max_size=2),
)
def test_any_units_leave_what_a_dictionary_would_hold(
    tmp_path_factory: pytest.TempPathFactory,
    units: list[dict[bytes, bytes | None]],
    prefix: bytes,
) -> None:
    directory = str(tmp_path_factory.getbasetemp() / "any")
    shutil.rmtree(directory, ignore_errors=True)
    store = opened(directory)
    model: dict[bytes, bytes | None] = {}
    for unit in units:
        store.put(unit)
        model |= unit
    wanted = {k: v for k, v in model.items() if v is not None and k.startswith(prefix)}
    assert store.scan(prefix) == wanted
    assert store.flush()
    assert store.scan(prefix) == wanted
    assert all(store.get(key) == value for key, value in model.items())
    store.close()
    assert stored(directory) == {k: v for k, v in model.items() if v is not None}


def test_a_scan_finds_every_key_with_its_prefix_and_no_other(store: Store) -> None:
    keys = [b"f", b"f\x00", b"f\xff", b"f\xff\xff", b"fa", b"g", b"e\xff", b"\xff", b"\xff\xff"]
    store.put({key: key for key in keys})
    for _ in range(2):
        assert set(store.scan(b"f")) == {b"f", b"f\x00", b"f\xff", b"f\xff\xff", b"fa"}
        assert set(store.scan(b"\xff")) == {b"\xff", b"\xff\xff"}
        assert set(store.scan(b"")) == set(keys)
        assert store.flush()


@pytest.mark.parametrize(
    "changes",
    [
        {"text": b""},
        {b"k": "text"},
        {b"k": bytearray()},
        {b"k\x00piece0": b""},
        {b"\x00schema": b""},
    ],
)
def test_what_cannot_be_a_row_is_refused_at_once(
    store: Store, changes: dict[bytes, bytes | None]
) -> None:
    with pytest.raises(TypeError):
        store.put({b"good": b"1", **changes})
    assert store.flush()
    assert store.scan(b"") == {}


def raw_rows(directory: str) -> int:
    connection = database(directory)
    count: int = connection.execute("SELECT count(*) FROM Cache").fetchone()[0]
    connection.close()
    return count


def test_large_values_are_kept_in_pieces_and_leave_none_behind(directory: str) -> None:
    large, other = os.urandom(BIG), os.urandom(PIECE_BYTES + 1)
    for value, pieces in ((large, 3), (other, 2), (b"small", 0), (large, 3), (None, 0)):
        store = opened(directory)
        store.put({b"key": value, b"key2": b"x"})
        assert store.get(b"key") == value
        store.close()
        assert stored(directory) == {b"key2": b"x"} | ({} if value is None else {b"key": value})
        assert raw_rows(directory) == pieces + (value is not None) + 2


# --- many threads ----------------------------------------------------------------------------


def test_readers_see_every_unit_whole_and_never_an_older_one(store: Store) -> None:
    """Whatever moves from what waits to the rows is seen in one of the two."""
    done = threading.Event()
    wrong: list[object] = []

    def write() -> None:
        for number in range(400):
            value = b"%d" % number
            store.put({b"pair/a": value, b"pair/b": value, b"pad": os.urandom(2000)})
        done.set()

    def read() -> None:
        last = -1
        while not done.is_set():
            pair = store.scan(b"pair/")
            now = int(pair.get(b"pair/a", b"-1"))
            later = int(store.get(b"pair/b") or b"-1")
            if pair.get(b"pair/a") != pair.get(b"pair/b") or not last <= now <= later:
                wrong.append((last, pair, later))
            last = later

    threads = [threading.Thread(target=work) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_units_of_many_threads_are_all_written(directory: str) -> None:
    store = opened(directory)

    def write(name: int) -> None:
        for number in range(100):
            store.put({b"%d/%d" % (name, number): b"x", b"%d" % name: b"%d" % number})

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    found = stored(directory)
    assert len(found) == 404
    assert [found[b"%d" % name] for name in range(4)] == [b"99"] * 4


def test_after_closing_nothing_is_taken_and_nobody_waits_forever(directory: str) -> None:
    for _ in range(20):
        store = opened(directory)
        refused = []

        def ask(store: Store = store, refused: list[Unavailable] = refused) -> None:
            try:
                while True:
                    store.get(b"nothing")
                    store.put({b"some": b"thing"})
            except Unavailable as error:
                refused.append(error)

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda store=store: store.get(b"some") is not None)  # type: ignore[misc]
        store.close()
        for thread in threads:
            thread.join(10)
        assert len(refused) == 3
        assert not store.alive()
        for call in (
            lambda s=store: s.put({b"a": b"b"}), lambda s=store: s.scan(b""),
            lambda s=store: s.get(b"a"), lambda s=store: s.flush(),
        ):  # fmt: skip
            with pytest.raises(Unavailable):
                call()
        store.close()


def test_a_store_that_was_never_started_refuses_and_closes(directory: str) -> None:
    store = Store(directory)
    with pytest.raises(Unavailable):
        store.get(b"a")
    with pytest.raises(Unavailable):
        store.put({b"a": b"b"})
    store.close()
    assert not os.path.exists(directory)


def test_closing_writes_what_waits(directory: str) -> None:
    store = opened(directory)
    for number in range(500):
        store.put({b"%d" % number: os.urandom(500)})
    store.close()
    assert len(stored(directory)) == 500


# --- killed ----------------------------------------------------------------------------------


def killed_after(directory: str, acknowledged: int) -> int:
    """Kill a writer once it has told of some units; return the last it told of."""
    process = subprocess.Popen(
        [sys.executable, store_writer.__file__, directory],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(acknowledged)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    return int(told[-1]) if told[-1].endswith(b"\n") else int(told[-2])


def survive_kills(directory: str, rounds: int) -> None:
    chance = random.Random(rounds)
    for _ in range(rounds):
        told = killed_after(directory, chance.randint(2, 60))
        found = stored(directory)
        last = int(found.pop(b"last"))
        assert last >= told
        wanted: dict[bytes, bytes | None] = {}
        for number in range(max(1, last - store_writer.KEPT), last + 1):
            wanted |= store_writer.unit(number)
        del wanted[b"last"]
        assert found == {key: value for key, value in wanted.items() if value is not None}


def test_units_are_whole_and_in_order_after_being_killed(directory: str) -> None:
    survive_kills(directory, 20)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_units_are_whole_and_in_order_after_being_killed_very_often(directory: str) -> None:
    survive_kills(directory, 200)


# --- a disk that refuses ---------------------------------------------------------------------


def test_a_full_disk_is_told_and_answered_from_memory_until_there_is_space(tmp_path: Path) -> None:
    own = ["unshare", "--mount"] + ([] if os.getuid() == 0 else ["--user", "--map-root-user"])
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*own, *mount], check=False).returncode:
        pytest.skip("a disk of our own may not be mounted here")
    script = os.path.join(os.path.dirname(__file__), "full_disk.py")
    subprocess.run(
        [*own, sys.executable, script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=True,
        timeout=50,
    )


def test_the_database_is_the_daemons_alone_while_it_runs(directory: str, store: Store) -> None:
    store.put({b"a": b"1"})
    assert store.flush()
    other = database(directory)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    other.close()
    store.put({b"a": b"2"})
    assert store.flush()
    store.close()
    assert stored(directory) == {b"a": b"2"}


def test_rows_that_cannot_be_opened_for_now_are_kept(directory: str) -> None:
    first = Store(directory)
    first.start()
    first.put({b"row": b"value"})
    first.close()
    database, elsewhere = os.path.join(directory, "cache.db"), f"{directory}.db"
    os.rename(database, elsewhere)
    os.mkdir(database)

    second = Store(directory)
    second.start()
    assert "unable to open" in (second.degraded or "")
    second.close()
    os.rmdir(database)
    os.rename(elsewhere, database)

    third = Store(directory)
    third.start()
    assert (third.notice, third.get(b"row")) == (None, b"value")
    third.close()


def test_a_directory_that_cannot_be_made_is_told_until_it_can(tmp_path: Path) -> None:
    obstacle = tmp_path / "file"
    obstacle.write_bytes(b"")
    store = opened(str(obstacle / "rows"))
    store.flush()
    assert store.degraded is not None, "also while nothing waits"
    store.put({b"a": b"1"})
    assert store.get(b"a") == b"1"
    assert store.get(b"b") is None
    obstacle.unlink()
    until(lambda: store.degraded is None)
    store.close()
    assert stored(str(obstacle / "rows")) == {b"a": b"1"}


# --- what befalls the directory --------------------------------------------------------------


def test_a_directory_removed_while_open_begins_anew(directory: str, store: Store) -> None:
    store.put({b"a": b"1"})
    assert store.flush()
    shutil.rmtree(directory)
    store.put({b"b": b"2"})
    assert store.flush()
    assert "removed" in (store.notice or "")
    assert store.scan(b"") == {b"b": b"2"}
    store.close()
    assert stored(directory) == {b"b": b"2"}


def test_rows_of_another_cache_put_in_place_while_open_are_not_taken_for_ours(
    directory: str, store: Store, tmp_path: Path
) -> None:
    store.put({b"a": b"1"})
    assert store.flush()
    other = opened(str(tmp_path / "other"))
    other.put({b"a": b"other", b"z": b"other"})
    other.close()
    os.rename(directory, tmp_path / "mine")
    os.rename(tmp_path / "other", directory)
    store.put({b"b": b"2"})
    assert store.flush()
    store.close()
    assert stored(directory) == {b"b": b"2"}


# --- corruption ------------------------------------------------------------------------------

VALUES = {b"row%d" % n: (b"value %d " % n) * (n * 13 + 1) for n in range(40)}
LARGE = b"large", bytes(range(256)) * (PIECE_BYTES // 256) + b"end"
MARK = "executed"


class Bomb:
    """What pickle would run: it leaves a mark."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.mark,)


Corruption = Callable[[Path], None]


def change(at: float, new: bytes | None = None, size: int = 1) -> Corruption:
    """Return what overwrites a stretch of the file, or flips a bit of it."""

    def corrupt(directory: Path) -> None:
        with open(directory / "cache.db", "r+b") as file:
            start = int(at * (file.seek(0, 2) - size)) if at < 1 else int(at)
            file.seek(start)
            old = file.read(size)
            file.seek(start)
            file.write(bytes([old[0] ^ 16]) + old[1:] if new is None else new * size)

    return corrupt


def change_at(text: bytes) -> Corruption:
    """Return what flips a bit wherever `text` stands in the file."""

    def corrupt(directory: Path) -> None:
        path = directory / "cache.db"
        data = path.read_bytes()
        assert text in data
        path.write_bytes(data.replace(text, bytes([text[0] ^ 4]) + text[1:]))

    return corrupt


def cut(share: float) -> Corruption:
    def corrupt(directory: Path) -> None:
        path = directory / "cache.db"
        os.truncate(path, int(path.stat().st_size * share))

    return corrupt


def scatter(seed: int) -> Corruption:
    """Return what changes bytes all over the file."""

    def corrupt(directory: Path) -> None:
        chance = random.Random(seed)
        for _ in range(chance.choice([1, 5, 30])):
            change(chance.random(), bytes([chance.randrange(256)]), chance.choice([1, 2, 50]))(
                directory
            )

    return corrupt


def replace_with(name: str, data: bytes) -> Corruption:
    return lambda directory: (directory / name).write_bytes(data) and None


def remove(directory: Path) -> None:
    (directory / "cache.db").unlink()


def statement(*statements: str) -> Corruption:
    def corrupt(directory: Path) -> None:
        connection = database(str(directory))
        for each in statements:
            connection.execute(each)
        connection.close()

    return corrupt


def plant(columns: str, *values: object) -> Corruption:
    def corrupt(directory: Path) -> None:
        connection = database(str(directory))
        bomb = pickle.dumps(Bomb(str(directory.parent / MARK)))
        filled = [bomb if value is Bomb else value for value in values]
        connection.execute(f"UPDATE Cache SET {columns} WHERE key = ?", (*filled, b"row3"))
        connection.close()

    return corrupt


def setting(key: str, value: object) -> Corruption:
    def corrupt(directory: Path) -> None:
        connection = database(str(directory))
        connection.execute("INSERT OR REPLACE INTO Settings VALUES (?, ?)", (key, value))
        connection.close()

    return corrupt


def foreign_cache(directory: Path) -> None:
    """A cache of another program, that pickles."""
    shutil.rmtree(directory)
    with diskcache.Cache(str(directory)) as cache:
        cache[b"row1"] = b"foreign"
        cache["row2"] = Bomb(str(directory.parent / MARK))


CORRUPTIONS: dict[str, Corruption] = {
    **{f"a bit at {at}": change(at) for at in (0, 18, 30, 100, 0.1, 0.25, 0.4, 0.6, 0.8, 0.99)},
    **{f"page {n} zeroed": change(n * 4096 + (n == 0), b"\0", 4095) for n in range(12)},
    "a bit of a value": change_at(b"value 7 "),
    "a bit of a large value": change_at(b"end"),
    "a bit of a key wherever it is": change_at(b"row11"),
    **{f"cut to {share}": cut(share) for share in (0, 0.0001, 0.01, 0.3, 0.7, 0.999)},
    **{f"scattered {seed}": scatter(seed) for seed in range(12)},
    "garbage in the log": replace_with("cache.db-wal", random.Random(1).randbytes(50_000)),
    "garbage in the shared memory": replace_with("cache.db-shm", random.Random(1).randbytes(32768)),
    "not a database": replace_with("cache.db", b"plain text, and not at all a database\n" * 99),
    "an empty file": replace_with("cache.db", b""),
    "no file": remove,
    "a foreign cache": foreign_cache,
    "a foreign database": statement("DROP TABLE Cache", "CREATE TABLE mails (body)"),
    "a foreign table": statement("CREATE TABLE mails (body)"),
    "a trigger": statement(
        "CREATE TRIGGER evil AFTER INSERT ON Cache BEGIN UPDATE Cache SET value = x'00'; END"
    ),
    "an older schema": statement("UPDATE Cache SET value = x'76' WHERE key = x'00736368656d61'"),
    "rows without a schema": statement("DELETE FROM Cache WHERE key = x'00736368656d61'"),
    "a value of another row": statement(
        "UPDATE Cache SET value = (SELECT value FROM Cache WHERE key = CAST('row4' AS BLOB))"
        " WHERE key = CAST('row3' AS BLOB)"
    ),
    "a piece less": statement("DELETE FROM Cache WHERE key = x'6c61726765' || x'00706965636530'"),
    "an expired row": statement("UPDATE Cache SET expire_time = 1"),
    "a pickle": plant("mode = 4, value = ?", Bomb),
    "a pickled key": plant("raw = 0, key = ?", Bomb),
    "a pickle in raw form": plant("value = ?", Bomb),
    "a file": plant("mode = 2, filename = ?, value = NULL", "/etc/hostname"),
    "text": plant("value = ?", "text"),
    "a number": plant("value = ?", 3),
    "nothing": plant("value = NULL"),
    "a mode of text": plant("mode = 'x'"),
    "a short value": plant("value = x'76'"),
    **{
        f"setting {key}": setting(key, value)
        for key, value in {
            "get": "x", "set": 1, "transact": "x", "_local": "x", "_con": 1, "_disk": "x",
            "disk_unknown": 1, "disk_min_file_size": 0, "disk_pickle_protocol": "x",
            "sqlite_query_only": 1, "sqlite_mmap_size": 1 << 40, "sqlite_x; DROP TABLE Cache": 1,
            "eviction_policy": "least-recently-used", "cull_limit": 100, "size_limit": 1,
            "count": "x", "tag_index": 1,
        }.items()
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with good rows, to be copied."""
    directory = tmp_path_factory.mktemp("sound") / "rows"
    store = opened(str(directory))
    for key, value in VALUES.items():
        store.put({key: value})
    store.put({LARGE[0]: LARGE[1]})
    store.close()
    return directory


def test_there_are_enough_corruptions_and_the_sound_rows_are_sound(sound: Path) -> None:
    assert len(CORRUPTIONS) >= 40
    assert stored(str(sound)) == VALUES | dict([LARGE])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruption_gives_right_values_or_none_and_the_cache_goes_on(
    name: str, sound: Path, tmp_path: Path
) -> None:
    survive(CORRUPTIONS[name], sound, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bytes_changed_anywhere_give_right_values_or_none(sound: Path, tmp_path: Path) -> None:
    for seed in range(100, 600):
        survive(scatter(seed), sound, tmp_path)


def survive(corrupt: Corruption, sound: Path, tmp_path: Path) -> None:
    """Corrupt a copy of the sound rows; read it, write it and read it again."""
    directory = tmp_path / "rows"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(sound, directory)
    corrupt(directory)
    right = VALUES | dict([LARGE])
    store = opened(str(directory))
    for key, value in right.items():
        assert store.get(key) in (None, value)
    assert store.scan(b"").items() <= right.items()
    new = {key: b"new " + value[:100] for key, value in right.items()}
    store.put(new | {b"more": b"x"})
    until(store.flush)
    assert store.degraded is None
    assert store.scan(b"") == new | {b"more": b"x"}
    store.close()
    assert stored(str(directory)) == new | {b"more": b"x"}
    assert not (tmp_path / MARK).exists()
    assert set(os.listdir(tmp_path)) <= {"rows", "rows.corrupt"}


def test_only_the_last_unusable_cache_is_kept(directory: str, tmp_path: Path) -> None:
    for _ in range(3):
        opened(directory).close()
        (Path(directory) / "cache.db").write_bytes(b"nonsense" * 1000)
        store = opened(directory)
        assert "rebuilt" in (store.notice or "")
        assert store.degraded is None
        store.close()
    assert sorted(os.listdir(tmp_path)) == ["rows", "rows.corrupt"]


def test_rows_cannot_be_anything_but_bytes_whoever_writes_them() -> None:
    disk = rows_module.BytesDisk("/nowhere")
    for mode, filename, value in (
        (4, None, b""),
        (1, "f", b""),
        (1, None, "text"),
        (1, None, None),
    ):
        with pytest.raises(rows_module.Damaged):
            disk.fetch(mode, filename, value, False)
    for key, raw in ((b"k", 0), ("k", 1), (1, 1)):
        with pytest.raises(rows_module.Damaged):
            disk.get(key, raw)
