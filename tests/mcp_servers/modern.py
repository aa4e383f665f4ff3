"""An MCP server by the official SDK, over HTTP on a port of its own choosing, told on stdout.

Requests need the header `x-key: open-sesame`; POST /add adds a tool and says so.
"""

from __future__ import annotations

import asyncio
import socket

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

TOOLS = [
    types.Tool(name="echo", description="Say it again.", input_schema={"type": "object"}),
    types.Tool(name="hidden", description="Is denied.", input_schema={"type": "object"}),
]
BUS = InMemorySubscriptionBus()


async def list_tools(*_: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS, ttl_ms=60_000, cache_scope="public")


async def add(_: Request) -> Response:
    schema = {"type": "object"}
    TOOLS.append(types.Tool(name="late", description="Came later.", input_schema=schema))
    await BUS.publish(ToolsListChanged())
    return PlainTextResponse("ok")


def app() -> object:
    server = Server(
        "modern",
        on_list_tools=list_tools,
        on_subscriptions_listen=ListenHandler(BUS),
        instructions="Speak up.",
    )
    route = Route("/add", add, methods=["POST"])
    inner = server.streamable_http_app(custom_starlette_routes=[route])

    async def guarded(scope: dict, receive: object, send: object) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"x-key") != b"open-sesame":
            await PlainTextResponse("who are you?", 401)(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return guarded


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # noqa: T201
    config = uvicorn.Config(app(), log_level="error")
    await uvicorn.Server(config).serve(sockets=[listener])


asyncio.run(main())
