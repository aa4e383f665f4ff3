from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from indexd.discover import Candidate, in_directory, skipped, walk

CHAT = '{"role":"user","content":"hi"}\n'
NATIVE = '{"schema_version":1,"type":"replace","revision":1,"messages":[]}\n'


def put(top: Path, name: str, content: str = CHAT) -> str:
    path = top / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return str(path)


def found(top: Path) -> dict[str, Candidate]:
    return {os.path.relpath(each.path, top): each for each in walk(str(top))}


def test_every_jsonl_file_may_be_a_session_however_deep(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl")
    put(tmp_path, "-home-ana-src/7d0c/subagents/agent-a1.jsonl")
    put(tmp_path, ".copilot/252d/events.jsonl")
    put(tmp_path, "notes.md")
    put(tmp_path, "history.jsonl.gz")
    assert set(found(tmp_path)) == {
        "a.jsonl",
        "-home-ana-src/7d0c/subagents/agent-a1.jsonl",
        ".copilot/252d/events.jsonl",
    }


@pytest.mark.parametrize("directory", [".trash/x", "s.ckpt", "s.jobs", "deep/s.ckpt/inner"])
def test_what_was_put_away_is_not_found(tmp_path: Path, directory: str) -> None:
    path = put(tmp_path, f"{directory}/a.jsonl")
    assert found(tmp_path) == {}
    assert in_directory(os.path.dirname(path), ["a.jsonl"]) == []


def test_directories_without_sessions_are_told_by_name() -> None:
    assert [name for name in (".trash", "a.ckpt", "a.jobs", "a", ".git") if skipped(name)] == [
        ".trash",
        "a.ckpt",
        "a.jobs",
    ]


@pytest.mark.parametrize(
    ("names", "sessions"),
    [
        (["session.jsonl"], ["session.jsonl"]),
        (["s.jsonl", "s.conflicts.jsonl", "s.guardian.jsonl", "s.anything.jsonl"], ["s.jsonl"]),
        (["s.guardian.jsonl", "s.guardian.events.jsonl", "s.turns.jsonl"], []),
        (["s.jsonl", "s.events.jsonl.damaged", "s.jsonl.meta", "s.jsonl.lock"], ["s.jsonl"]),
        (["s.txt", "", ".jsonl", ".session.x.tmp", ".hidden.jsonl"], []),
        (["alone.notes.jsonl"], ["alone.notes.jsonl"]),
        (
            [
                "20260820-090000.000000000-v3.jsonl",
                "20260820-090000.000000000-v3.2.jsonl",
                "20260820-090000.123.jsonl",
            ],
            [
                "20260820-090000.000000000-v3.2.jsonl",
                "20260820-090000.000000000-v3.jsonl",
                "20260820-090000.123.jsonl",
            ],
        ),
    ],
)
def test_the_names_tell_sessions_from_sidecars(names: list[str], sessions: list[str]) -> None:
    found_paths = {each.path for each in in_directory("/s", names)}
    assert found_paths == {f"/s/{name}" for name in sessions}


def test_sidecars_with_facts_are_named_by_path(tmp_path: Path) -> None:
    put(tmp_path, "r.jsonl")
    meta = put(tmp_path, "r.jsonl.meta", "{}")
    put(tmp_path, "k.jsonl")
    facts = put(tmp_path, "k.json", "{}")
    put(tmp_path, "d.jsonl")
    settings = put(tmp_path, "d.settings.json", "{}")
    workspace = put(tmp_path, "c/workspace.yaml", "id: x")
    put(tmp_path, "c/events.jsonl")
    sidecars = {name: each.sidecars for name, each in found(tmp_path).items()}
    assert sidecars == {
        "r.jsonl": (meta,),
        "k.jsonl": (facts,),
        "d.jsonl": (settings,),
        "c/events.jsonl": (workspace,),
    }


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    put(outside, "secret.jsonl")
    root = tmp_path / "root"
    put(root, "own.jsonl")
    (root / "dir").symlink_to(outside)
    (root / "file.jsonl").symlink_to(outside / "secret.jsonl")
    os.mkfifo(root / "pipe.jsonl")
    assert set(found(root)) == {"own.jsonl"}


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    raw = os.path.join(os.fsencode(tmp_path), b"\xff\xfe.jsonl")
    Path(os.fsdecode(raw)).write_text(CHAT)
    (only,) = walk(str(tmp_path))
    assert os.fsencode(only.path) == raw


def test_a_directory_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert list(walk(str(tmp_path / "gone"))) == []


# ---- event logs ----


def data_of(top: Path, name: str = "s.jsonl") -> str | None:
    candidate = found(top).get(name)
    return None if candidate is None else os.path.basename(candidate.data_path)


@pytest.mark.parametrize(
    ("log", "data"),
    [
        (NATIVE, "s.events.jsonl"),
        ('{"type":"append","schema_version":1,"messages":[]}\n', "s.events.jsonl"),
        (NATIVE + '{"torn', "s.events.jsonl"),
        (json.dumps({"schema_version": 99, "type": "message"}) + "\n", "s.events.jsonl"),
        ("", "s.jsonl"),
        ('{"schema_version":1,"type":"rep', "s.jsonl"),
        ('{"type":"session.start","data":{}}\n', "s.jsonl"),
        ('{"schema_version":1,"type":"other"}\n', "s.jsonl"),
        ("garbage\n" + NATIVE, "s.jsonl"),
    ],
    ids=["native", "reordered", "torn tail", "later schema", "empty", "torn", "foreign",
         "unknown type", "garbage"],
)  # fmt: skip
def test_a_native_event_log_is_the_authority_over_its_session(
    tmp_path: Path, log: str, data: str
) -> None:
    put(tmp_path, "s.jsonl")
    put(tmp_path, "s.events.jsonl", log)
    assert list(found(tmp_path)) == ["s.jsonl"]
    assert data_of(tmp_path) == data


def test_an_event_log_whose_first_record_is_long_is_known_by_its_beginning(tmp_path: Path) -> None:
    put(tmp_path, "s.jsonl")
    long = json.loads(NATIVE) | {"messages": [{"role": "user", "content": "x" * 200_000}]}
    put(tmp_path, "s.events.jsonl", json.dumps(long) + "\n")
    assert data_of(tmp_path) == "s.events.jsonl"


def test_an_event_log_without_a_session_is_one_itself_once_it_says_something(
    tmp_path: Path,
) -> None:
    log = put(tmp_path, "s.events.jsonl", "")
    assert found(tmp_path) == {}
    put(tmp_path, "s.events.jsonl", NATIVE)
    assert found(tmp_path) == {"s.events.jsonl": Candidate(log, log)}
    session = put(tmp_path, "s.jsonl")
    assert found(tmp_path) == {"s.jsonl": Candidate(session, log)}


def test_a_log_that_becomes_another_is_judged_anew(tmp_path: Path) -> None:
    put(tmp_path, "s.jsonl")
    put(tmp_path, "s.events.jsonl", "not a log\n")
    assert data_of(tmp_path) == "s.jsonl"
    fresh = tmp_path / "s.events.jsonl.tmp"
    fresh.write_text(NATIVE)
    fresh.replace(tmp_path / "s.events.jsonl")
    assert data_of(tmp_path) == "s.events.jsonl"


# ---- sessions that are being deleted ----


def test_a_pending_deletion_hides_a_session_at_once(tmp_path: Path) -> None:
    put(tmp_path, "gone.jsonl")
    put(tmp_path, "gone.events.jsonl", NATIVE)
    put(tmp_path, "kept.jsonl")
    put(tmp_path, "gone.cleanup-pending.json", "")
    assert set(found(tmp_path)) == {"kept.jsonl"}


def test_sub_agents_of_a_pending_parent_are_hidden_and_others_are_not(tmp_path: Path) -> None:
    put(tmp_path, "parent.cleanup-pending.json", "{}")
    for name, meta in {
        "sa_child": '{"parentSession":"parent"}',
        "sa_by_path": '{"parentSession":"/s/parent.jsonl"}',
        "sa_other": '{"parentSession":"elsewhere"}',
        "sa_blank": '{"parentSession":" "}',
        "sa_broken": "{",
    }.items():
        put(tmp_path, f"subagents/{name}.jsonl")
        put(tmp_path, f"subagents/{name}.meta.json", meta)
    put(tmp_path, "subagents/sa_alone.jsonl")
    visible = {f"subagents/sa_{name}.jsonl" for name in ("other", "blank", "broken", "alone")}
    assert set(found(tmp_path)) == visible
