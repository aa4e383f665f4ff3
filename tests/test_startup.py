"""What a query may load: the start of Python is most of what it costs, so modules are counted.

A timing would pass or fail with the machine's mood; the list of modules does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from peer import Peer, short_directory

HERE = Path(__file__).parent

# Each costs a client between 2 and 100 ms, or means that the daemon's side has leaked in.
COSTLY = {
    "anyio", "asyncio", "concurrent", "contextlib", "dataclasses", "diskcache", "email", "fcntl",
    "hashlib", "http", "importlib.metadata", "indexd.aio", "indexd.config", "indexd.formats",
    "indexd.model", "indexd.start", "inspect", "locale", "logging", "msgspec", "multiprocessing",
    "numpy", "pathlib", "pickle", "platform", "random", "shlex", "shutil", "ssl", "subprocess",
    "tempfile", "textwrap", "threading", "tomllib", "traceback", "typing", "urllib", "watchdog",
}  # fmt: skip
HIT = {
    "rank": 1,
    "session_path": "/s",
    "session_id": "i",
    "message_index": 0,
    "kind": "user_text",
    "agent": "claude",
    "project": "/a b",
    "timestamp": 1_790_000_000_000,
    "snippet": "x",
    "highlights": [],
}


def loaded(code: str, socket: str) -> set[str]:
    """Return the modules that running `code` loads beyond those Python itself starts with."""
    script = (
        "import sys, os; before = set(sys.modules)\n"
        f"{code}\n"
        "sys.stderr.write('\\n'.join(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path]),
            "HOME": os.path.dirname(socket),
            "INDEXD_SOCKET": socket,
            "LANG": "en_US.UTF-8",
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return {name for name in ran.stderr.split("\n") if "cython" not in name}


@pytest.mark.parametrize(
    "words",
    [["query", "x"], ["query", "x", "--json"], ["around", "/s", "0"], ["status", "--no-start"]],
)
def test_a_question_loads_the_standard_library_and_msgpack_and_little_of_those(words):
    answers = {
        "search": {"hits": [HIT], "total": 1, "warnings": []},
        "around": {"session_path": "/s", "message_index": 0, "length": 1, "messages": []},
        "status": dict.fromkeys(
            ("uptime_s", "documents", "files", "files_pending", "bytes_pending", "index_bytes",
             "rss_bytes", "pid"), 1
        ) | {"version": "0", "socket": "/s"},
    }  # fmt: skip
    with short_directory() as directory, Peer(str(directory / "s"), answers):
        code = f"from indexd.cli import main; main({words!r})"
        modules = loaded(code, str(directory / "s"))

    assert not modules & COSTLY
    others = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert others == {"indexd", "msgpack"}
    assert ("json" in modules) == ("--json" in words)
    assert len(modules) < 75


def test_the_blocking_client_alone_loads_even_less():
    modules = loaded("import indexd.client", "/s")

    assert not modules & COSTLY
    assert not modules & {"re", "argparse", "json"}
    assert {name for name in modules if name.startswith("indexd")} == {
        "indexd",
        "indexd.client",
        "indexd.errors",
        "indexd.methods",
        "indexd.paths",
        "indexd.peer",
        "indexd.protocol",
    }


def test_the_awaited_client_is_loaded_when_it_is_asked_for():
    modules = loaded("from indexd.client import AsyncClient", "/s")

    assert "anyio" in modules


def test_the_package_itself_is_nothing():
    assert loaded("import indexd", "/s") == {"indexd"}


def test_the_version_is_that_of_the_project():
    from indexd import __version__

    text = (HERE.parent / "pyproject.toml").read_text()
    assert f'\nversion = "{__version__}"\n' in text
