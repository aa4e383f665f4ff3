"""The socket's methods as Python calls, once for the blocking and the awaited client."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Methods:
    """One call per method; parameters left at None are not sent.

    Each returns the answer's `result` as a plain dict (`AsyncClient`: an awaitable of it) and
    raises the IndexdError that stands for the daemon's error. docs/protocol.md describes every
    parameter and answer.
    """

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of `method`; what all methods below come to."""
        raise NotImplementedError

    def search(
        self,
        query: str,
        *,
        scope: str | None = None,
        kinds: list[str] | None = None,
        role: str | None = None,
        tool_name: str | None = None,
        literal: bool | None = None,
        limit: int | None = None,
        offset: int | None = None,
        generation: int | None = None,
        agent: str | None = None,
        session: str | None = None,
        project: str | None = None,
        session_dir: str | None = None,
        subagents: str | None = None,
        source: str | None = None,
        since: int | str | None = None,
        until: int | str | None = None,
        order: str | None = None,
        recency: float | None = None,
        group: str | None = None,
        copies: str | None = None,
        sync: bool | None = None,
        reveal: bool | None = None,
    ) -> Any:
        """Return ranked `hits` for `query`.

        `since` and `until` are unix milliseconds, or words: a date, `yesterday`, an age (`3d`).
        """
        return self.call(
            "search",
            _given(
                query=query,
                scope=scope,
                kinds=kinds,
                role=role,
                tool_name=tool_name,
                literal=literal,
                limit=limit,
                offset=offset,
                generation=generation,
                agent=agent,
                session=session,
                project=project,
                session_dir=session_dir,
                subagents=subagents,
                source=source,
                since=since,
                until=until,
                order=order,
                recency=recency,
                group=group,
                copies=copies,
                sync=sync,
                reveal=reveal,
            ),
        )

    def around(
        self,
        session_path: str,
        message_index: int | None = None,
        before: int | None = None,
        after: int | None = None,
        *,
        at: int | str | None = None,
        full: bool | None = None,
        reasoning: bool | None = None,
        reveal: bool | None = None,
    ) -> Any:
        """Return the `messages` of one session near `message_index`, or near where `at` is.

        `at` is "start", "end", or a time as `search` takes it.
        """
        return self.call(
            "around",
            _given(
                session_path=session_path,
                message_index=message_index,
                at=at,
                before=before,
                after=after,
                full=full,
                reasoning=reasoning,
                reveal=reveal,
            ),
        )

    def show(
        self,
        session_path: str,
        first: int | None = None,
        limit: int | None = None,
        *,
        reasoning: bool | None = None,
        reveal: bool | None = None,
    ) -> Any:
        """Return a page of a session: `messages` from `first` on, and where the `next` begins."""
        return self.call(
            "show",
            _given(
                session_path=session_path,
                first=first,
                limit=limit,
                reasoning=reasoning,
                reveal=reveal,
            ),
        )

    def sessions(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        scope: str | None = None,
        project: str | None = None,
        session_dir: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        subagents: str | None = None,
        source: str | None = None,
        since: int | str | None = None,
        until: int | str | None = None,
        sync: bool | None = None,
        reveal: bool | None = None,
    ) -> Any:
        """Return the `sessions` there are, the latest first."""
        return self.call(
            "sessions",
            _given(
                limit=limit,
                offset=offset,
                scope=scope,
                project=project,
                session_dir=session_dir,
                agent=agent,
                session=session,
                subagents=subagents,
                source=source,
                since=since,
                until=until,
                sync=sync,
                reveal=reveal,
            ),
        )

    def history(self, payload: dict[str, Any] | None = None, /, **fields: Any) -> Any:
        """Return the `text` that answers a `history` tool call, given whole or by its fields."""
        return self.call("history", {**(payload or {}), **fields})

    def tool_search(
        self,
        query: str | None = None,
        *,
        tool_id: str | None = None,
        max_results: int | None = None,
        session: str | None = None,
        server: str | None = None,
        detail: str | None = None,
    ) -> Any:
        """Return the `tools` that fit `query`, or the one that is `tool_id`."""
        return self.call(
            "tool_search",
            _given(
                query=query,
                tool_id=tool_id,
                max_results=max_results,
                session=session,
                server=server,
                detail=detail,
            ),
        )

    def tool_list(
        self,
        session: str | None = None,
        context_window: int | None = None,
        budget: int | None = None,
    ) -> Any:
        """Return which tools a session has loaded and which it could search for.

        `budget`, in tokens, shortens the list to first sentences, then to ids.
        """
        return self.call(
            "tool_list", _given(session=session, context_window=context_window, budget=budget)
        )

    def mcp_event(
        self,
        event: str,
        server: str,
        tools: list[dict[str, Any]] | None = None,
        *,
        instructions: str | None = None,
        time: int | str | None = None,
    ) -> Any:
        """Tell the daemon that an MCP server connected, changed its tools or went away."""
        return self.call(
            "mcp_event",
            _given(event=event, server=server, tools=tools, instructions=instructions, time=time),
        )

    def status(self) -> Any:
        """Return what the daemon knows about itself, its roots and its index."""
        return self.call("status", {})

    def sync(self) -> Any:
        """Return once every line written before this call is in the index."""
        return self.call("sync", {})

    def reindex(self, path: str | None = None) -> Any:
        """Have the sessions at or below `path`, or all of them, read again from the start."""
        return self.call("reindex", _given(path=path))


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
