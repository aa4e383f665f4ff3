"""Tool search in the daemon: events by every way, kept over restarts, whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from indexd.client import Client
from indexd.errors import BadRequest, IndexdError, NotFound
from indexd.protocol import MAX_ANSWER_BYTES, encode
from tests.living import Living, living, settings


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tools") as directory:
        (Path(directory) / "sessions").mkdir()
        yield Path(directory)


@pytest.fixture
def engine(home: Path) -> Iterator[Living]:
    with started(home) as running:
        yield running


def started(home: Path) -> Any:
    return living(settings(str(home), str(home / "cache")))


def tool(name: str, description: str, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            key: {"type": "string", "description": text} for key, text in properties.items()
        },
        "required": list(properties),
    }
    return {"name": name, "description": description, "inputSchema": schema}


KETTLE = [
    tool("boil_water", "Heat water until it boils.", litres="how much"),
    tool("descale", "Remove limescale from the kettle."),
]
FRIDGE = [tool("make_ice", "Freeze water into ice cubes.", shape="of the cubes")]


def connected(server: str, tools: list[dict[str, Any]], event: str = "connected") -> dict[str, Any]:
    return {"event": event, "server": server, "tools": tools}


def names(engine: Living, query: str, **more: Any) -> list[str]:
    return [hit["tool_id"] for hit in engine.call("tool_search", query=query, **more)["tools"]]


def journal(home: Path) -> Path:
    directory = home / "cache" / "state" / "mcp-events"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / "client.jsonl"


def test_an_event_makes_tools_findable(engine: Living) -> None:
    answer = engine.call("mcp_event", **connected("kettle", KETTLE))

    assert (answer["tools"], answer["added"]) == (2, 2)
    assert names(engine, "limescale") == ["kettle::descale"]
    assert engine.call("status")["servers"]["kettle"]["tools"] == 2


def test_a_changed_list_replaces_the_old_one_whole(engine: Living) -> None:
    engine.call("mcp_event", **connected("kettle", KETTLE))

    answer = engine.call("mcp_event", **connected("kettle", KETTLE[:1], "tools_changed"))

    assert (answer["added"], answer["removed"]) == (0, 1)
    assert names(engine, "limescale") == []


def test_an_offline_server_stays_findable_and_says_so(engine: Living) -> None:
    engine.call("mcp_event", **connected("kettle", KETTLE))
    engine.call("mcp_event", event="disconnected", server="kettle")

    found = engine.call("tool_search", query="boil water")

    assert [(hit["tool_id"], hit["online"]) for hit in found["tools"][:1]] == [
        ("kettle::boil_water", False)
    ]


def test_catalogs_and_activations_survive_a_restart(home: Path) -> None:
    with started(home) as running:
        running.call("mcp_event", **connected("kettle", KETTLE))
        running.call("tool_search", tool_id="descale", session="s1")

    with started(home) as again:
        assert names(again, "boil water")[0] == "kettle::boil_water"
        loaded = again.call("tool_list", session="s1")["loaded"]
        assert [entry["tool_id"] for entry in loaded] == ["kettle::descale"]


def test_lines_of_a_journal_are_events_and_bad_ones_cost_no_neighbour(
    engine: Living, home: Path
) -> None:
    path = journal(home)
    lines = [
        json.dumps(connected("kettle", KETTLE)),
        "not json",
        '{"event": "exploded", "server": "x"}',
        json.dumps(connected("fridge", FRIDGE)),
    ]
    path.write_text("\n".join(lines) + "\n")

    assert names(engine, "ice cubes") == ["fridge::make_ice"]
    assert names(engine, "limescale") == ["kettle::descale"]
    assert sum("client.jsonl" in text for text in engine.call("status")["problems"]) == 2


def test_what_a_journal_says_can_be_answered(engine: Living, home: Path) -> None:
    journal(home).write_text(
        '{"event": "connected", "server": "odd", "tools": [{"name": "\\ud83d"},'
        ' {"name": "\\ud83d"}, {"name": "count", "inputSchema": {"minimum": -1' + "0" * 5000 + ","
        ' "maximum": 18446744073709551616}}]}\n'
    )

    answer = engine.call("tool_search", tool_id="odd::count", detail="full", session="s")
    assert answer["tools"][0]["input_schema"] == {"minimum": -(2**63), "maximum": 2**64 - 1}
    for said in (answer, engine.call("tool_list", session="s"), engine.call("status")):
        encode(said, MAX_ANSWER_BYTES)


def test_a_journal_that_grew_while_the_daemon_was_away_is_read_on(home: Path) -> None:
    path = journal(home)
    path.write_text(json.dumps(connected("kettle", KETTLE)) + "\n")
    with started(home) as running:
        assert names(running, "limescale") == ["kettle::descale"]
    with open(path, "a") as file:
        file.write(json.dumps({"event": "disconnected", "server": "kettle"}) + "\n")

    with started(home) as again:
        assert again.call("tool_search", query="limescale")["tools"][0]["online"] is False


def test_a_malformed_event_changes_nothing(engine: Living) -> None:
    engine.call("mcp_event", **connected("kettle", KETTLE))

    with pytest.raises(BadRequest):
        engine.call("mcp_event", event="connected", server="kettle", tools="all of them")

    assert names(engine, "limescale") == ["kettle::descale"]


@pytest.mark.parametrize("event", ["connected", "tools_changed"])
def test_an_event_that_forgot_its_tools_does_not_empty_the_list(engine: Living, event: str) -> None:
    engine.call("mcp_event", **connected("kettle", KETTLE))

    with pytest.raises(BadRequest, match="tools of 'kettle'"):
        engine.call("mcp_event", event=event, server="kettle")

    assert names(engine, "limescale") == ["kettle::descale"]


def test_one_bad_tool_is_dropped_with_a_reason(engine: Living) -> None:
    answer = engine.call("mcp_event", **connected("kettle", [*KETTLE, {"description": "no name"}]))

    assert answer["tools"] == 2
    assert len(answer["warnings"]) == 1
    assert len(engine.call("status")["servers"]["kettle"]["problems"]) == 1


def test_an_unknown_id_names_the_nearest(engine: Living) -> None:
    engine.call("mcp_event", **connected("kettle", KETTLE))

    with pytest.raises(NotFound) as error:
        engine.call("tool_search", tool_id="boil_watr")

    assert "boil_water" in error.value.hint + error.value.message


def test_a_tool_that_goes_leaves_the_active_set(engine: Living) -> None:
    engine.call("mcp_event", **connected("kettle", KETTLE))
    engine.call("tool_search", tool_id="descale", session="s1")

    engine.call("mcp_event", **connected("kettle", KETTLE[:1]))

    assert engine.call("tool_list", session="s1")["loaded"] == []


def test_every_deferred_tool_is_findable_by_its_id(engine: Living) -> None:
    engine.call("mcp_event", **connected("kettle", KETTLE))
    engine.call("mcp_event", **connected("fridge", FRIDGE))

    for line in engine.call("tool_list", context_window=100)["deferred"]:
        identity = line.partition(": ")[0]
        found = engine.call("tool_search", tool_id=identity)["tools"]
        assert [hit["tool_id"] for hit in found] == [identity]


def test_a_long_event_holds_up_no_question(engine: Living) -> None:
    engine.call("mcp_event", **connected("kettle", KETTLE))
    many = [tool(f"press_{n}", f"Presses button {n} of the panel.") for n in range(2000)]
    event = threading.Thread(target=engine.call, args=["mcp_event"], kwargs=connected("tv", many))

    event.start()
    answers = []
    while event.is_alive():
        answer = engine.call("tool_search", query="limescale")
        answers += [answer] if event.is_alive() else []

    assert len(answers) > 2
    assert all(hit["tool_id"] == "kettle::descale" for a in answers for hit in a["tools"])
    assert engine.call("tool_search", query="press button 7")["total_tools"] == 2002


def test_events_take_effect_in_the_order_they_are_written(engine: Living, home: Path) -> None:
    many = [tool(f"press_{n}", f"Presses button {n}.") for n in range(300)]
    steps = [connected("tv", many), connected("tv", KETTLE), connected("tv", many[:5])]
    with open(journal(home), "a") as file:
        for step in steps * 3:
            file.write(json.dumps(step) + "\n")
            file.flush()
            assert names(engine, "press 1")[:1] in ([], ["tv::press_1"])

    assert engine.call("status")["servers"]["tv"]["tools"] == 5
    assert names(engine, "limescale") == []


@contextmanager
def a_daemon(home: Path) -> Iterator[tuple[subprocess.Popen[bytes], Client]]:
    """Run the daemon as a process of its own, in an empty home; it is killed at last."""
    ready, theirs = os.pipe()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "INDEXD_"))}
    own = {
        "HOME": str(home),
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "INDEXD_SOCKET": str(home / "s"),
        "INDEXD_READY_FD": str(theirs),
    }
    command = [sys.executable, "-m", "indexd"]
    with (
        open(home / "log", "ab") as log,
        subprocess.Popen(
            command, env={**kept, **own}, pass_fds=[theirs], stdout=log, stderr=log
        ) as process,
    ):
        os.close(theirs)
        with open(ready, "rb") as file:
            assert file.read(1), (home / "log").read_text()
        try:
            with Client(str(home / "s")) as client:
                yield process, client
        finally:
            process.kill()


def test_a_daemon_killed_among_events_leaves_no_half_catalog(home: Path) -> None:
    for attempt in range(3):
        versions = (f"v{attempt}x{step}" for step in count())
        with a_daemon(home) as (process, client):
            killing = threading.Timer(0.05 * (attempt + 1), process.kill)
            with suppress(IndexdError):
                for step, version in enumerate(versions):
                    if step == 20:
                        killing.start()
                    tools = [tool(f"press_{n}", f"Press {version}.") for n in range(20)]
                    sent = version
                    client.mcp_event("tools_changed", "panel", tools)
                    answered = version

        with a_daemon(home) as (_, client):
            found = client.tool_list(context_window=10)["deferred"]
            (said,) = {line.partition("Press ")[2].rstrip(".") for line in found}
            assert len(found) == 20
            assert said in (sent, answered)
            assert len(client.tool_search(said, max_results=50)["tools"]) == 20


def test_an_event_that_was_answered_outlives_a_crash(home: Path) -> None:
    with a_daemon(home) as (process, client):
        many = [tool(f"press_{n}", f"Presses button {n}.") for n in range(1000)]
        client.mcp_event("tools_changed", "panel", many)
        process.kill()

    with a_daemon(home) as (_, client):
        assert client.tool_search(tool_id="press_999")["tools"]
