"""Sessions that their agent compressed: one session, whichever of its files is there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd import datafile, tail
from indexd.datafile import STEP_BYTES
from indexd.errors import NotAllowed
from tests.living import Living, living, settings
from tests.zstandard import CompressionParameter, ZstdCompressor, compress

NAME = "rollout-2026-08-20T09-30-00-019f8a00-1111-7222-8333-444455556666.jsonl"
SESSION_ID = "019f8a00-1111-7222-8333-444455556666"
WORDS = (
    "apricot",
    "bramble",
    "cherimoya",
    "damson",
    "elderberry",
    "feijoa",
    "guava",
    "huckleberry",
)


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ix") as directory:
        (Path(directory) / "sessions").mkdir()
        yield Path(directory).resolve()


@pytest.fixture
def engine(home: Path) -> Iterator[Living]:
    with living(settings(str(home), str(home / "cache"))) as running:
        yield running.settled()


def item(text: str) -> bytes:
    content = [{"type": "input_text", "text": text}]
    payload = {"type": "message", "role": "user", "content": content}
    line = {"timestamp": "2026-08-20T09:30:00Z", "type": "response_item", "payload": payload}
    return json.dumps(line).encode() + b"\n"


def rollout(*texts: str) -> bytes:
    payload = {"id": SESSION_ID, "cwd": "/home/ana/src/kettle"}
    first = {"timestamp": "2026-08-20T09:30:00Z", "type": "session_meta", "payload": payload}
    return json.dumps(first).encode() + b"\n" + b"".join(map(item, texts))


def put(path: Path, data: bytes) -> None:
    """Write as agents do: nobody sees a half file."""
    temporary = path.with_name(".writing")
    temporary.write_bytes(data)
    temporary.rename(path)


def hits(engine: Living, query: str) -> list[tuple[str, str, int]]:
    found = engine.call("search", query=query)["hits"]
    return [(hit["session_id"], hit["session_path"], hit["message_index"]) for hit in found]


def problems(engine: Living) -> list[str]:
    status = engine.call("status")
    return [*status["problems"], *(p for root in status["roots"] for p in root["problems"])]


def opened(path: Path) -> tuple[int, datafile.DataFile]:
    fd = os.open(path, os.O_RDONLY)
    return fd, datafile.opened(fd, os.fstat(fd).st_size)


@pytest.mark.parametrize("end", [".zst", ".zstd"])
def test_a_session_that_was_only_ever_seen_compressed_is_found_and_read(
    engine: Living, home: Path, end: str
) -> None:
    plain = home / "sessions" / NAME
    put(plain.with_name(NAME + end), compress(rollout("an apricot fell", "a bramble grew")))

    assert hits(engine, "bramble") == [(SESSION_ID, str(plain), 1)]
    around = engine.call("around", session_path=str(plain), message_index=1)
    assert [m["text"] for m in around["messages"]] == ["an apricot fell", "a bramble grew"]
    shown = engine.call("show", session_path=f"{plain}{end}")
    assert [m["text"] for m in shown["messages"]] == ["an apricot fell", "a bramble grew"]
    hit = engine.call("search", query="bramble", session=f"{plain}{end}")["hits"][0]
    assert hit["snippet"] == "a bramble grew"
    assert hit["resume"] == ["codex", "resume", SESSION_ID]


def test_the_plain_file_is_the_authority_over_the_one_beside_it(engine: Living, home: Path) -> None:
    plain = home / "sessions" / NAME
    put(plain.with_name(f"{NAME}.zst"), compress(rollout("outdated apricot")))
    assert len(hits(engine, "apricot")) == 1

    put(plain, rollout("current bramble"))
    assert (hits(engine, "apricot"), len(hits(engine, "bramble"))) == ([], 1)
    assert engine.call("status")["files"] == 1
    with pytest.raises(NotAllowed):
        engine.call("around", session_path=f"{plain}.zst", message_index=0)

    plain.unlink()
    assert (len(hits(engine, "apricot")), hits(engine, "bramble")) == (1, [])


def test_compressing_a_session_changes_nothing_that_is_known_of_it(
    engine: Living, home: Path
) -> None:
    plain = home / "sessions" / NAME
    data = rollout(*(f"{word} number {at}" for at, word in enumerate(WORDS)))
    put(plain, data)
    before = engine.call("search", query="damson")
    put(plain.with_name(f"{NAME}.zst"), compress(data))
    plain.unlink()

    after = engine.call("search", query="damson")
    assert after["hits"] == before["hits"]
    assert after["index"]["documents"] == before["index"]["documents"] == len(WORDS)
    assert after["total"] == 1
    hit = before["hits"][0]
    around = engine.call(
        "around", session_path=hit["session_path"], message_index=hit["message_index"], before=0
    )
    assert around["messages"][0]["text"] == "damson number 3"
    record = engine.engine.indexer.library.get(str(plain))
    assert record is not None
    assert record.file_id == 1, "the documents that were known are used on"


def test_a_compressed_session_can_be_taken_up_again(engine: Living, home: Path) -> None:
    plain = home / "sessions" / NAME
    data = rollout("an apricot fell")
    put(plain.with_name(f"{NAME}.zst"), compress(data))
    assert len(hits(engine, "apricot")) == 1

    put(plain, data)
    plain.with_name(f"{NAME}.zst").unlink()
    with plain.open("ab") as file:
        file.write(item("a bramble grew"))
    assert hits(engine, "bramble") == [(SESSION_ID, str(plain), 1)]
    assert len(hits(engine, "apricot")) == 1


def test_frames_are_read_on_as_they_are_appended(engine: Living, home: Path) -> None:
    path = home / "sessions" / f"{NAME}.zst"
    path.write_bytes(compress(rollout("apricot")))
    for at, word in enumerate(WORDS[1:], 1):
        with path.open("ab") as file:
            file.write(compress(item(word)))
        assert [index for _, _, index in hits(engine, word)] == [at]
    assert len(hits(engine, "apricot")) == 1
    assert problems(engine) == []


def noise(count: int) -> list[str]:
    """Return texts that do not compress well, so that a small file has many blocks."""
    return [f"{WORDS[at % 8]} {os.urandom(1500).hex(' ')}" for at in range(count)]


def test_lines_before_a_cut_are_kept_and_the_cut_is_told(engine: Living, home: Path) -> None:
    data = rollout(*noise(300))
    whole = compress(data)
    path = home / "sessions" / f"{NAME}.zst"
    put(path, whole[: len(whole) // 2])

    documents = engine.call("search", query="apricot")["index"]["documents"]
    assert 100 < documents < 200
    assert problems(engine) == [f"{home}/sessions/{NAME}: its compressed data has no end yet"]

    put(path, whole)
    assert engine.call("search", query="apricot")["index"]["documents"] == 300
    assert problems(engine) == []


def test_lines_before_a_damage_are_kept_and_the_damage_is_told(engine: Living, home: Path) -> None:
    whole = bytearray(compress(rollout(*noise(300))))
    middle = len(whole) // 2
    whole[middle : middle + 4 * STEP_BYTES] = bytes(4 * STEP_BYTES)
    put(home / "sessions" / f"{NAME}.zst", bytes(whole))
    put(home / "sessions" / "other.jsonl", rollout("persimmon"))

    documents = engine.call("search", query="apricot")["index"]["documents"]
    assert 100 < documents < 200
    (problem,) = problems(engine)
    assert problem.startswith(f"{home}/sessions/{NAME}: its compressed data is damaged")
    assert len(hits(engine, "persimmon")) == 1


def test_what_is_not_compressed_in_spite_of_its_name_is_told_or_read(
    engine: Living, home: Path
) -> None:
    put(home / "sessions" / "plain.jsonl.zst", rollout("the content decides: apricot"))
    put(home / "sessions" / "junk.jsonl.zst", b"\x28\xb5\x2f\xfd" + os.urandom(400))
    put(home / "sessions" / "empty.jsonl.zst", b"")
    (home / "sessions" / "link.jsonl.zst").symlink_to(home / "sessions" / "plain.jsonl.zst")

    assert [path for _, path, _ in hits(engine, "apricot")] == [f"{home}/sessions/plain.jsonl"]
    assert len(problems(engine)) == 1
    assert "junk.jsonl: its compressed data is damaged" in problems(engine)[0]


def test_a_file_that_expands_beyond_all_measure_is_read_in_part(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafile, "ALWAYS_ALLOWED_BYTES", 1024 * 1024)
    bomb = compress(rollout("apricot") + bytes(64 * 1024 * 1024))
    assert len(bomb) * datafile.MAX_EXPANSION < 16 * 1024 * 1024
    put(home / "sessions" / f"{NAME}.zst", bomb)
    with living(settings(str(home), str(home / "cache"))) as engine:
        engine.settled()
        assert len(hits(engine, "apricot")) == 1
        assert "expands" in problems(engine)[0]


def test_a_file_that_asks_for_too_much_memory_is_refused(home: Path) -> None:
    options = {CompressionParameter.window_log: 27, CompressionParameter.content_size_flag: 0}
    path = home / "big.jsonl.zst"
    packer = ZstdCompressor(options=options)
    path.write_bytes(packer.compress(rollout("apricot")) + packer.flush())
    fd, data = opened(path)
    try:
        assert list(data.pieces(0, None)) == []
        assert "damaged" in data.damage
    finally:
        os.close(fd)


def test_a_large_compressed_file_is_not_waited_for(engine: Living, home: Path) -> None:
    plain = home / "sessions" / NAME
    lines = b"".join(item(f"filler {at} " + "words " * 400) for at in range(3000))
    put(plain.with_name(f"{NAME}.zst"), compress(rollout("apricot") + lines))

    assert engine.call("search", query="apricot")["index"]["files_pending"] == 1
    assert len(hits(engine.settled(), "apricot")) == 1
    last = engine.call("around", session_path=str(plain), message_index=3000, before=1)
    assert [m["text"][:12] for m in last["messages"]] == ["filler 2998 ", "filler 2999 "]


def test_a_restart_still_knows_a_compressed_session(home: Path) -> None:
    of = settings(str(home), str(home / "cache"))
    path = home / "sessions" / f"{NAME}.zst"
    put(path, compress(rollout("apricot")))
    with living(of) as engine:
        assert len(hits(engine.settled(), "apricot")) == 1
    with living(of) as engine:
        assert len(hits(engine.settled(), "apricot")) == 1
        (record,) = engine.engine.indexer.library
        assert record.file_id == 1, "what was known is used on"


# --- bytes ------------------------------------------------------------------------------------


@given(
    lines=st.lists(
        st.binary(max_size=300).map(lambda b: b.replace(b"\n", b"") + b"\n"), max_size=9
    ),
    frames=st.lists(st.integers(0, 2700), max_size=3),
    level=st.sampled_from([1, 3, 19]),
)
def test_whatever_the_frames_a_compressed_file_has_the_bytes_of_the_plain_one(
    lines: list[bytes], frames: list[int], level: int
) -> None:
    data = b"".join(lines)
    cuts = [0, *sorted(min(cut, len(data)) for cut in frames), len(data)]
    packed = b"".join(compress(data[a:b], level) for a, b in pairwise(cuts))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "s.jsonl.zst"
        path.write_bytes(packed)
        fd, file = opened(path)
        try:
            assert b"".join(piece for _, piece in file.pieces(0, None)) == data
            assert file.damage == ""
            look = tail.examine(fd, None)
            found = list(look.lines())
            assert [line.data + b"\n" for line in found] == lines
            spans = [(line.offset, len(line.data)) for line in found]
            assert list(file.spans(spans)) == [line.data for line in found]
            again = tail.examine(fd, look.checkpoint(), thorough=True)
            assert again.verdict is not tail.Verdict.REPLACED
        finally:
            os.close(fd)
