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
from indexd.formats.lines import Record, objects
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
    named = hint or named_by_path(path)
    found = _recognise(
        [record for line in lines[:DETECTION_LINES] for record in _read(line)], named
    )
    if found is None or hint in (None, found.agent):
        return found, None
    return found, f"the content is that of {found.agent}, not of {hint}"


def _read(line: bytes) -> list[Record]:
    return objects(line, SessionState())


def named_by_path(path: str) -> str | None:
    """Return the agent whose directories `path` lies in, if any."""
    return next((agent for agent, reader in FORMATS.items() if reader.paths.search(path)), None)


def _recognise(records: list[Record], named: str | None) -> Format | None:
    known = [reader for reader in FORMATS.values() if reader.agent != GENERIC]
    for record in records:
        for reader in known:
            if reader.recognises(record, reader.agent == named):
                return reader
    generic = any(FORMATS[GENERIC].recognises(record, named == "generic") for record in records)
    return FORMATS[GENERIC] if generic else None
