"""The daemon's state as people read it, and the bar that shows it getting there."""

from __future__ import annotations

from indexd.render import shortened
from indexd.terminal import visible, width
from indexd.when import lasting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from indexd.terminal import Terminal

    Answer = dict[str, Any]

BAR_COLUMNS = 30
UNITS = ("B", "KB", "MB", "GB", "TB")


def status(answer: Answer, term: Terminal, home: str) -> str:
    """Return the daemon's state: itself, its index, its roots, and what is wrong."""
    parts = [
        f"indexd {answer['version']}, process {answer['pid']},"
        f" up {lasting(answer['uptime_s'])}, {shortened(answer['socket'], home)}",
        f"{answer['documents']:,} documents in {answer['files']:,} files;"
        f" {size(answer['index_bytes'])} on disk, {size(answer['rss_bytes'])} of memory",
        _pending(answer),
    ]
    for name in ("watch", "sandbox"):
        if answer.get(name):
            parts.append(f"{name}: {_words(answer[name])}")
    parts += _section("root source format files documents size", _roots(answer, home), term)
    parts += _missing_roots(answer)
    parts += _section("agent files documents", _agents(answer), term)
    parts += _section("server tools state", _servers(answer), term)
    parts += _trouble(answer, term, home)
    return "\n".join(parts) + "\n"


def progress(answer: Answer, most_bytes: int, most_files: int) -> str:
    """Return one line that says how far indexing is, of the most that was ever left to do."""
    left, most = answer["bytes_pending"], most_bytes
    if not most:
        left, most = answer["files_pending"], most_files
    share = 1 - left / most if most else 1.0
    done = round(share * BAR_COLUMNS)
    bar = "#" * done + "." * (BAR_COLUMNS - done)
    return (
        f"[{bar}] {share:4.0%}  {answer['files_pending']:,} files,"
        f" {size(answer['bytes_pending'])} left"
    )


def size(count: float) -> str:
    """Return a number of bytes in the unit that leaves it short."""
    power = 0
    while count >= 999.5 and power < len(UNITS) - 1:
        count /= 1000
        power += 1
    digits = 1 if power and count < 99.95 else 0
    return f"{count:.{digits}f} {UNITS[power]}"


def _pending(answer: Answer) -> str:
    if not answer["files_pending"] and not answer["bytes_pending"]:
        return "everything is indexed"
    return (
        f"still to read: {answer['files_pending']:,} files, {size(answer['bytes_pending'])};"
        " answers come from what is there"
    )


def _roots(answer: Answer, home: str) -> list[list[str]]:
    return [
        [
            shortened(root["path"], home),
            root.get("source") or "-",
            root.get("format") or "-",
            f"{root['files']:,}",
            f"{root['documents']:,}",
            size(root["bytes"]),
        ]
        for root in answer.get("roots") or ()
        if _is_there(root)
    ]


def _missing_roots(answer: Answer) -> list[str]:
    missing = sum(not _is_there(root) for root in answer.get("roots") or ())
    if not missing:
        return []
    return [f"{missing} more not there yet; each is read as soon as it appears (--json names them)"]


def _is_there(root: Answer) -> bool:
    return bool(root.get("exists", True) or root["files"])


def _agents(answer: Answer) -> list[list[str]]:
    return [
        [visible(name), f"{counts['files']:,}", f"{counts['documents']:,}"]
        for name, counts in sorted((answer.get("agents") or {}).items())
    ]


def _servers(answer: Answer) -> list[list[str]]:
    return [
        [visible(name), f"{server['tools']:,}", "online" if server["online"] else "offline"]
        for name, server in sorted((answer.get("servers") or {}).items())
    ]


def _section(heading: str, rows: list[list[str]], term: Terminal) -> list[str]:
    """Return a table under its `heading`, numbers to the right; nothing when it is empty."""
    if not rows:
        return []
    table = [heading.upper().split(), *rows]
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        padded = []
        for index, (cell, wide) in enumerate(zip(row, widths, strict=True)):
            space = " " * (wide - width(cell))
            number = rows[0][index][:1].isdigit()
            padded.append(space + cell if number else cell + space)
        lines.append("  ".join(padded).rstrip())
    return ["", term.paint(lines[0], "dim"), *lines[1:]]


def _trouble(answer: Answer, term: Terminal, home: str) -> list[str]:
    found = [("degraded", entry) for entry in answer.get("degraded") or ()]
    found += [("problem", entry) for entry in answer.get("problems") or ()]
    for root in answer.get("roots") or ():
        for entry in root.get("problems") or ():
            # Most name a file below the root, and then need not name the root too.
            named = str(entry).startswith(f"{root['path']}/")
            found.append(("problem" if named else shortened(root["path"], home), entry))
    for name, server in sorted((answer.get("servers") or {}).items()):
        found += [(f"dropped of {visible(name)}", entry) for entry in server.get("problems") or ()]
    lines = [f"{term.paint(what, 'error')}: {_sentence(entry, home)}" for what, entry in found]
    return ["", *lines] if lines else []


def _sentence(entry: Any, home: str) -> str:
    return shortened(entry, home) if isinstance(entry, str) else _words(entry)


def _words(value: Any) -> str:
    """Return a value that may have parts as one line: what holds, what does not, what counts."""
    if not isinstance(value, dict):
        return ", ".join(map(_words, value)) if isinstance(value, list) else visible(str(value))
    named = {visible(str(name)).replace("_", " "): part for name, part in value.items()}
    parts = [name for name, part in named.items() if part is True]
    parts += [f"{name} {_words(part)}" for name, part in named.items() if part and part is not True]
    absent = ", ".join(name for name, part in named.items() if part is False)
    return "; ".join(filter(None, (", ".join(parts), absent and f"not: {absent}")))
