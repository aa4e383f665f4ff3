"""An MCP server over stdio, through which agents ask the daemon.

Three tools, whose descriptions and schemas are part of the agents' cached prompts: their bytes
are fixed here and pinned by a test. Every call goes to the daemon's socket as it came; what the
daemon refuses comes back as the tool's error, for the model to read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from indexd import __version__
from indexd.client import Client
from indexd.errors import BadRequest, IndexdError

INSTRUCTIONS = (
    "What was said and done in past coding-agent sessions on this machine, and which MCP tool "
    "does a thing. Search first, then read around a hit."
)

# Fixed bytes: change them only with a new version, as every agent's cached prompt holds them.
TOOLS = r"""[
{"name": "history",
 "title": "Session history",
 "description": "Search past coding-agent sessions by keywords, or read the messages around a hit. operation=search takes a query and returns ranked hits with session_path and message_index; operation=around takes those two and returns the neighbouring messages.",
 "inputSchema": {"type": "object", "properties": {
  "operation": {"type": "string", "enum": ["search", "around"]},
  "query": {"type": "string", "description": "search: words to look for; rare ones (names, error texts) find most"},
  "scope": {"type": "string", "enum": ["project", "global"], "description": "search: this project's sessions, or all (default project)"},
  "kind": {"type": "array", "items": {"type": "string", "enum": ["user_text", "assistant_text", "tool_input", "tool_error", "tool_output", "reasoning", "summary", "meta"]}, "description": "search: what to look in (default: the first four)"},
  "limit": {"type": "integer", "description": "search: most hits, 1 to 20 (default 8)"},
  "tool_name": {"type": "string", "description": "search: only calls and results of this tool"},
  "session_dir": {"type": "string", "description": "search: only sessions in this directory"},
  "session_path": {"type": "string", "description": "around: a hit's session_path"},
  "message_index": {"type": "integer", "description": "around: a hit's message_index"},
  "before": {"type": "integer", "description": "around: messages before (default 3)"},
  "after": {"type": "integer", "description": "around: messages after (default 3)"}},
  "required": ["operation"]}},
{"name": "session_search",
 "title": "Search sessions",
 "description": "Search past coding-agent sessions with filters and return hits as JSON: score, session_path, message_index, kind, agent, project, timestamp and snippet. Read on with the history tool's operation=around.",
 "inputSchema": {"type": "object", "properties": {
  "query": {"type": "string", "description": "words to look for"},
  "scope": {"type": "string", "enum": ["project", "global"], "description": "this project's sessions, or all (default global)"},
  "kinds": {"type": "array", "items": {"type": "string", "enum": ["user_text", "assistant_text", "tool_input", "tool_error", "tool_output", "reasoning", "summary", "meta"]}, "description": "what to look in (default: the first four)"},
  "agent": {"type": "string", "description": "only sessions of this agent, such as claude or codex"},
  "session": {"type": "string", "description": "only this session, by id or path"},
  "tool_name": {"type": "string", "description": "only calls and results of this tool"},
  "since": {"type": "string", "description": "not older than: a date, or an age such as 3d"},
  "until": {"type": "string", "description": "not newer than: a date, or an age"},
  "order": {"type": "string", "enum": ["relevance", "recent"]},
  "limit": {"type": "integer", "description": "most hits (default 8)"},
  "offset": {"type": "integer", "description": "hits to skip"}},
  "required": ["query"]}},
{"name": "tool_search",
 "title": "Find MCP tools",
 "description": "Find the MCP tool that does a thing. Give either query (what the tool should do, in plain words, or its name) or tool_id (server::tool). Returns signatures; detail=full adds the input schema.",
 "inputSchema": {"type": "object", "properties": {
  "query": {"type": "string", "description": "a verb and an object, and the server if known"},
  "tool_id": {"type": "string", "description": "one tool, as server::tool"},
  "server": {"type": "string", "description": "only this server's tools"},
  "max_results": {"type": "integer", "description": "most tools (default 5)"},
  "detail": {"type": "string", "enum": ["signature", "full"], "description": "default signature; full for a tool_id"}}}}
]"""  # noqa: E501 (one line per text, as it is sent)

Call = Callable[[Client, dict[str, Any], str], str]


def tools() -> list[types.Tool]:
    """Return the three tools as they are offered; all of them only read."""
    hints = {"readOnlyHint": True, "openWorldHint": False}
    return [types.Tool.model_validate({**raw, "annotations": hints}) for raw in json.loads(TOOLS)]


async def serve(client: Client, project: str) -> None:
    """Answer MCP requests on stdin and stdout until stdin ends.

    `project` is the directory whose sessions "project" means.
    """
    offered = tools()
    one_at_a_time = anyio.CapacityLimiter(1)

    async def list_tools(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=offered)

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text = await anyio.to_thread.run_sync(
                call, client, params.name, params.arguments or {}, project, limiter=one_at_a_time
            )
        except IndexdError as error:
            told = f"{error.message}; {error.hint}" if error.hint else error.message
            return _result(told, is_error=True)
        return _result(text)

    server = Server(
        "indexd",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def call(client: Client, name: str, arguments: Mapping[str, Any], project: str) -> str:
    """Return the text that answers one tool call.

    Raises BadRequest for a tool or an argument that is not offered, and what the daemon says.
    """
    if name not in _CALLS:
        raise BadRequest(f"no tool {name!r}", f"one of {', '.join(sorted(_CALLS))}")
    allowed = next(t.input_schema["properties"] for t in tools() if t.name == name)
    unknown = [key for key in arguments if key not in allowed]
    if unknown:
        raise BadRequest(f"{name} takes no {unknown[0]!r}", f"it takes {', '.join(allowed)}")
    return _CALLS[name](client, dict(arguments), project)


def _history(client: Client, arguments: dict[str, Any], project: str) -> str:
    if "session_dir" not in arguments:
        arguments["project"] = project
    return str(client.history(arguments)["text"])


def _session_search(client: Client, arguments: dict[str, Any], project: str) -> str:
    return _json(client.call("search", {"project": project, "scope": "global", **arguments}))


def _tool_search(client: Client, arguments: dict[str, Any], project: str) -> str:
    detail = "full" if "tool_id" in arguments else "signature"
    return _json(client.call("tool_search", {"detail": detail, **arguments}))


_CALLS: dict[str, Call] = {
    "history": _history,
    "session_search": _session_search,
    "tool_search": _tool_search,
}


def _json(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def _result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    # A path may hold bytes that are no character; JSON-RPC carries characters only.
    whole = text.encode("utf-8", "backslashreplace").decode()
    return types.CallToolResult(content=[types.TextContent(text=whole)], is_error=is_error)
