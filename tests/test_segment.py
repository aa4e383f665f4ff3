"""Segments: what they hold, the law of merging, and bytes that come back or say they cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import os
import resource
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexd import encoding, messages
from indexd.build import Entry, build, text_digest
from indexd.encoding import FileArray
from indexd.merge import merge, of_files
from indexd.messages import Place
from indexd.model import KINDS, Document, Kind
from indexd.segment import ESCAPE, Segment, nothing, term_hash
from indexd.source import DamagedSegment, Memory, OpenFile
from indexd.split import by_file
from indexd.text import Profile, meaning, raw_tokens


class Key(NamedTuple):
    """What tells a document from all others."""

    kind: Kind
    file_id: int
    message: int
    call: int


def key(entry: Entry) -> Key:
    document = entry.document
    return Key(document.kind, entry.file_id, document.message_index, document.call)


class Row(NamedTuple):
    """What a segment should know of a document."""

    terms: Counter[bytes]
    length: int
    tool_name: str
    digest: int
    timestamp: int
    offset: int
    size: int
    part: int


def rows(entries: Iterable[Entry], profile: Profile) -> dict[Key, Row]:
    """Return what a segment of `entries` must hold, counted one token at a time."""
    found = {}
    for entry in entries:
        meanings = [meaning(raw, profile) for raw in raw_tokens(entry.document.text)]
        length = sum(each.length for each in meanings)
        if length:
            found[key(entry)] = Row(
                Counter(term for each in meanings for term in each.terms),
                length,
                entry.document.tool_name,
                text_digest(entry.document.text),
                *entry[2:],
            )
    return found


def held(segment: Segment) -> dict[Key, Row]:
    """Return what a segment does hold."""
    columns, found = segment.columns, []
    ranks = segment.kind_ranks(np.arange(len(segment)))
    for at in range(len(segment)):
        message, call = int(columns.message[at]), int(columns.call[at])
        file_id = int(segment.file_ids[columns.file[at]])
        distant = [
            int(column.take(np.array([at]))[0])
            for column in (
                columns.digest, columns.timestamp, columns.offset, columns.size, columns.part
            )
        ]  # fmt: skip
        found.append(
            (
                Key(KINDS[ranks[at]], file_id, message, call),
                Row(
                    Counter(),
                    int(columns.length[at]),
                    segment.tool_names[columns.tool[at]],
                    *distant,
                ),
            )
        )
    for at, term in enumerate(segment.dictionary):
        ordinals, freqs = segment.term_postings(at)
        assert ordinals.tolist() == sorted(set(ordinals.tolist()))
        assert len(ordinals)
        assert segment.dictionary.find(term) == at
        for ordinal, freq in zip(ordinals.tolist(), freqs.tolist(), strict=True):
            found[ordinal][1].terms[term] = freq
    assert [each for each, _ in found] == sorted(
        (each for each, _ in found), key=lambda k: (KINDS.index(k.kind), *k[1:])
    )
    return dict(found)


def same(one: Any, other: Any) -> bool:
    """Say whether two segments are equal down to the types of their arrays."""
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, field.name), getattr(other, field.name))
            for field in dataclasses.fields(one)
        )
    if isinstance(one, FileArray | np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


WORDS = [
    "alpha", "beta", "readFile", "read_file", "数据库", "数据", "café", "½", "\ud800", "x" * 200,
    "E\u0301te\u0301", "サーー", "_", "",
]  # fmt: skip
REPEATS = [0, 0, 0, 2, ESCAPE - 1, ESCAPE, ESCAPE + 1]
few, many = settings(max_examples=30), settings(max_examples=1500)
profiles = st.sampled_from(["seed", "code"])
words = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
documents = st.builds(
    lambda text, times: text + " z" * times, words, st.sampled_from(REPEATS)
)  # fmt: skip
calls = st.sampled_from([0, 1, 1 << 17])
keys = st.builds(Key, st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 4), calls)
tools = st.sampled_from(["", "bash", "\udc80"])


@st.composite
def collections(draw: st.DrawFn) -> list[Entry]:
    """Draw documents of several files, no two of them the same one, in any order."""
    return [
        Entry(
            file_id,
            Document(kind, draw(documents), message, draw(tools), call),
            draw(st.sampled_from([0, -5, 1, 1_760_000_000_000])),
            draw(st.sampled_from([0, 7, 1 << 33])),
            draw(st.sampled_from([0, 300])),
            draw(st.sampled_from([0, 1, 100_000])),
        )
        for kind, file_id, message, call in draw(st.lists(keys, unique=True, max_size=12))
    ]  # fmt: skip


def entry(text: str, message: int = 0, file_id: int = 1, kind: Kind = Kind.USER_TEXT) -> Entry:
    return Entry(file_id, Document(kind, text, message))


# --- what a segment holds --------------------------------------------------------------------


@few
@given(collections(), profiles)
@example([entry("½"), entry("a b", 1)], "code")
def test_a_segment_holds_what_counting_token_by_token_finds(
    entries: list[Entry], profile: Profile
) -> None:
    segment = build(entries, profile)
    wanted = rows(entries, profile)
    assert held(segment) == wanted
    assert len(segment) == len(wanted)
    assert set(segment.tool_names) == {row.tool_name for row in wanted.values()}


@few
@given(collections(), profiles)
def test_documents_and_tokens_per_file_and_kind_are_counted(
    entries: list[Entry], profile: Profile
) -> None:
    segment = build(entries, profile)
    wanted = rows(entries, profile)
    assert sorted({each.file_id for each in wanted}) == segment.file_ids.tolist()
    for position, file_id in enumerate(segment.file_ids.tolist()):
        for rank, kind in enumerate(KINDS):
            lengths = [
                row.length for k, row in wanted.items() if (k.file_id, k.kind) == (file_id, kind)
            ]
            assert segment.doc_counts[position, rank] == len(lengths)
            assert segment.token_counts[position, rank] == sum(lengths)


@few
@given(collections())
def test_the_order_in_which_documents_come_does_not_matter(entries: list[Entry]) -> None:
    assert same(build(entries, "code"), build(entries[::-1], "code"))


@few
@given(collections(), profiles, st.sampled_from([b"", b"r", b"read", "数".encode(), b"zz"]))
def test_terms_are_found_together_and_by_their_beginning(
    entries: list[Entry], profile: Profile, prefix: bytes
) -> None:
    dictionary = build(entries, profile).dictionary
    terms = list(dictionary)
    assert sorted(dictionary.beginning(prefix)) == sorted(t for t in terms if t.startswith(prefix))
    asked = [b"unknown", *terms, b""]
    hashes = np.array([term_hash(term) for term in asked], np.uint64)
    assert list(dictionary.find_all(asked, hashes)) == [(t, at) for at, t in enumerate(terms)]


@few
@given(collections(), profiles)
def test_a_segment_of_many_files_falls_into_the_segments_of_each(
    entries: list[Entry], profile: Profile
) -> None:
    segment = build(entries, profile)
    apart = dict(by_file(segment))
    assert list(apart) == segment.file_ids.tolist()
    for file_id, own in apart.items():
        assert same(own, build([each for each in entries if each.file_id == file_id], profile))


def test_an_unknown_term_is_not_found() -> None:
    segment = build([entry("alpha beta")], "seed")
    assert segment.dictionary.find(b"gamma") == -1
    assert nothing().dictionary.find(b"gamma") == -1


# --- the law ---------------------------------------------------------------------------------


def obey(entries: list[Entry], data: st.DataObject, profile: Profile, range_postings: int) -> None:
    pieces: list[list[Entry]] = [[], [], []]
    for each in entries:
        pieces[data.draw(st.integers(0, 2))].append(each)
    segments = [build(piece, profile) for piece in pieces]
    merged = merge(segments, range_postings=range_postings)
    assert same(merged, build(entries, profile))
    one, two, three = segments
    assert same(merge([merge([one, two]), three]), merged)
    assert same(merge([three, merge([two, one])]), merged)


laws = given(collections(), st.data(), profiles, st.sampled_from([1, 3, 1000]))
test_building_all_is_merging_what_was_built_apart = few(laws(obey))
test_many_times_building_all_is_merging_what_was_built_apart = pytest.mark.slow(
    pytest.mark.timeout(600)(many(laws(obey)))
)


@few
@given(collections(), st.data(), profiles, st.sampled_from([1, 1000]))
def test_merging_without_some_documents_is_building_without_them(
    entries: list[Entry], data: st.DataObject, profile: Profile, range_postings: int
) -> None:
    out = {key(each) for each in entries if data.draw(st.booleans())}
    half = len(entries) // 2
    segments = [build(entries[:half], profile), build(entries[half:], profile)]
    keep = [np.array([k not in out for k in held(segment)], bool) for segment in segments]
    merged = merge(segments, keep, range_postings=range_postings)
    assert same(merged, build([each for each in entries if key(each) not in out], profile))
    assert same(
        merge(segments, [None, keep[1]]), merge([segments[0], merge(segments[1:], keep[1:])])
    )


@few
@given(collections(), profiles)
def test_a_file_can_be_left_out_and_a_file_id_changed(
    entries: list[Entry], profile: Profile
) -> None:
    segment = build(entries, profile)
    alive = segment.file_ids != 2
    kept = merge([segment], [of_files(segment, alive)])
    assert same(kept, build([each for each in entries if each.file_id != 2], profile))
    own = [each._replace(file_id=0) for each in entries if each.file_id == 3]
    renamed = [each._replace(file_id=77) for each in own]
    assert same(build(own, profile).with_file_id(77), build(renamed, profile))


@few
@given(collections())
def test_nothing_changes_nothing(entries: list[Entry]) -> None:
    segment = build(entries, "code")
    assert same(merge([]), nothing())
    assert same(build([], "code"), nothing())
    assert same(merge([nothing(), segment, nothing()]), segment)
    assert same(merge([segment]), segment)


def test_many_postings_are_merged_range_by_range() -> None:
    many = [entry(f"word{n} word{n * 7 % 1000} common", n, n % 5) for n in range(3000)]
    segments = [build(many[start::3], "seed") for start in range(3)]
    assert same(merge(segments, range_postings=100), build(many, "seed"))


def test_a_term_may_occur_more_often_than_two_bytes_count() -> None:
    many = entry("again " * 70_000)
    assert held(build([many], "seed")) == rows([many], "seed")
    assert same(encoding.decode(encoding.encode(build([many], "seed"))), build([many], "seed"))


def test_a_message_of_very_many_tool_calls_is_like_any_other() -> None:
    calls = [
        Entry(1, Document(Kind.TOOL_INPUT, f"call{n}", 0, "bash", n), part=n)
        for n in (0, 65_535, 65_536, 400_000)
    ]
    assert held(build(calls, "seed")) == rows(calls, "seed")
    assert same(encoding.decode(encoding.encode(build(calls, "seed"))), build(calls, "seed"))


# --- as bytes --------------------------------------------------------------------------------


def dumped(segment: Segment, extra: dict[str, Any] | None = None) -> bytes:
    file = io.BytesIO()
    encoding.dump(segment, file, extra or {})
    return file.getvalue()


@few
@given(collections(), profiles)
def test_segments_come_back_from_their_bytes(entries: list[Entry], profile: Profile) -> None:
    segment = build(entries, profile)
    assert same(encoding.decode(encoding.encode(segment)), segment)
    extra = {"covered": [1, 2], "of": {3: "\udc80"}}
    loaded, told = encoding.load(Memory(dumped(segment, extra)))
    assert same(loaded, segment)
    assert told == extra


@few
@given(collections(), profiles)
def test_a_segment_in_a_file_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry], profile: Profile
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "base")
    segment = build(entries, profile)
    encoding.save(segment, path, {"covered": [9]})
    loaded, extra = encoding.load(OpenFile(path))
    assert extra == {"covered": [9]}
    assert held(loaded) == held(segment)
    assert same(merge([loaded]), segment)
    assert encoding.encode(loaded) == encoding.encode(segment)
    assert dumped(merge([loaded])) == dumped(merge([segment]))


SAMPLE = [
    entry("alpha beta readFile" + " again" * 300, 0),
    entry("数据库 beta", 1, 2, Kind.ASSISTANT_TEXT),
    Entry(2, Document(Kind.TOOL_INPUT, "bash ls", 1, "bash"), 1_760_000_000_000, 90, 12, 1),
    entry("only beta", 70_000, 3, Kind.TOOL_OUTPUT),
]


def flipped(data: bytes, byte: int, bit: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ (1 << bit)]) + data[byte + 1 :]


def survivors(whole: Segment, read: Callable[[bytes], Segment], changed: Iterable[bytes]) -> int:
    """Return how many of the changed bytes give the whole segment; the others must be damage."""
    count = 0
    for data in changed:
        with contextlib.suppress(DamagedSegment):
            assert same(read(data), whole)
            count += 1
    return count


def test_a_cut_or_changed_row_is_damage_or_does_not_matter() -> None:
    segment = build(SAMPLE, "code")
    data = encoding.encode(segment)
    assert survivors(segment, encoding.decode, (data[:size] for size in range(len(data)))) == 0
    flips = (flipped(data, at, bit) for at in range(len(data)) for bit in range(8))
    # Deflate can say some things in two ways, and the last byte has bits to spare.
    assert survivors(segment, encoding.decode, flips) < len(data) // 10


def test_a_cut_or_changed_base_is_damage_or_does_not_matter() -> None:
    segment = build(SAMPLE, "code")
    data = dumped(segment)

    def read(changed: bytes) -> Segment:
        return encoding.load(Memory(changed))[0]

    # What fills up sections to eight bytes may be missing or other.
    assert survivors(segment, read, (data[:size] for size in range(len(data)))) < 8
    flips = (flipped(data, at, at % 8) for at in range(len(data)))
    assert survivors(segment, read, flips) < len(data) // 8


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
    | st.binary(max_size=9) | st.text(max_size=5)
    | st.sampled_from(["<u4", "|u1", "<i8", "O", "V8", "<f8"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(values)
def test_well_formed_bytes_of_another_meaning_are_damage(value: Any) -> None:
    with pytest.raises(DamagedSegment):
        encoding.decode(zlib.compress(msgpack.packb(value)))
    with pytest.raises(DamagedSegment):
        encoding.load(Memory(with_header(msgpack.packb(value))))


@few
@given(st.data(), values)
def test_a_row_of_which_one_piece_is_another_is_damage_or_a_segment(
    data: st.DataObject, value: Any
) -> None:
    body = msgpack.unpackb(zlib.decompress(encoding.encode(build(SAMPLE, "code"))))
    where = body[2] if data.draw(st.booleans()) else body
    where[data.draw(st.integers(0, len(where) - 1))] = value
    with contextlib.suppress(DamagedSegment):
        assert isinstance(encoding.decode(zlib.compress(msgpack.packb(body))), Segment)


def with_header(header: bytes) -> bytes:
    data = dumped(nothing())
    magic = data[: data.index(b"base") + 5]
    return magic + len(header).to_bytes(8, "big") + zlib.crc32(header).to_bytes(4, "big") + header


def test_another_version_is_damage() -> None:
    header = msgpack.packb([encoding.VERSION + 1, [], {}, {}])
    with pytest.raises(DamagedSegment, match="version 2"):
        encoding.load(Memory(with_header(header)))
    with pytest.raises(DamagedSegment, match="version 2"):
        encoding.decode(zlib.compress(msgpack.packb([encoding.VERSION + 1, [], [], b"", b"", b""])))


# --- the file --------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "base.seg"


def test_a_base_cut_short_or_changed_on_disk_is_damage(path: Path) -> None:
    encoding.save(build(SAMPLE, "code"), str(path), {})
    data = path.read_bytes()
    for size in range(0, len(data), 37):
        path.write_bytes(data[:size])
        with pytest.raises(DamagedSegment):
            encoding.load(OpenFile(str(path)))
    for at in range(0, len(data), 7):
        path.write_bytes(flipped(data, at, at % 8))
        with contextlib.suppress(DamagedSegment):
            assert held(encoding.load(OpenFile(str(path)))[0]) == rows(SAMPLE, "code")


def test_a_base_that_shrinks_while_it_is_read_is_an_error_and_never_another_value(
    path: Path,
) -> None:
    wanted = build(SAMPLE, "code")
    encoding.save(wanted, str(path), {})
    segment, _ = encoding.load(OpenFile(str(path)))
    damaged = 0
    for size in range(path.stat().st_size, -1, -16):
        os.truncate(path, size)
        for at in range(len(wanted.dictionary)):
            try:
                ordinals, freqs = segment.term_postings(at)
            except DamagedSegment:
                damaged += 1
                continue
            assert ordinals.tolist() == wanted.term_postings(at)[0].tolist()
            assert freqs.tolist() == wanted.term_postings(at)[1].tolist()
    assert damaged > len(wanted.dictionary)
    for read in (
        lambda: segment.term_postings(0),
        lambda: segment.columns.digest.take(np.array([0])),
        lambda: merge([segment]),
    ):
        with pytest.raises(DamagedSegment):
            read()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_file_is_closed_with_the_last_array_and_a_missing_one_is_a_plain_error(
    path: Path,
) -> None:
    before = descriptors()
    encoding.save(build(SAMPLE, "code"), str(path), {})
    segment, _ = encoding.load(OpenFile(str(path)))
    assert descriptors() == before + 1
    del segment
    gc.collect()
    assert descriptors() == before
    with pytest.raises(FileNotFoundError):
        OpenFile(str(path) + ".missing")
    gc.collect()


def test_a_base_that_cannot_be_written_leaves_the_old_one_and_nothing_beside_it(
    path: Path,
) -> None:
    encoding.save(build(SAMPLE, "code"), str(path), {})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            encoding.save(build(SAMPLE, "seed"), str(path), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == before


# --- places of messages ----------------------------------------------------------------------


def test_places_come_back_from_their_bytes() -> None:
    places = [
        Place(0, 0, 10, 0, 0, ""),
        Place(9, 1 << 40, 1 << 24, 70_000, 1_760_000_000_000, "bash"),
    ]
    assert messages.decode(messages.encode(places)) == places
    assert messages.decode(messages.encode([])) == []


def test_damaged_places_are_a_value_error() -> None:
    places = [Place(0, 0, 10, 0, 0, "bash")] * 9
    data = messages.encode(places)
    for size in range(len(data)):
        with pytest.raises(ValueError):  # noqa: PT011
            messages.decode(data[:size])
    for at in range(8 * len(data)):
        # Deflate ends on a bit, so a few bits before its checksum mean nothing.
        with contextlib.suppress(ValueError):
            assert messages.decode(flipped(data, at // 8, at % 8)) == places
    with pytest.raises(ValueError):  # noqa: PT011
        messages.decode(zlib.compress(msgpack.packb([1, 2])))
