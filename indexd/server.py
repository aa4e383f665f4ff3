"""The socket's side of the daemon: who may ask, what, how much of it, and for how long.

Whatever a peer does, the others are served: the loop that accepts outlives a lack of
descriptors, a handler's bug ends nothing but its answer, and a peer that stalls is dropped. Only
here do exceptions become the error maps of the wire.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
from anyio.abc import TaskGroup, TaskStatus, UNIXSocketStream

from indexd import __version__, protocol
from indexd.connection import Connection, Idle, Limits
from indexd.errors import (
    BadRequest,
    Busy,
    IndexdError,
    Internal,
    NotAllowed,
    Timeout,
    VersionMismatch,
)
from indexd.peer import credentials
from indexd.requests import Hello, Request, convert, nearest, shown

# What accept says when there is no room for another connection, here or in the kernel.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# A peer that left the queue before its turn; EPERM is a packet filter's word.
PEER_LEFT = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM})
EXHAUSTED_PAUSE_SECONDS = 0.1

GONE = (anyio.EndOfStream, anyio.BrokenResourceError)

log = logging.getLogger(__name__)


class Method(NamedTuple):
    """What answers a method: called with its checked `request`, it returns the result."""

    call: Callable[[Any], Awaitable[Mapping[str, Any]]]
    request: type[Request]


class Server:
    """Answers every connection to one listening socket until told to stop.

    `connections` is how many there are now.
    """

    def __init__(
        self,
        listener: socket.socket,
        methods: Mapping[str, Method],
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self._listener = listener
        self._methods = {"hello": Method(self._hello, Hello), **methods}
        self._limits = limits
        self._large = anyio.Lock()
        self.connections = 0
        self._accepting = anyio.CancelScope()
        self._waiting: set[anyio.CancelScope] = set()
        # Who has not said hello yet, and who asks nothing, and since when; the longest first.
        self._strangers: dict[anyio.CancelScope, float] = {}
        self._idle: dict[anyio.CancelScope, float] = {}
        self._stopping = False

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`; then give the answers under way `drain_seconds` to get out."""
        self._listener.setblocking(False)
        self._spare = _any_descriptor()
        try:
            async with anyio.create_task_group() as connections:
                with self._accepting:
                    task_status.started()
                    await self._accept(connections)
                drained = anyio.current_time() + self._limits.drain_seconds
                connections.cancel_scope.deadline = drained
        finally:
            os.close(self._spare)

    def stop(self) -> None:
        """Accept and read nothing more; `run` returns soon."""
        self._stopping = True
        self._accepting.cancel()
        for scope in self._waiting:
            scope.cancel()

    async def _accept(self, connections: TaskGroup) -> None:
        while True:
            await anyio.wait_readable(self._listener)
            try:
                peer, _ = self._listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                await self._survive(error)
                continue
            if self._admit(peer):
                self.connections += 1
                connections.start_soon(self._serve, peer)

    async def _survive(self, error: OSError) -> None:
        """Pause where there was no room for a connection; raise what cannot pass by itself."""
        if error.errno in PEER_LEFT:
            return
        if error.errno not in EXHAUSTED:
            raise error
        log.warning("accept failed error=%s", error.strerror)
        # Without this the peer would wait, and we would be told of it again at once.
        os.close(self._spare)
        with suppress(OSError):
            _turn_away(self._listener.accept()[0], _too_many("descriptors"))
        self._spare = _any_descriptor()
        await anyio.sleep(EXHAUSTED_PAUSE_SECONDS)

    def _admit(self, peer: socket.socket) -> bool:
        pid, uid = credentials(peer)
        if uid != os.geteuid():
            log.warning("refused uid=%d pid=%d", uid, pid)
            _turn_away(peer, _stranger(uid))
        elif self.connections >= self._limits.connections and not self._make_room():
            log.warning("busy connections=%d pid=%d", self.connections, pid)
            _turn_away(peer, _too_many("connections"))
        else:
            return True
        return False

    def _make_room(self) -> bool:
        """Hang up on who owes us a hello for longest, else on who is idle for longest.

        Say if there is room now: nobody has to go who has not been silent for a while.
        """
        now, limits = anyio.current_time(), self._limits
        patience = ((self._strangers, limits.patience_seconds), (self._idle, limits.rest_seconds))
        for silent, seconds in patience:
            scope, since = next(iter(silent.items()), (None, 0.0))
            if scope is not None and now - since >= seconds:
                del silent[scope]
                scope.cancel()
                return True
        return False

    async def _serve(self, peer: socket.socket) -> None:
        try:
            with peer:
                stream = await UNIXSocketStream.from_socket(peer)
                await self._converse(Connection(stream, self._limits, self._large))
        except (*GONE, Idle, TimeoutError) as error:
            log.debug("connection ended reason=%s", type(error).__name__)
        except Exception:
            log.exception("connection failed")
        finally:
            self.connections -= 1

    async def _converse(self, connection: Connection) -> None:
        limits = self._limits
        try:
            hello = await self._first(connection)
            _check_first(hello)
            answer = await self._answer(hello)
            await connection.send(_frame(answer))
            while "result" in answer:
                request = await self._next(
                    connection, limits.idle_seconds, protocol.MAX_EVENT_BYTES
                )
                await connection.send(_frame(await self._answer(request)))
        except IndexdError as error:
            await connection.send(_frame({"id": None, "error": error.as_map()}))

    async def _first(self, connection: Connection) -> dict[str, Any]:
        """Return the first request; raises Idle where it does not come, or not soon enough."""
        with anyio.CancelScope() as scope:
            self._strangers[scope] = anyio.current_time()
            try:
                return await self._next(
                    connection, self._limits.hello_seconds, protocol.MAX_REQUEST_BYTES
                )
            finally:
                self._strangers.pop(scope, None)
        raise Idle

    async def _next(self, connection: Connection, seconds: float, limit: int) -> dict[str, Any]:
        """Return the next request; raises Idle where there will be none."""
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            self._idle[scope] = anyio.current_time()
            try:
                if not self._stopping:
                    await connection.begun(seconds)
                    self._idle.pop(scope, None)
                    return await connection.receive(limit)
            finally:
                self._waiting.discard(scope)
                self._idle.pop(scope, None)
        raise Idle

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request, whatever becomes of it."""
        request_id = request.get("id")
        error: IndexdError
        try:
            return {"id": request_id, "result": await self._result(request)}
        except IndexdError as expected:
            log.debug("refused code=%s", expected.code, exc_info=expected)
            error = expected
        except MemoryError as lack:
            log.warning("no memory method=%s error=%s", shown(request.get("method")), lack)
            error = _too_many("memory")
        except Exception:
            log.exception("method failed method=%s", shown(request.get("method")))
            error = _bug()
        return {"id": request_id, "error": error.as_map()}

    async def _result(self, request: dict[str, Any]) -> Mapping[str, Any]:
        name, params = _envelope(request)
        method = self._methods.get(name)
        if method is None:
            raise BadRequest(f"unknown method {shown(name)}", nearest(name, self._methods))
        checked = convert(params, method.request)
        with anyio.move_on_after(self._limits.answer_seconds):
            return await method.call(checked)
        raise Timeout(
            f"{name} took over {self._limits.answer_seconds:g} s", "ask for less, or try again"
        )

    async def _hello(self, request: Hello) -> dict[str, Any]:
        lowest, highest = request.protocol
        shared = min(highest, protocol.PROTOCOL_MAX)
        if shared < max(lowest, protocol.PROTOCOL_MIN):
            raise VersionMismatch(
                f"this daemon ({__version__}) speaks protocol {protocol.PROTOCOL_MIN} to "
                f"{protocol.PROTOCOL_MAX}, not {lowest} to {highest}",
                "update the older of the two, then restart the daemon",
            )
        return {
            "protocol": shared,
            "version": __version__,
            "capabilities": sorted(self._methods),
        }


def _check_first(request: dict[str, Any]) -> None:
    if request.get("method") != "hello":
        raise BadRequest(
            f"the first request is {shown(request.get('method'))}, not hello",
            'begin with {"id": 0, "method": "hello", "params": {"protocol": [1, 1]}}',
        )


def _envelope(request: dict[str, Any]) -> tuple[str, Mapping[str, object]]:
    """Return method and parameters of a request; raises BadRequest when it is not one."""
    for name in request:
        if name not in ("id", "method", "params"):
            raise BadRequest(
                f"a request has no {shown(name)}", 'send {"id": ..., "method": ..., "params": {}}'
            )
    method, params = request.get("method"), request.get("params")
    if params is None:
        params = {}
    if not isinstance(request.get("id"), int | str | None):
        raise BadRequest("the id is neither a number nor a string", "count requests from 1")
    if not isinstance(method, str):
        raise BadRequest(f"the method is {shown(method)}, not a string", "name a method")
    if not isinstance(params, dict) or not all(isinstance(name, str) for name in params):
        raise BadRequest("the params are not a map by name", 'send {"name": value}')
    return method, params


def _frame(answer: dict[str, Any]) -> bytes:
    """Return the frame of an answer; of an error when the answer cannot travel."""
    error: IndexdError
    try:
        return protocol.encode(answer, protocol.MAX_ANSWER_BYTES)
    except BadRequest as expected:
        error = expected
    except Exception:
        log.exception("answer cannot be encoded")
        error = _bug()
    return protocol.encode({"id": answer["id"], "error": error.as_map()}, protocol.MAX_ANSWER_BYTES)


def _any_descriptor() -> int:
    return os.open("/", os.O_PATH | os.O_CLOEXEC)


def _turn_away(peer: socket.socket, error: IndexdError) -> None:
    """Answer a connection that will not be served, without waiting for it, and close it."""
    with peer, suppress(OSError):
        peer.setblocking(False)
        peer.send(_frame({"id": None, "error": error.as_map()}))


def _too_many(what: str) -> Busy:
    return Busy(f"the daemon has no {what} left", "close some, or try again in a moment")


def _stranger(uid: int) -> NotAllowed:
    return NotAllowed(
        f"this daemon answers user {os.geteuid()}, not user {uid}",
        "run indexd as the user who asks",
    )


def _bug() -> Internal:
    return Internal("the daemon failed on this request", "its log has the reason; please report it")
