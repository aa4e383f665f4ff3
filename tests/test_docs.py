"""The documentation is held to the code: whatever has a name is named there."""

from __future__ import annotations

import inspect
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from peer import Peer, short_directory

from indexd import arguments, config, config_edit, errors, protocol
from indexd.methods import Methods

PROJECT = Path(__file__).parent.parent
METHODS = [name for name in vars(Methods) if not name.startswith("_") and name != "call"]


def pages() -> str:
    files = [*sorted((PROJECT / "docs").rglob("*.md")), PROJECT / "README.md"]
    return "\n".join(file.read_text() for file in files if file.exists())


def page(name: str) -> str:
    return (PROJECT / "docs" / name).read_text()


def named(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def section(title: str) -> str:
    return page("protocol.md").split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("method", ["hello", *METHODS])
def test_every_method_has_a_section(method):
    assert f"\n## {method}\n" in page("protocol.md")


@pytest.mark.parametrize(
    ("method", "parameter"),
    [
        (method, parameter)
        for method in METHODS
        for parameter in inspect.signature(getattr(Methods, method)).parameters
        if parameter not in ("self", "payload", "fields")
    ],
)
def test_every_parameter_is_described_with_its_method(method, parameter):
    assert f"`{parameter}`" in section(method)


@pytest.mark.parametrize("code", errors.CODES)
def test_every_error_code_is_explained(code):
    assert f"| `{code}` |" in page("protocol.md")


@pytest.mark.parametrize("key", config_edit.known_keys())
def test_every_setting_is_explained(key):
    section, _, name = key.rpartition(".")

    assert f"`{key}" in page("configuration.md")
    assert re.search(rf"(?m)^{name} = ", page("configuration.md"))
    assert not section or f"[{section}]" in page("configuration.md")


def test_the_configuration_page_shows_the_defaults():
    shown = re.findall(r"^\| `(\w+\.\w+)` \| `([^`]+)` \|", page("configuration.md"), re.M)
    defaults = {
        f"{section}.{name}": value
        for section, kind in (
            ("analysis", config.Analysis()),
            ("tool_search", config.ToolSearch()),
            ("history", config.History()),
        )
        for name, value in ((name, getattr(kind, name)) for name in kind.__slots__)
    }

    assert dict(shown) == {key: config_edit._literal(value) for key, value in defaults.items()}


def test_every_environment_variable_is_named():
    code = "\n".join(file.read_text() for file in (PROJECT / "indexd").rglob("*.py"))
    variables = set(re.findall(r"\"((?:INDEXD|XDG|KIRO_CLI)_[A-Z_]+|NO_COLOR|COLUMNS)\"", code))

    assert len(variables) >= 10
    assert [variable for variable in sorted(variables) if not named(variable, pages())] == []


@pytest.mark.parametrize("command", arguments.COMMANDS)
def test_every_command_is_named(command):
    assert f"indexctl {command}" in page("configuration.md")


def test_every_module_that_is_named_is_there():
    modules = set(re.findall(r"`((?:\w+/)*\w+\.py)`", pages()))

    assert len(modules) > 50
    places = (PROJECT, PROJECT / "indexd")
    assert [m for m in sorted(modules) if not any((p / m).exists() for p in places)] == []


@pytest.mark.parametrize("option", ["--socket", "--no-start", "--json", "--init"])
def test_every_common_option_is_named(option):
    assert named(option, pages())


def test_the_limits_on_the_page_are_the_protocols():
    text = page("protocol.md")

    assert f"| a request | {protocol.MAX_REQUEST_BYTES // 1024} KiB |" in text
    assert f"| a request of `mcp_event` | {protocol.MAX_EVENT_BYTES >> 20} MiB |" in text
    assert f"| an answer | {protocol.MAX_ANSWER_BYTES >> 20} MiB |" in text
    assert f"{protocol.MAX_DEPTH_ELEMENTS:,}" in text


def test_the_example_client_works_as_printed(capsys):
    source = page("protocol.md").split("```python\n")[1].split("```")[0]
    answers: dict[str, Any] = {"search": {"hits": [{"snippet": "found"}]}}
    with short_directory() as directory, Peer(str(directory / "s"), answers) as peer:
        script = source.replace("/run/user/1000/indexd/indexd.sock", peer.path)
        exec(compile(script, "protocol.md", "exec"), {})

    assert capsys.readouterr().out == "['found']\n"
    assert struct.calcsize(">I") == protocol.HEADER.size
