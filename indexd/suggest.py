"""What to ask next, as commands that can be typed: the next page, ways out of an empty answer."""

from __future__ import annotations

from indexd.resume import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from typing import Any

# The options of `query` that say what is looked for, by the parameter that each becomes.
OPTIONS = {
    "kinds": "kind", "role": "role", "tool_name": "tool-name", "limit": "limit", "scope": "scope",
    "project": "project", "agent": "agent", "session": "session", "session_dir": "session-dir",
    "subagents": "subagents", "source": "source", "since": "since", "until": "until",
    "order": "order", "recency": "recency", "group": "group",
}  # fmt: skip
FLAGS = {"literal": "literal", "copies": "all-copies", "reveal": "reveal"}


# A longer line is not read, let alone typed.
MAX_LINE_CHARS = 120


def next_page(typed: Sequence[str], hits: Sequence[dict[str, Any]]) -> str:
    """Return the command line `typed` as it asks for the hits that follow; empty if it is long."""
    words, skip = [], False
    for word in typed:
        if not skip and not word.startswith("--offset"):
            words.append(quoted(word))
        skip = word == "--offset"
    # Behind `--` it would be a word to look for.
    end = words.index("--") if "--" in words else len(words)
    words[end:end] = ["--offset", str(hits[-1]["rank"])]
    line = f"indexctl {' '.join(words)}"
    return line if line.isprintable() and len(line) <= MAX_LINE_CHARS else ""


def commands(asked: argparse.Namespace, suggestions: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the command line `asked` as each of the suggestions changes it."""
    for suggestion in suggestions:
        line = _command(asked, suggestion["changes"])
        if line.isprintable():
            yield line


def _command(asked: argparse.Namespace, changes: dict[str, Any]) -> str:
    """Return the command line `asked` with some parameters changed; None leaves one out."""
    given = _given(asked) | changes
    if changes.get("scope") == "global":
        given |= {"scope": None, "project": None, "session_dir": None}
    words = ["indexctl", "query"]
    for parameter, option in OPTIONS.items():
        values = given.get(parameter) or []
        for value in values if isinstance(values, list) else [values]:
            words += [f"--{option}", quoted(str(value))]
    words += [f"--{option}" for parameter, option in FLAGS.items() if given.get(parameter)]
    text = given["query"]
    return " ".join([*words, *(["--"] if text.startswith("-") else []), quoted(text)])


def _given(asked: argparse.Namespace) -> dict[str, Any]:
    """Return what was typed, by parameter."""
    names = {parameter: option.replace("-", "_") for parameter, option in (OPTIONS | FLAGS).items()}
    typed = {parameter: getattr(asked, name) for parameter, name in names.items()}
    typed["kinds"] = [kind for kinds in asked.kind or () for kind in kinds]
    return typed | {"query": " ".join(asked.text)}
