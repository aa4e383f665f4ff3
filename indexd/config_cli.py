"""`indexctl config`: settings in force, and changes to the file. Needs no daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from indexd import config, config_edit, output, paths
from indexd.errors import BadRequest
from indexd.terminal import visible

if TYPE_CHECKING:
    import argparse

RELOAD_HINT = "it takes effect when the daemon starts next: indexctl stop; indexctl status"


def run(asked: argparse.Namespace) -> int:
    """Do what `indexctl config` was asked for and return 0."""
    file = paths.config_file(os.environ)
    if asked.init:
        config_edit.init(file)
        output.say(f"wrote {file}")
    elif asked.action == "set":
        if asked.key is None or asked.value is None:
            raise BadRequest("config set needs a key and a value", "see: indexctl config --help")
        line = config_edit.set_value(file, asked.key, asked.value)
        output.say(f"{file}: {line}; {RELOAD_HINT}")
    else:
        _show(file, asked)
    return 0


def _show(file: str, asked: argparse.Namespace) -> None:
    if asked.action == "get" and asked.key is None:
        raise BadRequest("config get needs a key", f"one of {', '.join(config_edit.known_keys())}")
    values = _in_force(file)
    if asked.key is not None:
        key = config_edit.canonical(asked.key)
        values = {key: values[key]}
    if asked.json:
        output.write_json(values)
    elif asked.key is not None:
        output.write(f"{_shown(*values.values())}\n")
    else:
        output.write("".join(f"{_line(key, value)}\n" for key, value in values.items()))


def _in_force(file: str) -> dict[str, Any]:
    """Return every setting by its dotted key, and where files lie."""
    settings = config.load(os.environ)
    return {
        "config_file": settings.config_file,
        "socket": settings.socket,
        "cache_dir": settings.cache_dir,
        "state_dir": settings.state_dir,
        "roots": [root.path for root in settings.roots],
        "default_roots": config_edit.value_of(config.read(file), settings, "default_roots"),
        **config.values(settings),
    }


def _line(key: str, value: Any) -> str:
    if isinstance(value, list):
        return "".join([f"{key} =", *(f"\n  {_shown(each)}" for each in value)])
    return f"{key} = {_shown(value)}"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else visible(str(value))
