"""Writes a home directory of coding-agent sessions to measure with: the same for the same seed.

Claude Code, Codex and Kiro files as those agents write them. Words follow Zipf's law, part of
them are identifiers, each session has words of its own, some sessions are Chinese; a few files
and lines are giants. Every record that says something is one document, so `--documents` is exact.

    python tests/bench/corpus.py --out DIR --documents 1000000
"""

from __future__ import annotations

import argparse
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

DOCUMENTS_PER_FILE = 100
VOCABULARY = 250_000
PROJECTS = 200
# Share of each agent, in files.
AGENTS = (("claude", 0.6), ("codex", 0.35), ("kiro", 0.05))
# Of each kind: its share, and the median of its length in words.
KINDS = (
    ("user_text", 0.13, 18),
    ("assistant_text", 0.28, 26),
    ("tool_input", 0.25, 14),
    ("tool_error", 0.03, 22),
    ("tool_output", 0.25, 34),
    ("reasoning", 0.04, 30),
    ("meta", 0.02, 40),
)
CJK_SHARE = 0.04
TOPIC_SHARE, TOPIC_WORDS = 0.2, 200
UNIQUE_SHARE = 0.004
GIANT_FILES, GIANT_FILE_SHARE = 3, 0.015
DOCUMENTS_PER_GIANT_LINE = 200_000
GIANT_LINE_WORDS = (160_000, 320_000, 640_000)
TOOLS = ("Bash", "Read", "Edit", "Grep", "WebFetch", "exec_command", "apply_patch")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

_FIRST = (
    "the to a and in of is for it that on this with be test file error not run from line "
    "code as if or use we add fix should can by at no new was return function are have "
    "build check value failed command type server request output when import name data "
    "update"
)
FIRST_WORDS = _FIRST.split()
_SYLLABLES = [c + v for c in "bcdfghjklmnprstvz" for v in ("a", "e", "i", "o", "u", "en", "or")]
_MARKS = ("\n", "=>", "--", "{", "}", "//", "`", '"')


@dataclass(frozen=True)
class Session:
    """One session file to write."""

    number: int
    agent: str
    documents: int
    project: str
    begin: datetime
    cjk: bool
    giant_line_words: int

    @property
    def name(self) -> str:
        """Return the session's id."""
        head = f"{self.number:08x}-{self.number * 7919 % 65536:04x}-4000-8000"
        return f"{head}-{self.number * 104729 % 2**48:012x}"

    def path(self, home: str) -> str:
        """Return where its agent keeps it."""
        if self.agent == "claude":
            return f"{home}/.claude/projects/{self.project.replace('/', '-')}/{self.name}.jsonl"
        if self.agent == "codex":
            day = f"{self.begin:%Y/%m/%d}"
            name = f"rollout-{self.begin:%Y-%m-%dT%H-%M-%S}-{self.name}.jsonl"
            return f"{home}/.codex/sessions/{day}/{name}"
        return f"{home}/.kiro/sessions/cli/{self.name}.jsonl"


class Vocabulary:
    """Words by rank: `spell` turns ranks into texts, `draw` draws ranks by Zipf's law."""

    def __init__(self, size: int = VOCABULARY) -> None:
        self.words = [*FIRST_WORDS, *(_word(rank) for rank in range(len(FIRST_WORDS), size))]
        self.cjk = [chr(0x4E00 + rank * 7 % 6000) for rank in range(3000)]

    def draw(self, rng: np.random.Generator, count: int, size: int) -> np.ndarray:
        """Return `count` ranks below `size`; rank r comes as often as log(1 + 1 / (r + 1))."""
        return np.exp(rng.random(count) * np.log(size)).astype(np.int64) - 1

    def write(self, rng: np.random.Generator, lengths: np.ndarray, cjk: bool) -> list[str]:
        """Return texts of these lengths in words."""
        bounds = np.concatenate(([0], np.cumsum(lengths))).tolist()
        count = bounds[-1]
        if cjk:
            pieces = [self.cjk[rank] for rank in self.draw(rng, count, len(self.cjk)).tolist()]
            for at in rng.integers(0, count, count // 5).tolist():
                pieces[at] = " " + pieces[at]
            return ["".join(pieces[a:b]) for a, b in pairwise(bounds)]
        ranks = self.draw(rng, count, len(self.words))
        topic = rng.integers(len(FIRST_WORDS), len(self.words), TOPIC_WORDS)
        own = np.flatnonzero(rng.random(count) < TOPIC_SHARE)
        ranks[own] = topic[self.draw(rng, len(own), TOPIC_WORDS)]
        pieces = [self.words[rank] for rank in ranks.tolist()]
        for at in rng.integers(0, count, int(count * UNIQUE_SHARE)).tolist():
            pieces[at] = f"{int(rng.integers(0, 1 << 40)):x}"
        for at in rng.integers(0, count, count // 12).tolist():
            pieces[at] += _MARKS[at % len(_MARKS)]
        return [" ".join(pieces[a:b]) for a, b in pairwise(bounds)]


def _word(rank: int) -> str:
    """Return the word of a rank: one in four is an identifier of two plain words."""
    if rank % 4 == 0 and rank > 300:
        first, second = _plain(rank // 4 % 5000), _plain(rank // 40 + 90)
        return f"{first}_{second}" if rank % 8 else first + second.capitalize()
    return _plain(rank)


def _plain(rank: int) -> str:
    syllables = []
    while rank or not syllables:
        rank, at = divmod(rank, len(_SYLLABLES))
        syllables.append(_SYLLABLES[at])
    return "".join(syllables) + ("t" if len(syllables) == 1 else "")


def plan(documents: int, seed: int) -> list[Session]:
    """Return the sessions of a corpus."""
    rng = np.random.default_rng([seed, 0])
    files = max(1, documents // DOCUMENTS_PER_FILE)
    shares = rng.lognormal(0, 1, files)
    giants = min(GIANT_FILES, files)
    shares[:giants] = 0
    shares *= (1 - giants * GIANT_FILE_SHARE) / max(shares.sum(), 1e-9)
    shares[:giants] = GIANT_FILE_SHARE
    bounds = np.round(np.cumsum(shares) / shares.sum() * documents).astype(int)
    sizes = np.diff(bounds, prepend=0).tolist()
    agents = rng.choice([a for a, _ in AGENTS], files, p=[p for _, p in AGENTS]).tolist()
    agents[:giants] = ["claude"] * giants
    cjk = (rng.random(files) < CJK_SHARE).tolist()
    lines = {at * 37 % files: at for at in range(documents // DOCUMENTS_PER_GIANT_LINE + 1)}
    return [
        Session(
            number, agents[number], sizes[number], f"/home/ana/src/p{number * 13 % PROJECTS}",
            BEGIN + timedelta(minutes=37 * number), cjk[number],
            GIANT_LINE_WORDS[lines[number] % len(GIANT_LINE_WORDS)] if number in lines else 0,
        )
        for number in range(files)
    ]  # fmt: skip


def said(session: Session, vocabulary: Vocabulary, seed: int) -> tuple[list[str], list[str]]:
    """Return the kinds and the texts of a session's documents."""
    rng = np.random.default_rng([seed, 1, session.number])
    count = session.documents
    kinds = rng.choice(len(KINDS), count, p=[share for _, share, _ in KINDS])
    medians = np.array([median for _, _, median in KINDS])
    lengths = np.maximum(1, np.exp(rng.normal(np.log(medians[kinds]), 0.7))).astype(int)
    if session.giant_line_words and count:
        lengths[count // 2] = session.giant_line_words
    texts = vocabulary.write(rng, lengths, session.cjk) if count else []
    return [KINDS[kind][0] for kind in kinds.tolist()], texts


def lines(session: Session, kinds: list[str], texts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the records of a session's file, one per line."""
    writer = {"claude": _claude, "codex": _codex, "kiro": _kiro}[session.agent]
    if session.agent == "codex":
        yield _codex_record(session, 0, "session_meta", {
            "id": session.name, "cwd": session.project, "originator": "codex_cli_rs",
            "cli_version": "0.149.0", "source": "cli", "git": {"branch": "main"},
        })  # fmt: skip
    waiting: deque[str] = deque()
    for number, (kind, text) in enumerate(zip(kinds, texts, strict=True)):
        call = f"call_{session.number}_{number}"
        if kind == "tool_input":
            waiting.append(call)
        elif kind in ("tool_output", "tool_error") and waiting:
            # A result for each call, in order; results of no call are strays.
            call = waiting.popleft()
        tool = TOOLS[(session.number + number) % len(TOOLS)]
        yield writer(session, number, kind, text, call, tool)


def _when(session: Session, number: int) -> str:
    moment = session.begin + timedelta(seconds=5 * number)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _claude(
    session: Session, number: int, kind: str, text: str, call: str, tool: str
) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": text}
    if kind == "reasoning":
        block = {"type": "thinking", "thinking": text, "signature": "c2ln"}
    elif kind == "tool_input":
        block = {"type": "tool_use", "id": call, "name": tool, "input": {"command": text}}
    elif kind in ("tool_output", "tool_error"):
        failed = {"is_error": True} if kind == "tool_error" else {}
        block = {"type": "tool_result", "tool_use_id": call, "content": text, **failed}
    what = "assistant" if kind in ("assistant_text", "reasoning", "tool_input") else "user"
    message: dict[str, Any] = {"role": what, "content": [block]}
    if what == "assistant":
        message |= {"id": f"msg_{number}", "type": "message", "model": "claude-opus-4-8",
                    "usage": {"input_tokens": number, "output_tokens": len(text)}}  # fmt: skip
    record = {
        "parentUuid": f"u-{number - 1}", "isSidechain": False, "userType": "external",
        "cwd": session.project, "sessionId": session.name, "version": "2.1.233",
        "gitBranch": "main", "type": what, "message": message, "uuid": f"u-{number}",
        "timestamp": _when(session, number),
    }  # fmt: skip
    return record | ({"isMeta": True} if kind == "meta" else {})


def _codex(
    session: Session, number: int, kind: str, text: str, call: str, tool: str
) -> dict[str, Any]:
    if kind == "reasoning":
        payload: dict[str, Any] = {
            "type": "reasoning", "summary": [{"type": "summary_text", "text": text}],
            "content": None, "encrypted_content": "gAAAA",
        }  # fmt: skip
    elif kind == "tool_input":
        arguments = msgspec.json.encode({"cmd": text, "workdir": session.project}).decode()
        payload = {"type": "function_call", "name": tool, "arguments": arguments, "call_id": call}
    elif kind in ("tool_output", "tool_error"):
        code = int(kind == "tool_error")
        output = f"Wall time: 0.01 seconds\nProcess exited with code {code}\nOutput:\n{text}\n"
        payload = {"type": "function_call_output", "call_id": call, "output": output}
    else:
        assistant = kind == "assistant_text"
        if kind == "meta":
            text = f"<environment_context>\n{text}\n</environment_context>"
        part = {"type": "output_text" if assistant else "input_text", "text": text}
        role = "assistant" if assistant else "user"
        payload = {"type": "message", "role": role, "content": [part]}
    return _codex_record(session, number, "response_item", payload)


def _codex_record(
    session: Session, number: int, what: str, payload: dict[str, Any]
) -> dict[str, Any]:
    return {"timestamp": _when(session, number), "type": what, "payload": payload}


def _kiro(
    session: Session, number: int, kind: str, text: str, call: str, tool: str
) -> dict[str, Any]:
    if kind == "meta":
        return {"version": "v1", "kind": "Compaction", "data": {"summary": text}}
    part: dict[str, Any] = {"kind": "text", "data": text}
    what = "Prompt" if kind == "user_text" else "AssistantMessage"
    if kind == "reasoning":
        part = {"kind": "thinking", "data": {"text": text, "modelId": "auto"}}
    elif kind == "tool_input":
        use = {"toolUseId": call, "name": tool, "input": {"command": text}}
        part = {"kind": "toolUse", "data": use}
    elif kind in ("tool_output", "tool_error"):
        status = "success" if kind == "tool_output" else "error"
        content = [{"kind": "text", "data": text}]
        part = {"kind": "toolResult", "data": {
            "toolUseId": call, "content": content, "status": status,
        }}  # fmt: skip
        what = "ToolResults"
    data: dict[str, Any] = {"message_id": f"m{number}", "content": [part]}
    if what == "Prompt":
        seconds = int(session.begin.timestamp()) + 5 * number
        data["meta"] = {"timestamp": seconds}
    return {"version": "v1", "kind": what, "data": data}


def write(home: str, documents: int, seed: int) -> dict[str, int]:
    """Write the corpus below `home`; return its documents, files, and bytes of files and text."""
    vocabulary = Vocabulary()
    encoder = msgspec.json.Encoder()
    totals = {"documents": 0, "files": 0, "file_bytes": 0, "text_bytes": 0}
    for session in plan(documents, seed):
        kinds, texts = said(session, vocabulary, seed)
        data = encoder.encode_lines(lines(session, kinds, texts))
        path = session.path(home)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        seconds = session.begin.timestamp() + 5 * session.documents
        os.utime(path, (seconds, seconds))
        if session.agent == "kiro":
            _write_kiro_facts(session, path)
        totals["documents"] += len(texts)
        totals["files"] += 1
        totals["file_bytes"] += len(data)
        totals["text_bytes"] += sum(len(text.encode()) for text in texts)
    return totals


def _write_kiro_facts(session: Session, path: str) -> None:
    facts = {"session_id": session.name, "cwd": session.project, "session_state": {}}
    with open(path.removesuffix("l"), "wb") as file:
        file.write(msgspec.json.encode(facts))


def main() -> None:
    """Write a corpus and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", required=True, help="directory to write, like a home directory")
    parser.add_argument("--documents", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    arguments = parser.parse_args()
    began = time.perf_counter()
    totals = write(arguments.out, arguments.documents, arguments.seed)
    print(
        f"{totals['documents']:,} documents in {totals['files']:,} files, "
        f"{totals['file_bytes'] / 1e6:.1f} MB of files, {totals['text_bytes'] / 1e6:.1f} MB of "
        f"text, {time.perf_counter() - began:.1f} s"
    )


if __name__ == "__main__":
    main()
