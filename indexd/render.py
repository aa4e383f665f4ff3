"""Answers as people read them: hits, the messages around one, tools. Pure text, no output."""

from __future__ import annotations

from indexd.output import compact_json
from indexd.resume import resume_command
from indexd.terminal import MAX_TEXT_COLUMNS, cells, fitted, painted, visible, width, wrap
from indexd.when import exact, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from indexd.terminal import Cell, Terminal

    Answer = dict[str, Any]

# A hit shows this much of its snippet: ten hits then fill a screen, and 4 KB, in any script.
SNIPPET_LINES = 3
SNIPPET_BYTES = 270
INDENT = "   "
# A cut falls between words when that costs no more than this many characters.
LONGEST_TAIL = 16


def hits(
    answer: Answer, term: Terminal, now: float, more: str = "", *, is_last: bool = False
) -> str:
    """Return a page of hits, and what to do next; `now` is in unix seconds.

    `more` is the command that shows the next page, where there may be one; `is_last` tells that
    there is none.
    """
    found = answer["hits"]
    columns = min(term.columns, MAX_TEXT_COLUMNS)
    heads = _aligned([_head(hit, now) for hit in found])
    parts = []
    for hit, (rank, meta, reference) in zip(found, heads, strict=True):
        line = fitted(meta, columns - len(rank) - len(reference) - 3)
        parts.append(f"{term.paint(rank, 'bold')} {line}  {term.paint(reference, 'dim')}")
        parts.extend(INDENT + painted(row, term) for row in _snippet(hit, columns - len(INDENT)))
        behind = (fitted(line, columns - len(INDENT)) for line in _behind(hit))
        parts.extend(term.paint(INDENT + line, "dim") for line in behind)
    return "\n".join([*parts, "", *_next_steps(answer, more, is_last, term)]) + "\n"


def around(answer: Answer, term: Terminal, home: str) -> str:
    """Return the messages of one session near the target, which is marked with `>`."""
    path = shortened(answer["session_path"], home)
    title = f"{path}  message {answer['message_index']} of {answer['length']}"
    parts = [term.paint(title, "dim")]
    for message in answer["messages"]:
        parts += ["", *message_lines(message, answer["message_index"], term)]
    if any(message.get("truncated") for message in answer["messages"]):
        parts += ["", "Some texts are cut; --full shows them whole."]
    resume = resume_command(answer)
    if resume:
        parts += ["", f"Continue this session: {resume}"]
    return "\n".join(parts) + "\n"


def tools(answer: Answer, term: Terminal) -> str:
    """Return the tools a search found, best first, each with how it is called."""
    parts = []
    for tool in answer["tools"]:
        identity = visible(tool.get("tool_id") or "")
        state = "" if tool.get("online", True) else "  (server offline)"
        parts.append(f"{term.paint(identity, 'bold')}{state}")
        called = tool.get("signature") or ""
        if " - " not in called:  # else it ends with what the tool does
            parts += _paragraph(_first_line(tool.get("description")), term)
        if called:
            parts += _paragraph(called, term)
        elif tool.get("input_schema") is not None:
            parts += _block(compact_json(tool["input_schema"]), term)
    total = answer.get("total_tools")
    shown = len(answer["tools"])
    cut = f", {answer['cut']} more scored too low" if answer.get("cut") else ""
    parts += ["", f"{_count(shown, 'tool')} of {total}{cut}"]
    return "\n".join(parts) + "\n"


def tool_list(answer: Answer, term: Terminal) -> str:
    """Return which tools are deferred and what that saves."""
    deferred, loaded = answer.get("deferred") or [], answer.get("loaded") or []
    state = "on" if answer.get("active") else "off"
    parts = [
        f"Tool search is {state}: {len(deferred)} deferred, {len(loaded)} loaded;"
        f" {answer.get('tokens_now', 0):,} of {answer.get('tokens_all', 0):,} tokens in context."
    ]
    if deferred:
        parts.append("")
    for entry in deferred:
        identity, _, description = entry.partition(": ")
        said = f": {visible(_first_line(description))}" if description else ""
        line = f"{visible(identity)}{said}"
        parts.append(fitted(line, term.columns) if term.wraps else line)
    return "\n".join(parts) + "\n"


def shortened(path: str, home: str) -> str:
    """Return a path as people write it, below `~` where it lies there."""
    return visible("~" + path[len(home) :] if path.startswith(home.rstrip("/") + "/") else path)


def _head(hit: Answer, now: float) -> list[str]:
    """Return the cells of a hit's first line: rank, when, agent, project, kind, reference."""
    project = (hit.get("project") or "").rstrip("/").rpartition("/")[2]
    tool = hit.get("tool_name") or ""
    return [
        str(hit["rank"]),
        relative(hit.get("timestamp"), now),
        visible(hit.get("agent") or "-"),
        fitted(visible(project) or "-", 18),
        hit["kind"] + (" " + fitted(visible(tool), 22) if tool else ""),
        f"{visible(hit.get('session_id') or '-')[:8]} #{hit['message_index']}",
    ]


def _aligned(rows: list[list[str]]) -> list[tuple[str, str, str]]:
    """Return each row's rank, padded middle and reference."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    aligned = []
    for row in rows:
        padded = [cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)]
        aligned.append((row[0].rjust(widths[0]), "  ".join(padded[1:-1]), row[-1]))
    return aligned


def _snippet(hit: Answer, columns: int) -> list[list[Cell]]:
    """Return the lines of a hit's snippet, moved so that its first match is on the page."""
    row = cells(hit.get("snippet") or "", hit.get("highlights") or [])
    lines = wrap(_from_match(row, columns * SNIPPET_LINES), columns)
    kept = lines[:SNIPPET_LINES]
    cut = len(lines) > SNIPPET_LINES
    left = SNIPPET_BYTES - sum(len(piece.encode()) for line in kept for piece, _, _ in line)
    while left < 0:
        left += len(kept[-1].pop()[0].encode())
        cut = True
        if not kept[-1]:
            kept.pop()
    if cut:
        _end_with_dots(kept[-1], columns)
    return kept


def _from_match(row: list[Cell], room: int) -> list[Cell]:
    """Return `row` from where a third of the `room` lies before its first match, if it is long."""
    size = sum(cell[1] for cell in row)
    first = next((index for index, cell in enumerate(row) if cell[2]), 0)
    before = sum(cell[1] for cell in row[:first])
    start = 0
    while start < first and before > room // 3 and size > room:
        before -= row[start][1]
        size -= row[start][1]
        start += 1
    return [*_dots(), *row[start:]] if start else row


def _end_with_dots(line: list[Cell], columns: int) -> None:
    """Cut `line` so that dots fit behind it, at the end of a word if one is near."""
    while line and sum(cell[1] for cell in line) > columns - 3:
        line.pop()
    tail = [cell[0] for cell in line[-LONGEST_TAIL:]]
    if " " in tail and line[-1][1] == 1:
        del line[len(line) - tail[::-1].index(" ") - 1 :]
    line.extend(_dots())


def _dots() -> list[Cell]:
    return [(".", 1, False)] * 3


def _behind(hit: Answer) -> list[str]:
    """Return what stands behind a hit without being shown."""
    others = hit.get("others") or 0
    lines = [] if hit.get("snippet") else ["its session was rewritten or removed just now"]
    lines += [f"and {_count(others, 'more hit')} in this session"] if others else []
    copies = hit.get("duplicates")
    if copies:
        where = copies["where"][0]
        stem = visible(where["session_path"]).rpartition("/")[2].removesuffix(".jsonl")
        said = (
            "the same was said in" if copies["count"] == 1 else f"{copies['count']:,} copies, as in"
        )
        lines.append(f"{said} {fitted(stem, 40)} #{where['message_index']}")
    return lines


def _next_steps(answer: Answer, more: str, is_last: bool, term: Terminal) -> list[str]:
    """Return how much there is, and commands that lead on."""
    found, total = answer["hits"], answer.get("total", len(answer["hits"]))
    documents = (answer.get("index") or {}).get("documents")
    inside = "" if documents is None else f" in {documents:,} documents"
    first, last = found[0]["rank"], found[-1]["rank"]
    spent = f", {answer['took_ms']:.0f} ms" if answer.get("took_ms") else ""
    shown = f"Hit {first}" if first == last else f"Hits {first} to {last}"
    # Of a group the rest is told with its hit.
    rest = total - last if is_last and "others" not in found[0] else 0
    weaker = f"; the other {rest:,} far weaker" if rest > 0 else ""
    steps = [f"{shown}, {total:,} matched{inside}{spent}{weaker}."]
    for command in (f"indexctl around {first}", more, resume_command(found[0])):
        if command:
            steps.append("  " + term.paint(command, "name"))
    return steps


def message_lines(message: Answer, target: int | None, term: Terminal) -> list[str]:
    """Return the lines of one message; the one with index `target` is marked."""
    lines = [_message_head(message, target, term)]
    lines += _block(message.get("text") or "", term)
    lines += _block(message.get("reasoning") or "", term, "(thinks) ")
    for call in message.get("tool_calls") or ():
        lines += _block(f"{call.get('name', '')} {_arguments(call)}", term, "-> ")
    return lines


def _message_head(message: Answer, target: int | None, term: Terminal) -> str:
    mark = ">" if message.get("target") or message["index"] == target else " "
    tool = f" {visible(message['tool_name'])}" if message.get("tool_name") else ""
    time = exact(message.get("timestamp"))
    head = f"{mark} {message['index']} {visible(message.get('role') or '')}{tool}"
    return term.paint(head, "bold") + (f"  {term.paint(time, 'dim')}" if time else "")


def _block(text: str, term: Terminal, lead: str = "") -> list[str]:
    """Return `text` line by line, indented; on a terminal its long lines are wrapped."""
    lines = []
    for line in (lead + text if text else "").strip("\r\n").split("\n"):
        shown = visible(line.rstrip("\r").expandtabs(4))
        if term.wraps and width(shown) > term.columns - len(INDENT):
            lines += [painted(row, term) for row in wrap(cells(shown, []), term.columns - 3)]
        else:
            lines.append(shown)
    return [f"{INDENT}{line}".rstrip() for line in lines] if text.strip() else []


def _paragraph(text: str, term: Terminal) -> list[str]:
    columns = min(term.columns, MAX_TEXT_COLUMNS) - len(INDENT)
    return [INDENT + painted(row, term) for row in wrap(cells(text, []), columns)]


def _arguments(call: Answer) -> str:
    arguments = call.get("arguments")
    return arguments if isinstance(arguments, str) else compact_json(arguments)


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0] if lines else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
