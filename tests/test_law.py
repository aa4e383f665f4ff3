"""The law: after any history of a home, answers equal those of a fresh index over its files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import ExitStack
from typing import Any

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.living import Living, living
from tests.living import settings as settings_for
from tests.zstandard import compress

WORDS = ["cache", "error", "readFile", "read_file", "数据库", "café", "timeout", "x1"]
NAMES = ["a.jsonl", "b.jsonl", "deep/er/c.jsonl", "subagents/d.jsonl"]
QUERIES = ["cache", "error timeout", "read file", "数据", "cafe x1"]

words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
names = st.sampled_from(NAMES)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """One line: chat messages of all roles, a rewinding event, or something damaged."""
    shape = draw(st.integers(0, 5))
    text = draw(words)
    if shape == 0:
        return b"not json " + text.encode() + b"\n"
    if shape == 1:
        call = {"id": "c1", "name": "bash", "arguments": json.dumps({"command": text})}
        record: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
    elif shape == 2:
        record = {"role": "tool", "tool_call_id": "c1", "content": f"error: {text}"}
    else:
        record = {"role": draw(st.sampled_from(["user", "assistant", "system"])), "content": text}
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


chunks = st.lists(lines(), min_size=1, max_size=5).map(b"".join)


def answers(engine: Living) -> list[Any]:
    """Return everything a search says that depends on the files."""
    found = []
    for query in QUERIES:
        for kinds in (["all"], None):
            answer = engine.call("search", query=query, kinds=kinds, limit=50)
            rows = [
                {name: value for name, value in hit.items() if name != "timestamp"}
                for hit in answer["hits"]
            ]
            found.append((query, answer["total"], rows))
    return found


class Home(RuleBasedStateMachine):
    """A home directory that agents write to, and an engine that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="law")
        self.root = os.path.join(self.directory, "sessions")
        os.mkdir(self.root)
        self.stack = ExitStack()
        self.engine: Living | None = None

    @initialize()
    def start(self) -> None:
        self.engine = self.stack.enter_context(
            living(settings_for(self.directory, os.path.join(self.directory, "cache")))
        )

    def path(self, name: str) -> str:
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    @rule(name=names, data=chunks)
    def append(self, name: str, data: bytes) -> None:
        with open(self.path(name), "ab") as file:
            file.write(data)

    @rule(name=names, data=lines(), at=st.integers(1, 20))
    def append_half(self, name: str, data: bytes, at: int) -> None:
        with open(self.path(name), "ab") as file:
            file.write(data[: min(at, len(data) - 1)])

    @rule(name=names, data=chunks)
    def rewrite_in_place(self, name: str, data: bytes) -> None:
        with open(self.path(name), "wb") as file:
            file.write(data)

    @rule(name=names, data=chunks)
    def save_by_rename(self, name: str, data: bytes) -> None:
        path = self.path(name)
        old = b""
        if os.path.exists(path):
            with open(path, "rb") as file:
                old = file.read()
        with open(path + ".tmp", "wb") as file:
            file.write(old + data)
        os.rename(path + ".tmp", path)

    @rule(name=names, to=names)
    def rename(self, name: str, to: str) -> None:
        if name != to and os.path.exists(self.path(name)):
            os.rename(self.path(name), self.path(to))

    @rule(name=names)
    def delete(self, name: str) -> None:
        if os.path.exists(self.path(name)):
            os.unlink(self.path(name))

    @rule(name=names, keep=st.integers(0, 200))
    def truncate(self, name: str, keep: int) -> None:
        if os.path.exists(self.path(name)):
            os.truncate(self.path(name), keep)

    @rule(name=names, keep=st.booleans())
    def compress(self, name: str, keep: bool) -> None:
        path = self.path(name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                packed = compress(file.read())
            with open(path + ".tmp", "wb") as file:
                file.write(packed)
            os.rename(path + ".tmp", path + ".zst")
            if not keep:
                os.unlink(path)

    @rule(name=names, data=chunks)
    def append_a_frame(self, name: str, data: bytes) -> None:
        with open(self.path(name) + ".zst", "ab") as file:
            file.write(compress(data))

    @rule(name=names, keep=st.integers(0, 200))
    def cut_what_is_compressed(self, name: str, keep: int) -> None:
        if os.path.exists(self.path(name) + ".zst"):
            os.truncate(self.path(name) + ".zst", keep)

    @rule(name=names)
    def delete_what_is_compressed(self, name: str) -> None:
        if os.path.exists(self.path(name) + ".zst"):
            os.unlink(self.path(name) + ".zst")

    @rule()
    def remove_a_directory(self) -> None:
        shutil.rmtree(os.path.join(self.root, "deep"), ignore_errors=True)

    @rule(name=names)
    def hide(self, name: str) -> None:
        marker = self.path(name).removesuffix(".jsonl") + ".cleanup-pending.json"
        if os.path.exists(marker):
            os.unlink(marker)
        else:
            open(marker, "wb").close()

    @rule()
    def restart(self) -> None:
        self.stack.close()
        self.start()

    @rule()
    def rest(self) -> None:
        assert self.engine is not None
        self.engine.write_base()

    @rule()
    def look(self) -> None:
        assert self.engine is not None
        self.engine.call("sync")

    @rule()
    def compare(self) -> None:
        assert self.engine is not None
        mine = answers(self.engine)
        with tempfile.TemporaryDirectory(prefix="law") as cache:
            fresh_settings = settings_for(self.directory, os.path.join(cache, "c"))
            with living(fresh_settings) as fresh:
                expected = answers(fresh.settled())
        note(str(expected))
        assert mine == expected

    def teardown(self) -> None:
        try:
            if self.engine is not None:
                self.compare()
        finally:
            self.stack.close()
            shutil.rmtree(self.directory)


TestHome = Home.TestCase
TestHome.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
