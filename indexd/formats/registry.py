"""All formats, and the decision which of them a file is written in.

A new agent is one file beside this one, its line in `FORMATS`, and a sample for the tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from indexd.formats import Format
from indexd.formats.claude import Claude
from indexd.formats.codex import Codex
from indexd.formats.copilot import Copilot
from indexd.formats.cursor import Cursor
from indexd.formats.droid import Droid
from indexd.formats.dsh import DeepSeekHarness
from indexd.formats.gemini import Gemini
from indexd.formats.generic import Generic
from indexd.formats.kiro import Kiro
from indexd.formats.lines import objects
from indexd.formats.pi import Pi
from indexd.formats.qwen import Qwen
from indexd.formats.reasonix import Reasonix
from indexd.model import SessionState

FORMATS: dict[str, Format] = {
    reader.agent: reader
    for reader in (
        Claude(),
        Codex(),
        Kiro(),
        Reasonix(),
        Gemini(),
        Copilot(),
        Pi(),
        Qwen(),
        Droid(),
        DeepSeekHarness(),
        Cursor(),
        Generic(),
    )
}
GENERIC = Generic.agent
_KNOWN = tuple(reader for reader in FORMATS.values() if reader.agent != GENERIC)

# How many lines at most are looked at; a session shows what it is within the first few.
DETECTION_LINES = 50


def detect(
    lines: Sequence[bytes], path: str, hint: str | None = None
) -> tuple[Format | None, str | None]:
    """Return the format of a file that begins with the complete `lines`, and what is odd.

    The content decides; the path and the configured `hint` (an agent's name) settle only shapes
    that several agents write. The second item is a sentence when the content contradicts the
    hint. Without a format the file is no session, or has no complete line that tells yet.
    """
    found = _recognise(lines[:DETECTION_LINES], hint or named_by_path(path))
    return found, None if found is None else contradiction(found.agent, hint)


def contradiction(agent: str, hint: str | None) -> str | None:
    """Return a sentence when content of `agent` contradicts the hint."""
    return None if hint in (None, agent) else f"the content is that of {agent}, not of {hint}"


def named_by_path(path: str) -> str | None:
    """Return the agent whose directories `path` lies in, if any."""
    return next((agent for agent, reader in FORMATS.items() if reader.paths.search(path)), None)


def _recognise(lines: Sequence[bytes], named: str | None) -> Format | None:
    """Return the format of the first record that one agent alone writes, else the generic one."""
    generic = None
    for line in lines:
        for record in objects(line, SessionState()):
            for reader in _KNOWN:
                if reader.recognises(record, reader.agent == named):
                    return reader
            if FORMATS[GENERIC].recognises(record, named == GENERIC):
                generic = FORMATS[GENERIC]
    return generic
