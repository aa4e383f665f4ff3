"""Known items: queries made from sessions, each with the sessions or messages that are right.

A query's words come from a text that says what the target is about (a title, a summary), or from
the target itself, degraded as memory degrades it. What stands verbatim in the searched text is
left out where the query is meant to describe.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from ranking_home import Home, Key, digest

from indexd.english import STOP_WORDS
from indexd.model import Kind
from indexd.text import CJK

SESSION_SETS = ("title", "compact", "recap")
MESSAGE_SETS = ("error", "ident", "prompt", "cjk")
MOST_MESSAGES = 12
MOST_HOLDERS = 40
# So that no long session makes up a whole set.
MOST_PER_CLUSTER = 12
MOST_PER_SET = 160
DEV_SHARE = 0.4

_TITLES = re.compile(r"^(?:claude|droid)$")
_WORD = re.compile(r"[^\W\d_][\w'-]+")
_SPACE = re.compile(r"\s+")
_HEADING = re.compile(
    r"^\s*(?:#+\s+\S.*|\d+\.\s+(?:\*\*)?[A-Z][^:\n]{2,60}(?:\*\*)?:?(?:\*\*)?"
    r"|<\w+>|\*\*[^*\n]+\*\*:?)\s*$",
    re.MULTILINE,
)
_MARKUP = re.compile(r"```.*?```|[*#`|]", re.DOTALL)
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|$)", re.DOTALL)
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})\b"
)
_CASE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_CJK_RUN = re.compile(f"[{CJK}]+")
_VARYING = re.compile(
    r"(?:~|\.{0,2})?(?:/[\w.@+-]+)+/?|\b0x[0-9a-f]+\b|\b[0-9a-f]{7,}\b|\b\w*\d[\w.:-]*|[\"'`<>\[\]]"
)
_COMMON = {word.decode() for word in STOP_WORDS} | {
    *("get", "got", "let", "new", "now", "one", "please", "use", "used", "user", "using"),
}


class Query(NamedTuple):
    """One question and its right answers: session numbers, or keys of documents."""

    set: str
    text: str
    sessions: frozenset[int]
    keys: frozenset[Key]
    cluster: int
    held: bool


Found = tuple[str, Collection[int], Collection[Key]]


def make_queries(home: Home) -> list[Query]:
    """Return all queries, the sets in order; the same for the same sessions wherever they lie."""
    makers: dict[str, Callable[[Home], Iterator[Found]]] = {
        "title": _titles,
        "compact": _summaries,
        "recap": _recaps,
        "error": _errors,
        "ident": _identifiers,
        "prompt": _prompts,
        "cjk": _cjk_pieces,
    }
    return [q for name, make in makers.items() for q in _chosen(home, name, make(home))]


def _chosen(home: Home, name: str, found: Iterator[Found]) -> Iterator[Query]:
    """Yield some of what was found, at most a few per cluster, none twice."""
    queries = {}
    for text, sessions, keys in found:
        owners = sorted({home.clusters[n] for n in (*sessions, *(k.session for k in keys))})
        cluster = owners[0]
        held = digest(_cluster_name(home, cluster)) % 1000 >= DEV_SHARE * 1000
        queries[text] = Query(name, text, frozenset(sessions), frozenset(keys), cluster, held)
    taken: Counter[int] = Counter()
    kept = 0
    for query in sorted(queries.values(), key=lambda q: digest(q.text)):
        taken[query.cluster] += 1
        if taken[query.cluster] <= MOST_PER_CLUSTER and kept < MOST_PER_SET:
            kept += 1
            yield query


def _cluster_name(home: Home, cluster: int) -> str:
    """Return what names a cluster wherever its files lie: how its first session begins."""
    return "\n".join(d.text[:200] for d in home.sessions[cluster].documents[:3])


def _titles(home: Home) -> Iterator[Found]:
    owners = defaultdict(set)
    for number, session in enumerate(home.sessions):
        if _TITLES.match(session.facts.agent) and session.facts.title and session.searched:
            owners[session.facts.title].add(number)
    yield from _described(home, owners, least=3)


def _summaries(home: Home) -> Iterator[Found]:
    owners = defaultdict(set)
    for number, session in enumerate(home.sessions):
        if len(session.searched) < 3:
            continue
        for document in session.documents:
            if document.kind is Kind.SUMMARY:
                for sentence in _first_sentences(document.text):
                    owners[sentence].add(number)
    yield from _described(home, owners, least=5)


def _recaps(home: Home) -> Iterator[Found]:
    owners = defaultdict(set)
    for number, text in home.recaps:
        for sentence in _SENTENCE.findall(_SPACE.sub(" ", _MARKUP.sub(" ", text))):
            if len(_content(sentence)) >= 5:
                owners[sentence.strip()[:300]].add(number)
                break
    yield from _described(home, owners, least=5)


def _described(home: Home, owners: dict[str, set[int]], least: int) -> Iterator[Found]:
    everything = "\n".join(_SPACE.sub(" ", text).casefold() for _, text in home.searched)
    for text, numbers in owners.items():
        sessions = frozenset().union(*(home.families[n] for n in numbers))
        verbatim = _SPACE.sub(" ", text).casefold().strip(" .") in everything
        if not verbatim and len(_content(text)) >= least and _few_clusters(home, sessions):
            yield text, sessions, ()


def _few_clusters(home: Home, sessions: Collection[int]) -> bool:
    return len({home.clusters[n] for n in sessions}) <= 4


def _first_sentences(summary: str) -> Iterator[str]:
    for part in _HEADING.split(summary)[1:]:
        lines = [line.strip(" -*\t") for line in part.strip().splitlines()]
        body = next((line for line in lines if len(_content(line)) >= 5), "")
        if match := _SENTENCE.match(body):
            yield match.group()[:300]


def _errors(home: Home) -> Iterator[Found]:
    holders: dict[str, set[Key]] = defaultdict(set)
    lines: dict[str, str] = {}
    for key, text in home.searched:
        if key.kind is Kind.TOOL_ERROR:
            for line in text.splitlines():
                holders[_salient(line)].add(key)
            first = next((x for x in text.splitlines() if len(_content(_salient(x))) >= 4), "")
            lines.setdefault(_salient(first), first)
    rare = Counter(word for _, text in home.searched for word in set(_content(text)))
    for line in lines:
        if line and len(holders[line]) <= MOST_MESSAGES:
            for query in _degraded(line, rare):
                yield query, (), holders[line]


def _salient(line: str) -> str:
    """Return a line without what changes from one time to the next."""
    return _SPACE.sub(" ", _VARYING.sub(" ", line)).strip()


def _degraded(line: str, rare: Counter[str]) -> Iterator[str]:
    words = line.split()[:24]
    chance = random.Random(digest(line))
    kept = sorted(chance.sample(range(len(words)), min(len(words), max(3, len(words) // 2))))
    yield " ".join(words[at] for at in kept)
    content = list(dict.fromkeys(_content(line)))[:16]
    rarest = sorted(content, key=lambda word: (rare[word], word))[: chance.choice((2, 3))]
    yield " ".join(["the error about", *sorted(rarest, key=content.index)])
    chance.shuffle(content)
    yield " ".join(content)


def _identifiers(home: Home) -> Iterator[Found]:
    holders: dict[str, set[Key]] = defaultdict(set)
    for key, text in home.searched:
        for name in _IDENTIFIER.findall(text):
            holders[name].add(key)
    for key, text in home.searched:
        if key.kind is not Kind.USER_TEXT:
            continue
        for name in dict.fromkeys(_IDENTIFIER.findall(text)):
            parts = [part.lower() for part in _CASE.findall(name)]
            if len(parts) < 2 or len(holders[name]) > MOST_HOLDERS:
                continue
            recased = "".join(map(str.title, parts)) if "_" in name else "_".join(parts)
            yield recased, (), holders[name]
            yield " ".join(parts), (), holders[name]
            around = [w for w in _content(text) if w not in name.lower()]
            if len(around) >= 2:
                context = random.Random(digest(name + text)).sample(around, 2)
                yield " ".join([*parts, *context]), (), home.equal_prompts[text]


def _prompts(home: Home) -> Iterator[Found]:
    for text, same in home.equal_prompts.items():
        words = list(dict.fromkeys(_content(text)))
        if len(words) >= 8 and len(same) <= MOST_MESSAGES:
            yield " ".join(random.Random(digest(text)).sample(words, 5)), (), same


def _cjk_pieces(home: Home) -> Iterator[Found]:
    for size in (2, 3, 4, 6):
        holders: dict[str, set[Key]] = defaultdict(set)
        for key, text in home.searched:
            for run in _CJK_RUN.findall(text):
                for at in range(len(run) - size + 1):
                    holders[run[at : at + size]].add(key)
        few = sorted((p for p in holders if len(holders[p]) <= 15), key=digest)
        for piece in few[: MOST_PER_SET // 4]:
            yield piece, (), holders[piece]


def _content(text: str) -> Sequence[str]:
    return [w for w in map(str.lower, _WORD.findall(text)) if len(w) > 2 and w not in _COMMON]
