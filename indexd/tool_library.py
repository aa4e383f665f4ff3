"""Events to states of the index of tools, and what was kept to the first of them.

To the index a tool is what a session is: a file with an id of its own and one document. A tool
that changes gets a new id, so an event costs the tools that it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from indexd.catalog import Catalog, Change, Server
from indexd.index import FileFacts, Index, merge_parts
from indexd.segment import Segment
from indexd.tool import Tool
from indexd.tool_analysis import SPELLING, Words, analyse
from indexd.tool_ids import ToolNames
from indexd.tool_query import Known, QueryReader, Spellings
from indexd.tool_ranking import Ranking
from indexd.tool_words import vocabulary

# A catalog is small and its queries are many: it is kept in few parts.
MAX_PARTS = 2


class Restored(NamedTuple):
    """A server as it was kept: its file ids by tool name, and the segments that hold them.

    Without file ids its tools are analysed again.
    """

    server: Server
    file_ids: Mapping[str, int]
    segments: Sequence[Segment] = ()


class State(NamedTuple):
    """All that answers need, at one moment; nothing in it changes but what is remembered."""

    catalog: Catalog
    tools: Mapping[int, Tool]  # by file id
    file_ids: Mapping[str, int]  # by the tool's id
    names: ToolNames
    reader: QueryReader
    ranking: Ranking


class Update(NamedTuple):
    """What an event changes, ready to be taken up: `segment` holds the tools that are new.

    file_ids: of all of the server's tools, by name.
    """

    change: Change
    server: Server
    file_ids: Mapping[str, int]
    segment: Segment | None
    spelt: Sequence[str]
    state: State


class ToolLibrary:
    """The tools of all servers in an index; `state` is what answers are made from.

    `prepare` and `tidy` may work in another thread than the one that answers, one at a time; what
    they return has no effect until it is given to `commit`.
    """

    def __init__(self) -> None:
        self._index = Index()
        self._words = Words()
        self._spellings = Spellings()
        self._next_id = 1
        self.state = self._seen(Catalog(), {}, {}, ToolNames())

    def restore(self, kept: Iterable[Restored]) -> list[Update]:
        """Take up what was kept, and return what had to be made again, already committed."""
        kept = list(kept)
        segments = [segment for each in kept for segment in each.segments]
        ids = [int(segment.file_ids.max(initial=0)) for segment in segments]
        self._next_id = 1 + max([*ids, *(i for k in kept for i in k.file_ids.values())], default=0)
        whole = [each for each in kept if each.file_ids.keys() == each.server.tools.keys()]
        file_ids = {t.id: k.file_ids[t.name] for k in whole for t in k.server.tools.values()}
        catalog = Catalog(each.server for each in whole)
        tools = {file_ids[tool.id]: tool for tool in catalog.tools()}
        self._index.restore(segments, [_facts(i, tool) for i, tool in tools.items()])
        self.state = self._seen(catalog, tools, file_ids, ToolNames(tools.values()))
        self._spellings.learn(word for segment in segments for word in _spelt(segment))
        self.commit(self.tidy(most=1))
        return [self._made_again(each.server) for each in kept if each not in whole]

    def _made_again(self, server: Server) -> Update:
        catalog = Catalog([*self.state.catalog.servers.values(), server])
        added = tuple(tool.id for tool in server.tools.values())
        update = self._update(catalog, Change(server.name, server.online, added))
        self.commit(update)
        return update

    def prepare(self, event: Mapping[str, Any]) -> Update:
        """Return what a connection event changes; raises BadRequest for a malformed one."""
        return self._update(*self.state.catalog.after(event))

    def tidy(self, most: int = MAX_PARTS) -> State:
        """Return the present state with at most so many parts of the index, or little more."""
        state = self.state
        while due := self._index.due(most):
            self._index.replace(due, merge_parts(due))
            state = self._seen(state.catalog, state.tools, state.file_ids, state.names)
        return state

    def commit(self, what: Update | State) -> None:
        """Let what was prepared take effect."""
        if isinstance(what, Update):
            self._spellings.learn(what.spelt)
            what = what.state
        self.state = what

    def _update(self, catalog: Catalog, change: Change) -> Update:
        state, server = self.state, catalog.servers[change.server]
        said_anew = {*change.added, *change.changed}
        fresh = [tool for tool in server.tools.values() if tool.id in said_anew]
        file_ids = state.file_ids
        segment = None
        seen = state._replace(catalog=catalog)
        if fresh or change.removed:
            new = dict(enumerate(fresh, self._next_id))
            self._next_id += len(new)
            gone = [file_ids[id] for id in (*change.changed, *change.removed)]
            segment = self._analysed(new)
            tools = {**state.tools, **new}
            lost = {tool.id: tool for tool in map(tools.pop, gone)}
            file_ids = {**file_ids, **{tool.id: file_id for file_id, tool in new.items()}}
            for id in change.removed:
                del file_ids[id]
            names = state.names
            if change.added or change.removed:
                came = [tool for tool in fresh if tool.id not in lost]
                names = names.after([lost[id] for id in change.removed], came)
            self._index.publish([segment], [_facts(i, tool) for i, tool in new.items()], gone)
            seen = self._seen(catalog, tools, file_ids, names)
        ids = {tool.name: file_ids[tool.id] for tool in server.tools.values()}
        return Update(change, server, ids, segment, _spelt(segment) if segment else (), seen)

    def _analysed(self, tools: Mapping[int, Tool]) -> Segment:
        if self._words.full:
            self._words = Words()
        return analyse(list(tools.items()), self._words)

    def _seen(
        self,
        catalog: Catalog,
        tools: Mapping[int, Tool],
        file_ids: Mapping[str, int],
        names: ToolNames,
    ) -> State:
        """Return the state of the index as it is now, with these tools in it."""
        snapshot = self._index.snapshot
        reader = QueryReader(Known(snapshot, self._spellings), vocabulary())
        return State(catalog, tools, file_ids, names, reader, Ranking(snapshot))


def _facts(file_id: int, tool: Tool) -> FileFacts:
    return FileFacts(file_id, tool.id, tool.server, "mcp")


def _spelt(segment: Segment) -> list[str]:
    """Return the words of a segment as they are spelt."""
    return [t[len(SPELLING) :].decode() for t in segment.dictionary.beginning(SPELLING.encode())]
