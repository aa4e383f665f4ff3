"""A person's first hour: sessions on disk, one command, an answer; then appends and restarts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from watchdog.events import FileOpenedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from indexd.client import Client

SAMPLES = Path(__file__).parent / "data" / "formats"
PLACES = {
    "claude": ".claude/projects/kettle/7d0c1f3e-5a7b-4c11-9e20-0a1b2c3d4e5f.jsonl",
    "codex": ".codex/sessions/2026/08/20/rollout-2026-08-20T09-00-00-019f8a00.jsonl",
    "kiro": ".kiro/sessions/cli/3c2b1a00-9999-4888-8777-666655554444.jsonl",
    "reasonix": ".reasonix/sessions/20260820-090000.000000000-deepseek-v4.jsonl",
}

Indexctl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with one session of each of four agents; short, since sockets go below it."""
    directory = Path(tempfile.mkdtemp(prefix="home"))
    for agent, place in PLACES.items():
        target = directory / place
        target.parent.mkdir(parents=True)
        shutil.copy(SAMPLES / agent / "sample.jsonl", target)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def indexctl(home: Path) -> Iterator[Indexctl]:
    """The command as a person runs it, in that home; the daemon it starts is stopped at last."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDG_", "INDEXD_", "CLAUDE", "CODEX", "KIRO", "REASONIX"))
    }
    environment |= {"HOME": str(home), "PYTHONPATH": str(Path(__file__).parent.parent)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "indexd.cli", *words]
        return subprocess.run(
            command, env=environment, cwd=home, capture_output=True, text=True, timeout=60
        )

    yield run
    run("stop")


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_command_answers_from_every_agents_sessions(indexctl: Indexctl) -> None:
    indexctl("status", "--wait")

    done = indexctl("query", "boiler lid log flow", "--limit", "30", "--json")

    agents = {hit["agent"] for hit in answer(done)["hits"]}
    assert {"claude", "codex", "kiro", "reasonix"} <= agents


def test_a_hit_opens_with_what_was_said_around_it(indexctl: Indexctl) -> None:
    indexctl("status", "--wait")
    hit = answer(indexctl("query", "boiler test", "--json"))["hits"][0]

    found = answer(indexctl("around", "1", "--json"))

    target = [message for message in found["messages"] if message["target"]]
    assert found["session_path"] == hit["session_path"]
    assert [message["index"] for message in target] == [hit["message_index"]]


def test_a_line_appended_to_any_session_is_found_at_once(indexctl: Indexctl, home: Path) -> None:
    indexctl("status", "--wait")
    words = ("marmalade", "quince", "damson", "medlar")
    for word, place in zip(words, PLACES.values(), strict=True):
        with open(home / place, "ab") as file:
            file.write(_line(place, word))

        hits = answer(indexctl("query", word, "--json"))["hits"]

        assert [hit["session_path"] for hit in hits] == [str((home / place).resolve())]


def test_half_a_line_waits_for_its_end(indexctl: Indexctl, home: Path) -> None:
    indexctl("status", "--wait")
    path = home / PLACES["claude"]
    line = _line(PLACES["claude"], "quincejelly")
    with open(path, "ab") as file:
        file.write(line[:40])
    assert indexctl("query", "quincejelly").returncode == 1

    with open(path, "ab") as file:
        file.write(line[40:])

    assert indexctl("query", "quincejelly").returncode == 0


def test_a_restart_opens_no_session_that_has_not_changed(indexctl: Indexctl, home: Path) -> None:
    indexctl("status", "--wait")
    before = answer(indexctl("query", "kettle lid", "--json"))["hits"]
    indexctl("stop")
    changed = str((home / PLACES["codex"]).resolve())
    with open(changed, "ab") as file:
        file.write(_line(PLACES["codex"], "damson"))
    with _opened_below(home) as opened:
        hits = answer(indexctl("query", "damson", "--json", "--limit", "1"))["hits"]

    assert [hit["session_path"] for hit in hits] == [changed]
    assert {path for path in opened if path.endswith(".jsonl")} == {changed}
    again = answer(indexctl("query", "kettle lid", "--json"))["hits"]
    assert [hit["session_path"] for hit in again] == [hit["session_path"] for hit in before]


def test_answers_after_a_kill_equal_those_of_a_fresh_index(indexctl: Indexctl, home: Path) -> None:
    indexctl("status", "--wait")
    expected = _everything(indexctl)
    for moment in range(2):
        indexctl("stop")
        shutil.rmtree(home / ".cache")
        indexctl("query", "kettle")  # starts the daemon, which is still indexing
        os.kill(_pid(home), signal.SIGKILL)
        if moment % 2:
            indexctl("query", "kettle")
            os.kill(_pid(home), signal.SIGKILL)

        indexctl("status", "--wait")

        assert _everything(indexctl) == expected


def _everything(indexctl: Indexctl) -> list[Any]:
    found = []
    for query in ("kettle", "boiler test", "lid sensor", "log"):
        hits = answer(indexctl("query", query, "--kind", "all", "--limit", "100", "--json"))["hits"]
        found.append(hits)
    return found


def _pid(home: Path) -> int:
    with Client(str(home / ".cache/indexd/run/indexd.sock")) as client:
        return int(client.status()["pid"])


def _line(place: str, word: str) -> bytes:
    """Return a line that the agent of `place` might write, saying `word`."""
    if ".claude" in place:
        record: dict[str, Any] = {
            "type": "user",
            "uuid": word,
            "sessionId": "7d0c1f3e-5a7b-4c11-9e20-0a1b2c3d4e5f",
            "timestamp": "2026-08-20T10:00:00.000Z",
            "message": {"role": "user", "content": f"please {word}"},
        }
    elif ".codex" in place:
        content = [{"type": "input_text", "text": f"please {word}"}]
        record = {
            "timestamp": "2026-08-20T10:00:00.000Z",
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": content},
        }
    elif ".kiro" in place:
        content = [{"kind": "text", "data": f"please {word}"}]
        record = {
            "version": "v1",
            "kind": "Prompt",
            "data": {"message_id": word, "content": content},
        }
    else:
        record = {"role": "user", "content": f"please {word}"}
    return json.dumps(record).encode() + b"\n"


class _Opened(FileSystemEventHandler):
    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.probed = threading.Event()

    def on_any_event(self, event: FileSystemEvent) -> None:
        self.paths.add(os.fsdecode(event.src_path))
        if os.path.basename(os.fsdecode(event.src_path)) == "probe":
            self.probed.set()


class _opened_below:
    """Collects the files opened below a directory, as the kernel reports them."""

    def __init__(self, directory: Path) -> None:
        self._observer = Observer()
        self._handler = _Opened()
        self._directory = directory

    def __enter__(self) -> set[str]:
        self._observer.schedule(
            self._handler,
            str(self._directory.resolve()),
            recursive=True,
            event_filter=[FileOpenedEvent],
        )
        self._observer.start()
        return self._handler.paths

    def __exit__(self, *exc: object) -> None:
        # A last event, so that all before it are known to have come.
        probe = self._directory / "probe"
        probe.touch()
        probe.read_bytes()
        assert self._handler.probed.wait(10)
        self._observer.stop()
        self._observer.join()
